//! The space of a pool, for all threads: [`Space`].
//!
//! # Mechanism
//! One short lock over plain data. It is released while a metaslab is loaded; threads that want the
//! same metaslab wait for that load, and others go on.

use crate::class::Class;
use crate::error::{FreeError, LoadError, NoSpace};
use crate::load::LoadSpaceMap;
use crate::metaslab::MetaslabSummary;
use crate::probes::Probes;
use crate::range_tree::{Range, RangeTree};
use crate::state::{Admission, Attempt, Geometry, Request, State};
use crate::totals::{GroupTotals, Histogram, Totals};
use crate::{COPIES_MAX, MetaslabChanges, as_index, as_number, ranks};
use std::sync::{Arc, OnceLock};
use tarn_host::canary::{Canary, sings};
use tarn_host::lock::{Condvar, Mutex, MutexGuard};
use tarn_ondisk::units::{AllocatedSize, Txg, VdevId, VdevOffset};
use tarn_probe::registry;

/// A place that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// The vdev.
    pub vdev: VdevId,
    /// Where on it.
    pub offset: VdevOffset,
    /// How much room it is, redundancy and padding included.
    pub size: AllocatedSize,
}

impl Allocation {
    /// As a range of its vdev.
    pub fn range(&self) -> Range {
        Range::new(self.offset, self.size)
    }
}

/// Choices that are not the pool's.
#[derive(Debug, Clone, Copy)]
pub struct SpaceOptions {
    /// Metaslabs are dropped from memory while they have more free ranges than this together. A
    /// range takes about 80 bytes.
    pub loaded_segments_max: usize,
}

impl Default for SpaceOptions {
    /// At most some 80 MiB of free ranges; a guess, that a larger machine may raise.
    fn default() -> SpaceOptions {
        SpaceOptions {
            loaded_segments_max: 1 << 20,
        }
    }
}

/// What is free in a pool. One per pool, shared.
pub struct Space {
    state: Mutex<State>,
    /// A load ended.
    loaded: Condvar,
    /// A hold ended, or an allocation that waited for that has its place.
    released: Condvar,
    door: OnceLock<Arc<dyn LoadSpaceMap>>,
    options: SpaceOptions,
    probes: Probes,
    failed_loads: Mutex<Vec<LoadError>>,
}

impl Space {
    /// A pool without vdevs.
    pub fn new(options: SpaceOptions) -> Space {
        Space {
            state: Mutex::new(ranks::STATE, State::default()),
            loaded: Condvar::new(),
            released: Condvar::new(),
            door: OnceLock::new(),
            options,
            probes: Probes::new(registry()),
            failed_loads: Mutex::new(ranks::FAILED_LOADS, Vec::new()),
        }
    }

    /// Says how space maps are loaded. Once: later calls change nothing.
    pub fn set_door(&self, door: Arc<dyn LoadSpaceMap>) {
        let _ = self.door.set(door);
    }

    /// Adds a top-level vdev. Metaslabs without a summary have never been allocated from.
    ///
    /// # Panics
    /// When there is a vdev of this number that was not removed.
    pub fn add_vdev(&self, vdev: VdevId, geometry: Geometry, metaslabs: Vec<MetaslabSummary>) {
        self.state.lock().add_vdev(vdev, geometry, metaslabs);
    }

    /// Adds the metaslabs for which a top-level vdev has grown. They have never been allocated
    /// from.
    ///
    /// # Panics
    /// When there is no such vdev, or its metaslabs have another size.
    #[doc(alias = "vdev_metaslab_init")]
    pub fn grow_vdev(&self, vdev: VdevId, size: AllocatedSize) {
        self.state.lock().grow_vdev(vdev, size);
    }

    /// Forgets a top-level vdev, and everything that was to be stored of it.
    pub fn remove_vdev(&self, vdev: VdevId) {
        self.state.lock().remove_vdev(vdev);
    }

    /// Lets a vdev take new blocks, or no longer.
    pub fn set_admission(&self, vdev: VdevId, admission: Admission) {
        self.state.lock().set_admission(vdev, admission);
    }

    /// Hands out a place for each copy, all or none.
    ///
    /// `near` lists places whose vdevs are preferred, for each copy in order. `size_on` says how
    /// much room the block takes on a vdev. May load metaslabs, and wait for that.
    ///
    /// # Errors
    /// There is no room in one piece for all copies.
    pub fn allocate(
        &self,
        class: Class,
        copies: usize,
        near: &[Allocation],
        size_on: &dyn Fn(VdevId) -> AllocatedSize,
        txg: Txg,
    ) -> Result<Vec<Allocation>, NoSpace> {
        assert!(
            (1..=COPIES_MAX).contains(&copies),
            "a block has one to three copies"
        );
        let request = Request {
            class,
            copies,
            near,
            size_on,
            txg,
        };
        let mut state = self.state.lock();
        loop {
            match state.try_allocate(&request) {
                Attempt::Placed(places) => {
                    self.probes.allocations.increment();
                    return Ok(places);
                }
                Attempt::NoSpace if state.is_room_held(&request) => {
                    state.waiting_allocations += 1;
                    self.released.wait(&mut state);
                    state.waiting_allocations -= 1;
                    self.released.notify_all();
                }
                Attempt::NoSpace => {
                    self.probes.refusals.increment();
                    return Err(state.no_space(&request));
                }
                Attempt::Load(vdev, index) => state = self.load(state, vdev, index),
            }
        }
    }

    /// Puts back places that nothing was stored in, in the txg they were handed out in.
    pub fn undo(&self, places: &[Allocation], txg: Txg) {
        let mut state = self.state.lock();
        for place in state.undo(places, txg) {
            state
                .free(place.vdev, place.range(), txg)
                .expect("what was handed out can be freed");
        }
    }

    /// Sets the txg of the checkpoint, or that there is none. From then on what is freed of blocks
    /// born up to this txg stays allocated, and is handed over as kept.
    ///
    /// Called while no txg is stored, or before anything is freed in the syncing txg.
    pub fn set_checkpoint(&self, checkpoint: Option<Txg>) {
        let checkpoint = checkpoint.filter(|_| !sings(Canary::ForgetCheckpoint));
        self.state.lock().checkpoint = checkpoint;
    }

    /// Frees a range that was kept for a checkpoint, which is being discarded.
    ///
    /// # Errors
    /// It was not allocated: such ranges come from the disk.
    pub fn free_kept(
        &self,
        vdev: VdevId,
        offset: VdevOffset,
        size: AllocatedSize,
        txg: Txg,
    ) -> Result<(), FreeError> {
        let range = Range::new(offset, size);
        self.state.lock().free_kept(vdev, range, txg)
    }

    /// Takes back a range of a block born in `birth`. It is handed out again after two more txgs
    /// are stored; what the checkpoint has, after that is discarded.
    ///
    /// # Errors
    /// It was not allocated, or its metaslab cannot be read: pointers come from the disk, and so
    /// may such ranges.
    pub fn free(
        &self,
        vdev: VdevId,
        offset: VdevOffset,
        size: AllocatedSize,
        birth: Txg,
        txg: Txg,
    ) -> Result<(), FreeError> {
        let range = Range::new(offset, size);
        if birth > txg {
            return Err(FreeError::NeverAllocated { vdev, range });
        }
        self.state.lock().free_or_keep(vdev, range, birth, txg)
    }

    /// Marks a range as handed out that was promised by a log of an earlier run, and is in no
    /// space map yet.
    ///
    /// # Errors
    /// It is allocated already, cannot be on that vdev, or its metaslab cannot be read.
    pub fn claim(
        &self,
        vdev: VdevId,
        offset: VdevOffset,
        size: AllocatedSize,
        txg: Txg,
    ) -> Result<(), FreeError> {
        let range = Range::new(offset, size);
        let mut state = self.state.lock();
        let index = state.locate(vdev, range)?;
        state = self.load_if_away(state, vdev, index);
        let metaslab = state.metaslab(vdev, index);
        if !metaslab.is_some_and(|metaslab| metaslab.is_here()) {
            return Err(FreeError::NotLoaded { vdev, range });
        }
        state.claim(vdev, range, txg)
    }

    /// What is to be written into the space maps for a txg, since this was last asked. Called in
    /// every pass of its sync, until nothing comes.
    pub fn take_changes(&self, txg: Txg) -> Vec<MetaslabChanges> {
        self.state.lock().take_changes(txg)
    }

    /// A txg is on stable storage: what was freed two txgs before may be handed out.
    ///
    /// # Panics
    /// When changes of the txg were not taken: what is stored is not what is.
    pub fn txg_stored(&self, txg: Txg) {
        let unloads = self.state.lock().txg_stored(txg, &self.options);
        self.probes.unloads.add(unloads);
    }

    /// The ranges of a metaslab that are allocated once `txg` is stored with the changes taken so
    /// far: what a space map written anew has to say. `None` if they are not in memory.
    pub fn allocated_ranges(&self, vdev: VdevId, index: u64, txg: Txg) -> Option<RangeTree> {
        let state = self.state.lock();
        state.metaslab(vdev, as_index(index))?.allocated_ranges(txg)
    }

    /// No more ranges of a metaslab than this are allocated once `txg` is stored. `None` if they
    /// are not in memory.
    pub fn allocated_ranges_max(&self, vdev: VdevId, index: u64, txg: Txg) -> Option<usize> {
        let state = self.state.lock();
        state
            .metaslab(vdev, as_index(index))?
            .allocated_ranges_max(txg)
    }

    /// Like [`Space::allocated_ranges`], and loads the metaslab if it has to. `None` if it cannot.
    pub fn load_allocated_ranges(&self, vdev: VdevId, index: u64, txg: Txg) -> Option<RangeTree> {
        let state = self.state.lock();
        let state = self.load_if_away(state, vdev, as_index(index));
        state.metaslab(vdev, as_index(index))?.allocated_ranges(txg)
    }

    /// The free ranges of a metaslab by size, if that is known.
    pub fn histogram(&self, vdev: VdevId, index: u64) -> Option<Box<Histogram>> {
        let state = self.state.lock();
        let metaslab = state.metaslab(vdev, as_index(index))?;
        metaslab.histogram().map(|histogram| Box::new(*histogram))
    }

    /// What a metaslab holds.
    pub fn metaslab_totals(&self, vdev: VdevId, index: u64) -> Option<Totals> {
        let state = self.state.lock();
        Some(state.metaslab(vdev, as_index(index))?.totals())
    }

    /// What each vdev gives to each class, in order of vdevs.
    pub fn group_totals(&self) -> Vec<GroupTotals> {
        self.state.lock().totals()
    }

    /// What a class holds on all vdevs.
    pub fn class_totals(&self, class: Class) -> Totals {
        self.state.lock().class_totals(class)
    }

    /// What is free in a class on vdevs that take new blocks.
    pub fn admitted_free(&self, class: Class) -> AllocatedSize {
        self.state.lock().admitted_free(class)
    }

    /// The same by vdev.
    pub fn admitted_free_by_vdev(&self, class: Class) -> Vec<(VdevId, AllocatedSize)> {
        self.state.lock().admitted_free_by_vdev(class)
    }

    /// Drops from memory what can be loaded again.
    pub fn unload_all(&self) {
        self.state.lock().unload_all();
    }

    /// About how much memory the free ranges take.
    pub fn memory_bytes(&self) -> u64 {
        /// A range by start and by size, with the trees around it. Measured.
        const SEGMENT_BYTES: u64 = 80;
        as_number(self.state.lock().segment_count()) * SEGMENT_BYTES
    }

    /// Why metaslabs could not be loaded, since this was last asked.
    pub fn take_failed_loads(&self) -> Vec<LoadError> {
        std::mem::take(&mut *self.failed_loads.lock())
    }
}

/// Holds of metaslabs.
impl Space {
    pub(crate) fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn has_waiting_allocations(&self) -> bool {
        self.state.lock().waiting_allocations > 0
    }

    /// Waits until a hold ends, or an allocation that waited has its place.
    pub(crate) fn wait_for_holds(&self, state: &mut MutexGuard<'_, State>) {
        self.released.wait(state);
    }

    pub(crate) fn note_hold_ended(&self) {
        self.released.notify_all();
    }
}

/// Loading.
impl Space {
    pub(crate) fn load_if_away<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        vdev: VdevId,
        index: usize,
    ) -> MutexGuard<'a, State> {
        match state.metaslab(vdev, index) {
            Some(metaslab) if !metaslab.is_here() => self.load(state, vdev, index),
            _ => state,
        }
    }

    /// Loads a metaslab, or waits for the thread that is loading it. It may not be in memory
    /// afterwards: if it could not be loaded, or if it was dropped again meanwhile.
    fn load<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        vdev: VdevId,
        index: usize,
    ) -> MutexGuard<'a, State> {
        let generation = state.generation(vdev);
        let Some(metaslab) = state.metaslab_mut(vdev, index) else {
            return state;
        };
        if !metaslab.begin_load() {
            while state.generation(vdev) == generation
                && state
                    .metaslab(vdev, index)
                    .is_some_and(|metaslab| metaslab.is_loading())
            {
                self.loaded.wait(&mut state);
            }
            return state;
        }
        drop(state);
        self.probes.loads.increment();
        let number = as_number(index);
        let allocated = match self.door.get() {
            Some(door) => door.load(vdev, number),
            None => Err(LoadError::NoDoor {
                vdev,
                index: number,
            }),
        };
        let mut state = self.state.lock();
        // A map that was read of a removed vdev says nothing of the vdev that has its number now.
        if state.generation(vdev) == generation
            && let Some(metaslab) = state.metaslab_mut(vdev, index)
            && let Err(error) = metaslab.end_load(vdev, number, allocated)
        {
            self.probes.failed_loads.increment();
            self.failed_loads.lock().push(error);
        }
        self.loaded.notify_all();
        state
    }
}
