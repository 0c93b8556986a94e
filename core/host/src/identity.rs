//! Which host this is: its name and the id that pools remember their last host by.

/// The name and id of a host. Two instances with different ones are two hosts, even on one machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostIdentity {
    /// The host's name.
    pub hostname: String,
    /// The host's id; 0 if it has none.
    pub hostid: u32,
}

impl HostIdentity {
    /// The machine's own.
    pub(crate) fn of_machine() -> HostIdentity {
        let system = rustix::system::uname();
        let hostname = system.nodename().to_string_lossy().into_owned();
        HostIdentity {
            hostname,
            hostid: machine_hostid(),
        }
    }
}

/// The effective user of this process: 0 for root.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// As OpenZFS finds it: what its module was told, or the file that the C library reads, which has
/// the id in the machine's byte order.
fn machine_hostid() -> u32 {
    let told = std::fs::read_to_string("/sys/module/spl/parameters/spl_hostid");
    let told = told
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    if told != 0 {
        return told;
    }
    let file = std::fs::read("/etc/hostid").unwrap_or_default();
    match file.first_chunk::<4>() {
        Some(bytes) => u32::from_ne_bytes(*bytes),
        None => library_hostid(),
    }
}

/// What the C library makes up from the machine's address where there is no file.
#[allow(unsafe_code)]
fn library_hostid() -> u32 {
    // SAFETY: `gethostid` has no arguments and no state of ours.
    let id = unsafe { libc::gethostid() };
    u32::try_from(id & 0xffff_ffff).expect("masked to 32 bits")
}

/// Reads an id as `hostid` prints it: hexadecimal, with or without `0x`.
pub(crate) fn parse_hostid(text: &str) -> Option<u32> {
    let digits = text.trim();
    let digits = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
        .unwrap_or(digits);
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostid_is_read_as_hostid_prints_it() {
        assert_eq!(parse_hostid("00bab10c"), Some(0x00ba_b10c));
        assert_eq!(parse_hostid("0xDEADBEEF\n"), Some(0xdead_beef));
        assert_eq!(parse_hostid("tank"), None);
        assert_eq!(parse_hostid("123456789"), None);
    }
}
