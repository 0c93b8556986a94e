//! Clients of TLS, and the certificates that they and servers show, for tests of front ends.
//!
//! Certificates are made for each test, and are good for the name `localhost`.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name that certificates are for.
const NAME: &str = "localhost";

/// The client's end of a connection.
pub type Stream<S> = StreamOwned<ClientConnection, S>;

/// An authority that certifies servers and clients.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Certified {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// What a client offers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offer {
    /// The name of the protocol (ALPN).
    pub application: Option<&'static str>,
    /// TLS 1.2 only.
    pub is_version_1_2: bool,
}

impl Authority {
    /// A new one.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no name is wrong");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("the system gives random bytes");
        Authority {
            issuer: CertifiedIssuer::self_signed(params, key).expect("the key signs"),
        }
    }

    /// Its own certificate, in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Certifies a server or a client.
    pub fn certify(&self) -> Certified {
        let params = CertificateParams::new(vec![NAME.to_string()]).expect("the name is right");
        let key = KeyPair::generate().expect("the system gives random bytes");
        let signed = params.signed_by(&key, &self.issuer);
        Certified {
            certificate: signed.expect("the authority's key signs").pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes what a server needs into files of a folder: a certificate, its key, and the
    /// certificate of this authority, by which it knows clients. Gives their paths.
    ///
    /// # Errors
    /// The system's.
    pub fn write_server_files(&self, folder: &Path) -> std::io::Result<[PathBuf; 3]> {
        let (certificate, key) = self.certify().write(folder)?;
        let client_ca = folder.join("ca.pem");
        std::fs::write(&client_ca, self.pem())?;
        Ok([certificate, key, client_ca])
    }

    /// Does the handshake of a client that trusts this authority, and shows this certificate if
    /// any.
    ///
    /// # Errors
    /// What rustls or the stream says: also a server's refusal.
    pub fn connect<S: Read + Write>(
        &self,
        stream: S,
        offer: Offer,
        own: Option<&Certified>,
    ) -> std::io::Result<Stream<S>> {
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.issuer.der().clone());
        added.expect("an authority's certificate is one");
        let versions: &[&rustls::SupportedProtocolVersion] = match offer.is_version_1_2 {
            true => &[&rustls::version::TLS12],
            false => &[&rustls::version::TLS13],
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("ring has both versions")
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes());
                let chain = chain.collect::<Result<_, _>>().expect("rcgen writes PEM");
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes());
                let config = builder.with_client_auth_cert(chain, key.expect("rcgen writes PEM"));
                config.expect("they belong together")
            }
        };
        let name = offer.application.map(|name| name.as_bytes().to_vec());
        config.alpn_protocols = name.into_iter().collect();
        let name = ServerName::try_from(NAME).expect("it is a name");
        let connection = ClientConnection::new(Arc::new(config), name);
        let connection = connection.expect("rustls takes its own configuration");
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Certified {
    /// Writes both into files of a folder, and gives their paths.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, folder: &Path) -> std::io::Result<(PathBuf, PathBuf)> {
        let (certificate, key) = (folder.join("server.pem"), folder.join("server.key"));
        std::fs::write(&certificate, &self.certificate)?;
        std::fs::write(&key, &self.key)?;
        Ok((certificate, key))
    }
}
