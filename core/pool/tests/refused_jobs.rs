//! Jobs that fail on their arguments: without a change they are refused, and the pool goes on.

mod support;

use support::{create, machine, new_zap};
use tarn_dataset::error::DatasetError;
use tarn_dataset::namespace::View;
use tarn_dataset::task::{FeatureCounts, InternalEvent, SyncTask, TaskContext, TaskRefusal};
use tarn_object::zap::ZapError;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_pool::TaskError;
use tarn_probe::Operation;

/// A task whose check misses that a name cannot be stored.
#[derive(Clone, Copy)]
struct Overlooked {
    changes_before: bool,
}

impl SyncTask for Overlooked {
    type Output = ();

    fn check(&self, _: View<'_>, _: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        Ok(())
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.record(InternalEvent {
            name: "hold",
            dataset: None,
            text: String::new(),
        });
        if self.changes_before {
            new_zap(
                context.tx,
                context.mos(),
                ObjectType::UserHolds,
                context.operation,
            );
        }
        Err(DatasetError::Zap {
            object: ObjectId::new(1),
            cause: ZapError::BadName,
        })
    }
}

#[test]
fn a_task_that_fails_on_its_argument_before_any_change_is_refused() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let task = Overlooked {
            changes_before: false,
        };
        let refused = pool.run(task, &operation).unwrap_err();
        assert!(matches!(refused, TaskError::Refused(_)), "{refused}");
        assert_eq!(refused.to_string(), "a ZAP cannot hold this name");
        let refused = pool.run_each(vec![task, task], None, &operation).unwrap();
        assert_eq!(refused.iter().filter(|one| one.is_err()).count(), 2);
        pool.sync_all(&operation).unwrap();
        assert!(pool.failure().is_none());
    });
    run.unwrap();
}

#[test]
fn a_task_that_fails_after_a_change_suspends_the_pool() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let task = Overlooked {
            changes_before: true,
        };
        let failed = pool.run(task, &operation).unwrap_err();
        assert!(matches!(failed, TaskError::Suspended { .. }), "{failed}");
        assert!(pool.sync_all(&operation).is_err());
    });
    run.unwrap();
}
