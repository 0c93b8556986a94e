//! Security flavors: how a call says which user it is from, and which of them a share takes.

use crate::rpc::gss::Service;
use tarn_tls::Peer;

/// A flavor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// `AUTH_NONE`: no user.
    None,
    /// `AUTH_SYS`: as the client says.
    Sys,
    /// RPCSEC_GSS with Kerberos, and how much of each message it protects.
    Krb5(Service),
}

/// How a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    /// What the connection's other end has shown.
    pub(crate) peer: Peer,
    /// How the call says which user it is from.
    pub(crate) flavor: Flavor,
}

/// All by their names in `sec=`, and by their numbers (RFC 2623, section 2.4; IANA).
const ALL: [(Flavor, &str, u32); 5] = [
    (Flavor::None, "none", 0),
    (Flavor::Sys, "sys", 1),
    (Flavor::Krb5(Service::Authentication), "krb5", 390_003),
    (Flavor::Krb5(Service::Integrity), "krb5i", 390_004),
    (Flavor::Krb5(Service::Privacy), "krb5p", 390_005),
];

impl Flavor {
    /// The number by which MOUNT lists it.
    pub(crate) fn number(self) -> u32 {
        let found = ALL.iter().find(|(flavor, _, _)| *flavor == self);
        found.expect("all have numbers").2
    }
}

/// The flavors of a share, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flavors {
    list: Vec<Flavor>,
}

/// What a flavor means to a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Calls are from their users.
    User,
    /// They are from the anonymous user.
    Anonymous,
    /// They are refused.
    Refused,
}

impl Flavors {
    /// `sys`, which is so unless `sec` says otherwise.
    pub(crate) fn sys() -> Flavors {
        Flavors {
            list: vec![Flavor::Sys],
        }
    }

    /// Those of several lists, each once.
    pub(crate) fn of_all<'a>(lists: impl Iterator<Item = &'a Flavors>) -> Flavors {
        let mut list = Vec::new();
        for flavor in lists.flat_map(Flavors::all) {
            if !list.contains(flavor) {
                list.push(*flavor);
            }
        }
        Flavors { list }
    }

    /// Decodes names with colons between them.
    pub(crate) fn parse(text: &str) -> Option<Flavors> {
        let flavor = |name| {
            let found = ALL.iter().find(|(_, other, _)| *other == name);
            found.map(|(flavor, _, _)| *flavor)
        };
        let mut list: Vec<Flavor> = Vec::new();
        for name in text.split(':') {
            let flavor = flavor(name)?;
            if !list.contains(&flavor) {
                list.push(flavor);
            }
        }
        Some(Flavors { list })
    }

    /// Whether both have a flavor.
    pub(crate) fn has_any_of(&self, other: &Flavors) -> bool {
        self.list.iter().any(|flavor| other.list.contains(flavor))
    }

    /// All of them, in the order of the share.
    pub(crate) fn all(&self) -> &[Flavor] {
        &self.list
    }

    /// What a call of a flavor is. Where `none` is listed, calls of flavors that are not are from
    /// the anonymous user (share_nfs(8) of illumos). Calls without a user come beside those of
    /// `sys`, as a client mounts before it has one.
    pub(crate) fn admit(&self, flavor: Flavor) -> Admission {
        let has = |flavor| self.list.contains(&flavor);
        match flavor {
            flavor if has(flavor) && flavor != Flavor::None => Admission::User,
            _ if has(Flavor::None) => Admission::Anonymous,
            Flavor::None if has(Flavor::Sys) => Admission::Anonymous,
            _ => Admission::Refused,
        }
    }

    /// Whether any needs Kerberos.
    pub(crate) fn needs_kerberos(&self) -> bool {
        let is_krb5 = |flavor: &Flavor| matches!(flavor, Flavor::Krb5(_));
        self.list.iter().any(is_krb5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_admits_the_flavors_of_its_list() {
        let krb5 = Flavor::Krb5(Service::Authentication);
        let krb5p = Flavor::Krb5(Service::Privacy);
        for (list, flavor, expected) in [
            ("sys", Flavor::Sys, Admission::User),
            ("sys", Flavor::None, Admission::Anonymous),
            ("sys", krb5, Admission::Refused),
            ("none", Flavor::Sys, Admission::Anonymous),
            ("none", krb5, Admission::Anonymous),
            ("krb5", Flavor::Sys, Admission::Refused),
            ("krb5", Flavor::None, Admission::Refused),
            ("krb5", krb5, Admission::User),
            ("krb5", krb5p, Admission::Refused),
            ("krb5p:krb5i:none", Flavor::Sys, Admission::Anonymous),
            ("krb5p:krb5i:none", krb5p, Admission::User),
        ] {
            let flavors = Flavors::parse(list).unwrap();
            assert_eq!(flavors.admit(flavor), expected, "{list} {flavor:?}");
        }
        assert_eq!(Flavors::parse("krb5x"), None);
        assert_eq!(Flavors::parse(""), None);
        let doubled = Flavors::parse("sys:krb5:sys").unwrap();
        assert_eq!(doubled.all().len(), 2);
        assert!(doubled.needs_kerberos() && !Flavors::sys().needs_kerberos());
    }
}
