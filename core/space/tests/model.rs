//! Space against a plain model: an array that says of every sector what state it is in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tarn_host::sim::Random;
use tarn_ondisk::units::{AllocatedSize, Txg, VdevId, VdevOffset};
use tarn_space::{
    Allocation, Class, Geometry, LoadError, LoadSpaceMap, Range, RangeTree, Space, SpaceOptions,
};

const SECTOR: u64 = 512;
const METASLAB_SHIFT: u32 = 16;
const METASLAB_SECTORS: usize = (1 << METASLAB_SHIFT) / 512;

/// The space maps of a pool, as a pool keeps them: what was handed over is in them.
#[derive(Default)]
struct Maps(Mutex<BTreeMap<(VdevId, u64), RangeTree>>);

impl LoadSpaceMap for Maps {
    fn load(&self, vdev: VdevId, index: u64) -> Result<RangeTree, LoadError> {
        let maps = self.0.lock().unwrap();
        Ok(maps.get(&(vdev, index)).cloned().unwrap_or_default())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sector {
    Free,
    Allocated,
    FreedIn(u64),
}

struct Model {
    space: Space,
    maps: Arc<Maps>,
    sectors: BTreeMap<VdevId, Vec<Sector>>,
    /// With the txg of their birth.
    live: Vec<(Allocation, u64)>,
    txg: u64,
    trace: Vec<u64>,
}

impl Model {
    fn new(metaslabs: &[u64], segments_max: usize) -> Model {
        let space = Space::new(SpaceOptions {
            loaded_segments_max: segments_max,
        });
        let maps = Arc::new(Maps::default());
        space.set_door(maps.clone());
        let mut sectors = BTreeMap::new();
        for (id, &count) in (0..).zip(metaslabs) {
            let vdev = VdevId::new(id);
            let geometry = Geometry {
                size: AllocatedSize::new((count << METASLAB_SHIFT) + 5000),
                metaslab_shift: METASLAB_SHIFT,
                ashift: 9,
                class: Class::Normal,
            };
            space.add_vdev(vdev, geometry, Vec::new());
            sectors.insert(vdev, vec![Sector::Free; count as usize * METASLAB_SECTORS]);
        }
        Model {
            space,
            maps,
            sectors,
            live: Vec::new(),
            txg: 10,
            trace: Vec::new(),
        }
    }

    fn sectors_of(&mut self, place: &Allocation) -> &mut [Sector] {
        let start = (place.offset.get() / SECTOR) as usize;
        let count = (place.size.get() / SECTOR) as usize;
        let metaslab = start / METASLAB_SECTORS;
        assert_eq!(metaslab, (start + count - 1) / METASLAB_SECTORS);
        &mut self.sectors.get_mut(&place.vdev).unwrap()[start..start + count]
    }

    fn allocate(&mut self, size: u64, copies: usize) {
        let txg = Txg::new(self.txg);
        let size_on = |_| AllocatedSize::new(size);
        match self
            .space
            .allocate(Class::Normal, copies, &[], &size_on, txg)
        {
            Ok(places) => {
                assert_eq!(places.len(), copies);
                for place in places {
                    assert_eq!(place.size.get(), size);
                    self.trace.push(place.offset.get() + place.vdev.get());
                    let sectors = self.sectors_of(&place);
                    assert!(sectors.iter().all(|&sector| sector == Sector::Free));
                    sectors.fill(Sector::Allocated);
                    self.live.push((place, self.txg));
                }
            }
            Err(_) => {
                self.trace.push(u64::MAX);
                let fitting = self.places_of(size);
                assert!(fitting < copies, "{fitting} places of {size} were free");
            }
        }
    }

    /// How many blocks of a size the free sectors could take.
    fn places_of(&self, size: u64) -> usize {
        let wanted = (size / SECTOR) as usize;
        let metaslabs = self
            .sectors
            .values()
            .flat_map(|all| all.chunks(METASLAB_SECTORS));
        metaslabs
            .flat_map(|metaslab| metaslab.split(|&sector| sector != Sector::Free))
            .map(|run| run.len() / wanted)
            .sum()
    }

    fn free(&mut self, choice: u64) {
        if self.live.is_empty() {
            return;
        }
        let index = (choice as usize) % self.live.len();
        let (place, birth) = self.live.swap_remove(index);
        let txg = self.txg;
        let free = |space: &Space| {
            let (birth, txg) = (Txg::new(birth), Txg::new(txg));
            space.free(place.vdev, place.offset, place.size, birth, txg)
        };
        free(&self.space).unwrap();
        free(&self.space).expect_err("a second free is refused");
        self.sectors_of(&place).fill(Sector::FreedIn(txg));
    }

    /// One sync pass: the maps get what changed, and must accept it.
    fn store_changes(&mut self) {
        let mut maps = self.maps.0.lock().unwrap();
        for changes in self.space.take_changes(Txg::new(self.txg)) {
            let map = maps.entry((changes.vdev, changes.index)).or_default();
            for range in changes.allocated {
                map.add(range).expect("only what is free is allocated");
            }
            for range in changes.freed {
                map.remove(range).expect("only what is allocated is freed");
            }
        }
    }

    fn finish_txg(&mut self) {
        self.store_changes();
        self.space.txg_stored(Txg::new(self.txg));
        let stored = self.txg;
        for sector in self.sectors.values_mut().flatten() {
            if matches!(*sector, Sector::FreedIn(txg) if txg + 2 <= stored) {
                *sector = Sector::Free;
            }
        }
        self.txg += 1;
        self.check_totals();
    }

    fn check_totals(&self) {
        let totals = self.space.class_totals(Class::Normal);
        let count = |wanted: fn(&Sector) -> bool| {
            let all = self.sectors.values().flatten();
            all.filter(|&sector| wanted(sector)).count() as u64 * SECTOR
        };
        let allocated = count(|sector| *sector == Sector::Allocated);
        assert_eq!(totals.allocated.get(), allocated);
        assert_eq!(totals.free().get(), count(|sector| *sector == Sector::Free));
        let maps = self.maps.0.lock().unwrap();
        let mapped: u64 = maps.values().map(|map| map.bytes().get()).sum();
        assert_eq!(mapped, allocated, "the maps say what is allocated");
    }

    /// Every stored map agrees with what space itself would write.
    fn check_maps(&self) {
        for (&(vdev, index), map) in self.maps.0.lock().unwrap().iter() {
            let txg = Txg::new(self.txg - 1);
            if let Some(ranges) = self.space.allocated_ranges(vdev, index, txg) {
                assert_eq!(&ranges, map);
            }
        }
    }
}

fn run(seed: u64, steps: u32, metaslabs: &[u64], segments_max: usize) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut model = Model::new(metaslabs, segments_max);
    let mut fill = 60;
    for _ in 0..steps {
        match random.below(100) {
            kind if kind < fill => {
                let size = match random.below(3) {
                    0 => 1,
                    1 => 1 + random.below(8),
                    _ => 1 + random.below(40),
                };
                let copies = 1 + (random.below(6) / 3 + random.below(6) / 5) as usize;
                model.allocate(size * SECTOR, copies);
            }
            kind if kind < 92 => {
                let choice = random.below(1 << 30);
                model.free(choice);
            }
            93 => model.store_changes(),
            94 | 95 => {
                model.finish_txg();
                model.check_maps();
            }
            96 => model.space.unload_all(),
            97 => fill = 30 + random.below(50),
            _ => {}
        }
    }
    for _ in 0..4 {
        model.finish_txg();
    }
    model.trace
}

/// Seeds are in the message of a failure; `run` with it replays it.
#[test]
fn space_agrees_with_a_plain_array_of_sectors() {
    for seed in 1..=12 {
        run(seed, 4_000, &[5, 3, 9], 200);
        run(seed, 4_000, &[16], usize::MAX);
        run(seed, 2_000, &[2], 0);
    }
}

#[test]
fn the_same_calls_give_the_same_places() {
    assert_eq!(run(5, 3_000, &[4, 4], 100), run(5, 3_000, &[4, 4], 100));
}

fn pool(vdevs: &[(u64, Class)]) -> Space {
    let space = Space::new(SpaceOptions::default());
    for (id, &(metaslabs, class)) in (0..).zip(vdevs) {
        let geometry = Geometry {
            size: AllocatedSize::new(metaslabs << 24),
            metaslab_shift: 24,
            ashift: 12,
            class,
        };
        space.add_vdev(VdevId::new(id), geometry, Vec::new());
    }
    space
}

fn allocate(space: &Space, class: Class, copies: usize, size: u64) -> Vec<Allocation> {
    let size_on = |_| AllocatedSize::new(size);
    space
        .allocate(class, copies, &[], &size_on, Txg::new(5))
        .unwrap()
}

#[test]
fn copies_go_to_different_vdevs() {
    let space = pool(&[
        (16, Class::Normal),
        (16, Class::Normal),
        (16, Class::Normal),
    ]);
    for _ in 0..1000 {
        let places = allocate(&space, Class::Normal, 3, 16384);
        let mut vdevs: Vec<_> = places.iter().map(|place| place.vdev).collect();
        vdevs.sort();
        vdevs.dedup();
        assert_eq!(vdevs.len(), 3);
    }
}

#[test]
fn copies_on_one_vdev_are_an_eighth_of_it_apart() {
    let space = pool(&[(32, Class::Normal)]);
    for _ in 0..1000 {
        let places = allocate(&space, Class::Normal, 3, 16384);
        for (index, one) in places.iter().enumerate() {
            for other in &places[index + 1..] {
                let metaslabs = (one.offset.get() >> 24).abs_diff(other.offset.get() >> 24);
                assert!(metaslabs >= 4, "{one:?} {other:?}");
            }
        }
    }
}

#[test]
fn blocks_of_a_batch_follow_each_other() {
    let space = pool(&[(32, Class::Normal)]);
    let places: Vec<_> = (0..60)
        .map(|_| allocate(&space, Class::Normal, 1, 131072)[0])
        .collect();
    for pair in places.windows(2) {
        assert_eq!(pair[0].range().end(), Some(pair[1].offset));
    }
}

#[test]
fn classes_fall_back_to_normal() {
    let space = pool(&[(16, Class::Normal), (2, Class::Log), (2, Class::Special)]);
    let vdev = |class| allocate(&space, class, 1, 4096)[0].vdev.get();
    assert_eq!(vdev(Class::Normal), 0);
    assert_eq!(vdev(Class::Log), 1);
    assert_eq!(vdev(Class::Special), 2);
    assert_eq!(vdev(Class::Dedup), 2);
    while vdev(Class::Special) == 2 {}
    assert_eq!(vdev(Class::Special), 0);
}

#[test]
fn a_large_vdev_gives_one_metaslab_to_the_embedded_log() {
    let space = pool(&[(100, Class::Normal)]);
    let place = allocate(&space, Class::Log, 1, 131072)[0];
    let log = space.class_totals(Class::EmbeddedLog);
    assert_eq!(log.size.get(), 1 << 24);
    assert_eq!(log.allocated.get(), 131072);
    assert_eq!(place.offset.get() >> 24, 0);
    let normal = allocate(&space, Class::Normal, 1, 131072)[0];
    assert_ne!(normal.offset.get() >> 24, 0);
}

#[test]
fn what_was_not_written_is_put_back_at_once() {
    let space = pool(&[(2, Class::Normal)]);
    let places = allocate(&space, Class::Normal, 2, 4096);
    space.undo(&places, Txg::new(5));
    assert_eq!(space.class_totals(Class::Normal).allocated.get(), 0);
    assert!(space.take_changes(Txg::new(5)).is_empty());
    space.txg_stored(Txg::new(5));
}

/// The changes of a txg without changes need not be taken.
#[test]
fn what_was_put_back_leaves_nothing_to_be_stored() {
    let space = pool(&[(2, Class::Normal)]);
    let (first, second) = (Txg::new(5), Txg::new(6));
    let places = allocate(&space, Class::Normal, 2, 4096);
    space.undo(&places, first);
    space.txg_stored(first);
    let size_on = |_| AllocatedSize::new(4096);
    let kept = space.allocate(Class::Normal, 1, &[], &size_on, second);
    let put_back = space.allocate(Class::Normal, 1, &[], &size_on, second);
    space.undo(&put_back.unwrap(), second);
    let changes = space.take_changes(second);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].allocated, [kept.unwrap()[0].range()]);
    space.txg_stored(second);
}

#[test]
fn frees_of_what_cannot_be_are_refused() {
    let space = pool(&[(2, Class::Normal)]);
    let free = |vdev, offset, size| {
        let (offset, size) = (VdevOffset::new(offset), AllocatedSize::new(size));
        space.free(VdevId::new(vdev), offset, size, Txg::new(5), Txg::new(5))
    };
    free(7, 0, 4096).unwrap_err();
    free(0, 0, 0).unwrap_err();
    free(0, 512, 4096).unwrap_err();
    free(0, 0, 512).unwrap_err();
    free(0, u64::MAX - 4095, 4096).unwrap_err();
    free(0, (1 << 24) - 4096, 8192).unwrap_err();
    free(0, 2 << 24, 4096).unwrap_err();
    free(0, 0, 4096).unwrap_err();
}

#[test]
#[should_panic(expected = "without its changes")]
fn a_txg_stored_without_its_changes_stops_the_process() {
    let space = pool(&[(2, Class::Normal)]);
    allocate(&space, Class::Normal, 1, 4096);
    space.txg_stored(Txg::new(5));
}

/// A map that says nothing is allocated, where something is.
struct Amnesia;

impl LoadSpaceMap for Amnesia {
    fn load(&self, _: VdevId, _: u64) -> Result<RangeTree, LoadError> {
        Ok(RangeTree::new())
    }
}

/// The canary of the model: with maps that lie, a sector is handed out twice, and the model sees
/// it.
#[test]
#[should_panic]
fn the_model_sees_a_sector_handed_out_twice() {
    let mut model = Model::new(&[1], 0);
    model.space = Space::new(SpaceOptions {
        loaded_segments_max: 0,
    });
    model.space.set_door(Arc::new(Amnesia));
    let geometry = Geometry {
        size: AllocatedSize::new(1 << METASLAB_SHIFT),
        metaslab_shift: METASLAB_SHIFT,
        ashift: 9,
        class: Class::Normal,
    };
    model.space.add_vdev(VdevId::new(0), geometry, Vec::new());
    for _ in 0..METASLAB_SECTORS {
        model.allocate(SECTOR, 1);
        model.finish_txg();
    }
}

#[test]
fn claimed_ranges_are_not_handed_out() {
    let space = pool(&[(1, Class::Normal)]);
    let claim = |offset| {
        let (offset, size) = (VdevOffset::new(offset), AllocatedSize::new(8192));
        space.claim(VdevId::new(0), offset, size, Txg::new(5))
    };
    claim(4096).unwrap();
    claim(8192).unwrap_err();
    let claimed = Range::new(VdevOffset::new(4096), AllocatedSize::new(8192));
    let mut taken = RangeTree::new();
    taken.add(claimed).unwrap();
    for _ in 0..4094 {
        let place = allocate(&space, Class::Normal, 1, 4096)[0];
        taken.add(place.range()).unwrap();
    }
    assert_eq!(taken.bytes().get(), 1 << 24);
}
