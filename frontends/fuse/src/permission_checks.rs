//! Whether the kernel checks permissions by the mode, or the file system by NFSv4 ACLs.
//!
//! # Problem
//! The kernel knows mode bits and POSIX ACLs. An NFSv4 ACL can grant more than the mode shows (to a
//! named user) and less (a denial), and the kernel answers from cached names and attributes without
//! a request.
//!
//! # Mechanism
//! A dataset with `acltype=nfsv4` is mounted without `default_permissions`. The kernel then sends
//! `ACCESS`, and leaves the decision about every other request to the file system: `posix` decides
//! for the user and groups of the waiting process. Names are not cached: each step of a path is a
//! `LOOKUP`, so that search permission is checked in each directory.
//!
//! Where the property changes while a dataset is mounted, the mount stays as it is. With
//! `default_permissions` the mode must allow what the ACL allows; without, the file system checks
//! modes and POSIX ACLs as well. The next mount follows the property.
//!
//! # Invariants
//! - A refused `LOOKUP` removes the name from the kernel's cache, and with it every mount on or
//!   below that name. So a name that leads to a mount is refused with `ENOMEM`, the one error that
//!   keeps the name ([`Covered`]).

use crate::mount_table::unescaped;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tarn_engine::files::{AclType, Credentials, FileSystem, ObjectId, Operation};

/// The side that checks permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionChecks {
    /// The kernel (`default_permissions`).
    Kernel,
    /// The file system.
    FileSystem,
}

impl PermissionChecks {
    /// The checks for a new mount of this file system.
    pub fn of(files: &FileSystem) -> PermissionChecks {
        match files.properties().acl_type {
            AclType::Nfs4 => PermissionChecks::FileSystem,
            AclType::Off | AclType::Posix => PermissionChecks::Kernel,
        }
    }
}

/// The table of mounts; see proc_pid_mountinfo(5).
const TABLE: &str = "/proc/self/mountinfo";

/// The mounts on folders of a file system, from the mount table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    /// Their paths from the root of the file system, as names.
    paths: Vec<Vec<Vec<u8>>>,
}

impl Covered {
    /// The present mounts on the file system with this device number; none where the table cannot
    /// be read.
    pub(crate) fn read(number: u32) -> Covered {
        Covered::parse(&std::fs::read(TABLE).unwrap_or_default(), number)
    }

    fn parse(table: &[u8], number: u32) -> Covered {
        let own = format!("0:{number}");
        let rows: Vec<Vec<&[u8]>> = table
            .split(|byte| *byte == b'\n')
            .map(|line| line.split(|byte| *byte == b' ').take(5).collect())
            .filter(|row: &Vec<&[u8]>| row.len() == 5)
            .collect();
        let mut paths = Vec::new();
        for below in rows.iter().filter(|row| row[2] == own.as_bytes()) {
            for row in rows.iter().filter(|row| row[1] == below[0]) {
                let (place, on) = (unescaped(row[4]), unescaped(below[4]));
                let relative = Path::new(std::ffi::OsStr::from_bytes(&place))
                    .strip_prefix(std::ffi::OsStr::from_bytes(&on))
                    .unwrap_or(Path::new(""));
                let root = unescaped(below[3]);
                let whole = Path::new(std::ffi::OsStr::from_bytes(&root)).join(relative);
                let names = whole.iter().map(|name| name.as_bytes().to_vec());
                paths.push(names.filter(|name| name != b"/").collect());
            }
        }
        Covered { paths }
    }

    /// Whether a name in a directory is on the path of one of them.
    pub(crate) fn is_on_the_way(
        &self,
        files: &FileSystem,
        directory: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> bool {
        let root = Credentials::root();
        self.paths.iter().any(|path| {
            if !path.iter().any(|component| component == name) {
                return false;
            }
            let mut at = files.root();
            for component in path {
                if at == directory && component == name {
                    return true;
                }
                match files.lookup(&root, at, component, operation) {
                    Ok(found) => at = found.id,
                    Err(_) => return false,
                }
            }
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_on_a_file_system_are_found_by_their_paths_in_it() {
        let table = b"22 1 8:1 / / rw - ext4 a b\n\
            30 22 0:50 / /tank rw - fuse tank rw\n\
            31 30 0:51 / /tank/home/ann\\040b rw - fuse tank/ann rw\n\
            32 22 0:50 /home /mnt rw - fuse tank rw\n\
            33 32 0:52 / /mnt/x rw - tmpfs t rw\n\
            34 31 0:53 / /tank/home/ann\\040b/deep rw - tmpfs t rw\n";
        let names =
            |path: &[&[u8]]| -> Vec<Vec<u8>> { path.iter().map(|name| name.to_vec()).collect() };
        let expected = Covered {
            paths: vec![names(&[b"home", b"ann b"]), names(&[b"home", b"x"])],
        };
        assert_eq!(Covered::parse(table, 50), expected);
        assert_eq!(Covered::parse(table, 99).paths, Vec::<Vec<Vec<u8>>>::new());
    }
}
