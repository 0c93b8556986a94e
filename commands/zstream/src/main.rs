//! The `zstream` command: looks into send streams and changes them, without a daemon and without a
//! pool.
//!
//! What OpenZFS 2.3's `zstream` prints is printed to the letter.

mod decompress;
mod dump;
mod recompress;
mod redup;
mod rewrite;
mod token;

use std::process::ExitCode;

/// How it is used, in OpenZFS's words.
const USAGE: &str = "usage: zstream command args ...
Available commands are:

\tzstream dump [-vCd] FILE
\t... | zstream dump [-vCd]

\tzstream decompress [-v] [OBJECT,OFFSET[,TYPE]] ...

\tzstream recompress [ -l level] TYPE

\tzstream token resume_token

\tzstream redup [-v] FILE | ...
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .map(|text| text.to_string_lossy().into_owned())
        .collect();
    let program = arguments.first().map_or("", String::as_str);
    // Its name of long ago, under which scripts know it.
    if program.rsplit('/').next() == Some("zstreamdump") {
        return ExitCode::from(dump::run(&arguments[1..]));
    }
    let (word, rest) = match arguments.get(1) {
        Some(word) => (word.as_str(), &arguments[2..]),
        None => ("", &[][..]),
    };
    ExitCode::from(match word {
        "dump" => dump::run(rest),
        "token" => token::run(rest),
        "decompress" => decompress::run(rest),
        "recompress" => recompress::run(rest),
        "redup" => redup::run(rest),
        _ => misused(),
    })
}

/// Says how it is used; gives the exit code.
fn misused() -> u8 {
    eprint!("{USAGE}");
    1
}
