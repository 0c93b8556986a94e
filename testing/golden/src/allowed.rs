//! The values that must differ between the truth and a read-only import beside it, and why.
//!
//! The list is short on purpose: whatever stands here is not tested. It is printed with every run.

/// A property whose value is not compared.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    /// The property.
    pub property: &'static str,
    /// Why it cannot be equal.
    pub why: &'static str,
}

/// Properties of the pool that a second import must show otherwise.
pub const POOL: [Allowed; 3] = [
    Allowed {
        property: "altroot",
        why: "the truth was recorded at /, we import below a scratch folder with -R",
    },
    Allowed {
        property: "cachefile",
        why: "-R sets it to none, so that no later start imports the scratch pool",
    },
    Allowed {
        property: "load_guid",
        why: "a new random number at each import",
    },
];

/// Whether a pool property is on the list.
#[must_use]
pub fn may_differ(property: &str) -> bool {
    POOL.iter().any(|allowed| allowed.property == property)
}

/// Takes the alternate root off a mount point, which is shown with it.
#[must_use]
pub fn without_root(mountpoint: &str, root: &str) -> String {
    match mountpoint.strip_prefix(root.trim_end_matches('/')) {
        Some("") => "/".to_string(),
        Some(below) if below.starts_with('/') => below.to_string(),
        _ => mountpoint.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_alternate_root_is_taken_off() {
        assert_eq!(without_root("/alt/p/a", "/alt"), "/p/a");
        assert_eq!(without_root("/alternative", "/alt"), "/alternative");
        assert_eq!(without_root("/alt", "/alt/"), "/");
    }
}
