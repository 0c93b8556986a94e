//! Credentials of RPCSEC_GSS (RFC 2203, section 5), and the numbers of a context that were seen.

use crate::rpc::authentication::AUTH_BYTES_MAX;
use crate::xdr::{Malformed, Reader};

/// The kind of credentials and verifiers.
pub const RPCSEC_GSS: u32 = 6;

/// The version of RPCSEC_GSS.
const VERSION: u32 = 1;

/// Higher numbers of calls end a context (RFC 2203, section 5.3.3.1).
const SEQUENCE_MAX: u32 = 0x8000_0000;

/// How many calls of a context may be under way: as many numbers below the highest are told apart.
pub const WINDOW: u32 = 256;

/// How much of a call and its reply is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// The head alone is signed.
    Authentication,
    /// Arguments and results are signed.
    Integrity,
    /// Arguments and results are encrypted.
    Privacy,
}

impl Service {
    /// Its number (`rpc_gss_service_t`).
    pub(crate) fn number(self) -> u32 {
        match self {
            Service::Authentication => 1,
            Service::Integrity => 2,
            Service::Privacy => 3,
        }
    }
}

/// What a call is for its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// It is one of the program.
    Data,
    /// It begins a context.
    Init,
    /// It goes on with one.
    ContinueInit,
    /// It ends one.
    Destroy,
}

/// The credentials of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GssCredential<'a> {
    pub(crate) control: Control,
    pub(crate) sequence: u32,
    pub(crate) service: Service,
    pub(crate) handle: &'a [u8],
}

impl<'a> GssCredential<'a> {
    /// Decodes the body of credentials.
    ///
    /// # Errors
    /// It is malformed, or of another version.
    pub(crate) fn decode(body: &'a [u8]) -> Result<GssCredential<'a>, Malformed> {
        let mut reader = Reader::new(body);
        if reader.u32()? != VERSION {
            return Err(Malformed);
        }
        let control = match reader.u32()? {
            0 => Control::Data,
            1 => Control::Init,
            2 => Control::ContinueInit,
            3 => Control::Destroy,
            _ => return Err(Malformed),
        };
        let sequence = reader.u32()?;
        let service = match reader.u32()? {
            1 => Service::Authentication,
            2 => Service::Integrity,
            3 => Service::Privacy,
            _ => return Err(Malformed),
        };
        let handle = reader.opaque(AUTH_BYTES_MAX)?;
        Ok(GssCredential {
            control,
            sequence,
            service,
            handle,
        })
    }
}

/// What the number of a call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It is the first with this number.
    New,
    /// It was there before, or is too old to tell: it is dropped without an answer.
    Old,
    /// The context is used up.
    UsedUp,
}

/// Numbers of calls of one context that were seen: the highest, and which of those below it.
#[derive(Debug, Default)]
pub(crate) struct SequenceWindow {
    highest: u32,
    /// A bit for each number of the window, by its remainder.
    seen: [u64; 4],
}

const _: () = assert!(WINDOW == 4 * u64::BITS, "each number has a bit");

impl SequenceWindow {
    /// Notes a number.
    pub(crate) fn note(&mut self, number: u32) -> Seen {
        if number >= SEQUENCE_MAX {
            return Seen::UsedUp;
        }
        if number > self.highest || self.is_empty() {
            // Those in between were not seen.
            let first = self
                .highest
                .wrapping_add(1)
                .max(number.saturating_sub(WINDOW - 1));
            for between in first..=number {
                self.set(between, false);
            }
            self.highest = number;
        } else if self.highest - number >= WINDOW {
            return Seen::Old;
        }
        match self.set(number, true) {
            true => Seen::Old,
            false => Seen::New,
        }
    }

    fn is_empty(&self) -> bool {
        self.seen == [0; 4]
    }

    /// Sets a bit, and gives what it was.
    fn set(&mut self, number: u32, is_seen: bool) -> bool {
        let at = number % WINDOW;
        let word = usize::try_from(at / u64::BITS).expect("there are four");
        let bit = 1_u64 << (at % u64::BITS);
        let was = self.seen[word] & bit != 0;
        match is_seen {
            true => self.seen[word] |= bit,
            false => self.seen[word] &= !bit,
        }
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Writer;
    use std::collections::BTreeSet;

    #[test]
    fn credentials_are_taken_apart_and_others_are_refused() {
        let body = |words: [u32; 4], handle: &[u8]| {
            let mut writer = Writer::new();
            for word in words {
                writer.u32(word);
            }
            writer.opaque(handle);
            writer.into_bytes()
        };
        let good = body([1, 0, 7, 2], b"handle");
        let credential = GssCredential::decode(&good).unwrap();
        assert_eq!(credential.control, Control::Data);
        assert_eq!(
            (credential.sequence, credential.handle),
            (7, &b"handle"[..])
        );
        assert_eq!(credential.service, Service::Integrity);
        for wrong in [[2, 0, 7, 2], [1, 4, 7, 2], [1, 0, 7, 0], [1, 0, 7, 4]] {
            assert_eq!(GssCredential::decode(&body(wrong, b"")), Err(Malformed));
        }
        assert_eq!(GssCredential::decode(&good[..20]), Err(Malformed));
    }

    #[test]
    fn each_number_of_the_window_is_new_once() {
        let mut window = SequenceWindow::default();
        assert_eq!(window.note(0), Seen::New);
        assert_eq!(window.note(0), Seen::Old);
        assert_eq!(window.note(SEQUENCE_MAX), Seen::UsedUp);
        let (mut seen, mut highest) = (BTreeSet::from([0]), 0);
        // A walk over the numbers that goes forth and back.
        for step in 0..5000_u32 {
            let number = (step * 7 + step * step % 301) / 3;
            let is_old = seen.contains(&number) || highest >= number.saturating_add(WINDOW);
            let expected = if is_old { Seen::Old } else { Seen::New };
            assert_eq!(window.note(number), expected, "step {step}, {number}");
            seen.insert(number);
            highest = highest.max(number);
        }
    }

    #[test]
    fn a_jump_forgets_all_numbers_before() {
        let mut window = SequenceWindow::default();
        for number in 1..=300 {
            assert_eq!(window.note(number), Seen::New);
        }
        assert_eq!(window.note(1_000_000), Seen::New);
        assert_eq!(window.note(300), Seen::Old);
        assert_eq!(window.note(1_000_000 - 255), Seen::New);
        assert_eq!(window.note(1_000_000 - 256), Seen::Old);
        assert_eq!(window.note(SEQUENCE_MAX - 1), Seen::New);
    }
}
