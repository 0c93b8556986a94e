//! `zpool initialize` and `zpool trim`.

use crate::wait::wait;
use tarn_administration::messages::pool::{
    Activity, FreeSpaceCommand, FreeSpaceReply, FreeSpaceState, FreeSpaceStatus, Initialize, Trim,
};
use tarn_api::client::Client;
use tarn_engine::properties::size::size;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::timestamp;

const INITIALIZE: Grammar = Grammar {
    short: "csuw",
    long: &[
        ("cancel", "c"),
        ("suspend", "s"),
        ("uninit", "u"),
        ("wait", "w"),
    ],
};

const TRIM: Grammar = Grammar {
    short: "cdr:sw",
    long: &[
        ("cancel", "c"),
        ("secure", "d"),
        ("rate", "r"),
        ("suspend", "s"),
        ("wait", "w"),
    ],
};

/// The exit code where a device was refused: OpenZFS's command returns -1.
const REFUSED: u8 = 255;

/// Runs `zpool initialize`.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn initialize(session: &Session, arguments: &[String]) -> Outcome {
    let (request, waits) = parse_initialize(arguments)?;
    let client = session.connect()?;
    let pool = request.name.clone();
    let reply = match client.pool_initialize(request) {
        Ok(reply) => reply,
        Err(error) => return refused(&error),
    };
    finish(
        &client,
        &pool,
        &reply,
        waits.then_some(Activity::Initialize),
    )
}

/// Runs `zpool trim`.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn trim(session: &Session, arguments: &[String]) -> Outcome {
    let (request, waits) = parse_trim(arguments)?;
    let client = session.connect()?;
    let pool = request.name.clone();
    let reply = match client.pool_trim(request) {
        Ok(reply) => reply,
        Err(error) => return refused(&error),
    };
    finish(&client, &pool, &reply, waits.then_some(Activity::Trim))
}

fn refused(error: &tarn_api::client::CallError) -> Outcome {
    complain(error);
    Ok(REFUSED)
}

/// Says what was refused, or waits for the end of the rest.
fn finish(
    client: &Client,
    pool: &str,
    reply: &FreeSpaceReply,
    awaited: Option<Activity>,
) -> Outcome {
    reply.refused.iter().for_each(complain);
    if !reply.refused.is_empty() {
        return Ok(REFUSED);
    }
    if let Some(activity) = awaited {
        wait(client, pool, &[activity], &reply.devices)?;
    }
    Ok(0)
}

fn parse_initialize(arguments: &[String]) -> Result<(Initialize, bool), Failure> {
    let mut options = Options::new(INITIALIZE, arguments);
    let (mut command, mut waits) = (FreeSpaceCommand::Start, false);
    while let Some((option, _)) = options.take()? {
        let asked = match option {
            "c" => FreeSpaceCommand::Cancel,
            "s" => FreeSpaceCommand::Suspend,
            "u" => FreeSpaceCommand::Forget,
            _ => {
                waits = true;
                continue;
            }
        };
        set_command(&mut command, asked, option)?;
    }
    let (name, devices) = pool_and_devices(options)?;
    if waits && command != FreeSpaceCommand::Start {
        return Err(Failure::usage("-w cannot be used with -c, -sor -u"));
    }
    let request = Initialize {
        name,
        devices,
        command,
    };
    Ok((request, waits))
}

fn parse_trim(arguments: &[String]) -> Result<(Trim, bool), Failure> {
    let mut options = Options::new(TRIM, arguments);
    let (mut request, mut waits) = (Trim::default(), false);
    while let Some((option, value)) = options.take()? {
        let is_start = request.command == FreeSpaceCommand::Start;
        match option {
            "c" => set_command(&mut request.command, FreeSpaceCommand::Cancel, option)?,
            "s" => set_command(&mut request.command, FreeSpaceCommand::Suspend, option)?,
            "w" => waits = true,
            _ if !is_start => {
                return Err(Failure::usage(format!(
                    "-{option} cannot be combined with the -c or -s options"
                )));
            }
            "d" => request.secure = true,
            _ => {
                let rate = size(&value).map_err(|bad| {
                    Failure::usage(format!("invalid value for rate: {}", bad.reason))
                })?;
                request.rate = rate;
            }
        }
    }
    (request.name, request.devices) = pool_and_devices(options)?;
    if waits && request.command != FreeSpaceCommand::Start {
        return Err(Failure::usage("-w cannot be used with -c or -s"));
    }
    Ok((request, waits))
}

/// Sets what is asked for. The same option may be given twice.
fn set_command(
    command: &mut FreeSpaceCommand,
    asked: FreeSpaceCommand,
    option: &str,
) -> Result<(), Failure> {
    if *command != FreeSpaceCommand::Start && *command != asked {
        return Err(Failure::usage(format!(
            "-{option} cannot be combined with other options"
        )));
    }
    *command = asked;
    Ok(())
}

fn pool_and_devices(options: Options<'_>) -> Result<(String, Vec<String>), Failure> {
    let mut operands = options.operands().into_iter();
    let pool = operands.next();
    let pool = pool.ok_or_else(|| Failure::usage("missing pool name argument"))?;
    Ok((pool, operands.collect()))
}

/// What `zpool status` says of initializing behind a device. Without `-i` only that it goes on.
#[doc(alias = "print_status_initialize")]
pub fn initialization_text(status: Option<&FreeSpaceStatus>, is_asked: bool) -> String {
    match (progress(status, "initialized"), is_asked) {
        (Some(progress), true) => progress,
        (None, true) => "  (uninitialized)".to_string(),
        (_, false) if is_active(status) => "  (initializing)".to_string(),
        (_, false) => String::new(),
    }
}

/// What `zpool status` says of trimming behind a device. Without `-t` only that it goes on.
#[doc(alias = "print_status_trim")]
pub fn trim_text(status: Option<&FreeSpaceStatus>, is_supported: bool, is_asked: bool) -> String {
    match (progress(status, "trimmed"), is_asked) {
        (Some(progress), true) => progress,
        (None, true) if is_supported => "  (untrimmed)".to_string(),
        (None, true) => "  (trim unsupported)".to_string(),
        (_, false) if is_active(status) => "  (trimming)".to_string(),
        (_, false) => String::new(),
    }
}

fn is_active(status: Option<&FreeSpaceStatus>) -> bool {
    status.is_some_and(|status| status.state == FreeSpaceState::Active)
}

/// How far it is, and since when.
fn progress(status: Option<&FreeSpaceStatus>, done: &str) -> Option<String> {
    let status = status?;
    let since = match status.state {
        FreeSpaceState::Canceled => return None,
        FreeSpaceState::Suspended => "suspended, started at",
        FreeSpaceState::Active => "started at",
        FreeSpaceState::Complete => "completed at",
    };
    let time = timestamp::ctime(i64::try_from(status.time_s).unwrap_or(i64::MAX));
    let percent = percent(status);
    Some(format!("  ({percent}% {done}, {since} {time})"))
}

/// The state in JSON output.
pub const fn state_word(state: FreeSpaceState) -> &'static str {
    match state {
        FreeSpaceState::Active => "ACTIVE",
        FreeSpaceState::Canceled => "CANCELED",
        FreeSpaceState::Suspended => "SUSPENDED",
        FreeSpaceState::Complete => "COMPLETE",
    }
}

fn percent(status: &FreeSpaceStatus) -> u128 {
    let (done, all) = (status.done_bytes, status.estimated_bytes);
    match status.state {
        FreeSpaceState::Complete => 100,
        _ => u128::from(done) * 100 / (u128::from(all) + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn a_pool_or_some_of_its_devices_are_meant() {
        let (request, waits) = parse_initialize(&words("-w tank sda sdb")).unwrap();
        assert_eq!((request.devices, waits), (words("sda sdb"), true));
        assert_eq!(request.command, FreeSpaceCommand::Start);
        let (request, _) = parse_initialize(&words("-cc tank")).unwrap();
        assert_eq!(request.command, FreeSpaceCommand::Cancel);
        let (request, _) = parse_trim(&words("-r 2M -d tank")).unwrap();
        assert_eq!((request.rate, request.secure), (2 << 20, true));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let initialize = |line| parse_initialize(&words(line)).map(drop);
        for (line, told) in [
            ("", "missing pool name argument"),
            ("-cs tank", "-s cannot be combined with other options"),
            ("-uc tank", "-c cannot be combined with other options"),
            ("-cw tank", "-w cannot be used with -c, -sor -u"),
            ("-x tank", "invalid option 'x'"),
        ] {
            assert_eq!(initialize(line), Err(Failure::usage(told)), "{line}");
        }
        let trim = |line| parse_trim(&words(line)).map(drop);
        for (line, told) in [
            (
                "-c -d tank",
                "-d cannot be combined with the -c or -s options",
            ),
            (
                "-s -r 1 tank",
                "-r cannot be combined with the -c or -s options",
            ),
            ("-sw tank", "-w cannot be used with -c or -s"),
            ("-r x tank", "invalid value for rate: bad numeric value 'x'"),
        ] {
            assert_eq!(trim(line), Err(Failure::usage(told)), "{line}");
        }
    }

    #[test]
    fn progress_is_shown_as_openzfs_shows_it() {
        let status = |state| FreeSpaceStatus {
            state,
            time_s: 1_000_000_000,
            done_bytes: 50,
            estimated_bytes: 100,
            errors: 0,
        };
        let active = status(FreeSpaceState::Active);
        assert_eq!(
            initialization_text(Some(&active), false),
            "  (initializing)"
        );
        let text = initialization_text(Some(&active), true);
        assert!(
            text.starts_with("  (49% initialized, started at "),
            "{text}"
        );
        let complete = status(FreeSpaceState::Complete);
        assert_eq!(trim_text(Some(&complete), true, false), "");
        let text = trim_text(Some(&complete), true, true);
        assert!(text.starts_with("  (100% trimmed, completed at "), "{text}");
        let canceled = status(FreeSpaceState::Canceled);
        assert_eq!(
            initialization_text(Some(&canceled), true),
            "  (uninitialized)"
        );
        assert_eq!(trim_text(None, false, true), "  (trim unsupported)");
    }
}
