//! What is asked of a read of many blocks: [`ReadRequest`].

use crate::scope::BlockScope;
use tarn_ondisk::block_pointer::BlockPointer;

/// How the contents of a block are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As they were before they were stored.
    Plain,
    /// As they are stored: compressed, perhaps encrypted.
    Stored,
}

/// One block of a batch to read.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest {
    /// What leads to it.
    pub pointer: BlockPointer,
    /// Where it belongs.
    pub scope: BlockScope,
    /// In which form it is wanted.
    pub form: Form,
}

impl ReadRequest {
    /// For the plain contents of a block.
    pub fn plain(pointer: BlockPointer, scope: BlockScope) -> ReadRequest {
        let form = Form::Plain;
        ReadRequest {
            pointer,
            scope,
            form,
        }
    }
}
