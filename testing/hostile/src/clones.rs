//! Blocks that several pointers lead to because they were cloned: as often as the tables say, no
//! more and no less.
//!
//! The tables are read here anew, entries, counters and sums, and must agree with each other and
//! with the pointers that a walk finds.

use std::collections::BTreeMap;

use tarn_engine::inspect::{InspectError, Inspection};
use tarn_object::zap::{OwnedName, ZapValue};
use tarn_ondisk::block_cloning::{ClonedBlocks, object_name};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::units::{ObjectId, VdevId, VdevOffset};

/// The place of a block's first copy.
type Place = (VdevId, VdevOffset);

/// What was found of a cloned block.
#[derive(Debug, Default)]
struct Clone {
    /// References beyond the first, as the table has it.
    counted: u64,
    /// Pointers found.
    found: u64,
    /// What it counts for each dataset that has it.
    size: u64,
}

/// The cloned blocks of a pool.
#[derive(Debug, Default)]
pub(crate) struct Clones {
    blocks: BTreeMap<Place, Clone>,
    /// The sums of each table: used, saved.
    sums: BTreeMap<VdevId, (u64, u64)>,
}

impl Clones {
    /// Reads all tables. What contradicts itself is a finding.
    pub(crate) fn load(
        inspection: &Inspection,
        findings: &mut Vec<String>,
    ) -> Result<Clones, InspectError> {
        let mut clones = Clones::default();
        for vdev in inspection.pool().vdevs().top_levels() {
            if let Some(table) = inspection.directory().find(&object_name(vdev.id))? {
                clones.load_table(inspection, vdev.id, table, findings)?;
            }
        }
        Ok(clones)
    }

    fn load_table(
        &mut self,
        inspection: &Inspection,
        vdev: VdevId,
        table: ObjectId,
        findings: &mut Vec<String>,
    ) -> Result<(), InspectError> {
        let directory = inspection.directory();
        let head: ClonedBlocks = directory.bonus(table)?;
        self.sums.insert(vdev, (head.used.get(), head.saved.get()));
        let mut counters = vec![0; narrow(head.counter_count) * 2];
        let object = directory.object(table)?;
        let read = object.read(0, &mut counters, inspection.operation());
        read.map_err(|cause| InspectError::Object {
            object: table,
            cause,
        })?;
        let in_table = |cause| InspectError::Zap {
            object: head.entries,
            cause,
        };
        let entries = directory.zap(head.entries)?.entries().map_err(in_table)?;
        let mut in_ranges: BTreeMap<u64, u64> = BTreeMap::new();
        for entry in &entries {
            let (OwnedName::Words(words), ZapValue::Bytes(bytes)) = (&entry.name, &entry.value)
            else {
                findings.push(format!("cloned blocks of vdev {vdev}: {entry:?}"));
                continue;
            };
            let count = bytes
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word));
            if count == 0 {
                findings.push(format!("cloned blocks of vdev {vdev}: an entry of zero"));
            }
            *in_ranges.entry(words[0] / head.range_bytes).or_default() += 1;
            let clone = Clone {
                counted: count,
                ..Clone::default()
            };
            self.blocks
                .insert((vdev, VdevOffset::from(words[0])), clone);
        }
        let (counters, _) = counters.as_chunks::<2>();
        for (range, counter) in (0..).zip(counters.iter().map(|word| u16::from_le_bytes(*word))) {
            let there = in_ranges.remove(&range).unwrap_or(0);
            if u64::from(counter) != there {
                findings.push(format!(
                    "cloned blocks of vdev {vdev}: {counter} counted in range {range}, {there} there"
                ));
            }
        }
        let total = u64::try_from(entries.len()).unwrap_or(u64::MAX);
        if !in_ranges.is_empty() || total != head.total_count || total == 0 {
            findings.push(format!(
                "cloned blocks of vdev {vdev}: {total} there, {} counted, beyond them {in_ranges:?}",
                head.total_count
            ));
        }
        Ok(())
    }

    /// A pointer was found. True if another was before it, and it may be.
    pub(crate) fn is_further(&mut self, pointer: &BlockPointer, size: u64) -> bool {
        let first = pointer.dvas().next();
        let place = first.map(|dva| (dva.vdev(), dva.offset()));
        let Some(clone) = place.and_then(|place| self.blocks.get_mut(&place)) else {
            return false;
        };
        clone.found += 1;
        clone.size = size;
        clone.found > 1 && clone.found <= clone.counted + 1
    }

    /// What does not agree when all was found.
    pub(crate) fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        let mut sums: BTreeMap<VdevId, (u64, u64)> = BTreeMap::new();
        for ((vdev, offset), clone) in &self.blocks {
            if clone.found != clone.counted + 1 {
                findings.push(format!(
                    "the block at {offset} of vdev {vdev} has {} pointers to it, and {} are counted",
                    clone.found,
                    clone.counted + 1
                ));
            }
            let (used, saved) = sums.entry(*vdev).or_default();
            *used += clone.size;
            *saved += clone.size * clone.counted;
        }
        if findings.is_empty() && sums != self.sums {
            findings.push(format!(
                "cloned blocks use and save {sums:?}, and are said to {:?}",
                self.sums
            ));
        }
        findings
    }
}
