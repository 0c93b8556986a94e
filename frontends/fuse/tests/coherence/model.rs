//! The model: what both holders must show.

use std::collections::{BTreeMap, BTreeSet};
use tarn_engine::files::FileKind;

/// A file, by its visible state.
#[derive(Debug, Clone)]
pub struct ModelFile {
    pub kind: FileKind,
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub contents: Vec<u8>,
    pub target: String,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Directories and names in them.
    pub names: BTreeSet<(u64, String)>,
}

impl ModelFile {
    pub fn new(kind: FileKind, permissions: u32) -> ModelFile {
        ModelFile {
            kind,
            permissions,
            uid: 0,
            gid: 0,
            contents: Vec::new(),
            target: String::new(),
            xattrs: BTreeMap::new(),
            names: BTreeSet::new(),
        }
    }

    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// All files, by inode number, and the contents of directories.
#[derive(Debug, Default)]
pub struct Model {
    pub files: BTreeMap<u64, ModelFile>,
    pub entries: BTreeMap<u64, BTreeMap<String, u64>>,
    pub root: u64,
}

impl Model {
    pub fn new(root: u64) -> Model {
        let mut model = Model {
            root,
            ..Model::default()
        };
        let top = ModelFile::new(FileKind::Directory, 0o755);
        model.files.insert(root, top);
        model.entries.insert(root, BTreeMap::new());
        model
    }

    pub fn find(&self, directory: u64, name: &str) -> Option<u64> {
        self.entries[&directory].get(name).copied()
    }

    /// The link count of a file.
    pub fn links(&self, id: u64) -> u64 {
        let file = &self.files[&id];
        if !file.is_directory() {
            return u64::try_from(file.names.len()).unwrap();
        }
        let below = self.entries[&id].values();
        let directories = below.filter(|id| self.files[id].is_directory());
        2 + u64::try_from(directories.count()).unwrap()
    }

    /// The path of a directory below the root, without a leading slash.
    pub fn path_of(&self, directory: u64) -> String {
        let mut path = String::new();
        let mut at = directory;
        while at != self.root {
            let (parent, name) = self.files[&at].names.first().expect("it is in the tree");
            path = format!("{name}/{path}");
            at = *parent;
        }
        path
    }

    /// The depth of a directory.
    pub fn depth(&self, directory: u64) -> usize {
        self.path_of(directory).matches('/').count()
    }

    pub fn is_within(&self, directory: u64, above: u64) -> bool {
        let mut at = directory;
        while at != self.root {
            if at == above {
                return true;
            }
            at = self.files[&at].names.first().expect("it is in the tree").0;
        }
        at == above
    }

    pub fn add_name(&mut self, id: u64, directory: u64, name: &str) {
        let before = (self.entries.get_mut(&directory).unwrap()).insert(name.to_string(), id);
        assert_eq!(before, None);
        let names = &mut self.files.get_mut(&id).unwrap().names;
        names.insert((directory, name.to_string()));
    }

    /// Removes a name. The caller decides when the file goes.
    pub fn remove_name(&mut self, directory: u64, name: &str) -> u64 {
        let entries = self.entries.get_mut(&directory).unwrap();
        let id = entries.remove(name).expect("the name is there");
        let names = &mut self.files.get_mut(&id).unwrap().names;
        assert!(names.remove(&(directory, name.to_string())));
        id
    }

    /// Removes a file without names that no program has open.
    pub fn forget(&mut self, id: u64) {
        self.files.remove(&id);
        self.entries.remove(&id);
    }
}
