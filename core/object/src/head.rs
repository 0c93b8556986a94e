//! The objset block of an object set, and the objects in it: the meta dnode and the accounting
//! objects.

use tarn_block::BlockScope;
use tarn_cache::{Hint, PoolCache};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::declare::{Corrupt, widen};
use tarn_ondisk::dnode::{Dnode, SLOT_BYTES};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::{Accounting, Objset};
use tarn_ondisk::units::{BlockId, Level, ObjectId};
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::tree_shape::check_tree;

/// The number of the MOS among object sets.
#[doc(alias = "DMU_META_OBJSET")]
pub const MOS_ID: ObjectId = ObjectId::ZERO;
/// The meta dnode, which has no number of its own.
#[doc(alias = "DMU_META_DNODE_OBJECT")]
pub const META_DNODE: ObjectId = ObjectId::ZERO;
/// The object that counts space by user.
#[doc(alias = "DMU_USERUSED_OBJECT")]
pub const USER_USED: ObjectId = ObjectId::new(u64::MAX);
/// The object that counts space by group.
#[doc(alias = "DMU_GROUPUSED_OBJECT")]
pub const GROUP_USED: ObjectId = ObjectId::new(u64::MAX - 1);
/// The object that counts space by project.
#[doc(alias = "DMU_PROJECTUSED_OBJECT")]
pub const PROJECT_USED: ObjectId = ObjectId::new(u64::MAX - 2);

/// Reads and decodes the head of an object set.
pub fn read_head(
    cache: &PoolCache,
    id: ObjectId,
    root: &BlockPointer,
    operation: &Operation,
) -> Result<Objset, ObjectError> {
    let why = match (root.kind(), root.object_type(), root.level()) {
        (PointerKind::Stored, ObjectType::Objset, Level::ZERO) => None,
        (PointerKind::Stored, ..) => Some("the root does not point to the head of an object set"),
        _ => Some("the root points to no block"),
    };
    if let Some(why) = why {
        let what = Corrupt::Inconsistent {
            what: "root block pointer",
            offset: 48,
            why,
        };
        return Err(corrupt(id, META_DNODE, what));
    }
    root.check().map_err(|what| corrupt(id, META_DNODE, what))?;
    let block = cache
        .read(root, BlockScope::of_head(id), Hint::DEMAND, operation)
        .map_err(|why| ObjectError::Read {
            set: id,
            object: META_DNODE,
            level: Level::ZERO,
            block: BlockId::ZERO,
            why: Box::new(why),
        })?;
    Objset::from_block(&block, root.byte_order()).map_err(|what| corrupt(id, META_DNODE, what))
}

/// The accounting dnodes a head has room for, free ones included.
pub(crate) fn accounting_dnodes(objset: &Objset) -> Vec<(ObjectId, &Dnode)> {
    match &objset.accounting {
        Accounting::None => Vec::new(),
        Accounting::Users { user, group } => vec![(USER_USED, user), (GROUP_USED, group)],
        Accounting::Projects {
            user,
            group,
            project,
        } => {
            vec![
                (USER_USED, user),
                (GROUP_USED, group),
                (PROJECT_USED, project),
            ]
        }
    }
}

/// Which of the accounting objects a number means.
pub(crate) fn account_index(id: ObjectId) -> Option<usize> {
    [USER_USED, GROUP_USED, PROJECT_USED]
        .iter()
        .position(|account| *account == id)
}

/// True for the objects that are not in the meta dnode.
pub(crate) fn is_special(id: ObjectId) -> bool {
    id == META_DNODE || account_index(id).is_some()
}

/// The slots of a block of dnodes that are the first of an object, with how many it takes. In any
/// byte order: the type and the count of slots are bytes. A count beyond the end of the block is
/// cut.
pub(crate) fn occupied(block: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let count = block.len() / SLOT_BYTES;
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < count {
            let slot = at;
            at += slots_at(block, slot);
            if block[slot * SLOT_BYTES] != ObjectType::None.code() {
                return Some((slot, (at - slot).min(count - slot)));
            }
        }
        None
    })
}

/// How many slots what begins at this one takes: one if it is free.
pub(crate) fn slots_at(block: &[u8], slot: usize) -> usize {
    let dnode = &block[slot * SLOT_BYTES..];
    if dnode[0] == ObjectType::None.code() {
        1
    } else {
        usize::from(dnode[12]) + 1
    }
}

/// The error of a damaged object.
pub(crate) fn corrupt(set: ObjectId, object: ObjectId, what: Corrupt) -> ObjectError {
    ObjectError::Corrupt { set, object, what }
}

/// Refuses a meta dnode that is none.
pub(crate) fn check_meta(dnode: &Dnode) -> Result<(), Corrupt> {
    check_tree(dnode)?;
    let size = dnode.data_block_size;
    let is_whole = size.get() >= widen(SLOT_BYTES) && size.get().is_power_of_two();
    if dnode.object_type != ObjectType::Dnode || !is_whole {
        return Err(Corrupt::Inconsistent {
            what: "meta dnode",
            offset: 0,
            why: "it is not an object of dnodes",
        });
    }
    Ok(())
}
