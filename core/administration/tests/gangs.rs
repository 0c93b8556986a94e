//! Gang blocks: pools in which no free range is larger than a sector, so that every larger block is
//! a gang, space maps included.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tarn_block::{BlockScope, ForceGanging};
use tarn_cache::{Cache, CacheOptions};
use tarn_dataset::initialize::{FillError, FillFilesystem, NewFilesystem};
use tarn_dataset::ops::create::{CreateFilesystem, NameRules};
use tarn_dataset::ops::destroy::Destroy;
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_engine::inspect::visit::{BlockVisitor, FoundBlock, Reference};
use tarn_engine::inspect::{Inspection, Source};
use tarn_host::{Host, RealOptions};
use tarn_object::{MOS_ID, NewObject, ObjectError, ObjectSet, Tx, TxEstimate};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::SYNC_POINTER_LIST;
use tarn_ondisk::units::{Guid, PhysicalSize};
use tarn_pool::{CreateRequest, Leaving, NewVdev, Pool, PoolOwner};
use tarn_posix::{CaseSensitivity, FileOwnership, NewFileSystem, create_filesystem};
use tarn_probe::{Operation, registry};
use tarn_space::Class;
use tarn_vdev::{VdevConfig, VdevKind};

const IMAGE_BYTES: u64 = 128 << 20;

struct Fill;

impl FillFilesystem for Fill {
    fn fill(
        &self,
        tx: &Tx,
        set: &Arc<ObjectSet>,
        facts: &NewFilesystem,
        operation: &Operation,
    ) -> Result<(), FillError> {
        let new = NewFileSystem {
            version: facts.version,
            normalization: facts.normalization,
            is_utf8_only: facts.utf8_only,
            case: CaseSensitivity::Sensitive,
            uid: facts.user,
            gid: facts.group,
        };
        Ok(create_filesystem(tx, set, &new, operation)?)
    }
}

/// A pool on the file `disk` of a folder.
fn new_pool(host: &Host, folder: &Path, ashift: u32, operation: &Operation) -> Arc<Pool> {
    let path = folder.join("disk");
    let image = std::fs::File::create(&path).unwrap();
    image.set_len(IMAGE_BYTES).unwrap();
    let mut config = VdevConfig::new(VdevKind::File, Guid::ZERO);
    config.path = Some(path.to_str().unwrap().into());
    let features = Feature::ALL.iter().copied();
    let request = CreateRequest {
        name: "ganged",
        vdevs: vec![NewVdev {
            config,
            is_log: false,
        }],
        spares: Vec::new(),
        caches: Vec::new(),
        ashift: Some(ashift),
        features: features
            .filter(|feature| feature.is_enabled_by_default())
            .collect(),
        properties: Vec::new(),
        comment: None,
        compatibility: None,
        root_properties: Vec::new(),
        root_facts: NewFilesystem::default(),
        fill: Arc::new(Fill),
        ownership: Arc::new(FileOwnership),
        owner: PoolOwner::default(),
        version_text: "pool version 5000".to_string(),
    };
    let cache = Cache::new(host, CacheOptions::default(), registry());
    Pool::create(host, &cache, request, operation).unwrap()
}

/// Writes incompressible blocks to a new file, of which a part is freed again.
fn write_file(pool: &Pool, set: &Arc<ObjectSet>, seed: u64, operation: &Operation) {
    const BYTES: usize = 300 << 10;
    let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut contents = vec![0; BYTES];
    for byte in &mut contents {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        *byte = dice.to_le_bytes()[3];
    }
    let estimate = TxEstimate::writing(300 << 10);
    let tx = pool.txgs().assign(&estimate, operation).unwrap();
    let new = NewObject::plain(ObjectType::PlainFile, 128 << 10);
    let file = set.allocate(&tx, new, operation).unwrap();
    file.write(&tx, 0, &contents, operation).unwrap();
    drop(tx);
    pool.sync_all(operation).unwrap();
    let tx = pool.txgs().assign(&estimate, operation).unwrap();
    file.free_range(&tx, seed << 10, 100 << 10, operation)
        .unwrap();
}

/// Creates, fills, snapshots and destroys file systems, each step in a txg of its own.
fn change_much(pool: &Pool, operation: &Operation) {
    let sets = ["ganged/a", "ganged/b"].map(|name| {
        let create = CreateFilesystem {
            name: name.to_string(),
            settings: Vec::new(),
            rules: NameRules::default(),
            user: 0,
            group: 0,
            fill: Arc::new(Fill),
        };
        pool.run(create, operation).unwrap();
        let view = pool.namespace().view(operation);
        let directory = view.directory(name).unwrap().stored().unwrap();
        let set = pool.namespace().head_set(directory.head_dataset, operation);
        set.unwrap()
    });
    for round in 0..6 {
        for set in &sets {
            write_file(pool, set, round, operation);
        }
        let snapshots = TakeSnapshots {
            names: vec![format!("ganged/a@{round}")],
            settings: Vec::new(),
        };
        pool.run(snapshots, operation).unwrap();
    }
    drop(sets);
    let snapshots = DestroySnapshots {
        names: vec!["ganged/a@1".to_string(), "ganged/a@2".to_string()],
        defer: false,
    };
    pool.run(snapshots, operation).unwrap();
    let destroy = Destroy {
        name: "ganged/b".to_string(),
    };
    pool.run(destroy, operation).unwrap();
    while pool.namespace().has_more_to_free(operation).unwrap() {
        pool.sync_all(operation).unwrap();
    }
}

/// Reads every block, and sums their allocated sizes.
struct Census<'a> {
    pool: &'a Pool,
    operation: &'a Operation,
    /// The end of each DVA, by its beginning.
    places: BTreeMap<u64, u64>,
    /// Number of gang blocks in the MOS.
    gangs: u64,
}

impl Census<'_> {
    fn allocated(&self) -> u64 {
        let mut end_before = 0;
        let mut sum = 0;
        for (start, end) in &self.places {
            assert!(*start >= end_before, "two blocks are at {start:#x}");
            end_before = *end;
            sum += end - start;
        }
        sum
    }

    fn count(&mut self, pointer: &BlockPointer) {
        for place in self.pool.io().places(pointer, self.operation).unwrap() {
            let start = place.offset.get();
            let other = self.places.insert(start, start + place.size.get());
            assert!(other.is_none(), "two blocks are at {start:#x}");
        }
    }
}

impl BlockVisitor for Census<'_> {
    fn block(&mut self, found: &FoundBlock<'_>) {
        if found.pointer.kind() != PointerKind::Stored {
            return;
        }
        let is_of_mos = found.mark.objset == MOS_ID;
        self.gangs += u64::from(is_of_mos && found.pointer.is_gang());
        self.count(found.pointer);
        if found.reference == Reference::ObjectSet {
            let scope = BlockScope::of_visit(found.mark, found.pointer);
            let io = self.pool.io();
            io.read(found.pointer, scope, self.operation).unwrap();
        }
    }

    fn unreadable(&mut self, mark: &TraversalMark, why: &ObjectError) {
        panic!("{mark:?}: {why}");
    }
}

/// Opens the pool in a folder, and takes its census.
fn census_of(host: &Host, folder: &Path) -> (u64, u64) {
    let source = Source::Places(vec![folder.to_path_buf()]);
    let inspection = Inspection::open(host, &source, "ganged").unwrap();
    let mut census = Census {
        pool: inspection.pool(),
        operation: inspection.operation(),
        places: BTreeMap::new(),
        gangs: 0,
    };
    inspection.visit_used(&mut census).unwrap();
    inspection.visit_deferred(&mut census).unwrap();
    (census.allocated(), census.gangs)
}

#[test]
fn the_pool_stays_consistent_where_every_larger_block_is_a_gang() {
    for ashift in [9, 12] {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::real(RealOptions::default());
        let operation = Operation::unmeasured();
        let pool = new_pool(&host, folder.path(), ashift, &operation);
        pool.io().force_ganging(ForceGanging {
            from: PhysicalSize::new((1 << ashift) + 1),
            percent: 100,
            seed: 1,
        });
        change_much(&pool, &operation);
        pool.close(Leaving::Exported, &operation).unwrap();
        let passes = pool.passes_max();
        assert!((3..10).contains(&passes), "{passes} passes");
        let classes = [Class::Normal, Class::EmbeddedLog];
        let allocated = classes.map(|class| pool.space().class_totals(class).allocated.get());
        drop(pool);
        let (found, gangs) = census_of(&host, folder.path());
        assert_eq!(found, allocated.iter().sum::<u64>(), "nothing leaks");
        // With large sectors nearly all blocks of the MOS fit into one in the end.
        assert!(gangs > 5 || ashift == 12, "{gangs} gangs in the MOS");
    }
}

/// It is stored in nearly every txg, and not compressed: the larger its blocks, the sooner there is
/// no contiguous room for them.
#[test]
fn the_list_of_deferred_frees_has_blocks_of_16_kib() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::real(RealOptions::default());
    let operation = Operation::unmeasured();
    let pool = new_pool(&host, folder.path(), 12, &operation);
    let list = pool.directory(&operation).find(SYNC_POINTER_LIST).unwrap();
    let list = pool.mos().object(list.unwrap(), &operation).unwrap();
    assert_eq!(list.info().block_size.get(), 16 << 10);
    pool.close(Leaving::Exported, &operation).unwrap();
}
