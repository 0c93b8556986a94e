//! A pool of plain files, for the tests of the pipelines.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tarn_block::{
    Block, BlockIo, BlockIoOptions, BlockKind, BlockScope, DatasetPolicy, Embedding, ReadError,
    ReadRequest, RedundantMetadata, Repair, WritePhase, WritePolicy, WriteRequest,
};
use tarn_host::{Host, RealOptions};
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::label::{DATA_START_BYTES, data_size};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{AllocatedSize, Guid, Level, LogicalSize, ObjectId, Txg, VdevId};
use tarn_probe::{Operation, OperationKind};
use tarn_space::{Class, Geometry, Space, SpaceOptions};
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm, Salt};
use tarn_vdev::{OpenOptions, TopLevelConfig, VdevConfig, VdevKind, VdevTree};
use tempfile::TempDir;

/// What space may use of a file.
pub const DISK_BYTES: u64 = 8 << 20;
/// As small as files of a pool may be.
const FILE_BYTES: u64 = 64 << 20;
pub const METASLAB_SHIFT: u32 = 20;
pub const TXG: Txg = Txg::new(100);

/// Where the blocks of these tests belong.
pub const SCOPE: BlockScope = BlockScope {
    mark: TraversalMark {
        objset: ObjectId::new(54),
        object: ObjectId::new(7),
        level: 0,
        block: 0,
    },
    kind: BlockKind::Data,
};

pub struct Pool {
    pub io: Arc<BlockIo>,
    pub space: Arc<Space>,
    host: Host,
    folder: TempDir,
}

pub fn phase(pass: u32) -> WritePhase {
    WritePhase { txg: TXG, pass }
}

pub fn options() -> BlockIoOptions {
    BlockIoOptions {
        repair: Repair::Rewrite,
        ..BlockIoOptions::default()
    }
}

impl Pool {
    pub fn new(disks: u64, ashift: u32, options: BlockIoOptions) -> Pool {
        let space = Arc::new(Space::new(SpaceOptions::default()));
        for id in 0..disks {
            let geometry = Geometry {
                size: AllocatedSize::new(DISK_BYTES),
                metaslab_shift: METASLAB_SHIFT,
                ashift,
                class: Class::Normal,
            };
            space.add_vdev(VdevId::new(id), geometry, Vec::new());
        }
        let folder = tempfile::tempdir().unwrap();
        let host = Host::real(RealOptions::from_environment().unwrap());
        let vdevs = open_vdevs(&host, &folder, disks, ashift);
        let io = BlockIo::new(host.clone(), vdevs, space.clone(), None, options);
        io.set_salt(Salt::new([7; 32]));
        let io = Arc::new(io);
        Pool {
            io,
            space,
            host,
            folder,
        }
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Changes a byte of a place on its disk.
    pub fn damage(&self, dva: Dva, at: u64) {
        let path = self.folder.path().join(dva.vdev().to_string());
        let file = File::options().read(true).write(true).open(path).unwrap();
        let offset = DATA_START_BYTES + dva.offset().get() + at;
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        byte[0] ^= 0x40;
        file.write_all_at(&byte, offset).unwrap();
    }

    /// All that a disk has.
    pub fn copy_of(&self, disk: VdevId) -> Vec<u8> {
        let path = self.folder.path().join(disk.to_string());
        let mut bytes = vec![0; usize::try_from(DISK_BYTES).unwrap()];
        let file = File::open(path).unwrap();
        file.read_exact_at(&mut bytes, DATA_START_BYTES).unwrap();
        bytes
    }

    /// Makes a disk what it was.
    pub fn put_back(&self, disk: VdevId, bytes: &[u8]) {
        let path = self.folder.path().join(disk.to_string());
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(bytes, DATA_START_BYTES).unwrap();
    }

    /// Takes all that a disk has.
    pub fn lose(&self, disk: VdevId) {
        let path = self.folder.path().join(disk.to_string());
        let file = File::options().write(true).open(path).unwrap();
        let zeros = vec![0; usize::try_from(DISK_BYTES).unwrap()];
        file.write_all_at(&zeros, DATA_START_BYTES).unwrap();
    }

    pub fn write(&self, requests: Vec<WriteRequest>, pass: u32) -> Vec<BlockPointer> {
        self.io
            .write(requests, phase(pass), &Operation::unmeasured())
            .unwrap()
    }

    pub fn write_one(&self, data: &[u8], policy: WritePolicy) -> BlockPointer {
        self.write(vec![request(data, policy)], 1)[0]
    }

    pub fn read(&self, pointer: &BlockPointer) -> Block {
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Read);
        self.io.read(pointer, SCOPE, &operation).unwrap()
    }

    /// Reads a block as a batch of its own.
    pub fn read_many(&self, pointers: &[BlockPointer]) -> Vec<Result<Block, ReadError>> {
        let plain = |pointer: &BlockPointer| ReadRequest::plain(*pointer, SCOPE);
        let requests: Vec<ReadRequest> = pointers.iter().map(plain).collect();
        self.io.read_many(&requests, &Operation::unmeasured())
    }

    pub fn free(&self, pointer: &BlockPointer) {
        self.io
            .free(pointer, phase(1), &Operation::unmeasured())
            .unwrap();
    }

    pub fn allocated(&self) -> u64 {
        self.space.class_totals(Class::Normal).allocated.get()
    }
}

fn open_vdevs(host: &Host, folder: &TempDir, disks: u64, ashift: u32) -> Arc<VdevTree> {
    let mut root = VdevConfig::new(VdevKind::Root, Guid::new(4711));
    for id in 0..disks {
        let path = folder.path().join(id.to_string());
        File::create(&path).unwrap().set_len(FILE_BYTES).unwrap();
        let mut leaf = VdevConfig::new(VdevKind::File, Guid::new(100 + id));
        leaf.path = Some(Text::from(path.to_str().unwrap()));
        leaf.top_level = Some(TopLevelConfig {
            metaslab_array: ObjectId::ZERO,
            metaslab_shift: METASLAB_SHIFT,
            ashift,
            asize: data_size(FILE_BYTES).unwrap(),
            is_log: false,
            non_allocating: false,
            removing: false,
        });
        root.children.push(leaf);
    }
    root.number_children();
    VdevTree::open(host, &root, &OpenOptions::new_pool()).unwrap()
}

pub fn request(data: &[u8], policy: WritePolicy) -> WriteRequest {
    WriteRequest {
        data: Block::from_slice(data),
        logical_size: LogicalSize::of(data),
        policy,
        previous: BlockPointer::HOLE,
        given: None,
        sealing: None,
    }
}

pub const DATASET: DatasetPolicy = DatasetPolicy {
    checksum: ChecksumAlgorithm::Fletcher4,
    compression: CompressionAlgorithm::Lz4,
    metadata_compression: CompressionAlgorithm::Lz4,
    copies: 1,
    redundant_metadata: RedundantMetadata::All,
    special_small_blocks: 0,
    embedding: Embedding::Allowed,
};

pub fn file_policy() -> WritePolicy {
    policy(&DATASET)
}

pub fn policy(dataset: &DatasetPolicy) -> WritePolicy {
    dataset.for_block(
        ObjectType::PlainFile,
        Level::ZERO,
        tarn_block::BlockRole::Tree,
        131072,
        1,
    )
}

/// Bytes that do not compress.
pub fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

/// Bytes that compress to about a quarter.
pub fn text(size: usize, seed: u64) -> Vec<u8> {
    let words = noise(size, seed);
    (0..size)
        .map(|index| words[index / 16 % (size / 4).max(1)] & 0x3f | 0x20)
        .collect()
}
