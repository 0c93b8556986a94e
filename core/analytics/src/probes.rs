//! What the collector counts of itself: `analytics:0:flight_recorder` in the tree of statistics.

use std::sync::Arc;

use tarn_probe::{Gauge, Histogram, Instance, registry};

use crate::flight_recorder::RecorderState;

/// The statistics of one collector thread; they leave the tree with it.
#[derive(Debug)]
pub(crate) struct Probes {
    _instance: Arc<Instance>,
    pass_ns: Arc<Histogram>,
    operations_held: Arc<Gauge>,
    operations_overwritten: Arc<Gauge>,
    operations_dropped: Arc<Gauge>,
    held_ns: Arc<Gauge>,
    bytes: Arc<Gauge>,
    budget_bytes: Arc<Gauge>,
}

impl Probes {
    pub(crate) fn register() -> Probes {
        let instance = registry().instance("analytics", 0, "flight_recorder");
        Probes {
            pass_ns: instance.histogram("pass_ns"),
            operations_held: instance.gauge("operations_held"),
            operations_overwritten: instance.gauge("operations_overwritten"),
            operations_dropped: instance.gauge("operations_dropped"),
            held_ns: instance.gauge("held_ns"),
            bytes: instance.gauge("bytes"),
            budget_bytes: instance.gauge("budget_bytes"),
            _instance: instance,
        }
    }

    /// A pass took so long, and the flight recorder is so now.
    pub(crate) fn passed(&self, pass_ns: u64, state: &RecorderState) {
        let wide = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let held_ns = state.to_ns.zip(state.from_ns).map(|(to, from)| to - from);
        self.pass_ns.record(pass_ns);
        self.operations_held.set_unsigned(state.held);
        (self.operations_overwritten).set_unsigned(state.overwritten);
        self.operations_dropped.set_unsigned(state.dropped);
        self.held_ns.set_unsigned(held_ns.unwrap_or(0));
        self.bytes.set_unsigned(wide(state.bytes));
        self.budget_bytes.set_unsigned(wide(state.budget_bytes));
    }
}
