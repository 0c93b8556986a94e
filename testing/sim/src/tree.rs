//! What is in a file system: all names, and all files they lead to.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tarn_engine::files::{Credentials, DirectoryEntry, FileKind, FileSystem, ObjectId, PosixError};
use tarn_hostile::house::operation;

/// More than any file here has.
const READ_BYTES: usize = 16 << 20;

/// The file that makes a pool nearly full. No actor changes it, and a walk through the pool has
/// verified it.
pub const FILLING: &str = "filling";

/// A file, as far as a program can see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Contents; of a symbolic link, its target.
    pub bytes: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A file that was found, with the number of its names.
#[derive(Debug, Clone)]
pub struct FoundFile {
    /// The file.
    pub file: File,
    /// What it says of its names.
    pub links: u64,
}

/// All names and files of a file system, but for its root.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Object numbers by path.
    pub names: BTreeMap<String, u64>,
    /// Files by object number.
    pub files: BTreeMap<u64, FoundFile>,
}

impl Tree {
    /// Reads everything.
    ///
    /// # Errors
    /// What could not be read.
    pub fn read(files: &Arc<FileSystem>) -> Result<Tree, String> {
        let mut tree = Tree::default();
        tree.read_folder(files, files.root(), "")?;
        Ok(tree)
    }

    fn read_folder(
        &mut self,
        files: &Arc<FileSystem>,
        folder: ObjectId,
        path: &str,
    ) -> Result<(), String> {
        let root = Credentials::root();
        let mut entries: Vec<DirectoryEntry> = Vec::new();
        let mut take = |entry: DirectoryEntry| {
            entries.push(entry);
            true
        };
        files
            .read_directory(&root, folder, 0, &mut take, &operation())
            .map_err(|error| format!("listing /{path}: {error}"))?;
        for entry in entries {
            if entry.name == b"." || entry.name == b".." || entry.name == FILLING.as_bytes() {
                continue;
            }
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let path = match path {
                "" => name,
                path => format!("{path}/{name}"),
            };
            if let Entry::Vacant(vacant) = self.files.entry(entry.id.get()) {
                let found = read_file(files, entry.id)
                    .map_err(|error| format!("reading /{path}: {error}"))?;
                if found.file.kind != entry.kind {
                    return Err(format!("/{path} is not what its folder says"));
                }
                vacant.insert(found);
            }
            if entry.kind == FileKind::Directory {
                self.read_folder(files, entry.id, &path)?;
            }
            self.names.insert(path, entry.id.get());
        }
        Ok(())
    }
}

fn read_file(files: &Arc<FileSystem>, id: ObjectId) -> Result<FoundFile, PosixError> {
    let root = Credentials::root();
    let attributes = files.attributes(id, &operation())?;
    let bytes = match attributes.kind {
        FileKind::Regular => {
            let read = files.read(&root, id, 0, READ_BYTES, &operation())?.to_vec();
            if u64::try_from(read.len()) != Ok(attributes.size) {
                return Err(PosixError::Damaged {
                    object: id,
                    why: "it has less than its size says",
                });
            }
            read
        }
        FileKind::SymbolicLink => files.read_link(&root, id, &operation())?,
        _ => Vec::new(),
    };
    let mut xattrs = BTreeMap::new();
    for name in files.list_xattr(&root, id, &operation())? {
        let value = files.get_xattr(&root, id, &name, &operation())?;
        xattrs.insert(name, value);
    }
    let file = File {
        kind: attributes.kind,
        mode: attributes.permissions,
        owner: (attributes.uid, attributes.gid),
        bytes,
        xattrs,
    };
    Ok(FoundFile {
        file,
        links: attributes.links,
    })
}
