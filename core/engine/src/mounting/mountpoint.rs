//! The mount point of a file system: its own `mountpoint`, or the path below that of the ancestor
//! it inherits from.

use std::path::PathBuf;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::properties::inherit::{self, Found, Place};
use tarn_dataset::properties::native::{NativeValue, Shown, ShownSource};
use tarn_dataset::properties::table;

/// The name of the property.
pub(crate) const MOUNTPOINT: &str = "mountpoint";

/// The value of `mountpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountPoint {
    /// A folder.
    Path(PathBuf),
    /// `legacy`: mount(8) and `/etc/fstab` decide.
    Legacy,
    /// `none`: it is not mounted.
    None,
}

impl MountPoint {
    /// As `zfs get` shows it.
    pub fn text(&self) -> String {
        match self {
            MountPoint::Path(path) => path.display().to_string(),
            MountPoint::Legacy => "legacy".to_string(),
            MountPoint::None => "none".to_string(),
        }
    }

    /// The mount point of a dataset that inherits `value`: `below` is its path below the ancestor
    /// that has the value.
    fn of(value: &str, below: &str, altroot: Option<&str>) -> MountPoint {
        match value {
            "legacy" => MountPoint::Legacy,
            "none" => MountPoint::None,
            value => {
                let root = altroot.unwrap_or_default().trim_end_matches('/');
                let value = value.trim_end_matches('/');
                let mut path = format!("{root}{value}");
                if !below.is_empty() {
                    path.push('/');
                    path.push_str(below);
                }
                if path.is_empty() {
                    path.push('/');
                }
                MountPoint::Path(PathBuf::from(path))
            }
        }
    }
}

/// The mount point of a dataset, and the source of the property.
pub fn of_dataset(
    dataset: &Dataset<'_>,
    altroot: Option<&str>,
) -> Result<(MountPoint, ShownSource), DatasetError> {
    let row = table::find(MOUNTPOINT).expect("the table has it");
    let name = dataset.directory().name();
    let set = match inherit::find(dataset, row)? {
        Some((Found::Text(value), place)) => Some((value, place)),
        Some((Found::Number(_), _)) | None => None,
    };
    Ok(of_set(name, set, altroot))
}

/// The same for a dataset of this name, whose property was read already.
pub(crate) fn of_value(
    name: &str,
    property: Option<&NativeValue>,
    altroot: Option<&str>,
) -> (MountPoint, ShownSource) {
    let set = property.and_then(|property| match (&property.value, &property.source) {
        (Shown::Text(value), ShownSource::Set(place)) => Some((value.clone(), place.clone())),
        _ => None,
    });
    of_set(name, set, altroot)
}

/// Where a dataset of this name is mounted, given what is set and where.
fn of_set(
    name: &str,
    set: Option<(String, Place)>,
    altroot: Option<&str>,
) -> (MountPoint, ShownSource) {
    let (value, source, below) = match set {
        Some((value, Place::Inherited(from))) => {
            let below = name.strip_prefix(from.as_str()).unwrap_or_default();
            let below = below.trim_start_matches('/').to_string();
            (value, ShownSource::Set(Place::Inherited(from)), below)
        }
        Some((value, place)) => (value, ShownSource::Set(place), String::new()),
        None => ("/".to_string(), ShownSource::Default, name.to_string()),
    };
    (MountPoint::of(&value, &below, altroot), source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_follows_the_ancestor_that_set_it() {
        let path = |value, below, altroot| MountPoint::of(value, below, altroot).text();
        assert_eq!(path("/", "tank/a", None), "/tank/a");
        assert_eq!(path("/data", "a/b", None), "/data/a/b");
        assert_eq!(path("/data", "", Some("/alt")), "/alt/data");
        assert_eq!(path("/", "tank", Some("/alt/")), "/alt/tank");
        assert_eq!(path("/", "", None), "/");
        assert_eq!(path("none", "a", Some("/alt")), "none");
        assert_eq!(path("legacy", "", None), "legacy");
    }
}
