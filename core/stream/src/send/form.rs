//! In which form the contents of a block are sent.

use super::find::Found;
use tarn_block::{BlockScope, Form, ReadRequest};
use tarn_ondisk::block_pointer::{BlockPointer, OLD_BLOCK_BYTES_MAX};
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::stream::StreamFeatures;
use tarn_ondisk::units::ObjectId;

/// What decides in which form contents are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forms {
    /// The object set that is sent.
    pub set: ObjectId,
    pub features: StreamFeatures,
    /// Whether only sizes are asked for, and nothing is read.
    pub is_dry: bool,
}

impl Forms {
    /// What is read for something to send, and how; none where nothing is.
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

    /// How the contents of a block are sent that is not sent as embedded.
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

    /// Whether a block is sent as it is embedded in its pointer. A spill block is not: OpenZFS
    /// sends it like contents, at the offset that its index (the last but one) gives, and a receive
    /// by OpenZFS loses it.
    #[doc(alias = "send_do_embed")]
    pub fn embeds(self, pointer: &BlockPointer) -> bool {
        let needed = match pointer.compression() {
            Compression::Lz4 => StreamFeatures::LZ4,
            Compression::Zstd => StreamFeatures::ZSTD.with(StreamFeatures::LZ4),
            // Those there were before LZ4, which every receiver knows.
            _ => StreamFeatures::NONE,
        };
        let is_spill = pointer.object_type() == ObjectType::SystemAttributes;
        pointer.is_embedded()
            && !is_spill
            && self.features.has(needed)
            && self.features.has(StreamFeatures::EMBEDDED)
    }
}
