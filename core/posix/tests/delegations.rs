//! Read delegations: no change of a delegated file is made by others before it is returned.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use support::Mounted;
use tarn_ondisk::units::ObjectId;
use tarn_posix::types::{
    Allocate, Credentials, DeviceNumber, FileKind, NewFile, RenameMode, SetAttributes, XattrMode,
};
use tarn_posix::{
    Change, FileSystem, Holding, LockOwner, PosixError, Share, Watcher, WriteAt, act_for,
};
use tarn_probe::{ClientId, HolderId, Operation, OperationKind, Protocol, What, Who};

/// Counts what it is asked for.
#[derive(Default)]
struct Server {
    recalls: AtomicUsize,
}

impl Watcher for Server {
    fn changed(&self, _: &Change<'_>) {}

    fn recall(&self, _: ObjectId) {
        self.recalls.fetch_add(1, Ordering::SeqCst);
    }
}

fn by(protocol: Protocol, holder: HolderId) -> Operation {
    let who = Who {
        client: ClientId::INTERNAL,
        protocol,
        user: 0,
        holder,
    };
    let what = What::plain(OperationKind::Other, tarn_probe::DatasetId::NONE, 0);
    Operation::begin(|| 0, who, what)
}

fn hold(files: &Arc<FileSystem>, server: &Arc<Server>) -> Holding {
    let watcher: Arc<dyn Watcher> = server.clone();
    files.hold(Arc::downgrade(&watcher))
}

fn make(files: &FileSystem, name: &[u8], op: &Operation) -> ObjectId {
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: 0o644,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    let (root, top) = (Credentials::root(), files.root());
    files.create(&root, top, name, &new, op).unwrap().id
}

const WRITES: Share = Share {
    reads: false,
    writes: true,
    denies_reading: false,
    denies_writing: false,
};

#[test]
fn each_change_of_a_delegated_file_by_another_client_asks_for_it_first() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    let server = Arc::new(Server::default());
    let holding = hold(files, &server);
    let op = by(Protocol::Nfs4, holding.id());
    let (root, top) = (Credentials::root(), files.root());
    let (file, other) = (make(files, b"file", &op), make(files, b"other", &op));
    files
        .write(&root, other, WriteAt::Offset(0), b"0123", &op)
        .unwrap();
    let client = LockOwner {
        holder: holding.id(),
        number: 7,
    };
    let longer = SetAttributes {
        size: Some(9),
        ..SetAttributes::default()
    };
    let mode = SetAttributes {
        permissions: Some(0o600),
        ..SetAttributes::default()
    };
    type Try<'a> = (&'a str, Box<dyn Fn() -> Result<(), PosixError> + 'a>);
    let changes: [Try<'_>; 10] = [
        (
            "write",
            Box::new(|| files.write(&root, file, WriteAt::End, b"x", &op).map(drop)),
        ),
        (
            "size",
            Box::new(|| files.set_attributes(&root, file, &longer, &op).map(drop)),
        ),
        (
            "mode",
            Box::new(|| files.set_attributes(&root, file, &mode, &op).map(drop)),
        ),
        (
            "allocate",
            Box::new(|| files.allocate(&root, file, Allocate::Extend, 0, 4096, &op)),
        ),
        (
            "copy",
            Box::new(|| {
                files
                    .copy_range(&root, (other, 0), (file, 0), 4, &op)
                    .map(drop)
            }),
        ),
        (
            "xattr",
            Box::new(|| files.set_xattr(&root, file, b"user.a", b"1", XattrMode::Any, &op)),
        ),
        (
            "no xattr",
            Box::new(|| files.remove_xattr(&root, file, b"user.a", &op)),
        ),
        (
            "link",
            Box::new(|| files.link(&root, file, top, b"link", &op).map(drop)),
        ),
        (
            "open",
            Box::new(|| {
                files.share(file, holding.id(), WRITES)?;
                files.unshare(file, holding.id(), WRITES);
                Ok(())
            }),
        ),
        (
            "unlink",
            Box::new(|| files.unlink(&root, top, b"link", &op)),
        ),
    ];
    for (what, change) in &changes {
        files.delegate(file, client, &op).expect(what);
        let before = (
            files.attributes(file, &op).unwrap(),
            server.recalls.load(Ordering::SeqCst),
        );
        let refused = change();
        assert!(
            matches!(refused, Err(PosixError::Recalling)),
            "{what}: {refused:?}"
        );
        assert_eq!(files.attributes(file, &op).unwrap(), before.0, "{what}");
        assert_eq!(
            server.recalls.load(Ordering::SeqCst),
            before.1 + 1,
            "{what}"
        );
        let again = files.delegate(
            file,
            LockOwner {
                number: 8,
                ..client
            },
            &op,
        );
        assert!(
            again.is_err(),
            "{what}: what is to be returned is given to no other"
        );
        files.undelegate(file, client);
        change().expect(what);
    }
    for (from, to) in [(&b"file"[..], &b"moved"[..]), (b"other", b"moved")] {
        files.delegate(file, client, &op).unwrap();
        let rename = || files.rename(&root, top, from, top, to, RenameMode::Replace, &op);
        assert!(
            matches!(rename(), Err(PosixError::Recalling)),
            "moved, then replaced"
        );
        files.undelegate(file, client);
        rename().unwrap();
    }
    assert!(files.delegate(file, client, &op).is_err(), "it is gone");
}

#[test]
fn the_client_itself_changes_its_file_and_readers_are_let_in() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    let server = Arc::new(Server::default());
    let holding = hold(files, &server);
    let op = by(Protocol::Nfs4, holding.id());
    let file = make(files, b"file", &op);
    let client = |number| LockOwner {
        holder: holding.id(),
        number,
    };
    files.share(file, holding.id(), WRITES).unwrap();
    assert!(
        files.delegate(file, client(1), &op).is_err(),
        "it is open for writing"
    );
    files.unshare(file, holding.id(), WRITES);
    files.delegate(file, client(1), &op).unwrap();
    files.delegate(file, client(2), &op).unwrap();
    assert!(files.delegate(file, client(1), &op).is_err(), "it has it");
    let reads = Share {
        reads: true,
        denies_writing: true,
        ..Share::default()
    };
    files.share(file, holding.id(), reads).unwrap();
    files.unshare(file, holding.id(), reads);
    assert_eq!(server.recalls.load(Ordering::SeqCst), 0);
    files.undelegate(file, client(2));
    let write = || files.write(&Credentials::root(), file, WriteAt::End, b"x", &op);
    {
        let _acting = act_for(client(1));
        write().unwrap();
        let (root, top) = (Credentials::root(), files.root());
        let removed = files.unlink(&root, top, b"file", &op);
        assert!(
            matches!(removed, Err(PosixError::Recalling)),
            "it would be gone"
        );
        assert_eq!(server.recalls.swap(0, Ordering::SeqCst), 1);
        files.share(file, holding.id(), WRITES).unwrap();
        files.unshare(file, holding.id(), WRITES);
    }
    assert_eq!(server.recalls.load(Ordering::SeqCst), 0);
    let _acting = act_for(client(2));
    assert!(matches!(write(), Err(PosixError::Recalling)));
    // With its holder, the delegation is gone.
    drop(holding);
    write().unwrap();
}

#[test]
fn a_program_waits_until_the_file_is_returned() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    let server = Arc::new(Server::default());
    let holding = hold(files, &server);
    let op = by(Protocol::Nfs4, holding.id());
    let file = make(files, b"file", &op);
    let client = LockOwner {
        holder: holding.id(),
        number: 7,
    };
    files.delegate(file, client, &op).unwrap();
    let (done, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        for opens in [false, true] {
            let done = done.clone();
            scope.spawn(move || {
                let op = by(Protocol::Fuse, HolderId(99));
                match opens {
                    false => {
                        let root = Credentials::root();
                        files.write(&root, file, WriteAt::End, b"x", &op).unwrap();
                    }
                    true => files
                        .share_when_returned(file, HolderId(99), WRITES)
                        .unwrap(),
                }
                done.send(()).unwrap();
            });
        }
        while server.recalls.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        assert!(ended.try_recv().is_err(), "both wait");
        assert_eq!(files.attributes(file, &op).unwrap().size, 0);
        files.undelegate(file, client);
        ended.recv().unwrap();
        ended.recv().unwrap();
    });
    assert_eq!(files.attributes(file, &op).unwrap().size, 1);
}
