//! A realm of Kerberos with a KDC of its own.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::{Server, await_server, free_port, start};
use crate::workspace::{Outcome, output};

/// Its name.
const NAME: &str = "TARN.TEST";

/// Those that have keys.
const PRINCIPALS: [&str; 3] = ["nfs/localhost", "daemon", "stranger"];

/// The realm, and its KDC, which ends when this is dropped.
pub struct Realm {
    folder: PathBuf,
    _kdc: Server,
}

impl Realm {
    /// Makes one below a folder.
    pub fn make(folder: &Path) -> Outcome<Realm> {
        let folder = folder.join("realm");
        std::fs::create_dir_all(&folder)?;
        let port = free_port()?;
        let shown = folder.display();
        std::fs::write(
            folder.join("krb5.conf"),
            format!(
                "[libdefaults]\n default_realm = {NAME}\n dns_lookup_kdc = false\n \
                 dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n \
                 clockskew = 1\n default_ccache_name = FILE:{shown}/tickets\n\
                 [realms]\n {NAME} = {{\n  kdc = 127.0.0.1:{port}\n }}\n\
                 [domain_realm]\n localhost = {NAME}\n"
            ),
        )?;
        std::fs::write(
            folder.join("kdc.conf"),
            format!(
                "[kdcdefaults]\n kdc_ports = {port}\n kdc_tcp_ports = {port}\n\
                 [realms]\n {NAME} = {{\n  database_name = {shown}/principal\n  \
                 key_stash_file = {shown}/stash\n  acl_file = {shown}/acl\n  \
                 kdc_listen = 127.0.0.1:{port}\n  kdc_tcp_listen = 127.0.0.1:{port}\n }}\n\
                 [logging]\n kdc = FILE:{shown}/kdc.log\n"
            ),
        )?;
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            put(&folder, &mut command);
            output(command.args(arguments))
        };
        run("kdb5_util", &["create", "-s", "-r", NAME, "-P", "master"])?;
        for principal in PRINCIPALS {
            let keytab = keytab_in(&folder, principal);
            let keytab = keytab.display();
            run(
                "kadmin.local",
                &["-q", &format!("addprinc -randkey {principal}")],
            )?;
            run(
                "kadmin.local",
                &["-q", &format!("ktadd -k {keytab} {principal}")],
            )?;
        }
        let mut kdc = Command::new("krb5kdc");
        put(&folder, &mut kdc);
        let kdc = start(kdc.args(["-n", "-r", NAME]))?;
        await_server(
            || TcpStream::connect(("127.0.0.1", port)).is_ok(),
            "krb5kdc",
        )?;
        Ok(Realm { folder, _kdc: kdc })
    }

    /// The file with the keys of a principal.
    pub fn keytab(&self, principal: &str) -> PathBuf {
        keytab_in(&self.folder, principal)
    }

    /// Has a command use the realm.
    pub fn put_environment(&self, command: &mut Command) {
        put(&self.folder, command);
    }

    /// Gets a user's ticket, in place of another's.
    pub fn get_ticket(&self, user: &str, lifetime_s: u64) -> Outcome {
        let mut kinit = Command::new("kinit");
        self.put_environment(&mut kinit);
        let lifetime = format!("{lifetime_s}s");
        kinit.args(["-l", &lifetime, "-k", "-t"]);
        output(kinit.arg(self.keytab(user)).arg(user)).map(drop)
    }
}

fn keytab_in(folder: &Path, principal: &str) -> PathBuf {
    folder.join(format!("{}.keytab", principal.replace('/', "-")))
}

fn put(folder: &Path, command: &mut Command) {
    command
        .env("KRB5_CONFIG", folder.join("krb5.conf"))
        .env("KRB5_KDC_PROFILE", folder.join("kdc.conf"))
        .env(
            "KRB5RCACHENAME",
            format!("file2:{}/replays", folder.display()),
        );
}
