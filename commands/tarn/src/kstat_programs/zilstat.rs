//! `zilstat`: what intent logs have counted, all together or by dataset, as OpenZFS's program of
//! this name prints it.

use super::kstat_samples;
use super::zil_fields::{self, FIELDS, Field, Log};
use std::time::Duration;
use tarn_api::client::Client;
use tarn_terminal::failure::{Failure, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::{output, timestamp};

/// The fields without `-f`, for all logs together; datasets have `ds` behind the time.
const USUAL: &[&str] = &[
    "time", "cc", "ic", "idc", "idb", "iic", "iib", "imnc", "imnw", "imsc", "imsw",
];

const GRAMMAR: Grammar = Grammar {
    short: "ad:f:hi:jp:s:v",
    long: &[
        ("all", "a"),
        ("columns", "f"),
        ("dataset", "d"),
        ("help", "h"),
        ("interval", "i"),
        ("json", "j"),
        ("pool", "p"),
        ("separator", "s"),
        ("verbose", "v"),
    ],
};

const USAGE: &str = "\
usage: zilstat [-hjv] [-a | -p pool | -d dataset[,dataset]...] [-f field[,field]...]
               [-s separator] [-i interval]
\t-a, --all                 each dataset that is mounted or served
\t-d, --dataset dataset,... these datasets
\t-f, --columns field,...   these fields
\t-h, --help                this text
\t-i, --interval seconds    what is counted in a second, again each interval
\t-j, --json                JSON: an object for each output
\t-p, --pool pool           the datasets of a pool
\t-s, --separator text      what stands behind each column
\t-v, --verbose             the names of all fields
Without -a, -d and -p all intent logs are counted together.
";

/// Which logs.
#[derive(Debug, Clone, Default, PartialEq)]
enum Which {
    #[default]
    Together,
    Each,
    OfPool(String),
    OfDatasets(Vec<String>),
}

/// What the command line says.
#[derive(Debug, Default)]
struct Asked {
    which: Which,
    fields: Vec<&'static Field>,
    separator: Option<String>,
    is_json: bool,
    /// None for what was counted since logs were opened.
    interval_s: Option<u64>,
}

/// What a command line asks for.
#[derive(Debug)]
enum Wanted {
    Lines(Asked),
    Definitions,
    Usage,
}

/// Runs it. Exit codes are those of OpenZFS's: 0; 1 when something is wrong; 2 for a wrong command
/// line.
pub fn run(arguments: &[String]) -> u8 {
    let asked = match parse(arguments) {
        Ok(Wanted::Lines(asked)) => asked,
        Ok(Wanted::Definitions) => {
            output::say(&definitions());
            return 0;
        }
        Ok(Wanted::Usage) => {
            output::say(USAGE);
            return 0;
        }
        Err(Failure::Usage(why)) => {
            complain(format!("zilstat: error: {why}"));
            complain(USAGE.trim_end());
            return 2;
        }
        Err(Failure::Error(why)) => {
            complain(why);
            return 1;
        }
        Err(Failure::Silent(code)) => return code,
    };
    match print(&asked) {
        Ok(()) => 0,
        Err(Failure::Error(why) | Failure::Usage(why)) => {
            complain(format!("zilstat: {why}"));
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

fn parse(arguments: &[String]) -> Result<Wanted, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut asked = Asked::default();
    let (mut which, mut names) = (Vec::new(), None);
    while let Some((name, value)) = options.take()? {
        let list = |value: &str| value.split(',').map(str::to_owned).collect();
        match name {
            "a" => which.push(Which::Each),
            "d" => which.push(Which::OfDatasets(list(&value))),
            "f" => names = Some(value),
            "i" => {
                let seconds: u64 = value.parse().map_err(|_| {
                    let why = format!("-i '{value}' is not a whole number of seconds");
                    Failure::usage(why)
                })?;
                asked.interval_s = Some(seconds).filter(|seconds| *seconds > 0);
            }
            "j" => asked.is_json = true,
            "p" => which.push(Which::OfPool(value)),
            "s" => asked.separator = Some(value),
            "v" => return Ok(Wanted::Definitions),
            _ => return Ok(Wanted::Usage),
        }
    }
    if let Some(operand) = options.operands().first() {
        return Err(Failure::usage(format!("unrecognized argument '{operand}'")));
    }
    if which.len() > 1 {
        return Err(Failure::usage("-a, -d and -p exclude each other"));
    }
    asked.which = which.pop().unwrap_or_default();
    asked.fields = match names {
        Some(names) => fields_of(&names)?,
        None => {
            let mut names = USUAL.to_vec();
            if asked.which != Which::Together {
                names.insert(1, "ds");
            }
            let each = names.iter().filter_map(|name| zil_fields::find(name));
            each.collect()
        }
    };
    Ok(Wanted::Lines(asked))
}

fn fields_of(names: &str) -> Result<Vec<&'static Field>, Failure> {
    let known = |name: &str| zil_fields::find(name);
    let wrong: Vec<String> = names
        .split(',')
        .filter(|name| known(name).is_none())
        .map(|name| format!("'{name}'"))
        .collect();
    match wrong.is_empty() {
        true => Ok(names.split(',').filter_map(known).collect()),
        false => Err(Failure::error(format!(
            "Invalid column definition! -- [{}]",
            wrong.join(", ")
        ))),
    }
}

fn print(asked: &Asked) -> Result<(), Failure> {
    let client = kstat_samples::connect("zilstat")?;
    let mut before = logs(&client, &asked.which)?;
    check_counted(asked, &before)?;
    let Some(interval_s) = asked.interval_s else {
        output::say(&match asked.is_json {
            true => json(asked, &before, &clock()),
            false => heading(asked) + &lines(asked, &before, &clock()),
        });
        return Ok(());
    };
    let mut is_first = true;
    loop {
        std::thread::sleep(Duration::from_secs(interval_s));
        let now = logs(&client, &asked.which)?;
        let rates: Vec<Log> = now
            .iter()
            .map(|log| rate_of(log, &before, interval_s))
            .collect();
        output::say(&match asked.is_json {
            true => json(asked, &rates, &clock()),
            false if is_first => heading(asked) + &lines(asked, &rates, &clock()),
            false => lines(asked, &rates, &clock()),
        });
        (before, is_first) = (now, false);
    }
}

/// What a log counts in a second. One that was opened meanwhile counts from 0 on.
fn rate_of(log: &Log, before: &[Log], interval_s: u64) -> Log {
    let same = |other: &&Log| (&other.pool, &other.objset) == (&log.pool, &log.objset);
    log.since(before.iter().find(same), interval_s)
}

fn logs(client: &Client, which: &Which) -> Result<Vec<Log>, Failure> {
    if *which == Which::Together {
        return Ok(vec![kstat_samples::of_all_logs(client)?]);
    }
    wanted(kstat_samples::of_logs(client)?, which)
}

/// The logs that are asked for.
fn wanted(logs: Vec<Log>, which: &Which) -> Result<Vec<Log>, Failure> {
    match which {
        Which::Together | Which::Each => Ok(logs),
        Which::OfPool(pool) => {
            let found: Vec<Log> = logs.into_iter().filter(|log| log.pool == *pool).collect();
            match found.is_empty() {
                true => Err(Failure::error(format!(
                    "no dataset of a pool '{pool}' is mounted or served"
                ))),
                false => Ok(found),
            }
        }
        Which::OfDatasets(names) => {
            let each = names.iter().map(|name| {
                let found = logs.iter().find(|log| log.dataset == *name).cloned();
                let why = format!("dataset '{name}' is not mounted or served: nothing is counted");
                found.ok_or_else(|| Failure::error(why))
            });
            each.collect()
        }
    }
}

/// Fails for the first field that cannot be made.
fn check_counted(asked: &Asked, logs: &[Log]) -> Result<(), Failure> {
    for field in &asked.fields {
        for log in logs {
            log.number(field).map_err(|statistic| {
                let (name, dataset) = (field.name, &log.dataset);
                let of = match dataset.is_empty() {
                    true => "zfs:0:zil".to_owned(),
                    false => format!("the dataset '{dataset}'"),
                };
                Failure::error(format!(
                    "field '{name}' is made of '{statistic}', which {of} of this tarnd does not \
                     have; leave it out"
                ))
            })?;
        }
    }
    Ok(())
}

fn clock() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or_default());
    timestamp::local(seconds, "%H:%M:%S")
}

/// Cells, each with the separator behind it.
fn row(asked: &Asked, cells: impl Iterator<Item = String>) -> String {
    let separator = asked.separator.as_deref().unwrap_or("  ");
    let cells: String = cells.map(|cell| cell + separator).collect();
    cells + "\n"
}

fn heading(asked: &Asked) -> String {
    let cells = asked.fields.iter().map(|field| {
        let is_rate = asked.interval_s.is_some() && field.is_counted();
        let name = match is_rate {
            true => format!("{}/s", field.name),
            false => field.name.to_owned(),
        };
        format!("{name:>0$}", field.width)
    });
    row(asked, cells)
}

fn lines(asked: &Asked, logs: &[Log], time: &str) -> String {
    let line = |log: &Log| {
        let cells = asked.fields.iter().map(|field| {
            let cell = log.cell(field, time);
            cell.expect("fields that cannot be made were refused")
        });
        row(asked, cells)
    };
    logs.iter().map(line).collect()
}

fn json(asked: &Asked, logs: &[Log], time: &str) -> String {
    let each = logs.iter().map(|log| {
        let fields = asked.fields.iter().map(|field| {
            let value = match log.number(field).ok().flatten() {
                Some(number) => serde_json::json!(i64::try_from(number).unwrap_or(i64::MAX)),
                None => serde_json::json!(log.cell(field, time).unwrap_or_default().trim()),
            };
            (field.name.to_owned(), value)
        });
        serde_json::Value::Object(fields.collect())
    });
    let version = serde_json::json!({
        "command": "zilstat", "vers_major": 0, "vers_minor": 1
    });
    let logs: Vec<serde_json::Value> = each.collect();
    let whole = serde_json::json!({ "output_version": version, "zilstat": logs });
    whole.to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Wanted, Failure> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parse(&words)
    }

    fn asked(words: &[&str]) -> Asked {
        match parsed(words) {
            Ok(Wanted::Lines(asked)) => asked,
            other => panic!("{other:?}"),
        }
    }

    fn log(dataset: &str, objset: &str, pairs: &[(&str, i128)]) -> Log {
        let mut counted: super::super::arc_fields::Counted = FIELDS
            .iter()
            .map(|field| (field.about.to_owned(), 0))
            .collect();
        counted.extend(pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)));
        Log {
            pool: "tank".to_owned(),
            dataset: dataset.to_owned(),
            objset: objset.to_owned(),
            counted,
        }
    }

    fn home() -> Log {
        let counted = [
            ("zil_commit_count", 5),
            ("zil_itx_count", 91),
            ("zil_itx_needcopy_count", 88),
            ("zil_itx_needcopy_bytes", 3_997_696),
            ("zil_itx_metaslab_slog_count", 35),
            ("zil_itx_metaslab_slog_write", 4_042_752),
        ];
        log("tank/home", "0x52", &counted)
    }

    /// As OpenZFS 2.3.2's `zilstat` prints the same numbers.
    #[test]
    fn lines_are_those_of_zilstat() {
        let of = |words: &[&str], logs: &[Log]| {
            let asked = asked(words);
            heading(&asked) + &lines(&asked, logs, "03:47:38")
        };
        assert_eq!(
            of(&[], &[home()]),
            "    time     cc     ic    idc    idb    iic    iib    imnc    imnw    imsc    imsw  \n\
             03:47:38      5     91     88   3.8M      0      0       0       0      35    3.9M  \n"
        );
        let all = [log("tank", "0x36", &[]), home()];
        assert_eq!(
            of(&["-a"], &all),
            "    time            ds     cc     ic    idc    idb    iic    iib    imnc    imnw    imsc    imsw  \n\
             03:47:38          tank      0      0      0      0      0      0       0       0       0       0  \n\
             03:47:38     tank/home      5     91     88   3.8M      0      0       0       0      35    3.9M  \n"
        );
        assert_eq!(
            of(&["-s", ",", "-f", "time,cc,idb"], &[home()]),
            "    time,   cc,  idb,\n03:47:38,    5, 3.8M,\n"
        );
        let rates = of(&["-i", "1", "-f", "time,ds,cc,imnw,ses%"], &[home()]);
        let expected = "    time            ds   cc/s  imnw/s  ses%  ";
        assert_eq!(rates.lines().next(), Some(expected));
        let dataset = "time,pool,ds,obj";
        assert_eq!(
            of(&["-f", dataset], &[home()]).lines().last(),
            Some("03:47:38          tank     tank/home          0x52  ")
        );
    }

    #[test]
    fn json_has_exact_numbers_and_names() {
        let text = json(&asked(&["-aj", "-f", "ds,idb"]), &[home()], "03:47:38");
        let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(whole["output_version"]["command"], "zilstat");
        let expected = serde_json::json!([{ "ds": "tank/home", "idb": 3_997_696 }]);
        assert_eq!(whole["zilstat"], expected);
    }

    #[test]
    fn the_command_line_is_that_of_zilstat() {
        assert_eq!(
            asked(&["-p", "tank"]).which,
            Which::OfPool("tank".to_owned())
        );
        let two = vec!["tank/a".to_owned(), "tank/b".to_owned()];
        assert_eq!(
            asked(&["--dataset=tank/a,tank/b"]).which,
            Which::OfDatasets(two)
        );
        assert_eq!(
            (asked(&["-i0"]).interval_s, asked(&["-i2"]).interval_s),
            (None, Some(2))
        );
        assert!(matches!(parsed(&["--help"]), Ok(Wanted::Usage)));
        assert!(matches!(parsed(&["-v"]), Ok(Wanted::Definitions)));
        for wrong in [&["-a", "-p", "tank"][..], &["-i", "x"], &["tank"], &["-q"]] {
            assert!(matches!(parsed(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
        let Err(Failure::Error(text)) = parsed(&["-f", "cc,bogus"]) else {
            panic!("it has an unknown field");
        };
        assert_eq!(text, "Invalid column definition! -- ['bogus']");
    }

    #[test]
    fn logs_are_found_by_pool_and_dataset_and_counted_from_when_they_were_opened() {
        let logs = || vec![log("tank", "0x36", &[]), home()];
        let of = |which: Which| wanted(logs(), &which);
        assert_eq!(of(Which::OfPool("tank".to_owned())).unwrap().len(), 2);
        assert!(of(Which::OfPool("none".to_owned())).is_err());
        let home_alone = of(Which::OfDatasets(vec!["tank/home".to_owned()])).unwrap();
        assert_eq!(home_alone, [home()]);
        assert!(of(Which::OfDatasets(vec!["tank/none".to_owned()])).is_err());
        let rates = rate_of(&home(), &logs(), 1);
        assert!(rates.counted.values().all(|count| *count == 0));
        assert_eq!(rate_of(&home(), &[], 5).counted["zil_commit_count"], 1);
        let mut lacking = home();
        lacking.counted.remove("zil_commit_count");
        assert!(check_counted(&asked(&["-a"]), &[lacking]).is_err());
    }
}
