//! The owner, group and project of an object for space accounting: implements the door `Ownership`.
//!
//! # Mechanism
//! A layout could have the owner anywhere, but all layouts begin alike, and OpenZFS relies on it:
//! after the header come mode, size, generation, owner, group, parent and flags, a word each, then
//! four times and the number of links, and then the project, if the flags have it. So the owner is
//! found in the bonus alone, without the file system's tables, whether it is mounted or not.
//!
//! # Invariants
//! - The owner depends on the bonus alone, so accounting subtracts the same that it added.

use tarn_object::{Owner, Ownership};
use tarn_ondisk::attributes::MAGIC;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::znode::{ZnodeFlags, ZnodePhys};

/// Where the values are, counted from the end of the header.
mod place {
    #[doc(alias = "SA_UID_OFFSET")]
    pub const OWNER: usize = 24;
    #[doc(alias = "SA_GID_OFFSET")]
    pub const GROUP: usize = 32;
    #[doc(alias = "SA_FLAGS_OFFSET")]
    pub const FLAGS: usize = 48;
    #[doc(alias = "SA_PROJID_OFFSET")]
    pub const PROJECT: usize = 128;
}

/// Reads owners out of files. The object set of every file system is opened with one.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileOwnership;

impl Ownership for FileOwnership {
    #[doc(alias = "zpl_get_file_info")]
    fn owner(&self, bonus_type: ObjectType, bonus: &[u8]) -> Option<Owner> {
        match bonus_type {
            ObjectType::SystemAttributes => owner_of_file(bonus),
            ObjectType::Znode => owner_of_old_file(bonus),
            _ => None,
        }
    }
}

fn owner_of_file(bonus: &[u8]) -> Option<Owner> {
    let (magic, rest) = bonus.split_first_chunk::<4>()?;
    let (info, _) = rest.split_first_chunk::<2>()?;
    let magic = u32::from_le_bytes(*magic);
    let order = match magic {
        MAGIC => ByteOrder::Little,
        other if other.swap_bytes() == MAGIC => ByteOrder::Big,
        // A new file without attributes yet.
        0 => {
            return Some(Owner {
                user: 0,
                group: 0,
                project: 0,
            });
        }
        _ => return None,
    };
    let info = match order {
        ByteOrder::Little => u16::from_le_bytes(*info),
        ByteOrder::Big => u16::from_be_bytes(*info),
    };
    let values = bonus.get(8 * usize::from(info >> 10)..)?;
    let word = |place: usize| {
        let bytes = values.get(place..)?.first_chunk::<8>()?;
        Some(match order {
            ByteOrder::Little => u64::from_le_bytes(*bytes),
            ByteOrder::Big => u64::from_be_bytes(*bytes),
        })
    };
    let flags = ZnodeFlags::from_word(word(place::FLAGS)?);
    let project = match flags.has(ZnodeFlags::HAS_PROJECT) {
        true => word(place::PROJECT)?,
        false => 0,
    };
    Some(Owner {
        user: word(place::OWNER)?,
        group: word(place::GROUP)?,
        project,
    })
}

fn owner_of_old_file(bonus: &[u8]) -> Option<Owner> {
    let mut reader = tarn_ondisk::declare::Reader::new("ZnodePhys", bonus, ByteOrder::Little);
    let file = ZnodePhys::decode(&mut reader).ok()?;
    Some(Owner {
        user: file.owner,
        group: file.group,
        project: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::new_file_order;
    use crate::types::FileKind;
    use tarn_ondisk::attributes::{Attributes, FileAttribute, Layouts, Registry};

    /// New files of this crate have their owner where OpenZFS looks for it.
    #[test]
    fn the_owner_of_a_new_file_is_found_in_its_bytes() {
        let registry = Registry::of_new_files();
        for (has_project, flags) in [(true, ZnodeFlags::HAS_PROJECT), (false, ZnodeFlags::NONE)] {
            let mut values = Attributes::new();
            for attribute in new_file_order(FileKind::Regular, has_project) {
                let id = registry.id(attribute).expect("a new registry has all");
                values.set(id, vec![0; usize::from(attribute.size())]);
                match attribute {
                    FileAttribute::Owner => values.set_word(id, 1000),
                    FileAttribute::Group => values.set_word(id, 2000),
                    FileAttribute::Project => values.set_word(id, 3),
                    FileAttribute::Flags => values.set_word(id, flags.word()),
                    _ => {}
                }
            }
            let encoded = values
                .encode(320, &registry, &mut Layouts::new())
                .expect("it fits");
            let owner = FileOwnership.owner(ObjectType::SystemAttributes, &encoded.bonus);
            let project = if has_project { 3 } else { 0 };
            assert_eq!(
                owner,
                Some(Owner {
                    user: 1000,
                    group: 2000,
                    project
                })
            );
        }
    }

    #[test]
    fn what_is_no_file_has_no_owner() {
        assert_eq!(FileOwnership.owner(ObjectType::None, &[]), None);
        assert_eq!(
            FileOwnership.owner(ObjectType::SystemAttributes, &[1, 2, 3]),
            None
        );
    }
}
