//! Blocks that OpenZFS wrote: their checksums verify, they expand to what they held, and their rows
//! come back from any columns left. Each has a twin with a byte damaged, which is refused.
//!
//! The files are described in the tables beside them, `golden/*.txt`.

use std::path::PathBuf;
use tarn_transform::checksum::{self, embedded};
use tarn_transform::compress::{self, zstd};
use tarn_transform::{
    ByteOrder, Checksum, ChecksumAlgorithm, ChecksumError, CompressionAlgorithm, Salt, ZstdLevel,
    parity,
};

/// The salt of the pool that the blocks are from.
const SALT: &str = "901f3fac752d8a11a3e99c97c255b27f559c6883dd71dc26bc1087bcb1f842b2";

fn golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a table, cut into fields.
fn table(name: &str) -> Vec<Vec<String>> {
    let text = String::from_utf8(golden(name)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<Vec<String>> = lines
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect();
    assert!(!rows.is_empty());
    rows
}

fn bytes_of_hex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect()
}

fn salt() -> Salt {
    Salt::new(bytes_of_hex(SALT).try_into().unwrap())
}

fn checksum_of_hex(words: &str) -> Checksum {
    let words: Vec<u64> = words
        .split(':')
        .map(|word| u64::from_str_radix(word, 16).unwrap())
        .collect();
    Checksum(words.try_into().unwrap())
}

fn checksum_named(name: &str) -> ChecksumAlgorithm {
    ChecksumAlgorithm::ALL
        .into_iter()
        .find(|algorithm| algorithm.name() == name)
        .unwrap()
}

fn compression_named(name: &str) -> CompressionAlgorithm {
    (2..=16)
        .map(|code| CompressionAlgorithm::from_code(code).unwrap())
        .find(|algorithm| algorithm.name() == name)
        .unwrap()
}

#[test]
fn blocks_of_every_checksum_verify_and_damaged_ones_do_not() {
    let salt = salt();
    for row in table("blocks.txt") {
        let [name, algorithm, _, _, words, _] = &row[..] else {
            panic!("{row:?}")
        };
        let (algorithm, expected) = (checksum_named(algorithm), checksum_of_hex(words));
        let mut block = golden(&format!("{name}.block"));
        let verify =
            |block: &[u8], order| checksum::verify(algorithm, block, order, Some(&salt), &expected);
        assert_eq!(verify(&block, ByteOrder::Little), Ok(()), "{name}");
        if algorithm != ChecksumAlgorithm::Sha256 {
            assert!(verify(&block, ByteOrder::Big).is_err(), "{name}");
        }
        block[77] ^= 4;
        assert!(
            matches!(
                verify(&block, ByteOrder::Little),
                Err(ChecksumError::Mismatch { .. })
            ),
            "{name}"
        );
    }
}

#[test]
fn blocks_of_every_compression_expand_to_what_they_held() {
    for row in table("blocks.txt") {
        let [name, _, algorithm, size, _, digest] = &row[..] else {
            panic!("{row:?}")
        };
        let mut block = vec![0xaa; size.parse().unwrap()];
        let stored = golden(&format!("{name}.block"));
        compress::decompress(compression_named(algorithm), &stored, &mut block).unwrap();
        let found = checksum::sha2::sha256(&[&block]);
        assert_eq!(found.as_slice(), bytes_of_hex(digest), "{name}");
    }
}

#[test]
fn blocks_are_compressed_by_lz4_to_what_openzfs_stored() {
    let mut compared = 0;
    for row in table("blocks.txt") {
        let [name, _, algorithm, size, _, _] = &row[..] else {
            panic!("{row:?}")
        };
        if algorithm != "lz4" {
            continue;
        }
        let mut block = vec![0; size.parse().unwrap()];
        let mut stored = golden(&format!("{name}.block"));
        compress::decompress(CompressionAlgorithm::Lz4, &stored, &mut block).unwrap();
        let limit = block.len() - block.len() / 8;
        let ours = compress::compress(CompressionAlgorithm::Lz4, &block, limit).unwrap();
        assert!(stored.len() - ours.len() < 4096, "{name}");
        let padding = stored.split_off(ours.len());
        assert!(ours == stored, "{name}");
        assert!(padding.iter().all(|byte| *byte == 0), "{name}");
        compared += 1;
    }
    assert!(compared > 1);
}

#[test]
fn a_zstd_block_tells_the_level_it_was_written_at() {
    assert_eq!(
        zstd::stored_level(&golden("zstd.block")),
        Ok(ZstdLevel::DEFAULT)
    );
}

/// Every byte of every block is damaged in turn: decoders may refuse, or give other bytes, and that
/// is all.
#[test]
fn damaged_blocks_do_no_harm() {
    for row in table("blocks.txt") {
        let [name, _, algorithm, size, _, _] = &row[..] else {
            panic!("{row:?}")
        };
        let algorithm = compression_named(algorithm);
        let mut stored = golden(&format!("{name}.block"));
        let mut block = vec![0; size.parse().unwrap()];
        for at in (0..stored.len()).filter(|at| *at < 64 || at % 61 == 0) {
            for flip in [0x01, 0x80, 0xff] {
                stored[at] ^= flip;
                let _ = compress::decompress(algorithm, &stored, &mut block);
                stored[at] ^= flip;
            }
        }
    }
}

#[test]
fn blocks_that_carry_their_checksum_verify_in_their_place_only() {
    for row in table("embedded.txt") {
        let [name, algorithm, words @ ..] = &row[..] else {
            panic!("{row:?}")
        };
        let words: Vec<u64> = words.iter().map(|word| word.parse().unwrap()).collect();
        let verifier = Checksum(words.try_into().unwrap());
        let algorithm = checksum_named(algorithm);
        let mut block = golden(&format!("{name}.block"));
        assert_eq!(
            embedded::verify(algorithm, &block, &verifier),
            Ok(ByteOrder::Little),
            "{name}"
        );

        let mut elsewhere = verifier;
        elsewhere.0[0] += 1024;
        assert!(
            embedded::verify(algorithm, &block, &elsewhere).is_err(),
            "{name}"
        );

        let original = block.clone();
        embedded::seal(algorithm, &mut block, &verifier, ByteOrder::Little);
        assert!(block == original, "sealing {name} again changes nothing");

        block[3] ^= 1;
        assert!(
            embedded::verify(algorithm, &block, &verifier).is_err(),
            "{name}"
        );
    }
}

#[test]
fn rows_have_the_parity_we_would_make_and_come_back_from_what_is_left() {
    for row in table("rows.txt") {
        let [name, parity_count, algorithm, words, sizes @ ..] = &row[..] else {
            panic!("{row:?}")
        };
        let parity_count: usize = parity_count.parse().unwrap();
        let bytes = golden(&format!("{name}.row"));
        let mut rest = bytes.as_slice();
        let mut columns: Vec<&[u8]> = Vec::new();
        for size in sizes {
            let (column, after) = rest.split_at(size.parse().unwrap());
            columns.push(column);
            rest = after;
        }
        let (stored_parity, data) = columns.split_at(parity_count);

        let expected = checksum_of_hex(words);
        let block = data.concat();
        let verdict = checksum::verify(
            checksum_named(algorithm),
            &block,
            ByteOrder::Little,
            None,
            &expected,
        );
        assert_eq!(verdict, Ok(()), "{name}");

        let mut made: Vec<Vec<u8>> = stored_parity
            .iter()
            .map(|column| vec![0; column.len()])
            .collect();
        let mut places: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        parity::generate(data, &mut places);
        assert!(made == stored_parity, "{name}");

        for missing in subsets(columns.len(), parity_count) {
            let mut outputs: Vec<Vec<u8>> = missing
                .iter()
                .map(|column| vec![0; columns[*column].len()])
                .collect();
            let mut places: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
            parity::reconstruct(parity_count, &columns, &missing, &mut places).unwrap();
            for (column, output) in missing.iter().zip(&outputs) {
                assert!(
                    output == columns[*column],
                    "{name}: column {column} of {missing:?}"
                );
            }
        }
    }
}

/// All sets of up to `most` of the numbers below `count`.
fn subsets(count: usize, most: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for number in 0..count {
        let grown: Vec<Vec<usize>> = all
            .iter()
            .filter(|set| set.len() < most)
            .map(|set| set.iter().copied().chain([number]).collect())
            .collect();
        all.extend(grown);
    }
    all
}
