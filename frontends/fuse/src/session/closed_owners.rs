//! Owners of locks that have closed their file without a word from the kernel.
//!
//! # Problem
//! Locks of a process end when it closes a descriptor of the file. Of files that were opened with
//! `FOPEN_NOFLUSH` the kernel tells only when the last descriptor of the open file is closed, which
//! a child process may have inherited and keep.
//!
//! # Mechanism
//! When such a lock is in the way of another, procfs says whether its process lives and has a
//! descriptor of the file: `/proc/PID/fdinfo/N` has the inode number, and reading it asks no file
//! system. What cannot be read counts as open.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use tarn_engine::files::ObjectId;

/// Whether a process has ended, or has no descriptor of this file. False where that is not known,
/// as for process 0.
pub(super) fn has_closed(process: u32, file: ObjectId) -> bool {
    if process == 0 {
        return false;
    }
    let folder = Path::new("/proc").join(process.to_string()).join("fdinfo");
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return error.kind() == ErrorKind::NotFound,
    };
    for entry in entries {
        let Ok(entry) = entry else { return false };
        match fs::read_to_string(entry.path()) {
            Ok(facts) if inode_of(&facts).is_none_or(|inode| inode == file.get()) => return false,
            Ok(_) => {}
            // The process has closed it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => return false,
        }
    }
    true
}

/// The inode number in the facts of a descriptor; none before Linux 5.14.
fn inode_of(facts: &str) -> Option<u64> {
    let line = facts.lines().find_map(|line| line.strip_prefix("ino:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    #[test]
    fn a_process_has_closed_what_it_has_no_descriptor_of() {
        let file = tempfile::tempfile().unwrap();
        let inode = file.metadata().unwrap().ino();
        let own = std::process::id();
        assert!(!has_closed(own, ObjectId::new(inode)));
        assert!(has_closed(own, ObjectId::new(u64::MAX)));
        assert!(!has_closed(0, ObjectId::new(u64::MAX)));
        let mut ended = Command::new("true").spawn().unwrap();
        let number = ended.id();
        ended.wait().unwrap();
        assert!(has_closed(number, ObjectId::new(inode)));
    }

    #[test]
    fn the_inode_number_is_found_in_the_facts_of_a_descriptor() {
        let facts = "pos:\t0\nflags:\t02100002\nmnt_id:\t29\nino:\t4711\n";
        assert_eq!(inode_of(facts), Some(4711));
        assert_eq!(inode_of("pos:\t0\nflags:\t02\nmnt_id:\t29\n"), None);
    }
}
