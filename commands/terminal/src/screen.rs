//! The size of the screen that standard output is, if it is one.

use std::io::IsTerminal;

/// Columns when it is not known.
const COLUMNS: usize = 80;
/// Columns of what is no screen: lines of any length do.
const COLUMNS_OF_FILES: usize = 999;

/// How many columns there are.
pub fn columns() -> usize {
    match size() {
        Some((columns, _)) if columns > 0 => usize::from(columns),
        _ if std::io::stdout().is_terminal() => COLUMNS,
        _ => COLUMNS_OF_FILES,
    }
}

/// How many rows there are; none where they are not known.
pub fn rows() -> Option<u64> {
    size()
        .map(|(_, rows)| u64::from(rows))
        .filter(|rows| *rows > 0)
}

fn size() -> Option<(u16, u16)> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    Some((size.ws_col, size.ws_row))
}
