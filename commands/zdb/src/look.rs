//! [`Look`]: the pool and the options that all parts of `zdb` need.

use crate::options::Options;
use std::cell::Cell;
use tarn_block::BlockScope;
use tarn_engine::inspect::Inspection;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{Corrupt, Stored};
use tarn_pool::Pool;
use tarn_pool::directory::Directory;
use tarn_probe::Operation;

/// A pool, and the parts of it to print.
pub struct Look<'a> {
    /// The options.
    pub options: &'a Options,
    /// The open pool.
    pub inspection: &'a Inspection,
    /// Whether something wrong was found, which the exit code tells.
    pub is_corrupt: Cell<bool>,
}

impl<'a> Look<'a> {
    /// Without findings.
    pub fn new(options: &'a Options, inspection: &'a Inspection) -> Look<'a> {
        Look {
            options,
            inspection,
            is_corrupt: Cell::new(false),
        }
    }

    /// The pool.
    pub fn pool(&self) -> &'a Pool {
        self.inspection.pool()
    }

    /// The operation of all reads.
    pub fn operation(&self) -> &'a Operation {
        self.inspection.operation()
    }

    /// The pool's directory.
    pub fn directory(&self) -> Directory<'a> {
        self.inspection.directory()
    }

    /// How much detail of datasets and objects is wanted.
    pub fn depth(&self) -> u32 {
        self.options.level('d')
    }

    /// A number in the form that the options choose.
    pub fn nice(&self, number: u64) -> String {
        self.options.nice(number)
    }

    /// The pointers of an indirect block.
    ///
    /// # Errors
    /// The error, as text.
    pub fn pointers(
        &self,
        parent: &BlockPointer,
        scope: BlockScope,
    ) -> Result<Vec<BlockPointer>, String> {
        let words = |error: Corrupt| error.to_string();
        parent.check().map_err(words)?;
        let block = self.pool().io().read(parent, scope, self.operation());
        let block = block.map_err(|error| error.to_string())?;
        let order = parent.byte_order();
        block
            .chunks_exact(BlockPointer::SIZE)
            .map(|bytes| BlockPointer::from_bytes(bytes, order).map_err(words))
            .collect()
    }
}
