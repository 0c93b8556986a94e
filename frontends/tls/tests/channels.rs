//! Channels and servers of TLS: what clients are shown, what becomes of those that send nonsense or
//! stop, and of files that change.

use rustix::io::Errno;
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tarn_serving::Wire;
use tarn_tls::{CertificateFiles, Channel, ClientCertificates, Peer, Rules, TlsServer};
use tarn_tls_client::{Authority, Certified, Offer};
use tempfile::TempDir;

const RULES: Rules = Rules {
    application: Some("sunrpc"),
    takes_version_1_2: false,
    clients: ClientCertificates::Optional,
};

const SUNRPC: Offer = Offer {
    application: Some("sunrpc"),
    is_version_1_2: false,
};

/// A server that knows the clients of its own authority.
struct Bench {
    authority: Authority,
    folder: TempDir,
    server: Arc<TlsServer>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new(rules: Rules) -> Bench {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let written = authority.write_server_files(folder.path()).unwrap();
        let [certificate, key, client_ca] = written;
        let files = CertificateFiles {
            certificate,
            key,
            client_ca: Some(client_ca),
        };
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let list = told.clone();
        let tell = move |line: &str| list.lock().unwrap().push(line.to_string());
        Bench {
            server: TlsServer::open(files, rules, tell).unwrap(),
            authority,
            folder,
            told,
        }
    }

    /// A channel that has begun TLS, and its client's end.
    fn pair(&self) -> (Arc<Channel>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let channel = Arc::new(Channel::new(near.into()));
        channel.begin_tls(&self.server).unwrap();
        assert_eq!(channel.begin_tls(&self.server), Err(Errno::ALREADY));
        (channel, far)
    }

    /// What the channel knows of a client that sends a word and waits for it to come back.
    fn meet(&self, offer: Offer, own: Option<&Certified>) -> Result<Peer, Errno> {
        let (channel, far) = self.pair();
        let echo = echo(channel.clone());
        if let Ok(mut client) = self.authority.connect(far, offer, own) {
            // A server of TLS 1.3 refuses a certificate after the client's end of the handshake.
            let _ = client.write_all(b"word");
            let _ = client.read_exact(&mut [0; 4]);
        }
        echo.join().unwrap().map(|()| channel.peer())
    }
}

/// Sends back what comes, until the other end ends.
fn echo(channel: Arc<Channel>) -> JoinHandle<Result<(), Errno>> {
    std::thread::spawn(move || {
        // Small enough that plain bytes are left behind.
        let mut bytes = [0; 1000];
        loop {
            match channel.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => write_all(&channel, &bytes[..count])?,
                Err(Errno::AGAIN) => {
                    assert!(!channel.has_more(), "nothing is left when there is nothing");
                    std::thread::yield_now();
                }
                Err(errno) => {
                    channel.close();
                    return Err(errno);
                }
            }
        }
    })
}

fn write_all(channel: &Channel, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let (first, second) = bytes.split_at(bytes.len() / 3);
        match channel.write(&[IoSlice::new(first), IoSlice::new(second)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[test]
fn a_client_is_known_by_what_it_has_shown() {
    let bench = Bench::new(RULES);
    let (own, others) = (bench.authority.certify(), Authority::new().certify());
    assert_eq!(bench.meet(SUNRPC, None), Ok(Peer::Encrypted));
    assert_eq!(bench.meet(Offer::default(), None), Ok(Peer::Encrypted));
    assert_eq!(bench.meet(SUNRPC, Some(&own)), Ok(Peer::Verified));
    assert_eq!(bench.meet(SUNRPC, Some(&others)), Err(Errno::PROTO));
    let told = bench.told.lock().unwrap().join("\n");
    assert!(told.contains("the TLS handshake of 127.0.0.1:"), "{told}");
    assert!(told.contains("invalid peer certificate"), "{told}");
}

#[test]
fn clients_of_other_protocols_and_versions_are_refused() {
    let bench = Bench::new(RULES);
    let http = Offer {
        application: Some("http/1.1"),
        ..Offer::default()
    };
    assert_eq!(bench.meet(http, None), Err(Errno::PROTO));
    let old = Offer {
        is_version_1_2: true,
        ..SUNRPC
    };
    assert_eq!(bench.meet(old, None), Err(Errno::PROTO));
    let bench = Bench::new(Rules {
        application: None,
        takes_version_1_2: true,
        clients: ClientCertificates::Required,
    });
    let (old, own) = (
        Offer {
            application: None,
            ..old
        },
        bench.authority.certify(),
    );
    assert_eq!(bench.meet(old, Some(&own)), Ok(Peer::Verified));
    assert_eq!(bench.meet(old, None), Err(Errno::PROTO));
    assert_eq!(bench.meet(Offer::default(), None), Err(Errno::PROTO));
}

#[test]
fn many_bytes_come_whole_through_a_socket_that_is_full() {
    let bench = Bench::new(RULES);
    let (channel, far) = bench.pair();
    let echo = echo(channel);
    let mut client = bench.authority.connect(far, SUNRPC, None).unwrap();
    let bytes: Vec<u8> = (0..300_000_usize)
        .map(|at| at.to_le_bytes()[0] ^ 7)
        .collect();
    let mut back = vec![0; bytes.len()];
    for (sent, received) in bytes.chunks(70_000).zip(back.chunks_mut(70_000)) {
        client.write_all(sent).unwrap();
        client.read_exact(received).unwrap();
    }
    assert!(back == bytes);
    drop(client);
    assert_eq!(echo.join().unwrap(), Ok(()));
}

#[test]
fn what_a_writer_gives_is_not_read_before_the_client_takes_it() {
    let bench = Bench::new(RULES);
    let (channel, far) = bench.pair();
    let early = channel.write(&[IoSlice::new(b"early")]);
    assert_eq!(
        early,
        Err(Errno::PIPE),
        "nothing is sent in the middle of the handshake"
    );
    let reader = channel.clone();
    let handshake = std::thread::spawn(move || {
        while reader.peer() == Peer::Plain {
            let _ = reader.read(&mut [0; 1]);
            std::thread::yield_now();
        }
    });
    let mut client = bench.authority.connect(far, SUNRPC, None).unwrap();
    handshake.join().unwrap();
    let bytes = vec![5; 8 << 20];
    let mut sent = 0;
    loop {
        match channel.write(&[IoSlice::new(&bytes[sent..])]) {
            Ok(count) => sent += count,
            Err(errno) => break assert_eq!(errno, Errno::AGAIN),
        }
    }
    assert!(sent < bytes.len(), "the socket is full");
    let rest = std::thread::spawn(move || write_all(&channel, &bytes[sent..]));
    let mut back = vec![0; 8 << 20];
    client.read_exact(&mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 5));
    rest.join().unwrap().unwrap();
}

#[test]
fn nonsense_in_place_of_a_handshake_ends_the_connection() {
    let bench = Bench::new(RULES);
    let hello_of_16_mib = [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 16_380]].concat();
    for nonsense in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 4096],
        &[0xff; 4096],
        &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0],
        &[22, 3, 1, 0xff, 0xff],
        &hello_of_16_mib,
        // Data before a handshake.
        &[23, 3, 3, 0, 1, 0],
    ] {
        let (channel, mut far) = bench.pair();
        let echo = echo(channel);
        far.write_all(nonsense).unwrap();
        far.shutdown(std::net::Shutdown::Write).unwrap();
        let ended = echo.join().unwrap();
        assert!(matches!(ended, Err(Errno::PROTO) | Ok(())), "{ended:?}");
        let _ = far.read_to_end(&mut Vec::new());
    }
    let told = bench.told.lock().unwrap().len();
    assert_eq!(told, 1, "a flood of failures is told once");
}

#[test]
fn each_damaged_byte_of_a_handshake_is_refused_or_harmless() {
    let bench = Bench::new(RULES);
    // The first flight of a client that the server then damages.
    let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let unanswered = bench.authority.connect(far, SUNRPC, None);
    assert!(unanswered.is_err());
    drop(unanswered);
    let mut hello = Vec::new();
    near.read_to_end(&mut hello).unwrap();
    assert!(hello.len() > 100, "a client says hello");
    for at in (0..hello.len()).step_by(3) {
        let mut damaged = hello.clone();
        damaged[at] ^= 0x41;
        let (channel, mut far) = bench.pair();
        let echo = echo(channel.clone());
        far.write_all(&damaged).unwrap();
        far.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = echo.join().unwrap();
        assert_eq!(channel.peer(), Peer::Plain, "byte {at}");
    }
}

#[test]
fn a_changed_certificate_is_served_and_a_broken_one_is_not() {
    let bench = Bench::new(RULES);
    let seen = || {
        let (channel, far) = bench.pair();
        let echo = echo(channel);
        let client = bench.authority.connect(far, SUNRPC, None).unwrap();
        let shown = client.conn.peer_certificates().unwrap()[0].to_vec();
        drop(client);
        let _ = echo.join().unwrap();
        shown
    };
    let first = seen();
    assert_eq!(seen(), first);
    bench
        .authority
        .certify()
        .write(bench.folder.path())
        .unwrap();
    let second = seen();
    assert_ne!(second, first);
    std::fs::write(bench.folder.path().join("server.key"), "no key").unwrap();
    assert_eq!(seen(), second);
    assert_eq!(seen(), second);
    let told = bench.told.lock().unwrap().clone();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[1].contains("server.key' has no private key"),
        "{told:?}"
    );
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_cure() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (certificate, key) = authority.certify().write(folder.path()).unwrap();
    let files = CertificateFiles {
        certificate,
        key,
        client_ca: None,
    };
    let why = |files: CertificateFiles, rules| {
        TlsServer::open(files, rules, |_| {})
            .err()
            .unwrap()
            .to_string()
    };
    let absent = CertificateFiles {
        certificate: folder.path().join("absent"),
        ..files.clone()
    };
    assert!(why(absent, RULES).starts_with("cannot read the certificate '"));
    let swapped = CertificateFiles {
        certificate: files.key.clone(),
        ..files.clone()
    };
    assert!(why(swapped, RULES).contains("server.key' has no certificate in PEM"));
    let other = folder.path().join("other.key");
    std::fs::write(&other, authority.certify().key).unwrap();
    let mismatched = CertificateFiles {
        key: other,
        ..files.clone()
    };
    let text = why(mismatched, RULES);
    assert!(
        text.contains("name the key that the certificate was made for"),
        "{text}"
    );
    let required = Rules {
        clients: ClientCertificates::Required,
        ..RULES
    };
    assert!(why(files, required).contains("--tls-client-ca"));
}
