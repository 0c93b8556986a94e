//! `zfs version` and `zpool version`.
//!
//! OpenZFS prints the version of the command and of the kernel module. Both are Tarn here; the
//! number before the hyphen is the release of OpenZFS whose commands these follow, which is what
//! scripts compare.

use crate::failure::{Failure, Outcome};
use crate::json;
use crate::options::{Grammar, Options};
use crate::output;
use crate::program::Session;
use serde_json::json;

const GRAMMAR: Grammar = Grammar {
    short: "j",
    long: &[("json", "j")],
};

/// The version of the command.
const COMMAND: &str = concat!("zfs-2.3.0-tarn", env!("CARGO_PKG_VERSION"));

/// The version of what stands in the place of the kernel module.
const ENGINE: &str = concat!("zfs-kmod-2.3.0-tarn", env!("CARGO_PKG_VERSION"));

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut is_json = false;
    while options.take()?.is_some() {
        is_json = true;
    }
    if !options.operands().is_empty() {
        return Err(Failure::usage("too many arguments"));
    }
    if is_json {
        let mut out = json::frame(session);
        out.insert(
            "zfs_version".into(),
            json!({ "userland": COMMAND, "kernel": ENGINE }),
        );
        json::print(out);
    } else {
        output::say(&format!("{COMMAND}\n{ENGINE}\n"));
    }
    Ok(0)
}
