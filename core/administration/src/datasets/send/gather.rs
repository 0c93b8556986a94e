//! The package list of a send: file systems, their snapshots, properties and holds.
//!
//! # Mechanism
//! A name-value list as OpenZFS's receivers read it, in the order of its senders:
//!
//! ```text
//!   fss: { 0x…guid: { name, parentfromsnap, origin?, props?: { property: value },
//!                     snaps: { snapshot: guid }, snapprops: { snapshot: { property: value } },
//!                     snapholds?: { snapshot: { tag: time } } } }
//! ```
//!
//! `parentfromsnap` gives a file system's place in the tree: the guid of the parent's snapshot at
//! which the series begins, or at which it ends where the parent is new.

use super::cannot_send;
use super::plan::{Facts, facts_of, origin};
use crate::messages::dataset::{Send, Series};
use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::crypto_key;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::namespace::View;
use tarn_dataset::properties::inherit::{Found, Given, given};
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::Txg;

/// The list, with the facts that decide the order of streams.
pub(super) struct Gathered {
    pub list: NvList,
    pub systems: Vec<System>,
    pub warnings: Vec<String>,
}

/// One file system or volume.
pub(super) struct System {
    pub name: String,
    pub parent_from_guid: u64,
    pub origin: Option<u64>,
    snapshots: Vec<u64>,
}

impl System {
    /// Whether one of its gathered snapshots has this guid.
    pub fn has_snapshot(&self, guid: u64) -> bool {
        self.snapshots.contains(&guid)
    }
}

/// Gathers a file system, and with `-R` those below it. `from` and `to` are short names of
/// snapshots.
pub(super) fn gather(
    view: View<'_>,
    request: &Send,
    name: &str,
    from: Option<&str>,
    to: &str,
) -> Result<Result<Gathered, Refusal>, DatasetError> {
    let none = Series::default();
    let mut gatherer = Gatherer {
        view,
        request,
        series: request.series.as_ref().unwrap_or(&none),
        top: name,
        from,
        to,
        gathered: Gathered {
            list: NvList::new(),
            systems: Vec::new(),
            warnings: Vec::new(),
        },
        seen: Seen::default(),
        refusal: None,
    };
    gatherer.filesystem(&view.directory(name)?, 0, Txg::ZERO)?;
    Ok(match gatherer.refusal {
        None => Ok(gatherer.gathered),
        Some(refusal) => Err(refusal),
    })
}

struct Gatherer<'a> {
    view: View<'a>,
    request: &'a Send,
    series: &'a Series,
    top: &'a str,
    from: Option<&'a str>,
    to: &'a str,
    gathered: Gathered,
    seen: Seen,
    refusal: Option<Refusal>,
}

/// Which ends of the series were seen. As in OpenZFS, this is kept from one file system to the
/// next.
#[derive(Default)]
struct Seen {
    from: bool,
    to: bool,
}

/// The snapshots of one file system in the list.
#[derive(Default)]
struct Snapshots {
    guids: NvList,
    properties: NvList,
    holds: NvList,
    all: Vec<u64>,
    /// The guid for children's `parentfromsnap`.
    from_guid: u64,
}

impl Gatherer<'_> {
    /// Gathers one file system, and with `-R` those below it. `to_txg` is the txg of the parent's
    /// last snapshot.
    #[doc(alias = "send_iterate_fs")]
    fn filesystem(
        &mut self,
        directory: &Directory<'_>,
        parent_from_guid: u64,
        parent_to_txg: Txg,
    ) -> Result<(), DatasetError> {
        let name = directory.name();
        if self.refusal.is_some() {
            return Ok(());
        }
        let Some(head) = directory.head()? else {
            return Ok(());
        };
        let stored = head.stored()?;
        let snapshots = facts_of(&head)?;
        let named = |short: &str| snapshots.iter().find(|one| one.short == short);
        let last = named(self.to);
        let to_txg = last.map_or(parent_to_txg, |last| last.txg);
        if last.is_none() && !self.to.is_empty() {
            self.missing(name, stored.creation_txg, parent_to_txg);
            return Ok(());
        }
        let mut list = NvList::new();
        list.set("name", name);
        list.set("parentfromsnap", parent_from_guid);
        let origin = origin(self.view, &head)?;
        let origin_guid = match &origin {
            Some(origin) => Some(origin.stored()?.guid.get()),
            None => None,
        };
        if let Some(guid) = origin_guid {
            list.set("origin", guid);
        }
        if self.request.properties || self.request.backup || self.series.replicate {
            list.set("props", self.properties(&head)?);
        }
        if crypto_key::is_root(directory)? {
            list.set_flag("is_encroot");
        }
        if directory.extension(CRYPTO_KEY)?.is_some() && !self.request.raw {
            let (top, to) = (self.top, self.to);
            self.refuse(format!(
                "cannot send {top}@{to}: encrypted dataset {name} may not be sent with properties without the raw flag"
            ));
            return Ok(());
        }
        let said = self.snapshots(&head, &snapshots, to_txg)?;
        list.set("snaps", said.guids);
        list.set("snapprops", said.properties);
        if self.request.holds {
            list.set("snapholds", said.holds);
        }
        let guid = stored.guid.get();
        self.gathered.list.set(format!("0x{guid:x}"), list);
        self.gathered.systems.push(System {
            name: name.to_string(),
            parent_from_guid,
            origin: origin_guid,
            snapshots: said.all,
        });
        if self.series.replicate {
            for child in directory.stored_child_names()? {
                if let Some(child) = directory.child(&child)? {
                    self.filesystem(&child, said.from_guid, to_txg)?;
                }
            }
        }
        Ok(())
    }

    /// A file system without the last snapshot. One created after that snapshot gives no warning.
    fn missing(&mut self, name: &str, created: Txg, parent_to_txg: Txg) {
        let (top, to) = (self.top, self.to);
        if !parent_to_txg.is_zero() && created > parent_to_txg {
            if self.series.verbose {
                let text = format!("skipping dataset {name}: snapshot {to} does not exist");
                self.gathered.warnings.push(text);
            }
        } else if self.series.skip_missing {
            self.gathered.warnings.push(format!(
                "WARNING: skipping dataset {name} and its children: snapshot {to} does not exist"
            ));
        } else {
            let how = if self.series.replicate {
                " recursively"
            } else {
                ""
            };
            self.refuse(format!(
                "cannot send {top}@{to}{how}: snapshot {name}@{to} does not exist"
            ));
        }
    }

    fn refuse(&mut self, why: String) {
        let name = format!("{}@{}", self.top, self.to);
        let action = format!("{why}\nwarning: {}", cannot_send(&name));
        self.refusal = Some(Refusal::new(RefusalKind::NotFound, action, "backup failed"));
    }

    #[doc(alias = "send_iterate_snap")]
    fn snapshots(
        &mut self,
        head: &Dataset<'_>,
        snapshots: &[Facts],
        to_txg: Txg,
    ) -> Result<Snapshots, DatasetError> {
        let named = |short: Option<&str>| {
            let found = snapshots
                .iter()
                .find(|one| Some(one.short.as_str()) == short);
            found.map(|one| one.txg)
        };
        let mut said = Snapshots::default();
        let is_whole = self.series.all_between || self.series.replicate || self.to.is_empty();
        if !is_whole && self.from.is_some() {
            self.seen.from = true;
        }
        let (first, last) = match self.series.replicate {
            true => (None, None),
            false => (named(self.from), named(Some(self.to))),
        };
        for snapshot in snapshots {
            let is_in_range = first.is_none_or(|first| snapshot.txg >= first)
                && last.is_none_or(|last| snapshot.txg <= last);
            let is_looked_at = match is_whole {
                true => is_in_range,
                false => snapshot.short == self.to,
            };
            if !is_looked_at {
                continue;
            }
            if !to_txg.is_zero() && snapshot.txg > to_txg {
                if self.series.verbose {
                    self.gathered.warnings.push(format!(
                        "skipping snapshot {}@{} because it was created after the destination snapshot ({})",
                        head.name(),
                        snapshot.short,
                        self.to
                    ));
                }
                continue;
            }
            said.guids.set(snapshot.short.as_str(), snapshot.guid);
            said.all.push(snapshot.guid);
            let is_from = self.from == Some(snapshot.short.as_str());
            let is_to = snapshot.short == self.to;
            if is_from || (said.from_guid == 0 && is_to) {
                said.from_guid = snapshot.guid;
            }
            if self.is_sent(is_from, is_to) {
                self.say(head, snapshot, &mut said)?;
            }
        }
        Ok(said)
    }

    /// Whether a snapshot is sent, and not only listed.
    fn is_sent(&mut self, is_from: bool, is_to: bool) -> bool {
        if self.series.replicate {
            return true;
        }
        if self.series.all_between && self.from.is_none() {
            self.seen.from = true;
        }
        if !self.seen.from && is_from {
            self.seen.from = true;
            return false;
        }
        let is_alone = is_to && self.from.is_none();
        if (self.seen.to || !self.seen.from) && !is_alone {
            return false;
        }
        self.seen.to |= is_to;
        true
    }

    fn say(
        &self,
        head: &Dataset<'_>,
        snapshot: &Facts,
        said: &mut Snapshots,
    ) -> Result<(), DatasetError> {
        let Some(found) = head.snapshot(&snapshot.short)? else {
            return Ok(());
        };
        let short = snapshot.short.as_str();
        said.properties.set(short, self.properties(&found)?);
        if self.request.holds {
            let mut holds = NvList::new();
            for (tag, time) in found.stored_holds()? {
                holds.set(tag, time);
            }
            said.holds.set(short, holds);
        }
        Ok(())
    }

    fn properties(&self, dataset: &Dataset<'_>) -> Result<NvList, DatasetError> {
        let which = match self.request.backup {
            true => Given::Received,
            false => Given::InEffect,
        };
        let mut list = NvList::new();
        for (name, value) in given(dataset, which)? {
            match value {
                Found::Number(number) => list.set(name, number),
                Found::Text(text) => list.set(name, text),
            }
        }
        Ok(list)
    }
}

/// Whether a file system, or an ancestor, was excluded: it is listed, and not sent.
pub(super) fn is_excluded(name: &str, excluded: &[String]) -> bool {
    excluded.iter().any(|excluded| {
        let rest = name.strip_prefix(excluded.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}
