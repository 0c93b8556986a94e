//! [`Written`]: which version of the configuration is in the labels and in the MOS. The
//! configuration itself: [`config`](crate::config).

/// The versions of the written configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// The vdev tree's count of changes when both were written; none when they never were.
    pub(crate) changes: Option<u64>,
    /// The same for the MOS alone. Devices that are taken out of use while the rest of a txg is
    /// stored are in its labels only.
    pub(crate) in_mos: Option<u64>,
    /// Another fact has changed.
    pub(crate) is_stale: bool,
}

impl Written {
    /// The labels must be written in the next txg in any case.
    pub(crate) const NEVER: Written = Written {
        changes: None,
        in_mos: None,
        is_stale: true,
    };
}
