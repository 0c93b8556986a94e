//! What follows the fixed fields of a record: names and domains, each up to a zero byte.

use crate::declare::{Corrupt, Reader};
use crate::fuid::Fuid;
use crate::nvlist::Text;

/// How many domains follow a record for the sake of owner and group.
#[doc(alias = "zfs_replay_domain_cnt")]
pub(super) fn domain_count(owner: Fuid, group: Fuid) -> usize {
    let owner_has = owner.domain() != 0;
    let group_has = group.domain() != 0 && group.domain() != owner.domain();
    usize::from(owner_has) + usize::from(group_has)
}

/// Up to the next zero, which is passed over.
pub(super) fn text(reader: &mut Reader<'_>) -> Result<Text, Corrupt> {
    let rest = reader.clone().rest();
    let Some(length) = rest.iter().position(|&byte| byte == 0) else {
        return Err(reader.inconsistent("a name does not end"));
    };
    reader.skip(length + 1)?;
    Ok(Text::from(&rest[..length]))
}

/// `count` strings, one by one: the reader ends before memory does.
pub(super) fn texts(count: usize, reader: &mut Reader<'_>) -> Result<Vec<Text>, Corrupt> {
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(text(reader)?);
    }
    Ok(texts)
}

/// A record while it is encoded.
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Bytes {
    pub(super) fn u64(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    pub(super) fn two(&mut self, words: [u64; 2]) {
        words.into_iter().for_each(|word| self.u64(word));
    }

    pub(super) fn text(&mut self, text: &Text) {
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    pub(super) fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }
}
