//! Mounts as programs use them: a pool on a file, mounted by the kernel.
//!
//! Root only, and where there is FUSE. Elsewhere these tests print that they checked nothing.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    Create, DatasetDescription, Describe, Destroy, Mount, Rename, Rollback, Set, Snapshot, Unmount,
};
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_administration::messages::{Refusal, RefusalKind, Value};
use tarn_engine::instance::Instance;
use tarn_engine::{Engine, EngineOptions, Host, RealOptions};
use tarn_fuse::FuseMounter;
use tarn_serving::{AwakeProcessors, ServingThreads};
use tempfile::TempDir;

#[path = "mounts/nfs4_lists.rs"]
mod nfs4_lists;
#[path = "mounts/page_cache.rs"]
mod page_cache;

/// An engine with one pool, and its mounts.
struct Bench {
    engine: Arc<Engine>,
    administrator: Arc<Administrator>,
    folder: TempDir,
}

impl Bench {
    /// None where mounting is not possible.
    fn new() -> Option<Bench> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("not seen: mounts need root and /dev/fuse");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // Other users pass through it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let disk = folder.path().join("disk");
        File::create(&disk).unwrap().set_len(128 << 20).unwrap();
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let engine = Engine::new(
            Host::real(RealOptions::default()),
            Instance::at(folder.path()),
            Arc::new(FuseMounter::new(threads)),
            EngineOptions {
                cache_bytes: Some(64 << 20),
                ..EngineOptions::default()
            },
        );
        let administrator = Administrator::new(engine.clone());
        let create = pool::Create {
            name: "tank".to_string(),
            altroot: Some(folder.path().join("mnt").display().to_string()),
            vdevs: vec![VdevSpec {
                kind: VdevKind::Leaf,
                path: Some(disk.display().to_string()),
                children: Vec::new(),
                role: VdevRole::Data,
            }],
            ..pool::Create::default()
        };
        administrator.pool_create(&call(), create).unwrap();
        Some(Bench {
            engine,
            administrator,
            folder,
        })
    }

    fn create(&self, name: &str, properties: &[(&str, &str)]) -> PathBuf {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let create = Create {
            name: name.to_string(),
            properties: properties.iter().map(own).collect(),
            ..Create::default()
        };
        let created = self.administrator.dataset_create(&call(), create).unwrap();
        assert_eq!(created.warnings, Vec::<String>::new());
        self.folder.path().join("mnt").join(name)
    }

    fn mount(&self, name: &str) {
        self.try_mount(name).unwrap();
    }

    fn try_mount(&self, name: &str) -> Result<(), Refusal> {
        let mount = Mount {
            name: Some(name.to_string()),
            ..Mount::default()
        };
        self.administrator.dataset_mount(&call(), mount).map(|_| ())
    }

    fn snapshot(&self, name: &str) {
        let request = Snapshot {
            names: vec![name.to_string()],
            ..Snapshot::default()
        };
        self.administrator
            .dataset_snapshot(&call(), request)
            .unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let request = Rename {
            from: from.to_string(),
            to: to.to_string(),
            ..Rename::default()
        };
        self.administrator.dataset_rename(&call(), request).unwrap();
    }

    fn roll_back(&self, name: &str) -> Result<(), Refusal> {
        let request = Rollback {
            name: name.to_string(),
            ..Rollback::default()
        };
        self.administrator
            .dataset_rollback(&call(), request)
            .map(|_| ())
    }

    /// Another folder, on the machine's own file system, with a file in it.
    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("theirs"), "x").unwrap();
        folder
    }

    fn unmount(&self, name: &str, force: bool) -> Result<(), Refusal> {
        let name = Some(name.to_string());
        let unmounted = self
            .administrator
            .dataset_unmount(&call(), Unmount { name, force });
        unmounted.map(|_| ())
    }
}

impl Bench {
    /// The property `mounted`.
    fn mounted(&self, name: &str) -> String {
        let described = self.describe(name);
        match &described.properties["mounted"].value {
            Value::Text(word) => word.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The dataset of a path.
    fn at(&self, path: &Path) -> String {
        self.describe(path.to_str().unwrap()).name
    }

    fn describe(&self, name: &str) -> DatasetDescription {
        let request = Describe {
            names: vec![name.to_string()],
            depth: Some(0),
            ..Describe::default()
        };
        let described = self
            .administrator
            .dataset_describe(&call(), request)
            .unwrap();
        assert_eq!(described.refused, []);
        described.datasets.into_iter().next().unwrap()
    }

    fn destroy(&self, name: &str) -> Result<(), Refusal> {
        let request = Destroy {
            name: name.to_string(),
            recursive: true,
            ..Destroy::default()
        };
        self.administrator
            .dataset_destroy(&call(), request)
            .map(|_| ())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

fn call() -> Call {
    Call::default()
}

#[test]
fn no_write_succeeds_after_a_forced_unmount() {
    const WRITERS: usize = 4;
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    for round in 0..20 {
        let file = File::create(path.join("file")).unwrap();
        let (written, is_unmounted) = (AtomicU32::new(0), AtomicBool::new(false));
        // True when the first write after the unmount fails.
        let write = || {
            loop {
                let is_after = is_unmounted.load(Ordering::SeqCst);
                let is_written = file.write_at(b"x", 0).is_ok();
                if is_after {
                    return !is_written;
                }
                written.fetch_add(u32::from(is_written), Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(write)).collect();
            while written.load(Ordering::SeqCst) < 1000 {
                std::thread::yield_now();
            }
            bench.unmount("tank/a", true).unwrap();
            is_unmounted.store(true, Ordering::SeqCst);
            let refused = writers.into_iter().map(|writer| writer.join().unwrap());
            assert_eq!(
                refused.filter(|refused| *refused).count(),
                WRITERS,
                "round {round}"
            );
        });
        bench.mount("tank/a");
        assert_eq!(fs::read(path.join("file")).unwrap(), b"x");
    }
}

#[test]
fn all_spellings_of_a_name_lead_to_its_present_file() {
    let Some(bench) = Bench::new() else { return };
    let ways = [
        (
            "tank/insensitive",
            ("casesensitivity", "insensitive"),
            "foo",
            "FOO",
        ),
        ("tank/mixed", ("casesensitivity", "mixed"), "foo", "foo"),
        (
            "tank/composed",
            ("normalization", "formC"),
            "\u{e9}",
            "e\u{301}",
        ),
    ];
    for (name, property, one, other) in ways {
        let path = bench.create(name, &[property]);
        let (foo, also_foo, bar) = (path.join(one), path.join(other), path.join("bar"));
        fs::write(&foo, "old").unwrap();
        assert_eq!(fs::read_to_string(&also_foo).unwrap(), "old", "{name}");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        fs::rename(&foo, &bar).unwrap();
        fs::write(&also_foo, "new").unwrap();
        assert_eq!(fs::read_to_string(&bar).unwrap(), "old", "{name}");
        assert_eq!(fs::read_to_string(&foo).unwrap(), "new", "{name}");
        fs::remove_file(&foo).unwrap();
        assert!(fs::read_to_string(&also_foo).is_err(), "{name}");
    }
}

/// Runs `work` as user 1000 of group 1000, without other groups.
fn as_a_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let in_thread = || {
        rustix::thread::set_thread_groups(&[]).unwrap();
        let group = rustix::thread::Gid::from_raw(1000);
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        let user = rustix::thread::Uid::from_raw(1000);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(in_thread).join().unwrap())
}

#[test]
fn copying_into_a_file_removes_set_id_bits() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let (source, target) = (path.join("source"), path.join("target"));
    fs::write(&source, vec![7; 100_000]).unwrap();
    fs::write(&target, "").unwrap();
    chown(&target, Some(0), Some(0)).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o4777)).unwrap();
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o7777, 0o4777);
    as_a_user(|| {
        let target = File::options().write(true).open(&target).unwrap();
        let source = File::open(&source).unwrap();
        let copied = rustix::fs::copy_file_range(&source, None, &target, None, 100_000);
        assert_eq!(copied, Ok(100_000));
    });
    // The mode alone: for the size as well the kernel would send a request, since it knows that the
    // size has changed.
    let (here, mode) = (rustix::fs::CWD, rustix::fs::StatxFlags::MODE);
    let known = rustix::fs::statx(here, &target, rustix::fs::AtFlags::empty(), mode);
    assert_eq!(known.unwrap().stx_mode & 0o7777, 0o777);
    assert_eq!(fs::metadata(&target).unwrap().len(), 100_000);
}

/// An access control list that lets user 7 read.
fn list_for_another() -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    let none = u32::MAX;
    for (tag, permissions, id) in [
        (1, 7, none),
        (2, 4, 7),
        (4, 5, none),
        (16, 5, none),
        (32, 5, none),
    ] {
        bytes.extend([tag, 0, permissions, 0]);
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

#[test]
fn setting_an_acl_removes_set_group_id_for_callers_outside_the_group() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[("acltype", "posix")]);
    let set = |file: &Path| {
        let (name, list) = ("system.posix_acl_access", list_for_another());
        rustix::fs::setxattr(file, name, &list, XattrFlags::empty()).unwrap();
    };
    let (own, root) = (path.join("own"), path.join("root"));
    for file in [&own, &root] {
        fs::write(file, "x").unwrap();
        chown(file, Some(1000), Some(0)).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o2755)).unwrap();
    }
    as_a_user(|| set(&own));
    set(&root);
    let mode = |file: &Path| fs::metadata(file).unwrap().mode() & 0o7777;
    assert_eq!((mode(&own), mode(&root)), (0o755, 0o2755));
}

#[test]
fn another_mount_on_top_of_a_mount_stays() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    fs::write(path.join("ours"), "x").unwrap();
    rustix::mount::mount("none", &path, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(path.join("theirs"), "x").unwrap();
    for force in [false, true] {
        let refused = bench.unmount("tank/a", force).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Busy);
        assert!(path.join("theirs").exists());
    }
    rustix::mount::unmount(&path, UnmountFlags::empty()).unwrap();
    assert!(path.join("ours").exists());
    bench.unmount("tank/a", false).unwrap();
    assert!(!path.join("ours").exists());
}

#[test]
fn a_lazily_unmounted_file_system_is_attached_again() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let file = File::create(path.join("file")).unwrap();
    file.write_at(b"x", 0).unwrap();
    rustix::mount::unmount(&path, UnmountFlags::DETACH).unwrap();
    file.write_at(b"y", 0).unwrap();
    let refused = bench.unmount("tank/a", false).unwrap_err().to_string();
    assert_eq!(refused, "cannot unmount 'tank/a': not currently mounted");
    bench.mount("tank/a");
    // There is one file, in whichever mount it was opened.
    assert_eq!(fs::read(path.join("file")).unwrap(), b"y");
    file.write_at(b"z", 0).unwrap();
    assert_eq!(fs::read(path.join("file")).unwrap(), b"z");
    bench.unmount("tank/a", true).unwrap();
    assert!(file.write_at(b"-", 0).is_err());
}

#[test]
fn a_bind_mount_in_use_goes_on_after_the_unmount() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    fs::create_dir(path.join("sub")).unwrap();
    bench.snapshot("tank/a@1");
    let bound = bench.folder("bound");
    rustix::mount::mount_bind(path.join("sub"), &bound).unwrap();
    bench.unmount("tank/a", false).unwrap();
    assert_eq!(bench.mounted("tank/a"), "no");
    fs::write(bound.join("file"), "kept").unwrap();
    let refused = bench.roll_back("tank/a@1").unwrap_err();
    assert_eq!(refused.reason, "pool or dataset is busy");
    assert_eq!(bench.destroy("tank/a").unwrap_err().kind, RefusalKind::Busy);
    bench.mount("tank/a");
    assert_eq!(bench.mounted("tank/a"), "yes");
    assert_eq!(fs::read(path.join("sub/file")).unwrap(), b"kept");
    fs::write(path.join("sub/file"), "of both").unwrap();
    assert_eq!(fs::read(bound.join("file")).unwrap(), b"of both");
    // It moves, and open files go on.
    bench.rename("tank/a", "tank/b");
    assert!(!path.join("sub").exists());
    fs::write(bound.join("file"), "moved").unwrap();
    let moved = path.with_file_name("b/sub/file");
    assert_eq!(fs::read(moved).unwrap(), b"moved");
    let refused = bench.roll_back("tank/b@1").unwrap_err();
    assert_eq!(refused.reason, "pool or dataset is busy");
    assert_eq!(bench.mounted("tank/b"), "yes");
    rustix::mount::unmount(&bound, UnmountFlags::empty()).unwrap();
    bench.roll_back("tank/b@1").unwrap();
    assert!(!path.with_file_name("b/sub/file").exists());
}

#[test]
fn a_mount_moves_though_all_of_it_is_bound_to_another_folder() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    fs::write(path.join("file"), "of both").unwrap();
    let bound = bench.folder("bound");
    rustix::mount::mount_bind(&path, &bound).unwrap();
    bench.rename("tank/a", "tank/b");
    let moved = path.with_file_name("b");
    assert_eq!(fs::read(moved.join("file")).unwrap(), b"of both");
    assert!(!path.join("file").exists());
    assert_eq!(bench.at(&moved), "tank/b");
    bench.unmount("tank/b", false).unwrap();
    assert!(!moved.join("file").exists());
    assert_eq!(fs::read(bound.join("file")).unwrap(), b"of both");
    rustix::mount::unmount(&bound, UnmountFlags::empty()).unwrap();
}

#[test]
fn an_export_ends_bind_mounts_and_is_busy_where_one_is_in_use() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    fs::create_dir(path.join("sub")).unwrap();
    let bound = bench.folder("bound");
    rustix::mount::mount_bind(path.join("sub"), &bound).unwrap();
    let export = || {
        let request = pool::Export {
            name: "tank".to_string(),
            ..pool::Export::default()
        };
        bench.administrator.pool_export(&call(), request)
    };
    let file = File::create(bound.join("file")).unwrap();
    let refused = export().unwrap_err().to_string();
    let busy = format!(
        "cannot unmount '{}': pool or dataset is busy",
        path.display()
    );
    assert_eq!(refused, busy);
    file.write_at(b"kept", 0).unwrap();
    assert_eq!(bench.mounted("tank/a"), "yes");
    assert_eq!(fs::read(path.join("sub/file")).unwrap(), b"kept");
    drop(file);
    export().unwrap();
    assert!(!bound.join("file").exists());
}

#[test]
fn another_mount_namespace_keeps_its_mount_until_it_ends_or_a_forced_unmount() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let file = path.join("file");
    for force in [false, true] {
        fs::write(&file, "").unwrap();
        let mut other = OtherNamespace::holding(&file);
        // Its file is open in a mount of another namespace.
        bench.unmount("tank/a", force).unwrap();
        assert_eq!(bench.mounted("tank/a"), "no");
        let wrote = other.answers_to("write");
        assert_eq!(wrote, if force { "failed" } else { "wrote" });
        bench.mount("tank/a");
        assert_eq!(bench.mounted("tank/a"), "yes");
        let expected = if force { "" } else { "x\n" };
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    }
}

/// A process in a mount namespace of its own, without propagation, with an open file. It ends when
/// this is dropped.
struct OtherNamespace {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl OtherNamespace {
    fn holding(file: &Path) -> OtherNamespace {
        const SCRIPT: &str = "exec 3>>\"$0\"; echo ready; \
            while read line; do if echo x >&3; then echo wrote; else echo failed; fi; done 2>/dev/null";
        let child = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", SCRIPT])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let mut other = OtherNamespace { child, says };
        assert_eq!(other.line(), "ready");
        other
    }

    fn answers_to(&mut self, line: &str) -> String {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }
}

impl Drop for OtherNamespace {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

#[test]
fn a_file_system_is_mounted_at_once_after_umount() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    for round in 0..50 {
        fs::write(path.join("file"), format!("{round}")).unwrap();
        while rustix::mount::unmount(&path, UnmountFlags::empty()) == Err(Errno::BUSY) {}
        assert_eq!(bench.mounted("tank/a"), "no");
        bench.mount("tank/a");
        assert_eq!(
            fs::read_to_string(path.join("file")).unwrap(),
            format!("{round}")
        );
    }
}

#[test]
fn a_mount_is_found_where_it_is_when_a_folder_above_it_gets_another_name() {
    let Some(bench) = Bench::new() else { return };
    let root = bench.create("tank/a", &[]);
    fs::create_dir(root.join("x")).unwrap();
    let set = |name: &str| Set {
        name: name.to_string(),
        properties: vec![("mountpoint".to_string(), "/tank/a/x/y".to_string())],
        no_mount: false,
    };
    bench.create("tank/b", &[]);
    bench
        .administrator
        .dataset_set(&call(), set("tank/b"))
        .unwrap();
    bench.snapshot("tank/b@1");
    fs::rename(root.join("x"), root.join("z")).unwrap();
    let moved = root.join("z/y");
    assert_eq!(bench.at(&moved), "tank/b");
    symlink(&moved, root.join("link")).unwrap();
    assert_eq!(bench.at(&root.join("link")), "tank/b");
    fs::write(moved.join("file"), "x").unwrap();
    // After the unmount for a rollback it is mounted where it was.
    bench.roll_back("tank/b@1").unwrap();
    assert!(!moved.join("file").exists());
    assert_eq!(bench.at(&moved), "tank/b");
    bench.unmount("tank/b", false).unwrap();
    assert_eq!(bench.at(&moved), "tank/a");
    bench.mount("tank/b");
    assert_eq!(bench.at(&root.join("x/y")), "tank/b");
}

#[test]
fn a_remount_changes_options_and_refuses_unknown_ones() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let mount = |options: &str| {
        let request = Mount {
            name: Some("tank/a".to_string()),
            options: vec![options.to_string()],
            ..Mount::default()
        };
        let mounted = bench.administrator.dataset_mount(&call(), request);
        mounted.map(drop).map_err(|refusal| refusal.to_string())
    };
    let invalid = Err("cannot mount 'tank/a': Invalid argument".to_string());
    mount("remount,ro,noexec").unwrap();
    assert!(fs::write(path.join("file"), "x").is_err());
    mount("remount").unwrap();
    let open = File::create(path.join("file")).unwrap();
    let busy = "cannot mount 'tank/a': mountpoint or dataset is busy".to_string();
    assert_eq!(mount("remount,ro"), Err(busy));
    drop(open);
    // The kernel sends no request for an empty file.
    fs::write(path.join("file"), "x").unwrap();
    assert_eq!(mount("remount,nosuchoption"), invalid);
    bench.unmount("tank/a", false).unwrap();
    assert_eq!(mount("remount,ro"), invalid);
    assert_eq!(mount("nosuchoption"), invalid);
    assert_eq!(bench.mounted("tank/a"), "no");
    mount("strictatime,nodiratime").unwrap();
    let read_at = || fs::metadata(path.join("file")).unwrap().atime_nsec();
    let before = read_at();
    fs::read(path.join("file")).unwrap();
    let first = read_at();
    assert_ne!(before, first);
    // The kernel answers a second read itself; a new mount has no caches.
    bench.unmount("tank/a", false).unwrap();
    mount("strictatime,nodiratime").unwrap();
    fs::read(path.join("file")).unwrap();
    assert_ne!(first, read_at());
}

#[test]
fn only_root_lists_trusted_attributes() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.create("tank/a", &[]).join("file");
    fs::write(&file, "x").unwrap();
    for name in ["trusted.secret", "user.note"] {
        rustix::fs::setxattr(&file, name, b"x", XattrFlags::empty()).unwrap();
    }
    let names = || {
        let mut list = vec![0; 256];
        let length = rustix::fs::listxattr(&file, &mut list[..]).unwrap();
        String::from_utf8(list[..length].to_vec()).unwrap()
    };
    assert_eq!(names(), "trusted.secret\0user.note\0");
    assert_eq!(as_a_user(names), "user.note\0");
}

#[test]
fn a_stop_unmounts_all_though_one_mount_is_busy() {
    let Some(bench) = Bench::new() else { return };
    let paths = ["tank/a", "tank/b", "tank/c"].map(|name| bench.create(name, &[]));
    let files = paths.each_ref().map(|path| {
        fs::write(path.join("ours"), "x").unwrap();
        File::create(path.join("file")).unwrap()
    });
    rustix::mount::mount("none", &paths[1], "tmpfs", MountFlags::empty(), None).unwrap();
    assert_eq!(bench.engine.stop().len(), 1);
    assert!(files.iter().all(|file| file.write_at(b"x", 0).is_err()));
    // A mount on one of them ends with the mount below it.
    assert!(paths.iter().all(|path| !path.join("ours").exists()));
}

#[test]
fn a_symbolic_link_in_a_mount_does_not_redirect_other_mounts() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let victim = bench.folder("victim");
    symlink(&victim, path.join("b")).unwrap();
    symlink(&victim, path.join("c")).unwrap();
    bench.snapshot("tank/a@links");
    fs::remove_file(path.join("b")).unwrap();
    fs::remove_file(path.join("c")).unwrap();
    fs::create_dir(path.join("c")).unwrap();
    bench.create("tank/a/b", &[]);
    bench.create("tank/a/c", &[("canmount", "off")]);
    bench.create("tank/a/c/d", &[]);
    let refused = bench.roll_back("tank/a@links").unwrap_err().to_string();
    let said = format!("{} leads to {}", path.join("b").display(), victim.display());
    assert_eq!(refused, format!("cannot mount 'tank/a/b': {said}"));
    for name in ["tank/a/b", "tank/a/c/d"] {
        bench.try_mount(name).unwrap_err();
    }
    let names = fs::read_dir(&victim).unwrap();
    let names: Vec<_> = names.map(|one| one.unwrap().file_name()).collect();
    assert_eq!(names, ["theirs"], "nothing is over it, and nothing in it");
    // It is mounted on its mount point when there is a folder.
    fs::remove_file(path.join("b")).unwrap();
    bench.mount("tank/a/b");
    assert!(path.join("b").is_dir() && victim.join("theirs").exists());
}

#[test]
fn only_links_that_root_made_are_followed() {
    let Some(bench) = Bench::new() else { return };
    let root = bench.folder.path().join("mnt");
    let disk = bench.folder("disk2");
    fs::remove_file(disk.join("theirs")).unwrap();
    symlink(&disk, root.join("data")).unwrap();
    for (name, point, place) in [
        ("tank/x", "/data/x", disk.join("x")),
        ("tank/last", "/data", disk.clone()),
    ] {
        bench.create(name, &[("mountpoint", point)]);
        fs::write(place.join("file"), "x").unwrap();
        bench.unmount(name, false).unwrap();
        assert!(!place.join("file").exists(), "{name} is still mounted");
    }
    // In another user's folder it is that user's link.
    let theirs = bench.folder("theirs");
    chown(&theirs, Some(4_000_001), None).unwrap();
    symlink(bench.folder("victim"), theirs.join("link")).unwrap();
    symlink(&theirs, root.join("theirs")).unwrap();
    let set = Set {
        name: "tank/x".to_string(),
        properties: vec![("mountpoint".to_string(), "/theirs/link".to_string())],
        no_mount: false,
    };
    let changed = bench.administrator.dataset_set(&call(), set).unwrap();
    let warning = "leads to";
    assert!(changed.warnings[0].contains(warning), "{changed:?}");
    assert_eq!(bench.mounted("tank/x"), "no");
}

#[test]
fn another_mount_on_the_folder_of_ours_does_not_get_its_options() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    rustix::mount::mount("none", &path, "tmpfs", MountFlags::empty(), None).unwrap();
    let set = |value: &str| Set {
        name: "tank/a".to_string(),
        properties: vec![("readonly".to_string(), value.to_string())],
        no_mount: false,
    };
    // The file system itself refuses writes.
    let told = bench.administrator.dataset_set(&call(), set("on"));
    fs::write(path.join("theirs"), "x").unwrap();
    rustix::mount::unmount(&path, UnmountFlags::empty()).unwrap();
    assert!(fs::write(path.join("ours"), "x").is_err(), "{told:?}");
    bench
        .administrator
        .dataset_set(&call(), set("off"))
        .unwrap();
    fs::write(path.join("ours"), "x").unwrap();
}

/// A path to a held file, whatever its name is now: the kernel sends a request about its node, and
/// no lookup.
fn way_to(held: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))
}

#[test]
fn a_stale_node_is_looked_up_again_by_its_name() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let hold = |name: &str| {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        rustix::fs::open(path.join(name), flags, Mode::empty()).unwrap()
    };
    fs::write(path.join("file"), "x").unwrap();
    fs::create_dir(path.join("folder")).unwrap();
    symlink("there", path.join("link")).unwrap();
    let (file, folder, link) = (hold("file"), hold("folder"), hold("link"));
    fs::remove_file(path.join("file")).unwrap();
    fs::remove_dir(path.join("folder")).unwrap();
    fs::remove_file(path.join("link")).unwrap();
    let (flags, mode) = (AtFlags::EMPTY_PATH, Mode::from_raw_mode(0o600));
    let now = flags | AtFlags::STATX_FORCE_SYNC;
    let (way, name) = (way_to(&file), "user.note");
    let refused = [
        rustix::fs::statx(&file, "", now, StatxFlags::ALL).err(),
        rustix::fs::open(&way, OFlags::RDONLY, Mode::empty()).err(),
        rustix::fs::open(&way, OFlags::RDWR, Mode::empty()).err(),
        rustix::fs::chmod(&way, mode).err(),
        rustix::fs::getxattr(&way, name, &mut [0; 8][..]).err(),
        rustix::fs::listxattr(&way, &mut [0; 8][..]).err(),
        rustix::fs::setxattr(&way, name, b"x", XattrFlags::empty()).err(),
        rustix::fs::removexattr(&way, name).err(),
        rustix::fs::readlinkat(&link, "", Vec::new()).err(),
        rustix::fs::statvfs(&way).err(),
    ];
    assert_eq!(refused, [Some(Errno::STALE); 10]);
    // A directory stays while a program may be in it: without a link, empty, and nothing can be
    // created in it.
    let links = rustix::fs::statx(&folder, "", now, StatxFlags::ALL).map(|stat| stat.stx_nlink);
    assert_eq!(links, Ok(0));
    assert_eq!(fs::read_dir(way_to(&folder)).unwrap().count(), 0);
    let made = rustix::fs::mkdirat(&folder, "new", mode);
    assert_eq!(made, Err(Errno::NOENT));
    // A missing name gives `ENOENT` as usual.
    let missing = rustix::fs::stat(path.join("file")).err();
    assert_eq!(missing, Some(Errno::NOENT));
    let removed = rustix::fs::unlink(path.join("file")).err();
    assert_eq!(removed, Some(Errno::NOENT));
}

#[test]
fn a_name_that_is_renamed_over_is_always_found() {
    const ENOUGH: u32 = 5000;
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let (file, new) = (path.join("file"), path.join("new"));
    fs::write(&file, "x").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let replacing = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                fs::write(&new, "x").unwrap();
                fs::rename(&new, &file).unwrap();
            }
        });
        // After two replacements the kernel gives up with `ESTALE`.
        let open = || rustix::fs::open(&file, OFlags::RDONLY, Mode::empty()).err();
        let refused = (0..ENOUGH).filter(|_| open() == Some(Errno::NOENT)).count();
        is_over.store(true, Ordering::SeqCst);
        replacing.join().unwrap();
        assert_eq!(refused, 0);
    });
}

#[test]
fn the_name_of_a_snapshot_leads_to_its_present_snapshot() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    let snapshots = path.join(".zfs/snapshot");
    let seen = |name: &str| fs::read_to_string(snapshots.join(name).join("file")).unwrap();
    fs::write(path.join("file"), "old").unwrap();
    bench.snapshot("tank/a@daily");
    assert_eq!(seen("daily"), "old");
    bench.rename("tank/a@daily", "tank/a@yesterday");
    fs::write(path.join("file"), "new").unwrap();
    bench.snapshot("tank/a@daily");
    assert_eq!(
        (seen("daily"), seen("yesterday")),
        ("new".to_string(), "old".to_string())
    );
}

#[test]
fn a_read_of_thousands_of_blocks_ends() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let Some(bench) = Bench::new() else { return };
    let path = bench
        .create("tank/a", &[("recordsize", "512")])
        .join("file");
    let bytes: Vec<u8> = (0..1 << 20_u32)
        .map(|at| u8::try_from((at >> 9) % 251).unwrap())
        .collect();
    fs::write(&path, &bytes).unwrap();
    let (tell, told) = mpsc::channel();
    let read = move || {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty());
        let mut seen = vec![0; 1 << 20];
        let length = rustix::io::read(file.unwrap(), &mut seen[..]);
        tell.send(length.map(|length| seen[..length].to_vec()))
            .unwrap();
    };
    let reader = std::thread::spawn(read);
    let seen = told.recv_timeout(PATIENCE);
    if seen.is_err() {
        // Only this wakes the reader.
        let _ = bench.unmount("tank/a", true);
    }
    reader.join().unwrap();
    assert!(seen.unwrap().unwrap() == bytes);
}

#[test]
fn a_file_of_a_snapshot_is_opened_only_for_reading() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[]);
    fs::write(path.join("file"), "x").unwrap();
    bench.snapshot("tank/a@s");
    let kept = path.join(".zfs/snapshot/s/file");
    let (writing, both) = (OFlags::WRONLY, OFlags::RDWR);
    for flags in [
        writing,
        both,
        writing | OFlags::APPEND,
        writing | OFlags::TRUNC,
        OFlags::TRUNC,
    ] {
        let refused = rustix::fs::open(&kept, flags, Mode::empty()).err();
        assert_eq!(refused, Some(Errno::ROFS), "{flags:?}");
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), "x");
}
