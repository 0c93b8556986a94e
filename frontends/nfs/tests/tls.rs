//! RPC over TLS (RFC 9289): how a connection begins it, and shares that ask for it.

mod support;

use std::sync::Arc;
use support::Bench;
use support::client::{Client, ROOT, User};
use support::client4::{Client4, GETATTR, Operations};
use support::tls_client::begin_tls;
use tarn_nfs::{mount_protocol, v3};
use tarn_tls::{CertificateFiles, ClientCertificates, Rules, TlsServer};
use tarn_tls_client::Authority;
use tempfile::TempDir;

const ACCES: u32 = 13;
const WRONGSEC: u32 = 10016;
const AUTH_BADCRED: u32 = 1;
const NULL: (u32, u32, u32) = (v3::PROGRAM, v3::VERSION, 0);
const OPEN: &str = "rw,no_root_squash,insecure";

/// A server with a certificate, that knows clients of its authority.
struct Secured {
    bench: Bench,
    authority: Authority,
    _folder: TempDir,
}

fn secured() -> Secured {
    let (bench, authority) = (Bench::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let written = authority.write_server_files(folder.path()).unwrap();
    let [certificate, key, client_ca] = written;
    let files = CertificateFiles {
        certificate,
        key,
        client_ca: Some(client_ca),
    };
    let rules = Rules {
        application: Some("sunrpc"),
        takes_version_1_2: false,
        clients: ClientCertificates::Optional,
    };
    let server: Arc<TlsServer> = TlsServer::open(files, rules, |_| {}).unwrap();
    bench.server.offer_tls(server);
    Secured {
        bench,
        authority,
        _folder: folder,
    }
}

fn attributes_in_version_4(connection: Client, owner: &str, handle: &[u8]) -> u32 {
    let mut client = Client4::new(connection, owner.as_bytes());
    client.status(&Operations::at(handle).with(GETATTR, |out| {
        out.u32(1).u32(2);
    }))
}

#[test]
fn shares_ask_for_tls_and_for_certificates() {
    let Secured {
        bench, authority, ..
    } = secured();
    for (name, option) in [
        ("a", "xprtsec=tls"),
        ("b", "xprtsec=mtls"),
        ("c", "sec=sys"),
    ] {
        let warnings = bench.create(
            &format!("tank/{name}"),
            &[("sharenfs", &format!("{OPEN},{option}"))],
        );
        assert!(warnings.is_empty(), "{warnings:?}");
    }
    let (own, mut owners) = (authority.certify(), 0);
    let roots = ["a", "b", "c"].map(|name| {
        // MOUNT is served in plain, as Linux's client has no other.
        bench
            .client()
            .mount(&bench.path(&format!("tank/{name}")))
            .unwrap()
    });
    for (way, refused) in [
        (0, [true, true, false]),
        (1, [false, true, false]),
        (2, [false; 3]),
    ] {
        let connect = || match way {
            0 => bench.client(),
            1 => begin_tls(bench.client(), &authority, None),
            _ => begin_tls(bench.client(), &authority, Some(&own)),
        };
        let mut client = connect();
        for (root, is_refused) in roots.iter().zip(refused) {
            let found = client.attributes(root).map(drop);
            let expected = if is_refused { Err(ACCES) } else { Ok(()) };
            assert_eq!(found, expected, "way {way}, version 3");
            let expected = if is_refused { WRONGSEC } else { 0 };
            owners += 1;
            let owner = format!("owner {owners}");
            let status = attributes_in_version_4(connect(), &owner, root);
            assert_eq!(status, expected, "way {way}, version 4");
        }
    }
}

#[test]
fn files_are_written_and_read_over_tls() {
    let Secured {
        bench, authority, ..
    } = secured();
    bench.create(
        "tank/a",
        &[("sharenfs", "rw,no_root_squash,insecure,xprtsec=tls")],
    );
    let mut client = begin_tls(bench.client(), &authority, None);
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let file = client.create(&root, "file", 0o644).unwrap();
    let bytes: Vec<u8> = (0..1 << 20)
        .map(|at: usize| at.to_le_bytes()[1] ^ 3)
        .collect();
    for at in 0..4_u64 {
        client.write(&file, at << 20, &bytes, 0).unwrap();
    }
    client.commit(&file).unwrap();
    for at in 0..4_u64 {
        let (read, _) = client.read(&file, at << 20, 1 << 20).unwrap();
        assert!(read == bytes, "the {at}th MiB");
    }
    client.user = User::System(7, 7, Vec::new());
    assert_eq!(client.write(&file, 0, b"x", 2), Err(ACCES));
    client.user = ROOT;
    assert_eq!(client.ask_for_tls(NULL), Err(AUTH_BADCRED), "it is there");
    assert_eq!(client.attributes(&file).unwrap().size, 4 << 20);
}

#[test]
fn tls_begins_where_the_server_has_it_and_nothing_follows_in_plain() {
    let bench = Bench::new();
    bench.create("tank/a", &[("sharenfs", OPEN)]);
    assert_eq!(bench.client().ask_for_tls(NULL), Err(AUTH_BADCRED));
    let Secured {
        bench, authority, ..
    } = secured();
    bench.create("tank/a", &[("sharenfs", OPEN)]);
    let getattr = (v3::PROGRAM, v3::VERSION, 1);
    assert_eq!(bench.client().ask_for_tls(getattr), Err(AUTH_BADCRED));
    let of_mount = (mount_protocol::PROGRAM, mount_protocol::VERSION, 0);
    assert_eq!(bench.client().ask_for_tls(of_mount).unwrap(), b"STARTTLS");
    // A call that another machine has put behind the one that asks for TLS.
    let mut call = Vec::new();
    for word in [
        0x8000_0028,
        9,
        0,
        2,
        v3::PROGRAM,
        v3::VERSION,
        0,
        7,
        0,
        0,
        0,
    ] {
        call.extend(u32::to_be_bytes(word));
    }
    let mut client = bench.client();
    client.send_raw(&[&call[..], &call[..20]].concat());
    assert!(client.is_ended());
    let mut client = bench.client();
    assert_eq!(client.ask_for_tls(NULL).unwrap(), b"STARTTLS");
    client.send_raw(&[0x80, 0, 0, 40, 0, 0, 0, 1]);
    client.finish();
    let mut client = begin_tls(bench.client(), &authority, None);
    assert!(client.mount(&bench.path("tank/a")).is_ok());
}

#[test]
fn clients_that_stop_in_the_handshake_keep_no_other_waiting() {
    let Secured {
        bench, authority, ..
    } = secured();
    bench.create("tank/a", &[("sharenfs", OPEN)]);
    let silent: Vec<Client> = (0..200)
        .map(|at| {
            let mut client = bench.client();
            assert_eq!(client.ask_for_tls(NULL).unwrap(), b"STARTTLS");
            // The head of a large hello, and no more.
            client.send_raw(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc][..at % 10]);
            client
        })
        .collect();
    let mut client = begin_tls(bench.client(), &authority, None);
    let root = client.mount(&bench.path("tank/a")).unwrap();
    assert!(client.attributes(&root).is_ok());
    drop(silent);
}

#[test]
fn options_that_need_a_certificate_say_where_it_is_named() {
    let bench = Bench::new();
    let warnings = bench.create("tank/a", &[("sharenfs", "rw,xprtsec=tls:mtls")]);
    let text = warnings.join("\n");
    assert!(
        text.contains("'xprtsec=tls:mtls' needs a certificate: start tarnd with --tls-certificate"),
        "{text}"
    );
    assert_eq!(bench.server.port(), None, "nothing is shared");
}

#[test]
fn a_client_asks_for_flavors_where_it_may_not_go() {
    const SECINFO: u32 = 33;
    const SECINFO_NO_NAME: u32 = 52;
    const NOFILEHANDLE: u32 = 10020;
    let Secured { bench, .. } = secured();
    let options = format!("{OPEN},sec=sys:none,xprtsec=tls");
    bench.create("tank/a", &[("sharenfs", &options)]);
    let root = bench.client().mount(&bench.path("tank/a")).unwrap();
    let mut client = Client4::new(bench.client(), b"owner");
    let no_name = || {
        Operations::at(&root).with(SECINFO_NO_NAME, |out| {
            out.u32(0);
        })
    };
    let attributes = |operations: Operations| {
        operations.with(GETATTR, |out| {
            out.u32(1).u32(2);
        })
    };
    assert_eq!(client.status(&attributes(Operations::at(&root))), WRONGSEC);
    let (status, bytes) = client.run(&no_name());
    assert_eq!(status, 0);
    // Behind the results of PUTFH: its number, status, and AUTH_SYS and AUTH_NONE.
    assert_eq!(bytes[16..], [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(client.status(&attributes(no_name())), NOFILEHANDLE);
    // By its name, from the folder above.
    let path = bench.path("tank/a");
    let (above, name) = path.rsplit_once('/').unwrap();
    let above = client.look_up(above).unwrap();
    let by_name = Operations::at(&above).with(SECINFO, |out| {
        out.opaque(name.as_bytes());
    });
    let (status, bytes) = client.run(&by_name);
    assert_eq!((status, &bytes[16..20]), (0, &[0, 0, 0, 2][..]));
    assert_eq!(client.look_up(&path), Err(WRONGSEC));
}
