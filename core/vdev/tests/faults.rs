//! Devices with too many errors are degraded, or taken out of use where others have their blocks.

mod common;

use common::*;
use tarn_vdev::VdevKind;
use tarn_vdev::health::{Reason, Standing, VdevState};
use tarn_vdev::reports::ReportKind;

#[test]
fn a_device_is_faulted_only_while_another_has_its_blocks() {
    let disks = Disks::one(VdevKind::Mirror, 2, 9);
    let tree = disks.open();
    let ended = disks.machine.run(|_| {
        let leaves = tree.leaves();
        let [first, second] = [leaves[0].guid, leaves[1].guid];
        let state = |index: usize| leaves[index].standing();
        let exceeded = |state| Standing::because(state, Reason::ErrorsExceeded);
        assert!(tree.degrade(first));
        assert_eq!(state(0), exceeded(VdevState::Degraded));
        assert!(leaves[0].is_usable() && !tree.degrade(first));
        assert_eq!(tree.restore_degraded(None), [first]);
        assert_eq!(state(0), Standing::ONLINE);
        assert!(tree.fault(first));
        assert_eq!(state(0), exceeded(VdevState::Faulted));
        assert!(!tree.fault(first), "it is not in use any more");
        assert!(!tree.fault(second), "it has the only copy");
        assert_eq!(state(1), Standing::ONLINE);
        assert!(tree.degrade(second));
        assert_eq!(tree.restore_degraded(Some(first)), []);
        let reports = tree.reports().take().unwrap().reports;
        let states: Vec<_> = reports
            .iter()
            .filter_map(|report| match &report.what {
                ReportKind::State { now, .. } => Some((report.vdev, now.state)),
                _ => None,
            })
            .collect();
        assert_eq!(
            states,
            [
                (first, VdevState::Degraded),
                (first, VdevState::Online),
                (first, VdevState::Faulted),
                (second, VdevState::Degraded),
            ]
        );
    });
    ended.unwrap();
}
