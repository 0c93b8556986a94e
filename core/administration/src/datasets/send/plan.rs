//! The plan of a send: which snapshots, in which order, and from which base.
//!
//! # Mechanism
//! One snapshot is a plan of one step. A series goes through file systems, each after its parent
//! and its origin; in each, through the snapshots from the first to the last, each based on the one
//! before. A snapshot that cannot be sent is left out with a warning, as in OpenZFS.

use super::super::cannot_open;
use super::gather::{Gathered, System, gather, is_excluded};
use super::{cannot_send, parse};
use crate::messages::dataset::{Send, Series};
use crate::messages::{Refusal, RefusalKind};
use std::collections::BTreeSet;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::dataset::{Dataset, NamedBookmark};
use tarn_dataset::error::DatasetError;
use tarn_dataset::in_use::Use;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::namespace::View;
use tarn_dataset::space_used::is_before;
use tarn_engine::engine::OpenPool;
use tarn_ondisk::nvlist::{Encoding, NvList};
use tarn_ondisk::stream::StreamFeatures;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;

/// The ZPL version since which attributes can be in a spill block.
const SYSTEM_ATTRIBUTES_VERSION: u64 = 5;

/// One snapshot to be sent.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub name: String,
    pub id: ObjectId,
    pub from: From,
}

/// The base of a step.
#[derive(Debug, Clone)]
pub(super) enum From {
    Nothing,
    /// A snapshot, by its full name.
    Snapshot(String, ObjectId),
    /// A bookmark, by its full name.
    Bookmark(String),
    /// The dataset's origin, which the request does not name.
    Origin(ObjectId),
}

impl Step {
    /// The datasets that must not be destroyed during the send.
    pub fn datasets(&self) -> impl Iterator<Item = ObjectId> {
        let from = match &self.from {
            From::Snapshot(_, id) | From::Origin(id) => Some(*id),
            From::Nothing | From::Bookmark(_) => None,
        };
        std::iter::once(self.id).chain(from)
    }

    /// The base as it is printed.
    pub fn shown_from(&self, is_series: bool) -> Option<String> {
        match &self.from {
            From::Nothing | From::Origin(_) => None,
            From::Snapshot(name, _) if is_series => Some(short_of(name).to_string()),
            From::Snapshot(name, _) | From::Bookmark(name) => Some(name.clone()),
        }
    }
}

/// The package header before the streams.
#[derive(Debug, Clone)]
pub(super) struct Description {
    pub name: String,
    pub features: StreamFeatures,
    /// The encoded list; empty where the request has several snapshots without properties.
    pub list: Vec<u8>,
}

/// A plan.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub description: Option<Description>,
    pub steps: Vec<Step>,
    pub warnings: Vec<String>,
    pub is_incomplete: bool,
    /// The last file system has nothing to send, and OpenZFS writes no end record then.
    pub is_empty: bool,
}

impl Plan {
    /// Makes a plan, and keeps its datasets until it is carried out.
    pub fn make<'a>(
        open: &'a OpenPool,
        request: &Send,
        operation: &Operation,
    ) -> Result<(Plan, Vec<Use<'a>>), Refusal> {
        let namespace = open.pool.namespace();
        let find = || Plan::find(namespace.view(operation), request);
        let datasets = |made: &Result<Plan, Refusal>| match made {
            Ok(plan) => plan.datasets().collect(),
            Err(_) => Vec::new(),
        };
        let made = namespace.use_found(find, datasets);
        match made.map_err(|error| cannot_open(&request.name, &error))? {
            Some((plan, uses)) => Ok((plan?, uses)),
            None => {
                let action = format!("warning: {}", cannot_send(&request.name));
                Err(Refusal::new(RefusalKind::Busy, action, "dataset is busy"))
            }
        }
    }

    /// Makes a plan as of now, without keeping its datasets.
    pub fn look(open: &OpenPool, request: &Send, operation: &Operation) -> Result<Plan, Refusal> {
        let namespace = open.pool.namespace();
        let found = namespace.consistently(|| Plan::find(namespace.view(operation), request));
        found.map_err(|error| cannot_open(&request.name, &error))?
    }

    fn find(view: View<'_>, request: &Send) -> Made<Plan> {
        match &request.series {
            None => single(view, request),
            Some(series) => several(view, request, series),
        }
    }

    /// The datasets that must not be destroyed during the send.
    fn datasets(&self) -> impl Iterator<Item = ObjectId> {
        self.steps.iter().flat_map(Step::datasets)
    }
}

/// A plan or its refusal; the outer error: the tree of datasets could not be read.
type Made<T> = Result<Result<T, Refusal>, DatasetError>;

macro_rules! refuse {
    ($attempt:expr) => {
        match $attempt {
            Ok(value) => value,
            Err(refusal) => return Ok(Err(refusal)),
        }
    };
}

fn single(view: View<'_>, request: &Send) -> Made<Plan> {
    let name = refuse!(parse(&request.name));
    if name.kind() == NameKind::Bookmark {
        let action = format!("cannot open '{}'", request.name);
        let reason = "operation not applicable to datasets of this type";
        return Ok(Err(Refusal::new(RefusalKind::Invalid, action, reason)));
    }
    let target = view.dataset(&name)?;
    let from = match &request.from {
        None => From::Nothing,
        Some(from) => match refuse!(parse(from)).kind() {
            NameKind::Bookmark => From::Bookmark(from.clone()),
            _ => {
                let found = refuse!(find_named(view, from)?);
                if !is_before(&found, found.stored()?.creation_txg, &target)? {
                    let action = format!("warning: {}", cannot_send(&request.name));
                    let reason = "not an earlier snapshot from the same fs";
                    return Ok(Err(Refusal::new(RefusalKind::Invalid, action, reason)));
                }
                From::Snapshot(from.clone(), found.id())
            }
        },
    };
    let mut plan = Plan {
        steps: vec![Step {
            name: target.name(),
            id: target.id(),
            from,
        }],
        ..Plan::default()
    };
    if request.properties || request.holds || request.backup {
        let (head, short) = (name.head(), name.tail().unwrap_or_default());
        let gathered = refuse!(gather(view, request, head, None, short)?);
        plan.warnings.extend(gathered.warnings.iter().cloned());
        plan.description = Some(described(&target, request, None, short, Some(&gathered))?);
    }
    Ok(Ok(plan))
}

fn several(view: View<'_>, request: &Send, series: &Series) -> Made<Plan> {
    let name = refuse!(parse(&request.name));
    let (head, to) = (name.head(), name.tail().unwrap_or_default());
    let from = request.from.as_deref().map(short_of);
    if let Some(from) = from {
        refuse!(find_named(view, &format!("{head}@{from}"))?);
    }
    let target = refuse!(find_named(view, &request.name)?);
    let is_described = series.replicate || request.properties || request.holds;
    let gathered = match is_described {
        true => Some(refuse!(gather(view, request, head, from, to)?)),
        false => None,
    };
    let description = described(&target, request, from, to, gathered.as_ref())?;
    let mut planner = Planner {
        view,
        series,
        from,
        to,
        plan: Plan {
            description: Some(description),
            ..Plan::default()
        },
        seen_to: false,
    };
    match (&gathered, series.replicate) {
        (Some(gathered), true) => {
            planner
                .plan
                .warnings
                .extend(gathered.warnings.iter().cloned());
            planner.all(gathered)?;
        }
        _ => planner.filesystem(head, &BTreeSet::new())?,
    }
    if !planner.seen_to {
        // As OpenZFS, which sends nothing of the rest.
        planner.plan.steps.clear();
        planner.plan.is_empty = true;
        planner.plan.is_incomplete = true;
    }
    Ok(Ok(planner.plan))
}

/// The header of a series, or of a snapshot with properties.
fn described(
    target: &Dataset<'_>,
    request: &Send,
    from: Option<&str>,
    to: &str,
    gathered: Option<&Gathered>,
) -> Result<Description, DatasetError> {
    let mut features = StreamFeatures::NONE;
    if !target.is_snapshot()
        && let Contents::Filesystem(facts) = contents::read(target)?
        && facts.version >= SYSTEM_ATTRIBUTES_VERSION
    {
        features = features.with(StreamFeatures::SPILL);
    }
    if request.holds {
        features = features.with(StreamFeatures::HOLDS);
    }
    let mut list = Vec::new();
    if let Some(gathered) = gathered {
        let mut header = NvList::new();
        if let Some(from) = from {
            header.set("fromsnap", from);
        }
        header.set("tosnap", to);
        let is_recursive = request
            .series
            .as_ref()
            .is_some_and(|series| series.replicate);
        if !is_recursive {
            header.set_flag("not_recursive");
        }
        if request.raw {
            header.set_flag("raw");
        }
        header.set("fss", gathered.list.clone());
        list = header.encode(Encoding::Xdr);
    }
    Ok(Description {
        name: format!("{}@{to}", target.directory().name()),
        features,
        list,
    })
}

struct Planner<'a> {
    view: View<'a>,
    series: &'a Series,
    from: Option<&'a str>,
    to: &'a str,
    plan: Plan,
    seen_to: bool,
}

impl Planner<'_> {
    /// All gathered file systems: parents before children, origins before clones. A clone whose
    /// origin is below it cannot wait for the origin, unless it goes on from a snapshot and needs
    /// none.
    #[doc(alias = "dump_filesystems")]
    fn all(&mut self, gathered: &Gathered) -> Result<(), DatasetError> {
        let systems = &gathered.systems;
        let origins: BTreeSet<u64> = systems.iter().filter_map(|one| one.origin).collect();
        let owner = |guid: u64| systems.iter().position(|one| one.has_snapshot(guid));
        let mut is_sent = vec![false; systems.len()];
        loop {
            let mut has_progress = false;
            for (index, system) in systems.iter().enumerate() {
                let needed = [Some(system.parent_from_guid), system.origin];
                let waits = needed
                    .into_iter()
                    .flatten()
                    .filter(|guid| *guid != 0)
                    .filter_map(owner)
                    .any(|other| other != index && !is_sent[other]);
                if is_sent[index] || waits {
                    continue;
                }
                self.filesystem(&system.name, &origins)?;
                is_sent[index] = true;
                has_progress = true;
            }
            if has_progress {
                continue;
            }
            let parent_is_sent = |system: &System| {
                let parent = Some(system.parent_from_guid).filter(|guid| *guid != 0);
                parent.and_then(owner).is_none_or(|parent| is_sent[parent])
            };
            let left = systems.iter().enumerate();
            let left = left.filter(|(index, system)| !is_sent[*index] && parent_is_sent(system));
            let left: Vec<(usize, &System)> = left.collect();
            let mut next = None;
            for (index, system) in &left {
                if next.is_none() && self.goes_on(&system.name)? {
                    next = Some((*index, *system));
                }
            }
            if let Some((index, system)) = next {
                self.filesystem(&system.name, &origins)?;
                is_sent[index] = true;
                continue;
            }
            let Some((_, System { name, .. })) = left.first() else {
                return Ok(());
            };
            let (to, below) = (self.to, format!("{name}/"));
            self.left_out(format!(
                "WARNING: could not send {name}@{to} and what is below it: it is a clone of that"
            ))?;
            for (system, is_sent) in systems.iter().zip(&mut is_sent) {
                *is_sent |= system.name == *name || system.name.starts_with(&below);
            }
        }
    }

    /// Whether a file system has the series' first snapshot, and so does not need its origin.
    fn goes_on(&self, name: &str) -> Result<bool, DatasetError> {
        let head = self.view.directory(name)?.head()?;
        let (Some(head), Some(from)) = (head, self.from) else {
            return Ok(false);
        };
        Ok(head.snapshot(from)?.is_some())
    }

    /// The snapshots of one file system. `origins` are the guids of the origins of the series'
    /// clones.
    #[doc(alias = "dump_filesystem")]
    fn filesystem(&mut self, name: &str, origins: &BTreeSet<u64>) -> Result<(), DatasetError> {
        let to = self.to;
        let head = self.view.directory(name)?.head()?;
        let snapshots = match &head {
            Some(head) => facts_of(head)?,
            None => Vec::new(),
        };
        let named = |short: &str| snapshots.iter().find(|one| one.short == short);
        let Some(last) = named(to) else {
            return self.left_out(format!(
                "WARNING: could not send {name}@{to}: does not exist"
            ));
        };
        let first = self.from.and_then(named);
        let is_missing = self.series.replicate && self.from.is_some() && first.is_none();
        let range = match self.series.replicate {
            true => Txg::ZERO..=Txg::from(u64::MAX),
            false => first.map_or(Txg::ZERO, |first| first.txg)..=last.txg,
        };
        let mut seen_from = self.from.is_none() || is_missing;
        let mut seen_to = false;
        let mut previous: Option<&Facts> = None;
        for snapshot in snapshots.iter().filter(|one| range.contains(&one.txg)) {
            let is_from = self.from == Some(snapshot.short.as_str());
            if !seen_from && is_from {
                seen_from = true;
                previous = Some(snapshot);
                continue;
            }
            if seen_to || !seen_from {
                continue;
            }
            let is_to = snapshot.short == to;
            seen_to |= is_to;
            let is_wanted = self.series.all_between || is_from || is_to;
            let is_needed = self.series.replicate && origins.contains(&snapshot.guid);
            if (!is_wanted && !is_needed) || is_excluded(name, &self.series.exclude) {
                continue;
            }
            let from = match previous {
                Some(previous) => From::Snapshot(format!("{name}@{}", previous.short), previous.id),
                None => self.origin_of(head.as_ref())?,
            };
            self.plan.steps.push(Step {
                name: format!("{name}@{}", snapshot.short),
                id: snapshot.id,
                from,
            });
            previous = Some(snapshot);
        }
        self.seen_to = seen_to;
        let from = self.from.unwrap_or_default();
        match (seen_from, seen_to) {
            (true, true) => Ok(()),
            (true, false) => self.left_out(format!(
                "WARNING: could not send {name}@{to}:\nincremental source ({name}@{from}) is not earlier than it"
            )),
            (false, _) => self.left_out(format!(
                "WARNING: could not send {name}@{to}:\nincremental source ({name}@{from}) does not exist"
            )),
        }
    }

    /// The base of a clone's first snapshot.
    fn origin_of(&self, head: Option<&Dataset<'_>>) -> Result<From, DatasetError> {
        let goes_on = self.series.replicate || self.series.from_origin;
        let Some(head) = head.filter(|_| goes_on) else {
            return Ok(From::Nothing);
        };
        Ok(match origin(self.view, head)? {
            Some(origin) => From::Origin(origin.id()),
            None => From::Nothing,
        })
    }

    fn left_out(&mut self, warning: String) -> Result<(), DatasetError> {
        self.plan.warnings.push(warning);
        self.plan.is_incomplete = true;
        Ok(())
    }
}

/// The facts of a snapshot that a series needs.
pub(super) struct Facts {
    pub short: String,
    pub id: ObjectId,
    pub guid: u64,
    pub txg: Txg,
}

/// The snapshots of a head, oldest first.
pub(super) fn facts_of(head: &Dataset<'_>) -> Result<Vec<Facts>, DatasetError> {
    let snapshots = head.snapshots()?;
    let facts = snapshots.iter().map(|snapshot| {
        let stored = snapshot.stored()?;
        Ok(Facts {
            short: snapshot.snapshot_name().unwrap_or_default().to_string(),
            id: snapshot.id(),
            guid: stored.guid.get(),
            txg: stored.creation_txg,
        })
    });
    facts.collect()
}

/// The origin of a head. None where it is the pool's empty snapshot (`$ORIGIN`), which the format
/// gives to every dataset that is not a clone.
pub(super) fn origin<'a>(
    view: View<'a>,
    head: &Dataset<'_>,
) -> Result<Option<Dataset<'a>>, DatasetError> {
    let origin = head.directory().stored()?.origin;
    if origin.is_zero() {
        return Ok(None);
    }
    let origin = view.dataset_by_id(origin)?;
    let is_shown = !origin.directory().name().contains('$');
    Ok(is_shown.then_some(origin))
}

/// The snapshot of this name, or the refusal that there is none.
fn find_named<'a>(view: View<'a>, name: &str) -> Made<Dataset<'a>> {
    let parsed = refuse!(parse(name));
    match view.dataset(&parsed) {
        Ok(found) => Ok(Ok(found)),
        Err(error @ DatasetError::NotFound { .. }) => Ok(Err(cannot_open(name, &error))),
        Err(error) => Err(error),
    }
}

/// The bookmark of this name, and its head.
pub(super) fn find_bookmark<'a>(
    view: View<'a>,
    name: &str,
) -> Result<(Dataset<'a>, NamedBookmark), DatasetError> {
    let not_found = || DatasetError::NotFound {
        name: name.to_string(),
    };
    let parsed = DatasetName::parse(name).map_err(|_| not_found())?;
    let head = view.directory(parsed.head())?.head()?;
    let head = head.ok_or_else(not_found)?;
    let bookmark = head.bookmark(parsed.tail().unwrap_or_default())?;
    let bookmark = bookmark.ok_or_else(not_found)?;
    Ok((head, bookmark))
}

fn short_of(name: &str) -> &str {
    name.split_once('@').map_or(name, |(_, short)| short)
}
