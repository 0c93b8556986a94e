//! The reason of a suspension, and its remedy: [`Failure`]. Its effects:
//! [`suspend`](crate::suspend).

/// Why the pool stores nothing.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The error.
    pub(crate) why: String,
    /// The remedy.
    pub(crate) cure: Cure,
}

/// What resumes a suspended pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cure {
    /// Devices come back.
    Devices,
    /// The pool is exported and imported again.
    Import,
    /// Nothing: it was given up.
    None,
}
