//! Writes messages of protocol buffers: numbers of variable length, doubles, and what has a length.
//!
//! The encoding is that of <https://protobuf.dev/programming-guides/encoding/>. Prometheus' message
//! has a dozen fields; a library for it would compile its schema with `protoc`, which a machine
//! that builds Tarn need not have.

/// A message that is written.
#[derive(Debug, Default)]
pub(crate) struct Message(Vec<u8>);

/// How a field is written.
#[derive(Clone, Copy)]
enum Wire {
    Variable = 0,
    Eight = 1,
    Length = 2,
}

impl Message {
    /// Its length, and its bytes.
    pub(crate) fn delimited(self, out: &mut Vec<u8>) {
        let mut length = Message::default();
        length.push_variable(length_of(&self.0));
        out.extend(length.0);
        out.extend(self.0);
    }

    pub(crate) fn text(&mut self, field: u32, text: &str) {
        self.with_length(field, text.as_bytes());
    }

    pub(crate) fn message(&mut self, field: u32, message: Message) {
        self.with_length(field, &message.0);
    }

    pub(crate) fn double(&mut self, field: u32, number: f64) {
        self.tag(field, Wire::Eight);
        self.0.extend(number.to_le_bytes());
    }

    /// Fields of types `uint32`, `uint64` and enumerations.
    pub(crate) fn unsigned(&mut self, field: u32, number: u64) {
        self.tag(field, Wire::Variable);
        self.push_variable(number);
    }

    /// Fields of types `sint32` and `sint64`.
    pub(crate) fn signed(&mut self, field: u32, number: i64) {
        let zigzag = (number << 1) ^ (number >> 63);
        self.unsigned(field, u64::from_ne_bytes(zigzag.to_ne_bytes()));
    }

    fn with_length(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, Wire::Length);
        self.push_variable(length_of(bytes));
        self.0.extend(bytes);
    }

    fn tag(&mut self, field: u32, wire: Wire) {
        self.push_variable(u64::from(field) << 3 | u64::from(wire as u8));
    }

    fn push_variable(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.0.push(low & 0x7f);
            }
            self.0.push(low | 0x80);
        }
    }
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("memory has at most 64 bits of places")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_as_the_encoding_describes_them() {
        let mut message = Message::default();
        message.unsigned(1, 150);
        message.text(2, "testing");
        message.signed(3, -1);
        message.signed(3, i64::MIN);
        message.double(4, 1.0);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 0x07],
            b"testing",
            &[0x18, 0x01],
            &[
                0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
            ],
            &[0x21, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        ];
        assert_eq!(message.0, expected.concat());
    }

    #[test]
    fn a_message_has_its_length_before_it() {
        let mut long = Message::default();
        long.text(1, &"x".repeat(200));
        let mut out = vec![9];
        long.delimited(&mut out);
        assert_eq!(out[..3], [9, 0xcb, 0x01]);
        assert_eq!(out.len(), 3 + 203);
    }
}
