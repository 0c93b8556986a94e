//! Labels and uberblocks as OpenZFS 2.3 wrote them. Zeros between contents and checksum are left
//! out of the files.

use tarn_ondisk::declare::narrow;
use tarn_ondisk::label::{CONFIGURATION_BYTES, CONFIGURATION_OFFSET, RING_OFFSET, Ring};
use tarn_ondisk::nvlist::{Encoding, NvList};
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{Guid, Txg};
use tarn_transform::ChecksumAlgorithm;
use tarn_transform::checksum::embedded;
use tarn_vdev::label_config::spare_label;
use tarn_vdev::{PoolFacts, PoolState, VdevConfig, VdevKind};

const RAIDZ2: &[u8] = include_bytes!("data/raidz2_offline_child.label");
const LOG: &[u8] = include_bytes!("data/log_mirror.label");
const SPARE: &[u8] = include_bytes!("data/spare.label");
const UBERBLOCK: &[u8] = include_bytes!("data/txg_32.uberblock");

/// The part of a device again, from its contents and its checksum.
fn area(stored: &[u8], size: u64) -> Vec<u8> {
    let (contents, tail) = stored.split_at(stored.len() - embedded::TRAILER_BYTES);
    let mut area = contents.to_vec();
    area.resize(narrow(size) - tail.len(), 0);
    area.extend(tail);
    area
}

fn is_valid(area: &[u8], offset: u64) -> bool {
    let verifier = embedded::label_verifier(offset);
    embedded::verify(ChecksumAlgorithm::Label, area, &verifier).is_ok()
}

/// The list of a label, with its exact bytes.
fn list(stored: &[u8]) -> (NvList, Vec<u8>) {
    let area = area(stored, CONFIGURATION_BYTES);
    assert!(is_valid(&area, CONFIGURATION_OFFSET));
    assert!(!is_valid(&area, CONFIGURATION_OFFSET + 512));
    let (list, length) = NvList::decode_prefix(&area).unwrap();
    (list, area[..length].to_vec())
}

/// A root in which the vdev of this label is known, and all others are missing.
fn root_of(label: &NvList) -> VdevConfig {
    let guid = Guid::from(label.u64("pool_guid").unwrap());
    let top = VdevConfig::parse(label.list("vdev_tree").unwrap()).unwrap();
    let mut root = VdevConfig::new(VdevKind::Root, guid);
    let count = narrow(label.u64("vdev_children").unwrap());
    root.children = vec![VdevConfig::new(VdevKind::Missing, Guid::ZERO); count];
    let index = narrow(top.id);
    root.children[index] = top;
    root.number_children();
    root
}

#[test]
fn a_label_composed_by_us_has_the_bytes_of_openzfs() {
    for stored in [RAIDZ2, LOG] {
        let (label, bytes) = list(stored);
        let facts = PoolFacts::parse(&label).unwrap();
        let root = root_of(&label);
        let guid = Guid::from(label.u64("guid").unwrap());
        let has_it = |top: &VdevConfig| top.find(guid).is_some();
        let index = root.children.iter().position(has_it).unwrap();
        let leaf = root.find(guid).unwrap();
        let composed = facts.label_of(&root, index, leaf);
        assert_eq!(composed, label);
        assert_eq!(composed.encode(Encoding::Xdr), bytes);
    }
}

#[test]
fn the_label_of_a_hot_spare_has_the_bytes_of_openzfs() {
    let (label, bytes) = list(SPARE);
    let mut spare = VdevConfig::new(VdevKind::File, Guid::from(label.u64("guid").unwrap()));
    spare.path = Some(label.text("path").unwrap().clone());
    let composed = spare_label(label.u64("version").unwrap(), &spare);
    assert_eq!(composed.encode(Encoding::Xdr), bytes);
}

#[test]
fn a_label_tells_about_pool_and_vdev() {
    let (label, _) = list(RAIDZ2);
    let facts = PoolFacts::parse(&label).unwrap();
    assert_eq!(facts.name, "fxdegraded");
    assert_eq!(facts.state, PoolState::Exported);
    assert_eq!(facts.txg, Txg::from(38));
    let root = root_of(&label);
    let raidz = &root.children[0];
    assert_eq!(raidz.kind, VdevKind::Raidz { parity: 2 });
    let offline: Vec<bool> = raidz
        .children
        .iter()
        .map(|leaf| leaf.condition.offline)
        .collect();
    assert_eq!(offline, [false, false, true, false]);
    let facts = raidz.top_level.as_ref().unwrap();
    assert_eq!((facts.ashift, facts.metaslab_shift), (12, 25));
    assert_eq!(
        tarn_vdev::sizes::metaslab_shift(facts.asize),
        facts.metaslab_shift
    );
}

#[test]
fn an_uberblock_is_where_its_txg_says() {
    let ring = Ring::new(12);
    let slot = area(UBERBLOCK, ring.slot_bytes());
    let offset = ring.slot_offset(ring.slot_of(Txg::from(32)));
    assert_eq!(offset, RING_OFFSET);
    assert!(is_valid(&slot, offset));
    let (uberblock, _) = Uberblock::from_slot(&slot).unwrap();
    assert_eq!(uberblock.txg, Txg::from(32));
    assert_eq!(uberblock.guid_sum, Guid::from(6_128_703_593_765_779_804));
}
