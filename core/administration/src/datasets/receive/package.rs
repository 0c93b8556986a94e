//! Stream packages: the streams of several snapshots, and the list of contents before them.

use super::tree::When;
use super::{CANNOT, Run, unreadable};
use crate::messages::{Refusal, RefusalKind};
use std::collections::BTreeMap;
use std::io::Read;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::stream::Begin;
use tarn_stream::reading::StreamReader;

/// The list of contents of a package.
#[derive(Debug, Clone, Default)]
pub(super) struct Package {
    /// The file system that was sent.
    base: String,
    /// The short name of the snapshot that increments begin with.
    pub(super) from: Option<String>,
    /// The short name of the last snapshot.
    last: Option<String>,
    /// It has the file systems below too (`-R`).
    pub(super) is_tree: bool,
    /// Encrypted datasets are sent raw.
    pub(super) is_raw: bool,
    filesystems: Vec<Sent>,
    /// The file system of each snapshot, by guid.
    owners: BTreeMap<u64, usize>,
}

/// A file system or volume of a package.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// Its full name at the sender.
    pub(super) name: String,
    /// The guid of its parent's snapshot.
    pub(super) parent_guid: u64,
    /// The guid of its origin.
    pub(super) origin: Option<u64>,
    /// It is an encryption root.
    pub(super) is_key_root: bool,
    /// Properties.
    pub(super) properties: NvList,
    /// Short names and guids of its snapshots.
    snapshots: Vec<(String, u64)>,
    /// Properties by short name of a snapshot.
    snapshot_properties: NvList,
    /// Holds by short name of a snapshot.
    snapshot_holds: NvList,
}

impl Sent {
    /// The short name of the snapshot with this guid.
    pub(super) fn snapshot(&self, guid: u64) -> Option<&str> {
        let found = self.snapshots.iter().find(|(_, one)| *one == guid);
        found.map(|(name, _)| name.as_str())
    }

    /// Whether it has a snapshot of this short name.
    pub(super) fn has(&self, short: &str) -> bool {
        self.snapshots.iter().any(|(name, _)| name == short)
    }

    /// The tags of holds on the snapshot with this guid.
    pub(super) fn holds_of(&self, guid: u64) -> Vec<String> {
        let found = self.snapshot(guid);
        let list = found.and_then(|name| self.snapshot_holds.list(name).ok());
        let tags = list.into_iter().flat_map(|list| list.iter());
        tags.filter_map(|(tag, _)| tag.as_str().map(str::to_string))
            .collect()
    }

    /// Its `keylocation` at the sender, if that was sent.
    pub(super) fn key_location(&self) -> Option<String> {
        let said = self.properties.list(super::properties::KEY_LOCATION).ok()?;
        said.string("value").ok().map(str::to_string)
    }

    /// The properties of the snapshot with this guid.
    pub(super) fn properties_of(&self, guid: u64) -> NvList {
        let found = self.snapshot(guid);
        let list = found.and_then(|name| self.snapshot_properties.list(name).ok());
        list.cloned().unwrap_or_default()
    }
}

impl Package {
    /// Decodes the list of contents.
    pub(super) fn read(begin: &Begin, payload: &[u8]) -> Result<Package, Refusal> {
        let invalid = |why: String| {
            let reason = format!("invalid stream (its description cannot be read: {why})");
            Refusal::new(RefusalKind::Invalid, CANNOT, reason)
        };
        let name = begin.to_name.as_str().unwrap_or_default();
        let base = name.split('@').next().unwrap_or_default().to_string();
        if payload.is_empty() {
            return Ok(Package {
                base,
                ..Package::default()
            });
        }
        let list = NvList::decode(payload).map_err(|why| invalid(why.to_string()))?;
        let read = || -> Result<Package, tarn_ondisk::nvlist::NvError> {
            let mut filesystems = Vec::new();
            if let Some(all) = list.optional_list("fss")? {
                for (guid, _) in all.iter() {
                    filesystems.push(read_sent(all.list(guid)?)?);
                }
            }
            Ok(Package {
                owners: owners_of(&filesystems),
                base: base.clone(),
                from: list.optional_string("fromsnap")?.map(str::to_string),
                last: list.optional_string("tosnap")?.map(str::to_string),
                is_tree: !list.flag("not_recursive"),
                is_raw: list.flag("raw"),
                filesystems,
            })
        };
        read().map_err(|why| invalid(why.to_string()))
    }

    /// The file system that was sent.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// The file system that has the snapshot with this guid.
    #[doc(alias = "fsavl_find")]
    pub(super) fn find(&self, guid: u64) -> Option<&Sent> {
        self.owner(guid).map(|owner| self.sent(owner))
    }

    /// The same, as an index.
    pub(super) fn owner(&self, guid: u64) -> Option<usize> {
        self.owners.get(&guid).copied()
    }

    /// One of its file systems.
    pub(super) fn sent(&self, index: usize) -> &Sent {
        &self.filesystems[index]
    }

    /// How many it has.
    pub(super) fn count(&self) -> usize {
        self.filesystems.len()
    }
}

fn owners_of(filesystems: &[Sent]) -> BTreeMap<u64, usize> {
    let mut owners = BTreeMap::new();
    for (index, sent) in filesystems.iter().enumerate() {
        for (_, guid) in &sent.snapshots {
            owners.entry(*guid).or_insert(index);
        }
    }
    owners
}

fn read_sent(list: &NvList) -> Result<Sent, tarn_ondisk::nvlist::NvError> {
    let mut snapshots = Vec::new();
    if let Some(all) = list.optional_list("snaps")? {
        for (name, _) in all.iter() {
            let short = name.as_str().unwrap_or_default().to_string();
            snapshots.push((short, all.u64(name)?));
        }
    }
    let inner = |name: &str| list.optional_list(name).map(|found| found.cloned());
    Ok(Sent {
        name: list
            .optional_string("name")?
            .unwrap_or_default()
            .to_string(),
        origin: list.optional_u64("origin")?,
        parent_guid: list.optional_u64("parentfromsnap")?.unwrap_or(0),
        is_key_root: list.flag("is_encroot"),
        properties: inner("props")?.unwrap_or_default(),
        snapshots,
        snapshot_properties: inner("snapprops")?.unwrap_or_default(),
        snapshot_holds: inner("snapholds")?.unwrap_or_default(),
    })
}

impl Run<'_> {
    /// Receives the streams of a package, to its end.
    #[doc(alias = "zfs_receive_package")]
    pub(super) fn take_package(
        &mut self,
        reader: &mut StreamReader<&mut dyn Read>,
        package: &Package,
    ) -> Result<(), Refusal> {
        // The list of contents is a stream of its own, with an end record.
        let end = reader.next().map_err(|error| unreadable(&error))?;
        if !matches!(end.record, tarn_ondisk::stream::Record::End(_)) {
            let reason = "invalid stream (its description does not end)";
            return Err(Refusal::new(RefusalKind::Invalid, CANNOT, reason));
        }
        self.last.clone_from(&package.last);
        self.follow_sender(package, When::Before)?;
        loop {
            let begun = reader.begin().map_err(|error| unreadable(&error))?;
            let Some((begin, payload)) = begun else {
                self.follow_sender(package, When::After)?;
                self.follow_keys(package);
                return Ok(());
            };
            let sent = package.find(begin.to_guid);
            let name = begin.to_name.as_str().unwrap_or_default();
            let base = match name.starts_with(&package.base) {
                true => package.base.clone(),
                // An older sender does not name the file system that was sent.
                false => name.split('@').next().unwrap_or_default().to_string(),
            };
            self.take_one(reader, &begin, &payload, &base, Some((package, sent)))?;
        }
    }
}
