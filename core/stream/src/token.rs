//! Resume tokens: where a stream was cut, as text for users to copy from the receiver to the
//! sender.
//!
//! # Mechanism
//! ```text
//!   1-126d1a3c9a-118-789c636064000310a501c49c50360710a715e5e7...
//!   |     |       |    |
//!   |     |       |    the list, XDR, compressed by zlib, in hexadecimal
//!   |     |       its length before that
//!   |     first word of the fletcher4 of what is compressed
//!   version
//! ```
//!
//! The list has the stream's features (`compressok`, …) and the position to resume at (`object`,
//! `offset`, `bytes`), and names the snapshots (`toguid`, `toname`, `fromguid`).

use tarn_ondisk::nvlist::{Encoding, NvList};
use tarn_transform::checksum::ByteOrder;
use tarn_transform::checksum::fletcher::Fletcher4;
use tarn_transform::compress::{CompressionAlgorithm, compress, decompress};

/// The only version there is.
#[doc(alias = "ZFS_SEND_RESUME_TOKEN_VERSION")]
const VERSION: u64 = 1;

/// Longest list that is decompressed. Real ones have a few hundred bytes, and names of redaction
/// snapshots.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The stored code of zlib's usual level.
const GZIP_6: u8 = 10;

/// Why a token is bad, in OpenZFS's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// It does not have the form of a token.
    #[error("resume token is corrupt (invalid format)")]
    Format,
    /// It is of another version.
    #[error("resume token is corrupt (invalid version {0})")]
    Version(u64),
    /// It has a digit that is not hexadecimal.
    #[error("resume token is corrupt (payload is not hex-encoded)")]
    NotHexadecimal,
    /// Its checksum is wrong.
    #[error("resume token is corrupt (incorrect checksum)")]
    Checksum,
    /// Its contents cannot be decompressed.
    #[error("resume token is corrupt (decompression failed)")]
    Compression,
    /// Its contents are no list.
    #[error("resume token is corrupt (nvlist_unpack failed)")]
    List,
}

/// The list in a token.
///
/// # Errors
/// Why the token is bad.
#[doc(alias = "zfs_send_resume_token_to_nvlist")]
pub fn decode(token: &str) -> Result<NvList, BadToken> {
    let mut parts = token.splitn(4, '-');
    let mut number = |radix| {
        let part = parts.next().ok_or(BadToken::Format)?;
        u64::from_str_radix(part, radix).map_err(|_| BadToken::Format)
    };
    let (version, sum, length) = (number(10)?, number(16)?, number(16)?);
    let payload = parts.next().ok_or(BadToken::Format)?;
    if version != VERSION {
        return Err(BadToken::Version(version));
    }
    let packed = unhex(payload)?;
    if sum_of(&packed) != sum {
        return Err(BadToken::Checksum);
    }
    if length > LIST_BYTES_MAX {
        return Err(BadToken::Compression);
    }
    let mut list = vec![0; usize::try_from(length).map_err(|_| BadToken::Compression)?];
    decompress(gzip(), &packed, &mut list).map_err(|_| BadToken::Compression)?;
    NvList::decode(&list).map_err(|_| BadToken::List)
}

/// The token of a list.
pub fn encode(list: &NvList) -> String {
    let plain = list.encode(Encoding::Xdr);
    // Short lists may grow, but not by that much.
    let packed = compress(gzip(), &plain, plain.len() * 2 + 64).expect("there is room");
    let digits: String = packed.iter().map(|byte| format!("{byte:02x}")).collect();
    let (sum, length) = (sum_of(&packed), plain.len());
    format!("{VERSION}-{sum:x}-{length:x}-{digits}")
}

fn gzip() -> CompressionAlgorithm {
    CompressionAlgorithm::from_code(GZIP_6).expect("gzip is known")
}

fn unhex(text: &str) -> Result<Vec<u8>, BadToken> {
    let pairs = text.as_bytes().chunks_exact(2);
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs
        .map(|pair| {
            let value = digit(pair[0])? << 4 | digit(pair[1])?;
            u8::try_from(value).ok()
        })
        .collect::<Option<Vec<u8>>>()
        .ok_or(BadToken::NotHexadecimal)
}

/// The checksum of whole words: bytes after the last whole word do not count.
fn sum_of(bytes: &[u8]) -> u64 {
    let whole = bytes.len() / 4 * 4;
    let mut sum = Fletcher4::new();
    sum.update(&bytes[..whole], ByteOrder::Little);
    sum.finish().0[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by OpenZFS 2.3.2.
    const TOKEN: &str = "1-1051caa060-118-789c636064000310a501c49c50360710a715e5e7a69766a6304001ebb2af72b9bf4aed15806c762475f94959a9c9250c0c4c4c107518f26969c5a9250c7000926743924faa2c492d0689a7b163d55f920f71c5a5b3ea8bf28deeedd54092e704cbe725e6a602ed29cfd34f74283682d92301d50ff35f6a6e526a4a7e36d87c6e24f1e4fcdc82a2d4e262a0141c00004dc42408";

    #[test]
    fn a_token_of_openzfs_says_where_to_go_on() {
        let list = decode(TOKEN).unwrap();
        assert_eq!(list.u64("object"), Ok(514));
        assert_eq!(list.u64("bytes"), Ok(484_896));
        assert_eq!(list.string("toname"), Ok("own/a@s2"));
        assert!(list.contains("embedok") && list.contains("compressok"));
    }

    #[test]
    fn an_encoded_token_decodes() {
        let mut list = NvList::new()
            .with("object", 7u64)
            .with("toname", "tank/a@b");
        list.set_flag("rawok");
        assert_eq!(decode(&encode(&list)), Ok(list));
    }

    #[test]
    fn a_damaged_token_is_refused() {
        let changed = TOKEN.replace("789c63", "789c64");
        for (token, expected) in [
            ("abc", BadToken::Format),
            ("1-0-0", BadToken::Format),
            ("2-0-0-00", BadToken::Version(2)),
            ("1-0-0-xx", BadToken::NotHexadecimal),
            ("1-0-10-", BadToken::Compression),
            (changed.as_str(), BadToken::Checksum),
        ] {
            assert_eq!(decode(token), Err(expected), "{token}");
        }
    }
}
