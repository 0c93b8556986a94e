//! The form in which a block's contents are sent: plain, compressed, raw or embedded.

use super::find::Found;
use tarn_block::{BlockScope, Form, ReadRequest};
use tarn_ondisk::block_pointer::{BlockPointer, OLD_BLOCK_BYTES_MAX};
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::stream::StreamFeatures;
use tarn_ondisk::units::ObjectId;

/// The choices that decide the form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forms {
    /// The object set that is sent.
    pub set: ObjectId,
    pub features: StreamFeatures,
    /// Only sizes are wanted, and no contents are read.
    pub is_dry: bool,
}

impl Forms {
    /// The read request for a part; none for parts without contents.
    pub fn of(self, found: &Found) -> Option<ReadRequest> {
        let (pointer, scope) = match found {
            Found::Data {
                object,
                block,
                pointer,
                ..
            } => (*pointer, self.scope(*object, *block, pointer)),
            Found::Object { id, old_spill, .. } => {
                ((*old_spill)?, BlockScope::of_spill(self.set, *id))
            }
            _ => return None,
        };
        if self.is_dry || self.embeds(&pointer) {
            return None;
        }
        Some(ReadRequest {
            form: self.of_block(&pointer),
            pointer,
            scope,
        })
    }

    fn scope(self, object: ObjectId, block: u64, pointer: &BlockPointer) -> BlockScope {
        let mark = TraversalMark {
            objset: self.set,
            object,
            level: 0,
            block,
        };
        BlockScope::of_visit(mark, pointer)
    }

    /// The form of a block that is not sent as embedded.
    #[doc(alias = "issue_data_read")]
    pub fn of_block(self, pointer: &BlockPointer) -> Form {
        if self.features.has(StreamFeatures::RAW) {
            return Form::Stored;
        }
        let may_be_stored = self.features.has(StreamFeatures::COMPRESSED)
            && !self.splits(pointer)
            && pointer.byte_order() == ByteOrder::Little
            && !pointer.is_embedded()
            && !pointer.object_type().is_metadata();
        match may_be_stored {
            true => Form::Stored,
            false => Form::Plain,
        }
    }

    /// Whether a block is too large for the receiver, and sent in parts.
    pub fn splits(self, pointer: &BlockPointer) -> bool {
        pointer.logical_size().get() > OLD_BLOCK_BYTES_MAX
            && !self.features.has(StreamFeatures::LARGE_BLOCKS)
    }

    /// Whether an embedded block is sent as such. A spill block is not: OpenZFS sends it as
    /// contents, at the offset that its number (the last but one) gives, and its receivers do not
    /// store that as a spill block.
    #[doc(alias = "send_do_embed")]
    pub fn embeds(self, pointer: &BlockPointer) -> bool {
        let needed = match pointer.compression() {
            Compression::Lz4 => StreamFeatures::LZ4,
            Compression::Zstd => StreamFeatures::ZSTD.with(StreamFeatures::LZ4),
            // Compressions older than LZ4, which every receiver knows.
            _ => StreamFeatures::NONE,
        };
        let is_spill = pointer.object_type() == ObjectType::SystemAttributes;
        pointer.is_embedded()
            && !is_spill
            && self.features.has(needed)
            && self.features.has(StreamFeatures::EMBEDDED)
    }
}
