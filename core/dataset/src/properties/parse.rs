//! Parses property values that a user typed, before any pool is involved.
//!
//! Checks that need the dataset (a version that would go down, a quota below what is used) are made
//! by the operation. The words of a refusal are OpenZFS's; the caller prints
//! `cannot set property for 'tank': ` before them.

use super::size;
use super::table;
use super::value::{Change, Form, Kinds, Property};
use crate::names::is_user_property;

/// Largest block there is, in bytes.
const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// Smallest block there is, in bytes.
const BLOCK_BYTES_MIN: u64 = 512;

/// Longest text of a property, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 8191;

/// Longest name of a user property, in bytes.
const USER_NAME_BYTES_MAX: usize = 255;

/// Longest component of a path, in bytes.
const COMPONENT_BYTES_MAX: usize = 255;

/// A value as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// One 64-bit word.
    Number(u64),
    /// Text.
    Text(String),
}

/// A setting that passed its checks.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The full name of the property.
    pub name: String,
    /// Its row; `None` for user properties.
    pub property: Option<&'static Property>,
    /// What to store.
    pub setting: Setting,
}

/// When a property is given a value, which decides what may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// With `zfs create` or `zpool create`.
    Creation,
    /// Later.
    Later,
}

/// Checks one `property=value` for a dataset of these kinds.
///
/// # Errors
/// The reason, in OpenZFS's words.
pub fn check(name: &str, value: &str, kinds: Kinds, moment: Moment) -> Result<Checked, String> {
    let Some(property) = table::find(name) else {
        return check_user_property(name, value, moment);
    };
    let name = property.name;
    if !property.visible {
        return Err(format!("invalid property '{name}'"));
    }
    if !property.kinds.meets(kinds) {
        return Err(format!("'{name}' does not apply to datasets of this type"));
    }
    let is_fixed = matches!(property.change, Change::Once | Change::OnceDefault);
    if property.change == Change::ReadOnly || (is_fixed && moment == Moment::Later) {
        return Err(format!("'{name}' is readonly"));
    }
    let setting = parse(property, value)?;
    check_range(property, &setting)?;
    check_sharing(property, &setting)?;
    // The number that stands for `auto` is no size, either.
    let is_auto = name == "refreservation" && setting == Setting::Number(u64::MAX);
    if is_auto && !kinds.meets(Kinds::VOLUME) {
        return Err(format!("'{name}=auto' only allowed on volumes"));
    }
    Ok(Checked {
        name: name.to_string(),
        property: Some(property),
        setting,
    })
}

/// The property that shares volumes over iSCSI. OpenZFS takes it for a property of the user.
pub const SHARE_ISCSI: &str = "tarn:shareiscsi";

/// The property that keeps the name of a volume's iSCSI target. The daemon sets it.
pub const ISCSI_TARGET: &str = "tarn:iscsi_target";

/// The property that a user means by a name: `shareiscsi`, as on Solaris, is [`SHARE_ISCSI`], since
/// OpenZFS has no such property and keeps none of its own that it does not know.
pub fn meant(name: &str) -> &str {
    match name {
        "shareiscsi" => SHARE_ISCSI,
        _ => name,
    }
}

/// Checks a user property.
fn check_user_property(name: &str, value: &str, moment: Moment) -> Result<Checked, String> {
    if !is_user_property(name) {
        return Err(format!("invalid property '{name}'"));
    }
    if name.len() > USER_NAME_BYTES_MAX {
        return Err(format!("property name '{name}' is too long"));
    }
    if value.len() > TEXT_BYTES_MAX {
        return Err(format!("property value '{value}' is too long"));
    }
    if value.contains('\0') {
        return Err(format!("invalid value for '{name}'"));
    }
    // What comes with a new dataset has the guid of another, and means nothing.
    if name == ISCSI_TARGET && moment == Moment::Later {
        return Err(format!(
            "'{name}' is set by tarnd; 'zfs inherit {name}' has the target named for its volume"
        ));
    }
    if name == SHARE_ISCSI && !matches!(value, "on" | "off") {
        return Err(format!("'{name}' must be one of 'on | off'"));
    }
    Ok(Checked {
        name: name.to_string(),
        property: None,
        setting: Setting::Text(value.to_string()),
    })
}

/// The stored form of a value, by the property's own form.
pub fn parse(property: &Property, value: &str) -> Result<Setting, String> {
    let name = property.name;
    match property.form {
        Form::Text if value.len() > TEXT_BYTES_MAX => Err(format!("'{name}' is too long")),
        Form::Text if value.contains('\0') => Err(format!("invalid value for '{name}'")),
        Form::Text => Ok(Setting::Text(value.to_string())),
        Form::Word(_) => property
            .number_of(value)
            .map(Setting::Number)
            .ok_or_else(|| format!("'{name}' must be one of '{}'", property.values)),
        Form::Number => parse_number(property, value).map(Setting::Number),
    }
}

/// A number, with the words that stand for one.
fn parse_number(property: &Property, value: &str) -> Result<u64, String> {
    let is_quota = matches!(property.name, "quota" | "refquota");
    let number = match (value, property.name) {
        ("none", "filesystem_limit" | "snapshot_limit") => return Ok(u64::MAX),
        ("none", _) => return Ok(0),
        // OpenZFS resolves `auto` to the volume's size; the operation does that.
        ("auto", "refreservation") => return Ok(u64::MAX),
        ("auto", name) => return Err(format!("'auto' is invalid value for '{name}'")),
        _ => size::size(value).map_err(|bad| bad.reason)?,
    };
    if number == 0 && is_quota {
        return Err("use 'none' to disable quota/refquota".to_string());
    }
    Ok(number)
}

/// Rules of single properties.
///
/// # Errors
/// The reason, in OpenZFS's words.
pub fn check_range(property: &Property, setting: &Setting) -> Result<(), String> {
    let name = property.name;
    match (name, setting) {
        ("recordsize" | "volblocksize", Setting::Number(bytes)) => {
            let range = BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX;
            (range.contains(bytes) && bytes.is_power_of_two())
                .then_some(())
                .ok_or_else(|| format!("'{name}' must be power of 2 from 512B to 16M"))
        }
        ("special_small_blocks", Setting::Number(bytes)) => {
            let fits = *bytes == 0
                || ((BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(bytes) && bytes.is_power_of_two());
            fits.then_some(()).ok_or_else(|| {
                format!("invalid '{name}={bytes}' property: must be zero or a power of 2 from 512B to 16M")
            })
        }
        ("mountpoint", Setting::Text(path)) => check_mountpoint(path),
        ("mlslabel", Setting::Text(label)) if label != "none" => {
            Err("mlslabels are unsupported".to_string())
        }
        ("keylocation", Setting::Text(place)) if place != "none" => {
            Err("keylocation must be 'none' for unencrypted datasets".to_string())
        }
        _ => Ok(()),
    }
}

/// What `sharenfs` and `sharesmb` take from a user on Linux. A stream brings what its sender took.
#[doc(alias = "sa_validate_shareopts")]
fn check_sharing(property: &Property, setting: &Setting) -> Result<(), String> {
    let (name, Setting::Text(options)) = (property.name, setting) else {
        return Ok(());
    };
    let are_taken = match (name, options.as_str()) {
        ("sharenfs" | "sharesmb", "on" | "off") => true,
        ("sharenfs", "") | ("sharesmb", _) => false,
        ("sharenfs", options) => {
            let is_one_line = !options.contains(['\x07', '\x08', '\x0c', '\n', '\r']);
            is_one_line && options.split(',').all(is_nfs_option)
        }
        _ => true,
    };
    are_taken
        .then_some(())
        .ok_or_else(|| format!("'{name}' cannot be set to invalid options"))
}

/// Whether this is an option of exports(5), or one of Solaris that OpenZFS translates; `xprtsec` is
/// of newer versions of exports(5), `none` and `root` are of illumos alone.
fn is_nfs_option(option: &str) -> bool {
    const WORDS: [&str; 35] = [
        "all_squash",
        "anon",
        "anongid",
        "anonuid",
        "async",
        "auth_nlm",
        "crossmnt",
        "fsid",
        "fsuid",
        "hide",
        "insecure",
        "insecure_locks",
        "mountpoint",
        "mp",
        "no_acl",
        "no_all_squash",
        "no_auth_nlm",
        "no_root_squash",
        "no_subtree_check",
        "no_wdelay",
        "nohide",
        "none",
        "nosub",
        "refer",
        "replicas",
        "root",
        "root_mapping",
        "root_squash",
        "sec",
        "secure",
        "secure_locks",
        "subtree_check",
        "sync",
        "wdelay",
        "xprtsec",
    ];
    debug_assert!(WORDS.is_sorted(), "each word is there once");
    match option.split_once('=').unwrap_or((option, "")) {
        ("", _) => option.is_empty(),
        ("ro" | "rw", hosts) => hosts.is_empty() || are_hosts(hosts),
        (word, _) => WORDS.contains(&word),
    }
}

/// Hosts separated by colons, addresses of IPv6 in brackets, with or without a length of the
/// network.
fn are_hosts(hosts: &str) -> bool {
    let mut rest = Some(hosts);
    while let Some(host) = rest {
        let Some(literal) = host.strip_prefix('[') else {
            rest = host.split_once(':').map(|(_, rest)| rest);
            continue;
        };
        let Some((_, after)) = literal.split_once(']') else {
            return false;
        };
        rest = match after.as_bytes().first() {
            None => None,
            Some(b':') => Some(&after[1..]),
            Some(b'/') => after[1..].split_once(':').map(|(_, rest)| rest),
            Some(_) => return false,
        };
    }
    true
}

/// A mount point is `none`, `legacy`, or an absolute path.
fn check_mountpoint(path: &str) -> Result<(), String> {
    if path == "none" || path == "legacy" {
        return Ok(());
    }
    if !path.starts_with('/') {
        return Err("'mountpoint' must be an absolute path, 'none', or 'legacy'".to_string());
    }
    if path
        .split('/')
        .any(|component| component.len() > COMPONENT_BYTES_MAX)
    {
        return Err("component of 'mountpoint' is too long".to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_filesystem(name: &str, value: &str) -> Result<Setting, String> {
        check(name, value, Kinds::FILESYSTEM, Moment::Later).map(|checked| checked.setting)
    }

    #[test]
    fn values_become_what_is_stored() {
        assert_eq!(
            on_filesystem("compression", "zstd-3"),
            Ok(Setting::Number(16 | (3 << 7)))
        );
        assert_eq!(on_filesystem("quota", "10G"), Ok(Setting::Number(10 << 30)));
        assert_eq!(on_filesystem("quota", "none"), Ok(Setting::Number(0)));
        assert_eq!(on_filesystem("recsize", "1M"), Ok(Setting::Number(1 << 20)));
        assert_eq!(
            on_filesystem("mountpoint", "/a"),
            Ok(Setting::Text("/a".into()))
        );
        assert_eq!(
            on_filesystem(SHARE_ISCSI, "yes"),
            Err("'tarn:shareiscsi' must be one of 'on | off'".to_string())
        );
        let refused = on_filesystem(ISCSI_TARGET, "0000000000000001 iqn.a").unwrap_err();
        assert!(refused.starts_with("'tarn:iscsi_target' is set by tarnd"));
        assert_eq!(
            on_filesystem("com.example:a", "b"),
            Ok(Setting::Text("b".into()))
        );
    }

    #[test]
    fn a_bad_value_is_refused_in_known_words() {
        for (name, value, reason) in [
            ("atime", "maybe", "'atime' must be one of 'on | off'"),
            (
                "recordsize",
                "100",
                "'recordsize' must be power of 2 from 512B to 16M",
            ),
            ("quota", "0", "use 'none' to disable quota/refquota"),
            ("quota", "lots", "bad numeric value 'lots'"),
            ("used", "1", "'used' is readonly"),
            ("utf8only", "on", "'utf8only' is readonly"),
            (
                "volsize",
                "1G",
                "'volsize' does not apply to datasets of this type",
            ),
            ("nonsense", "1", "invalid property 'nonsense'"),
            (
                "mountpoint",
                "a/b",
                "'mountpoint' must be an absolute path, 'none', or 'legacy'",
            ),
        ] {
            assert_eq!(on_filesystem(name, value).unwrap_err(), reason);
        }
    }

    #[test]
    fn sharing_takes_the_options_of_exports_and_nothing_empty() {
        for taken in [
            "on",
            "off",
            "rw",
            "ro=@10.0.0.0/8:*.example.org,no_root_squash",
            "rw=[fe80::1]:host:[2001:db8::]/32,sec=krb5,anon=0",
            "sync,,no_acl",
            "rw,xprtsec=tls:mtls",
            "root=host,none=@10.0.0.0/8",
        ] {
            assert!(on_filesystem("sharenfs", taken).is_ok(), "{taken}");
        }
        let reason = "'sharenfs' cannot be set to invalid options";
        for refused in ["", "nonsense", "rw=[fe80::1", "rw=[fe80::1]x", "rw,\n"] {
            assert_eq!(on_filesystem("sharenfs", refused).unwrap_err(), reason);
        }
        assert!(on_filesystem("sharesmb", "off").is_ok());
        let reason = "'sharesmb' cannot be set to invalid options";
        for refused in ["", "name=x"] {
            assert_eq!(on_filesystem("sharesmb", refused).unwrap_err(), reason);
        }
    }

    #[test]
    fn some_properties_are_fixed_after_creation() {
        let at = |moment| check("utf8only", "on", Kinds::FILESYSTEM, moment).is_ok();
        assert!(at(Moment::Creation));
        assert!(!at(Moment::Later));
    }
}
