//! Writing to the terminal. A reader that went away (`zfs list | head -1`) ends the command
//! quietly.

use std::io::Write;
use tarn_administration::messages::without_error_numbers;

/// Writes text to standard output as it is.
pub fn say(text: &str) {
    say_bytes(text.as_bytes());
}

/// Writes bytes to standard output, such as names of files, which need not be text.
pub fn say_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Writes a text and a newline to standard error. Numbers of the system's errors are left out.
pub fn complain(text: &str) {
    let text = without_error_numbers(text);
    let mut err = std::io::stderr().lock();
    // There is no way to report that standard error is gone.
    let _ = err.write_all(text.trim_end_matches('\n').as_bytes());
    let _ = err.write_all(b"\n");
}
