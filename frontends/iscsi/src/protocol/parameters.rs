//! Negotiation of the operational keys (RFC 7143, 13).

use crate::protocol::pdu::Digests;
use crate::protocol::text::Keys;

/// What this target takes in one PDU, in bytes.
pub const RECEIVED_BYTES_MAX: u32 = 256 << 10;

/// Longest burst, and most unsolicited data of a command, in bytes. Guesses: fewer round trips for
/// large writes, against memory for each command under way.
const BURST_BYTES_MAX: u32 = 1 << 20;
const FIRST_BURST_BYTES_MAX: u32 = 256 << 10;

/// Largest number of keys of lengths (24 bits).
const LENGTH_MAX: u32 = (1 << 24) - 1;

/// What was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Digests.
    pub digests: Digests,
    /// What the initiator takes in one PDU.
    pub sent_bytes_max: usize,
    /// MaxBurstLength.
    pub burst_bytes_max: u32,
    /// FirstBurstLength.
    pub first_burst_bytes_max: u32,
    /// Data is sent only when it was asked for.
    pub initial_r2t: bool,
    /// Commands carry data.
    pub immediate_data: bool,
}

impl Default for Parameters {
    /// The defaults of the RFC, for keys that are not negotiated.
    fn default() -> Parameters {
        Parameters {
            digests: Digests::default(),
            sent_bytes_max: 8192,
            burst_bytes_max: 262_144,
            first_burst_bytes_max: 65_536,
            initial_r2t: true,
            immediate_data: true,
        }
    }
}

/// Keys that the login itself looks at.
const OF_LOGIN: &[&str] = &[
    "InitiatorName",
    "InitiatorAlias",
    "TargetName",
    "SessionType",
    "AuthMethod",
    "CHAP_A",
    "CHAP_I",
    "CHAP_C",
    "CHAP_N",
    "CHAP_R",
];

impl Parameters {
    /// Takes what an initiator offers, and answers it. False where a value makes no sense: the
    /// answer says `Reject`.
    pub fn negotiate(&mut self, offered: &Keys, answer: &mut Keys) -> bool {
        let mut is_whole = true;
        for (key, value) in offered.iter() {
            if OF_LOGIN.contains(&key) || is_answer(value) {
                continue;
            }
            match self.answer(key, value) {
                Some(Some(text)) => answer.add(key, text),
                Some(None) => {}
                None => {
                    answer.add(key, "Reject");
                    is_whole = false;
                }
            }
        }
        let bounded = self.first_burst_bytes_max.min(self.burst_bytes_max);
        self.first_burst_bytes_max = bounded;
        is_whole
    }

    /// The answer to one key: none where it only declares something. None of that where the value
    /// makes no sense.
    fn answer(&mut self, key: &str, value: &str) -> Option<Option<String>> {
        let text = match key {
            "HeaderDigest" => digest(value, &mut self.digests.header)?,
            "DataDigest" => digest(value, &mut self.digests.data)?,
            "MaxRecvDataSegmentLength" => {
                let bytes = number(value, 512, LENGTH_MAX)?;
                self.sent_bytes_max = usize::try_from(bytes).ok()?;
                return Some(None);
            }
            "MaxBurstLength" => {
                self.burst_bytes_max = number(value, 512, LENGTH_MAX)?.min(BURST_BYTES_MAX);
                self.burst_bytes_max.to_string()
            }
            "FirstBurstLength" => {
                let bytes = number(value, 512, LENGTH_MAX)?;
                self.first_burst_bytes_max = bytes.min(FIRST_BURST_BYTES_MAX);
                self.first_burst_bytes_max.to_string()
            }
            "InitialR2T" => {
                self.initial_r2t = flag(value)?;
                shown(self.initial_r2t)
            }
            "ImmediateData" => {
                self.immediate_data = flag(value)?;
                shown(self.immediate_data)
            }
            // One connection, one burst at a time, nothing recovered within a connection.
            "MaxConnections" | "MaxOutstandingR2T" => {
                number(value, 1, 65_535)?;
                "1".to_string()
            }
            "ErrorRecoveryLevel" => {
                number(value, 0, 2)?;
                "0".to_string()
            }
            "DefaultTime2Wait" => number(value, 0, 3600)?.to_string(),
            "DefaultTime2Retain" => {
                number(value, 0, 3600)?;
                "0".to_string()
            }
            "DataPDUInOrder" | "DataSequenceInOrder" => {
                flag(value)?;
                "Yes".to_string()
            }
            "IFMarker" | "OFMarker" => {
                flag(value)?;
                "No".to_string()
            }
            "IFMarkInt" | "OFMarkInt" => "Irrelevant".to_string(),
            "TaskReporting" => {
                let offers = value.split(',').any(|one| one == "RFC3720");
                offers.then(|| "RFC3720".to_string())?
            }
            "iSCSIProtocolLevel" => number(value, 0, 31)?.min(1).to_string(),
            _ => "NotUnderstood".to_string(),
        };
        Some(Some(text))
    }
}

/// Whether a value is an answer to an offer of ours.
fn is_answer(value: &str) -> bool {
    matches!(value, "Reject" | "Irrelevant" | "NotUnderstood")
}

/// The first of a list of digests that this target has.
fn digest(value: &str, is_on: &mut bool) -> Option<String> {
    let mut offered = value.split(',');
    let chosen = offered.find(|one| matches!(*one, "None" | "CRC32C"))?;
    *is_on = chosen == "CRC32C";
    Some(chosen.to_string())
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn shown(flag: bool) -> String {
    if flag { "Yes" } else { "No" }.to_string()
}

/// A number in its range, in decimal or hexadecimal digits.
fn number(value: &str, least: u32, most: u32) -> Option<u32> {
    let number = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => value.parse().ok()?,
    };
    (least..=most).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(text: &[u8]) -> (Parameters, Keys, bool) {
        let (mut agreed, mut answer) = (Parameters::default(), Keys::default());
        let offered = Keys::parse(text).unwrap();
        let is_whole = agreed.negotiate(&offered, &mut answer);
        (agreed, answer, is_whole)
    }

    #[test]
    fn what_both_can_is_agreed_on() {
        let (agreed, answer, is_whole) = negotiated(
            b"HeaderDigest=CRC32C,None\0DataDigest=None\0InitialR2T=No\0MaxBurstLength=16776192\0\
              FirstBurstLength=262144\0MaxConnections=8\0ErrorRecoveryLevel=2\0\
              MaxRecvDataSegmentLength=65536\0X-org.example=1\0",
        );
        assert!(is_whole);
        assert!(agreed.digests.header && !agreed.digests.data && !agreed.initial_r2t);
        assert_eq!(agreed.sent_bytes_max, 65536);
        assert_eq!(agreed.burst_bytes_max, BURST_BYTES_MAX);
        assert_eq!(answer.value("MaxConnections"), Some("1"));
        assert_eq!(answer.value("ErrorRecoveryLevel"), Some("0"));
        assert_eq!(answer.value("X-org.example"), Some("NotUnderstood"));
        assert_eq!(answer.value("MaxRecvDataSegmentLength"), None);
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        for wrong in [
            "MaxBurstLength=1",
            "InitialR2T=maybe",
            "HeaderDigest=SHA",
            "MaxConnections=0",
            "ErrorRecoveryLevel=99999999999999",
        ] {
            let (agreed, answer, is_whole) = negotiated(format!("{wrong}\0").as_bytes());
            assert!(!is_whole, "{wrong}");
            assert_eq!(answer.iter().next().map(|(_, value)| value), Some("Reject"));
            assert_eq!(agreed, Parameters::default());
        }
    }

    #[test]
    fn the_first_burst_fits_in_a_burst() {
        let (agreed, ..) = negotiated(b"MaxBurstLength=1024\0FirstBurstLength=65536\0");
        assert_eq!(agreed.first_burst_bytes_max, 1024);
    }
}
