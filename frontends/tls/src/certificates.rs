//! What the server shows and trusts: its certificate and key, and the authorities of clients.

use crate::handshakes::Handshakes;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes of a file of certificates. A guess: the authorities of the world are a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Failed handshakes are told so often at most.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Files in PEM, as an administrator names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate of the server, and those that lead to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities whose clients are known.
    pub client_ca: Option<PathBuf>,
}

/// Whether clients show certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They may, where there is an authority: one that shows a certificate of another fails.
    Optional,
    /// They must.
    Required,
}

/// What a protocol asks of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The name of the protocol in the handshake (ALPN). A client that names others only fails.
    pub application: Option<&'static str>,
    /// Version 1.2 is served beside 1.3.
    pub takes_version_1_2: bool,
    /// Whether clients show certificates.
    pub clients: ClientCertificates,
}

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {what} '{}': {cause}", .path.display())]
    Read {
        /// What it is.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A file has no such thing.
    #[error("'{}' has no {what} in PEM (-----BEGIN ...-----): name the file that has it", .path.display())]
    Missing {
        /// What is looked for.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A part of a file cannot be decoded.
    #[error("the {what} in '{}' cannot be decoded: {why}", .path.display())]
    Malformed {
        /// What it is.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the decoder says.
        why: String,
    },
    /// The certificate cannot be used with the key.
    #[error(
        "the certificate '{}' cannot be served with the key '{}': {why}; name the key that \
         the certificate was made for", .certificate.display(), .key.display()
    )]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What rustls says.
        why: String,
    },
    /// Clients must show certificates, and no authority of theirs is named.
    #[error(
        "clients cannot be verified without the certificates of their authorities: name them with \
         --tls-client-ca"
    )]
    NoAuthority,
}

/// A server of TLS for one protocol.
pub struct TlsServer {
    files: CertificateFiles,
    rules: Rules,
    loaded: Mutex<Loaded>,
    tell: Box<dyn Fn(&str) + Send + Sync>,
    told: Mutex<Option<Instant>>,
    pub(crate) handshakes: Arc<Handshakes>,
}

struct Loaded {
    stamps: Vec<Stamp>,
    config: Arc<ServerConfig>,
}

/// What changes when a file is replaced or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl TlsServer {
    /// Reads the files. `tell` hears of files that cannot be used any more, and of handshakes that
    /// failed.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn open(
        files: CertificateFiles,
        rules: Rules,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Arc<TlsServer>, TlsError> {
        let stamps = files.stamps();
        let config = Arc::new(config_of(&files, rules)?);
        Ok(Arc::new(TlsServer {
            files,
            rules,
            loaded: Mutex::new(Loaded { stamps, config }),
            tell: Box::new(tell),
            told: Mutex::default(),
            handshakes: Handshakes::start(),
        }))
    }

    /// Whether clients can be verified.
    pub fn knows_clients(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// What the next handshake uses: the files as they are now, if they can be used.
    pub fn config(&self) -> Arc<ServerConfig> {
        // A thread that panicked under the lock left the configuration as it was.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.files.stamps();
        if loaded.stamps != stamps {
            // Told once for each change.
            loaded.stamps = stamps;
            match config_of(&self.files, self.rules) {
                Ok(config) => {
                    loaded.config = Arc::new(config);
                    (self.tell)("the certificate for TLS was read anew");
                }
                Err(error) => (self.tell)(&format!(
                    "the certificate for TLS was changed and cannot be used, so the one before \
                     stays: {error}"
                )),
            }
        }
        loaded.config.clone()
    }

    /// Tells of a handshake that failed, unless another has failed just before.
    pub(crate) fn tell_failure(&self, client: &str, why: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return;
        }
        *told = Some(Instant::now());
        drop(told);
        (self.tell)(&format!("the TLS handshake of {client} failed: {why}"));
    }
}

impl CertificateFiles {
    fn stamps(&self) -> Vec<Stamp> {
        let all = [
            Some(&self.certificate),
            Some(&self.key),
            self.client_ca.as_ref(),
        ];
        let present = all.into_iter().flatten();
        present
            .map(|path| Stamp::of(std::fs::metadata(path).ok()))
            .collect()
    }
}

impl Stamp {
    fn of(metadata: Option<Metadata>) -> Stamp {
        metadata.map_or(
            Stamp {
                device: 0,
                inode: 0,
                size: 0,
                changed: (0, 0),
            },
            |metadata| Stamp {
                device: metadata.dev(),
                inode: metadata.ino(),
                size: metadata.size(),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            },
        )
    }
}

fn config_of(files: &CertificateFiles, rules: Rules) -> Result<ServerConfig, TlsError> {
    const BOTH: &[&rustls::SupportedProtocolVersion] =
        &[&rustls::version::TLS13, &rustls::version::TLS12];
    let versions = match rules.takes_version_1_2 {
        true => BOTH,
        false => &BOTH[..1],
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .expect("ring has cipher suites of both versions");
    let verifier = match &files.client_ca {
        None if rules.clients == ClientCertificates::Required => return Err(TlsError::NoAuthority),
        None => WebPkiClientVerifier::no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let builder = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let builder = match rules.clients {
                ClientCertificates::Optional => builder.allow_unauthenticated(),
                ClientCertificates::Required => builder,
            };
            let built = builder.build();
            built.map_err(|error| malformed("authority of clients", path, error))?
        }
    };
    let chain = certificates("certificate", &files.certificate)?;
    let key = key(&files.key)?;
    let config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key);
    let mut config = config.map_err(|error| TlsError::Unusable {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        why: error.to_string(),
    })?;
    let name = rules.application.map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = name.into_iter().collect();
    Ok(config)
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("authority of clients", path)? {
        let added = roots.add(certificate);
        added.map_err(|error| malformed("authority of clients", path, error))?;
    }
    Ok(roots)
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(what, path)?;
    let decoded: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let decoded = decoded.map_err(|error| malformed(what, path, error))?;
    match decoded.is_empty() {
        true => Err(TlsError::Missing {
            what: "certificate",
            path: path.to_path_buf(),
        }),
        false => Ok(decoded),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    const WHAT: &str = "private key";
    let text = read(WHAT, path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => TlsError::Missing {
            what: WHAT,
            path: path.to_path_buf(),
        },
        error => malformed(WHAT, path, error),
    })
}

fn malformed(what: &'static str, path: &Path, why: impl std::fmt::Display) -> TlsError {
    TlsError::Malformed {
        what,
        path: path.to_path_buf(),
        why: why.to_string(),
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |cause| TlsError::Read {
        what,
        path: path.to_path_buf(),
        cause,
    };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    match size <= FILE_BYTES_MAX {
        true => std::fs::read(path).map_err(failed),
        false => Err(malformed(what, path, "the file has more than 1 MiB")),
    }
}
