//! Block pointers, and what is embedded in some.

use crate::piece::{Kind, Piece};
use crate::target::{Input, Target, sized, told};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_transform::{CompressionAlgorithm, compress};

/// A pointer of 128 bytes.
pub const BLOCK_POINTER: Target = Target {
    name: "block-pointer",
    about: "block pointers, and the blocks embedded in them",
    run: block_pointer,
    seed: |piece: &Piece| match piece.kind {
        Kind::Pointer => told(&[0], &piece.bytes),
        _ => None,
    },
    size_max: 129,
    memory_per_byte: 16,
    memory_extra: 2 * EXPANDED_MAX,
};

/// An embedded block may be as large as any other; what is beyond this is not tried.
const EXPANDED_MAX: usize = 64 << 10;

fn block_pointer(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let order = input.order();
    let bytes = sized(input.rest, BlockPointer::SIZE);
    let pointer = BlockPointer::from_bytes(&bytes, order).expect("any 128 bytes are a pointer");
    let stored = pointer.to_bytes();
    if order == ByteOrder::Little {
        assert_eq!(stored, bytes, "a pointer changed by being stored");
    }
    assert_eq!(
        BlockPointer::from_bytes(&stored, ByteOrder::Little),
        Ok(pointer)
    );
    ask(&pointer);
    expand(&pointer);
}

/// Asks a pointer everything.
pub fn ask(pointer: &BlockPointer) {
    let _ = (pointer.to_string(), pointer.is_same_block(pointer));
    let _ = (
        pointer.kind(),
        pointer.fill(),
        pointer.birth(),
        pointer.physical_birth(),
    );
    let _ = (
        pointer.allocated_size(),
        pointer.uncompressed_size(),
        pointer.is_metadata(),
    );
    let _ = (
        pointer.logical_size(),
        pointer.physical_size(),
        pointer.is_gang(),
    );
    assert!(pointer.dvas().count() <= 3 && pointer.dva_count() <= 3);
    for dva in pointer.dvas() {
        let _ = (
            dva.to_string(),
            dva.offset(),
            dva.vdev(),
            dva.allocated_size(),
        );
    }
    let payload = pointer.payload();
    if pointer.check().is_err() {
        return;
    }
    assert!(
        pointer.logical_size().get() <= 16 << 20,
        "a checked pointer has a size that blocks have"
    );
    if pointer.kind() == PointerKind::Embedded
        && let Ok(payload) = payload
    {
        assert!(payload.bytes().len() <= 112, "a pointer holds so much");
    }
}

/// Expands what is embedded in a pointer, up to a size.
fn expand(pointer: &BlockPointer) {
    let algorithm = CompressionAlgorithm::from_code(pointer.compression().code());
    let (Ok(()), Ok(payload), Ok(algorithm)) = (pointer.check(), pointer.payload(), algorithm)
    else {
        return;
    };
    let mut block = vec![0; pointer.logical_size().to_usize().min(EXPANDED_MAX)];
    let _ = compress::decompress(algorithm, payload.bytes(), &mut block);
}
