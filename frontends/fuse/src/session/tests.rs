//! Requests as the kernel sends them, without a kernel: also while the same names change.

use super::*;
use crate::nodes::ROOT_NODE;
use crate::protocol::{
    Answer, Arguments, UNKNOWN_USER, init_flags, opcode, setattr_bits, statx_bits,
};
use crate::server::Server;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::time::{Duration, Instant};
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{Create, Rename, Snapshot as Take};
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_engine::files::{Credentials, DeviceNumber, FileKind, NewFile, Operation, Who};
use tarn_engine::instance::Instance;
use tarn_engine::{Engine, EngineOptions, Host, RealOptions};
use tarn_serving::{AwakeProcessors, ServingThreads};
use tarn_unmounted::NoMounts;
use tempfile::TempDir;

mod locking;

/// An engine with the file system `tank/a`, which the test serves.
struct Bench {
    engine: Arc<Engine>,
    administrator: Arc<Administrator>,
    tree: Arc<dyn Tree>,
    _folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        let file = std::fs::File::create(&disk).unwrap();
        file.set_len(128 << 20).unwrap();
        let mounter = Arc::new(NoMounts::default());
        let engine = Engine::new(
            Host::real(RealOptions::default()),
            Instance::at(folder.path()),
            mounter.clone(),
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
        administrator.pool_create(&Call::default(), create).unwrap();
        let create = Create {
            name: "tank/a".to_string(),
            ..Create::default()
        };
        administrator
            .dataset_create(&Call::default(), create)
            .unwrap();
        let tree = mounter.tree("tank/a").unwrap();
        Bench {
            engine,
            administrator,
            tree,
            _folder: folder,
        }
    }
}

fn take_snapshot(administrator: &Administrator, name: &str) {
    let take = Take {
        names: vec![format!("tank/a@{name}")],
        ..Take::default()
    };
    administrator
        .dataset_snapshot(&Call::default(), take)
        .unwrap();
}

fn rename_snapshot(administrator: &Administrator, from: &str, to: &str) {
    let rename = Rename {
        from: format!("tank/a@{from}"),
        to: format!("tank/a@{to}"),
        ..Rename::default()
    };
    administrator
        .dataset_rename(&Call::default(), rename)
        .unwrap();
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
    let credentials = Credentials::root();
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

/// A tree that calls a function before one of its snapshots is opened.
struct Eventful {
    tree: Arc<dyn Tree>,
    event: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Tree for Eventful {
    fn files(&self) -> &Arc<FileSystem> {
        self.tree.files()
    }

    fn snapshot(&self, name: &[u8], operation: &Operation) -> Result<Arc<dyn Tree>, PosixError> {
        let event = self.event.lock().unwrap().take();
        event.into_iter().for_each(|event| event());
        self.tree.snapshot(name, operation)
    }

    fn guid(&self) -> u64 {
        self.tree.guid()
    }

    fn snapshot_numbered(
        &self,
        dataset: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<dyn Tree>, PosixError> {
        self.tree.snapshot_numbered(dataset, operation)
    }

    fn is_suspended(&self) -> bool {
        self.tree.is_suspended()
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

/// The kernel's side of a mount.
struct Kernel {
    threads: Arc<ServingThreads>,
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
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let server = Server::new(threads.clone());
        let session = Session::new(tree, PermissionChecks::Kernel, Box::new(|| {}));
        server.add(ours, "tank", session).unwrap();
        Kernel {
            threads,
            socket: theirs,
        }
    }

    fn ask(&self, code: u32, node: u64, body: &Answer) -> Result<Vec<u8>, Errno> {
        let mut request = Answer::new();
        let length = u32::try_from(40 + body.len()).unwrap();
        request.u32(length).u32(code).u64(7).u64(node).zeros(16);
        request.bytes(body.as_slice());
        self.exchange(&request)
    }

    /// Sends a request without a reply.
    fn tell(&self, code: u32, node: u64, words: &[u64]) {
        let mut request = Answer::new();
        let length = u32::try_from(40 + 8 * words.len()).unwrap();
        request.u32(length).u32(code).u64(7).u64(node).zeros(16);
        for word in words {
            request.u64(*word);
        }
        rustix::io::write(&self.socket, request.as_slice()).unwrap();
    }

    fn exchange(&self, request: &Answer) -> Result<Vec<u8>, Errno> {
        rustix::io::write(&self.socket, request.as_slice()).unwrap();
        let mut reply = vec![0; 64 << 10];
        let mut length = 0;
        // A notice, such as one that attributes are to be dropped, is no reply.
        while length == 0 || reply[8..16] == [0; 8] {
            length = rustix::io::read(&self.socket, &mut reply[..]).unwrap();
        }
        let error = i32::from_ne_bytes(reply[4..8].try_into().unwrap());
        match error {
            0 => Ok(reply[16..length].to_vec()),
            error => Err(Errno::from_raw_os_error(-error)),
        }
    }

    /// As [`ask`](Self::ask), for this user.
    fn ask_for(&self, uid: u32, code: u32, node: u64, body: &Answer) -> Result<Vec<u8>, Errno> {
        let mut request = Answer::new();
        let length = u32::try_from(40 + body.len()).unwrap();
        request.u32(length).u32(code).u64(7).u64(node);
        request.u32(uid).u32(uid).u32(std::process::id()).zeros(4);
        request.bytes(body.as_slice());
        self.exchange(&request)
    }

    /// The result of a lookup: the node, and for how many seconds it may be cached.
    fn lookup(&self, parent: u64, name: &str) -> Result<(u64, u64), Errno> {
        let mut body = Answer::new();
        body.bytes(name.as_bytes()).zeros(1);
        let entry = self.ask(opcode::LOOKUP, parent, &body)?;
        let mut entry = Arguments::of(&entry);
        let node = entry.u64()?;
        entry.skip(8)?;
        Ok((node, entry.u64()?))
    }

    /// Creates a file in the root and opens it: returns its node and the handle.
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

    /// Allocates this much of a file by `fallocate`.
    fn allocate(&self, (node, handle): (u64, u64), length: u64) {
        let mut body = Answer::new();
        body.u64(handle).u64(0).u64(length).zeros(8);
        self.ask(opcode::FALLOCATE, node, &body).unwrap();
    }

    /// Opens a file: returns the handle.
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

    /// The kernel's first request, with these capabilities: returns the negotiated ones.
    fn begin(&self, offered: u64) -> u64 {
        let halves =
            [offered & 0xffff_ffff, offered >> 32].map(|half| u32::try_from(half).unwrap());
        let mut body = Answer::new();
        body.u32(7)
            .u32(42)
            .u32(1 << 17)
            .u32(halves[0])
            .u32(halves[1])
            .zeros(44);
        let agreed = self.ask(opcode::INIT, 0, &body).unwrap();
        assert_eq!(agreed.len(), 64);
        let mut agreed = Arguments::of(&agreed);
        agreed.skip(12).unwrap();
        let low = agreed.u32().unwrap();
        agreed.skip(16).unwrap();
        u64::from(low) | (u64::from(agreed.u32().unwrap()) << 32)
    }

    /// The result of a lookup: node, generation, and inode number.
    fn identity(&self, parent: u64, name: &str) -> (u64, u64, u64) {
        let mut body = Answer::new();
        body.bytes(name.as_bytes()).zeros(1);
        let entry = self.ask(opcode::LOOKUP, parent, &body).unwrap();
        let mut entry = Arguments::of(&entry);
        let (node, generation) = (entry.u64().unwrap(), entry.u64().unwrap());
        entry.skip(24).unwrap();
        (node, generation, entry.u64().unwrap())
    }

    /// The inode number in a node's attributes.
    fn inode(&self, node: u64) -> u64 {
        let mut body = Answer::new();
        body.zeros(16);
        let attributes = self.ask(opcode::GETATTR, node, &body).unwrap();
        let mut attributes = Arguments::of(&attributes);
        attributes.skip(16).unwrap();
        attributes.u64().unwrap()
    }

    /// The inode numbers of a listing, by name.
    fn list(&self, node: u64) -> BTreeMap<String, u64> {
        let read = |code, before: usize| {
            let mut body = Answer::new();
            body.u64(0).u64(0).u32(32 << 10).zeros(20);
            let list = self.ask(code, node, &body).unwrap();
            let mut list = Arguments::of(&list);
            let mut found = BTreeMap::new();
            while !list.rest().is_empty() {
                let entry = list.bytes(u32::try_from(before).unwrap()).unwrap();
                let inode = list.u64().unwrap();
                list.skip(8).unwrap();
                let (length, _) = (list.u32().unwrap(), list.u32().unwrap());
                let name = list.bytes(length).unwrap();
                let padding = usize::try_from(length).unwrap().next_multiple_of(8) - name.len();
                list.skip(padding).unwrap();
                if entry.len() > 48 && entry.iter().any(|byte| *byte != 0) {
                    assert_eq!(entry[40..48], inode.to_ne_bytes(), "both say the same");
                }
                found.insert(String::from_utf8_lossy(name).into_owned(), inode);
            }
            found
        };
        let (list, with_attributes) = (read(opcode::READDIR, 0), read(opcode::READDIRPLUS, 128));
        assert_eq!(list, with_attributes);
        list
    }

    /// The directory of snapshots.
    fn snapshots(&self) -> u64 {
        self.node_of(self.node_of(ROOT_NODE, ".zfs"), "snapshot")
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.threads.stop();
    }
}

#[test]
fn a_snapshot_renamed_while_it_is_entered_is_looked_up_again() {
    let bench = Bench::new();
    take_snapshot(&bench.administrator, "daily");
    let (administrator, tree) = (bench.administrator.clone(), bench.tree.clone());
    let event = move || {
        rename_snapshot(&administrator, "daily", "old");
        make_directory(&*tree, "later");
        take_snapshot(&administrator, "daily");
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
fn async_dio_is_not_negotiated_and_direct_writes_drop_pages() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let flags = kernel.begin(u64::MAX);
    assert_eq!(flags & init_flags::ASYNC_DIO, 0);
    assert_ne!(flags & init_flags::POSIX_ACL, 0);
}

#[test]
fn only_names_of_snapshots_are_not_cached() {
    let bench = Bench::new();
    make_directory(&*bench.tree, "folder");
    take_snapshot(&bench.administrator, "daily");
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
    let Some(Node::Object { id, .. }) = Node::from_number(node) else {
        panic!("the root is no file")
    };
    let operation = Operation::unmeasured();
    let unsynced = tree.files().sync_later(id, &operation);
    unsynced.unwrap().is_none()
}

#[test]
fn fallocate_and_copy_of_an_o_sync_file_are_durable_when_answered() {
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
fn a_file_that_may_be_mapped_has_no_holes() {
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

/// Programs take files with the same device and inode number for one file, and a mount has one
/// device.
#[test]
fn files_in_snapshots_show_unique_inode_numbers() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    make_directory(&*bench.tree, "d");
    let file = kernel.create("f", libc::O_RDWR);
    let folder = kernel.node_of(ROOT_NODE, "d");
    let mut body = Answer::new();
    body.u64(file.0).bytes(b"h\0");
    kernel.ask(opcode::LINK, folder, &body).unwrap();
    take_snapshot(&bench.administrator, "one");
    kernel.allocate(file, 4096);
    take_snapshot(&bench.administrator, "two");
    let snapshots = kernel.snapshots();
    let listed = kernel.list(snapshots);
    let mut seen = BTreeMap::from([(kernel.inode(ROOT_NODE), "the live root".to_string())]);
    for (name, inode) in kernel.list(ROOT_NODE) {
        seen.insert(inode, name);
    }
    let numbers_of = |kernel: &Kernel, name: &str| {
        let (root, _, shown) = kernel.identity(kernel.snapshots(), name);
        let list = kernel.list(root);
        assert_eq!([kernel.inode(root), list["."], listed[name]], [shown; 3]);
        assert_eq!(list[".."], kernel.inode(kernel.snapshots()));
        let (above, _, _) = kernel.identity(root, "..");
        assert_eq!(above, kernel.snapshots());
        let (folder, _, folder_shown) = kernel.identity(root, "d");
        let below = kernel.list(folder);
        assert_eq!(
            [kernel.inode(folder), below["."], list["d"]],
            [folder_shown; 3]
        );
        assert_eq!(below[".."], shown);
        let (file, _, file_shown) = kernel.identity(root, "f");
        let (_, _, linked) = kernel.identity(folder, "h");
        // Two names of one file.
        assert_eq!(
            [kernel.inode(file), list["f"], below["h"], linked],
            [file_shown; 4]
        );
        [shown, folder_shown, file_shown]
    };
    let both = ["one", "two"].map(|name| (name, numbers_of(&kernel, name)));
    for (name, numbers) in &both {
        for number in numbers {
            let before = seen.insert(*number, (*name).to_string());
            assert_eq!(before, None, "{name} shows {number:x}");
        }
    }
    // The same after a restart, in another order of entering.
    let later = Kernel::of(bench.tree.clone());
    for (name, numbers) in both.iter().rev() {
        assert_eq!(numbers_of(&later, name), *numbers);
    }
}

/// Handles (of NFS, and of programs) have node and generation. Those of snapshots follow from their
/// datasets, so they are the same in each session, in any order of entering.
#[test]
fn a_handle_of_a_file_in_a_snapshot_never_names_a_file_of_another_snapshot() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let file = kernel.create("f", libc::O_RDWR);
    take_snapshot(&bench.administrator, "one");
    kernel.allocate(file, 4096);
    take_snapshot(&bench.administrator, "two");
    let enter = |kernel: &Kernel, name: &str| {
        let root = kernel.node_of(kernel.snapshots(), name);
        kernel.identity(root, "f")
    };
    let one = enter(&kernel, "one");
    let later = Kernel::of(bench.tree.clone());
    let two = enter(&later, "two");
    assert_ne!(one.0, two.0);
    assert_ne!(one.1 & 0xffff_ffff, two.1 & 0xffff_ffff);
    assert_eq!(enter(&later, "one"), one);
    assert_eq!(enter(&kernel, "two"), two);
}

/// The kernel may still know nodes of a destroyed snapshot when another gets its number.
#[test]
fn a_snapshot_with_the_dataset_number_of_a_destroyed_one_is_renumbered() {
    let bench = Bench::new();
    for name in ["one", "two"] {
        take_snapshot(&bench.administrator, name);
    }
    let enter = |name: &[u8]| bench.tree.snapshot(name, &Operation::unmeasured()).unwrap();
    let (one, two) = (enter(b"one"), enter(b"two"));
    let mut entered = Entered::default();
    let number = ObjectId::new(77);
    let first = entered.add(number, one.clone()).unwrap();
    assert_eq!(first.which, Which::Snapshot(number));
    // It was about to be destroyed, and goes on.
    one.files().set_ending(true);
    assert!(entered.find(first.which).is_none());
    one.files().set_ending(false);
    let again = entered.add(number, one.clone()).unwrap();
    assert_eq!(again.which, first.which);
    one.files().set_ending(true);
    let other = entered.add(number, two.clone()).unwrap();
    assert_eq!(other.which, Which::Renumbered(0));
    assert!(entered.find(first.which).is_none());
    let found = entered.find(other.which).unwrap();
    assert!(Arc::ptr_eq(found.tree.files(), two.files()));
    let large = entered.add(ObjectId::new(1 << 40), two).unwrap();
    assert_eq!(large.which, Which::Renumbered(1));
}

#[test]
fn a_file_of_o_tmpfile_gets_a_name_by_a_link() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let mut body = Answer::new();
    body.u32(libc::O_RDWR.cast_unsigned())
        .u32(0o644)
        .zeros(8)
        .bytes(b"/\0");
    let made = kernel.ask(opcode::TMPFILE, ROOT_NODE, &body).unwrap();
    let mut made = Arguments::of(&made);
    let node = made.u64().unwrap();
    made.skip(120).unwrap();
    let handle = made.u64().unwrap();
    kernel.allocate((node, handle), 8192);
    assert_eq!(kernel.list(ROOT_NODE).len(), 2);
    let mut body = Answer::new();
    body.u64(node).bytes(b"f\0");
    kernel.ask(opcode::LINK, ROOT_NODE, &body).unwrap();
    assert_eq!(kernel.node_of(ROOT_NODE, "f"), node);
    kernel.close((node, handle));
    assert_eq!(kernel.node_of(ROOT_NODE, "f"), node);
}

#[test]
fn statx_shows_the_birth_time() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let (node, _) = kernel.create("f", libc::O_RDWR);
    let mut body = Answer::new();
    body.zeros(16)
        .u32(0)
        .u32(statx_bits::BASIC | statx_bits::BIRTH);
    let told = kernel.ask(opcode::STATX, node, &body).unwrap();
    assert_eq!(told.len(), 32 + 256);
    let mut told = Arguments::of(&told);
    told.skip(32).unwrap();
    assert_eq!(told.u32(), Ok(statx_bits::BASIC | statx_bits::BIRTH));
    assert_eq!(told.u32(), Ok(128 << 10));
    told.skip(8 + 12).unwrap();
    assert_eq!(told.u32().unwrap() & 0xffff, 0o100_644);
    assert_eq!(told.u64(), Ok(kernel.inode(node)));
    told.skip(24 + 16).unwrap();
    let Some(Node::Object { id, .. }) = Node::from_number(node) else {
        panic!("the root is no file")
    };
    let attributes = bench
        .tree
        .files()
        .attributes(id, &Operation::unmeasured())
        .unwrap();
    let born = attributes.created;
    assert_eq!(told.u64(), Ok(born.seconds.cast_unsigned()));
    assert_eq!(told.u32(), Ok(born.nanoseconds));
}

#[test]
fn capabilities_that_the_kernel_does_not_offer_are_not_negotiated() {
    let bench = Bench::new();
    let (extended, idmap) = (init_flags::INIT_EXT, init_flags::ALLOW_IDMAP);
    for (offered, expected) in [
        (u64::MAX, extended | idmap),
        (!extended, 0),
        (!idmap, extended),
    ] {
        let kernel = Kernel::of(bench.tree.clone());
        assert_eq!(kernel.begin(offered) & (extended | idmap), expected);
    }
}

/// A kernel with idmapped mounts names the caller only where something is created.
#[test]
fn trusted_attributes_are_listed_only_for_root_on_idmapped_kernels() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    kernel.begin(u64::MAX);
    let (node, _) = kernel.create("f", libc::O_RDWR);
    for name in [&b"trusted.t\0"[..], b"user.u\0"] {
        let mut body = Answer::new();
        body.u32(1).u32(0).zeros(8).bytes(name).bytes(b"x");
        kernel.ask(opcode::SETXATTR, node, &body).unwrap();
    }
    let names = |uid| {
        let mut body = Answer::new();
        body.u32(1 << 10).u32(0);
        kernel.ask_for(uid, opcode::LISTXATTR, node, &body).unwrap()
    };
    let (all, others) = (names(0), names(1000));
    assert_eq!(others, b"user.u\0");
    assert!(all.len() > others.len());
    let expected = match rustix::process::geteuid().is_root() {
        true => all,
        false => others,
    };
    assert_eq!(names(UNKNOWN_USER), expected);
}

#[test]
fn dos_attributes_are_shown_and_set_by_the_owner() {
    const GET: u32 = 0x8008_8301;
    const SET: u32 = 0x4008_8302;
    const HIDDEN: u64 = 0x2_0000_0000;
    const ARCHIVE: u64 = 0x8_0000_0000;
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let own = rustix::process::geteuid().as_raw();
    let make = |uid| {
        let mut body = Answer::new();
        body.u32(libc::O_RDWR.cast_unsigned()).u32(0o644).zeros(8);
        body.bytes(format!("f{uid}\0").as_bytes());
        let made = kernel
            .ask_for(uid, opcode::CREATE, ROOT_NODE, &body)
            .unwrap();
        Arguments::of(&made).u64().unwrap()
    };
    let control = |node, command, given: Option<u64>| {
        let (mut body, size) = (Answer::new(), if given.is_some() { 8 } else { 0 });
        body.u64(0)
            .u32(0)
            .u32(command)
            .u64(0)
            .u32(size)
            .u32(8 - size);
        given.iter().for_each(|word| {
            body.u64(*word);
        });
        let told = kernel.ask_for(UNKNOWN_USER, opcode::IOCTL, node, &body)?;
        let mut told = Arguments::of(&told);
        told.skip(16)?;
        Ok(told.u64().unwrap_or(0))
    };
    let (mine, others) = (make(own), make(own + 1));
    assert_eq!(control(mine, GET, None), Ok(ARCHIVE));
    assert_eq!(control(mine, SET, Some(HIDDEN)), Ok(0));
    assert_eq!(control(mine, GET, None), Ok(HIDDEN));
    assert_eq!(control(mine, SET, Some(1)), Err(Errno::OPNOTSUPP));
    let expected = match own {
        0 => Ok(0),
        _ => Err(Errno::ACCESS),
    };
    assert_eq!(control(others, SET, Some(HIDDEN)), expected);
}

/// `chown(-1, -1)` arrives as a `SETATTR` of no attribute.
#[test]
fn a_chown_to_the_same_owner_removes_set_id_bits() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let own = rustix::process::geteuid().as_raw();
    let set = |node, valid: u32, mode: u32| {
        let mut body = Answer::new();
        body.u32(valid).zeros(64).u32(mode).zeros(16);
        let told = kernel
            .ask_for(UNKNOWN_USER, opcode::SETATTR, node, &body)
            .unwrap();
        let mut told = Arguments::of(&told);
        told.skip(16 + 48 + 12).unwrap();
        told.u32().unwrap() & 0o7777
    };
    for (owner, kept) in [(own, 0), (own + 1, if own == 0 { 0 } else { 0o6000 })] {
        let mut body = Answer::new();
        body.u32(libc::O_RDWR.cast_unsigned()).u32(0o644).zeros(8);
        body.bytes(format!("f{owner}\0").as_bytes());
        let made = kernel
            .ask_for(owner, opcode::CREATE, ROOT_NODE, &body)
            .unwrap();
        let node = Arguments::of(&made).u64().unwrap();
        assert_eq!(set(node, setattr_bits::MODE, 0o6755), 0o6755);
        assert_eq!(set(node, 0, 0), kept | 0o755, "{owner}");
    }
}

#[test]
fn fs_ioc_getversion_shows_the_generation_of_handles() {
    const GET: u32 = 0x8008_7601;
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    kernel.create("f", libc::O_RDWR);
    take_snapshot(&bench.administrator, "one");
    let root = kernel.node_of(kernel.snapshots(), "one");
    for parent in [ROOT_NODE, root] {
        let (node, generation, _) = kernel.identity(parent, "f");
        let mut body = Answer::new();
        body.u64(0).u32(0).u32(GET).u64(0).u32(0).u32(8);
        let told = kernel.ask(opcode::IOCTL, node, &body).unwrap();
        let mut told = Arguments::of(&told);
        told.skip(16).unwrap();
        assert_eq!(u64::from(told.u32().unwrap()), generation & 0xffff_ffff);
    }
}

/// A program can be in a directory that is removed. No request tells that; but the kernel tells
/// when it has forgotten the directory.
#[test]
fn a_removed_directory_answers_until_the_kernel_forgets_it() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let folder = |name: &str| {
        make_directory(&*bench.tree, name);
        kernel.node_of(ROOT_NODE, name)
    };
    let links_of = |node| {
        let mut body = Answer::new();
        body.zeros(16);
        let told = kernel.ask(opcode::GETATTR, node, &body)?;
        let mut told = Arguments::of(&told);
        // Up to the mode: times, size, blocks, inode.
        told.skip(16 + 6 * 8 + 3 * 4 + 4)?;
        told.u32()
    };
    let (removed, replaced, moved) = (folder("removed"), folder("replaced"), folder("moved"));
    let mut body = Answer::new();
    body.bytes(b"removed\0");
    kernel.ask(opcode::RMDIR, ROOT_NODE, &body).unwrap();
    let mut body = Answer::new();
    body.u64(ROOT_NODE).bytes(b"moved\0replaced\0");
    kernel.ask(opcode::RENAME, ROOT_NODE, &body).unwrap();
    for node in [removed, replaced] {
        assert_eq!(links_of(node), Ok(0));
        let mut body = Answer::new();
        body.zeros(8);
        kernel.ask(opcode::OPENDIR, node, &body).unwrap();
        let mut body = Answer::new();
        body.zeros(24);
        kernel.ask(opcode::RELEASEDIR, node, &body).unwrap();
        let mut body = Answer::new();
        body.u32(0o755).u32(0).bytes(b"new\0");
        assert_eq!(kernel.ask(opcode::MKDIR, node, &body), Err(Errno::NOENT));
    }
    let operation = Operation::unmeasured();
    let has_unlinked = || bench.tree.files().has_unlinked(&operation).unwrap();
    assert!(has_unlinked());
    kernel.tell(opcode::FORGET, removed, &[1]);
    eventually(|| links_of(removed) == Err(Errno::STALE));
    assert_eq!(links_of(replaced), Ok(0));
    // The other nodes are forgotten in one batch.
    kernel.tell(opcode::BATCH_FORGET, 0, &[2, moved, 3, replaced, 1]);
    eventually(|| links_of(replaced) == Err(Errno::STALE));
    assert_eq!(links_of(moved), Ok(2));
    eventually(|| !has_unlinked());
}

/// Waits for the effect of a message without a reply.
fn eventually(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
}
