//! Extended attributes as they are stored: in the file's own attributes, or in a hidden directory.
//!
//! # Mechanism
//! With `xattr=sa` they are a list of names and bytes in one attribute of the file, which is quick to reach and limited. With
//! `xattr=dir`, and when the list would be too large, each is a file in a directory that has no name, to which an
//! attribute of the file leads. Readers look into the list first and then into the directory, whatever the property says,
//! for it may have changed.
//!
//! Names are stored with their namespace. Some systems leave the namespace of users out (`xattr_compat=all`), so a name
//! without one is the users' too.
//!
//! # Invariants
//! - A name is in one of the two places: who puts it into one takes it out of the other, in the same transaction.

use std::sync::Arc;

use tarn_ondisk::attributes::FileAttribute;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_probe::Operation;

use crate::error::{PosixError, table_error};
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::ops::text_of;
use crate::types::{Credentials, FileKind};

/// The largest value, as Linux has it.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;
/// The longest name, as Linux has it.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// To whom an attribute belongs, by the start of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Everybody who may use the file.
    User,
    /// Privileged users.
    Trusted,
    /// Security modules.
    Security,
    /// The system: access control lists.
    System,
}

impl Namespace {
    const ALL: [(Namespace, &'static [u8]); 4] = [
        (Namespace::User, b"user."),
        (Namespace::Trusted, b"trusted."),
        (Namespace::Security, b"security."),
        (Namespace::System, b"system."),
    ];

    /// The namespace of a name.
    pub fn of(name: &[u8]) -> Option<Namespace> {
        let found = Namespace::ALL
            .iter()
            .find(|(_, prefix)| name.starts_with(prefix));
        found.map(|(namespace, _)| *namespace)
    }

    /// The name without the users' namespace, as some systems store it; none where that would be taken for something else.
    pub fn bare_user_name(name: &[u8]) -> Option<&[u8]> {
        let bare = name.strip_prefix(b"user.")?;
        (!bare.is_empty() && Namespace::of(bare).is_none()).then_some(bare)
    }

    /// Whether a user may see that there is an attribute of this namespace.
    pub fn is_visible_to(self, credentials: &Credentials) -> bool {
        self != Namespace::Trusted || credentials.privileged
    }
}

impl FileSystem {
    /// The value of an attribute of this exact name.
    pub(crate) fn stored_xattr(
        &self,
        node: &Node,
        facts: &Facts,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Option<Vec<u8>>, PosixError> {
        if let Some(NvValue::ByteArray(value)) = self.xattr_list(node, facts)?.get(name) {
            return Ok(Some(value.clone()));
        }
        let Some(directory) = self.xattr_directory(facts, operation)? else {
            return Ok(None);
        };
        let Some(entry) = self.directory(&directory, operation)?.find(name)? else {
            return Ok(None);
        };
        let file = self.node(entry.id, operation)?;
        let facts = file.facts();
        if facts.kind() != FileKind::Regular || facts.size > 16 * (64 << 10) {
            return Err(PosixError::Damaged {
                object: entry.id,
                why: "no extended attribute",
            });
        }
        Ok(Some(
            self.read_node(&file, 0, narrow(facts.size), operation)?
                .to_vec(),
        ))
    }

    /// The names of all attributes, as they are stored.
    pub(crate) fn stored_xattr_names(
        &self,
        node: &Node,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<Vec<Vec<u8>>, PosixError> {
        let list = self.xattr_list(node, facts)?;
        let mut names: Vec<Vec<u8>> = list
            .iter()
            .map(|(name, _)| name.as_bytes().to_vec())
            .collect();
        if let Some(directory) = self.xattr_directory(facts, operation)? {
            let table = self.directory(&directory, operation)?;
            let entries = table.zap.entries().map_err(table_error(directory.id))?;
            names.extend(entries.into_iter().filter_map(|entry| text_of(entry.name)));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// The list among the file's own attributes; an empty one if there is none.
    pub(crate) fn xattr_list(&self, node: &Node, facts: &Facts) -> Result<NvList, PosixError> {
        let tables = self.tables.current();
        match facts.value(FileAttribute::Xattrs, &tables) {
            Some(bytes) if !bytes.is_empty() => {
                NvList::decode(bytes).map_err(|what| PosixError::Attributes {
                    object: node.id,
                    what,
                })
            }
            _ => Ok(NvList::new()),
        }
    }

    /// The hidden directory, if the file has one.
    pub(crate) fn xattr_directory(
        &self,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<Option<Arc<Node>>, PosixError> {
        if facts.xattr_directory.is_zero() {
            return Ok(None);
        }
        let node = self.node(facts.xattr_directory, operation)?;
        match node.facts().is_directory() {
            true => Ok(Some(node)),
            false => Err(PosixError::Damaged {
                object: node.id,
                why: "the directory of extended attributes is none",
            }),
        }
    }
}
