//! Choosing the next call: one that the directory, as it is, allows.

use super::Pages;
use super::call::{Call, Entry, NEW_MODE};

/// Directories that the files are in, made by the first calls.
const DIRECTORIES: u32 = 4;
/// Names in each. Few, so that most calls meet a file that exists.
const NAMES: u32 = 24;
/// Files do not grow beyond this: some blocks of the usual size.
const SIZE_MAX: usize = 400_000;
/// One write. Within what the kernel hands over at once.
const WRITE_MAX: usize = 48 << 10;

impl Pages {
    /// The next call: one that the directory, as it is, allows.
    pub(super) fn draw(&mut self) -> Call {
        for index in 0..DIRECTORIES {
            let path = format!("d{index}");
            if !self.now.contains_key(&path) {
                return Call::MakeDirectory { path };
            }
        }
        let path = format!(
            "d{}/f{}",
            self.chance.below(DIRECTORIES),
            self.chance.below(NAMES)
        );
        let length = match self.now.get(&path) {
            None if self.chance.below(5) == 0 => {
                let target = format!("to/{}", self.chance.below(1000));
                return Call::Link { path, target };
            }
            None => return Call::Create { path },
            Some(Entry::File(file)) => file.bytes.len(),
            Some(_) => return Call::Remove { path },
        };
        match self.chance.below(100) {
            0..45 => {
                let at = self.chance.index(length.min(SIZE_MAX - WRITE_MAX) + 1);
                let size = 1 + self.chance.index(WRITE_MAX);
                let bytes = self.chance.bytes(size);
                Call::Write { path, at, bytes }
            }
            45..57 => Call::SetSize {
                path,
                size: self.chance.index(SIZE_MAX),
            },
            57..64 => Call::PunchHole {
                path,
                at: self.chance.index(length + 1),
                length: 1 + self.chance.index(200_000),
            },
            64..70 => Call::SetMode {
                path,
                mode: NEW_MODE | self.chance.below(0o200),
            },
            70..76 => {
                let size = 1 + self.chance.index(600);
                let value = self.chance.bytes(size);
                Call::SetAttribute { path, value }
            }
            76..86 => {
                let to = format!(
                    "d{}/f{}",
                    self.chance.below(DIRECTORIES),
                    self.chance.below(NAMES)
                );
                Call::Rename { from: path, to }
            }
            86..95 => Call::Remove { path },
            _ => Call::Sync { path },
        }
    }
}
