//! Pools of simulated disks.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use tarn_host::sim::SimDisk;
use tarn_host::{Buffer, Host, OpenMode, SimHost, SimOptions};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::label::{DATA_START_BYTES, data_size};
use tarn_ondisk::nvlist::{NvList, Text};
use tarn_ondisk::units::{Guid, ObjectId, Txg, VdevId, VdevOffset};
use tarn_probe::Operation;
use tarn_vdev::{
    OpenError, OpenOptions, PhysicalWrite, Place, PoolFacts, PoolState, TopLevelConfig, VdevConfig,
    VdevKind, VdevReadError, VdevTree, VdevWriteError, labels, sizes,
};

/// As small as devices may be.
pub const DEVICE_BYTES: u64 = 64 << 20;
pub const POOL: Guid = Guid::new(4711);

pub struct Disks {
    pub machine: SimHost,
    pub root: VdevConfig,
    pub host: Host,
}

impl Disks {
    /// A pool with one top-level vdev of each kind, on this many disks each.
    pub fn new(tops: &[(VdevKind, u64)], ashift: u32) -> Disks {
        Disks::of(SimHost::new(SimOptions::seed(1)), tops, ashift)
    }

    /// The same, of this machine.
    pub fn of(machine: SimHost, tops: &[(VdevKind, u64)], ashift: u32) -> Disks {
        let mut root = VdevConfig::new(VdevKind::Root, POOL);
        let mut names = 0..;
        for &(kind, count) in tops {
            let mut leaves: Vec<VdevConfig> = names
                .by_ref()
                .take(usize::try_from(count).unwrap())
                .map(|number: u64| {
                    let path = path(number);
                    machine.add_disk(&path, DEVICE_BYTES);
                    let mut leaf = VdevConfig::new(VdevKind::File, Guid::from(100 + number));
                    leaf.path = Some(Text::from(path));
                    leaf.create_txg = Txg::INITIAL;
                    leaf
                })
                .collect();
            let sizes: Vec<_> = leaves
                .iter()
                .map(|_| data_size(DEVICE_BYTES).unwrap())
                .collect();
            let asize = sizes::top_level_size(kind, &sizes);
            let mut top = match kind {
                VdevKind::File => leaves.remove(0),
                kind => {
                    let guid = Guid::from(1000 + u64::try_from(root.children.len()).unwrap());
                    let mut top = VdevConfig::new(kind, guid);
                    top.children = leaves;
                    top
                }
            };
            top.top_level = Some(TopLevelConfig {
                metaslab_array: ObjectId::from(7),
                metaslab_shift: sizes::metaslab_shift(asize),
                ashift,
                asize,
                is_log: false,
                non_allocating: false,
                removing: false,
            });
            root.children.push(top);
        }
        root.number_children();
        Disks {
            host: machine.host(),
            machine,
            root,
        }
    }

    /// The same, of one vdev.
    pub fn one(kind: VdevKind, count: u64, ashift: u32) -> Disks {
        Disks::new(&[(kind, count)], ashift)
    }

    pub fn disk(&self, number: usize) -> SimDisk {
        self.machine
            .disk(path(u64::try_from(number).unwrap()))
            .unwrap()
    }

    pub fn open_with(&self, options: &OpenOptions) -> Result<Arc<VdevTree>, OpenError> {
        VdevTree::open(&self.host, &self.root, options)
    }

    /// Opened without a look at labels.
    pub fn open(&self) -> Arc<VdevTree> {
        self.open_with(&shared()).unwrap()
    }

    /// Opened without these disks, as if an administrator had taken them offline.
    pub fn open_without(&self, disks: &[usize]) -> Result<Arc<VdevTree>, OpenError> {
        let mut root = self.root.clone();
        let guids: Vec<_> = disks.iter().map(|disk| guid_of(*disk)).collect();
        root.change_each(&mut |vdev| vdev.condition.offline = guids.contains(&vdev.guid));
        VdevTree::open(&self.host, &root, &shared())
    }

    /// Changes bytes behind the pool's back.
    pub fn spoil(&self, disk: usize, data_offset: u64, length: usize) {
        let start = data_offset + DATA_START_BYTES;
        self.disk(disk)
            .rot(start..start + u64::try_from(length).unwrap());
    }

    /// What is there, behind the pool's back.
    pub fn bytes(&self, disk: usize, data_offset: u64, length: u64) -> Vec<u8> {
        self.disk(disk)
            .peek(data_offset + DATA_START_BYTES, narrow(length))
    }

    /// What labels say about the pool as of a txg.
    pub fn facts(&self, txg: u64) -> PoolFacts {
        PoolFacts {
            version: 5000,
            name: Text::from("tank"),
            state: PoolState::Active,
            txg: Txg::from(txg),
            guid: POOL,
            errata: 0,
            comment: None,
            compatibility: None,
            host_id: 0,
            host_name: Text::from("here"),
            features_for_read: NvList::new(),
        }
    }

    /// Labels all devices as those of a new pool.
    pub fn label(&self, tree: &VdevTree) {
        for (index, top) in self.root.children.iter().enumerate() {
            for leaf in top.leaves() {
                let window = tree.leaf(leaf.guid).unwrap().window().unwrap();
                let list = self
                    .facts(0)
                    .first_label_of(&self.root, index, leaf, Txg::INITIAL);
                labels::create_labels(&window, &list).unwrap();
            }
        }
    }
}

/// Some tests open devices twice.
pub fn shared() -> OpenOptions {
    OpenOptions {
        mode: OpenMode::ReadWrite,
        ..OpenOptions::new_pool()
    }
}

/// The guid of a disk.
pub fn guid_of(disk: usize) -> Guid {
    Guid::from(100 + u64::try_from(disk).unwrap())
}

/// Where a disk is.
pub fn path(number: u64) -> String {
    format!("/dev/sim{number}")
}

pub fn operation() -> Operation {
    Operation::unmeasured()
}

/// A place on the first top-level vdev.
pub fn place(offset: u64, size: u64) -> Place {
    Place {
        vdev: VdevId::ZERO,
        offset: VdevOffset::from(offset),
        size,
        birth: Txg::INITIAL,
    }
}

/// Bytes that differ from place to place.
pub fn noise(place: Place) -> Vec<u8> {
    let mut state = place.offset.get() ^ (place.vdev.get() << 50) ^ 0x9e37_79b9;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..place.size).map(|_| next()).collect()
}

pub fn write(tree: &VdevTree, places: &[Place]) -> Result<(), VdevWriteError> {
    let write = |place: &Place| PhysicalWrite {
        place: *place,
        data: Arc::new(Buffer::from_slice(&noise(*place))),
    };
    tree.write(places.iter().map(write).collect(), &operation())
}

/// Reads a place, and accepts only what `write` puts there.
pub fn read(tree: &VdevTree, place: Place) -> Result<Buffer, VdevReadError> {
    let right = noise(place);
    tree.read(place, &|bytes| bytes == right, &operation())
}

/// How many checksum errors each leaf has.
pub fn checksum_errors(tree: &VdevTree) -> Vec<u64> {
    tree.leaves()
        .iter()
        .map(|leaf| leaf.errors.values().checksum)
        .collect()
}

/// Every choice of exactly `size` of `count` disks.
pub fn choices(count: usize, size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let with_last = |last: usize| {
        choices(last, size - 1).into_iter().map(move |mut chosen| {
            chosen.push(last);
            chosen
        })
    };
    (size - 1..count).flat_map(with_last).collect()
}
