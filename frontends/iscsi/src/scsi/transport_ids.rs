//! TransportIDs: names of initiator ports in parameters (SPC-4, 7.6.4.6).

use crate::scsi::fields::{low_u16, put, u16_at};
use crate::scsi::logical_unit::Nexus;

/// Longest name that is taken: an iSCSI name has at most 223 bytes, `,i,0x` and an ISID follow.
const NAME_BYTES_MAX: usize = 223 + 17;

/// The TransportID of an initiator port.
pub fn encode(nexus: &Nexus) -> Vec<u8> {
    let mut name = nexus.0.as_bytes().to_vec();
    name.push(0);
    name.resize(name.len().next_multiple_of(4).max(20), 0);
    // Format 01b: with the ISID; protocol 5.
    let mut bytes = vec![0x45, 0, 0, 0];
    put(&mut bytes, 2, &low_u16(name.len()).to_be_bytes());
    bytes.extend(name);
    bytes
}

/// The initiator port that a TransportID names; none where it is no iSCSI port with an ISID.
pub fn decode(bytes: &[u8]) -> Option<Nexus> {
    if bytes.first() != Some(&0x45) {
        return None;
    }
    let length = usize::from(u16_at(bytes, 2));
    let name = bytes.get(4..4 + length)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&name[..end]).ok()?;
    let is_taken = name.len() <= NAME_BYTES_MAX
        && name.contains(",i,0x")
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_taken.then(|| Nexus(name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_and_nonsense_is_refused() {
        let nexus = Nexus("iqn.1993-08.org.debian:01:abc,i,0x800000000001".to_string());
        assert_eq!(decode(&encode(&nexus)), Some(nexus));
        assert_eq!(decode(&[0x45, 0, 0, 20, b'a']), None);
        assert_eq!(decode(&[0x05, 0, 0, 0]), None);
        assert_eq!(decode(&[]), None);
    }
}
