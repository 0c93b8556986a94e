//! The thread of a pool that reads its cache devices anew, and then feeds them.

use super::feed::Fed;
use super::level::SecondLevel;
use std::sync::Arc;
use std::time::Duration;
use tarn_host::channel::{self, NoMessage, Sender};
use tarn_host::{Host, JoinHandle};
use tarn_probe::{DatasetId, Operation, OperationKind, What, Who};

/// How long after a round the next one follows.
#[doc(alias = "l2arc_feed_secs")]
const INTERVAL: Duration = Duration::from_secs(1);

/// The same after a round that wrote more than half of what it could.
#[doc(alias = "l2arc_feed_min_ms")]
const INTERVAL_MIN: Duration = Duration::from_millis(200);

/// The thread. It ends when this is dropped, after its round.
pub(crate) struct Feeder {
    wake: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Feeder {
    /// Starts it. Devices that cannot be written are read anew only.
    pub(crate) fn start(host: &Host, level: Arc<SecondLevel>, feeds: bool) -> Feeder {
        let (wake, woken) = channel::bounded(1);
        let run = move || {
            loop {
                level.rebuild_waiting(&operation());
                let pause = match feeds {
                    true => pause_after(level.feed(&operation())),
                    false => INTERVAL,
                };
                if woken.recv_timeout(pause) == Err(NoMessage::Closed) {
                    return;
                }
            }
        };
        Feeder {
            wake,
            thread: Some(host.spawn("tarn-l2arc", run)),
        }
    }

    /// Has it look for devices that wait to be read anew.
    pub(crate) fn wake(&self) {
        // A message that is there already wakes it as well.
        let _ = self.wake.try_send(());
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.wake.close();
        if let Some(thread) = self.thread.take() {
            // A panic in it was told when it happened.
            let _ = thread.join();
        }
    }
}

#[doc(alias = "l2arc_write_interval")]
fn pause_after(round: Fed) -> Duration {
    match round.written > round.wanted / 2 {
        true => INTERVAL_MIN,
        false => INTERVAL,
    }
}

fn operation() -> Operation {
    let what = What::plain(OperationKind::Prefetch, DatasetId::NONE, 0);
    Operation::begin(tarn_host::monotonic_ns, Who::INTERNAL, what)
}
