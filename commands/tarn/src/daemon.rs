//! `tarn start` and `tarn stop`: the daemon, by hand.
//!
//! Neither is needed in daily use: `zpool` and `zfs` start a daemon that does not run. `start` is for who wants its options, or its pools before the first command;
//! `stop` for who updates the program or puts the machine away.

use serde_json::json;
use tarn_engine::instance::Instance;
use tarn_terminal::daemon;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::{connection, json, output};

/// Beside `-j`, options of `tarnd` under their own names.
const START: Grammar = Grammar {
    short: ":jc:",
    long: &[
        ("json", "j"),
        ("cache-size", "c"),
        ("let-processors-sleep", "let-processors-sleep"),
        ("no-admin-snapshot", "no-admin-snapshot"),
    ],
};

const STOP: Grammar = Grammar {
    short: "j",
    long: &[("json", "j")],
};

/// What became of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Became {
    Started,
    RunsAlready,
    Stopped,
    DoesNotRun,
}

impl Became {
    /// As it is told to people.
    fn words(self) -> &'static str {
        match self {
            Became::Started => "tarnd started",
            Became::RunsAlready => "tarnd runs already",
            Became::Stopped => "tarnd stopped",
            Became::DoesNotRun => "tarnd does not run",
        }
    }

    /// As it is in JSON.
    fn name(self) -> &'static str {
        match self {
            Became::Started => "started",
            Became::RunsAlready => "running",
            Became::Stopped => "stopped",
            Became::DoesNotRun => "not running",
        }
    }
}

/// Runs `tarn start`.
///
/// # Errors
/// What is wrong with the command line, or why the daemon does not serve.
pub fn start(session: &Session, arguments: &[String]) -> Outcome {
    let (is_json, options) = start_options(arguments)?;
    let instance = connection::instance()?;
    let is_new = daemon::start(&instance, &options).map_err(failed)?;
    let process = daemon::process(&instance);
    if is_new {
        tell(session, is_json, Became::Started, process);
    } else if options.is_empty() {
        tell(session, is_json, Became::RunsAlready, process);
    } else {
        return Err(Failure::error(
            "tarnd runs already, with the options it was started with; 'tarn stop' ends it",
        ));
    }
    Ok(0)
}

/// Runs `tarn stop`.
///
/// # Errors
/// What is wrong with the command line, or why the daemon still runs.
pub fn stop(session: &Session, arguments: &[String]) -> Outcome {
    let mut options = Options::new(STOP, arguments);
    let mut is_json = false;
    while options.take()?.is_some() {
        is_json = true;
    }
    refuse_operands(options)?;
    let stopped = stop_daemon(&connection::instance()?)?;
    let became = match stopped {
        Some(_) => Became::Stopped,
        None => Became::DoesNotRun,
    };
    tell(session, is_json, became, stopped);
    Ok(0)
}

fn stop_daemon(instance: &Instance) -> Result<Option<u32>, Failure> {
    daemon::stop(instance).map_err(failed)
}

/// Whether JSON is wanted, and what the daemon gets.
fn start_options(arguments: &[String]) -> Result<(bool, Vec<String>), Failure> {
    let mut options = Options::new(START, arguments);
    let (mut is_json, mut handed_on) = (false, Vec::new());
    while let Some((name, value)) = options.take()? {
        match name {
            "j" => is_json = true,
            "c" => handed_on.push(format!("--cache-size={value}")),
            flag => handed_on.push(format!("--{flag}")),
        }
    }
    refuse_operands(options)?;
    Ok((is_json, handed_on))
}

fn refuse_operands(options: Options<'_>) -> Result<(), Failure> {
    match options.operands().is_empty() {
        true => Ok(()),
        false => Err(Failure::usage("too many arguments")),
    }
}

fn failed(error: daemon::DaemonError) -> Failure {
    Failure::error(error.to_string())
}

fn tell(session: &Session, is_json: bool, became: Became, process: Option<u32>) {
    if is_json {
        let mut out = json::frame(session);
        let state = json!({ "state": became.name(), "process": process });
        out.insert("daemon".into(), state);
        json::print(out);
    } else if let Some(process) = process {
        output::say(&format!("{} (process {process})\n", became.words()));
    } else {
        output::say(&format!("{}\n", became.words()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<(bool, Vec<String>), Failure> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        start_options(&words)
    }

    #[test]
    fn the_daemon_gets_its_options_and_json_stays_here() {
        assert_eq!(options(&[]).unwrap(), (false, Vec::new()));
        let (is_json, handed_on) =
            options(&["-j", "--cache-size", "1G", "--no-admin-snapshot"]).unwrap();
        assert!(is_json);
        assert_eq!(handed_on, ["--cache-size=1G", "--no-admin-snapshot"]);
        let (_, handed_on) = options(&["-c512M", "--let-processors-sleep"]).unwrap();
        assert_eq!(handed_on, ["--cache-size=512M", "--let-processors-sleep"]);
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for wrong in [&["now"][..], &["--foreground"], &["-c"], &["-x"]] {
            assert!(
                matches!(options(wrong), Err(Failure::Usage(_))),
                "{wrong:?}"
            );
        }
    }
}
