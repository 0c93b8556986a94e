//! Every decoder, on any bytes: what is fuzzed, and what is demanded.
//!
//! # Problem
//! A disk can hand back anything, and an image can be made by hand. Random bytes do not get past
//! the first magic number of a structure, and bytes that OpenZFS wrote are all sound: what lies
//! between has to be searched for.
//!
//! # Mechanism
//! A [`Target`] takes any bytes, gives them to a decoder, and then does with what was accepted what
//! a program would do: asks everything, changes it, encodes it, decodes that again. The program
//! `tarn-fuzz-engine` searches for bytes that reach code no others reached; `cargo xtask fuzz`
//! builds it so that it sees that, cuts the structures it begins with out of real pools, and runs
//! it. `docs/TESTING.md` says how to use it, decision 21 why it is made like this.
//!
//! Bytes that were found to break something stay in `regressions/TARGET`, and `cargo test` runs
//! them.
//!
//! # Invariants
//! - A target is a function of its bytes: it has no state, time, or chance.
//! - No panic, no arithmetic that overflows; no more memory than [`Target::memory_bytes_max`]; no
//!   more time than a fraction of a second.
//!
//! # Knows nothing about
//! how inputs are found, and whole pools: those are damaged by `testing/hostile`.

pub mod piece;
mod target;
mod targets;

pub use target::Target;
pub use targets::{ALL, find};
