//! Colors on the screen: only where the user asks for them with `ZFS_COLOR`, and the screen has
//! them.

use std::io::IsTerminal;

/// A color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// Red.
    Red,
    /// Green.
    Green,
    /// Yellow.
    Yellow,
    /// Bold blue.
    BoldBlue,
}

impl Color {
    /// What turns it on.
    pub const fn start(self) -> &'static str {
        match self {
            Color::Red => "\x1b[0;31m",
            Color::Green => "\x1b[0;32m",
            Color::Yellow => "\x1b[0;33m",
            Color::BoldBlue => "\x1b[1;34m",
        }
    }

    /// What turns all colors off.
    pub const END: &'static str = "\x1b[0m";
}

/// Whether standard output is to have colors.
pub fn is_wanted() -> bool {
    let variable = |name: &str| std::env::var(name).ok();
    is_wanted_by(
        std::io::stdout().is_terminal(),
        variable("ZFS_COLOR").as_deref(),
        variable("NO_COLOR").as_deref(),
        variable("TERM").as_deref(),
    )
}

#[doc(alias("use_color", "libzfs_envvar_is_set"))]
fn is_wanted_by(
    is_screen: bool,
    color: Option<&str>,
    no_color: Option<&str>,
    terminal: Option<&str>,
) -> bool {
    let is_set = |value: Option<&str>| {
        value.is_some_and(|value| {
            let mut digits = value.bytes().take_while(u8::is_ascii_digit);
            let is_number = digits.any(|digit| digit != b'0');
            let is_word = |word| value.eq_ignore_ascii_case(word);
            is_number || is_word("YES") || is_word("ON")
        })
    };
    let has_colors = terminal.is_some_and(|name| name != "dumb" && name != "unknown");
    is_screen && is_set(color) && !is_set(no_color) && has_colors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_for_terminals_that_ask_for_them() {
        let xterm = Some("xterm");
        assert!(is_wanted_by(true, Some("1"), None, xterm));
        assert!(!is_wanted_by(false, Some("1"), None, xterm));
        assert!(!is_wanted_by(true, None, None, xterm));
        assert!(!is_wanted_by(true, Some("0"), None, xterm));
        assert!(!is_wanted_by(true, Some("1"), Some("1"), xterm));
        assert!(!is_wanted_by(true, Some("1"), None, Some("dumb")));
        assert!(!is_wanted_by(true, Some("1"), None, None));
    }
}
