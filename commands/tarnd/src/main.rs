//! `tarnd`: one process for all pools of one instance.
//!
//! # Mechanism
//! The daemon holds the lock of its instance's lock file as long as it lives; the file has its
//! process id. It imports the pools of the cache file, mounts them, and only then opens the control
//! socket: a client that gets an answer finds everything in place. Without `--foreground` a first
//! process starts the real one, waits until that answers or ends, and reports the result.
//!
//! It keeps no state of its caller ([`tarn_engine::caller`]): descriptors are closed first of all,
//! and in the background it has a session of its own and an environment of few variables.
//!
//! # When it ends
//! On SIGTERM or SIGINT it finishes calls under way, unmounts, stores and closes the pools; they
//! stay in the cache file. When it is killed, the next start does the same imports. What it could
//! not store is in its log and in `tarnd.unstored`, and its exit code reports that.

mod alert_actions;
mod background;
mod child_program;
mod event_programs;
mod host;
mod influx_push;
mod lock;
mod serve;
mod web;

use clap::Parser;
use serve::ServeError;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tarn_administration::messages::without_error_numbers;
use tarn_engine::caller::{self, StartedBy};
use tarn_engine::instance::Instance;
use tarn_nbd::TlsUse;
use tarn_tls::{CertificateFiles, ClientCertificates};
use web::Web;

/// Threads of all layers take and give back blocks of 128 KiB and small structures alike, millions
/// a second. The C library's allocator grows each thread's heap page by page, with a system call
/// for each, and shares little between threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Serves the pools of one TARN_DIR.
#[derive(Debug, Parser)]
#[command(name = "tarnd", version)]
struct Arguments {
    /// Stay in the foreground and log to standard error
    #[arg(long)]
    foreground: bool,
    /// Memory for cached blocks, in bytes or with a suffix (512M); a quarter of all memory unless
    /// given
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache_size: Option<u64>,
    /// Keep the records of operations for 'tarn slow', 'tarn top' and 'tarn analytics', in 512M of
    /// memory (on), not (off), or in that much memory; on unless given
    #[arg(long, value_name = "on|off|SIZE", value_parser = parse_analytics)]
    analytics: Option<serve::AnalyticsUse>,
    /// Where statistics of seconds, minutes and hours are archived, or not at all (off); in
    /// analytics below TARN_DIR unless given
    #[arg(long, value_name = "DIRECTORY|off")]
    archive: Option<PathBuf>,
    /// What the archive takes at most, 16M or more; 4G unless given
    #[arg(long, value_name = "SIZE", value_parser = parse_archive_size)]
    archive_size: Option<u64>,
    /// Never keep idle processors awake while requests follow each other without pause
    #[arg(long)]
    let_processors_sleep: bool,
    /// TCP port for NFS and its MOUNT protocol; 2049, or that of the environment variable
    /// TARN_NFS_PORT, unless given
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    nfs_port: Option<u16>,
    /// The keytab with the keys of nfs/HOST for Kerberos (sec=krb5 of sharenfs); the system's,
    /// /etc/krb5.keytab, unless given
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    nfs_keytab: Option<PathBuf>,
    /// Seconds for which a client of NFS version 4 keeps its opens and locks without a word, and
    /// may reclaim them after a restart; 90 unless given
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(10..=3600))]
    nfs_lease: Option<u16>,
    /// Show owners and groups of files to clients of NFS version 4 as name@DOMAIN, not as numbers;
    /// clients need the same domain (in /etc/idmapd.conf on Linux)
    #[arg(long, value_name = "DOMAIN", value_parser = parse_domain)]
    nfs_domain: Option<String>,
    /// Make block devices of volumes below /dev/zvol, or make none; as the environment variable
    /// TARN_BLOCK_DEVICES says, unless given, and else they are made
    #[arg(long, value_name = "WHICH", value_parser = ["loop", "none"])]
    block_devices: Option<String>,
    /// A command starts it: the priority and the limits are not chosen, but what the command had
    #[arg(long, hide = true)]
    by_command: bool,
    /// This is the process in the background
    #[arg(long, hide = true, requires = "foreground")]
    detached: bool,
    /// Refuse to take, destroy or rename snapshots by making, removing or renaming folders in
    /// .zfs/snapshot
    #[arg(long)]
    no_admin_snapshot: bool,
    /// Serve volumes by NBD on this TCP address too (127.0.0.1:10809), without passwords; may be
    /// given several times
    #[arg(long, value_name = "ADDRESS:PORT")]
    nbd_listen: Vec<std::net::SocketAddr>,
    /// The certificate for TLS of NFS and NBD, in PEM, with those that lead to its authority; read
    /// anew when it changes
    #[arg(long, value_name = "FILE", value_parser = absolute, requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", value_parser = absolute, requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Certificates of the authorities whose clients are known, in PEM: for xprtsec=mtls of NFS and
    /// --nbd-tls verify
    #[arg(long, value_name = "FILE", value_parser = absolute, requires = "tls_certificate")]
    tls_client_ca: Option<PathBuf>,
    /// Whether clients of NBD on TCP addresses may begin TLS (on), must (require), or must show a
    /// certificate, too (verify); 'on' where there is a certificate, unless given
    #[arg(long, value_name = "WHICH", value_parser = ["off", "on", "require", "verify"])]
    nbd_tls: Option<String>,
    /// Serve the page for browsers at this address, or not at all (off); as the environment
    /// variable TARN_WEB says, unless given, and else at 127.0.0.1:8470. Addresses that other
    /// machines reach need a certificate
    #[arg(long, value_name = "ADDRESS:PORT")]
    web: Option<String>,
    /// A name by which browsers reach the page, beside its address and localhost; may be given
    /// several times
    #[arg(long, value_name = "NAME", value_parser = parse_domain)]
    web_name: Vec<String>,
    /// Push metrics to this InfluxDB, by http: http://127.0.0.1:8086/write?db=tarn, or
    /// /api/v2/write?org=...&bucket=...&precision=ns
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    influx_push: Option<tarn_exports::PostTarget>,
    /// Seconds between two pushes; 10 unless given
    #[arg(long, value_name = "SECONDS", requires = "influx_push")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3600))]
    influx_interval: Option<u16>,
    /// Tags of what is pushed: host=nas1,site=north
    #[arg(long, value_name = "TAGS", requires = "influx_push", value_parser = parse_tags)]
    influx_tags: Option<String>,
    /// The file with the token of an InfluxDB that wants one
    #[arg(long, value_name = "FILE", requires = "influx_push", value_parser = absolute)]
    influx_token: Option<PathBuf>,
}

/// Exit code of a daemon that was told to stop and could not store everything. It differs from that
/// of other failures, as systemd must not restart it.
const NOT_STORED: u8 = 3;

fn main() -> ExitCode {
    caller::close_inherited_descriptors();
    let arguments = Arguments::parse();
    let instance = match Instance::from_environment() {
        Ok(instance) => instance,
        Err(error) => return failed(&error.to_string()),
    };
    if arguments.detached {
        // The end of the caller's terminal or session does not end this process. It cannot fail: a
        // child process leads no process group.
        let _ = rustix::process::setsid();
    }
    let outcome = if arguments.foreground {
        // The process that only starts the daemon stays in its folder, as a relative TARN_DIR is
        // passed on.
        caller::leave(match arguments.by_command {
            true => StartedBy::Command,
            false => StartedBy::Administrator,
        });
        let options = serve::Options {
            cache_bytes: arguments.cache_size,
            analytics: arguments.analytics.unwrap_or_default(),
            archive: archive_of(arguments.archive, arguments.archive_size),
            fixes_snapshot_names: arguments.no_admin_snapshot,
            may_keep_processors_awake: !arguments.let_processors_sleep,
            nfs_port: match nfs_port(arguments.nfs_port) {
                Ok(port) => port,
                Err(why) => return failed(&why),
            },
            nfs_lease: (arguments.nfs_lease).map_or(tarn_nfs::LEASE, |seconds| {
                Duration::from_secs(seconds.into())
            }),
            nfs_domain: arguments.nfs_domain,
            nfs_keytab: arguments.nfs_keytab,
            nbd_addresses: arguments.nbd_listen,
            tls: match tls_of(
                arguments.tls_certificate.zip(arguments.tls_key),
                arguments.tls_client_ca,
                arguments.nbd_tls.as_deref(),
            ) {
                Ok(tls) => tls,
                Err(why) => return failed(&why),
            },
            makes_block_devices: match makes_block_devices(arguments.block_devices) {
                Ok(makes_them) => makes_them,
                Err(why) => return failed(&why),
            },
            web: match web_of(arguments.web) {
                Ok(web) => web,
                Err(why) => return failed(&why),
            },
            web_names: arguments.web_name,
            influx: arguments.influx_push.map(|target| influx_push::InfluxPush {
                target,
                interval: arguments
                    .influx_interval
                    .map_or(influx_push::INTERVAL, |seconds| {
                        Duration::from_secs(seconds.into())
                    }),
                tags: arguments.influx_tags.unwrap_or_default(),
                token: arguments.influx_token,
            }),
        };
        match serve::run(&instance, options) {
            Err(error @ ServeError::NotStored) => {
                failed(&error.to_string());
                return ExitCode::from(NOT_STORED);
            }
            served => served.map_err(|error| error.to_string()),
        }
    } else {
        background::start(&instance).map_err(|error| error.to_string())
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(why: &str) -> ExitCode {
    serve::say(&without_error_numbers(&format!("tarnd: {why}")));
    ExitCode::FAILURE
}

/// The port of NFS: the option, the environment, or the usual one.
fn nfs_port(given: Option<u16>) -> Result<u16, String> {
    const VARIABLE: &str = "TARN_NFS_PORT";
    match (given, std::env::var(VARIABLE)) {
        (Some(port), _) => Ok(port),
        (None, Err(_)) => Ok(tarn_nfs::NFS_PORT),
        (None, Ok(text)) => match text.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(format!("{VARIABLE}='{text}' is no port: 1 to 65535")),
        },
    }
}

/// What TLS is to be, by the options: a certificate and its key, the authorities of clients, and
/// whether NBD asks for it.
fn tls_of(
    certificate: Option<(PathBuf, PathBuf)>,
    client_ca: Option<PathBuf>,
    nbd: Option<&str>,
) -> Result<Option<serve::TlsOptions>, String> {
    let files = certificate.map(|(certificate, key)| CertificateFiles {
        certificate,
        key,
        client_ca,
    });
    let Some(files) = files else {
        return match nbd {
            None | Some("off") => Ok(None),
            Some(asked) => Err(format!(
                "--nbd-tls {asked} needs a certificate: give --tls-certificate and --tls-key"
            )),
        };
    };
    let nbd = match nbd {
        Some("off") => None,
        Some("require") => Some((TlsUse::Required, ClientCertificates::Optional)),
        Some("verify") => Some((TlsUse::Required, ClientCertificates::Required)),
        _ => Some((TlsUse::Offered, ClientCertificates::Optional)),
    };
    Ok(Some(serve::TlsOptions { files, nbd }))
}

/// Whether volumes get block devices: the option, the environment, or yes.
fn makes_block_devices(given: Option<String>) -> Result<bool, String> {
    const VARIABLE: &str = "TARN_BLOCK_DEVICES";
    let chosen = given.or_else(|| std::env::var(VARIABLE).ok());
    match chosen.as_deref() {
        None | Some("loop") => Ok(true),
        Some("none") => Ok(false),
        Some(other) => Err(format!("{VARIABLE}='{other}' is unknown: 'loop' or 'none'")),
    }
}

/// Where the page is served: the option, the environment, or the usual place, which may be taken.
fn web_of(given: Option<String>) -> Result<Web, String> {
    const VARIABLE: &str = "TARN_WEB";
    let (name, chosen) = match (given, std::env::var(VARIABLE)) {
        (Some(given), _) => ("--web", given),
        (None, Ok(given)) => (VARIABLE, given),
        (None, Err(_)) => return Ok(Web::Usual),
    };
    match chosen.as_str() {
        "off" => Ok(Web::Off),
        address => address.parse().map(Web::At).map_err(|_| {
            format!("{name} '{address}' is no address with a port, as 127.0.0.1:8470, nor 'off'")
        }),
    }
}

/// A path as it is for any folder: the daemon leaves that of its caller, and reads files again.
fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| error.to_string())
}

/// Where metrics are pushed.
fn parse_url(text: &str) -> Result<tarn_exports::PostTarget, tarn_exports::BadUrl> {
    tarn_exports::PostTarget::parse(text)
}

/// Tags of lines that are pushed.
fn parse_tags(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}' are no tags, as host=nas1,site=north are");
    tarn_exports::line_tags(text).ok_or_else(wrong)
}

/// A size as users type it.
fn parse_size(text: &str) -> Result<u64, String> {
    tarn_engine::properties::size::size(text).map_err(|_| format!("'{text}' is not a size"))
}

/// Whether operations are kept, and in how much memory.
fn parse_analytics(text: &str) -> Result<serve::AnalyticsUse, String> {
    let least = tarn_engine::analytics::LEAST_BUDGET_BYTES;
    match text {
        "on" => return Ok(serve::AnalyticsUse::default()),
        "off" => return Ok(serve::AnalyticsUse::Off),
        _ => {}
    }
    let wrong = || {
        format!(
            "'{text}' is neither 'on', 'off' nor a size of {}M or more",
            least >> 20
        )
    };
    let bytes = parse_size(text)
        .ok()
        .and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.filter(|bytes| *bytes >= least).ok_or_else(wrong)?;
    Ok(serve::AnalyticsUse::Within { bytes })
}

/// What an archive may take.
fn parse_archive_size(text: &str) -> Result<u64, String> {
    let least = tarn_engine::archive::LEAST_CAP_BYTES;
    let bytes = parse_size(text)?;
    match bytes >= least {
        true => Ok(bytes),
        false => Err(format!("'{text}' is less than {}M", least >> 20)),
    }
}

/// Whether statistics are archived, and where.
fn archive_of(place: Option<PathBuf>, size: Option<u64>) -> serve::ArchiveUse {
    match place {
        Some(place) if place.as_os_str() == "off" => serve::ArchiveUse::Off,
        directory => serve::ArchiveUse::Within {
            directory,
            bytes: size.unwrap_or(tarn_engine::archive::DEFAULT_CAP_BYTES),
        },
    }
}

/// The domain of names of users, or the name of a machine.
fn parse_domain(text: &str) -> Result<String, String> {
    match tarn_nfs::is_domain(text) {
        true => Ok(text.to_string()),
        false => Err(format!("'{text}' is not a domain, as example.org is one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For servers; see `docs/man/tarnd.8.md`.
    const UNIT: &str = include_str!("../system/tarnd.service");

    #[test]
    fn options_of_tls_come_together() {
        let parse = |words: &[&str]| {
            let words = std::iter::once("tarnd").chain(words.iter().copied());
            Arguments::try_parse_from(words).map_err(|error| error.to_string())
        };
        let alone = parse(&["--tls-certificate", "a"]).unwrap_err();
        assert!(alone.contains("--tls-key"), "{alone}");
        assert!(parse(&["--tls-client-ca", "a"]).is_err());
        assert!(parse(&["--nbd-tls", "maybe"]).is_err());
        let both = parse(&["--tls-certificate", "a", "--tls-key", "/b"]).unwrap();
        assert!(both.tls_certificate.unwrap().is_absolute());
        let pair = || Some(("a".into(), "b".into()));
        let nbd = |nbd| tls_of(pair(), None, nbd).unwrap().unwrap().nbd;
        assert_eq!(nbd(Some("off")), None);
        let offered = (TlsUse::Offered, ClientCertificates::Optional);
        assert_eq!(nbd(None), Some(offered));
        let verified = (TlsUse::Required, ClientCertificates::Required);
        assert_eq!(nbd(Some("verify")), Some(verified));
        let without = tls_of(None, None, Some("require")).unwrap_err();
        assert!(without.contains("--tls-certificate"), "{without}");
        assert!(tls_of(None, None, None).unwrap().is_none());
    }

    #[test]
    fn analytics_is_on_off_or_of_a_size() {
        use serve::AnalyticsUse;
        assert_eq!(
            parse_analytics("on"),
            Ok(AnalyticsUse::Within { bytes: 512 << 20 })
        );
        assert_eq!(parse_analytics("off"), Ok(AnalyticsUse::Off));
        assert_eq!(
            parse_analytics("1G"),
            Ok(AnalyticsUse::Within { bytes: 1 << 30 })
        );
        for wrong in ["1M", "", "maybe", "-1"] {
            let refused = parse_analytics(wrong).unwrap_err();
            assert!(refused.contains("'off' nor a size of 8M"), "{refused}");
        }
    }

    #[test]
    fn the_page_is_served_at_an_address_or_not_at_all() {
        let web = |given: &str| web_of(Some(given.to_owned()));
        assert_eq!(web("off"), Ok(Web::Off));
        let address = "[::1]:80".parse().unwrap();
        assert_eq!(web("[::1]:80"), Ok(Web::At(address)));
        let refused = web("localhost").unwrap_err();
        assert!(refused.contains("127.0.0.1:8470"), "{refused}");
    }

    #[test]
    fn an_archive_is_off_or_in_a_directory_within_a_size() {
        assert_eq!(archive_of(Some("off".into()), None), serve::ArchiveUse::Off);
        let directory = Some(PathBuf::from("/a"));
        let bytes = 4 << 30;
        let expected = serve::ArchiveUse::Within {
            directory: directory.clone(),
            bytes,
        };
        assert_eq!(archive_of(directory, None), expected);
        let bytes = 16 << 20;
        let expected = serve::ArchiveUse::Within {
            directory: None,
            bytes,
        };
        assert_eq!(archive_of(None, Some(bytes)), expected);
        assert_eq!(parse_archive_size("16M"), Ok(bytes));
        assert!(parse_archive_size("15M").unwrap_err().contains("16M"));
        assert!(parse_archive_size("much").is_err());
    }

    #[test]
    fn the_unit_starts_it_with_arguments_it_takes() {
        let value = |name: &str| UNIT.lines().find_map(|line| line.strip_prefix(name));
        let command = value("ExecStart=").expect("a command");
        // Options are those of a file that an administrator may edit.
        assert!(command.ends_with(" $TARND_OPTIONS"), "{command}");
        let command = command.trim_end_matches(" $TARND_OPTIONS");
        let arguments = Arguments::try_parse_from(command.split_whitespace()).unwrap();
        // The unit waits for the first process, which does not exist in the foreground.
        assert_eq!(value("Type="), Some("forking"));
        assert!(!arguments.foreground);
        assert_eq!(value("PIDFile="), Some("/run/tarn/tarnd.lock"));
    }
}
