//! Names of targets: made of the names of volumes.
//!
//! `tank/vm/disk1` is `iqn.2026-01.local.tarn:tank:vm:disk1`. Slashes become colons, since many
//! initiators take a slash for the beginning of the unit's number. Lower-case letters, digits and
//! dashes stay; every other byte is a dot and two hexadecimal digits (`my_disk` is `my.5fdisk`), so
//! that no two volumes have one name. Nobody can own a name below `.local` (RFC 6762), so the
//! naming authority takes nobody's.

/// What all names begin with.
const PREFIX: &str = "iqn.2026-01.local.tarn:";

/// Longest name (RFC 7143, 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

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
    fn names_of_initiators_are_checked() {
        assert!(is_initiator("iqn.1993-08.org.debian:01:abc"));
        assert!(!is_initiator("iqn.1993-08.org.Debian"));
        assert!(!is_initiator("host"));
        assert!(!is_initiator("iqn.a b"));
    }
}
