//! The kernel's caches of a mount against stored data: pages of mapped files, attributes, access
//! control lists.

use super::*;
use rustix::fs::{CWD, IFlags, StatVfsMountFlags, Timespec, Timestamps};
use tarn_administration::messages::dataset::Inherit;
use tarn_workload::mapped::Mapping;

const BYTES: usize = 64 << 10;

/// A mapped file with stores that have not reached the file system.
struct Mapped {
    file: File,
    memory: Mapping,
}

impl Mapped {
    fn new(path: &Path) -> Mapped {
        let open = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path);
        let file = open.unwrap();
        file.set_len(BYTES as u64).unwrap();
        let mut memory = Mapping::new(&file, BYTES).unwrap();
        memory.copy_in(0, &[b'D'; BYTES]);
        Mapped { file, memory }
    }
}

fn is_kept(path: &Path) -> bool {
    fs::read(path).unwrap() == [b'D'; BYTES]
}

#[test]
fn a_forced_unmount_writes_back_mapped_files() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let mapped = Mapped::new(&path.join("forced"));
    bench.unmount("tank/a", true).unwrap();
    drop(mapped);
    bench.mount("tank/a");
    assert!(is_kept(&path.join("forced")));
    // Unmounted everywhere, and still in use.
    let mapped = Mapped::new(&path.join("undone"));
    rustix::mount::unmount(&path, UnmountFlags::DETACH).unwrap();
    bench.unmount("tank/a", true).unwrap();
    drop(mapped);
    bench.mount("tank/a");
    assert!(is_kept(&path.join("undone")));
}

#[test]
fn closing_pools_writes_back_mapped_files() {
    let Some(bench) = Bench::new() else { return };
    let names = ["tank/a", "tank/b", "tank/c"];
    let paths = names.map(|name| bench.create(name, &[]).join("file"));
    let mapped = paths.each_ref().map(|path| Mapped::new(path));
    assert_eq!(bench.engine.stop(), Vec::new());
    drop(mapped);
    let import = pool::Import {
        search: pool::Search {
            places: vec![bench.folder.path().join("disk").display().to_string()],
            ..pool::Search::default()
        },
        pool: Some("tank".to_string()),
        altroot: Some(bench.folder.path().join("mnt").display().to_string()),
        ..pool::Import::default()
    };
    let imported = bench.administrator.pool_import(&call(), import).unwrap();
    assert_eq!(imported.warnings, Vec::<String>::new());
    assert!(paths.iter().all(|path| is_kept(path)));
}

#[test]
fn a_read_only_remount_writes_back_mapped_files() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let mapped = Mapped::new(&path.join("file"));
    set(&bench, "tank/a", "readonly", "on");
    mapped.memory.flush().unwrap();
    assert!(mapped.file.write_at(b"x", 0).is_err());
    drop(mapped);
    bench.unmount("tank/a", false).unwrap();
    bench.mount("tank/a");
    assert!(is_kept(&path.join("file")));
}

#[test]
fn a_forced_unmount_reports_failed_write_back_of_mapped_files() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let mapped = Mapped::new(&path.join("file"));
    rustix::fs::ioctl_setflags(&mapped.file, IFlags::IMMUTABLE).unwrap();
    let refused = bench.unmount("tank/a", true).unwrap_err().to_string();
    let why = format!(
        "cannot unmount '{}': what programs have stored in mapped files cannot be written: \
         Operation not permitted",
        path.display(),
    );
    assert_eq!(refused, why);
    assert!(path.join("file").exists(), "it is still mounted");
    bench.unmount("tank/a", true).unwrap();
    assert!(!path.join("file").exists());
}

pub(super) fn set(bench: &Bench, name: &str, property: &str, value: &str) {
    let set = Set {
        name: name.to_string(),
        properties: vec![(property.to_string(), value.to_string())],
        no_mount: false,
    };
    bench.administrator.dataset_set(&call(), set).unwrap();
}

fn inherit(bench: &Bench, name: &str, property: &str) {
    let inherit = Inherit {
        name: name.to_string(),
        property: property.to_string(),
        ..Inherit::default()
    };
    bench
        .administrator
        .dataset_inherit(&call(), inherit)
        .unwrap();
}

fn sync(bench: &Bench) {
    let all = pool::Sync::default();
    bench.administrator.pool_sync(&call(), all).unwrap();
}

/// An access control list that lets user 1000 read.
fn list_for_a_user() -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    let none = u32::MAX;
    for (tag, permissions, id) in [
        (1, 6, none),
        (2, 4, 1000),
        (4, 0, none),
        (16, 4, none),
        (32, 0, none),
    ] {
        bytes.extend([tag, 0, permissions, 0]);
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

#[test]
fn access_control_lists_end_with_acltype_off() {
    let Some(bench) = Bench::new() else { return };
    bench.create("tank/a", &[("acltype", "posix")]);
    let path = bench.create("tank/a/b", &[]);
    let (file, other_name) = (path.join("file"), path.join("other"));
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (name, list) = ("system.posix_acl_access", list_for_a_user());
    rustix::fs::setxattr(&file, name, &list, XattrFlags::empty()).unwrap();
    fs::hard_link(&file, &other_name).unwrap();
    bench.snapshot("tank/a/b@s");
    let kept = path.join(".zfs/snapshot/s/file");
    let may_read =
        || as_a_user(|| [&file, &other_name, &kept].map(|file| File::open(file).is_ok()));
    let long_ago = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: long_ago,
        last_modification: long_ago,
    };
    for _ in 0..3 {
        assert_eq!(may_read(), [true; 3]);
        set(&bench, "tank/a", "acltype", "off");
        assert_eq!(may_read(), [false; 3]);
        set(&bench, "tank/a", "acltype", "posix");
        assert_eq!(may_read(), [true; 3]);
        // Setting times lets the kernel keep its caches, the list included.
        rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
        inherit(&bench, "tank/a", "acltype");
        assert_eq!(may_read(), [false; 3]);
        set(&bench, "tank/a", "acltype", "posix");
    }
}

#[test]
fn the_allocated_size_of_a_file_is_shown_when_it_is_stored() {
    const LENGTH: u64 = 1 << 20;
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[("compression", "off")]);
    let file = path.join("file");
    let blocks = || fs::metadata(&file).unwrap().blocks();
    fs::write(&file, vec![7; LENGTH as usize]).unwrap();
    assert!(blocks() < LENGTH / 512, "it is not stored yet");
    sync(&bench);
    assert!(blocks() >= LENGTH / 512);
    let open = File::options().write(true).open(&file).unwrap();
    open.set_len(0).unwrap();
    blocks();
    sync(&bench);
    assert!(blocks() < 16);
}

#[test]
fn the_time_of_the_last_change_follows_flags() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]).join("file");
    let file = File::create(&path).unwrap();
    let changed = || {
        let now = fs::metadata(&path).unwrap();
        (now.ctime(), now.ctime_nsec())
    };
    let before = changed();
    rustix::fs::ioctl_setflags(&file, IFlags::NODUMP).unwrap();
    assert_ne!(changed(), before);
}

#[test]
fn readonly_holds_though_open_files_prevent_a_read_only_mount() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let writer = File::create(path.join("file")).unwrap();
    set(&bench, "tank/a", "readonly", "on");
    set(&bench, "tank/a", "exec", "off");
    let flags = || rustix::fs::statvfs(&path).unwrap().f_flag;
    assert!(flags().contains(StatVfsMountFlags::NOEXEC));
    assert!(!flags().contains(StatVfsMountFlags::RDONLY));
    assert!(writer.write_at(b"x", 0).is_err());
    drop(writer);
    set(&bench, "tank/a", "exec", "on");
    assert!(!flags().contains(StatVfsMountFlags::NOEXEC));
    assert!(flags().contains(StatVfsMountFlags::RDONLY));
}

#[test]
fn a_renamed_file_system_that_stays_mounted_has_its_new_inherited_properties() {
    let Some(bench) = Bench::new() else { return };
    bench.create("tank/from", &[]);
    bench.create("tank/to", &[("readonly", "on")]);
    bench.create("tank/from/a", &[("mountpoint", "/a")]);
    let path = bench.folder.path().join("mnt/a");
    fs::write(path.join("file"), "x").unwrap();
    bench.rename("tank/from/a", "tank/to/a");
    let refused = fs::write(path.join("file"), "y").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    bench.rename("tank/to/a", "tank/from/a");
    fs::write(path.join("file"), "z").unwrap();
}

#[test]
fn the_control_directory_comes_and_goes_with_its_property_and_shows_its_snapshots() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let is_there = || path.join(".zfs").exists();
    for _ in 0..3 {
        assert!(is_there());
        set(&bench, "tank/a", "snapdir", "disabled");
        assert!(!is_there());
        set(&bench, "tank/a", "snapdir", "hidden");
    }
    let links = || fs::metadata(path.join(".zfs/snapshot")).unwrap().nlink();
    let before = links();
    bench.snapshot("tank/a@s");
    assert_eq!(links(), before + 1);
}
