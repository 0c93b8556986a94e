//! Name-value lists, in both stored forms.

use crate::piece::{Kind, Piece};
use crate::target::{Target, told};
use std::fmt::{self, Display, Write};
use tarn_ondisk::nvlist::{Encoding, NvList, NvValue};
use tarn_ondisk::object_type::ObjectType;

/// As RFC 4506 has it: labels, configurations.
pub const XDR: Target = Target {
    name: "nvlist-xdr",
    about: "name-value lists as labels and configurations have them",
    run: |bytes| list(Encoding::Xdr, bytes),
    seed: |piece| seed(Encoding::Xdr, piece),
    size_max: 8 << 10,
    // An empty string of an array takes four bytes there, and a vector here.
    memory_per_byte: 64,
    memory_extra: 0,
};

/// As OpenZFS has it in memory: the history, streams.
pub const NATIVE: Target = Target {
    name: "nvlist-native",
    about: "name-value lists as the history has them",
    run: |bytes| list(Encoding::Native, bytes),
    seed: |piece| seed(Encoding::Native, piece),
    size_max: 8 << 10,
    memory_per_byte: 64,
    memory_extra: 0,
};

/// All lists of a pool, in the form that is wanted. Their first byte, which names the form, is left
/// out.
fn seed(encoding: Encoding, piece: &Piece) -> Option<Vec<u8>> {
    let list = match piece.kind {
        Kind::Label => NvList::decode(&piece.bytes).ok()?,
        _ if piece.is_data_of(ObjectType::PackedNvlist) => NvList::decode(&piece.bytes).ok()?,
        _ if piece.is_data_of(ObjectType::History) => {
            let records = tarn_ondisk::history::records(&piece.bytes);
            records.map_while(Result::ok).last()?
        }
        _ => return None,
    };
    told(&[], &list.encode(encoding)[1..])
}

fn list(encoding: Encoding, bytes: &[u8]) {
    let bytes = [&[encoding.number()], bytes].concat();
    if let Ok((list, size)) = NvList::decode_prefix(&bytes) {
        assert!(size <= bytes.len(), "a list ends in its bytes");
        ask(&list);
    }
}

/// What of a list is shown. All of it may be the square of its bytes: a name is said again at each
/// element.
const SHOWN_BYTES_MAX: usize = 1 << 20;

/// Lets the beginning of a text be made, and keeps nothing.
fn show(text: impl Display) {
    struct Shown(usize);
    impl Write for Shown {
        fn write_str(&mut self, more: &str) -> fmt::Result {
            self.0 += more.len();
            match self.0 <= SHOWN_BYTES_MAX {
                true => Ok(()),
                false => Err(fmt::Error),
            }
        }
    }
    let _ = write!(Shown(0), "{text}");
}

/// Asks a list everything, and demands that it survives being stored.
pub fn ask(list: &NvList) {
    for (name, value) in list.iter() {
        let _ = (list.get(name), list.contains(name), list.flag(name));
        let _ = (
            list.u64(name),
            list.optional_string(name),
            list.string(name),
        );
        if let NvValue::List(inner) = value {
            assert_eq!(inner.len(), inner.iter().len());
        }
    }
    show(list);
    show(list.indented(3));
    show(list.printed());
    for encoding in [Encoding::Xdr, Encoding::Native] {
        let stored = list.encode(encoding);
        let back = NvList::decode_prefix(&stored);
        let (back, size) =
            back.unwrap_or_else(|error| panic!("{encoding:?}: what we wrote is refused: {error}"));
        // Behind a list with empty arrays in XDR are zeros.
        assert!(
            size <= stored.len(),
            "{encoding:?}: a list ends in its bytes"
        );
        assert_eq!(
            back.encode(encoding),
            stored,
            "{encoding:?}: a list changed by being stored"
        );
    }
}
