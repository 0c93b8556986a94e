//! Names of targets: made of the names of volumes.
//!
//! `tank/vm/disk1` is `iqn.2026-01.local.tarn:tank:vm:disk1`. Slashes become colons, since many
//! initiators take a slash for the beginning of the unit's number. Lower-case letters, digits and
//! dashes stay; every other byte is a dot and two hexadecimal digits (`my_disk` is `my.5fdisk`), so
//! that no two volumes have one name. Nobody can own a name below `.local` (RFC 6762), so the
//! naming authority takes nobody's.
//!
//! The first session of a target has its name *kept* with the volume ([`KEPT`]), with the guid of
//! the volume: so the name stays when the volume is renamed, and a clone or a received copy, which
//! has another guid, gets a name of its own.

use std::collections::BTreeMap;
use tarn_engine::properties::parse::ISCSI_TARGET;

/// The property of a volume that keeps the name of its target: its guid in hexadecimal digits, a
/// space, and the name.
pub const KEPT: &str = ISCSI_TARGET;

/// What all names begin with.
const PREFIX: &str = "iqn.2026-01.local.tarn:";

/// Longest name (RFC 7143, 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

/// A volume that is to have a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unnamed {
    /// The name of the volume.
    pub volume: String,
    /// Its guid.
    pub guid: u64,
    /// What is kept with it, or with a dataset above it.
    pub kept: Option<String>,
}

/// A volume that has a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name of the volume.
    pub volume: String,
    /// Its guid.
    pub guid: u64,
    /// The name of its target is kept with it.
    pub is_kept: bool,
}

/// Gives each volume a target: the name that is kept with it, else one made of its name, behind
/// which is its guid where another target has that name. Gives the volumes as well whose names are
/// too long.
pub fn name_all(volumes: Vec<Unnamed>) -> (BTreeMap<String, Named>, Vec<String>) {
    let mut named: BTreeMap<String, Named> = BTreeMap::new();
    let mut others = Vec::new();
    for one in volumes {
        let kept = one
            .kept
            .as_deref()
            .and_then(|kept| kept_for(one.guid, kept));
        match kept.filter(|name| !named.contains_key(*name)) {
            Some(name) => {
                let volume = Named {
                    volume: one.volume.clone(),
                    guid: one.guid,
                    is_kept: true,
                };
                named.insert(name.to_string(), volume);
            }
            None => others.push(one),
        }
    }
    let mut too_long = Vec::new();
    for one in others {
        let made = of_volume(&one.volume);
        let name = made.map(|name| match named.contains_key(&name) {
            true => format!("{name}:{:016x}", one.guid),
            false => name,
        });
        match name.filter(|name| name.len() <= NAME_BYTES_MAX) {
            Some(name) => {
                let volume = Named {
                    volume: one.volume,
                    guid: one.guid,
                    is_kept: false,
                };
                named.insert(name, volume);
            }
            None => too_long.push(one.volume),
        }
    }
    (named, too_long)
}

/// What is kept with a volume that has this target.
pub fn to_keep(guid: u64, target: &str) -> String {
    format!("{guid:016x} {target}")
}

/// The name in what is kept, if it was kept for the volume of this guid.
fn kept_for(guid: u64, kept: &str) -> Option<&str> {
    let (whose, name) = kept.split_once(' ')?;
    let is_its = u64::from_str_radix(whose, 16) == Ok(guid);
    (is_its && name.starts_with(PREFIX) && is_initiator(name)).then_some(name)
}

/// The name of the target of a volume. None where it would be longer than a name may be.
pub fn of_volume(volume: &str) -> Option<String> {
    let mut name = PREFIX.to_string();
    for byte in volume.bytes() {
        match byte {
            b'/' => name.push(':'),
            b'a'..=b'z' | b'0'..=b'9' | b'-' => name.push(char::from(byte)),
            _ => name.push_str(&format!(".{byte:02x}")),
        }
    }
    (name.len() <= NAME_BYTES_MAX).then_some(name)
}

/// Whether this may be the name of an initiator: `iqn.`, `eui.` or `naa.`, in lower case.
pub fn is_initiator(name: &str) -> bool {
    let has_kind = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|kind| name.starts_with(kind));
    let is_name = |c: char| c.is_alphanumeric() && !c.is_uppercase() || "-.:".contains(c);
    has_kind && name.len() <= NAME_BYTES_MAX && name.chars().all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_have_names_of_their_own() {
        let name = |volume| of_volume(volume).unwrap();
        assert_eq!(name("tank/vm-1"), "iqn.2026-01.local.tarn:tank:vm-1");
        let similar = [
            "t/a_b", "t/a.b", "t/A_b", "t/a:b", "t/a/b", "t/a-b", "t/a.5fb",
        ];
        let names: std::collections::BTreeSet<String> = similar.iter().map(|v| name(v)).collect();
        assert_eq!(names.len(), similar.len());
        assert_eq!(of_volume(&"x".repeat(250)), None);
    }

    #[test]
    fn a_kept_name_stays_with_the_volume_that_it_was_kept_for() {
        let volume = |name: &str, guid, kept: Option<&str>| Unnamed {
            volume: name.to_string(),
            guid,
            kept: kept.map(str::to_string),
        };
        let old = of_volume("tank/old").unwrap();
        let kept = to_keep(7, &old);
        // It was renamed, another has its old name, a third is a clone of it; nonsense is no name.
        let (named, too_long) = name_all(vec![
            volume("tank/clone", 9, Some(&kept)),
            volume("tank/new", 7, Some(&kept)),
            volume("tank/nonsense", 10, Some("000000000000000a host")),
            volume("tank/old", 8, None),
            volume(&"x".repeat(250), 11, None),
        ]);
        let found: Vec<(&str, &str, bool)> = named
            .iter()
            .map(|(name, one)| (name.as_str(), one.volume.as_str(), one.is_kept))
            .collect();
        let name = |volume| of_volume(volume).unwrap();
        let beside = format!("{old}:0000000000000008");
        let expected = [
            (&*name("tank/clone"), "tank/clone", false),
            (&*name("tank/nonsense"), "tank/nonsense", false),
            (&*old, "tank/new", true),
            (&*beside, "tank/old", false),
        ];
        assert_eq!(found, expected);
        assert_eq!(too_long.len(), 1);
    }

    #[test]
    fn names_of_initiators_are_checked() {
        assert!(is_initiator("iqn.1993-08.org.debian:01:abc"));
        assert!(!is_initiator("iqn.1993-08.org.Debian"));
        assert!(!is_initiator("host"));
        assert!(!is_initiator("iqn.a b"));
    }
}
