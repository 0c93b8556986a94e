//! New top-level vdevs: open, and outside of the tree until they join it.
//!
//! # Mechanism
//! What is in the tree is in the configuration that the next group stores, for whatever reason it
//! is there. So a vdev is opened and labelled on its own, where it can still fail and leave nothing
//! behind, and joins the tree in memory by the thread that stores groups, in the midst of the group
//! that also stores its objects.
//!
//! # After a crash
//! The pool is found without the vdev, whose labels of no txg make it part of no pool, or with all
//! that belongs to it.

use crate::config::VdevConfig;
use crate::error::OpenError;
use crate::leaf::Leaf;
use crate::top::TopVdev;
use crate::tree::{AllocationBias, Need, OpenOptions, VdevTree, refuse_unsupported};
use std::sync::Arc;
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::VdevId;

/// A top-level vdev that is open, and part of nothing yet. Its devices are let go with it.
#[derive(Debug)]
pub struct NewTop {
    config: VdevConfig,
    leaves: Vec<Arc<Leaf>>,
}

impl NewTop {
    /// What it is to be.
    pub fn config(&self) -> &VdevConfig {
        &self.config
    }

    /// Its devices.
    pub fn leaves(&self) -> &[Arc<Leaf>] {
        &self.leaves
    }
}

impl VdevTree {
    /// Opens a top-level vdev that is about to join. Its labels do not matter.
    ///
    /// # Errors
    /// It is of a kind that we cannot write, or has not enough devices.
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

    /// New vdevs are part of the tree from now on, numbered behind the last. Gives their numbers.
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
            state.tops.push(Arc::new(top));
        }
        drop(state);
        self.note_change();
        ids
    }
}
