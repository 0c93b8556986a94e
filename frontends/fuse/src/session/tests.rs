//! Requests as the kernel sends them, without a kernel: what is asked while something else happens to the same names.

use super::*;
use crate::awake::AwakeProcessors;
use crate::nodes::ROOT_NODE;
use crate::protocol::setattr_bits;
use crate::server::Server;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::path::{Path, PathBuf};
use tarn_engine::administration::{Administration, Call};
use tarn_engine::files::{DeviceNumber, FileKind, NewFile};
use tarn_engine::instance::Instance;
use tarn_engine::messages::dataset::{Create, Rename, Snapshot as Take};
use tarn_engine::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_engine::mounts::{
    Ending, Found, Left, MountKey, MountOptions, MountRefusal, MountRequest, Mounter, Standing,
};
use tarn_engine::{Engine, EngineOptions, Host, RealOptions};
use tempfile::TempDir;

/// Keeps the tree of the last mount, and makes none.
#[derive(Default)]
struct Notebook {
    tree: Mutex<Option<Arc<dyn Tree>>>,
}

impl Mounter for Notebook {
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal> {
        *self.tree.lock().unwrap() = Some(request.tree);
        Ok(MountKey(1))
    }

    fn attach(&self, _: MountKey, _: &str, _: &Path, _: MountOptions) -> Result<(), MountRefusal> {
        Err(MountRefusal::Busy)
    }

    fn standing(&self, _: MountKey, _: &Path) -> Standing {
        Standing::Mounted
    }

    fn places(&self) -> Vec<(MountKey, PathBuf)> {
        Vec::new()
    }

    fn mount_number(&self, _: &Path) -> Option<u64> {
        None
    }

    fn find(&self, _: &Path) -> Found {
        Found::Foreign
    }

    fn unmount(&self, _: MountKey, _: &Path, _: Ending) -> Result<Left, MountRefusal> {
        Ok(Left::Nothing)
    }

    fn abandon(&self, _: &[(MountKey, &Path)]) {}

    fn change_options(&self, _: MountKey, _: &Path, _: MountOptions) -> Result<(), MountRefusal> {
        Ok(())
    }

    fn clear_remains(&self, _: &Path) -> bool {
        false
    }
}

/// An engine with the file system `tank/a`, which we serve.
struct Bench {
    engine: Arc<Engine>,
    tree: Arc<dyn Tree>,
    _folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        let file = std::fs::File::create(&disk).unwrap();
        file.set_len(128 << 20).unwrap();
        let notebook = Arc::new(Notebook::default());
        let engine = Engine::new(
            Host::real(RealOptions::default()),
            Instance::at(folder.path()),
            notebook.clone(),
            EngineOptions {
                cache_bytes: Some(64 << 20),
                ..EngineOptions::default()
            },
        );
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
        engine.pool_create(&Call::default(), create).unwrap();
        let create = Create {
            name: "tank/a".to_string(),
            ..Create::default()
        };
        engine.dataset_create(&Call::default(), create).unwrap();
        let tree = notebook.tree.lock().unwrap().take().unwrap();
        Bench {
            engine,
            tree,
            _folder: folder,
        }
    }
}

fn take_snapshot(engine: &Engine, name: &str) {
    let take = Take {
        names: vec![format!("tank/a@{name}")],
        ..Take::default()
    };
    engine.dataset_snapshot(&Call::default(), take).unwrap();
}

fn rename_snapshot(engine: &Engine, from: &str, to: &str) {
    let rename = Rename {
        from: format!("tank/a@{from}"),
        to: format!("tank/a@{to}"),
        ..Rename::default()
    };
    engine.dataset_rename(&Call::default(), rename).unwrap();
}

/// Makes a directory in the root.
fn make_directory(tree: &dyn Tree, name: &str) {
    let new = NewFile {
        kind: FileKind::Directory,
        permissions: 0o755,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    let credentials = Credentials {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        privileged: true,
    };
    let (files, operation) = (tree.files(), Operation::unmeasured());
    let made = files.create(
        &credentials,
        files.root(),
        name.as_bytes(),
        &new,
        &operation,
    );
    made.unwrap();
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

/// A tree to which something happens before a snapshot of it is opened.
struct Eventful {
    tree: Arc<dyn Tree>,
    event: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Tree for Eventful {
    fn files(&self) -> &Arc<FileSystem> {
        self.tree.files()
    }

    fn snapshot(&self, name: &[u8], operation: &Operation) -> Result<Arc<FileSystem>, PosixError> {
        let event = self.event.lock().unwrap().take();
        event.into_iter().for_each(|event| event());
        self.tree.snapshot(name, operation)
    }

    fn begin(
        &self,
        who: Who,
        kind: OperationKind,
        object: ObjectId,
        range: (u64, u64),
    ) -> Operation {
        self.tree.begin(who, kind, object, range)
    }

    fn finish(&self, operation: Operation) {
        self.tree.finish(operation);
    }
}

/// The kernel's end of a mount.
struct Kernel {
    server: Arc<Server>,
    socket: OwnedFd,
}

impl Kernel {
    fn of(tree: Arc<dyn Tree>) -> Kernel {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        let server = Server::new(AwakeProcessors::new(false)).unwrap();
        let session = Session::new(tree, Box::new(|| {}));
        server.add(ours, "tank", session).unwrap();
        Kernel {
            server,
            socket: theirs,
        }
    }

    fn ask(&self, code: u32, node: u64, body: &Answer) -> Result<Vec<u8>, Errno> {
        let mut request = Answer::new();
        let length = u32::try_from(40 + body.len()).unwrap();
        request.u32(length).u32(code).u64(7).u64(node).zeros(16);
        request.bytes(body.as_slice());
        rustix::io::write(&self.socket, request.as_slice()).unwrap();
        let mut reply = vec![0; 64 << 10];
        let length = rustix::io::read(&self.socket, &mut reply[..]).unwrap();
        let error = i32::from_ne_bytes(reply[4..8].try_into().unwrap());
        match error {
            0 => Ok(reply[16..length].to_vec()),
            error => Err(Errno::from_raw_os_error(-error)),
        }
    }

    /// What a name leads to: its node, and for how many seconds that may be remembered.
    fn lookup(&self, parent: u64, name: &str) -> Result<(u64, u64), Errno> {
        let mut body = Answer::new();
        body.bytes(name.as_bytes()).zeros(1);
        let entry = self.ask(opcode::LOOKUP, parent, &body)?;
        let mut entry = Arguments::of(&entry);
        let node = entry.u64()?;
        entry.skip(8)?;
        Ok((node, entry.u64()?))
    }

    /// Makes a file in the root and opens it: gives its node and the handle.
    fn create(&self, name: &str, flags: i32) -> (u64, u64) {
        let mut body = Answer::new();
        body.u32(flags.cast_unsigned()).u32(0o644).zeros(8);
        body.bytes(name.as_bytes()).zeros(1);
        let made = self.ask(opcode::CREATE, ROOT_NODE, &body).unwrap();
        let mut made = Arguments::of(&made);
        let node = made.u64().unwrap();
        made.skip(120).unwrap();
        (node, made.u64().unwrap())
    }

    /// Makes a file so large, by `fallocate`.
    fn allocate(&self, (node, handle): (u64, u64), length: u64) {
        let mut body = Answer::new();
        body.u64(handle).u64(0).u64(length).zeros(8);
        self.ask(opcode::FALLOCATE, node, &body).unwrap();
    }

    /// Opens a file that is there: gives the handle.
    fn open(&self, node: u64, flags: i32) -> u64 {
        let mut body = Answer::new();
        body.u32(flags.cast_unsigned()).u32(0);
        let opened = self.ask(opcode::OPEN, node, &body).unwrap();
        Arguments::of(&opened).u64().unwrap()
    }

    fn close(&self, (node, handle): (u64, u64)) {
        let mut body = Answer::new();
        body.u64(handle).zeros(16);
        self.ask(opcode::RELEASE, node, &body).unwrap();
    }

    fn seek(&self, (node, handle): (u64, u64), offset: u64, what: i32) -> Result<u64, Errno> {
        let mut body = Answer::new();
        body.u64(handle).u64(offset);
        body.u32(what.cast_unsigned()).u32(0);
        let found = self.ask(opcode::LSEEK, node, &body)?;
        Arguments::of(&found).u64()
    }

    fn copy(&self, (from, from_handle): (u64, u64), (to, to_handle): (u64, u64), length: u64) {
        let mut body = Answer::new();
        body.u64(from_handle).u64(0);
        body.u64(to).u64(to_handle).u64(0).u64(length).u64(0);
        let copied = self.ask(opcode::COPY_FILE_RANGE, from, &body).unwrap();
        assert_eq!(
            Arguments::of(&copied).u32(),
            Ok(u32::try_from(length).unwrap())
        );
    }

    fn node_of(&self, parent: u64, name: &str) -> u64 {
        self.lookup(parent, name).unwrap().0
    }

    /// The directory of snapshots.
    fn snapshots(&self) -> u64 {
        self.node_of(self.node_of(ROOT_NODE, ".zfs"), "snapshot")
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.server.stop();
    }
}

#[test]
fn a_snapshot_whose_name_is_given_to_another_while_it_is_entered_is_looked_for_again() {
    let bench = Bench::new();
    take_snapshot(&bench.engine, "daily");
    let (engine, tree) = (bench.engine.clone(), bench.tree.clone());
    let event = move || {
        rename_snapshot(&engine, "daily", "old");
        make_directory(&*tree, "later");
        take_snapshot(&engine, "daily");
    };
    let kernel = Kernel::of(Arc::new(Eventful {
        tree: bench.tree.clone(),
        event: Mutex::new(Some(Box::new(event))),
    }));
    let snapshots = kernel.snapshots();
    assert_eq!(kernel.lookup(snapshots, "daily"), Err(Errno::STALE));
    let (daily, old) = (
        kernel.node_of(snapshots, "daily"),
        kernel.node_of(snapshots, "old"),
    );
    assert_ne!(daily, old);
    assert!(kernel.lookup(daily, "later").is_ok());
    assert_eq!(kernel.lookup(old, "later"), Err(Errno::NOENT));
}

#[test]
fn asynchronous_direct_writes_are_not_agreed_on_and_the_kernel_drops_pages_of_all_direct_writes() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let mut body = Answer::new();
    body.u32(MAJOR).u32(MINOR + 10).u32(128 << 10).u32(u32::MAX);
    let agreed = kernel.ask(opcode::INIT, 0, &body).unwrap();
    let mut agreed = Arguments::of(&agreed);
    agreed.skip(12).unwrap();
    let flags = agreed.u32().unwrap();
    assert_eq!(flags & init_flags::ASYNC_DIO, 0);
    assert_ne!(flags & init_flags::POSIX_ACL, 0);
}

#[test]
fn only_the_way_into_a_snapshot_is_not_remembered() {
    let bench = Bench::new();
    make_directory(&*bench.tree, "folder");
    take_snapshot(&bench.engine, "daily");
    let kernel = Kernel::of(bench.tree.clone());
    let (daily, remembered_s) = kernel.lookup(kernel.snapshots(), "daily").unwrap();
    assert_eq!(remembered_s, 0);
    for parent in [ROOT_NODE, daily] {
        let (_, remembered_s) = kernel.lookup(parent, "folder").unwrap();
        assert!(remembered_s > 0);
    }
}

/// Whether all changes of a file are stored, or in the log.
fn is_durable(tree: &dyn Tree, node: u64) -> bool {
    let Node::Object { id, .. } = Node::from_number(node) else {
        panic!("the root is no file")
    };
    let operation = Operation::unmeasured();
    let unsynced = tree.files().sync_later(id, &operation);
    unsynced.unwrap().is_none()
}

#[test]
fn what_is_allocated_or_copied_through_a_synced_file_is_stored_before_it_is_answered() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let source = kernel.create("source", libc::O_RDWR);
    kernel.allocate(source, 4096);
    for (name, flags) in [("data", libc::O_DSYNC), ("all", libc::O_SYNC)] {
        let file = kernel.create(name, libc::O_RDWR | flags);
        kernel.allocate(file, 8192);
        assert!(is_durable(&*bench.tree, file.0));
        kernel.copy(source, file, 4096);
        assert!(is_durable(&*bench.tree, file.0));
        kernel.copy(file, source, 4096);
    }
}

#[test]
fn a_file_has_no_holes_while_a_program_may_store_into_it_unseen() {
    const SIZE: u64 = 1 << 20;
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let node = kernel.create("file", libc::O_WRONLY).0;
    let mut size = Answer::new();
    size.u32(setattr_bits::SIZE).zeros(12).u64(SIZE).zeros(64);
    kernel.ask(opcode::SETATTR, node, &size).unwrap();
    let reader = (node, kernel.open(node, libc::O_RDONLY));
    let seek = |offset, what| kernel.seek(reader, offset, what);
    let all_is_a_hole = || {
        assert_eq!(seek(0, libc::SEEK_DATA), Err(Errno::NXIO));
        assert_eq!(seek(7, libc::SEEK_HOLE), Ok(7));
    };
    all_is_a_hole();
    let writers = [0, 1].map(|_| (node, kernel.open(node, libc::O_RDWR)));
    for writer in writers {
        assert_eq!(seek(7, libc::SEEK_DATA), Ok(7));
        assert_eq!(seek(7, libc::SEEK_HOLE), Ok(SIZE));
        for what in [libc::SEEK_DATA, libc::SEEK_HOLE] {
            assert_eq!(seek(SIZE, what), Err(Errno::NXIO));
        }
        kernel.close(writer);
    }
    all_is_a_hole();
    let both = kernel.create("other", libc::O_RDWR);
    kernel.allocate(both, SIZE);
    assert_eq!(kernel.seek(both, 0, libc::SEEK_HOLE), Ok(SIZE));
}
