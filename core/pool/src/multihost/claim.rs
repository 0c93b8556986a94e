//! Claiming a pool that was watched: of several hosts that do it at the same time, one succeeds at
//! most.
//!
//! # Mechanism
//! A claim is a heartbeat that no other host can have written: its interval has random nanoseconds
//! below a millisecond, beside a random sequence number. The host looks once more that the newest
//! uberblock is the one that it has watched, writes its claim into all labels, and waits for half a
//! lease. If its claim is then still the newest uberblock, it has the pool, and its lease counts
//! from before the claim was written.
//!
//! # Why at most one succeeds
//! Let two hosts claim, and the claim of the second be complete after that of the first. The second
//! looked before it wrote. If it looked before the first's claim was written, its own claim was
//! written no more than half a lease later, or it gives up; so the first, which waits for as long
//! after its claim, finds the second's and gives up. If it looked later, it found the first's claim
//! and gives up. A claim that is written too late changes nothing that is stored: a heartbeat of
//! the host that has the pool follows.

use super::settings::Settings;
use std::time::Duration;
use tarn_host::{Host, lease_clock_ns};
use tarn_ondisk::uberblock::Uberblock;
use tarn_vdev::VdevTree;

/// Nanoseconds below a millisecond, which no reader counts.
const NONCE_NS: u64 = 1_000_000;

/// Claims a pool whose newest uberblock was this when it was watched. Gives the claim; from now on
/// devices are written only while the lease is valid, which has begun. None if another host has
/// written, devices cannot be written, or that took too long.
pub(crate) fn claim(
    host: &Host,
    vdevs: &VdevTree,
    settings: Settings,
    watched: &Uberblock,
) -> Option<Uberblock> {
    let looked_ns = lease_clock_ns();
    if vdevs.newest_uberblock() != Some(*watched) {
        return None;
    }
    let random = host.random_u64();
    let mut claim = *watched;
    let now_s = u64::try_from(host.unix_time().seconds).unwrap_or(0);
    claim.timestamp_s = now_s.max(watched.timestamp_s + 1);
    let sequence = (random >> 32) & 0xffff;
    let delay_ns = settings.interval_ns() + random % NONCE_NS;
    claim.set_multihost(delay_ns, settings.to_multihost(sequence));
    assert!(
        claim.compare(watched).is_gt() && claim.root == watched.root,
        "a claim is newer than what it was made of, and leads to the same"
    );
    let began_ns = lease_clock_ns();
    let is_written = vdevs.write_claim(&claim);
    let lease_ns = settings.lease_ns();
    if !is_written || lease_clock_ns() - looked_ns > lease_ns / 2 {
        return None;
    }
    host.sleep(Duration::from_nanos(lease_ns / 2));
    if vdevs.newest_uberblock() != Some(claim) {
        return None;
    }
    vdevs.lease().begin(began_ns + lease_ns);
    Some(claim)
}
