//! The grammar of vdevs on a command line: `mirror a b raidz2 c d e f log mirror g h spare i`.
//!
//! A word that names a kind of group takes the devices that follow it, up to the next such word.
//! `log`, `special` and `dedup` are no groups: they say what everything behind them is for, until
//! another such word. `spare` and `cache` are both.

use crate::device_path;
use tarn_administration::messages::pool::{VdevKind, VdevRole, VdevSpec};

/// The most devices in a raidz or dRAID group.
const GROUP_MAX: usize = 255;

/// A word that is no device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// Devices follow: at least so many.
    Group(VdevKind, usize),
    /// Everything that follows is for this.
    Role(VdevRole),
}

/// What the words of a command line say.
///
/// # Errors
/// What is wrong with them, in OpenZFS's words.
pub fn parse(words: &[String]) -> Result<Vec<VdevSpec>, String> {
    parse_with(words, device_path::find)
}

fn parse_with(
    words: &[String],
    find: impl Fn(&str) -> Result<String, String>,
) -> Result<Vec<VdevSpec>, String> {
    let mut specs: Vec<VdevSpec> = Vec::new();
    let mut seen_roles = Vec::new();
    let mut role = VdevRole::Data;
    let mut rest = words;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match word(first) {
            Some(Word::Role(next)) => {
                if is_once(next) && seen_roles.contains(&next) {
                    return Err(invalid(format!("'{first}' can be specified only once")));
                }
                seen_roles.push(next);
                role = next;
                if matches!(next, VdevRole::Spare | VdevRole::Cache) {
                    let devices;
                    (devices, rest) = take_devices(rest, &find)?;
                    if devices.is_empty() {
                        return Err(invalid(format!("{first} requires at least 1 devices")));
                    }
                    specs.extend(devices.into_iter().map(|path| leaf(path, role)));
                }
            }
            Some(Word::Group(kind, count_min)) => {
                if role == VdevRole::Log && kind != VdevKind::Mirror {
                    let kind = first.trim_end_matches(|c: char| c.is_ascii_digit());
                    return Err(invalid(format!("unsupported 'log' device: {kind}")));
                }
                let devices;
                (devices, rest) = take_devices(rest, &find)?;
                check_count(first, kind, devices.len(), count_min)?;
                let children = devices
                    .into_iter()
                    .map(|path| leaf(path, of_top_level(role)));
                specs.push(VdevSpec {
                    kind,
                    path: None,
                    children: children.collect(),
                    role: of_top_level(role),
                });
            }
            None => specs.push(leaf(find(first)?, of_top_level(role))),
        }
    }
    if specs.is_empty() && !seen_roles.contains(&VdevRole::Log) {
        return Err(invalid("at least one toplevel vdev must be specified"));
    }
    let has_log = specs.iter().any(|spec| spec.role == VdevRole::Log);
    if seen_roles.contains(&VdevRole::Log) && !has_log {
        return Err(invalid("log requires at least 1 device"));
    }
    Ok(specs)
}

/// The kind of group or the role that a word names; none for devices.
fn word(text: &str) -> Option<Word> {
    let group = |kind, parity: usize| Some(Word::Group(kind, parity + 1));
    match text {
        "mirror" => group(VdevKind::Mirror, 1),
        "raidz" | "raidz1" => group(VdevKind::Raidz1, 1),
        "raidz2" => group(VdevKind::Raidz2, 2),
        "raidz3" => group(VdevKind::Raidz3, 3),
        "log" => Some(Word::Role(VdevRole::Log)),
        "spare" => Some(Word::Role(VdevRole::Spare)),
        "cache" => Some(Word::Role(VdevRole::Cache)),
        "special" => Some(Word::Role(VdevRole::Special)),
        "dedup" => Some(Word::Role(VdevRole::Dedup)),
        _ => {
            let parameters = text.strip_prefix("draid")?;
            match parameters.split(':').next().unwrap_or_default() {
                "" | "1" => group(VdevKind::Draid, 1),
                "2" => group(VdevKind::Draid, 2),
                "3" => group(VdevKind::Draid, 3),
                _ => None,
            }
        }
    }
}

/// Roles that a command line may name only once.
fn is_once(role: VdevRole) -> bool {
    matches!(role, VdevRole::Log | VdevRole::Spare | VdevRole::Cache)
}

/// The role of a group or device that stands by itself. Behind spares it is one for data again.
fn of_top_level(role: VdevRole) -> VdevRole {
    match role {
        VdevRole::Spare | VdevRole::Cache => VdevRole::Data,
        other => other,
    }
}

/// The devices up to the next word that is none, and what follows them.
fn take_devices(
    words: &[String],
    find: impl Fn(&str) -> Result<String, String>,
) -> Result<(Vec<String>, &[String]), String> {
    let end = words.iter().position(|text| word(text).is_some());
    let (devices, rest) = words.split_at(end.unwrap_or(words.len()));
    let paths: Result<Vec<String>, String> = devices.iter().map(|text| find(text)).collect();
    Ok((paths?, rest))
}

fn check_count(word: &str, kind: VdevKind, count: usize, count_min: usize) -> Result<(), String> {
    if count < count_min {
        return Err(invalid(format!(
            "{word} requires at least {count_min} devices"
        )));
    }
    if kind != VdevKind::Mirror && count > GROUP_MAX {
        return Err(invalid(format!(
            "{word} supports no more than {GROUP_MAX} devices"
        )));
    }
    Ok(())
}

fn leaf(path: String, role: VdevRole) -> VdevSpec {
    VdevSpec {
        kind: VdevKind::Leaf,
        path: Some(path),
        children: Vec::new(),
        role,
    }
}

fn invalid(text: impl std::fmt::Display) -> String {
    format!("invalid vdev specification: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Vec<VdevSpec>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse_with(&words, |text| match text {
            "missing" => Err("cannot resolve path 'missing'".to_string()),
            text => Ok(format!("/{text}")),
        })
    }

    /// Groups as `role kind(members)`, single devices as `role path`.
    fn shown(line: &str) -> Vec<String> {
        let path = |spec: &VdevSpec| spec.path.clone().unwrap_or_default();
        let one = |spec: &VdevSpec| match spec.kind {
            VdevKind::Leaf => format!("{:?} {}", spec.role, path(spec)),
            kind => {
                let members: Vec<String> = spec.children.iter().map(path).collect();
                format!("{:?} {kind:?}({})", spec.role, members.join(" "))
            }
        };
        parsed(line).unwrap().iter().map(one).collect()
    }

    #[test]
    fn groups_take_the_devices_behind_them() {
        assert_eq!(shown("a b"), ["Data /a", "Data /b"]);
        assert_eq!(
            shown("mirror a b raidz2 c d e raidz f g"),
            [
                "Data Mirror(/a /b)",
                "Data Raidz2(/c /d /e)",
                "Data Raidz1(/f /g)"
            ]
        );
    }

    #[test]
    fn log_and_spare_say_what_follows_is_for() {
        assert_eq!(
            shown("mirror a b log mirror c d e spare f g mirror h i"),
            [
                "Data Mirror(/a /b)",
                // The devices of a mirror end only at the next word.
                "Log Mirror(/c /d /e)",
                "Spare /f",
                "Spare /g",
                "Data Mirror(/h /i)"
            ]
        );
        assert_eq!(shown("a log b c"), ["Data /a", "Log /b", "Log /c"]);
        assert_eq!(shown("a special b"), ["Data /a", "Special /b"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_the_words_of_openzfs() {
        for (line, text) in [
            ("mirror a", "mirror requires at least 2 devices"),
            ("raidz3 a b c", "raidz3 requires at least 4 devices"),
            ("a log b log c", "'log' can be specified only once"),
            ("a spare b spare c", "'spare' can be specified only once"),
            ("a log", "log requires at least 1 device"),
            ("a spare", "spare requires at least 1 devices"),
            ("a log raidz2 b c d", "unsupported 'log' device: raidz"),
            ("", "at least one toplevel vdev must be specified"),
        ] {
            assert_eq!(
                parsed(line).unwrap_err(),
                format!("invalid vdev specification: {text}"),
                "{line}"
            );
        }
        assert_eq!(
            parsed("mirror a missing").unwrap_err(),
            "cannot resolve path 'missing'"
        );
    }

    #[test]
    fn words_that_are_almost_a_group_are_devices() {
        assert_eq!(
            shown("raidz4 raidz0 draid9 mirrors"),
            [
                "Data /raidz4",
                "Data /raidz0",
                "Data /draid9",
                "Data /mirrors"
            ]
        );
    }
}
