//! Random walks through snapshots, clones, bookmarks and receives: every block of every dataset is
//! looked at after each step.

mod support;

use support::chain::{Blocks, Chain};
use support::snapshots::{
    BLOCK, MIB, clone, create, destroy, names, set, settings, several, snapshot,
};
use support::{FILE, Pool};
use tarn_dataset::dataset::NamedBookmark;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::bookmark::{DestroyBookmarks, MakeBookmarks};
use tarn_dataset::ops::destroy::Destroy;
use tarn_dataset::ops::promote::Promote;
use tarn_dataset::ops::receive::{
    AbandonReceive, BeginReceive, FinishReceive, ReceiveSettings, Receiver, StreamFacts,
};
use tarn_dataset::ops::rollback::Rollback;
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::receiving::ReceiveClaim;
use tarn_dataset::space_used::written_since;
use tarn_dataset::task::TaskRefusal;
use tarn_host::sim::Random;
use tarn_object::{NewObject, TxEstimate};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::StreamFeatures;
use tarn_probe::Operation;

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

    /// Receives a random stream: an increment of any snapshot, a full stream, or a new dataset; to
    /// its end, or not. Unless a receive is under way, begins one: into an existing head, from its
    /// beginning or from a snapshot, or into a new one.
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
fn every_block_has_an_owner_after_each_step() {
    for seed in 1..=12 {
        wander(seed * 0x9e37_79b9, &[]);
    }
}

#[test]
fn deadlists_need_no_shared_empty_list() {
    wander(77, &[Feature::EmptyBpobj]);
}
