//! The contents of an object and its bonus, by type.

use crate::look::Look;
use crate::out::Out;
use crate::pointer;
use crate::set::SetView;
use crate::zap_view::{self, Contents};
use crate::znode;
use std::sync::Arc;
use tarn_object::Object;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bpobj::PointerListHead;
use tarn_ondisk::dataset::Dataset;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::declare::{ByteOrder, Stored, narrow, widen};
use tarn_ondisk::history::HistoryHead;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_terminal::timestamp::ctime;

/// Most bytes of an array of words that are printed.
const WORDS_BYTES_MAX: u64 = 1 << 20;

/// Largest packed list that is read.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// Prints the bonus of an object.
pub fn bonus(out: &mut Out, look: &Look<'_>, view: &SetView, object: &Arc<Object>) {
    let (bonus_type, bytes) = object.typed_bonus();
    if view.is_encrypted && bonus_type.is_encrypted() {
        writeln!(out, "\t\t(bonus encrypted)");
        return;
    }
    match bonus_type {
        ObjectType::ObjectArray | ObjectType::OtherWords => {
            words_of(out, look, &bytes, widen(bytes.len()))
        }
        ObjectType::Words64Data | ObjectType::Words64Metadata => {
            words_of(out, look, &bytes, widen(bytes.len()));
        }
        ObjectType::PackedNvlistSize | ObjectType::ForeignIdTableSize => {
            packed_list(out, look, object, &bytes)
        }
        ObjectType::BlockPointerListHeader => pointer_list(out, look, object, &bytes),
        ObjectType::DslDirectory => directory(out, look, &bytes),
        ObjectType::DslDataset => dataset(out, look, &bytes),
        ObjectType::HistoryOffsets => history(out, &bytes),
        ObjectType::Znode | ObjectType::SystemAttributes => znode::show(out, look, view, object),
        ObjectType::Unknown(_) => writeln!(out, "\tUNKNOWN OBJECT TYPE"),
        _ => {}
    }
}

/// Prints the contents of an object.
pub fn contents(out: &mut Out, look: &Look<'_>, view: &SetView, object: &Arc<Object>) {
    let object_type = object.object_type();
    if view.is_encrypted && object_type.is_encrypted() {
        writeln!(out, "\t\t(object encrypted)");
        return;
    }
    let zap = match object_type {
        ObjectType::Directory => Some(Contents::Directory),
        ObjectType::SaRegistration => Some(Contents::Attributes),
        ObjectType::SaLayouts => Some(Contents::Layouts),
        ObjectType::DedupZap => Some(Contents::Hidden),
        other if other.is_zap() => Some(Contents::Plain),
        _ => None,
    };
    if let Some(contents) = zap {
        return zap_view::show(out, look, object, contents);
    }
    match object_type {
        ObjectType::ObjectArray
        | ObjectType::OtherWords
        | ObjectType::Words64Data
        | ObjectType::Words64Metadata => words(out, look, object),
        ObjectType::BlockPointerSublist => sublists(out, look, object),
        ObjectType::Unknown(_) => writeln!(out, "\tUNKNOWN OBJECT TYPE"),
        _ => {}
    }
}

/// Prints that a structure cannot be decoded.
fn unclear(out: &mut Out, look: &Look<'_>, error: &dyn std::fmt::Display) {
    look.is_corrupt.set(true);
    writeln!(out, "\t\tmakes no sense: {error}");
}

fn words(out: &mut Out, look: &Look<'_>, object: &Arc<Object>) {
    if look.depth() < 6 {
        return;
    }
    let size = object.info().end_offset();
    let mut bytes = vec![0; narrow(size.min(WORDS_BYTES_MAX))];
    match object.read(0, &mut bytes, look.operation()) {
        Ok(()) => words_of(out, look, &bytes, size),
        Err(error) => unclear(out, look, &error),
    }
}

fn words_of(out: &mut Out, look: &Look<'_>, bytes: &[u8], size: u64) {
    if look.depth() < 6 {
        return;
    }
    let (words, _) = bytes.as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let Some(first) = words.next() else {
        writeln!(out, "\t\t[]");
        return;
    };
    write!(out, "\t\t[{first:x}");
    for (index, word) in words.enumerate() {
        match (index + 1) % 4 {
            0 => write!(out, ",\n\t\t{word:x}"),
            _ => write!(out, ", {word:x}"),
        }
    }
    let more = if widen(bytes.len()) < size {
        ", ... "
    } else {
        ""
    };
    writeln!(out, "{more}]");
}

/// A packed list, whose bonus has its length.
fn packed_list(out: &mut Out, look: &Look<'_>, object: &Arc<Object>, bonus: &[u8]) {
    let size = bonus
        .first_chunk::<8>()
        .map_or(0, |word| u64::from_le_bytes(*word));
    let mut bytes = vec![0; narrow(size.min(LIST_BYTES_MAX))];
    if let Err(error) = object.read(0, &mut bytes, look.operation()) {
        return unclear(out, look, &error);
    }
    match NvList::decode(&bytes) {
        Ok(list) => write!(out, "{}", list.indented(8)),
        Err(error) => unclear(out, look, &error),
    }
}

fn pointer_list(out: &mut Out, look: &Look<'_>, object: &Arc<Object>, bonus: &[u8]) {
    let (head, _) = match PointerListHead::from_bonus(bonus, ByteOrder::Little) {
        Ok(head) => head,
        Err(error) => return unclear(out, look, &error),
    };
    writeln!(out, "\t\tnum_blkptrs = {}", head.count);
    writeln!(out, "\t\tbytes = {}", look.nice(head.allocated.get()));
    // OpenZFS prints all fields that fit into the bonus, whether or not this list has them.
    writeln!(out, "\t\tcomp = {}", look.nice(head.compressed.get()));
    writeln!(out, "\t\tuncomp = {}", look.nice(head.uncompressed.get()));
    writeln!(out, "\t\tsubobjs = {}", head.sublists);
    writeln!(out, "\t\tnum_subobjs = {}", head.sublist_count);
    writeln!(out, "\t\tnum_freed = {}", head.freed_count);
    if look.depth() < 5 {
        return;
    }
    let room = object.info().end_offset() / widen(BlockPointer::SIZE);
    for index in 0..head.count.min(room) {
        let mut bytes = [0; BlockPointer::SIZE];
        let offset = index * widen(BlockPointer::SIZE);
        let read = object.read(offset, &mut bytes, look.operation());
        let pointer = read.map_err(|error| error.to_string()).and_then(|()| {
            BlockPointer::from_bytes(&bytes, ByteOrder::Little).map_err(|error| error.to_string())
        });
        match pointer {
            Ok(pointer) => {
                let is_freed = pointer.is_marked_free();
                writeln!(
                    out,
                    "\t{}",
                    pointer::compact(&pointer, look.depth() > 5, is_freed)
                );
            }
            Err(error) => return unclear(out, look, &error),
        }
    }
}

/// The numbers of lists in a list.
fn sublists(out: &mut Out, look: &Look<'_>, object: &Arc<Object>) {
    let size = object.info().end_offset().min(LIST_BYTES_MAX);
    let mut bytes = vec![0; narrow(size)];
    if let Err(error) = object.read(0, &mut bytes, look.operation()) {
        return unclear(out, look, &error);
    }
    let (words, _) = bytes.as_chunks::<8>();
    let numbers: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let count = numbers
        .iter()
        .rposition(|number| *number != 0)
        .map_or(0, |last| last + 1);
    for number in &numbers[..count] {
        writeln!(out, "\t{number}");
    }
}

fn history(out: &mut Out, bonus: &[u8]) {
    let Ok(head) = HistoryHead::from_short_bytes(bonus, ByteOrder::Little) else {
        return;
    };
    writeln!(out, "\t\tpool_create_len = {}", head.creation_end);
    writeln!(out, "\t\tphys_max_off = {}", head.ring_end);
    writeln!(out, "\t\tbof = {}", head.begin);
    writeln!(out, "\t\teof = {}", head.end);
    writeln!(out, "\t\trecords_lost = {}", head.lost_count);
}

fn time(seconds: u64) -> String {
    ctime(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn directory(out: &mut Out, look: &Look<'_>, bonus: &[u8]) {
    let stored = match DatasetDirectory::from_short_bytes(bonus, ByteOrder::Little) {
        Ok(stored) => stored,
        Err(error) => return unclear(out, look, &error),
    };
    let nice = |number: u64| look.nice(number);
    writeln!(out, "\t\tcreation_time = {}", time(stored.creation_time_s));
    writeln!(out, "\t\thead_dataset_obj = {}", stored.head_dataset);
    writeln!(out, "\t\tparent_dir_obj = {}", stored.parent);
    writeln!(out, "\t\torigin_obj = {}", stored.origin);
    writeln!(out, "\t\tchild_dir_zapobj = {}", stored.children);
    writeln!(out, "\t\tused_bytes = {}", nice(stored.used.get()));
    writeln!(
        out,
        "\t\tcompressed_bytes = {}",
        nice(stored.compressed.get())
    );
    writeln!(
        out,
        "\t\tuncompressed_bytes = {}",
        nice(stored.uncompressed.get())
    );
    writeln!(out, "\t\tquota = {}", nice(stored.quota.get()));
    writeln!(out, "\t\treserved = {}", nice(stored.reservation.get()));
    writeln!(out, "\t\tprops_zapobj = {}", stored.properties);
    writeln!(out, "\t\tdeleg_zapobj = {}", stored.permissions);
    writeln!(out, "\t\tflags = {:x}", stored.flags);
    let used_by = &stored.used_by;
    for (name, size) in [
        ("HEAD", used_by.head),
        ("SNAP", used_by.snapshots),
        ("CHILD", used_by.children),
        ("CHILD_RSRV", used_by.child_reservations),
        ("REFRSRV", used_by.ref_reservation),
    ] {
        writeln!(out, "\t\tused_breakdown[{name}] = {}", nice(size.get()));
    }
    writeln!(out, "\t\tclones = {}", stored.clones);
}

fn dataset(out: &mut Out, look: &Look<'_>, bonus: &[u8]) {
    let stored = match Dataset::from_short_bytes(bonus, ByteOrder::Little) {
        Ok(stored) => stored,
        Err(error) => return unclear(out, look, &error),
    };
    let nice = |number: u64| look.nice(number);
    let id = |out: &mut Out, name: &str, id: ObjectId| writeln!(out, "\t\t{name} = {id}");
    id(out, "dir_obj", stored.directory);
    id(out, "prev_snap_obj", stored.previous_snapshot);
    writeln!(out, "\t\tprev_snap_txg = {}", stored.previous_snapshot_txg);
    id(out, "next_snap_obj", stored.next_snapshot);
    id(out, "snapnames_zapobj", stored.snapshot_names);
    writeln!(out, "\t\tnum_children = {}", stored.child_count);
    id(out, "userrefs_obj", stored.user_holds);
    writeln!(out, "\t\tcreation_time = {}", time(stored.creation_time_s));
    writeln!(out, "\t\tcreation_txg = {}", stored.creation_txg);
    id(out, "deadlist_obj", stored.deadlist);
    writeln!(out, "\t\tused_bytes = {}", nice(stored.referenced.get()));
    writeln!(
        out,
        "\t\tcompressed_bytes = {}",
        nice(stored.compressed.get())
    );
    writeln!(
        out,
        "\t\tuncompressed_bytes = {}",
        nice(stored.uncompressed.get())
    );
    writeln!(out, "\t\tunique = {}", nice(stored.unique.get()));
    writeln!(out, "\t\tfsid_guid = {}", stored.fsid);
    writeln!(out, "\t\tguid = {}", stored.guid);
    writeln!(out, "\t\tflags = {:x}", stored.flags.0);
    id(out, "next_clones_obj", stored.next_clones);
    id(out, "props_obj", stored.snapshot_properties);
    writeln!(out, "\t\tbp = {}", stored.root);
}
