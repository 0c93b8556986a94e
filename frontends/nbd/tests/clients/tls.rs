//! TLS of the NBD server: offered, required, and with certificates of clients.

use super::*;
use tarn_nbd::TlsUse;
use tarn_tls::{CertificateFiles, ClientCertificates, Rules, TlsServer};
use tarn_tls_client::{Authority, Certified, Offer, Stream};

struct Secured {
    bench: Bench,
    authority: Authority,
    port: u16,
}

impl Secured {
    fn new(tls_use: TlsUse, clients: ClientCertificates) -> Secured {
        let authority = Authority::new();
        let bench = Bench::new();
        let folder = bench.folder.path();
        let written = authority.write_server_files(folder).unwrap();
        let [certificate, key, client_ca] = written;
        let files = CertificateFiles {
            certificate,
            key,
            client_ca: Some(client_ca),
        };
        let rules = Rules {
            application: None,
            takes_version_1_2: true,
            clients,
        };
        let tls = TlsServer::open(files, rules, |_| {}).unwrap();
        bench.server.offer_tls(tls, tls_use);
        let anywhere = Listening::Tcp(([127, 0, 0, 1], 0).into());
        let address = bench.server.listen(&anywhere).unwrap();
        Secured {
            bench,
            authority,
            port: address.unwrap().port(),
        }
    }

    fn connect(&self) -> Client<TcpStream> {
        Client::greeted(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    fn begin_tls(
        &self,
        mut client: Client<TcpStream>,
        offer: Offer,
        own: Option<&Certified>,
    ) -> std::io::Result<Client<Stream<TcpStream>>> {
        let begun = client.option(option::STARTTLS, &[]);
        assert_eq!(begun, [(reply::ACK, Vec::new())]);
        let stream = self.authority.connect(client.stream, offer, own)?;
        Ok(Client { stream, last: 0 })
    }
}

#[test]
fn volumes_are_written_and_read_over_tls() {
    let secured = Secured::new(TlsUse::Offered, ClientCertificates::Optional);
    let mut plain = secured.connect();
    plain.choose("tank/b");
    for is_version_1_2 in [false, true] {
        let offer = Offer {
            application: None,
            is_version_1_2,
        };
        let mut client = secured.connect();
        let acknowledged = [(reply::ACK, Vec::new())];
        assert_eq!(client.option(option::STRUCTURED_REPLY, &[]), acknowledged);
        let mut client = secured.begin_tls(client, offer, None).unwrap();
        // What was agreed on in plain is forgotten: without structured replies there are none.
        let contexts = [named("tank/a"), 0_u32.to_be_bytes().to_vec()].concat();
        let refused = client.option(option::SET_META_CONTEXT, &contexts);
        assert_eq!(refused[0].0, reply::ERR_INVALID);
        let again = client.option(option::STARTTLS, &[]);
        assert_eq!(again[0].0, reply::ERR_INVALID);
        client.choose("tank/a");
        let bytes: Vec<u8> = (0..3 << 20)
            .map(|at: usize| at.to_le_bytes()[1] ^ 9)
            .collect();
        assert_eq!(client.write(0, 4096, &bytes), 0);
        assert!(client.read(4096, 3 << 20) == bytes);
        // Several commands are there together, and replies are sent together.
        let cookies: Vec<u64> = (0..50)
            .map(|at| client.request(0, 0, 4096 * at, 4096))
            .collect();
        let mut replied: Vec<u64> = cookies.iter().map(|_| client.reply().0).collect();
        replied.sort_unstable();
        assert_eq!(replied, cookies);
    }
}

#[test]
fn a_server_that_requires_tls_says_so_and_does_nothing_before() {
    let secured = Secured::new(TlsUse::Required, ClientCertificates::Required);
    let mut client = secured.connect();
    for option in [option::LIST, option::STRUCTURED_REPLY, option::GO, 99] {
        let refused = client.option(option, &[]);
        assert_eq!(refused[0].0, reply::ERR_TLS_REQD);
    }
    let with_data = client.option(option::STARTTLS, b"x");
    assert_eq!(with_data[0].0, reply::ERR_INVALID);
    let own = secured.authority.certify();
    let mut client = secured
        .begin_tls(client, Offer::default(), Some(&own))
        .unwrap();
    client.choose("tank/a");
    // By name, which has no reply that refuses.
    let mut client = secured.connect();
    let name = [&option::EXPORT_NAME.to_be_bytes()[..], &named("tank/a")];
    client.send(&[&OPTION_MAGIC.to_be_bytes(), &name.concat()]);
    assert!(client.is_closed());
    let others = Authority::new().certify();
    for own in [None, Some(&others)] {
        // The server's refusal comes behind the client's end of the handshake.
        if let Ok(mut client) = secured.begin_tls(secured.connect(), Offer::default(), own) {
            assert!(client.is_closed());
        }
    }
    // On the socket of the daemon's user, TLS is offered.
    let mut local = secured.bench.connect();
    local.choose("tank/a");
}

#[test]
fn what_comes_in_plain_behind_the_request_for_tls_ends_the_connection() {
    let secured = Secured::new(TlsUse::Offered, ClientCertificates::Optional);
    let mut client = secured.connect();
    let starttls = [
        &OPTION_MAGIC.to_be_bytes()[..],
        &option::STARTTLS.to_be_bytes(),
        &0_u32.to_be_bytes(),
    ];
    let list = [
        &OPTION_MAGIC.to_be_bytes()[..],
        &option::LIST.to_be_bytes(),
        &0_u32.to_be_bytes(),
    ];
    client.send(&[&starttls.concat(), &list.concat()]);
    assert!(client.is_closed());
    let mut client = secured.connect();
    assert_eq!(client.option(option::STARTTLS, &[])[0].0, reply::ACK);
    client.stream.write_all(&list.concat()).unwrap();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    // At most an alert comes before the end.
    while !client.is_closed() {}
    let client = secured.connect();
    let mut client = secured.begin_tls(client, Offer::default(), None).unwrap();
    client.choose("tank/a");
}
