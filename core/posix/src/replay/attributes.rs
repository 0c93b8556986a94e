//! Records of attributes: those of POSIX and those beyond, access control lists, extended attributes.

use tarn_object::Tx;
use tarn_ondisk::acl::{AclEntry, AclVersion, AclWho, decode_entries, flag, kind, permission};
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
        flags: u64,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let entries = decode_entries(entries, ByteOrder::Little, AclVersion::Initial)?;
        let node = self.node_of_record(object, operation)?;
        let _change = lock_all(&[&node]);
        let changed = (|| {
            let tx = self.begin_replay(ATTRIBUTE_BYTES, operation)?;
            let mut facts = self.facts_to_change(&node, &tx, operation)?;
            set_acl(&mut facts, &entries, flags, &self.tables, &tx, operation)?;
            facts.attributes_changed(self.now());
            self.store(&node, facts, &tx, operation)?;
            self.note_replayed(&tx);
            Ok(())
        })();
        changed.map_err(failed(object))
    }

    /// An extended attribute in the list among the file's own attributes; one without a value is taken away.
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

/// The entries of the access control list that something is made with.
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

/// Sets the flags and times that are given.
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

/// Gives a file an access control list, and the mode that says as much of it as modes can.
#[doc(alias("zfs_aclset_common", "zfs_mode_compute"))]
pub(super) fn set_acl(
    facts: &mut Facts,
    entries: &[AclEntry],
    flags: u64,
    tables: &AttributeTables,
    tx: &Tx,
    operation: &Operation,
) -> Result<(), PosixError> {
    /// Flags of the list that are flags of the file, in the same places.
    const WIDE: ZnodeFlags = ZnodeFlags::ACL_PROTECTED
        .and(ZnodeFlags::ACL_DEFAULTED)
        .and(ZnodeFlags::ACL_AUTO_INHERIT);
    if facts.form != Form::Attributes {
        return Err(PosixError::NotSupported(
            "access control lists in file systems before version 5",
        ));
    }
    let (permissions, executes) = permissions_of(entries, facts);
    facts.set_permissions((facts.mode & 0o7000) | permissions, &tables.current());
    let count = u64::try_from(entries.len()).unwrap_or_default();
    let bytes = tarn_ondisk::acl::encode_entries(entries);
    let count_bytes = count.to_le_bytes().to_vec();
    facts.set_value(FileAttribute::AclCount, count_bytes, tables, tx, operation)?;
    facts.set_value(FileAttribute::AclEntries, bytes, tables, tx, operation)?;
    let is_trivial = entries == crate::acl::trivial_entries(facts.mode);
    let is_inherited = entries
        .iter()
        .any(|entry| entry.flags & (flag::FILE_INHERIT | flag::DIRECTORY_INHERIT) != 0);
    let wide = ZnodeFlags::from_word(flags & WIDE.word());
    facts.flags = facts.flags.without(WIDE).and(wide);
    for (flag, is_set) in [
        (ZnodeFlags::ACL_TRIVIAL, is_trivial),
        (ZnodeFlags::INHERITED_ENTRIES, is_inherited),
        (ZnodeFlags::NO_EXECUTE_DENIED, executes),
    ] {
        facts.flags = match is_set {
            true => facts.flags.and(flag),
            false => facts.flags.without(flag),
        };
    }
    Ok(())
}

/// The permission bits that a list comes to, and whether nobody is denied execution.
fn permissions_of(entries: &[AclEntry], facts: &Facts) -> (u32, bool) {
    let (mut seen, mut mode) = (0_u32, 0_u32);
    let mut is_execution_denied = false;
    for entry in entries {
        if entry.flags & flag::INHERIT_ONLY != 0 || !matches!(entry.kind, kind::ALLOW | kind::DENY)
        {
            continue;
        }
        let classes: u32 = match entry.who {
            AclWho::Owner => 0o700,
            AclWho::Group => 0o070,
            AclWho::Everyone => 0o777,
            AclWho::User(fuid) if fuid == facts.owner.word() => 0o700,
            AclWho::NamedGroup(fuid) if fuid == facts.group.word() => 0o070,
            AclWho::User(_) | AclWho::NamedGroup(_) => {
                let executes = entry.mask & permission::EXECUTE != 0;
                is_execution_denied |= entry.kind == kind::DENY && executes;
                continue;
            }
        };
        for (right, bits) in [
            (permission::READ_DATA, 0o444),
            (permission::WRITE_DATA, 0o222),
            (permission::EXECUTE, 0o111),
        ] {
            if entry.mask & right != 0 {
                let new = bits & classes & !seen;
                seen |= new;
                mode |= if entry.kind == kind::ALLOW { new } else { 0 };
            }
        }
    }
    let all_execute = mode & 0o111 == 0o111;
    (mode, all_execute && !is_execution_denied)
}
