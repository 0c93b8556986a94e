//! `zfs diff` through the administration: each kind of change, old and new names, and refusals.

mod support;

use std::io::{Read, Seek};
use std::os::unix::net::UnixStream;
use support::{Bench, call};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    DatasetKind, Describe, Diff, DiffLine, FileChange, MakeClone, Snapshot, Unmount,
};
use tarn_administration::messages::{Refusal, RefusalKind, unescape};
use tarn_engine::Pipe;
use tarn_engine::files::{
    Credentials, DeviceNumber, FileKind, NewFile, ObjectId, Operation, RenameMode, SetAttributes,
    Tree, WriteAt, XattrMode,
};

/// The files of a mounted dataset, by paths.
struct Files {
    tree: std::sync::Arc<dyn Tree>,
    root: Credentials,
    operation: Operation,
}

impl Files {
    fn of(bench: &Bench, path: &str) -> Files {
        Files {
            tree: bench.tree(path),
            root: Credentials::root(),
            operation: Operation::unmeasured(),
        }
    }

    fn find(&self, path: &str) -> ObjectId {
        let files = self.tree.files();
        let names = path.split('/').filter(|name| !name.is_empty());
        names.fold(files.root(), |parent, name| {
            let found = files.lookup(&self.root, parent, name.as_bytes(), &self.operation);
            found.unwrap().id
        })
    }

    fn split<'p>(&self, path: &'p str) -> (ObjectId, &'p [u8]) {
        let (parent, name) = path.rsplit_once('/').unwrap();
        (self.find(parent), name.as_bytes())
    }

    fn make(&self, path: &str, kind: FileKind) -> ObjectId {
        let (parent, name) = self.split(path);
        let new = NewFile {
            kind,
            permissions: 0o755,
            umask: 0,
            device: DeviceNumber::default(),
            target: (kind == FileKind::SymbolicLink).then_some(b"there".as_slice()),
        };
        let files = self.tree.files();
        let made = files.create(&self.root, parent, name, &new, &self.operation);
        made.unwrap().id
    }

    fn file(&self, path: &str) -> ObjectId {
        self.make(path, FileKind::Regular)
    }

    fn write(&self, path: &str) {
        let (files, id) = (self.tree.files(), self.find(path));
        let at = WriteAt::Offset(0);
        let written = files.write(&self.root, id, at, b"more", &self.operation);
        written.unwrap();
    }

    fn set_mode(&self, path: &str) {
        let changes = SetAttributes {
            permissions: Some(0o600),
            ..SetAttributes::default()
        };
        let (files, id) = (self.tree.files(), self.find(path));
        let set = files.set_attributes(&self.root, id, &changes, &self.operation);
        set.unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let ((from_parent, from), (to_parent, to)) = (self.split(from), self.split(to));
        let (files, mode) = (self.tree.files(), RenameMode::Replace);
        let renamed = files.rename(
            &self.root,
            from_parent,
            from,
            to_parent,
            to,
            mode,
            &self.operation,
        );
        renamed.unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let (parent, name) = self.split(to);
        let (files, id) = (self.tree.files(), self.find(path));
        let linked = files.link(&self.root, id, parent, name, &self.operation);
        linked.unwrap();
    }

    fn unlink(&self, path: &str) {
        let (parent, name) = self.split(path);
        let files = self.tree.files();
        let unlinked = files.unlink(&self.root, parent, name, &self.operation);
        unlinked.unwrap();
    }

    fn remove_directory(&self, path: &str) {
        let (parent, name) = self.split(path);
        let files = self.tree.files();
        let removed = files.remove_directory(&self.root, parent, name, &self.operation);
        removed.unwrap();
    }

    fn set_xattr(&self, path: &str) {
        let (files, id) = (self.tree.files(), self.find(path));
        let (name, mode) = (b"user.color".as_slice(), XattrMode::Any);
        let set = files.set_xattr(&self.root, id, name, b"red", mode, &self.operation);
        set.unwrap();
    }
}

fn snapshot(bench: &Bench, name: &str) {
    let request = Snapshot {
        names: vec![name.to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call("zfs snapshot"), request)
        .unwrap();
}

fn snapshots(bench: &Bench, name: &str) -> Vec<String> {
    let describe = Describe {
        names: vec![name.to_string()],
        kinds: vec![DatasetKind::Snapshot],
        properties: vec!["name".to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&call(""), describe)
        .unwrap();
    let names = described.datasets.into_iter().map(|one| one.name);
    names.filter(|name| name.contains('@')).collect()
}

fn diff_with(bench: &Bench, from: &str, to: Option<&str>) -> Result<Vec<DiffLine>, Refusal> {
    let mut file = tempfile::tempfile().unwrap();
    let (line, _callers) = UnixStream::pair().unwrap();
    let handed = file.try_clone().unwrap();
    let call = Call {
        pipe: Some(Pipe::new(handed.into(), line.into()).unwrap()),
        ..call("zfs diff")
    };
    let request = Diff {
        from: from.to_string(),
        to: to.map(str::to_string),
    };
    bench.administrator.dataset_diff(&call, request)?;
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    Ok(text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect())
}

/// The lines as `zfs diff -h` prints them, sorted, with paths below the alternate root.
fn diff(bench: &Bench, from: &str, to: Option<&str>) -> Vec<String> {
    let root = bench.root();
    let shown = |path: &str| {
        let path = String::from_utf8(unescape(path)).unwrap();
        path.strip_prefix(&root).unwrap().to_string()
    };
    let lines = diff_with(bench, from, to).unwrap().into_iter();
    let mut lines: Vec<String> = lines
        .map(|line| match line {
            DiffLine::Warning(text) => text,
            DiffLine::File(file) => {
                let path = shown(&file.path);
                match file.change {
                    FileChange::Added => format!("+ {path}"),
                    FileChange::Removed => format!("- {path}"),
                    FileChange::Modified => format!("M {path}"),
                    FileChange::Links(links) => format!("M {path} ({links:+})"),
                    FileChange::Renamed(to) => format!("R {path} -> {}", shown(&to)),
                }
            }
        })
        .collect();
    lines.sort();
    lines
}

/// `tank/a` with some files, its snapshot, and all kinds of changes to a file.
fn changed(properties: &[(&str, &str)]) -> Bench {
    let bench = Bench::new();
    bench.create("tank/a", properties).unwrap();
    let files = Files::of(&bench, "/tank/a");
    for directory in ["/kept", "/moved", "/moved/below", "/removed"] {
        files.make(directory, FileKind::Directory);
    }
    for name in [
        "/kept/same",
        "/kept/written",
        "/kept/mode",
        "/kept/old name",
        "/kept/linked",
        "/kept/less",
        "/kept/open",
        "/kept/color",
        "/moved/below/deep",
        "/removed/with",
        "/gone",
        "/again",
    ] {
        files.file(name);
    }
    files.link("/kept/less", "/kept/other");
    snapshot(&bench, "tank/a@before");
    files.write("/kept/written");
    files.set_mode("/kept/mode");
    files.rename("/kept/old name", "/kept/new name");
    files.link("/kept/linked", "/kept/second");
    files.unlink("/kept/other");
    files.rename("/moved", "/kept/moved");
    files.unlink("/removed/with");
    files.remove_directory("/removed");
    files.unlink("/gone");
    files.make("/kept/link", FileKind::SymbolicLink);
    files.make("/kept/fifo", FileKind::Fifo);
    files.set_xattr("/kept/color");
    let open = files.find("/kept/open");
    let opened = files.tree.files().opened(open, &files.operation);
    opened.unwrap();
    files.unlink("/kept/open");
    // In another txg, so that a reused object number is another file.
    bench.sync();
    files.unlink("/again");
    bench.sync();
    files.file("/again");
    bench
}

const CHANGES: [&str; 17] = [
    "+ /tank/a/again",
    "+ /tank/a/kept/fifo",
    "+ /tank/a/kept/link",
    "- /tank/a/again",
    "- /tank/a/gone",
    "- /tank/a/removed",
    "- /tank/a/removed/with",
    "M /tank/a/",
    "M /tank/a/kept",
    "M /tank/a/kept/color",
    "M /tank/a/kept/less (-1)",
    "M /tank/a/kept/linked (+1)",
    "M /tank/a/kept/mode",
    "M /tank/a/kept/written",
    "R /tank/a/kept/old name -> /tank/a/kept/new name",
    "R /tank/a/kept/open -> /tank/a(on_delete_queue)",
    "R /tank/a/moved -> /tank/a/kept/moved",
];

#[test]
fn every_change_is_shown_with_old_and_new_names() {
    let bench = changed(&[]);
    snapshot(&bench, "tank/a@after");
    assert_eq!(diff(&bench, "tank/a@before", Some("tank/a@after")), CHANGES);
    assert_eq!(diff(&bench, "tank/a@before", Some("@after")), CHANGES);
    assert_eq!(diff(&bench, "@before", Some("tank/a@after")), CHANGES);
    assert!(diff(&bench, "tank/a@after", Some("tank/a")).is_empty());
}

#[test]
fn attributes_in_directories_of_their_own_are_files_too() {
    let bench = changed(&[("xattr", "dir")]);
    let mut expected = CHANGES.to_vec();
    expected.push("+ /tank/a/kept/color/<xattrdir>");
    expected.push("+ /tank/a/kept/color/<xattrdir>/user.color");
    expected.sort_unstable();
    assert_eq!(diff(&bench, "tank/a@before", None), expected);
}

#[test]
fn old_file_systems_are_compared_as_well() {
    let bench = changed(&[("version", "4")]);
    let lines = diff(&bench, "tank/a@before", None);
    assert!(
        lines.contains(&"M /tank/a/kept/written".to_string()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"+ /tank/a/kept/fifo".to_string()),
        "{lines:?}"
    );
}

#[test]
fn the_present_state_is_compared_by_a_temporary_snapshot() {
    let bench = changed(&[]);
    assert_eq!(diff(&bench, "tank/a@before", Some("tank/a")), CHANGES);
    assert_eq!(diff(&bench, "tank/a@before", None), CHANGES);
    assert_eq!(diff(&bench, "@before", Some("tank/a")), CHANGES);
    assert_eq!(snapshots(&bench, "tank/a"), ["tank/a@before"]);
}

/// Many files, so that there are several batches, unchanged blocks of dnodes, and holes.
#[test]
fn of_many_files_only_changed_ones_are_shown() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    let files = Files::of(&bench, "/tank/a");
    files.make("/many", FileKind::Directory);
    let name = |number: usize| format!("/many/{number:04}");
    for number in 0..3000 {
        files.file(&name(number));
    }
    snapshot(&bench, "tank/a@before");
    let written = (0..1000).step_by(37);
    written
        .clone()
        .for_each(|number| files.write(&name(number)));
    (2000..3000).for_each(|number| files.unlink(&name(number)));
    let mut expected: Vec<String> = written
        .map(|number| format!("M /tank/a{}", name(number)))
        .chain((2000..3000).map(|number| format!("- /tank/a{}", name(number))))
        .chain(["M /tank/a/many".to_string()])
        .collect();
    expected.sort();
    assert_eq!(diff(&bench, "tank/a@before", None), expected);
}

#[test]
fn a_clone_is_compared_with_its_origin() {
    let bench = changed(&[]);
    snapshot(&bench, "tank/a@after");
    let clone = MakeClone {
        origin: "tank/a@after".to_string(),
        name: "tank/b".to_string(),
        ..MakeClone::default()
    };
    bench
        .administrator
        .dataset_clone(&call("zfs clone"), clone)
        .unwrap();
    let files = Files::of(&bench, "/tank/b");
    files.write("/kept/same");
    assert_eq!(
        diff(&bench, "tank/a@after", Some("tank/b")),
        ["M /tank/b/kept/same"]
    );
    let more = diff(&bench, "tank/a@before", Some("tank/b"));
    // The unlinked file is not in the clone any more: mounting has freed it.
    assert_eq!(more.len(), CHANGES.len() + 1, "{more:?}");
    assert!(more.contains(&"R /tank/b/moved -> /tank/b/kept/moved".to_string()));
    let refused = diff_with(&bench, "tank/b@x", Some("tank/a")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Not an earlier snapshot from the same fs: invalid name"
    );
}

#[test]
fn refusals_to_compare_have_the_words_of_openzfs() {
    let bench = changed(&[]);
    snapshot(&bench, "tank/a@after");
    let refused = |from: &str, to: Option<&str>| {
        let refusal = diff_with(&bench, from, to).unwrap_err();
        refusal.to_string()
    };
    assert_eq!(
        refused("tank/a@after", Some("tank/a@before")),
        "Unable to obtain diffs: \n   Not an earlier snapshot from the same fs"
    );
    assert_eq!(
        refused("tank/a@nothing", Some("tank/a@after")),
        "Unable to obtain diffs: No such file or directory"
    );
    assert_eq!(
        refused("tank/nothing@a", None),
        "cannot open 'tank/nothing': dataset does not exist"
    );
    assert_eq!(
        refused("tank/a", None),
        "Badly formed snapshot name tank/a: missing '@' delimiter in snapshot name"
    );
    let unmount = Unmount {
        name: Some("tank/a".to_string()),
        ..Unmount::default()
    };
    bench
        .administrator
        .dataset_unmount(&call(""), unmount)
        .unwrap();
    assert_eq!(
        refused("tank/a@before", None),
        "Cannot diff an unmounted snapshot: operation not applicable to datasets of this type"
    );
    let refusal = bench.administrator.dataset_diff(&call(""), Diff::default());
    assert_eq!(refusal.unwrap_err().kind, RefusalKind::Invalid);
}
