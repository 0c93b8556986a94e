//! Devices as they are given on a command line: whole paths, paths that begin with a dot, and short
//! names of what is in one of the folders of devices.
//!
//! A path is kept as it was given: a link in `/dev/disk/by-id` names the device better than what it
//! leads to.

use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Folders in which short names are looked for, the most telling names first.
const FOLDERS: [&str; 9] = [
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-uuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev",
];

/// The whole path of a device or file that is there and may be a vdev.
///
/// # Errors
/// What is wrong with it, in OpenZFS's words.
pub fn find(given: &str) -> Result<String, String> {
    let path = match given.starts_with('/') {
        true => existing(given)?,
        false => resolve(given).ok_or_else(|| {
            format!(
                "cannot open '{given}': no such device in /dev\n\
                 must be a full path or shorthand device name"
            )
        })?,
    };
    let facts = std::fs::metadata(&path)
        .map_err(|error| format!("cannot open '{path}': {}", reason(&error)))?;
    match may_be_vdev(&facts) {
        true => Ok(path),
        false => Err(format!(
            "cannot use '{path}': must be a block device or regular file"
        )),
    }
}

/// The path of a short name, or of one that begins with a dot; none where there is nothing.
pub fn resolve(given: &str) -> Option<String> {
    let folders = match std::env::var("ZPOOL_IMPORT_PATH") {
        Ok(text) => text.split(':').map(str::to_string).collect(),
        Err(_) => FOLDERS.map(str::to_string).to_vec(),
    };
    let folders = folders.into_iter().filter(|folder| !folder.is_empty());
    let mut paths = folders.map(|folder| format!("{folder}/{given}"));
    if let Some(path) = paths.find(|path| Path::new(path).exists()) {
        return Some(path);
    }
    let is_relative = given.starts_with("./") || given.starts_with("../");
    let real = std::fs::canonicalize(given).ok().filter(|_| is_relative)?;
    Some(real.to_string_lossy().into_owned())
}

fn existing(path: &str) -> Result<String, String> {
    match std::fs::canonicalize(path) {
        Ok(_) => Ok(path.to_string()),
        Err(_) => Err(format!("cannot resolve path '{path}'")),
    }
}

fn may_be_vdev(facts: &Metadata) -> bool {
    facts.is_file() || facts.file_type().is_block_device()
}

/// An error of the system without its number.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_refused_by_its_kind_of_name() {
        assert_eq!(
            find("/no/such/file"),
            Err("cannot resolve path '/no/such/file'".to_string())
        );
        assert_eq!(
            find("nosuchdisk"),
            Err("cannot open 'nosuchdisk': no such device in /dev\n\
                 must be a full path or shorthand device name"
                .to_string())
        );
    }

    #[test]
    fn only_files_and_block_devices_are_vdevs() {
        assert_eq!(
            find("/dev/null"),
            Err("cannot use '/dev/null': must be a block device or regular file".to_string())
        );
        assert_eq!(
            find("null"),
            Err("cannot use '/dev/null': must be a block device or regular file".to_string())
        );
        assert_eq!(find("/etc/passwd"), Ok("/etc/passwd".to_string()));
    }

    #[test]
    fn a_path_below_this_folder_begins_with_a_dot() {
        let path = find("./Cargo.toml").unwrap();
        assert!(
            path.starts_with('/') && path.ends_with("/Cargo.toml"),
            "{path}"
        );
        assert!(find("Cargo.toml").is_err());
    }
}
