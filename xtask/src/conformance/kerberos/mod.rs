//! `kerberos`: users whose names are proved by Kerberos of MIT (RPCSEC_GSS), against a KDC of
//! Debian's packages.
//!
//! # Mechanism
//! A realm of its own is made in the scratch folder, with a KDC, keys of `nfs/localhost` for the
//! daemon, and two users: `daemon`, which has an account on each Debian, and `stranger`, which has
//! none. The client is ours ([`gss_client`]), with the system's library as initiator. It runs in a
//! process of its own for each user, as the library takes its configuration and tickets from the
//! environment.
//!
//! It asks for: the three services on shares that want each; the flavors that MOUNT lists; the
//! owner of what is made; calls that are damaged, repeated, or of contexts that are unknown, ended
//! or expired.

mod gss_client;
mod realm;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tarn_oracle::instance::Instance;

use self::gss_client::{Answer, GssClient, Service};
use self::realm::Realm;
use crate::debian_packages;
use crate::servers::{await_server, free_port, start};
use crate::workspace::{Outcome, programs, remove_folder, run, scratch};

const POOL: &str = "secured";

/// Which user the process is, and where the server is: `USER:PORT:FOLDER`.
const AS_USER: &str = "TARN_KERBEROS_AS";

/// Seconds of the tickets that expire.
const SHORT_S: u64 = 4;

/// How the RPC layer refuses (RFC 5531): contexts that are not known, and those that are used up.
const CREDENTIALS_PROBLEM: Answer = Answer::Denied(13);
const CONTEXT_PROBLEM: Answer = Answer::Denied(14);

const ACCES: u32 = 13;

/// Makes the realm and the server, and has each user ask.
pub fn kerberos(keep: bool) -> Outcome {
    if let Some(words) = std::env::var_os(AS_USER) {
        let words = words.into_string().map_err(|_| "a wrong user")?;
        return ask_as_user(&words);
    }
    debian_packages::install_missing(&[
        ("krb5kdc", "krb5-kdc"),
        ("kadmin.local", "krb5-admin-server"),
        ("kinit", "krb5-user"),
    ])?;
    let folder = scratch("conformance-kerberos");
    let instance = Instance::new(&programs(), &folder)?;
    let realm = Realm::make(&folder)?;
    let _watchdog = instance.watchdog("kerberos", Duration::from_secs(300));
    let port = free_port()?;
    let port_text = port.to_string();
    let keytab = realm.keytab("nfs/localhost").display().to_string();
    let mut daemon = instance.command("tarnd");
    daemon.args([
        "--foreground",
        "--nfs-port",
        &port_text,
        "--nfs-keytab",
        &keytab,
    ]);
    realm.put_environment(&mut daemon);
    let daemon = start(&mut daemon)?;
    let socket = instance.state().join("tarnd.sock");
    await_server(
        || std::os::unix::net::UnixStream::connect(&socket).is_ok(),
        "tarnd",
    )?;
    let image = folder.join("image");
    std::fs::File::create(&image)?.set_len(1 << 30)?;
    let (mount, image) = (folder.join("share"), image.display());
    instance.zpool(&format!("create -m {} {POOL} {image}", mount.display()))?;
    for (name, flavors) in [
        ("a", "krb5"),
        ("i", "krb5i"),
        ("p", "krb5p"),
        ("all", "krb5p:krb5i,rw,sec=krb5:sys"),
    ] {
        instance.zfs(&format!(
            "create -o sharenfs=rw,insecure,sec={flavors} {POOL}/{name}"
        ))?;
        run(Command::new("chmod").arg("1777").arg(mount.join(name)))?;
    }
    let shown = mount.display().to_string();
    for (user, lifetime_s) in [("daemon", 3600), ("stranger", 3600), ("daemon", SHORT_S)] {
        realm.get_ticket(user, lifetime_s)?;
        let mut asker = Command::new(std::env::current_exe()?);
        asker.args(["conformance", "kerberos"]);
        let what = if lifetime_s == SHORT_S { "late" } else { user };
        asker.env(AS_USER, format!("{what}:{port}:{shown}"));
        realm.put_environment(&mut asker);
        run(&mut asker)?;
    }
    instance.zpool(&format!("destroy {POOL}"))?;
    drop(daemon);
    drop(realm);
    match keep {
        true => Ok(()),
        false => remove_folder(&folder),
    }
}

/// Asks as the user of this process.
fn ask_as_user(words: &str) -> Outcome {
    let mut words = words.splitn(3, ':');
    let mut next = || words.next().ok_or("a wrong user");
    let (user, port, mount) = (next()?, next()?.parse()?, next()?);
    let mount = Path::new(mount);
    match user {
        "late" => ticket_expires(port, mount),
        user => {
            services(user, port, mount)?;
            match user {
                "daemon" => hostile(port, mount),
                _ => Ok(()),
            }
        }
    }
}

/// The service of a share, and the others.
fn services(user: &str, port: u16, mount: &Path) -> Outcome {
    use Service::{Authentication, Integrity, Privacy};
    let all = [Authentication, Integrity, Privacy];
    let expected_owner = match user {
        "daemon" => 1,
        // A principal without an account is the anonymous user.
        _ => 65_534,
    };
    for (share, served) in [
        ("a", &all[..1]),
        ("i", &all[1..2]),
        ("p", &all[2..]),
        ("all", &all),
    ] {
        let path = mount.join(share);
        let (root, listed) = GssClient::mount(port, &path)?;
        let numbers: Vec<u32> = match share {
            "all" => vec![390_005, 390_004, 390_003, 1],
            _ => vec![390_002 + served[0].number()],
        };
        expect("the flavors of MOUNT", &listed, &numbers)?;
        for service in all {
            let mut client = GssClient::connect(port, service)?;
            let name = format!("{user}-{service:?}");
            let made = client.create(&root, &name)?;
            if !served.contains(&service) {
                expect("another service", &made, &Err(ACCES))?;
                continue;
            }
            let file = made.map_err(|status| format!("{share}: {name}: {status}"))?;
            let bytes: Vec<u8> = (0..500_001_usize).map(|at| at.to_le_bytes()[0]).collect();
            client.write(&file, &bytes)?;
            let read = client.read(&file, bytes.len())?;
            expect("what was written", &(read == bytes), &true)?;
            let owner = client.owner(&file)?;
            expect("the owner", &owner, &expected_owner)?;
            client.destroy()?;
            let after = client.ask_for_nothing()?;
            expect("an ended context", &after, &CREDENTIALS_PROBLEM)?;
        }
        println!("{user}: {share}: {numbers:?}");
    }
    Ok(())
}

/// Calls that no good client sends.
fn hostile(port: u16, mount: &Path) -> Outcome {
    let (root, _) = GssClient::mount(port, &mount.join("i"))?;
    let mut client = GssClient::connect(port, Service::Integrity)?;
    expect(
        "a good call",
        &client.ask_for_nothing()?,
        &Answer::Accepted(0),
    )?;
    expect(
        "a damaged signature",
        &client.with_damaged_signature()?,
        &CREDENTIALS_PROBLEM,
    )?;
    expect(
        "damaged arguments",
        &client.with_damaged_arguments(&root)?,
        &Answer::Accepted(4),
    )?;
    expect(
        "a number that was there",
        &client.repeated(3)?,
        &Answer::Nothing,
    )?;
    let too_high = client.numbered(0x8000_0000)?;
    expect("a number that is too high", &too_high, &CONTEXT_PROBLEM)?;
    expect("a jump", &client.numbered(1_000_000)?, &Answer::Accepted(0))?;
    expect(
        "a number before the window",
        &client.repeated(9)?,
        &Answer::Nothing,
    )?;
    expect(
        "an unknown handle",
        &client.with_handle(&[7; 16])?,
        &CREDENTIALS_PROBLEM,
    )?;
    expect(
        "a short handle",
        &client.with_handle(&[7; 3])?,
        &CREDENTIALS_PROBLEM,
    )?;
    let refused = GssClient::begin_with(port, b"no token")?;
    expect("a token that is none", &(refused != 0), &true)?;
    expect(
        "afterwards",
        &client.ask_for_nothing()?,
        &Answer::Accepted(0),
    )?;
    println!("damaged, repeated and unknown calls are refused");
    Ok(())
}

/// A context ends with the ticket.
fn ticket_expires(port: u16, mount: &Path) -> Outcome {
    let (root, _) = GssClient::mount(port, &mount.join("a"))?;
    let mut client = GssClient::connect(port, Service::Authentication)?;
    let made = client.create(&root, "late")?;
    made.map_err(|status| format!("before it expires: {status}"))?;
    // The machine's clocks are one, and krb5.conf permits a second between them.
    std::thread::sleep(Duration::from_secs(SHORT_S + 2));
    expect(
        "an expired context",
        &client.ask_for_nothing()?,
        &CREDENTIALS_PROBLEM,
    )?;
    println!("an expired ticket ends its context");
    Ok(())
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Outcome {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}, and {expected:?} is right").into()),
    }
}
