//! Alerts of the daemon: it looks at them each second, and does what they say.
//!
//! # Mechanism
//! One thread looks ([`AlertWatch`]), logs each notice, and hands it to another one through a
//! queue. That one posts it to the webhook, up to [`ATTEMPTS`] times, and runs the program with the
//! notice in its environment: `ALERT_NAME`, `ALERT_CHANGE` (`begun`, `lasts`, `ended`),
//! `ALERT_TEXT`, `ALERT_VALUE`, `ALERT_THRESHOLD`, `ALERT_AT`, `ALERT_SINCE` (Unix seconds), and
//! `ZEVENT_CLASS` (`alert`) and `ZEVENT_SUBCLASS`, as programs for events have.
//!
//! # Invariants
//! - Looking waits for no webhook and no program: what comes faster gives way, with a line in the
//!   log.

use crate::child_program::{self, may_run};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::Duration;
use tarn_administration::messages::alerts::{AlertChange, AlertNotice};
use tarn_administration::{Administrator, AlertWatch};
use tarn_exports::{PostError, PostTarget};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Notices that wait for their actions.
const WAITING_MAX: usize = 64;

/// How often a webhook is tried.
const ATTEMPTS: u32 = 3;

/// Between two attempts, times their number.
const PAUSE: Duration = Duration::from_secs(2);

/// How long each step of one may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The threads; they end soon after this is dropped.
pub struct Watching {
    _stop: Sender<()>,
}

/// Starts the threads.
///
/// # Errors
/// The system has no room for them.
pub fn start(administrator: Arc<Administrator>, log: fn(&str)) -> std::io::Result<Watching> {
    let (stop, stopped) = channel();
    let (notices, acted_on) = sync_channel(WAITING_MAX);
    std::thread::Builder::new()
        .name("tarnd-actions".to_string())
        .spawn(move || {
            // Programs are none of the disk's threads, as those of the daemon may be.
            let _ = rustix::process::configure_io_flusher_behavior(false);
            for notice in acted_on {
                act(&notice, log);
            }
        })?;
    std::thread::Builder::new()
        .name("tarnd-alerts".to_string())
        .spawn(move || watch(administrator, &stopped, &notices, log))?;
    Ok(Watching { _stop: stop })
}

fn watch(
    administrator: Arc<Administrator>,
    stopped: &Receiver<()>,
    notices: &SyncSender<AlertNotice>,
    log: fn(&str),
) {
    let mut watch = AlertWatch::new(administrator);
    while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let new = match watch.look() {
            Ok(new) => new,
            Err(why) => {
                log(&format!("alerts are not looked at: {why}"));
                continue;
            }
        };
        for notice in new {
            log(&format!("alert {}", notice.text));
            if let Err(TrySendError::Full(notice)) = notices.try_send(notice) {
                let name = &notice.alert.name;
                log(&format!(
                    "alert {name}: its actions are left out, as others take long"
                ));
            }
        }
    }
}

/// Posts a notice, and runs the program.
fn act(notice: &AlertNotice, log: fn(&str)) {
    let name = &notice.alert.name;
    if let Some(webhook) = &notice.alert.webhook
        && let Err(why) = post(webhook, notice)
    {
        log(&format!("alert {name}: webhook {webhook}: {why}"));
    }
    if let Some(program) = &notice.alert.program
        && let Err(why) = run(Path::new(program), notice)
    {
        log(&format!("alert {name}: {program}: {why}"));
    }
}

fn post(webhook: &str, notice: &AlertNotice) -> Result<(), String> {
    let target = PostTarget::parse(webhook).map_err(|error| error.to_string())?;
    let body = serde_json::to_vec(notice).map_err(|error| error.to_string())?;
    let headers = [("content-type", "application/json")];
    for attempt in 1.. {
        match target.post(&headers, &body, PATIENCE) {
            Ok(()) => return Ok(()),
            Err(error @ PostError::Refused(..)) => return Err(error.to_string()),
            Err(error) if attempt >= ATTEMPTS => return Err(error.to_string()),
            Err(_) => std::thread::sleep(PAUSE * attempt),
        }
    }
    unreachable!("the last attempt returns")
}

fn run(program: &Path, notice: &AlertNotice) -> Result<(), String> {
    let metadata = std::fs::metadata(program);
    let metadata = metadata.map_err(|error| tarn_engine::words_of(&error))?;
    if !may_run(&metadata, rustix::process::geteuid().as_raw()) {
        return Err(
            "it is not run: it must be an executable file of root or of tarnd's user, which others \
             cannot write"
                .to_owned(),
        );
    }
    let values = variables_of(notice);
    let values = values.iter().map(|(name, value)| (*name, value.as_str()));
    child_program::run(program, values)
}

/// The variables of a program for an alert.
fn variables_of(notice: &AlertNotice) -> Vec<(&'static str, String)> {
    let change = match notice.change {
        AlertChange::Begun => "begun",
        AlertChange::Lasts => "lasts",
        AlertChange::Ended => "ended",
    };
    // A variable ends at a zero byte, which no text of an alert has.
    let plain = |text: &str| text.replace('\0', " ");
    vec![
        ("ZEVENT_CLASS", "alert".to_owned()),
        ("ZEVENT_SUBCLASS", format!("alert_{change}")),
        ("ALERT_NAME", plain(&notice.alert.name)),
        ("ALERT_CHANGE", change.to_owned()),
        ("ALERT_TEXT", plain(&notice.text)),
        (
            "ALERT_VALUE",
            notice
                .value
                .map_or_else(String::new, |value| value.to_string()),
        ),
        ("ALERT_THRESHOLD", notice.alert.threshold.to_string()),
        ("ALERT_AT", (notice.at_ms / 1000).to_string()),
        ("ALERT_SINCE", (notice.since_ms / 1000).to_string()),
    ]
}
