//! Properties that are stored and have no effect yet: setting one gives a warning.
//!
//! Pools move between systems, and their settings with them. So these properties are stored like
//! all others, and a warning says that they have no effect here. Setting one back to its default
//! gives no warning.

use tarn_dataset::properties::parse::{Checked, Moment, Setting, check};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::{Default, Property};

/// The properties, each with the effect that is missing.
const INERT: [(&str, &str); 13] = [
    ("sharesmb", "nothing is shared over SMB"),
    ("nbmand", "there are no mandatory locks"),
    ("vscan", "no file is scanned for viruses"),
    ("mlslabel", "there are no labels"),
    ("context", "mounts have no SELinux contexts"),
    ("fscontext", "mounts have no SELinux contexts"),
    ("defcontext", "mounts have no SELinux contexts"),
    ("rootcontext", "mounts have no SELinux contexts"),
    ("primarycache", "everything is cached that is read"),
    ("prefetch", "everything is read ahead that is read in order"),
    ("direct", "no transfer passes the cache by"),
    (
        "volthreading",
        "requests are served by the threads of all front ends",
    ),
    ("keylocation", "no key is loaded"),
];

/// The warnings for properties with these checked values.
pub(crate) fn warnings(given: &[(String, String)]) -> Vec<String> {
    let warning = |(name, value): &(String, String)| warning(name, value);
    given.iter().filter_map(warning).collect()
}

fn warning(name: &str, value: &str) -> Option<String> {
    let row = table::find(name)?;
    let (name, what) = INERT.iter().find(|(name, _)| row.name == *name)?;
    let checked = check(name, value, row.kinds, Moment::Later).ok()?;
    (!is_default(row, &checked))
        .then(|| format!("warning: property '{name}' is stored and has no effect yet: {what}"))
}

fn is_default(row: &Property, checked: &Checked) -> bool {
    match (&checked.setting, &row.default) {
        (Setting::Number(number), Default::Number(default)) => number == default,
        (Setting::Text(text), Default::Text(default)) => text == default,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(name: &str, value: &str) -> Vec<String> {
        warnings(&[(name.to_string(), value.to_string())])
    }

    #[test]
    fn inert_properties_give_a_warning() {
        let told = warned("vscan", "on");
        let expected = "warning: property 'vscan' is stored and has no effect yet: no file is scanned for viruses";
        assert_eq!(told, [expected]);
        assert_eq!(warned("primarycache", "metadata").len(), 1);
        for (name, value) in [
            ("sharenfs", "on"),
            ("primarycache", "all"),
            ("atime", "off"),
        ] {
            assert_eq!(warned(name, value), Vec::<String>::new(), "{name}={value}");
        }
    }

    #[test]
    fn all_of_them_are_properties() {
        for (name, _) in INERT {
            assert!(table::find(name).is_some(), "{name}");
        }
    }
}
