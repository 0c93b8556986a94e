//! The operations, one file each: all are methods of [`FileSystem`](crate::filesystem::FileSystem).

mod access;
mod attributes;
mod get_xattr;
mod list_xattr;
mod lookup;
mod open_close;
mod read;
mod read_directory;
mod read_link;
mod seek;
mod space;
mod sync;

pub use read::ReadData;
pub(crate) use read_directory::text_of;
