//! Node numbers: how one mount names the files of several file systems.
//!
//! | highest bits | below them | |
//! |---|---|---|
//! | 16 zeros | 48 of the object | the dataset |
//! | `1` | 15 of a place in a list, 48 of the object | a renumbered snapshot |
//! | `01` | 22 of the snapshot's dataset, 40 of the object | a snapshot |
//! | `001` | 13 of the snapshot's dataset, 48 of the object | a snapshot |
//! | `0001` | 28 of the snapshot's dataset, 32 of the object | a snapshot |
//!
//! A snapshot's node numbers follow from the object of its dataset in the MOS, so they are the same
//! in every session and after a restart. The kernel may know nodes of a destroyed snapshot, and
//! another can get the number of its dataset: within the session, the new one is *renumbered*. So
//! is a snapshot whose dataset has a number of 2^28 or more.
//!
//! The directories `.zfs` and `.zfs/snapshot` have object numbers of the dataset that no object can
//! have. The kernel wants the root to be node 1; object 1 is the master node, which is no file, so
//! the number is free.
//!
//! # Inode numbers
//! `stat` shows the object number of a live file, as OpenZFS does. A snapshot is a mount of its own
//! in OpenZFS, with its own `st_dev`; here it shares that of the dataset, for Linux lets only
//! virtiofs have submounts (`FUSE_SUBMOUNTS` is not offered to `/dev/fuse`). Files with the same
//! `st_dev` and `st_ino` are one file to `tar`, `cp`, `cmp` and `rsync -H`, so the inode numbers
//! below `.zfs/snapshot` differ: they are made of the number of the snapshot's dataset and that of
//! the object, and stay the same while the snapshot exists ([`inode_in_snapshot`]).

use tarn_engine::files::ObjectId;

/// The kernel's number for the root.
pub const ROOT_NODE: u64 = 1;

/// Bits of the object number in nodes of the dataset and of renumbered snapshots.
const SHIFT: u32 = 48;

/// The bit that renumbered snapshots have.
const RENUMBERED: u64 = 1 << 63;

/// How the numbers of a snapshot's dataset and of an object share a node number: which bit is set
/// above them, and how many bits the object number has. The first form in which the dataset number
/// fits is taken, so that all nodes of a snapshot have one form.
const NODE_FORMS: [(u32, u32); 3] = [(61, 48), (62, 40), (60, 32)];

/// Which of the file systems of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The dataset that is mounted.
    Dataset,
    /// The snapshot with this dataset.
    Snapshot(ObjectId),
    /// The snapshot at this place in the session's list of renumbered ones; below 2^15.
    Renumbered(u16),
}

/// Most renumbered snapshots of a session.
pub const RENUMBERED_MAX: usize = 1 << 15;

impl Which {
    /// The numbering of a snapshot's nodes; none where the snapshot has to be renumbered.
    pub fn of_snapshot(dataset: ObjectId) -> Option<Which> {
        form_of(dataset).map(|_| Which::Snapshot(dataset))
    }

    /// Whether it is a snapshot.
    pub fn is_snapshot(self) -> bool {
        self != Which::Dataset
    }
}

/// The form of the nodes of a snapshot, if there is one for its dataset number.
fn form_of(dataset: ObjectId) -> Option<(u32, u32)> {
    let fits = |(mark, object_bits): &(u32, u32)| dataset.get() >> (mark - object_bits) == 0;
    NODE_FORMS.into_iter().find(fits)
}

/// What a node number names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The root of the dataset.
    Root,
    /// An object of the dataset or of a snapshot.
    Object {
        /// Its file system.
        which: Which,
        /// Its object.
        id: ObjectId,
    },
}

impl Node {
    /// The node with this number. None for numbers that no node has.
    pub fn from_number(number: u64) -> Option<Node> {
        if number == ROOT_NODE {
            return Some(Node::Root);
        }
        let low = |bits: u32| number & ((1 << bits) - 1);
        let (which, id) = match number.leading_zeros() {
            0 => {
                let place =
                    u16::try_from((number & !RENUMBERED) >> SHIFT).expect("15 bits are left");
                (Which::Renumbered(place), low(SHIFT))
            }
            zeros if zeros >= 64 - SHIFT => (Which::Dataset, number),
            zeros => {
                let mut forms = NODE_FORMS.into_iter();
                let (mark, object_bits) = forms.find(|(mark, _)| *mark == 63 - zeros)?;
                let dataset = low(mark) >> object_bits;
                (Which::Snapshot(ObjectId::new(dataset)), low(object_bits))
            }
        };
        let id = ObjectId::new(id);
        Some(Node::Object { which, id })
    }

    /// The number of the node. An object number that does not fit, which takes a file system with
    /// more than four billion files in a pool with millions of datasets, gives the number of no
    /// file.
    pub fn number(self) -> u64 {
        let (which, id) = match self {
            Node::Root => return ROOT_NODE,
            Node::Object { which, id } => (which, id.get()),
        };
        let capped = |bits: u32| id.min((1 << bits) - 1);
        match which {
            Which::Dataset => capped(SHIFT),
            Which::Renumbered(place) => RENUMBERED | (u64::from(place) << SHIFT) | capped(SHIFT),
            Which::Snapshot(dataset) => {
                let form = form_of(dataset);
                let (mark, object_bits) = form.expect("others are renumbered");
                (1 << mark) | (dataset.get() << object_bits) | capped(object_bits)
            }
        }
    }
}

/// How the two numbers of a file in a snapshot share an inode number: which bit is set above them,
/// and how many bits the object number has. The first form in which both fit is taken. Nearly all
/// are below 2^53, so that programs which keep inode numbers as floating-point numbers tell them
/// apart, too.
const FORMS: [(u32, u32); 4] = [(52, 32), (61, SHIFT), (62, 32), (63, 40)];

/// The inode number of an object in a snapshot, given the object of the snapshot's dataset. It
/// differs from those of objects and of directories below `.zfs`, which are below 2^48.
///
/// No two files share one if the dataset number is below 2^20 and the object number below 2^32; or
/// 2^13 and 2^48; or 2^30 and 2^32; or 2^23 and 2^40. Beyond, where a pool has more than ten
/// million datasets or snapshots, or a file system more than 10^12 files, numbers are a hash of 60
/// bits.
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
    fn inode_numbers_of_files_in_snapshots_are_unique() {
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
    fn node_numbers_are_unique_and_decode_to_their_nodes() {
        let object = |which, id| Node::Object {
            which,
            id: ObjectId::new(id),
        };
        let snapshot = |dataset| Which::Snapshot(ObjectId::new(dataset));
        let largest = RENUMBERED_MAX - 1;
        let renumbered = |place: usize| Which::Renumbered(u16::try_from(place).unwrap());
        let mut seen = BTreeSet::new();
        for node in [
            Node::Root,
            object(Which::Dataset, 34),
            object(Which::Dataset, (1 << 48) - 1),
            object(snapshot(1), 34),
            object(snapshot((1 << 13) - 1), (1 << 48) - 1),
            object(snapshot(1 << 13), 34),
            object(snapshot((1 << 22) - 1), (1 << 40) - 1),
            object(snapshot(1 << 22), 34),
            object(snapshot((1 << 28) - 1), (1 << 32) - 1),
            object(renumbered(0), 34),
            object(renumbered(largest), (1 << 48) - 1),
        ] {
            assert_eq!(Node::from_number(node.number()), Some(node));
            assert!(seen.insert(node.number()), "{node:?}");
        }
        assert_eq!(Which::of_snapshot(ObjectId::new(1 << 28)), None);
        // No form has this mark.
        assert_eq!(Node::from_number(1 << 59), None);
        // Not that of another file of the snapshot.
        let too_large = object(snapshot(1 << 22), 1 << 32).number();
        let read_back = Node::from_number(too_large).unwrap();
        assert_eq!(read_back, object(snapshot(1 << 22), (1 << 32) - 1));
    }
}
