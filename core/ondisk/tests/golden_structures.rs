//! Bytes that OpenZFS 2.3.2 wrote, against what its `zdb` said of them; and the same bytes damaged.
//!
//! `golden/` holds pieces of the pools *basic* (ashift 12, all features), *gang*, *dedup* and *v28*
//! that the testing fixtures describe: label 0 and its uberblock, blocks as they are after
//! decompression.

use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::bpobj::{PointerListHead, PointerListVersion};
use tarn_ondisk::checksum::{Checksum, ChecksumKind, EmbeddedChecksum, label_verifier};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::dataset::{Dataset, DatasetFlags};
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::deadlist::DeadlistHead;
use tarn_ondisk::declare::{ByteOrder, Corrupt, Stored};
use tarn_ondisk::dnode::{Dnode, DnodeFlags, SLOT_BYTES, walk_block};
use tarn_ondisk::gang::GangHeader;
use tarn_ondisk::label;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::{Accounting, Objset, ObjsetFlags, ObjsetType};
use tarn_ondisk::space_map::{
    Action, Entry, Region, SpaceMapDecoder, SpaceMapEncoder, SpaceMapHead, SpaceMapVersion,
};
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg, VdevOffset};

const LITTLE: ByteOrder = ByteOrder::Little;

#[test]
fn an_uberblock_is_what_zdb_says() {
    let slot = include_bytes!("golden/uberblock-basic.bin");
    let (uberblock, order) = Uberblock::from_slot(slot).unwrap();
    assert_eq!(order, LITTLE);
    assert_eq!(uberblock.version, 5000);
    assert_eq!(uberblock.txg, Txg::from(139));
    assert_eq!(uberblock.guid_sum, Guid::from(10_510_706_046_015_155_194));
    assert_eq!(uberblock.timestamp_s, 1_795_191_960);
    assert_eq!(
        uberblock.root.to_string(),
        "DVA[0]=<0:26db000:1000> DVA[1]=<0:9425000:1000> DVA[2]=<0:4251000:1000> \
         [L0 DMU objset] fletcher4 uncompressed unencrypted LE contiguous unique triple \
         size=1000L/1000P birth=139L/139P fill=200 \
         cksum=00000001ce4fd835:000006f2acce1cf8:000d6145afc85f49:1132314fcf93591e"
    );
    assert_eq!(uberblock.root.check(), Ok(()));
    assert!(uberblock.multihost().is_some());
    assert!(!uberblock.is_checkpoint());
    assert_eq!(uberblock.reflow().offset_bytes, 0);

    let (tail, _) = EmbeddedChecksum::of_block("uberblock", slot).unwrap();
    let mut back = uberblock.to_slot(4096);
    tail.write_to_end_of(&mut back);
    assert_eq!(back, slot);
    let ring = label::Ring::new(12);
    assert_eq!(
        ring.slot_offset(ring.slot_of(uberblock.txg)),
        (128 << 10) + 11 * 4096
    );
}

#[test]
fn an_uberblock_of_an_old_pool_is_what_zdb_says() {
    let slot = include_bytes!("golden/uberblock-v28.bin");
    let (uberblock, _) = Uberblock::from_slot(slot).unwrap();
    assert_eq!((uberblock.version, uberblock.txg), (28, Txg::from(50)));
    assert_eq!(uberblock.guid_sum, Guid::from(6_652_030_814_801_307_475));
    assert_eq!(
        uberblock.root.to_string(),
        "DVA[0]=<0:a9ba00:200> DVA[1]=<0:1205c00:200> DVA[2]=<0:20a4a00:200> \
         [L0 DMU objset] fletcher4 lzjb unencrypted LE contiguous unique triple \
         size=1000L/200P birth=50L/50P fill=59 \
         cksum=0000001918828a0e:0000091d175ec923:0001b43126daaedb:0037efb825899009"
    );
    let (tail, _) = EmbeddedChecksum::of_block("uberblock", slot).unwrap();
    let mut back = uberblock.to_slot(1024);
    tail.write_to_end_of(&mut back);
    assert_eq!(back, slot);
}

/// The words of a whole structure reversed are what a big-endian machine stores.
#[test]
fn an_uberblock_of_the_other_byte_order_is_the_same() {
    let slot = include_bytes!("golden/uberblock-basic.bin");
    let (uberblock, _) = Uberblock::from_slot(slot).unwrap();
    let mut swapped = slot.to_vec();
    swapped.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    assert_eq!(
        Uberblock::from_slot(&swapped),
        Ok((uberblock, ByteOrder::Big))
    );
    let (_, order) = EmbeddedChecksum::of_block("uberblock", &swapped).unwrap();
    assert_eq!(order, ByteOrder::Big);
}

#[test]
fn an_uberblock_with_a_damaged_magic_number_is_refused() {
    let mut slot = include_bytes!("golden/uberblock-basic.bin").to_vec();
    slot[1] ^= 0x10;
    assert!(matches!(
        Uberblock::from_slot(&slot),
        Err(Corrupt::Magic { .. })
    ));
}

/// The area is stored here without the zeros in its middle.
#[test]
fn a_label_configuration_comes_apart_and_together() {
    let start = include_bytes!("golden/label-basic-start.bin");
    let end = include_bytes!("golden/label-basic-end.bin");
    let mut area = vec![0; 112 << 10];
    area[..start.len()].copy_from_slice(start);
    area[(112 << 10) - end.len()..].copy_from_slice(end);

    let unpacked = label::unpack_configuration(&area).unwrap();
    assert_eq!(unpacked.order, LITTLE);
    assert_eq!(unpacked.contents[..start.len()], *start);
    assert_ne!(unpacked.tail.checksum, Checksum::ZERO);
    let mut back = label::pack_configuration(start).unwrap();
    unpacked.tail.write_to_end_of(&mut back);
    assert_eq!(back, area);
    assert_eq!(label_verifier(16 << 10), Checksum([16 << 10, 0, 0, 0]));

    let tail = area.len() - 40;
    area[tail] ^= 1;
    assert!(matches!(
        label::unpack_configuration(&area),
        Err(Corrupt::Magic { .. })
    ));
}

#[test]
fn the_meta_object_set_is_what_zdb_says() {
    let block = include_bytes!("golden/objset-mos.bin");
    let objset = Objset::from_block(block, LITTLE).unwrap();
    assert_eq!(objset.objset_type, ObjsetType::Meta);
    let meta = &objset.meta_dnode;
    assert_eq!(meta.object_type, ObjectType::Dnode);
    assert_eq!((meta.levels, meta.indirect_shift), (2, 17));
    assert_eq!(meta.data_block_size.get(), 16 << 10);
    assert_eq!(meta.used.get(), 144 << 10);
    assert_eq!(meta.max_block.get(), 12);
    assert_eq!(meta.check(), Ok(()));
    assert_eq!(objset.to_block(), block);
}

#[test]
fn an_object_set_of_files_is_what_zdb_says() {
    let block = include_bytes!("golden/objset-zfs.bin");
    let objset = Objset::from_block(block, LITTLE).unwrap();
    assert_eq!(objset.objset_type, ObjsetType::Zfs);
    assert!(objset.flags.contains(ObjsetFlags::USER_ACCOUNTING_COMPLETE));
    assert!(objset.flags.contains(ObjsetFlags::PROJECT_QUOTA_COMPLETE));
    let Accounting::Projects {
        user,
        group,
        project,
    } = &objset.accounting
    else {
        panic!("4 KiB have accounting by project");
    };
    for dnode in [user, group, project] {
        assert_eq!(dnode.object_type, ObjectType::UserUsed);
    }
    assert_eq!(objset.to_block(), block);
}

#[test]
fn an_object_set_with_a_damaged_dnode_is_refused() {
    let mut block = include_bytes!("golden/objset-zfs.bin").to_vec();
    block[3] = 4;
    let refused = Objset::from_block(&block, LITTLE);
    assert!(matches!(
        refused,
        Err(Corrupt::Value {
            field: "pointer count",
            found: 4,
            ..
        })
    ));
}

/// Objects 32, 48, 49, 54, 60, 61, 62 and 138 of the MOS.
fn mos_dnodes() -> Vec<Dnode> {
    let bytes = include_bytes!("golden/dnodes-mos.bin");
    let dnodes: Vec<_> = bytes
        .chunks_exact(SLOT_BYTES)
        .map(|slot| Dnode::from_slots(slot, LITTLE).unwrap())
        .collect();
    for (dnode, slot) in dnodes.iter().zip(bytes.chunks_exact(SLOT_BYTES)) {
        assert_eq!(dnode.to_slots(), slot);
        assert_eq!(dnode.check(), Ok(()));
    }
    dnodes
}

#[test]
fn dnodes_of_the_meta_object_set_are_what_zdb_says() {
    let types: Vec<_> = mos_dnodes().iter().map(|dnode| dnode.object_type).collect();
    use ObjectType::*;
    assert_eq!(
        types,
        [
            DslDirectory,
            DslDataset,
            DeadlistMap,
            ZapMetadata,
            History,
            PackedNvlist,
            BlockPointerList,
            SpaceMap
        ]
    );
    let space_map = &mos_dnodes()[7];
    assert_eq!((space_map.levels, space_map.indirect_shift), (1, 14));
    assert_eq!(space_map.data_block_size.get(), 128 << 10);
    assert_eq!(space_map.used.get(), 12 << 10);
    assert_eq!(space_map.bonus_type, ObjectType::SpaceMapHeader);
    assert!(space_map.flags.contains(DnodeFlags::USED_BYTES));
    assert_eq!(space_map.pointers[0].birth(), Txg::from(38));
}

#[test]
fn a_dataset_directory_is_what_zdb_says() {
    let dnode = &mos_dnodes()[0];
    let directory = DatasetDirectory::from_bytes(dnode.bonus(), LITTLE).unwrap();
    assert_eq!(directory.head_dataset, ObjectId::from(54));
    assert_eq!(directory.parent, ObjectId::ZERO);
    assert_eq!(directory.origin, ObjectId::from(48));
    assert_eq!(directory.children, ObjectId::from(34));
    assert_eq!(directory.properties, ObjectId::from(33));
    let tenths_of_mib = (directory.used.get() * 10 + (1 << 19)) >> 20;
    assert_eq!(tenths_of_mib, 459);
    assert_eq!(directory.flags, DatasetDirectory::HAS_USED_BREAKDOWN);
    let used_by = directory.used_by;
    let sum = used_by.head + used_by.snapshots + used_by.children;
    assert_eq!(
        sum + used_by.child_reservations + used_by.ref_reservation,
        directory.used
    );
    assert_eq!(directory.to_bytes(), dnode.bonus());
}

#[test]
fn datasets_are_what_zdb_says() {
    let dnodes = mos_dnodes();
    let origin = Dataset::from_bytes(dnodes[1].bonus(), LITTLE).unwrap();
    assert!(origin.is_snapshot());
    assert_eq!(origin.child_count, 23);
    assert_eq!(origin.next_clones, ObjectId::from(58));
    assert_eq!(origin.guid, Guid::from(6_355_440_718_477_716_633));
    assert_eq!(
        origin.root.to_string(),
        "HOLE [L0 unallocated] size=200L birth=0L"
    );

    let head = Dataset::from_bytes(dnodes[3].bonus(), LITTLE).unwrap();
    assert!(!head.is_snapshot());
    assert_eq!(head.directory, ObjectId::from(32));
    assert_eq!(head.previous_snapshot, ObjectId::from(48));
    assert_eq!(head.snapshot_names, ObjectId::from(55));
    assert_eq!(head.deadlist, ObjectId::from(56));
    assert_eq!(head.referenced, AllocatedSize::from(112 << 10));
    assert_eq!(head.compressed.get(), 48_640);
    assert_eq!(head.fsid, Guid::from(29_557_374_289_711_616));
    assert_eq!(head.guid, Guid::from(14_516_726_832_257_825_122));
    assert_eq!(head.flags, DatasetFlags::UNIQUE_ACCURATE);
    assert_eq!(head.root.birth(), Txg::from(93));
    assert_eq!(head.to_bytes(), dnodes[3].bonus());
}

#[test]
fn heads_of_pointer_lists_and_deadlists_are_what_zdb_says() {
    let dnodes = mos_dnodes();
    let (head, version) = PointerListHead::from_bonus(dnodes[6].bonus(), LITTLE).unwrap();
    assert_eq!(version, PointerListVersion::Nested);
    assert!(head.is_empty());
    assert_eq!(head.to_bonus(version), dnodes[6].bonus());

    let head = DeadlistHead::from_bytes(dnodes[2].bonus(), LITTLE).unwrap();
    assert_eq!(head, DeadlistHead::default());
}

#[test]
fn large_dnodes_and_spill_pointers_are_what_zdb_says() {
    let block = include_bytes!("golden/dnodes-file.bin");
    let dnodes: Vec<_> = walk_block(block, LITTLE)
        .map(|(slot, dnode)| (slot, dnode.unwrap()))
        .collect();
    let slots: Vec<_> = dnodes.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, [0, 2, 4, 6]);

    let (_, small) = &dnodes[0];
    assert_eq!(small.bonus().len(), 176);
    assert_eq!(small.pointers[0].kind(), PointerKind::Embedded);
    assert_eq!(small.pointers[0].payload().unwrap().bytes().len(), 0x5a);

    let (_, spilled) = &dnodes[3];
    assert_eq!((spilled.size(), spilled.bonus().len()), (1024, 704));
    assert_eq!(spilled.bonus_type, ObjectType::SystemAttributes);
    assert_eq!(spilled.used.get(), 28 << 10);
    assert!(spilled.flags.contains(DnodeFlags::OBJECT_ACCOUNTED));
    assert_eq!(
        compact(&spilled.spill.unwrap()),
        "0:362f000:3000 0:1584000:3000 2600L/2600P F=1 B=49/49 \
         cksum=f63058cefd08adb6:db9672a6375a2b7b:9fea4c3e97c296cb:42d9dfe8038c82fd"
    );

    let mut back = vec![0; block.len()];
    for (slot, dnode) in &dnodes {
        dnode.write_to_slots(&mut back[slot * SLOT_BYTES..]);
    }
    assert_eq!(back, block);
}

#[test]
fn a_large_dnode_that_claims_another_slot_is_found_out() {
    let mut block = include_bytes!("golden/dnodes-file.bin").to_vec();
    block[6 * SLOT_BYTES + 12] = 2;
    let last = walk_block(&block, LITTLE).last().unwrap();
    assert!(matches!(last, (6, Err(Corrupt::Truncated { .. }))));
}

/// As `zdb -ddddd` prints the pointers of an object.
fn compact(pointer: &BlockPointer) -> String {
    let places: String = pointer
        .dvas()
        .map(|dva| {
            format!(
                "{}:{:x}:{:x} ",
                dva.vdev(),
                dva.offset(),
                dva.allocated_size()
            )
        })
        .collect();
    format!(
        "{places}{:x}L/{:x}P F={} B={}/{} cksum={}",
        pointer.logical_size(),
        pointer.physical_size(),
        pointer.fill(),
        pointer.logical_birth,
        pointer.physical_birth(),
        pointer.checksum(),
    )
}

/// A ganged, an embedded, a deduplicated and an indirect block.
#[test]
fn pointers_of_every_kind_are_what_zdb_says() {
    let bytes = include_bytes!("golden/pointers.bin");
    let pointers: Vec<_> = bytes
        .chunks_exact(128)
        .map(|bytes| BlockPointer::from_bytes(bytes, LITTLE).unwrap())
        .collect();
    for (pointer, bytes) in pointers.iter().zip(bytes.chunks_exact(128)) {
        assert_eq!(pointer.check(), Ok(()));
        assert_eq!(pointer.to_bytes(), bytes);
    }
    let [gang, embedded, dedup, indirect] = pointers[..] else {
        panic!("there are four")
    };

    assert!(gang.is_gang());
    assert_eq!(
        compact(&gang),
        "0:2fc00:4200 0:101b000:200 4000L/4000P F=1 B=10/10 \
         cksum=000008009130798c:00402e8cfb800aa2:568fb281a7ae45a9:2598d4606a00570a"
    );
    assert_eq!(
        embedded.to_string(),
        "EMBEDDED [L0 DSL dataset snap map] et=0 lz4 size=200L/32P birth=4L"
    );
    let payload = embedded.payload().unwrap();
    let rebuilt = BlockPointer::embedded(
        payload.bytes(),
        embedded.logical_size(),
        embedded.compression(),
        embedded.object_type(),
        embedded.level(),
        embedded.logical_birth,
    );
    assert_eq!(rebuilt, embedded);

    assert!(dedup.is_dedup());
    assert_eq!(dedup.checksum_kind(), ChecksumKind::Sha256);
    assert_eq!(
        compact(&dedup),
        "0:7d000:1000 200L/200P F=1 B=10/10 \
         cksum=5cd77fa980634bb6:e71a42f6ee1d01f9:b1ef1b3d6a863589:1428fd13f7463ddc"
    );
    assert_eq!(indirect.level().get(), 1);
    assert_eq!(indirect.compression(), Compression::Lz4);
    assert_eq!(indirect.fill(), 200);
}

#[test]
fn a_pointer_rebuilt_from_its_parts_is_the_same() {
    let bytes = include_bytes!("golden/pointers.bin");
    let indirect = BlockPointer::from_bytes(&bytes[384..], LITTLE).unwrap();
    let dvas: Vec<_> = indirect.dvas().collect();
    let rebuilt = BlockPointer::stored(&tarn_ondisk::block_pointer::StoredBlock {
        dvas: &dvas,
        logical_size: indirect.logical_size(),
        physical_size: indirect.physical_size(),
        compression: indirect.compression(),
        checksum_kind: indirect.checksum_kind(),
        checksum: indirect.checksum(),
        object_type: indirect.object_type(),
        level: indirect.level(),
        birth: indirect.birth(),
        fill: indirect.fill(),
    });
    assert_eq!(rebuilt, indirect);
}

#[test]
fn a_pointer_with_a_damaged_byte_is_refused_when_checked() {
    let mut bytes = include_bytes!("golden/pointers.bin")[384..].to_vec();
    bytes[54] = 0x7f;
    let pointer = BlockPointer::from_bytes(&bytes, LITTLE).unwrap();
    assert!(matches!(
        pointer.check(),
        Err(Corrupt::Value {
            field: "object type",
            ..
        })
    ));
}

#[test]
fn a_gang_header_holds_the_pieces_of_its_block() {
    let block = include_bytes!("golden/gang-header.bin");
    let header = GangHeader::from_block(block).unwrap();
    let pieces: u64 = header
        .present_members()
        .map(|piece| piece.logical_size().get())
        .sum();
    assert_eq!(pieces, 0x4000);
    for piece in header.present_members() {
        assert_eq!(piece.check(), Ok(()));
        assert_eq!(piece.physical_birth(), Txg::from(10));
    }
    assert_eq!(header.to_bytes(), block);

    let mut damaged = block.to_vec();
    damaged[472] ^= 0xff;
    assert!(matches!(
        GangHeader::from_block(&damaged),
        Err(Corrupt::Magic { .. })
    ));
}

/// Lines of `action vdev start size txg pass`, numbers in hexadecimal but for the last two.
fn listed(text: &str) -> Vec<Entry> {
    let hex = |word: &str| u64::from_str_radix(word, 16).unwrap();
    text.lines()
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            Entry {
                action: if words[0] == "A" {
                    Action::Allocate
                } else {
                    Action::Free
                },
                vdev: (words[1] != "-").then(|| hex(words[1]).into()),
                start: VdevOffset::from(hex(words[2])),
                size: AllocatedSize::from(hex(words[3])),
                txg: Txg::from(words[4].parse::<u64>().unwrap()),
                pass: words[5].parse().unwrap(),
            }
        })
        .collect()
}

fn balance(entries: &[Entry]) -> i64 {
    let signed = |entry: &Entry| {
        let size = i64::try_from(entry.size.get()).unwrap();
        if entry.action == Action::Allocate {
            size
        } else {
            -size
        }
    };
    entries.iter().map(signed).sum()
}

/// The entries, with a debug entry before each group of one pass and action, in rising order.
fn written_again(entries: &[Entry], region: Region) -> Vec<u8> {
    let mut encoder = SpaceMapEncoder::new(region, SpaceMapVersion::V2, 128 << 10, 0);
    let group = |entry: &Entry| (entry.action, entry.txg, entry.pass);
    let mut previous: Option<&Entry> = None;
    for entry in entries {
        if previous.is_none_or(|last| group(last) != group(entry) || last.start > entry.start) {
            encoder.begin(entry.action, entry.txg, entry.pass);
        }
        previous = Some(entry);
        encoder.run(entry.action, entry.vdev, entry.start, entry.size);
    }
    encoder.finish()
}

/// Metaslab 0 of a pool whose metaslabs are 16 MiB.
#[test]
fn a_space_map_is_what_zdb_says() {
    let bytes = include_bytes!("golden/space-map-metaslab.bin");
    let region = Region {
        start: VdevOffset::ZERO,
        size: AllocatedSize::from(16 << 20),
        shift: 12,
    };
    let entries: Vec<_> = SpaceMapDecoder::new(region)
        .entries(bytes, LITTLE)
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(
        entries,
        listed(include_str!("golden/space-map-metaslab.txt"))
    );

    let dnodes = mos_dnodes();
    let (head, has_histogram) = SpaceMapHead::from_bonus(dnodes[7].bonus(), LITTLE).unwrap();
    assert!(has_histogram);
    assert_eq!((head.length, head.allocated), (0x7c8, 0x67_6000));
    assert_eq!(head.histogram[..5], [22, 28, 6, 0, 11]);
    assert_eq!(head.allocated, balance(&entries));
    assert_eq!(head.to_bytes(), dnodes[7].bonus());
    assert_eq!(written_again(&entries, region), bytes);
}

#[test]
fn a_log_space_map_is_what_zdb_says() {
    let bytes = include_bytes!("golden/space-map-log.bin");
    let entries: Vec<_> = SpaceMapDecoder::of_log()
        .entries(bytes, LITTLE)
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(entries, listed(include_str!("golden/space-map-log.txt")));
    assert_eq!(balance(&entries), -0x15000);
    assert_eq!(written_again(&entries, Region::LOG), bytes);
}

#[test]
fn a_space_map_with_a_damaged_offset_is_refused() {
    let mut bytes = include_bytes!("golden/space-map-metaslab.bin").to_vec();
    bytes[8 + 6] ^= 0x10;
    let region = Region {
        start: VdevOffset::ZERO,
        size: AllocatedSize::from(16 << 20),
        shift: 12,
    };
    let mut decoder = SpaceMapDecoder::new(region);
    let last = decoder.entries(&bytes, LITTLE).last().unwrap();
    assert!(matches!(last, Err(Corrupt::Inconsistent { .. })));
}
