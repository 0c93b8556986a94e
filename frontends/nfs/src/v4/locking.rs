//! Byte-range locks: `LOCK`, `LOCKT`, `LOCKU`.
//!
//! A lock that another owner has is refused, also where the client would wait: it asks again.

use super::compound::{Compound, Done, StateId, check_sequence};
use super::held_ranges::HeldRanges;
use super::opening::find_open;
use super::operation;
use super::owners::{Owned, OwnerKey};
use super::state::{Locks4, State, StateKey};
use super::status::{Status, of_handle};
use crate::file_call::FileCall;
use crate::xdr::{Reader, Writer};
use tarn_engine::files::{
    FileKind, LockKind, LockOwner, LockRange, LockRefusal, LockRequest, LockScope, OperationKind,
};

const OWNER_BYTES_MAX: usize = 1024;

/// The client, an open file of it, an owner of locks, and the state of the locks that it has there.
type Named = (u64, StateKey, LockOwner, Option<StateKey>);

/// `nfs_lock_type4`.
fn kind_of(number: u32) -> Result<LockKind, Status> {
    match number {
        1 | 3 => Ok(LockKind::Shared),
        2 | 4 => Ok(LockKind::Exclusive),
        _ => Err(Status::BADXDR),
    }
}

fn range_of(offset: u64, length: u64) -> Result<LockRange, Status> {
    let last = match length {
        0 => return Err(Status::INVAL),
        u64::MAX => u64::MAX,
        length => offset.checked_add(length - 1).ok_or(Status::INVAL)?,
    };
    Ok(LockRange {
        first: offset,
        last,
    })
}

impl Compound<'_> {
    pub(super) fn lock(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let kind = kind_of(reader.u32()?)?;
        let reclaims = reader.bool()?;
        let range = range_of(reader.u64()?, reader.u64()?);
        let is_new = reader.bool()?;
        let file = self.file(OperationKind::Lock, (0, 0))?;
        let checked = regular(&file);
        let memory = self.memory;
        let mut state = memory.state();
        let found = match is_new {
            true => self.owner_at_open(&mut state, reader)?,
            false => self.owner_of_locks(&mut state, reader)?,
        };
        let (client, open, owner, known) = found;
        let checked = checked.and_then(|()| state.check_grace(client, reclaims));
        let range = checked.and(range).inspect_err(|_| {
            state.forget_owner_without_locks(owner.number);
        })?;
        let request = LockRequest {
            owner,
            scope: LockScope::Range(range),
            kind,
            process: 0,
        };
        let locked = lock_opened(&state, &file, open, &request, out);
        if let Err(status) = locked {
            state.forget_owner_without_locks(owner.number);
            return Err(match status {
                Status::DENIED if reclaims => Status::RECLAIM_CONFLICT,
                status => status,
            });
        }
        let key = known.unwrap_or_else(|| {
            state.add_locks(Locks4 {
                client,
                open,
                owner,
                sequence: 0,
                held: HeldRanges::default(),
            })
        });
        let sequence = state.note_range(key, range, true)?;
        let id = StateId { sequence, key };
        id.put(out);
        drop(state);
        self.current_state = Some(id);
        Ok(())
    }

    /// The open file, the owner of locks that a client names with it, and the state of the locks
    /// that this owner has there.
    fn owner_at_open(
        &mut self,
        state: &mut State,
        reader: &mut Reader<'_>,
    ) -> Result<Named, Status> {
        let open_number = reader.u32()?;
        let open = self.decode_state(reader)?;
        let (number, id) = (reader.u32()?, reader.u64()?);
        let name = reader.opaque(OWNER_BYTES_MAX)?;
        let client = self.client_of(state, &open.key)?;
        if self.minor == 0 {
            if id != client {
                return Err(Status::STALE_CLIENTID);
            }
            let owner = state.owner_of_open(client, &open.key)?;
            self.begin_turn(state, owner, operation::LOCK, open_number)?;
            let owner = OwnerKey {
                client,
                owned: Owned::Locks,
                name: name.to_vec(),
            };
            let begun = self.begin_turn(state, owner, operation::LOCK, number);
            if self.replayed.take().is_some() {
                // The owner of the open has not asked this before.
                return Err(Status::BAD_SEQID);
            }
            begun?;
        }
        find_open(state, client, open)?;
        let number = state.lock_owner(client, name)?;
        let found = find_open(state, client, open)?;
        let owner = LockOwner {
            holder: found.shared.holding.id(),
            number,
        };
        let is_owners = |key: &&StateKey| {
            let locks = state.locks.get(*key);
            locks.is_some_and(|locks| locks.owner == owner)
        };
        let opened = state.opens.get(&open.key).ok_or(Status::BAD_STATEID)?;
        let known = opened.locks.iter().find(is_owners).copied();
        Ok((client, open.key, owner, known))
    }

    /// The same of an owner that has locks there.
    fn owner_of_locks(
        &mut self,
        state: &mut State,
        reader: &mut Reader<'_>,
    ) -> Result<Named, Status> {
        let id = self.decode_state(reader)?;
        let number = reader.u32()?;
        let client = self.begin_with_locks(state, &id.key, (operation::LOCK, number))?;
        let locks = state.locks.get(&id.key);
        let locks = locks.filter(|locks| locks.client == client);
        let locks = locks.ok_or(Status::BAD_STATEID)?;
        check_sequence(id, locks.sequence)?;
        Ok((client, locks.open, locks.owner, Some(id.key)))
    }

    /// Begins an operation on locks, which in version 4.0 is one of their owner.
    fn begin_with_locks(
        &mut self,
        state: &mut State,
        key: &StateKey,
        (operation, number): (u32, u32),
    ) -> Result<u64, Status> {
        let client = self.client_of(state, key)?;
        if self.minor == 0 {
            let owner = state.owner_of_locks(client, key)?;
            self.begin_turn(state, owner, operation, number)?;
        }
        Ok(client)
    }

    pub(super) fn test_lock(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let kind = kind_of(reader.u32()?)?;
        let range = range_of(reader.u64()?, reader.u64()?)?;
        let id = reader.u64()?;
        let name = reader.opaque(OWNER_BYTES_MAX)?;
        let file = self.file(OperationKind::Lock, (range.first, 0))?;
        regular(&file)?;
        let mut state = self.memory.state();
        let client = self.client_or_numbered(&mut state, id)?;
        let number = state.lock_owner(client, name)?;
        let request = LockRequest {
            owner: LockOwner {
                holder: file.realm.share.shared.holding.id(),
                number,
            },
            scope: LockScope::Range(range),
            kind,
            process: 0,
        };
        let is_denied = put_conflict(&state, &file, &request, out);
        state.forget_owner_without_locks(number);
        match is_denied {
            true => Err(Status::DENIED),
            false => Ok(()),
        }
    }

    pub(super) fn unlock(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let _kind = kind_of(reader.u32()?)?;
        let number = reader.u32()?;
        let id = self.decode_state(reader)?;
        let range = range_of(reader.u64()?, reader.u64()?);
        let file = self.file(OperationKind::Lock, (0, 0))?;
        let memory = self.memory;
        let mut state = memory.state();
        let client = self.begin_with_locks(&mut state, &id.key, (operation::LOCKU, number))?;
        let range = range?;
        let locks = state.locks.get(&id.key);
        let locks = locks.filter(|locks| locks.client == client);
        let locks = locks.ok_or(Status::BAD_STATEID)?;
        check_sequence(id, locks.sequence)?;
        let open = state.opens.get(&locks.open).ok_or(Status::BAD_STATEID)?;
        if !open.is_of(&file) {
            return Err(Status::BAD_STATEID);
        }
        let scope = LockScope::Range(range);
        if open.snapshot.is_none() {
            let unlocked = file.files().unlock(file.id, locks.owner, scope);
            unlocked.map_err(|_| Status::BAD_RANGE)?;
        }
        let key = id.key;
        let sequence = state.note_range(key, range, false)?;
        let id = StateId { sequence, key };
        id.put(out);
        drop(state);
        self.current_state = Some(id);
        Ok(())
    }
}

/// Locks a range of a file that is open. Where another owner has it, `DENIED` with that lock.
fn lock_opened(
    state: &State,
    file: &FileCall,
    open: StateKey,
    request: &LockRequest,
    out: &mut Writer,
) -> Done {
    let opened = state.opens.get(&open).ok_or(Status::BAD_STATEID)?;
    if !opened.is_of(file) {
        return Err(Status::BAD_STATEID);
    }
    let needed = match request.kind {
        LockKind::Exclusive => 2,
        LockKind::Shared => 1,
    };
    if opened.access & needed == 0 {
        return Err(Status::OPENMODE);
    }
    if !state.has_room_for_locks() {
        return Err(Status::DELAY);
    }
    if opened.snapshot.is_some() {
        // No open of such a file is for writing, so shared locks exclude nothing.
        return Ok(());
    }
    match file.files().lock(file.id, request) {
        Ok(()) => Ok(()),
        Err(LockRefusal::BadRange) => Err(Status::BAD_RANGE),
        Err(LockRefusal::Deadlock) => Err(Status::DEADLOCK),
        Err(_) => match put_conflict(state, file, request, out) {
            true => Err(Status::DENIED),
            // It was unlocked meanwhile.
            false => Err(Status::DELAY),
        },
    }
}

/// Appends the lock that a request conflicts with (`LOCK4denied`), if there is one.
fn put_conflict(state: &State, file: &FileCall, request: &LockRequest, out: &mut Writer) -> bool {
    let Some(found) = file.files().find_lock(file.id, request) else {
        return false;
    };
    let range = match found.scope {
        LockScope::Range(range) => range,
        LockScope::File => LockRange::WHOLE,
    };
    let length = match range.last {
        u64::MAX => u64::MAX,
        last => last - range.first + 1,
    };
    out.u64(range.first).u64(length);
    out.u32(if found.kind == LockKind::Exclusive {
        2
    } else {
        1
    });
    let is_ours = found.owner.holder == request.owner.holder;
    let owner = state.lock_owners.get(&found.owner.number);
    match owner.filter(|_| is_ours) {
        Some((client, name)) => drop(out.u64(*client).opaque(name)),
        // A program on a mount.
        None => drop(out.u64(0).opaque(&[])),
    }
    true
}

fn regular(file: &FileCall) -> Done {
    match file.attributes().map_err(of_handle)?.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status::ISDIR),
        FileKind::SymbolicLink => Err(Status::SYMLINK),
        _ => Err(Status::INVAL),
    }
}
