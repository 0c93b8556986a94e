//! `zpool offline` and `zpool online`.

use tarn_administration::messages::pool::{Offline, Online, Switched, SwitchedDevice};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const OFFLINE: Grammar = Grammar {
    short: "ft",
    long: &[("power", "power")],
};

const ONLINE: Grammar = Grammar {
    short: "e",
    long: &[("power", "power")],
};

/// The refusal's reason of a device that is not there.
const NO_SUCH_DEVICE: &str = "no such device in pool";

/// Runs `zpool offline`.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn offline(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse_offline(arguments)?;
    let switched = session.connect()?.pool_offline(request)?;
    let refusals = refusals(&switched);
    refusals.iter().for_each(|(_, refusal)| complain(refusal));
    Ok(u8::from(!refusals.is_empty()))
}

/// Runs `zpool online`.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn online(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse_online(arguments)?;
    let pool = request.name.clone();
    let switched = session.connect()?.pool_online(request)?;
    switched
        .devices
        .iter()
        .for_each(|device| output::say(&warning(device)));
    let refusals = refusals(&switched);
    for (device, refusal) in &refusals {
        match &*refusal.reason {
            NO_SUCH_DEVICE => complain(format!(
                "couldn't find device \"{device}\" in pool \"{pool}\""
            )),
            _ => {
                complain(refusal);
                complain(format!(
                    "Failed to online \"{device}\" in pool \"{pool}\": -1"
                ));
            }
        }
    }
    Ok(u8::from(!refusals.is_empty()))
}

fn refusals(switched: &Switched) -> Vec<(&str, &tarn_administration::messages::Refusal)> {
    let refused = |device: &'_ SwitchedDevice| device.refusal.is_some();
    let devices = switched.devices.iter().filter(|device| refused(device));
    devices
        .filter_map(|device| Some((&*device.device, device.refusal.as_ref()?)))
        .collect()
}

/// What is said of a device that is in use again and does not work.
fn warning(device: &SwitchedDevice) -> String {
    let name = &device.device;
    let cure = match &*device.state {
        _ if device.refusal.is_some() => return String::new(),
        "ONLINE" => return String::new(),
        "FAULTED" => "use 'zpool clear' to restore a faulted device\n",
        _ => "use 'zpool replace' to replace devices that are no longer present\n",
    };
    format!("warning: device '{name}' onlined, but remains in faulted state\n{cure}")
}

fn parse_offline(arguments: &[String]) -> Result<Offline, Failure> {
    let mut request = Offline::default();
    let mut is_power = false;
    let mut options = Options::new(OFFLINE, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "f" => request.fault = true,
            "t" => request.temporary = true,
            _ => is_power = true,
        }
    }
    match (is_power, request.fault, request.temporary) {
        (true, true, _) => return Err(Failure::usage("-0 and -f cannot be used together")),
        (true, _, true) => return Err(Failure::usage("-0 and -t cannot be used together")),
        (true, false, false) => return Err(unsupported("offline --power")),
        _ => {}
    }
    (request.name, request.devices) = operands(options)?;
    Ok(request)
}

fn parse_online(arguments: &[String]) -> Result<Online, Failure> {
    let mut request = Online::default();
    let mut options = Options::new(ONLINE, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "e" => request.expand = true,
            _ => return Err(unsupported("online --power")),
        }
    }
    (request.name, request.devices) = operands(options)?;
    Ok(request)
}

fn unsupported(what: &str) -> Failure {
    Failure::error(format!(
        "zpool {what}: not supported by this version of Tarn"
    ))
}

fn operands(options: Options<'_>) -> Result<(String, Vec<String>), Failure> {
    let mut operands = options.operands();
    match operands.len() {
        0 => Err(Failure::usage("missing pool name")),
        1 => Err(Failure::usage("missing device name")),
        _ => {
            let pool = operands.remove(0);
            Ok((pool, operands))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn devices_go_offline_for_good_or_for_now() {
        let request = parse_offline(&words("-ft tank a b")).unwrap();
        assert!(request.fault && request.temporary);
        assert_eq!(request.devices, ["a", "b"]);
        assert!(parse_online(&words("-e tank a")).unwrap().expand);
    }

    #[test]
    fn what_makes_no_sense_or_is_missing_is_refused() {
        for (line, failure) in [
            ("", Failure::usage("missing pool name")),
            ("tank", Failure::usage("missing device name")),
            (
                "--power -f tank a",
                Failure::usage("-0 and -f cannot be used together"),
            ),
            (
                "--power tank a",
                Failure::error("zpool offline --power: not supported by this version of Tarn"),
            ),
        ] {
            assert_eq!(parse_offline(&words(line)), Err(failure), "{line}");
        }
        let failure = Failure::error("zpool online --power: not supported by this version of Tarn");
        assert_eq!(parse_online(&words("--power tank a")), Err(failure));
    }

    #[test]
    fn a_device_that_stays_bad_is_warned_of() {
        let device = |state: &str| SwitchedDevice {
            device: "sda".to_string(),
            state: state.to_string(),
            refusal: None,
        };
        assert_eq!(warning(&device("ONLINE")), "");
        assert_eq!(
            warning(&device("UNAVAIL")),
            "warning: device 'sda' onlined, but remains in faulted state\n\
             use 'zpool replace' to replace devices that are no longer present\n"
        );
    }
}
