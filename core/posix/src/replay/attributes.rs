//! Records of attributes: those of POSIX and those beyond, access control lists, extended
//! attributes.

use tarn_object::Tx;
use tarn_ondisk::acl::{AclEntry, AclVersion, decode_entries};
use tarn_ondisk::attributes::FileAttribute;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::intent_log::{LoggedAttributes, LoggedCreate, LoggedExtended, mask};
use tarn_ondisk::nvlist::{Encoding, NvValue};
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use super::{RecordError, failed};
use crate::error::PosixError;
use crate::facts::{Facts, Form, timestamp};
use crate::filesystem::FileSystem;
use crate::intent::attribute;
use crate::nfs4_acl::{LIST_FOLLOWS, set_acl};
use crate::node::lock_all;
use crate::ops::set_attributes::ATTRIBUTE_BYTES;
use crate::ops::write::SIZE_MAX;
use crate::tables::AttributeTables;
use crate::types::FileKind;

impl FileSystem {
    #[doc(alias = "zfs_replay_setattr")]
    pub(super) fn replay_attributes(
        &self,
        set: &LoggedAttributes,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let has = |bit: u64| set.mask & bit != 0;
        if set.owner.domain() != 0 || set.group.domain() != 0 {
            return Err(RecordError::NotSupported("users of Windows domains"));
        }
        let node = self.node_of_record(set.object, operation)?;
        let size = has(mask::SIZE).then_some(set.size);
        if size.is_some() && node.facts().kind() != FileKind::Regular {
            return Err(RecordError::Nonsense("it is about what has no size to set"));
        }
        if size.is_some_and(|size| size > SIZE_MAX) {
            return Err(RecordError::Nonsense("no file reaches so far"));
        }
        let _change = lock_all(&[&node]);
        let changed = (|| {
            let old = node.facts();
            if let Some(size) = size.filter(|size| *size < old.size) {
                self.free_contents(&node, size, operation)?;
            }
            let tx = match size.is_some_and(|size| size < old.size) {
                true => self.begin_freeing(old.size, operation)?,
                false => self.begin_replay(ATTRIBUTE_BYTES, operation)?,
            };
            let content = size.map(|_| node.content.write());
            let mut facts = self.facts_to_change(&node, &tx, operation)?;
            if let Some(size) = size {
                self.set_size(&node, &mut facts, size, &tx, operation)?;
            }
            if has(mask::OWNER) {
                facts.owner = set.owner;
            }
            if has(mask::GROUP) {
                facts.group = set.group;
            }
            if has(mask::MODE) {
                let permissions = u32::try_from(set.mode & 0o7777).unwrap_or(0);
                self.change_permissions(&mut facts, permissions);
            }
            facts.attributes_changed(self.now());
            if has(mask::ACCESS_TIME) {
                facts.accessed = timestamp(set.access_time);
            }
            if has(mask::MODIFICATION_TIME) {
                facts.modified = timestamp(set.modification_time);
            }
            if let Some(extended) = &set.extended {
                apply_extended(&mut facts, extended, &self.tables, &tx, operation)?;
            }
            self.store(&node, facts, &tx, operation)?;
            self.note_replayed(&tx);
            drop((tx, content));
            self.hand_over_xattrs(&node.facts(), operation)?;
            Ok(())
        })();
        changed.map_err(failed(set.object))
    }

    #[doc(alias("zfs_replay_acl", "zfs_replay_acl_v0"))]
    pub(super) fn replay_acl(
        &self,
        object: ObjectId,
        entries: &[u8],
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let entries = decode_entries(entries, ByteOrder::Little, AclVersion::Initial)?;
        let node = self.node_of_record(object, operation)?;
        let _change = lock_all(&[&node]);
        let changed = (|| {
            let tx = self.begin_replay(ATTRIBUTE_BYTES, operation)?;
            let mut facts = self.facts_to_change(&node, &tx, operation)?;
            set_acl(&mut facts, &entries, &self.tables, &tx, operation)?;
            facts.attributes_changed(self.now());
            self.store(&node, facts, &tx, operation)?;
            self.note_replayed(&tx);
            Ok(())
        })();
        changed.map_err(failed(object))
    }

    /// Replays the record of an extended attribute (`xattr=sa`); one without a value is removed.
    #[doc(alias = "zfs_replay_setsaxattr")]
    pub(super) fn replay_xattr(
        &self,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let node = self.node_of_record(object, operation)?;
        let _change = lock_all(&[&node]);
        let changed = (|| {
            let mut list = self.xattr_list(object, &node.facts())?;
            let tx = self.begin_replay(ATTRIBUTE_BYTES, operation)?;
            let mut facts = self.facts_to_change(&node, &tx, operation)?;
            if facts.form != Form::Attributes {
                return Err(PosixError::NotSupported(
                    "extended attributes among the others of a file from before version 5",
                ));
            }
            let attribute = FileAttribute::Xattrs;
            if value.is_empty() {
                list.remove(name);
            } else {
                list.set(name, NvValue::ByteArray(value.to_vec()));
            }
            if !list.is_empty() {
                let bytes = list.encode(Encoding::Xdr);
                facts.set_value(attribute, bytes, &self.tables, &tx, operation)?;
            } else if let Some(id) = self.tables.current().id(attribute) {
                facts.values.remove(id);
            }
            facts.attributes_changed(self.now());
            self.store(&node, facts, &tx, operation)?;
            self.note_replayed(&tx);
            Ok(())
        })();
        changed.map_err(failed(object))
    }
}

/// The entries of the access control list of a new file.
pub(super) fn entries_of(create: &LoggedCreate) -> Result<Option<Vec<AclEntry>>, RecordError> {
    let Some(acl) = &create.acl else {
        return Ok(None);
    };
    if !acl.fuids.is_empty() || !acl.domains.is_empty() {
        return Err(RecordError::NotSupported("users of Windows domains"));
    }
    let entries = decode_entries(&acl.entries, ByteOrder::Little, AclVersion::Initial)?;
    Ok(Some(entries))
}

/// Sets the flags and times that the record has.
#[doc(alias = "zfs_replay_xvattr")]
pub(super) fn apply_extended(
    facts: &mut Facts,
    extended: &LoggedExtended,
    tables: &AttributeTables,
    tx: &Tx,
    operation: &Operation,
) -> Result<(), PosixError> {
    let given = extended.given.first().copied().unwrap_or(0);
    for (bit, flag) in attribute::FLAGS {
        if given & bit != 0 {
            facts.flags = match extended.bits & u64::from(bit) {
                0 => facts.flags.without(flag),
                _ => facts.flags.and(flag),
            };
        }
    }
    if given & attribute::CREATION_TIME != 0 {
        facts.created = timestamp(extended.creation_time);
    }
    if given & attribute::SCAN_STAMP != 0 && facts.form == Form::Attributes {
        let stamp = extended.scan_stamp.to_vec();
        facts.set_value(FileAttribute::ScanStamp, stamp, tables, tx, operation)?;
    } else if given & attribute::PROJECT != 0 && facts.form == Form::Attributes {
        let (project, _) = extended
            .scan_stamp
            .split_first_chunk::<8>()
            .expect("a stamp has 32 bytes");
        facts.set_project(u64::from_le_bytes(*project), tables, tx, operation)?;
    }
    Ok(())
}

/// A flag of a new file's list: it is protected from inheritance.
#[doc(alias = "ACL_PROTECTED")]
const LIST_PROTECTED: u64 = 0x2;
/// A flag of a new file's list: it came from a default.
#[doc(alias = "ACL_DEFAULTED")]
const LIST_DEFAULTED: u64 = 0x4;

/// Gives a new file an access control list with these flags of the list.
pub(super) fn set_acl_with_flags(
    facts: &mut Facts,
    entries: &[AclEntry],
    flags: u64,
    tables: &AttributeTables,
    tx: &Tx,
    operation: &Operation,
) -> Result<(), PosixError> {
    set_acl(facts, entries, tables, tx, operation)?;
    for (bit, flag) in [
        (LIST_FOLLOWS, ZnodeFlags::ACL_AUTO_INHERIT),
        (LIST_PROTECTED, ZnodeFlags::ACL_PROTECTED),
        (LIST_DEFAULTED, ZnodeFlags::ACL_DEFAULTED),
    ] {
        facts.flags = match flags & bit {
            0 => facts.flags.without(flag),
            _ => facts.flags.and(flag),
        };
    }
    Ok(())
}
