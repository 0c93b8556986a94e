//! The settings of an instance: the portal, and the initiators that have secrets.
//!
//! They are in a file of the instance that only its owner can read. `tarn iscsi` changes it, and
//! the daemon reads it at every login.

use crate::target_names;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Where a portal listens unless the settings say so: every address, port 3260.
const PORTAL: &str = "0.0.0.0:3260";

/// Shortest secret (RFC 7143, 12.1.3 asks for 96 bits), and the longest that is taken.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=255;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Why a name is refused.
const NO_INITIATOR: &str = "not the name of an initiator, as iqn.1993-08.org.debian:01:abc";

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read or written.
    #[error("cannot use {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        why: String,
    },
    /// It is no settings.
    #[error("{path} is damaged: {why}; remove it to begin with the defaults")]
    Damaged {
        /// The file.
        path: String,
        /// Where.
        why: String,
    },
    /// A value makes no sense.
    #[error("{0}")]
    Value(String),
}

/// An initiator that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Initiator {
    /// Its iSCSI name.
    pub name: String,
    /// The name that it gives with its secret; its iSCSI name when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The secret that it must have; none is asked for when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The secret by which the target proves itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_secret: Option<String>,
    /// The volumes that it may use; all that are shared when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
}

impl Initiator {
    /// Checks it.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |why: &str| Err(SettingsError::Value(format!("'{}': {why}", self.name)));
        if !target_names::is_initiator(&self.name) {
            return wrong(NO_INITIATOR);
        }
        let secrets = [&self.secret, &self.target_secret];
        let is_short = |secret: &&String| !SECRET_BYTES.contains(&secret.len());
        if secrets
            .into_iter()
            .flatten()
            .any(|secret| is_short(&secret))
        {
            return wrong("a secret has 12 to 255 bytes");
        }
        if self.target_secret.is_some() && self.secret.is_none() {
            return wrong("the target proves itself only to an initiator that has a secret");
        }
        if self.target_secret.is_some() && self.target_secret == self.secret {
            return wrong("both secrets are the same");
        }
        Ok(())
    }
}

/// Initiators that may use the same volumes, as the nodes of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What it is called.
    pub name: String,
    /// The iSCSI names of its initiators. They need not be known otherwise.
    pub initiators: Vec<String>,
    /// The volumes that they may use; all that are shared when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
}

impl Group {
    /// Checks it.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |name: &str, why: &str| Err(SettingsError::Value(format!("'{name}': {why}")));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if self.name.is_empty() || !self.name.bytes().all(is_plain) {
            return wrong(
                &self.name,
                "the name of a group has letters, digits and -_.:",
            );
        }
        let mut initiators = self.initiators.iter();
        match initiators.find(|one| !target_names::is_initiator(one)) {
            Some(bad) => wrong(bad, NO_INITIATOR),
            None => Ok(()),
        }
    }
}

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where the portal listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portal: Option<SocketAddr>,
    /// Only known initiators may log in.
    #[serde(default)]
    pub known_only: bool,
    /// Those.
    #[serde(default)]
    pub initiators: Vec<Initiator>,
    /// Groups of initiators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
}

impl Settings {
    /// Reads them. A file that does not exist has the defaults.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn read(path: &Path) -> Result<Settings, SettingsError> {
        use std::io::Read;
        let failed = |error: std::io::Error| SettingsError::File {
            path: path.display().to_string(),
            why: tarn_engine::words_of(&error),
        };
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Settings::default());
            }
            Err(error) => return Err(failed(error)),
        };
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(failed)?;
        serde_json::from_str(&text).map_err(|error| SettingsError::Damaged {
            path: path.display().to_string(),
            why: error.to_string(),
        })
    }

    /// Writes them, as a whole or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), SettingsError> {
        let failed = |error: std::io::Error| SettingsError::File {
            path: path.display().to_string(),
            why: tarn_engine::words_of(&error),
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        let new = path.with_extension("json.new");
        let _ = std::fs::remove_file(&new);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&new, path).map_err(failed)
    }

    /// Where the portal listens.
    pub fn portal(&self) -> SocketAddr {
        let default = || PORTAL.parse().expect("the default portal is an address");
        self.portal.unwrap_or_else(default)
    }

    /// A known initiator.
    pub fn initiator(&self, name: &str) -> Option<&Initiator> {
        self.initiators.iter().find(|one| one.name == name)
    }

    fn groups_of<'a>(&'a self, initiator: &'a str) -> impl Iterator<Item = &'a Group> {
        let is_member = move |group: &&Group| group.initiators.iter().any(|one| one == initiator);
        self.groups.iter().filter(is_member)
    }

    /// Whether an initiator was added, or is in a group.
    pub fn is_known(&self, initiator: &str) -> bool {
        self.initiator(initiator).is_some() || self.groups_of(initiator).next().is_some()
    }

    /// Whether an initiator may use a shared volume: one that is named for it or for a group of it.
    /// Where no volume is named for any of these, all.
    pub fn may_use(&self, initiator: &str, volume: &str) -> bool {
        let own = self.initiator(initiator).map(|one| &one.volumes);
        let of_groups = self.groups_of(initiator).map(|group| &group.volumes);
        let mut named = own.into_iter().chain(of_groups).flatten().peekable();
        named.peek().is_none() || named.any(|one| one == volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn settings_survive_in_a_file_of_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("iscsi.json");
        assert_eq!(Settings::read(&path).unwrap(), Settings::default());
        let settings = Settings {
            portal: Some("127.0.0.1:3261".parse().unwrap()),
            known_only: true,
            initiators: vec![Initiator {
                name: "iqn.2026-01.example:a".to_string(),
                secret: Some("twelve bytes".to_string()),
                ..Initiator::default()
            }],
            groups: vec![Group {
                name: "cluster".to_string(),
                initiators: vec!["iqn.2026-01.example:b".to_string()],
                volumes: vec!["tank/a".to_string()],
            }],
        };
        settings.write(&path).unwrap();
        assert_eq!(Settings::read(&path).unwrap(), settings);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "{\"portals\": 1}").unwrap();
        assert!(matches!(
            Settings::read(&path),
            Err(SettingsError::Damaged { .. })
        ));
    }

    #[test]
    fn an_initiator_may_use_what_is_named_for_it_or_its_groups() {
        let group = |name: &str, initiators: &[&str], volumes: &[&str]| Group {
            name: name.to_string(),
            initiators: initiators.iter().map(ToString::to_string).collect(),
            volumes: volumes.iter().map(ToString::to_string).collect(),
        };
        let settings = Settings {
            initiators: vec![Initiator {
                name: "iqn.a".to_string(),
                volumes: vec!["tank/own".to_string()],
                ..Initiator::default()
            }],
            groups: vec![
                group("one", &["iqn.a", "iqn.b"], &["tank/shared"]),
                group("all", &["iqn.b", "iqn.c"], &[]),
            ],
            ..Settings::default()
        };
        let may = |initiator, volume| settings.may_use(initiator, volume);
        assert!(may("iqn.a", "tank/own") && may("iqn.a", "tank/shared"));
        assert!(!may("iqn.a", "tank/other") && !may("iqn.b", "tank/own"));
        assert!(may("iqn.b", "tank/shared") && !may("iqn.b", "tank/other"));
        assert!(may("iqn.c", "tank/other") && may("iqn.d", "tank/other"));
        let known = ["iqn.a", "iqn.b", "iqn.c", "iqn.d"].map(|one| settings.is_known(one));
        assert_eq!(known, [true, true, true, false]);
    }

    #[test]
    fn groups_are_named_plainly_and_have_initiators_by_their_names() {
        let check = |name: &str, initiator: &str| {
            let group = Group {
                name: name.to_string(),
                initiators: vec![initiator.to_string()],
                volumes: Vec::new(),
            };
            group.check().is_ok()
        };
        assert!(check("node-set.1", "iqn.2026-01.example:a"));
        assert!(!check("", "iqn.2026-01.example:a") && !check("a b", "iqn.2026-01.example:a"));
        assert!(!check("nodes", "Host"));
    }

    #[test]
    fn secrets_that_prove_nothing_are_refused() {
        let good = Initiator {
            name: "iqn.2026-01.example:a".to_string(),
            secret: Some("twelve bytes".to_string()),
            target_secret: Some("other secret".to_string()),
            ..Initiator::default()
        };
        good.check().unwrap();
        let changes: [fn(&mut Initiator); 4] = [
            |one| one.name = "Host".to_string(),
            |one| one.secret = Some("short".to_string()),
            |one| one.secret = None,
            |one| one.target_secret = one.secret.clone(),
        ];
        for change in changes {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
