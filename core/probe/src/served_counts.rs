//! The counts of datasets that are served, by the number that records have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::dataset_table::DatasetId;
use crate::statistics::OperationStatistics;

/// Counts by dataset.
type Table = BTreeMap<DatasetId, Weak<OperationStatistics>>;

/// A dataset is served: what is recorded of it is counted there.
pub(crate) fn serve(id: DatasetId, counts: &Arc<OperationStatistics>) {
    table().insert(id, Arc::downgrade(counts));
}

/// It is served there no longer. It may be served elsewhere already.
pub(crate) fn leave(id: DatasetId, counts: &Arc<OperationStatistics>) {
    let mut table = table();
    if (table.get(&id)).is_some_and(|one| Weak::ptr_eq(one, &Arc::downgrade(counts))) {
        table.remove(&id);
    }
}

/// Where a dataset is counted; none where it is not served.
pub(crate) fn find(id: DatasetId) -> Option<Arc<OperationStatistics>> {
    table().get(&id).and_then(Weak::upgrade)
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: Mutex<Table> = Mutex::new(Table::new());
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_that_is_served_again_is_counted_where_it_is_served_last() {
        let id = DatasetId(0xfeed);
        let (first, second) = (Arc::default(), Arc::default());
        serve(id, &first);
        serve(id, &second);
        leave(id, &first);
        assert!(find(id).is_some_and(|found| Arc::ptr_eq(&found, &second)));
        leave(id, &second);
        assert!(find(id).is_none());
    }
}
