//! `zdb` on exported pools, consistent and damaged.
//!
//! Each test makes a pool of one file, changes it, exports it, and runs the program on it.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use tarn_cache::{Cache, CacheOptions};
use tarn_dataset::initialize::{FillError, FillFilesystem, NewFilesystem};
use tarn_host::{Host, RealOptions};
use tarn_object::{ObjectSet, Tx, TxEstimate};
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::{Encoding, NvList};
use tarn_ondisk::units::{AllocatedSize, Guid};
use tarn_pool::{CommandRecord, CreateRequest, Leaving, NewVdev, Pool, PoolOwner};
use tarn_posix::{CaseSensitivity, FileOwnership, NewFileSystem, create_filesystem};
use tarn_probe::{Operation, registry};
use tarn_space::Class;
use tarn_vdev::{VdevConfig, VdevKind};

/// The pool's only device.
const IMAGE: &str = "disk";

/// Its size.
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

/// Makes the pool `tank` in a folder, calls `change`, and exports the pool.
fn exported_pool(folder: &Path, change: impl FnOnce(&Pool, &Operation)) {
    let path = folder.join(IMAGE);
    std::fs::File::create(&path)
        .unwrap()
        .set_len(IMAGE_BYTES)
        .unwrap();
    let mut config = VdevConfig::new(VdevKind::File, Guid::ZERO);
    config.path = Some(path.to_str().unwrap().into());
    let features = Feature::ALL.iter().copied();
    let request = CreateRequest {
        name: "tank",
        vdevs: vec![NewVdev {
            config,
            is_log: false,
        }],
        spares: Vec::new(),
        caches: Vec::new(),
        ashift: Some(12),
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
    let host = Host::real(RealOptions::default());
    let cache = Cache::new(&host, CacheOptions::default(), registry());
    let operation = Operation::unmeasured();
    let pool = Pool::create(&host, &cache, request, &operation).unwrap();
    change(&pool, &operation);
    let command = CommandRecord {
        call: None,
        command: "zpool create tank disk".to_string(),
        user: 0,
        host_name: "here".to_string(),
    };
    pool.record_command(command, &operation).unwrap();
    pool.close(Leaving::Exported, &operation).unwrap();
}

/// Runs the program on the pool in a folder.
fn zdb(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zdb"))
        .args(["-e", "-p"])
        .arg(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn without_arguments_the_cache_file_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zpool.cache");
    let pools = NvList::new().with("tank", NvList::new().with("version", 5000u64));
    std::fs::write(&path, pools.encode(Encoding::Xdr)).unwrap();
    for option in ["-C", "-d"] {
        let mut zdb = Command::new(env!("CARGO_BIN_EXE_zdb"));
        let shown = zdb.arg(option).arg("-U").arg(&path).output().unwrap();
        assert_eq!(shown.status.success(), option == "-C", "{option}");
    }
    let mut zdb = Command::new(env!("CARGO_BIN_EXE_zdb"));
    let shown = zdb.arg("-U").arg(&path).output().unwrap();
    assert_eq!(shown.status.code(), Some(0));
    assert_eq!(text(&shown), "tank:\n    version: 5000\n");
}

#[test]
fn a_consistent_pool_has_no_leaks() {
    let folder = tempfile::tempdir().unwrap();
    exported_pool(folder.path(), |_, _| {});
    let blocks = zdb(folder.path(), &["-bbcc", "tank"]);
    let said = text(&blocks);
    assert_eq!(blocks.status.code(), Some(0), "{said}");
    assert!(
        said.contains("No leaks (block sum matches space maps exactly)"),
        "{said}"
    );
    assert!(said.contains("\tMetadata Total\n"), "{said}");
    let objects = zdb(folder.path(), &["-dddddd", "tank"]);
    let said = text(&objects);
    assert_eq!(objects.status.code(), Some(0), "{said}");
    assert!(said.contains("Dataset mos [META], ID 0, "), "{said}");
    assert!(said.contains("Dataset tank [ZPL], "), "{said}");
    assert!(
        said.contains("Verified large_dnode feature refcount of"),
        "{said}"
    );
    for (arguments, wanted) in [
        (&["-u", "tank"][..], "\tmagic = 0000000000bab10c\n"),
        (&["-C", "tank"], "        name: 'tank'\n"),
        (&["-h", "tank"], " zpool create tank disk\n"),
        (&["-mmm", "tank", "0", "1"], "\tmetaslab      1   offset "),
        (&["-S", "tank"], "Simulated DDT histogram:\n"),
        (
            &["-S", "all:all", "tank"],
            "\t3\tDMU objset\tfletcher4\toff\t",
        ),
        (&["-d", "tank/", "1"], "object directory"),
    ] {
        let output = zdb(folder.path(), arguments);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn allocated_space_without_a_pointer_is_a_leak() {
    let folder = tempfile::tempdir().unwrap();
    exported_pool(folder.path(), |pool, operation| {
        let tx = pool
            .txgs()
            .assign(&TxEstimate::default(), operation)
            .unwrap();
        let size = |_| AllocatedSize::from(3 << 12);
        let places = pool
            .space()
            .allocate(Class::Normal, 1, &[], &size, tx.txg());
        assert_eq!(places.unwrap().len(), 1);
    });
    let output = zdb(folder.path(), &["-b", "tank"]);
    let said = text(&output);
    assert!(said.contains("leaked space: vdev 0, offset 0x"), "{said}");
    assert!(said.contains(", size 12288\n"), "{said}");
    assert!(said.contains("(leaked 12288)"), "{said}");
    assert!(!said.contains("No leaks"), "{said}");
    let untracked = zdb(folder.path(), &["-bL", "tank"]);
    assert!(!text(&untracked).contains("leaked"), "{}", text(&untracked));
}

/// The space maps are changed to have the root of the pool's first dataset free: it may be
/// allocated again.
#[test]
fn a_block_that_space_maps_do_not_have_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    exported_pool(folder.path(), |pool, operation| {
        let view = pool.namespace().view(operation);
        let head = view.root().unwrap().head().unwrap().unwrap();
        let root = head.stored().unwrap().root;
        let place = root.dvas().next().unwrap();
        let tx = pool
            .txgs()
            .assign(&TxEstimate::default(), operation)
            .unwrap();
        let (vdev, offset, size) = (place.vdev(), place.offset(), place.allocated_size());
        pool.space()
            .free(vdev, offset, size, root.birth(), tx.txg())
            .unwrap();
    });
    let output = zdb(folder.path(), &["-b", "tank"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("block claim error 2: DVA[0]=<0:"), "{said}");
    assert!(!said.contains("No leaks"), "{said}");
}

/// Bytes all over the image are overwritten, some ten of them in each round. In each case the
/// program ends by itself and prints what it can.
#[test]
fn a_damaged_image_gives_errors_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    exported_pool(folder.path(), |_, _| {});
    let path = folder.path().join(IMAGE);
    let whole = std::fs::read(&path).unwrap();
    let used: Vec<usize> = whole
        .chunks(512)
        .enumerate()
        .filter(|(_, sector)| sector.iter().any(|byte| *byte != 0))
        .map(|(index, _)| index)
        .collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..6 {
        let mut damaged = whole.clone();
        for _ in 0..10 + 120 * round {
            let sector = used[usize::try_from(random()).unwrap() % used.len()];
            let at = sector * 512 + usize::try_from(random()).unwrap() % 512;
            damaged[at] ^= 1 << (random() % 8);
        }
        std::fs::write(&path, &damaged).unwrap();
        for arguments in [
            &["-bcc", "tank"][..],
            &["-dddddd", "tank"],
            &["-mmm", "tank"],
        ] {
            let output = zdb(folder.path(), arguments);
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            let code = output.status.code();
            assert!(
                code.is_some_and(|code| code < 4),
                "{arguments:?}: {code:?} {complaint}"
            );
            assert!(
                !complaint.contains("panicked"),
                "{arguments:?}: {complaint}"
            );
        }
    }
}
