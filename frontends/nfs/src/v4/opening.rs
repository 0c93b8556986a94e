//! Opens: `OPEN`, `CLOSE`, `OPEN_DOWNGRADE`, and the ids of states.

use super::attributes::{self, Wanted};
use super::bitmap::Bitmap;
use super::compound::{Compound, Current, Done, StateId, check_sequence};
use super::delegating::{Grounds, Offer};
use super::names::{put_change, refuse_name};
use super::open_arguments::{Claim, Head, How, Open};
use super::operation;
use super::owners::{Owned, OwnerKey};
use super::state::{Open4, State, StateKey, reservation};
use super::status::{Status, of_handle};
use crate::file_call::FileCall;
use crate::rights::{check_read, check_write};
use crate::xdr::{Reader, Writer};
use std::sync::Arc;
use tarn_engine::files::{
    Attributes, DeviceNumber, FileKind, NewFile, OpenRights, OperationKind, PosixError,
    SetAttributes, Witnessed,
};

/// A file that was opened.
struct Opened {
    file: FileCall,
    attributes: Attributes,
    /// It was made.
    is_new: bool,
    set: Bitmap,
}

impl Compound<'_> {
    pub(super) fn open(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let head = Head::decode(reader)?;
        let begun = self.begin_open(&head);
        if self.replayed.is_some() {
            // The operations behind it are carried out, so its arguments are read.
            let _ = Open::decode(&head, reader, self.facts());
        }
        let (client, is_confirmed) = begun?;
        let open = Open::decode(&head, reader, self.facts())?;
        let reclaims = matches!(open.claim, Claim::Reclaimed { .. });
        if self.current.is_none() {
            return Err(Status::NOFILEHANDLE);
        }
        self.memory.state().check_grace(client, reclaims)?;
        let here = self.file(OperationKind::Open, (0, 0))?;
        let directory = here.id;
        let before = here.attributes().map_err(of_handle)?;
        let _acting = Compound::act(client, &here.realm);
        let (opened, seen) = match open.claim {
            Claim::Name(name) | Claim::NameOfDelegated(_, name) => {
                refuse_name(name)?;
                if before.kind != FileKind::Directory {
                    return Err(match before.kind {
                        FileKind::SymbolicLink => Status::SYMLINK,
                        _ => Status::NOTDIR,
                    });
                }
                self.open_named(here, name, &open)?
            }
            Claim::Current | Claim::Reclaimed { .. } | Claim::CurrentOfDelegated(_) => {
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
        check_kind(&opened.attributes, self.minor)?;
        match open.claim {
            _ if opened.is_new => {
                super::names::sync(&opened.file, opened.attributes.id)?;
            }
            Claim::Reclaimed { .. } => check_had(&opened.file, open.access)?,
            _ => check_rights(&opened, open.access)?,
        }
        let claimed = match open.claim {
            Claim::NameOfDelegated(id, _) | Claim::CurrentOfDelegated(id) => Some(id),
            _ => None,
        };
        if let Some(id) = claimed {
            let file = (&opened.file.realm, opened.attributes.id);
            self.check_claim(client, id, file)?;
        }
        let is_confirmed = is_confirmed || reclaims || claimed.is_some();
        let state = self.add_state(client, &opened, &open, is_confirmed)?;
        if reclaims {
            // Its next `OPEN` would else end the opens that it has reclaimed.
            self.memory.state().confirm_owner(&OwnerKey {
                client,
                owned: Owned::Opens,
                name: open.owner.to_vec(),
            });
        }
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
        const CONFIRM: u32 = 2;
        out.u32(if is_confirmed {
            POSIX_LOCKS
        } else {
            POSIX_LOCKS | CONFIRM
        });
        opened.set.put(out);
        self.offer_with(client, &opened, &open, is_confirmed)
            .put(out);
        if self.minor == 0 {
            let handle = opened.file.realm.handle(&opened.attributes);
            self.ending.handle = Some(handle.encode());
        }
        self.set_file(opened.file.realm.clone(), opened.attributes.id);
        self.current_state = Some(state);
        Ok(())
    }

    /// The delegation that comes with an open, if one does.
    fn offer_with(
        &self,
        client: u64,
        opened: &Opened,
        open: &Open<'_>,
        is_confirmed: bool,
    ) -> Offer {
        let reclaims = match open.claim {
            Claim::Name(_) | Claim::Current => false,
            Claim::Reclaimed { was_delegated } if was_delegated => true,
            // The client has a delegation, which it is about to return, or had none.
            _ => return Offer::None,
        };
        if !is_confirmed {
            return Offer::None;
        }
        self.offer(&Grounds {
            client,
            file: &opened.file,
            attributes: &opened.attributes,
            access: open.access,
            wanted: open.wanted_delegation,
            reclaims,
        })
    }

    /// The client that opens a file, and whether the owner is known not to repeat an old `OPEN`.
    fn begin_open(&mut self, head: &Head<'_>) -> Result<(u64, bool), Status> {
        if self.minor > 0 {
            return Ok((self.client()?, true));
        }
        let memory = self.memory;
        let mut state = memory.state();
        let client = state.client_numbered(head.client)?;
        let owner = OwnerKey {
            client,
            owned: Owned::Opens,
            name: head.owner.to_vec(),
        };
        let is_confirmed = self.begin_open_turn(&mut state, owner, head.sequence)?;
        Ok((client, is_confirmed))
    }

    /// `OPEN_CONFIRM`: the `OPEN` of an owner that was not known was no repetition.
    pub(super) fn confirm_open(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let id = StateId::decode(reader)?;
        let number = reader.u32()?;
        let file = self.file(OperationKind::Open, (0, 0))?;
        let memory = self.memory;
        let mut state = memory.state();
        let client = state.client_of_state(&id.key)?;
        let owner = state.owner_of_open(client, &id.key)?;
        self.begin_turn(&mut state, owner.clone(), operation::OPEN_CONFIRM, number)?;
        let open = state.opens.get_mut(&id.key).ok_or(Status::BAD_STATEID)?;
        if open.is_confirmed || !open.is_of(&file) {
            return Err(Status::BAD_STATEID);
        }
        check_sequence(id, open.sequence)?;
        open.is_confirmed = true;
        open.sequence += 1;
        let sequence = open.sequence;
        state.confirm_owner(&owner);
        let key = id.key;
        StateId { sequence, key }.put(out);
        Ok(())
    }

    /// Begins an operation on an open, which in version 4.0 is one of its owner.
    fn begin_with_open(
        &mut self,
        state: &mut State,
        key: &StateKey,
        (operation, number): (u32, u32),
    ) -> Result<u64, Status> {
        let client = self.client_of(state, key)?;
        if self.minor == 0 {
            let owner = state.owner_of_open(client, key)?;
            self.begin_turn(state, owner, operation, number)?;
        }
        Ok(client)
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
    fn add_state(
        &self,
        client: u64,
        opened: &Opened,
        open: &Open<'_>,
        is_confirmed: bool,
    ) -> Result<StateId, Status> {
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
            if known.snapshot.is_none() {
                // What the owner has denied is denied to itself, too.
                let asked = reservation(open.access, open.deny);
                let shared = files.share(id, holder, asked);
                shared.map_err(denied)?;
                files.unshare(id, holder, asked);
                let new = reservation(open.access & !known.access, open.deny & !known.deny);
                let shared = files.share(id, holder, new);
                shared.map_err(denied)?;
            }
            (known.access, known.deny) = wide;
            known.accesses |= 1 << open.access;
            known.denials |= 1 << open.deny;
            known.sequence += 1;
            return Ok(StateId {
                sequence: known.sequence,
                key,
            });
        }
        if realm.snapshot.is_none() {
            files.opened(id, operation).map_err(of_handle)?;
            let asked = reservation(open.access, open.deny);
            files.share(id, holder, asked).map_err(|error| {
                let _ = files.closed(id, operation);
                denied(error)
            })?;
        }
        let is_snapshot = realm.snapshot.is_some();
        let added = Open4 {
            client,
            owner: open.owner.to_vec(),
            user: self.principal(),
            shared: shared.clone(),
            file: id,
            snapshot: realm.snapshot,
            sequence: 1,
            access: open.access,
            deny: open.deny,
            accesses: 1 << open.access,
            denials: 1 << open.deny,
            is_confirmed,
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
        let number = reader.u32()?;
        let id = self.decode_state(reader)?;
        let _file = self.file(OperationKind::Close, (0, 0))?;
        let memory = self.memory;
        let mut state = memory.state();
        let client = self.begin_with_open(&mut state, &id.key, (operation::CLOSE, number))?;
        let open = find_open(&mut state, client, id)?;
        let sequence = open.sequence.wrapping_add(1);
        state.remove_open(id.key);
        drop(state);
        self.ending.closed = Some(id.key);
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
        let (number, access, deny) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let access = if self.minor == 0 {
            access
        } else {
            access & 0xff
        };
        let _file = self.file(OperationKind::Open, (0, 0))?;
        let memory = self.memory;
        let mut state = memory.state();
        let which = (operation::OPEN_DOWNGRADE, number);
        let client = self.begin_with_open(&mut state, &id.key, which)?;
        let open = find_open(&mut state, client, id)?;
        let is_some_of = |bits: u32, asked: u32| bits <= 3 && union_within(asked, bits) == bits;
        if access == 0 || !is_some_of(access, open.accesses) || !is_some_of(deny, open.denials) {
            return Err(Status::INVAL);
        }
        let holder = open.shared.holding.id();
        let gone = reservation(open.access & !access, open.deny & !deny);
        if open.snapshot.is_none() {
            open.shared.files().unshare(open.file, holder, gone);
        }
        (open.access, open.deny) = (access, deny);
        open.accesses = parts_within(open.accesses, access);
        open.denials = parts_within(open.denials, deny);
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
            let status = match state.delegations.get(&id.key) {
                Some(_) => state.check_delegation(client, id).map(drop),
                None => sequence_of(&state, client, &id.key)
                    .and_then(|sequence| check_sequence(id, sequence)),
            };
            out.u32(status.err().unwrap_or(Status::OK).0);
        }
        Ok(())
    }

    pub(super) fn free_state(&mut self, reader: &mut Reader<'_>) -> Done {
        let id = self.decode_state(reader)?;
        let client = self.client()?;
        let mut state = self.memory.state();
        if state.free_delegation(client, id)? {
            return Ok(());
        }
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
        reserved.map_err(|error| match denied(error) {
            Status::SHARE_DENIED => Status::LOCKED,
            status => status,
        })?;
        files.unshare(*id, holder, briefly);
        Ok(())
    }

    /// The id of a state, or the current one where the client means that.
    pub(crate) fn decode_state(&self, reader: &mut Reader<'_>) -> Result<StateId, Status> {
        let id = StateId::decode(reader)?;
        match id.is_current() && self.minor > 0 {
            true => self.current_state.ok_or(Status::BAD_STATEID),
            false => Ok(id),
        }
    }

    /// Checks that a state permits to read or write (1 or 2) the current file. False for the
    /// states of no open, and for those of other users' opens, where the permissions of the file
    /// decide.
    pub(crate) fn check_state(&self, id: StateId, access: u32) -> Result<bool, Status> {
        if id.is_anonymous() {
            return self.check_without_state(access).map(|()| false);
        }
        let mut state = self.memory.state();
        let client = self.client_of(&mut state, &id.key)?;
        if let Some(is_users) = self.check_delegated(&state, (client, id), access)? {
            return Ok(is_users);
        }
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
            true => Ok(open.user == self.principal()),
            // A client reads what it only writes to fill its pages.
            false if access == 1 => Ok(false),
            false => Err(Status::OPENMODE),
        }
    }
}

/// Those of some sets of bits that have no bits but these. A set of bits has the value of a bit of
/// `sets`.
fn parts_within(sets: u32, bits: u32) -> u32 {
    let parts = (0..4).filter(|part| sets & 1 << part != 0 && part & !bits == 0);
    parts.fold(0, |parts, part| parts | 1 << part)
}

/// The union of these.
fn union_within(sets: u32, bits: u32) -> u32 {
    let parts = parts_within(sets, bits);
    (0..4)
        .filter(|part| parts & 1 << part != 0)
        .fold(0, |union, part| union | part)
}

/// An open by its id.
pub(super) fn find_open(state: &mut State, client: u64, id: StateId) -> Result<&mut Open4, Status> {
    let open = state.opens.get_mut(&id.key);
    let open = open.filter(|open| open.client == client && open.is_confirmed);
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

/// The status of an open that is denied by another one, or by a delegation that is to be returned.
fn denied(error: PosixError) -> Status {
    match error {
        PosixError::Recalling => Status::DELAY,
        _ => Status::SHARE_DENIED,
    }
}

fn check_kind(found: &Attributes, minor: u32) -> Done {
    match found.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status::ISDIR),
        FileKind::SymbolicLink => Err(Status::SYMLINK),
        // Version 4.0 has no status of its own for this.
        _ if minor == 0 => Err(Status::SYMLINK),
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
    how: &How<'_>,
) -> Result<(Attributes, bool, Bitmap), PosixError> {
    let (files, operation) = (directory.files(), directory.operation());
    let (user, id) = (&directory.credentials, directory.id);
    let new = |wanted: &Wanted<'_>| NewFile {
        kind: FileKind::Regular,
        permissions: wanted.attributes.permissions.unwrap_or(0o644),
        // The client has applied it.
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    match how {
        How::Open => unreachable!("it is not made"),
        How::Exclusive(verifier, wanted) => {
            let new = new(wanted);
            let made = files.create_exclusive(user, id, name, &new, *verifier, operation)?;
            Ok((made, true, wanted.set))
        }
        How::Guarded(wanted) => {
            let made = files.create(user, id, name, &new(wanted), operation)?;
            Ok((
                super::names::with_attributes(directory, made, wanted)?,
                true,
                wanted.set,
            ))
        }
        How::Unchecked(wanted) => {
            match files.create(user, id, name, &new(wanted), operation) {
                Err(PosixError::Exists) => {
                    let found = files.lookup(user, id, name, operation)?;
                    let mut done = Bitmap::default();
                    if found.kind != FileKind::Regular || wanted.attributes.size != Some(0) {
                        return Ok((found, false, done));
                    }
                    // It is truncated when the open is granted.
                    done.add(attributes::SIZE);
                    Ok((found, false, done))
                }
                made => {
                    let made = super::names::with_attributes(directory, made?, wanted)?;
                    Ok((made, true, wanted.set))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_is_reduced_to_what_some_of_its_opens_asked_for() {
        const READ: u32 = 1;
        const WRITE: u32 = 2;
        const BOTH: u32 = 3;
        let opened_for_both = 1 << BOTH;
        assert_ne!(union_within(opened_for_both, READ), READ);
        let each = 1 << READ | 1 << WRITE;
        assert_eq!(union_within(each, BOTH), BOTH);
        assert_eq!(union_within(each, READ), READ);
        assert_eq!(parts_within(each | opened_for_both, READ), 1 << READ);
        assert_eq!(
            union_within(1 << READ, 0),
            0,
            "to deny nothing is a part of all"
        );
    }
}
