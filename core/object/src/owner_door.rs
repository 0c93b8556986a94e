//! The door [`Ownership`]: the user, group and project of an object.

use tarn_ondisk::object_type::ObjectType;

/// What the numbers of objects, as opposed to their space, are counted under.
#[doc(alias = "DMU_OBJACCT_PREFIX")]
pub const OBJECT_COUNT_PREFIX: &str = "obj-";

/// The user, group and project that an object counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub user: u64,
    /// The group's number.
    pub group: u64,
    /// The project's number.
    pub project: u64,
}

/// Tells owners apart. Implemented where the contents of bonuses are known.
pub trait Ownership: Send + Sync {
    /// The owner of an object with this bonus. None for one that is not counted. Where the bonus is
    /// empty and the object has a spill block, `bonus` is what that holds.
    fn owner(&self, bonus_type: ObjectType, bonus: &[u8]) -> Option<Owner>;
}
