//! The contents of a block, on their way between layers: [`Block`].

use std::ops::Deref;
use std::sync::Arc;
use tarn_host::buffer::Buffer;

/// The bytes of a block: verified, plain, shared and unchangeable. A copy of it is a pointer.
#[derive(Clone)]
pub struct Block(Arc<Buffer>);

impl Block {
    /// Takes a buffer over, which never changes from now on.
    pub fn new(buffer: Buffer) -> Block {
        Block(Arc::new(buffer))
    }

    /// A block of zeros.
    pub fn zeroed(size: usize) -> Block {
        Block::new(Buffer::zeroed(size))
    }

    /// A copy of bytes.
    pub fn from_slice(bytes: &[u8]) -> Block {
        Block::new(Buffer::from_slice(bytes))
    }

    /// The buffer, to change it: uncopied if this is the only reference to the block.
    pub fn into_buffer(self) -> Buffer {
        Arc::unwrap_or_clone(self.0)
    }

    /// The shared buffer.
    pub fn shared(&self) -> &Arc<Buffer> {
        &self.0
    }

    /// Its size in memory.
    pub fn memory_bytes(&self) -> usize {
        self.0.capacity()
    }

    /// True when both are the same memory.
    pub fn is_same(&self, other: &Block) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Buffer> for Block {
    fn from(buffer: Buffer) -> Block {
        Block::new(buffer)
    }
}

impl From<Arc<Buffer>> for Block {
    fn from(buffer: Arc<Buffer>) -> Block {
        Block(buffer)
    }
}

/// Equal bytes.
impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        **self == **other
    }
}

impl Eq for Block {}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}
