//! What `zfs allow -h` and `zfs unallow -h` print, and what they say when they are used wrongly: a
//! text of their own, with all permissions.

use crate::usage;
use tarn_engine::properties::table::PROPERTIES;
use tarn_engine::properties::value::Change;
use tarn_terminal::failure::Failure;
use tarn_terminal::output;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `allow`.
    Allow,
    /// `unallow`.
    Unallow,
}

/// Options with what they mean; the last is of `unallow` only.
const OPTIONS: [(&str, &str); 9] = [
    ("-h", "show this help message and exit"),
    ("-l", "set permission locally"),
    ("-d", "set permission for descents"),
    ("-u", "set permission for user"),
    ("-g", "set permission for group"),
    ("-e", "set permission for everyone"),
    ("-c", "set create time permission"),
    ("-s", "define permission set"),
    ("-r", "remove permissions recursively"),
];

/// Permissions with their types and notes. Lines of a note are indented as OpenZFS does.
const PERMISSIONS: [(&str, &str, &str); 31] = [
    (
        "allow",
        SUBCOMMAND,
        "Must also have the permission that is being\n\t\t\t\tallowed",
    ),
    (
        "clone",
        SUBCOMMAND,
        "Must also have the 'create' ability and 'mount'\n\t\t\t\tability in the origin file system",
    ),
    ("create", SUBCOMMAND, "Must also have the 'mount' ability"),
    ("destroy", SUBCOMMAND, "Must also have the 'mount' ability"),
    (
        "diff",
        SUBCOMMAND,
        "Allows lookup of paths within a dataset;\n\t\t\t\tgiven an object number. Ordinary users need this\n\t\t\t\tin order to use zfs diff",
    ),
    (
        "hold",
        SUBCOMMAND,
        "Allows adding a user hold to a snapshot",
    ),
    ("mount", SUBCOMMAND, "Allows mount/umount of ZFS datasets"),
    (
        "promote",
        SUBCOMMAND,
        "Must also have the 'mount'\n\t\t\t\tand 'promote' ability in the origin file system",
    ),
    (
        "receive",
        SUBCOMMAND,
        "Must also have the 'mount' and 'create' ability",
    ),
    (
        "release",
        SUBCOMMAND,
        "Allows releasing a user hold which\n\t\t\t\tmight destroy the snapshot",
    ),
    (
        "rename",
        SUBCOMMAND,
        "Must also have the 'mount' and 'create'\n\t\t\t\tability in the new parent",
    ),
    ("rollback", SUBCOMMAND, ""),
    ("send", SUBCOMMAND, ""),
    (
        "share",
        SUBCOMMAND,
        "Allows sharing file systems over NFS or SMB\n\t\t\t\tprotocols",
    ),
    ("snapshot", SUBCOMMAND, ""),
    ("bookmark", SUBCOMMAND, ""),
    (
        "load-key",
        SUBCOMMAND,
        "Allows loading or unloading an encryption key",
    ),
    (
        "change-key",
        SUBCOMMAND,
        "Allows changing or adding an encryption key",
    ),
    (
        "groupquota",
        OTHER,
        "Allows accessing any groupquota@... property",
    ),
    (
        "groupused",
        OTHER,
        "Allows reading any groupused@... property",
    ),
    ("userprop", OTHER, "Allows changing any user property"),
    (
        "userquota",
        OTHER,
        "Allows accessing any userquota@... property",
    ),
    (
        "userused",
        OTHER,
        "Allows reading any userused@... property",
    ),
    (
        "userobjquota",
        OTHER,
        "Allows accessing any userobjquota@... property",
    ),
    (
        "userobjused",
        OTHER,
        "Allows reading any userobjused@... property",
    ),
    (
        "groupobjquota",
        OTHER,
        "Allows accessing any \n\t\t\t\tgroupobjquota@... property",
    ),
    (
        "groupobjused",
        OTHER,
        "Allows reading any groupobjused@... property",
    ),
    (
        "projectused",
        OTHER,
        "Allows reading any projectused@... property",
    ),
    (
        "projectquota",
        OTHER,
        "Allows accessing any projectquota@... property",
    ),
    (
        "projectobjused",
        OTHER,
        "Allows accessing any \n\t\t\t\tprojectobjused@... property",
    ),
    (
        "projectobjquota",
        OTHER,
        "Allows accessing any \n\t\t\t\tprojectobjquota@... property",
    ),
];

const SUBCOMMAND: &str = "subcommand";
const OTHER: &str = "other";

/// All of it.
#[doc(alias = "allow_usage")]
pub fn text(verb: Verb, error: Option<&str>) -> String {
    let (usage, options) = match verb {
        Verb::Allow => (usage::ALLOW, &OPTIONS[..OPTIONS.len() - 1]),
        Verb::Unallow => (usage::UNALLOW, &OPTIONS[..]),
    };
    let row = |name: &str, kind: &str, note: &str| format!("{name:<16} {kind:<14}\t{note}\n");
    let options: String = options
        .iter()
        .map(|(option, meaning)| format!("  {option:<10}  {meaning}\n"))
        .collect();
    let permissions: String = PERMISSIONS
        .iter()
        .map(|(name, kind, note)| row(name, kind, note))
        .collect();
    let mut properties: Vec<&str> = PROPERTIES
        .iter()
        .filter(|row| row.visible && row.change != Change::ReadOnly)
        .map(|row| row.name)
        .collect();
    properties.sort_unstable();
    let properties: String = properties
        .into_iter()
        .map(|name| row(name, "property", ""))
        .collect();
    let error = error.map_or_else(String::new, |error| format!("\nzfs: error: {error}\n"));
    format!(
        "Usage: {usage}\nOptions:\n{options}\nThe following permissions are supported:\n\n{}{permissions}{properties}{error}",
        row("NAME", "TYPE", "NOTES")
    )
}

/// Says what is wrong, after the text.
pub fn misused(verb: Verb, error: &str) -> Failure {
    output::complain(&text(verb, Some(error)));
    Failure::Silent(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_options_permissions_and_properties() {
        let allow = text(Verb::Allow, None);
        assert!(allow.starts_with("Usage: \tallow <filesystem|volume>\n\tallow [-ldug] "));
        assert!(allow.contains("\nOptions:\n  -h          show this help message and exit\n"));
        assert!(!allow.contains("  -r  "));
        assert!(allow.contains(
            "\n\nNAME             TYPE          \tNOTES\nallow            subcommand    \tMust also"
        ));
        assert!(allow.contains("\naclinherit       property      \t\n"));
        assert!(!allow.contains("\nused "));
        let unallow = text(Verb::Unallow, Some("wrong number of parameters"));
        assert!(unallow.contains("  -r          remove permissions recursively\n"));
        assert!(unallow.ends_with("\n\nzfs: error: wrong number of parameters\n"));
    }
}
