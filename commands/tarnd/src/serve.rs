//! The life of the daemon: lock, import, answer, stop.

use crate::alert_actions;
use crate::event_programs;
use crate::host::{self, IdentityError};
use crate::influx_push::{InfluxPush, Pushing};
use crate::lock::{self, LockError};
use crate::web::{Page, Web};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tarn_administration::Administrator;
use tarn_api::admission::{OF_OTHERS_MAX, OF_OWNERS_MAX};
use tarn_api::server::{Control, serve};
use tarn_devices::{BlockDevices, VolumeLinks};
use tarn_engine::instance::Instance;
use tarn_engine::{Engine, EngineOptions};
use tarn_fuse::FuseMounter;
use tarn_iscsi::Shares;
use tarn_nbd::{Listening, NbdServer, TlsUse};
use tarn_nfs::NfsServer;
use tarn_serving::{AwakeProcessors, ServingThreads};
use tarn_tls::{CertificateFiles, ClientCertificates, Rules, TlsError, TlsServer};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

/// All users may connect: the peer's credentials decide which operations they may call.
const SOCKET_MODE: u32 = 0o666;

/// The beginning of the names of txg threads.
const SYNC_THREADS: &str = "tarn-sync";

/// TLS of NFS: version 1.3 alone (RFC 9289, section 5). A share says whether clients show
/// certificates.
const NFS_TLS: Rules = Rules {
    application: Some("sunrpc"),
    takes_version_1_2: false,
    clients: ClientCertificates::Optional,
};

/// TLS of NBD.
const NBD_TLS: Rules = Rules {
    application: None,
    takes_version_1_2: true,
    clients: ClientCertificates::Optional,
};

/// Why the daemon cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another daemon serves the instance.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The host id is not known.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Mounts cannot be served.
    #[error("cannot serve mounts: {}", tarn_engine::words_of(&(*.0).into()))]
    Mounts(rustix::io::Errno),
    /// Volumes cannot be shared.
    #[error("cannot serve iSCSI: {}", tarn_engine::words_of(.0))]
    Iscsi(std::io::Error),
    /// The control socket cannot be served.
    #[error("cannot serve {}: {}", .path.display(), tarn_engine::words_of(.cause))]
    Socket {
        /// The socket.
        path: std::path::PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The NBD server cannot listen.
    #[error("cannot serve NBD at {place}: {}", tarn_engine::words_of(.cause))]
    Nbd {
        /// The socket or address.
        place: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The page cannot be served.
    #[error(transparent)]
    Web(#[from] tarn_web::BindError),
    /// TLS cannot be served.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] TlsError),
    /// It was told to stop, and could not store everything. The log has the details.
    #[error("stopped, and not everything could be stored")]
    NotStored,
}

/// Options of the command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes for cached blocks; the engine's default when none.
    pub cache_bytes: Option<u64>,
    /// mkdir, rmdir and rename in `.zfs/snapshot` are refused.
    pub fixes_snapshot_names: bool,
    /// Idle processors may be kept from sleeping in bursts of requests.
    pub may_keep_processors_awake: bool,
    /// Whether operations are kept.
    pub analytics: AnalyticsUse,
    /// Whether statistics are archived, where operations are kept.
    pub archive: ArchiveUse,
    /// Volumes have block devices of this machine.
    pub makes_block_devices: bool,
    /// The TCP port for NFS.
    pub nfs_port: u16,
    /// For how long a client of NFS version 4 keeps its state without a word.
    pub nfs_lease: Duration,
    /// The domain with which NFS version 4 shows names of users and groups; numbers when none.
    pub nfs_domain: Option<String>,
    /// The keytab of NFS, where it is not the system's.
    pub nfs_keytab: Option<PathBuf>,
    /// TCP addresses at which volumes are served by NBD, beside the instance's socket.
    pub nbd_addresses: Vec<SocketAddr>,
    /// The certificate of the server, where it has one.
    pub tls: Option<TlsOptions>,
    /// Where the page is served.
    pub web: Web,
    /// Names by which browsers reach it.
    pub web_names: Vec<String>,
    /// Where metrics are pushed.
    pub influx: Option<InfluxPush>,
}

/// Whether records of operations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnalyticsUse {
    /// They are not even made.
    Off,
    /// They are, as many as fit into so many bytes.
    Within {
        /// How many.
        bytes: usize,
    },
}

impl Default for AnalyticsUse {
    fn default() -> AnalyticsUse {
        AnalyticsUse::Within {
            bytes: tarn_engine::analytics::DEFAULT_BUDGET_BYTES,
        }
    }
}

/// Whether statistics are archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveUse {
    /// They are not.
    Off,
    /// They are.
    Within {
        /// In this directory, or that of the instance.
        directory: Option<PathBuf>,
        /// At most so many bytes.
        bytes: u64,
    },
}

/// TLS, as the command line has it.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// The certificate, its key, and the authorities of clients.
    pub files: CertificateFiles,
    /// Whether clients of NBD must begin TLS, and show certificates; none when they cannot.
    pub nbd: Option<(TlsUse, ClientCertificates)>,
}

/// Serves until a signal ends it.
pub fn run(instance: &Instance, options: Options) -> Result<(), ServeError> {
    let _lock = lock::take(instance)?;
    // Its contents are the last daemon's.
    let _ = std::fs::remove_file(instance.unstored());
    end_on_broken_sync();
    if options.makes_block_devices {
        serve_as_disk();
    }
    let host = host::of_instance(instance)?;
    let processors = AwakeProcessors::new(options.may_keep_processors_awake);
    let threads = ServingThreads::new(processors).map_err(ServeError::Mounts)?;
    let mounter = Arc::new(FuseMounter::new(threads.clone()));
    let sharer = NfsServer::with_domain(
        threads.clone(),
        options.nfs_port,
        Some(instance.nfs_clients()),
        options.nfs_lease,
        options.nfs_domain,
    );
    sharer.tell_by(log);
    if let Some(keytab) = &options.nfs_keytab {
        sharer.use_keytab(keytab);
    }
    let nbd_tls = match &options.tls {
        None => None,
        Some(tls) => {
            sharer.offer_tls(TlsServer::open(tls.files.clone(), NFS_TLS, log)?);
            let of_nbd = |(tls_use, clients)| {
                let rules = Rules { clients, ..NBD_TLS };
                let server = TlsServer::open(tls.files.clone(), rules, log);
                server.map(|server| (server, tls_use))
            };
            tls.nbd.map(of_nbd).transpose()?
        }
    };
    let page = {
        let files = options.tls.as_ref().map(|tls| &tls.files);
        Page::new(options.web, options.web_names, files, log)?
    };
    let (nbd_addresses, influx) = (options.nbd_addresses, options.influx);
    let makes_block_devices = options.makes_block_devices;
    let (analytics, archive) = (options.analytics, options.archive);
    let options = EngineOptions {
        cache_bytes: options.cache_bytes,
        fixes_snapshot_names: options.fixes_snapshot_names,
    };
    let engine = Engine::new(host, instance.clone(), mounter, options);
    engine.set_sharer(sharer);
    if let AnalyticsUse::Within { bytes } = analytics {
        engine.start_analytics(bytes);
        start_archive(&engine, instance, archive);
    }
    if makes_block_devices {
        let (folder, links) = (instance.volumes(), VolumeLinks::of_machine());
        engine.set_volume_devices(BlockDevices::start(&folder, links, threads.clone(), log));
    }
    engine.start_fault_manager();
    engine.start_hot_spares();
    engine.start_scheduled_scrubs();
    engine.start_autoreplace();
    let programs = instance.event_programs();
    if let Err(error) = event_programs::start(&engine, programs, log) {
        log(&format!("cannot run programs for events: {error}"));
    }
    for warning in engine.start() {
        log(&warning.to_string());
    }
    let operation = engine.operation(0);
    engine.settle_volumes(&operation);
    operation.finish();
    let shares = Shares::start(&engine, threads.clone(), log).map_err(ServeError::Iscsi)?;
    let path = instance.socket();
    let nbd = NbdServer::new(engine.clone(), threads);
    if let Some((tls, tls_use)) = nbd_tls {
        nbd.offer_tls(tls, tls_use);
    }
    let served = match listen_for_volumes(&nbd, instance, &nbd_addresses) {
        Ok(()) => {
            let administrator = Administrator::new(engine.clone());
            let _alerts = start_alerts(&administrator);
            let _pushing = influx.map(|influx| start_push(influx, &administrator));
            answer(instance, engine.clone(), administrator, page)
        }
        Err(error) => Err(error),
    };
    // Without the socket, new clients get an error at once instead of no answer.
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_file(instance.stream_socket());
    nbd.stop();
    let _ = std::fs::remove_file(instance.nbd_socket());
    shares.stop();
    let unstored: Vec<String> = engine.stop().iter().map(ToString::to_string).collect();
    unstored.iter().for_each(|warning| log(warning));
    served?;
    match unstored.is_empty() {
        true => Ok(()),
        false => Err(leave_word(instance, &unstored)),
    }
}

/// Linux writes cached pages of block devices through this process, and does that to get memory: so
/// no thread of it, as none of a disk's driver, may wait for such a write when it needs memory
/// itself. Threads that are started later inherit this.
fn serve_as_disk() {
    // Without the privilege there are no block devices either.
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Has the NBD server listen.
fn listen_for_volumes(
    nbd: &NbdServer,
    instance: &Instance,
    addresses: &[SocketAddr],
) -> Result<(), ServeError> {
    let socket = instance.nbd_socket();
    let unix = (socket.display().to_string(), Listening::Unix(socket));
    let tcp = addresses.iter();
    let tcp = tcp.map(|address| (address.to_string(), Listening::Tcp(*address)));
    for (place, listening) in std::iter::once(unix).chain(tcp) {
        let listens = nbd.listen(&listening);
        listens.map_err(|cause| ServeError::Nbd { place, cause })?;
    }
    Ok(())
}

/// Writes the list of what could not be stored, for the command that waits for the end of this
/// process.
fn leave_word(instance: &Instance, unstored: &[String]) -> ServeError {
    let lines: Vec<String> = unstored
        .iter()
        .map(|line| line.replace('\n', "; "))
        .collect();
    let word = lines.join("\n") + "\n";
    if let Err(error) = std::fs::write(instance.unstored(), word) {
        log(&format!(
            "cannot write {}: {error}",
            instance.unstored().display()
        ));
    }
    ServeError::NotStored
}

/// Ends the process when a txg thread panics: an assertion failed, and later writes could be wrong.
/// The stored txg is complete; the next start imports it.
fn end_on_broken_sync() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        let name = std::thread::current().name().map(str::to_string);
        if name.is_some_and(|name| name.starts_with(SYNC_THREADS)) {
            std::process::abort();
        }
    }));
}

/// Answers calls until a signal comes.
fn answer(
    instance: &Instance,
    engine: Arc<Engine>,
    administrator: Arc<Administrator>,
    page: Page,
) -> Result<(), ServeError> {
    let failed = |cause| ServeError::Socket {
        path: instance.socket(),
        cause,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // A thread for each call that connections may make.
        .max_blocking_threads(OF_OTHERS_MAX + OF_OWNERS_MAX)
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        // Opened first: a client that finds the control socket finds the others too.
        let page_listener = page.listen(instance).await?;
        let streams = listen(&instance.stream_socket()).map_err(failed)?;
        let listener = listen(&instance.socket()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let _hangup = signal(SignalKind::hangup()).map_err(failed)?;
        let stopping = engine.clone();
        let (tell_stop, stop_of_page) = tokio::sync::oneshot::channel::<()>();
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stopping.begin_to_stop();
            let _ = tell_stop.send(());
        };
        let owner_uid = rustix::process::geteuid().as_raw();
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let descriptors = descriptors.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        let control = Control::new(administrator, owner_uid, descriptors);
        let stop_of_page = async move {
            let _ = stop_of_page.await;
        };
        let served_page = page.serve(page_listener, instance, control.clone(), stop_of_page);
        let served_page = tokio::spawn(served_page);
        let served = serve(listener, streams, control, stop).await;
        let _ = served_page.await;
        served.map_err(failed)
    })
}

/// A socket to which all users may connect.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    // This process has the lock, so an existing socket was left by a dead daemon.
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// Starts looking at alerts. Pools are served without it where there is no room for a thread.
fn start_alerts(administrator: &Arc<Administrator>) -> Option<alert_actions::Watching> {
    let started = alert_actions::start(administrator.clone(), log);
    let refused = |error| {
        let words = tarn_engine::words_of(&error);
        log(&format!("alerts are not looked at: {words}"));
    };
    started.map_err(refused).ok()
}

/// Starts pushing metrics. Pools are served without it where there is no room for a thread.
fn start_push(influx: InfluxPush, administrator: &Arc<Administrator>) -> Option<Pushing> {
    let started = influx.start(administrator.clone(), log);
    let refused = |error| {
        log(&format!(
            "metrics are not pushed: {}",
            tarn_engine::words_of(&error)
        ));
    };
    started.map_err(refused).ok()
}

/// Starts the archive. Pools are served without it where it cannot be used.
fn start_archive(engine: &Engine, instance: &Instance, archive: ArchiveUse) {
    if let ArchiveUse::Within { directory, bytes } = archive {
        let directory = directory.unwrap_or_else(|| instance.analytics());
        if let Err(error) = engine.start_archive(&directory, bytes) {
            log(&format!("statistics are not archived: {error}"));
        }
        for skipped in engine
            .archive()
            .map(|archive| archive.skipped())
            .unwrap_or_default()
        {
            log(&format!("{}: {}", skipped.path.display(), skipped.why));
        }
    }
}

/// Writes a line to the log.
fn log(line: &str) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.map_or(0, |since| since.as_secs());
    say(&format!("{seconds} {line}"));
}

/// Writes a line to standard error. A full disk or a reader that is gone does not end the daemon.
pub fn say(line: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
