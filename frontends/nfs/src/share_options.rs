//! The value of `sharenfs`: options of exports(5), and those of illumos' share_nfs(8).
//!
//! Every option that a share takes is carried out. Those that are not built are refused by their
//! names, and the file system is not shared then: it is better not served than served to clients,
//! or in a way, that the administrator has not meant.

use crate::client_lists::{BadClient, ClientList};
use crate::security_flavors::{Admission, Flavors, Way};
use crate::transports::Transports;
use std::net::IpAddr;

/// The user and the group that a client without rights gets, unless `anonuid` and `anongid` name
/// others (exports(5)).
const ANONYMOUS: u32 = 65_534;

/// Ports below this one are given to privileged programs only.
const PRIVILEGED_PORTS_END: u16 = 1024;

/// How a file system is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareOptions {
    /// `rw` or `ro` without a list: all clients that no list names.
    others: Option<Access>,
    read_write: Option<ClientList>,
    read_only: Option<ClientList>,
    none: ClientList,
    /// Clients whose root is root.
    root: ClientList,
    squash: Squash,
    anonymous_uid: u32,
    anonymous_gid: u32,
    /// Clients call from any port.
    takes_any_port: bool,
    /// Changes are replied to before they are durable (`async`).
    pub is_async: bool,
    /// Clients of the share above it do not find it below (`hide`).
    pub is_hidden: bool,
    /// `anon=-1`: calls that would be from the anonymous user are refused.
    refuses_anonymous: bool,
    /// `nosub`: folders below its root are not mounted by themselves.
    pub(crate) is_mounted_whole: bool,
    /// How calls may say which user they are from.
    pub(crate) flavors: Flavors,
    /// How calls may come.
    pub(crate) transports: Transports,
}

/// What a client may do with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

/// Which users of a client are replaced by the anonymous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Squash {
    Root,
    All,
    None,
}

/// What one client may do in a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAccess {
    /// Nothing is changed.
    pub is_read_only: bool,
    /// Root of the client is root.
    pub trusts_root: bool,
    /// All users of the client are the anonymous one.
    pub squashes_all: bool,
    /// There is no anonymous user.
    pub refuses_anonymous: bool,
    /// The anonymous user.
    pub anonymous_uid: u32,
    /// And its group.
    pub anonymous_gid: u32,
}

/// Why a value of `sharenfs` cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOption {
    /// The option is not built.
    #[error("sharenfs option '{0}' is not supported by this version of Tarn")]
    NotBuilt(String),
    /// It has a value and takes none, or lacks one, or the value is none that it takes.
    #[error("sharenfs option '{0}' has a value that it cannot have")]
    Value(String),
    /// A list of clients has a wrong element.
    #[error("sharenfs: {0}")]
    Client(#[from] BadClient),
}

impl Default for ShareOptions {
    fn default() -> ShareOptions {
        ShareOptions {
            others: None,
            read_write: None,
            read_only: None,
            none: ClientList::default(),
            root: ClientList::default(),
            squash: Squash::Root,
            anonymous_uid: ANONYMOUS,
            anonymous_gid: ANONYMOUS,
            takes_any_port: false,
            is_async: false,
            is_hidden: false,
            refuses_anonymous: false,
            is_mounted_whole: false,
            flavors: Flavors::sys(),
            transports: Transports::ALL,
        }
    }
}

impl ShareOptions {
    /// Decodes a value of the property that is not `off`.
    ///
    /// # Errors
    /// Which option is not served, or wrong.
    pub fn parse(value: &str) -> Result<ShareOptions, BadOption> {
        let mut options = ShareOptions::default();
        if value == "on" {
            return Ok(options);
        }
        let is_sec = |option: &&str| option.starts_with("sec=");
        if let Some(second) = value.split(',').filter(is_sec).nth(1) {
            return Err(BadOption::NotBuilt(format!("{second} beside another sec=")));
        }
        for option in value.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            options.set(option, name, value)?;
        }
        Ok(options)
    }

    fn set(&mut self, option: &str, name: &str, value: Option<&str>) -> Result<(), BadOption> {
        let number = |value: &str| {
            let parsed = value.parse();
            parsed.map_err(|_| BadOption::Value(option.to_string()))
        };
        match (name, value) {
            ("rw", None | Some("")) => self.others = Some(Access::ReadWrite),
            ("ro", None | Some("")) => self.others = Some(Access::ReadOnly),
            ("rw", Some(list)) => self.read_write = Some(ClientList::parse(list)?),
            ("ro", Some(list)) => self.read_only = Some(ClientList::parse(list)?),
            ("none", Some(list)) => self.none = ClientList::parse(list)?,
            ("root", Some(list)) => self.root = ClientList::parse(list)?,
            ("sec", Some(list)) => {
                let chosen = Flavors::parse(list);
                self.flavors = chosen.ok_or_else(|| BadOption::Value(option.to_string()))?;
            }
            ("xprtsec", Some(list)) => {
                let chosen = Transports::parse(list);
                self.transports = chosen.ok_or_else(|| BadOption::Value(option.to_string()))?;
            }
            ("anonuid", Some(uid)) => self.anonymous_uid = number(uid)?,
            ("anongid", Some(gid)) => self.anonymous_gid = number(gid)?,
            // illumos: the user that root and unknown users are; 0 makes root of a client root.
            ("anon", Some("0")) => self.squash = Squash::None,
            ("anon", Some("-1")) => self.refuses_anonymous = true,
            ("nosub", None) => self.is_mounted_whole = true,
            ("anon", Some(uid)) => self.anonymous_uid = number(uid)?,
            ("root_squash" | "no_all_squash", None) => self.squash = Squash::Root,
            ("all_squash", None) => self.squash = Squash::All,
            ("no_root_squash", None) => self.squash = Squash::None,
            ("secure", None) => self.takes_any_port = false,
            ("insecure", None) => self.takes_any_port = true,
            ("sync", None) => self.is_async = false,
            ("async", None) => self.is_async = true,
            ("hide", None) => self.is_hidden = true,
            ("nohide", None) => self.is_hidden = false,
            // These say what a share is in any case: shares below it are found, handles are not
            // tied to folders, changes that come together are made durable together and without
            // delay, the file system is shared while it is mounted, locks are for users that may
            // read the file, and there is no protocol for POSIX lists.
            (
                "crossmnt" | "no_subtree_check" | "wdelay" | "no_wdelay" | "mp" | "mountpoint"
                | "auth_nlm" | "secure_locks" | "no_acl",
                None,
            ) => {}
            _ => return Err(BadOption::NotBuilt(option.to_string())),
        }
        Ok(())
    }

    /// What a client may do; none when it may not use the share at all.
    ///
    /// A list that names a client decides before `rw` and `ro` without lists, and `ro=` before
    /// `rw=`. Where there are only lists, clients that none of them names are refused.
    pub fn access_of(&self, client: IpAddr, port: u16) -> Option<ClientAccess> {
        let is_port_refused = !self.takes_any_port && port >= PRIVILEGED_PORTS_END;
        if is_port_refused || self.none.has(client) {
            return None;
        }
        let is_named =
            |list: &Option<ClientList>| list.as_ref().is_some_and(|list| list.has(client));
        let has_lists = self.read_only.is_some() || self.read_write.is_some();
        let access = match self.others {
            _ if is_named(&self.read_only) => Access::ReadOnly,
            _ if is_named(&self.read_write) => Access::ReadWrite,
            Some(access) => access,
            None if has_lists => return None,
            None => Access::ReadWrite,
        };
        Some(ClientAccess {
            is_read_only: access == Access::ReadOnly,
            trusts_root: self.squash == Squash::None
                || (self.squash == Squash::Root && self.root.has(client)),
            squashes_all: self.squash == Squash::All,
            refuses_anonymous: self.refuses_anonymous,
            anonymous_uid: self.anonymous_uid,
            anonymous_gid: self.anonymous_gid,
        })
    }

    /// What a call is that came in this way.
    pub(crate) fn admit(&self, way: Way) -> Admission {
        match self.transports.has(way.peer) {
            true => self.flavors.admit(way.flavor),
            false => Admission::Refused,
        }
    }

    /// The clients as `showmount -e` lists them; nothing for all.
    pub fn listed_clients(&self) -> Vec<&str> {
        if self.others.is_some() {
            return Vec::new();
        }
        let lists = [&self.read_write, &self.read_only].into_iter().flatten();
        lists.flat_map(ClientList::texts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_tls::Peer;

    fn access(options: &str, client: &str) -> Option<ClientAccess> {
        let options = ShareOptions::parse(options).unwrap();
        options.access_of(client.parse().unwrap(), 700)
    }

    fn is_read_only(options: &str, client: &str) -> Option<bool> {
        access(options, client).map(|access| access.is_read_only)
    }

    #[test]
    fn lists_decide_before_the_words_without_lists() {
        for (options, client, expected) in [
            ("on", "10.0.0.1", Some(false)),
            ("ro", "10.0.0.1", Some(true)),
            ("rw=10.0.0.1", "10.0.0.1", Some(false)),
            ("rw=10.0.0.1", "10.0.0.2", None),
            ("ro,rw=10.0.0.1", "10.0.0.1", Some(false)),
            ("ro,rw=10.0.0.1", "10.0.0.2", Some(true)),
            ("rw,ro=@10.0.0.0/8", "10.0.0.2", Some(true)),
            ("rw=10.0.0.1,ro=@10.0.0.0/8", "10.0.0.1", Some(true)),
            ("rw,none=10.0.0.1", "10.0.0.1", None),
            ("sec=sys,rw=10.0.0.1:[::1]", "::1", Some(false)),
        ] {
            assert_eq!(
                is_read_only(options, client),
                expected,
                "{options} {client}"
            );
        }
    }

    #[test]
    fn root_is_squashed_unless_the_options_say_otherwise() {
        for (options, trusts_root, squashes_all) in [
            ("on", false, false),
            ("no_root_squash", true, false),
            ("anon=0", true, false),
            ("root=10.0.0.1", true, false),
            ("root=10.0.0.2", false, false),
            ("all_squash", false, true),
        ] {
            let access = access(options, "10.0.0.1").unwrap();
            assert_eq!(access.trusts_root, trusts_root, "{options}");
            assert_eq!(access.squashes_all, squashes_all, "{options}");
        }
        assert!(access("anon=-1", "10.0.0.1").unwrap().refuses_anonymous);
        let access = access("rw,anonuid=7,anongid=8", "10.0.0.1").unwrap();
        assert_eq!((access.anonymous_uid, access.anonymous_gid), (7, 8));
    }

    #[test]
    fn clients_call_from_privileged_ports_unless_the_share_is_insecure() {
        let client = "10.0.0.1".parse().unwrap();
        let at = |options: &str, port| {
            let options = ShareOptions::parse(options).unwrap();
            options.access_of(client, port).is_some()
        };
        assert!(at("on", 1023) && !at("on", 1024));
        assert!(at("insecure", 40_000));
    }

    #[test]
    fn options_that_are_not_built_are_refused_by_name() {
        for (options, why) in [
            ("rw,sec=krb5x", "option 'sec=krb5x' has a value"),
            (
                "sec=sys,ro,sec=krb5,rw",
                "option 'sec=krb5 beside another sec=' is not",
            ),
            ("fsid=3", "option 'fsid=3' is not supported"),
            ("insecure_locks", "option 'insecure_locks' is not supported"),
            ("subtree_check", "option 'subtree_check'"),
            ("anonuid=x", "option 'anonuid=x' has a value"),
            ("secure=1", "option 'secure=1'"),
        ] {
            let error = ShareOptions::parse(options).unwrap_err().to_string();
            assert!(error.contains(why), "{options}: {error}");
        }
    }

    #[test]
    fn a_share_may_ask_for_tls_or_for_certificates() {
        let takes = |options: &str| {
            let transports = ShareOptions::parse(options).unwrap().transports;
            [Peer::Plain, Peer::Encrypted, Peer::Verified].map(|peer| transports.has(peer))
        };
        assert_eq!(takes("on"), [true, true, true]);
        assert_eq!(takes("rw,xprtsec=tls"), [false, true, true]);
        assert_eq!(takes("xprtsec=mtls"), [false, false, true]);
        assert_eq!(takes("xprtsec=tls:mtls"), [false, true, true]);
        assert_eq!(takes("xprtsec=none"), [true, true, true]);
        for wrong in ["xprtsec=", "xprtsec=ssl", "xprtsec=none:"] {
            let error = ShareOptions::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn the_list_of_clients_is_empty_where_all_may_come() {
        let listed = |options| {
            let options = ShareOptions::parse(options).unwrap();
            options.listed_clients().join(" ")
        };
        assert_eq!(listed("on"), "");
        assert_eq!(listed("rw=a:10.0.0.0/8,ro=b"), "a 10.0.0.0/8 b");
        assert_eq!(listed("rw=a,ro"), "");
    }
}
