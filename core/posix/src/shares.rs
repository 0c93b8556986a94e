//! Share reservations, as in NFS and SMB: how files are open, and what each open denies to others.
//!
//! # Mechanism
//! Each holder says how often it has a file open for reading and for writing, and what these opens
//! deny to others (`FileSystem::share`). A new open is refused if an existing one denies its
//! access, or if it denies the access of an existing one. Opens of mounts deny nothing, and can be
//! denied.
//!
//! The table is sharded by file, since every open and close of a mount uses it. It has the read
//! delegations of files as well ([`delegations`](crate::delegations)), which exclude opens for
//! writing.
//!
//! # Invariants
//! - No file is in the table that no holder has open or delegated.
//! - The reservations and the delegations of a holder end with the holder.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use tarn_host::lock::{Condvar, Mutex};
use tarn_host::wait_as_for_lock;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::units::ObjectId;
use tarn_probe::HolderId;

use crate::delegations::{Asked, Delegate, acting};
use crate::locks::LockOwner;
use crate::ranks;

/// The number of shards of the table. While a file of a shard is changed, no file of it is
/// delegated.
const PARTS: u64 = 64;

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

    /// Whether a file that a client has delegated for reading cannot be opened so by others.
    fn ends_delegations(self) -> bool {
        self.writes || self.denies_reading
    }
}

/// Why a file cannot be opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// An existing open denies it, or it denies an existing one.
    Busy,
    /// The file is delegated: these holders are to ask their clients to return it.
    Delegated(Asked),
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

/// How one file is open, and to which clients it is delegated.
#[derive(Default)]
struct Reserved {
    holders: Vec<(HolderId, Counts)>,
    delegates: Vec<Delegate>,
}

impl Reserved {
    fn is_nothing(&self) -> bool {
        self.holders.is_empty() && self.delegates.is_empty()
    }

    /// Notes that all delegations but that of this client are to be returned. Gives their holders;
    /// none where there are no others.
    fn recall(&mut self, itself: Option<LockOwner>) -> Option<Asked> {
        let mut asked = Asked::default();
        for delegate in &mut self.delegates {
            if Some(delegate.owner) != itself {
                delegate.is_recalled = true;
                asked.add(delegate.owner.holder);
            }
        }
        (!asked.is_empty()).then_some(asked)
    }
}

type Table = BTreeMap<ObjectId, Reserved>;

/// A shard. It has lines of the processor's cache to itself, as changes of files count in it.
#[repr(align(128))]
struct Part {
    table: Mutex<Table>,
    /// A delegation was returned.
    returned: Condvar,
    /// How many changes of its files are under way.
    changing: AtomicU32,
}

/// The share reservations and delegations of a file system.
pub(crate) struct Shares {
    parts: Vec<Part>,
    /// How many delegations there are, or are about to be.
    delegated: AtomicUsize,
}

/// A change of a file: it is delegated to no client that did not have it before.
#[must_use = "the file can be delegated when this is dropped"]
pub(crate) struct Changing<'a> {
    part: &'a Part,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.part.changing.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shares {
    /// Without reservations.
    pub fn new() -> Shares {
        let part = |_| Part {
            table: Mutex::new(ranks::SHARES, Table::new()),
            returned: Condvar::new(),
            changing: AtomicU32::new(0),
        };
        Shares {
            parts: (0..PARTS).map(part).collect(),
            delegated: AtomicUsize::new(0),
        }
    }

    fn part(&self, file: ObjectId) -> &Part {
        &self.parts[narrow(file.get() % PARTS)]
    }

    /// Ends the reservations and delegations of a holder.
    pub fn release_holder(&self, holder: HolderId) {
        for part in &self.parts {
            part.table.lock().retain(|_, reserved| {
                reserved.holders.retain(|(other, _)| *other != holder);
                let before = reserved.delegates.len();
                let others = |delegate: &Delegate| delegate.owner.holder != holder;
                reserved.delegates.retain(others);
                let gone = before - reserved.delegates.len();
                self.delegated.fetch_sub(gone, Ordering::SeqCst);
                !reserved.is_nothing()
            });
            part.returned.notify_all();
        }
    }
}

impl Shares {
    /// Adds a reservation for an open of a holder, which [`Shares::remove`] removes.
    ///
    /// # Errors
    /// An existing open denies it, or it denies an existing one; or the file is delegated.
    pub fn add(&self, file: ObjectId, holder: HolderId, share: Share) -> Result<(), Refused> {
        if share.is_nothing() {
            return Ok(());
        }
        let mut table = self.part(file).table.lock();
        let reserved = table.entry(file).or_default();
        let holders = &mut reserved.holders;
        if holders.iter().any(|(_, counts)| counts.refuses(share)) {
            return Err(Refused::Busy);
        }
        if share.ends_delegations()
            && let Some(asked) = reserved.recall(acting())
        {
            return Err(Refused::Delegated(asked));
        }
        let holders = &mut reserved.holders;
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
        let mut table = self.part(file).table.lock();
        let Some(reserved) = table.get_mut(&file) else {
            return;
        };
        assert!(!reserved.is_nothing(), "a file in the table is reserved");
        let holders = &mut reserved.holders;
        let Some(at) = holders.iter().position(|(other, _)| *other == holder) else {
            return;
        };
        for count in holders[at].1.each(share) {
            *count = count.saturating_sub(1);
        }
        if holders[at].1 == Counts::default() {
            holders.swap_remove(at);
        }
        if reserved.is_nothing() {
            table.remove(&file);
        }
    }
}

impl Shares {
    /// Delegates a file to a client for reading. False when it is open for writing, denied to
    /// readers or being changed, when another delegation of it is to be returned, or when the
    /// client has it already.
    pub fn delegate(&self, file: ObjectId, owner: LockOwner) -> bool {
        let part = self.part(file);
        // Before the look at changes: a change that is not seen here sees this.
        self.delegated.fetch_add(1, Ordering::SeqCst);
        let mut table = part.table.lock();
        let reserved = table.entry(file).or_default();
        let ends = |counts: &Counts| counts.writing > 0 || counts.denying_reading > 0;
        let is_open = reserved.holders.iter().any(|(_, counts)| ends(counts));
        let excludes = |other: &Delegate| other.is_recalled || other.owner == owner;
        let is_excluded = reserved.delegates.iter().any(excludes);
        if is_open || is_excluded || part.changing.load(Ordering::SeqCst) > 0 {
            if reserved.is_nothing() {
                table.remove(&file);
            }
            self.delegated.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        debug_assert!(
            reserved.delegates.iter().all(|other| !other.is_recalled),
            "what is asked for is given to no other"
        );
        reserved.delegates.push(Delegate {
            owner,
            is_recalled: false,
        });
        true
    }

    /// Ends the delegation of a file to a client, where it has one.
    pub fn undelegate(&self, file: ObjectId, owner: LockOwner) {
        let part = self.part(file);
        let mut table = part.table.lock();
        let Some(reserved) = table.get_mut(&file) else {
            return;
        };
        let before = reserved.delegates.len();
        reserved.delegates.retain(|other| other.owner != owner);
        let gone = before - reserved.delegates.len();
        debug_assert!(gone <= 1, "a client has one delegation of a file");
        self.delegated.fetch_sub(gone, Ordering::SeqCst);
        if reserved.is_nothing() {
            table.remove(&file);
        }
        part.returned.notify_all();
    }

    /// Begins a change of a file, by this client or by none. It waits for nothing.
    ///
    /// # Errors
    /// The file is delegated to other clients.
    pub fn begin_change(
        &self,
        file: ObjectId,
        itself: Option<LockOwner>,
    ) -> Result<Changing<'_>, Asked> {
        let part = self.part(file);
        part.changing.fetch_add(1, Ordering::SeqCst);
        let changing = Changing { part };
        if self.delegated.load(Ordering::SeqCst) == 0 {
            return Ok(changing);
        }
        let mut table = part.table.lock();
        let reserved = table.get_mut(&file);
        match reserved.and_then(|reserved| reserved.recall(itself)) {
            None => Ok(changing),
            Some(asked) => Err(asked),
        }
    }

    /// Waits until a file is delegated to no clients but this one.
    pub fn wait_until_returned(&self, file: ObjectId, itself: Option<LockOwner>) {
        let part = self.part(file);
        let mut table = part.table.lock();
        wait_as_for_lock(|| {
            part.returned.wait_while(&mut table, |table| {
                let reserved = table.get_mut(&file);
                let asked = reserved.and_then(|reserved| reserved.recall(itself));
                asked.is_some()
            });
        });
    }
}
