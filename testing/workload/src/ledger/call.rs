//! System calls, and what each does to a model of the directory.

use std::collections::BTreeMap;

/// What files are created with: what no usual mask takes anything from.
pub(super) const NEW_MODE: u32 = 0o600;

/// One system call.
#[derive(Debug, Clone)]
pub(super) enum Call {
    MakeDirectory {
        path: String,
    },
    Create {
        path: String,
    },
    Write {
        path: String,
        at: usize,
        bytes: Vec<u8>,
    },
    SetSize {
        path: String,
        size: usize,
    },
    PunchHole {
        path: String,
        at: usize,
        length: usize,
    },
    SetMode {
        path: String,
        mode: u32,
    },
    SetAttribute {
        path: String,
        value: Vec<u8>,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    Link {
        path: String,
        target: String,
    },
    /// Changes nothing, and promises the last change of this file.
    Sync {
        path: String,
    },
}

impl Call {
    /// Whether it changes names, which every `fsync` promises.
    pub(super) fn is_of_names(&self) -> bool {
        matches!(
            self,
            Call::MakeDirectory { .. }
                | Call::Create { .. }
                | Call::Rename { .. }
                | Call::Remove { .. }
                | Call::Link { .. }
        )
    }
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    Directory,
    Link(String),
    File(Contents),
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) attribute: Option<Vec<u8>>,
}

impl Default for Contents {
    /// As a file is made.
    fn default() -> Contents {
        Contents {
            mode: NEW_MODE,
            bytes: Vec::new(),
            attribute: None,
        }
    }
}

/// What the directory has under each path.
pub(super) type State = BTreeMap<String, Entry>;

/// Changes a file as a call does.
pub(super) fn change(file: &mut Contents, call: &Call) {
    match call {
        Call::Write { at, bytes, .. } => {
            let end = at + bytes.len();
            if file.bytes.len() < end {
                file.bytes.resize(end, 0);
            }
            file.bytes[*at..end].copy_from_slice(bytes);
        }
        Call::SetSize { size, .. } => file.bytes.resize(*size, 0),
        Call::PunchHole { at, length, .. } => {
            let end = file.bytes.len().min(at + length);
            if *at < end {
                file.bytes[*at..end].fill(0);
            }
        }
        Call::SetMode { mode, .. } => file.mode = *mode,
        Call::SetAttribute { value, .. } => file.attribute = Some(value.clone()),
        _ => {}
    }
}

/// Does a call to a state.
pub(super) fn apply(state: &mut State, call: &Call) {
    match call {
        Call::MakeDirectory { path } => {
            state.insert(path.clone(), Entry::Directory);
        }
        Call::Create { path } => {
            state.insert(path.clone(), Entry::File(Contents::default()));
        }
        Call::Link { path, target } => {
            state.insert(path.clone(), Entry::Link(target.clone()));
        }
        Call::Remove { path } => {
            state.remove(path);
        }
        Call::Rename { from, to } => {
            if let Some(entry) = state.remove(from) {
                state.insert(to.clone(), entry);
            }
        }
        Call::Write { path, .. }
        | Call::SetSize { path, .. }
        | Call::PunchHole { path, .. }
        | Call::SetMode { path, .. }
        | Call::SetAttribute { path, .. } => {
            if let Some(Entry::File(file)) = state.get_mut(path) {
                change(file, call);
            }
        }
        Call::Sync { .. } => {}
    }
}
