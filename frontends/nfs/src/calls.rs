//! Calls of all programs: from a record to a reply.

use crate::client_numbers::Client;
use crate::file_call::{Asker, FileCall};
use crate::gss_calls::{Opened, Seal};
use crate::gss_contexts::GssContexts;
use crate::lock_manager::{self, LockManager};
use crate::mount_protocol::{self, MountList};
use crate::repeated_calls::{CallKey, Known, RepeatedCalls};
use crate::rpc::authentication::Caller;
use crate::rpc::back_channel::BackChannel;
use crate::rpc::call::{CallHead, Unserved};
use crate::rpc::reply::{Failure, RESULT_AT, Reply};
use crate::security_flavors::{Flavor, Way};
use crate::share_table::ShareTable;
use crate::status_monitor;
use crate::v3::status::Status;
use crate::v3::{self, Outcome};
use crate::v4;
use crate::xdr::{Malformed, Writer, padding_of};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tarn_engine::files::{Protocol, ReadData, Unsynced};
use tarn_tls::{Peer, TlsServer};

/// What serves calls.
pub(crate) struct Calls {
    pub(crate) table: ShareTable,
    pub(crate) memory: Arc<v4::Memory>,
    pub(crate) locks: Arc<LockManager>,
    /// There when connections may become those of TLS.
    pub(crate) tls: OnceLock<Arc<TlsServer>>,
    /// Users whose names are proved by Kerberos.
    pub(crate) gss: GssContexts,
    mounts: MountList,
    repeated: RepeatedCalls,
}

/// What serving a record has come to.
pub(crate) enum Served {
    /// This is sent.
    Reply(Reply),
    /// The reply is sent when it is durable.
    WhenDurable(Pending),
    /// This is sent in plain; what comes behind it is TLS.
    BeginTls(Reply, Arc<TlsServer>),
    /// Nothing is sent: the call is a repetition of one under way.
    Nothing,
    /// The record is no call: the stream makes no sense.
    NoCall,
}

/// A call that was carried out, whose reply waits for the intent log.
pub(crate) struct Pending {
    xid: u32,
    procedure: u32,
    key: Option<CallKey>,
    head: Writer,
    file: Box<FileCall>,
    unsynced: Unsynced,
    seal: Option<Seal>,
}

impl Served {
    /// The same, its reply protected.
    fn sealed(self, seal: Seal) -> Served {
        match self {
            Served::Reply(reply) => Served::Reply(seal.seal(reply)),
            Served::WhenDurable(pending) => Served::WhenDurable(Pending {
                seal: Some(seal),
                ..pending
            }),
            other => other,
        }
    }
}

/// A call whose reply is not known yet.
struct Begun {
    xid: u32,
    procedure: u32,
    key: Option<CallKey>,
}

impl Calls {
    /// With a file that lists the clients of version 4, the time of their leases, and the domain
    /// with which they are shown names of owners; beside it a file lists those of version 3 that
    /// have locks.
    pub(crate) fn new(clients: Option<PathBuf>, lease: Duration, domain: Option<String>) -> Calls {
        let hosts = clients
            .as_deref()
            .map(|path| path.with_file_name(LOCK_HOSTS));
        let locks = LockManager::new(hosts, lock_manager::GRACE);
        let memory = Arc::new(v4::Memory::new(clients, lease, domain));
        if let Some(end) = locks.grace_end() {
            memory.state().grace.others_reclaim_until(end);
        }
        Calls {
            table: ShareTable::default(),
            memory,
            locks,
            tls: OnceLock::new(),
            gss: GssContexts::default(),
            mounts: MountList::default(),
            repeated: RepeatedCalls::default(),
        }
    }

    /// Serves a record that came by a connection to this client, with the way to call it there.
    pub(crate) fn serve(
        &self,
        client: &Client,
        (peer, back): (Peer, Option<&Arc<BackChannel>>),
        record: &[u8],
    ) -> Served {
        let call = match CallHead::decode(record) {
            Ok(Ok(call)) => call,
            Ok(Err(Unserved::RpcVersion { xid })) => {
                return Served::Reply(Reply::other_rpc_version(xid));
            }
            Ok(Err(Unserved::Authentication { xid, why })) => {
                return Served::Reply(Reply::not_authentic(xid, why));
            }
            Err(Malformed) => return Served::NoCall,
        };
        if call.is_gss() {
            return match self.gss.open(client.address, &call) {
                Opened::Reply(reply) => Served::Reply(reply),
                Opened::Nothing => Served::Nothing,
                Opened::Call(opened) => {
                    let call = call.with_arguments(&opened.arguments);
                    let flavor = Flavor::Krb5(opened.service);
                    let from = (&opened.caller, Way { peer, flavor });
                    let served = self.serve_call(client, &call, from, (record.len(), back));
                    served.sealed(opened.seal)
                }
            };
        }
        if call.asks_for_tls()
            && peer == Peer::Plain
            && let Some(tls) = self.tls.get()
        {
            return Served::BeginTls(Reply::start_tls(call.xid), tls.clone());
        }
        let caller = match call.caller() {
            Ok(caller) => caller,
            Err(why) => return Served::Reply(Reply::not_authentic(call.xid, why)),
        };
        let flavor = match caller {
            Caller::Nobody => Flavor::None,
            Caller::System(_) => {
                client.keep_machine_name(|| call.machine());
                Flavor::Sys
            }
        };
        let from = (&caller, Way { peer, flavor });
        self.serve_call(client, &call, from, (record.len(), back))
    }

    /// Serves a call from this user, which came in this way.
    fn serve_call(
        &self,
        client: &Client,
        call: &CallHead<'_>,
        (caller, way): (&Caller, Way),
        (bytes, back): (usize, Option<&Arc<BackChannel>>),
    ) -> Served {
        let failed = |failure| Served::Reply(Reply::failed(call.xid, failure));
        let (low, high) = match call.program {
            v3::PROGRAM => (v3::VERSION, v4::VERSION),
            mount_protocol::PROGRAM => (mount_protocol::VERSION_LOW, mount_protocol::VERSION),
            lock_manager::PROGRAM => (lock_manager::VERSION, lock_manager::VERSION),
            status_monitor::PROGRAM => (status_monitor::VERSION, status_monitor::VERSION),
            _ => return failed(Failure::ProgramUnavailable),
        };
        if !(low..=high).contains(&call.version) {
            return failed(Failure::ProgramMismatch { low, high });
        }
        let asker = Asker {
            table: &self.table,
            client,
            caller,
            protocol: Protocol::Nfs3,
            way: Some(way),
            asks_for_security: Cell::new(false),
        };
        // Linux's client speaks MOUNT and NLM in plain and without Kerberos, whatever its mount
        // has.
        let by_any_way = || Asker {
            way: None,
            asks_for_security: Cell::new(false),
            ..asker
        };
        match call.program {
            v3::PROGRAM if call.version == v4::VERSION => {
                self.serve_compound(asker, back, call, bytes)
            }
            v3::PROGRAM => self.serve_files(&asker, call),
            lock_manager::PROGRAM | status_monitor::PROGRAM => {
                self.serve_locks(&by_any_way(), call)
            }
            _ => self.serve_mounts(&by_any_way(), call),
        }
    }

    fn serve_mounts(&self, asker: &Asker<'_>, call: &CallHead<'_>) -> Served {
        let mut head = Reply::begin(call.xid);
        let which = (call.version, call.procedure);
        let done = mount_protocol::run(asker, &self.mounts, which, call.arguments, &mut head);
        Served::Reply(match done {
            Some(Ok(())) => Reply::of(head),
            Some(Err(Malformed)) => Reply::failed(call.xid, Failure::GarbageArguments),
            None => Reply::failed(call.xid, Failure::ProcedureUnavailable),
        })
    }

    fn serve_locks(&self, asker: &Asker<'_>, call: &CallHead<'_>) -> Served {
        let mut head = Reply::begin(call.xid);
        let which = (call.procedure, call.arguments);
        let done = match call.program {
            status_monitor::PROGRAM => {
                status_monitor::run(asker.client, &self.locks, which, &mut head)
            }
            _ => {
                let version4_grace = self.memory.state().grace.is_on();
                lock_manager::run(asker, &self.locks, version4_grace, which, &mut head)
            }
        };
        Served::Reply(match done {
            Some(Ok(())) => Reply::of(head),
            Some(Err(Malformed)) => Reply::failed(call.xid, Failure::GarbageArguments),
            None => Reply::failed(call.xid, Failure::ProcedureUnavailable),
        })
    }

    fn serve_compound(
        &self,
        asker: Asker<'_>,
        back: Option<&Arc<BackChannel>>,
        call: &CallHead<'_>,
        request_bytes: usize,
    ) -> Served {
        let mut head = Reply::begin(call.xid);
        match call.procedure {
            0 => return Served::Reply(Reply::of(head)),
            v4::COMPOUND => {}
            _ => return Served::Reply(Reply::failed(call.xid, Failure::ProcedureUnavailable)),
        }
        // Version 4.0 has no sessions, in which calls are carried out once.
        let is_version_0 = v4::minor_of(call.arguments) == Some(0);
        let key = is_version_0.then(|| CallKey::of(asker.client, call));
        if let Some(key) = key {
            match self.repeated.begin(key) {
                Known::New => {}
                Known::UnderWay => return Served::Nothing,
                Known::Replied(bytes) => return Served::Reply(Reply::again(&bytes)),
            }
        }
        let asker = Asker {
            protocol: Protocol::Nfs4,
            ..asker
        };
        let request = (request_bytes, call.arguments);
        let (reply, is_kept) = match v4::run(&asker, &self.memory, back, request, &mut head) {
            Ok(ran) => (Reply::with_data(head, ran.data), ran.is_kept),
            Err(Malformed) => {
                let failed = Reply::failed(call.xid, Failure::GarbageArguments);
                (failed, false)
            }
        };
        match key {
            Some(key) if is_kept => self.repeated.replied(key, reply.head()),
            Some(key) => self.repeated.forget(key),
            None => {}
        }
        Served::Reply(reply)
    }

    fn serve_files(&self, asker: &Asker<'_>, call: &CallHead<'_>) -> Served {
        let key = v3::is_kept(call.procedure).then(|| CallKey::of(asker.client, call));
        if let Some(key) = key {
            match self.repeated.begin(key) {
                Known::New => {}
                Known::UnderWay => return Served::Nothing,
                Known::Replied(bytes) => return Served::Reply(Reply::again(&bytes)),
            }
        }
        let begun = Begun {
            xid: call.xid,
            procedure: call.procedure,
            key,
        };
        let mut head = Reply::begin(call.xid);
        let failure = match v3::run(asker, call.procedure, call.arguments, &mut head) {
            Some(Ok(Outcome::Done(data))) => {
                return Served::Reply(self.finished(&begun, head, data));
            }
            Some(Ok(Outcome::WhenDurable(file, unsynced))) => {
                let Begun {
                    xid,
                    procedure,
                    key,
                } = begun;
                return Served::WhenDurable(Pending {
                    xid,
                    procedure,
                    key,
                    head,
                    file,
                    unsynced,
                    seal: None,
                });
            }
            Some(Err(Malformed)) => Failure::GarbageArguments,
            None => Failure::ProcedureUnavailable,
        };
        if let Some(key) = key {
            self.repeated.forget(key);
        }
        Served::Reply(Reply::failed(call.xid, failure))
    }

    /// The reply to a call, which is kept for a repetition.
    fn finished(&self, begun: &Begun, mut head: Writer, data: ReadData) -> Reply {
        let status = head.as_slice().get(RESULT_AT..RESULT_AT + 4);
        let is_later = status == Some(&Status::JUKEBOX.0.to_be_bytes()[..]);
        let (place, padding) = (head.len(), padding_of(data.len()));
        head.pad(padding);
        let data = Vec::from_iter((!data.is_empty()).then_some((place, data)));
        let reply = Reply::with_data(head, data);
        match begun.key {
            // The client is to ask again, and then it is carried out.
            Some(key) if is_later => self.repeated.forget(key),
            Some(key) => self.repeated.replied(key, reply.head()),
            None => {}
        }
        reply
    }

    /// Makes durable what these calls did, those of one file system by one log write, and sends
    /// their replies.
    pub(crate) fn make_durable(&self, mut pending: Vec<Pending>, send: impl Fn(Reply)) {
        while let Some(first) = pending.first() {
            let files = first.file.realm.files().clone();
            let is_of_it = |other: &Pending| Arc::ptr_eq(other.file.realm.files(), &files);
            let (together, others): (Vec<_>, Vec<_>) =
                pending.into_iter().partition(|other| is_of_it(other));
            pending = others;
            let unsynced: Vec<Unsynced> = together.iter().map(|one| one.unsynced).collect();
            let stored = files.sync_together(&unsynced, together[0].file.operation());
            for one in together {
                let head = match &stored {
                    Ok(()) => one.head,
                    Err(error) => {
                        let (mut head, status) = (Reply::begin(one.xid), Status::from(error));
                        one.file.operation().fail(status.error());
                        v3::put_not_durable(one.procedure, status, &mut head);
                        head
                    }
                };
                let begun = Begun {
                    xid: one.xid,
                    procedure: one.procedure,
                    key: one.key,
                };
                let reply = self.finished(&begun, head, ReadData::default());
                send(match &one.seal {
                    Some(seal) => seal.seal(reply),
                    None => reply,
                });
            }
        }
    }
}

/// The file that lists clients with locks of version 3.
const LOCK_HOSTS: &str = "nfs-lock-hosts";
