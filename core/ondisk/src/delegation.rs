//! Delegated permissions (`zfs allow`): what users and groups may do with a dataset and its
//! descendants.
//!
//! A DSL directory with delegated permissions has a ZAP. Each of its names says which user or
//! group, where, and whether it lists permissions or sets of them, and leads to a ZAP whose names
//! are the permissions, or the sets:
//!
//! ```text
//! ul$1000     permissions of user 1000 for the dataset itself
//! Ud$1000     sets that user 1000 has for what is below it
//! gl$, gd$    the same of groups;  el$, ed$  of everyone
//! s-$@backup  permissions in the set @backup;  S-$@backup  sets in it
//! c-$         permissions that the creator of a dataset below gets for it;  C-$  sets
//! ```

/// The receiver of permissions.
#[doc(alias = "zfs_deleg_who_type_t")]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A set of permissions, with the `@` of its name. It is no receiver itself: receivers have the
    /// set.
    Set(String),
    /// The creator of a dataset below.
    Creator,
    /// A user.
    User(u32),
    /// A group.
    Group(u32),
    /// All.
    Everyone,
}

/// For what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The dataset itself.
    Local,
    /// All below it, and its snapshots.
    Descendent,
    /// Not given: for sets, and for creators of datasets.
    Unsaid,
}

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Listed {
    /// Permissions.
    Permissions,
    /// Sets of permissions.
    Sets,
}

/// A name in the ZAP of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The receiver.
    pub holder: Holder,
    /// For what.
    pub scope: Scope,
    /// What is listed.
    pub listed: Listed,
}

/// Longest name of a set with its `@`, in bytes, less one.
#[doc(alias = "ZFS_PERMSET_MAXLEN")]
pub const SET_NAME_BYTES_MAX: usize = 64;

impl Key {
    /// The name, as it is stored.
    #[doc(alias = "zfs_deleg_whokey")]
    pub fn to_name(&self) -> String {
        let (letter, rest) = match &self.holder {
            Holder::Set(name) => ('s', name.clone()),
            Holder::Creator => ('c', String::new()),
            Holder::User(uid) => ('u', uid.to_string()),
            Holder::Group(gid) => ('g', gid.to_string()),
            Holder::Everyone => ('e', String::new()),
        };
        let letter = match self.listed {
            Listed::Permissions => letter,
            Listed::Sets => letter.to_ascii_uppercase(),
        };
        let scope = match self.scope {
            Scope::Local => 'l',
            Scope::Descendent => 'd',
            Scope::Unsaid => '-',
        };
        format!("{letter}{scope}${rest}")
    }

    /// Takes a name apart. None for what is none: numbers that no user can have are among these.
    #[doc(alias = "zfs_validate_who")]
    pub fn from_name(name: &str) -> Option<Key> {
        let mut letters = name.chars();
        let (letter, scope, sign) = (letters.next()?, letters.next()?, letters.next()?);
        let rest = letters.as_str();
        if sign != '$' {
            return None;
        }
        let scope = match scope {
            'l' => Scope::Local,
            'd' => Scope::Descendent,
            '-' => Scope::Unsaid,
            _ => return None,
        };
        let holder = match letter.to_ascii_lowercase() {
            's' if rest.starts_with('@') => Holder::Set(rest.to_string()),
            'c' if rest.is_empty() => Holder::Creator,
            'u' => Holder::User(number(rest)?),
            'g' => Holder::Group(number(rest)?),
            'e' if rest.is_empty() => Holder::Everyone,
            _ => return None,
        };
        let is_said = matches!(
            holder,
            Holder::User(_) | Holder::Group(_) | Holder::Everyone
        );
        let listed = match letter.is_ascii_uppercase() {
            true => Listed::Sets,
            false => Listed::Permissions,
        };
        (is_said == (scope != Scope::Unsaid)).then_some(Key {
            holder,
            scope,
            listed,
        })
    }
}

fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that OpenZFS stores.
    #[test]
    fn names_have_receiver_place_and_kind() {
        let set = || Holder::Set("@backup".to_string());
        for (name, holder, scope, listed) in [
            (
                "ul$1000",
                Holder::User(1000),
                Scope::Local,
                Listed::Permissions,
            ),
            (
                "Ud$1000",
                Holder::User(1000),
                Scope::Descendent,
                Listed::Sets,
            ),
            (
                "gd$0",
                Holder::Group(0),
                Scope::Descendent,
                Listed::Permissions,
            ),
            ("el$", Holder::Everyone, Scope::Local, Listed::Permissions),
            ("Ed$", Holder::Everyone, Scope::Descendent, Listed::Sets),
            ("s-$@backup", set(), Scope::Unsaid, Listed::Permissions),
            ("S-$@backup", set(), Scope::Unsaid, Listed::Sets),
            ("c-$", Holder::Creator, Scope::Unsaid, Listed::Permissions),
        ] {
            let key = Key {
                holder,
                scope,
                listed,
            };
            assert_eq!(key.to_name(), name);
            assert_eq!(Key::from_name(name), Some(key));
        }
    }

    #[test]
    fn what_is_no_such_name_is_refused() {
        for name in [
            "",
            "u",
            "ul",
            "ul$",
            "ul$x",
            "ul$-1",
            "ul$4294967296",
            "u-$5",
            "ul#5",
            "xl$5",
            "cl$",
            "c-$a",
            "el$5",
            "s-$backup",
            "sl$@backup",
            "üüü",
        ] {
            assert_eq!(Key::from_name(name), None, "{name}");
        }
    }
}
