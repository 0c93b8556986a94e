//! Owners and groups of files as text: numbers, or `name@domain` (RFC 8881, section 5.9).
//!
//! # Mechanism
//! Without a domain (`tarnd --nfs-domain`) clients are shown numbers, which is what clients with
//! `AUTH_SYS` expect, and send. With one they are shown `name@domain`, where this machine knows a
//! name, and numbers elsewhere. From clients both are taken: a number always, and the names that
//! this machine knows, of this domain; without one, of any.
//!
//! Names are looked up in the databases of the system, which may ask another machine: what was
//! found is kept for [`KEPT_FOR`].
//!
//! # Bounds
//! [`KEPT_MAX`] names; when there are more, all are forgotten.

use super::status::Status;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tarn_engine::{AccountKind, account_name, find_account};

const KEPT_MAX: usize = 16 << 10;
/// A guess: accounts are made and renamed rarely.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Most bytes of a domain (RFC 1035).
const DOMAIN_BYTES_MAX: usize = 253;

/// Whether names of users may be shown with this domain.
pub fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_good)
    };
    text.len() <= DOMAIN_BYTES_MAX && text.split('.').all(is_label)
}

/// How owners are shown.
#[derive(Default)]
pub(crate) struct OwnerNames {
    /// None where they are shown as numbers.
    domain: Option<String>,
    kept: Mutex<BTreeMap<(bool, u32), (String, Instant)>>,
}

impl OwnerNames {
    pub(crate) fn new(domain: Option<String>) -> OwnerNames {
        OwnerNames {
            domain,
            kept: Mutex::default(),
        }
    }

    /// An owner as clients are shown it.
    pub(crate) fn text_of(&self, kind: AccountKind, id: u32) -> String {
        match &self.domain {
            None => id.to_string(),
            Some(domain) => self.named(kind, id, domain),
        }
    }

    fn named(&self, kind: AccountKind, id: u32, domain: &str) -> String {
        let key = (kind == AccountKind::User, id);
        // A thread that panicked under the lock was adding one entry.
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((text, found)) = lock().get(&key)
            && found.elapsed() < KEPT_FOR
        {
            return text.clone();
        }
        let text = match account_name(kind, id) {
            // What has the mark of the domain itself could not be told apart.
            Some(name) if !name.is_empty() && !name.contains('@') => format!("{name}@{domain}"),
            _ => id.to_string(),
        };
        let mut kept = lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(key, (text.clone(), Instant::now()));
        text
    }

    /// The number of an owner that a client names.
    ///
    /// # Errors
    /// `BADOWNER` where this machine does not know the name, or it is of another domain.
    pub(crate) fn number_of(&self, kind: AccountKind, text: &str) -> Result<u32, Status> {
        if let Ok(number) = text.parse() {
            return Ok(number);
        }
        let (name, domain) = match text.split_once('@') {
            Some((name, domain)) => (name, Some(domain)),
            None => (text, None),
        };
        let is_ours = match (&self.domain, domain) {
            (Some(own), Some(other)) => own.eq_ignore_ascii_case(other),
            _ => true,
        };
        let found = is_ours.then(|| find_account(kind, name)).flatten();
        found.ok_or(Status::BADOWNER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AccountKind::{Group, User};

    #[test]
    fn owners_are_numbers_without_a_domain_and_names_with_one() {
        let (plain, named) = (
            OwnerNames::default(),
            OwnerNames::new(Some("example.org".to_string())),
        );
        for kind in [User, Group] {
            assert_eq!(plain.text_of(kind, 0), "0");
            let shown = [named.text_of(kind, 0), named.text_of(kind, 0)];
            assert_eq!(shown, ["root@example.org", "root@example.org"]);
            // No account of this machine has this number.
            assert_eq!(named.text_of(kind, 4_000_000_001), "4000000001");
            assert_eq!(named.number_of(kind, "root@EXAMPLE.org"), Ok(0));
            assert_eq!(named.number_of(kind, "17"), Ok(17));
            assert_eq!(plain.number_of(kind, "root@anything"), Ok(0));
            for unknown in ["root@other.org", "no one of this name@example.org", ""] {
                assert_eq!(named.number_of(kind, unknown), Err(Status::BADOWNER));
            }
        }
    }

    #[test]
    fn a_domain_is_labels_with_dots_between() {
        assert!(is_domain("example.org") && is_domain("localdomain"));
        let long = "a".repeat(254);
        for bad in ["", ".", "a..b", "a@b", "a b", "ü.de", &long] {
            assert!(!is_domain(bad), "{bad}");
        }
    }
}
