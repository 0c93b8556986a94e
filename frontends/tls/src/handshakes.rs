//! Handshakes under way: those that take too long are ended.

use rustix::fd::OwnedFd;
use rustix::net::Shutdown;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a handshake may take. A guess: several round trips around the world.
pub const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// How often those are looked for that take longer.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Handshakes of one server.
pub(crate) struct Handshakes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When each has begun, and its socket.
    under_way: BTreeMap<u64, (Instant, Weak<OwnedFd>)>,
    last: u64,
}

/// One handshake; it is not under way any more when this is dropped.
pub(crate) struct Handshake {
    all: Arc<Handshakes>,
    number: u64,
}

impl Handshakes {
    /// None yet, and a thread that ends late ones as long as the server is there.
    pub(crate) fn start() -> Arc<Handshakes> {
        let all = Arc::new(Handshakes {
            state: Mutex::default(),
        });
        let weak = Arc::downgrade(&all);
        let look = move || {
            while let Some(all) = weak.upgrade() {
                all.end_late(Instant::now());
                drop(all);
                std::thread::sleep(LOOK_EVERY);
            }
        };
        // Without it, late ones keep their connections, of which there is a bound.
        let _ = std::thread::Builder::new()
            .name("tls-handshakes".to_string())
            .spawn(look);
        all
    }

    pub(crate) fn begin(self: &Arc<Self>, socket: &Arc<OwnedFd>) -> Handshake {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        let begun = (Instant::now(), Arc::downgrade(socket));
        state.under_way.insert(number, begun);
        Handshake {
            all: self.clone(),
            number,
        }
    }

    /// Ends the connections whose handshakes have begun too long before this time.
    pub(crate) fn end_late(&self, now: Instant) {
        let is_late = |begun: &Instant| now.duration_since(*begun) > HANDSHAKE_PATIENCE;
        let state = self.state();
        let late = state.under_way.values().filter(|(begun, _)| is_late(begun));
        let late: Vec<_> = late.filter_map(|(_, socket)| socket.upgrade()).collect();
        drop(state);
        for socket in late {
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.state().under_way.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::{CertificateFiles, ClientCertificates, Rules, TlsServer};
    use crate::tls_channel::Channel;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use tarn_tls_client::{Authority, Offer};

    #[test]
    fn a_handshake_that_stops_ends_with_its_connection() {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let (certificate, key) = authority.certify().write(folder.path()).unwrap();
        let files = CertificateFiles {
            certificate,
            key,
            client_ca: None,
        };
        let rules = Rules {
            application: None,
            takes_version_1_2: true,
            clients: ClientCertificates::Optional,
        };
        let server = TlsServer::open(files, rules, |_| {}).unwrap();
        let pair = || {
            let (near, far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let channel = Arc::new(Channel::new(near.into()));
            channel.begin_tls(&server).unwrap();
            (channel, far)
        };
        let (done, far) = pair();
        let reader = done.clone();
        let serve = std::thread::spawn(move || {
            while !reader.read(&mut [0; 9]).is_ok_and(|count| count == 0) {
                std::thread::yield_now();
            }
        });
        let mut client = authority.connect(far, Offer::default(), None).unwrap();
        let (half, mut far) = pair();
        // The server's end of the first handshake is done a moment after the client's.
        while server.handshakes.state().under_way.len() > 1 {
            std::thread::yield_now();
        }
        server.handshakes.end_late(Instant::now());
        far.set_nonblocking(true).unwrap();
        let waits = far.read(&mut [0]).unwrap_err();
        assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
        server
            .handshakes
            .end_late(Instant::now() + 2 * HANDSHAKE_PATIENCE);
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        client.conn.send_close_notify();
        client.conn.complete_io(&mut client.sock).unwrap();
        serve.join().unwrap();
        drop((half, done));
        assert!(server.handshakes.state().under_way.is_empty());
    }
}
