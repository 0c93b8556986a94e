//! What `ps` shows of this process.
//!
//! # Mechanism
//! The kernel shows the memory in which it laid down the command line. `/proc/self/mem` leads
//! there, and `/proc/self/stat` says where it is. A title longer than the command line was is cut.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Where `/proc/self/stat` has the start of the command line, counted from the field after the
/// program's name.
const START_FIELD: usize = 45;

/// A command line that can be written over.
#[derive(Debug)]
pub struct ProcessTitle {
    memory: File,
    start: u64,
    room: usize,
}

impl ProcessTitle {
    /// Finds the command line; none where the system does not say where it is.
    pub fn find() -> Option<ProcessTitle> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let (start, end) = place(&stat)?;
        let memory = File::options().write(true).open("/proc/self/mem").ok()?;
        Some(ProcessTitle {
            memory,
            start,
            room: usize::try_from(end.checked_sub(start)?).ok()?,
        })
    }

    /// Shows this from now on.
    pub fn set(&self, title: &str) {
        let mut bytes = vec![0; self.room];
        // The last byte stays zero: what follows is the environment.
        let count = title.len().min(self.room.saturating_sub(1));
        bytes[..count].copy_from_slice(&title.as_bytes()[..count]);
        // A title that was not set is no reason for a message.
        let _ = self.memory.write_all_at(&bytes, self.start);
    }
}

/// Where the command line begins and ends.
fn place(stat: &str) -> Option<(u64, u64)> {
    // The program's name is in parentheses, and may have spaces and parentheses itself.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(START_FIELD);
    let mut number = || fields.next()?.parse::<u64>().ok();
    Some((number()?, number()?)).filter(|(start, _)| *start != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_command_line_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a ) b) {}", fields.join(" "));
        assert_eq!(place(&stat), Some((48, 49)));
        assert_eq!(place("7 (x) S 1 2"), None);
    }

    #[test]
    fn what_is_set_is_shown() {
        let before = std::fs::read("/proc/self/cmdline").unwrap();
        let title = ProcessTitle::find().unwrap();
        title.set("sending");
        let shown = std::fs::read("/proc/self/cmdline").unwrap();
        assert!(shown.starts_with(b"sending\0"), "{shown:?}");
        title.memory.write_all_at(&before, title.start).unwrap();
    }
}
