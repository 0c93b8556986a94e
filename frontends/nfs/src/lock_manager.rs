//! NLM version 4: locks and share reservations of clients of NFS version 3.
//!
//! # Problem
//! Version 3 has no state. Locks are another program's, and its clients lose them when the server
//! restarts, unless they are told of that and may take them again before others do.
//!
//! # Mechanism
//! A lock is one of `posix`, like those of mounts and of version 4, and conflicts with them
//! (`client_locks` says which client has it). A request that waits waits there; the client is
//! called when it has the lock (`granting`). Clients with locks are listed in a file
//! (`monitored_hosts`): after a restart they are told of it, and for a while only what they had is
//! granted, to them. The status monitor ([`status_monitor`](crate::status_monitor)) hears of
//! clients that have restarted, whose locks are released; a lock that a client asks for in a new
//! life says the same.
//!
//! # Not built
//! The procedures that are answered by a call (`NLM_LOCK_MSG` and others), which clients use over
//! UDP; versions 1 and 3, which are those of NFS version 2.
//!
//! # Source of the format
//! X/Open, Protocols for X/Open Interworking: XNFS, chapter 10; RFC 1813, appendix II.

mod client_locks;
mod granting;
mod lock_arguments;
mod lock_status;
mod monitored_hosts;

pub(crate) use lock_arguments::host_and_state;
pub(crate) use monitored_hosts::{GRACE, HostKey};

use crate::file_call::{Asker, FileCall};
use crate::rights::check_read;
use crate::rpc::asking::RPCBIND_PORT;
use crate::share::SharedFiles;
use crate::xdr::{Malformed, Reader, Writer};
use client_locks::{ClientLocks, FileKey, OwnerKey, Waiting};
use lock_arguments::{ClientLock, Form, LockCall, ShareCall, put_range};
use lock_status::LockStatus;
use monitored_hosts::MonitoredHosts;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tarn_engine::files::{
    FileKind, LockKind, LockOwner, LockRequest, LockScope, Locked, OperationKind,
};

/// The program's number.
pub const PROGRAM: u32 = 100_021;
/// The version: the one of NFS version 3.
pub const VERSION: u32 = 4;

/// Numbers of procedures.
pub mod procedure {
    #![expect(missing_docs, reason = "the names of XNFS")]
    pub const NULL: u32 = 0;
    pub const TEST: u32 = 1;
    pub const LOCK: u32 = 2;
    pub const CANCEL: u32 = 3;
    pub const UNLOCK: u32 = 4;
    /// The server calls it.
    pub const GRANTED: u32 = 5;
    pub const SHARE: u32 = 20;
    pub const UNSHARE: u32 = 21;
    pub const NM_LOCK: u32 = 22;
    pub const FREE_ALL: u32 = 23;
}

/// The locks of clients of version 3.
pub(crate) struct LockManager {
    state: Mutex<ClientLocks>,
    /// Takes the numbers of requests that were granted, by whichever thread released a lock.
    granted: Sender<u64>,
    /// Until the first request waits, when the thread starts that tells clients.
    untold: Mutex<Option<Receiver<u64>>>,
    rpcbind_of_clients: AtomicU16,
}

impl LockManager {
    /// With the file that lists clients; none where nothing outlives the process.
    pub(crate) fn new(hosts: Option<PathBuf>, grace: Duration) -> Arc<LockManager> {
        let (granted, untold) = channel();
        Arc::new(LockManager {
            state: Mutex::new(ClientLocks::new(MonitoredHosts::begin(hosts, grace))),
            granted,
            untold: Mutex::new(Some(untold)),
            rpcbind_of_clients: AtomicU16::new(RPCBIND_PORT),
        })
    }

    fn state(&self) -> MutexGuard<'_, ClientLocks> {
        // A thread that panicked under the lock has ended with the process.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port at which clients are asked for the ports of their programs.
    pub(crate) fn rpcbind_of_clients(&self) -> u16 {
        self.rpcbind_of_clients.load(Ordering::SeqCst)
    }

    pub(crate) fn ask_clients_at(&self, port: u16) {
        self.rpcbind_of_clients.store(port, Ordering::SeqCst);
    }

    /// The number of this life of the server, as its status monitor tells it.
    pub(crate) fn life(&self) -> u32 {
        self.state().monitored.state
    }

    /// Until when only reclaims are granted; none when all is.
    pub(crate) fn grace_end(&self) -> Option<Instant> {
        self.state().monitored.grace_end()
    }

    /// Clients that had locks in the server's earlier life, and by which address they reach it.
    pub(crate) fn to_notify(&self) -> Vec<(HostKey, IpAddr)> {
        self.state().monitored.to_notify()
    }

    /// A client has restarted, or gives up all that it has.
    pub(crate) fn release_host(&self, address: IpAddr, name: &[u8]) {
        let goes = |host: &HostKey| host.address == address && host.is_named(name);
        self.state().release_hosts(goes);
    }

    pub(crate) fn forget_share(&self, shared: &Arc<SharedFiles>) {
        self.state().forget_share(shared);
    }

    /// Forgets clients that have had nothing for a while.
    pub(crate) fn reap(&self) {
        self.state().forget_idle_hosts();
    }

    /// Starts the thread that tells clients, if it has not started. False where there is none.
    fn start_telling(self: &Arc<LockManager>) -> bool {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(receiver) = untold.take() else {
            return true;
        };
        let manager = Arc::downgrade(self);
        let named = std::thread::Builder::new().name("nfs-granted".to_string());
        let tell = move || granting::tell_clients(&manager, &receiver);
        named.spawn(tell).is_ok()
    }
}

/// Carries out a procedure, and appends its result. None where there is no such procedure.
///
/// # Errors
/// The arguments cannot be decoded.
pub(crate) fn run(
    asker: &Asker<'_>,
    manager: &Arc<LockManager>,
    version4_grace: bool,
    (number, arguments): (u32, &[u8]),
    out: &mut Writer,
) -> Option<Result<(), Malformed>> {
    let call = NlmCall {
        asker,
        manager,
        version4_grace,
    };
    let reader = &mut Reader::new(arguments);
    Some(match number {
        procedure::NULL => Ok(()),
        procedure::TEST => call.test(reader, out),
        procedure::LOCK | procedure::NM_LOCK => call.lock(reader, out),
        procedure::CANCEL => call.cancel(reader, out),
        procedure::UNLOCK => call.unlock(reader, out),
        procedure::SHARE => call.share(reader, out),
        procedure::UNSHARE => call.unshare(reader, out),
        procedure::FREE_ALL => host_and_state(reader).map(|(name, _)| {
            manager.release_host(asker.client.address, &name);
        }),
        _ => return None,
    })
}

/// A call of a client.
struct NlmCall<'a> {
    asker: &'a Asker<'a>,
    manager: &'a Arc<LockManager>,
    /// Clients of version 4 are reclaiming.
    version4_grace: bool,
}

/// A file that a client wants to lock.
struct Target {
    call: FileCall,
    key: FileKey,
}

impl NlmCall<'_> {
    fn host(&self, name: &[u8]) -> HostKey {
        HostKey {
            address: self.asker.client.address,
            name: name.to_vec(),
        }
    }

    fn owner_key(&self, lock: &ClientLock) -> OwnerKey {
        OwnerKey {
            host: self.host(&lock.caller),
            process: lock.process,
            name: lock.owner.clone(),
        }
    }

    /// The regular file of a handle that this user may read, or owns.
    fn target(&self, handle: &[u8], offset: u64) -> Result<Target, LockStatus> {
        let call = self.asker.call(handle, OperationKind::Lock, (offset, 0))?;
        let kind = call.attributes().map_err(|_| LockStatus::STALE)?.kind;
        if kind != FileKind::Regular || check_read(&call).is_err() {
            return Err(LockStatus::FAILED);
        }
        let key = FileKey {
            shared: Arc::downgrade(&call.realm.share.shared),
            guid: call.realm.tree.guid(),
            file: call.id,
        };
        Ok(Target { call, key })
    }

    /// Refuses what is new while clients reclaim, and reclaims when they do not.
    fn check_grace(
        &self,
        state: &ClientLocks,
        host: &HostKey,
        reclaims: bool,
    ) -> Result<(), LockStatus> {
        let is_on = self.version4_grace || state.monitored.grace_end().is_some();
        let may_be = match reclaims {
            true => state.monitored.may_reclaim(host),
            false => !is_on,
        };
        may_be.then_some(()).ok_or(LockStatus::GRACE)
    }

    /// Lists the client, before it is granted something.
    fn monitor(&self, state: &mut ClientLocks, host: &HostKey) -> Result<(), LockStatus> {
        let is_listed = state.monitored.add(host, self.asker.client.here);
        is_listed.then_some(()).ok_or(LockStatus::NO_LOCKS)
    }

    fn test(&self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<(), Malformed> {
        let call = LockCall::decode(Form::Test, reader)?;
        out.opaque(&call.cookie);
        let begun = out.len();
        if let Err(status) = self.test_lock(&call, out) {
            out.truncate(begun);
            out.u32(status.0);
        }
        Ok(())
    }

    fn test_lock(&self, call: &LockCall, out: &mut Writer) -> Result<(), LockStatus> {
        let target = self.target(&call.lock.handle, call.lock.offset)?;
        let state = self.manager.state();
        let owner = self.owner_key(&call.lock);
        self.check_grace(&state, &owner.host, false)?;
        let number = state.find_owner(&owner).unwrap_or(u64::MAX);
        let request = request_of(&target, number, call);
        let files = target.call.files();
        let Some(found) = files.find_lock(target.call.id, &request) else {
            out.u32(LockStatus::GRANTED.0);
            return Ok(());
        };
        out.u32(LockStatus::DENIED.0);
        out.bool(found.kind == LockKind::Exclusive);
        let is_ours = found.owner.holder == request.owner.holder;
        match state.name_of(found.owner.number).filter(|_| is_ours) {
            Some(owner) => drop(out.u32(owner.process).opaque(&owner.name)),
            // A program on a mount, or a client of version 4.
            None => drop(out.u32(found.process).opaque(&[])),
        }
        if let LockScope::Range(range) = found.scope {
            put_range(range, out);
        }
        Ok(())
    }

    fn lock(&self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<(), Malformed> {
        let call = LockCall::decode(Form::Lock, reader)?;
        let status = match self.take_lock(&call) {
            Ok(status) | Err(status) => status,
        };
        out.opaque(&call.cookie).u32(status.0);
        Ok(())
    }

    fn take_lock(&self, call: &LockCall) -> Result<LockStatus, LockStatus> {
        let target = self.target(&call.lock.handle, call.lock.offset)?;
        if target.call.realm.snapshot.is_some() {
            // Nothing in a snapshot is written, so shared locks exclude nothing.
            return match call.kind {
                LockKind::Shared => Ok(LockStatus::GRANTED),
                LockKind::Exclusive => Err(LockStatus::READ_ONLY),
            };
        }
        let key = self.owner_key(&call.lock);
        let mut state = self.manager.state();
        self.check_grace(&state, &key.host, call.reclaims)?;
        if !state.has_room() {
            return Err(LockStatus::NO_LOCKS);
        }
        self.monitor(&mut state, &key.host)?;
        state.note_state(&key.host, call.state);
        let owner = state.owner(&key).ok_or(LockStatus::NO_LOCKS)?;
        let request = request_of(&target, owner, call);
        let status = self.lock_or_wait(&mut state, &target, call, &request);
        state.forget_idle_owner(owner);
        status
    }

    fn lock_or_wait(
        &self,
        state: &mut ClientLocks,
        target: &Target,
        call: &LockCall,
        request: &LockRequest,
    ) -> Result<LockStatus, LockStatus> {
        let (files, owner) = (target.call.files(), request.owner.number);
        let waits_already = state.find_waiting(owner, &target.key, request);
        if !call.waits || call.reclaims || waits_already.is_some() {
            let refused = files.lock(target.call.id, request).err();
            return match (refused, waits_already) {
                (None, _) => {
                    // The client need not be told.
                    waits_already.map(|number| state.remove_waiting(number));
                    state.note_locked(owner, &target.key, call.lock.range());
                    Ok(LockStatus::GRANTED)
                }
                (Some(_), Some(_)) => Ok(LockStatus::BLOCKED),
                (Some(why), None) => Err(why.into()),
            };
        }
        if !self.manager.start_telling() {
            return Err(LockStatus::NO_LOCKS);
        }
        let number = state.add_waiting(Waiting {
            owner,
            file: target.key.clone(),
            request: *request,
            lock: call.lock.clone(),
            host: self.host(&call.lock.caller),
            wait: None,
            is_granted: false,
            tries: 0,
        });
        let granted = self.manager.granted.clone();
        let tell = move || {
            // The lock manager is gone only with the file system.
            let _ = granted.send(number);
        };
        match files.lock_or_wait(target.call.id, request, Box::new(tell)) {
            Ok(Locked::Later(wait)) => {
                let waiting = state.waiting(number).expect("it was added");
                waiting.wait = Some(wait);
                Ok(LockStatus::BLOCKED)
            }
            Ok(Locked::Now) => {
                state.remove_waiting(number);
                state.note_locked(owner, &target.key, call.lock.range());
                Ok(LockStatus::GRANTED)
            }
            Err(why) => {
                state.remove_waiting(number);
                Err(why.into())
            }
        }
    }

    fn cancel(&self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<(), Malformed> {
        let call = LockCall::decode(Form::Cancel, reader)?;
        let status = match self.cancel_wait(&call) {
            Ok(()) => LockStatus::GRANTED,
            Err(status) => status,
        };
        out.opaque(&call.cookie).u32(status.0);
        Ok(())
    }

    fn cancel_wait(&self, call: &LockCall) -> Result<(), LockStatus> {
        let target = self.target(&call.lock.handle, call.lock.offset)?;
        let mut state = self.manager.state();
        let Some(owner) = state.find_owner(&self.owner_key(&call.lock)) else {
            return Ok(());
        };
        let request = request_of(&target, owner, call);
        let found = state.find_waiting(owner, &target.key, &request);
        let Some(waiting) = found.and_then(|number| state.remove_waiting(number)) else {
            return Ok(());
        };
        let files = target.call.files();
        let is_over = |wait| files.cancel_lock_wait(target.call.id, wait);
        if !waiting.wait.is_some_and(is_over) {
            // It was granted a moment ago.
            granting::give_back(&mut state, &waiting);
        }
        state.forget_idle_owner(owner);
        Ok(())
    }

    fn unlock(&self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<(), Malformed> {
        let call = LockCall::decode(Form::Unlock, reader)?;
        let status = match self.release_lock(&call) {
            Ok(()) => LockStatus::GRANTED,
            Err(status) => status,
        };
        out.opaque(&call.cookie).u32(status.0);
        Ok(())
    }

    fn release_lock(&self, call: &LockCall) -> Result<(), LockStatus> {
        let target = self.target(&call.lock.handle, call.lock.offset)?;
        let mut state = self.manager.state();
        let key = self.owner_key(&call.lock);
        if state.monitored.grace_end().is_some() && !state.monitored.may_reclaim(&key.host) {
            return Err(LockStatus::GRACE);
        }
        let Some(owner) = state.find_owner(&key) else {
            return Ok(());
        };
        let request = request_of(&target, owner, call);
        let files = target.call.files();
        files.unlock(target.call.id, request.owner, request.scope)?;
        state.note_unlocked(owner, &target.key, call.lock.range());
        Ok(())
    }

    fn share(&self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<(), Malformed> {
        let call = ShareCall::decode(reader)?;
        let status = match self.reserve(&call) {
            Ok(()) => LockStatus::GRANTED,
            Err(status) => status,
        };
        put_share_result(&call, status, out);
        Ok(())
    }

    fn reserve(&self, call: &ShareCall) -> Result<(), LockStatus> {
        let target = self.target(&call.handle, 0)?;
        let owner = self.reserver(call);
        let mut state = self.manager.state();
        self.check_grace(&state, &owner.host, call.reclaims)?;
        if target.call.realm.snapshot.is_some() {
            return match call.access & 2 {
                0 => Ok(()),
                _ => Err(LockStatus::READ_ONLY),
            };
        }
        self.monitor(&mut state, &owner.host)?;
        state.note_state(&owner.host, 0);
        let is_given = state.reserve(&owner, &target.key, (call.access, call.denies));
        is_given.then_some(()).ok_or(LockStatus::DENIED)
    }

    fn unshare(&self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<(), Malformed> {
        let call = ShareCall::decode(reader)?;
        let status = match self.target(&call.handle, 0) {
            Ok(target) => {
                let owner = self.reserver(&call);
                self.manager.state().unreserve(&owner, &target.key);
                LockStatus::GRANTED
            }
            Err(status) => status,
        };
        put_share_result(&call, status, out);
        Ok(())
    }

    fn reserver(&self, call: &ShareCall) -> OwnerKey {
        OwnerKey {
            host: self.host(&call.caller),
            process: 0,
            name: call.owner.clone(),
        }
    }
}

fn request_of(target: &Target, number: u64, call: &LockCall) -> LockRequest {
    LockRequest {
        owner: LockOwner {
            holder: target.call.realm.share.shared.holding.id(),
            number,
        },
        scope: LockScope::Range(call.lock.range()),
        kind: call.kind,
        process: 0,
    }
}

/// `nlm4_shareres`.
fn put_share_result(call: &ShareCall, status: LockStatus, out: &mut Writer) {
    out.opaque(&call.cookie).u32(status.0).u32(0);
}
