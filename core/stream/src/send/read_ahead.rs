//! Reading ahead of the pipe.
//!
//! # Problem
//! A sender waits for a pipe, and devices answer many requests at once better than one after the
//! other. But a stream may be larger than memory, and its reader may stop.
//!
//! # Mechanism
//! One thread finds what is to be sent, and packs it into batches of some MiB. Others take the
//! batches in turn, read the blocks of each as one batch of the devices, and hand it over. The
//! writing thread takes from them in the same turn, so that everything keeps its order. Each
//! hand-over has room for one batch; when the reader of the pipe stops, all threads wait, or end if
//! it is gone.
//!
//! # Invariants
//! - No more than two batches for each reader are in memory, beside the one being written.
//! - When the taker is dropped all threads end, and are waited for.

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

/// How many bytes a batch reads. Enough for devices to have all their queues full.
const BATCH_BYTES: u64 = 4 << 20;

/// How many things a batch has at most: nothing is read for most of them.
const BATCH_ITEMS: usize = 4096;

/// How many threads read. While one waits for devices, the other decompresses.
const READERS: usize = 2;

/// Something to send, with its contents where it has some.
pub(crate) struct Item {
    pub found: Found,
    pub contents: Option<Result<Block, ReadError>>,
}

/// What is handed over, before it was read and after.
enum Batch<T> {
    Some(Vec<T>),
    /// Nothing more comes: that was all, or why not.
    End(Result<(), SendError>),
}

/// How often a thread that waits for devices looks whether the other end is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Everything to send, in its order, with contents read ahead.
pub(crate) struct ReadAhead {
    ready: Vec<Receiver<Batch<Item>>>,
    turn: usize,
    batch: std::vec::IntoIter<Item>,
    threads: Vec<JoinHandle<()>>,
    walk: Arc<Walk>,
}

impl ReadAhead {
    /// Begins.
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

    /// The next thing to send; none at the end. While it waits, it asks `check` now and then
    /// whether it should.
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
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// The life of the thread that finds.
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
        // The sender holds what is sent, however long that takes.
        operation.look_up_anew();
        hand_over(Batch::Some(std::mem::take(&mut batch)))
    });
    if hand_over(Batch::Some(batch)) {
        hand_over(Batch::End(outcome));
    }
}

/// The life of a thread that reads.
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
            // The finder hears of it when it hands over the next.
            return;
        }
    }
}

/// Reads the contents of a batch: what is in memory from there, the rest together.
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
