//! What a file system knows of a file: system attributes with registry and layouts, old znodes,
//! access control lists.

use crate::piece::{Kind, Piece};
use crate::target::{Input, Target, sized, told};
use tarn_ondisk::acl::{self, AclPhys, AclVersion};
use tarn_ondisk::attributes::{
    AttributeId, Attributes, FileAttribute, LayoutId, Layouts, Registration, Registry,
};
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::znode::{DirectoryEntry, ZnodePhys};

/// A bonus and a spill block of system attributes, and the tables that say what is in them.
pub const ATTRIBUTES: Target = Target {
    name: "attributes",
    about: "system attributes: registry, layouts, bonus and spill block",
    run: attributes,
    seed: attributes_seed,
    size_max: 4 << 10,
    memory_per_byte: 64,
    memory_extra: 1 << 20,
};

/// The bonus of a file before ZPL version 5.
pub const ZNODE: Target = Target {
    name: "znode",
    about: "old znodes, access control lists, entries of directories",
    run: znode,
    seed: |piece| match piece.kind {
        Kind::Bonus(code) if code == ObjectType::Znode.code() => told(&[0], &piece.bytes),
        Kind::Data(code) if code == ObjectType::Acl.code() => told(&[2], &piece.bytes),
        Kind::Data(code) if code == ObjectType::OldAcl.code() => told(&[4], &piece.bytes),
        _ => None,
    },
    size_max: 2 << 10,
    memory_per_byte: 64,
    memory_extra: 0,
};

/// The room of a bonus in dnodes of 512 bytes to 16 KiB: multiples of eight.
const BONUS_BYTES: [usize; 4] = [192, 320, 832, 16_000];

/// The layouts with which files of a new file system begin, as OpenZFS orders attributes: of a
/// file, of a link, with a list, with extended attributes.
const LAYOUTS: [&[u8]; 5] = [
    &[5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19],
    &[5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19, 20],
    &[5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19, 17],
    &[5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19, 20],
    &[20],
];

/// Each layout under the number that the buffer has, so that it is taken apart in one of the ways.
fn attributes_seed(piece: &Piece) -> Option<Vec<u8>> {
    let is_bonus = piece.kind == Kind::Bonus(ObjectType::SystemAttributes.code());
    if !is_bonus && piece.kind != Kind::Spill {
        return None;
    }
    let number = u16::from_le_bytes([*piece.bytes.get(4)?, *piece.bytes.get(5)?]) & 0x3ff;
    let kind = match (is_bonus, piece.bytes.len()) {
        (false, _) => 4,
        (true, 0..170) => 0,
        (true, 170..180) => 2,
        (true, 180..200) => 1,
        (true, _) => 3,
    };
    let layout = LAYOUTS[kind];
    let mut control = vec![0, 0, 1];
    control.extend((number.saturating_sub(2)).to_le_bytes());
    control.push(u8::try_from(layout.len()).ok()?);
    control.extend(layout);
    control.extend(u16::try_from(piece.bytes.len()).ok()?.to_le_bytes());
    told(&control, &piece.bytes)
}

fn attributes(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let room = BONUS_BYTES[usize::from(input.byte()) % BONUS_BYTES.len()];
    let words: Vec<u64> = (0..input.byte() % 8).map(|_| input.word()).collect();
    let Some(registry) = registry(&words) else {
        return;
    };
    let mut layouts = Layouts::new();
    for _ in 0..input.byte() % 8 {
        let number = LayoutId::FIRST.0.saturating_add(input.half());
        let count = usize::from(input.byte());
        let ids: Vec<u16> = input.take(count).iter().map(|id| u16::from(*id)).collect();
        let _ = layouts.add_entry(number.to_string().as_bytes(), &ids);
    }
    let _ = layouts.add_entry(input.rest, &[]);
    let length = usize::from(input.half());
    let (bonus, spill) = (input.take(length), input.rest);
    let mut found = Attributes::new();
    if found.add_buffer(bonus, &registry, &layouts).is_err() {
        return;
    }
    ask(&found, &registry);
    encode(&found, room, &registry, layouts.clone());
    if !spill.is_empty() && found.add_buffer(spill, &registry, &layouts).is_ok() {
        ask(&found, &registry);
        encode(&found, room, &registry, layouts);
    }
}

/// A registry with what these words say under unknown names; the one of new file systems
/// without any.
fn registry(words: &[u64]) -> Option<Registry> {
    if words.is_empty() {
        return Some(Registry::of_new_files());
    }
    for word in words {
        if let Ok(registration) = Registration::from_word(*word) {
            assert_eq!(
                Registration::from_word(registration.to_word()),
                Ok(registration)
            );
        }
    }
    let names: Vec<String> = (0..words.len())
        .map(|number| format!("NAME_{number}"))
        .collect();
    let entries = names
        .iter()
        .zip(words)
        .map(|(name, word)| (name.as_bytes(), *word));
    Registry::from_entries(entries).ok()
}

fn ask(attributes: &Attributes, registry: &Registry) {
    for (id, value) in attributes.iter() {
        assert!(attributes.get(id).is_some());
        let _ = (attributes.word(id), attributes.two_words(id), value.len());
        assert!(registry.registration(id).is_some() && registry.name(id).is_some());
    }
    let _ = (attributes.to_old_file(), format!("{attributes:?}"));
    for attribute in FileAttribute::ALL {
        let _ = registry
            .id(*attribute)
            .map(|id| attributes.get(id).is_some());
    }
}

/// What was read can be stored and read again, and layouts made for it are such as are accepted.
fn encode(attributes: &Attributes, room: usize, registry: &Registry, mut layouts: Layouts) {
    let Ok(encoded) = attributes.encode(room, registry, &mut layouts) else {
        return;
    };
    assert!(encoded.bonus.len() <= room, "a bonus fits in its room");
    let mut read = Layouts::new();
    for (id, ids) in layouts.entries() {
        let ids: Vec<u16> = ids.iter().map(|id| id.0).collect();
        let added = read.add_entry(id.0.to_string().as_bytes(), &ids);
        added.expect("a layout that was accepted or made is accepted again");
    }
    let mut again = Attributes::new();
    for buffer in [Some(&encoded.bonus), encoded.spill.as_ref()]
        .into_iter()
        .flatten()
    {
        let added = again.add_buffer(buffer, registry, &read);
        added.unwrap_or_else(|error| panic!("what we wrote is refused: {error}"));
    }
    let pairs = |attributes: &Attributes| -> Vec<(AttributeId, Vec<u8>)> {
        attributes
            .iter()
            .map(|(id, value)| (id, value.to_vec()))
            .collect()
    };
    assert_eq!(
        pairs(&again),
        pairs(attributes),
        "attributes changed by being stored"
    );
}

fn znode(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.byte();
    let order = crate::target::order_of(how);
    let version = match how & 6 {
        2 => AclVersion::Fuid,
        4 => AclVersion::Initial,
        _ => return old_file(input.rest, order),
    };
    let Ok(entries) = acl::decode_entries(input.rest, order, version) else {
        return;
    };
    let stored = acl::encode_entries(&entries);
    let again = acl::decode_entries(&stored, ByteOrder::Little, AclVersion::Fuid);
    assert_eq!(
        again.as_ref(),
        Ok(&entries),
        "a list changed by being stored"
    );
    if let Some(stored) = acl::encode_initial_entries(&entries) {
        let again = acl::decode_entries(&stored, ByteOrder::Little, AclVersion::Initial);
        assert_eq!(
            again,
            Ok(entries),
            "a list changed by being stored in the old form"
        );
    }
}

fn old_file(bonus: &[u8], order: ByteOrder) {
    let word = bonus
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word));
    let _ = DirectoryEntry::from_word(word).to_word();
    if let Ok(old) = ZnodePhys::from_bytes(&sized(bonus, ZnodePhys::SIZE), order) {
        let again = ZnodePhys::from_bytes(&old.to_bytes(), ByteOrder::Little);
        assert_eq!(again.map(|again| again.to_bytes()), Ok(old.to_bytes()));
    }
    let Ok(attributes) = Attributes::of_old_file(bonus, order) else {
        return;
    };
    ask(&attributes, &Registry::of_old_files());
    let stored = attributes
        .to_old_file()
        .expect("an old file has all that old files have");
    let again = Attributes::of_old_file(&stored, ByteOrder::Little);
    assert!(
        again.is_ok_and(|again| again == attributes),
        "a file changed by being stored"
    );
    let acl = Registry::of_old_files().id(FileAttribute::ZnodeAcl);
    let acl = acl
        .and_then(|id| attributes.get(id))
        .map(|acl| AclPhys::from_bytes(acl, ByteOrder::Little));
    if let Some(Ok(acl)) = acl {
        let _ = (acl.version(), acl.size(), acl.embedded());
    }
}
