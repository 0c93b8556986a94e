//! Space under several threads, with metaslabs coming and going.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use tarn_host::sim::Random;
use tarn_ondisk::units::{AllocatedSize, Txg, VdevId};
use tarn_space::{
    Allocation, Class, Geometry, LoadError, LoadSpaceMap, RangeTree, Space, SpaceOptions,
};

/// Space maps that lag: what was handed over gets into them a while later.
#[derive(Default)]
struct Maps(Mutex<BTreeMap<(VdevId, u64), RangeTree>>);

impl LoadSpaceMap for Maps {
    fn load(&self, vdev: VdevId, index: u64) -> Result<RangeTree, LoadError> {
        let maps = self.0.lock().unwrap();
        let map = maps.get(&(vdev, index)).cloned();
        drop(maps);
        std::thread::yield_now();
        Ok(map.unwrap_or_default())
    }
}

/// What is in use, and what was freed in which txg.
#[derive(Default)]
struct Ledger {
    used: RangeTree,
    freed: Vec<(Allocation, u64)>,
}

struct World {
    space: Space,
    maps: Arc<Maps>,
    ledger: Mutex<Ledger>,
    /// The open txg; held for reading while something belongs to it.
    open: RwLock<u64>,
    stored: AtomicU64,
    is_over: AtomicBool,
    steps: AtomicU64,
}

impl World {
    fn work(&self, seed: u64) {
        let mut random = Random::new(seed);
        let mut own: Vec<(Allocation, u64)> = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let thrown = random.draw() >> 33;
            self.steps.fetch_add(1, Ordering::Relaxed);
            let open = self.open.read().unwrap();
            if own.len() > 40 || (thrown.is_multiple_of(3) && !own.is_empty()) {
                let (place, birth) = own.swap_remove(thrown as usize % own.len());
                let mut ledger = self.ledger.lock().unwrap();
                ledger.freed.push((place, *open));
                let (birth, txg) = (Txg::new(birth), Txg::new(*open));
                let freed = self
                    .space
                    .free(place.vdev, place.offset, place.size, birth, txg);
                freed.expect("what is in use can be freed");
            } else {
                let size = AllocatedSize::new(512 * (1 + thrown % 20));
                let found = self
                    .space
                    .allocate(Class::Normal, 1, &[], &|_| size, Txg::new(*open));
                if let Ok(places) = found {
                    self.note(places[0]);
                    own.push((places[0], *open));
                }
            }
        }
    }

    /// A place was handed out: it must not be in use, nor freed too short a time ago.
    fn note(&self, place: Allocation) {
        let mut ledger = self.ledger.lock().unwrap();
        let stored = self.stored.load(Ordering::SeqCst);
        let (early, free): (Vec<_>, Vec<_>) = std::mem::take(&mut ledger.freed)
            .into_iter()
            .partition(|&(_, txg)| txg + 2 > stored);
        for (place, _) in free {
            ledger.used.remove(place.range()).unwrap();
        }
        ledger.freed = early;
        let handed_out = ledger.used.add(place.range());
        handed_out.expect("no place is handed out twice, or too early");
    }

    fn sync(&self) {
        let mut open = self.open.write().unwrap();
        let txg = *open;
        *open += 1;
        drop(open);
        for changes in self.space.take_changes(Txg::new(txg)) {
            std::thread::yield_now();
            let mut maps = self.maps.0.lock().unwrap();
            let map = maps.entry((changes.vdev, changes.index)).or_default();
            for range in changes.allocated {
                map.add(range).unwrap();
            }
            for range in changes.freed {
                map.remove(range).unwrap();
            }
        }
        self.stored.store(txg, Ordering::SeqCst);
        self.space.txg_stored(Txg::new(txg));
        self.space.unload_all();
    }
}

#[test]
fn threads_that_allocate_free_and_store_never_share_a_place() {
    let space = Space::new(SpaceOptions::default());
    let maps = Arc::new(Maps::default());
    space.set_door(maps.clone());
    let geometry = Geometry {
        size: AllocatedSize::new(8 << 16),
        metaslab_shift: 16,
        ashift: 9,
        class: Class::Normal,
    };
    space.add_vdev(VdevId::new(0), geometry, Vec::new());
    let world = World {
        space,
        maps,
        ledger: Mutex::default(),
        open: RwLock::new(10),
        stored: AtomicU64::new(9),
        is_over: AtomicBool::new(false),
        steps: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=4)
            .map(|seed| {
                let world = &world;
                scope.spawn(move || world.work(seed))
            })
            .collect();
        let is_one_gone = || workers.iter().any(|worker| worker.is_finished());
        for round in 0..300 {
            while world.steps.load(Ordering::Relaxed) < round * 100 && !is_one_gone() {
                std::thread::yield_now();
            }
            world.sync();
        }
        world.is_over.store(true, Ordering::Relaxed);
    });
    let claimed = world.ledger.lock().unwrap().used.bytes();
    assert!(claimed > AllocatedSize::ZERO);
}

/// While it reads the space map of a vdev, another vdev takes its number and gives out a place.
#[derive(Default)]
struct ReplacesVdev {
    space: OnceLock<Weak<Space>>,
    taken: Mutex<Vec<Allocation>>,
}

const REPLACED: VdevId = VdevId::new(0);

fn geometry_of_two_metaslabs() -> Geometry {
    Geometry {
        size: AllocatedSize::new(2 << 16),
        metaslab_shift: 16,
        ashift: 9,
        class: Class::Log,
    }
}

fn allocate(space: &Space, bytes: u64, txg: u64) -> Option<Allocation> {
    let size = AllocatedSize::new(bytes);
    let places = space.allocate(Class::Log, 1, &[], &|_| size, Txg::new(txg));
    places.ok().map(|places| places[0])
}

fn store(space: &Space, txg: u64) {
    space.take_changes(Txg::new(txg));
    space.txg_stored(Txg::new(txg));
}

impl LoadSpaceMap for ReplacesVdev {
    fn load(&self, vdev: VdevId, _index: u64) -> Result<RangeTree, LoadError> {
        let space = self.space.get().and_then(Weak::upgrade).unwrap();
        let mut taken = self.taken.lock().unwrap();
        if vdev == REPLACED && taken.is_empty() {
            space.remove_vdev(REPLACED);
            space.add_vdev(REPLACED, geometry_of_two_metaslabs(), Vec::new());
            taken.extend([1, 2].map(|_| allocate(&space, 40 << 10, 20).unwrap()));
            store(&space, 20);
        }
        Ok(RangeTree::new())
    }
}

#[test]
fn a_space_map_of_a_removed_vdev_frees_nothing_of_the_vdev_with_its_number() {
    let space = Arc::new(Space::new(SpaceOptions::default()));
    let door = Arc::new(ReplacesVdev::default());
    door.space.set(Arc::downgrade(&space)).unwrap();
    space.set_door(door.clone());
    space.add_vdev(REPLACED, geometry_of_two_metaslabs(), Vec::new());
    let first = allocate(&space, 512, 10).unwrap();
    store(&space, 10);
    space.unload_all();

    let index = first.offset.get() >> 16;
    space.load_allocated_ranges(REPLACED, index, Txg::new(20));

    let taken = door.taken.lock().unwrap().clone();
    assert_eq!(taken.len(), 2, "the load met the vdev that was replaced");
    let mut used = RangeTree::new();
    for place in taken {
        used.add(place.range()).unwrap();
    }
    while let Some(place) = allocate(&space, 8 << 10, 21) {
        let handed_out = used.add(place.range());
        handed_out.expect("no place is handed out twice");
    }
}
