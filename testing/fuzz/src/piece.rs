//! Structures cut out of pools, from which the search begins.
//!
//! # Mechanism
//! `testing/hostile`, which can walk a pool, writes each structure that it meets into a file
//! whose name says what it is: [`Piece::file_name`]. Each target makes of a piece what it wants as
//! input, or leaves it.

use std::path::Path;
use tarn_ondisk::object_type::ObjectType;

/// What a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The configuration of a label, without zeros behind it.
    Label,
    /// A slot of the ring of uberblocks.
    Uberblock,
    /// A block pointer.
    Pointer,
    /// A dnode with all of its slots.
    Dnode,
    /// A bonus whose type has this code.
    Bonus(u8),
    /// The head of an object set.
    Objset,
    /// A spill block.
    Spill,
    /// A block of the intent log; its chain is at the start.
    LogBlock,
    /// The first bytes of a block of data of this type of object.
    Data(u8),
    /// A block as it is stored: the code of its compression. Four bytes before it are its logical
    /// size, little-endian.
    Stored(u8),
}

/// A structure out of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
    pub kind: Kind,
    /// Its bytes, of a little-endian machine.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// True for data of this type.
    pub fn is_data_of(&self, wanted: ObjectType) -> bool {
        self.kind == Kind::Data(wanted.code())
    }

    /// A name for a file with this piece, the `number`th of its kind.
    pub fn file_name(&self, number: usize) -> String {
        let (word, code) = match self.kind {
            Kind::Label => ("label", 0),
            Kind::Uberblock => ("uberblock", 0),
            Kind::Pointer => ("pointer", 0),
            Kind::Dnode => ("dnode", 0),
            Kind::Bonus(code) => ("bonus", code),
            Kind::Objset => ("objset", 0),
            Kind::Spill => ("spill", 0),
            Kind::LogBlock => ("log", 0),
            Kind::Data(code) => ("data", code),
            Kind::Stored(code) => ("stored", code),
        };
        format!("{word}-{code}-{number}")
    }

    /// The piece in a file that was named so; none in others.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path) -> std::io::Result<Option<Piece>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut parts = name.split('-');
        let (word, code) = (parts.next().unwrap_or_default(), parts.next());
        let Some(code) = code.and_then(|code| code.parse::<u8>().ok()) else {
            return Ok(None);
        };
        let kind = match word {
            "label" => Kind::Label,
            "uberblock" => Kind::Uberblock,
            "pointer" => Kind::Pointer,
            "dnode" => Kind::Dnode,
            "bonus" => Kind::Bonus(code),
            "objset" => Kind::Objset,
            "spill" => Kind::Spill,
            "log" => Kind::LogBlock,
            "data" => Kind::Data(code),
            "stored" => Kind::Stored(code),
            _ => return Ok(None),
        };
        let bytes = std::fs::read(path)?;
        Ok(Some(Piece { kind, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_comes_back_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let kinds = [
            Kind::Label,
            Kind::Bonus(44),
            Kind::Data(20),
            Kind::Stored(15),
        ];
        for (number, kind) in kinds.into_iter().enumerate() {
            let bytes = vec![7; number];
            let piece = Piece { kind, bytes };
            let path = folder.path().join(piece.file_name(number));
            std::fs::write(&path, &piece.bytes).unwrap();
            assert_eq!(Piece::read(&path).unwrap(), Some(piece));
        }
        let other = folder.path().join("notes.txt");
        assert_eq!(Piece::read(&other).unwrap(), None);
    }
}
