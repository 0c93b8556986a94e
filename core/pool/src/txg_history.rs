//! The last txgs, with times and I/O: `zfs/POOL:0:txgs` in the tree of statistics.
//!
//! A txg is open, then quiescing (it takes no new transactions), quiesced, syncing, and committed.
//! The times between, and the devices' I/O while it was stored, tell why a pool is slow in waves.

use std::collections::VecDeque;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::Txg;
use tarn_probe::{IoTotals, Value};

const HISTORY: Rank = Rank::new(tarn_host::ranks::POOL + 14, "history of groups");

/// How many txgs are remembered, as in OpenZFS.
#[doc(alias = "zfs_txg_history")]
const GROUPS_MAX: usize = 100;

/// The state of a txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Quiescing,
    WaitingForSync,
    Syncing,
    Stored,
}

impl Phase {
    /// OpenZFS's letter for it.
    const fn letter(self) -> &'static str {
        match self {
            Phase::Open => "O",
            Phase::Quiescing => "Q",
            Phase::WaitingForSync => "W",
            Phase::Syncing => "S",
            Phase::Stored => "C",
        }
    }
}

/// One txg. Times are of the monotonic clock; unknown ones are zero.
#[derive(Debug, Clone, Copy)]
struct Group {
    txg: Txg,
    phase: Phase,
    opened_ns: u64,
    closing_ns: u64,
    closed_ns: u64,
    syncing_ns: u64,
    stored_ns: u64,
    /// The pool's counters when it began to sync; their difference when it is stored.
    work: Work,
}

/// Work of the pool: counters since it was opened, or the difference of two.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// Bytes that were dirty and are stored.
    pub(crate) cleaned_bytes: u64,
    /// Reads and writes of the devices.
    pub(crate) io: IoTotals,
}

impl Group {
    fn open(txg: Txg, now_ns: u64) -> Group {
        Group {
            txg,
            phase: Phase::Open,
            opened_ns: now_ns,
            closing_ns: 0,
            closed_ns: 0,
            syncing_ns: 0,
            stored_ns: 0,
            work: Work::default(),
        }
    }

    /// The columns of OpenZFS's table, in its order; times in nanoseconds.
    fn row(&self) -> Value {
        let work = match self.phase {
            Phase::Stored => self.work,
            _ => Work::default(),
        };
        let column = |name, count: u64| (name, Value::Counter(count));
        let between = |name, from: u64, to: u64| column(name, to.saturating_sub(from));
        Value::Row(vec![
            column("birth", self.opened_ns),
            ("state", Value::Text(self.phase.letter().to_owned())),
            column("ndirty", work.cleaned_bytes),
            column("nread", work.io.read_bytes),
            column("nwritten", work.io.written_bytes),
            column("reads", work.io.reads),
            column("writes", work.io.writes),
            between("otime", self.opened_ns, self.closing_ns),
            between("qtime", self.closing_ns, self.closed_ns),
            between("wtime", self.closed_ns, self.syncing_ns),
            between("stime", self.syncing_ns, self.stored_ns),
        ])
    }
}

/// The last txgs of a pool, oldest first.
#[derive(Debug)]
pub(crate) struct TxgHistory(Mutex<VecDeque<Group>>);

impl TxgHistory {
    /// An empty history.
    pub(crate) fn new() -> TxgHistory {
        TxgHistory(Mutex::new(HISTORY, VecDeque::new()))
    }

    /// A txg is open.
    pub(crate) fn opened(&self, txg: Txg, now_ns: u64) {
        let mut groups = self.0.lock();
        while groups.len() >= GROUPS_MAX {
            groups.pop_front();
        }
        debug_assert!(
            groups.back().is_none_or(|last| last.txg <= txg),
            "groups are opened in order"
        );
        groups.push_back(Group::open(txg, now_ns));
        assert!(groups.len() <= GROUPS_MAX, "the history is bounded");
    }

    /// It takes no new transactions.
    pub(crate) fn closing(&self, txg: Txg, now_ns: u64) {
        self.change(txg, |group| {
            group.phase = Phase::Quiescing;
            group.closing_ns = now_ns;
        });
    }

    /// Its transactions are done.
    pub(crate) fn closed(&self, txg: Txg, now_ns: u64) {
        self.change(txg, |group| {
            group.phase = Phase::WaitingForSync;
            group.closed_ns = now_ns;
        });
    }

    /// It begins to sync; `so_far` are the counters before.
    pub(crate) fn syncing(&self, txg: Txg, now_ns: u64, so_far: Work) {
        self.change(txg, |group| {
            group.phase = Phase::Syncing;
            group.syncing_ns = now_ns;
            group.work = so_far;
        });
    }

    /// It is stored.
    pub(crate) fn stored(&self, txg: Txg, now_ns: u64, so_far: Work) {
        self.change(txg, |group| {
            let before = group.work;
            group.phase = Phase::Stored;
            group.stored_ns = now_ns;
            group.work = Work {
                cleaned_bytes: so_far.cleaned_bytes.saturating_sub(before.cleaned_bytes),
                io: so_far.io.since(&before.io),
            };
        });
    }

    fn change(&self, txg: Txg, change: impl FnOnce(&mut Group)) {
        let mut groups = self.0.lock();
        if let Some(group) = groups.iter_mut().rev().find(|group| group.txg == txg) {
            change(group);
        }
    }

    /// A row for each txg, by its number.
    pub(crate) fn values(&self) -> Vec<(String, Value)> {
        let groups = self.0.lock();
        let row = |group: &Group| (group.txg.get().to_string(), group.row());
        groups.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(history: &TxgHistory, txg: &str, name: &str) -> String {
        let values = history.values();
        let (_, row) = values.iter().find(|(number, _)| number == txg).unwrap();
        let Value::Row(columns) = row else {
            panic!("{row:?}")
        };
        let (_, value) = columns.iter().find(|(column, _)| *column == name).unwrap();
        value.to_string()
    }

    fn work(cleaned_bytes: u64, writes: u64) -> Work {
        let io = IoTotals {
            writes,
            ..IoTotals::default()
        };
        Work { cleaned_bytes, io }
    }

    #[test]
    fn a_group_shows_how_long_each_phase_took_and_what_storing_it_did() {
        let history = TxgHistory::new();
        let txg = Txg::from(7);
        history.opened(txg, 100);
        assert_eq!(column(&history, "7", "state"), "O");
        history.closing(txg, 150);
        history.closed(txg, 153);
        history.syncing(txg, 160, work(1000, 5));
        assert_eq!(column(&history, "7", "writes"), "0");
        history.stored(txg, 200, work(5096, 9));
        for (name, expected) in [
            ("birth", "100"),
            ("state", "C"),
            ("ndirty", "4096"),
            ("writes", "4"),
            ("otime", "50"),
            ("qtime", "3"),
            ("wtime", "7"),
            ("stime", "40"),
        ] {
            assert_eq!(column(&history, "7", name), expected, "{name}");
        }
    }

    #[test]
    fn only_the_last_groups_are_remembered() {
        let history = TxgHistory::new();
        (1..=250).for_each(|txg| history.opened(Txg::from(txg), txg));
        let values = history.values();
        assert_eq!(values.len(), GROUPS_MAX);
        assert_eq!(values[0].0, "151");
        history.closing(Txg::from(3), 9);
    }
}
