//! The words of `-o`: options of one mount, which stand above the properties as long as it is mounted.
//!
//! The words are those that OpenZFS knows. Each has its effect, or means what is so anyway; every other one is refused, so that nobody
//! believes in an option that does nothing.

use crate::mounts::MountOptions;
use serde::{Deserialize, Serialize};

/// The word that gives up what an intent log has that cannot be applied again.
pub(crate) const DISCARD_LOG: &str = "discardlog";

/// Words for mount(8) and its tables, and words that say what is so anyway. Times are written late in any case (`lazytime`), and the number of
/// changes that `iversion` counts for NFS is not promised without it.
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

/// A word that no mount of ours can follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnknownOption(pub(crate) String);

/// Whether a word of `-o` is known.
pub fn is_known(word: &str) -> bool {
    Words::parse(&[word.to_string()]).is_ok()
}

/// What `-o` asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// What stands above the properties.
    pub(crate) temporary: TemporaryOptions,
    /// `remount`: what is mounted gets these options.
    pub(crate) remounts: bool,
}

impl Words {
    /// Takes words apart. Of two that contradict each other the last counts.
    ///
    /// # Errors
    /// The first word that is not known.
    pub(crate) fn parse(words: &[String]) -> Result<Words, UnknownOption> {
        let mut parsed = Words::default();
        for word in words.iter().flat_map(|words| words.split(',')) {
            let is_known = match word {
                "remount" => {
                    parsed.remounts = true;
                    true
                }
                // Said by `zfs mount` to the mount helper.
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

/// Options of one mount that stand above the properties; none where the property counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TemporaryOptions {
    pub(crate) read_only: Option<bool>,
    pub(crate) devices: Option<bool>,
    pub(crate) exec: Option<bool>,
    pub(crate) setuid: Option<bool>,
    pub(crate) atime: Option<bool>,
    pub(crate) relatime: Option<bool>,
    pub(crate) xattr: Option<bool>,
    /// POSIX access lists are enforced and shown, or not.
    pub(crate) posix_acl: Option<bool>,
    /// Everything is durable before a call returns.
    pub(crate) is_synchronous: bool,
    /// Reading directories leaves their access times.
    pub(crate) keeps_directory_times: bool,
    /// What the intent log has that cannot be applied again is given up. For this mount only, so no property.
    pub(crate) discards_log: bool,
}

impl TemporaryOptions {
    /// Follows one word. False when it is not about this.
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
            // Whom mount(8) lets mount it gets no programs and no devices of root by it.
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

    /// A mount without set-id programs, or without devices, stays so whatever this property says now.
    pub(crate) fn keep_harmless(&mut self, property: &str, options: MountOptions) {
        match property {
            "setuid" if !options.setuid => self.setuid = Some(false),
            "devices" if !options.devices => self.devices = Some(false),
            _ => {}
        }
    }

    /// This property counts again.
    pub(crate) fn forget(&mut self, property: &str) {
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

    /// The properties that they override, each with its word.
    pub(crate) fn overridden(&self) -> Vec<(&'static str, &'static str)> {
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
        // Where attributes are kept is not said by the option.
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
