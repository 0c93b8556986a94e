//! The operations, one file each: all are methods of [`FileSystem`](crate::filesystem::FileSystem).

pub(crate) mod access;
mod allocate;
mod attributes;
mod copy_range;
pub(crate) mod create;
mod create_exclusive;
mod drop_privileges;
mod get_xattr;
mod hold_file_system;
mod link;
mod list_xattr;
mod lock;
mod lookup;
mod nfs4_acl_xattr;
mod open_close;
mod read;
mod read_delegation;
mod read_directory;
mod read_link;
pub(crate) mod rename;
mod seek;
pub(crate) mod set_attributes;
mod set_xattr;
mod share;
mod space;
mod sync;
pub(crate) mod unlink;
pub(crate) mod write;

pub use create_exclusive::Verifier;
pub use hold_file_system::Holding;
pub use read::ReadData;
pub(crate) use read_directory::text_of;
pub use sync::Unsynced;
pub use write::{NewContents, WriteAt};
