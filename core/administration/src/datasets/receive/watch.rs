//! Progress of receives: a command can ask what a receive has done, while it runs and after it has
//! failed.
//!
//! # Mechanism
//! The command names its receive, and asks under that name, in calls of its own, for the events
//! after those it has. Such a call waits a moment for new events. After the receive has ended, its
//! events stay until they were asked for to the end.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::dataset::{Receive, ReceiveEvent, ReceiveLine, ReceiveProgress, WatchReceive};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tarn_host::lock::{Condvar, Mutex, Rank};

/// The events of a receive; held for a moment.
const TOLD: Rank = Rank::new(tarn_host::ranks::ENGINE + 23, "what a receive told");

/// How long a call waits for new events: how late a screen may be.
const MOMENT: Duration = Duration::from_secs(1);

/// How many ended receives are kept until their events are asked for. A guess: more than end within
/// a moment.
const ENDED_MAX: usize = 64;

/// A receive with a name.
pub(crate) struct Watched {
    uid: u32,
    told: Mutex<Told>,
    more: Condvar,
    /// Bytes of all streams that were read.
    bytes: AtomicU64,
}

#[derive(Default)]
struct Told {
    lines: Vec<ReceiveLine>,
    /// The start of the present stream: bytes before it, and the time.
    begun: Option<(u64, u64)>,
    is_over: bool,
}

impl Watched {
    pub(super) fn tell(&self, line: ReceiveLine) {
        let mut told = self.told.lock();
        match &line {
            ReceiveLine::Event(ReceiveEvent::Receiving { .. }) => {
                let bytes = self.bytes.load(Ordering::Relaxed);
                told.begun = Some((bytes, tarn_host::monotonic_ns()));
            }
            ReceiveLine::Event(_) => told.begun = None,
            ReceiveLine::Warning(_) => {}
        }
        told.lines.push(line);
        self.more.notify_all();
    }

    /// The events after the first `seen`, as soon as there are any, or after a moment.
    fn beyond(&self, seen: usize) -> ReceiveProgress {
        let mut told = self.told.lock();
        if told.lines.len() <= seen && !told.is_over {
            let _ = self.more.wait_timeout(&mut told, MOMENT);
        }
        let lines = told.lines.get(seen..).unwrap_or_default().to_vec();
        let (began, began_ns) = told.begun.unwrap_or_default();
        let is_coming = told.begun.is_some();
        let since = |now: u64, then: u64| match is_coming {
            true => now.saturating_sub(then),
            false => 0,
        };
        ReceiveProgress {
            is_known: true,
            lines,
            is_over: told.is_over,
            is_coming,
            bytes: since(self.bytes.load(Ordering::Relaxed), began),
            nanoseconds: since(tarn_host::monotonic_ns(), began_ns),
        }
    }

    fn is_over(&self) -> bool {
        self.told.lock().is_over
    }
}

/// Marks a receive as ended when it is dropped.
pub(super) struct Watching(pub(super) Option<Arc<Watched>>);

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(watched) = &self.0 {
            watched.told.lock().is_over = true;
            watched.more.notify_all();
        }
    }
}

/// Counts the bytes that are read.
pub(super) struct Counted<R> {
    pub(super) input: R,
    pub(super) watched: Option<Arc<Watched>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        if let Some(watched) = &self.watched {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            watched.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(bytes)
    }
}

impl Administrator {
    /// Enters a receive under its name, if that is free.
    pub(super) fn enter_receive(&self, call: &Call, request: &Receive) -> Watching {
        let mut receives = self.watched_receives.lock();
        if receives.len() >= ENDED_MAX {
            receives.retain(|_, watched: &mut Arc<Watched>| !watched.is_over());
        }
        let name = request.watch.as_ref();
        let Some(name) = name.filter(|name| !receives.contains_key(*name)) else {
            return Watching(None);
        };
        let watched = Arc::new(Watched {
            uid: call.caller.uid,
            told: Mutex::new(TOLD, Told::default()),
            more: Condvar::new(),
            bytes: AtomicU64::new(0),
        });
        receives.insert(name.clone(), watched.clone());
        Watching(Some(watched))
    }

    pub(crate) fn watch_receive(&self, call: &Call, request: &WatchReceive) -> ReceiveProgress {
        let watched = self.watched_receives.lock().get(&request.watch).cloned();
        let watched = watched.filter(|watched| watched.uid == call.caller.uid);
        let Some(watched) = watched else {
            return ReceiveProgress::default();
        };
        let progress = watched.beyond(usize::try_from(request.seen).unwrap_or(usize::MAX));
        if progress.is_over {
            self.watched_receives.lock().remove(&request.watch);
        }
        progress
    }
}
