//! `zarcsummary`, or `arc_summary`: a report of the cache, its second level, prefetchers and intent
//! logs, as OpenZFS's program of these names lays it out.

use super::arc_report::{Report, SECTIONS, raw};
use super::kstat_samples;
use std::time::{SystemTime, UNIX_EPOCH};
use tarn_terminal::failure::{Failure, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::{output, timestamp};

const GRAMMAR: Grammar = Grammar {
    short: "adghjp:rs:",
    long: &[
        ("alternate", "a"),
        ("description", "d"),
        ("graph", "g"),
        ("help", "h"),
        ("json", "j"),
        ("page", "p"),
        ("raw", "r"),
        ("section", "s"),
    ],
};

const USAGE: &str = "\
usage: zarcsummary [-hjr] [-s section]
\t-h, --help             this text
\t-j, --json             JSON: all numbers that the report is made of
\t-r, --raw              the same as lines
\t-s, --section section  one section: arc, archits, dmu, l2arc or zil
What is not counted is left out. OpenZFS's sections spl and tunables, and -a and -d, which are about
them, have nothing to show: tarnd has no module parameters.
";

/// The width of the lines of the heading.
const WIDTH: usize = 72;

/// What the command line says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    section: Option<String>,
    form: Form,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Form {
    #[default]
    Report,
    Raw,
    Json,
    Usage,
}

/// Runs it. Exit codes are those of OpenZFS's: 0; 1 when something is wrong; 2 for a wrong command
/// line.
pub fn run(arguments: &[String]) -> u8 {
    match parse(arguments).and_then(|asked| print(&asked)) {
        Ok(()) => 0,
        Err(Failure::Usage(why)) => {
            complain(format!("zarcsummary: error: {why}"));
            complain(USAGE.trim_end());
            2
        }
        Err(Failure::Error(why)) => {
            complain(why);
            1
        }
        Err(Failure::Silent(code)) => code,
    }
}

fn parse(arguments: &[String]) -> Result<Asked, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut asked = Asked::default();
    while let Some((name, value)) = options.take()? {
        match name {
            "j" => asked.form = Form::Json,
            "r" => asked.form = Form::Raw,
            "s" => asked.section = Some(value),
            "h" => {
                asked.form = Form::Usage;
                return Ok(asked);
            }
            "g" => {
                return Err(Failure::error(
                    "zarcsummary: -g is not supported by this version of Tarn; 'tarn top' draws the cache",
                ));
            }
            "p" => {
                return Err(Failure::error(
                    "zarcsummary: -p is not supported by this version of Tarn; use -s",
                ));
            }
            _ => {
                let why =
                    format!("zarcsummary: -{name} is about tunables, which tarnd has none of");
                return Err(Failure::error(why));
            }
        }
    }
    match options.operands().first() {
        Some(operand) => Err(Failure::usage(format!("unrecognized argument '{operand}'"))),
        None => Ok(asked),
    }
}

fn print(asked: &Asked) -> Result<(), Failure> {
    if asked.form == Form::Usage {
        output::say(USAGE);
        return Ok(());
    }
    let client = kstat_samples::connect("zarcsummary")?;
    let moment = kstat_samples::of_cache(&client)?;
    let logs = kstat_samples::of_all_logs(&client)?.counted;
    let groups = [
        ("arcstats", &moment.cache),
        ("zfetchstats", &moment.prefetch),
        ("zil", &logs),
    ];
    if asked.form == Form::Json {
        let mut whole = serde_json::Map::new();
        for (name, counted) in groups {
            whole.insert(name.to_owned(), serde_json::json!(counted));
        }
        let version = serde_json::json!({
            "command": "zarcsummary", "vers_major": 0, "vers_minor": 1
        });
        let whole = serde_json::json!({ "output_version": version, "zarcsummary": whole });
        output::say(&(whole.to_string() + "\n"));
        return Ok(());
    }
    output::say(&heading());
    if asked.form == Form::Raw {
        let each = groups
            .into_iter()
            .filter(|(_, counted)| !counted.is_empty());
        let text: String = each
            .map(|(name, counted)| raw(&name.to_uppercase(), counted))
            .collect();
        output::say(&text);
        return Ok(());
    }
    let report = Report::new(&moment, &logs);
    let sections = match &asked.section {
        Some(section) => vec![section.as_str()],
        None => SECTIONS.to_vec(),
    };
    for section in sections {
        let text = report.section(section).ok_or_else(|| {
            let known = SECTIONS.join(", ");
            Failure::error(format!(
                "Error: Section \"{section}\" unknown; there are {known}"
            ))
        })?;
        output::say(&text);
    }
    Ok(())
}

fn heading() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or_default());
    let of_kernel = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.unwrap_or_default().trim().to_owned()
    };
    let system = format!("{} {}", of_kernel("ostype"), of_kernel("osrelease"));
    let machine = format!(
        "Machine: {} ({})",
        of_kernel("hostname"),
        std::env::consts::ARCH
    );
    let version = concat!("tarn ", env!("CARGO_PKG_VERSION"));
    let time = timestamp::ctime(seconds);
    let line = |left: &str, right: &str| {
        let room = WIDTH.saturating_sub(left.chars().count());
        format!("{left}{right:>room$}\n")
    };
    let rule = "-".repeat(WIDTH);
    let lines = [
        line("ZFS Subsystem Report", time.trim_end()),
        line(&system, version),
        line(&machine, version),
    ];
    format!("\n{rule}\n{}\n", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Asked, Failure> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parse(&words)
    }

    #[test]
    fn the_command_line_is_that_of_arc_summary() {
        assert_eq!(
            parsed(&["-s", "zil"]).unwrap().section.as_deref(),
            Some("zil")
        );
        assert_eq!(parsed(&["--raw"]).unwrap().form, Form::Raw);
        assert_eq!(parsed(&["-h"]).unwrap().form, Form::Usage);
        for (words, why) in [
            (&["-g"][..], "'tarn top'"),
            (&["-p", "1"], "use -s"),
            (&["-d"], "tunables"),
            (&["-a"], "tunables"),
        ] {
            let refused = parsed(words).unwrap_err();
            assert!(
                matches!(&refused, Failure::Error(text) if text.contains(why)),
                "{refused:?}"
            );
        }
        for words in [&["-x"][..], &["arc"]] {
            assert!(matches!(parsed(words), Err(Failure::Usage(_))), "{words:?}");
        }
    }

    #[test]
    fn the_heading_is_as_wide_as_the_report() {
        let text = heading();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6);
        assert!(
            lines[1..5].iter().all(|line| line.chars().count() == WIDTH),
            "{text}"
        );
        assert!(lines[2].starts_with("ZFS Subsystem Report"));
    }
}
