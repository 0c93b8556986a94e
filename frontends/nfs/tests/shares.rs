//! Shares: `sharenfs`, `zfs share` and `zfs unshare`, and what clients are shown of them.

mod support;

use support::Bench;
use support::client::{ROOT, User};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::pool;

const STALE: u32 = 70;
const ACCES: u32 = 13;
const OPEN: &str = "rw,no_root_squash,insecure";

#[test]
fn a_property_shares_a_file_system_and_those_below_it() {
    let bench = Bench::new();
    assert_eq!(bench.server.port(), None, "nothing is shared");
    bench.create(
        "tank/a",
        &[("sharenfs", "rw=127.0.0.1:10.0.0.0/8,insecure")],
    );
    bench.create("tank/a/b", &[("sharenfs", OPEN)]);
    bench.create("tank/a/c", &[]);
    bench.create("tank/a/d", &[("sharenfs", "off")]);
    let mut client = bench.client();
    let clients = vec!["127.0.0.1".to_string(), "10.0.0.0/8".to_string()];
    let expected = [
        (bench.path("tank/a"), clients.clone()),
        (bench.path("tank/a/b"), Vec::new()),
        (bench.path("tank/a/c"), clients),
    ];
    assert_eq!(client.exports(), expected);
    assert!(client.mount(&bench.path("tank/a/c")).is_ok());
    assert_eq!(client.mount(&bench.path("tank/x")), Err(ACCES));
    assert_eq!(client.mount("/"), Err(ACCES));
    bench.set("tank/a", "sharenfs", "off");
    assert_eq!(client.exports().len(), 1);
    bench.set("tank/a/b", "sharenfs", "off");
    assert_eq!(bench.server.port(), None, "nothing is shared any more");
    assert!(client.is_ended());
}

#[test]
fn share_and_unshare_say_what_openzfs_says() {
    let bench = Bench::new();
    bench.create("tank/a", &[]);
    let hint = "use exports(5) or smb.conf(5) to share this filesystem, or set the sharenfs or \
                sharesmb property";
    let legacy = format!("cannot share 'tank/a': legacy share\n{hint}");
    assert_eq!(bench.share(Some("tank/a")), Err(legacy));
    let hint = "use exports(5) or smb.conf(5) to unshare this filesystem";
    let legacy = format!("cannot unshare 'tank/a': legacy share\n{hint}");
    assert_eq!(bench.unshare(Some("tank/a")), Err(legacy));
    bench.set("tank/a", "sharenfs", OPEN);
    let shared = "cannot share 'tank/a': filesystem already shared";
    assert_eq!(bench.share(Some("tank/a")), Err(shared.to_string()));
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    assert_eq!(bench.unshare(Some("tank/a")), Ok(()));
    assert_eq!(bench.server.port(), None);
    let not_shared = "cannot unshare 'tank/a': not currently shared";
    assert_eq!(bench.unshare(Some("tank/a")), Err(not_shared.to_string()));
    assert_eq!(bench.share(Some("tank/a")), Ok(()));
    let mut client = bench.client();
    assert!(client.attributes(&root).is_ok(), "the handle is good again");
    assert_eq!(bench.unshare(None), Ok(()));
    assert_eq!(bench.share(None), Ok(()));
    bench.create("tank/l", &[("mountpoint", "legacy"), ("sharenfs", "on")]);
    let legacy = "cannot share 'tank/l': legacy mountpoint\nuse share(8) to share this filesystem";
    assert_eq!(bench.share(Some("tank/l")), Err(legacy.to_string()));
    bench.create("tank/n", &[("mountpoint", "none"), ("sharenfs", "on")]);
    let none = "cannot share 'tank/n': no mountpoint set";
    assert_eq!(bench.share(Some("tank/n")), Err(none.to_string()));
}

#[test]
fn options_that_are_not_served_share_nothing_and_are_told() {
    let bench = Bench::new();
    bench.create("tank/a", &[("sharenfs", OPEN)]);
    bench.create("tank/b", &[("sharenfs", OPEN)]);
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let told = bench.set("tank/a", "sharenfs", "rw,fsid=3");
    let expected = "cannot share 'tank/a': sharenfs option 'fsid=3' is not supported by this \
                    version of Tarn";
    assert_eq!(told, [expected]);
    assert_eq!(client.attributes(&root), Err(STALE));
    bench.create("tank/n", &[("mountpoint", "none")]);
    let told = bench.set("tank/n", "sharenfs", "rw=@st*ff");
    assert!(told[0].contains("'@st*ff' is no address"), "{told:?}");
}

#[test]
fn a_share_may_have_no_anonymous_user_and_be_mounted_at_its_root_alone() {
    let bench = Bench::new();
    bench.create(
        "tank/a",
        &[("sharenfs", "rw,insecure,anon=-1,nosub,wdelay,secure_locks")],
    );
    bench.create("tank/b", &[("sharenfs", OPEN)]);
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    assert_eq!(
        client.attributes(&root),
        Err(ACCES),
        "root is the anonymous user"
    );
    client.user = User::Nobody;
    assert_eq!(client.attributes(&root), Err(ACCES));
    client.user = User::System(7, 7, Vec::new());
    assert!(client.attributes(&root).is_ok());
    client.user = ROOT;
    let other = client.mount(&bench.path("tank/b")).unwrap();
    client.make_directory(&other, "below", 0o755).unwrap();
    assert!(client.mount(&bench.path("tank/b/below")).is_ok());
    bench.set("tank/b", "sharenfs", &format!("{OPEN},nosub"));
    assert_eq!(client.mount(&bench.path("tank/b/below")), Err(ACCES));
    assert!(client.mount(&bench.path("tank/b")).is_ok());
}

#[test]
fn a_share_ends_with_its_mount_and_with_the_pool() {
    let bench = Bench::new();
    bench.create("tank/a", &[("sharenfs", OPEN)]);
    bench.create("tank/b", &[("sharenfs", OPEN)]);
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let file = client.create(&root, "f", 0o644).unwrap();
    client.write(&file, 0, b"unstable", 0).unwrap();
    bench.unmount("tank/a");
    assert_eq!(client.attributes(&root), Err(STALE));
    let export = pool::Export {
        name: "tank".to_string(),
        ..pool::Export::default()
    };
    bench
        .administrator
        .pool_export(&Call::default(), export)
        .unwrap();
    assert_eq!(bench.server.port(), None);
    let bench = bench.restarted();
    let mut client = bench.client();
    assert_eq!(client.read(&file, 0, 99).unwrap().0, b"unstable");
}

#[test]
fn a_client_asks_again_while_its_file_system_is_rolled_back() {
    let bench = Bench::new();
    bench.create("tank/a", &[("sharenfs", OPEN)]);
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let file = client.create(&root, "f", 0o644).unwrap();
    client.write(&file, 0, b"old", 2).unwrap();
    bench.snapshot("tank/a@s");
    client.write(&file, 0, b"new", 2).unwrap();
    // A client that asks all the time never hears that its handle is stale.
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
                let read = client.read(&file, 0, 9);
                let told = read.as_ref().err().copied();
                assert!(read.is_ok() || told == Some(10008), "{told:?}");
            }
            assert_eq!(client.read(&file, 0, 9).unwrap().0, b"old");
        });
        for _ in 0..5 {
            bench.roll_back("tank/a@s");
        }
        is_done.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

#[test]
fn clients_that_no_list_names_are_refused() {
    let bench = Bench::new();
    bench.create("tank/a", &[("sharenfs", OPEN)]);
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    bench.set("tank/a", "sharenfs", "rw=10.0.0.1,insecure");
    assert_eq!(client.attributes(&root), Err(ACCES));
    assert_eq!(client.mount(&bench.path("tank/a")), Err(ACCES));
    // This client's port is none of a privileged program.
    bench.set("tank/a", "sharenfs", "rw");
    assert_eq!(client.attributes(&root), Err(ACCES));
}

#[test]
fn a_port_in_use_is_told_with_the_cure() {
    let bench = Bench::new();
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let threads = tarn_serving::ServingThreads::new(tarn_serving::AwakeProcessors::new(false));
    let threads = threads.unwrap();
    let server = tarn_nfs::NfsServer::new(threads.clone(), port, None, tarn_nfs::LEASE);
    bench.create("tank/a", &[]);
    let held = bench
        .engine
        .hold_files("tank/a", &tarn_engine::files::Operation::unmeasured())
        .unwrap();
    let request = tarn_engine::sharing::ShareRequest {
        dataset: "tank/a",
        path: std::path::Path::new("/tank/a"),
        options: "on",
        tree: held.clone(),
    };
    let refused = tarn_engine::sharing::Sharer::share(&*server, request).unwrap_err();
    let expected = format!("TCP port {port} is in use, as by the NFS server of the kernel");
    assert!(refused.to_string().starts_with(&expected), "{refused}");
    bench.engine.release_files(&held).unwrap();
    threads.stop();
}
