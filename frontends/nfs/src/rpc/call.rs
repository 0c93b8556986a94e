//! The head of a call: which procedure of which program, and which user calls.

use crate::rpc::authentication::{
    AUTH_BYTES_MAX, AUTH_TLS, Caller, Rejected, caller_of, machine_of,
};
use crate::rpc::gss::RPCSEC_GSS;
use crate::xdr::{Malformed, Reader};

const CALL: u32 = 0;
/// The version of RPC.
pub const RPC_VERSION: u32 = 2;

/// The head of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallHead<'a> {
    /// The client's number for it, which the reply carries.
    pub xid: u32,
    /// The version of RPC.
    pub rpc_version: u32,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The kind of credentials.
    flavor: u32,
    credentials: &'a [u8],
    verifier_flavor: u32,
    verifier: &'a [u8],
    /// The record up to the verifier.
    signed_head: &'a [u8],
    /// What follows: the arguments, or a part of them.
    pub arguments: &'a [u8],
}

impl<'a> CallHead<'a> {
    /// Decodes the head of a record.
    ///
    /// # Errors
    /// It is no call, or so short that it cannot be answered.
    pub fn decode(record: &'a [u8]) -> Result<Result<CallHead<'a>, Unserved>, Malformed> {
        let mut reader = Reader::new(record);
        let (xid, kind) = (reader.u32()?, reader.u32()?);
        if kind != CALL {
            return Err(Malformed);
        }
        let rpc_version = reader.u32()?;
        if rpc_version != RPC_VERSION {
            return Ok(Err(Unserved::RpcVersion { xid }));
        }
        let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let flavor = reader.u32()?;
        let bad = |why| Unserved::Authentication { xid, why };
        let Ok(credentials) = reader.opaque(AUTH_BYTES_MAX) else {
            return Ok(Err(bad(Rejected::BadCredentials)));
        };
        let signed_head = &record[..record.len() - reader.rest().len()];
        let verifier_flavor = reader.u32();
        let verifier = reader.opaque(AUTH_BYTES_MAX);
        let (Ok(verifier_flavor), Ok(verifier)) = (verifier_flavor, verifier) else {
            return Ok(Err(bad(Rejected::BadVerifier)));
        };
        Ok(Ok(CallHead {
            xid,
            rpc_version,
            program,
            version,
            procedure,
            flavor,
            credentials,
            verifier_flavor,
            verifier,
            signed_head,
            arguments: reader.rest(),
        }))
    }

    /// A call with these arguments.
    #[cfg(test)]
    pub(crate) fn decode_for_tests(xid: u32, arguments: &'a [u8]) -> CallHead<'a> {
        CallHead {
            xid,
            rpc_version: RPC_VERSION,
            program: 0,
            version: 0,
            procedure: 0,
            flavor: 0,
            credentials: &[],
            verifier_flavor: 0,
            verifier: &[],
            signed_head: &[],
            arguments,
        }
    }

    /// Whether the client asks for TLS on this connection (RFC 9289, section 4.1), which it does
    /// by a procedure without arguments and effects.
    pub fn asks_for_tls(&self) -> bool {
        const NULL: u32 = 0;
        self.flavor == AUTH_TLS && self.procedure == NULL && self.credentials.is_empty()
    }

    /// The same call with the arguments that a context had protected.
    pub(crate) fn with_arguments<'b>(self, arguments: &'b [u8]) -> CallHead<'b>
    where
        'a: 'b,
    {
        CallHead { arguments, ..self }
    }

    /// Whether the user is known by a context of RPCSEC_GSS.
    pub(crate) fn is_gss(&self) -> bool {
        self.flavor == RPCSEC_GSS
    }

    /// The body of the credentials.
    pub(crate) fn credentials(&self) -> &'a [u8] {
        self.credentials
    }

    /// What a context of RPCSEC_GSS signs: the head, up to the verifier.
    pub(crate) fn signed_head(&self) -> &'a [u8] {
        self.signed_head
    }

    /// The signature of a context, if there is one.
    pub(crate) fn verifier(&self) -> Option<&'a [u8]> {
        (self.verifier_flavor == RPCSEC_GSS).then_some(self.verifier)
    }

    /// The name that the calling machine gives of itself, if it gives one.
    pub(crate) fn machine(&self) -> Option<String> {
        machine_of(self.flavor, self.credentials)
    }

    /// The user that calls.
    ///
    /// # Errors
    /// The credentials are refused.
    pub fn caller(&self) -> Result<Caller, Rejected> {
        caller_of(self.flavor, self.credentials)
    }
}

/// Why a call is denied, whatever it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// It is of another version of RPC.
    RpcVersion {
        /// The number of the call.
        xid: u32,
    },
    /// Its credentials or its verifier are refused.
    Authentication {
        /// The number of the call.
        xid: u32,
        /// Why.
        why: Rejected,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Writer;

    fn call(kind: u32, rpc_version: u32) -> Writer {
        let mut writer = Writer::new();
        writer.u32(9).u32(kind).u32(rpc_version);
        writer.u32(100_003).u32(3).u32(1);
        writer
    }

    #[test]
    fn a_call_is_taken_apart() {
        let mut writer = call(CALL, 2);
        writer.u32(0).opaque(&[]).u32(0).opaque(&[]).u32(5);
        let bytes = writer.into_bytes();
        let head = CallHead::decode(&bytes).unwrap().unwrap();
        assert_eq!((head.xid, head.program, head.version), (9, 100_003, 3));
        assert_eq!(head.procedure, 1);
        assert_eq!(head.arguments, [0, 0, 0, 5]);
        assert_eq!(head.caller(), Ok(Caller::Nobody));
    }

    #[test]
    fn what_cannot_be_answered_is_told_apart_from_what_is_denied() {
        assert_eq!(CallHead::decode(&[0; 7]), Err(Malformed));
        let reply = call(1, 2).into_bytes();
        assert_eq!(CallHead::decode(&reply), Err(Malformed));
        let other = call(CALL, 3).into_bytes();
        let denied = Ok(Err(Unserved::RpcVersion { xid: 9 }));
        assert_eq!(CallHead::decode(&other), denied);
        let mut long = call(CALL, 2);
        long.u32(1).opaque(&[0; 401]);
        let why = Rejected::BadCredentials;
        let denied = Ok(Err(Unserved::Authentication { xid: 9, why }));
        assert_eq!(CallHead::decode(long.as_slice()), denied);
    }
}
