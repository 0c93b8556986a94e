//! The lower layers of a pool on plain files, for the tests of the layers above.
//!
//! # Mechanism
//! [`Stack`] is what `pool` assembles below objects: a host, files as devices, the vdev tree, space
//! and the block pipelines. Nothing is stored of it: no labels, no MOS. [`Stack::env`] adds the
//! cache and the transaction groups. Tests of `block`, `object`, `dataset` and `posix` begin from
//! here, and store groups in their own way.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use tarn_block::{
    BlockIo, BlockIoOptions, DatasetPolicy, Embedding, RedundantMetadata, RefTable, Repair,
};
use tarn_cache::{Cache, CacheOptions, PoolCache};
use tarn_host::{Host, RealOptions};
use tarn_object::{ObjectEnv, TxgLimits, Txgs};
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::label::{DATA_START_BYTES, data_size};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg, VdevId};
use tarn_probe::Registry;
use tarn_space::{Class, Geometry, Space, SpaceOptions};
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm, Salt};
use tarn_vdev::{OpenOptions, TopLevelConfig, VdevConfig, VdevKind, VdevTree};
use tempfile::TempDir;

/// What the cache of a stack may take.
const CACHE_BYTES: u64 = 16 << 20;

/// How blocks of a dataset are stored with the default properties.
pub const BLOCKS: DatasetPolicy = DatasetPolicy {
    checksum: ChecksumAlgorithm::Fletcher4,
    compression: CompressionAlgorithm::Lz4,
    metadata_compression: CompressionAlgorithm::Lz4,
    copies: 1,
    redundant_metadata: RedundantMetadata::All,
    special_small_blocks: 0,
    embedding: Embedding::Allowed,
};

/// The devices of a stack: plain files, each a top-level vdev.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many files.
    pub disks: u64,
    /// The size of each, labels included. At least 64 MiB.
    pub file_bytes: u64,
    /// How much of each `space` hands out; none for all that is in whole metaslabs.
    pub space_bytes: Option<u64>,
    /// The power of two of the size of a metaslab.
    pub metaslab_shift: u32,
    /// The power of two of the smallest allocation.
    pub ashift: u32,
}

impl Default for Shape {
    /// One file of 256 MiB, with metaslabs of 16 MiB and sectors of 4 KiB.
    fn default() -> Shape {
        Shape {
            disks: 1,
            file_bytes: 256 << 20,
            space_bytes: None,
            metaslab_shift: 24,
            ashift: 12,
        }
    }
}

/// Options of the block pipelines: a copy that does not verify is written anew.
pub fn repairing() -> BlockIoOptions {
    BlockIoOptions {
        repair: Repair::Rewrite,
        ..BlockIoOptions::default()
    }
}

/// A host, devices, space and block pipelines. The files go when it is dropped.
pub struct Stack {
    /// The machine.
    pub host: Host,
    /// The block pipelines.
    pub io: Arc<BlockIo>,
    /// What is free.
    pub space: Arc<Space>,
    folder: TempDir,
}

impl Stack {
    /// Makes the files and opens them.
    ///
    /// # Panics
    /// When the machine has no room for them.
    pub fn new(
        shape: Shape,
        options: BlockIoOptions,
        references: Option<Arc<dyn RefTable>>,
    ) -> Stack {
        let folder = tempfile::tempdir().expect("there is a temporary folder");
        let options_of_host = RealOptions::from_environment().expect("the environment is right");
        let host = Host::real(options_of_host);
        let space = Arc::new(Space::new(SpaceOptions::default()));
        for disk in 0..shape.disks {
            space.add_vdev(VdevId::new(disk), shape.geometry(), Vec::new());
        }
        let vdevs = open_vdevs(&host, &folder, shape);
        let io = BlockIo::new(host.clone(), vdevs, space.clone(), references, options);
        io.set_salt(Salt::new([7; 32]));
        Stack {
            host,
            io: Arc::new(io),
            space,
            folder,
        }
    }

    /// A cache with nothing in it, and transaction groups behind `stored`.
    pub fn env(&self, stored: Txg, limits: TxgLimits) -> Arc<ObjectEnv> {
        let options = CacheOptions {
            budget_bytes: CACHE_BYTES,
            ..CacheOptions::default()
        };
        let cache = Cache::new(&self.host, options, &Registry::default());
        let cache = PoolCache::new(cache, self.io.clone());
        ObjectEnv::new(self.host.clone(), cache, Txgs::new(stored, limits))
    }

    /// The file of a disk.
    pub fn path(&self, disk: VdevId) -> PathBuf {
        path_of(&self.folder, disk.get())
    }

    /// Turns the first bits of all copies of a block around, or back.
    ///
    /// # Panics
    /// When the files cannot be written.
    pub fn flip(&self, pointer: &BlockPointer) {
        pointer
            .dvas()
            .for_each(|dva| self.change(dva, 0, |byte| !byte));
    }

    /// Changes eight bytes of a copy, which begin `at` bytes behind its start.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn change(&self, dva: Dva, at: u64, change: impl Fn(u8) -> u8) {
        let disk = File::options()
            .read(true)
            .write(true)
            .open(self.path(dva.vdev()));
        let disk = disk.expect("the disk is there");
        let offset = DATA_START_BYTES + dva.offset().get() + at;
        let mut bytes = [0; 8];
        disk.read_exact_at(&mut bytes, offset)
            .expect("the disk is read");
        disk.write_all_at(&bytes.map(change), offset)
            .expect("the disk is written");
    }
}

impl Shape {
    fn geometry(self) -> Geometry {
        let whole = data_size(self.file_bytes).expect("a file has room for labels");
        Geometry {
            size: self.space_bytes.map_or_else(
                || whole.round_down(1 << self.metaslab_shift),
                AllocatedSize::new,
            ),
            metaslab_shift: self.metaslab_shift,
            ashift: self.ashift,
            class: Class::Normal,
        }
    }
}

fn path_of(folder: &TempDir, disk: u64) -> PathBuf {
    folder.path().join(format!("disk{disk}"))
}

fn open_vdevs(host: &Host, folder: &TempDir, shape: Shape) -> Arc<VdevTree> {
    let mut root = VdevConfig::new(VdevKind::Root, Guid::new(4711));
    for disk in 0..shape.disks {
        let path = path_of(folder, disk);
        let file = File::create(&path).expect("the folder takes files");
        file.set_len(shape.file_bytes)
            .expect("there is room for the disk");
        let mut leaf = VdevConfig::new(VdevKind::File, Guid::new(100 + disk));
        leaf.path = Some(Text::from(path.to_str().expect("paths of tests are text")));
        leaf.top_level = Some(TopLevelConfig {
            metaslab_array: ObjectId::ZERO,
            metaslab_shift: shape.metaslab_shift,
            ashift: shape.ashift,
            asize: data_size(shape.file_bytes).expect("a file has room for labels"),
            is_log: false,
            non_allocating: false,
            removing: false,
        });
        root.children.push(leaf);
    }
    root.number_children();
    VdevTree::open(host, &root, &OpenOptions::new_pool()).expect("the files are there")
}

/// A block by its place and births, as ledgers of tests know it; none for holes and embedded ones.
pub fn key_of(pointer: &BlockPointer) -> Option<(u64, u64, u64, u64)> {
    let dva = pointer.dvas().next()?;
    Some((
        dva.vdev().get(),
        dva.offset().get(),
        pointer.physical_birth().get(),
        pointer.logical_birth.get(),
    ))
}
