//! What of the configuration is written: [`Written`]. The configuration itself:
//! [`config`](crate::config).

/// What labels and the MOS say now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// The count of changes of the tree as of which both were written; none when they never were.
    pub(crate) changes: Option<u64>,
    /// That as of which the MOS was written last. Devices that are taken out of use while the rest
    /// of the group is stored are in its labels only.
    pub(crate) in_mos: Option<u64>,
    /// Something else has changed.
    pub(crate) is_stale: bool,
}

impl Written {
    /// Labels that must be written in the next group, whatever they say.
    pub(crate) const NEVER: Written = Written {
        changes: None,
        in_mos: None,
        is_stale: true,
    };
}
