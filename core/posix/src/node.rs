//! A file in memory, and the table of files in memory.
//!
//! # Mechanism
//! A [`Node`] has the object, the attributes of the file ([`Facts`]), and the locks under which
//! both change. All operations on a file share one node. The table keeps every open node, and a
//! number of others that were used lately.
//!
//! Facts are an unchangeable value behind a pointer: a reader takes the pointer and needs no lock
//! any more. A change makes a new value, stores it in the object under its transaction, and then
//! swaps the pointer.
//!
//! # Invariants
//! - Facts are swapped only by the holder of `change`.
//! - A node whose object was freed is marked as gone, and not in the table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tarn_host::lock::{Mutex, MutexGuard, RwLock};
use tarn_object::{Object, ObjectSet};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::facts::Facts;
use crate::idle_files::IdleFiles;
use crate::ranks;
use crate::tables::AttributeTables;
use crate::types::Timestamp;

/// The number of shards of the table.
const SHARDS: u64 = 16;
/// How many idle files a shard keeps. A guess: some 2 KiB each.
const IDLE_MAX: usize = 1024;

/// A file in memory.
pub(crate) struct Node {
    pub id: ObjectId,
    pub object: Arc<Object>,
    /// Held while the file is changed, from the first check of its attributes to the last byte.
    pub change: Mutex<()>,
    /// Held shared while contents are read, and alone while they are changed. A writer has its
    /// transaction before it takes this lock, and never waits for one under it.
    pub content: RwLock<()>,
    facts: RwLock<Arc<Facts>>,
    /// An access time that is not in the facts yet.
    pub accessed: Mutex<Option<Timestamp>>,
    life: Mutex<Life>,
    /// The newest txg that changes it.
    changed_in: AtomicU64,
    was_used: AtomicBool,
    /// It was made without a name (`O_TMPFILE`), and has not had one yet.
    awaits_name: AtomicBool,
}

/// How often a file is open, and whether it is gone: under one lock, so that a file that is opened
/// is not freed.
#[derive(Debug, Default)]
struct Life {
    opens: u64,
    is_gone: bool,
}

impl Node {
    /// A file with these facts.
    pub fn new(object: Arc<Object>, facts: Facts) -> Arc<Node> {
        Arc::new(Node {
            id: object.id(),
            object,
            change: Mutex::new(ranks::CHANGE, ()),
            content: RwLock::new(ranks::CONTENT, ()),
            facts: RwLock::new(ranks::FACTS, Arc::new(facts)),
            accessed: Mutex::new(ranks::ACCESSED, None),
            life: Mutex::new(ranks::LIFE, Life::default()),
            changed_in: AtomicU64::new(0),
            was_used: AtomicBool::new(true),
            awaits_name: AtomicBool::new(false),
        })
    }

    /// Whether it was made without a name and can get its first one. A file that has lost its last
    /// name cannot.
    pub fn awaits_name(&self) -> bool {
        self.awaits_name.load(Ordering::Relaxed)
    }

    /// Sets whether it waits for its first name. Only for the holder of `change`.
    pub fn set_awaits_name(&self, awaits_name: bool) {
        self.awaits_name.store(awaits_name, Ordering::Relaxed);
    }

    /// Reads the attributes of a file.
    pub fn load(
        set: &ObjectSet,
        id: ObjectId,
        tables: &AttributeTables,
        operation: &Operation,
    ) -> Result<Arc<Node>, PosixError> {
        let object = set.object(id, operation)?;
        let (bonus_type, bonus) = object.typed_bonus();
        let spill = object.spill(operation)?;
        // A layout is in the tables before a file has it, so the tables are read last.
        let facts = Facts::decode(bonus_type, &bonus, spill.as_deref(), &tables.current())
            .map_err(|what| PosixError::Attributes { object: id, what })?;
        let node = Node::new(object, facts);
        if node.object.info().is_dirty {
            // It was changed, then dropped from the table, and is read again: a sync of it waits
            // for the open txg.
            node.note_change(set.env().txgs.open_txg());
        }
        Ok(node)
    }

    /// Its attributes.
    pub fn facts(&self) -> Arc<Facts> {
        self.facts.read().clone()
    }

    /// Replaces its attributes. Only for the holder of `change`, which has stored the same in the
    /// object.
    pub fn set_facts(&self, facts: Facts) {
        let facts = Arc::new(facts);
        let old = std::mem::replace(&mut *self.facts.write(), facts);
        drop(old);
    }

    /// Notes that it is changed in this txg.
    pub fn note_change(&self, txg: Txg) {
        self.changed_in.fetch_max(txg.get(), Ordering::Relaxed);
    }

    /// The newest txg that changes it.
    pub fn changed_in(&self) -> Txg {
        Txg::from(self.changed_in.load(Ordering::Relaxed))
    }

    /// Counts an open. False when the file is gone.
    pub fn open(&self) -> bool {
        let mut life = self.life.lock();
        assert!(
            !life.is_gone || life.opens == 0,
            "a file that is freed is not open"
        );
        if !life.is_gone {
            life.opens += 1;
        }
        !life.is_gone
    }

    /// Counts a close. True for the last one.
    pub fn close(&self) -> bool {
        let mut life = self.life.lock();
        life.opens = life.opens.saturating_sub(1);
        life.opens == 0
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.life.lock().opens > 0
    }

    /// Whether its object was freed.
    pub fn is_gone(&self) -> bool {
        self.life.lock().is_gone
    }

    /// Marks it as gone, since its object will be freed: it cannot be opened any more. False when
    /// it is open.
    pub fn condemn(&self) -> bool {
        let mut life = self.life.lock();
        life.is_gone = life.opens == 0;
        life.is_gone
    }

    /// Takes [`condemn`](Self::condemn) back: its object could not be freed.
    pub fn reprieve(&self) {
        self.life.lock().is_gone = false;
    }
}

/// Locks `change` of several files, in the order of their numbers. A file may be given more than
/// once.
pub(crate) fn lock_all<'a>(nodes: &[&'a Arc<Node>]) -> Vec<MutexGuard<'a, ()>> {
    let mut sorted: Vec<&Arc<Node>> = nodes.to_vec();
    sorted.sort_by_key(|node| node.id);
    sorted.dedup_by_key(|node| node.id);
    assert!(
        sorted.is_sorted_by(|one, two| one.id < two.id),
        "nodes are locked in the order of their objects"
    );
    sorted.into_iter().map(|node| node.change.lock()).collect()
}

/// As [`lock_all`], refused when one of them is gone.
pub(crate) fn lock_existing<'a>(
    nodes: &[&'a Arc<Node>],
) -> Result<Vec<MutexGuard<'a, ()>>, PosixError> {
    let guards = lock_all(nodes);
    match nodes.iter().any(|node| node.is_gone()) {
        true => Err(PosixError::NotFound),
        false => Ok(guards),
    }
}

/// The files in memory.
pub(crate) struct Nodes {
    shards: Vec<Mutex<Shard>>,
    /// Counts the files in all tables of the pool.
    idle: Arc<IdleFiles>,
}

/// A shard of the table.
struct Shard {
    nodes: BTreeMap<ObjectId, Arc<Node>>,
    /// How many there may be before idle ones are dropped: the bound, or more while more are in
    /// use.
    limit: usize,
    /// Counts nodes that left the table. A file that was read before a node left may be outdated:
    /// that node could have changed the file in between.
    departures: u64,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            nodes: BTreeMap::new(),
            limit: IDLE_MAX,
            departures: 0,
        }
    }
}

/// The next limit, given how many nodes stayed. Nodes in use are checked again only when there are
/// a quarter more.
fn limit_after(left: usize) -> usize {
    IDLE_MAX.max(left + left / 4)
}

impl Shard {
    /// Removes idle nodes: not open, without users, and not used since the last call.
    fn take_idle(&mut self) -> Vec<Arc<Node>> {
        let is_idle = |node: &Arc<Node>| {
            Arc::strong_count(node) == 1
                && !node.is_open()
                && node.accessed.lock().is_none()
                && !node.was_used.swap(false, Ordering::Relaxed)
        };
        let idle: Vec<ObjectId> = (self.nodes.iter())
            .filter(|(_, node)| is_idle(node))
            .map(|(id, _)| *id)
            .collect();
        self.departures += u64::from(!idle.is_empty());
        let gone = idle.into_iter();
        let gone = gone.filter_map(|id| self.nodes.remove(&id)).collect();
        self.limit = limit_after(self.nodes.len());
        assert!(
            self.nodes.len() <= self.limit,
            "the limit has room for the nodes in use"
        );
        gone
    }
}

impl Nodes {
    /// An empty table.
    pub fn new(idle: Arc<IdleFiles>) -> Nodes {
        let shard = |_| Mutex::new(ranks::NODES, Shard::default());
        Nodes {
            shards: (0..SHARDS).map(shard).collect(),
            idle,
        }
    }

    fn shard(&self, id: ObjectId) -> &Mutex<Shard> {
        &self.shards[narrow(id.get() % SHARDS)]
    }

    /// Whether any of them is open.
    pub fn any_is_open(&self) -> bool {
        let is_open = |shard: &Mutex<Shard>| shard.lock().nodes.values().any(|node| node.is_open());
        self.shards.iter().any(is_open)
    }

    /// The file, if it is in memory.
    pub fn find(&self, id: ObjectId) -> Option<Arc<Node>> {
        let node = self.shard(id).lock().nodes.get(&id).cloned()?;
        assert_eq!(node.id, id, "a node is in the table by its object");
        node.was_used.store(true, Ordering::Relaxed);
        Some(node)
    }

    /// The file. If it is not in memory, `load` reads it, and once more if nodes left the table
    /// meanwhile.
    pub fn find_or_load(
        &self,
        id: ObjectId,
        load: impl Fn() -> Result<Arc<Node>, PosixError>,
    ) -> Result<Arc<Node>, PosixError> {
        loop {
            let departures = {
                let shard = self.shard(id).lock();
                if let Some(node) = shard.nodes.get(&id) {
                    node.was_used.store(true, Ordering::Relaxed);
                    return Ok(node.clone());
                }
                shard.departures
            };
            let loaded = match load() {
                // It may have changed while it was read, by the node that the table has now.
                Err(error) => return self.find(id).ok_or(error),
                Ok(loaded) => loaded,
            };
            debug_assert_eq!(loaded.id, id, "what is loaded is what was asked for");
            if let Some(node) = self.add_if(loaded, Some(departures)) {
                return Ok(node);
            }
        }
    }

    /// Adds a file that was just made.
    pub fn add_new(&self, node: Arc<Node>) -> Arc<Node> {
        self.add_if(node, None).expect("nothing forbids it")
    }

    /// Adds a file, and gives the node in the table, which is another one if another thread was
    /// faster. Adds nothing if nodes left the table since `departures` was read. When there are too
    /// many, idle nodes are dropped.
    fn add_if(&self, node: Arc<Node>, departures: Option<u64>) -> Option<Arc<Node>> {
        let mut shard = self.shard(node.id).lock();
        if !shard.nodes.contains_key(&node.id)
            && departures.is_some_and(|departures| departures != shard.departures)
        {
            return None;
        }
        let before = shard.nodes.len();
        let node = shard.nodes.entry(node.id).or_insert(node).clone();
        let dropped = match shard.nodes.len() > shard.limit {
            true => shard.take_idle(),
            false => Vec::new(),
        };
        self.idle.changed(before, shard.nodes.len());
        drop(shard);
        drop(dropped);
        Some(node)
    }

    /// Drops idle nodes: not open, without users, and not used since the last call.
    pub fn let_idle_go(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.nodes.len();
            let dropped = shard.take_idle();
            self.idle.changed(before, shard.nodes.len());
            drop(shard);
            drop(dropped);
        }
    }

    /// Removes a file whose object was freed.
    pub fn remove(&self, id: ObjectId) {
        let mut shard = self.shard(id).lock();
        let removed = shard.nodes.remove(&id);
        self.idle.changed(usize::from(removed.is_some()), 0);
        shard.departures += 1;
        drop(shard);
        drop(removed);
    }

    /// All files in memory.
    pub fn all(&self) -> Vec<Arc<Node>> {
        let nodes = self
            .shards
            .iter()
            .map(|shard| shard.lock().nodes.values().cloned().collect());
        nodes.collect::<Vec<Vec<_>>>().concat()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for shard in &self.shards {
            self.idle.changed(shard.lock().nodes.len(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_MAX, limit_after};

    #[test]
    fn files_in_use_are_not_looked_at_for_each_that_comes() {
        let (mut limit, mut looked_at) = (IDLE_MAX, 0);
        for count in 1..=100_000 {
            if count > limit {
                looked_at += count;
                limit = limit_after(count);
            }
        }
        assert!(looked_at < 10 * 100_000, "{looked_at}");
        assert_eq!(limit_after(3), IDLE_MAX, "the others are closed");
    }
}
