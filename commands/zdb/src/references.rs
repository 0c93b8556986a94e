//! Reference counts of blocks with several pointers: dedup tables and block reference tables.
//!
//! # Mechanism
//! The leak check claims each DVA once. A block with several references is claimed by its first
//! pointer; each further pointer uses up a reference in a table. When none is left, the next
//! pointer claims again, and fails: a reference is not counted.

use crate::look::Look;
use std::collections::BTreeMap;
use tarn_engine::inspect::InspectError;
use tarn_object::zap::{OwnedName, ZapValue};
use tarn_ondisk::block_cloning::{ClonedBlocks, object_name};
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::declare::Stored;
use tarn_ondisk::dedup::{
    DedupClass, FlatDedupValue, LegacyDedupValue, directory_name, split_value, table_name,
};
use tarn_ondisk::units::{ObjectId, Txg, VdevId, VdevOffset};
use tarn_transform::CompressionAlgorithm;
use tarn_transform::compress::decompress;

/// The DVAs of a deduplicated block.
#[derive(Debug, Clone)]
struct Twin {
    dvas: Vec<Dva>,
    references_left: u64,
    was_seen: bool,
}

/// The key of deduplicated blocks: the first DVA, and its birth.
type TwinKey = (Dva, Txg);

/// The effect of a pointer on the leak check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Its DVAs are to be claimed.
    Claim,
    /// A deduplicated block that is claimed already.
    Twin {
        /// Whether it is the first pointer of its block.
        is_first: bool,
    },
    /// A cloned block that is claimed already.
    Clone,
}

/// The references in the tables.
#[derive(Default)]
pub struct References {
    twins: BTreeMap<TwinKey, Twin>,
    has_twins: BTreeMap<TwinKey, bool>,
    clones: BTreeMap<(VdevId, VdevOffset), u64>,
    /// Cloned blocks that were claimed, with their remaining references.
    seen_clones: BTreeMap<(VdevId, VdevOffset), u64>,
}

impl References {
    /// Reads the tables.
    pub fn load(look: &Look<'_>) -> Result<References, InspectError> {
        let mut references = References::default();
        for code in 0..=ChecksumKind::Blake3.code() {
            references.load_twins(look, ChecksumKind::from_code(code))?;
        }
        for vdev in look.pool().vdevs().top_levels() {
            references.load_clones(look, vdev.id)?;
        }
        Ok(references)
    }

    fn load_twins(&mut self, look: &Look<'_>, checksum: ChecksumKind) -> Result<(), InspectError> {
        let directory = look.directory();
        let own = directory.find(&directory_name(checksum))?;
        let own = own.unwrap_or(tarn_ondisk::pool_directory::POOL_DIRECTORY);
        for class in DedupClass::ALL {
            let table = directory.value_in(own, &table_name(checksum, class))?;
            let Some(table) = table.and_then(|value| value.as_word()) else {
                continue;
            };
            let zap = directory.zap(ObjectId::new(table))?;
            let in_table = |cause| InspectError::Zap {
                object: ObjectId::new(table),
                cause,
            };
            for entry in zap.entries().map_err(in_table)? {
                if let (OwnedName::Words(_), ZapValue::Bytes(bytes)) = (&entry.name, &entry.value) {
                    self.add_twins(look, bytes);
                }
            }
        }
        Ok(())
    }

    fn add_twins(&mut self, look: &Look<'_>, stored: &[u8]) {
        let sets = twin_sets(stored).unwrap_or_else(|| {
            look.is_corrupt.set(true);
            Vec::new()
        });
        for (dvas, references_left, birth) in sets {
            let dvas: Vec<Dva> = dvas.into_iter().filter(|dva| dva.is_allocated()).collect();
            if let Some(first) = dvas.first().filter(|_| !birth.is_zero()) {
                let twin = Twin {
                    references_left,
                    was_seen: false,
                    dvas: dvas.clone(),
                };
                self.twins.insert((*first, birth), twin);
            }
        }
    }

    fn load_clones(&mut self, look: &Look<'_>, vdev: VdevId) -> Result<(), InspectError> {
        let directory = look.directory();
        let Some(table) = directory.find(&object_name(vdev))? else {
            return Ok(());
        };
        let facts: ClonedBlocks = directory.bonus(table)?;
        let in_table = |cause| InspectError::Zap {
            object: facts.entries,
            cause,
        };
        for entry in directory.zap(facts.entries)?.entries().map_err(in_table)? {
            let OwnedName::Words(words) = &entry.name else {
                continue;
            };
            let count = match &entry.value {
                ZapValue::Words(words) => words.first().copied(),
                ZapValue::Bytes(bytes) => bytes
                    .first_chunk::<8>()
                    .map(|word| u64::from_le_bytes(*word)),
                _ => None,
            };
            if let (Some(offset), Some(count)) = (words.first(), count) {
                self.clones.insert((vdev, VdevOffset::from(*offset)), count);
            }
        }
        Ok(())
    }

    /// The effect of the next pointer.
    pub fn meaning(&mut self, pointer: &BlockPointer) -> Meaning {
        let Some(first) = pointer.dvas().next() else {
            return Meaning::Claim;
        };
        if pointer.is_dedup() {
            let key = (first, pointer.physical_birth());
            if let Some(twin) = self.twins.get_mut(&key)
                && twin.references_left > 0
            {
                twin.references_left -= 1;
                if std::mem::replace(&mut twin.was_seen, true) {
                    let is_first = !std::mem::replace(self.has_twins.entry(key).or_default(), true);
                    return Meaning::Twin { is_first };
                }
                return Meaning::Claim;
            }
        }
        let place = (first.vdev(), first.offset());
        if let Some(left) = self.seen_clones.get_mut(&place) {
            if *left > 0 {
                *left -= 1;
                return Meaning::Clone;
            }
            return Meaning::Claim;
        }
        if let Some(count) = self.clones.get(&place).filter(|count| **count > 0) {
            self.seen_clones.insert(place, *count);
        }
        Meaning::Claim
    }

    /// All DVAs of a block. A deduplicated one may have more copies than its pointer.
    pub fn dvas(&self, pointer: &BlockPointer) -> Option<&[Dva]> {
        let first = pointer.dvas().next().filter(|_| pointer.is_dedup())?;
        let twin = self.twins.get(&(first, pointer.physical_birth()))?;
        Some(&twin.dvas)
    }

    /// Deduplicated blocks with fewer pointers than their table has references.
    pub fn unseen_twins(&self) -> impl Iterator<Item = (Dva, u64)> + '_ {
        let seen = self.twins.iter().filter(|(_, twin)| twin.was_seen);
        seen.filter(|(_, twin)| twin.references_left > 0)
            .map(|((dva, _), twin)| (*dva, twin.references_left))
    }

    /// Cloned blocks with fewer pointers than their table has references.
    pub fn unseen_clones(&self) -> impl Iterator<Item = (VdevId, VdevOffset, u64)> + '_ {
        let left = self.seen_clones.iter().filter(|(_, left)| **left > 0);
        left.map(|((vdev, offset), left)| (*vdev, *offset, *left))
    }
}

/// The sets of DVAs in a stored value: one for each number of copies, or one only.
fn twin_sets(stored: &[u8]) -> Option<Vec<([Dva; 3], u64, Txg)>> {
    let (compression, order, bytes) = split_value(stored).ok()?;
    let algorithm = CompressionAlgorithm::from_code(compression.code()).ok()?;
    let expand = |size: usize| -> Option<Vec<u8>> {
        if algorithm == CompressionAlgorithm::Off {
            return (bytes.len() == size).then(|| bytes.to_vec());
        }
        let mut block = vec![0; size];
        decompress(algorithm, bytes, &mut block).ok()?;
        Some(block)
    };
    // The legacy form is tried first: a flat value does not expand to its size.
    if let Some(block) = expand(LegacyDedupValue::SIZE) {
        let value = LegacyDedupValue::from_bytes(&block, order).ok()?;
        let sets = value.places.iter();
        return Some(
            sets.map(|set| (set.dvas, set.reference_count, set.physical_birth))
                .collect(),
        );
    }
    let block = expand(FlatDedupValue::SIZE)?;
    let value = FlatDedupValue::from_bytes(&block, order).ok()?;
    Some(vec![(
        value.dvas,
        value.reference_count,
        value.physical_birth,
    )])
}
