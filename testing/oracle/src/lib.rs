//! Oracles: programs that know the truth about a pool, driven and understood.
//!
//! # Problem
//! Whether a pool is right is not ours to say. OpenZFS's `zdb` walks every block and holds what it
//! reached against the space maps; its kernel module imports, scrubs and writes. Both say more than
//! their exit codes, and neither is installed on most machines.
//!
//! # Map
//! - [`tools`] unpacks OpenZFS's user-space programs from Debian's archive, installing nothing.
//! - [`judge`] runs its `zdb` over an exported pool and reads what it says.
//! - [`machine`] runs a script where the real kernel module is loaded.
//! - [`instance`] drives the system under test: one `TARN_DIR`, its commands and its daemon,
//!   cleaned up whatever happens.
//! - [`layout`] names the vdevs a test pool is made of.
//! - [`program`] runs any of these with a time limit, keeping what they say.

pub mod instance;
pub mod judge;
pub mod layout;
pub mod machine;
pub mod program;
pub mod tools;
