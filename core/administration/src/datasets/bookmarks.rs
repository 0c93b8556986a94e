//! `zfs bookmark`, and `zfs destroy` of bookmarks.

use super::bad_name;
use super::cannot_open;
use super::destroy::check_writable;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::call_record;
use crate::command_permissions::{Need, need, permission};
use crate::messages::dataset::{Destroy, Destroyed, MakeBookmark};
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_dataset::look_through::Look;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::ops::bookmark::{DestroyBookmarks, MakeBookmarks};
use tarn_dataset::task::TaskRefusal;
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::{of_task, of_tasks};
use tarn_pool::TaskError;
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn make_bookmarks(
        &self,
        call: &Call,
        request: &MakeBookmark,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let action = cannot_create(&request.name);
        let invalid = |reason: String| {
            Refusal::new(RefusalKind::Invalid, cannot_create(&request.name), reason)
        };
        let name = DatasetName::parse(&request.name).map_err(|bad| invalid(bad.to_string()))?;
        let origin =
            DatasetName::parse(&request.origin).map_err(|bad| bad_name(&request.origin, bad))?;
        if name.kind() != NameKind::Bookmark {
            return Err(invalid("invalid argument".to_string()));
        }
        let open = self.engine.require_pool_of(&request.origin)?;
        let _turn = self.engine.turn(&open)?;
        let bookmarks = match request.recursive {
            false => {
                check_origin(&open, &origin, operation)?;
                vec![(request.name.clone(), request.origin.clone())]
            }
            true => all_below(&open, &origin, name.tail().unwrap_or_default(), operation)?,
        };
        if name.pool() != origin.pool() {
            return Err(invalid("bookmark is in a different pool".to_string()));
        }
        let needs: Vec<Need<'_>> = bookmarks
            .iter()
            .map(|(name, _)| {
                let head = name.split('#').next().unwrap_or_default();
                need(head, &[permission::BOOKMARK])
            })
            .collect();
        self.permit(call, &open, &action, &needs, operation)?;
        let record = call_record::bookmark(&bookmarks);
        let task = MakeBookmarks { bookmarks };
        let command = self.record_with_call(call, record);
        let made = open.pool.run_command(task, command, operation);
        made.map(|()| Done {})
            .map_err(|error| of_tasks(action, cannot_create, &in_own_words(error)))
    }

    pub(super) fn destroy_bookmark(
        &self,
        call: &Call,
        open: &OpenPool,
        request: &Destroy,
        operation: &Operation,
    ) -> Result<Destroyed, Refusal> {
        let name = &request.name;
        let parsed = DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
        let view = open.pool.namespace().view(operation);
        let head = view.directory(parsed.head()).and_then(|found| found.head());
        let bookmark = match head {
            Ok(Some(head)) => head.bookmark(parsed.tail().unwrap_or_default()),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        if !bookmark.is_ok_and(|found| found.is_some()) {
            let reason = format!("bookmark '{name}' does not exist.");
            return Err(Refusal::new(RefusalKind::NotFound, "", reason));
        }
        check_writable(open, name)?;
        let needs = [need(parsed.head(), &[permission::DESTROY])];
        self.permit(call, open, "cannot destroy bookmark", &needs, operation)?;
        let task = DestroyBookmarks {
            names: vec![name.clone()],
        };
        let record = call_record::destroy_bookmarks(&task.names);
        let command = self.record_with_call(call, record);
        let destroyed = open.pool.run_command(task, command, operation);
        destroyed.map_err(|error| match error {
            TaskError::Refused(TaskRefusal::Several(mut refused)) if !refused.is_empty() => {
                let (_, refusal) = refused.remove(0);
                of_task("cannot destroy bookmark", &TaskError::Refused(refusal))
            }
            error => of_task("cannot destroy bookmark", &error),
        })?;
        Ok(Destroyed {
            names: vec![name.clone()],
            ..Destroyed::default()
        })
    }
}

fn cannot_create(name: &str) -> String {
    format!("cannot create bookmark '{name}'")
}

/// Refuses an origin that does not exist, before other refusals.
fn check_origin(
    open: &OpenPool,
    origin: &DatasetName,
    operation: &Operation,
) -> Result<(), Refusal> {
    let view = open.pool.namespace().view(operation);
    let missing = |error| cannot_open(origin.as_str(), &error);
    match origin.kind() {
        NameKind::Snapshot => view.dataset(origin).map(|_| ()).map_err(missing),
        _ => view.directory(origin.head()).map(|_| ()).map_err(missing),
    }
}

/// Bookmarks of all snapshots of this name: of its dataset and of all below it.
fn all_below(
    open: &OpenPool,
    origin: &DatasetName,
    short: &str,
    operation: &Operation,
) -> Result<Vec<(String, String)>, Refusal> {
    check_origin(open, origin, operation)?;
    let snapshot = origin.tail().unwrap_or_default();
    let namespace = open.pool.namespace();
    let found = namespace.look_through(origin.head(), None, operation, |directory| {
        let found = match directory.head()? {
            Some(head) => head.snapshot(snapshot)?,
            None => None,
        };
        let pair = |_| {
            let name = directory.name();
            (format!("{name}#{short}"), format!("{name}@{snapshot}"))
        };
        Ok(Look {
            found: found.map(pair).into_iter().collect(),
            goes_on: true,
        })
    });
    found.map_err(|error| cannot_open(origin.head(), &error))
}

/// OpenZFS has refusals of its own for bookmarks.
#[doc(alias = "zfs_bookmark_perror")]
fn in_own_words(error: TaskError) -> TaskError {
    let say = |refusal: TaskRefusal| match refusal {
        TaskRefusal::Exists { .. } => TaskRefusal::Conflict {
            why: "bookmark exists".to_string(),
        },
        TaskRefusal::FeatureDisabled { .. } => TaskRefusal::Conflict {
            why: "bookmark feature not enabled".to_string(),
        },
        other => other,
    };
    match error {
        TaskError::Refused(TaskRefusal::Several(refused)) => {
            let said = refused
                .into_iter()
                .map(|(name, refusal)| (name, say(refusal)));
            TaskError::Refused(TaskRefusal::Several(said.collect()))
        }
        TaskError::Refused(refusal) => TaskError::Refused(say(refusal)),
        other => other,
    }
}
