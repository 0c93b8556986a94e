//! `tarn web`: where the page for browsers is, and the tokens to log in.
//!
//! It reads the files that `tarnd` leaves: the one with the tokens can be read by the daemon's user
//! alone.

use serde_json::json;
use tarn_engine::instance::Instance;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::{connection, json, output};
use tarn_web::{Role, Tokens};

/// The line of the usage.
pub const USAGE: &str = "\tweb url | token [-jv]\n";

/// What follows it.
pub const NOTES: &str = "\n\
\turl    where the page is, with the token: a browser that opens it is logged in\n\
\ttoken  the token alone\n\
\t-v     the token of a viewer, who changes nothing and sees no names of clients and files\n\
\t-j     JSON\n\
\nThe tokens are in web-tokens below TARN_DIR. To make new ones, remove the file and start\n\
tarnd anew.\n\
\nExit codes: 0 printed, 1 the page is not served or the file cannot be read, 2 wrong usage.\n";

const GRAMMAR: Grammar = Grammar {
    short: "jv",
    long: &[("json", "j"), ("viewer", "v")],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line; the tokens cannot be read, or the page is not served.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let Some((what, flags)) = arguments.split_first() else {
        return Err(Failure::usage("missing subcommand: url or token"));
    };
    let mut options = Options::new(GRAMMAR, flags);
    let (mut is_json, mut role) = (false, Role::Administrator);
    while let Some((name, _)) = options.take()? {
        match name {
            "v" => role = Role::Viewer,
            _ => is_json = true,
        }
    }
    if !options.operands().is_empty() {
        return Err(Failure::usage("too many arguments"));
    }
    let instance = connection::instance()?;
    let shown = match what.as_str() {
        "token" => token(&instance, role)?,
        "url" => format!("{}#token={}", address(&instance)?, token(&instance, role)?),
        other => {
            return Err(Failure::usage(format!(
                "unknown subcommand '{other}': url or token"
            )));
        }
    };
    if is_json {
        let mut out = json::frame(session);
        let member = json!({ "role": role.name(), what.as_str(): shown });
        out.insert("web".into(), member);
        json::print(out);
    } else {
        output::say(&format!("{shown}\n"));
    }
    Ok(0)
}

fn token(instance: &Instance, role: Role) -> Result<String, Failure> {
    let tokens = Tokens::read(&instance.web_tokens());
    let tokens = tokens.map_err(|error| Failure::error(error.to_string()))?;
    Ok(tokens.of(role).to_owned())
}

/// The address that the daemon has left.
fn address(instance: &Instance) -> Result<String, Failure> {
    let path = instance.web_address();
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(_) => Err(Failure::error(format!(
            "the page is not served: {} is missing; start tarnd, or see why in {}",
            path.display(),
            instance.log().display()
        ))),
    }
}
