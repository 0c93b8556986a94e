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
//! free. The inode number that `stat` shows is the object number, as OpenZFS shows it.

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

#[cfg(test)]
mod tests {
    use super::*;

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
