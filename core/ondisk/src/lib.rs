//! Everything that is stored: bytes to values and back.
//!
//! # Problem
//! A pool outlives the program that wrote it, the machine, and the machine's byte order. Other
//! implementations read what we write and we read what they wrote, and a disk can hand back
//! anything at all. A mistake of one byte here is a pool that no program can open.
//!
//! # Mechanism
//! *Two byte orders, one declaration.* OpenZFS stores structures as its machine has them in
//! memory, so a pool from SPARC is big-endian and a pool from x86 little-endian; one pool may mix
//! both, block by block. Each structure is declared once, with its offsets, by
//! [`on_disk!`](crate::on_disk): the compiler checks that fields are where the format has them and
//! that their sizes add up. From that one declaration come the value type, its decoder for both
//! orders and its encoder. A [`Reader`](declare::Reader) knows the order and cannot run past its
//! end; a [`Writer`](declare::Writer) is always little-endian, since everything we store says so
//! in its block pointer or its magic number.
//!
//! Structures that are not a fixed list of fields (name-value lists, ZAPs, space maps, dnodes with
//! their variable tail) are decoded by hand in the file that bears their name, with the same
//! `Reader`.
//!
//! # Invariants
//! - Decoding accepts any bytes: it refuses with a [`Corrupt`](declare::Corrupt), and never panics.
//! - `encode(decode(bytes)) == bytes` for little-endian bytes that OpenZFS wrote. Values we do not
//!   know (an object type, a compression) are preserved, not refused: the layer that must *act* on
//!   one refuses it.
//! - Reserved bytes are carried through unchanged, and are zero in what we make ourselves.
//! - Nothing as wide as the machine's word reaches the disk.
//!
//! # Knows nothing about
//! Devices, checksum functions, caches. Where a checksum is stored beside what it covers (labels,
//! gang headers, log blocks), its place is declared here and its value computed above.

pub mod acl;
pub mod attributes;
pub mod block_cloning;
pub mod block_pointer;
pub mod bookmark;
pub mod bpobj;
pub mod bptree;
pub mod cache_device;
pub mod checksum;
pub mod compression;
pub mod dataset;
pub mod dataset_dir;
pub mod deadlist;
pub mod declare;
pub mod dedup;
pub mod delegation;
pub mod dnode;
pub mod embedded;
pub mod error_log;
pub mod error_scrub;
pub mod features;
pub mod fuid;
pub mod gang;
pub mod history;
pub mod indirect;
pub mod intent_log;
pub mod label;
pub mod nvlist;
pub mod object_type;
pub mod objset;
pub mod pool_directory;
pub mod rebuild;
pub mod scan;
pub mod sealing;
pub mod space_map;
pub mod stream;
pub mod txg_times;
pub mod uberblock;
pub mod units;
pub mod zap;
pub mod znode;
