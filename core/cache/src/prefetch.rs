//! Prefetch: which blocks sequential readers will read next.
//!
//! # Mechanism
//! A reader that asks for the block after the one it asked for last is a *stream*. An object may
//! have several (two players of one film). Each has a window: how far ahead of its reader blocks
//! are brought in. The window opens small, doubles while the reader keeps coming, and stops at a
//! bound in bytes. When the reader has come half through what was asked for, the next part is.
//!
//! This file only decides; `object` knows the block pointers, and has the blocks read.
//!
//! # Invariants
//! - A block is given out once per stream.
//! - Streams per object and objects are bounded; those unused for longest make room.

use std::collections::BTreeMap;
use std::ops::Range;
use tarn_host::lock::Mutex;

/// How many streams one object may have.
const STREAMS_MAX: usize = 8;
/// How far a window opens for a new stream.
const WINDOW_BYTES_MIN: u64 = 256 << 10;
/// How many objects are watched. Each takes a few hundred bytes.
const OBJECTS_MAX: usize = 4096;

/// What is read, as far as streams are concerned: pool, object set and object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The pool, by its number in the cache.
    pub pool: u64,
    /// The object set.
    pub objset: u64,
    /// The object.
    pub object: u64,
}

/// Watches readers, for all objects.
pub struct Prefetcher {
    window_bytes_max: u64,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    objects: BTreeMap<ObjectKey, Streams>,
    by_use: BTreeMap<u64, ObjectKey>,
    clock: u64,
}

impl Prefetcher {
    /// Nothing seen yet. Windows open to `window_bytes_max` bytes, zero turns prefetch off.
    pub fn new(window_bytes_max: u64) -> Prefetcher {
        Prefetcher {
            window_bytes_max,
            watched: Mutex::new(crate::ranks::PREFETCH, Watched::default()),
        }
    }

    /// A reader asks for `blocks` of an object whose blocks are `block_bytes` large. Gives back the
    /// blocks that should be brought in now; the object may end before.
    pub fn observe(
        &self,
        key: ObjectKey,
        blocks: Range<u64>,
        block_bytes: u64,
    ) -> Option<Range<u64>> {
        if self.window_bytes_max == 0 || blocks.is_empty() || block_bytes == 0 {
            return None;
        }
        let window = Window {
            min: (WINDOW_BYTES_MIN / block_bytes).max(1),
            max: (self.window_bytes_max / block_bytes).max(1),
        };
        let mut watched = self.watched.lock();
        watched.streams_of(key).observe(blocks, window)
    }

    /// The object is gone or closed.
    pub fn forget(&self, key: ObjectKey) {
        let mut watched = self.watched.lock();
        if let Some(streams) = watched.objects.remove(&key) {
            watched.by_use.remove(&streams.used_at);
        }
    }
}

impl Watched {
    fn streams_of(&mut self, key: ObjectKey) -> &mut Streams {
        self.clock += 1;
        let now = self.clock;
        if let Some(streams) = self.objects.get(&key) {
            self.by_use.remove(&streams.used_at);
        } else if self.objects.len() >= OBJECTS_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.objects.remove(&oldest);
        }
        self.by_use.insert(now, key);
        self.objects.entry(key).or_default().used_at = now;
        assert!(
            self.objects.len() <= OBJECTS_MAX,
            "the objects that are watched are bounded"
        );
        assert_eq!(
            self.objects.len(),
            self.by_use.len(),
            "each object that is watched is in the order of use once"
        );
        self.objects.get_mut(&key).expect("it was just put there")
    }
}

/// Bounds of a window, in blocks.
#[derive(Debug, Clone, Copy)]
struct Window {
    min: u64,
    max: u64,
}

/// The streams of one object, the one used last in front.
#[derive(Debug, Default)]
struct Streams {
    streams: Vec<Stream>,
    used_at: u64,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    /// The block that comes next, if it goes on.
    next: u64,
    /// Everything before this was given out or read.
    asked_to: u64,
    window: u64,
}

impl Streams {
    fn observe(&mut self, blocks: Range<u64>, window: Window) -> Option<Range<u64>> {
        let (first, end) = (blocks.start, blocks.end);
        // The same block again, or the next, or one that was skipped but asked for: it goes on.
        let found = self.streams.iter().position(|stream| {
            first + 1 >= stream.next && first <= stream.next.max(stream.asked_to)
        });
        let Some(index) = found else {
            self.streams.truncate(STREAMS_MAX - 1);
            let stream = Stream {
                next: end,
                asked_to: end,
                window: window.min,
            };
            self.streams.insert(0, stream);
            return None;
        };
        let mut stream = self.streams.remove(index);
        let is_progress = end > stream.next;
        stream.next = stream.next.max(end);
        stream.asked_to = stream.asked_to.max(stream.next);
        let ahead = stream.asked_to - stream.next;
        let wanted = (is_progress && ahead <= stream.window / 2).then(|| {
            let from = stream.asked_to;
            let to = stream.next.saturating_add(stream.window).max(from);
            stream.asked_to = to;
            stream.window = (stream.window * 2).min(window.max);
            from..to
        });
        self.streams.insert(0, stream);
        wanted.filter(|range| !range.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 128 << 10;
    const KEY: ObjectKey = ObjectKey {
        pool: 1,
        objset: 54,
        object: 7,
    };

    fn read(prefetcher: &Prefetcher, block: u64) -> Option<Range<u64>> {
        prefetcher.observe(KEY, block..block + 1, BLOCK)
    }

    #[test]
    fn a_reader_in_order_is_run_ahead_of_with_a_growing_window() {
        let prefetcher = Prefetcher::new(8 << 20);
        assert_eq!(read(&prefetcher, 0), None, "one block is no stream");
        let mut asked = 1;
        let mut largest = 0;
        for block in 1..500 {
            if let Some(range) = read(&prefetcher, block) {
                assert_eq!(range.start, asked.max(block + 1), "each block once");
                asked = range.end;
                largest = largest.max(range.end - block);
            }
            assert!(asked > block, "always ahead");
            assert!(asked - block <= 65, "never further than the bound");
        }
        assert!(largest >= 64, "the window opened to {largest}");
    }

    #[test]
    fn a_reader_here_and_there_asks_for_nothing() {
        let prefetcher = Prefetcher::new(8 << 20);
        let mut block = 1_u64;
        for _ in 0..1000 {
            block = block.wrapping_mul(6364136223846793005).wrapping_add(99991);
            assert_eq!(read(&prefetcher, block >> 20), None);
        }
    }

    #[test]
    fn readers_of_one_object_are_told_apart() {
        let prefetcher = Prefetcher::new(8 << 20);
        let mut asked = [0, 0];
        for step in 0..100 {
            for (reader, start) in [(0, 0), (1, 1_000_000)] {
                if let Some(range) = read(&prefetcher, start + step) {
                    assert!(range.start > start && range.end < start + 1000);
                    asked[reader] += range.end - range.start;
                }
            }
        }
        assert!(asked[0] >= 99 && asked[1] >= 99, "{asked:?}");
    }

    #[test]
    fn many_small_reads_of_one_block_are_one() {
        let prefetcher = Prefetcher::new(8 << 20);
        let mut ranges = Vec::new();
        for block in 0..4 {
            for _ in 0..32 {
                ranges.extend(read(&prefetcher, block));
            }
        }
        for pair in ranges.windows(2) {
            assert_eq!(pair[0].end, pair[1].start, "{ranges:?}");
        }
    }

    #[test]
    fn objects_beyond_the_bound_are_forgotten() {
        let prefetcher = Prefetcher::new(8 << 20);
        for object in 0..2 * OBJECTS_MAX as u64 {
            let key = ObjectKey { object, ..KEY };
            prefetcher.observe(key, 0..1, BLOCK);
        }
        let watched = prefetcher.watched.lock();
        assert_eq!(watched.objects.len(), OBJECTS_MAX);
        assert_eq!(watched.by_use.len(), OBJECTS_MAX);
    }
}
