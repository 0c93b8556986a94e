//! A client of NBD that writes and reads blocks, one at a time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::workspace::Outcome;

/// A server that says nothing for so long is one that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each request is about so many bytes.
pub const BLOCK_BYTES: u32 = 24 << 10;

/// A connection, which speaks what it needs of the protocol.
pub struct NbdClient {
    stream: UnixStream,
}

impl NbdClient {
    /// Chooses an export by the oldest option.
    pub fn connect(socket: &Path, name: &str) -> Outcome<NbdClient> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        let length = u32::try_from(name.len())?;
        let choice = [
            &3_u32.to_be_bytes()[..],
            b"IHAVEOPT",
            &1_u32.to_be_bytes(),
            &length.to_be_bytes(),
            name.as_bytes(),
        ];
        stream.write_all(&choice.concat())?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        Ok(NbdClient { stream })
    }

    fn request(&mut self, flags: u16, command: u16, block: u64, payload: &[u8]) -> Outcome {
        let offset = block * u64::from(BLOCK_BYTES);
        let request = [
            &0x2560_9513_u32.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            &block.to_be_bytes(),
            &offset.to_be_bytes(),
            &BLOCK_BYTES.to_be_bytes(),
            payload,
        ];
        self.ask(&request.concat())
    }

    fn ask(&mut self, request: &[u8]) -> Outcome {
        self.stream.write_all(request)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        match reply[4..8] {
            [0, 0, 0, 0] => Ok(()),
            _ => Err(format!("the server answers {reply:?}").into()),
        }
    }

    /// Writes a block, which the next flush makes durable.
    pub fn write(&mut self, block: u64, bytes: &[u8]) -> Outcome {
        self.request(0, 1, block, bytes)
    }

    /// What was written before is durable.
    pub fn flush(&mut self) -> Outcome {
        let request = [
            &0x2560_9513_u32.to_be_bytes()[..],
            &0_u16.to_be_bytes(),
            &3_u16.to_be_bytes(),
            &[0; 20],
        ];
        self.ask(&request.concat())
    }

    /// Writes a block with FUA.
    pub fn write_durably(&mut self, block: u64, bytes: &[u8]) -> Outcome {
        self.request(1, 1, block, bytes)
    }

    /// The bytes of a block.
    pub fn read(&mut self, block: u64) -> Outcome<Vec<u8>> {
        self.request(0, 0, block, &[])?;
        let mut bytes = vec![0; usize::try_from(BLOCK_BYTES)?];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
