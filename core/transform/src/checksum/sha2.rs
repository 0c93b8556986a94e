//! SHA-256 and SHA-512/256, which a library computes, with the processor's own instructions where
//! it has them.

use sha2::{Digest, Sha256, Sha512, Sha512_256};

/// SHA-256 (FIPS 180-4) of a block that lies in pieces.
pub fn sha256(pieces: &[&[u8]]) -> [u8; 32] {
    digest::<Sha256>(pieces).into()
}

/// SHA-512 (FIPS 180-4), whole: what the codes of encrypted datasets are made with.
pub fn sha512(pieces: &[&[u8]]) -> [u8; 64] {
    digest::<Sha512>(pieces).into()
}

/// SHA-512 with the initial values for 256 bits (FIPS 180-4). What ZFS calls `sha512`.
pub fn sha512_256(pieces: &[&[u8]]) -> [u8; 32] {
    digest::<Sha512_256>(pieces).into()
}

fn digest<Hash: Digest>(pieces: &[&[u8]]) -> sha2::digest::Output<Hash> {
    let mut hash = Hash::new();
    for piece in pieces {
        hash.update(piece);
    }
    hash.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The examples NIST publishes beside the standard.
    #[test]
    fn the_standard_s_examples_come_out() {
        assert_eq!(
            hex(&sha256(&[b"abc"])),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            hex(&sha512_256(&[b"a", b"bc"])),
            "53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23"
        );
    }
}
