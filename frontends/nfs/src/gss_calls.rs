//! Calls of RPCSEC_GSS: their users, what they ask for, and how their replies are protected
//! (RFC 2203, section 5).

use crate::gss_contexts::{Begun, GssContexts, Known};
use crate::rpc::authentication::{Caller, Rejected};
use crate::rpc::call::CallHead;
use crate::rpc::gss::{Control, GssCredential, RPCSEC_GSS, Seen, Service, WINDOW};
use crate::rpc::record::RECORD_BYTES_MAX;
use crate::rpc::reply::{Failure, Reply};
use crate::xdr::{Malformed, Reader, Writer};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use tarn_engine::gss::GssError;

/// Most bytes of a token: a ticket of a user in many groups.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// `GSS_S_COMPLETE`, `GSS_S_CONTINUE_NEEDED`, and `GSS_S_FAILURE`.
const COMPLETE: u32 = 0;
const CONTINUE_NEEDED: u32 = 1;
const FAILURE: u32 = 13 << 16;

/// What a call has come to.
pub(crate) enum Opened<'a> {
    /// It is about its context, or is refused: this is the reply.
    Reply(Reply),
    /// It was there before, and is dropped.
    Nothing,
    /// It is one of a program.
    Call(OpenedCall<'a>),
}

/// A call whose user is known.
pub(crate) struct OpenedCall<'a> {
    pub(crate) caller: Caller,
    pub(crate) service: Service,
    pub(crate) arguments: Cow<'a, [u8]>,
    pub(crate) seal: Seal,
}

/// What protects the reply to a call.
pub(crate) struct Seal {
    context: Arc<Known>,
    sequence: u32,
    service: Service,
}

impl GssContexts {
    /// Finds out which user a call is from, and what it asks for.
    pub(crate) fn open<'a>(&self, client: IpAddr, call: &CallHead<'a>) -> Opened<'a> {
        let refused = |why| Opened::Reply(Reply::not_authentic(call.xid, why));
        let Ok(credential) = GssCredential::decode(call.credentials()) else {
            return refused(Rejected::BadCredentials);
        };
        let is_null = call.procedure == 0;
        match credential.control {
            Control::Data => self.open_data(call, credential),
            _ if !is_null => refused(Rejected::BadCredentials),
            Control::Init | Control::ContinueInit => self.establish(client, call, credential),
            Control::Destroy => match self.check(call, credential) {
                Err(answer) => answer,
                Ok((context, _)) => {
                    self.end(&context);
                    let seal = Seal {
                        context,
                        sequence: credential.sequence,
                        service: Service::Authentication,
                    };
                    Opened::Reply(seal.seal(Reply::of(Reply::begin(call.xid))))
                }
            },
        }
    }

    /// Takes a token.
    fn establish<'a>(
        &self,
        client: IpAddr,
        call: &CallHead<'a>,
        credential: GssCredential<'_>,
    ) -> Opened<'a> {
        let mut arguments = Reader::new(call.arguments);
        let Ok(token) = arguments.opaque(TOKEN_BYTES_MAX) else {
            return Opened::Reply(Reply::failed(call.xid, Failure::GarbageArguments));
        };
        let refused = |why| Opened::Reply(Reply::not_authentic(call.xid, why));
        let begun = match credential.control {
            Control::Init => match self.begin(token) {
                Some(begun) => begun,
                None => return refused(Rejected::BadCredentials),
            },
            _ => match self.go_on(credential.handle, token) {
                Some(begun) => begun,
                None => return refused(Rejected::GssCredentials),
            },
        };
        Opened::Reply(match begun {
            Ok(begun) => established(call.xid, &begun),
            Err(error) => {
                self.tell_refusal(client, &error);
                let (major, minor, token) = match error {
                    GssError::Refused {
                        major,
                        minor,
                        token,
                        ..
                    } => (major, minor, token),
                    _ => (FAILURE, 0, Vec::new()),
                };
                let mut reply = Reply::begin(call.xid);
                reply.opaque(&[]).u32(major).u32(minor).u32(0);
                Reply::of({
                    reply.opaque(&token);
                    reply
                })
            }
        })
    }

    /// The context of a call, whose head it has signed, and the user.
    fn check<'a>(
        &self,
        call: &CallHead<'_>,
        credential: GssCredential<'_>,
    ) -> Result<(Arc<Known>, Caller), Opened<'a>> {
        let refused = |why| Opened::Reply(Reply::not_authentic(call.xid, why));
        let known = self.find(credential.handle);
        let known = known.ok_or_else(|| refused(Rejected::GssCredentials))?;
        let caller = known.caller().cloned();
        let caller = caller.ok_or_else(|| refused(Rejected::GssCredentials))?;
        let (head, verifier) = (call.signed_head(), call.verifier());
        let is_signed = verifier.is_some_and(|mic| known.peer.verify(head, mic).is_ok());
        if !is_signed {
            return Err(refused(Rejected::GssCredentials));
        }
        match known.note(credential.sequence) {
            Seen::New => Ok((known, caller)),
            Seen::Old => Err(Opened::Nothing),
            Seen::UsedUp => Err(refused(Rejected::GssContext)),
        }
    }

    fn open_data<'a>(&self, call: &CallHead<'a>, credential: GssCredential<'_>) -> Opened<'a> {
        let (context, caller) = match self.check(call, credential) {
            Ok(checked) => checked,
            Err(answer) => return answer,
        };
        let seal = Seal {
            context,
            sequence: credential.sequence,
            service: credential.service,
        };
        match seal.arguments(call.arguments) {
            Ok(arguments) => Opened::Call(OpenedCall {
                caller,
                service: credential.service,
                arguments,
                seal,
            }),
            Err(Malformed) => {
                let failed = Reply::failed(call.xid, Failure::GarbageArguments);
                Opened::Reply(seal.seal(failed))
            }
        }
    }
}

/// The reply to a token that was taken.
fn established(xid: u32, begun: &Begun) -> Reply {
    let mut result = Writer::new();
    let major = match begun.is_complete {
        true => COMPLETE,
        false => CONTINUE_NEEDED,
    };
    result.opaque(begun.context.handle()).u32(major).u32(0);
    result.u32(WINDOW).opaque(&begun.token);
    let mut reply = match begun.is_complete {
        false => Reply::begin(xid),
        true => match begun.context.peer.mic(&WINDOW.to_be_bytes()) {
            Ok(mic) => Reply::begin_with(xid, RPCSEC_GSS, &mic),
            Err(_) => return Reply::not_authentic(xid, Rejected::GssContext),
        },
    };
    reply.fixed(result.as_slice());
    Reply::of(reply)
}

impl Seal {
    /// What a call asks for, out of what its service has put around it.
    fn arguments<'a>(&self, body: &'a [u8]) -> Result<Cow<'a, [u8]>, Malformed> {
        let mut reader = Reader::new(body);
        let peer = &self.context.peer;
        let signed: Cow<'a, [u8]> = match self.service {
            Service::Authentication => return Ok(Cow::Borrowed(body)),
            Service::Integrity => {
                let signed = reader.opaque(RECORD_BYTES_MAX)?;
                let mic = reader.opaque(RECORD_BYTES_MAX)?;
                peer.verify(signed, mic).map_err(|_| Malformed)?;
                Cow::Borrowed(signed)
            }
            Service::Privacy => {
                let wrapped = reader.opaque(RECORD_BYTES_MAX)?;
                Cow::Owned(peer.unwrap(wrapped).map_err(|_| Malformed)?)
            }
        };
        let (number, _) = signed.split_first_chunk().ok_or(Malformed)?;
        if u32::from_be_bytes(*number) != self.sequence {
            return Err(Malformed);
        }
        Ok(match signed {
            Cow::Borrowed(signed) => Cow::Borrowed(&signed[4..]),
            Cow::Owned(mut signed) => {
                signed.drain(..4);
                Cow::Owned(signed)
            }
        })
    }

    /// A reply with its verifier, and its result protected.
    pub(crate) fn seal(&self, reply: Reply) -> Reply {
        let xid = reply.xid();
        let protected = self.protect(reply);
        // The context has expired since the call came.
        protected.unwrap_or_else(|_| Reply::not_authentic(xid, Rejected::GssContext))
    }

    fn protect(&self, reply: Reply) -> Result<Reply, GssError> {
        if !reply.is_accepted() {
            return Ok(reply);
        }
        let peer = &self.context.peer;
        let verifier = peer.mic(&self.sequence.to_be_bytes())?;
        if self.service == Service::Authentication || !reply.has_result() {
            return Ok(reply.with_verifier(RPCSEC_GSS, &verifier));
        }
        let number = self.sequence.to_be_bytes();
        let result = reply.result_parts();
        let parts = std::iter::once(&number[..]).chain(result);
        let body = parts.collect::<Vec<_>>().concat();
        let mut sealed = Reply::begin_with(reply.xid(), RPCSEC_GSS, &verifier);
        match self.service {
            Service::Privacy => sealed.opaque(&peer.wrap(&body)?),
            _ => sealed.opaque(&body).opaque(&peer.mic(&body)?),
        };
        Ok(Reply::of(sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{Calls, Served};
    use crate::client_numbers::Client;
    use crate::gss_contexts::{CONTEXTS_MAX, Mechanism, PeerContext, UNFINISHED_MAX};
    use tarn_engine::gss::Initiator;
    use tarn_tls::Peer;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    /// In place of Kerberos: a token is the seconds of a context's life, and `+` asks for another.
    struct Fake;

    /// Signs by a hash with a key, and encrypts by turning all bits.
    struct FakeContext;

    fn refused() -> GssError {
        GssError::Refused {
            major: 9 << 16,
            minor: 7,
            words: "no token".to_string(),
            token: b"why".to_vec(),
        }
    }

    fn signature(message: &[u8]) -> Vec<u8> {
        xxh3_64_with_seed(message, 77).to_be_bytes().to_vec()
    }

    fn turned(message: &[u8]) -> Vec<u8> {
        message.iter().map(|byte| !byte).collect()
    }

    impl Mechanism for Fake {
        fn begin(&self) -> Result<Box<dyn PeerContext>, GssError> {
            Ok(Box::new(FakeContext))
        }
    }

    impl PeerContext for FakeContext {
        fn accept(&self, token: &[u8]) -> Result<(Vec<u8>, Option<Initiator>), GssError> {
            if token == b"+" {
                return Ok((b"more".to_vec(), None));
            }
            let lifetime_s = std::str::from_utf8(token).ok();
            let lifetime_s = lifetime_s.and_then(|text| text.parse().ok());
            let initiator = Initiator {
                principal: "root@TEST".to_string(),
                account: Some("root".to_string()),
                lifetime_s: lifetime_s.ok_or_else(refused)?,
            };
            Ok((b"done".to_vec(), Some(initiator)))
        }

        fn mic(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
            Ok(signature(message))
        }

        fn verify(&self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
            match signature(message) == mic {
                true => Ok(()),
                false => Err(refused()),
            }
        }

        fn wrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
            Ok(turned(&[message, &signature(message)].concat()))
        }

        fn unwrap(&self, wrapped: &[u8]) -> Result<Vec<u8>, GssError> {
            let whole = turned(wrapped);
            let (message, mic) = whole.split_last_chunk::<8>().ok_or_else(refused)?;
            self.verify(message, mic)?;
            Ok(message.to_vec())
        }
    }

    struct Bench {
        calls: Calls,
        client: Client,
    }

    /// What a reply is: `Err` has the number by which it is denied.
    type Answer = Option<Result<(u32, Vec<u8>), u32>>;

    impl Bench {
        fn new() -> Bench {
            let calls = Calls::new(None, crate::LEASE, None);
            calls.gss.use_mechanism(Box::new(Fake));
            Bench {
                calls,
                client: Client::at("127.0.0.1:700".parse().unwrap()),
            }
        }

        fn serve(&self, record: &[u8]) -> Answer {
            let served = self.calls.serve(&self.client, (Peer::Plain, None), record);
            let Served::Reply(reply) = served else {
                assert!(matches!(served, Served::Nothing | Served::NoCall));
                return None;
            };
            let bytes = reply.parts().concat();
            let mut reader = Reader::new(&bytes[12..]);
            if reader.u32().unwrap() == 1 {
                let _kind = reader.u32().unwrap();
                return Some(Err(reader.u32().unwrap()));
            }
            let (_, _) = (reader.u32().unwrap(), reader.opaque(400).unwrap());
            Some(Ok((reader.u32().unwrap(), reader.rest().to_vec())))
        }

        /// A new context's handle, and how far it is.
        fn begin(&self, token: &[u8]) -> (Vec<u8>, u32) {
            let mut arguments = Writer::new();
            arguments.opaque(token);
            let record = call((1, 0, 1), b"", 0, arguments.as_slice(), false);
            let Some(Ok((0, result))) = self.serve(&record) else {
                panic!("it is not accepted");
            };
            let mut reader = Reader::new(&result);
            let handle = reader.opaque(100).unwrap().to_vec();
            (handle, reader.u32().unwrap())
        }
    }

    /// A call of NFS version 3, signed where it is in a context.
    fn call(
        (control, sequence, service): (u32, u32, u32),
        handle: &[u8],
        procedure: u32,
        body: &[u8],
        is_signed: bool,
    ) -> Vec<u8> {
        let mut credential = Writer::new();
        credential.u32(1).u32(control).u32(sequence).u32(service);
        credential.opaque(handle);
        let mut record = Writer::new();
        record
            .u32(5)
            .u32(0)
            .u32(2)
            .u32(100_003)
            .u32(3)
            .u32(procedure);
        record.u32(RPCSEC_GSS).opaque(credential.as_slice());
        match is_signed {
            true => {
                let mic = signature(record.as_slice());
                record.u32(RPCSEC_GSS).opaque(&mic);
            }
            false => drop(record.u32(0).u32(0)),
        }
        record.fixed(body);
        record.into_bytes()
    }

    /// Arguments with their number, as a service protects them.
    fn protected(sequence: u32, service: u32, arguments: &[u8]) -> Vec<u8> {
        let plain = [&sequence.to_be_bytes()[..], arguments].concat();
        let mut body = Writer::new();
        match service {
            1 => return arguments.to_vec(),
            2 => body.opaque(&plain).opaque(&signature(&plain)),
            _ => body.opaque(&FakeContext.wrap(&plain).unwrap()),
        };
        body.into_bytes()
    }

    /// `GETATTR` of a handle that is none.
    fn getattr() -> Writer {
        let mut arguments = Writer::new();
        arguments.opaque(&[9; 12]);
        arguments
    }

    #[test]
    fn results_are_protected_as_their_calls_were() {
        let bench = Bench::new();
        let (handle, major) = bench.begin(b"60");
        assert_eq!(major, COMPLETE);
        for service in 1..=3 {
            let body = protected(service, service, getattr().as_slice());
            let record = call((0, service, service), &handle, 1, &body, true);
            let Some(Ok((0, result))) = bench.serve(&record) else {
                panic!("service {service}");
            };
            let mut reader = Reader::new(&result);
            let result = match service {
                1 => result.clone(),
                2 => {
                    let signed = reader.opaque(1000).unwrap();
                    assert_eq!(reader.opaque(8).unwrap(), signature(signed));
                    signed[4..].to_vec()
                }
                _ => FakeContext.unwrap(reader.opaque(1000).unwrap()).unwrap()[4..].to_vec(),
            };
            let bad_handle = 10_001_u32.to_be_bytes();
            assert_eq!(result, bad_handle, "service {service}");
            assert_eq!(bench.serve(&record), None, "it was there before");
        }
    }

    #[test]
    fn each_damaged_byte_of_a_call_is_found() {
        let bench = Bench::new();
        let (handle, _) = bench.begin(b"60");
        for service in 2..=3_u32 {
            let mut sequence = service * 10_000;
            let length = call((0, 1, service), &handle, 1, &[], true).len();
            let body = protected(sequence, service, getattr().as_slice());
            for at in 0..length + body.len() {
                sequence += 1;
                let body = protected(sequence, service, getattr().as_slice());
                let mut record = call((0, sequence, service), &handle, 1, &body, true);
                record[at] ^= 4;
                let answer = bench.serve(&record);
                let is_good = matches!(answer, Some(Ok((0, _))));
                assert!(!is_good, "service {service}, byte {at}: {answer:?}");
            }
        }
    }

    #[test]
    fn a_context_ends_with_its_ticket_or_when_its_client_says_so() {
        let bench = Bench::new();
        let problem = Some(Err(Rejected::GssCredentials.number()));
        let (late, _) = bench.begin(b"0");
        let ask = |handle: &[u8], control, sequence| {
            bench.serve(&call((control, sequence, 1), handle, 0, &[], true))
        };
        assert_eq!(ask(&late, 0, 1), problem);
        let (handle, _) = bench.begin(b"60");
        assert_eq!(ask(&handle, 0, 1), Some(Ok((0, Vec::new()))));
        let used_up = Some(Err(Rejected::GssContext.number()));
        assert_eq!(ask(&handle, 0, 1 << 31), used_up);
        assert_eq!(ask(&handle, 3, 2), Some(Ok((0, Vec::new()))));
        assert_eq!(ask(&handle, 0, 3), problem);
        let unsigned = call((0, 4, 1), &handle, 0, &[], false);
        assert_eq!(bench.serve(&unsigned), problem);
        assert_eq!(ask(b"short", 0, 1), problem);
        assert_eq!(bench.begin(b"nonsense"), (Vec::new(), 9 << 16));
    }

    #[test]
    fn contexts_are_bounded_and_tokens_alone_take_the_place_of_none() {
        let bench = Bench::new();
        let is_there = |handle: &[u8], sequence| {
            let answer = bench.serve(&call((0, sequence, 1), handle, 0, &[], true));
            matches!(answer, Some(Ok(_)))
        };
        let (first, _) = bench.begin(b"60");
        let (unfinished, major) = bench.begin(b"+");
        assert_eq!(major, CONTINUE_NEEDED);
        assert!(!is_there(&unfinished, 1), "its user is not known");
        for _ in 0..10 * UNFINISHED_MAX {
            bench.begin(b"+");
            bench.begin(b"nonsense");
        }
        assert!(is_there(&first, 1));
        assert!(bench.calls.gss.find(&unfinished).is_none());
        let (second, _) = bench.begin(b"60");
        for _ in 0..CONTEXTS_MAX - 1 {
            bench.begin(b"60");
        }
        assert!(!is_there(&first, 2), "it was used longest ago");
        assert!(is_there(&second, 1));
    }
}
