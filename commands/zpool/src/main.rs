//! The `zpool` command.
//!
//! A thin client of the engine: arguments become a message, and the reply becomes text. What
//! OpenZFS 2.3 prints is printed to the letter, since scripts read it.
//!
//! # Map
//! - `pools`, `asked`, `vdevs`, `vdev_json`: which pools, which properties, how vdevs are named
//! - one file per subcommand; `list_vdevs`, `status_json`, `status_dedup`, `iostat_table` and
//!   `importable` are parts of those they are named for; `usage` has their usage texts
//! - `assignments`, `paths`: what the subcommands that change something share
//! - `vdev_grammar`, `device_path`, `planned`: vdevs as they are given, and as `-n` shows them

mod add;
mod asked;
mod assignments;
mod attach;
mod checkpoint;
mod clear;
mod create;
mod destroy;
mod detach;
mod device_path;
mod events;
mod export;
mod free_space;
mod get;
mod get_request;
mod get_vdevs;
mod history;
mod import;
mod importable;
mod iostat;
mod iostat_table;
mod labelclear;
mod list;
mod list_vdevs;
mod offline;
mod paths;
mod planned;
mod pools;
mod reguid;
mod remove;
mod reopen;
#[cfg(test)]
mod samples;
mod scrub;
mod set;
mod split;
mod status;
mod status_dedup;
mod status_json;
mod sync;
mod upgrade;
mod usage;
mod vdev_grammar;
mod vdev_json;
mod vdevs;
mod wait;

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
    built("add", usage::ADD, add::run),
    built("remove", usage::REMOVE, remove::run),
    BLANK,
    built("labelclear", usage::LABELCLEAR, labelclear::run),
    BLANK,
    built("checkpoint", usage::CHECKPOINT, checkpoint::run),
    missing("prefetch", usage::PREFETCH),
    BLANK,
    built("list", usage::LIST, list::run),
    built("iostat", usage::IOSTAT, iostat::run),
    built("status", usage::STATUS, status::run),
    BLANK,
    built("online", usage::ONLINE, offline::online),
    built("offline", usage::OFFLINE, offline::offline),
    built("clear", usage::CLEAR, clear::run),
    built("reopen", usage::REOPEN, reopen::run),
    BLANK,
    built("attach", usage::ATTACH, attach::attach),
    built("detach", usage::DETACH, detach::run),
    built("replace", usage::REPLACE, attach::replace),
    built("split", usage::SPLIT, split::run),
    BLANK,
    built("initialize", usage::INITIALIZE, free_space::initialize),
    built("resilver", usage::RESILVER, scrub::resilver),
    built("scrub", usage::SCRUB, scrub::scrub),
    built("trim", usage::TRIM, free_space::trim),
    BLANK,
    built("import", usage::IMPORT, import::run),
    built("export", usage::EXPORT, export::run),
    built("upgrade", usage::UPGRADE, upgrade::run),
    built("reguid", usage::REGUID, reguid::run),
    BLANK,
    built("history", usage::HISTORY, history::run),
    built("events", usage::EVENTS, events::run),
    BLANK,
    built("get", usage::GET, get::run),
    built("set", usage::SET, set::run),
    built("sync", usage::SYNC, sync::run),
    BLANK,
    built("wait", usage::WAIT, wait::run),
    BLANK,
    missing("ddtprune", usage::DDTPRUNE),
];

/// The program.
const ZPOOL: Program = Program {
    name: "zpool",
    subcommands: SUBCOMMANDS,
    aliases: &[],
    usage_end: usage::END,
    usage_notes: usage::notes,
};

fn main() -> std::process::ExitCode {
    ZPOOL.main()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[&str]) -> u8 {
        let arguments: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        ZPOOL.run(&arguments)
    }

    #[test]
    fn what_is_unknown_is_a_usage_error_and_what_is_missing_an_error() {
        assert_eq!(code(&["zpool", "frobnicate"]), 2);
        assert_eq!(code(&["zpool"]), 2);
        assert_eq!(code(&["zpool", "ddtprune", "tank"]), 1);
        assert_eq!(code(&["zpool", "--help"]), 0);
    }

    #[test]
    fn the_usage_lists_all_of_openzfs() {
        let text = ZPOOL.usage(None);
        let expected = "usage: zpool command args ...\nwhere 'command' is one of the following:\n\n\tversion [-j]\n\n\tcreate ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with(
            "\n\tddtprune -d|-p <amount> <pool>\n\n\
             For further help on a command or topic, run: zpool help [<topic>]\n"
        ));
    }
}
