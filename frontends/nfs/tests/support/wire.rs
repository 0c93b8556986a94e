//! What clients write to and read from: a socket, or TLS over one.

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use tarn_tls_client::{Authority, Certified, Offer, Stream};

/// One of them.
pub enum Wire {
    Plain(TcpStream),
    Tls(Box<Stream<TcpStream>>),
}

impl Wire {
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => &stream.sock,
        }
    }

    /// The same connection with TLS.
    pub fn begin_tls(self, authority: &Authority, own: Option<&Certified>) -> Wire {
        let Wire::Plain(stream) = self else {
            panic!("TLS begins once");
        };
        let offer = Offer {
            application: Some("sunrpc"),
            ..Offer::default()
        };
        let stream = authority.connect(stream, offer, own).unwrap();
        Wire::Tls(Box::new(stream))
    }
}

impl Read for Wire {
    fn read(&mut self, place: &mut [u8]) -> Result<usize> {
        match self {
            Wire::Plain(stream) => stream.read(place),
            Wire::Tls(stream) => stream.read(place),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Wire::Plain(stream) => stream.write(bytes),
            Wire::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Wire::Plain(stream) => stream.flush(),
            Wire::Tls(stream) => stream.flush(),
        }
    }
}
