//! What is in the files: bytes that do not compress, bytes that do, and both.

use crate::twister::Twister;

/// How compressible a file's contents are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Does not compress.
    Random,
    /// Words: compresses well.
    Text,
    /// Half random, half zeros, so that a file has full blocks and holes.
    Mixed,
}

impl Content {
    /// The word that file names begin with.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Random => "rand",
            Self::Text => "text",
            Self::Mixed => "mixed",
        }
    }
}

const VOCABULARY: [&str; 10] = [
    "pool", "vdev", "spare", "mirror", "block", "pointer", "birth", "txg", "scrub", "resilver",
];

/// Beyond this, random contents repeat: outside the window of any compressor of ZFS, and inside the
/// window of the one that packs fixtures.
const PERIOD_BYTES: usize = 100_000;

/// `size` bytes of one kind.
pub(super) fn blob(chance: &mut Twister, size: usize, content: Content) -> Vec<u8> {
    match content {
        Content::Random if size > PERIOD_BYTES => {
            let period = chance.bytes(PERIOD_BYTES);
            period.iter().copied().cycle().take(size).collect()
        }
        Content::Random => chance.bytes(size),
        Content::Text => text(chance, size),
        Content::Mixed => {
            let mut bytes = blob(chance, size / 2, Content::Random);
            bytes.resize(size, 0);
            bytes
        }
    }
}

fn text(chance: &mut Twister, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 16);
    for word in 0..=size / 5 {
        if word > 0 {
            bytes.push(b' ');
        }
        bytes.extend_from_slice(VOCABULARY[chance.index(VOCABULARY.len())].as_bytes());
    }
    bytes.truncate(size);
    bytes
}
