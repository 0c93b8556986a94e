//! What the holders of a file system hear of each other's changes.

mod support;

use std::sync::{Arc, Mutex, Weak};

use support::Mounted;
use tarn_ondisk::units::ObjectId;
use tarn_posix::types::{
    Allocate, Credentials, DeviceNumber, FileKind, NewFile, RenameMode, SetAttributes, XattrMode,
};
use tarn_posix::{Change, FileSystem, MountProperties, TO_END, Watcher, WriteAt};
use tarn_probe::{ClientId, HolderId, Operation, OperationKind, Protocol, What, Who};

/// Writes down what it hears, and looks at the file system meanwhile: no lock may be held.
struct Notes {
    files: Weak<FileSystem>,
    /// It changes the root meanwhile, as the second holder.
    is_busy: bool,
    heard: Mutex<Vec<String>>,
}

impl Watcher for Notes {
    fn changed(&self, change: &Change<'_>) {
        let files = self.files.upgrade().unwrap();
        let operation = Operation::unmeasured();
        let root = Credentials::root();
        if self.is_busy {
            let (id, mode, second) = (files.root(), XattrMode::Any, by(HolderId(2)));
            files
                .set_xattr(&root, id, b"user.heard", b"x", mode, &second)
                .unwrap();
        }
        let line = match change {
            Change::Attributes { file } => {
                let _ = files.attributes(*file, &operation);
                format!("attributes {file}")
            }
            Change::Contents {
                file,
                offset,
                length,
            } => {
                let length = match *length {
                    TO_END => "end".to_string(),
                    length => length.to_string(),
                };
                format!("contents {file} {offset} {length}")
            }
            Change::Entry { directory, name } => {
                let _ = files.lookup(&root, *directory, name, &operation);
                format!("entry {directory} {}", String::from_utf8_lossy(name))
            }
            Change::Everything => "everything".to_string(),
        };
        self.heard.lock().unwrap().push(line);
    }

    fn write_back(&self, file: ObjectId, offset: u64, _: u64) {
        let line = format!("write back {file} {offset}");
        self.heard.lock().unwrap().push(line);
    }
}

impl Notes {
    fn of(files: &Arc<FileSystem>, is_busy: bool) -> Arc<Notes> {
        Arc::new(Notes {
            files: Arc::downgrade(files),
            is_busy,
            heard: Mutex::default(),
        })
    }

    fn take(&self) -> Vec<String> {
        let mut heard = std::mem::take(&mut *self.heard.lock().unwrap());
        heard.sort();
        heard
    }
}

/// An operation of a holder.
fn by(holder: HolderId) -> Operation {
    let who = Who {
        client: ClientId::INTERNAL,
        protocol: Protocol::Internal,
        user: 0,
        holder,
    };
    let what = What::plain(OperationKind::Other, tarn_probe::DatasetId::NONE, 0);
    Operation::begin(|| 0, who, what)
}

fn regular() -> NewFile<'static> {
    NewFile {
        kind: FileKind::Regular,
        permissions: 0o644,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    }
}

#[test]
fn each_change_is_told_to_the_other_holder_once_the_locks_are_let_go() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    let notes = [Notes::of(files, false), Notes::of(files, true)];
    let watch = |notes: &Arc<Notes>| {
        let watcher: Arc<dyn Watcher> = notes.clone();
        files.hold(Arc::downgrade(&watcher))
    };
    let (first, second) = (watch(&notes[0]), watch(&notes[1]));
    assert_eq!(
        second.id(),
        HolderId(2),
        "what a watcher does itself is the second's"
    );
    let (root, top, op) = (Credentials::root(), files.root(), by(first.id()));
    let told = |expected: &[String]| {
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(notes[1].take(), expected);
    };
    let entry = |name: &str| format!("entry {top} {name}");
    let attributes = |id: ObjectId| format!("attributes {id}");

    let a = files.create(&root, top, b"a", &regular(), &op).unwrap().id;
    told(&[entry("a")]);
    files
        .write(&root, a, WriteAt::Offset(7), b"contents", &op)
        .unwrap();
    told(&[format!("contents {a} 7 8"), format!("write back {a} 7")]);
    let cut = SetAttributes {
        size: Some(3),
        ..SetAttributes::default()
    };
    files.set_attributes(&root, a, &cut, &op).unwrap();
    told(&[format!("contents {a} 3 end"), format!("write back {a} 3")]);
    let mode = SetAttributes {
        permissions: Some(0o6755),
        ..SetAttributes::default()
    };
    files.set_attributes(&root, a, &mode, &op).unwrap();
    told(&[attributes(a)]);
    let user = Credentials::user(1000, 1000, Vec::new());
    let which = tarn_posix::types::Privileges::All;
    assert!(files.drop_privileges(&user, a, which, &op).unwrap());
    told(&[attributes(a)]);
    files
        .set_xattr(&root, a, b"user.x", b"1", XattrMode::Any, &op)
        .unwrap();
    told(&[attributes(a)]);
    files.remove_xattr(&root, a, b"user.x", &op).unwrap();
    told(&[attributes(a)]);
    files.link(&root, a, top, b"b", &op).unwrap();
    told(&[entry("b"), attributes(a)]);
    files
        .allocate(&root, a, Allocate::ZeroRange, 0, 100, &op)
        .unwrap();
    told(&[format!("contents {a} 0 100"), format!("write back {a} 0")]);
    let c = files
        .create_unnamed(&root, top, &regular(), &op)
        .unwrap()
        .id;
    told(&[]);
    files.link(&root, c, top, b"c", &op).unwrap();
    told(&[entry("c"), attributes(c)]);
    files.copy_range(&root, (a, 0), (c, 4), 50, &op).unwrap();
    told(&[
        format!("write back {a} 0"),
        format!("write back {c} 4"),
        format!("contents {c} 4 50"),
        attributes(a),
    ]);
    let rename = |from: &[u8], to: &[u8], mode| {
        files.rename(&root, top, from, top, to, mode, &op).unwrap();
    };
    rename(b"b", b"c", RenameMode::Replace);
    told(&[entry("b"), entry("c"), attributes(a), attributes(c)]);
    files.closed(c, &op).unwrap();
    rename(b"c", b"d", RenameMode::Whiteout);
    told(&[entry("c"), entry("d"), attributes(a)]);
    let white = files.lookup(&root, top, b"c", &op).unwrap().id;
    rename(b"c", b"d", RenameMode::Exchange);
    told(&[entry("c"), entry("d"), attributes(a), attributes(white)]);
    files.unlink(&root, top, b"d", &op).unwrap();
    told(&[entry("d"), attributes(white)]);
    assert!(files.remove_directory(&root, top, b"c", &op).is_err());
    notes[1].take();
    // The first read moves the access time, the second finds it new enough.
    files.read(&root, a, 0, 10, &op).unwrap();
    told(&[format!("write back {a} 0"), attributes(a)]);
    let of_second = attributes(top);
    assert!(notes[0].take().iter().all(|line| *line == of_second));
}

#[test]
fn an_operation_of_no_holder_is_told_to_all_and_one_that_has_ended_hears_nothing() {
    let mounted = Mounted::new();
    let files = &mounted.files;
    let notes = [(); 2].map(|()| Notes::of(files, false));
    let watchers: Vec<Arc<dyn Watcher>> = notes.iter().map(|one| one.clone() as _).collect();
    let mut holdings: Vec<_> = (watchers.iter())
        .map(|watcher| files.hold(Arc::downgrade(watcher)))
        .collect();
    let (root, top) = (Credentials::root(), files.root());
    let nobodys = Operation::unmeasured();
    files
        .create(&root, top, b"a", &regular(), &nobodys)
        .unwrap();
    let line = [format!("entry {top} a")];
    assert_eq!(notes[0].take(), line);
    assert_eq!(notes[1].take(), line);
    drop(holdings.remove(0));
    files.unlink(&root, top, b"a", &nobodys).unwrap();
    assert_eq!(notes[0].take(), Vec::<String>::new());
    assert_eq!(notes[1].take().len(), 2);
    files.set_properties(MountProperties {
        is_read_only: true,
        ..*files.properties()
    });
    assert_eq!(notes[1].take(), ["everything"]);
}
