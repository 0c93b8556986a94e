//! Walking everything a pool has: every block is read and verified, and takes its places out of
//! what space maps call allocated; then what directories say they use is added up.
//!
//! # Mechanism
//! The devices are looked at as they are after the power was cut, before anything repairs or
//! replays anything: there, too, each block that a pointer leads to must be allocated, exactly once
//! but for [clones](crate::clones), and nothing else may be. This reads space maps anew, for a
//! check that shares code with what it checks agrees with its mistakes.
//!
//! A pool with a checkpoint has two states. What was freed since is still allocated, and in the
//! checkpoint's space maps alone. The state of the checkpoint is walked by itself, with the space
//! maps that it has: all its blocks must be there as they were.

use std::collections::BTreeMap;

use crate::clones::Clones;
use crate::house::DISKS;
use crate::sums::wrong_sums;
use tarn_block::{BlockScope, ReadRequest};
use tarn_engine::inspect::visit::{BlockVisitor, FoundBlock, Reference};
use tarn_engine::inspect::{InspectError, Inspection, Source};
use tarn_host::Host;
use tarn_object::ObjectError;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::declare::{ByteOrder, narrow};
use tarn_ondisk::pool_directory::VDEV_CHECKPOINT_SPACE_MAP;
use tarn_ondisk::space_map::{Action, Region, SpaceMapDecoder, SpaceMapHead};
use tarn_ondisk::units::{AllocatedSize, ObjectId, VdevId, VdevOffset};
use tarn_pool::checkpoint::CheckpointState;
use tarn_pool::directory::TOP_ZAP;
use tarn_space::{Range, RangeTree};

/// So many blocks are verified at a time.
const READ_BATCH: usize = 64;
/// So many findings are told.
const FINDINGS_MAX: usize = 12;

/// What was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walked {
    /// The group the pool was found at.
    pub txg: u64,
    /// How many blocks there are.
    pub blocks: u64,
    /// How many of them are of intent logs.
    pub log_blocks: u64,
    /// How many of them have been cloned, and were found before.
    pub clones: u64,
    /// What they take.
    pub bytes: u64,
    /// How many blocks the state of the checkpoint has, if there is one.
    pub checkpoint_blocks: u64,
}

/// Walks the pool of this name on the simulated disks, reading only.
///
/// # Errors
/// What cannot be opened, cannot be read, is not allocated, is used twice, leaks, or does not add
/// up.
pub fn walk(host: &Host, pool: &str) -> Result<Walked, String> {
    let source = Source::Places(vec![DISKS.into()]);
    let opening = |error: InspectError| format!("opening it to look: {error}");
    let inspection = Inspection::open(host, &source, pool).map_err(opening)?;
    let mut walked = walk_state(&inspection)?;
    let status = inspection.pool().checkpoint_status();
    if status.is_some_and(|status| status.state == CheckpointState::Exists) {
        let of_checkpoint = |why: String| format!("the state of its checkpoint: {why}");
        let opened = Inspection::open_checkpoint(host, &source, pool).map_err(opening);
        let kept = opened.and_then(|kept| walk_state(&kept));
        walked.checkpoint_blocks = kept.map_err(of_checkpoint)?.blocks;
    }
    Ok(walked)
}

/// Walks one state of a pool.
fn walk_state(inspection: &Inspection) -> Result<Walked, String> {
    let mut walk = Walk {
        inspection,
        allocated: BTreeMap::new(),
        findings: Vec::new(),
        unread: Vec::new(),
        clones: Clones::default(),
        walked: Walked {
            txg: inspection.pool().uberblock().txg.get(),
            ..Walked::default()
        },
    };
    let failed = |error: InspectError| format!("looking into it: {error}");
    walk.load().map_err(failed)?;
    walk.exclude_checkpoint().map_err(failed)?;
    walk.clones = Clones::load(inspection, &mut walk.findings).map_err(failed)?;
    inspection.visit_deferred(&mut walk).map_err(failed)?;
    inspection.visit_used(&mut walk).map_err(failed)?;
    inspection.visit_logged_clones(&mut walk).map_err(failed)?;
    walk.verify();
    walk.leaks();
    walk.findings.extend(walk.clones.findings());
    walk.findings
        .extend(wrong_sums(inspection).map_err(failed)?);
    match walk.findings.is_empty() {
        true => Ok(walk.walked),
        false => {
            let count = walk.findings.len();
            walk.findings.truncate(FINDINGS_MAX);
            let txg = walk.walked.txg;
            Err(format!(
                "{count} findings in its blocks, as of group {txg}:\n  {}",
                walk.findings.join("\n  ")
            ))
        }
    }
}

struct Walk<'a> {
    inspection: &'a Inspection,
    /// What is allocated and was not reached yet.
    allocated: BTreeMap<VdevId, RangeTree>,
    findings: Vec<String>,
    unread: Vec<(TraversalMark, BlockPointer)>,
    clones: Clones,
    walked: Walked,
}

impl Walk<'_> {
    /// Reads all space maps.
    fn load(&mut self) -> Result<(), InspectError> {
        for vdev in self.inspection.pool().vdevs().top_levels() {
            let mut tree = RangeTree::new();
            let count = vdev.asize.get().checked_shr(vdev.metaslab_shift);
            if vdev.metaslab_array.is_zero() || vdev.metaslab_shift == 0 {
                continue;
            }
            let array = self.bytes(vdev.metaslab_array, count.unwrap_or(0) * 8)?;
            let (words, _) = array.as_chunks::<8>();
            for (index, map) in (0..).zip(words.iter().map(|word| u64::from_le_bytes(*word))) {
                if map == 0 {
                    continue;
                }
                let region = Region {
                    start: VdevOffset::from(index << vdev.metaslab_shift),
                    size: AllocatedSize::from(1 << vdev.metaslab_shift),
                    shift: vdev.ashift,
                };
                self.load_map(vdev.id, ObjectId::new(map), region, &mut tree)?;
            }
            self.allocated.insert(vdev.id, tree);
        }
        Ok(())
    }

    fn load_map(
        &mut self,
        vdev: VdevId,
        map: ObjectId,
        region: Region,
        tree: &mut RangeTree,
    ) -> Result<(), InspectError> {
        let object = self.inspection.directory().object(map)?;
        let head = SpaceMapHead::from_bonus(&object.bonus(), ByteOrder::Little);
        let Ok((head, _)) = head else {
            self.findings.push(format!("space map {map} has no head"));
            return Ok(());
        };
        let bytes = self.bytes(map, head.length)?;
        let mut decoder = SpaceMapDecoder::new(region);
        let mut sum = 0_i64;
        for entry in decoder.entries(&bytes, ByteOrder::Little) {
            let Ok(entry) = entry else {
                self.findings
                    .push(format!("space map {map} makes no sense"));
                break;
            };
            let range = Range::new(entry.start, entry.size);
            let size = entry.size.get().cast_signed();
            let done = match entry.action {
                Action::Allocate => {
                    sum += size;
                    tree.add(range)
                }
                Action::Free => {
                    sum -= size;
                    tree.remove(range)
                }
            };
            if let Err(error) = done {
                self.findings
                    .push(format!("space map {map} of vdev {vdev}: {error}"));
            }
        }
        if sum != head.allocated {
            self.findings.push(format!(
                "space map {map} says {} are allocated, and adds up to {sum}",
                head.allocated
            ));
        }
        Ok(())
    }

    /// What was freed since the checkpoint was created is allocated, and nothing leads there.
    fn exclude_checkpoint(&mut self) -> Result<(), InspectError> {
        let root = self.inspection.pool().vdevs().config();
        for vdev in self.inspection.pool().vdevs().top_levels() {
            let config = root.children.get(vdev.id.index());
            let zap = config.and_then(|config| config.other_object(TOP_ZAP));
            let Some(zap) = zap.filter(|zap| !zap.is_zero()) else {
                continue;
            };
            let directory = self.inspection.directory();
            let map = directory.value_in(zap, VDEV_CHECKPOINT_SPACE_MAP)?;
            let Some(map) = map.and_then(|value| value.as_word()).map(ObjectId::new) else {
                continue;
            };
            let region = Region {
                start: VdevOffset::ZERO,
                size: vdev.asize,
                shift: vdev.ashift,
            };
            let mut allocated = self.allocated.remove(&vdev.id).unwrap_or_default();
            self.load_map(vdev.id, map, region, &mut allocated)?;
            self.allocated.insert(vdev.id, allocated);
        }
        Ok(())
    }

    fn bytes(&self, id: ObjectId, length: u64) -> Result<Vec<u8>, InspectError> {
        let object = self.inspection.directory().object(id)?;
        let mut bytes = vec![0; narrow(length)];
        let read = object.read(0, &mut bytes, self.inspection.operation());
        read.map_err(|cause| InspectError::Object { object: id, cause })?;
        Ok(bytes)
    }

    fn claim(&mut self, mark: &TraversalMark, pointer: &BlockPointer) {
        let size = self.inspection.pool().io().deflated_size(pointer);
        if self.clones.is_further(pointer, size.get()) {
            self.walked.clones += 1;
            return;
        }
        let places = self
            .inspection
            .pool()
            .io()
            .places(pointer, self.inspection.operation());
        let places = match places {
            Ok(places) => places,
            Err(error) => {
                self.findings.push(format!(
                    "{}: its places cannot be told: {error}",
                    told(mark, pointer)
                ));
                return;
            }
        };
        for place in places {
            self.walked.bytes += place.size.get();
            let tree = self.allocated.get_mut(&place.vdev);
            let is_there = tree.is_some_and(|tree| tree.remove(place.range()).is_ok());
            if !is_there {
                self.findings.push(format!(
                    "{}: {} of vdev {} is not allocated, or is used twice",
                    told(mark, pointer),
                    place.range(),
                    place.vdev
                ));
            }
        }
    }

    fn verify(&mut self) {
        let unread = std::mem::take(&mut self.unread);
        let wanted = unread.iter().map(|(mark, pointer)| {
            ReadRequest::plain(*pointer, BlockScope::of_visit(*mark, pointer))
        });
        let wanted: Vec<ReadRequest> = wanted.collect();
        let io = self.inspection.pool().io();
        let outcomes = io.read_many(&wanted, self.inspection.operation());
        for ((mark, pointer), outcome) in unread.iter().zip(outcomes) {
            if let Err(error) = outcome {
                self.findings
                    .push(format!("{}: {error}", told(mark, pointer)));
            }
        }
    }

    fn leaks(&mut self) {
        for (vdev, tree) in &self.allocated {
            for range in tree.iter() {
                self.findings
                    .push(format!("{range} of vdev {vdev} leaks: nothing leads there"));
            }
        }
    }
}

fn told(mark: &TraversalMark, pointer: &BlockPointer) -> String {
    format!(
        "set {} object {} level {} block {:x}, born in {}",
        mark.objset,
        mark.object.get(),
        mark.level,
        mark.block,
        pointer.birth()
    )
}

impl BlockVisitor for Walk<'_> {
    fn block(&mut self, found: &FoundBlock<'_>) {
        if found.pointer.is_embedded() {
            return;
        }
        self.walked.blocks += 1;
        self.walked.log_blocks += u64::from(found.reference == Reference::IntentLog);
        self.claim(&found.mark, found.pointer);
        // The last block of an intent log was never written.
        if found.reference == Reference::ObjectSet {
            self.unread.push((found.mark, *found.pointer));
            if self.unread.len() >= READ_BATCH {
                self.verify();
            }
        }
    }

    fn unreadable(&mut self, mark: &TraversalMark, why: &ObjectError) {
        self.findings.push(format!(
            "set {} object {}: {why}",
            mark.objset,
            mark.object.get()
        ));
    }
}
