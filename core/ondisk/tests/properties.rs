//! Every decoder takes any bytes: it may refuse, it may not panic; and what it accepted and wrote
//! again, it accepts as the same.

use proptest::collection::vec;
use proptest::prelude::*;
use tarn_ondisk::block_cloning::ClonedBlocks;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::{Bookmark, RedactedRun};
use tarn_ondisk::bpobj::PointerListHead;
use tarn_ondisk::bptree::{BlockTreeEntry, BlockTreeHead};
use tarn_ondisk::checksum::EmbeddedChecksum;
use tarn_ondisk::dataset::Dataset;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::deadlist::DeadlistHead;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::dedup::{self, DedupKey, FlatDedupValue, LegacyDedupValue};
use tarn_ondisk::dnode::{Dnode, walk_block};
use tarn_ondisk::gang::GangHeader;
use tarn_ondisk::indirect::{MappingHead, MovedRun};
use tarn_ondisk::label;
use tarn_ondisk::objset::{IntentLogHead, Objset};
use tarn_ondisk::scan::Scan;
use tarn_ondisk::space_map::{
    Action, Region, SpaceMapDecoder, SpaceMapEncoder, SpaceMapHead, SpaceMapVersion,
    TWO_WORD_RUN_MAX,
};
use tarn_ondisk::uberblock::{Multihost, Uberblock};
use tarn_ondisk::units::{AllocatedSize, Txg, VdevId, VdevOffset};

/// A run as the largest two-word entries cut it.
fn pieces(
    start: VdevOffset,
    size: AllocatedSize,
) -> impl Iterator<Item = (VdevOffset, AllocatedSize)> {
    let piece = TWO_WORD_RUN_MAX * 512;
    (0..size.div_ceil(piece)).map(move |index| {
        let before = AllocatedSize::from(index * piece);
        (
            start + before,
            (size - before).min(AllocatedSize::from(piece)),
        )
    })
}

fn order() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)]
}

/// Decodes; encodes what came out; decodes that, which must be the same. From little-endian bytes,
/// the same bytes must come out.
fn decodes_stably<T: Stored + PartialEq + std::fmt::Debug>(bytes: &[u8], order: ByteOrder) {
    let Ok(value) = T::from_bytes(bytes, order) else {
        assert!(
            bytes.len() < T::SIZE,
            "{} refuses nothing but too few bytes",
            T::NAME
        );
        return;
    };
    let encoded = value.to_bytes();
    assert_eq!(T::from_bytes(&encoded, ByteOrder::Little), Ok(value));
    if order == ByteOrder::Little {
        assert_eq!(encoded, bytes[..T::SIZE]);
    }
}

/// Calls everything a pointer can be asked.
fn ask_everything(pointer: &BlockPointer) {
    let _ = (
        pointer.to_string(),
        pointer.kind(),
        pointer.check(),
        pointer.payload(),
    );
    let _ = (
        pointer.allocated_size(),
        pointer.logical_size(),
        pointer.physical_size(),
    );
    let _ = (
        pointer.fill(),
        pointer.birth(),
        pointer.physical_birth(),
        pointer.is_metadata(),
    );
    for dva in pointer.dvas() {
        let _ = (dva.to_string(), dva.offset(), dva.vdev());
    }
}

proptest! {
    #[test]
    fn fixed_structures_decode_stably(bytes in vec(any::<u8>(), 0..600), order in order()) {
        decodes_stably::<BlockPointer>(&bytes, order);
        decodes_stably::<Uberblock>(&bytes, order);
        decodes_stably::<EmbeddedChecksum>(&bytes, order);
        decodes_stably::<DatasetDirectory>(&bytes, order);
        decodes_stably::<Dataset>(&bytes, order);
        decodes_stably::<DeadlistHead>(&bytes, order);
        decodes_stably::<PointerListHead>(&bytes, order);
        decodes_stably::<BlockTreeHead>(&bytes, order);
        decodes_stably::<BlockTreeEntry>(&bytes, order);
        decodes_stably::<Bookmark>(&bytes, order);
        decodes_stably::<RedactedRun>(&bytes, order);
        decodes_stably::<SpaceMapHead>(&bytes, order);
        decodes_stably::<DedupKey>(&bytes, order);
        decodes_stably::<LegacyDedupValue>(&bytes, order);
        decodes_stably::<FlatDedupValue>(&bytes, order);
        decodes_stably::<GangHeader>(&bytes, order);
        decodes_stably::<IntentLogHead>(&bytes, order);
        decodes_stably::<MappingHead>(&bytes, order);
        decodes_stably::<MovedRun>(&bytes, order);
        decodes_stably::<ClonedBlocks>(&bytes, order);
        decodes_stably::<Scan>(&bytes, order);
    }

    #[test]
    fn any_pointer_can_be_asked_anything(bytes in vec(any::<u8>(), 128), order in order()) {
        ask_everything(&BlockPointer::from_bytes(&bytes, order).unwrap());
    }

    #[test]
    fn bonuses_of_every_length_are_taken_or_refused(
        bytes in vec(any::<u8>(), 0..400),
        order in order(),
    ) {
        let _ = PointerListHead::from_bonus(&bytes, order);
        let _ = SpaceMapHead::from_bonus(&bytes, order);
        let _ = Bookmark::from_stored(&bytes, order);
        let _ = MappingHead::from_bonus(&bytes, order);
        let _ = dedup::split_value(&bytes);
        let _ = Uberblock::from_slot(&bytes);
        let _ = GangHeader::from_block(&bytes);
    }

    #[test]
    fn any_bytes_are_dnodes_or_refused(
        mut bytes in vec(any::<u8>(), 2048),
        pointer_count in 0u8..5,
        extra_slots in 0u8..5,
        bonus_length in 0u16..600,
        order in order(),
    ) {
        bytes[3] = pointer_count;
        bytes[12] = extra_slots;
        bytes[10..12].copy_from_slice(&bonus_length.to_le_bytes());
        if let Ok(dnode) = Dnode::from_slots(&bytes, order) {
            let _ = dnode.check();
            let encoded = dnode.to_slots();
            let again = Dnode::from_slots(&encoded, ByteOrder::Little).unwrap();
            prop_assert_eq!(again.to_slots(), encoded.clone());
            if order == ByteOrder::Little {
                prop_assert_eq!(&encoded[..], &bytes[..dnode.size()]);
            }
        }
        let _ = walk_block(&bytes, order).count();
    }

    #[test]
    fn any_bytes_are_an_object_set_or_refused(
        mut bytes in vec(any::<u8>(), 4096),
        size in prop_oneof![Just(1024usize), Just(2048), Just(4096), 0usize..4096],
        order in order(),
    ) {
        // Dnodes of plausible shape, or nearly nothing gets past them.
        for slot in [0, 1024, 1536, 2048] {
            bytes[slot + 3] = 1;
            bytes[slot + 10..slot + 13].fill(0);
        }
        if let Ok(objset) = Objset::from_block(&bytes[..size], order) {
            let encoded = objset.to_block();
            let again = Objset::from_block(&encoded, ByteOrder::Little).unwrap();
            prop_assert_eq!(again.to_block(), encoded);
        }
    }

    #[test]
    fn any_bytes_are_a_space_map_or_refused(
        bytes in vec(any::<u8>(), 0..300),
        shift in 0u32..80,
        order in order(),
    ) {
        let region = Region {
            start: VdevOffset::from(1 << 40),
            size: AllocatedSize::from(1 << 50),
            shift,
        };
        let _ = SpaceMapDecoder::new(region).entries(&bytes, order).count();
        let _ = SpaceMapDecoder::of_log().entries(&bytes, order).count();
    }

    #[test]
    fn a_label_area_is_taken_or_refused(bytes in vec(any::<u8>(), 0..9000)) {
        let _ = label::unpack_boot_environment(&bytes);
        let _ = label::unpack_configuration(&bytes);
    }

    #[test]
    fn multihost_words_come_back(word in any::<u64>()) {
        let multihost = Multihost::from_word(word);
        prop_assert_eq!(Multihost::from_word(multihost.to_word()), multihost);
    }

    #[test]
    fn runs_come_back_from_a_log_space_map(
        runs in vec((any::<bool>(), 0u64..1 << 24, 0u64..1 << 50, 1u64..1 << 38), 0..40),
        block_words in 2u64..20,
        txg in 1u64..1 << 50,
    ) {
        let block_bytes = block_words * 8;
        let mut encoder =
            SpaceMapEncoder::new(Region::LOG, SpaceMapVersion::V2, block_bytes, 0);
        let mut written = Vec::new();
        encoder.begin(Action::Free, Txg::from(txg), 1);
        for (frees, vdev, start, count) in runs {
            let action = if frees { Action::Free } else { Action::Allocate };
            let (vdev, start) = (VdevId::from(vdev), VdevOffset::from(start * 512));
            let size = AllocatedSize::from(count * 512);
            encoder.run(action, Some(vdev), start, size);
            written.extend(pieces(start, size).map(|(start, size)| (action, vdev, start, size)));
        }
        let bytes = encoder.finish();
        let mut decoder = SpaceMapDecoder::of_log();
        let mut read = Vec::new();
        for block in bytes.chunks(usize::try_from(block_bytes).unwrap()) {
            for entry in decoder.entries(block, ByteOrder::Little) {
                let entry = entry.unwrap();
                prop_assert_eq!(entry.txg, Txg::from(txg));
                read.push((entry.action, entry.vdev.unwrap(), entry.start, entry.size));
            }
        }
        prop_assert_eq!(read, written);
    }
}
