//! Parity: rows of columns that survive the loss of up to three of them.
//!
//! # Mechanism
//! A row has up to 255 data columns and one, two or three parity columns before them, called P, Q
//! and R. Byte `i` of a parity depends on byte `i` of each data column only. Over the field of 256
//! elements in [`galois`], with data columns `d[0]` to `d[n-1]`:
//!
//! ```text
//!   P = sum of         d[k]
//!   Q = sum of 2^(n-1-k) d[k]
//!   R = sum of 4^(n-1-k) d[k]
//! ```
//!
//! Any three of these columns lost leave as many equations as unknowns, and they can always be
//! solved. A data column that is shorter than others counts as if filled up with zeros.
//!
//! Making parity and rebuilding columns are thus one operation: *each output is a linear
//! combination of the inputs*. [`raidz`] finds the factors, `combine` does the work, with the
//! widest instructions the processor has, reading each input once however many outputs there are.
//!
//! # Knows nothing about
//! devices, sectors, and which block is where: rows are laid out in `vdev`.

mod combine;
mod combine_simd;
pub mod galois;
pub mod raidz;

pub use combine::Implementation;
pub use raidz::{COLUMNS_MAX, PARITY_MAX, generate, generate_with, reconstruct, reconstruct_with};
