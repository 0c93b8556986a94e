//! `zpool status`.

use crate::free_space;
use crate::list;
use crate::pools;
use crate::status_dedup;
use crate::status_json;
use crate::vdevs::{CLASSES, Names, with_role};
use tarn_administration::messages::pool::{PoolDescription, VdevRole, VdevStatus};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::interval::Interval;
use tarn_terminal::json::{self, Numbers};
use tarn_terminal::number::nice_count;
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::timestamp::TimeForm;

const GRAMMAR: Grammar = Grammar {
    short: "c:jdDegiLpPstT:vx",
    long: &[
        ("power", "power"),
        ("json", "j"),
        ("json-int", "json-int"),
        ("json-flat-vdevs", "json-flat-vdevs"),
        ("json-pool-key-guid", "json-pool-key-guid"),
    ],
};

/// Where a message id leads to.
pub const MESSAGES: &str = "https://openzfs.github.io/openzfs-docs/msg/";

/// How wide the column of names is at least.
const NAME_WIDTH_MIN: usize = 10;

/// A command line, understood.
#[derive(Debug, Default)]
pub struct Request {
    pools: Vec<String>,
    /// How vdevs are named.
    pub names: Names,
    /// `-p`.
    pub is_exact: bool,
    /// `-v`.
    pub is_verbose: bool,
    /// `-x`: only pools with problems.
    is_explaining: bool,
    /// `-e`: only vdevs with problems.
    pub only_unhealthy: bool,
    /// `-s`: I/Os that took very long.
    shows_slow: bool,
    /// `-d`: direct writes that failed verification.
    pub shows_direct: bool,
    /// `-i`.
    pub shows_initialization: bool,
    /// `-t`.
    pub shows_trim: bool,
    /// `-D`: what is known of deduplicated blocks.
    shows_dedup: bool,
    /// `--power`.
    pub shows_power: bool,
    /// `-j`.
    pub json: Option<Numbers>,
    /// `--json-flat-vdevs`.
    pub is_flat: bool,
    /// `--json-pool-key-guid`.
    pub are_keys_guids: bool,
    time: Option<TimeForm>,
    interval: Interval,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let mut done = 0;
    loop {
        let found = pools::find(&client, &request.pools, request.is_verbose)?;
        match request.json {
            Some(numbers) if !found.has_failed => {
                let mut out = json::frame(session);
                let objects = status_json::objects(&request, numbers, &found.pools);
                out.insert("pools".into(), objects.into());
                if let Some(form) = request.time {
                    out.insert("time".into(), list::time(form, numbers));
                }
                json::print(out);
            }
            Some(_) => {}
            None => print(&request, &found.pools),
        }
        done += 1;
        if found.has_failed || !request.interval.wait(done) {
            return Ok(u8::from(found.has_failed));
        }
    }
}

fn print(request: &Request, pools: &[PoolDescription]) {
    if let Some(form) = request.time {
        output::say(&format!("{}\n", form.now()));
    }
    if pools.is_empty() && request.pools.is_empty() {
        complain("no pools available");
        return;
    }
    output::say(&text(request, pools));
}

/// Understands a command line.
///
/// # Errors
/// What is wrong with it.
pub fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request {
        names: Names::from_environment(),
        ..Request::default()
    };
    let (mut is_json, mut wants_integers) = (false, false);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "c" => {
                let text = "zpool status -c: not supported by this version of Tarn";
                return Err(Failure::error(text));
            }
            "D" => request.shows_dedup = true,
            "d" => request.shows_direct = true,
            "e" => request.only_unhealthy = true,
            "i" => request.shows_initialization = true,
            "j" => is_json = true,
            "p" => request.is_exact = true,
            "s" => request.shows_slow = true,
            "t" => request.shows_trim = true,
            "T" => request.time = Some(TimeForm::parse(&value)?),
            "v" => request.is_verbose = true,
            "x" => request.is_explaining = true,
            "power" => request.shows_power = true,
            "json-int" => wants_integers = true,
            "json-flat-vdevs" => request.is_flat = true,
            "json-pool-key-guid" => request.are_keys_guids = true,
            naming => _ = request.names.take(naming),
        }
    }
    for (is_given, name) in [
        (request.is_flat, "--json-flat-vdevs"),
        (wants_integers, "--json-int"),
        (request.are_keys_guids, "json-pool-key-guid"),
    ] {
        if is_given && !is_json {
            let text = format!("'{name}' only works with '-j' option");
            return Err(Failure::usage(text));
        }
    }
    request.is_exact |= wants_integers;
    request.json = is_json.then_some(match wants_integers {
        true => Numbers::Integers,
        false => Numbers::Text,
    });
    request.pools = options.operands();
    request.interval = Interval::take(&mut request.pools)?;
    Ok(request)
}

impl Request {
    /// True for pools that `-x` leaves out.
    pub fn leaves_out(&self, pool: &PoolDescription) -> bool {
        self.is_explaining && pool.condition.is_none_or(|condition| condition.is_benign())
    }

    /// True for vdevs that `-e` leaves out: nothing is wrong with any part of them.
    pub fn leaves_out_vdev(&self, vdev: &VdevStatus) -> bool {
        self.only_unhealthy && self.is_healthy(vdev)
    }

    fn is_healthy(&self, vdev: &VdevStatus) -> bool {
        let errors = vdev.read_errors + vdev.write_errors + vdev.checksum_errors;
        let is_slow = self.shows_slow && vdev.slow_ios > 0;
        let is_up = matches!(vdev.state.as_str(), "ONLINE" | "AVAIL");
        is_up && errors == 0 && !is_slow && vdev.children.iter().all(|child| self.is_healthy(child))
    }

    fn number(&self, number: u64) -> String {
        match self.is_exact {
            true => number.to_string(),
            false => nice_count(number),
        }
    }
}

/// What is printed of these pools.
fn text(request: &Request, pools: &[PoolDescription]) -> String {
    let mut text = String::new();
    for pool in pools {
        if request.leaves_out(pool) {
            if !request.pools.is_empty() {
                text.push_str(&format!("pool '{}' is healthy\n", pool.name));
            }
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&of_pool(request, pool));
    }
    match text.is_empty() && request.is_explaining && request.pools.is_empty() {
        true => "all pools are healthy\n".to_string(),
        false => text,
    }
}

fn of_pool(request: &Request, pool: &PoolDescription) -> String {
    let mut text = format!("  pool: {}\n state: {}\n", pool.name, pool.state);
    if let Some(status) = status_text(pool) {
        text.push_str(&format!("status: {status}"));
    }
    if let Some(action) = action_text(pool) {
        text.push_str(&format!("action: {action}"));
    }
    if let Some(id) = message_id(pool) {
        text.push_str(&format!("   see: {MESSAGES}{id}\n"));
    }
    if let Some(scrub) = &pool.error_scrub {
        text.push_str(&format!(" scrub: {scrub}\n"));
    }
    for scan in pool.scan.iter().chain(&pool.more_scans) {
        text.push_str(&format!("  scan: {scan}\n"));
    }
    for (word, section) in &pool.sections {
        text.push_str(&format!("{word}: {section}\n"));
    }
    text.push_str(&Tree { request, pool }.text());
    text.push('\n');
    text.push_str(&errors(request, pool));
    if request.shows_dedup {
        text.push_str(&status_dedup::text(&pool.dedup, request.is_exact));
    }
    text
}

/// The `status:` text with its last newline.
pub fn status_text(pool: &PoolDescription) -> Option<String> {
    let given = pool.status.as_deref().filter(|text| !text.is_empty());
    let text = given.or_else(|| pool.condition.map(|condition| condition.status()))?;
    Some(with_features(text, &pool.unsupported_features))
}

/// A text, and the features it ends in.
pub fn with_features(text: &str, features: &[String]) -> String {
    let features = features.iter().map(|feature| format!("\t{feature}\n"));
    std::iter::once(format!("{text}\n"))
        .chain(features)
        .collect()
}

/// The `action:` text with its last newline.
pub fn action_text(pool: &PoolDescription) -> Option<String> {
    let given = pool.action.as_deref();
    let text = given.or_else(|| pool.condition.map(|condition| condition.action()))?;
    (!text.is_empty()).then(|| format!("{text}\n"))
}

/// The message id.
pub fn message_id(pool: &PoolDescription) -> Option<&str> {
    let given = pool.see.as_deref();
    given.or_else(|| pool.condition.and_then(|condition| condition.message_id()))
}

fn errors(request: &Request, pool: &PoolDescription) -> String {
    if pool.error_count == 0 {
        return "errors: No known data errors\n".to_string();
    }
    if !request.is_verbose {
        let count = pool.error_count;
        return format!("errors: {count} data errors, use '-v' for a list\n");
    }
    let head =
        "errors: Permanent errors have been detected in the following files:\n\n".to_string();
    let paths = pool.errors.iter().map(|path| format!("        {path}\n"));
    std::iter::once(head).chain(paths).collect()
}

/// A pool's configuration.
struct Tree<'a> {
    request: &'a Request,
    pool: &'a PoolDescription,
}

impl Tree<'_> {
    fn text(&self) -> String {
        let (request, pool) = (self.request, self.pool);
        let width = request.names.width(&pool.name, &pool.layout);
        let width = width.max(NAME_WIDTH_MIN);
        let mut text = "config:\n\n".to_string();
        text.push_str(&format!(
            "\t{:width$}  {:8} {:>5} {:>5} {:>5}",
            "NAME", "STATE", "READ", "WRITE", "CKSUM"
        ));
        for (is_shown, heading) in [
            (request.shows_slow, " SLOW"),
            (request.shows_power, "POWER"),
            (request.shows_direct, "  DIO"),
        ] {
            if is_shown {
                text.push_str(&format!(" {heading}"));
            }
        }
        text.push('\n');
        text.push_str(&self.line(&root(pool), &pool.name, 0, width));
        for vdev in with_role(&pool.layout, VdevRole::Data) {
            self.lines(vdev, 2, width, &mut text);
        }
        for (role, title) in CLASSES {
            self.list(role, &format!("{title}\t"), width, &mut text);
        }
        self.list(VdevRole::Cache, "cache", width, &mut text);
        self.list(VdevRole::Spare, "spares", width, &mut text);
        text
    }

    fn list(&self, role: VdevRole, title: &str, width: usize, text: &mut String) {
        for (index, vdev) in with_role(&self.pool.layout, role).enumerate() {
            if index == 0 {
                text.push_str(&format!("\t{title}\n"));
            }
            self.lines(vdev, 2, width, text);
        }
    }

    fn lines(&self, vdev: &VdevStatus, depth: usize, width: usize, text: &mut String) {
        if self.request.leaves_out_vdev(vdev) {
            return;
        }
        text.push_str(&self.line(vdev, &self.request.names.of(vdev), depth, width));
        for child in &vdev.children {
            self.lines(child, depth + 2, width, text);
        }
    }

    fn line(&self, vdev: &VdevStatus, name: &str, depth: usize, width: usize) -> String {
        let request = self.request;
        let width = width.saturating_sub(depth);
        let mut line = format!("\t{:depth$}{name:width$}  {:8}", "", vdev.state);
        let is_spare = vdev.role == VdevRole::Spare;
        let is_leaf = vdev.children.is_empty() && vdev.kind != "root";
        if !is_spare {
            for count in [vdev.read_errors, vdev.write_errors, vdev.checksum_errors] {
                line.push_str(&format!(" {:>5}", request.number(count)));
            }
            if request.shows_slow {
                let slow = match is_leaf {
                    _ if request.is_exact => vdev.slow_ios.to_string(),
                    true => nice_count(vdev.slow_ios),
                    false => "-".to_string(),
                };
                line.push_str(&format!(" {slow:>5}"));
            }
            if request.shows_power {
                line.push_str("     -");
            }
            if request.shows_direct {
                line.push_str(&format!(" {:>5}", request.number(vdev.direct_errors)));
            }
        }
        if let Some(remark) = &vdev.remark {
            line.push_str(&format!("  {remark}"));
        }
        if let Some(note) = &vdev.scan_note {
            line.push_str(&format!("  ({note})"));
        }
        if is_leaf {
            let (status, is_asked) = (&vdev.initialization, request.shows_initialization);
            line.push_str(&free_space::initialization_text(status.as_ref(), is_asked));
            let (status, is_asked) = (&vdev.trim, request.shows_trim);
            let is_supported = vdev.trim_supported;
            line.push_str(&free_space::trim_text(
                status.as_ref(),
                is_supported,
                is_asked,
            ));
        }
        line + "\n"
    }
}

/// The line of the whole pool, as that of a vdev.
pub fn root(pool: &PoolDescription) -> VdevStatus {
    let root = &pool.root;
    let tops = || pool.layout.iter().filter(|top| top.role != VdevRole::Log);
    VdevStatus {
        name: pool.name.clone(),
        kind: "root".to_string(),
        guid: pool.guid,
        state: match root.state.is_empty() {
            true => pool.state.clone(),
            false => root.state.clone(),
        },
        remark: root.remark.clone(),
        read_errors: root.read_errors,
        write_errors: root.write_errors,
        checksum_errors: root.checksum_errors,
        allocated_bytes: tops().map(|top| top.allocated_bytes).sum(),
        size_bytes: tops().map(|top| top.size_bytes).sum(),
        deflated_bytes: tops().map(|top| top.deflated_bytes).sum(),
        ..VdevStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tarn_administration::messages::condition::Condition;

    fn try_request(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    fn shown(line: &str, pools: &[PoolDescription]) -> String {
        text(&try_request(line).unwrap(), pools)
    }

    #[test]
    fn a_healthy_pool_is_shown_as_recorded() {
        assert_eq!(
            shown("", &[samples::basic()]),
            concat!(
                "  pool: fxbasic\n state: ONLINE\nconfig:\n\n",
                "\tNAME          STATE     READ WRITE CKSUM\n",
                "\tfxbasic       ONLINE       0     0     0\n",
                "\t  /run/0.img  ONLINE       0     0     0\n",
                "\nerrors: No known data errors\n"
            )
        );
    }

    #[test]
    fn logs_and_spares_follow_as_recorded() {
        assert_eq!(
            shown("", &[samples::mixed()]),
            concat!(
                "  pool: fxmixed\n state: ONLINE\nconfig:\n\n",
                "\tNAME            STATE     READ WRITE CKSUM\n",
                "\tfxmixed         ONLINE       0     0     0\n",
                "\t  mirror-0      ONLINE       0     0     0\n",
                "\t    /run/0.img  ONLINE       0     0     0\n",
                "\t    /run/1.img  ONLINE       0     0     0\n",
                "\t  mirror-1      ONLINE       0     0     0\n",
                "\t    /run/2.img  ONLINE       0     0     0\n",
                "\t    /run/3.img  ONLINE       0     0     0\n",
                "\tlogs\t\n",
                "\t  mirror-2      ONLINE       0     0     0\n",
                "\t    /run/4.img  ONLINE       0     0     0\n",
                "\t    /run/5.img  ONLINE       0     0     0\n",
                "\tspares\n",
                "\t  /run/6.img    AVAIL   \n",
                "\nerrors: No known data errors\n"
            )
        );
    }

    /// The fixture `damaged`.
    fn damaged() -> PoolDescription {
        let mut pool = samples::pool("fxdamaged", vec![samples::leaf(0)]);
        pool.layout[0].checksum_errors = 6;
        pool.condition = Some(Condition::CorruptData);
        pool.scan =
            Some("scrub repaired 0B in 00:00:00 with 3 errors on Fri Nov 20 16:03:34 2026".into());
        pool.error_count = 2;
        pool.errors = vec!["/fxdamaged/a/one".into(), "fxdamaged/ghost:/three".into()];
        pool
    }

    #[test]
    fn a_damaged_pool_names_its_files_as_recorded() {
        assert_eq!(
            shown("-v", &[damaged()]),
            concat!(
                "  pool: fxdamaged\n state: ONLINE\n",
                "status: One or more devices has experienced an error resulting in data\n",
                "\tcorruption.  Applications may be affected.\n",
                "action: Restore the file in question if possible.  Otherwise restore the\n",
                "\tentire pool from backup.\n",
                "   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-8A\n",
                "  scan: scrub repaired 0B in 00:00:00 with 3 errors on Fri Nov 20 16:03:34 2026\n",
                "config:\n\n",
                "\tNAME          STATE     READ WRITE CKSUM\n",
                "\tfxdamaged     ONLINE       0     0     0\n",
                "\t  /run/0.img  ONLINE       0     0     6\n",
                "\nerrors: Permanent errors have been detected in the following files:\n\n",
                "        /fxdamaged/a/one\n        fxdamaged/ghost:/three\n"
            )
        );
        assert!(
            shown("", &[damaged()]).ends_with("\nerrors: 2 data errors, use '-v' for a list\n")
        );
    }

    #[test]
    fn only_pools_with_problems_are_explained() {
        assert_eq!(shown("-x", &[samples::basic()]), "all pools are healthy\n");
        assert_eq!(
            shown("-x fxbasic", &[samples::basic()]),
            "pool 'fxbasic' is healthy\n"
        );
        let mut old = samples::basic();
        old.condition = Some(Condition::VersionOlder);
        let text = shown("-x", &[old, damaged()]);
        assert!(text.starts_with("  pool: fxdamaged\n"), "{text}");
    }

    #[test]
    fn vdevs_without_problems_may_be_left_out() {
        let mut pool = samples::mixed();
        pool.layout[1].children[0].read_errors = 1;
        let text = shown("-e", &[pool]);
        assert!(
            text.contains("mirror-1") && text.contains("/run/2.img"),
            "{text}"
        );
        assert!(
            !text.contains("mirror-0") && !text.contains("/run/3.img"),
            "{text}"
        );
        assert!(
            !text.contains("logs") || text.contains("\tlogs\t\n\tspares\n"),
            "{text}"
        );
    }

    #[test]
    fn more_columns_and_remarks_stand_behind() {
        let mut pool = samples::basic();
        pool.layout[0].state = "UNAVAIL".into();
        pool.layout[0].remark = Some("cannot open".into());
        let text = shown("-sdt", &[pool]);
        assert!(text.contains("READ WRITE CKSUM  SLOW   DIO\n"), "{text}");
        let line =
            "/run/0.img  UNAVAIL      0     0     0     0     0  cannot open  (trim unsupported)\n";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("\tfxbasic       ONLINE       0     0     0     -     0\n"),
            "{text}"
        );
    }

    #[test]
    fn what_a_scan_does_to_a_device_stands_behind_it() {
        for note in ["resilvering", "repairing", "awaiting resilver"] {
            let mut pool = samples::basic();
            pool.layout[0].scan_note = Some(note.into());
            let line = format!("\t  /run/0.img  ONLINE       0     0     0  ({note})\n");
            let text = shown("", &[pool]);
            assert!(text.contains(&line), "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_or_is_missing_is_refused() {
        for (line, failure) in [
            (
                "--json-flat-vdevs",
                Failure::usage("'--json-flat-vdevs' only works with '-j' option"),
            ),
            ("-Q", Failure::usage("invalid option 'Q'")),
            (
                "-c iostat",
                Failure::error("zpool status -c: not supported by this version of Tarn"),
            ),
        ] {
            assert_eq!(try_request(line).unwrap_err(), failure, "{line}");
        }
    }
}
