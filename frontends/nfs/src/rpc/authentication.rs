//! The user that calls: `AUTH_NONE` and `AUTH_SYS` (RFC 5531, appendix A).

use crate::xdr::{Malformed, Reader};

/// Most bytes of credentials, and of a verifier.
pub const AUTH_BYTES_MAX: usize = 400;
/// Most groups in `AUTH_SYS`.
const GROUPS_MAX: u32 = 16;
/// Most bytes of a machine's name.
const NAME_BYTES_MAX: usize = 255;

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// The client asks whether the server has TLS (RFC 9289, section 4.1).
pub const AUTH_TLS: u32 = 7;

/// The credentials of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// `AUTH_NONE`: no user.
    Nobody,
    /// `AUTH_SYS`: the client says which user it is.
    System(SystemUser),
}

/// The user that a client names with `AUTH_SYS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemUser {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Other groups; a client names 16 at most.
    pub groups: Vec<u32>,
    /// These are all: a client names 16 of a user that has more.
    pub has_all_groups: bool,
}

/// Why credentials are not taken: an `auth_stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// They cannot be decoded, or are of a kind that is not served.
    BadCredentials,
    /// The verifier cannot be decoded.
    BadVerifier,
    /// RPCSEC_GSS: the context is not known, has expired, or has not signed the call.
    GssCredentials,
    /// RPCSEC_GSS: the context is used up.
    GssContext,
}

impl Rejected {
    /// The number in the reply.
    pub fn number(self) -> u32 {
        match self {
            Rejected::BadCredentials => 1,
            Rejected::BadVerifier => 3,
            Rejected::GssCredentials => 13,
            Rejected::GssContext => 14,
        }
    }
}

/// Decodes credentials of this flavour.
///
/// # Errors
/// They are refused.
pub fn caller_of(flavor: u32, body: &[u8]) -> Result<Caller, Rejected> {
    match flavor {
        AUTH_NONE => Ok(Caller::Nobody),
        AUTH_SYS => system_user(body)
            .map(Caller::System)
            .map_err(|Malformed| Rejected::BadCredentials),
        _ => Err(Rejected::BadCredentials),
    }
}

/// The name that the machine gives of itself with `AUTH_SYS`: printable text, or none.
pub fn machine_of(flavor: u32, body: &[u8]) -> Option<String> {
    if flavor != AUTH_SYS {
        return None;
    }
    let mut reader = Reader::new(body);
    let _stamp = reader.u32().ok()?;
    let name = reader.opaque(NAME_BYTES_MAX).ok()?;
    let name = std::str::from_utf8(name).ok()?;
    let is_printable = !name.is_empty() && !name.chars().any(char::is_control);
    is_printable.then(|| name.to_owned())
}

fn system_user(body: &[u8]) -> Result<SystemUser, Malformed> {
    let mut reader = Reader::new(body);
    let _stamp = reader.u32()?;
    let _machine = reader.opaque(NAME_BYTES_MAX)?;
    let (uid, gid) = (reader.u32()?, reader.u32()?);
    let count = reader.u32()?;
    if count > GROUPS_MAX {
        return Err(Malformed);
    }
    let groups = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
    Ok(SystemUser {
        uid,
        gid,
        groups,
        has_all_groups: count < GROUPS_MAX,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Writer;

    fn system(groups: u32) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u32(1).opaque(b"host").u32(1000).u32(100).u32(groups);
        for group in 0..groups {
            writer.u32(group);
        }
        writer.into_bytes()
    }

    #[test]
    fn a_user_has_up_to_sixteen_groups() {
        let Ok(Caller::System(user)) = caller_of(AUTH_SYS, &system(3)) else {
            panic!("it is refused");
        };
        assert_eq!((user.uid, user.gid, user.groups.len()), (1000, 100, 3));
        assert!(user.has_all_groups);
        let Ok(Caller::System(user)) = caller_of(AUTH_SYS, &system(16)) else {
            panic!("it is refused");
        };
        assert!(!user.has_all_groups);
        let refused = Err(Rejected::BadCredentials);
        assert_eq!(caller_of(AUTH_SYS, &system(17)), refused);
        assert_eq!(caller_of(AUTH_SYS, &system(3)[..20]), refused);
        assert_eq!(caller_of(5, &[]), refused, "no such kind is served");
        assert_eq!(caller_of(AUTH_NONE, &[]), Ok(Caller::Nobody));
        let machine = machine_of(AUTH_SYS, &system(3));
        assert_eq!(machine.as_deref(), Some("host"));
        assert_eq!(machine_of(AUTH_SYS, &system(3)[..9]), None);
        assert_eq!(machine_of(AUTH_NONE, &system(3)), None);
        let mut nonsense = Writer::new();
        nonsense.u32(1).opaque(b"a\nb");
        assert_eq!(machine_of(AUTH_SYS, nonsense.as_slice()), None);
    }
}
