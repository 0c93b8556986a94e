//! `zarcstat`, or `arcstat`: accesses and sizes of the cache, a line an interval, as OpenZFS's
//! program of these names prints them.

use super::arc_fields::{self, Between, FIELDS, Field, Moment, Unit};
use super::kstat_samples;
use std::fs::File;
use std::io::Write;
use std::time::Duration;
use tarn_api::client::Client;
use tarn_terminal::failure::{Failure, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::{output, timestamp};

/// The fields without options, with `-x`, and with `-z`.
const USUAL: &[&str] = &[
    "time", "read", "ddread", "ddh%", "dmread", "dmh%", "pread", "ph%", "size", "c", "avail",
];
const EXTENDED: &[&str] = &[
    "time", "mfu", "mru", "mfug", "mrug", "unc", "eskip", "mtxmis", "dread", "pread", "read",
];
const OF_PREFETCHERS: &[&str] = &[
    "time", "ztotal", "zhits", "zahead", "zpast", "zmisses", "zmax", "zfuture", "zstride",
    "zissued", "zactive",
];
/// So many lines have one heading.
const LINES_OF_HEADING: u64 = 21;

const GRAMMAR: Grammar = Grammar {
    short: "haf:jo:ps:vxz",
    long: &[("help", "h"), ("json", "j")],
};

const USAGE: &str = "\
usage: zarcstat [-ahjpvxz] [-f field[,field]...] [-o file] [-s separator] [interval [count]]
\t-a            all fields that are counted
\t-f field,...  these fields
\t-h            this text
\t-j, --json    JSON: an object for each interval, with exact numbers
\t-o file       the output goes there
\t-p            exact numbers
\t-s separator  what stands between columns
\t-v            the names of all fields
\t-x            hits of the lists, and evictions
\t-z            prefetchers
";

/// What the command line says.
#[derive(Debug, Default)]
struct Asked {
    fields: Vec<&'static Field>,
    /// Fields that cannot be computed are left out.
    leaves_out: bool,
    is_exact: bool,
    is_json: bool,
    separator: Option<String>,
    file: Option<String>,
    interval_s: u64,
    /// How many lines; without end if it is 0.
    count: u64,
}

/// What a command line asks for.
#[derive(Debug)]
enum Wanted {
    Lines(Asked),
    Definitions,
    Usage,
}

/// Runs it. Exit codes are those of OpenZFS's: 0, or 1 when something is wrong.
pub fn run(arguments: &[String]) -> u8 {
    let asked = match parse(arguments) {
        Ok(Wanted::Lines(asked)) => asked,
        Ok(Wanted::Definitions) => {
            complain(definitions().trim_end());
            return 0;
        }
        Ok(Wanted::Usage) => {
            complain(USAGE.trim_end());
            return 1;
        }
        Err(why) => {
            complain(format!("Error: {why}"));
            complain(USAGE.trim_end());
            return 1;
        }
    };
    match print(asked) {
        Ok(()) => 0,
        Err(Failure::Error(why) | Failure::Usage(why)) => {
            complain(format!("zarcstat: {why}"));
            1
        }
        Err(Failure::Silent(code)) => code,
    }
}

fn definitions() -> String {
    let lines = FIELDS
        .iter()
        .map(|field| format!("{:>11} : {}\n", field.name, field.about));
    let lines: String = lines.collect();
    format!("Field definitions are as follows:\n{lines}")
}

fn parse(arguments: &[String]) -> Result<Wanted, String> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut asked = Asked::default();
    let (mut named, mut all, mut extended, mut prefetchers) = (None, false, false, false);
    loop {
        let taken = options.take().map_err(|bad| match Failure::from(bad) {
            Failure::Usage(why) | Failure::Error(why) => why,
            Failure::Silent(_) => String::new(),
        })?;
        let Some((name, value)) = taken else { break };
        match name {
            "a" => all = true,
            "f" => named = Some(value),
            "j" => asked.is_json = true,
            "o" => asked.file = Some(value),
            "p" => asked.is_exact = true,
            "s" => asked.separator = Some(value),
            "v" => return Ok(Wanted::Definitions),
            "x" => extended = true,
            "z" => prefetchers = true,
            _ => return Ok(Wanted::Usage),
        }
    }
    if usize::from(named.is_some()) + usize::from(extended) + usize::from(prefetchers) > 1 {
        return Err("-f, -x and -z exclude each other".to_owned());
    }
    asked.leaves_out = all || extended || prefetchers;
    asked.fields = match &named {
        _ if all => FIELDS.iter().collect(),
        Some(names) => fields_of(names)?,
        None => {
            let names = match (extended, prefetchers) {
                (true, _) => EXTENDED,
                (_, true) => OF_PREFETCHERS,
                _ => USUAL,
            };
            let each = names.iter().filter_map(|name| arc_fields::find(name));
            each.collect()
        }
    };
    let operands = options.operands();
    let number = |place: usize, what: &str| {
        let text = operands.get(place);
        let parsed = text.map(|text| {
            let number = text.parse::<u64>();
            number.map_err(|_| format!("{what} '{text}' is not a whole number"))
        });
        parsed.transpose()
    };
    let (interval_s, count) = (number(0, "interval")?, number(1, "count")?);
    if interval_s == Some(0) {
        return Err("interval cannot be zero".to_owned());
    }
    asked.interval_s = interval_s.unwrap_or(1);
    asked.count = count.unwrap_or(u64::from(interval_s.is_none()));
    Ok(Wanted::Lines(asked))
}

fn fields_of(names: &str) -> Result<Vec<&'static Field>, String> {
    let mut wrong = Vec::new();
    let mut fields = Vec::new();
    for name in names.split(',') {
        match arc_fields::find(name) {
            Some(field) => fields.push(field),
            None => wrong.push(format!("'{name}'")),
        }
    }
    match wrong.is_empty() {
        true => Ok(fields),
        false => Err(format!(
            "Invalid column definition! -- [{}]; 'zarcstat -v' lists all",
            wrong.join(", ")
        )),
    }
}

fn print(mut asked: Asked) -> Result<(), Failure> {
    let mut file = match &asked.file {
        Some(path) => {
            let made = File::create(path);
            Some(made.map_err(|_| Failure::error(format!("Cannot open {path} for writing")))?)
        }
        None => None,
    };
    let client = kstat_samples::connect("zarcstat")?;
    let mut before = sample(&client)?;
    keep_counted(&mut asked, &before)?;
    let mut done = 0;
    loop {
        let now = sample(&client)?;
        let time = clock();
        let between = Between {
            before: &before,
            now: &now,
            interval_s: asked.interval_s,
        };
        let text = match asked.is_json {
            true => json(&asked, &between, &time),
            false if done % LINES_OF_HEADING == 0 => {
                heading(&asked) + &line(&asked, &between, &time)
            }
            false => line(&asked, &between, &time),
        };
        match &mut file {
            Some(file) => {
                let written = file.write_all(text.as_bytes());
                written.map_err(|error| Failure::error(format!("writing: {error}")))?;
            }
            None => output::say(&text),
        }
        done += 1;
        if asked.count != 0 && done >= asked.count {
            return Ok(());
        }
        before = now;
        std::thread::sleep(Duration::from_secs(asked.interval_s));
    }
}

fn sample(client: &Client) -> Result<Moment, Failure> {
    kstat_samples::of_cache(client)
}

fn clock() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or_default());
    timestamp::local(seconds, "%H:%M:%S")
}

/// Leaves out the fields that cannot be computed, or fails for the first that was asked for by
/// name. Fields of the second level are where there is one.
fn keep_counted(asked: &mut Asked, now: &Moment) -> Result<(), Failure> {
    let between = Between {
        before: now,
        now,
        interval_s: 1,
    };
    let has_second = now.cache.get("l2_size").is_some_and(|size| *size > 0);
    let is_of_second = |field: &Field| field.name.starts_with("l2");
    if asked.leaves_out {
        let is_counted = |field: &Field| between.number(field).is_ok();
        (asked.fields).retain(|field| is_counted(field) && (has_second || !is_of_second(field)));
        return Ok(());
    }
    if !has_second && asked.fields.iter().any(|field| is_of_second(field)) {
        return Err(Failure::error("No L2ARC Here"));
    }
    for field in &asked.fields {
        between.number(field).map_err(|statistic| {
            let name = field.name;
            Failure::error(format!(
                "field '{name}' is made of '{statistic}', which zfs:0:arcstats and \
                 zfs:0:zfetchstats of this tarnd do not have; leave it out"
            ))
        })?;
    }
    Ok(())
}

fn joined(asked: &Asked, cells: impl Iterator<Item = String>) -> String {
    let separator = asked.separator.as_deref().unwrap_or("  ");
    let cells: Vec<String> = cells.collect();
    cells.join(separator) + "\n"
}

fn heading(asked: &Asked) -> String {
    let cells = asked.fields.iter().map(|field| match asked.is_exact {
        true => field.name.to_owned(),
        false => format!("{:>1$}", field.name, field.width),
    });
    joined(asked, cells)
}

fn line(asked: &Asked, between: &Between<'_>, time: &str) -> String {
    let cells = asked.fields.iter().map(|field| {
        if field.unit == Unit::Time {
            return format!("{time:>0$}", field.width);
        }
        let number = between.number(field);
        let number = number.expect("fields that cannot be computed were left out");
        match asked.is_exact {
            true => number.exact(),
            false => between.cell(field, number),
        }
    });
    joined(asked, cells)
}

/// A line of JSON.
fn json(asked: &Asked, between: &Between<'_>, time: &str) -> String {
    let mut fields = serde_json::Map::new();
    for field in &asked.fields {
        let value = match between.number(field) {
            _ if field.unit == Unit::Time => serde_json::json!(time),
            Ok(arc_fields::Number::Whole(number)) => match i64::try_from(number) {
                Ok(number) => serde_json::json!(number),
                Err(_) => serde_json::json!(number as f64),
            },
            Ok(arc_fields::Number::Real(number)) => serde_json::json!(number),
            Err(_) => serde_json::Value::Null,
        };
        fields.insert(field.name.to_owned(), value);
    }
    let version = serde_json::json!({
        "command": "zarcstat", "vers_major": 0, "vers_minor": 1
    });
    let whole = serde_json::json!({ "output_version": version, "zarcstat": fields });
    whole.to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Asked {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match parse(&words) {
            Ok(Wanted::Lines(asked)) => asked,
            other => panic!("{other:?}"),
        }
    }

    fn refused(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parse(&words).unwrap_err()
    }

    fn moments() -> [Moment; 2] {
        let of = |pairs: &[(&str, i128)]| Moment {
            cache: pairs
                .iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect(),
            ..Moment::default()
        };
        let gauges = [
            ("size", 10_822_496),
            ("c", 64_388_608),
            ("memory_available_bytes", 1_855_936_000),
        ];
        let all = |each: i128| {
            let mut pairs = gauges.to_vec();
            for name in [
                "hits",
                "iohits",
                "misses",
                "demand_data_hits",
                "demand_data_iohits",
                "demand_data_misses",
                "demand_metadata_hits",
                "demand_metadata_iohits",
                "demand_metadata_misses",
                "prefetch_data_hits",
                "prefetch_data_iohits",
                "prefetch_data_misses",
                "prefetch_metadata_hits",
                "prefetch_metadata_iohits",
                "prefetch_metadata_misses",
            ] {
                pairs.push((name, each));
            }
            of(&pairs)
        };
        [all(0), all(2)]
    }

    /// As OpenZFS 2.3.2's `arcstat` prints the same numbers.
    #[test]
    fn lines_are_those_of_arcstat() {
        let [before, now] = &moments();
        let of = |words: &[&str]| {
            let mut asked = asked(words);
            keep_counted(&mut asked, before).unwrap();
            let between = Between {
                before,
                now,
                interval_s: asked.interval_s,
            };
            heading(&asked) + &line(&asked, &between, "03:51:50")
        };
        assert_eq!(
            of(&[]),
            "    time  read  ddread  ddh%  dmread  dmh%  pread  ph%   size      c  avail\n\
             03:51:50     6       6  33.3       6  33.3     12   33  10.3M  61.4M   1.7G\n"
        );
        assert_eq!(
            of(&["-s", ",", "-f", "size,c,read", "2", "1"]),
            " size,    c,read\n10.3M,61.4M, 3.0\n"
        );
        assert_eq!(
            of(&["-ps,", "-f", "time,read,ph%,size"]),
            "time,read,ph%,size\n03:51:50,6.0,33.333333333333336,10822496\n"
        );
        // What is not counted is left out of -x.
        assert_eq!(
            of(&["-x"]).lines().next(),
            Some("    time  dread  pread  read")
        );
    }

    #[test]
    fn json_has_exact_numbers() {
        let [before, now] = &moments();
        let between = Between {
            before,
            now,
            interval_s: 2,
        };
        let text = json(
            &asked(&["-j", "-f", "time,read,size", "2"]),
            &between,
            "03:51:50",
        );
        let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(whole["output_version"]["command"], "zarcstat");
        let expected = serde_json::json!({ "time": "03:51:50", "read": 3.0, "size": 10_822_496 });
        assert_eq!(whole["zarcstat"], expected);
    }

    #[test]
    fn the_command_line_is_that_of_arcstat() {
        let usual = asked(&[]);
        assert_eq!((usual.interval_s, usual.count), (1, 1));
        let endless = asked(&["5"]);
        assert_eq!((endless.interval_s, endless.count), (5, 0));
        assert_eq!(asked(&["2", "10"]).count, 10);
        assert_eq!(asked(&["-a", "-f", "size"]).fields.len(), FIELDS.len());
        assert!(refused(&["-f", "size,bogus,nope"]).contains("-- ['bogus', 'nope']"));
        assert!(refused(&["-x", "-f", "size"]).contains("exclude each other"));
        assert!(refused(&["-x", "-z"]).contains("exclude each other"));
        assert!(refused(&["0"]).contains("zero"));
        assert!(refused(&["1", "many"]).contains("count 'many'"));
        assert!(refused(&["-q"]).contains('q'));
        for usage in [&["-h"][..], &["--help"]] {
            let words: Vec<String> = usage.iter().map(|word| (*word).to_owned()).collect();
            assert!(matches!(parse(&words), Ok(Wanted::Usage)));
        }
        assert!(definitions().contains("      miss% : ARC miss percentage\n"));
    }

    #[test]
    fn a_field_that_is_not_counted_is_refused_by_name() {
        let [before, _] = &moments();
        for (fields, why) in [("mru", "'mru_hits'"), ("l2hits", "No L2ARC Here")] {
            let refused = keep_counted(&mut asked(&["-f", fields]), before);
            let Err(Failure::Error(text)) = refused else {
                panic!("{fields}");
            };
            assert!(text.contains(why), "{text}");
        }
    }
}
