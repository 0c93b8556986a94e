//! Blocks of encrypted datasets, of which we have no key: what is above them can be made all the same.

use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::sealing::{Sealing, digested};
use tarn_transform::checksum::sha2::sha512;

/// How a block of pointers is sealed: by a digest of what they say of the blocks below. No key is needed for that.
///
/// # Panics
/// When they are not whole pointers: we made them.
#[doc(alias = "zio_crypt_do_indirect_mac_checksum")]
pub fn seal_of_pointers(pointers: &[u8]) -> Sealing {
    let mut said = Vec::with_capacity(pointers.len() / 4);
    for entry in pointers.chunks_exact(BlockPointer::SIZE) {
        let pointer = BlockPointer::from_bytes(entry, ByteOrder::Little);
        said.extend_from_slice(&digested(&pointer.expect("any bytes are a pointer")));
    }
    let digest = sha512(&[&said]);
    Sealing::of_code(*digest.first_chunk().expect("64 bytes begin with 16"))
}
