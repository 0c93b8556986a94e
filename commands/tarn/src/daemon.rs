//! `tarn start` and `tarn stop`: the daemon, by hand.
//!
//! Neither is needed in daily use: `zpool` and `zfs` start a daemon that does not run. `start` is
//! for its options, or to have pools before the first command; `stop` to update the
//! program or puts the machine away.

use serde_json::json;
use tarn_administration::messages::pool::{Describe, PoolDescription};
use tarn_api::client::Client;
use tarn_engine::caller::StartedBy;
use tarn_engine::instance::Instance;
use tarn_terminal::daemon;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::{connection, json, output};

/// Beside `-j`, options of `tarnd` under their own names.
const START: Grammar = Grammar {
    short: ":jc:n:f:l:d:b:t:e:k:a:y:z:w:u:r:s:P:I:T:K:",
    long: &[
        ("json", "j"),
        ("cache-size", "c"),
        ("analytics", "z"),
        ("archive", "r"),
        ("archive-size", "s"),
        ("let-processors-sleep", "let-processors-sleep"),
        ("no-admin-snapshot", "no-admin-snapshot"),
        ("nbd-listen", "n"),
        ("nbd-tls", "t"),
        ("tls-certificate", "e"),
        ("tls-key", "k"),
        ("tls-client-ca", "a"),
        ("nfs-port", "f"),
        ("nfs-keytab", "y"),
        ("nfs-lease", "l"),
        ("nfs-domain", "d"),
        ("block-devices", "b"),
        ("web", "w"),
        ("web-name", "u"),
        ("influx-push", "P"),
        ("influx-interval", "I"),
        ("influx-tags", "T"),
        ("influx-token", "K"),
    ],
};

const STOP: Grammar = Grammar {
    short: "fj",
    long: &[("force", "f"), ("json", "j")],
};

/// The state of a pool that stores nothing.
const SUSPENDED: &str = "SUSPENDED";

/// Not everything could be stored.
const NOT_STORED: u8 = 1;

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
    let is_new = daemon::start(&instance, &options, StartedBy::Administrator).map_err(failed)?;
    let process = daemon::process(&instance);
    if is_new {
        tell(session, is_json, Became::Started, process, &[]);
    } else if options.is_empty() {
        tell(session, is_json, Became::RunsAlready, process, &[]);
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
    let (mut is_json, mut force) = (false, false);
    while let Some((name, _)) = options.take()? {
        match name {
            "f" => force = true,
            _ => is_json = true,
        }
    }
    refuse_operands(options)?;
    let instance = connection::instance()?;
    if !force {
        refuse_to_lose(session, &instance)?;
    }
    let Some(stopped) = daemon::stop(&instance).map_err(failed)? else {
        tell(session, is_json, Became::DoesNotRun, None, &[]);
        return Ok(0);
    };
    let (process, unstored) = (Some(stopped.process), &stopped.unstored);
    tell(session, is_json, Became::Stopped, process, unstored);
    unstored.iter().for_each(|line| output::complain(line));
    match unstored.is_empty() || force {
        true => Ok(0),
        false => Ok(NOT_STORED),
    }
}

/// Refuses to stop a daemon that has pools which cannot be stored. One that does not answer is told
/// to stop all the same: it says what it could not store.
fn refuse_to_lose(session: &Session, instance: &Instance) -> Result<(), Failure> {
    let client = Client::new(&instance.socket(), &session.command_line);
    if !client.is_reachable() {
        return Ok(());
    }
    let Ok(described) = client.pool_describe(Describe::default()) else {
        return Ok(());
    };
    let is_suspended = |pool: &&PoolDescription| pool.state == SUSPENDED;
    match described.pools.iter().find(is_suspended) {
        None => Ok(()),
        Some(pool) => Err(Failure::error(format!(
            "cannot stop tarnd: pool '{}': pool I/O is currently suspended\n\
             use 'tarn stop -f' to give it up with what was stored last",
            pool.name
        ))),
    }
}

/// Whether JSON is wanted, and what the daemon gets.
fn start_options(arguments: &[String]) -> Result<(bool, Vec<String>), Failure> {
    let mut options = Options::new(START, arguments);
    let (mut is_json, mut handed_on) = (false, Vec::new());
    while let Some((name, value)) = options.take()? {
        match name {
            "j" => is_json = true,
            "c" => handed_on.push(format!("--cache-size={value}")),
            "z" => handed_on.push(format!("--analytics={value}")),
            "r" if value == "off" => handed_on.push("--archive=off".to_owned()),
            "r" => handed_on.push(format!("--archive={}", absolute(&value)?)),
            "s" => handed_on.push(format!("--archive-size={value}")),
            "n" => handed_on.push(format!("--nbd-listen={value}")),
            "f" => handed_on.push(format!("--nfs-port={value}")),
            "l" => handed_on.push(format!("--nfs-lease={value}")),
            "d" => handed_on.push(format!("--nfs-domain={value}")),
            "t" => handed_on.push(format!("--nbd-tls={value}")),
            "e" => handed_on.push(format!("--tls-certificate={}", absolute(&value)?)),
            "y" => handed_on.push(format!("--nfs-keytab={}", absolute(&value)?)),
            "k" => handed_on.push(format!("--tls-key={}", absolute(&value)?)),
            "a" => handed_on.push(format!("--tls-client-ca={}", absolute(&value)?)),
            "b" => handed_on.push(format!("--block-devices={value}")),
            "w" => handed_on.push(format!("--web={value}")),
            "u" => handed_on.push(format!("--web-name={value}")),
            "P" => handed_on.push(format!("--influx-push={value}")),
            "I" => handed_on.push(format!("--influx-interval={value}")),
            "T" => handed_on.push(format!("--influx-tags={value}")),
            "K" => handed_on.push(format!("--influx-token={}", absolute(&value)?)),
            flag => handed_on.push(format!("--{flag}")),
        }
    }
    refuse_operands(options)?;
    Ok((is_json, handed_on))
}

/// The daemon leaves the folder of its caller, and reads the file again when it changes.
fn absolute(path: &str) -> Result<String, Failure> {
    let absolute = std::path::absolute(path);
    let absolute = absolute.map_err(|error| Failure::error(format!("'{path}': {error}")))?;
    Ok(absolute.display().to_string())
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

fn tell(
    session: &Session,
    is_json: bool,
    became: Became,
    process: Option<u32>,
    unstored: &[String],
) {
    if is_json {
        let mut out = json::frame(session);
        let mut state = json!({ "state": became.name(), "process": process });
        if became == Became::Stopped {
            state["unstored"] = json!(unstored);
        }
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
        let (is_json, handed_on) = options(&[
            "-j",
            "--cache-size",
            "1G",
            "--nfs-port=2050",
            "--nfs-lease=30",
            "--nfs-domain=example.org",
            "--no-admin-snapshot",
        ])
        .unwrap();
        assert!(is_json);
        assert_eq!(
            handed_on,
            [
                "--cache-size=1G",
                "--nfs-port=2050",
                "--nfs-lease=30",
                "--nfs-domain=example.org",
                "--no-admin-snapshot"
            ]
        );
        let (_, handed_on) = options(&["--web", "off", "--web-name=nas"]).unwrap();
        assert_eq!(handed_on, ["--web=off", "--web-name=nas"]);
        let (_, handed_on) = options(&["--tls-key=/etc/key", "--nbd-tls", "on"]).unwrap();
        assert_eq!(handed_on, ["--tls-key=/etc/key", "--nbd-tls=on"]);
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
