//! Clients that begin TLS on their connections.

use super::client::{Client, Stream};
use std::net::TcpStream;
use tarn_nfs::v3;
use tarn_tls_client::{Authority, Certified, Offer};

impl Stream for tarn_tls_client::Stream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}

/// Begins TLS by the procedure without effects of NFS version 3.
pub fn begin_tls(mut client: Client, authority: &Authority, own: Option<&Certified>) -> Client {
    let verifier = client.ask_for_tls((v3::PROGRAM, v3::VERSION, 0)).unwrap();
    assert_eq!(verifier, b"STARTTLS");
    let offer = Offer {
        application: Some("sunrpc"),
        ..Offer::default()
    };
    client.over(|socket| Box::new(authority.connect(socket, offer, own).unwrap()))
}
