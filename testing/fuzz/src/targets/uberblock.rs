//! Uberblocks, as they are in the slots of a label's ring.

use super::block_pointer;
use crate::piece::{Kind, Piece};
use crate::target::Target;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::uberblock::{Multihost, Uberblock};

/// A slot of the ring.
pub const UBERBLOCK: Target = Target {
    name: "uberblock",
    about: "slots of the ring of uberblocks",
    run: uberblock,
    seed: |piece: &Piece| (piece.kind == Kind::Uberblock).then(|| piece.bytes.clone()),
    size_max: 1 << 10,
    memory_per_byte: 16,
    memory_extra: 0,
};

fn uberblock(slot: &[u8]) {
    let Ok((uberblock, order)) = Uberblock::from_slot(slot) else {
        return;
    };
    let stored = uberblock.to_slot(1 << 10);
    let again = Uberblock::from_slot(&stored).expect("what we wrote is an uberblock");
    assert_eq!(again, (uberblock, ByteOrder::Little));
    if order == ByteOrder::Little {
        assert_eq!(&stored[..Uberblock::SIZE], &slot[..Uberblock::SIZE]);
    }
    assert!(uberblock.compare(&again.0).is_eq());
    block_pointer::ask(&uberblock.root);
    let Some(multihost) = uberblock.multihost() else {
        return;
    };
    assert_eq!(Multihost::from_word(multihost.to_word()), multihost);
    let mut changed = uberblock;
    changed.set_multihost(7, multihost);
    assert!(changed.multihost().is_some());
}
