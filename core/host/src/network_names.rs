//! Names of machines on the network, and groups of them, as this machine knows them.
//!
//! The C library is asked, since only it knows where a machine has its names from: files, DNS, NIS,
//! LDAP (nsswitch.conf(5)). It may wait for a server.

use std::ffi::{CStr, CString};
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// The longest name of a machine, with its zero (`NI_MAXHOST`).
const NAME_BYTES: usize = 1025;

/// The name of the machine with this address; none where none is known.
#[doc(alias = "getnameinfo")]
#[allow(unsafe_code)]
pub fn machine_name(address: IpAddr) -> Option<String> {
    let mut name = [0; NAME_BYTES];
    let address = SocketAddr::from((address, 0));
    let length = libc::socklen_t::try_from(name.len()).expect("it is about a thousand");
    let ask = |socket: *const libc::sockaddr, size: usize, name: &mut [libc::c_char]| {
        let size = libc::socklen_t::try_from(size).expect("addresses have some bytes");
        // SAFETY: `socket` points to an address of `size` bytes, and the library writes at most
        // `length` bytes at `name`; both outlive the call. No name of a service is asked for.
        unsafe {
            let no_service = ptr::null_mut();
            libc::getnameinfo(
                socket,
                size,
                name.as_mut_ptr(),
                length,
                no_service,
                0,
                libc::NI_NAMEREQD,
            )
        }
    };
    let error = match address {
        SocketAddr::V4(address) => {
            let socket = libc::sockaddr_in {
                sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("it is small"),
                sin_port: 0,
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            ask(
                ptr::from_ref(&socket).cast(),
                size_of_val(&socket),
                &mut name,
            )
        }
        SocketAddr::V6(address) => {
            let socket = libc::sockaddr_in6 {
                sin6_family: libc::sa_family_t::try_from(libc::AF_INET6).expect("it is small"),
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: 0,
            };
            ask(
                ptr::from_ref(&socket).cast(),
                size_of_val(&socket),
                &mut name,
            )
        }
    };
    if error != 0 {
        return None;
    }
    name[NAME_BYTES - 1] = 0;
    // SAFETY: the bytes end with a zero, and outlive the reference.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    name.to_str().ok().map(str::to_string)
}

#[allow(unsafe_code)]
unsafe extern "C" {
    // `libc` does not declare it.
    fn innetgr(
        group: *const libc::c_char,
        machine: *const libc::c_char,
        user: *const libc::c_char,
        domain: *const libc::c_char,
    ) -> libc::c_int;
}

/// Whether a netgroup (netgroup(5)) has a machine of this name, whatever its users and domain.
#[doc(alias = "innetgr")]
#[allow(unsafe_code)]
pub fn is_in_netgroup(group: &str, machine: &str) -> bool {
    /// The library's search has state of its own (`getnetgrent`).
    static SEARCH: Mutex<()> = Mutex::new(());
    let (Ok(group), Ok(machine)) = (CString::new(group), CString::new(machine)) else {
        return false;
    };
    let _alone = SEARCH.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: both names end with a zero and outlive the call, which keeps neither; null stands for
    // any user and domain. No other call of this process searches meanwhile.
    unsafe { innetgr(group.as_ptr(), machine.as_ptr(), ptr::null(), ptr::null()) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_itself_has_a_name_and_no_group_has_an_unknown_one() {
        let name = machine_name([127, 0, 0, 1].into()).expect("hosts(5) has it");
        assert!(name.starts_with("localhost"), "{name}");
        assert!(!is_in_netgroup("no group of this name", "localhost"));
        assert!(!is_in_netgroup("a\0b", "localhost"));
    }
}
