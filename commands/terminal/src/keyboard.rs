//! Keys of a terminal, one by one, while a picture is shown.
//!
//! A [`Keyboard`] switches the terminal to raw input and to its other screen, and switches both
//! back when it is dropped: also when the command fails.

use crate::output;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A letter or a digit.
    Letter(char),
    /// An arrow.
    Up,
    /// An arrow.
    Down,
    /// An arrow.
    Left,
    /// An arrow.
    Right,
    /// Ctrl-C or Escape, or there are no keys any more.
    End,
}

/// A terminal that shows a picture.
#[derive(Debug)]
pub struct Keyboard {
    before: Termios,
}

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The screen of before, with one.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Keyboard {
    /// Switches the terminal; none where there is no terminal for both input and output.
    pub fn open() -> Option<Keyboard> {
        let input = std::io::stdin();
        if !input.is_terminal() || !std::io::stdout().is_terminal() {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Flush, &raw).ok()?;
        output::say(ENTER);
        Some(Keyboard { before })
    }

    /// The next key, waited for until then at most.
    pub fn wait(&self, until: Instant) -> Option<Key> {
        let input = std::io::stdin();
        let left = until.saturating_duration_since(Instant::now());
        let left = left.min(Duration::from_secs(3600));
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut waited = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut waited, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return None,
            Ok(_) => {}
            Err(_) => return Some(Key::End),
        }
        let mut bytes = [0; 16];
        match rustix::io::read(&input, &mut bytes) {
            Ok(count) if count > 0 => key_of(&bytes[..count]),
            _ => Some(Key::End),
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        output::say(LEAVE);
        // Nothing else can be done where it fails.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// The key that sent these bytes; none of a key that is not known.
fn key_of(bytes: &[u8]) -> Option<Key> {
    match bytes {
        [b'\x1b', b'[' | b'O', b'A', ..] => Some(Key::Up),
        [b'\x1b', b'[' | b'O', b'B', ..] => Some(Key::Down),
        [b'\x1b', b'[' | b'O', b'C', ..] => Some(Key::Right),
        [b'\x1b', b'[' | b'O', b'D', ..] => Some(Key::Left),
        [3 | b'\x1b'] => Some(Key::End),
        [letter, ..] if letter.is_ascii_alphanumeric() => Some(Key::Letter(char::from(*letter))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_by_their_bytes() {
        assert_eq!(key_of(b"q"), Some(Key::Letter('q')));
        assert_eq!(key_of(b"\x1b[A"), Some(Key::Up));
        assert_eq!(key_of(b"\x1bOD"), Some(Key::Left));
        assert_eq!(key_of(&[3]), Some(Key::End));
        assert_eq!(key_of(b"\x1b"), Some(Key::End));
        assert_eq!(key_of(b"\x1b[5~"), None);
        assert_eq!(key_of("é".as_bytes()), None);
    }
}
