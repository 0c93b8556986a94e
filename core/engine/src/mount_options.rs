//! The words of `-o`: options of one mount, which override properties while it is mounted.
//!
//! OpenZFS's words are known. Each has its effect, or names what is so anyway; every other word is
//! refused, so that no option is silently ignored.

use crate::mounts::MountOptions;
use serde::{Deserialize, Serialize};

/// The word that discards intent log records that cannot be replayed.
pub(crate) const DISCARD_LOG: &str = "discardlog";

/// Words for mount(8) and its tables, and words that change nothing here. Times are written late in
/// any case (`lazytime`), and the counter of `iversion` for NFS is not promised without it.
const OF_OTHERS: [&str; 14] = [
    "",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "async",
    "diratime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "noiversion",
    "quiet",
    "nomand",
];

/// A word of `-o` that is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownOption(pub(crate) String);

/// Whether a word of `-o` is known.
pub fn is_known(word: &str) -> bool {
    Words::parse(&[word.to_string()]).is_ok()
}

/// The options that `-o` gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Words {
    /// Options that override properties.
    pub(crate) temporary: TemporaryOptions,
    /// `remount`: the existing mount gets these options.
    pub(crate) remounts: bool,
}

impl Words {
    /// Parses the words. Of two that contradict each other the last counts.
    ///
    /// # Errors
    /// The first unknown word.
    pub fn parse(words: &[String]) -> Result<Words, UnknownOption> {
        let mut parsed = Words::default();
        for word in words.iter().flat_map(|words| words.split(',')) {
            let is_known = match word {
                "remount" => {
                    parsed.remounts = true;
                    true
                }
                // `zfs mount` passes it to the mount helper.
                "zfsutil" => true,
                word => {
                    parsed.temporary.set(word)
                        || OF_OTHERS.contains(&word)
                        || word.starts_with("comment=")
                }
            };
            if !is_known {
                return Err(UnknownOption(word.to_string()));
            }
        }
        Ok(parsed)
    }
}

/// Options of one mount that override properties; none where the property counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemporaryOptions {
    pub(crate) read_only: Option<bool>,
    pub(crate) devices: Option<bool>,
    pub(crate) exec: Option<bool>,
    pub(crate) setuid: Option<bool>,
    pub(crate) atime: Option<bool>,
    pub(crate) relatime: Option<bool>,
    pub(crate) xattr: Option<bool>,
    /// Whether POSIX ACLs are enforced and shown.
    pub(crate) posix_acl: Option<bool>,
    /// `sync`: every change is durable before its call returns.
    pub(crate) is_synchronous: bool,
    /// `nodiratime`: reading a directory does not change its access time.
    pub(crate) keeps_directory_times: bool,
    /// Intent log records that cannot be replayed are discarded. It is no property, as it concerns
    /// one mount only.
    pub(crate) discards_log: bool,
}

impl TemporaryOptions {
    /// Applies one word. False when the word is not one of these options.
    fn set(&mut self, word: &str) -> bool {
        match word {
            "ro" => self.read_only = Some(true),
            "rw" => self.read_only = Some(false),
            "dev" => self.devices = Some(true),
            "nodev" => self.devices = Some(false),
            "exec" => self.exec = Some(true),
            "noexec" => self.exec = Some(false),
            "suid" | "setuid" => self.setuid = Some(true),
            "nosuid" | "nosetuid" => self.setuid = Some(false),
            "atime" => self.atime = Some(true),
            "noatime" => self.atime = Some(false),
            "relatime" => self.relatime = Some(true),
            "norelatime" => self.relatime = Some(false),
            "strictatime" => (self.atime, self.relatime) = (Some(true), Some(false)),
            "nodiratime" => self.keeps_directory_times = true,
            "xattr" => self.xattr = Some(true),
            "noxattr" => self.xattr = Some(false),
            "acl" | "posixacl" => self.posix_acl = Some(true),
            "noacl" => self.posix_acl = Some(false),
            "sync" | "dirsync" => self.is_synchronous = true,
            // mount(8) may mount for a user with `owner` or `group`: no set-id programs, no devices
            // of root.
            "owner" | "group" => self.make_harmless(),
            "user" | "users" => {
                self.make_harmless();
                self.exec = Some(false);
            }
            DISCARD_LOG => self.discards_log = true,
            _ => return false,
        }
        true
    }

    fn make_harmless(&mut self) {
        (self.setuid, self.devices) = (Some(false), Some(false));
    }

    /// Keeps `nosuid` and `nodev` of a mount when this property is set to something else.
    pub fn keep_harmless(&mut self, property: &str, options: MountOptions) {
        match property {
            "setuid" if !options.setuid => self.setuid = Some(false),
            "devices" if !options.devices => self.devices = Some(false),
            _ => {}
        }
    }

    /// This property overrides the option again.
    pub fn forget(&mut self, property: &str) {
        let option = match property {
            "readonly" => &mut self.read_only,
            "devices" => &mut self.devices,
            "exec" => &mut self.exec,
            "setuid" => &mut self.setuid,
            "atime" => &mut self.atime,
            "relatime" => &mut self.relatime,
            "xattr" => &mut self.xattr,
            "acltype" => &mut self.posix_acl,
            "sync" => {
                self.is_synchronous = false;
                return;
            }
            _ => return,
        };
        *option = None;
    }

    /// The overridden properties, each with the option's value.
    pub fn overridden(&self) -> Vec<(&'static str, &'static str)> {
        let word = |value: bool| if value { "on" } else { "off" };
        let mut overridden: Vec<(&str, &str)> = [
            ("readonly", self.read_only),
            ("devices", self.devices),
            ("exec", self.exec),
            ("setuid", self.setuid),
            ("atime", self.atime),
            ("relatime", self.relatime),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, word(value?))))
        .collect();
        // The option does not say where extended attributes are kept.
        overridden.extend(self.xattr.filter(|on| !on).map(|_| ("xattr", "off")));
        let acl = |is_on| ("acltype", if is_on { "posix" } else { "off" });
        overridden.extend(self.posix_acl.map(acl));
        overridden.extend(self.is_synchronous.then_some(("sync", "always")));
        overridden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Words, UnknownOption> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        Words::parse(&words)
    }

    #[test]
    fn words_of_a_mount_override_properties() {
        let options = parsed(&["ro,noexec", "atime"]).unwrap().temporary;
        assert!(!options.discards_log);
        assert!(parsed(&[DISCARD_LOG]).unwrap().temporary.discards_log);
        let expected = [("readonly", "on"), ("exec", "off"), ("atime", "on")];
        assert_eq!(options.overridden(), expected);
        let mut options = options;
        options.forget("readonly");
        assert_eq!(options.overridden(), expected[1..]);
    }

    #[test]
    fn words_that_have_no_effect_are_refused_and_those_of_mount_are_not() {
        let unknown = |word: &str| Err(UnknownOption(word.to_string()));
        for word in [
            "nosuchoption",
            "ro=1",
            "context=a",
            "mand",
            "bind",
            "casemixed",
        ] {
            assert_eq!(parsed(&["ro", word]), unknown(word));
        }
        for words in ["defaults,noauto,nofail", "comment=of mine", "_netdev", ""] {
            assert_eq!(parsed(&[words]), Ok(Words::default()), "{words}");
        }
    }

    #[test]
    fn words_that_mean_several_things_mean_all_of_them() {
        let overridden = |words: &str| parsed(&[words]).unwrap().temporary.overridden();
        let strict = [("atime", "on"), ("relatime", "off")];
        assert_eq!(overridden("noatime,strictatime"), strict);
        let harmless = [("devices", "off"), ("exec", "off"), ("setuid", "off")];
        assert_eq!(overridden("user"), harmless);
        assert_eq!(overridden("user,exec,suid,dev").len(), 3);
        let stored = [("acltype", "posix"), ("sync", "always")];
        assert_eq!(overridden("posixacl,sync"), stored);
        assert!(parsed(&["remount,noatime"]).unwrap().remounts);
    }
}
