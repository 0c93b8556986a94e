//! ZAPs in objects: [`ObjectZap`].
//!
//! The state of a ZAP in memory is kept with its object, so all handles on one object share it. A
//! handle borrows the operation of its reads, so it lives as long as one request.

use std::sync::Arc;

use tarn_host::Buffer;
use tarn_ondisk::declare::{ByteOrder, widen};

use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, LogicalSize};
use tarn_ondisk::zap::to_little_endian;
use tarn_probe::Operation;

use super::{NewZap, Zap, ZapBlocks, ZapError, ZapState, ZapValue};
use crate::error::ObjectError;
use crate::object::Object;
use crate::objset::{NewObject, ObjectSet};
use crate::tx::Tx;

/// A ZAP in an object.
pub type ObjectZap<'a> = Zap<ObjectBlocks<'a>>;

/// The blocks of an object, for its ZAP.
pub struct ObjectBlocks<'a> {
    object: Arc<Object>,
    state: Arc<ZapState>,
    operation: &'a Operation,
}

impl ObjectBlocks<'_> {
    /// The object.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }
}

impl<'a> Zap<ObjectBlocks<'a>> {
    /// The ZAP in an object.
    pub fn of(object: &Arc<Object>, operation: &'a Operation) -> ObjectZap<'a> {
        Zap::open(blocks_of(object, operation))
    }

    /// Allocates an object for a ZAP, and makes it. Micro, with the smallest blocks, unless `new`
    /// says otherwise.
    pub fn allocate(
        set: &ObjectSet,
        tx: &Tx,
        object: NewObject,
        new: NewZap,
        operation: &'a Operation,
    ) -> Result<ObjectZap<'a>, ObjectError> {
        let object = set.allocate(tx, object, operation)?;
        ObjectZap::make(&object, tx, new, operation)
    }

    /// Makes an empty ZAP in an object that was just allocated.
    pub fn make(
        object: &Arc<Object>,
        tx: &Tx,
        new: NewZap,
        operation: &'a Operation,
    ) -> Result<ObjectZap<'a>, ObjectError> {
        Zap::create(blocks_of(object, operation), tx, new).map_err(|why| object.zap_error(why))
    }

    /// The object it is in.
    pub fn object(&self) -> &Arc<Object> {
        &self.blocks().object
    }

    /// Adds to a number, which is removed when it becomes zero. A number that is not there is zero.
    #[doc(alias = "zap_increment")]
    pub fn increment(&self, tx: &Tx, name: &[u8], by: i64) -> Result<(), ZapError> {
        let old = self.lookup_word(name)?.unwrap_or(0);
        match old.wrapping_add_signed(by) {
            0 if old == 0 => Ok(()),
            0 => self.remove(tx, name),
            new => self.update(tx, name, &ZapValue::word(new)),
        }
    }
}

impl NewZap {
    /// A micro ZAP that does not normalise, whose hashes are unlike those of its neighbours.
    pub fn micro(set: &ObjectSet) -> NewZap {
        NewZap::Micro {
            salt: set.env().host.random_u64() | 1,
            normalization: 0,
        }
    }
}

fn blocks_of<'a>(object: &Arc<Object>, operation: &'a Operation) -> ObjectBlocks<'a> {
    let state = object.companion(ZapState::default);
    ObjectBlocks {
        object: object.clone(),
        state,
        operation,
    }
}

impl ZapBlocks for ObjectBlocks<'_> {
    type Tx = Tx;

    fn block_size(&self) -> usize {
        self.object.block_size().to_usize()
    }

    fn look(&self, block: u64, look: &mut dyn FnMut(&[u8])) -> Result<(), ZapError> {
        let read = self
            .object
            .read_block_ordered(BlockId::from(block), self.operation);
        let (contents, order) = read.map_err(in_block(block))?;
        if order == ByteOrder::Little {
            look(&contents);
            return Ok(());
        }
        let mut turned = Buffer::from_slice(&contents);
        to_little_endian(&mut turned, order).map_err(|cause| ZapError::Corrupt { block, cause })?;
        look(&turned);
        Ok(())
    }

    fn change(
        &self,
        tx: &Tx,
        block: u64,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), ZapError> {
        let id = BlockId::from(block);
        let changed = self.object.change_block(tx, id, self.operation, change);
        changed.map_err(in_block(block))
    }

    fn free(&self, tx: &Tx, first: u64, count: u64) -> Result<(), ZapError> {
        let size = widen(self.block_size());
        let (offset, length) = (first.saturating_mul(size), count.saturating_mul(size));
        let freed = self.object.free_range(tx, offset, length, self.operation);
        freed.map_err(in_block(first))
    }

    fn set_block_size(&self, tx: &Tx, bytes: usize) -> Result<(), ZapError> {
        let size = LogicalSize::from(widen(bytes));
        self.object
            .set_block_size(tx, size, self.operation)
            .map_err(in_block(0))
    }

    /// Long names are for directories only: OpenZFS cannot read them elsewhere.
    fn name_bytes_max(&self) -> usize {
        match self.object.object_type() {
            ObjectType::Directory => tarn_ondisk::zap::LONG_NAME_BYTES_MAX,
            _ => tarn_ondisk::zap::NAME_BYTES_MAX,
        }
    }

    fn state(&self) -> &ZapState {
        &self.state
    }
}

fn in_block(block: u64) -> impl Fn(ObjectError) -> ZapError {
    move |cause| ZapError::Block {
        block,
        cause: Arc::new(cause),
    }
}

impl Object {
    /// What went wrong with the ZAP in this object.
    pub(crate) fn zap_error(&self, why: ZapError) -> ObjectError {
        ObjectError::Zap {
            set: self.set_id(),
            object: self.id(),
            why,
        }
    }
}
