//! All metaslabs of a pool, and how places are chosen among them. Plain data: the lock and the door
//! are in `space`.
//!
//! # Mechanism
//! A request is answered copy by copy. Each copy has standards for its distance from the earlier
//! ones, lowered step by step; at each step all vdevs of the class are asked in turn. A metaslab
//! that would be best and is not in memory ends the attempt: what was taken is put back, the
//! caller loads the metaslab, and the attempt is made anew. Each load makes one metaslab known, so
//! attempts end.

use crate::class::Class;
use crate::error::{FreeError, NoSpace};
use crate::group::{Active, Group, Rotor};
use crate::metaslab::{Metaslab, MetaslabSummary, StoredMap, add_histogram};
use crate::pick::Fit;
use crate::range_tree::{HISTOGRAM_BUCKETS, Range};
use crate::space::{Allocation, SpaceOptions};
use crate::totals::{GroupTotals, Totals};
use crate::{MetaslabChanges, TXG_DEFER, as_index, as_number};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tarn_ondisk::units::{AllocatedSize, Txg, VdevId, VdevOffset};

/// Copies on one vdev are kept apart by its size over this.
#[doc(alias = "ditto_same_vdev_distance_shift")]
const DISTANCE_DIVISOR: u64 = 8;
/// An ordinary vdev with more metaslabs than this gives one to the embedded log.
#[doc(alias = "zfs_embedded_slog_min_ms")]
const EMBEDDED_LOG_METASLABS_MIN: usize = 64;
/// A metaslab is left for a better one when its largest range has halved this often. Like OpenZFS.
#[doc(alias = "zfs_metaslab_switch_threshold")]
const WORN_HALVINGS: usize = 2;

/// What space needs to know of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// How many bytes it has for blocks. What does not fill a metaslab at the end is not used.
    pub size: AllocatedSize,
    /// The power of two of the size of its metaslabs.
    pub metaslab_shift: u32,
    /// The power of two of its smallest allocation.
    pub ashift: u32,
    /// The class it serves.
    pub class: Class,
}

/// Whether a vdev takes new blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It does.
    Open,
    /// It does not: it is failing, or on its way out. What it holds can be freed.
    Closed,
}

/// Tells the vdevs apart that have had one number after each other: a log vdev can be removed, and
/// another can take its number, while one of its space maps is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct VdevGeneration(u64);

#[derive(Debug)]
struct VdevSpace {
    geometry: Geometry,
    generation: VdevGeneration,
    admission: Admission,
    metaslabs: Vec<Metaslab>,
    /// Which of `groups` each metaslab is in.
    group_of: Vec<usize>,
    groups: Vec<Group>,
}

/// How far a copy must be from the earlier copies of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Apart {
    OtherVdev,
    FarMetaslab,
    OtherMetaslab,
    Anywhere,
}

impl Apart {
    const LOWERING: [Apart; 4] = [
        Apart::OtherVdev,
        Apart::FarMetaslab,
        Apart::OtherMetaslab,
        Apart::Anywhere,
    ];
}

/// What is asked for.
pub(crate) struct Request<'a> {
    pub(crate) class: Class,
    pub(crate) copies: usize,
    /// Places whose vdevs are preferred, copy by copy.
    pub(crate) near: &'a [Allocation],
    pub(crate) size_on: &'a dyn Fn(VdevId) -> AllocatedSize,
    pub(crate) txg: Txg,
}

/// How an attempt to allocate ended.
pub(crate) enum Attempt<T> {
    Placed(T),
    /// This metaslab must be loaded first.
    Load(VdevId, usize),
    NoSpace,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct State {
    vdevs: BTreeMap<VdevId, VdevSpace>,
    /// Of the vdev that was added last.
    generation: VdevGeneration,
    rotors: BTreeMap<Class, Rotor>,
    /// Metaslabs with changes that were not handed over.
    changed: BTreeMap<Txg, BTreeSet<(VdevId, usize)>>,
    /// Metaslabs with ranges that were freed in a txg and are not free yet.
    deferred: BTreeMap<Txg, BTreeSet<(VdevId, usize)>>,
    stored: Txg,
    /// The txg of the checkpoint, if there is one.
    pub(crate) checkpoint: Option<Txg>,
    /// Counts allocations, to know what was used last.
    clock: u64,
    /// How many threads wait for holds to end, because they found no other room.
    pub(crate) waiting_allocations: u32,
}

/// Building.
impl State {
    pub(crate) fn add_vdev(
        &mut self,
        vdev: VdevId,
        geometry: Geometry,
        summaries: Vec<MetaslabSummary>,
    ) {
        assert!(
            geometry.ashift <= geometry.metaslab_shift,
            "a metaslab is at least one sector"
        );
        assert!(
            !self.vdevs.contains_key(&vdev),
            "a vdev is added once until it is removed"
        );
        self.generation.0 += 1;
        let size = 1_u64 << geometry.metaslab_shift;
        let sector = 1_u64 << geometry.ashift;
        let count = as_index(geometry.size.get() >> geometry.metaslab_shift);
        let mut known: BTreeMap<usize, MetaslabSummary> = summaries
            .into_iter()
            .map(|summary| (as_index(summary.index), summary))
            .collect();
        let metaslabs: Vec<Metaslab> = (0..count)
            .map(|index| {
                let start = as_number(index) << geometry.metaslab_shift;
                let whole = Range::new(VdevOffset::new(start), AllocatedSize::new(size));
                let summary = known.remove(&index).unwrap_or_else(|| untouched(index));
                Metaslab::new(whole, sector, summary)
            })
            .collect();
        let mut space = VdevSpace {
            geometry,
            generation: self.generation,
            admission: Admission::Open,
            group_of: vec![0; metaslabs.len()],
            metaslabs,
            groups: vec![Group::new(geometry.class)],
        };
        space.set_embedded_log_apart();
        for group in &space.groups {
            self.rotors.entry(group.class).or_default().join(vdev);
        }
        self.vdevs.insert(vdev, space);
    }

    pub(crate) fn grow_vdev(&mut self, vdev: VdevId, size: AllocatedSize) {
        let space = self.vdevs.get_mut(&vdev);
        let space = space.expect("a vdev that grows was added");
        let shift = space.geometry.metaslab_shift;
        let (metaslab, sector) = (1_u64 << shift, 1_u64 << space.geometry.ashift);
        assert!(size >= space.geometry.size, "a vdev does not shrink");
        space.geometry.size = size;
        for index in space.metaslabs.len()..as_index(size.get() >> shift) {
            let start = VdevOffset::new(as_number(index) << shift);
            let whole = Range::new(start, AllocatedSize::new(metaslab));
            let new = Metaslab::new(whole, sector, untouched(index));
            space.metaslabs.push(new);
            // The embedded log keeps the metaslab that it has.
            space.group_of.push(0);
        }
    }

    pub(crate) fn remove_vdev(&mut self, vdev: VdevId) {
        self.vdevs.remove(&vdev);
        for rotor in self.rotors.values_mut() {
            rotor.leave(vdev);
        }
        for waiting in [&mut self.changed, &mut self.deferred] {
            for metaslabs in waiting.values_mut() {
                metaslabs.retain(|&(owner, _)| owner != vdev);
            }
            waiting.retain(|_, metaslabs| !metaslabs.is_empty());
        }
    }

    pub(crate) fn set_admission(&mut self, vdev: VdevId, admission: Admission) {
        if let Some(space) = self.vdevs.get_mut(&vdev) {
            space.admission = admission;
        }
    }

    /// Which of the vdevs with this number there is now.
    pub(crate) fn generation(&self, vdev: VdevId) -> Option<VdevGeneration> {
        Some(self.vdevs.get(&vdev)?.generation)
    }

    pub(crate) fn metaslab(&self, vdev: VdevId, index: usize) -> Option<&Metaslab> {
        self.vdevs.get(&vdev)?.metaslabs.get(index)
    }

    pub(crate) fn metaslab_mut(&mut self, vdev: VdevId, index: usize) -> Option<&mut Metaslab> {
        self.vdevs.get_mut(&vdev)?.metaslabs.get_mut(index)
    }

    pub(crate) fn metaslab_count(&self, vdev: VdevId) -> u64 {
        let space = self.vdevs.get(&vdev);
        space.map_or(0, |space| as_number(space.metaslabs.len()))
    }

    /// How many metaslabs of a vdev are held.
    pub(crate) fn held_count(&self, vdev: VdevId) -> usize {
        let space = self.vdevs.get(&vdev).into_iter();
        let metaslabs = space.flat_map(|space| &space.metaslabs);
        metaslabs.filter(|metaslab| metaslab.is_held()).count()
    }

    /// Whether a held metaslab could have room for a request.
    pub(crate) fn is_room_held(&self, request: &Request<'_>) -> bool {
        let classes = request.class.chain();
        self.vdevs.iter().any(|(&vdev, space)| {
            let size = (request.size_on)(vdev);
            let mut groups = classes.iter().filter_map(|class| space.group_index(*class));
            space.admission == Admission::Open
                && groups.any(|group| {
                    let mut members = space.members(group);
                    members.any(|(_, metaslab)| metaslab.is_held() && metaslab.may_have(size))
                })
        })
    }

    pub(crate) fn keep_freed(&mut self, vdev: VdevId, keeps: bool) {
        let space = self.vdevs.get_mut(&vdev).into_iter();
        let metaslabs = space.flat_map(|space| &mut space.metaslabs);
        metaslabs.for_each(|metaslab| metaslab.keep_freed(keeps));
    }
}

impl VdevSpace {
    /// Gives the emptiest metaslab to the embedded log, if there are enough of them.
    fn set_embedded_log_apart(&mut self) {
        let is_eligible = self.geometry.class == Class::Normal
            && self.metaslabs.len() > EMBEDDED_LOG_METASLABS_MIN;
        let emptiest = self
            .metaslabs
            .iter()
            .enumerate()
            .min_by_key(|(_, metaslab)| metaslab.totals().allocated)
            .map(|(index, _)| index);
        if let (true, Some(index)) = (is_eligible, emptiest) {
            self.group_of[index] = self.groups.len();
            self.groups.push(Group::new(Class::EmbeddedLog));
        }
    }

    fn group_index(&self, class: Class) -> Option<usize> {
        self.groups.iter().position(|group| group.class == class)
    }

    fn members(&self, group: usize) -> impl Iterator<Item = (usize, &Metaslab)> {
        let in_group = move |&(index, _): &(usize, &Metaslab)| self.group_of[index] == group;
        self.metaslabs.iter().enumerate().filter(in_group)
    }

    fn group_totals(&self, group: usize) -> Totals {
        let mut totals = Totals::default();
        for (_, metaslab) in self.members(group) {
            totals.add(metaslab.totals());
        }
        totals
    }

    fn is_apart(&self, index: usize, vdev: VdevId, placed: &[Allocation], apart: Apart) -> bool {
        let distance = match apart {
            Apart::OtherVdev | Apart::Anywhere => return true,
            Apart::FarMetaslab => self.geometry.size.get() / DISTANCE_DIVISOR,
            Apart::OtherMetaslab => 1,
        };
        let start = self.metaslabs[index].start().get();
        placed
            .iter()
            .filter(|place| place.vdev == vdev)
            .all(|place| {
                let other = place.offset.round_down(1 << self.geometry.metaslab_shift);
                start.abs_diff(other.get()) >= distance
            })
    }
}

/// Allocating.
impl State {
    /// Finds places for all copies, or puts everything back.
    pub(crate) fn try_allocate(&mut self, request: &Request<'_>) -> Attempt<Vec<Allocation>> {
        assert!(
            request.txg > self.stored,
            "an allocation belongs to a txg that is not stored"
        );
        for &class in request.class.chain() {
            for fit in [Fit::Orderly, Fit::Tight] {
                match self.place_all(request, class, fit) {
                    Attempt::NoSpace => {}
                    decided => return decided,
                }
            }
        }
        Attempt::NoSpace
    }

    /// The error that says that there is no place.
    pub(crate) fn no_space(&self, request: &Request<'_>) -> NoSpace {
        let vdevs = request.class.chain().iter();
        let vdevs = vdevs.filter_map(|class| self.rotors.get(class));
        let sizes = vdevs.flat_map(|rotor| rotor.members().iter());
        NoSpace {
            class: request.class,
            copies: request.copies,
            size: sizes
                .map(|&vdev| (request.size_on)(vdev))
                .min()
                .unwrap_or(AllocatedSize::ZERO),
        }
    }

    fn place_all(
        &mut self,
        request: &Request<'_>,
        class: Class,
        fit: Fit,
    ) -> Attempt<Vec<Allocation>> {
        let mut placed = Vec::with_capacity(request.copies);
        for _ in 0..request.copies {
            match self.place_copy(request, class, fit, &placed) {
                Attempt::Placed(place) => placed.push(place),
                other => {
                    self.undo(&placed, request.txg);
                    return match other {
                        Attempt::Load(vdev, index) => Attempt::Load(vdev, index),
                        _ => Attempt::NoSpace,
                    };
                }
            }
        }
        assert_eq!(
            placed.len(),
            request.copies,
            "each copy has a place, or none has"
        );
        debug_assert!(
            are_disjoint(&placed),
            "the copies of a block do not overlap"
        );
        for place in &placed {
            self.note_change(place.vdev, self.index_of(place), request.txg);
        }
        Attempt::Placed(placed)
    }

    /// Places one more copy, as far from those already placed as can be.
    fn place_copy(
        &mut self,
        request: &Request<'_>,
        class: Class,
        fit: Fit,
        placed: &[Allocation],
    ) -> Attempt<Allocation> {
        let Some(rotor) = self.rotors.get(&class) else {
            return Attempt::NoSpace;
        };
        let ordinal = placed.len();
        let (order, by_turn) = match (request.near.get(ordinal), placed.last()) {
            (Some(near), _) => (rotor.order_from(near.vdev), false),
            (None, Some(last)) => (rotor.order_after(last.vdev), false),
            (None, None) => (rotor.order(), true),
        };
        for apart in Apart::LOWERING {
            if placed.is_empty() && apart != Apart::Anywhere {
                continue;
            }
            for &vdev in &order {
                if apart == Apart::OtherVdev && placed.iter().any(|place| place.vdev == vdev) {
                    continue;
                }
                match self.place_on(vdev, request, class, fit, placed, apart) {
                    Attempt::NoSpace => {}
                    Attempt::Placed(place) => {
                        if by_turn {
                            self.charge(class, &place);
                        }
                        return Attempt::Placed(place);
                    }
                    load => return load,
                }
            }
        }
        Attempt::NoSpace
    }

    fn place_on(
        &mut self,
        vdev: VdevId,
        request: &Request<'_>,
        class: Class,
        fit: Fit,
        placed: &[Allocation],
        apart: Apart,
    ) -> Attempt<Allocation> {
        let size = (request.size_on)(vdev);
        self.clock += 1;
        let now = self.clock;
        let Some(space) = self.vdevs.get_mut(&vdev) else {
            return Attempt::NoSpace;
        };
        let (Admission::Open, Some(group)) = (space.admission, space.group_index(class)) else {
            return Attempt::NoSpace;
        };
        assert!(
            size.is_multiple_of(1 << space.geometry.ashift) && !size.is_zero(),
            "an allocation is made of whole sectors"
        );
        let Some(index) = space.choose(vdev, group, size, placed, apart) else {
            return Attempt::NoSpace;
        };
        if !space.metaslabs[index].is_here() {
            return Attempt::Load(vdev, index);
        }
        match space.metaslabs[index].allocate(size, fit, request.txg, now) {
            Some(range) => Attempt::Placed(Allocation {
                vdev,
                offset: range.start,
                size: range.size,
            }),
            None => Attempt::NoSpace,
        }
    }

    fn charge(&mut self, class: Class, place: &Allocation) {
        let is_turning = self.rotors[&class].is_turning(place.vdev);
        let free = if is_turning {
            self.free_by_vdev(class)
        } else {
            BTreeMap::new()
        };
        let rotor = self.rotors.get_mut(&class).expect("the class has a rotor");
        rotor.charge(place.vdev, place.size, &free);
    }

    fn free_by_vdev(&self, class: Class) -> BTreeMap<VdevId, AllocatedSize> {
        let mut free = BTreeMap::new();
        for (&vdev, space) in &self.vdevs {
            if let Some(group) = space.group_index(class) {
                free.insert(vdev, space.group_totals(group).free());
            }
        }
        free
    }

    fn index_of(&self, place: &Allocation) -> usize {
        let geometry = &self.vdevs[&place.vdev].geometry;
        as_index(place.offset.get() >> geometry.metaslab_shift)
    }

    fn note_change(&mut self, vdev: VdevId, index: usize, txg: Txg) {
        self.changed.entry(txg).or_default().insert((vdev, index));
    }

    /// A group that has nothing else to store need not be stored for what was undone.
    fn forget_change(&mut self, vdev: VdevId, index: usize, txg: Txg) {
        if let Some(metaslabs) = self.changed.get_mut(&txg) {
            metaslabs.remove(&(vdev, index));
        }
    }

    /// Puts back what was just taken. What is stored already is left for the caller to free.
    pub(crate) fn undo(&mut self, places: &[Allocation], txg: Txg) -> Vec<Allocation> {
        let mut left = Vec::new();
        for place in places {
            let index = self.index_of(place);
            let metaslab = self.metaslab_mut(place.vdev, index);
            let metaslab = metaslab.expect("what was allocated has a metaslab");
            if !metaslab.undo(place.range(), txg) {
                left.push(*place);
            } else if !metaslab.is_changed(txg) {
                self.forget_change(place.vdev, index, txg);
            }
        }
        left
    }
}

impl VdevSpace {
    /// The metaslab to allocate from: the active one while it is good, else the best one.
    fn choose(
        &mut self,
        vdev: VdevId,
        group: usize,
        size: AllocatedSize,
        placed: &[Allocation],
        apart: Apart,
    ) -> Option<usize> {
        let ordinal = placed.len();
        if let Some(active) = self.groups[group].active[ordinal] {
            let metaslab = &self.metaslabs[active.index];
            let is_good = metaslab.is_here()
                && metaslab.may_fit(size)
                && metaslab.weight() + WORN_HALVINGS > active.weight
                && self.is_apart(active.index, vdev, placed, apart);
            if is_good {
                return Some(active.index);
            }
        }
        let (index, metaslab) = self
            .members(group)
            .filter(|&(index, metaslab)| {
                metaslab.may_fit(size) && self.is_apart(index, vdev, placed, apart)
            })
            .max_by_key(|&(index, metaslab)| {
                (metaslab.weight(), metaslab.is_here(), Reverse(index))
            })?;
        if metaslab.is_here() {
            let weight = metaslab.weight();
            self.groups[group].active[ordinal] = Some(Active { index, weight });
        }
        Some(index)
    }
}

/// Giving back.
impl State {
    /// The metaslab a range is in.
    pub(crate) fn locate(&self, vdev: VdevId, range: Range) -> Result<usize, FreeError> {
        let space = self.vdevs.get(&vdev);
        let space = space.ok_or(FreeError::NoVdev { vdev, range })?;
        let index = range.start.get() >> space.geometry.metaslab_shift;
        usize::try_from(index)
            .ok()
            .filter(|&index| {
                let metaslab = space.metaslabs.get(index);
                metaslab.is_some_and(|metaslab| metaslab.could_hold(range))
            })
            .ok_or(FreeError::NeverAllocated { vdev, range })
    }

    pub(crate) fn free(&mut self, vdev: VdevId, range: Range, txg: Txg) -> Result<(), FreeError> {
        self.take_back(vdev, range, txg, Metaslab::free)
    }

    /// Takes back a range of a block born in `birth`: if the checkpoint has it, it is kept.
    pub(crate) fn free_or_keep(
        &mut self,
        vdev: VdevId,
        range: Range,
        birth: Txg,
        txg: Txg,
    ) -> Result<(), FreeError> {
        let is_kept = self
            .checkpoint
            .is_some_and(|checkpoint| birth <= checkpoint && txg > checkpoint);
        match is_kept {
            true => self.take_back(vdev, range, txg, Metaslab::keep),
            false => self.take_back(vdev, range, txg, Metaslab::free),
        }
    }

    /// Frees a range that was kept for a checkpoint.
    pub(crate) fn free_kept(
        &mut self,
        vdev: VdevId,
        range: Range,
        txg: Txg,
    ) -> Result<(), FreeError> {
        self.take_back(vdev, range, txg, Metaslab::free_kept)
    }

    fn take_back(
        &mut self,
        vdev: VdevId,
        range: Range,
        txg: Txg,
        take: impl FnOnce(&mut Metaslab, Range, Txg) -> bool,
    ) -> Result<(), FreeError> {
        assert!(
            txg > self.stored,
            "a free belongs to a txg that is not stored"
        );
        let index = self.locate(vdev, range)?;
        let metaslab = self.metaslab_mut(vdev, index);
        if !metaslab.is_some_and(|metaslab| take(metaslab, range, txg)) {
            return Err(FreeError::AlreadyFree { vdev, range, txg });
        }
        self.note_change(vdev, index, txg);
        Ok(())
    }

    /// Hands out a range in particular. Its metaslab must be in memory.
    pub(crate) fn claim(&mut self, vdev: VdevId, range: Range, txg: Txg) -> Result<(), FreeError> {
        let index = self.locate(vdev, range)?;
        let metaslab = self.metaslab_mut(vdev, index);
        if !metaslab.is_some_and(|metaslab| metaslab.claim(range, txg)) {
            return Err(FreeError::InUse { vdev, range });
        }
        self.note_change(vdev, index, txg);
        Ok(())
    }
}

/// Whether no two of these places share bytes.
fn are_disjoint(places: &[Allocation]) -> bool {
    let overlap = |one: &Allocation, other: &Allocation| {
        one.vdev == other.vdev
            && one.offset < other.offset + other.size
            && other.offset < one.offset + one.size
    };
    let mut rest = places;
    while let [first, others @ ..] = rest {
        if others.iter().any(|other| overlap(first, other)) {
            return false;
        }
        rest = others;
    }
    true
}

/// Being stored.
impl State {
    pub(crate) fn take_changes(&mut self, txg: Txg) -> Vec<MetaslabChanges> {
        assert!(
            txg > self.stored,
            "changes are taken before their txg is stored"
        );
        let changed = self.changed.remove(&txg).unwrap_or_default();
        let mut all = Vec::with_capacity(changed.len());
        for (vdev, index) in changed {
            let metaslab = self.metaslab_mut(vdev, index);
            let metaslab = metaslab.expect("a changed metaslab is there");
            let [allocated, freed, kept] = metaslab.take_changes(txg);
            if !freed.is_empty() {
                self.deferred.entry(txg).or_default().insert((vdev, index));
            }
            // All may have been undone.
            if !allocated.is_empty() || !freed.is_empty() || !kept.is_empty() {
                all.push(MetaslabChanges {
                    vdev,
                    index: as_number(index),
                    allocated,
                    freed,
                    kept,
                });
            }
        }
        all
    }

    /// Gives back how many metaslabs were dropped from memory.
    pub(crate) fn txg_stored(&mut self, txg: Txg, options: &SpaceOptions) -> u64 {
        self.changed.retain(|_, metaslabs| !metaslabs.is_empty());
        let forgotten = self.changed.range(..=txg).next();
        assert!(
            forgotten.is_none(),
            "txg {txg} was stored without its changes: {forgotten:?}"
        );
        self.stored = self.stored.max(txg);
        let later = self.deferred.split_off(&txg.minus(TXG_DEFER).next());
        for (freed_in, metaslabs) in std::mem::replace(&mut self.deferred, later) {
            assert!(
                freed_in <= txg.minus(TXG_DEFER),
                "what was freed is not handed out before two more txgs are stored"
            );
            for (vdev, index) in metaslabs {
                if let Some(metaslab) = self.metaslab_mut(vdev, index) {
                    metaslab.release(freed_in);
                }
            }
        }
        self.unload_down_to(options.loaded_segments_max)
    }

    /// Drops the metaslabs used longest ago while there are more free ranges in memory than this.
    fn unload_down_to(&mut self, segments_max: usize) -> u64 {
        let stored = self.stored;
        let mut here: Vec<(u64, VdevId, usize, usize)> = Vec::new();
        for (&vdev, space) in &self.vdevs {
            for (index, metaslab) in space.metaslabs.iter().enumerate() {
                if metaslab.is_here() {
                    here.push((metaslab.used_at(), vdev, index, metaslab.segment_count()));
                }
            }
        }
        let mut segments: usize = here.iter().map(|&(_, _, _, count)| count).sum();
        if segments <= segments_max {
            return 0;
        }
        let mut dropped = 0;
        here.sort_unstable();
        for (_, vdev, index, count) in here {
            if segments <= segments_max {
                break;
            }
            let metaslab = self.metaslab_mut(vdev, index);
            if metaslab.is_some_and(|metaslab| metaslab.unload(stored)) {
                segments -= count;
                dropped += 1;
            }
        }
        dropped
    }

    /// Drops every metaslab that can be dropped.
    pub(crate) fn unload_all(&mut self) {
        self.unload_down_to(0);
    }

    pub(crate) fn class_totals(&self, class: Class) -> Totals {
        let mut sum = Totals::default();
        for space in self.vdevs.values() {
            if let Some(group) = space.group_index(class) {
                sum.add(space.group_totals(group));
            }
        }
        sum
    }

    pub(crate) fn admitted_free(&self, class: Class) -> AllocatedSize {
        let by_vdev = self.admitted_free_by_vdev(class);
        by_vdev.into_iter().map(|(_, size)| size).sum()
    }

    pub(crate) fn admitted_free_by_vdev(&self, class: Class) -> Vec<(VdevId, AllocatedSize)> {
        let admitted = self.vdevs.iter();
        let admitted = admitted.filter(|(_, space)| space.admission == Admission::Open);
        let groups =
            admitted.filter_map(|(&vdev, space)| Some((vdev, space, space.group_index(class)?)));
        groups
            .map(|(vdev, space, group)| (vdev, space.group_totals(group).free()))
            .collect()
    }

    pub(crate) fn totals(&self) -> Vec<GroupTotals> {
        let mut all = Vec::new();
        for (&vdev, space) in &self.vdevs {
            for (index, group) in space.groups.iter().enumerate() {
                all.push(GroupTotals {
                    vdev,
                    class: group.class,
                    totals: space.group_totals(index),
                    fragmentation: space.group_fragmentation(index),
                    histogram: space.group_histogram(index),
                });
            }
        }
        all
    }

    pub(crate) fn segment_count(&self) -> usize {
        self.vdevs
            .values()
            .flat_map(|space| space.metaslabs.iter())
            .map(Metaslab::segment_count)
            .sum()
    }
}

impl VdevSpace {
    /// The mean of the group's metaslabs, if most of the vdev's have one.
    fn group_fragmentation(&self, group: usize) -> Option<u64> {
        let known: Vec<u64> = self
            .members(group)
            .filter_map(|(_, metaslab)| metaslab.fragmentation())
            .collect();
        let is_enough = known.len() > self.metaslabs.len() / 2;
        let sum: u64 = known.iter().sum();
        is_enough.then(|| sum / as_number(known.len()))
    }

    fn group_histogram(&self, group: usize) -> Box<[u64; HISTOGRAM_BUCKETS]> {
        let mut sum = Box::new([0; HISTOGRAM_BUCKETS]);
        for (_, metaslab) in self.members(group) {
            if let Some(histogram) = metaslab.histogram() {
                add_histogram(&mut sum, histogram);
            }
        }
        sum
    }
}

/// A metaslab that has never been allocated from.
fn untouched(index: usize) -> MetaslabSummary {
    MetaslabSummary {
        index: as_number(index),
        map: StoredMap::Absent,
        allocated: AllocatedSize::ZERO,
        histogram: None,
    }
}
