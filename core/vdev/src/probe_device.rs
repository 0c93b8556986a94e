//! Probes: after an error, whether a device can be read and written at all.
//!
//! # Problem
//! A request may fail because of one bad sector, or because the whole device is broken. Ten errors
//! at ten places take a device out of use, which may take long where little is asked of it.
//!
//! # Mechanism
//! A probe reads the boot environments of the last three labels and writes back what it has read,
//! as OpenZFS does: places where nothing else is written. The device passes when one of the reads,
//! and one of the writes, succeeds. Requests of a probe count as no errors.
//!
//! A write that failed is followed by a probe in the writing thread, before the device is taken out
//! of use. After reads that failed a layer above probes, in a thread of its own.

use crate::health::{Standing, VdevState};
use crate::leaf::{Leaf, Window};
use crate::reports::ReportKind;
use crate::tree::VdevTree;
use tarn_host::{Batch, DeviceError, Request};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::label::{
    BOOT_ENVIRONMENT_BYTES, BOOT_ENVIRONMENT_OFFSET, LABEL_COUNT, label_offset,
};
use tarn_ondisk::units::Guid;

/// The result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// The device can be read, and written where the pool may be written.
    Passed,
    /// It cannot. It was reported.
    Failed,
    /// The device has vanished.
    Gone,
    /// The device is not in use, or may not be asked.
    NotAsked,
}

impl VdevTree {
    /// Probes a device, and takes it out of use where it has vanished and the other devices of its
    /// vdev have all its blocks.
    #[doc(alias = "vdev_probe")]
    pub fn probe(&self, guid: Guid) -> Probe {
        let top = self.top_of(guid).and_then(|top| self.top(top));
        let (Some(top), Some(leaf)) = (top, self.leaf(guid)) else {
            return Probe::NotAsked;
        };
        let probe = leaf.probe();
        if probe == Probe::Gone {
            let state = VdevState::Removed;
            let removed = Standing {
                state,
                reason: None,
            };
            self.retire(&top, &leaf, removed);
        }
        probe
    }
}

impl Leaf {
    /// Probes the device, and reports a failure.
    pub(crate) fn probe(&self) -> Probe {
        let Some(window) = self.window() else {
            return Probe::NotAsked;
        };
        // After a failed flush nothing more is written to the device.
        if window.device().is_retired() {
            return Probe::NotAsked;
        }
        let before = self.standing().state;
        let probe = probe_window(&window);
        if probe == Probe::Failed {
            self.report(ReportKind::ProbeFailure { before });
        }
        probe
    }
}

fn probe_window(window: &Window) -> Probe {
    let labels = (1..LABEL_COUNT).filter_map(|label| label_offset(window.size_bytes(), label));
    let offsets: Vec<u64> = labels
        .map(|label| window.device_offset(label + BOOT_ENVIRONMENT_OFFSET))
        .collect();
    let reads = offsets.iter();
    let reads = reads.map(|offset| Request::read(*offset, narrow(BOOT_ENVIRONMENT_BYTES)));
    let read = outcomes(window.device().submit(reads.collect()));
    let mut errors = Vec::new();
    let mut writes = Vec::new();
    for (offset, outcome) in offsets.iter().zip(read) {
        match outcome {
            Ok(Some(bytes)) => writes.push(Request::write(*offset, bytes)),
            Ok(None) => unreachable!("a read gives its buffer back"),
            Err(error) => errors.push(error),
        }
    }
    assert_eq!(
        writes.len() + errors.len(),
        offsets.len(),
        "each read of a probe has one outcome"
    );
    if writes.is_empty() {
        return failed(&errors);
    }
    if !window.info().mode.may_write() {
        return Probe::Passed;
    }
    let written = outcomes(window.device().submit(writes));
    if written.iter().any(Result::is_ok) {
        return Probe::Passed;
    }
    errors.extend(written.into_iter().filter_map(Result::err));
    failed(&errors)
}

type Outcome = Result<Option<tarn_host::Buffer>, DeviceError>;

fn outcomes(batch: Batch) -> Vec<Outcome> {
    let completions = batch.wait().into_iter();
    completions.map(|completion| completion.result).collect()
}

fn failed(errors: &[DeviceError]) -> Probe {
    let is_refused = |error: &DeviceError| {
        matches!(
            error,
            DeviceError::LeaseExpired { .. }
                | DeviceError::GivenUp { .. }
                | DeviceError::Retired { .. }
        )
    };
    debug_assert!(!errors.is_empty(), "a probe fails by errors");
    match errors {
        _ if errors.iter().any(is_refused) => Probe::NotAsked,
        _ if errors.iter().any(DeviceError::is_gone) => Probe::Gone,
        _ => Probe::Failed,
    }
}
