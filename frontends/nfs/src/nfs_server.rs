//! The server of one daemon: it listens while something is shared.

use crate::calls::Calls;
use crate::listener::{Listener, POOL};
use crate::port_mapper::{self, RPCBIND};
use crate::share::{Share, SharedFiles};
use crate::share_options::ShareOptions;
use crate::status_monitor;
use crate::v4;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tarn_engine::sharing::{ShareRefusal, ShareRequest, Sharer};
use tarn_serving::{ServingThreads, SourceKey};
use tarn_tls::{Peer, TlsServer};

/// The port of NFS.
pub const NFS_PORT: u16 = 2049;

/// How long a client of version 4 keeps its opens and locks without a word, and how long clients
/// may reclaim them after a restart, unless the administrator says otherwise; what the kernel's
/// server has.
pub const LEASE: Duration = Duration::from_secs(90);

/// How long the end of requests under way is waited for when a share ends. A guess: longer than a
/// working pool needs for the largest request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long clients may take to return delegations when a share ends. A guess: longer than clients
/// need that are there, and not so long that an export of many shares takes minutes.
const RETURN_PATIENCE: Duration = Duration::from_secs(1);

/// How often clients are looked for whose leases have run out. A guess: a part of a lease.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Serves shared file systems.
pub struct NfsServer {
    threads: Arc<ServingThreads>,
    port: u16,
    /// Whether rpcbind is told.
    is_registered: bool,
    calls: Arc<Calls>,
    /// Whether clients of an earlier life were told that it is over.
    are_clients_told: AtomicBool,
    /// There while something is shared. Held while a share begins or ends.
    listening: Mutex<Option<Listening>>,
}

struct Listening {
    listener: Arc<Listener>,
    key: SourceKey,
}

impl NfsServer {
    /// A server that shares nothing yet and will listen on this port; 0 for any, which rpcbind is
    /// not told. The file lists clients of version 4: those of an earlier server with this file
    /// may reclaim what they had, for the time of a lease. Without it, none can.
    pub fn new(
        threads: Arc<ServingThreads>,
        port: u16,
        clients: Option<PathBuf>,
        lease: Duration,
    ) -> Arc<NfsServer> {
        NfsServer::with_domain(threads, port, clients, lease, None)
    }

    /// As [`NfsServer::new`], and shows owners of files to clients of version 4 as names with this
    /// domain ([`is_domain`](crate::is_domain)) instead of numbers.
    pub fn with_domain(
        threads: Arc<ServingThreads>,
        port: u16,
        clients: Option<PathBuf>,
        lease: Duration,
        domain: Option<String>,
    ) -> Arc<NfsServer> {
        let calls = Arc::new(Calls::new(clients, lease, domain));
        end_late_clients(Arc::downgrade(&calls), LOOK_EVERY.min(lease / 4));
        // Without it, clients of version 4.0 get no delegations, and others lose those that are in
        // the way of something after a lease.
        let _ = v4::call_clients(&calls.memory);
        Arc::new(NfsServer {
            threads,
            port,
            is_registered: port != 0,
            calls,
            are_clients_told: AtomicBool::new(false),
            listening: Mutex::default(),
        })
    }

    /// Where clients of version 3 are asked for the ports of their lock managers, in place of the
    /// port of rpcbind: for tests.
    pub fn ask_clients_at(&self, port: u16) {
        self.calls.locks.ask_clients_at(port);
    }

    /// Has clients begin TLS where they ask for it (RFC 9289). Called once, before anything is
    /// shared.
    pub fn offer_tls(&self, tls: Arc<TlsServer>) {
        let is_first = self.calls.tls.set(tls).is_ok();
        assert!(is_first, "TLS is offered once");
    }

    /// Has refused users of Kerberos told to the administrator. Called once.
    pub fn tell_by(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        self.calls.gss.tell_by(Box::new(tell));
    }

    /// Has the server's keys for Kerberos in this file, instead of the system's keytab. Called
    /// once, before anything is shared.
    pub fn use_keytab(&self, keytab: &Path) {
        self.calls.gss.use_keytab(keytab);
    }

    /// The options of a value of `sharenfs`, where this server can serve them.
    fn options_of(&self, value: &str) -> Result<ShareOptions, ShareRefusal> {
        let options = ShareOptions::parse(value);
        let options = options.map_err(|error| ShareRefusal::Failed(error.to_string()))?;
        let tls = self.calls.tls.get();
        if options.flavors().needs_kerberos() {
            let ready = self.calls.gss.get_ready();
            ready.map_err(|error| {
                ShareRefusal::Failed(format!(
                    "sharenfs option 'sec' names Kerberos, which this server cannot use: {error}; \
                     the keytab needs a key of nfs/HOST (tarnd --nfs-keytab FILE, or that of the \
                     system)"
                ))
            })?;
        }
        let lacking = match options.transports.least() {
            Peer::Plain => None,
            _ if tls.is_none() => {
                Some("a certificate: start tarnd with --tls-certificate and --tls-key")
            }
            Peer::Verified if !tls.is_some_and(|tls| tls.knows_clients()) => {
                Some("the authorities of clients: start tarnd with --tls-client-ca")
            }
            _ => None,
        };
        match lacking {
            None => Ok(options),
            Some(what) => Err(ShareRefusal::Failed(format!(
                "sharenfs option 'xprtsec={}' needs {what}",
                options.transports
            ))),
        }
    }

    /// Tells clients that had locks of version 3 that the server has restarted, once.
    fn tell_clients(&self) {
        let is_told = self.are_clients_told.swap(true, Ordering::SeqCst);
        if is_told || self.calls.locks.to_notify().is_empty() {
            return;
        }
        let locks = Arc::downgrade(&self.calls.locks);
        let named = std::thread::Builder::new().name("nfs-notify".to_string());
        // Without it, clients find out by themselves that their locks are gone, or never.
        let _ = named.spawn(move || status_monitor::tell_clients(&locks));
    }

    /// The port that it listens on; none while nothing is shared.
    pub fn port(&self) -> Option<u16> {
        let listening = self.listening();
        listening
            .as_ref()
            .map(|listening| listening.listener.port())
    }

    fn listening(&self) -> MutexGuard<'_, Option<Listening>> {
        // A thread that panicked under the lock left the socket as it was.
        self.listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens, if it does not yet.
    fn listen(&self, listening: &mut Option<Listening>) -> Result<(), ShareRefusal> {
        if listening.is_some() {
            return Ok(());
        }
        let opened = Listener::open(self.port, &self.threads, self.calls.clone());
        let listener = Arc::new(opened.map_err(|error| ShareRefusal::Failed(self.reason(&error)))?);
        let key = self.threads.add(listener.clone(), POOL);
        let key = key.map_err(|errno| ShareRefusal::Failed(self.reason(&errno.into())))?;
        let port = listener.port();
        self.tell_clients();
        *listening = Some(Listening { listener, key });
        if self.is_registered {
            tell_rpcbind(move || {
                // Without rpcbind, clients name the port. What another program serves stays its.
                let _ = port_mapper::register(RPCBIND, port);
            });
        }
        Ok(())
    }

    /// Why the port cannot be listened on.
    fn reason(&self, error: &std::io::Error) -> String {
        let port = self.port;
        match error.kind() {
            ErrorKind::AddrInUse => format!(
                "TCP port {port} is in use, as by the NFS server of the kernel: stop that one \
                 (systemctl stop nfs-server), or start tarnd with --nfs-port and another port"
            ),
            _ => format!(
                "cannot listen on TCP port {port}: {}",
                tarn_engine::words_of(error)
            ),
        }
    }

    /// Listens no longer when nothing is shared.
    fn stop_when_idle(&self, listening: &mut Option<Listening>) {
        // A share that was interrupted comes back: its clients keep their connections.
        let table = &self.calls.table;
        if table.now().all().next().is_some() || table.is_interrupted() {
            return;
        }
        if let Some(Listening { listener, key }) = listening.take() {
            let _ = self.threads.remove(key, PATIENCE);
            listener.end_connections();
            if self.is_registered {
                // Here, since the daemon may be about to end: this machine answers at once, or not.
                port_mapper::unregister(RPCBIND, listener.port());
            }
        }
    }
}

/// Ends the state of clients whose leases have run out, in a thread of its own, as long as the
/// server is there.
fn end_late_clients(calls: Weak<Calls>, look_every: Duration) {
    let look = move || {
        while let Some(calls) = calls.upgrade() {
            calls.memory.state().reap();
            calls.locks.reap();
            drop(calls);
            std::thread::sleep(look_every);
        }
    };
    let named = std::thread::Builder::new().name("nfs-leases".to_string());
    // Without it, they end when another client introduces itself.
    let _ = named.spawn(look);
}

/// Tells rpcbind something in a thread of its own, so that no share waits for it.
fn tell_rpcbind(tell: impl FnOnce() + Send + 'static) {
    let named = std::thread::Builder::new().name("nfs-rpcbind".to_string());
    let _ = named.spawn(tell);
}

impl Sharer for NfsServer {
    fn check(&self, options: &str) -> Result<(), ShareRefusal> {
        self.options_of(options).map(drop)
    }

    fn share(&self, request: ShareRequest<'_>) -> Result<(), ShareRefusal> {
        let options = self.options_of(request.options)?;
        let mut listening = self.listening();
        let guid = request.tree.guid();
        let present = self.calls.table.now().with_guid(guid).cloned();
        let is_same = |share: &Arc<Share>| Arc::ptr_eq(share.shared.files(), request.tree.files());
        let shared = match present {
            Some(share) if is_same(&share) => share.shared.clone(),
            Some(share) => return Err(ShareRefusal::SameGuid(share.dataset.clone())),
            None => SharedFiles::new(request.tree, self.calls.memory.recalls.clone()),
        };
        self.listen(&mut listening)?;
        self.calls.table.insert(Arc::new(Share {
            dataset: request.dataset.to_string(),
            path: request.path.to_path_buf(),
            options,
            shared,
        }));
        Ok(())
    }

    fn unshare(&self, guid: u64) -> Result<(), ShareRefusal> {
        let mut listening = self.listening();
        let Some(share) = self.calls.table.now().with_guid(guid).cloned() else {
            return Ok(());
        };
        // What changes without the share, as a rollback does, must not be cached by a client.
        v4::have_returned(&self.calls.memory, &share.shared, RETURN_PATIENCE);
        share.shared.close();
        if !share.shared.wait_until_quiet(PATIENCE) {
            share.shared.open_again();
            return Err(ShareRefusal::Busy);
        }
        self.calls.memory.state().forget_share(&share.shared);
        self.calls.locks.forget_share(&share.shared);
        drop(self.calls.table.remove(guid));
        self.stop_when_idle(&mut listening);
        Ok(())
    }

    fn interrupt(&self, guid: u64) {
        if self.is_shared(guid) {
            self.calls.table.interrupt(guid);
        }
    }

    fn abandon(&self, guid: u64) {
        let mut listening = self.listening();
        if let Some(share) = self.calls.table.remove(guid) {
            share.shared.close();
            self.calls.memory.state().forget_share(&share.shared);
            self.calls.locks.forget_share(&share.shared);
        }
        self.stop_when_idle(&mut listening);
    }

    fn is_shared(&self, guid: u64) -> bool {
        self.calls.table.now().with_guid(guid).is_some()
    }
}
