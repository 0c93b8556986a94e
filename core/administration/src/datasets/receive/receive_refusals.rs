//! Why a stream was not received, in OpenZFS's words.

use super::Run;
use super::planning::{Plan, head_of};
use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::error::DatasetError;
use tarn_dataset::limits::AdmitRefusal;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::receive::NotSet;
use tarn_dataset::task::TaskRefusal;
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_ondisk::dataset::RESUME_TO_GUID;
use tarn_pool::TaskError;
use tarn_stream::reading::StreamError;
use tarn_stream::receive::ReceiveError;

impl Run<'_> {
    /// Warns of received properties that could not be set; the stream is received all the same. A
    /// refquota that is smaller than an intermediate snapshot of a package gives no warning.
    pub(super) fn tell_not_set(&mut self, plan: &Plan, not_set: Vec<NotSet>) {
        let target = plan.target();
        let short = plan.snapshot.tail().unwrap_or_default();
        let is_last = self.last.as_deref().is_none_or(|last| last == short);
        let told = not_set
            .into_iter()
            .filter(|one| is_last || one.property != "refquota");
        let warnings = told.map(|NotSet { property, why }| {
            format!("cannot receive {property} property on {target}: {why}")
        });
        self.done.warnings.extend(warnings);
    }

    /// Why receiving a stream failed, in OpenZFS's words.
    pub(super) fn failed(&self, plan: &Plan, error: &ReceiveError, is_resumable: bool) -> Refusal {
        let name = plan.target();
        match error {
            ReceiveError::Room(AdmitRefusal::QuotaExceeded) => {
                let reason = format!("destination {name} space quota exceeded.");
                plan.refuse(RefusalKind::NoSpace, reason)
            }
            ReceiveError::Room(AdmitRefusal::NoSpace) => {
                plan.refuse(RefusalKind::NoSpace, "out of space")
            }
            ReceiveError::Stream(
                damage @ (StreamError::Checksum { .. } | StreamError::Ended { .. }),
            ) => {
                let what = match damage {
                    StreamError::Ended { .. } => "incomplete stream",
                    _ => "checksum mismatch",
                };
                if !is_resumable {
                    let refusal = plan.refuse(RefusalKind::Corrupt, what);
                    return match damage {
                        // The refusal says all.
                        StreamError::Ended { .. } => refusal,
                        damage => refusal.with_hint(damage.to_string()),
                    };
                }
                let reason = format!("{what}.\nPartially received snapshot is saved.");
                plan.refuse(RefusalKind::Corrupt, reason)
            }
            ReceiveError::Stopped(_) => plan.refuse(RefusalKind::Suspended, error.to_string()),
            ReceiveError::Object(_) => plan.refuse(RefusalKind::Device, error.to_string()),
            other => plan.refuse(RefusalKind::Corrupt, other.to_string()),
        }
    }

    /// Why a receive could not begin, or its snapshot not be taken, in OpenZFS's words.
    pub(super) fn refused(&self, open: &OpenPool, plan: &Plan, error: &TaskError) -> Refusal {
        let target = plan.target();
        let TaskError::Refused(refusal) = error else {
            return of_task(plan.action(), error);
        };
        let say = |kind, reason: String| plan.refuse(kind, reason);
        match refusal {
            TaskRefusal::NoBase => say(
                RefusalKind::Invalid,
                format!("most recent snapshot of {target} does not\nmatch incremental source"),
            ),
            TaskRefusal::Modified => say(
                RefusalKind::Invalid,
                format!("destination {target} has been modified\nsince most recent snapshot"),
            ),
            TaskRefusal::SmallBlocks => {
                let reason = "incremental send stream requires -L (--large-block), to match previous receive.";
                say(RefusalKind::Invalid, reason.to_string())
            }
            TaskRefusal::FeatureDisabled { feature } => {
                let reason = "pool must be upgraded to receive this stream.".to_string();
                let feature = format!("it needs the feature '{}'", feature.guid());
                say(RefusalKind::Unsupported, reason).with_hint(feature)
            }
            TaskRefusal::Exists { name } => Refusal::new(
                RefusalKind::Exists,
                format!("cannot restore to {name}"),
                "destination already exists",
            ),
            TaskRefusal::Busy { .. } if self.has_partial(open, plan) => say(
                RefusalKind::Busy,
                format!(
                    "destination {target} contains partially-complete state from \"zfs receive -s\"."
                ),
            ),
            TaskRefusal::NoSpace { why } if why == "quota exceeded" => say(
                RefusalKind::NoSpace,
                format!("destination {target} space quota exceeded."),
            ),
            TaskRefusal::Several(refused) => {
                let reason = format!("destination {target} has snapshots that cannot be destroyed");
                let keepers = refused
                    .iter()
                    .map(|(name, why)| match self.keepers(open, name) {
                        Ok(keepers) if !keepers.is_empty() => keepers,
                        _ => vec![format!("'{name}': {why}")],
                    });
                let refusal = say(RefusalKind::Exists, reason);
                keepers.flatten().fold(refusal, Refusal::with_hint)
            }
            _ => of_task(plan.action(), error),
        }
    }

    /// What keeps a snapshot from being destroyed, each with its remedy.
    fn keepers(&self, open: &OpenPool, name: &str) -> Result<Vec<String>, DatasetError> {
        let Ok(parsed) = DatasetName::parse(name) else {
            return Ok(Vec::new());
        };
        let view = open.pool.namespace().view(self.operation);
        let snapshot = view.dataset(&parsed)?;
        let mut keepers = Vec::new();
        for id in snapshot.clone_ids()? {
            let clone = view.dataset_by_id(id)?;
            let clone = clone.directory().name();
            keepers.push(format!(
                "'{name}' has the clone '{clone}': destroy that ('zfs destroy -r {clone}'), or receive into another dataset"
            ));
        }
        for (tag, _) in snapshot.holds()? {
            keepers.push(format!(
                "'{name}' has the hold '{tag}': release that ('zfs release {tag} {name}')"
            ));
        }
        Ok(keepers)
    }

    /// Whether the target has the partial state of another stream.
    fn has_partial(&self, open: &OpenPool, plan: &Plan) -> bool {
        let view = open.pool.namespace().view(self.operation);
        let clone = tarn_dataset::ops::receive::receive_name(plan.target());
        [clone.as_str(), plan.target()].iter().any(|name| {
            let head = head_of(view, name).ok().flatten();
            head.is_some_and(|head| {
                head.extension(RESUME_TO_GUID)
                    .is_ok_and(|guid| guid.is_some())
            })
        })
    }
}
