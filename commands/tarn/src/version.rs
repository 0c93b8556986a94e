//! `tarn version`.

use serde_json::json;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::{json, output};

const GRAMMAR: Grammar = Grammar {
    short: "j",
    long: &[("json", "j")],
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The release of OpenZFS whose commands and features these follow.
const OPENZFS: &str = "2.3";

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
        let version = json!({ "tarn": VERSION, "openzfs": OPENZFS });
        out.insert("tarn_version".into(), version);
        json::print(out);
    } else {
        output::say(&format!("tarn-{VERSION} (as OpenZFS {OPENZFS})\n"));
    }
    Ok(0)
}
