//! Writing much text to standard output.

use std::fmt;
use std::io::{BufWriter, Stdout, Write};

/// Standard output, buffered. `write!` and `writeln!` to it cannot fail: a reader that went away
/// ends the command.
pub struct Out {
    to: BufWriter<Stdout>,
}

impl Out {
    /// Standard output.
    pub fn new() -> Out {
        Out {
            to: BufWriter::with_capacity(1 << 16, std::io::stdout()),
        }
    }

    /// What `write!` calls.
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        if self.to.write_fmt(text).is_err() {
            std::process::exit(1);
        }
    }

    /// Bytes as they are: names need not be text.
    pub fn bytes(&mut self, bytes: &[u8]) {
        if self.to.write_all(bytes).is_err() {
            std::process::exit(1);
        }
    }

    /// Says something on standard error, after all that was written before.
    pub fn complain(&mut self, text: impl fmt::Display) {
        self.flush();
        tarn_terminal::output::complain(&text.to_string());
    }

    /// Sends on what was written.
    pub fn flush(&mut self) {
        if self.to.flush().is_err() {
            std::process::exit(1);
        }
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // There is no reader left.
        let _ = self.to.flush();
    }
}
