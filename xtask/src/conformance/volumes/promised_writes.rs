//! Writes of clients, and what they were promised of them.
//!
//! # Mechanism
//! A writer has blocks of its own in a volume, and writes numbers into them, each higher than the
//! one before. By its [`Promise`] it learns when a write is durable: when it is acknowledged, or
//! when a later flush is. After a crash each word of a block must have the number that was promised
//! last, or that of a later write.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarn_workload::twister::Twister;

use super::scsi_initiator::Initiator;
use crate::conformance::nbd_client::{BLOCK_BYTES, NbdClient};
use crate::workspace::Outcome;

/// Most writes between two flushes.
const UNFLUSHED_MAX: u32 = 8;

/// By which words of a protocol a write is promised to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// NBD: each write has FUA.
    NbdForced,
    /// NBD: a flush after some writes.
    NbdFlush,
    /// iSCSI, write cache on: each write has FUA.
    ScsiForced,
    /// iSCSI, write cache on: SYNCHRONIZE CACHE after some writes.
    ScsiFlush,
    /// iSCSI, write cache off.
    ScsiUncached,
}

impl Promise {
    /// All there are.
    pub const ALL: [Promise; 5] = [
        Promise::NbdForced,
        Promise::ScsiUncached,
        Promise::NbdFlush,
        Promise::ScsiForced,
        Promise::ScsiFlush,
    ];

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Promise::NbdForced => "NBD with FUA",
            Promise::NbdFlush => "NBD with flushes",
            Promise::ScsiForced => "iSCSI with FUA",
            Promise::ScsiFlush => "iSCSI with SYNCHRONIZE CACHE",
            Promise::ScsiUncached => "iSCSI without write cache",
        }
    }

    fn is_by_nbd(self) -> bool {
        matches!(self, Promise::NbdForced | Promise::NbdFlush)
    }

    fn is_by_flush(self) -> bool {
        matches!(self, Promise::NbdFlush | Promise::ScsiFlush)
    }
}

/// Where a volume is served.
#[derive(Debug, Clone)]
pub struct Address<'a> {
    /// The socket of NBD.
    pub socket: &'a Path,
    /// The portal of iSCSI.
    pub portal: &'a str,
    /// The volume.
    pub volume: &'a str,
    /// Its iSCSI target.
    pub target: &'a str,
}

/// A client of either protocol.
pub enum Client {
    /// Of NBD.
    Nbd(NbdClient),
    /// Of iSCSI.
    Scsi(Initiator),
}

impl Client {
    /// Connects to a volume as a promise needs it.
    pub fn connect(address: &Address<'_>, promise: Promise, name: &str) -> Outcome<Client> {
        if promise.is_by_nbd() {
            let client = NbdClient::connect(address.socket, address.volume)?;
            return Ok(Client::Nbd(client));
        }
        let mut initiator = Initiator::log_in(address.portal, address.target, name)?;
        initiator.set_write_cache(promise != Promise::ScsiUncached)?;
        Ok(Client::Scsi(initiator))
    }

    fn write(&mut self, block: u64, bytes: &[u8], is_forced: bool) -> Outcome {
        match self {
            Client::Nbd(client) if is_forced => client.write_durably(block, bytes),
            Client::Nbd(client) => client.write(block, bytes),
            Client::Scsi(initiator) => {
                initiator.write(block * u64::from(BLOCK_BYTES), bytes, is_forced)
            }
        }
    }

    fn flush(&mut self) -> Outcome {
        match self {
            Client::Nbd(client) => client.flush(),
            Client::Scsi(initiator) => initiator.flush(),
        }
    }

    fn read(&mut self, block: u64) -> Outcome<Vec<u8>> {
        match self {
            Client::Nbd(client) => client.read(block),
            Client::Scsi(initiator) => {
                let length = usize::try_from(BLOCK_BYTES)?;
                initiator.read(block * u64::from(BLOCK_BYTES), length)
            }
        }
    }
}

/// The numbers of the writes to each block.
#[derive(Default)]
pub struct Written {
    last: u32,
    /// By block: the last one promised, and the last one sent.
    blocks: BTreeMap<u64, (u32, u32)>,
}

/// A writer's account, which outlives the connection.
#[derive(Clone, Default)]
pub struct Account(Arc<Mutex<Written>>);

impl Account {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes numbers until something fails.
    pub fn write_on(
        &self,
        client: &mut Client,
        promise: Promise,
        blocks: Range<u64>,
        chance: &mut Twister,
    ) -> Outcome {
        let mut unflushed = Vec::new();
        loop {
            let block = blocks.start + chance.below_wide(blocks.end - blocks.start);
            let number = {
                let mut written = self.written();
                written.last += 1;
                let number = written.last;
                written.blocks.entry(block).or_default().1 = number;
                number
            };
            let words = usize::try_from(BLOCK_BYTES / 4)?;
            let bytes = number.to_be_bytes().repeat(words);
            let is_forced = matches!(promise, Promise::NbdForced | Promise::ScsiForced);
            client.write(block, &bytes, is_forced)?;
            unflushed.push((block, number));
            if promise.is_by_flush() {
                if chance.below(UNFLUSHED_MAX) != 0 {
                    continue;
                }
                client.flush()?;
            }
            let mut written = self.written();
            for (block, number) in unflushed.drain(..) {
                written.blocks.entry(block).or_default().0 = number;
            }
        }
    }

    /// Each word of each block has what was promised last, or a later write. Gives how many blocks
    /// were promised.
    pub fn check(&self, client: &mut Client) -> Outcome<usize> {
        let written = self.written();
        let mut promised_count = 0;
        // What a block had before its first promise is of an earlier round.
        let promised = written.blocks.iter().filter(|(_, (last, _))| *last != 0);
        for (block, (promised, sent)) in promised {
            let found = client.read(*block)?;
            for (at, word) in found.chunks_exact(4).enumerate() {
                let number = u32::from_be_bytes(word.try_into()?);
                if !(*promised..=*sent).contains(&number) {
                    return Err(format!(
                        "word {at} of block {block} has write {number}: {promised} was promised, \
                         {sent} sent last"
                    )
                    .into());
                }
            }
            promised_count += 1;
        }
        Ok(promised_count)
    }
}
