//! Which blocks to keep: adaptive between what was used recently and what is used often.
//!
//! # Problem
//! Memory holds a part of the blocks that are wanted. Keeping the latest is right for some loads
//! and fatal for others: one pass over a large file would drop everything that is used all the
//! time.
//!
//! # Mechanism
//! Four lists, after Megiddo and Modha (ARC, 2003), counted in bytes. *Recent* holds blocks seen
//! once, *frequent* those seen again. When there is no room, the oldest of one of the two goes;
//! only its key is kept, on that list's *ghost*. A request for a ghost says that its list was too
//! small, and the target of recent grows or shrinks by that. So the division follows the load,
//! without a setting.
//!
//! A pass over much data fills only recent; and a block is not used often because its bytes are
//! read one after the other: uses within a short time of each other count as one. A block that was
//! brought in by prefetch was not used yet; its first use makes it recent. A reader that keeps
//! blocks itself, as the kernel's page cache does above FUSE, leaves a ghost at once: when it asks
//! again, it has dropped the block, and then the block is kept.
//!
//! # Invariants
//! - Resident bytes, and a fixed cost for every key, ghosts included, are at most the budget,
//!   except for one block that alone is larger: that one is not kept.
//! - A key is on one list at most. Ghosts have no block, residents have one.
//! - Ghosts reach back no further than the budget would have.

use crate::fixed_state::FixedState;
use std::hash::{BuildHasher, Hash};

/// What a key costs beside its block: its node and its bucket. Rounded up.
pub(crate) const NODE_BYTES: u64 = 192;
/// Uses closer together than this are one use. Like OpenZFS.
#[doc(alias = "ARC_MINTIME")]
const USE_NS: u64 = 62_000_000;

/// Where a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListName {
    Recent,
    Frequent,
    GhostRecent,
    GhostFrequent,
}

/// How a block is asked for or brought in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// A demand read: a caller waits for it.
    Demand,
    /// A prefetch read.
    Prefetch,
}

/// What is known about a key that is not resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Nothing,
    WasRecent,
    WasFrequent,
}

/// What was found for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found<V> {
    /// It is here. True if this is the first use of what prefetch brought in.
    Here(V, bool),
    /// It is not.
    Away(Memory),
}

const NONE: usize = usize::MAX;
/// How many buckets empty lists have.
const BUCKETS_MIN: usize = 64;

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    list: ListName,
    /// What the block takes. Ghosts remember it.
    size: u64,
    /// `None` for ghosts.
    value: Option<V>,
    /// Brought in by prefetch and not used yet.
    is_unused: bool,
    used_at_ns: u64,
    newer: usize,
    older: usize,
    /// The next node of the same bucket.
    beside: usize,
}

#[derive(Debug)]
struct List {
    newest: usize,
    oldest: usize,
    bytes: u64,
    count: u64,
}

impl List {
    const EMPTY: List = List {
        newest: NONE,
        oldest: NONE,
        bytes: 0,
        count: 0,
    };
}

/// The four lists. Plain data, for one thread at a time.
#[derive(Debug)]
pub(crate) struct Lists<K, V> {
    /// The first node of each bucket. A power of two of them, as many as there are keys or more.
    buckets: Vec<usize>,
    key_count: usize,
    nodes: Vec<Node<K, V>>,
    unused_nodes: Vec<usize>,
    lists: [List; 4],
    budget: u64,
    /// How many bytes recent should have.
    recent_target: u64,
    evicted: Evicted,
}

/// What was dropped to make room, since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// How many blocks.
    pub(crate) blocks: u64,
    /// What they took.
    pub(crate) bytes: u64,
}

impl<K: Copy + Eq + Hash, V: Clone> Lists<K, V> {
    pub(crate) fn new(budget: u64) -> Lists<K, V> {
        Lists {
            buckets: vec![NONE; BUCKETS_MIN],
            key_count: 0,
            nodes: Vec::new(),
            unused_nodes: Vec::new(),
            lists: [List::EMPTY; 4],
            budget,
            recent_target: budget / 2,
            evicted: Evicted::default(),
        }
    }

    /// Looks a key up, and counts that as a use if it is here.
    #[cfg(test)]
    pub(crate) fn find(&mut self, key: &K, how: Use, now_ns: u64) -> Found<V> {
        self.find_part(key, how, now_ns, V::clone)
    }

    /// The same, for what `part` gives of the block.
    pub(crate) fn find_part<R>(
        &mut self,
        key: &K,
        how: Use,
        now_ns: u64,
        part: impl FnOnce(&V) -> R,
    ) -> Found<R> {
        let Some(index) = self.index_of(key) else {
            return Found::Away(Memory::Nothing);
        };
        let node = &mut self.nodes[index];
        let Some(value) = node.value.as_ref().map(part) else {
            return Found::Away(match node.list {
                ListName::GhostFrequent => Memory::WasFrequent,
                _ => Memory::WasRecent,
            });
        };
        if how == Use::Prefetch {
            return Found::Here(value, false);
        }
        let is_first_use = std::mem::take(&mut node.is_unused);
        let is_new_use = now_ns.saturating_sub(node.used_at_ns) >= USE_NS;
        let list = if is_first_use || !is_new_use {
            node.list
        } else {
            ListName::Frequent
        };
        if is_first_use || is_new_use {
            node.used_at_ns = now_ns;
        }
        if self.lists[slot(list)].newest != index {
            self.unlink(index);
            self.link(index, list);
        }
        Found::Here(value, is_first_use)
    }

    /// Looks without counting it as a use.
    #[cfg(test)]
    pub(crate) fn list_of(&self, key: &K) -> Option<ListName> {
        self.index_of(key).map(|index| self.nodes[index].list)
    }

    /// Keeps a block, dropping others for it. Replaces what the key had.
    pub(crate) fn insert(&mut self, key: K, value: V, size: u64, how: Use, now_ns: u64) {
        let list = match self.index_of(&key) {
            None => ListName::Recent,
            Some(index) => {
                let list = self.list_after_return(index, how);
                self.remove_node(index);
                list
            }
        };
        if size.saturating_add(NODE_BYTES) > self.budget {
            return;
        }
        let node = Node {
            key,
            list,
            size,
            value: Some(value),
            is_unused: how == Use::Prefetch,
            used_at_ns: now_ns,
            newer: NONE,
            older: NONE,
            beside: NONE,
        };
        self.make_room(size + NODE_BYTES);
        let index = match self.unused_nodes.pop() {
            Some(index) => {
                self.nodes[index] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.enter(index);
        self.link(index, list);
        assert!(
            self.bytes() <= self.budget,
            "what is kept, with its cost, is within the budget"
        );
    }

    /// Goes along a list by at most `count` blocks, from its oldest or its newest on, or behind a
    /// key that is still on it. Gives each block with its size to `visit`, but for what prefetch
    /// brought in and was not used. Gives the last key, none at the end of the list.
    pub(crate) fn walk(
        &self,
        list: ListName,
        from_newest: bool,
        after: Option<K>,
        count: usize,
        mut visit: impl FnMut(&K, &V, u64),
    ) -> Option<K> {
        let beside = |node: &Node<K, V>| match from_newest {
            true => node.older,
            false => node.newer,
        };
        let ends = &self.lists[slot(list)];
        let mut next = match (after, from_newest) {
            (None, true) => ends.newest,
            (None, false) => ends.oldest,
            (Some(key), _) => {
                let index = self.index_of(&key)?;
                let node = &self.nodes[index];
                match node.list == list {
                    true => beside(node),
                    false => return None,
                }
            }
        };
        let mut last = None;
        for _ in 0..count {
            if next == NONE {
                return None;
            }
            let node = &self.nodes[next];
            if let Some(value) = node.value.as_ref().filter(|_| !node.is_unused) {
                visit(&node.key, value, node.size);
            }
            last = Some(node.key);
            next = beside(node);
        }
        last
    }

    /// The list for a key that is here or a ghost, and comes again. A ghost moves the target.
    fn list_after_return(&mut self, index: usize, how: Use) -> ListName {
        let (list, size) = (self.nodes[index].list, self.nodes[index].size);
        let ghost_bytes = |name| self.lists[slot(name)].bytes.max(1);
        let recent = ghost_bytes(ListName::GhostRecent);
        let frequent = ghost_bytes(ListName::GhostFrequent);
        match (list, how) {
            (ListName::Recent | ListName::Frequent, _) => list,
            (_, Use::Prefetch) => ListName::Recent,
            (ListName::GhostRecent, Use::Demand) => {
                let step = size.saturating_mul((frequent / recent).max(1));
                let target = self.recent_target.saturating_add(step);
                self.recent_target = target.min(self.budget);
                ListName::Frequent
            }
            (ListName::GhostFrequent, Use::Demand) => {
                let step = size.saturating_mul((recent / frequent).max(1));
                self.recent_target = self.recent_target.saturating_sub(step);
                ListName::Frequent
            }
        }
    }

    /// The reader keeps the block itself: if it was wanted once only, its place is free,
    /// and a ghost remembers it. When it is wanted again he has lost it, and it is kept. Gives the
    /// block whose place is free.
    pub(crate) fn pass(&mut self, key: &K) -> Option<V> {
        let index = self.index_of(key)?;
        if self.nodes[index].list != ListName::Recent {
            return None;
        }
        let value = self.nodes[index].value.take();
        self.make_ghost(index, ListName::GhostRecent);
        value
    }

    /// Forgets a key altogether. True if its block was here.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        match self.index_of(key) {
            Some(index) => {
                let was_here = self.nodes[index].value.is_some();
                self.remove_node(index);
                was_here
            }
            None => false,
        }
    }

    /// Forgets all keys that `matches` picks.
    pub(crate) fn remove_matching(&mut self, matches: impl Fn(&K) -> bool) {
        let all = self.buckets.iter().flat_map(|&first| self.chain(first));
        let keys: Vec<K> = all
            .map(|index| self.nodes[index].key)
            .filter(|key| matches(key))
            .collect();
        for key in keys {
            self.remove(&key);
        }
    }

    /// What everything takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.resident_bytes() + self.node_count() * NODE_BYTES
    }

    /// What a list's blocks take; for a ghost, what they took.
    pub(crate) fn bytes_of(&self, list: ListName) -> u64 {
        self.lists[slot(list)].bytes
    }

    pub(crate) fn evicted(&self) -> Evicted {
        self.evicted
    }

    /// How many keys there are, ghosts included.
    pub(crate) fn key_count(&self) -> u64 {
        self.node_count()
    }

    pub(crate) fn recent_target(&self) -> u64 {
        self.recent_target
    }

    /// Changes the budget, dropping what is over it. Gives back how many bytes went.
    pub(crate) fn set_budget(&mut self, budget: u64) -> u64 {
        let before = self.bytes();
        self.budget = budget;
        self.recent_target = self.recent_target.min(budget);
        self.make_room(0);
        assert!(
            self.bytes() <= self.budget,
            "a smaller budget drops what is over it"
        );
        before.saturating_sub(self.bytes())
    }

    fn resident_bytes(&self) -> u64 {
        self.bytes_of(ListName::Recent) + self.bytes_of(ListName::Frequent)
    }

    fn node_count(&self) -> u64 {
        self.lists.iter().map(|list| list.count).sum()
    }

    /// Makes ghosts of blocks, and drops ghosts, until `needed` bytes fit.
    fn make_room(&mut self, needed: u64) {
        loop {
            self.drop_far_ghosts();
            if self.bytes().saturating_add(needed) <= self.budget {
                return;
            }
            let recent = self.lists[slot(ListName::Recent)].oldest;
            let frequent = self.lists[slot(ListName::Frequent)].oldest;
            let is_recent_large = self.bytes_of(ListName::Recent) > self.recent_target;
            match (recent, frequent) {
                (NONE, NONE) => {
                    if !self.drop_oldest_ghost() {
                        return;
                    }
                }
                (NONE, oldest) => self.make_ghost(oldest, ListName::GhostFrequent),
                (oldest, NONE) => self.make_ghost(oldest, ListName::GhostRecent),
                (oldest, _) if is_recent_large => self.make_ghost(oldest, ListName::GhostRecent),
                (_, oldest) => self.make_ghost(oldest, ListName::GhostFrequent),
            }
        }
    }

    fn make_ghost(&mut self, index: usize, list: ListName) {
        self.unlink(index);
        let node = &mut self.nodes[index];
        node.value = None;
        self.evicted.blocks += 1;
        self.evicted.bytes += node.size;
        if node.is_unused {
            // It was prefetched and never used: its return says nothing about the lists.
            self.discard(index);
        } else {
            self.link(index, list);
        }
    }

    /// Ghosts reach back as far as the budget would have, and cost at most an eighth of it.
    fn drop_far_ghosts(&mut self) {
        loop {
            let recent = &self.lists[slot(ListName::GhostRecent)];
            let frequent = &self.lists[slot(ListName::GhostFrequent)];
            let bytes = recent.bytes + frequent.bytes;
            let cost = (recent.count + frequent.count) * NODE_BYTES;
            let is_far = bytes > self.budget || cost > self.budget / 8;
            if !is_far || !self.drop_oldest_ghost() {
                return;
            }
        }
    }

    /// Drops the oldest ghost of the longer ghost list.
    fn drop_oldest_ghost(&mut self) -> bool {
        let recent = self.bytes_of(ListName::GhostRecent);
        if recent >= self.bytes_of(ListName::GhostFrequent) && recent > 0 {
            self.drop_ghost_of(ListName::GhostRecent)
        } else {
            self.drop_ghost_of(ListName::GhostFrequent) || self.drop_ghost_of(ListName::GhostRecent)
        }
    }

    fn drop_ghost_of(&mut self, list: ListName) -> bool {
        match self.lists[slot(list)].oldest {
            NONE => false,
            index => {
                self.remove_node(index);
                true
            }
        }
    }

    fn remove_node(&mut self, index: usize) {
        self.unlink(index);
        self.discard(index);
    }

    /// Frees a node that is on no list.
    fn discard(&mut self, index: usize) {
        self.nodes[index].value = None;
        self.leave(index);
        self.unused_nodes.push(index);
    }

    fn link(&mut self, index: usize, name: ListName) {
        let is_ghost = matches!(name, ListName::GhostRecent | ListName::GhostFrequent);
        assert_eq!(
            self.nodes[index].value.is_none(),
            is_ghost,
            "residents have their block, ghosts have none"
        );
        let list = &mut self.lists[slot(name)];
        let second = list.newest;
        list.newest = index;
        if second == NONE {
            list.oldest = index;
        }
        let node = &mut self.nodes[index];
        list.bytes += node.size;
        list.count += 1;
        node.list = name;
        node.newer = NONE;
        node.older = second;
        if second != NONE {
            self.nodes[second].newer = index;
        }
    }

    fn unlink(&mut self, index: usize) {
        let node = &self.nodes[index];
        let (newer, older) = (node.newer, node.older);
        let list = &mut self.lists[slot(node.list)];
        assert!(
            list.count > 0 && list.bytes >= node.size,
            "a list counts each of its nodes"
        );
        list.bytes -= node.size;
        list.count -= 1;
        match newer {
            NONE => list.newest = older,
            newer => self.nodes[newer].older = older,
        }
        let list = &mut self.lists[slot(self.nodes[index].list)];
        match older {
            NONE => list.oldest = newer,
            older => self.nodes[older].newer = newer,
        }
    }
}

/// Finding keys: chains through the nodes.
impl<K: Copy + Eq + Hash, V: Clone> Lists<K, V> {
    fn index_of(&self, key: &K) -> Option<usize> {
        self.chain(self.buckets[self.bucket_of(key)])
            .find(|&index| self.nodes[index].key == *key)
    }

    /// The nodes of a bucket, from its first.
    fn chain(&self, first: usize) -> impl Iterator<Item = usize> + '_ {
        let some = |index: usize| (index != NONE).then_some(index);
        std::iter::successors(some(first), move |&index| some(self.nodes[index].beside))
    }

    fn bucket_of(&self, key: &K) -> usize {
        // The high half of the hash has chosen the shard.
        let low = FixedState.hash_one(key) & u64::from(u32::MAX);
        usize::try_from(low).expect("32 bits fit") & (self.buckets.len() - 1)
    }

    fn enter(&mut self, index: usize) {
        debug_assert!(
            self.index_of(&self.nodes[index].key).is_none(),
            "a key has one node"
        );
        if self.key_count == self.buckets.len() {
            self.double_buckets();
        }
        self.key_count += 1;
        self.put_in_bucket(index);
    }

    fn put_in_bucket(&mut self, index: usize) {
        let bucket = self.bucket_of(&self.nodes[index].key);
        self.nodes[index].beside = std::mem::replace(&mut self.buckets[bucket], index);
    }

    fn double_buckets(&mut self) {
        let larger = vec![NONE; self.buckets.len() * 2];
        let smaller = std::mem::replace(&mut self.buckets, larger);
        for first in smaller {
            let mut next = first;
            while next != NONE {
                let index = next;
                next = self.nodes[index].beside;
                self.put_in_bucket(index);
            }
        }
    }

    fn leave(&mut self, index: usize) {
        let bucket = self.bucket_of(&self.nodes[index].key);
        let beside = self.nodes[index].beside;
        let before = self
            .chain(self.buckets[bucket])
            .find(|&other| self.nodes[other].beside == index);
        match before {
            Some(before) => self.nodes[before].beside = beside,
            None => {
                let first = std::mem::replace(&mut self.buckets[bucket], beside);
                assert_eq!(first, index, "a node is in the chain of its bucket");
            }
        }
        self.key_count -= 1;
    }
}

const fn slot(list: ListName) -> usize {
    match list {
        ListName::Recent => 0,
        ListName::Frequent => 1,
        ListName::GhostRecent => 2,
        ListName::GhostFrequent => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 4096;
    const COST: u64 = SIZE + NODE_BYTES;

    /// Lists under a clock that makes every use a new one.
    struct Fixture {
        lists: Lists<u64, u64>,
        now_ns: u64,
    }

    impl Fixture {
        fn of_blocks(count: u64) -> Fixture {
            Fixture {
                lists: Lists::new(count * COST),
                now_ns: 1,
            }
        }

        /// Reads a block as a cache does. True for a hit.
        fn read(&mut self, key: u64) -> bool {
            self.now_ns += USE_NS;
            let hit = matches!(
                self.lists.find(&key, Use::Demand, self.now_ns),
                Found::Here(value, _) if value == key
            );
            if !hit {
                self.lists.insert(key, key, SIZE, Use::Demand, self.now_ns);
            }
            self.check();
            hit
        }

        fn check(&self) {
            let lists = &self.lists;
            assert!(lists.bytes() <= lists.budget);
            assert_eq!(lists.key_count as u64, lists.node_count());
            let residents = lists.resident_bytes() / SIZE;
            let all = lists.buckets.iter().flat_map(|&first| lists.chain(first));
            let here = all.filter(|&index| lists.nodes[index].value.is_some());
            assert_eq!(here.count() as u64, residents);
        }
    }

    #[test]
    fn what_its_reader_keeps_is_kept_here_only_when_it_comes_again() {
        let mut fixture = Fixture::of_blocks(8);
        assert!(!fixture.read(1));
        fixture.lists.pass(&1);
        assert_eq!(fixture.lists.list_of(&1), Some(ListName::GhostRecent));
        assert_eq!(fixture.lists.bytes_of(ListName::Recent), 0);
        assert!(!fixture.read(1));
        fixture.lists.pass(&1);
        assert_eq!(fixture.lists.list_of(&1), Some(ListName::Frequent));
        assert!(fixture.read(1));
        fixture.lists.pass(&2);
        assert_eq!(fixture.lists.list_of(&2), None);
    }

    #[test]
    fn a_block_used_again_becomes_frequent() {
        let mut fixture = Fixture::of_blocks(10);
        assert!(!fixture.read(1));
        assert_eq!(fixture.lists.list_of(&1), Some(ListName::Recent));
        assert!(fixture.read(1));
        assert_eq!(fixture.lists.list_of(&1), Some(ListName::Frequent));
    }

    #[test]
    fn a_pass_over_much_data_leaves_frequent_blocks_alone() {
        let mut fixture = Fixture::of_blocks(100);
        for _ in 0..3 {
            (0..40).for_each(|key| {
                fixture.read(key);
            });
        }
        for key in 1000..20_000 {
            fixture.read(key);
        }
        let hits = (0..40).filter(|&key| fixture.read(key)).count();
        assert!(hits >= 38, "{hits} of 40");
    }

    #[test]
    fn uses_right_after_each_other_are_one_use() {
        let mut lists = Lists::new(10 * COST);
        lists.insert(1, 1, SIZE, Use::Demand, 5);
        for now in 6..40 {
            assert_eq!(lists.find(&1, Use::Demand, now), Found::Here(1, false));
        }
        assert_eq!(lists.list_of(&1), Some(ListName::Recent));
    }

    #[test]
    fn the_first_use_of_a_prefetched_block_makes_it_recent() {
        let mut lists = Lists::new(10 * COST);
        lists.insert(1, 1, SIZE, Use::Prefetch, 0);
        let (first, second) = (10 * USE_NS, 20 * USE_NS);
        assert_eq!(lists.find(&1, Use::Demand, first), Found::Here(1, true));
        assert_eq!(lists.list_of(&1), Some(ListName::Recent));
        assert_eq!(lists.find(&1, Use::Demand, second), Found::Here(1, false));
        assert_eq!(lists.list_of(&1), Some(ListName::Frequent));
    }

    #[test]
    fn a_wish_for_a_ghost_moves_the_target() {
        let mut fixture = Fixture::of_blocks(20);
        // Frequent blocks, then enough others to push some of those out of recent.
        for key in 0..10 {
            fixture.read(key);
            fixture.read(key);
        }
        for key in 100..125 {
            fixture.read(key);
        }
        let ghost = (100..125)
            .rev()
            .find(|key| fixture.lists.list_of(key) == Some(ListName::GhostRecent))
            .unwrap();
        let before = fixture.lists.recent_target();
        assert!(!fixture.read(ghost));
        assert!(fixture.lists.recent_target() > before);
        assert_eq!(fixture.lists.list_of(&ghost), Some(ListName::Frequent));
    }

    #[test]
    fn a_block_larger_than_the_budget_is_not_kept() {
        let mut lists: Lists<u64, u64> = Lists::new(COST);
        lists.insert(1, 1, SIZE, Use::Demand, 0);
        lists.insert(2, 2, SIZE + 1, Use::Demand, 0);
        assert_eq!(lists.list_of(&2), None);
        assert_eq!(lists.list_of(&1), Some(ListName::Recent));
    }

    #[test]
    fn a_smaller_budget_drops_blocks_at_once() {
        let mut fixture = Fixture::of_blocks(100);
        (0..100).for_each(|key| {
            fixture.read(key);
        });
        let dropped = fixture.lists.set_budget(10 * COST);
        assert!(dropped >= 85 * COST, "{dropped}");
        fixture.check();
        fixture.lists.set_budget(0);
        assert_eq!(fixture.lists.bytes(), 0);
    }

    #[test]
    fn replacing_and_removing_keep_the_counts_right() {
        let mut lists = Lists::new(100 * COST);
        lists.insert(1, 10, SIZE, Use::Demand, 0);
        lists.insert(1, 11, 2 * SIZE, Use::Demand, 0);
        assert_eq!(lists.find(&1, Use::Demand, 0), Found::Here(11, false));
        assert_eq!(lists.bytes(), 2 * SIZE + NODE_BYTES);
        assert!(lists.remove(&1));
        assert!(!lists.remove(&1));
        assert_eq!(lists.bytes(), 0);
    }
}
