//! Tests of the ledger: right, early, cut and damaged directories.

use super::call::{Contents, Entry};
use super::*;
use std::fs;

fn ledger_of(calls: usize) -> (tempfile::TempDir, Ledger) {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::new(1);
    for _ in 0..calls {
        let call = ledger.pages().draw();
        // Not every file system under a temporary folder has them.
        if matches!(call, Call::SetAttribute { .. } | Call::PunchHole { .. }) {
            continue;
        }
        apply(&mut ledger.pages().now, &call);
        ledger.pages().calls.push(call.clone());
        make(folder.path(), &call).unwrap();
        let done = ledger.pages().calls.len();
        ledger.pages().done = done;
    }
    (folder, ledger)
}

#[test]
fn a_directory_without_a_crash_is_as_it_was_last() {
    let (folder, ledger) = ledger_of(400);
    ledger.promise(ledger.count());
    let survived = ledger.check(folder.path()).unwrap();
    assert_eq!(
        (survived.found, survived.durable),
        (survived.begun, survived.begun)
    );
}

#[test]
fn an_earlier_state_is_accepted_down_to_what_is_stored() {
    let (folder, ledger) = ledger_of(200);
    let last = Call::MakeDirectory {
        path: "never".to_string(),
    };
    ledger.pages().calls.push(last);
    let begun = ledger.pages().calls.len();
    assert_eq!(
        ledger
            .pages()
            .find(&ledger.pages_now(folder.path()))
            .unwrap()
            .found,
        begun - 1
    );
    ledger.pages().done = begun;
    ledger.promise(begun);
    let error = ledger.check(folder.path()).unwrap_err().to_string();
    assert!(error.contains("never is missing"), "{error}");
}

/// What a log has of two files, of which one was asked for.
#[test]
fn what_was_synced_must_be_there_and_what_was_not_may_not_be_there_without_all_before_it() {
    let file = |path: &str| path.to_string();
    let write = |path: &str, byte| Call::Write {
        path: file(path),
        at: 0,
        bytes: vec![byte],
    };
    let calls = [
        Call::Create { path: file("a") },
        Call::Create { path: file("b") },
        write("b", 1),
        write("a", 2),
        Call::Rename {
            from: file("a"),
            to: file("c"),
        },
        write("c", 3),
        Call::Sync { path: file("b") },
        write("b", 4),
    ];
    let state = |b: &[u8], c: Option<&[u8]>| {
        let entry = |bytes: &[u8]| {
            Entry::File(Contents {
                bytes: bytes.to_vec(),
                ..Contents::default()
            })
        };
        let mut state = State::from([(file("b"), entry(b))]);
        state.extend(c.map(|c| (file("c"), entry(c))));
        state
    };
    let ledger = Ledger::new(1);
    let mut pages = ledger.pages();
    pages.calls = calls.to_vec();
    pages.done = calls.len();
    let is_right = |pages: &Pages, state: State| pages.find(&state).is_ok();
    // Only what was asked for; the rename made what was written before it part of that.
    assert!(is_right(&pages, state(&[1], Some(&[2]))));
    // Everything up to the sync, and everything.
    assert!(is_right(&pages, state(&[1], Some(&[3]))));
    assert!(is_right(&pages, state(&[4], Some(&[3]))));
    // The rename is missing, the write before it is, the one before the sync is, or something came
    // too early.
    assert!(!is_right(&pages, state(&[1], None)));
    assert!(!is_right(&pages, state(&[1], Some(&[]))));
    assert!(!is_right(&pages, state(&[], Some(&[2]))));
    assert!(!is_right(&pages, state(&[4], Some(&[2]))));
    assert!(!is_right(&pages, state(&[4], None)));
    // A sync that did not return may have stored a part.
    pages.calls.truncate(7);
    pages.done = 6;
    assert!(is_right(&pages, State::new()));
    assert!(is_right(&pages, state(&[1], Some(&[2]))));
    assert!(!is_right(&pages, state(&[4], Some(&[2]))));
}

#[test]
fn a_name_given_to_its_own_file_again_promises_nothing() {
    let file = |path: &str| path.to_string();
    let rename = |to: &str| Call::Rename {
        from: file("a"),
        to: file(to),
    };
    let calls = |to: &str| {
        vec![
            Call::Create { path: file("a") },
            Call::Create { path: file("b") },
            Call::SetMode {
                path: file("a"),
                mode: 0o640,
            },
            rename(to),
            Call::Sync { path: file("b") },
        ]
    };
    let is_right = |to: &str| {
        let ledger = Ledger::new(1);
        let mut pages = ledger.pages();
        pages.calls = calls(to);
        pages.done = pages.calls.len();
        let made = || Entry::File(Contents::default());
        let found = State::from([(file(to), made()), (file("b"), made())]);
        pages.find(&found).is_ok()
    };
    assert!(is_right("a"));
    assert!(!is_right("c"), "another name promises the file's mode");
}

#[test]
fn one_wrong_byte_is_found_and_told() {
    let (folder, ledger) = ledger_of(300);
    let is_filled = |entry: &Entry| matches!(entry, Entry::File(file) if file.bytes.len() > 100);
    let name = {
        let pages = ledger.pages();
        let found = pages.now.iter().find(|(_, entry)| is_filled(entry));
        found.unwrap().0.clone()
    };
    let path = folder.path().join(&name);
    let mut bytes = fs::read(&path).unwrap();
    bytes[70] ^= 1;
    fs::write(&path, bytes).unwrap();
    ledger.promise(ledger.count());
    let error = ledger.check(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains(&format!("{name}: ")) && error.contains("the first 70 bytes are right"),
        "{error}"
    );
}

impl Ledger {
    fn pages_now(&self, root: &Path) -> State {
        let mut found = State::new();
        read_tree(root, "", &mut found).unwrap();
        found
    }
}
