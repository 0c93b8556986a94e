//! Intent logs: their blocks and records.

use crate::look::Look;
use crate::out::Out;
use crate::set::SetView;
use std::collections::BTreeSet;
use std::sync::Arc;
use tarn_block::BlockScope;
use tarn_object::ObjectSet;
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::intent_log::{
    CreateKind, LogBlock, LogForm, LogRecord, LoggedAttributes, LoggedChange, LoggedWrite,
    RenameKind, SEQUENCE_WORD, mask,
};
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_terminal::timestamp::ctime;

/// The indent of details.
const TAB: &str = "\t\t\t";

/// How many bytes of data are shown.
const DATA_BYTES: usize = 20;

/// Number of record types that are counted: the first index has the sum.
const TYPE_COUNT: usize = 25;

/// Names of the types by number, as wide as the widest.
const TYPES: [&str; TYPE_COUNT] = [
    "Total              ",
    "TX_CREATE          ",
    "TX_MKDIR           ",
    "TX_MKXATTR         ",
    "TX_SYMLINK         ",
    "TX_REMOVE          ",
    "TX_RMDIR           ",
    "TX_LINK            ",
    "TX_RENAME          ",
    "TX_WRITE           ",
    "TX_TRUNCATE        ",
    "TX_SETATTR         ",
    "TX_ACL_V0          ",
    "TX_ACL_ACL         ",
    "TX_CREATE_ACL      ",
    "TX_CREATE_ATTR     ",
    "TX_CREATE_ACL_ATTR ",
    "TX_MKDIR_ACL       ",
    "TX_MKDIR_ATTR      ",
    "TX_MKDIR_ACL_ATTR  ",
    "TX_WRITE2          ",
    "TX_SETSAXATTR      ",
    "TX_RENAME_EXCHANGE ",
    "TX_RENAME_WHITEOUT ",
    "TX_CLONE_RANGE     ",
];

/// Longest chain that is followed: a guard against circular ones.
const BLOCKS_MAX: usize = 1 << 20;

/// Shows the intent log of an object set, if it has one.
pub fn show(out: &mut Out, look: &Look<'_>, view: &SetView, set: &Arc<ObjectSet>) {
    let level = look.depth().max(look.options.level('i'));
    let head = set.phys().intent_log;
    if head.first.is_hole() {
        return;
    }
    writeln!(
        out,
        "\n    ZIL header: claim_txg {}, claim_blk_seq {}, claim_lr_seq {} replay_seq {}, flags 0x{:x}",
        head.claim_txg,
        head.claimed_block_sequence,
        head.claimed_record_sequence,
        head.replayed_sequence,
        head.flags
    );
    if level < 2 {
        return;
    }
    writeln!(out);
    let mut shower = Shower {
        look,
        set: view.id,
        level,
        is_claimed: !head.claim_txg.is_zero(),
        is_encrypted: view.is_encrypted,
        counts: [0; TYPE_COUNT],
    };
    shower.blocks(
        out,
        head.first,
        head.claimed_block_sequence,
        head.claimed_record_sequence,
    );
    shower.totals(out);
}

struct Shower<'a, 'b> {
    look: &'a Look<'b>,
    set: ObjectId,
    level: u32,
    is_claimed: bool,
    is_encrypted: bool,
    counts: [u64; TYPE_COUNT],
}

impl Shower<'_, '_> {
    fn blocks(&mut self, out: &mut Out, first: BlockPointer, last_block: u64, last_record: u64) {
        let mut seen: BTreeSet<Option<Dva>> = BTreeSet::new();
        let mut next = first;
        while !next.is_hole() && seen.len() < BLOCKS_MAX {
            let sequence = next.checksum_words.0[SEQUENCE_WORD];
            if self.is_claimed && sequence > last_block || !seen.insert(next.dvas().next()) {
                return;
            }
            self.block_line(out, &next, sequence);
            let Some(form) = LogForm::of_checksum(next.checksum_kind()) else {
                return;
            };
            let (io, scope) = (self.look.pool().io(), BlockScope::of_log_block(&next));
            let Ok(contents) = io.read(&next, scope, self.look.operation()) else {
                return;
            };
            let Ok(block) = LogBlock::decode(&contents, form) else {
                return;
            };
            let mut rest = block.records;
            while !rest.is_empty() {
                let Ok((record, length)) = LogRecord::decode(rest, block.order) else {
                    break;
                };
                if self.is_claimed && record.sequence > last_record {
                    return;
                }
                self.record(out, &record, length);
                rest = rest.get(length.max(1)..).unwrap_or_default();
            }
            next = block.chain.next;
        }
    }

    fn block_line(&self, out: &mut Out, pointer: &BlockPointer, sequence: u64) {
        if self.level <= 3 {
            return;
        }
        let first_claimable: Txg = self.look.pool().uberblock().txg.next();
        let claim = match self.is_claimed {
            true => "already claimed",
            false if pointer.birth() >= first_claimable => "will claim",
            false => "won't claim",
        };
        match self.level >= 5 {
            true => writeln!(out, "\tBlock seqno {sequence}, {claim}, {pointer}"),
            false => writeln!(out, "\tBlock seqno {sequence}, {claim}"),
        }
    }

    fn record(&mut self, out: &mut Out, record: &LogRecord, length: usize) {
        let number = usize::try_from(record.change.number()).unwrap_or(0);
        let number = if number < TYPE_COUNT { number } else { 0 };
        writeln!(
            out,
            "\t\t{}{} len {length:6}, txg {}, seq {}",
            if record.case_insensitive { "CI-" } else { "" },
            TYPES[number],
            record.txg,
            record.sequence
        );
        if self.level >= 3 {
            match self.is_encrypted {
                true => writeln!(out, "{TAB}(encrypted)"),
                false => self.details(out, &record.change),
            }
        }
        self.counts[number] += 1;
        self.counts[0] += u64::from(number != 0);
    }

    fn details(&self, out: &mut Out, change: &LoggedChange) {
        match change {
            LoggedChange::Create(create) => {
                let seconds = i64::try_from(create.creation_time[0]).unwrap_or(i64::MAX);
                match &create.kind {
                    CreateKind::Link(target) => writeln!(out, "{TAB}{} -> {target}", create.name),
                    CreateKind::XattrDirectory => {}
                    _ => writeln!(out, "{TAB}{}", create.name),
                }
                writeln!(out, "{TAB}{}", ctime(seconds));
                writeln!(
                    out,
                    "{TAB}doid {}, foid {}, slots {}, mode {:o}",
                    create.directory, create.object, create.dnode_slots, create.mode
                );
                writeln!(
                    out,
                    "{TAB}uid {}, gid {}, gen {}, rdev 0x{:x}",
                    create.owner.word(),
                    create.group.word(),
                    create.generation,
                    create.device
                );
            }
            LoggedChange::Remove { directory, name }
            | LoggedChange::RemoveDirectory { directory, name } => {
                writeln!(out, "{TAB}doid {directory}, name {name}");
            }
            LoggedChange::Link {
                directory,
                object,
                name,
            } => {
                writeln!(out, "{TAB}doid {directory}, link_obj {object}, name {name}");
            }
            LoggedChange::Rename(rename) => {
                writeln!(
                    out,
                    "{TAB}sdoid {}, tdoid {}\n{TAB}src {} tgt {}",
                    rename.from_directory, rename.to_directory, rename.from, rename.to
                );
                match rename.kind {
                    RenameKind::Exchange => writeln!(out, "{TAB}flags RENAME_EXCHANGE"),
                    RenameKind::Whiteout(_) => writeln!(out, "{TAB}flags RENAME_WHITEOUT"),
                    _ => {}
                }
            }
            LoggedChange::Write(write) => self.write(out, write),
            LoggedChange::Truncate {
                object,
                offset,
                length,
            } => {
                writeln!(
                    out,
                    "{TAB}foid {object}, offset 0x{offset:x}, length 0x{length:x}"
                );
            }
            LoggedChange::SetAttributes(attributes) => set_attributes(out, attributes),
            LoggedChange::SetInitialAcl {
                object,
                entry_count,
                ..
            } => {
                writeln!(out, "{TAB}foid {object}, aclcnt {entry_count}");
            }
            LoggedChange::SetAcl { object, acl } => {
                writeln!(out, "{TAB}foid {object}, aclcnt {}", acl.entry_count);
            }
            LoggedChange::SetXattr {
                object,
                name,
                value,
            } => {
                writeln!(out, "{TAB}foid {object}\n{TAB}XAT_NAME  {name}");
                match value.is_empty() {
                    true => writeln!(out, "{TAB}XAT_VALUE  NULL"),
                    false => {
                        write!(out, "{TAB}XAT_VALUE  ");
                        out.bytes(value);
                    }
                }
            }
            LoggedChange::CloneRange {
                object,
                offset,
                length,
                block_size,
                pointers,
            } => {
                writeln!(
                    out,
                    "{TAB}foid {object}, offset {offset:x}, length {length:x}, blksize {block_size:x}"
                );
                if self.level >= 4 {
                    for (index, pointer) in pointers.iter().enumerate() {
                        writeln!(out, "{TAB}[{}/{}] {pointer}", index + 1, pointers.len());
                    }
                }
            }
        }
    }

    fn write(&self, out: &mut Out, write: &LoggedWrite) {
        writeln!(
            out,
            "{TAB}foid {}, offset {:x}, length {:x}",
            write.object, write.offset, write.length
        );
        if self.level < 4 || write.is_stored_already {
            return;
        }
        let read;
        let data = match &write.data {
            Some(data) => data.as_slice(),
            None => {
                let pointer = &write.pointer;
                let is_new = pointer.birth() > self.look.pool().uberblock().txg;
                let claim = match !pointer.is_hole() && is_new {
                    true => "will claim",
                    false => "won't claim",
                };
                writeln!(out, "{TAB}has blkptr, {claim}\n{TAB}{pointer}");
                if self.level < 5 {
                    return;
                }
                if pointer.is_hole() {
                    let size = pointer.logical_size().get();
                    writeln!(out, "{TAB}LSIZE 0x{size:x}\n{TAB}<hole>");
                    return;
                }
                let (set, object) = (self.set, write.object);
                let scope = BlockScope::of_logged_write(set, object, write.offset, pointer);
                let io = self.look.pool().io();
                let Ok(contents) = io.read(pointer, scope, self.look.operation()) else {
                    return;
                };
                read = contents;
                &read[..]
            }
        };
        if self.level < 5 {
            return;
        }
        write!(out, "{TAB}");
        for byte in data.iter().take(DATA_BYTES) {
            match byte {
                0x20..=0x7e => write!(out, "{} ", char::from(*byte)),
                // OpenZFS prints the byte as a signed number.
                0x80.. => write!(out, "FFFFFF{byte:2X}"),
                _ => write!(out, "{byte:2X}"),
            }
        }
        writeln!(out);
    }

    fn totals(&self, out: &mut Out) {
        if self.level > 3 {
            writeln!(out);
        }
        let total = self.counts[0];
        if total == 0 {
            return;
        }
        let width = total.to_string().len();
        for (name, count) in TYPES.iter().zip(self.counts) {
            if count > 0 || self.level >= 3 {
                writeln!(out, "\t\t{name} {count:width$}");
            }
        }
        writeln!(out);
    }
}

fn set_attributes(out: &mut Out, attributes: &LoggedAttributes) {
    writeln!(
        out,
        "{TAB}foid {}, mask 0x{:x}",
        attributes.object, attributes.mask
    );
    let has = |bit: u64| attributes.mask & bit != 0;
    if has(mask::MODE) {
        writeln!(out, "{TAB}AT_MODE  {:o}", attributes.mode);
    }
    if has(mask::OWNER) {
        writeln!(out, "{TAB}AT_UID   {}", attributes.owner.word());
    }
    if has(mask::GROUP) {
        writeln!(out, "{TAB}AT_GID   {}", attributes.group.word());
    }
    if has(mask::SIZE) {
        writeln!(out, "{TAB}AT_SIZE  {}", attributes.size);
    }
    for (bit, name, time) in [
        (mask::ACCESS_TIME, "AT_ATIME", attributes.access_time),
        (
            mask::MODIFICATION_TIME,
            "AT_MTIME",
            attributes.modification_time,
        ),
    ] {
        if has(bit) {
            let seconds = i64::try_from(time[0]).unwrap_or(i64::MAX);
            writeln!(
                out,
                "{TAB}{name} {}.{:09} {}",
                time[0],
                time[1],
                ctime(seconds)
            );
        }
    }
}
