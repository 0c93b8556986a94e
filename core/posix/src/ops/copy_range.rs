//! `copy_file_range`: a range of one file becomes a range of another, by references to the same
//! blocks where that is possible.
//!
//! # Mechanism
//! Where the range lies on whole blocks of the same size in both files, and the blocks are stored,
//! the target gets pointers to them (feature `block_cloning`): nothing is read or written, and the
//! record for the intent log carries the pointers. Blocks that are not stored yet are copied in
//! memory, and so are parts of blocks. A copy takes several transactions; each clones at most as
//! many blocks as have pointers in one record.
//!
//! The end of the source can be a part of a block. It is cloned whole if the target ends there as
//! well: bytes behind the end of a file are zeros.
//!
//! # Invariants
//! - Neither file changes meanwhile: both `change` locks are held.

use std::sync::Arc;

use tarn_object::Caching;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::intent_log::LoggedChange;
use tarn_ondisk::units::{BlockId, LogicalSize, ObjectId, Txg};
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::intent::privileges_lost;
use crate::node::{Node, lock_existing};
use crate::ops::write::{self, NewContents, SIZE_MAX};
use crate::permissions::without_set_ids;
use crate::types::Credentials;

/// How many blocks are cloned in one transaction. Their pointers fit into one record of the intent
/// log, whose blocks have 128 KiB.
const CLONED_TOGETHER: u64 = 1000;
/// How much is copied in one transaction. A guess: small beside what may be dirty.
const COPIED_TOGETHER: u64 = 1 << 20;
/// How much one call copies, since both files are locked meanwhile; the caller asks again for more.
/// A guess.
const COPIED_PER_CALL: u64 = 64 << 20;
/// How many transactions of clones one call makes, for the same reason. A guess.
const CLONES_PER_CALL: u32 = 64;
/// About how much a transaction writes beside contents.
const OVERHEAD_BYTES: u64 = 16 << 10;
/// About how much space a block pointer takes.
const POINTER_BYTES: u64 = 128;

/// The rest of the range, still to be copied.
#[derive(Debug, Clone, Copy)]
struct Rest {
    from: u64,
    to: u64,
    length: u64,
}

/// Whole blocks that may be cloned, and how much of the range they are.
#[derive(Debug, Clone, Copy)]
struct Aligned {
    block_size: u64,
    blocks: u64,
    length: u64,
}

/// How the start of a range is to be copied.
#[derive(Debug, Clone, Copy)]
enum Plan {
    /// These blocks are to be cloned.
    Clone(Aligned),
    /// So many bytes are to be copied before it is worth asking again.
    Copy(u64),
}

/// How the start of a range was copied.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// So many bytes were cloned, in this txg.
    Cloned(Txg, u64),
    /// Nothing: so many bytes are to be copied.
    ToCopy(u64),
}

impl FileSystem {
    /// Copies a range of a file to another file, or to another offset of the same file. Gives how
    /// many bytes were copied: fewer than asked at the end of the source, at the largest size of a
    /// file, when space or a quota runs out, and at the bound of one call. The permissions to read
    /// and write were checked when the files were opened.
    ///
    /// # Errors
    /// `Invalid` where the ranges overlap; `PermissionDenied` for a source in quarantine;
    /// `NoSpace`, `QuotaExceeded` and `FileTooLarge` when not one byte could be copied;
    /// `IsDirectory`, `NotPermitted`, `ReadOnly`, or what could not be read.
    #[doc(alias = "zfs_clone_range")]
    pub fn copy_range(
        &self,
        credentials: &Credentials,
        (source, from): (ObjectId, u64),
        (target, to): (ObjectId, u64),
        length: u64,
        operation: &Operation,
    ) -> Result<u64, PosixError> {
        self.check_writable()?;
        let source = self.regular_file(source, operation)?;
        let target = self.regular_file(target, operation)?;
        self.have_written_back(source.id, from, length, operation);
        self.have_written_back(target.id, to, length, operation);
        let changed = Change::Contents {
            file: target.id,
            offset: to,
            length,
        };
        let _told = self.telling(changed, operation);
        let _noted = self.telling(Change::Attributes { file: source.id }, operation);
        let _changing = self.changing(target.id, operation)?;
        let change = lock_existing(&[&source, &target])?;
        let length = length.min(source.facts().size.saturating_sub(from));
        if length == 0 {
            return Ok(0);
        }
        if source.facts().flags.has(ZnodeFlags::QUARANTINED) {
            return Err(PosixError::PermissionDenied);
        }
        let length = length.min(SIZE_MAX.saturating_sub(to));
        if length == 0 {
            return Err(PosixError::FileTooLarge);
        }
        let end = to + length;
        if source.id == target.id && from < end && to < from + length {
            return Err(PosixError::Invalid("the ranges overlap"));
        }
        FileSystem::check_contents_flags(&target.facts(), to >= target.facts().size)?;
        let (mut done, mut copied, mut clones, mut txg) = (0, 0, 0, Txg::ZERO);
        while done < length && copied < COPIED_PER_CALL && clones < CLONES_PER_CALL {
            let rest = Rest {
                from: from + done,
                to: to + done,
                length: length - done,
            };
            let part = self.clone_part(credentials, &source, &target, rest, operation);
            let part = part.and_then(|part| match part {
                Part::Cloned(group, bytes) => {
                    clones += 1;
                    Ok((group, bytes))
                }
                Part::ToCopy(bytes) => {
                    copied += bytes;
                    let rest = Rest {
                        length: bytes,
                        ..rest
                    };
                    self.copy_part(credentials, &source, &target, rest, operation)
                }
            });
            match part {
                Ok((group, bytes)) => {
                    assert!(
                        (1..=rest.length).contains(&bytes),
                        "each part copies some of the rest"
                    );
                    (txg, done) = (group, done + bytes);
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.note_access(&source);
        drop(change);
        self.after_change(txg, operation)?;
        Ok(done)
    }

    /// Clones what can be cloned at the beginning of a range, in one transaction. Otherwise says
    /// how much has to be copied before it is worth asking again. The caller holds `change` of
    /// both.
    fn clone_part(
        &self,
        credentials: &Credentials,
        source: &Arc<Node>,
        target: &Arc<Node>,
        rest: Rest,
        operation: &Operation,
    ) -> Result<Part, PosixError> {
        let aligned = match self.plan(source, target, rest) {
            Plan::Clone(aligned) => aligned,
            Plan::Copy(bytes) => return Ok(Part::ToCopy(bytes)),
        };
        let mut facts = (*target.facts()).clone();
        self.check_space_quota(&facts, operation)?;
        let room = aligned.blocks * POINTER_BYTES + OVERHEAD_BYTES;
        assert!(
            rest.from.is_multiple_of(aligned.block_size)
                && rest.to.is_multiple_of(aligned.block_size),
            "whole blocks are cloned"
        );
        let first = rest.from / aligned.block_size;
        let blocks = first..first + aligned.blocks;
        source.object.look_up_pointers(blocks.clone(), operation)?;
        let length = aligned.blocks * aligned.block_size;
        let _prepared = target.object.prepare_write(rest.to, length, operation)?;
        let tx = self.begin(room, operation)?;
        let pointers = source.object.clonable(&tx, blocks, operation)?;
        let cloned: Vec<BlockPointer> = pointers.iter().map_while(|found| *found).collect();
        if cloned.is_empty() {
            let unstored = pointers.iter().take_while(|found| found.is_none()).count();
            let bytes = widen(unstored) * aligned.block_size;
            let at_most = COPIED_TOGETHER.max(aligned.block_size);
            return Ok(Part::ToCopy(bytes.min(aligned.length).min(at_most)));
        }
        assert!(
            widen(cloned.len()) <= aligned.blocks,
            "at most the blocks that were asked for are cloned"
        );
        let length = aligned.length.min(widen(cloned.len()) * aligned.block_size);
        let _content = target.content.write();
        let size = LogicalSize::from(aligned.block_size);
        target.object.set_block_size(&tx, size, operation)?;
        let to = BlockId::from(rest.to / aligned.block_size);
        target.object.clone_blocks(&tx, to, &cloned, operation)?;
        facts.size = facts.size.max(rest.to + length);
        facts.contents_changed(self.now());
        if !credentials.passes_posix_rules() {
            self.change_permissions(&mut facts, without_set_ids(credentials, &target.facts()));
        }
        let privileges = privileges_lost(target, &facts);
        self.store(target, facts, &tx, operation)?;
        if let Some(privileges) = privileges {
            self.log_own(&tx, target, || privileges);
        }
        self.log_own(&tx, target, || LoggedChange::CloneRange {
            object: target.id,
            offset: rest.to,
            length,
            block_size: aligned.block_size,
            pointers: cloned,
        });
        Ok(Part::Cloned(tx.txg(), length))
    }

    /// Whether the start of a range can be cloned or is to be copied, by sizes and offsets.
    fn plan(&self, source: &Node, target: &Node, rest: Rest) -> Plan {
        let block_size = source.object.block_size().get();
        let record_size = self.properties().record_size.get();
        let at_most = rest.length.min(COPIED_TOGETHER);
        let (within, within_target) = (rest.from % block_size, rest.to % block_size);
        let fits = fits(source, target, rest, record_size);
        if !self.shares_blocks() || !fits || within != within_target {
            return Plan::Copy(at_most);
        }
        if within != 0 {
            // The rest of this block.
            return Plan::Copy(at_most.min(block_size - within));
        }
        let reaches_ends = rest.from + rest.length >= source.facts().size
            && rest.to + rest.length >= target.facts().size;
        let blocks = match reaches_ends {
            true => rest.length.div_ceil(block_size),
            false => rest.length / block_size,
        };
        match blocks.min(CLONED_TOGETHER) {
            0 => Plan::Copy(at_most),
            blocks => Plan::Clone(Aligned {
                block_size,
                blocks,
                length: rest.length.min(blocks * block_size),
            }),
        }
    }

    /// Copies a part of a range through memory, or as much of it as there is space for; gives how
    /// much. The caller holds `change` of both.
    fn copy_part(
        &self,
        credentials: &Credentials,
        source: &Arc<Node>,
        target: &Arc<Node>,
        rest: Rest,
        operation: &Operation,
    ) -> Result<(Txg, u64), PosixError> {
        let size = narrow(rest.length);
        let data = self.read_node(source, rest.from, size, Caching::Ours, operation)?;
        let bytes = data.to_vec();
        let part = write::Part {
            offset: rest.to,
            caching: Caching::Ours,
        };
        let contents = NewContents::Bytes(&bytes);
        let (txg, written) = self.write_part(credentials, target, part, contents, operation)?;
        Ok((txg, widen(written)))
    }

    /// Whether the pool can clone blocks (`block_cloning`).
    fn shares_blocks(&self) -> bool {
        !self.set.is_sealed() && self.set.env().cache.io().shares_blocks()
    }
}

/// Whether the block sizes of source and target allow cloning.
fn fits(source: &Node, target: &Node, rest: Rest, record_size: u64) -> bool {
    let (block_size, has) = (
        source.object.block_size().get(),
        target.object.block_size().get(),
    );
    let size = target.facts().size;
    let has_one_block = target.object.max_block().is_zero() && size <= has;
    if has != block_size && !(has_one_block && has < block_size) {
        return false;
    }
    // Files of more than one block have blocks of a power of two.
    if !block_size.is_power_of_two() && rest.to != 0 {
        return false;
    }
    // A file that grows beyond one block would keep this small block size for good.
    let grows = size <= block_size && rest.to.saturating_add(rest.length) > block_size;
    !(rest.length <= block_size && block_size < record_size && grows)
}
