//! Which file each call was about, and what the calls of `fsync` promised.

use std::collections::BTreeMap;

use super::call::{Call, Entry, State};

/// Which file each call was about: files are known by the call that made them, whatever their names
/// were later.
pub(super) struct History {
    pub(super) file: Vec<Option<FileNumber>>,
    /// Whether it changes names.
    pub(super) names: Vec<bool>,
}

/// Files of the beginning by their place in the order of names, and then by the call that made
/// them.
pub(super) type FileNumber = usize;

/// Up to which call changes of names were promised, and changes of each file.
pub(super) struct Asked {
    pub(super) names: usize,
    pub(super) files: BTreeMap<FileNumber, usize>,
}

impl History {
    pub(super) fn of(base: &State, calls: &[Call]) -> History {
        let mut names = numbered(base);
        let first = base.len();
        let file = calls.iter().enumerate().map(|(index, call)| match call {
            Call::Create { path } => {
                names.insert(path.clone(), first + index);
                Some(first + index)
            }
            Call::Rename { from, to } => {
                let file = names.remove(from);
                match file {
                    Some(file) => names.insert(to.clone(), file),
                    None => names.remove(to),
                };
                file
            }
            Call::Remove { path } => names.remove(path),
            Call::Write { path, .. }
            | Call::SetSize { path, .. }
            | Call::PunchHole { path, .. }
            | Call::SetMode { path, .. }
            | Call::SetAttribute { path, .. }
            | Call::Sync { path } => names.get(path).copied(),
            Call::MakeDirectory { .. } | Call::Link { .. } => None,
        });
        History {
            file: file.collect(),
            names: calls.iter().map(Call::is_of_names).collect(),
        }
    }

    /// What the calls of `fsync` among the first ones ask for.
    pub(super) fn asked(&self, calls: &[Call], count: usize) -> Asked {
        let is_sync = |index: &usize| matches!(calls[*index], Call::Sync { .. });
        let names = (0..count).rev().find(is_sync).unwrap_or(0);
        let mut files = BTreeMap::new();
        for (index, call) in calls.iter().enumerate().take(count) {
            let is_asked = match call {
                Call::Sync { .. } => true,
                // A name that is given to its own file again changes nothing: the kernel does not
                // even ask.
                Call::Rename { from, to } => from != to && index < names,
                _ => false,
            };
            if let (true, Some(file)) = (is_asked, self.file[index]) {
                files.insert(file, index);
            }
        }
        Asked { names, files }
    }
}

/// The files of a state, numbered.
pub(super) fn numbered(state: &State) -> BTreeMap<String, FileNumber> {
    let files = state.iter().enumerate();
    files
        .filter(|(_, (_, entry))| matches!(entry, Entry::File(_)))
        .map(|(number, (path, _))| (path.clone(), number))
        .collect()
}
