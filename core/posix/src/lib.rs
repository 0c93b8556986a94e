//! Files and directories: what POSIX promises, kept in objects.
//!
//! A [`FileSystem`](filesystem::FileSystem) is one mounted dataset or snapshot. Its operations take object
//! numbers and explicit [`types::Credentials`]; no protocol is known here, so FUSE, NFS and tests call
//! the same functions. One file per operation in `ops/`.

pub mod types;
