//! Write leases: until when this host may write devices that other hosts may take over.
//!
//! # Problem
//! A host that stops for a while (a paused virtual machine, a thread that gets no processor) does
//! not know that another host has imported its pool meanwhile. Its next write would damage the
//! pool.
//!
//! # Mechanism
//! Devices that a [`Host`](crate::Host) with a lease opens are wrapped: each batch that changes
//! anything is handed to the device only while the lease is valid. Otherwise its requests fail with
//! [`DeviceError::LeaseExpired`](crate::DeviceError::LeaseExpired), and nothing is written. The
//! time is that of [`lease_clock_ns`], which goes on while the machine sleeps.
//!
//! # Invariants
//! - A lease that has expired once stays expired until [`WriteLease::begin`]: the caller of that
//!   has made sure that no other host uses the devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock::lease_clock_ns;

/// The end of a lease without end.
const NEVER_NS: u64 = u64::MAX;

/// Until when a host may write.
#[derive(Debug)]
pub struct WriteLease {
    until_ns: AtomicU64,
    has_expired: AtomicBool,
}

impl Default for WriteLease {
    fn default() -> WriteLease {
        WriteLease {
            until_ns: AtomicU64::new(NEVER_NS),
            has_expired: AtomicBool::new(false),
        }
    }
}

impl WriteLease {
    /// A lease without end.
    pub fn new() -> Arc<WriteLease> {
        Arc::default()
    }

    /// Begins a lease that ends at this time of [`lease_clock_ns`], whether or not the one before
    /// has expired.
    pub fn begin(&self, until_ns: u64) {
        assert!(until_ns < NEVER_NS, "a lease that begins has an end");
        self.until_ns.store(until_ns, Ordering::SeqCst);
        self.has_expired.store(false, Ordering::SeqCst);
    }

    /// Extends the lease. False, and it stays as it is, if it has expired.
    pub fn extend(&self, until_ns: u64) -> bool {
        if !self.is_valid() {
            return false;
        }
        self.until_ns.fetch_max(until_ns, Ordering::SeqCst);
        // It may have expired in between, and requests have failed by that.
        !self.has_expired.load(Ordering::SeqCst)
    }

    /// Has the lease end no later than at this time.
    pub fn shorten(&self, until_ns: u64) {
        self.until_ns.fetch_min(until_ns, Ordering::SeqCst);
    }

    /// Ends the limit: devices may be written for ever.
    pub fn lift(&self) {
        self.until_ns.store(NEVER_NS, Ordering::SeqCst);
        self.has_expired.store(false, Ordering::SeqCst);
    }

    /// Whether devices may be written now. A lease that is not valid has expired for good.
    pub fn is_valid(&self) -> bool {
        let until_ns = self.until_ns.load(Ordering::SeqCst);
        if until_ns == NEVER_NS {
            return true;
        }
        if lease_clock_ns() >= until_ns {
            self.has_expired.store(true, Ordering::SeqCst);
        }
        !self.has_expired.load(Ordering::SeqCst)
    }

    /// Whether the lease has an end.
    pub fn is_limited(&self) -> bool {
        self.until_ns.load(Ordering::SeqCst) != NEVER_NS
    }

    /// Whether it has expired, and requests may have failed by that.
    pub fn has_expired(&self) -> bool {
        !self.is_valid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::device::{OpenMode, Request, WriteData};
    use crate::error::DeviceError;
    use crate::sim::{SimHost, SimOptions};
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn a_lease_that_has_expired_stays_so_until_another_begins() {
        let machine = SimHost::new(SimOptions::seed(1));
        machine.add_disk("/d", 1 << 20);
        let outcome = machine.run(|host| {
            let lease = WriteLease::new();
            let host = host.with_lease(lease.clone());
            let device = host
                .open_device(Path::new("/d"), OpenMode::ReadWriteExclusive)
                .unwrap();
            let write = || device.write_at(0, WriteData::from(Buffer::zeroed(512)));
            assert!(write().is_ok() && !lease.is_limited());
            lease.begin(lease_clock_ns() + 1_000_000_000);
            assert!(write().is_ok());
            assert!(lease.extend(lease_clock_ns() + 2_000_000_000));
            host.sleep(Duration::from_millis(2_001));
            assert!(matches!(write(), Err(DeviceError::LeaseExpired { .. })));
            assert!(matches!(
                device.flush(),
                Err(DeviceError::LeaseExpired { .. })
            ));
            assert!(device.read_at(0, 512).is_ok(), "reading harms nothing");
            assert!(!lease.extend(lease_clock_ns() + 1_000_000_000));
            let refused = device.submit(vec![Request::read(0, 512), Request::Flush]);
            assert!(refused.wait().iter().all(|done| done.result.is_err()));
            lease.begin(lease_clock_ns() + 1_000_000_000);
            assert!(write().is_ok() && device.flush().is_ok());
            lease.lift();
            host.sleep(Duration::from_secs(100));
            assert!(write().is_ok());
        });
        outcome.unwrap();
    }

    #[test]
    fn a_paused_host_finds_its_lease_expired_when_it_goes_on() {
        let machine = SimHost::new(SimOptions::seed(1));
        machine.add_disk("/d", 1 << 20);
        let outcome = machine.run(|first| {
            let second = machine.second_host("other", 2).host();
            let lease = WriteLease::new();
            let leased = second.with_lease(lease.clone());
            let device = leased
                .open_device(Path::new("/d"), OpenMode::ReadWriteExclusive)
                .unwrap();
            let open = |host: &crate::Host| {
                host.open_device(Path::new("/d"), OpenMode::ReadWriteExclusive)
            };
            assert!(open(first).is_ok(), "exclusive means: on one host");
            assert!(open(&second).is_err());
            lease.begin(lease_clock_ns() + 1_000_000_000);
            second
                .simulation()
                .unwrap()
                .pause_host(Duration::from_secs(5));
            let began_ns = first.monotonic_ns();
            assert!(device.flush().is_err());
            assert!(first.monotonic_ns() - began_ns >= 5_000_000_000);
        });
        outcome.unwrap();
    }
}
