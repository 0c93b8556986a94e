//! `zpool iostat`.
//!
//! Counters of the engine only grow; rates are made here, of two samples.

use crate::iostat_table::{Form, Part};
use crate::pools;
use crate::vdevs::Names;
use tarn_administration::messages::statistics::{IoSample, VdevIo};
use tarn_api::client::Client;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::interval::Interval;
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::screen;
use tarn_terminal::timestamp::TimeForm;

const GRAMMAR: Grammar = Grammar {
    short: "c:gLPT:vyhplqrwnH",
    long: &[],
};

/// The width of the columns of rates, which leave the rest of a screen to names.
const RATES_WIDTH: usize = 42;

/// How wide the column of names is at least.
const NAME_WIDTH_MIN: usize = 10;

/// A command line, understood.
#[derive(Debug)]
struct Request {
    /// Pools and vdevs; all pools when empty.
    operands: Vec<String>,
    form: Form,
    /// `-v`, which a list of vdevs implies for the table but not for its heading.
    is_verbose: bool,
    /// `-y`: nothing of the time since the pool was opened.
    skips_first: bool,
    /// `-n`: one heading only.
    has_one_header: bool,
    time: Option<TimeForm>,
    interval: Interval,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let mut request = parse(arguments)?;
    let client = session.connect()?;
    let all = sample(&client)?;
    take_interval(&mut request, &all)?;
    let Some(names) = resolve(&mut request, &all)? else {
        complain("Unable to parse pools/vdevs list.");
        complain("");
        return Ok(1);
    };
    if all.is_empty() && request.interval.pause.is_zero() {
        return Err(Failure::error("no pools available"));
    }
    check_parts(&request.form)?;
    repeat(&client, request, &names, all)
}

/// Prints tables until enough were printed.
fn repeat(client: &Client, mut request: Request, names: &[String], first: Vec<VdevIo>) -> Outcome {
    let mut old: Vec<VdevIo> = Vec::new();
    let mut new = chosen(first, names);
    let (mut round, mut printed) = (0, 0);
    loop {
        if new.len() != old.len() {
            round = 0;
        }
        round += 1;
        if new.is_empty() {
            complain("no pools available");
            printed += 1;
        } else {
            request.form.name_width = name_width(client, &request, &new)?;
            let is_skipped = request.skips_first && round == 1;
            if let Some(form) = request.time {
                output::say(&format!("{}\n", form.now()));
            }
            if has_header(&request, round, is_skipped) {
                output::say(&request.form.header());
            }
            if !is_skipped {
                let before: &[VdevIo] = if round == 1 { &[] } else { &old };
                output::say(&table(&request, before, &new));
                printed += 1;
            }
        }
        if printed == 0 && request.interval.pause.is_zero() {
            // The time since the pool was opened was not wanted, and there is none other.
            take_next(client, names, &mut old, &mut new)?;
            continue;
        }
        if !request.interval.wait(printed) {
            return Ok(0);
        }
        take_next(client, names, &mut old, &mut new)?;
    }
}

/// Takes the next sample.
fn take_next(
    client: &Client,
    names: &[String],
    old: &mut Vec<VdevIo>,
    new: &mut Vec<VdevIo>,
) -> Result<(), Failure> {
    *old = std::mem::replace(new, chosen(sample(client)?, names));
    Ok(())
}

/// All pools, by name.
fn sample(client: &Client) -> Result<Vec<VdevIo>, Failure> {
    let mut pools = client.pool_iostat(IoSample::default())?.pools;
    pools.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(pools)
}

/// The pools that are named, or all when none is.
fn chosen(mut pools: Vec<VdevIo>, names: &[String]) -> Vec<VdevIo> {
    pools.retain(|pool| names.is_empty() || names.contains(&pool.name));
    pools
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut names = Names::from_environment();
    let mut flags: Vec<&str> = Vec::new();
    let mut time = None;
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "c" => {
                let text = "zpool iostat -c: not supported by this version of Tarn";
                return Err(Failure::error(text));
            }
            "T" => time = Some(TimeForm::parse(&value)?),
            "h" => return Err(Failure::usage("")),
            option if names.take(option) => {}
            option => flags.push(option),
        }
    }
    let has = |flag: &str| flags.contains(&flag);
    let mut parts = Vec::new();
    for (flag, part) in [("w", Part::WaitHistogram), ("r", Part::SizeHistogram)] {
        parts.extend(has(flag).then_some(part));
    }
    if parts.is_empty() {
        parts.push(Part::Rates);
    }
    for (flag, part) in [("l", Part::Waits), ("q", Part::Queues)] {
        parts.extend(has(flag).then_some(part));
    }
    Ok(Request {
        operands: options.operands(),
        form: Form {
            parts,
            is_scripted: has("H"),
            is_exact: has("p"),
            has_vdevs: has("v"),
            vdevs: Vec::new(),
            names,
            name_width: NAME_WIDTH_MIN,
        },
        is_verbose: has("v"),
        skips_first: has("y"),
        has_one_header: has("n"),
        time,
        interval: Interval::default(),
    })
}

/// Histograms stand alone.
fn check_parts(form: &Form) -> Result<(), Failure> {
    let count = |is_so: fn(Part) -> bool| form.parts.iter().filter(|part| is_so(**part)).count();
    let histograms = count(Part::is_histogram);
    if histograms > 0 && count(|part| !part.is_histogram()) > 0 {
        return Err(Failure::usage("[-r|-w] isn't allowed with [-c|-l|-q]"));
    }
    match histograms > 1 {
        true => Err(Failure::usage(
            "Only one of [-r|-w] can be passed at a time",
        )),
        false => Ok(()),
    }
}

/// Takes the interval and the count, which with `-g` could be guids.
fn take_interval(request: &mut Request, all: &[VdevIo]) -> Result<(), Failure> {
    let operands = &mut request.operands;
    let is_guid = |text: &String| {
        request.form.names.are_guids && all.iter().any(|pool| has_vdev(&request.form, pool, text))
    };
    let numbers = operands
        .iter()
        .rev()
        .take(2)
        .take_while(|text| !is_guid(text));
    let kept = operands.len() - numbers.count();
    let mut last = operands.split_off(kept);
    request.interval = Interval::take(&mut last)?;
    operands.append(&mut last);
    Ok(())
}

/// Finds out which operands are pools and which vdevs; gives the pools. None when they make no
/// sense.
fn resolve(request: &mut Request, all: &[VdevIo]) -> Result<Option<Vec<String>>, Failure> {
    let operands = std::mem::take(&mut request.operands);
    let form = &mut request.form;
    let is_pool = |name: &String| all.iter().any(|pool| pool.name == *name);
    let is_vdev = |name: &String| all.iter().any(|pool| has_vdev(form, pool, name));
    if operands.iter().all(is_pool) {
        return Ok(Some(operands));
    }
    if operands.iter().all(is_vdev) {
        form.vdevs = operands;
        form.has_vdevs = true;
        return Ok(Some(Vec::new()));
    }
    let Some((first, others)) = operands.split_first() else {
        return Ok(Some(Vec::new()));
    };
    let Some(pool) = all.iter().find(|pool| pool.name == *first) else {
        return Ok(None);
    };
    if others.iter().all(|name| has_vdev(form, pool, name)) {
        form.vdevs = others.to_vec();
        form.has_vdevs = true;
        return Ok(Some(vec![first.clone()]));
    }
    let mut text =
        format!("Expected either a list of pools, or list of vdevs in \"{first}\", but got:\n");
    for name in others {
        let what = if is_pool(name) {
            "pool"
        } else if has_vdev(form, pool, name) {
            "vdev in this pool"
        } else if is_vdev(name) {
            "vdev in another pool"
        } else {
            "unknown"
        };
        text.push_str(&format!("\t{name} ({what})\n"));
    }
    complain(text);
    Err(Failure::usage("\n"))
}

/// Whether a vdev below this one goes by this name.
fn has_vdev(form: &Form, above: &VdevIo, name: &str) -> bool {
    let mut children = above.children.iter();
    children.any(|vdev| form.is_named(vdev, name) || has_vdev(form, vdev, name))
}

/// The width of the column of names: that of the longest, as far as the screen has room.
fn name_width(client: &Client, request: &Request, pools: &[VdevIo]) -> Result<usize, Failure> {
    let width = match request.form.has_vdevs {
        false => pools.iter().map(|pool| pool.name.len()).max(),
        true => {
            let names: Vec<String> = pools.iter().map(|pool| pool.name.clone()).collect();
            let found = pools::find(client, &names, false)?.pools;
            let names = &request.form.names;
            let widths = found
                .iter()
                .map(|pool| names.width(&pool.name, &pool.layout));
            widths.max()
        }
    };
    let room = screen::columns().saturating_sub(RATES_WIDTH);
    Ok(width.unwrap_or(0).min(room).max(NAME_WIDTH_MIN))
}

/// Whether there is a heading above this table.
fn has_header(request: &Request, round: u64, is_skipped: bool) -> bool {
    if request.form.has_histograms() || request.form.is_scripted {
        return false;
    }
    let is_first = round == 1 && !is_skipped;
    let is_new_screen = match screen::rows().filter(|_| !request.has_one_header) {
        Some(rows) => round.is_multiple_of(rows),
        None => false,
    };
    is_first || is_skipped != request.is_verbose || is_new_screen
}

/// The table of all pools.
fn table(request: &Request, old: &[VdevIo], new: &[VdevIo]) -> String {
    let form = &request.form;
    let before = |pool: &VdevIo| old.iter().find(|other| other.guid == pool.guid);
    let mut text: String = new
        .iter()
        .map(|pool| form.pool(before(pool), pool))
        .collect();
    let has_many = new.len() > 1 && !request.is_verbose;
    if (has_many || !form.vdevs.is_empty()) && !form.has_histograms() && !form.is_scripted {
        text.push_str(&form.separator());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    fn tank() -> VdevIo {
        let leaf = |name: &str, guid| VdevIo {
            name: name.to_string(),
            path: Some(format!("/dev/{name}")),
            guid,
            ..VdevIo::default()
        };
        VdevIo {
            name: "tank".to_string(),
            children: vec![leaf("sda", 7), leaf("sdb", 8)],
            ..VdevIo::default()
        }
    }

    /// The pools and the vdevs of a command line.
    type Lists = (Vec<String>, Vec<String>);

    fn resolved(line: &str) -> Result<Option<Lists>, Failure> {
        let mut request = parsed(line)?;
        let all = [tank()];
        take_interval(&mut request, &all)?;
        let pools = resolve(&mut request, &all)?;
        Ok(pools.map(|pools| (pools, request.form.vdevs)))
    }

    #[test]
    fn operands_are_pools_or_vdevs() {
        let lists = |pools: &[&str], vdevs: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|name| name.to_string()).collect();
            Ok(Some((owned(pools), owned(vdevs))))
        };
        assert_eq!(resolved(""), lists(&[], &[]));
        assert_eq!(resolved("tank 1 3"), lists(&["tank"], &[]));
        assert_eq!(resolved("tank sda"), lists(&["tank"], &["sda"]));
        assert_eq!(resolved("sda /dev/sdb 5"), lists(&[], &["sda", "/dev/sdb"]));
        assert_eq!(resolved("nosuch"), Ok(None));
        assert!(matches!(resolved("tank nosuch"), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_number_may_be_a_guid() {
        let mut request = parsed("-g tank 7 5").unwrap();
        take_interval(&mut request, &[tank()]).unwrap();
        assert_eq!(request.operands, ["tank", "7"]);
        assert_eq!(request.interval.pause.as_secs(), 5);
    }

    #[test]
    fn histograms_are_shown_alone() {
        let refused = |line| check_parts(&parsed(line).unwrap().form);
        assert_eq!(
            refused("-wl"),
            Err(Failure::usage("[-r|-w] isn't allowed with [-c|-l|-q]"))
        );
        assert_eq!(
            refused("-wr"),
            Err(Failure::usage(
                "Only one of [-r|-w] can be passed at a time"
            ))
        );
        assert_eq!(refused("-lq"), Ok(()));
        assert_eq!(
            parsed("-lq").unwrap().form.parts,
            [Part::Rates, Part::Waits, Part::Queues]
        );
    }

    #[test]
    fn a_heading_stands_above_the_first_table_and_above_all_with_vdevs() {
        let header =
            |line: &str, round, is_skipped| has_header(&parsed(line).unwrap(), round, is_skipped);
        assert!(header("", 1, false) && header("-v", 2, false));
        assert!(!header("-n", 2, false) && !header("-H", 1, false) && !header("-w", 1, false));
        // With -y the heading is printed while the first sample is taken.
        assert!(header("-y", 1, true));
    }

    #[test]
    fn what_is_missing_is_refused_by_name() {
        assert_eq!(
            parsed("-c iostat").unwrap_err(),
            Failure::error("zpool iostat -c: not supported by this version of Tarn")
        );
        assert_eq!(parsed("-h").unwrap_err(), Failure::usage(""));
        assert_eq!(
            parsed("-T").unwrap_err(),
            Failure::usage("invalid option 'T'")
        );
    }
}
