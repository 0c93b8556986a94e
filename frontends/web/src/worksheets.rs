//! Worksheets: what was saved on the page, by name, as the page wrote it.

use serde_json::{Map, Value};
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// So many worksheets there are at most.
const WORKSHEETS_MAX: usize = 200;

/// Bytes of one, as JSON.
const WORKSHEET_BYTES_MAX: usize = 64 * 1024;

/// Characters of a name.
const NAME_MAX: usize = 80;

/// Why a worksheet is not saved, or none can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorksheetError {
    /// The name does not do.
    #[error("the name of a worksheet has 1 to {NAME_MAX} characters, and no control characters")]
    Name,
    /// It is too large.
    #[error(
        "a worksheet has at most {WORKSHEET_BYTES_MAX} bytes: save some of its statistics in another one"
    )]
    Large,
    /// There are too many.
    #[error("there are {WORKSHEETS_MAX} worksheets: remove one first")]
    Many,
    /// The file cannot be read or written.
    #[error("cannot use {}: {}", .0.display(), tarn_engine::words_of(.1))]
    File(PathBuf, std::io::Error),
    /// The file was changed by other means.
    #[error("{} has no JSON object: repair or remove it", .0.display())]
    Malformed(PathBuf),
}

/// The worksheets of an instance, in one file.
pub(crate) struct Worksheets {
    path: PathBuf,
    /// Held while the file is read and written.
    turn: Mutex<()>,
}

impl Worksheets {
    /// In this file, which is made by the first that is saved.
    pub(crate) fn new(path: PathBuf) -> Worksheets {
        let turn = Mutex::default();
        Worksheets { path, turn }
    }

    /// All, by name.
    pub(crate) fn list(&self) -> Result<Map<String, Value>, WorksheetError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.read()
    }

    /// Saves one, in place of one that had the name.
    pub(crate) fn save(&self, name: &str, worksheet: Value) -> Result<(), WorksheetError> {
        let count = name.chars().count();
        if count == 0 || count > NAME_MAX || name.chars().any(char::is_control) {
            return Err(WorksheetError::Name);
        }
        if worksheet.to_string().len() > WORKSHEET_BYTES_MAX {
            return Err(WorksheetError::Large);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.read()?;
        all.insert(name.to_owned(), worksheet);
        match all.len() > WORKSHEETS_MAX {
            true => Err(WorksheetError::Many),
            false => self.write(&all),
        }
    }

    /// Removes one. None of the name is no error.
    pub(crate) fn remove(&self, name: &str) -> Result<(), WorksheetError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.read()?;
        match all.remove(name) {
            Some(_) => self.write(&all),
            None => Ok(()),
        }
    }

    fn read(&self) -> Result<Map<String, Value>, WorksheetError> {
        let failed = |error| WorksheetError::File(self.path.clone(), error);
        let file = match std::fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Map::new()),
            Err(error) => return Err(failed(error)),
        };
        let most = WORKSHEETS_MAX * (WORKSHEET_BYTES_MAX + 8 * NAME_MAX);
        let mut bytes = Vec::new();
        let mut file = file.take(u64::try_from(most).unwrap_or(u64::MAX));
        file.read_to_end(&mut bytes).map_err(failed)?;
        serde_json::from_slice(&bytes).map_err(|_| WorksheetError::Malformed(self.path.clone()))
    }

    /// The file is whole at any time: a new one takes its name.
    fn write(&self, all: &Map<String, Value>) -> Result<(), WorksheetError> {
        use std::os::unix::fs::OpenOptionsExt;
        let failed = |error| WorksheetError::File(self.path.clone(), error);
        let beside = self.path.with_extension("json.new");
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside).map_err(failed)?;
        let text = Value::Object(all.clone()).to_string();
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&beside, &self.path).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn worksheets_are_kept_by_name_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worksheets.json");
        let sheets = Worksheets::new(path.clone());
        assert!(sheets.list().unwrap().is_empty());
        sheets
            .save("Friday slow reads", json!({"rows": []}))
            .unwrap();
        sheets
            .save("Friday slow reads", json!({"rows": [1]}))
            .unwrap();
        let again = Worksheets::new(path.clone()).list().unwrap();
        assert_eq!(again["Friday slow reads"], json!({"rows": [1]}));
        assert_eq!(again.len(), 1);
        for name in ["", "a\nb", &"x".repeat(NAME_MAX + 1)] {
            assert!(matches!(
                sheets.save(name, json!(1)),
                Err(WorksheetError::Name)
            ));
        }
        let large = json!("x".repeat(WORKSHEET_BYTES_MAX));
        assert!(matches!(
            sheets.save("large", large),
            Err(WorksheetError::Large)
        ));
        for number in 1..WORKSHEETS_MAX {
            sheets.save(&number.to_string(), json!(1)).unwrap();
        }
        assert!(matches!(
            sheets.save("one more", json!(1)),
            Err(WorksheetError::Many)
        ));
        sheets.remove("1").unwrap();
        sheets.remove("1").unwrap();
        sheets.save("one more", json!(1)).unwrap();
        std::fs::write(&path, "[]").unwrap();
        let refused = sheets.save("a", json!(1)).unwrap_err().to_string();
        assert!(refused.contains("repair or remove"), "{refused}");
    }
}
