//! `zfs diff`: the changes between a snapshot and a later one, or the present state of a file
//! system.
//!
//! # Mechanism
//! The present state of a file system is compared as a temporary snapshot
//! ([`TakeTemporarySnapshot`]), which goes when the comparison ends, or at the latest when the pool
//! is imported again. The lines go into the caller's descriptor as they are found. Meanwhile both
//! snapshots are held against destruction, and the pool is not otherwise in use.
//!
//! As in OpenZFS, the file systems must be mounted, and the paths begin at their mount points.

use super::bad_name;
use super::cannot_open;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{Denial, need, permission, require, user_of};
use crate::messages::dataset::{Diff, DiffLine, FileChange, FileDifference, FileType};
use crate::messages::{Done, Refusal, RefusalKind, escape};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::error::DatasetError;
use tarn_dataset::in_use::Use;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::ops::hold::ReleaseHolds;
use tarn_dataset::ops::temporary_snapshot::TakeTemporarySnapshot;
use tarn_dataset::space_used::is_before;
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_host::{Pipe, PipeEnd};
use tarn_object::ObjectSet;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_posix::diff::{Change, ChangedFile, DiffError, State, Told, compare};
use tarn_posix::types::FileKind;
use tarn_probe::Operation;

/// The beginning of OpenZFS's names of temporary snapshots and their holds; the process id follows.
#[doc(alias = "ZDIFF_PREFIX")]
const TEMPORARY: &str = "zfs-diff-";

/// The reason when neither snapshot is an ancestor of the other.
const NOT_EARLIER: &str = "Not an earlier snapshot from the same fs";
const CANNOT_OBTAIN: &str = "Unable to obtain diffs";

/// The compared states, by name.
#[derive(Debug, PartialEq, Eq)]
struct Sides {
    /// The file system whose paths are shown.
    head: String,
    /// The earlier snapshot.
    from: String,
    /// The later snapshot; none for the present state of the file system.
    to: Option<String>,
}

/// The earlier and the later snapshot, held against destruction until this is dropped, even if they
/// are renamed.
struct Held<'a> {
    ids: Vec<ObjectId>,
    uses: Vec<Use<'a>>,
}

/// The stored states to compare.
struct Stored {
    earlier: Arc<ObjectSet>,
    later: Arc<ObjectSet>,
    since: Txg,
}

impl Administrator {
    pub(crate) fn diff(
        &self,
        call: &Call,
        request: &Diff,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let Some(pipe) = &call.pipe else {
            let reason = "the lines need a descriptor to go to";
            return Err(Refusal::new(RefusalKind::Invalid, CANNOT_OBTAIN, reason));
        };
        let named = named_dataset(request)?;
        let open = self.engine.require_pool_of(&named)?;
        require_filesystem(&open, &named, operation)?;
        let sides = sides(request)?;
        require_ancestor(&open, &sides, operation)?;
        let (_streaming, temporary, to, held) = {
            let _turn = self.engine.turn(&open)?;
            require_mounted(&open, &sides)?;
            let named: Vec<&String> = [Some(&sides.from), sides.to.as_ref()]
                .into_iter()
                .flatten()
                .collect();
            let mut held = hold(&open, &named, operation)?;
            self.permit_diff(call, &open, &sides, &held, operation)?;
            let streaming = open.streams.begin(pipe);
            match &sides.to {
                Some(to) => (streaming, None, to.clone(), Ok(held)),
                None => {
                    let taken = self.take_temporary(call, &open, &sides.head, operation)?;
                    let to = taken.name.clone();
                    let held = hold(&open, &[&to], operation).map(|later| {
                        held.ids.extend(later.ids);
                        held.uses.extend(later.uses);
                        held
                    });
                    (streaming, Some(taken), to, held)
                }
            }
        };
        let told = held.and_then(|held| self.tell(&open, &sides, &to, &held, pipe, operation));
        if let Some(taken) = temporary {
            let release = ReleaseHolds {
                names: vec![taken.name],
                tag: taken.tag,
            };
            // If the hold cannot be released now, the next import releases it.
            drop(open.pool.run(release, operation));
        }
        told.map(|()| Done {})
    }

    /// Refuses a caller without permission to see the changes between the held snapshots. The
    /// permission to take snapshots of a file system suffices for its present state.
    #[doc(alias("zfs_secpolicy_diff", "zfs_secpolicy_tmp_snapshot"))]
    fn permit_diff(
        &self,
        call: &Call,
        open: &OpenPool,
        sides: &Sides,
        held: &Held<'_>,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if self.trusts(&call.caller) {
            return Ok(());
        }
        if sides.to.is_none() {
            let take = need(&sides.head, &[permission::SNAPSHOT]);
            let look = need(&sides.head, &[permission::DIFF]);
            let may = |need| self.may(call, open, need, operation);
            if !may(&look) && !may(&take) {
                let action = "The diff delegated permission is needed in order\n\
                              to create a just-in-time snapshot for diffing\n";
                let reason = "unable to generate diffs";
                return Err(Refusal::new(RefusalKind::Denied, action, reason));
            }
        }
        let view = open.pool.namespace().view(operation);
        let user = user_of(&call.caller);
        // By object number, as other datasets may have the names by now.
        let asked = held.ids.iter().try_for_each(|id| {
            let snapshot = view.dataset_by_id(*id)?;
            require(&snapshot, &[permission::DIFF], &user)
        });
        asked.map_err(|denial| match denial {
            Denial::Dataset(error) => cannot_obtain(&error),
            Denial::NotGranted | Denial::Off => {
                let reason = "\n   The sys_mount privilege or diff delegated permission is needed\n   \
                              to execute the diff ioctl";
                Refusal::new(RefusalKind::Denied, CANNOT_OBTAIN, reason)
            }
        })
    }

    fn take_temporary(
        &self,
        call: &Call,
        open: &OpenPool,
        head: &str,
        operation: &Operation,
    ) -> Result<TakeTemporarySnapshot, Refusal> {
        const TICK_NS: u64 = 10_000_000;
        let tag = format!("{TEMPORARY}{}", call.caller.pid);
        let ticks = self.engine.host.monotonic_ns() / TICK_NS;
        let task = TakeTemporarySnapshot {
            name: format!("{head}@{tag}-{ticks:016x}"),
            tag: format!("%{tag}"),
        };
        let action = format!("Cannot create just-in-time snapshot of '{head}'");
        let taken = open.pool.run(task.clone(), operation);
        taken.map_err(|error| of_task(action, &error))?;
        Ok(task)
    }

    /// Compares the states and writes the lines.
    fn tell(
        &self,
        open: &Arc<OpenPool>,
        sides: &Sides,
        to: &str,
        held: &Held<'_>,
        pipe: &Pipe,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let stored = stored(open, (held.ids[0], held.ids[1]), operation)?;
        let mount = mount_path(open, &sides.head)?;
        let mut out = pipe.clone();
        let mut tell = |told: Vec<Told>| {
            let mut text = Vec::new();
            for told in told {
                let line = line_of(told, &mount, &sides.from, to);
                serde_json::to_writer(&mut text, &line)?;
                text.push(b'\n');
            }
            out.write_all(&text)?;
            pipe.check()
        };
        let Stored {
            earlier,
            later,
            since,
        } = stored;
        let compared = compare(&earlier, &later, since, &mut tell, operation);
        compared.map_err(|error| match error {
            DiffError::Stopped(cause) => match PipeEnd::of(&cause) {
                Some(PipeEnd::Stopped) => Refusal::new(
                    RefusalKind::Busy,
                    CANNOT_OBTAIN,
                    "the pool is being exported, or the daemon is about to end",
                ),
                _ => Refusal::new(RefusalKind::Invalid, CANNOT_OBTAIN, cause.to_string()),
            },
            other => {
                let refusal = Refusal::new(RefusalKind::Device, CANNOT_OBTAIN, IO_ERROR);
                refusal.with_hint(other.to_string())
            }
        })
    }
}

const IO_ERROR: &str = "Input/output error";

/// Finds the snapshots and holds them against destruction.
fn hold<'a>(
    open: &'a OpenPool,
    names: &[&String],
    operation: &Operation,
) -> Result<Held<'a>, Refusal> {
    let namespace = open.pool.namespace();
    let find = || {
        let view = namespace.view(operation);
        let id = |name: &&String| -> Result<ObjectId, DatasetError> {
            let parsed = DatasetName::parse(name).map_err(|_| DatasetError::NotFound {
                name: name.to_string(),
            })?;
            Ok(view.dataset(&parsed)?.id())
        };
        names.iter().map(id).collect::<Result<Vec<ObjectId>, _>>()
    };
    let found = namespace.use_found(find, Clone::clone);
    match found.map_err(|error| cannot_obtain(&error))? {
        Some((ids, uses)) => Ok(Held { ids, uses }),
        None => Err(Refusal::new(
            RefusalKind::Busy,
            CANNOT_OBTAIN,
            "dataset is busy",
        )),
    }
}

/// The dataset that is opened first, so that its errors are reported first.
fn named_dataset(request: &Diff) -> Result<String, Refusal> {
    let first = match request.from.starts_with('@') {
        true => request.to.as_deref().unwrap_or_default(),
        false => &request.from,
    };
    let name = first.split('@').next().unwrap_or_default();
    let parsed = DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
    match parsed.kind() {
        NameKind::Head => Ok(name.to_string()),
        _ => {
            let bad = tarn_dataset::names::BadName::Delimiter('#');
            Err(bad_name(name, bad))
        }
    }
}

fn require_filesystem(open: &OpenPool, name: &str, operation: &Operation) -> Result<(), Refusal> {
    let namespace = open.pool.namespace();
    let found = namespace.consistently(|| {
        let missing = || DatasetError::NotFound {
            name: name.to_string(),
        };
        let head = namespace.view(operation).directory(name)?.head()?;
        contents::outline(&head.ok_or_else(missing)?)
    });
    match found.map_err(|error| cannot_open(name, &error))? {
        Contents::Filesystem(_) => Ok(()),
        _ => {
            let action = format!("cannot open '{name}'");
            Err(Refusal::new(RefusalKind::Invalid, action, WRONG_TYPE))
        }
    }
}

const WRONG_TYPE: &str = "operation not applicable to datasets of this type";

/// The snapshots that the request names. The dataset may be left out in one of them.
#[doc(alias = "get_snapshot_names")]
fn sides(request: &Diff) -> Result<Sides, Refusal> {
    let from = request.from.as_str();
    let Some(to) = request.to.as_deref() else {
        let action = format!("Badly formed snapshot name {from}");
        let refuse = |reason: String| Refusal::new(RefusalKind::Invalid, action.clone(), reason);
        let parsed = DatasetName::parse(from).map_err(|bad| refuse(bad.to_string()))?;
        return match parsed.kind() {
            NameKind::Snapshot => Ok(Sides {
                head: parsed.head().to_string(),
                from: from.to_string(),
                to: None,
            }),
            _ => Err(refuse("missing '@' delimiter in snapshot name".to_string())),
        };
    };
    let cut = |name: &str| match name.find('@') {
        Some(at) => (name[..at].to_string(), name[at..].to_string()),
        None => (name.to_string(), String::new()),
    };
    let ((from_head, from_tail), (to_head, to_tail)) = (cut(from), cut(to));
    let is_unclear = from_tail.len() <= 1 || to_tail.len() == 1;
    if is_unclear || (from_head.is_empty() && to_head.is_empty()) {
        let action = "Unable to determine which snapshots to compare";
        return Err(Refusal::new(RefusalKind::Invalid, action, "invalid name"));
    }
    let or = |head: &str, other: &str| match head.is_empty() {
        true => other.to_string(),
        false => head.to_string(),
    };
    let head = or(&to_head, &from_head);
    Ok(Sides {
        from: format!("{}{from_tail}", or(&from_head, &to_head)),
        to: (!to_tail.is_empty()).then(|| format!("{head}{to_tail}")),
        head,
    })
}

impl Sides {
    fn earlier_head(&self) -> &str {
        self.from.split('@').next().unwrap_or_default()
    }
}

/// Refuses a pair of datasets where neither descends from the other through clones.
fn require_ancestor(open: &OpenPool, sides: &Sides, operation: &Operation) -> Result<(), Refusal> {
    if sides.earlier_head() == sides.head {
        return Ok(());
    }
    let namespace = open.pool.namespace();
    let found = namespace.consistently(|| {
        let view = namespace.view(operation);
        let mut directory = view.directory(&sides.head)?;
        let wanted = view.directory(sides.earlier_head())?.id();
        while directory.id() != wanted {
            match directory.stored()?.origin {
                none if none.is_zero() => return Ok(false),
                origin => directory = view.dataset_by_id(origin)?.directory().clone(),
            }
        }
        Ok(true)
    });
    match found {
        Ok(true) => Ok(()),
        Ok(false) | Err(DatasetError::NotFound { .. }) => Err(Refusal::new(
            RefusalKind::Invalid,
            NOT_EARLIER,
            "invalid name",
        )),
        Err(error) => Err(cannot_open(&sides.head, &error)),
    }
}

/// Both file systems must be mounted.
#[doc(alias = "get_mountpoints")]
fn require_mounted(open: &OpenPool, sides: &Sides) -> Result<(), Refusal> {
    mount_path(open, &sides.head)?;
    mount_path(open, sides.earlier_head()).map(drop)
}

/// Where a file system is mounted, as paths begin.
fn mount_path(open: &OpenPool, name: &str) -> Result<Vec<u8>, Refusal> {
    open.look_for_mounts();
    let Some(mounted) = open.mount_of(name) else {
        let action = "Cannot diff an unmounted snapshot";
        return Err(Refusal::new(RefusalKind::Invalid, action, WRONG_TYPE));
    };
    match mounted.path.as_os_str().as_bytes() {
        b"/" => Ok(Vec::new()),
        path => Ok(path.to_vec()),
    }
}

/// Opens both states, if one is an ancestor of the other.
fn stored(
    open: &OpenPool,
    (from, to): (ObjectId, ObjectId),
    operation: &Operation,
) -> Result<Stored, Refusal> {
    let view = open.pool.namespace().view(operation);
    let open_both = || -> Result<Option<Stored>, DatasetError> {
        let (from, to) = (view.dataset_by_id(from)?, view.dataset_by_id(to)?);
        let since = from.stored()?.creation_txg;
        if !is_before(&from, since, &to)? {
            return Ok(None);
        }
        Ok(Some(Stored {
            earlier: contents::objset(&from)?,
            later: contents::objset(&to)?,
            since,
        }))
    };
    let opened = open_both().map_err(|error| cannot_obtain(&error))?;
    opened.ok_or_else(|| {
        let reason = format!("\n   {NOT_EARLIER}");
        Refusal::new(RefusalKind::Invalid, CANNOT_OBTAIN, reason)
    })
}

fn cannot_obtain(error: &DatasetError) -> Refusal {
    match error {
        DatasetError::NotFound { .. } => Refusal::new(
            RefusalKind::NotFound,
            CANNOT_OBTAIN,
            "No such file or directory",
        ),
        other => {
            Refusal::new(RefusalKind::Corrupt, CANNOT_OBTAIN, IO_ERROR).with_hint(other.to_string())
        }
    }
}

/// The line of one change, with the paths below the mount point.
fn line_of(told: Told, mount: &[u8], from: &str, to: &str) -> DiffLine {
    let shown = |path: &[u8]| escape(&[mount, path].concat());
    match told {
        Told::File(ChangedFile {
            change,
            path,
            kind,
            changed,
        }) => DiffLine::File(FileDifference {
            change: match change {
                Change::Added => FileChange::Added,
                Change::Removed => FileChange::Removed,
                Change::Modified => FileChange::Modified,
                Change::Links(links) => FileChange::Links(links),
                Change::Renamed(to) => FileChange::Renamed(shown(&to)),
            },
            path: shown(&path),
            file_type: file_type(kind),
            changed_s: changed.seconds,
            changed_ns: changed.nanoseconds,
        }),
        Told::Unknown {
            object,
            state,
            errno,
        } => {
            let name = match state {
                State::Earlier => from,
                State::Later => to,
            };
            let reason = std::io::Error::from_raw_os_error(errno).to_string();
            let reason = reason.split(" (os error").next().unwrap_or_default();
            let object = object.get();
            DiffLine::Warning(format!(
                "Unable to determine path or stats for object {object} in {name}: {reason}"
            ))
        }
    }
}

fn file_type(kind: Option<FileKind>) -> FileType {
    match kind {
        Some(FileKind::BlockDevice) => FileType::BlockDevice,
        Some(FileKind::CharacterDevice) => FileType::CharacterDevice,
        Some(FileKind::Directory) => FileType::Directory,
        Some(FileKind::Fifo) => FileType::Fifo,
        Some(FileKind::SymbolicLink) => FileType::SymbolicLink,
        Some(FileKind::Socket) => FileType::Socket,
        Some(FileKind::Regular) => FileType::Regular,
        None => FileType::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(from: &str, to: Option<&str>) -> Result<(String, String, Option<String>), String> {
        let request = Diff {
            from: from.to_string(),
            to: to.map(str::to_string),
        };
        let sides = sides(&request).map_err(|refusal| refusal.to_string())?;
        Ok((sides.head, sides.from, sides.to))
    }

    fn owned(head: &str, from: &str, to: Option<&str>) -> (String, String, Option<String>) {
        (head.to_string(), from.to_string(), to.map(str::to_string))
    }

    #[test]
    fn one_of_two_names_may_be_without_its_dataset() {
        let both = Ok(owned("t/a", "t/a@x", Some("t/a@y")));
        assert_eq!(of("t/a@x", Some("t/a@y")), both);
        assert_eq!(of("t/a@x", Some("@y")), both);
        assert_eq!(of("@x", Some("t/a@y")), both);
        let now = Ok(owned("t/a", "t/a@x", None));
        assert_eq!(of("t/a@x", Some("t/a")), now);
        assert_eq!(of("@x", Some("t/a")), now);
        assert_eq!(of("t/a@x", None), now);
        let clone = Ok(owned("t/b", "t/a@x", Some("t/b@y")));
        assert_eq!(of("t/a@x", Some("t/b@y")), clone);
    }

    #[test]
    fn malformed_names_are_refused_in_the_words_of_openzfs() {
        let unclear = "Unable to determine which snapshots to compare: invalid name";
        for (from, to) in [
            ("t/a", "t/a@y"),
            ("t/a@", "t/a@y"),
            ("t/a@x", "t/a@"),
            ("@x", "@y"),
        ] {
            assert_eq!(of(from, Some(to)), Err(unclear.to_string()), "{from} {to}");
        }
        assert_eq!(
            of("t/a", None).unwrap_err(),
            "Badly formed snapshot name t/a: missing '@' delimiter in snapshot name"
        );
    }
}
