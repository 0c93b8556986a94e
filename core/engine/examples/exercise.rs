//! Makes a pool of files, fills and changes it, imports it again and changes it more, without a daemon.
//!
//! `cargo run --example exercise FOLDER LAYOUT [ASHIFT]`, where LAYOUT is `single`, `stripe`, `mirror`, `mirror3`, `raidz1`,
//! `raidz2` or `raidz3`; or `import`, for a pool that is there. The pool is exported in the end: for a look at it with other programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tarn_cache::{Cache, CacheOptions};
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::initialize::{FillError, FillFilesystem, NewFilesystem};
use tarn_host::{Host, RealOptions};
use tarn_object::{ObjectSet, Tx};
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{Guid, ObjectId};
use tarn_pool::{CreateRequest, ImportRequest, Leaving, Mode, NewVdev, Pool, PoolOwner};
use tarn_posix::properties::MountProperties;
use tarn_posix::types::{Credentials, DeviceNumber, FileKind, NewFile};
use tarn_posix::{
    CaseSensitivity, FileOwnership, FileSystem, FileSystemParts, NewFileSystem, SpaceDoor, WriteAt,
    create_filesystem,
};
use tarn_probe::{Operation, registry};
use tarn_vdev::import_search::{DevicePaths, pools, search};
use tarn_vdev::{Need, VdevConfig, VdevKind};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

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

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: exercise FOLDER LAYOUT")?);
    let layout = arguments.next().unwrap_or_else(|| "single".to_string());
    let ashift = arguments.next().map(|text| text.parse()).transpose()?;
    let host = Host::real(RealOptions::from_environment()?);
    let cache = Cache::new(&host, CacheOptions::default(), registry());
    let operation = Operation::unmeasured();
    if layout != "import" {
        let pool = create(&host, &cache, &folder, &layout, ashift, &operation)?;
        println!("created at txg {:?}", pool.uberblock().txg);
        fill(&pool, 1, &operation)?;
        pool.close(Leaving::Exported, &operation)?;
        println!("exported");
    }
    let pool = import(&host, &cache, &folder, &operation)?;
    println!("imported at txg {:?}", pool.uberblock().txg);
    let filled = fill(&pool, 2, &operation);
    if let Some(why) = pool.failure() {
        println!("suspended: {why}");
    }
    filled?;
    pool.close(Leaving::Exported, &operation)?;
    Ok(())
}

fn create(
    host: &Host,
    cache: &Arc<Cache>,
    folder: &Path,
    layout: &str,
    ashift: Option<u32>,
    operation: &Operation,
) -> Outcome<Arc<Pool>> {
    let (kind, count, tops) = match layout {
        "single" => (VdevKind::File, 1, 1),
        "stripe" => (VdevKind::File, 1, 3),
        "mirror" => (VdevKind::Mirror, 2, 1),
        "mirror3" => (VdevKind::Mirror, 3, 1),
        "raidz1" => (VdevKind::Raidz { parity: 1 }, 3, 1),
        "raidz2" => (VdevKind::Raidz { parity: 2 }, 5, 1),
        "raidz3" => (VdevKind::Raidz { parity: 3 }, 7, 1),
        _ => return Err("unknown layout".into()),
    };
    let mut vdevs = Vec::new();
    let mut number = 0;
    for _ in 0..tops {
        let mut leaves = Vec::new();
        for _ in 0..count {
            let path = folder.join(format!("disk{number}"));
            number += 1;
            std::fs::File::create(&path)?.set_len(256 << 20)?;
            let mut leaf = VdevConfig::new(VdevKind::File, Guid::ZERO);
            leaf.path = Some(path.to_str().ok_or("path")?.into());
            leaves.push(leaf);
        }
        let config = match kind {
            VdevKind::File => leaves.remove(0),
            kind => {
                let mut config = VdevConfig::new(kind, Guid::ZERO);
                config.children = leaves;
                config
            }
        };
        vdevs.push(NewVdev {
            config,
            is_log: false,
        });
    }
    let features = Feature::ALL.iter().copied();
    let request = CreateRequest {
        name: "tank",
        vdevs,
        spares: Vec::new(),
        ashift,
        features: features.filter(|f| f.is_enabled_by_default()).collect(),
        properties: Vec::new(),
        comment: None,
        compatibility: None,
        root_properties: Vec::new(),
        root_facts: NewFilesystem::default(),
        fill: Arc::new(Fill),
        ownership: Arc::new(FileOwnership),
        owner: owner(),
        version_text: "pool version 5000; software version tarn".to_string(),
    };
    Ok(Pool::create(host, cache, request, operation)?)
}

fn owner() -> PoolOwner {
    PoolOwner {
        host_id: 0x7461_726e,
        host_name: "tarn".to_string(),
    }
}

fn import(
    host: &Host,
    cache: &Arc<Cache>,
    folder: &Path,
    operation: &Operation,
) -> Outcome<Arc<Pool>> {
    let result = search(host, &[folder.to_path_buf()]);
    let (candidates, _) = pools(&result);
    let paths = DevicePaths::of(&result);
    let candidate = candidates.first().ok_or("no pool")?;
    let request = ImportRequest {
        candidate,
        paths: &paths,
        name: None,
        mode: Mode::ReadWrite,
        need: Need::All,
        owner: owner(),
    };
    Ok(Pool::import(host, cache, &request, operation)?)
}

/// Changes every file system of a pool.
fn fill(pool: &Arc<Pool>, round: u64, operation: &Operation) -> Outcome<()> {
    pool.namespace().set_ownership(Arc::new(FileOwnership));
    let view = pool.namespace().view(operation);
    let mut waiting = vec![view.root()?];
    let mut heads = Vec::new();
    while let Some(directory) = waiting.pop() {
        waiting.extend(directory.children()?);
        let Some(head) = directory.head()? else {
            continue;
        };
        if let Contents::Filesystem(_) = contents::read(&head)? {
            heads.push((directory.name().to_string(), head.id()));
        }
    }
    for (name, id) in heads {
        println!("filling {name}");
        fill_head(pool, id, round, operation)?;
    }
    Ok(())
}

fn fill_head(pool: &Arc<Pool>, id: ObjectId, round: u64, operation: &Operation) -> Outcome<()> {
    let namespace = pool.namespace();
    let set = namespace.head_set(id, operation)?;
    let parts = FileSystemParts {
        set,
        txgs: Some(pool.txgs().clone()),
        properties: MountProperties::default(),
        host: pool.host().clone(),
        space: SpaceDoor::unlimited(),
        snapshots: None,
    };
    let files = FileSystem::open(parts, operation)?;
    let root = files.root();
    let folder = make(
        &files,
        root,
        &format!("round{round}"),
        FileKind::Directory,
        operation,
    )?;
    let mut made = Vec::new();
    for number in 0..200_u64 {
        let name = format!("file{number}");
        let file = make(&files, folder, &name, FileKind::Regular, operation)?;
        let size = usize::try_from((number * number * 997) % 700_000)?;
        write(&files, file, number, size, operation)?;
        made.push((name, file, size));
        if number % 50 == 49 {
            pool.sync_all(operation)?;
        }
    }
    for (index, (name, file, size)) in made.iter().enumerate() {
        match index % 4 {
            0 => files.unlink(&Credentials::root(), folder, name.as_bytes(), operation)?,
            1 => write(&files, *file, 7, size / 2, operation)?,
            _ => {}
        }
    }
    pool.sync_all(operation)?;
    for (index, (_, file, size)) in made.iter().enumerate() {
        if index % 4 > 1 {
            let data = files.read(&Credentials::root(), *file, 0, *size, operation)?;
            let wanted = bytes(u64::try_from(index)?, *size);
            assert!(data.to_vec() == wanted, "file {index} reads as written");
        }
    }
    println!(
        "filled; {} bytes in use",
        pool.namespace()
            .view(operation)
            .root()?
            .stored()?
            .used
            .get()
    );
    Ok(())
}

fn make(
    files: &Arc<FileSystem>,
    parent: ObjectId,
    name: &str,
    kind: FileKind,
    operation: &Operation,
) -> Outcome<ObjectId> {
    let new = NewFile {
        kind,
        permissions: 0o755,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    let made = files.create(
        &Credentials::root(),
        parent,
        name.as_bytes(),
        &new,
        operation,
    )?;
    Ok(made.id)
}

fn bytes(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..size)
        .map(|place| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Half of it compresses.
            if (place / 4096) % 2 == 0 {
                (state >> 56) as u8
            } else {
                (seed & 0xff) as u8
            }
        })
        .collect()
}

fn write(
    files: &Arc<FileSystem>,
    file: ObjectId,
    seed: u64,
    size: usize,
    operation: &Operation,
) -> Outcome<()> {
    let data = bytes(seed, size);
    let mut at = 0;
    for part in data.chunks(100_000) {
        let written = files.write(
            &Credentials::root(),
            file,
            WriteAt::Offset(u64::try_from(at)?),
            part,
            operation,
        )?;
        assert_eq!(written, part.len());
        at += part.len();
    }
    Ok(())
}
