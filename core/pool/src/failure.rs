//! Why a pool is suspended, and what cures it: [`Failure`]. What happens then:
//! [`suspend`](crate::suspend).

/// Why nothing is stored.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// What failed.
    pub(crate) why: String,
    /// What cures it.
    pub(crate) cure: Cure,
}

/// What lets a suspended pool go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cure {
    /// That devices come back.
    Devices,
    /// That it is imported again.
    Import,
    /// It was given up.
    None,
}
