//! The leak check: counts every block of a pool, and claims its DVAs.
//!
//! # Mechanism
//! The allocated ranges in space maps and their logs are loaded first ([`Allocated`]). Each block
//! that a pointer leads to claims its DVAs from them. A DVA that is not there was claimed by
//! another block, or is free: the pointer is wrong. Ranges that are left in the end are allocated
//! without a pointer: leaks. Ranges of a checkpoint are taken out beforehand.
//!
//! # Invariants
//! - A block's DVAs are claimed together or not at all.
//! - Every pointer is counted, whether or not its block can be read.

use crate::look::Look;
use crate::metaslab::{Allocated, for_each_entry, top_zap};
use crate::out::Out;
use crate::references::{Meaning, References};
use std::collections::BTreeMap;
use tarn_block::{BlockScope, Form, ReadError, ReadRequest};
use tarn_engine::inspect::visit::{BlockVisitor, FoundBlock, Reference};
use tarn_engine::inspect::{InspectError, errno_of};
use tarn_object::ObjectError;
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::VDEV_CHECKPOINT_SPACE_MAP;
use tarn_ondisk::space_map::{Region, SpaceMapDecoder};
use tarn_ondisk::units::{ObjectId, VdevOffset};
use tarn_space::Range;

/// Number of levels that are counted apart; the next index has the sum.
pub const LEVELS: usize = 30;

/// Sizes of the histogram of block sizes: powers of two up to 16 MiB.
pub const SIZES: usize = 25;

/// Physical sizes in sectors up to 128 KiB; the last index has all larger ones.
pub const SECTORS: usize = 258;

/// Number of payload sizes.
pub const PAYLOADS: usize = 113;

/// Number of kinds of embedded pointers.
pub const EMBEDDED_KINDS: usize = 3;

/// Number of blocks that are read at a time to verify them.
const READ_BATCH: usize = 64;

/// `ENOENT`: the number under which OpenZFS counts DVAs that cannot be claimed.
const NOT_ALLOCATED: i32 = 2;

/// The heading under which a block is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockType {
    /// A DMU type.
    Known(ObjectType),
    /// Blocks that wait to be freed.
    Deferred,
    /// Extra copies of deduplicated blocks.
    Ditto,
    /// All newer types.
    Other,
    /// All blocks.
    Total,
}

impl BlockType {
    /// The heading of a pointer.
    fn of(found: &FoundBlock<'_>) -> BlockType {
        if found.reference == Reference::Deferred {
            return BlockType::Deferred;
        }
        match found.pointer.object_type() {
            newer if newer.is_new_style() => BlockType::Other,
            known => BlockType::Known(known),
        }
    }
}

/// Sums over blocks.
#[derive(Debug, Clone)]
pub struct Sums {
    /// Allocated bytes.
    pub allocated: u64,
    /// Logical bytes.
    pub logical: u64,
    /// Physical bytes.
    pub physical: u64,
    /// Blocks.
    pub count: u64,
    /// DVAs of gang blocks.
    pub gangs: u64,
    /// Blocks with copies on one vdev.
    pub same_vdev: u64,
    /// Blocks with copies in one metaslab.
    pub same_metaslab: u64,
    /// Blocks by physical sectors.
    pub by_sectors: Vec<u64>,
}

impl Default for Sums {
    fn default() -> Self {
        Sums {
            allocated: 0,
            logical: 0,
            physical: 0,
            count: 0,
            gangs: 0,
            same_vdev: 0,
            same_metaslab: 0,
            by_sectors: vec![0; SECTORS],
        }
    }
}

/// One column of the histogram of block sizes.
#[derive(Debug, Clone, Default)]
pub struct SizeColumn {
    /// The number of blocks of each power of two in size, and their bytes.
    pub bins: [(u64, u64); SIZES],
}

impl SizeColumn {
    fn add(&mut self, size: u64) {
        let bin = size
            .checked_ilog2()
            .and_then(|bin| usize::try_from(bin).ok());
        if let Some(bin) = bin.and_then(|bin| self.bins.get_mut(bin)) {
            bin.0 += 1;
            bin.1 = bin.1.saturating_add(size);
        }
    }
}

/// The counts.
pub struct Census<'a, 'b> {
    look: &'a Look<'b>,
    out: &'a mut Out,
    allocated: Option<Allocated>,
    references: References,
    /// By level and type.
    pub sums: BTreeMap<(usize, BlockType), Sums>,
    /// By physical, logical and allocated size.
    pub columns: [SizeColumn; 3],
    /// Embedded blocks by kind and payload.
    pub embedded: [[u64; PAYLOADS]; EMBEDDED_KINDS],
    /// Deduplicated bytes, and the number of deduplicated blocks.
    pub deduplicated: (u64, u64),
    /// Cloned bytes and blocks.
    pub cloned: (u64, u64),
    /// Errors by number.
    pub errors: BTreeMap<i32, u64>,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: u64,
    unread: Vec<(TraversalMark, BlockPointer)>,
}

impl<'a, 'b> Census<'a, 'b> {
    /// Empty counts. For the leak check, loads all allocated ranges.
    pub fn begin(look: &'a Look<'b>, out: &'a mut Out) -> Result<Census<'a, 'b>, InspectError> {
        let allocated = match look.options.has('L') {
            true => None,
            false => Some(Allocated::load(look)?),
        };
        let mut census = Census {
            references: References::load(look)?,
            look,
            out,
            allocated,
            sums: BTreeMap::new(),
            columns: Default::default(),
            embedded: [[0; PAYLOADS]; EMBEDDED_KINDS],
            deduplicated: (0, 0),
            cloned: (0, 0),
            errors: BTreeMap::new(),
            checkpoint_bytes: 0,
            unread: Vec::new(),
        };
        census.exclude_checkpoint()?;
        Ok(census)
    }

    /// Counts all blocks.
    pub fn run(&mut self) -> Result<(), InspectError> {
        let inspection = self.look.inspection;
        inspection.visit_deferred(self)?;
        inspection.visit_used(self)?;
        self.verify_unread();
        Ok(())
    }

    /// Takes out the ranges of a checkpoint: they are allocated, and their blocks are freed.
    fn exclude_checkpoint(&mut self) -> Result<(), InspectError> {
        let look = self.look;
        let Some(allocated) = &mut self.allocated else {
            return Ok(());
        };
        for vdev in look.pool().vdevs().top_levels() {
            let Some(zap) = top_zap(look, vdev.id) else {
                continue;
            };
            let map = look.directory().value_in(zap, VDEV_CHECKPOINT_SPACE_MAP)?;
            let Some(map) = map.and_then(|value| value.as_word()) else {
                continue;
            };
            let region = Region {
                start: VdevOffset::ZERO,
                size: vdev.asize,
                shift: vdev.ashift,
            };
            let mut bytes = 0u64;
            let mut problems = Vec::new();
            for_each_entry(
                look,
                ObjectId::new(map),
                SpaceMapDecoder::new(region),
                &mut |entry| {
                    let range = Range::new(entry.start, entry.size);
                    bytes = bytes.saturating_add(entry.size.get());
                    if !allocated.claim(vdev.id, range) {
                        problems.push(format!(
                            "checkpoint of vdev {}: {range} is not allocated",
                            vdev.id
                        ));
                    }
                },
            )?;
            allocated.contradictions.extend(problems);
            self.checkpoint_bytes = self.checkpoint_bytes.saturating_add(bytes);
        }
        Ok(())
    }

    /// The sums of all blocks.
    pub fn total(&self) -> Sums {
        let key = (LEVELS, BlockType::Total);
        self.sums.get(&key).cloned().unwrap_or_default()
    }

    /// What log space maps add to the sums of space maps.
    pub fn unflushed(&self) -> i64 {
        self.allocated
            .as_ref()
            .map_or(0, |allocated| allocated.unflushed)
    }

    /// Whether something is wrong, or cannot be read.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Prints the unclaimed ranges, and the missing references. Returns whether there are any.
    pub fn report_leaks(&mut self) -> bool {
        let mut has_leaks = false;
        let Some(allocated) = &self.allocated else {
            return false;
        };
        if self
            .look
            .pool()
            .features()
            .is_active(Feature::BlockCloning.guid())
        {
            for (vdev, offset, left) in self.references.unseen_clones() {
                has_leaks = true;
                writeln!(
                    self.out,
                    "BRT leak: vdev {vdev}, offset 0x{:x}, refcount {left}",
                    offset.get()
                );
            }
        }
        for (dva, left) in self.references.unseen_twins() {
            has_leaks = true;
            writeln!(self.out, "DDT leak: refcount {left} DVA[0]={dva}");
        }
        for problem in &allocated.contradictions {
            has_leaks = true;
            writeln!(self.out, "{problem}");
        }
        for (vdev, range) in allocated.unclaimed() {
            writeln!(
                self.out,
                "leaked space: vdev {vdev}, offset 0x{:x}, size {}",
                range.start.get(),
                range.size.get()
            );
        }
        has_leaks
    }

    /// The output.
    pub fn out(&mut self) -> &mut Out {
        self.out
    }

    fn error(&mut self, number: i32) {
        *self.errors.entry(number).or_default() += 1;
    }

    /// Adds a block to its level and type, and to all sums above.
    fn add(&mut self, pointer: &BlockPointer, block_type: BlockType, dvas: &[Dva], allocated: u64) {
        let level = usize::from(pointer.level().get()).min(LEVELS - 1);
        let (same_vdev, same_metaslab) = self.shares(dvas);
        let physical = pointer.physical_size().get();
        let gangs = dvas.iter().filter(|dva| dva.is_gang()).count();
        let sectors = narrow(physical / 512).min(SECTORS - 1);
        for key in [
            (level, BlockType::Total),
            (level, block_type),
            (LEVELS, BlockType::Total),
            (LEVELS, block_type),
        ] {
            let sums = self.sums.entry(key).or_default();
            sums.allocated = sums.allocated.saturating_add(allocated);
            sums.logical = sums.logical.saturating_add(pointer.logical_size().get());
            sums.physical = sums.physical.saturating_add(physical);
            sums.count += 1;
            sums.gangs += u64::try_from(gangs).unwrap_or(0);
            sums.same_vdev += u64::from(same_vdev);
            sums.same_metaslab += u64::from(same_metaslab);
            sums.by_sectors[sectors] += 1;
        }
    }

    /// Whether copies are on one vdev, and whether they are in one metaslab of it.
    fn shares(&self, dvas: &[Dva]) -> (bool, bool) {
        let tops = self.look.pool().vdevs();
        let mut same_vdev = false;
        let mut same_metaslab = false;
        for (index, dva) in dvas.iter().enumerate() {
            for other in &dvas[index + 1..] {
                if dva.vdev() == other.vdev() {
                    same_vdev = true;
                    if let Some(allocated) = &self.allocated {
                        let number =
                            |dva: &Dva| allocated.metaslab_number(dva.vdev(), dva.offset());
                        same_metaslab |= number(dva) == number(other);
                    } else {
                        let tops = tops.top_levels();
                        let top = tops.iter().find(|top| top.id == dva.vdev());
                        let shift = top.map_or(0, |top| top.metaslab_shift);
                        let number = |dva: &Dva| dva.offset().get().checked_shr(shift);
                        same_metaslab |= number(dva) == number(other);
                    }
                }
            }
        }
        (same_vdev, same_metaslab)
    }

    /// Claims a block's DVAs.
    fn claim(&mut self, pointer: &BlockPointer) {
        if self.allocated.is_none() {
            return;
        }
        let places = self.look.pool().io().places(pointer, self.look.operation());
        let Some(allocated) = &mut self.allocated else {
            return;
        };
        let is_claimed = match places {
            Ok(places) => {
                let all = places
                    .iter()
                    .all(|place| allocated.contains(place.vdev, place.range()));
                // Two copies cannot be at one DVA.
                all && places
                    .iter()
                    .all(|place| allocated.claim(place.vdev, place.range()))
            }
            Err(error) => {
                let number = errno_of(&error);
                writeln!(self.out, "block claim error {number}: {pointer}");
                return self.error(number);
            }
        };
        if !is_claimed {
            writeln!(self.out, "block claim error {NOT_ALLOCATED}: {pointer}");
            self.error(NOT_ALLOCATED);
        }
    }

    /// Reads the blocks that are still to be verified.
    fn verify_unread(&mut self) {
        let unread = std::mem::take(&mut self.unread);
        // Encrypted blocks are verified as they are stored.
        let wanted = unread.iter().map(|(mark, pointer)| ReadRequest {
            pointer: *pointer,
            scope: BlockScope::of_visit(*mark, pointer),
            form: match pointer.is_encrypted() {
                true => Form::Stored,
                false => Form::Plain,
            },
        });
        let wanted: Vec<ReadRequest> = wanted.collect();
        let io = self.look.pool().io();
        let outcomes = io.read_many(&wanted, self.look.operation());
        for ((mark, pointer), outcome) in unread.iter().zip(outcomes) {
            if let Err(error) = outcome {
                self.unreadable_block(mark, pointer, &error);
            }
        }
    }

    fn unreadable_block(
        &mut self,
        mark: &TraversalMark,
        pointer: &BlockPointer,
        error: &ReadError,
    ) {
        let number = errno_of(error);
        let text = match self.look.options.level('b') >= 2 {
            true => pointer.to_string(),
            false => String::new(),
        };
        writeln!(
            self.out,
            "zdb_blkptr_cb: Got error {number} reading <{}, {}, {}, {:x}> {text} -- skipping",
            mark.objset,
            mark.object.get(),
            mark.level,
            mark.block
        );
        self.error(number);
    }
}

impl BlockVisitor for Census<'_, '_> {
    fn block(&mut self, found: &FoundBlock<'_>) {
        let pointer = found.pointer;
        if self.look.options.level('b') >= 5 {
            match found.reference {
                Reference::Deferred => writeln!(self.out, "[deferred free] {pointer}"),
                _ => writeln!(
                    self.out,
                    "objset {} object {} level {} offset 0x{:x} {pointer}",
                    found.mark.objset,
                    found.mark.object.get(),
                    found.mark.level,
                    found.offset()
                ),
            }
        }
        let meaning = self.references.meaning(pointer);
        let dvas: Vec<Dva> = match self.references.dvas(pointer) {
            Some(dvas) => dvas.to_vec(),
            None => pointer.dvas().collect(),
        };
        let allocated: u64 = dvas.iter().map(|dva| dva.allocated_size().get()).sum();
        self.add(pointer, BlockType::of(found), &dvas, allocated);
        if pointer.is_embedded() {
            let [kind, _, size] = crate::pointer::embedded_fields(pointer);
            let counts = self.embedded.get_mut(narrow(kind));
            if let Some(count) = counts.and_then(|counts| counts.get_mut(narrow(size))) {
                *count += 1;
            }
            return;
        }
        let sizes = [
            pointer.physical_size().get(),
            pointer.logical_size().get(),
            allocated,
        ];
        for (column, size) in self.columns.iter_mut().zip(sizes) {
            column.add(size);
        }
        match meaning {
            Meaning::Claim => self.claim(pointer),
            Meaning::Twin { .. } => {
                self.deduplicated.0 = self.deduplicated.0.saturating_add(allocated);
                self.deduplicated.1 += 1;
            }
            Meaning::Clone => {
                self.cloned.0 = self.cloned.0.saturating_add(allocated);
                self.cloned.1 += 1;
            }
        }
        let wanted = self.look.options.level('c');
        let is_verified = wanted > 1 || wanted == 1 && pointer.is_metadata();
        // The last block of an intent log was never written.
        if is_verified && found.reference == Reference::ObjectSet {
            self.unread.push((found.mark, *pointer));
            if self.unread.len() >= READ_BATCH {
                self.verify_unread();
            }
        }
    }

    fn unreadable(&mut self, mark: &TraversalMark, why: &ObjectError) {
        // With -c the block itself is reported when it is verified.
        let is_reported = self.look.options.has('c') && matches!(why, ObjectError::Read { .. });
        if !is_reported {
            writeln!(
                self.out,
                "cannot go on below <{}, {}, {}, {:x}>: {why}",
                mark.objset,
                mark.object.get(),
                mark.level,
                mark.block
            );
            self.error(match why {
                ObjectError::Read { why, .. } => errno_of(why),
                _ => tarn_engine::inspect::BAD_CHECKSUM,
            });
        }
    }
}
