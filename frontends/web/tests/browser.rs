//! A client of HTTP of its own against the page, before an implementation that only notes its
//! calls: which requests are let in, from where, and to what.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::{
    Changed, Done, Refusal, RefusalKind, analytics, dataset, delegation, pool, statistics,
};
use tarn_api::server::Control;
use tarn_tls::{CertificateFiles, TlsServer};
use tarn_tls_client::Authority;
use tarn_web::{BindError, PAGE_TLS, PageListener, PageOptions, Role, Tokens};

/// The user of the daemon.
const OWNER: u32 = 4711;

/// Notes what it is asked, and the user that asks.
#[derive(Default)]
struct Notebook(Mutex<Vec<String>>);

macro_rules! notes {
    ($($path:literal $method:ident: $request:ty => $reply:ty, $summary:literal;)*) => {
        impl Administration for Notebook {
            $(
                fn $method(&self, call: &Call, request: $request) -> Result<$reply, Refusal> {
                    let line = format!("{} {} '{}' {request:?}", $path, call.caller.uid, call.command);
                    self.0.lock().unwrap().push(line);
                    Err(Refusal::new(RefusalKind::Busy, "", "only noted"))
                }
            )*
        }
    };
}

tarn_administration::for_each_operation!(notes);

/// A scraper shows a token, a viewer's at least, and causes one operation.
#[test]
fn metrics_are_scraped_with_a_token() {
    let served = Served::new(None);
    let plain = served.ask("GET /metrics HTTP/1.1", "");
    assert_eq!((plain.status, served.noted()), (401, Vec::new()));
    let token = served.token(Role::Viewer);
    let shown = |method: &str| {
        let head = format!("{method} /metrics HTTP/1.1\r\nauthorization: Bearer {token}");
        served.ask(&head, "")
    };
    assert_eq!(shown("POST").status, 405);
    assert_eq!(served.noted(), Vec::<String>::new());
    // The notebook gives no metrics: its refusal is the answer.
    let refused = shown("GET");
    assert!(refused.body.contains("only noted"), "{refused:?}");
    let noted = served.noted();
    assert_eq!(noted.len(), 1);
    assert!(noted[0].starts_with("statistics/metrics "), "{noted:?}");
    assert!(!noted[0].contains(&OWNER.to_string()), "{noted:?}");
}

/// The page in a folder of its own.
struct Served {
    folder: tempfile::TempDir,
    address: SocketAddr,
    notebook: Arc<Notebook>,
    _runtime: tokio::runtime::Runtime,
}

impl Served {
    fn new(tls: Option<Arc<TlsServer>>) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let notebook = Arc::new(Notebook::default());
        let options = PageOptions {
            tokens: folder.path().join("web-tokens"),
            worksheets: folder.path().join("worksheets.json"),
            names: vec!["nas.example.org".to_owned()],
        };
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = runtime.block_on(PageListener::bind(any, tls, &options.tokens));
        let listener = listener.unwrap();
        let address = listener.address();
        let control = Control::new(notebook.clone(), OWNER, 1 << 16);
        runtime.spawn(tarn_web::serve(
            listener,
            control,
            options,
            std::future::pending(),
        ));
        Served {
            folder,
            address,
            notebook,
            _runtime: runtime,
        }
    }

    fn token(&self, role: Role) -> String {
        let tokens = Tokens::read(&self.folder.path().join("web-tokens"));
        tokens.unwrap().of(role).to_owned()
    }

    /// What was noted since the last call.
    fn noted(&self) -> Vec<String> {
        std::mem::take(&mut *self.notebook.0.lock().unwrap())
    }

    fn ask(&self, head: &str, body: &str) -> Answer {
        self.ask_for(&self.address.to_string(), head, body)
    }

    fn ask_for(&self, host: &str, head: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        Answer::of(&mut stream, host, head, body)
    }

    /// Calls an operation with a token.
    fn call(&self, path: &str, role: Role, body: &str) -> Answer {
        let token = self.token(role);
        let head = format!("POST /api/v1/{path} HTTP/1.1\r\nauthorization: Bearer {token}");
        self.ask(&head, body)
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(stream: &mut (impl Read + Write), host: &str, head: &str, body: &str) -> Answer {
        let request = format!(
            "{head}\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = Vec::new();
        // TLS may end without a word.
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// The cookie that it sets, with its attributes.
    fn cookie(&self) -> &str {
        let mut lines = self.head.lines();
        lines
            .find_map(|line| line.strip_prefix("set-cookie: "))
            .unwrap()
    }
}

#[test]
fn only_the_files_of_the_page_come_without_a_login() {
    let served = Served::new(None);
    let page = served.ask("GET / HTTP/1.1", "");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("default-src 'none'"), "{}", page.head);
    for head in [
        "POST /api/v1/pool/describe HTTP/1.1",
        "GET /api/v1/openapi.json HTTP/1.1",
        "GET /api/v1/session HTTP/1.1",
        "GET /api/v1/analytics/stream?statement=nfs.ops HTTP/1.1",
        "POST /api/v1/worksheets/list HTTP/1.1",
        "POST /api/v1/pool/describe HTTP/1.1\r\nauthorization: Bearer 00",
        "POST /api/v1/pool/describe HTTP/1.1\r\ncookie: tarn_session=x",
    ] {
        assert_eq!(served.ask(head, r#"{"request":{}}"#).status, 401, "{head}");
    }
    assert_eq!(served.ask("GET /../etc/passwd HTTP/1.1", "").status, 404);
    assert!(served.noted().is_empty());
}

#[test]
fn a_token_gives_a_session_until_it_is_logged_out() {
    let served = Served::new(None);
    let login = |token: &str| {
        let body = format!(r#"{{"token":"{token}"}}"#);
        served.ask("POST /api/v1/session/login HTTP/1.1", &body)
    };
    assert_eq!(login("00").status, 401);
    let answer = login(&served.token(Role::Administrator));
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.cookie();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let session = cookie.split(';').next().unwrap();
    let scrub = format!("POST /api/v1/pool/scrub HTTP/1.1\r\ncookie: a=b; {session}");
    let body = r#"{"command":"zpool scrub tank","request":{"name":"tank"}}"#;
    let answer = served.ask(&scrub, body);
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(answer.body.contains("only noted"), "{answer:?}");
    let noted = served.noted();
    let expected = format!("pool/scrub {OWNER} 'zpool scrub tank' ");
    assert!(noted[0].starts_with(&expected), "{noted:?}");
    let logout = format!("POST /api/v1/session/logout HTTP/1.1\r\ncookie: {session}");
    assert!(served.ask(&logout, "{}").cookie().contains("Max-Age=0"));
    assert_eq!(served.ask(&scrub, body).status, 401);
    assert!(served.noted().is_empty());
}

#[test]
fn wrong_tokens_have_to_wait() {
    let served = Served::new(None);
    let login = || served.ask("POST /api/v1/session/login HTTP/1.1", r#"{"token":"0"}"#);
    let answer = (0..20).map(|_| login()).find(|answer| answer.status == 429);
    let answer = answer.expect("some token of twenty had to wait");
    assert!(answer.head.contains("retry-after: "), "{answer:?}");
}

#[test]
fn other_sites_and_other_names_are_refused() {
    let served = Served::new(None);
    let token = served.token(Role::Administrator);
    let head = format!("POST /api/v1/pool/describe HTTP/1.1\r\nauthorization: Bearer {token}");
    let body = r#"{"request":{}}"#;
    let ask_for = |host: &str, more: &str| {
        let head = format!("{head}{more}");
        served.ask_for(host, &head, body).status
    };
    let own = served.address.to_string();
    assert_eq!(ask_for("evil.example.com", ""), 403);
    assert_eq!(ask_for("nas.example.org", ""), 409);
    assert_eq!(ask_for(&own, "\r\norigin: http://evil.example.com"), 403);
    assert_eq!(ask_for(&own, "\r\nsec-fetch-site: cross-site"), 403);
    assert_eq!(ask_for(&own, &format!("\r\norigin: http://{own}")), 409);
    assert_eq!(served.noted().len(), 2);
    // What a form of another site can send is no JSON.
    let form = "POST /api/v1/session/login HTTP/1.1\r\ncontent-type: text/plain";
    assert_eq!(served.ask(form, "{}").status, 415);
}

#[test]
fn a_viewer_reads_some_things_and_changes_nothing() {
    let served = Served::new(None);
    let body = r#"{"request":{"names":[],"with_errors":true}}"#;
    let answer = served.call("pool/describe", Role::Viewer, body);
    assert_eq!(answer.status, 409, "{answer:?}");
    let noted = served.noted();
    assert!(
        noted[0].starts_with("pool/describe 4294967295 "),
        "{noted:?}"
    );
    assert!(noted[0].contains("with_errors: false"), "{noted:?}");
    for path in [
        "pool/scrub",
        "dataset/set",
        "statistics/kstat",
        "worksheets/list",
        "pool/history",
    ] {
        let answer = served.call(path, Role::Viewer, r#"{"request":{"name":"tank"}}"#);
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
    }
    let probe = r#"{"request":{"statement":"nfs.ops[client=kiowa]"}}"#;
    assert_eq!(
        served.call("analytics/query", Role::Viewer, probe).status,
        403
    );
    for broken in ["", "[]", "{", r#"{"request":1}"#] {
        let answer = served.call("pool/describe", Role::Viewer, broken);
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert!(served.noted().is_empty());
}

#[test]
fn worksheets_are_kept_for_administrators() {
    let served = Served::new(None);
    let body = r#"{"name":"Friday","worksheet":{"rows":[]}}"#;
    let saved = served.call("worksheets/save", Role::Administrator, body);
    assert_eq!(saved.status, 200, "{saved:?}");
    let listed = served.call("worksheets/list", Role::Administrator, "{}");
    assert_eq!(listed.body, r#"{"worksheets":{"Friday":{"rows":[]}}}"#);
    let removed = served.call(
        "worksheets/remove",
        Role::Administrator,
        r#"{"name":"Friday"}"#,
    );
    assert_eq!(removed.body, r#"{"worksheets":{}}"#);
}

#[test]
fn what_is_no_operation_is_told() {
    let served = Served::new(None);
    let answer = served.call("pool/frobnicate", Role::Administrator, r#"{"request":{}}"#);
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("pool/frobnicate"), "{answer:?}");
    let answer = served.call("pool/scrub", Role::Administrator, r#"{"request":{}}"#);
    assert_eq!(answer.status, 422);
    assert!(answer.body.contains("missing field `name`"), "{answer:?}");
    let large = "x".repeat(2 << 20);
    assert_eq!(
        served
            .call("pool/scrub", Role::Administrator, &large)
            .status,
        413
    );
}

#[test]
fn other_machines_reach_it_by_tls_alone() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tokens: PathBuf = folder.path().join("web-tokens");
    let all = "0.0.0.0:0".parse().unwrap();
    let refused = runtime.block_on(PageListener::bind(all, None, &tokens));
    let refused = refused.err().unwrap();
    assert!(matches!(refused, BindError::NeedsTls(_)), "{refused}");
    assert!(
        refused.to_string().contains("--tls-certificate"),
        "{refused}"
    );

    let authority = Authority::new();
    let [certificate, key, _] = authority.write_server_files(folder.path()).unwrap();
    let files = CertificateFiles {
        certificate,
        key,
        client_ca: None,
    };
    let tls = TlsServer::open(files, PAGE_TLS, |_| {}).unwrap();
    let served = Served::new(Some(tls));
    let offer = tarn_tls_client::Offer::default();
    let stream = TcpStream::connect(served.address).unwrap();
    let mut stream = authority.connect(stream, offer, None).unwrap();
    let host = served.address.to_string();
    let body = format!(r#"{{"token":"{}"}}"#, served.token(Role::Viewer));
    let head = "POST /api/v1/session/login HTTP/1.1";
    let answer = Answer::of(&mut stream, &host, head, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.cookie().ends_with("; Secure"), "{answer:?}");
    // One that does not speak TLS keeps no other waiting.
    let mut plain = TcpStream::connect(served.address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let stream = TcpStream::connect(served.address).unwrap();
    let mut stream = authority.connect(stream, offer, None).unwrap();
    assert_eq!(
        Answer::of(&mut stream, &host, "GET / HTTP/1.1", "").status,
        200
    );
}
