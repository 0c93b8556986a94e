//! Reads blocks ahead of the pipe.
//!
//! # Problem
//! The sending thread waits for a pipe, and devices answer many requests at once better than one
//! after the other. But a stream may be larger than memory, and its reader may stop.
//!
//! # Mechanism
//! A finder thread packs the parts to send into batches of some MiB. Reader threads take the
//! batches in turn, read the blocks of each as one batch of the devices, and hand it over. The
//! sending thread takes from the readers in the same turn, so that the order is kept. Each
//! hand-over has room for one batch: when the sending thread stops taking, all others wait, and
//! they end when it is gone.
//!
//! # Invariants
//! - No more than two batches for each reader are in memory, beside the one being written.
//! - Dropping the taker ends all threads and waits for them.

use super::SendError;
use super::find::{Found, Search, Walk, find};
use super::form::Forms;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tarn_block::{Block, Form, ReadError, ReadRequest};
use tarn_cache::PoolCache;
use tarn_host::channel::{NoMessage, Receiver, Sender, bounded};
use tarn_host::{Host, JoinHandle};
use tarn_probe::{Operation, OperationKind};

/// Bytes that a batch reads: enough to fill the queues of the devices.
const BATCH_BYTES: u64 = 4 << 20;

/// Most parts in a batch: most of them have no contents.
const BATCH_ITEMS: usize = 4096;

/// Number of reader threads. While one waits for devices, the other decompresses.
const READERS: usize = 2;

/// A part to send, with its contents if it has any.
pub(crate) struct Item {
    pub found: Found,
    pub contents: Option<Result<Block, ReadError>>,
}

/// A batch, before or after it was read.
enum Batch<T> {
    Some(Vec<T>),
    /// The end: all parts were found, or an error.
    End(Result<(), SendError>),
}

/// How often a thread that waits for devices checks that the other end still exists.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// All parts to send, in order, with their contents read ahead.
pub(crate) struct ReadAhead {
    ready: Vec<Receiver<Batch<Item>>>,
    turn: usize,
    batch: std::vec::IntoIter<Item>,
    threads: Vec<JoinHandle<()>>,
    walk: Arc<Walk>,
}

impl ReadAhead {
    /// Starts the threads.
    pub fn start(
        host: &Host,
        cache: &PoolCache,
        search: Search,
        forms: Forms,
        walk: Arc<Walk>,
    ) -> ReadAhead {
        let mut ready = Vec::new();
        let mut threads = Vec::new();
        let mut unread = Vec::new();
        for _ in 0..READERS {
            let (give, take) = bounded(1);
            let (hand_over, receive) = bounded(1);
            let cache = cache.clone();
            threads.push(host.spawn("tarn-send-read", move || {
                read_all(&cache, forms, &take, &hand_over);
            }));
            unread.push(give);
            ready.push(receive);
        }
        let (finder_cache, finder_walk) = (cache.clone(), walk.clone());
        threads.push(host.spawn("tarn-send-find", move || {
            find_all(&finder_cache, &search, forms, &finder_walk, &unread);
        }));
        ReadAhead {
            ready,
            turn: 0,
            batch: Vec::new().into_iter(),
            threads,
            walk,
        }
    }

    /// The next part to send; none at the end. While it waits it calls `check` now and then, which
    /// may stop it.
    pub fn next(
        &mut self,
        check: &dyn Fn() -> Result<(), SendError>,
    ) -> Result<Option<Item>, SendError> {
        loop {
            if let Some(item) = self.batch.next() {
                return Ok(Some(item));
            }
            match self.ready[self.turn].recv_timeout(LOOK_INTERVAL) {
                Ok(Batch::Some(batch)) => {
                    self.turn = (self.turn + 1) % READERS;
                    self.batch = batch.into_iter();
                }
                Ok(Batch::End(outcome)) => return outcome.map(|()| None),
                Err(NoMessage::NotYet) => check()?,
                Err(NoMessage::Closed) => panic!("a thread that reads ahead says when it ends"),
            }
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.walk.is_cancelled.store(true, Ordering::Relaxed);
        self.ready.clear();
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}

/// The finder thread.
fn find_all(
    cache: &PoolCache,
    search: &Search,
    forms: Forms,
    walk: &Walk,
    unread: &[Sender<Batch<Found>>],
) {
    let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Prefetch);
    let (mut turn, mut batch, mut bytes) = (0, Vec::new(), 0);
    let mut hand_over = |batch: Batch<Found>| {
        let is_taken = unread[turn].send(batch).is_ok();
        turn = (turn + 1) % unread.len();
        is_taken
    };
    let outcome = find(cache, search, walk, &operation, &mut |found| {
        let size = |request: ReadRequest| request.pointer.logical_size().get();
        bytes += forms.of(&found).map_or(0, size);
        batch.push(found);
        if bytes < BATCH_BYTES && batch.len() < BATCH_ITEMS {
            return true;
        }
        bytes = 0;
        // The sender keeps the snapshot, so the pointers found here stay valid as long as it waits.
        operation.look_up_anew();
        hand_over(Batch::Some(std::mem::take(&mut batch)))
    });
    if hand_over(Batch::Some(batch)) {
        hand_over(Batch::End(outcome));
    }
}

/// A reader thread.
fn read_all(
    cache: &PoolCache,
    forms: Forms,
    take: &Receiver<Batch<Found>>,
    hand_over: &Sender<Batch<Item>>,
) {
    while let Some(batch) = take.recv() {
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Prefetch);
        let read = match batch {
            Batch::Some(batch) => Batch::Some(read(cache, forms, batch, &operation)),
            Batch::End(outcome) => Batch::End(outcome),
        };
        if hand_over.send(read).is_err() {
            // The finder notices when it hands over the next batch.
            return;
        }
    }
}

/// Reads the contents of a batch: cached blocks from memory, the others together.
fn read(cache: &PoolCache, forms: Forms, batch: Vec<Found>, operation: &Operation) -> Vec<Item> {
    let mut items = Vec::with_capacity(batch.len());
    let (mut wanted, mut places) = (Vec::new(), Vec::new());
    for found in batch {
        let mut contents = None;
        if let Some(request) = forms.of(&found) {
            let is_plain = request.form == Form::Plain;
            match cache.peek(&request.pointer).filter(|_| is_plain) {
                Some(block) => contents = Some(Ok(block)),
                None => {
                    wanted.push(request);
                    places.push(items.len());
                }
            }
        }
        items.push(Item { found, contents });
    }
    let answers = cache.io().read_many(&wanted, operation);
    assert_eq!(answers.len(), places.len(), "each block has its answer");
    for (place, answer) in places.into_iter().zip(answers) {
        items[place].contents = Some(answer);
    }
    items
}
