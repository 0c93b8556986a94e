//! A part of the cache, under its own lock: its lists, and the flights of its keys.

use crate::adaptive::{Found, ListName, Lists, Memory, Use};
use crate::contents::Contents;
use crate::key::Key;
use crate::probes::Sizes;
use crate::ranks;
use crate::single_flight::{Flight, Landing};
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_block::{BlockScope, ReadError};
use tarn_host::lock::Mutex;
use tarn_ondisk::block_pointer::BlockPointer;

/// How many blocks are looked at under the lock of a shard.
const WALK_BLOCKS_MAX: usize = 128;

/// A block that is kept.
#[derive(Clone)]
struct Kept {
    contents: Contents,
    fingerprint: u64,
    origin: Option<Arc<Origin>>,
}

/// What leads to a block that is kept, and where it belongs. Known only of blocks that may enter
/// the second level.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) pointer: BlockPointer,
    pub(crate) scope: BlockScope,
}

/// What an origin takes of memory.
const ORIGIN_BYTES: u64 = 224;

/// A block that may enter the second level.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    origin: Arc<Origin>,
    contents: Contents,
}

impl Candidate {
    pub(crate) fn new(origin: Arc<Origin>, contents: Contents) -> Candidate {
        Candidate { origin, contents }
    }

    pub(crate) fn pointer(&self) -> &BlockPointer {
        &self.origin.pointer
    }

    pub(crate) fn scope(&self) -> BlockScope {
        self.origin.scope
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// What it takes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        cost(&self.contents) + ORIGIN_BYTES
    }
}

/// How far a walk along a list has come.
#[derive(Debug)]
pub(crate) struct Position {
    list: ListName,
    from_newest: bool,
    after: Option<Key>,
    is_at_end: bool,
}

impl Position {
    /// At one of the ends of a list.
    pub(crate) fn start(list: ListName, from_newest: bool) -> Position {
        Position {
            list,
            from_newest,
            after: None,
            is_at_end: false,
        }
    }

    /// Whether the walk has come to the other end, or lost its way because the last block moved.
    pub(crate) fn is_at_end(&self) -> bool {
        self.is_at_end
    }
}

struct State {
    lists: Lists<Key, Kept>,
    flights: BTreeMap<Key, Arc<Flight>>,
}

/// See the module.
pub(crate) struct Shard(Mutex<State>);

/// What to do about a wish.
pub(crate) enum Answer {
    /// Here it is. True if prefetch brought it in and this is its first use.
    Hit(Contents, bool),
    /// A read is under way, or waits for a leader.
    Join(Arc<Flight>),
    /// The caller is to read it, and to end this flight.
    Lead(Arc<Flight>, Memory),
    /// The caller is to read it for himself: the key belongs to another block.
    Stranger,
}

impl Shard {
    pub(crate) fn new(budget: u64) -> Shard {
        let state = State {
            lists: Lists::new(budget),
            flights: BTreeMap::new(),
        };
        Shard(Mutex::new(ranks::SHARD, state))
    }

    /// Looks a block up, or leaves a flight for it. The flight has no leader yet.
    pub(crate) fn find(&self, key: &Key, fingerprint: u64, how: Use, now_ns: u64) -> Answer {
        let mut state = self.0.lock();
        let part = |kept: &Kept| (kept.contents.clone(), kept.fingerprint);
        let memory = match state.lists.find_part(key, how, now_ns, part) {
            Found::Here((contents, found), is_first_use) if found == fingerprint => {
                return Answer::Hit(contents, is_first_use);
            }
            Found::Here(..) => return Answer::Stranger,
            Found::Away(memory) => memory,
        };
        match state.flights.get(key) {
            Some(flight) if flight.fingerprint == fingerprint => Answer::Join(flight.clone()),
            Some(_) => Answer::Stranger,
            None => {
                let flight = Arc::new(Flight::new(fingerprint));
                let other = state.flights.insert(*key, flight.clone());
                assert!(other.is_none(), "a key is read at most once at a time");
                Answer::Lead(flight, memory)
            }
        }
    }

    /// Looks a block up, which leaves no trace.
    pub(crate) fn peek(&self, key: &Key, fingerprint: u64) -> Option<Contents> {
        let part = |kept: &Kept| (kept.contents.clone(), kept.fingerprint);
        let mut state = self.0.lock();
        match state.lists.find_part(key, Use::Prefetch, 0, part) {
            Found::Here((contents, found), _) if found == fingerprint => Some(contents),
            _ => None,
        }
    }

    /// The read of a block that is under way or waits for a leader.
    pub(crate) fn flight(&self, key: &Key, fingerprint: u64) -> Option<Arc<Flight>> {
        let state = self.0.lock();
        let flight = state.flights.get(key);
        flight
            .filter(|flight| flight.fingerprint == fingerprint)
            .cloned()
    }

    /// Ends a flight with what it brought, and keeps that if it is a block and not stale.
    pub(crate) fn land(
        &self,
        key: &Key,
        flight: &Arc<Flight>,
        answer: Result<Contents, ReadError>,
        origin: Option<Arc<Origin>>,
        (how, now_ns): (Use, u64),
    ) {
        let mut state = self.0.lock();
        state.end(key, flight);
        if let (Ok(contents), false) = (&answer, flight.is_stale()) {
            let kept = Kept {
                contents: contents.clone(),
                fingerprint: flight.fingerprint,
                origin,
            };
            let size = kept.cost();
            state.lists.insert(*key, kept, size, how, now_ns);
        }
        drop(state);
        flight.land(Landing::Answer(answer));
    }

    /// Ends a flight that brings nothing.
    pub(crate) fn abandon(&self, key: &Key, flight: &Arc<Flight>) {
        self.0.lock().end(key, flight);
        flight.land(Landing::Abandoned);
    }

    /// Keeps a block that was just written. What was known of the key is replaced, and a read
    /// under way will not be kept.
    pub(crate) fn insert(
        &self,
        key: Key,
        fingerprint: u64,
        contents: Contents,
        origin: Option<Arc<Origin>>,
        now_ns: u64,
    ) {
        let mut state = self.0.lock();
        state.disown(&key);
        debug_assert!(
            !state.flights.contains_key(&key),
            "a read that was under way does not bring back the earlier contents"
        );
        let kept = Kept {
            contents,
            fingerprint,
            origin,
        };
        let size = kept.cost();
        state.lists.insert(key, kept, size, Use::Demand, now_ns);
    }

    /// The next blocks of a pool along a list that may enter the second level, and how many bytes
    /// were passed, others included.
    pub(crate) fn candidates(&self, pool: u64, position: &mut Position) -> (Vec<Candidate>, u64) {
        let mut found = Vec::new();
        let mut bytes = 0;
        let state = self.0.lock();
        let (list, from_newest) = (position.list, position.from_newest);
        let visit = |key: &Key, kept: &Kept, size: u64| {
            bytes += size;
            if let Some(origin) = kept.origin.as_ref().filter(|_| key.pool == pool) {
                found.push(Candidate::new(origin.clone(), kept.contents.clone()));
            }
        };
        let after = position.after;
        let last = state
            .lists
            .walk(list, from_newest, after, WALK_BLOCKS_MAX, visit);
        drop(state);
        position.is_at_end = last.is_none();
        position.after = last;
        (found, bytes)
    }

    /// The reader keeps the block itself. Gives the block if it is not kept here any more, and may
    /// enter the second level.
    pub(crate) fn pass(&self, key: &Key) -> Option<Candidate> {
        let kept = self.0.lock().lists.pass(key)?;
        let origin = kept.origin?;
        Some(Candidate::new(origin, kept.contents))
    }

    /// Forgets a block.
    pub(crate) fn forget(&self, key: &Key) {
        let mut state = self.0.lock();
        state.disown(key);
        state.lists.remove(key);
    }

    /// Forgets all blocks of a pool.
    pub(crate) fn forget_pool(&self, pool: u64) {
        let mut state = self.0.lock();
        let flights: Vec<Key> = state.flights.keys().copied().collect();
        for key in flights.iter().filter(|key| key.pool == pool) {
            state.disown(key);
        }
        state.lists.remove_matching(|key| key.pool == pool);
    }

    pub(crate) fn set_budget(&self, budget: u64) -> u64 {
        self.0.lock().lists.set_budget(budget)
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let state = self.0.lock();
        let lists = &state.lists;
        Sizes {
            all: lists.bytes(),
            recent: lists.bytes_of(ListName::Recent),
            frequent: lists.bytes_of(ListName::Frequent),
            ghost_recent: lists.bytes_of(ListName::GhostRecent),
            ghost_frequent: lists.bytes_of(ListName::GhostFrequent),
            recent_target: lists.recent_target(),
            elements: lists.key_count(),
            evicted: lists.evicted().blocks,
            evicted_bytes: lists.evicted().bytes,
        }
    }
}

impl State {
    /// Takes a flight out, unless another has taken its place.
    fn end(&mut self, key: &Key, flight: &Arc<Flight>) {
        if self
            .flights
            .get(key)
            .is_some_and(|current| Arc::ptr_eq(current, flight))
        {
            self.flights.remove(key);
        }
    }

    /// Lets a read under way end without being kept or found.
    fn disown(&mut self, key: &Key) {
        if let Some(flight) = self.flights.remove(key) {
            flight.make_stale();
        }
    }
}

impl Kept {
    /// What it takes of memory.
    fn cost(&self) -> u64 {
        let origin = if self.origin.is_some() {
            ORIGIN_BYTES
        } else {
            0
        };
        cost(&self.contents) + origin
    }
}

fn cost(contents: &Contents) -> u64 {
    u64::try_from(contents.memory_bytes()).expect("a size fits 64 bits")
}
