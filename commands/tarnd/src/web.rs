//! The page for browsers: where, and by which certificate.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use tarn_api::server::Control;
use tarn_engine::instance::Instance;
use tarn_tls::{CertificateFiles, TlsError, TlsServer};
use tarn_web::{BindError, DEFAULT_ADDRESS, PAGE_TLS, PageListener, PageOptions};

/// Where the page is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Web {
    /// At the usual address, unless another program has it: several instances run on one machine.
    Usual,
    /// At this address: if that cannot be, the daemon does not start.
    At(SocketAddr),
    /// Nowhere.
    Off,
}

/// The page, before it is served.
pub struct Page {
    web: Web,
    names: Vec<String>,
    tls: Option<Arc<TlsServer>>,
    log: fn(&str),
}

impl Page {
    /// With the certificate of the server, where it has one.
    ///
    /// # Errors
    /// The certificate cannot be used.
    pub fn new(
        web: Web,
        names: Vec<String>,
        files: Option<&CertificateFiles>,
        log: fn(&str),
    ) -> Result<Page, TlsError> {
        let tls = match (web, files) {
            (Web::Off, _) | (_, None) => None,
            (_, Some(files)) => Some(TlsServer::open(files.clone(), PAGE_TLS, log)?),
        };
        Ok(Page {
            web,
            names,
            tls,
            log,
        })
    }

    /// Listens, and leaves the address in a file for `tarn web`.
    ///
    /// # Errors
    /// The address that was asked for cannot be had.
    pub async fn listen(&self, instance: &Instance) -> Result<Option<PageListener>, BindError> {
        let _ = std::fs::remove_file(instance.web_address());
        let address = match self.web {
            Web::Off => return Ok(None),
            Web::Usual => DEFAULT_ADDRESS,
            Web::At(address) => address,
        };
        let tokens = instance.web_tokens();
        let bound = PageListener::bind(address, self.tls.clone(), &tokens).await;
        let listener = match bound {
            Ok(listener) => listener,
            Err(error) if self.web == Web::Usual => {
                (self.log)(&format!("{error}; 'tarnd --web' names another address"));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let word = format!("{}\n", listener.url());
        if let Err(error) = std::fs::write(instance.web_address(), word) {
            let path = instance.web_address();
            (self.log)(&format!("cannot write {}: {error}", path.display()));
        }
        Ok(Some(listener))
    }

    /// Serves until `stop` is ready.
    pub fn serve(
        self,
        listener: Option<PageListener>,
        instance: &Instance,
        control: Control,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let address_file = instance.web_address();
        let options = PageOptions {
            tokens: instance.web_tokens(),
            worksheets: instance.worksheets(),
            names: self.names,
        };
        let log = self.log;
        async move {
            let Some(listener) = listener else {
                return;
            };
            if let Err(error) = tarn_web::serve(listener, control, options, stop).await {
                log(&format!("the page is served no longer: {error}"));
            }
            let _ = std::fs::remove_file(address_file);
        }
    }
}
