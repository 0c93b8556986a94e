//! One record of each type, for the tests of blocks and records.

use super::{
    CreateKind, LogRecord, LoggedAcl, LoggedAttributes, LoggedChange, LoggedCreate, LoggedExtended,
    LoggedRename, LoggedWhiteout, LoggedWrite, RenameKind, mask,
};
use crate::block_pointer::BlockPointer;
use crate::declare::{ByteOrder, Stored};
use crate::fuid::Fuid;
use crate::nvlist::Text;
use crate::units::{ObjectId, Txg};

/// A record of this change.
pub(super) fn record(change: LoggedChange) -> LogRecord {
    LogRecord {
        txg: Txg::from(7),
        sequence: 3,
        case_insensitive: false,
        change,
    }
}

/// A hole.
pub(super) fn pointer() -> BlockPointer {
    BlockPointer::from_bytes(&[0; 128], ByteOrder::Little).expect("a hole is a pointer")
}

fn create() -> LoggedCreate {
    LoggedCreate {
        kind: CreateKind::File,
        directory: ObjectId::new(34),
        object: ObjectId::new(128),
        dnode_slots: 2,
        mode: 0o100_644,
        owner: Fuid::posix(1),
        group: Fuid::posix(2),
        generation: 7,
        creation_time: [8, 9],
        device: 0,
        extended: None,
        acl: None,
        domains: Vec::new(),
        name: Text::from("name"),
    }
}

/// Every record type, with and without its optional parts.
pub(super) fn everything() -> Vec<LoggedChange> {
    let object = ObjectId::new(5);
    let name = Text::from("name");
    let extended = LoggedExtended {
        given: vec![1, 2, 3],
        bits: 4,
        creation_time: [5, 6],
        scan_stamp: [7; 32],
    };
    let acl = LoggedAcl {
        entry_count: 1,
        flags: 2,
        entries: vec![3; 12],
        fuids: vec![Fuid::new(1, 500)],
        domains: vec![Text::from("S-1-5-21")],
    };
    let foreign = LoggedCreate {
        owner: Fuid::new(1, 500),
        domains: vec![Text::from("S-1-5-21")],
        ..create()
    };
    let whiteout = LoggedWhiteout {
        object_word: 9,
        mode: 0o20_000,
        owner: Fuid::posix(0),
        group: Fuid::posix(0),
        generation: 7,
        creation_time: [1, 2],
        device: 0,
    };
    let attributes = LoggedAttributes {
        object,
        mask: mask::SIZE,
        mode: 0,
        owner: Fuid::posix(0),
        group: Fuid::posix(0),
        size: 10,
        access_time: [1, 2],
        modification_time: [3, 4],
        extended: None,
        domains: Vec::new(),
    };
    let write = |is_stored_already, data: Option<Vec<u8>>| {
        LoggedChange::Write(Box::new(LoggedWrite {
            is_stored_already,
            object,
            offset: 1,
            length: 5,
            block_offset: 0,
            pointer: pointer(),
            data,
        }))
    };
    let mut all = vec![
        LoggedChange::Remove {
            directory: object,
            name: name.clone(),
        },
        LoggedChange::RemoveDirectory {
            directory: object,
            name: name.clone(),
        },
        LoggedChange::Link {
            directory: object,
            object,
            name: name.clone(),
        },
        write(false, None),
        write(false, Some(b"hello".to_vec())),
        write(true, None),
        LoggedChange::Truncate {
            object,
            offset: 1,
            length: 2,
        },
        LoggedChange::SetAttributes(Box::new(LoggedAttributes {
            mask: mask::EXTENDED,
            extended: Some(extended.clone()),
            ..attributes.clone()
        })),
        LoggedChange::SetAttributes(Box::new(attributes)),
        LoggedChange::SetInitialAcl {
            object,
            entry_count: 2,
            entries: vec![1; 24],
        },
        LoggedChange::SetAcl {
            object,
            acl: acl.clone(),
        },
        LoggedChange::SetXattr {
            object,
            name: name.clone(),
            value: b"value".to_vec(),
        },
        LoggedChange::SetXattr {
            object,
            name: name.clone(),
            value: Vec::new(),
        },
        LoggedChange::CloneRange {
            object,
            offset: 0,
            length: 256,
            block_size: 128,
            pointers: vec![pointer(), pointer()],
        },
    ];
    for kind in [
        RenameKind::Plain,
        RenameKind::Exchange,
        RenameKind::Whiteout(whiteout),
    ] {
        all.push(LoggedChange::Rename(Box::new(LoggedRename {
            kind,
            from_directory: object,
            to_directory: object,
            from: name.clone(),
            to: Text::from("another name"),
        })));
    }
    let created = [
        CreateKind::File,
        CreateKind::Directory,
        CreateKind::XattrDirectory,
        CreateKind::Link(Text::from("target")),
    ];
    for kind in created {
        let more = matches!(kind, CreateKind::File | CreateKind::Directory);
        for (with_acl, with_extended) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            if more || with_acl + with_extended == 0 {
                all.push(LoggedChange::Create(Box::new(LoggedCreate {
                    kind: kind.clone(),
                    acl: (with_acl == 1).then(|| acl.clone()),
                    extended: (with_extended == 1).then(|| extended.clone()),
                    ..create()
                })));
            }
        }
    }
    all.push(LoggedChange::Create(Box::new(foreign)));
    all
}
