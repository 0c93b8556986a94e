//! The `zfs` command.
//!
//! A thin client of the engine: arguments become a message, and the reply becomes text. What
//! OpenZFS 2.3 prints is printed to the letter, since scripts read it.
//!
//! # Map
//! - `walk`, `order`, `asked`, `answers`, `frame`: which datasets, in which order, which
//!   properties, as JSON
//! - one file per subcommand; `usage` has their usage texts
//! - `assignments`, `each`: what the subcommands that change something share

mod allow;
mod allow_usage;
mod answers;
mod asked;
mod assignments;
mod bookmark;
mod clone;
mod create;
mod destroy;
mod diff;
mod each;
mod frame;
mod get;
mod hold;
mod holds;
mod inherit;
mod list;
mod mount;
mod mount_helper;
mod order;
mod pace;
mod project;
mod promote;
mod receive;
mod rename;
mod rollback;
#[cfg(test)]
mod samples;
mod send;
mod set;
mod share;
mod snapshot;
mod unmount;
mod upgrade;
mod usage;
mod userspace;
mod wait;
mod walk;
mod watching;

use tarn_terminal::failure::Outcome;
use tarn_terminal::program::{BLANK, Program, Session, Subcommand};
use tarn_terminal::version;

/// A subcommand that this version has.
const fn built(
    name: &'static str,
    usage: &'static str,
    run: fn(&Session, &[String]) -> Outcome,
) -> Subcommand {
    Subcommand {
        name,
        usage,
        run: Some(run),
    }
}

/// A subcommand that OpenZFS has and this version has not.
const fn missing(name: &'static str, usage: &'static str) -> Subcommand {
    Subcommand {
        name,
        usage,
        run: None,
    }
}

/// The subcommands in the order of the usage.
const SUBCOMMANDS: &[Subcommand] = &[
    built("version", usage::VERSION, version::run),
    BLANK,
    built("create", usage::CREATE, create::run),
    built("destroy", usage::DESTROY, destroy::run),
    BLANK,
    built("snapshot", usage::SNAPSHOT, snapshot::run),
    built("rollback", usage::ROLLBACK, rollback::run),
    built("clone", usage::CLONE, clone::run),
    built("promote", usage::PROMOTE, promote::run),
    built("rename", usage::RENAME, rename::run),
    built("bookmark", usage::BOOKMARK, bookmark::run),
    built("diff", usage::DIFF, diff::run),
    BLANK,
    built("list", usage::LIST, list::run),
    BLANK,
    built("set", usage::SET, set::run),
    built("get", usage::GET, get::run),
    built("inherit", usage::INHERIT, inherit::run),
    built("upgrade", usage::UPGRADE, upgrade::run),
    BLANK,
    built("userspace", usage::USERSPACE, userspace::run),
    built("groupspace", usage::GROUPSPACE, userspace::run),
    built("projectspace", usage::PROJECTSPACE, userspace::run),
    BLANK,
    built("project", usage::PROJECT, project::run),
    BLANK,
    built("mount", usage::MOUNT, mount::run),
    built("unmount", usage::UNMOUNT, unmount::run),
    built("share", usage::SHARE, share::share),
    built("unshare", usage::UNSHARE, share::unshare),
    BLANK,
    built("send", usage::SEND, send::run),
    built("receive", usage::RECEIVE, receive::run),
    missing("redact", usage::REDACT),
    BLANK,
    built("allow", usage::ALLOW, allow::allow),
    built("unallow", usage::UNALLOW, allow::unallow),
    BLANK,
    built("hold", usage::HOLD, hold::hold),
    built("holds", usage::HOLDS, holds::run),
    built("release", usage::RELEASE, hold::release),
    BLANK,
    missing("load-key", usage::LOAD_KEY),
    missing("unload-key", usage::UNLOAD_KEY),
    missing("change-key", usage::CHANGE_KEY),
    BLANK,
    missing("program", usage::PROGRAM),
    missing("rewrite", usage::REWRITE),
    built("wait", usage::WAIT, wait::run),
    BLANK,
    missing("zone", usage::ZONE),
    missing("unzone", usage::UNZONE),
];

/// The program.
const ZFS: Program = Program {
    name: "zfs",
    subcommands: SUBCOMMANDS,
    aliases: &[
        ("umount", "unmount"),
        ("recv", "receive"),
        ("snap", "snapshot"),
    ],
    usage_end: usage::END,
    usage_notes: usage::notes,
};

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os().map(|text| text.to_string_lossy().into_owned());
    let own = arguments.next().unwrap_or_default();
    match std::path::Path::new(&own).file_name() {
        Some(name) if name == mount_helper::NAME => {
            std::process::ExitCode::from(mount_helper::run(&arguments.collect::<Vec<_>>()))
        }
        _ => ZFS.main(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[&str]) -> u8 {
        let arguments: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        ZFS.run(&arguments)
    }

    #[test]
    fn what_is_unknown_is_a_usage_error_and_what_is_missing_an_error() {
        assert_eq!(code(&["zfs", "frobnicate"]), 2);
        assert_eq!(code(&["zfs"]), 2);
        assert_eq!(code(&["zfs", "share", "tank"]), 1);
        assert_eq!(code(&["zfs", "snap"]), 2);
        assert_eq!(code(&["zfs", "--help"]), 0);
    }

    #[test]
    fn the_usage_lists_all_of_openzfs() {
        let text = ZFS.usage(None);
        let expected = "usage: zfs command args ...\nwhere 'command' is one of the following:\n\n\tversion [-j]\n\n\tcreate ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with(
            "\n\tzone <nsfile> <filesystem>\n\tunzone <nsfile> <filesystem>\n\n\
             Each dataset is of the form: pool/[dataset/]*dataset[@name]\n\n\
             For the property list, run: zfs set|get\n\n\
             For the delegated permission list, run: zfs allow|unallow\n\n\
             For further help on a command or topic, run: zfs help [<topic>]\n"
        ));
    }
}
