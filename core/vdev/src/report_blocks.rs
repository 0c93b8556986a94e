//! Blocks that no device could give, among the [reports](crate::reports) of devices.

use crate::queue::read_class;
use crate::reports::{Report, ReportKind, UnreadableBlock};
use crate::tree::VdevTree;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;

impl VdevTree {
    /// Reports a block that an operation could not read, with an error number.
    pub fn report_unreadable(&self, mark: TraversalMark, errno: i32, operation: &Operation) {
        assert!(errno > 0, "a failed read has an error number");
        let block = UnreadableBlock {
            mark,
            errno,
            priority: read_class(operation),
            begun_ns: operation.started_ns(),
        };
        self.reports().post(Report {
            vdev: Guid::ZERO,
            what: ReportKind::Unreadable(block),
        });
    }
}
