//! Records of renames: plain, exchanging, and those that leave a whiteout behind.

use super::change::number;
use super::encoding::{Bytes, text};
use crate::declare::{Corrupt, Reader};
use crate::fuid::Fuid;
use crate::nvlist::Text;
use crate::units::ObjectId;

/// Why a rename differs from a plain one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameKind {
    /// It does not.
    #[doc(alias = "TX_RENAME")]
    Plain,
    /// Both names change places.
    #[doc(alias = "TX_RENAME_EXCHANGE")]
    Exchange,
    /// The old name stays, of a file that overlays take for a missing one.
    #[doc(alias = "TX_RENAME_WHITEOUT")]
    Whiteout(LoggedWhiteout),
}

/// The file that a rename leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedWhiteout {
    /// Its number, and above it the slots of its dnode.
    pub object_word: u64,
    /// Type and permissions.
    pub mode: u64,
    /// Its owner.
    pub owner: Fuid,
    /// Its group.
    pub group: Fuid,
    /// The txg in which it was made.
    pub generation: u64,
    /// Seconds and nanoseconds.
    pub creation_time: [u64; 2],
    /// Always device 0.
    pub device: u64,
}

/// A rename.
#[doc(alias("lr_rename_t", "lr_rename_whiteout_t"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRename {
    /// Whether more happened.
    pub kind: RenameKind,
    /// The old directory.
    pub from_directory: ObjectId,
    /// The new directory.
    pub to_directory: ObjectId,
    /// The old name.
    pub from: Text,
    /// The new name.
    pub to: Text,
}

impl LoggedRename {
    pub(super) fn decode(number: u64, reader: &mut Reader<'_>) -> Result<LoggedRename, Corrupt> {
        let from_directory = reader.value()?;
        let to_directory = reader.value()?;
        let kind = match number {
            number::RENAME => RenameKind::Plain,
            number::RENAME_EXCHANGE => RenameKind::Exchange,
            _ => RenameKind::Whiteout(LoggedWhiteout {
                object_word: reader.u64()?,
                mode: reader.u64()?,
                owner: Fuid::from_word(reader.u64()?),
                group: Fuid::from_word(reader.u64()?),
                generation: reader.u64()?,
                creation_time: reader.value()?,
                device: reader.u64()?,
            }),
        };
        Ok(LoggedRename {
            kind,
            from_directory,
            to_directory,
            from: text(reader)?,
            to: text(reader)?,
        })
    }

    pub(super) fn encode(&self, bytes: &mut Bytes) {
        bytes.u64(self.from_directory.get());
        bytes.u64(self.to_directory.get());
        if let RenameKind::Whiteout(whiteout) = self.kind {
            bytes.u64(whiteout.object_word);
            bytes.u64(whiteout.mode);
            bytes.u64(whiteout.owner.word());
            bytes.u64(whiteout.group.word());
            bytes.u64(whiteout.generation);
            bytes.two(whiteout.creation_time);
            bytes.u64(whiteout.device);
        }
        bytes.text(&self.from);
        bytes.text(&self.to);
    }
}
