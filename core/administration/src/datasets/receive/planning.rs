//! The plan of a stream: its target, and the conditions on the target.

use super::CANNOT;
use super::Run;
use super::package::{Package, Sent};
use super::properties::Target;
use crate::datasets::cannot_open;
use crate::messages::dataset::ReceiveNames;
use crate::messages::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::crypto_key::{KEY_DATA, KeyFacts};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::namespace::View;
use tarn_dataset::ops::receive::{ReceiveSettings, StreamFacts, is_clone};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::task::TaskRefusal;
use tarn_engine::engine::OpenPool;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::{Begin, StreamFeatures, begin_flags};

/// The facts of a stream that are known before its second record.
pub(super) struct Plan {
    pub(super) facts: StreamFacts,
    pub(super) flags: u32,
    /// The full name of the snapshot at the sender.
    pub(super) sent: String,
    /// Its full name here.
    pub(super) snapshot: DatasetName,
    /// The origin here, where the stream makes a clone.
    pub(super) origin: Option<String>,
    /// It creates a file system or volume.
    pub(super) makes_new: bool,
    /// It resumes an interrupted receive.
    pub(super) resumes: bool,
    /// The list in the first record, which has the position to resume at.
    pub(super) description: NvList,
    pub(super) settings: ReceiveSettings,
    /// Whether properties came with the stream.
    pub(super) has_properties: bool,
    pub(super) snapshot_properties: NvList,
    /// The key of an encrypted stream.
    pub(super) key: Option<KeyFacts>,
}

impl Plan {
    pub(super) fn target(&self) -> &str {
        self.snapshot.head()
    }

    pub(super) fn kinds(&self) -> Kinds {
        kinds_of(&self.facts)
    }

    /// The action that a refusal names.
    pub(super) fn action(&self) -> &'static str {
        match (self.makes_new, self.resumes) {
            (true, _) => "cannot receive new filesystem stream",
            (_, true) => "cannot receive resume stream",
            _ => "cannot receive incremental stream",
        }
    }

    pub(super) fn refuse(&self, kind: RefusalKind, reason: impl Into<String>) -> Refusal {
        Refusal::new(kind, self.action(), reason)
    }
}

fn kinds_of(facts: &StreamFacts) -> Kinds {
    match facts.objset_type {
        ObjsetType::Zvol => Kinds::VOLUME,
        _ => Kinds::FILESYSTEM,
    }
}

impl Run<'_> {
    /// Plans the target of a stream.
    pub(super) fn plan(
        &mut self,
        open: &Arc<OpenPool>,
        begin: &Begin,
        payload: &[u8],
        facts: StreamFacts,
        snapshot: DatasetName,
        of: Option<(&Package, Option<&Sent>)>,
    ) -> Result<Plan, Refusal> {
        let sent = of.and_then(|(_, sent)| sent);
        let description = match payload {
            [] => NvList::default(),
            payload => NvList::decode(payload).map_err(|why| {
                let reason = format!("invalid stream (its description cannot be read: {why})");
                Refusal::new(RefusalKind::Invalid, CANNOT, reason)
            })?,
        };
        let resumes = facts.features.has(StreamFeatures::RESUMING);
        let asked = self.request.properties.iter().rev();
        let asked = asked.clone().find(|(name, _)| name == "origin");
        let mut plan = Plan {
            sent: facts.to_name.clone(),
            flags: begin.flags,
            makes_new: false,
            resumes,
            origin: asked.map(|(_, value)| value.clone()),
            snapshot,
            description,
            settings: ReceiveSettings::default(),
            has_properties: sent.is_some(),
            snapshot_properties: sent
                .map_or_else(NvList::default, |sent| sent.properties_of(facts.to_guid)),
            key: None,
            facts,
        };
        plan.key = key_of(&plan)?;
        let wants_new = plan.facts.from_guid == 0 || plan.facts.is_clone || plan.origin.is_some();
        plan.makes_new = wants_new && !resumes;
        let namespace = open.pool.namespace();
        let view = namespace.view(self.operation);
        if plan.facts.is_clone && plan.origin.is_none() {
            let found = snapshot_with(view, plan.target(), plan.facts.from_guid);
            plan.origin = Some(found.ok_or_else(|| {
                let reason = format!("local origin for clone {} does not exist", plan.snapshot);
                plan.refuse(RefusalKind::NotFound, reason)
            })?);
        }
        self.find_moved(view, &mut plan, sent)?;
        let head =
            head_of(view, plan.target()).map_err(|error| cannot_open(plan.target(), &error))?;
        match &head {
            Some(head) => self.check_existing(&plan, head)?,
            None => self.check_missing(view, &plan)?,
        }
        let is_top = self.top.get_or_insert_with(|| plan.target().to_string()) == plan.target();
        let target = Target {
            name: plan.target(),
            kinds: plan.kinds(),
            is_top,
            is_of_tree: of.is_some_and(|(package, _)| package.is_tree),
            is_raw: plan.key.is_some(),
        };
        plan.settings = self.settings(open, &target, sent.map(|sent| &sent.properties))?;
        Ok(plan)
    }

    /// A file system of a package may have been moved here: an increment's target is found by the
    /// guid of the snapshot that it goes on from, a new file system's parent by the guid of the
    /// parent's snapshot.
    fn find_moved(
        &self,
        view: View<'_>,
        plan: &mut Plan,
        sent: Option<&Sent>,
    ) -> Result<(), Refusal> {
        let short = plan.snapshot.tail().unwrap_or_default().to_string();
        let is_there = |name: &str| head_of(view, name).is_ok_and(|head| head.is_some());
        let found = if plan.makes_new {
            let parent = plan
                .snapshot
                .parent()
                .map(|(parent, component)| (parent.to_string(), component.to_string()));
            let guid = sent.map_or(0, |sent| sent.parent_guid);
            match parent {
                Some((parent, component)) if guid != 0 && !is_there(&parent) => {
                    let found = snapshot_with(view, plan.target(), guid);
                    found.map(|name| {
                        let head = name.split('@').next().unwrap_or_default();
                        format!("{head}/{component}@{short}")
                    })
                }
                _ => None,
            }
        } else if sent.is_some() && !is_there(plan.target()) {
            let found = snapshot_with(view, plan.target(), plan.facts.from_guid);
            found.map(|name| {
                let head = name.split('@').next().unwrap_or_default();
                format!("{head}@{short}")
            })
        } else {
            None
        };
        if let Some(found) = found {
            plan.snapshot = DatasetName::parse(&found)
                .map_err(|bad| plan.refuse(RefusalKind::Invalid, bad.to_string()))?;
        }
        Ok(())
    }

    /// Checks a target that exists.
    fn check_existing(&self, plan: &Plan, head: &Dataset<'_>) -> Result<(), Refusal> {
        let exists = |reason: String| plan.refuse(RefusalKind::Exists, reason);
        let failed = |error: DatasetError| cannot_open(plan.target(), &error);
        if !plan.makes_new {
            return Ok(());
        }
        let name = plan.target();
        if !self.request.force {
            return Err(exists(format!(
                "destination '{name}' exists\nmust specify -F to overwrite it"
            )));
        }
        if let Some(first) = head.snapshots().map_err(failed)?.first() {
            let first = first.name();
            return Err(exists(format!(
                "destination has snapshots (eg. {first})\nmust destroy them to overwrite it"
            )));
        }
        if plan.kinds() == Kinds::VOLUME {
            let directory = head.directory();
            if !name.contains('/') {
                return Err(exists(format!(
                    "destination {name} is the root dataset\ncannot overwrite with a ZVOL"
                )));
            }
            let children = directory.child_names().map_err(failed)?;
            if let Some(first) = children.first() {
                return Err(exists(format!(
                    "destination has children (eg. {name}/{first})\ncannot overwrite with a ZVOL"
                )));
            }
        }
        let view = head.directory().view();
        if is_clone(view, head).map_err(failed)? {
            return Err(exists(format!(
                "destination '{name}' is a clone\nmust destroy it to overwrite it"
            )));
        }
        if plan.origin.is_some() {
            return Err(exists(format!(
                "destination '{name}' exists\nmust destroy it to overwrite it with a clone"
            )));
        }
        Ok(())
    }

    /// Checks that a target can be created.
    fn check_missing(&self, view: View<'_>, plan: &Plan) -> Result<(), Refusal> {
        let Some((parent, _)) = plan.snapshot.parent().filter(|_| plan.makes_new) else {
            let reason = format!("destination '{}' does not exist", plan.target());
            return Err(plan.refuse(RefusalKind::NotFound, reason));
        };
        let head = head_of(view, parent).map_err(|error| cannot_open(parent, &error))?;
        let Some(head) = head else {
            // Missing parents are created later, once the stream is known to be allowed.
            if self.request.names == ReceiveNames::AllButPool {
                return Ok(());
            }
            let action = format!("cannot open '{parent}'");
            let refusal = Refusal::new(RefusalKind::NotFound, action, "dataset does not exist");
            return Err(refusal.with_hint(format!(
                "{}: unable to restore to destination",
                plan.action()
            )));
        };
        match contents::outline(&head) {
            Ok(Contents::Volume(_)) => {
                let reason = format!("parent '{parent}' is not a filesystem");
                Err(plan.refuse(RefusalKind::Invalid, reason))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(cannot_open(parent, &error)),
        }
    }
}

/// The key in a raw stream.
fn key_of(plan: &Plan) -> Result<Option<KeyFacts>, Refusal> {
    if !plan.facts.features.has(StreamFeatures::RAW) {
        return Ok(None);
    }
    if plan.facts.features.has(StreamFeatures::EMBEDDED) {
        let reason = "incompatible embedded data stream feature with encrypted receive.";
        return Err(plan.refuse(RefusalKind::Invalid, reason));
    }
    if plan.flags & begin_flags::SPILL_BLOCK == 0 {
        let reason = "Spill block flag missing for raw send.\n\
                      The zfs software on the sending system must be updated.";
        return Err(plan.refuse(RefusalKind::Invalid, reason));
    }
    let list = plan.description.list(KEY_DATA);
    let list = list.map_err(|why| {
        let reason = format!("invalid stream (it has no key: {why})");
        plan.refuse(RefusalKind::Invalid, reason)
    })?;
    match KeyFacts::parse(list) {
        Ok(key) => Ok(Some(key)),
        Err(refusal @ TaskRefusal::NotSupported { .. }) => {
            let reason = "stream uses crypto parameters not compatible with this pool";
            let refused = plan.refuse(RefusalKind::Unsupported, reason);
            Err(refused.with_hint(refusal.to_string()))
        }
        Err(refusal) => Err(plan.refuse(RefusalKind::Invalid, refusal.to_string())),
    }
}

/// The head of this name, if it exists.
pub(super) fn head_of<'a>(view: View<'a>, name: &str) -> Result<Option<Dataset<'a>>, DatasetError> {
    match view.directory(name).and_then(|found| found.head()) {
        Err(DatasetError::NotFound { .. }) => Ok(None),
        found => found,
    }
}

/// The full name of a snapshot with this guid: the one nearest to a dataset, or else any in the
/// pool.
#[doc(alias = "guid_to_name")]
fn snapshot_with(view: View<'_>, near: &str, guid: u64) -> Option<String> {
    let mut above = Some(near);
    while let Some(name) = above {
        let directory = view.directory(name).ok();
        if let Some(found) = directory.and_then(|directory| snapshot_below(directory, guid)) {
            return Some(found);
        }
        above = name.rsplit_once('/').map(|(parent, _)| parent);
    }
    None
}

fn snapshot_below(top: Directory<'_>, guid: u64) -> Option<String> {
    let mut waiting = vec![top];
    while let Some(directory) = waiting.pop() {
        let head = directory.head().ok().flatten();
        let snapshots = head.and_then(|head| head.snapshots().ok());
        for snapshot in snapshots.unwrap_or_default() {
            let stored = snapshot.stored();
            if stored.is_ok_and(|stored| stored.guid.get() == guid) {
                return Some(snapshot.name());
            }
        }
        waiting.extend(directory.children().unwrap_or_default());
    }
    None
}
