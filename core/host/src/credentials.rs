//! The groups of a client: of the process at the other end of a socket, or of a process by its id.

use std::os::fd::{AsFd, AsRawFd};

/// The most groups that a process has on Linux (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;
/// What is asked for first.
const GROUPS: usize = 64;

/// The groups, beside its own, that the process at the other end of a Unix socket had when it
/// connected. None where the system does not say.
#[doc(alias = "SO_PEERGROUPS")]
#[allow(unsafe_code)]
pub fn groups_of_peer(socket: impl AsFd) -> Vec<u32> {
    let file = socket.as_fd().as_raw_fd();
    let mut groups = vec![0_u32; GROUPS];
    loop {
        let bytes = std::mem::size_of_val(groups.as_slice());
        let Ok(mut length) = libc::socklen_t::try_from(bytes) else {
            return Vec::new();
        };
        // SAFETY: the descriptor is borrowed, so it is open; the kernel writes at most `length`
        // bytes into `groups`, which has them, and says in `length` how many there are. Any bytes
        // are numbers.
        let error = unsafe {
            libc::getsockopt(
                file,
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut length,
            )
        };
        let count = usize::try_from(length).unwrap_or(0) / size_of::<u32>();
        match error {
            0 => {
                groups.truncate(count);
                return groups;
            }
            _ if count > groups.len() && count <= GROUPS_MAX => groups.resize(count, 0),
            _ => return Vec::new(),
        }
    }
}

/// The user and groups that a process acts with on files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The other groups.
    pub groups: Vec<u32>,
}

/// The user and groups of a process that waits for an answer. `None` where it cannot be seen from
/// here, as from another namespace of processes.
pub fn actor_of_process(pid: u32) -> Option<Actor> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    actor_in(&status)
}

/// What `/proc/PID/status` says: `Uid:` and `Gid:` have the real, effective, saved and file
/// system's.
fn actor_in(status: &str) -> Option<Actor> {
    Some(Actor {
        uid: *numbers_in(status, "Uid:").get(3)?,
        gid: *numbers_in(status, "Gid:").get(3)?,
        groups: numbers_in(status, "Groups:"),
    })
}

/// The numbers of a line of `/proc/PID/status`.
fn numbers_in(status: &str, key: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let words = line.unwrap_or_default().split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The groups, beside its own, of a process that waits for an answer of ours, if it acts for this
/// user.
pub fn groups_of_process(pid: u32, uid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or_else(|_| Vec::new(), |status| groups_in(&status, uid))
}

/// Its groups, if it acts for this user.
fn groups_in(status: &str, uid: u32) -> Vec<u32> {
    match actor_in(status) {
        Some(actor) if actor.uid == uid => actor.groups,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_process_has_the_groups_that_the_system_says() {
        let status = "Name:\tcat\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\n\
                      Groups:\t27 100 1000 \nNStgid:\t5\n";
        assert_eq!(groups_in(status, 1000), [27, 100, 1000]);
        assert_eq!(groups_in(status, 0), Vec::<u32>::new());
        let actor = actor_in(status).unwrap();
        assert_eq!(
            (actor.uid, actor.gid, actor.groups),
            (1000, 100, vec![27, 100, 1000])
        );
        assert_eq!(actor_in(""), None);
        assert_eq!(groups_in("", 0), Vec::<u32>::new());
    }

    #[test]
    fn a_peer_of_this_process_has_its_groups() {
        let own = rustix::process::getgroups().unwrap();
        let mut own: Vec<u32> = own.into_iter().map(|gid| gid.as_raw()).collect();
        own.sort_unstable();
        let (one, _other) = UnixStream::pair().unwrap();
        let mut groups = groups_of_peer(&one);
        groups.sort_unstable();
        assert_eq!(groups, own);
        let uid = rustix::process::geteuid().as_raw();
        let mut groups = groups_of_process(std::process::id(), uid);
        groups.sort_unstable();
        assert_eq!(groups, own);
    }
}
