//! Heartbeats: uberblocks that show other hosts that this one uses the pool.
//!
//! # Mechanism
//! A pool with `multihost` keeps the last slot of each uberblock ring for heartbeats: the newest
//! stored uberblock with another time or sequence number. A heartbeat goes to one label of every
//! device in use, past the device's queue, and is not flushed: another host reads what the device
//! has. A *claim*, by which a host takes a pool over, goes to all labels.
//!
//! # Invariants
//! - A heartbeat changes nothing but the last slots: a txg whose uberblock lies beside it stays.

use crate::VdevWriteError;
use crate::labels::seal;
use crate::suspension::Verdict;
use crate::tree::VdevTree;
use std::ops::Range;
use tarn_host::Batch;
use tarn_host::buffer::Buffer;
use tarn_host::device::{Device, Request, WriteData};
use tarn_ondisk::label::{LABEL_COUNT, Ring, label_offset};
use tarn_ondisk::uberblock::Uberblock;

impl VdevTree {
    /// Writes a heartbeat into one label, whose number is below four, of every device in use. True
    /// if a device of each top-level vdev with data has it.
    #[doc(alias = "mmp_write_uberblock")]
    pub fn write_heartbeat(&self, uberblock: &Uberblock, label: u64) -> bool {
        assert!(label < LABEL_COUNT, "a device has four labels");
        let submit = |device: &dyn Device, requests| device.submit(requests);
        self.write_last_slots(uberblock, label..label + 1, submit)
    }

    /// Writes a claim into all labels of every device in use. True if a device of each top-level
    /// vdev with data has it. It is written without a lease.
    pub fn write_claim(&self, uberblock: &Uberblock) -> bool {
        let submit = |device: &dyn Device, requests| device.submit_without_lease(requests);
        self.write_last_slots(uberblock, 0..LABEL_COUNT, submit)
    }

    fn write_last_slots(
        &self,
        uberblock: &Uberblock,
        labels: Range<u64>,
        submit: impl Fn(&dyn Device, Vec<Request>) -> Batch,
    ) -> bool {
        let tops = self.tops().into_iter();
        let tops: Vec<_> = tops.filter(|top| top.holds_data() && !top.is_log).collect();
        let mut under_way = Vec::new();
        for top in &tops {
            let ring = Ring::new(top.ashift);
            for leaf in &top.leaves {
                let Some(window) = leaf.window() else {
                    continue;
                };
                let request = |label| {
                    let start = label_offset(window.size_bytes(), label)?;
                    let slot = ring.slot_count() - 1;
                    assert!(
                        slot != ring.slot_of_multihost(uberblock.txg),
                        "no txg has the slot of heartbeats"
                    );
                    let offset = start + ring.slot_offset(slot);
                    let mut bytes = uberblock.to_slot(ring.slot_bytes());
                    seal(&mut bytes, offset);
                    let data = WriteData::from(Buffer::from_slice(&bytes));
                    Some(Request::write(window.device_offset(offset), data))
                };
                let requests: Vec<Request> = labels.clone().filter_map(request).collect();
                under_way.push((top.id, leaf, submit(&**window.device(), requests)));
            }
        }
        let mut written = Vec::new();
        for (top, leaf, batch) in under_way {
            let done = batch.wait();
            let expired = done.iter().filter_map(|done| done.result.as_ref().err());
            let expired = expired.map(|error| leaf.device_failure(error.clone()));
            match done.iter().all(|done| done.result.is_ok()) {
                true => written.push(top),
                false if expired.clone().all(|failure| failure.is_lease_expired()) => {}
                false => leaf.errors.count_write(),
            }
            leaf.set_unflushed(true);
        }
        !tops.is_empty() && tops.iter().all(|top| written.contains(&top.id))
    }

    /// Suspends the pool since its lease has expired, and waits until it is resumed. False if it
    /// was given up instead.
    pub fn wait_without_lease(&self) -> bool {
        self.suspension.wait(&VdevWriteError::LeaseExpired) == Verdict::Again
    }
}
