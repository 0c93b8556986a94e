//! Node numbers: how one mount names the files of several file systems.
//!
//! ```text
//!   63        48 47                                   0
//!  ┌────────────┬──────────────────────────────────────┐
//!  │ which      │ object number                        │
//!  └────────────┴──────────────────────────────────────┘
//!   0            the dataset itself
//!   1 … FFFFh    snapshots, in the order in which they were first entered
//! ```
//!
//! The directories `.zfs` and `.zfs/snapshot` have object numbers of the dataset that no object can have. The kernel wants the root to be node 1; object 1 is the master node, which nobody can reach, so the number is
//! free.
//!
//! # Inode numbers
//! `stat` shows the object number of a live file, as OpenZFS does. A snapshot is a mount of its own in OpenZFS, with its own `st_dev`; here it shares
//! that of the dataset, for Linux lets only virtiofs have submounts (`FUSE_SUBMOUNTS` is not offered to `/dev/fuse`). What has the same
//! `st_dev` and `st_ino` is one file to `tar`, `cp`, `cmp` and `rsync -H`, so the inode numbers below `.zfs/snapshot` are others: they are made of the number of the
//! snapshot's dataset and that of the object, and stay the same for as long as the snapshot is there ([`inode_in_snapshot`]).

use tarn_engine::files::ObjectId;

/// The kernel's number for the root.
pub const ROOT_NODE: u64 = 1;

const SHIFT: u32 = 48;
const OBJECT_MASK: u64 = (1 << SHIFT) - 1;

/// What a node number names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The root of the dataset.
    Root,
    /// An object of the dataset (0) or of a snapshot.
    Object {
        /// Which file system.
        which: u16,
        /// Its object.
        id: ObjectId,
    },
}

impl Node {
    /// What a number of the kernel's names.
    pub fn from_number(number: u64) -> Node {
        let which = u16::try_from(number >> SHIFT).expect("16 bits are left");
        let object = number & OBJECT_MASK;
        match (which, object) {
            (0, ROOT_NODE) => Node::Root,
            (which, object) => Node::Object {
                which,
                id: ObjectId::new(object),
            },
        }
    }

    /// The kernel's number of it.
    pub fn number(self) -> u64 {
        match self {
            Node::Root => ROOT_NODE,
            Node::Object { which, id } => (u64::from(which) << SHIFT) | (id.get() & OBJECT_MASK),
        }
    }
}

/// How the two numbers of a file in a snapshot share an inode number: which bit is set above them, and how many bits the object's has. The first form in which both
/// fit is taken. What nearly all have is below 2^53, so that programs which keep inode numbers as floating-point numbers tell them apart, too.
const FORMS: [(u32, u32); 4] = [(52, 32), (61, SHIFT), (62, 32), (63, 40)];

/// The inode number of an object in a snapshot, given the object of the snapshot's dataset. It is that of no object and of no directory below `.zfs`, which are below 2^48.
///
/// No two files share one, as long as the dataset's number is below 2^20 and the object's below 2^32; or 2^13 and 2^48; or 2^30 and 2^32; or 2^23 and 2^40.
/// Beyond, where a pool has more than ten million datasets or snapshots, or a file system more than 10^12 files, numbers are a hash of 60 bits.
pub fn inode_in_snapshot(dataset: ObjectId, object: ObjectId) -> u64 {
    let (dataset, object) = (dataset.get(), object.get());
    for (mark, object_bits) in FORMS {
        let fits = object >> object_bits == 0 && dataset >> (mark - object_bits) == 0;
        if fits {
            return (1 << mark) | (dataset << object_bits) | object;
        }
    }
    let mixed = (dataset.rotate_left(32) ^ object).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (1 << 60) | (mixed >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn files_of_snapshots_share_no_inode_number_with_any_other() {
        let datasets = [
            1,
            387,
            (1 << 13) - 1,
            (1 << 20) - 1,
            (1 << 23) - 1,
            (1 << 30) - 1,
        ];
        let objects = [1, 34, (1 << 32) - 1, 1 << 32, (1 << 40) - 1, (1 << 48) - 1];
        let mut seen = BTreeSet::new();
        for dataset in datasets {
            for object in objects {
                let inode = inode_in_snapshot(ObjectId::new(dataset), ObjectId::new(object));
                assert!(
                    inode >> SHIFT != 0,
                    "{dataset} {object}: a live file has it"
                );
                assert!(
                    seen.insert(inode),
                    "{dataset} {object}: another has {inode:x}"
                );
                let is_usual = dataset < 1 << 20 && object < 1 << 32;
                assert_eq!(inode < 1 << 53, is_usual);
            }
        }
    }

    #[test]
    fn a_number_leads_back_to_its_node() {
        let object = |which, id| Node::Object {
            which,
            id: ObjectId::new(id),
        };
        for node in [
            Node::Root,
            object(0, 34),
            object(1, 1),
            object(u16::MAX, (1 << 48) - 1),
        ] {
            assert_eq!(Node::from_number(node.number()), node);
        }
    }
}
