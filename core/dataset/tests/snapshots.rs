//! What becomes of blocks when snapshots come and go: every block of every dataset is looked at
//! after each change.

mod support;

use std::sync::Arc;
use support::chain::{Blocks, Chain};
use support::tasks::{begin_receive, finish_receive};
use support::{FILE, Filler, Pool};
use tarn_dataset::dataset::NamedBookmark;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::bookmark::{DestroyBookmarks, MakeBookmarks};
use tarn_dataset::ops::clone::CloneSnapshot;
use tarn_dataset::ops::create::{CreateFilesystem, NameRules};
use tarn_dataset::ops::destroy::Destroy;
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::ops::hold::{HoldSnapshots, ReleaseHolds};
use tarn_dataset::ops::promote::Promote;
use tarn_dataset::ops::receive::{
    AbandonReceive, BeginReceive, FinishReceive, ReceiveSettings, Receiver, StreamFacts,
};
use tarn_dataset::ops::rename::Rename;
use tarn_dataset::ops::rename_snapshot::RenameSnapshots;
use tarn_dataset::ops::rollback::Rollback;
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_dataset::ops::temporary_snapshot::{ReleaseTemporaryHolds, TakeTemporarySnapshot};
use tarn_dataset::properties::parse::{Checked, Moment, check};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::receiving::ReceiveClaim;
use tarn_dataset::space_used::written_since;
use tarn_dataset::task::{SyncTask, TaskContext, TaskRefusal};
use tarn_host::sim::Random;
use tarn_object::zap::ObjectZap;
use tarn_object::{Entry, NewObject, PointerList, Step, TxEstimate};
use tarn_ondisk::dataset_dir::{LIVELIST, SNAPSHOT_COUNT};
use tarn_ondisk::deadlist::DeadlistHead;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::StreamFeatures;
use tarn_ondisk::units::{AllocatedSize, ObjectId};
use tarn_probe::Operation;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 128 << 10;

fn settings(kinds: Kinds, list: &[(&str, &str)]) -> Vec<Checked> {
    list.iter()
        .map(|(name, value)| check(name, value, kinds, Moment::Later).unwrap())
        .collect()
}

fn create(pool: &mut Pool, names: &[&str]) {
    for name in names {
        pool.run(CreateFilesystem {
            name: (*name).to_string(),
            settings: Vec::new(),
            rules: NameRules::default(),
            user: 0,
            group: 0,
            fill: Arc::new(Filler),
        })
        .unwrap();
    }
}

fn set(name: &str, property: &str, value: &str) -> SetProperties {
    SetProperties {
        name: name.to_string(),
        settings: settings(Kinds::FILESYSTEM, &[(property, value)]),
        source: Source::Local,
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

fn snapshot(list: &[&str]) -> TakeSnapshots {
    TakeSnapshots {
        names: names(list),
        settings: Vec::new(),
    }
}

fn destroy(list: &[&str]) -> DestroySnapshots {
    DestroySnapshots {
        names: names(list),
        defer: false,
    }
}

fn clone(origin: &str, name: &str) -> CloneSnapshot {
    CloneSnapshot {
        origin: origin.to_string(),
        name: name.to_string(),
        settings: Vec::new(),
    }
}

fn there_is(pool: &Pool, name: &str) -> bool {
    let view = pool.namespace.view(&pool.operation);
    view.dataset(&DatasetName::parse(name).unwrap()).is_ok()
}

fn several(refused: Result<(), TaskRefusal>) -> Vec<(String, TaskRefusal)> {
    match refused {
        Err(TaskRefusal::Several(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_snapshot_keeps_what_the_head_gives_up() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.take_events();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    assert_eq!(pool.take_events(), [("snapshot", " ".to_string())]);
    assert_eq!(pool.dataset("tank/a").unique.get(), 0);
    pool.judge();
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.judge();
    assert!(pool.directory("tank/a").used_by.snapshots.get() >= MIB);
    pool.run(destroy(&["tank/a@one"])).unwrap();
    assert_eq!(pool.take_events(), [("destroy", " ".to_string())]);
    pool.judge();
    assert_eq!(pool.directory("tank/a").used_by.snapshots.get(), 0);
    while pool.free_in_background(1000).more {}
    pool.judge();
    assert_eq!(pool.directory("tank/$FREE").used.get(), 0);
}

#[test]
fn snapshots_are_taken_of_all_or_of_none() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    pool.run(snapshot(&["tank/b@x"])).unwrap();
    let refused = several(pool.run(snapshot(&["tank/a@x", "tank/b@x", "tank/c@x"])));
    assert!(matches!(&refused[0], (name, TaskRefusal::Exists { .. }) if name == "tank/b@x"));
    assert!(matches!(&refused[1], (name, TaskRefusal::NotFound { .. }) if name == "tank/c@x"));
    assert!(!there_is(&pool, "tank/a@x"));
    let refused = pool.run(snapshot(&["tank/a@x", "tank/a@y"]));
    assert!(matches!(refused, Err(TaskRefusal::SameHead)));
    pool.run(snapshot(&["tank/a@y", "tank/b@y"])).unwrap();
    pool.judge();
    let refused = pool.run(destroy(&["tank/a@no", "tank/b@no"]));
    assert!(matches!(refused, Err(TaskRefusal::NotFound { .. })));
    // One that is not there is no reason to keep the other.
    pool.run(destroy(&["tank/a@no", "tank/b@y"])).unwrap();
    assert!(!there_is(&pool, "tank/b@y"));
    pool.judge();
}

#[test]
fn a_head_has_one_snapshot_in_a_group() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let mut refused = None;
    pool.sync_with(|context| {
        snapshot(&["tank/a@one"]).apply(context).unwrap();
        let task = snapshot(&["tank/a@two"]);
        refused = Some(task.check(context.view(), context.features));
    });
    assert!(matches!(refused, Some(Err(TaskRefusal::NotInThisGroup))));
    pool.run(snapshot(&["tank/a@two"])).unwrap();
    pool.judge();
}

#[test]
fn a_head_that_tasks_have_changed_waits_for_its_snapshot() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let head = pool.head_id("tank/a");
    let mut refused = None;
    pool.sync_with(|context| {
        let set = context.namespace.head_set(head, context.operation).unwrap();
        set.change_head(context.tx, |objset| {
            objset.intent_log = tarn_ondisk::objset::IntentLogHead::default();
        });
        let task = snapshot(&["tank/a@one"]);
        refused = Some(task.check(context.view(), context.features));
    });
    assert!(matches!(refused, Some(Err(TaskRefusal::NotInThisGroup))));
}

#[test]
fn user_properties_go_with_each_snapshot_and_others_are_refused() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(TakeSnapshots {
        names: names(&["tank@one", "tank/a@one"]),
        settings: settings(Kinds::SNAPSHOT, &[("com.example:note", "kept")]),
    })
    .unwrap();
    let view = pool.namespace.view(&pool.operation);
    for name in ["tank@one", "tank/a@one"] {
        let dataset = view.dataset(&DatasetName::parse(name).unwrap()).unwrap();
        assert!(!dataset.stored().unwrap().snapshot_properties.is_zero());
    }
    pool.run(destroy(&["tank@one", "tank/a@one"])).unwrap();
    pool.judge();
}

#[test]
fn a_refreservation_is_set_aside_anew() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set("tank/a", "refreservation", "4M")).unwrap();
    pool.write("tank/a", 0, 3 * MIB);
    pool.sync();
    pool.judge();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.judge();
    assert_eq!(
        pool.directory("tank/a").used_by.ref_reservation.get(),
        4 * MIB
    );
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.judge();
    // What is left of the pool does not suffice for another.
    let used = pool.directory("tank").used.get();
    pool.namespace.set_adjusted_bytes(used + MIB);
    let refused = several(pool.run(snapshot(&["tank/a@two"])));
    assert!(matches!(refused[..], [(_, TaskRefusal::NoSpace { .. })]));
    pool.namespace.set_adjusted_bytes(support::POOL_BYTES);
    pool.run(destroy(&["tank/a@one"])).unwrap();
    pool.judge();
    let directory = pool.directory("tank/a");
    let unique = pool.dataset("tank/a").unique.get();
    assert_eq!(
        directory.used_by.ref_reservation.get(),
        (4 * MIB).saturating_sub(unique)
    );
}

#[test]
fn snapshots_are_counted_where_a_limit_was_set() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    pool.run(snapshot(&["tank/a/b@before"])).unwrap();
    pool.run(set("tank/a", "snapshot_limit", "10")).unwrap();
    let count = |pool: &Pool| {
        let view = pool.namespace.view(&pool.operation);
        view.directory("tank/a")
            .unwrap()
            .extension(SNAPSHOT_COUNT)
            .unwrap()
    };
    assert_eq!(count(&pool), Some(1));
    pool.run(snapshot(&["tank/a@x", "tank/a/b@x"])).unwrap();
    assert_eq!(count(&pool), Some(3));
    pool.run(destroy(&["tank/a/b@before", "tank/a@x"])).unwrap();
    assert_eq!(count(&pool), Some(1));
    pool.judge();
}

#[test]
fn a_snapshot_uses_the_features_of_its_head() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set("tank/a", "compression", "zstd")).unwrap();
    assert_eq!(pool.features.count(Feature::ZstdCompress), 1);
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    assert_eq!(pool.features.count(Feature::ZstdCompress), 2);
    pool.run(destroy(&["tank/a@one"])).unwrap();
    assert_eq!(pool.features.count(Feature::ZstdCompress), 1);
}

/// `tank/a` with two snapshots, and room made for an increment from the first.
fn being_received() -> (Pool, Receiver, FinishReceive) {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 4 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@two"])).unwrap();
    let one = DatasetName::parse("tank/a@one").unwrap();
    let view = pool.namespace.view(&pool.operation);
    let guid = view.dataset(&one).unwrap().stored().unwrap().guid.get();
    let begun = pool.run(begin_receive("tank/a", guid)).unwrap();
    let finish = finish_receive("tank/a", begun.receiver);
    (pool, begun.receiver, finish)
}

#[test]
fn an_increment_does_not_go_into_what_its_base_was_taken_from_meanwhile() {
    for origin in ["tank/a@one", "tank/a@two"] {
        let (mut pool, receiver, finish) = being_received();
        pool.run(clone(origin, "tank/c")).unwrap();
        let promote = Promote {
            name: "tank/c".to_string(),
        };
        pool.run(promote).unwrap();
        let refused = pool.run(finish);
        assert!(matches!(refused, Err(TaskRefusal::NoBase)), "{refused:?}");
        let head = receiver.head;
        pool.run(AbandonReceive { head }).unwrap();
        while pool.free_in_background(1000).more {}
        pool.judge();
    }
}

#[test]
fn a_base_that_is_marked_meanwhile_goes_when_the_increment_is_there() {
    let (mut pool, _, finish) = being_received();
    let task = DestroySnapshots {
        names: names(&["tank/a@one"]),
        defer: true,
    };
    pool.run(task).unwrap();
    assert!(there_is(&pool, "tank/a@one"), "it is cloned");
    pool.run(finish).unwrap();
    assert!(!there_is(&pool, "tank/a@one"));
    assert!(there_is(&pool, "tank/a@three"));
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn what_is_half_received_is_left_alone() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/x"]);
    let begun = pool.run(begin_receive("tank/new", 0)).unwrap();
    let below = CreateFilesystem {
        name: "tank/new/kid".to_string(),
        settings: Vec::new(),
        rules: NameRules::default(),
        user: 0,
        group: 0,
        fill: Arc::new(Filler),
    };
    let refused = pool.run(below);
    assert!(
        matches!(refused, Err(TaskRefusal::Busy { .. })),
        "{refused:?}"
    );
    let moved = Rename {
        from: "tank/x".to_string(),
        to: "tank/new/x".to_string(),
    };
    let refused = pool.run(moved);
    assert!(
        matches!(refused, Err(TaskRefusal::Busy { .. })),
        "{refused:?}"
    );
    let refused = pool.run(begin_receive("tank/new", 0));
    assert!(
        matches!(refused, Err(TaskRefusal::Busy { .. })),
        "{refused:?}"
    );
    let head = begun.receiver.head;
    pool.run(AbandonReceive { head }).unwrap();
    while pool.free_in_background(1000).more {}
    pool.judge();
}

/// What the first record of a stream might say.
fn stream(from_guid: u64) -> StreamFacts {
    StreamFacts {
        to_guid: 7,
        from_guid,
        to_name: "far/away@x".to_string(),
        creation_time_s: 1_000_000_000,
        objset_type: ObjsetType::Zfs,
        is_clone: false,
        has_free_records: true,
        is_case_insensitive: false,
        features: StreamFeatures::SPILL,
    }
}

/// What a random walk has made so far.
struct Walk {
    pool: Pool,
    random: Random,
    heads: Vec<String>,
    snapshots: Vec<String>,
    /// Short names of bookmarks, and the blocks of their snapshots.
    bookmarks: Vec<(String, Blocks)>,
    /// A stream that is under way.
    receiving: Option<Receiving>,
}

struct Receiving {
    target: String,
    step: u64,
    receiver: Receiver,
    _claim: ReceiveClaim,
}

impl Walk {
    fn new(seed: u64, without: &[Feature]) -> Walk {
        let mut pool = Pool::without(without);
        create(&mut pool, &["tank/a", "tank/b"]);
        pool.run(set("tank/b", "refreservation", "3M")).unwrap();
        // Clones share enough with it to keep livelists for a while.
        pool.write("tank/a", 0, 10 * MIB);
        pool.sync();
        pool.namespace.set_livelist_blocks_max(1 + seed % 40);
        Walk {
            pool,
            random: Random::new(seed),
            heads: names(&["tank/a", "tank/b"]),
            snapshots: Vec::new(),
            bookmarks: Vec::new(),
            receiving: None,
        }
    }

    fn any(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count.try_into().unwrap())).unwrap()
    }

    fn head(&mut self) -> String {
        let which = self.any(self.heads.len());
        self.heads[which].clone()
    }

    fn write(&mut self) {
        let (name, blocks) = (self.head(), 1 + self.random.below(6));
        let offset = self.random.below(20) * BLOCK;
        self.pool.write(&name, offset, blocks * BLOCK);
        self.pool.sync();
    }

    fn snapshot(&mut self, step: u64) {
        let taken = format!("{}@{step}", self.head());
        self.pool.run(snapshot(&[&taken])).unwrap();
        self.snapshots.push(taken);
    }

    fn destroy_snapshot(&mut self) {
        let which = self.any(self.snapshots.len());
        let gone = self.snapshots[which].clone();
        match self.pool.run(destroy(&[&gone])) {
            Ok(()) => {
                self.snapshots.remove(which);
            }
            refused => assert!(matches!(several(refused)[..], [(_, TaskRefusal::Cloned)])),
        }
    }

    fn clone(&mut self, step: u64) {
        let which = self.any(self.snapshots.len());
        let name = format!("tank/c{step}");
        let task = clone(&self.snapshots[which], &name);
        self.pool.run(task).unwrap();
        self.heads.push(name);
    }

    fn roll_back(&mut self) {
        let which = self.any(self.snapshots.len());
        let snapshot = self.snapshots[which].clone();
        let newer = self.newer_than(&snapshot);
        match self.pool.run(Rollback { snapshot, newer }) {
            Ok(()) => self.find_snapshots(),
            refused => assert!(matches!(
                several(refused)[..],
                [(_, TaskRefusal::Cloned), ..]
            )),
        }
    }

    fn newer_than(&self, snapshot: &str) -> Vec<String> {
        let view = self.pool.namespace.view(&self.pool.operation);
        let snapshot = view
            .dataset(&DatasetName::parse(snapshot).unwrap())
            .unwrap();
        let txg = snapshot.stored().unwrap().creation_txg;
        let head = snapshot.directory().head().unwrap().unwrap();
        let snapshots = head.snapshots().unwrap();
        let newer = snapshots
            .iter()
            .filter(|one| one.stored().unwrap().creation_txg > txg);
        let bookmarks = head.bookmarks().unwrap();
        let later = bookmarks.iter().filter(|one| one.stored.creation_txg > txg);
        let marks = later.map(|one| format!("{}#{}", head.name(), one.name));
        newer.map(|one| one.name()).chain(marks).collect()
    }

    fn destroy_clone(&mut self) {
        let which = 2 + self.any(self.heads.len() - 2);
        self.destroy_head(which);
    }

    /// Destroys a head, if it has no snapshots.
    fn destroy_head(&mut self, which: usize) {
        let name = self.heads[which].clone();
        match self.pool.run(Destroy { name: name.clone() }) {
            Ok(()) => {
                self.heads.remove(which);
                self.find_snapshots();
            }
            refused => {
                let is_received = self
                    .receiving
                    .as_ref()
                    .is_some_and(|one| one.target == name);
                let is_expected = match refused {
                    Err(TaskRefusal::Busy { .. }) => true,
                    Err(TaskRefusal::Exists { .. }) => is_received,
                    _ => false,
                };
                assert!(is_expected);
            }
        }
    }

    fn chain(&self, head: &str) -> Chain {
        let view = self.pool.namespace.view(&self.pool.operation);
        let head = view.directory(head).unwrap().head().unwrap();
        Chain::read(&self.pool, &head.unwrap())
    }

    fn bookmark(&mut self, step: u64) {
        let which = self.any(self.snapshots.len());
        let snapshot = self.snapshots[which].clone();
        let head = snapshot.split('@').next().unwrap();
        let blocks = self.chain(head).blocks_of(&self.pool, &snapshot);
        let name = format!("{head}#{step}");
        let task = MakeBookmarks {
            bookmarks: vec![(name, snapshot)],
        };
        self.pool.run(task).unwrap();
        self.bookmarks.push((step.to_string(), blocks));
    }

    /// The bookmarks of a head, with the blocks that their snapshots had.
    fn bookmarks_of(&self, head: &str) -> Vec<(NamedBookmark, &Blocks)> {
        let view = self.pool.namespace.view(&self.pool.operation);
        let head = view.directory(head).unwrap().head().unwrap().unwrap();
        let bookmarks = head.bookmarks().unwrap().into_iter();
        let known = |one: &NamedBookmark| {
            let found = self.bookmarks.iter().find(|(name, _)| *name == one.name);
            &found.unwrap().1
        };
        bookmarks.map(|one| (one.clone(), known(&one))).collect()
    }

    fn destroy_bookmark(&mut self) {
        let head = self.head();
        let Some((bookmark, _)) = self.bookmarks_of(&head).pop() else {
            return;
        };
        let names = vec![format!("{head}#{}", bookmark.name)];
        self.pool.run(DestroyBookmarks { names }).unwrap();
        self.bookmarks.retain(|(name, _)| *name != bookmark.name);
    }

    fn promote(&mut self) {
        let which = 2 + self.any(self.heads.len() - 2);
        let name = self.heads[which].clone();
        match self.pool.run(Promote { name: name.clone() }) {
            // It was a clone once; another that was promoted is one now.
            Ok(()) | Err(TaskRefusal::BadValue { .. }) => {}
            refused => panic!("{refused:?}"),
        }
        self.find_snapshots();
    }

    /// Takes a stream in that somebody might have sent: an increment of any snapshot, all anew, or
    /// something new; to the end, or not. Makes room for a stream, unless one is under way: into a
    /// head that is there, from its beginning or from a snapshot, or into a new one.
    fn begin_receive(&mut self, step: u64) {
        if self.receiving.is_some() {
            return;
        }
        let (kind, which) = (self.any(3), self.any(self.snapshots.len()));
        let base = self.snapshots[which].clone();
        let (target, from_guid) = match kind {
            0 => (
                base.split('@').next().unwrap().to_string(),
                self.guid(&base),
            ),
            1 => (self.head(), 0),
            _ => (format!("tank/r{step}"), 0),
        };
        let stream = stream(from_guid);
        let zstd = settings(Kinds::FILESYSTEM, &[("compression", "zstd")]);
        let begin = BeginReceive {
            target: target.clone(),
            snapshot: step.to_string(),
            origin: None,
            stream,
            force: true,
            resumable: self.random.below(2) == 0,
            settings: ReceiveSettings {
                local: if step.is_multiple_of(2) {
                    zstd
                } else {
                    Vec::new()
                },
                ..ReceiveSettings::default()
            },
            key: None,
        };
        let receiver = match self.pool.run(begin) {
            Ok(begun) => begun.receiver,
            Err(TaskRefusal::Exists { .. }) if kind == 1 => return,
            Err(refused) => panic!("{refused:?}"),
        };
        if kind > 0 {
            let operation = Operation::unmeasured();
            let set = self.pool.namespace.head_set(receiver.head, &operation);
            let tx = self
                .pool
                .env
                .txgs
                .assign(&TxEstimate::writing(0), &operation);
            let file = NewObject::plain(ObjectType::PlainFile, BLOCK);
            let set = set.unwrap();
            set.claim(&tx.unwrap(), FILE, file, &operation).unwrap();
        }
        self.pool.sync();
        let claim = self.pool.namespace.claim_receive(receiver.head);
        self.receiving = Some(Receiving {
            target,
            step,
            receiver,
            _claim: claim.unwrap(),
        });
    }

    /// Some of the stream comes.
    fn receive_some(&mut self) {
        let Some(Receiving { receiver, .. }) = &self.receiving else {
            return;
        };
        let operation = Operation::unmeasured();
        let set = self.pool.namespace.head_set(receiver.head, &operation);
        let set = set.unwrap();
        for _ in 0..=self.random.below(3) {
            let (offset, blocks) = (self.random.below(20) * BLOCK, 1 + self.random.below(6));
            self.pool.write_to(&set, offset, blocks * BLOCK);
            self.pool.sync();
        }
        self.pool.sync();
    }

    /// The stream comes to its end, or is given up.
    fn end_receive(&mut self) {
        let Some(receiving) = self.receiving.take() else {
            return;
        };
        let (target, step) = (receiving.target, receiving.step);
        let receiver = receiving.receiver;
        let finish = FinishReceive {
            target: target.clone(),
            snapshot: step.to_string(),
            receiver,
            to_guid: 1000 + step,
            creation_time_s: stream(0).creation_time_s,
            force: true,
            settings: ReceiveSettings::default(),
            is_set: true,
            has_properties: false,
            snapshot_settings: Vec::new(),
            key: None,
        };
        let head = receiver.head;
        let finished = match self.random.below(4) {
            0 => None,
            _ => Some(self.pool.run(finish)),
        };
        match finished {
            Some(Ok(_)) => {
                if receiver.is_new {
                    self.heads.push(target.clone());
                }
                let guid = self.guid(&format!("{target}@{step}"));
                assert_eq!(guid, 1000 + step);
            }
            None => self.pool.run(AbandonReceive { head }).unwrap(),
            Some(Err(refused)) => {
                let is_expected = match &refused {
                    // A promotion has given the base to another.
                    TaskRefusal::NoBase => true,
                    TaskRefusal::Several(several) => {
                        matches!(several[..], [(_, TaskRefusal::Cloned), ..])
                    }
                    _ => false,
                };
                assert!(is_expected, "{refused:?}");
                self.pool.run(AbandonReceive { head }).unwrap();
            }
        }
        self.find_snapshots();
    }

    fn guid(&self, snapshot: &str) -> u64 {
        let view = self.pool.namespace.view(&self.pool.operation);
        let name = DatasetName::parse(snapshot).unwrap();
        view.dataset(&name).unwrap().stored().unwrap().guid.get()
    }

    /// Snapshots go by other names after a promotion.
    fn find_snapshots(&mut self) {
        let view = self.pool.namespace.view(&self.pool.operation);
        let mut found = Vec::new();
        for head in &self.heads {
            let head = view.directory(head).unwrap().head().unwrap().unwrap();
            let snapshots = head.snapshots().unwrap();
            found.extend(snapshots.iter().map(|snapshot| snapshot.name()));
        }
        self.snapshots = found;
    }

    fn judge(&self) {
        self.pool.judge();
        for head in &self.heads {
            let chain = self.chain(head);
            for (bookmark, blocks) in self.bookmarks_of(head) {
                let freed = chain.freed_before_next(blocks, bookmark.stored.creation_txg);
                let counted = bookmark.stored.referenced_freed_before_next.get();
                assert_eq!(counted, freed, "{head}#{}", bookmark.name);
                let name = format!("{head}#{}", bookmark.name);
                assert_eq!(
                    self.written(head, &name),
                    chain.written_since(blocks),
                    "{name}"
                );
            }
            let own = format!("{head}@");
            for snapshot in self.snapshots.iter().filter(|name| name.starts_with(&own)) {
                let blocks = chain.blocks_of(&self.pool, snapshot);
                let written = self.written(head, snapshot);
                assert_eq!(written, chain.written_since(&blocks), "{snapshot}");
            }
        }
    }

    fn written(&self, head: &str, since: &str) -> u64 {
        let view = self.pool.namespace.view(&self.pool.operation);
        let head = view.directory(head).unwrap().head().unwrap().unwrap();
        let since = DatasetName::parse(since).unwrap();
        written_since(&head, &since).unwrap().unwrap()
    }

    fn step(&mut self, step: u64) {
        match self.random.below(27) {
            0..=5 => self.write(),
            6..=8 => self.snapshot(step),
            9..=10 if !self.snapshots.is_empty() => self.destroy_snapshot(),
            11 if !self.snapshots.is_empty() => self.clone(step),
            12..=13 if !self.snapshots.is_empty() => self.roll_back(),
            14 if self.heads.len() > 2 => self.destroy_clone(),
            15 if self.heads.len() > 2 => self.promote(),
            16..=17 if !self.snapshots.is_empty() => self.bookmark(step),
            18 => self.destroy_bookmark(),
            19 if !self.snapshots.is_empty() => self.begin_receive(step),
            20..=22 => self.receive_some(),
            23..=24 => self.end_receive(),
            _ => {
                self.pool.free_in_background(20);
            }
        }
    }

    /// Destroys everything, as far as it goes, until nothing is left.
    fn end(mut self) {
        self.end_receive();
        while !self.heads.is_empty() {
            self.destroy_bookmark();
            if !self.snapshots.is_empty() {
                self.destroy_snapshot();
            }
            let which = self.any(self.heads.len());
            self.destroy_head(which);
        }
        while self.pool.free_in_background(1000).more {}
        self.pool.judge();
        assert_eq!(self.pool.directory("tank/$FREE").used.get(), 0);
        for feature in [
            Feature::Livelist,
            Feature::BookmarkWritten,
            Feature::BookmarkV2,
            Feature::Bookmarks,
            Feature::ZstdCompress,
        ] {
            assert_eq!(self.pool.features.count(feature), 0);
        }
    }
}

/// Writes, takes snapshots, clones them, goes back to them and destroys all of that at random; each
/// block is looked at after each step.
fn wander(seed: u64, without: &[Feature]) {
    let mut walk = Walk::new(seed, without);
    for step in 0..70 {
        walk.step(step);
        walk.judge();
    }
    walk.end();
}

#[test]
fn every_block_is_somebodys_whatever_comes_and_goes() {
    for seed in 1..=12 {
        wander(seed * 0x9e37_79b9, &[]);
    }
}

#[test]
fn deadlists_need_no_shared_empty_list() {
    wander(77, &[Feature::EmptyBpobj]);
}

#[test]
fn a_clone_begins_as_its_origin_and_goes_its_own_way() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set("tank/a", "compression", "zstd")).unwrap();
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.take_events();
    let mut task = clone("tank/a@one", "tank/c");
    task.settings = settings(Kinds::FILESYSTEM, &[("quota", "8M")]);
    pool.run(task).unwrap();
    let event = &pool.take_events()[0];
    assert_eq!(event.0, "clone");
    assert!(event.1.starts_with("origin=tank/a@one ("), "{}", event.1);
    pool.judge();
    assert_eq!(pool.directory("tank/c").quota.get(), 8 * MIB);
    assert_eq!(pool.features.count(Feature::ZstdCompress), 3);
    assert!(pool.dataset("tank/c").referenced.get() >= 2 * MIB);
    assert!(pool.directory("tank/c").used.get() < 100_000);
    pool.write("tank/c", 0, MIB);
    pool.write("tank/a", MIB, MIB);
    pool.sync();
    pool.judge();
    let refused = several(pool.run(destroy(&["tank/a@one"])));
    assert!(matches!(refused[..], [(_, TaskRefusal::Cloned)]));
    // Marked, it goes with its clone.
    let task = DestroySnapshots {
        names: names(&["tank/a@one"]),
        defer: true,
    };
    pool.run(task).unwrap();
    assert!(there_is(&pool, "tank/a@one"));
    pool.run(Destroy {
        name: "tank/c".to_string(),
    })
    .unwrap();
    assert!(!there_is(&pool, "tank/a@one"));
    while pool.free_in_background(1000).more {}
    pool.judge();
}

/// A clone of a file of 16 MiB, which it shares with its origin.
fn cloned() -> Pool {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 16 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.run(clone("tank/a@one", "tank/c")).unwrap();
    pool
}

fn parts_of(pool: &Pool, head: &str) -> Option<Vec<Blocks>> {
    let view = pool.namespace.view(&pool.operation);
    let head = view.directory(head).unwrap().head().unwrap();
    Chain::read(pool, &head.unwrap()).livelist(pool)
}

/// How a head was destroyed: what the internal history says of it.
fn way(pool: &mut Pool, name: &str) -> String {
    pool.take_events();
    let name = name.to_string();
    pool.run(Destroy { name }).unwrap();
    let events = pool.take_events();
    let event = events.iter().find(|event| event.0 == "destroy").unwrap();
    event.1.split(',').next().unwrap()[1..].to_string()
}

#[test]
fn a_clone_is_freed_by_its_livelist_in_bites() {
    let mut pool = cloned();
    pool.namespace.set_livelist_blocks_max(8);
    assert_eq!(pool.features.count(Feature::Livelist), 1);
    for round in 0..12 {
        pool.write("tank/c", round % 3 * MIB, MIB / 2);
        pool.sync();
        pool.judge();
    }
    let parts = parts_of(&pool, "tank/c").unwrap();
    assert!(parts.len() > 1, "{parts:?}");
    assert!(parts.len() < 12, "what has died is written out: {parts:?}");
    assert_eq!(way(&mut pool, "tank/c"), "livelist");
    pool.judge();
    let mut bites = 0;
    while pool.free_in_background(3).more {
        pool.judge();
        bites += 1;
    }
    assert!(bites > 3);
    pool.judge();
    assert_eq!(pool.directory("tank/$FREE").used.get(), 0);
    assert_eq!(pool.features.count(Feature::Livelist), 0);
}

#[test]
fn a_livelist_is_given_up_where_it_is_worth_nothing() {
    let mut pool = cloned();
    pool.write("tank/c", 0, 3 * MIB);
    pool.sync();
    assert!(parts_of(&pool, "tank/c").is_some());
    pool.write("tank/c", 3 * MIB, 3 * MIB);
    pool.sync();
    assert!(parts_of(&pool, "tank/c").is_none());
    assert_eq!(pool.features.count(Feature::Livelist), 0);
    pool.judge();
    assert_eq!(way(&mut pool, "tank/c"), "bptree");
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn a_clone_that_gets_a_snapshot_has_no_livelist_any_more() {
    let mut pool = cloned();
    pool.write("tank/c", 0, MIB);
    pool.sync();
    pool.run(snapshot(&["tank/c@own"])).unwrap();
    assert!(parts_of(&pool, "tank/c").is_none());
    assert_eq!(pool.features.count(Feature::Livelist), 0);
    pool.judge();
}

/// Has the livelist of a clone say something else.
fn falsify(pool: &mut Pool, change: impl Fn(&PointerList, &TaskContext<'_>)) {
    pool.write("tank/c", 0, MIB);
    pool.sync();
    let directory = pool.dataset("tank/c").directory;
    pool.sync_with(|context| {
        let word = |id: ObjectId, name: &str| {
            let object = context.mos().object(id, context.operation).unwrap();
            let zap = ObjectZap::of(&object, context.operation);
            ObjectId::new(zap.lookup_word(name).unwrap().unwrap())
        };
        let list = word(directory, LIVELIST);
        let object = context.mos().object(list, context.operation).unwrap();
        let entries = ObjectZap::of(&object, context.operation).entries().unwrap();
        let part = ObjectId::new(entries[0].value.as_word().unwrap());
        let part = PointerList::open(context.mos(), part, context.operation).unwrap();
        change(&part, context);
    });
}

fn entries_of(list: &PointerList, context: &TaskContext<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    let visit = |entry: &Entry| {
        entries.push(*entry);
        Step::Continue
    };
    list.for_each(context.operation, visit).unwrap();
    entries
}

#[test]
fn a_livelist_that_contradicts_itself_frees_nothing() {
    for is_freed in [false, true] {
        let mut pool = cloned();
        falsify(&mut pool, |part, context| {
            // One block is there twice, or has died once more than it was born.
            let entries = entries_of(part, context);
            let pointer = entries[0].pointer;
            let wrong = Entry { pointer, is_freed };
            let wrong = vec![wrong; 1 + usize::from(is_freed)];
            part.append_all(context.tx, &wrong, context.operation)
                .unwrap();
        });
        let used = pool.directory("tank/c").used.get();
        assert_eq!(way(&mut pool, "tank/c"), "livelist");
        while pool.free_in_background(1000).more {}
        assert_eq!(pool.directory("tank/$FREE").used.get(), used);
        assert_eq!(pool.features.count(Feature::Livelist), 1);
    }
}

#[test]
fn a_livelist_that_has_a_hole_frees_nothing() {
    let mut pool = cloned();
    falsify(&mut pool, |part, context| {
        let mut entries = entries_of(part, context);
        entries.reverse();
        let is_data = |entry: &Entry| entry.pointer.logical_size().get() == BLOCK;
        let index = entries.iter().position(is_data).unwrap();
        let pointer_bytes = 128;
        let object = context.mos().object(part.id(), context.operation).unwrap();
        let offset = u64::try_from(index * pointer_bytes).unwrap();
        object
            .write(context.tx, offset, &[0; 128], context.operation)
            .unwrap();
    });
    // Something on the list dies, so that what is left of it would be written anew.
    pool.write("tank/c", 8 * MIB, BLOCK);
    pool.sync();
    let used = pool.directory("tank/c").used.get();
    assert_eq!(way(&mut pool, "tank/c"), "livelist");
    while pool.free_in_background(1000).more {}
    assert_eq!(pool.directory("tank/$FREE").used.get(), used);
    assert_eq!(pool.features.count(Feature::Livelist), 1);
}

#[test]
fn a_livelist_that_a_new_death_contradicts_is_given_up() {
    let mut pool = cloned();
    falsify(&mut pool, |part, context| {
        let all = |_: &Entry| Step::Continue;
        part.take_each(context.tx, context.operation, all).unwrap();
    });
    pool.namespace.set_livelist_blocks_max(1);
    pool.write("tank/c", 0, MIB);
    pool.sync();
    assert!(parts_of(&pool, "tank/c").is_none());
    pool.judge();
    assert_eq!(way(&mut pool, "tank/c"), "bptree");
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn a_livelist_that_counts_other_space_than_its_clone_is_not_believed() {
    let mut pool = cloned();
    pool.write("tank/c", 0, MIB);
    pool.sync();
    let directory = pool.dataset("tank/c").directory;
    pool.sync_with(|context| {
        let object = context.mos().object(directory, context.operation).unwrap();
        let zap = ObjectZap::of(&object, context.operation);
        let list = ObjectId::new(zap.lookup_word(LIVELIST).unwrap().unwrap());
        let list = context.mos().object(list, context.operation).unwrap();
        let mut head = DeadlistHead::from_bytes(&list.bonus(), ByteOrder::Little).unwrap();
        head.used += AllocatedSize::from(4096);
        list.set_bonus(context.tx, &head.to_bytes()).unwrap();
    });
    assert_eq!(way(&mut pool, "tank/c"), "bptree");
    while pool.free_in_background(1000).more {}
    pool.judge();
    assert_eq!(pool.features.count(Feature::Livelist), 0);
}

#[test]
fn what_cannot_be_cloned_is_refused() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    let mut refused = |origin, name| pool.run(clone(origin, name)).unwrap_err();
    assert!(matches!(
        refused("tank/a", "tank/c"),
        TaskRefusal::BadValue { .. }
    ));
    assert!(matches!(
        refused("tank/a@no", "tank/c"),
        TaskRefusal::NotFound { .. }
    ));
    assert!(matches!(
        refused("tank/a@one", "tank/a"),
        TaskRefusal::Exists { .. }
    ));
    assert!(matches!(
        refused("tank/a@one", "tank/x/y"),
        TaskRefusal::NoParent { .. }
    ));
    let mut checked = None;
    pool.sync_with(|context| {
        snapshot(&["tank/a@two"]).apply(context).unwrap();
        let task = clone("tank/a@two", "tank/c");
        checked = Some(task.check(context.view(), context.features));
    });
    assert!(matches!(checked, Some(Err(TaskRefusal::NotInThisGroup))));
}

#[test]
fn a_head_goes_back_to_its_newest_snapshot_only() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    let before = pool.dataset("tank/a");
    pool.write("tank/a", MIB, 3 * MIB);
    pool.sync();
    let to = |name: &str| Rollback {
        snapshot: name.to_string(),
        newer: Vec::new(),
    };
    pool.run(to("tank/a@one")).unwrap();
    pool.judge();
    let after = pool.dataset("tank/a");
    assert_eq!(after.root, before.root);
    assert_eq!(after.referenced, before.referenced);
    // It can be written again, and is what it was.
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.judge();
    pool.run(snapshot(&["tank/a@two"])).unwrap();
    let refused = pool.run(to("tank/a@one")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "there is a snapshot or bookmark more recent than 'tank/a@one'"
    );
    assert!(matches!(
        pool.run(to("tank/a")),
        Err(TaskRefusal::BadValue { .. })
    ));
    assert!(matches!(
        pool.run(to("tank/a@no")),
        Err(TaskRefusal::NotFound { .. })
    ));
}

#[test]
fn going_back_needs_room_for_what_is_reserved_and_referenced() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 4 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    let file = pool.head_set("tank/a");
    let tx = pool
        .env
        .txgs
        .assign(&TxEstimate::freeing(4 * MIB), &pool.operation)
        .unwrap();
    let object = file.object(support::FILE, &pool.operation).unwrap();
    object
        .free_range(&tx, 0, tarn_object::TO_END, &pool.operation)
        .unwrap();
    drop(tx);
    pool.sync();
    pool.run(set("tank/a", "refquota", "2M")).unwrap();
    let to = Rollback {
        snapshot: "tank/a@one".to_string(),
        newer: Vec::new(),
    };
    assert!(matches!(
        pool.run(to.clone()),
        Err(TaskRefusal::NoSpace { .. })
    ));
    pool.run(set("tank/a", "refquota", "none")).unwrap();
    pool.run(to).unwrap();
    pool.judge();
}

#[test]
fn a_hold_keeps_a_snapshot() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    pool.run(snapshot(&["tank/a@one", "tank/b@one"])).unwrap();
    pool.take_events();
    let hold = |list: &[&str], tag: &str| HoldSnapshots {
        names: names(list),
        tag: tag.to_string(),
    };
    let release = |list: &[&str], tag: &str| ReleaseHolds {
        names: names(list),
        tag: tag.to_string(),
    };
    pool.run(hold(&["tank/a@one"], "x")).unwrap();
    assert_eq!(
        pool.take_events(),
        [("hold", "tag=x temp=0 refs=1".to_string())]
    );
    let refused = several(pool.run(hold(&["tank/a@one", "tank/b@one"], "x")));
    assert!(matches!(refused[..], [(_, TaskRefusal::TagExists)]));
    let refused = several(pool.run(hold(&["tank/a@one"], &"x".repeat(256))));
    assert!(matches!(refused[..], [(_, TaskRefusal::TagTooLong)]));
    let refused = several(pool.run(destroy(&["tank/a@one", "tank/b@one"])));
    assert_eq!(refused[0].1.to_string(), "dataset is busy");
    assert!(there_is(&pool, "tank/b@one"));
    let refused = pool.run(release(&["tank/b@one"], "x"));
    assert!(matches!(refused, Err(TaskRefusal::NoSuchTag)));
    // Marked, it goes with its hold.
    let task = DestroySnapshots {
        names: names(&["tank/a@one"]),
        defer: true,
    };
    pool.run(task).unwrap();
    assert!(there_is(&pool, "tank/a@one"));
    pool.run(release(&["tank/a@one", "tank/b@one"], "x"))
        .unwrap();
    assert!(!there_is(&pool, "tank/a@one"));
    pool.judge();
}

/// It goes with its hold; and if nobody takes that off, with the next import.
#[test]
fn a_temporary_snapshot_leaves_nothing_behind() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, MIB);
    let take = |name: &str| TakeTemporarySnapshot {
        name: name.to_string(),
        tag: "%looking".to_string(),
    };
    pool.run(take("tank/a@one")).unwrap();
    pool.take_events();
    assert!(there_is(&pool, "tank/a@one"));
    assert!(pool.run(take("tank/a@one")).is_err());
    pool.write("tank/a", 0, MIB);
    pool.run(ReleaseHolds {
        names: names(&["tank/a@one"]),
        tag: "%looking".to_string(),
    })
    .unwrap();
    let told: Vec<&str> = pool
        .take_events()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(told, ["release", "destroy"]);
    assert!(!there_is(&pool, "tank/a@one"));
    pool.judge();
    pool.run(take("tank/a@two")).unwrap();
    pool.run(take("tank/a@three")).unwrap();
    let told: Vec<&str> = pool
        .take_events()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let each = ["snapshot", "hold", "defer_destroy"];
    assert_eq!(told, [each, each].concat());
    // A hold that was released otherwise is in nobody's way.
    pool.run(ReleaseHolds {
        names: names(&["tank/a@two"]),
        tag: "%looking".to_string(),
    })
    .unwrap();
    pool.run(ReleaseTemporaryHolds).unwrap();
    assert!(!there_is(&pool, "tank/a@three"));
    pool.judge();
    pool.run(ReleaseTemporaryHolds).unwrap();
}

#[test]
fn snapshots_of_a_tree_are_renamed_together() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    pool.run(snapshot(&["tank/a@x", "tank/a/b@x"])).unwrap();
    let rename = |to: &str, recursive| RenameSnapshots {
        head: "tank/a".to_string(),
        from: "x".to_string(),
        to: to.to_string(),
        recursive,
    };
    pool.run(rename("y", true)).unwrap();
    assert!(there_is(&pool, "tank/a/b@y") && !there_is(&pool, "tank/a@x"));
    pool.run(snapshot(&["tank/a@x", "tank/a/b@x"])).unwrap();
    let refused = several(pool.run(rename("y", true)));
    assert!(matches!(refused[..], [(_, TaskRefusal::Exists { .. })]));
    pool.run(rename("z", false)).unwrap();
    assert!(there_is(&pool, "tank/a@z") && there_is(&pool, "tank/a/b@x"));
    assert!(matches!(
        pool.run(rename("q", false)),
        Err(TaskRefusal::NotFound { .. })
    ));
    pool.judge();
}

#[test]
fn a_promoted_clone_and_its_parent_change_places() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@two"])).unwrap();
    pool.run(clone("tank/a@one", "tank/c")).unwrap();
    pool.write("tank/c", MIB, MIB);
    pool.sync();
    let promote = |name: &str| Promote {
        name: name.to_string(),
    };
    pool.take_events();
    pool.run(promote("tank/c")).unwrap();
    assert_eq!(pool.take_events(), [("promote", " ".to_string())]);
    pool.judge();
    assert!(there_is(&pool, "tank/c@one") && !there_is(&pool, "tank/a@one"));
    assert!(there_is(&pool, "tank/a@two"));
    assert!(matches!(
        pool.run(promote("tank/c")),
        Err(TaskRefusal::BadValue { .. })
    ));
    // And back.
    pool.run(promote("tank/a")).unwrap();
    pool.judge();
    assert!(there_is(&pool, "tank/a@one") && there_is(&pool, "tank/a@two"));
    pool.run(snapshot(&["tank/c@one"])).unwrap();
    assert_eq!(
        pool.run(promote("tank/c")).unwrap_err().to_string(),
        "conflicting snapshot 'one' from parent 'tank/a@one'"
    );
    pool.run(set("tank/c", "quota", "2M")).unwrap();
    pool.run(destroy(&["tank/c@one"])).unwrap();
    assert!(matches!(
        pool.run(promote("tank/c")),
        Err(TaskRefusal::NoSpace { .. })
    ));
}

#[test]
fn bookmarks_are_made_of_the_past_of_their_dataset() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    pool.run(snapshot(&["tank/a@one", "tank/b@one"])).unwrap();
    let bookmark = |name: &str, origin: &str| MakeBookmarks {
        bookmarks: vec![(name.to_string(), origin.to_string())],
    };
    pool.take_events();
    pool.run(bookmark("tank/a#one", "tank/a@one")).unwrap();
    let (event, text) = pool.take_events().remove(0);
    assert_eq!(event, "bookmark");
    assert!(text.starts_with("name=one creation_txg="), "{text}");
    assert!(text.ends_with(" redact_obj=0"), "{text}");
    assert_eq!(pool.features.count(Feature::BookmarkWritten), 1);
    // Of a bookmark; the snapshot may be gone.
    pool.run(destroy(&["tank/a@one"])).unwrap();
    pool.run(bookmark("tank/a#two", "tank/a#one")).unwrap();
    let refused = several(pool.run(bookmark("tank/a#two", "tank/a#one")));
    assert!(matches!(refused[..], [(_, TaskRefusal::Exists { .. })]));
    let refused = several(pool.run(bookmark("tank/a#x", "tank/b@one")));
    assert!(matches!(refused[..], [(_, TaskRefusal::NotAnAncestor)]));
    let refused = several(pool.run(bookmark("tank/a#x", "tank/a@no")));
    assert!(matches!(refused[..], [(_, TaskRefusal::NotFound { .. })]));
    let gone = DestroyBookmarks {
        names: names(&["tank/a#one", "tank/a#two", "tank/a#no"]),
    };
    pool.run(gone).unwrap();
    assert_eq!(pool.features.count(Feature::BookmarkWritten), 0);
    pool.judge();
}
