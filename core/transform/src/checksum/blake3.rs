//! BLAKE3 in its keyed mode, with the pool's salt for the key. A library computes it.

/// The keyed BLAKE3 of a block that lies in pieces.
pub fn keyed_digest(salt: &[u8; 32], pieces: &[&[u8]]) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_keyed(salt);
    for piece in pieces {
        hash.update(piece);
    }
    *hash.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the test vectors published with BLAKE3: the key, and an input of bytes that count from
    /// 0 to 250 and again.
    #[test]
    fn the_published_vectors_come_out() {
        let key = b"whats the Elvish word for friend";
        let input: Vec<u8> = (0..=250).cycle().take(1024).collect();
        let digest: String = keyed_digest(key, &[&input])
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            digest,
            "75c46f6f3d9eb4f55ecaaee480db732e6c2105546f1e675003687c31719c7ba4"
        );
    }
}
