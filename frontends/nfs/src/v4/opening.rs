//! Opens: `OPEN`, `CLOSE`, `OPEN_DOWNGRADE`, and the ids of states.

use super::attributes::{self, EXCLUSIVE};
use super::bitmap::Bitmap;
use super::compound::{Compound, Current, Done, StateId};
use super::names::{put_change, refuse_name};
use super::state::{Open4, State, StateKey, reservation};
use super::status::{Status, of_handle};
use crate::file_call::FileCall;
use crate::rights::{check_read, check_write};
use crate::xdr::{Reader, Writer};
use std::sync::Arc;
use tarn_engine::files::{
    Attributes, DeviceNumber, FileKind, NewFile, OpenRights, OperationKind, PosixError,
    SetAttributes, Verifier, Witnessed,
};

const OWNER_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 4096;

/// What is done where the file exists, or does not.
enum How {
    /// It must exist.
    Open,
    Unchecked(SetAttributes, Bitmap),
    Guarded(SetAttributes, Bitmap),
    Exclusive(Verifier, SetAttributes, Bitmap),
}

/// Which file is opened.
enum Claim<'a> {
    /// The one of this name in the current directory.
    Name(&'a [u8]),
    /// The current one.
    Current,
    /// The current one, which the client had open before the server restarted.
    Reclaimed,
}

/// The arguments of `OPEN`.
struct Open<'a> {
    access: u32,
    deny: u32,
    owner: &'a [u8],
    how: How,
    claim: Claim<'a>,
}

/// A file that was opened.
struct Opened {
    file: FileCall,
    attributes: Attributes,
    /// It was made.
    is_new: bool,
    set: Bitmap,
}

impl<'a> Open<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Open<'a>, Status> {
        /// `OPEN4_SHARE_ACCESS_WANT_*` is about delegations, of which there are none.
        const ACCESS: u32 = 0x3;
        let _sequence = reader.u32()?;
        let (access, deny) = (reader.u32()? & 0xffff & !0xff00, reader.u32()?);
        let _client = reader.u64()?;
        let owner = reader.opaque(OWNER_BYTES_MAX)?;
        let how = match reader.u32()? {
            0 => How::Open,
            1 => match reader.u32()? {
                0 => {
                    let (wanted, set) = attributes::decode(reader)?;
                    How::Unchecked(wanted, set)
                }
                1 => {
                    let (wanted, set) = attributes::decode(reader)?;
                    How::Guarded(wanted, set)
                }
                2 => How::Exclusive(reader.fixed()?, SetAttributes::default(), Bitmap::default()),
                3 => {
                    let verifier = reader.fixed()?;
                    let (wanted, set) = attributes::decode(reader)?;
                    if !set.is_within(&EXCLUSIVE) {
                        return Err(Status::ATTRNOTSUPP);
                    }
                    How::Exclusive(verifier, wanted, set)
                }
                _ => return Err(Status::BADXDR),
            },
            _ => return Err(Status::BADXDR),
        };
        let claim = match reader.u32()? {
            0 => Claim::Name(reader.opaque(NAME_BYTES_MAX)?),
            1 => {
                let _delegation = reader.u32()?;
                Claim::Reclaimed
            }
            4 => Claim::Current,
            2 | 3 | 5 | 6 => return Err(Status::NOTSUPP),
            _ => return Err(Status::BADXDR),
        };
        if access & !ACCESS != 0 || access == 0 || deny > 3 {
            return Err(Status::INVAL);
        }
        Ok(Open {
            access,
            deny,
            owner,
            how,
            claim,
        })
    }
}

impl Compound<'_> {
    pub(super) fn open(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let client = self.client()?;
        let open = Open::decode(reader)?;
        self.check_grace(matches!(open.claim, Claim::Reclaimed))?;
        let here = self.file(OperationKind::Open, (0, 0))?;
        let directory = here.id;
        let before = here.attributes().map_err(of_handle)?;
        let (opened, seen) = match open.claim {
            Claim::Name(name) => {
                refuse_name(name)?;
                if before.kind != FileKind::Directory {
                    return Err(match before.kind {
                        FileKind::SymbolicLink => Status::SYMLINK,
                        _ => Status::NOTDIR,
                    });
                }
                self.open_named(here, name, &open)?
            }
            Claim::Current | Claim::Reclaimed => {
                if !matches!(open.how, How::Open) {
                    return Err(Status::INVAL);
                }
                let opened = Opened {
                    attributes: before.clone(),
                    file: here,
                    is_new: false,
                    set: Bitmap::default(),
                };
                (opened, Witnessed::default())
            }
        };
        check_kind(&opened.attributes)?;
        match open.claim {
            _ if opened.is_new => {
                super::names::sync(&opened.file, opened.attributes.id)?;
            }
            Claim::Reclaimed => check_had(&opened.file, open.access)?,
            _ => check_rights(&opened, open.access)?,
        }
        let state = self.add_state(client, &opened, &open)?;
        if !opened.is_new && opened.set.has(attributes::SIZE) {
            truncate(&opened).inspect_err(|_| {
                if state.sequence == 1 {
                    self.memory.state().remove_open(state.key);
                }
            })?;
        }
        state.put(out);
        put_change(out, directory, &seen, before.change());
        /// Locks are POSIX's: parts of ranges can be unlocked.
        const POSIX_LOCKS: u32 = 4;
        out.u32(POSIX_LOCKS);
        opened.set.put(out);
        // No delegation.
        out.u32(0);
        self.set_file(opened.file.realm.clone(), opened.attributes.id);
        self.current_state = Some(state);
        Ok(())
    }

    /// Whether a state may be granted now: one that a client had before a restart of the server, or
    /// another one.
    pub(super) fn check_grace(&self, reclaims: bool) -> Done {
        let id = self.client()?;
        let mut state = self.memory.state();
        let client = state.clients.get(&id).ok_or(Status::STALE_CLIENTID)?;
        let (owner, has_reclaimed) = (client.owner.clone(), client.has_reclaimed);
        match reclaims {
            true if has_reclaimed || !state.grace.may_reclaim(&owner) => Err(Status::NO_GRACE),
            true => Ok(()),
            false if !has_reclaimed || state.grace.is_on() => Err(Status::GRACE),
            false => Ok(()),
        }
    }

    fn open_named(
        &self,
        directory: FileCall,
        name: &[u8],
        open: &Open<'_>,
    ) -> Result<(Opened, Witnessed), Status> {
        let creates = !matches!(open.how, How::Open);
        if creates && !directory.realm.access.is_read_only {
            let files = directory.files();
            let (made, seen) = files.witnessed(|| create(&directory, name, &open.how));
            let (attributes, is_new, set) = made?;
            let opened = Opened {
                file: directory,
                attributes,
                is_new,
                set,
            };
            return Ok((opened, seen));
        }
        let found = self.asker.lookup(&directory, name);
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                let status = Status::from(why);
                return Err(match status {
                    Status::NOENT if creates => Status::ROFS,
                    status => status,
                });
            }
        };
        if matches!(open.how, How::Guarded(..) | How::Exclusive(..)) {
            return Err(Status::EXIST);
        }
        let id = found.attributes.id;
        let opened = Opened {
            file: self
                .asker
                .call_in(found.realm, id, OperationKind::Open, (0, 0)),
            attributes: found.attributes,
            is_new: false,
            set: Bitmap::default(),
        };
        Ok((opened, Witnessed::default()))
    }

    /// Notes an open, or widens the one that the owner has.
    fn add_state(&self, client: u64, opened: &Opened, open: &Open<'_>) -> Result<StateId, Status> {
        let (realm, id) = (&opened.file.realm, opened.attributes.id);
        if realm.snapshot.is_some() && open.access & 2 != 0 {
            return Err(Status::ROFS);
        }
        let (shared, files) = (&realm.share.shared, realm.share.shared.files());
        let holder = shared.holding.id();
        let operation = opened.file.operation();
        let mut state = self.memory.state();
        if let Some(key) = state.find_open(client, open.owner, shared, (realm.snapshot, id)) {
            let known = state.opens.get_mut(&key).ok_or(Status::SERVERFAULT)?;
            let wide = (known.access | open.access, known.deny | open.deny);
            let is_counted = known.snapshot.is_none();
            if is_counted {
                files.unshare(id, holder, reservation(known.access, known.deny));
            }
            if is_counted
                && files
                    .share(id, holder, reservation(wide.0, wide.1))
                    .is_err()
            {
                // As before, which conflicted with nothing.
                let _ = files.share(id, holder, reservation(known.access, known.deny));
                return Err(Status::SHARE_DENIED);
            }
            (known.access, known.deny) = wide;
            known.sequence += 1;
            return Ok(StateId {
                sequence: known.sequence,
                key,
            });
        }
        if realm.snapshot.is_none() {
            files.opened(id, operation).map_err(of_handle)?;
            if files
                .share(id, holder, reservation(open.access, open.deny))
                .is_err()
            {
                let _ = files.closed(id, operation);
                return Err(Status::SHARE_DENIED);
            }
        }
        let is_snapshot = realm.snapshot.is_some();
        let added = Open4 {
            client,
            owner: open.owner.to_vec(),
            shared: shared.clone(),
            file: id,
            snapshot: realm.snapshot,
            sequence: 1,
            access: open.access,
            deny: open.deny,
            locks: Vec::new(),
        };
        let key = state.add_open(added).inspect_err(|_| {
            if !is_snapshot {
                files.unshare(id, holder, reservation(open.access, open.deny));
                let _ = files.closed(id, operation);
            }
        })?;
        Ok(StateId { sequence: 1, key })
    }

    pub(super) fn close(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let _sequence = reader.u32()?;
        let id = self.decode_state(reader)?;
        let _file = self.file(OperationKind::Close, (0, 0))?;
        let mut state = self.memory.state();
        let open = find_open(&mut state, self.client()?, id)?;
        let sequence = open.sequence.wrapping_add(1);
        state.remove_open(id.key);
        drop(state);
        self.current_state = None;
        StateId {
            sequence,
            key: id.key,
        }
        .put(out);
        Ok(())
    }

    pub(super) fn downgrade(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let id = self.decode_state(reader)?;
        let _sequence = reader.u32()?;
        let (access, deny) = (reader.u32()? & 0x3, reader.u32()?);
        let mut state = self.memory.state();
        let open = find_open(&mut state, self.client()?, id)?;
        let is_less = access & !open.access == 0 && deny & !open.deny == 0;
        if access == 0 || !is_less {
            return Err(Status::INVAL);
        }
        let holder = open.shared.holding.id();
        let gone = reservation(open.access & !access, open.deny & !deny);
        if open.snapshot.is_none() {
            open.shared.files().unshare(open.file, holder, gone);
        }
        (open.access, open.deny) = (access, deny);
        open.sequence += 1;
        let id = StateId {
            sequence: open.sequence,
            key: id.key,
        };
        drop(state);
        self.current_state = Some(id);
        id.put(out);
        Ok(())
    }

    pub(super) fn test_states(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        const TESTED_MAX: u32 = 1024;
        let count = reader.u32()?;
        if count > TESTED_MAX {
            return Err(Status::BADXDR);
        }
        let client = self.client()?;
        let state = self.memory.state();
        out.u32(count);
        for _ in 0..count {
            let id = StateId::decode(reader)?;
            let known = sequence_of(&state, client, &id.key);
            let status = known.and_then(|sequence| check_sequence(id, sequence));
            out.u32(status.err().unwrap_or(Status::OK).0);
        }
        Ok(())
    }

    pub(super) fn free_state(&mut self, reader: &mut Reader<'_>) -> Done {
        let id = self.decode_state(reader)?;
        let client = self.client()?;
        let mut state = self.memory.state();
        check_sequence(id, sequence_of(&state, client, &id.key)?)?;
        // An open is closed by an operation of its own.
        let locks = state.locks.get(&id.key).ok_or(Status::LOCKS_HELD)?;
        if locks.held.len() > 0 {
            return Err(Status::LOCKS_HELD);
        }
        state.remove_locks(id.key);
        Ok(())
    }

    /// Whether the current file may be read or written (1 or 2) by a client that has not opened it:
    /// not while an open denies that, or may be reclaimed.
    fn check_without_state(&self, access: u32) -> Done {
        let Some(Current::File { realm, id }) = &self.current else {
            return Err(Status::NOFILEHANDLE);
        };
        if realm.snapshot.is_some() {
            return Ok(());
        }
        let mut state = self.memory.state();
        if state.grace.is_on() {
            return Err(Status::GRACE);
        }
        let (files, holder) = (realm.files(), realm.share.shared.holding.id());
        let briefly = reservation(access, 0);
        let reserved = files.share(*id, holder, briefly);
        reserved.map_err(|_| Status::LOCKED)?;
        files.unshare(*id, holder, briefly);
        Ok(())
    }

    /// The id of a state, or the current one where the client means that.
    pub(crate) fn decode_state(&self, reader: &mut Reader<'_>) -> Result<StateId, Status> {
        let id = StateId::decode(reader)?;
        match id.is_current() {
            true => self.current_state.ok_or(Status::BAD_STATEID),
            false => Ok(id),
        }
    }

    /// Checks that a state permits to read or write (1 or 2) the current file. False for the
    /// states of no open, where the permissions of the file decide.
    pub(crate) fn check_state(&self, id: StateId, access: u32) -> Result<bool, Status> {
        if id.is_anonymous() {
            return self.check_without_state(access).map(|()| false);
        }
        let client = self.client()?;
        let mut state = self.memory.state();
        let (open, locks) = match state.locks.get(&id.key) {
            Some(locks) => (locks.open, Some((locks.client, locks.sequence))),
            None => (id.key, None),
        };
        let sequence = match locks {
            Some((owner, sequence)) if owner == client => {
                check_sequence(id, sequence)?;
                0
            }
            Some(_) => return Err(Status::BAD_STATEID),
            None => id.sequence,
        };
        let open = find_open(
            &mut state,
            client,
            StateId {
                sequence,
                key: open,
            },
        )?;
        match &self.current {
            Some(Current::File { realm, id })
                if (realm.snapshot, *id) == (open.snapshot, open.file)
                    && Arc::ptr_eq(&realm.share.shared, &open.shared) => {}
            _ => return Err(Status::BAD_STATEID),
        }
        match open.access & access == access {
            true => Ok(true),
            // A client reads what it only writes to fill its pages.
            false if access == 1 => Ok(false),
            false => Err(Status::OPENMODE),
        }
    }
}

/// An open by its id.
pub(super) fn find_open(state: &mut State, client: u64, id: StateId) -> Result<&mut Open4, Status> {
    let open = state.opens.get_mut(&id.key);
    let open = open.filter(|open| open.client == client);
    let open = open.ok_or(Status::BAD_STATEID)?;
    check_sequence(id, open.sequence)?;
    Ok(open)
}

fn sequence_of(state: &State, client: u64, key: &StateKey) -> Result<u32, Status> {
    let open = state.opens.get(key);
    let open = open.filter(|open| open.client == client);
    let locks = state.locks.get(key);
    let locks = locks.filter(|locks| locks.client == client);
    let found = open.map(|open| open.sequence);
    found
        .or(locks.map(|locks| locks.sequence))
        .ok_or(Status::BAD_STATEID)
}

/// Compares the number of changes of a state with that which a client knows; 0 is any.
pub(super) fn check_sequence(id: StateId, present: u32) -> Result<(), Status> {
    match id.sequence {
        0 => Ok(()),
        known if known == present => Ok(()),
        known if known < present => Err(Status::OLD_STATEID),
        _ => Err(Status::BAD_STATEID),
    }
}

fn check_kind(found: &Attributes) -> Done {
    match found.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status::ISDIR),
        FileKind::SymbolicLink => Err(Status::SYMLINK),
        _ => Err(Status::WRONG_TYPE),
    }
}

/// Checks what a client says it had open: its owner may have opened it before its mode changed.
fn check_had(file: &FileCall, access: u32) -> Done {
    if access & 1 != 0 {
        check_read(file).map_err(of_handle)?;
    }
    if access & 2 != 0 {
        check_write(file).map_err(of_handle)?;
    }
    Ok(())
}

fn check_rights(opened: &Opened, access: u32) -> Done {
    let file = &opened.file;
    let writes = access & 2 != 0;
    if writes && file.realm.access.is_read_only {
        return Err(Status::ROFS);
    }
    let check = |rights| {
        let (files, id) = (file.files(), opened.attributes.id);
        files.check_open(&file.credentials, id, rights, file.operation())
    };
    let rights = OpenRights {
        reads: access & 1 != 0,
        writes,
        ..OpenRights::default()
    };
    match check(rights) {
        // A client opens programs for reading to execute them.
        Err(PosixError::PermissionDenied) if !writes => {
            let executes = OpenRights {
                executes: true,
                ..OpenRights::default()
            };
            Ok(check(executes)?)
        }
        checked => Ok(checked?),
    }
}

/// Truncates a file that was there before it was opened.
fn truncate(opened: &Opened) -> Done {
    let file = &opened.file;
    let (files, id) = (file.files(), opened.attributes.id);
    let size = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    files.set_attributes(&file.credentials, id, &size, file.operation())?;
    super::names::sync(file, id)
}

/// Makes a regular file, or takes the one that is there: then false.
fn create(
    directory: &FileCall,
    name: &[u8],
    how: &How,
) -> Result<(Attributes, bool, Bitmap), PosixError> {
    let (files, operation) = (directory.files(), directory.operation());
    let (user, id) = (&directory.credentials, directory.id);
    let new = |wanted: &SetAttributes| NewFile {
        kind: FileKind::Regular,
        permissions: wanted.permissions.unwrap_or(0o644),
        // The client has applied it.
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    match how {
        How::Open => unreachable!("it is not made"),
        How::Exclusive(verifier, wanted, set) => {
            let new = new(wanted);
            let made = files.create_exclusive(user, id, name, &new, *verifier, operation)?;
            Ok((made, true, *set))
        }
        How::Guarded(wanted, set) => {
            let made = files.create(user, id, name, &new(wanted), operation)?;
            Ok((
                super::names::with_attributes(directory, made, wanted)?,
                true,
                *set,
            ))
        }
        How::Unchecked(wanted, set) => {
            match files.create(user, id, name, &new(wanted), operation) {
                Err(PosixError::Exists) => {
                    let found = files.lookup(user, id, name, operation)?;
                    let mut done = Bitmap::default();
                    if found.kind != FileKind::Regular || wanted.size != Some(0) {
                        return Ok((found, false, done));
                    }
                    // It is truncated when the open is granted.
                    done.add(attributes::SIZE);
                    Ok((found, false, done))
                }
                made => {
                    let made = super::names::with_attributes(directory, made?, wanted)?;
                    Ok((made, true, *set))
                }
            }
        }
    }
}
