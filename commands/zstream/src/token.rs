//! `zstream token`: what a resume token says.

use crate::misused;

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[String]) -> u8 {
    let Some(token) = arguments.first() else {
        eprintln!("Need to pass the resume token");
        return misused();
    };
    match tarn_stream::token::decode(token) {
        Ok(list) => {
            print!("{}", list.indented(5));
            0
        }
        Err(bad) => {
            eprintln!("Unable to parse resume token: {bad}");
            1
        }
    }
}
