//! Buffered standard output.

use std::fmt;
use std::io::{BufWriter, Stdout, Write};

/// Standard output, buffered. `write!` and `writeln!` to it cannot fail: if the reader is gone the
/// command ends.
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

    /// Prints on standard error, after all earlier output.
    pub fn complain(&mut self, text: impl fmt::Display) {
        self.flush();
        tarn_terminal::output::complain(&text.to_string());
    }

    /// Writes the buffer out.
    pub fn flush(&mut self) {
        if self.to.flush().is_err() {
            std::process::exit(1);
        }
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // An error has no reader any more.
        let _ = self.to.flush();
    }
}
