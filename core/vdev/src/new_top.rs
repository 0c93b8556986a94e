//! New top-level vdevs (`zpool add`): opened and labelled before they join the tree.
//!
//! # Mechanism
//! The next txg stores the configuration of every vdev in the tree. So a new vdev is opened and
//! labelled outside of the tree, where it can still fail and leave nothing behind. The sync thread
//! adds it to the tree in memory, in the txg that also stores its objects.
//!
//! # After a crash
//! An import finds the pool without the vdev, since labels of txg 0 are no members, or with the
//! vdev and all its objects.

use crate::config::VdevConfig;
use crate::error::OpenError;
use crate::leaf::Leaf;
use crate::top::TopVdev;
use crate::tree::{AllocationBias, Need, OpenOptions, VdevTree, refuse_unsupported};
use std::sync::Arc;
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::VdevId;

/// A top-level vdev that is open and not in the tree. Dropping it closes its devices.
#[derive(Debug)]
pub struct NewTop {
    config: VdevConfig,
    leaves: Vec<Arc<Leaf>>,
}

impl NewTop {
    /// The configuration that it joins with.
    pub fn config(&self) -> &VdevConfig {
        &self.config
    }

    /// Its devices.
    pub fn leaves(&self) -> &[Arc<Leaf>] {
        &self.leaves
    }
}

impl VdevTree {
    /// Opens the devices of a new top-level vdev, whatever their labels say.
    ///
    /// # Errors
    /// The kind of the vdev is not supported, or too few of its devices can be used.
    pub fn open_new_top(&self, config: &VdevConfig) -> Result<NewTop, OpenError> {
        let top = TopVdev::new(config, &[]);
        refuse_unsupported(&top, Need::All)?;
        let options = OpenOptions {
            mode: self.mode,
            ..OpenOptions::new_pool()
        };
        top.open(&self.host, config, &options);
        let standing = top.standing();
        match standing.state.is_usable() {
            true => Ok(NewTop {
                config: config.clone(),
                leaves: top.leaves,
            }),
            false => Err(OpenError::Unavailable {
                vdevs: vec![(top.name, standing)],
            }),
        }
    }

    /// Adds new vdevs to the tree, numbered behind the last. Gives their numbers.
    pub fn join(&self, joining: Vec<NewTop>) -> Vec<VdevId> {
        let mut state = self.state.write();
        let mut ids = Vec::with_capacity(joining.len());
        for NewTop { mut config, leaves } in joining {
            config.id = widen(state.root.children.len());
            let top = TopVdev::new(&config, &leaves);
            assert_eq!(
                top.id.index(),
                state.tops.len(),
                "it is numbered behind the last"
            );
            ids.push(top.id);
            state.biases.push(AllocationBias::of_config(&config));
            state.root.children.push(config);
            self.adopt(&top);
            state.tops.push(Arc::new(top));
        }
        assert_eq!(
            state.root.children.len(),
            state.tops.len(),
            "the tree and its configuration have the same top-level vdevs"
        );
        assert_eq!(
            state.biases.len(),
            state.tops.len(),
            "each top-level vdev has an allocation bias"
        );
        drop(state);
        self.note_change();
        ids
    }
}
