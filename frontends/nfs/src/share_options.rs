//! The value of `sharenfs`: options of exports(5), and those of illumos' share_nfs(8).
//!
//! Every option that a share takes is carried out. Those that are not built are refused by their
//! names, and the file system is not shared then: it is better not served than served to clients,
//! or in a way, that the administrator has not meant.
//!
//! Each `sec=` begins a section: what follows about clients and their users is for calls of its
//! flavors (`sec=sys,ro,sec=krb5,rw`), and what comes before the first is for all sections. Other
//! options are the share's, wherever they are.

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
    flavors: Flavors,
    /// How calls may come.
    pub(crate) transports: Transports,
    /// What later `sec=` say of other flavors.
    later: Vec<ShareOptions>,
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

/// Calls that came in another way would be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongWay;

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
            later: Vec::new(),
        }
    }
}

/// Options that say which clients and users may do what: those of a section.
const OF_SECTIONS: [&str; 11] = [
    "rw",
    "ro",
    "none",
    "root",
    "anonuid",
    "anongid",
    "anon",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
];

impl ShareOptions {
    /// Decodes a value of the property that is not `off`.
    ///
    /// # Errors
    /// Which option is not served, or wrong.
    pub fn parse(value: &str) -> Result<ShareOptions, BadOption> {
        let mut common = ShareOptions::default();
        let mut sections: Vec<ShareOptions> = Vec::new();
        if value == "on" {
            return Ok(common);
        }
        for option in value.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            match name {
                "sec" => {
                    let wrong = || BadOption::Value(option.to_string());
                    let flavors = Flavors::parse(value.unwrap_or_default()).ok_or_else(wrong)?;
                    let is_there = |one: &ShareOptions| one.flavors.has_any_of(&flavors);
                    if sections.iter().any(is_there) {
                        return Err(wrong());
                    }
                    sections.push(ShareOptions {
                        flavors,
                        ..common.clone()
                    });
                }
                name if OF_SECTIONS.contains(&name) => {
                    let section = sections.last_mut().unwrap_or(&mut common);
                    section.set(option, name, value)?;
                }
                name => common.set(option, name, value)?,
            }
        }
        for section in &mut sections {
            section.take_share_options_of(&common);
        }
        let mut sections = sections.into_iter();
        let first = sections.next().unwrap_or(common);
        Ok(ShareOptions {
            later: sections.collect(),
            ..first
        })
    }

    /// Takes the options that are not about clients and users from another.
    fn take_share_options_of(&mut self, share: &ShareOptions) {
        self.takes_any_port = share.takes_any_port;
        self.is_async = share.is_async;
        self.is_hidden = share.is_hidden;
        self.is_mounted_whole = share.is_mounted_whole;
        self.transports = share.transports;
    }

    /// This one, and those of later `sec=`.
    fn sections(&self) -> impl Iterator<Item = &ShareOptions> {
        std::iter::once(self).chain(&self.later)
    }

    /// The flavors of all sections.
    pub(crate) fn flavors(&self) -> Flavors {
        Flavors::of_all(self.sections().map(|section| &section.flavors))
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

    /// What a client may do by calls that came in this way, or in any; none when it may not use
    /// the share at all.
    ///
    /// # Errors
    /// It may, in another way.
    pub(crate) fn admit(
        &self,
        (client, port): (IpAddr, u16),
        way: Option<Way>,
    ) -> Result<Option<ClientAccess>, WrongWay> {
        let access_of = |section: &ShareOptions| section.access_of(client, port);
        let any = || self.sections().find_map(access_of);
        let Some(way) = way else { return Ok(any()) };
        let find = |admission| {
            let is = |section: &&ShareOptions| section.flavors.admit(way.flavor) == admission;
            self.sections().find(is)
        };
        let user = find(Admission::User);
        let section = user.or_else(|| find(Admission::Anonymous));
        match section.filter(|_| self.transports.has(way.peer)) {
            Some(section) => Ok(access_of(section).map(|access| ClientAccess {
                squashes_all: access.squashes_all || user.is_none(),
                ..access
            })),
            None => any().map_or(Ok(None), |_| Err(WrongWay)),
        }
    }

    /// What a client may do by calls of the flavors of this section; none when it may do nothing.
    ///
    /// A list that names a client decides before `rw` and `ro` without lists, and `ro=` before
    /// `rw=`. Where there are only lists, clients that none of them names are refused.
    fn access_of(&self, client: IpAddr, port: u16) -> Option<ClientAccess> {
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

    /// The clients as `showmount -e` lists them; nothing for all.
    pub fn listed_clients(&self) -> Vec<&str> {
        if self.sections().any(|section| section.others.is_some()) {
            return Vec::new();
        }
        let lists = self
            .sections()
            .flat_map(|section| [&section.read_write, &section.read_only]);
        lists.flatten().flat_map(ClientList::texts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::gss::Service;
    use crate::security_flavors::Flavor;
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
                "sec=sys:krb5,ro,sec=krb5,rw",
                "option 'sec=krb5' has a value",
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
    fn each_sec_begins_a_section_for_its_flavors() {
        let krb5 = Flavor::Krb5(Service::Authentication);
        let krb5p = Flavor::Krb5(Service::Privacy);
        let plain = |flavor| {
            Some(Way {
                peer: Peer::Plain,
                flavor,
            })
        };
        let at = |client: &str| (client.parse().unwrap(), 40_000);
        let options = "anonuid=7,sec=sys,ro,sec=krb5:krb5i,rw,no_root_squash,insecure,sec=none,\
                       rw=10.0.0.1";
        let options = ShareOptions::parse(options).unwrap();
        let access = |client, flavor| {
            let access = options.admit(at(client), plain(flavor)).unwrap()?;
            assert_eq!(access.anonymous_uid, 7, "what comes first is for all");
            Some((access.is_read_only, access.trusts_root, access.squashes_all))
        };
        assert_eq!(access("10.0.0.2", Flavor::Sys), Some((true, false, false)));
        assert_eq!(access("10.0.0.2", krb5), Some((false, true, false)));
        assert_eq!(access("10.0.0.1", krb5p), Some((false, false, true)));
        assert_eq!(access("10.0.0.2", krb5p), None);
        assert_eq!(options.flavors().all().len(), 4);
        let strict = ShareOptions::parse("sec=krb5p,rw=10.0.0.1,insecure").unwrap();
        let ask = |client, flavor| strict.admit(at(client), plain(flavor));
        assert_eq!(ask("10.0.0.1", krb5), Err(WrongWay));
        assert_eq!(ask("10.0.0.2", krb5), Ok(None), "it has no way at all");
        assert!(ask("10.0.0.1", krb5p).unwrap().is_some());
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
