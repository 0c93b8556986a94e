//! `tarn iscsi`: targets, sessions, initiators, their groups, and the portal.
//!
//! Volumes are shared by `zfs set shareiscsi=on`. What is set here is in a file of the
//! instance, which the daemon reads at each login; targets and sessions are what it says of itself.

use serde_json::{Value, json};
use std::io::Read;
use tarn_administration::messages::statistics::Kstat;
use tarn_api::client::Client;
use tarn_engine::instance::Instance;
use tarn_iscsi::settings::{Group, Initiator, Settings, SettingsError};
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::{connection, json, output};

/// The usage.
pub const USAGE: &str = "\tiscsi targets | sessions | initiators | groups [-j]\n\
\tiscsi portal [address:port | default]\n\
\tiscsi known-only [on | off]\n\
\tiscsi add [-u user] [-s file] [-t file] [-V volume] ... initiator\n\
\tiscsi remove initiator\n\
\tiscsi add-group [-V volume] ... group initiator ...\n\
\tiscsi remove-group group\n";

/// What follows it.
pub const NOTES: &str = "\n\
\t-j         JSON\n\
\t-s file    the first line is the secret that the initiator must have (CHAP); - is standard\n\
\t           input\n\
\t-t file    the first line is the secret by which the target proves itself\n\
\t-u user    the name that the initiator gives with its secret, if it is not its own\n\
\t-V volume  a volume that it may use, or the initiators of the group; without it, all that\n\
\t           are shared\n\
\nA volume is shared by: zfs set shareiscsi=on VOLUME. Any initiator may use it, unless\n\
it was added with a secret or volumes, is in a group with volumes, or known-only is on.\n\
An initiator of several groups may use the volumes of all and its own. 'add' and\n\
'add-group' replace what was added under the same name.\n\
\nExit codes: 0 done, 1 not done, 2 wrong usage.\n";

const GRAMMAR: Grammar = Grammar {
    short: "ju:s:t:V:",
    long: &[
        ("json", "j"),
        ("user", "u"),
        ("secret", "s"),
        ("target-secret", "t"),
        ("volume", "V"),
    ],
};

/// Longest file with a secret that is read, in bytes.
const SECRET_FILE_BYTES_MAX: u64 = 4096;

/// What the command line says.
#[derive(Default)]
struct Asked {
    is_json: bool,
    initiator: Initiator,
    operands: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why it was not done.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let Some((verb, rest)) = arguments.split_first() else {
        return Err(Failure::usage("missing subcommand of iscsi"));
    };
    let asked = parse(rest)?;
    let instance = connection::instance()?;
    match (verb.as_str(), asked.operands.as_slice()) {
        ("targets", []) => show(session, &instance, asked.is_json, "target"),
        ("sessions", []) => show(session, &instance, asked.is_json, "session"),
        ("initiators", []) => show_initiators(session, &instance, asked.is_json),
        ("groups", []) => show_groups(session, &instance, asked.is_json),
        ("portal", []) => {
            let settings = read(&instance)?;
            output::say(&format!("{}\n", settings.portal()));
            Ok(0)
        }
        ("portal", [address]) => change(&instance, |settings| {
            settings.portal = match address.as_str() {
                "default" => None,
                text => Some(text.parse().map_err(|_| {
                    Failure::error(format!(
                        "'{text}' is not an address with a port, as 192.0.2.1:3260 or [::]:3260"
                    ))
                })?),
            };
            Ok(())
        }),
        ("known-only", []) => {
            let settings = read(&instance)?;
            output::say(if settings.known_only { "on\n" } else { "off\n" });
            Ok(0)
        }
        ("known-only", [word]) => change(&instance, |settings| {
            settings.known_only = match word.as_str() {
                "on" => true,
                "off" => false,
                _ => return Err(Failure::usage("known-only must be one of 'on | off'")),
            };
            Ok(())
        }),
        ("add", [name]) => change(&instance, |settings| {
            let initiator = Initiator {
                name: name.clone(),
                ..asked.initiator
            };
            initiator.check().map_err(failed)?;
            settings.initiators.retain(|other| other.name != *name);
            settings.initiators.push(initiator);
            Ok(())
        }),
        ("remove", [name]) => change(&instance, |settings| {
            let before = settings.initiators.len();
            settings.initiators.retain(|other| other.name != *name);
            match settings.initiators.len() < before {
                true => Ok(()),
                false => Err(Failure::error(format!("no initiator '{name}' was added"))),
            }
        }),
        ("add-group", [name, initiators @ ..]) if !initiators.is_empty() => {
            change(&instance, |settings| {
                let group = Group {
                    name: name.clone(),
                    initiators: initiators.to_vec(),
                    volumes: asked.initiator.volumes,
                };
                group.check().map_err(failed)?;
                settings.groups.retain(|other| other.name != *name);
                settings.groups.push(group);
                Ok(())
            })
        }
        ("remove-group", [name]) => change(&instance, |settings| {
            let before = settings.groups.len();
            settings.groups.retain(|other| other.name != *name);
            match settings.groups.len() < before {
                true => Ok(()),
                false => Err(Failure::error(format!("no group '{name}' was added"))),
            }
        }),
        ("targets" | "sessions" | "initiators" | "groups" | "portal" | "known-only", _) => {
            Err(Failure::usage("too many arguments"))
        }
        ("add-group", _) => Err(Failure::usage(
            "a group and one initiator at least must be named",
        )),
        ("remove-group", _) => Err(Failure::usage("one group must be named")),
        ("add" | "remove", _) => Err(Failure::usage("one initiator must be named")),
        (other, _) => Err(Failure::usage(format!(
            "unrecognized subcommand '{other}' of iscsi"
        ))),
    }
}

fn parse(arguments: &[String]) -> Result<Asked, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut asked = Asked::default();
    while let Some((name, value)) = options.take()? {
        let value = value.to_string();
        match name {
            "u" => asked.initiator.user = Some(value),
            "s" => asked.initiator.secret = Some(secret(&value)?),
            "t" => asked.initiator.target_secret = Some(secret(&value)?),
            "V" => asked.initiator.volumes.push(value),
            _ => asked.is_json = true,
        }
    }
    asked.operands = options.operands().iter().map(ToString::to_string).collect();
    Ok(asked)
}

/// The first line of a file.
fn secret(path: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match path {
        "-" => std::io::stdin()
            .take(SECRET_FILE_BYTES_MAX)
            .read_to_string(&mut text),
        path => std::fs::File::open(path)
            .and_then(|file| file.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text)),
    };
    read.map_err(|error| {
        let why = tarn_engine::words_of(&error);
        Failure::error(format!("cannot read the secret in '{path}': {why}"))
    })?;
    Ok(text.lines().next().unwrap_or_default().to_string())
}

fn read(instance: &Instance) -> Result<Settings, Failure> {
    Settings::read(&instance.iscsi()).map_err(failed)
}

fn change(
    instance: &Instance,
    change: impl FnOnce(&mut Settings) -> Result<(), Failure>,
) -> Outcome {
    let mut settings = read(instance)?;
    change(&mut settings)?;
    settings.write(&instance.iscsi()).map_err(failed)?;
    Ok(0)
}

fn failed(error: SettingsError) -> Failure {
    Failure::error(error.to_string())
}

fn show_initiators(session: &Session, instance: &Instance, is_json: bool) -> Outcome {
    let settings = read(instance)?;
    if is_json {
        let row = |one: &Initiator| {
            json!({
                "initiator": one.name,
                "user": one.user,
                "has_secret": one.secret.is_some(),
                "has_target_secret": one.target_secret.is_some(),
                "volumes": one.volumes,
            })
        };
        let rows: Vec<Value> = settings.initiators.iter().map(row).collect();
        let mut out = json::frame(session);
        out.insert("initiators".into(), Value::Array(rows));
        out.insert("known_only".into(), json!(settings.known_only));
        json::print(out);
        return Ok(0);
    }
    for one in &settings.initiators {
        let chap = match (&one.secret, &one.target_secret) {
            (None, _) => "none",
            (Some(_), None) => "chap",
            (Some(_), Some(_)) => "mutual-chap",
        };
        let volumes = match one.volumes.is_empty() {
            true => "all".to_string(),
            false => one.volumes.join(","),
        };
        output::say(&format!("{}\t{chap}\t{volumes}\n", one.name));
    }
    Ok(0)
}

fn show_groups(session: &Session, instance: &Instance, is_json: bool) -> Outcome {
    let settings = read(instance)?;
    if is_json {
        let rows: Vec<Value> = settings.groups.iter().map(|one| json!(one)).collect();
        let mut out = json::frame(session);
        out.insert("groups".into(), Value::Array(rows));
        json::print(out);
        return Ok(0);
    }
    for one in &settings.groups {
        let volumes = match one.volumes.is_empty() {
            true => "all".to_string(),
            false => one.volumes.join(","),
        };
        let initiators = one.initiators.join(",");
        output::say(&format!("{}\t{volumes}\t{initiators}\n", one.name));
    }
    Ok(0)
}

/// Prints the rows of the daemon's statistics whose names begin so.
fn show(session: &Session, instance: &Instance, is_json: bool, kind: &str) -> Outcome {
    let client = Client::new(&instance.socket(), &session.command_line);
    if !client.is_reachable() {
        return Err(Failure::error("tarnd does not run"));
    }
    let asked = client.statistics_kstat(Kstat {
        pattern: "iscsi:0:portal".to_string(),
    });
    let groups = asked
        .map_err(|error| Failure::error(error.to_string()))?
        .groups;
    let prefix = format!("{kind}_");
    let rows: Vec<Value> = groups
        .iter()
        .flat_map(|group| group.data.iter())
        .filter(|(name, _)| name.starts_with(&prefix))
        .map(|(_, value)| json!(value))
        .collect();
    if is_json {
        let mut out = json::frame(session);
        out.insert(format!("{kind}s"), Value::Array(rows));
        json::print(out);
        return Ok(0);
    }
    for row in rows {
        output::say(&format!("{}\n", line_of(&row)));
    }
    Ok(0)
}

/// The values of a row, with tabs between them.
fn line_of(row: &Value) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match row {
        Value::Object(columns) => {
            let columns: Vec<String> = columns.values().map(shown).collect();
            columns.join("\t")
        }
        other => shown(other),
    }
}
