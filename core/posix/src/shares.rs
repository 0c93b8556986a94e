//! Share reservations, as in NFS and SMB: how files are open, and what each open denies to others.
//!
//! # Mechanism
//! Each holder says how often it has a file open for reading and for writing, and what these opens
//! deny to others (`FileSystem::share`). A new open is refused if an existing one denies its
//! access, or if it denies the access of an existing one. Opens of mounts deny nothing, and can be
//! denied.
//!
//! The table is sharded by file, since every open and close of a mount uses it.
//!
//! # Invariants
//! - No file is in the table that no holder has open.
//! - The reservations of a holder end with the holder.

use std::collections::BTreeMap;

use tarn_host::lock::Mutex;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::units::ObjectId;
use tarn_probe::HolderId;

use crate::error::PosixError;
use crate::ranks;

/// The number of shards of the table.
const PARTS: u64 = 16;

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// For reading.
    pub reads: bool,
    /// For writing.
    pub writes: bool,
    /// No other open may be for reading.
    pub denies_reading: bool,
    /// No other open may be for writing.
    pub denies_writing: bool,
}

impl Share {
    fn is_nothing(self) -> bool {
        self == Share::default()
    }
}

/// How often a holder has a file open, by kind of access and denial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    reading: u32,
    writing: u32,
    denying_reading: u32,
    denying_writing: u32,
}

impl Counts {
    fn refuses(self, share: Share) -> bool {
        (share.reads && self.denying_reading > 0)
            || (share.writes && self.denying_writing > 0)
            || (share.denies_reading && self.reading > 0)
            || (share.denies_writing && self.writing > 0)
    }

    fn each(&mut self, share: Share) -> impl Iterator<Item = &mut u32> {
        let counts = [
            (share.reads, &mut self.reading),
            (share.writes, &mut self.writing),
            (share.denies_reading, &mut self.denying_reading),
            (share.denies_writing, &mut self.denying_writing),
        ];
        counts
            .into_iter()
            .filter_map(|(is_meant, count)| is_meant.then_some(count))
    }
}

type Part = BTreeMap<ObjectId, Vec<(HolderId, Counts)>>;

/// The share reservations of a file system.
pub(crate) struct Shares {
    parts: Vec<Mutex<Part>>,
}

impl Shares {
    /// Without reservations.
    pub fn new() -> Shares {
        let part = |_| Mutex::new(ranks::SHARES, Part::new());
        Shares {
            parts: (0..PARTS).map(part).collect(),
        }
    }

    fn part(&self, file: ObjectId) -> &Mutex<Part> {
        &self.parts[narrow(file.get() % PARTS)]
    }

    /// Ends the reservations of a holder.
    pub fn release_holder(&self, holder: HolderId) {
        for part in &self.parts {
            part.lock().retain(|_, holders| {
                holders.retain(|(other, _)| *other != holder);
                !holders.is_empty()
            });
        }
    }
}

impl Shares {
    /// Adds a reservation for an open of a holder, which [`Shares::remove`] removes.
    ///
    /// # Errors
    /// `Busy` when an existing open denies it, or it denies an existing one.
    pub fn add(&self, file: ObjectId, holder: HolderId, share: Share) -> Result<(), PosixError> {
        if share.is_nothing() {
            return Ok(());
        }
        let mut part = self.part(file).lock();
        let holders = part.entry(file).or_default();
        if holders.iter().any(|(_, counts)| counts.refuses(share)) {
            return Err(PosixError::Busy);
        }
        let at = match holders.iter().position(|(other, _)| *other == holder) {
            Some(at) => at,
            None => {
                holders.push((holder, Counts::default()));
                holders.len() - 1
            }
        };
        holders[at].1.each(share).for_each(|count| *count += 1);
        debug_assert!(
            holders[at].1 != Counts::default(),
            "a holder in the table shares something"
        );
        Ok(())
    }

    /// Removes a reservation, or a part of it, when a holder closes a file or reduces its access.
    /// Parts that the holder does not have are ignored.
    pub fn remove(&self, file: ObjectId, holder: HolderId, share: Share) {
        if share.is_nothing() {
            return;
        }
        let mut part = self.part(file).lock();
        let Some(holders) = part.get_mut(&file) else {
            return;
        };
        assert!(!holders.is_empty(), "a file in the table is shared");
        let Some(at) = holders.iter().position(|(other, _)| *other == holder) else {
            return;
        };
        for count in holders[at].1.each(share) {
            *count = count.saturating_sub(1);
        }
        if holders[at].1 == Counts::default() {
            holders.swap_remove(at);
        }
        if holders.is_empty() {
            part.remove(&file);
        }
    }
}
