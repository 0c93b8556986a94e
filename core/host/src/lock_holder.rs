//! The process that holds the lock of a file.
//!
//! The kernel lists locks in `/proc/locks`: kind, process, and the file by device and inode.
//! Processes of other pid namespaces are not shown, nor are exclusive openers of block devices.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A process that has a lock of `flock` on a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Its number.
    pub process: u32,
    /// Its program, if it is still there.
    pub program: Option<String>,
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {}", self.process)?;
        match &self.program {
            Some(program) => write!(f, " ({program})"),
            None => Ok(()),
        }
    }
}

/// The process that has a lock of `flock` on this file.
pub(crate) fn lock_holder(path: &Path) -> Option<LockHolder> {
    let metadata = std::fs::metadata(path).ok()?;
    let (major, minor) = (
        rustix::fs::major(metadata.dev()),
        rustix::fs::minor(metadata.dev()),
    );
    let file = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let process = holder_in(&std::fs::read_to_string("/proc/locks").ok()?, &file)?;
    let program = std::fs::read_to_string(format!("/proc/{process}/comm")).ok();
    let program = program.map(|name| name.trim_end().to_string());
    Some(LockHolder { process, program })
}

/// From the text of `/proc/locks`; one that waits for a lock has an arrow before its kind.
fn holder_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, _, process, of, ..] if *of == file => process.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 77 00:1a:12 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 4711 fe:01:12 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 4712 fe:01:12 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:01:12"), Some(4711));
        assert_eq!(holder_in(locks, "00:1a:12"), None);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(lock_holder(file.path()), None);
        file.as_file().lock().unwrap();
        let found = lock_holder(file.path()).unwrap();
        assert_eq!(found.process, std::process::id());
        assert!(found.to_string().starts_with("process "));
    }
}
