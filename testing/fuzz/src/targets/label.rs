//! Labels: their configuration, down to the tree of devices; boot environments; partition tables,
//! where labels are looked for.

use crate::piece::{Kind, Piece};
use crate::target::{Input, Target, told};
use tarn_ondisk::checksum::{Checksum, EmbeddedChecksum};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::label::{
    BOOT_ENVIRONMENT_BYTES, CONFIGURATION_BYTES, unpack_boot_environment, unpack_configuration,
};
use tarn_ondisk::nvlist::NvList;
use tarn_vdev::{PoolFacts, VdevConfig, gpt};

/// The first 128 KiB and more of a label.
pub const LABEL: Target = Target {
    name: "label",
    about: "labels: their list, the facts of a pool, the tree of devices; boot environments",
    run: label,
    seed: label_seed,
    size_max: 8 << 10,
    memory_per_byte: 256,
    // The area itself is the input: a name may be all of it, and lists are encoded twice.
    memory_extra: 2 << 20,
};

/// GPT, where the devices of a pool are partitions.
pub const PARTITIONS: Target = Target {
    name: "partitions",
    about: "partition tables at the start of a disk",
    run: partitions,
    seed: |piece| (piece.kind == Kind::Uberblock).then(partition_seed),
    size_max: 20 << 10,
    memory_per_byte: 16,
    memory_extra: 0,
};

fn label_seed(piece: &Piece) -> Option<Vec<u8>> {
    match piece.kind {
        Kind::Label => told(&[0], &piece.bytes),
        _ => None,
    }
}

fn label(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.byte();
    let size = match how & 2 {
        0 => CONFIGURATION_BYTES,
        _ => BOOT_ENVIRONMENT_BYTES,
    };
    let mut area = crate::target::sized(input.rest, narrow(size));
    // Half of all inputs have a tail that is none.
    if how & 1 == 0 {
        EmbeddedChecksum::new(Checksum::ZERO).write_to_end_of(&mut area);
    }
    if how & 2 != 0 {
        let _ = unpack_boot_environment(&area);
        return;
    }
    let Ok(unpacked) = unpack_configuration(&area) else {
        return;
    };
    let Ok(list) = NvList::decode(unpacked.contents) else {
        return;
    };
    super::nvlist::ask(&list);
    let _ = PoolFacts::parse(&list).map_err(|error| error.to_string());
    for tree in [Some(&list), list.optional_list("vdev_tree").ok().flatten()]
        .into_iter()
        .flatten()
    {
        match VdevConfig::parse(tree) {
            Ok(config) => tree_of_devices(config),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Asks a tree everything, and demands that it survives being stored.
fn tree_of_devices(mut config: VdevConfig) {
    let _ = (config.walk().len(), config.leaves().len());
    let _ = (config.guid_sum(), config.find(config.guid));
    let stored = config.to_mos_list();
    let again = VdevConfig::parse(&stored).expect("what was parsed and stored is parsed");
    assert_eq!(
        again.to_mos_list(),
        stored,
        "a tree changed by being stored"
    );
    let label = config.to_label_list();
    VdevConfig::parse(&label).expect("what was parsed and stored in a label is parsed");
    config.number_children();
}

fn partitions(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let disk_bytes = input.word();
    let mut start = input.rest.to_vec();
    repair_gpt(&mut start);
    for bytes in [input.rest, &start] {
        if let Some(found) = gpt::find_zfs_partition(bytes, disk_bytes) {
            assert!(
                found
                    .start_bytes
                    .checked_add(found.size_bytes)
                    .is_some_and(|end| end <= disk_bytes),
                "a partition lies on its disk"
            );
        }
    }
}

/// A table like those that OpenZFS makes: sectors of 512 bytes, two entries.
fn partition_seed() -> Vec<u8> {
    let mut disk = vec![0; 2048];
    disk[512..520].copy_from_slice(b"EFI PART");
    disk[512 + 72..512 + 80].copy_from_slice(&2_u64.to_le_bytes());
    disk[512 + 80..512 + 84].copy_from_slice(&2_u32.to_le_bytes());
    disk[512 + 84..512 + 88].copy_from_slice(&128_u32.to_le_bytes());
    let zfs = [
        0xc3, 0x8c, 0x89, 0x6a, 0xd2, 0x1d, 0xb2, 0x11, 0x99, 0xa6, 0x08, 0x00, 0x20, 0x73, 0x66,
        0x31,
    ];
    disk[1024..1040].copy_from_slice(&zfs);
    disk[1056..1064].copy_from_slice(&2048_u64.to_le_bytes());
    disk[1064..1072].copy_from_slice(&9999_u64.to_le_bytes());
    [&(64_u64 << 20).to_le_bytes(), &disk[..]].concat()
}

/// Puts the checksums of a table right, for either size of sectors: chance finds no CRC.
fn repair_gpt(disk: &mut [u8]) {
    for sector in [512, 4096] {
        let Some(header) = disk.get(sector..sector + 92) else {
            continue;
        };
        let field = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let length = narrow(u64::from(field(80))).saturating_mul(narrow(u64::from(field(84))));
        let first = narrow(u64::from(field(72))).saturating_mul(sector);
        if let Some(entries) = disk.get(first..first.saturating_add(length.min(disk.len() + 1))) {
            let sum = crc32(entries).to_le_bytes();
            disk[sector + 88..sector + 92].copy_from_slice(&sum);
        }
        disk[sector + 16..sector + 20].fill(0);
        let sum = crc32(&disk[sector..sector + 92]).to_le_bytes();
        disk[sector + 16..sector + 20].copy_from_slice(&sum);
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
    let each = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), bit);
    !bytes.iter().fold(!0, each)
}
