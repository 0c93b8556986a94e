//! ZAPs: names to values, in an object.
//!
//! # Mechanism
//! `ondisk::zap` knows the bytes of each block; this module finds the block, keeps some state in
//! memory ([`state`]), and converts a micro ZAP into a fat one when it must. A [`Zap`] is a handle:
//! any number may be open on one object, from any thread.
//!
//! Some directories treat names as equal that differ in case or in their Unicode form. Such a ZAP
//! hashes the normalised name and stores the name as given; its opener gives the function that
//! normalises. Only a *lookup* accepts an equal name. Inserting, updating and removing match the
//! exact name, as in OpenZFS: equal names can be in one ZAP, as those of `fs@x` and `fs@X` are, and
//! a caller that wants only one of them looks it up before it inserts.
//!
//! # Invariants
//! - After each call, and so in each txg, the blocks are a ZAP that OpenZFS reads.
//! - A walk with a cursor gives each name that exists all the time exactly once, whatever else
//!   changes.
//!
//! # Knows nothing about
//! The meaning of names.

mod blocks;
mod fat;
mod micro;
mod object;
mod state;
#[cfg(test)]
mod tests;

pub use blocks::ZapBlocks;
pub use object::{ObjectBlocks, ObjectZap};
pub use state::ZapState;
pub use tarn_ondisk::zap::{Cursor, Name, OwnedName, ZapFlags, ZapValue};

use state::{FatState, Kind, MicroIndex, Rules};
use std::sync::Arc;
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::zap::leaf::chunks_of;
use tarn_ondisk::zap::{BlockKind, ZapHash};
use thiserror::Error;

/// Brings a name into the form in which it is hashed and compared.
pub type Normalize = Arc<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// Why an operation on a ZAP failed.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ZapError {
    /// The name is there already.
    #[error("the name exists already")]
    Exists,
    /// The name is not there.
    #[error("the name does not exist")]
    NotFound,
    /// The ZAP cannot hold such a name: empty, too long, or with a zero in it.
    #[error("a ZAP cannot hold this name")]
    BadName,
    /// The ZAP cannot hold such a value.
    #[error("the value has {bytes} bytes, more than a ZAP can hold")]
    ValueTooLarge {
        /// Size of the value.
        bytes: usize,
    },
    /// Its pointer table has all the bits it may have.
    #[error("the ZAP is full")]
    Full,
    /// It normalises names, and was opened without a function for that.
    #[error("the ZAP normalises names (form {form:#x}), which is not expected of it")]
    Normalized {
        /// The form, as stored.
        form: u64,
    },
    /// A block is malformed.
    #[error("block {block} of the ZAP is damaged: {cause}")]
    Corrupt {
        /// The block.
        block: u64,
        /// What is wrong.
        cause: Corrupt,
    },
    /// A block could not be read or changed.
    #[error("block {block} of the ZAP: {cause}")]
    Block {
        /// The block.
        block: u64,
        /// Why.
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },
}

/// One entry, as walks give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZapEntry {
    /// The name as it was given.
    pub name: OwnedName,
    /// Its value.
    pub value: ZapValue,
    /// Where a walk goes on after it.
    pub next: Cursor,
}

/// A ZAP.
pub struct Zap<B: ZapBlocks> {
    blocks: B,
    normalize: Option<Normalize>,
    compare: Option<Normalize>,
    micro_bytes_max: usize,
}

/// A new ZAP.
#[derive(Debug, Clone, Copy)]
pub enum NewZap {
    /// A micro ZAP, which becomes fat when it must. The object has one block, of 512 bytes or a
    /// multiple.
    Micro {
        /// The salt of hashes; any number but zero.
        salt: u64,
        /// How names are normalised.
        normalization: u64,
    },
    /// A fat ZAP from the start. The object's blocks have at least 1 KiB.
    Fat {
        /// The salt of hashes; any number but zero.
        salt: u64,
        /// How names are normalised.
        normalization: u64,
        /// How names are treated.
        flags: ZapFlags,
    },
}

impl<B: ZapBlocks> Zap<B> {
    /// Makes an empty ZAP in an object that was just allocated.
    ///
    /// # Errors
    /// When a block cannot be changed, or is too large for a micro ZAP.
    pub fn create(blocks: B, tx: &B::Tx, new: NewZap) -> Result<Self, ZapError> {
        let kind = match new {
            NewZap::Micro {
                salt,
                normalization,
            } => micro::create(&blocks, tx, salt, normalization)?,
            NewZap::Fat {
                salt,
                normalization,
                flags,
            } => fat::create(
                &blocks,
                tx,
                Rules {
                    salt,
                    normalization,
                    flags,
                },
            )?,
        };
        *blocks.state().kind.write() = Some(kind);
        Ok(Zap::open(blocks))
    }

    /// The ZAP in an object. Nothing is read yet.
    pub fn open(blocks: B) -> Self {
        let micro_bytes_max = tarn_ondisk::zap::micro::BLOCK_BYTES_MAX;
        Zap {
            blocks,
            normalize: None,
            compare: None,
            micro_bytes_max,
        }
    }

    /// Adds a function for comparison: names that are hashed alike are equal only if they are alike
    /// in its form, too.
    pub fn with_normalize(mut self, normalize: Normalize) -> Self {
        self.normalize = Some(normalize);
        self
    }

    /// The same, where names that are hashed alike are equal only if they are alike in this form,
    /// too.
    #[doc(alias = "MT_MATCH_CASE")]
    pub fn with_comparison(mut self, compare: Normalize) -> Self {
        self.compare = Some(compare);
        self
    }

    /// The same, where micro ZAPs may grow to this size (feature `large_microzap`).
    pub fn with_micro_bytes_max(mut self, bytes: usize) -> Self {
        self.micro_bytes_max = bytes;
        self
    }

    /// The blocks it is in.
    pub fn blocks(&self) -> &B {
        &self.blocks
    }

    /// The value of a name.
    ///
    /// # Errors
    /// When a block cannot be read, or makes no sense.
    pub fn lookup<'n>(&self, name: impl Into<Name<'n>>) -> Result<Option<ZapValue>, ZapError> {
        Ok(self.find(name)?.map(|entry| entry.value))
    }

    /// The value of a name, where it is one word.
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn lookup_word<'n>(&self, name: impl Into<Name<'n>>) -> Result<Option<u64>, ZapError> {
        Ok(self.lookup(name)?.and_then(|value| value.as_word()))
    }

    /// The entry of a name: with the name as it is stored, which can differ from the one asked in a
    /// ZAP that normalises. There, an exact match comes first.
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn find<'n>(&self, name: impl Into<Name<'n>>) -> Result<Option<ZapEntry>, ZapError> {
        let name = name.into();
        self.with_kind(|kind| {
            let wanted = self.wanted(name, kind.rules())?.or_equal(self);
            match kind {
                Kind::Micro(index) => micro::find(&self.blocks, index, &wanted),
                Kind::Fat(fat) => fat::find(&self.blocks, fat, &wanted),
            }
        })
    }

    /// How many entries there are.
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn count(&self) -> Result<u64, ZapError> {
        self.with_kind(|kind| {
            Ok(match kind {
                Kind::Micro(index) => u64::try_from(index.slots.len()).unwrap_or(u64::MAX),
                Kind::Fat(fat) => fat.header.entry_count,
            })
        })
    }

    /// The flags by which cursors are turned into cookies and back.
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn flags(&self) -> Result<ZapFlags, ZapError> {
        self.with_kind(|kind| Ok(kind.rules().flags))
    }

    /// Up to `count_max` entries from a cursor on; none at the end.
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn entries_from(
        &self,
        cursor: Cursor,
        count_max: usize,
    ) -> Result<Vec<ZapEntry>, ZapError> {
        self.with_kind(|kind| match kind {
            Kind::Micro(index) => micro::entries_from(&self.blocks, index, cursor, count_max),
            Kind::Fat(fat) => fat::entries_from(&self.blocks, fat, cursor, count_max),
        })
    }

    /// All entries, for ZAPs that are known to be small or must be held in memory anyway.
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn entries(&self) -> Result<Vec<ZapEntry>, ZapError> {
        const BATCH: usize = 1024;
        let mut all = Vec::new();
        let mut cursor = Cursor::START;
        loop {
            let batch = self.entries_from(cursor, BATCH)?;
            let Some(last) = batch.last() else {
                return Ok(all);
            };
            cursor = last.next;
            all.extend(batch);
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Exists` when this very name is there; also as [`Zap::lookup`].
    pub fn insert<'n>(
        &self,
        tx: &B::Tx,
        name: impl Into<Name<'n>>,
        value: &ZapValue,
    ) -> Result<(), ZapError> {
        self.put(tx, name.into(), value, Present::Refuse)
    }

    /// Adds an entry, or changes the value of the one with this very name.
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn update<'n>(
        &self,
        tx: &B::Tx,
        name: impl Into<Name<'n>>,
        value: &ZapValue,
    ) -> Result<(), ZapError> {
        self.put(tx, name.into(), value, Present::Replace)
    }

    /// Removes the entry with this very name.
    ///
    /// # Errors
    /// `NotFound` when it is not there; also as [`Zap::lookup`].
    pub fn remove<'n>(&self, tx: &B::Tx, name: impl Into<Name<'n>>) -> Result<(), ZapError> {
        let name = name.into();
        self.with_kind_mut(|kind| {
            let wanted = self.wanted(name, kind.rules())?;
            match kind {
                Kind::Micro(index) => micro::remove(&self.blocks, tx, index, &wanted),
                Kind::Fat(fat) => fat::remove(&self.blocks, tx, fat, &wanted),
            }
        })
    }

    /// Adds or changes an entry.
    fn put(
        &self,
        tx: &B::Tx,
        name: Name<'_>,
        value: &ZapValue,
        present: Present,
    ) -> Result<(), ZapError> {
        check_entry(name, value, self.blocks.name_bytes_max())?;
        self.with_kind_mut(|kind| {
            let wanted = self.wanted(name, kind.rules())?;
            if let Kind::Micro(index) = kind {
                let limit = self.micro_bytes_max;
                if micro::put(&self.blocks, tx, index, &wanted, value, present, limit)? {
                    return Ok(());
                }
                let fat = self.make_fat(tx, index, &wanted, value)?;
                *kind = Kind::Fat(fat);
            }
            let Kind::Fat(fat) = kind else {
                unreachable!("a micro ZAP was made fat above")
            };
            fat::put(&self.blocks, tx, fat, &wanted, value, present)
        })
    }

    /// Turns a micro ZAP into a fat one, for what it cannot hold: its entries keep their
    /// differentiators, so that walks go on.
    ///
    /// A check that a fat ZAP can hold everything precedes all changes; after it only new blocks
    /// are read.
    fn make_fat(
        &self,
        tx: &B::Tx,
        index: &MicroIndex,
        new: &Wanted<'_>,
        value: &ZapValue,
    ) -> Result<FatState, ZapError> {
        let entries = micro::entries_from(&self.blocks, index, Cursor::START, usize::MAX)?;
        let cursors = || index.slots.keys().copied();
        let hashes = cursors().map(|cursor| cursor.hash);
        let all = hashes.zip(&entries).map(|(hash, entry)| {
            let name = entry.name.as_name();
            (hash, chunks_of(name, &entry.value))
        });
        let new = (new.hash, chunks_of(new.name, value));
        fat::require_room(all.chain([new]), index.rules)?;
        // The first leaf goes here. The block may not be a hole as it should.
        look(&self.blocks, 1, |_| Ok(()))?;
        self.blocks.set_block_size(tx, fat::BLOCK_BYTES)?;
        let Kind::Fat(mut fat) = fat::create(&self.blocks, tx, index.rules)? else {
            unreachable!("a fat ZAP was made");
        };
        for (entry, cursor) in entries.iter().zip(cursors()) {
            let wanted = self.wanted(entry.name.as_name(), index.rules)?;
            let differentiator = Some(cursor.differentiator);
            fat::add(
                &self.blocks,
                tx,
                &mut fat,
                &wanted,
                &entry.value,
                differentiator,
            )?;
        }
        Ok(fat)
    }

    /// A name, and no other, with its hash here.
    fn wanted<'n>(&self, name: Name<'n>, rules: Rules) -> Result<Wanted<'n>, ZapError> {
        let normalize = match (rules.normalization, &self.normalize) {
            (0, _) => None,
            (_, Some(normalize)) => Some(normalize),
            (form, None) => return Err(ZapError::Normalized { form }),
        };
        let normalized = match (name, normalize) {
            (Name::Text(text), Some(normalize)) => Some(normalize(text)),
            _ => None,
        };
        let hashed = normalized.as_deref().map_or(name, Name::Text);
        let hash = ZapHash::of(hashed, rules.salt, rules.flags);
        Ok(Wanted {
            name,
            hash,
            normalized,
            equal: None,
        })
    }

    /// Runs with the state, which is created if need be.
    fn with_kind<T>(&self, run: impl FnOnce(&Kind) -> Result<T, ZapError>) -> Result<T, ZapError> {
        if let Some(kind) = &*self.blocks.state().kind.read() {
            return run(kind);
        }
        self.with_kind_mut(|kind| run(kind))
    }

    /// Runs with write access to the state. After an error halfway the state is dropped, as the
    /// blocks have the truth.
    fn with_kind_mut<T>(
        &self,
        run: impl FnOnce(&mut Kind) -> Result<T, ZapError>,
    ) -> Result<T, ZapError> {
        let mut slot = self.blocks.state().kind.write();
        let mut kind = match slot.take() {
            Some(kind) => kind,
            None => self.load()?,
        };
        let outcome = run(&mut kind);
        // A refused change has changed nothing.
        if let Ok(_) | Err(ZapError::Exists | ZapError::NotFound) = outcome {
            *slot = Some(kind);
        }
        outcome
    }

    /// Reads block 0 and makes what is to be remembered.
    fn load(&self) -> Result<Kind, ZapError> {
        let mut loaded = None;
        self.blocks.look(0, &mut |block| {
            loaded = Some(match BlockKind::of_block(block) {
                Some(BlockKind::Micro) => self.load_micro(block),
                _ => fat::load(block),
            });
        })?;
        loaded.expect("a block that was read was looked at")
    }

    /// Makes the index of a micro ZAP.
    fn load_micro(&self, block: &[u8]) -> Result<Kind, ZapError> {
        micro::load(block, |name, rules| {
            self.wanted(Name::Text(name), rules).map(|w| w.hash)
        })
    }
}

/// What to do when a name is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Present {
    Refuse,
    Replace,
}

/// A name to be found, with its hash.
struct Wanted<'n> {
    name: Name<'n>,
    hash: ZapHash,
    /// The form in which it is hashed, where names are normalised.
    normalized: Option<Vec<u8>>,
    /// Where an equal name will do: the form in which names are compared, and what makes it.
    equal: Option<(Vec<u8>, Normalize)>,
}

impl Wanted<'_> {
    /// The same, where a name will do that is equal to it in the ZAP's own view.
    fn or_equal<B: ZapBlocks>(mut self, zap: &Zap<B>) -> Self {
        let (Name::Text(text), Some(normalized)) = (self.name, self.normalized.take()) else {
            return self;
        };
        self.equal = match (&zap.compare, &zap.normalize) {
            (Some(compare), _) => Some((compare(text), compare.clone())),
            (None, Some(normalize)) => Some((normalized, normalize.clone())),
            (None, None) => None,
        };
        self
    }

    /// True when a stored text is the name, or one that will do.
    fn matches(&self, stored: &[u8]) -> bool {
        let is_equal = |(form, compare): &(Vec<u8>, Normalize)| compare(stored) == *form;
        self.is_exactly(stored) || self.equal.as_ref().is_some_and(is_equal)
    }

    /// True when a stored text is the name itself.
    fn is_exactly(&self, stored: &[u8]) -> bool {
        matches!(self.name, Name::Text(text) if text == stored)
    }
}

/// Refuses names and values that the ZAP cannot hold. `limit` is the longest name in bytes, with
/// its final zero.
fn check_entry(name: Name<'_>, value: &ZapValue, limit: usize) -> Result<(), ZapError> {
    let is_bad = match name {
        Name::Text(text) => text.is_empty() || text.len() >= limit || text.contains(&0),
        Name::Words(words) => words.is_empty(),
    };
    if is_bad {
        return Err(ZapError::BadName);
    }
    if value.size() > tarn_ondisk::zap::VALUE_BYTES_MAX {
        return Err(ZapError::ValueTooLarge {
            bytes: value.size(),
        });
    }
    Ok(())
}

/// A damaged block, as an error.
fn corrupt(block: u64) -> impl Fn(Corrupt) -> ZapError {
    move |cause| ZapError::Corrupt { block, cause }
}

/// Looks at a block and gives what was made of it.
fn look<B: ZapBlocks, T>(
    blocks: &B,
    block: u64,
    mut read: impl FnMut(&[u8]) -> Result<T, ZapError>,
) -> Result<T, ZapError> {
    let mut made = None;
    blocks.look(block, &mut |bytes| made = Some(read(bytes)))?;
    made.expect("a block that was read was looked at")
}

/// Changes a block and gives what came of it.
fn change<B: ZapBlocks, T>(
    blocks: &B,
    tx: &B::Tx,
    block: u64,
    mut write: impl FnMut(&mut [u8]) -> Result<T, ZapError>,
) -> Result<T, ZapError> {
    let mut made = None;
    blocks.change(tx, block, &mut |bytes| made = Some(write(bytes)))?;
    made.expect("a block that was changed was looked at")
}
