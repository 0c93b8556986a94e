//! One object: its dnode, contents and blocks.

use crate::look::Look;
use crate::options::kind;
use crate::out::Out;
use crate::pointer;
use crate::set::SetView;
use crate::viewer;
use std::sync::Arc;
use tarn_block::{BlockKind, BlockScope};
use tarn_object::{META_DNODE, Object, ObjectInfo};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::widen;
use tarn_ondisk::dnode::{Dnode, DnodeFlags, SLOT_BYTES};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, Level, ObjectId};

/// The slots of a block of dnodes, by which OpenZFS computes how full the meta dnode is.
const SLOTS_PER_BLOCK: f64 = 32.0;

/// Prints objects of a set, with a heading before the first.
pub struct ObjectShower<'a, 'b> {
    /// The look.
    pub look: &'a Look<'b>,
    /// The set.
    pub view: &'a SetView,
    /// Whether the next object needs a heading.
    pub wants_heading: bool,
}

impl ObjectShower<'_, '_> {
    /// Prints one object. Returns its number of slots; none when it is not of the wanted kinds, or
    /// cannot be read.
    pub fn show(&mut self, out: &mut Out, id: ObjectId, kinds: Option<u64>) -> Result<u64, String> {
        let look = self.look;
        let set = self
            .view
            .set
            .as_ref()
            .ok_or("there is no such object set")?;
        if std::mem::take(&mut self.wants_heading) {
            let columns = ["iblk", "dblk", "dsize"]
                .map(|name| format!("{name:>5}"))
                .join("  ");
            writeln!(
                out,
                "\n{:>10}  {:>3}  {columns}  {:>6}  {:>5}  {:>6}  type",
                "Object", "lvl", "dnsize", "lsize", "%full"
            );
        }
        let object = set
            .object(id, look.operation())
            .map_err(|error| error.to_string())?;
        let info = object.info();
        if !is_wanted(info.object_type, kinds) {
            return Ok(0);
        }
        self.summary(out, id, &info);
        let dnode = object.stored_dnode();
        if look.depth() >= 4 {
            flags(out, &dnode);
            viewer::bonus(out, look, self.view, &object);
            viewer::contents(out, look, self.view, &object);
            self.wants_heading = true;
        }
        if look.depth() >= 5 {
            if let Some(spill) = &dnode.spill {
                let text = pointer::compact(spill, look.depth() > 5, false);
                writeln!(out, "\nSpill block: {text}");
            }
            Tree {
                look,
                set: self.view.id,
                object: id,
                dnode: &dnode,
            }
            .show(out);
            self.segments(out, &object, &info);
        }
        Ok(widen(info.slots))
    }

    /// The line of an object, and from level 4 on that of its bonus.
    fn summary(&self, out: &mut Out, id: ObjectId, info: &ObjectInfo) {
        let look = self.look;
        let end = info.end_offset();
        let data = info.fill as f64 * info.block_size.get() as f64;
        let per_block = if id == META_DNODE {
            SLOTS_PER_BLOCK
        } else {
            1.0
        };
        let full = 100.0 * data / per_block / end as f64;
        // OpenZFS rounds sizes to sectors here.
        let used = (info.used.get() + 256) / 512 * 512;
        let number = id.get().cast_signed();
        writeln!(
            out,
            "{number:>10}  {:>3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {full:>6.2}  {}{}",
            info.levels,
            look.nice(
                1u64.checked_shl(u32::from(info.indirect_shift))
                    .unwrap_or(0)
            ),
            look.nice(info.block_size.get()),
            look.nice(used),
            look.nice(widen(info.slots * SLOT_BYTES)),
            look.nice(end),
            info.object_type,
            self.functions(info),
        );
        if info.bonus_type != ObjectType::None && look.depth() > 3 {
            let size = look.nice(widen(info.bonus_size));
            writeln!(
                out,
                "{:10}  {:3}  {:5}  {:5}  {:5}  {:5}  {size:>5}  {:>6}  {}",
                "", "", "", "", "", "", "bonus", info.bonus_type
            );
        }
    }

    /// Checksum and compression, where the object has its own, or in full detail.
    fn functions(&self, info: &ObjectInfo) -> String {
        let all = self.look.depth() >= 6;
        let mut text = String::new();
        if info.checksum != ChecksumKind::Inherit || all {
            text.push_str(&format!(" (K={})", info.checksum));
        }
        let is_inherited = info.compression == Compression::Inherit;
        if is_inherited && all {
            let inherited = &self.view.compression;
            text.push_str(&format!(" (Z=inherit={inherited})"));
        } else if !is_inherited {
            text.push_str(&format!(" (Z={})", info.compression));
        }
        text
    }

    /// Prints the parts of the object that are not holes.
    fn segments(&self, out: &mut Out, object: &Arc<Object>, info: &ObjectInfo) {
        let runs = match info.object_type {
            ObjectType::Dnode => dnode_runs(self.look, object),
            _ => block_runs(self.look, object, info),
        };
        match runs {
            Ok(runs) => {
                for (start, end) in runs {
                    let size = self.look.nice(end - start);
                    writeln!(out, "\t\tsegment [{start:016x}, {end:016x}) size {size:>5}");
                }
            }
            Err(error) => {
                self.look.is_corrupt.set(true);
                writeln!(out, "\t\tsegments cannot be told: {error}");
            }
        }
    }
}

/// Whether an object is of the kinds that a range names.
fn is_wanted(object_type: ObjectType, kinds: Option<u64>) -> bool {
    let Some(kinds) = kinds.filter(|kinds| *kinds != 0 && *kinds != kind::ALL) else {
        return true;
    };
    let bit = match object_type {
        ObjectType::Directory => kind::DIRECTORY,
        ObjectType::PlainFile => kind::FILE,
        ObjectType::SpaceMap => kind::SPACE_MAP,
        other if other.to_string() == "zap" => kind::ZAP,
        // All types but some of the named ones.
        _ => return kinds | kind::NAMED == kind::ALL,
    };
    kinds & bit != 0
}

fn flags(out: &mut Out, dnode: &Dnode) {
    write!(out, "\tdnode flags: ");
    for (flag, name) in [
        (DnodeFlags::USED_BYTES, "USED_BYTES "),
        (DnodeFlags::USED_ACCOUNTED, "USERUSED_ACCOUNTED "),
        (DnodeFlags::OBJECT_ACCOUNTED, "USEROBJUSED_ACCOUNTED "),
        (DnodeFlags::SPILL, "SPILL_BLKPTR"),
    ] {
        if dnode.flags.contains(flag) {
            write!(out, "{name}");
        }
    }
    writeln!(out, "\n\tdnode maxblkid: {}", dnode.max_block);
}

/// The tree of an object's pointers.
struct Tree<'a, 'b> {
    look: &'a Look<'b>,
    set: ObjectId,
    object: ObjectId,
    dnode: &'a Dnode,
}

impl Tree<'_, '_> {
    fn show(&self, out: &mut Out) {
        writeln!(out, "Indirect blocks:");
        let top = self.dnode.levels.saturating_sub(1);
        for (index, pointer) in (0..).zip(&self.dnode.pointers) {
            self.pointer(out, pointer, top, index);
        }
        writeln!(out);
    }

    /// A pointer and the pointers below it. Recurses once per level, so damaged trees end.
    fn pointer(&self, out: &mut Out, pointer: &BlockPointer, level: u8, block: u64) {
        if pointer.birth().is_zero() {
            return;
        }
        let shift = u32::from(level) * self.dnode.pointers_per_block_shift();
        let first = block.checked_shl(shift).unwrap_or(u64::MAX);
        let offset = first.wrapping_mul(self.dnode.data_block_size.get());
        write!(out, "{offset:16x} ");
        for place in (-1..i16::from(self.dnode.levels)).rev() {
            match place == i16::from(level) {
                true => write!(out, "L{level:x}"),
                false => write!(out, " "),
            }
        }
        write!(
            out,
            "{}",
            pointer::compact(pointer, self.look.depth() > 5, false)
        );
        self.check(out, pointer, level);
        writeln!(out);
        let goes_below = level > 0 && pointer::is_stored(pointer) && pointer.level().get() == level;
        if !goes_below {
            return;
        }
        let scope = BlockScope::of_object(
            self.set,
            self.object,
            Level::new(level),
            BlockId::from(block),
            BlockKind::Metadata,
        );
        match self.look.pointers(pointer, scope) {
            Ok(children) => {
                let first = block << self.dnode.pointers_per_block_shift();
                let mut fill = 0u64;
                for (index, child) in (0..).zip(&children) {
                    self.pointer(out, child, level - 1, first.wrapping_add(index));
                    fill = fill.wrapping_add(child.fill());
                }
                if fill != pointer.fill() {
                    self.look.is_corrupt.set(true);
                    writeln!(
                        out,
                        "{:16x}: Block pointer fill ({}) does not match calculated value ({fill})",
                        0,
                        pointer.fill()
                    );
                }
            }
            Err(error) => {
                self.look.is_corrupt.set(true);
                writeln!(out, "{offset:16x} cannot be read: {error}");
            }
        }
    }

    /// Prints where a pointer does not fit its place.
    fn check(&self, out: &mut Out, pointer: &BlockPointer, level: u8) {
        if pointer.is_embedded() {
            return;
        }
        let (found, wanted) = (pointer.object_type(), self.dnode.object_type);
        if found != wanted {
            self.look.is_corrupt.set(true);
            write!(
                out,
                " (ERROR: Block pointer type ({}) does not match dnode type ({}))",
                found.code(),
                wanted.code()
            );
        }
        if pointer.level().get() != level {
            self.look.is_corrupt.set(true);
            write!(
                out,
                " (ERROR: Block pointer level ({}) does not match bookmark level ({level}))",
                pointer.level()
            );
        }
    }
}

/// The ranges of data, block by block.
fn block_runs(
    look: &Look<'_>,
    object: &Arc<Object>,
    info: &ObjectInfo,
) -> Result<Vec<(u64, u64)>, String> {
    let words = |error: tarn_object::ObjectError| error.to_string();
    let size = info.block_size.get();
    let mut runs = Vec::new();
    let mut at = BlockId::ZERO;
    while let Some(first) = object.next_data(at, look.operation()).map_err(words)? {
        let end = object.next_hole(first, look.operation()).map_err(words)?;
        runs.push((
            first.get().saturating_mul(size),
            end.get().saturating_mul(size),
        ));
        if end <= first {
            break;
        }
        at = end;
    }
    Ok(runs)
}

/// The ranges of dnodes, slot by slot.
fn dnode_runs(look: &Look<'_>, object: &Arc<Object>) -> Result<Vec<(u64, u64)>, String> {
    let words = |error: tarn_object::ObjectError| error.to_string();
    let size = object.block_size().get();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut at = BlockId::ZERO;
    while let Some(block) = object.next_data(at, look.operation()).map_err(words)? {
        let contents = object.read_block(block, look.operation()).map_err(words)?;
        let first = block.get().saturating_mul(size);
        let mut slot = 0;
        while (slot + 1) * SLOT_BYTES <= contents.len() {
            let head = &contents[slot * SLOT_BYTES..];
            if head[0] == 0 {
                slot += 1;
                continue;
            }
            let start = first + widen(slot * SLOT_BYTES);
            slot += usize::from(head[12]) + 1;
            let end = first + widen((slot * SLOT_BYTES).min(contents.len()));
            match runs.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => runs.push((start, end)),
            }
        }
        at = block.next();
    }
    Ok(runs)
}
