//! Object sets of encrypted datasets without their keys: raw streams are received, kept and sent
//! on.
//!
//! # Problem
//! A raw stream has contents as the sender stored them, and the MACs that the owner of the key will
//! verify: of every block, of every block of dnodes, and of the object set. They verify only if
//! every tree has the shape it had at the sender, and every dnode has the same fields.
//!
//! # Mechanism
//! - Contents come with their sealing, and are stored unchanged ([`Object::write_sealed`]).
//! - An object gets its levels, its highest block, and its whole bonus area ([`Object::set_form`]),
//!   and keeps them.
//! - A block of dnodes is sealed as a whole. Its sealing is set when its first object comes
//!   ([`ObjectSet::seal_dnodes`]), and kept whenever the block is stored again. In between, the
//!   stored block may not agree with its MAC; the object set is not opened before the stream has
//!   ended.
//! - Indirect blocks are sealed by a MAC over their pointers.
//! - The objset block gets its MACs at the end ([`ObjectSet::seal`]).
//!
//! # Invariants
//! - In an encrypted object set everything is written as received: local changes of contents are
//!   refused.
//! - The sealing of a dnode block is in memory or in the pointer to it.

use crate::dirty::{Form, Old, SpillContents};
use crate::error::ObjectError;
use crate::head::META_DNODE;
use crate::object::Object;
use crate::objset::{ObjectSet, SetContext};
use crate::set_sealing::{HeadSealing, ObjectForm, SealedBlock};
use crate::tx::Tx;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::widen;
use tarn_ondisk::dnode::{SLOT_BYTES, Spill};
use tarn_ondisk::objset::ObjsetFlags;
use tarn_ondisk::sealing::Sealing;
use tarn_ondisk::units::BlockId;
use tarn_probe::Operation;

impl SetContext {
    /// Whether blocks are sealed.
    pub fn is_sealed(&self) -> bool {
        self.sealing.is_sealed.load(Ordering::Relaxed)
    }

    /// How a block of dnodes is sealed that takes the place of another: as the stream said, or as
    /// that was.
    pub fn seal_of_dnodes(&self, block: u64, previous: &BlockPointer) -> Sealing {
        let told = self.sealing.dnodes.lock().remove(&block);
        told.unwrap_or_else(|| Sealing::of_pointer(previous))
    }
}

impl ObjectSet {
    /// Whether it is encrypted.
    pub fn is_sealed(&self) -> bool {
        self.context.is_sealed()
    }

    /// From now on it is encrypted. It is new, and empty.
    pub(crate) fn begin_sealed(&self) {
        self.context
            .sealing
            .is_sealed
            .store(true, Ordering::Relaxed);
    }

    /// Says how the block of dnodes is sealed that has this object.
    #[doc(alias = "dmu_buf_set_crypt_params")]
    pub fn seal_dnodes(&self, tx: &Tx, first_object: u64, sealing: Sealing) {
        let block = first_object / self.dnodes_per_block();
        self.context.sealing.dnodes.lock().insert(block, sealing);
        self.touch(tx);
    }

    /// Sets the code of the set as a whole, which the owner of the key checks. Owners are not
    /// counted in it.
    ///
    /// # Errors
    /// When it is not encrypted.
    #[doc(alias = "dsl_crypto_recv_raw_objset_sync")]
    pub fn seal(&self, tx: &Tx, sealing: HeadSealing) -> Result<(), ObjectError> {
        if !self.is_sealed() {
            return Err(self.meta.is_encrypted_error());
        }
        {
            let mut head = self.head.lock();
            head.objset.portable_mac = sealing.portable_code;
            head.objset.local_mac = [0; 32];
            head.objset.flags = ObjsetFlags::default();
        }
        self.meta.change_shape(tx, |shape| {
            shape.checksum = sealing.checksum;
            shape.compression = sealing.compression;
            shape.max_block = sealing.max_block;
        })
    }
}

impl Object {
    /// Gives a block contents as they are stored.
    ///
    /// # Panics
    /// When they are not of the size of the object's blocks.
    ///
    /// # Errors
    /// When the object was freed meanwhile, or has no such block.
    pub fn write_sealed(
        &self,
        tx: &Tx,
        block: BlockId,
        contents: SealedBlock,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        self.look_up_parent(tx, block.get(), Old::Overwritten, operation)?;
        let mut state = self.alive()?;
        assert_eq!(
            contents.logical_size, state.newest.block_size,
            "a block is as large as its object's blocks"
        );
        if block > state.newest.max_block {
            return Err(self.too_large(block.get().saturating_mul(contents.logical_size.get())));
        }
        let bytes = widen(contents.bytes.len());
        let levels = state.stored_levels();
        let pending = self.pending_for(&mut state, tx);
        pending.freed.remove(block.get());
        let before = pending.sealed.insert(block.get(), contents);
        let freed = before.map_or(0, |before| widen(before.bytes.len()));
        pending.dirty_bytes = pending.dirty_bytes + bytes - freed;
        let txgs = &self.context.env.txgs;
        txgs.add_dirty(bytes);
        txgs.remove_dirty(freed);
        if freed != 0 {
            self.uncount_blocks(pending, [freed].into_iter());
        }
        self.count_block(pending, bytes);
        self.count_pointers(pending, levels, block.get());
        Ok(())
    }

    /// Gives the object the spill block that it is stored with.
    ///
    /// # Errors
    /// When there is no room for the pointer to it.
    pub fn set_sealed_spill(&self, tx: &Tx, contents: SealedBlock) -> Result<(), ObjectError> {
        let mut state = self.alive()?;
        let (room, wanted) = (
            state.newest.bonus_room(Spill::Present),
            state.newest.bonus.len(),
        );
        if room.is_none_or(|room| wanted > room) {
            return Err(self.bonus_too_large(room.unwrap_or(0), wanted));
        }
        let bytes = widen(contents.bytes.len());
        state.newest.spill = SpillContents::Sealed(Arc::new(contents));
        let newest = state.newest.clone();
        let pending = self.pending_for(&mut state, tx);
        pending.shape = newest;
        pending.is_spill_changed = true;
        pending.dirty_bytes += bytes;
        self.context.env.txgs.add_dirty(bytes);
        self.count_spill(pending, bytes);
        Ok(())
    }

    /// Has the dnode be of this form. What is beyond its highest block was freed; all contents
    /// were, where blocks have another size.
    ///
    /// # Errors
    /// When the bonus has no room, or the object was freed meanwhile.
    pub fn set_form(&self, tx: &Tx, form: ObjectForm) -> Result<(), ObjectError> {
        let mut state = self.alive()?;
        let room = state.newest.slots * SLOT_BYTES;
        if form.bonus_length > form.bonus_room.len() || form.bonus_room.len() > room {
            return Err(self.bonus_too_large(room, form.bonus_room.len()));
        }
        state.newest.block_size = form.block_size;
        state.newest.indirect_shift = form.indirect_shift;
        state.newest.bonus_type = form.bonus_type;
        state.newest.bonus = form.bonus_room[..form.bonus_length].into();
        state.newest.max_block = form.max_block;
        state.newest.form = Some(Form {
            levels: form.levels,
            bonus_room: form.bonus_room.into(),
        });
        let newest = state.newest.clone();
        self.pending_for(&mut state, tx).shape = newest;
        Ok(())
    }

    /// Refuses to change contents that only their owner can.
    pub(crate) fn check_plain(&self) -> Result<(), ObjectError> {
        match self.context.is_sealed() && self.id != META_DNODE {
            true => Err(self.is_encrypted_error()),
            false => Ok(()),
        }
    }

    pub(crate) fn is_encrypted_error(&self) -> ObjectError {
        ObjectError::Encrypted {
            set: self.context.id,
            object: self.id,
        }
    }
}
