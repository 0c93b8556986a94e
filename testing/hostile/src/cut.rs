//! Cuts the structures of pools out, for the fuzzing of decoders to begin with.
//!
//! # Mechanism
//! The blocks of a pool are walked as for lies, and from each pool some pieces of each kind are
//! taken, spread over all that were found. What is cut is what was there: OpenZFS's own structures
//! from fixtures, ours from a pool made here.

use crate::devices::Devices;
use crate::images::Base;
use crate::lie::{CORE_BYTES, Kind, Liar, POINTER_BYTES, SLOT_BYTES};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use tarn_fuzz::piece::{self, Piece};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{ByteOrder, narrow};
use tarn_ondisk::dnode::walk_block;
use tarn_ondisk::intent_log::{LogBlock, LogForm};
use tarn_ondisk::label::{CONFIGURATION_BYTES, CONFIGURATION_OFFSET};
use tarn_ondisk::objset::Objset;

/// So many pieces of a kind are taken from a pool.
const PIECES_MAX: usize = 12;
/// The search takes no longer inputs; a block of a ZAP is whole.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// Compressed blocks are taken up to this size.
const STORED_BYTES_MAX: usize = 8 << 10;
/// So many blocks of one log are looked at.
const LOG_BLOCKS_MAX: usize = 64;

/// The pieces of a pool, and how many are taken of each kind.
#[derive(Default)]
struct Pieces {
    by_kind: BTreeMap<piece::Kind, Vec<Vec<u8>>>,
}

impl Pieces {
    fn add(&mut self, kind: piece::Kind, bytes: &[u8]) {
        let bytes = bytes[..bytes.len().min(PIECE_BYTES_MAX)].to_vec();
        let known = self.by_kind.entry(kind).or_default();
        if !known.contains(&bytes) {
            known.push(bytes);
        }
    }

    /// Some of each kind, spread over all.
    fn chosen(self) -> Vec<Piece> {
        let mut chosen = Vec::new();
        for (kind, all) in self.by_kind {
            let step = all.len().div_ceil(PIECES_MAX);
            let some = all.into_iter().step_by(step);
            chosen.extend(some.map(|bytes| Piece { kind, bytes }));
        }
        chosen
    }
}

/// Cuts pieces out of a pool. None where its blocks cannot be found.
pub fn cut(base: &Base) -> Option<Vec<Piece>> {
    let devices = base.devices(&base.machine(1));
    let liar = Liar::new(&devices, None)?;
    let mut pieces = Pieces::default();
    pieces.add(piece::Kind::Uberblock, &liar.uberblock().to_slot(1 << 10));
    labels(&devices, &mut pieces);
    // A pool has thousands of blocks of few kinds.
    for indexes in liar.by_kind().into_values() {
        let step = indexes.len().div_ceil(4 * PIECES_MAX);
        for index in indexes.into_iter().step_by(step) {
            block(&liar, index, &mut pieces);
        }
    }
    Some(pieces.chosen())
}

fn labels(devices: &Devices, pieces: &mut Pieces) {
    for number in 0..devices.count() {
        let disk = &devices.disk(number).disk;
        let area = disk.peek(CONFIGURATION_OFFSET, narrow(CONFIGURATION_BYTES) - 40);
        pieces.add(piece::Kind::Label, without_zeros(&area));
    }
}

fn block(liar: &Liar<'_>, index: usize, pieces: &mut Pieces) {
    let found = &liar.blocks[index];
    pieces.add(piece::Kind::Pointer, &bytes_of(&found.pointer));
    let is_compressed = !matches!(
        found.pointer.compression(),
        Compression::Off | Compression::Empty
    );
    if is_compressed
        && let Some(stored) = liar.read_stored(&found.pointer)
        && stored.len() <= STORED_BYTES_MAX
    {
        let size = u32::try_from(found.pointer.logical_size().to_usize()).unwrap_or(0);
        let code = found.pointer.compression().code();
        pieces.add(
            piece::Kind::Stored(code),
            &[&size.to_le_bytes(), without_zeros(&stored)].concat(),
        );
    }
    let Some(contents) = liar.contents(index) else {
        return;
    };
    match found.kind {
        Kind::Objset => {
            pieces.add(piece::Kind::Objset, &contents);
            if let Ok(objset) = Objset::from_block(&contents, ByteOrder::Little) {
                log(liar, objset.intent_log.first, pieces);
            }
        }
        Kind::Dnodes => dnodes(&contents, pieces),
        Kind::Spill => pieces.add(piece::Kind::Spill, &contents),
        Kind::Data(code) => {
            // Lists and records end somewhere in their block; a ZAP's block is whole.
            let is_zap = contents
                .first_chunk()
                .is_some_and(|word| u64::from_le_bytes(*word) >> 63 == 1);
            let bytes = if is_zap {
                &contents[..]
            } else {
                without_zeros(&contents)
            };
            pieces.add(piece::Kind::Data(code), bytes);
        }
        Kind::Indirect => {}
    }
}

fn dnodes(block: &[u8], pieces: &mut Pieces) {
    for (slot, dnode) in walk_block(block, ByteOrder::Little) {
        let Ok(dnode) = dnode else { return };
        let start = slot * SLOT_BYTES;
        pieces.add(piece::Kind::Dnode, &block[start..start + dnode.size()]);
        if !dnode.bonus().is_empty() {
            pieces.add(piece::Kind::Bonus(dnode.bonus_type.code()), dnode.bonus());
        }
        for number in 0..dnode.pointers.len() {
            let at = start + CORE_BYTES + number * POINTER_BYTES;
            pieces.add(piece::Kind::Pointer, &block[at..at + POINTER_BYTES]);
        }
    }
}

/// Follows a log as far as its blocks say where the next is.
fn log(liar: &Liar<'_>, first: BlockPointer, pieces: &mut Pieces) {
    let mut next = first;
    for _ in 0..LOG_BLOCKS_MAX {
        let Some(form) = LogForm::of_checksum(next.checksum_kind()) else {
            return;
        };
        let Some(stored) = liar.read_stored(&next) else {
            return;
        };
        let Ok(block) = LogBlock::decode(&stored, form) else {
            return;
        };
        if form == LogForm::Zilog2 {
            pieces.add(piece::Kind::LogBlock, without_zeros(&stored));
        }
        next = block.chain.next;
    }
}

fn bytes_of(pointer: &BlockPointer) -> Vec<u8> {
    use tarn_ondisk::declare::Stored;
    pointer.to_bytes()
}

/// Up to the last byte that is not zero, and to a whole word.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    &bytes[..end.next_multiple_of(8).min(bytes.len())]
}

/// Writes the pieces of many pools into a folder, which appears when all are there.
///
/// # Errors
/// When it cannot be written.
pub fn write(pieces: &[Piece], folder: &Path) -> io::Result<()> {
    let aside = folder.with_extension("new");
    std::fs::create_dir_all(&aside)?;
    for (number, piece) in pieces.iter().enumerate() {
        std::fs::write(aside.join(piece.file_name(number)), &piece.bytes)?;
    }
    std::fs::rename(aside, folder)
}
