//! The page: a browser's way to the control interface and to Analytics.
//!
//! # Problem
//! A browser is no peer of a Unix socket: any site that it shows may send requests to this machine,
//! and any user of the machine may connect to a port of it. Names of clients and files are personal
//! data.
//!
//! # Mechanism
//! `tarnd` serves one address, by default of the loopback interface; another address takes TLS
//! (`page_listener.rs`). The page's files are in the program (`page_files.rs`). A person logs in
//! with a token from a file that only the daemon's user reads (`tokens.rs`), and has a session
//! (`sessions.rs`). Requests that another site caused are refused (`origin.rs`). What is left goes
//! to the routes of `tarn-api`, as the daemon's user for an administrator; a viewer may call some
//! operations that change nothing, and gets pseudonyms for clients, users and files
//! (`viewer.rs`, `pseudonyms.rs`). `live_stream.rs` sends results of Analytics as they come;
//! `worksheets.rs` keeps what was saved; `scrape.rs` answers Prometheus.
//!
//! # Invariants
//! - Nothing but the page's files is answered without a token or a session.
//! - Connections, sessions, failed logins, streams and worksheets have bounds.
//!
//! # Knows nothing about
//! operations: it passes JSON on, so a new operation needs no change here, but for viewers.

mod live_stream;
mod origin;
mod page_files;
mod page_listener;
mod page_server;
mod pseudonyms;
mod scrape;
mod sessions;
mod site;
mod tokens;
mod viewer;
mod worksheets;

pub use page_listener::{BindError, PageListener};
pub use page_server::serve;
pub use site::PageOptions;
pub use tokens::{Role, TokenError, Tokens};

/// Where the page is served unless another address is given.
pub const DEFAULT_ADDRESS: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8470);

/// The rules for TLS of the page: HTTP in its first version, as the server speaks it.
pub const PAGE_TLS: tarn_tls::Rules = tarn_tls::Rules {
    application: Some("http/1.1"),
    takes_version_1_2: true,
    clients: tarn_tls::ClientCertificates::Optional,
};
