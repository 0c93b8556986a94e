//! Name-value lists that OpenZFS wrote: they print as its `zdb` prints them, and encode to the
//! same bytes again.

use tarn_ondisk::nvlist::{Encoding, NvList};

/// The configuration in a label of a pool of version 5000, and what `zdb -l` says of it.
const BASIC: (&[u8], &str) = (
    include_bytes!("golden/label-config-basic.bin"),
    include_str!("golden/label-config-basic.txt"),
);

/// The same of a pool of version 28.
const V28: (&[u8], &str) = (
    include_bytes!("golden/label-config-v28.bin"),
    include_str!("golden/label-config-v28.txt"),
);

#[test]
fn a_label_configuration_prints_as_zdb_prints_it() {
    for (bytes, printed) in [BASIC, V28] {
        let list = NvList::decode(bytes).expect("OpenZFS wrote it");
        assert_eq!(list.indented(4).to_string(), printed);
    }
}

#[test]
fn a_label_configuration_encodes_to_the_bytes_it_came_from() {
    for (bytes, _) in [BASIC, V28] {
        let (list, length) = NvList::decode_prefix(bytes).expect("OpenZFS wrote it");
        assert_eq!(list.encode(Encoding::Xdr), bytes[..length]);
        let native = list.encode(Encoding::Native);
        assert_eq!(NvList::decode(&native), Ok(list));
    }
}

#[test]
fn a_label_configuration_with_a_damaged_byte_is_refused_or_differs() {
    let (bytes, _) = BASIC;
    let (whole, length) = NvList::decode_prefix(bytes).expect("OpenZFS wrote it");
    // The encoding, the list's version, the first pair's size in memory, its type, its count.
    for place in [0, 7, 19, 35, 39] {
        let mut damaged = bytes.to_vec();
        damaged[place] ^= 0x40;
        assert!(
            NvList::decode(&damaged).is_err(),
            "byte {place} does not matter"
        );
    }
    // A byte of a name or a value cannot be told; it is never taken for what was written.
    for place in 12..length {
        let mut damaged = bytes.to_vec();
        damaged[place] ^= 1;
        if let Ok((list, damaged_length)) = NvList::decode_prefix(&damaged) {
            let same = list == whole && damaged_length == length;
            let unread = list.encode(Encoding::Xdr)[..] != damaged[..damaged_length];
            assert!(!same || unread, "byte {place} does not matter");
        }
    }
}
