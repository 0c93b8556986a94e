//! OpenZFS's own user-space programs, unpacked from Debian's archive and not installed.
//!
//! # Problem
//! `zdb`, `raidz_test` and `zstream` judge us, and must be the real ones. Installing them would
//! change the machine's package sources and put another `zpool` in the path.
//!
//! # Mechanism
//! `apt-get` works on lists of its own in a scratch folder, which name one release and its
//! backports. It downloads the packages, `dpkg -x` unpacks them, and every program is started with
//! its libraries beside it. The same for any other Debian program that is only looked at
//! ([`unpack_debian`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::program::{self, ProgramError, Spoken};

/// The release whose backports carry the OpenZFS we hold ourselves to.
const RELEASE: &str = "bookworm";

const OPENZFS_PACKAGES: [&str; 6] = [
    "zfsutils-linux",
    "libzfs6linux",
    "libzpool6linux",
    "libnvpair3linux",
    "libuutil3linux",
    "zfs-test",
];

/// Why the tools cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// The machine cannot unpack Debian packages.
    #[error(
        "OpenZFS's tools are unpacked from Debian packages, and this machine has no {program}. \
         Unpack them elsewhere and set TARN_OPENZFS to the folder whose sbin/zdb or usr/sbin/zdb it is"
    )]
    NoDebian {
        /// What is missing.
        program: &'static str,
    },
    /// A step failed.
    #[error("{0}")]
    Program(#[from] ProgramError),
    /// A file operation was refused.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// As a verb.
        doing: &'static str,
        /// Of what.
        path: PathBuf,
        /// The answer.
        source: std::io::Error,
    },
    /// The packages do not hold the program.
    #[error("there is no {program} below {}", root.display())]
    NoProgram {
        /// Which.
        program: String,
        /// Where it was looked for.
        root: PathBuf,
    },
}

fn refused(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ToolsError + use<> {
    let path = path.to_path_buf();
    move |source| ToolsError::Io {
        doing,
        path,
        source,
    }
}

/// A folder of unpacked programs and their libraries.
#[derive(Debug, Clone)]
pub struct Unpacked {
    root: PathBuf,
}

impl Unpacked {
    /// OpenZFS's programs: those of `$TARN_OPENZFS`, or unpacked below `folder`, once.
    ///
    /// # Errors
    /// If the machine is no Debian, or its archive cannot be reached.
    pub fn openzfs(folder: &Path) -> Result<Self, ToolsError> {
        let unpacked = match std::env::var_os("TARN_OPENZFS") {
            Some(root) => Self {
                root: PathBuf::from(root),
            },
            None => unpack_debian(
                &folder.join("openzfs"),
                &OPENZFS_PACKAGES,
                Source::Backports,
            )?,
        };
        unpacked.find("zdb")?;
        Ok(unpacked)
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn find(&self, program: &str) -> Result<PathBuf, ToolsError> {
        let folders = ["sbin", "usr/sbin", "bin", "usr/bin"];
        let mut places = folders
            .iter()
            .map(|folder| self.root.join(folder).join(program));
        places
            .find(|path| path.is_file())
            .ok_or_else(|| ToolsError::NoProgram {
                program: program.to_string(),
                root: self.root.clone(),
            })
    }

    /// A command that starts one of the programs with the libraries beside it.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn command(&self, program: &str) -> Result<Command, ToolsError> {
        let mut command = Command::new(self.find(program)?);
        let library = |folder: &str| self.root.join(folder).display().to_string();
        let libraries = [
            library("lib/x86_64-linux-gnu"),
            library("usr/lib/x86_64-linux-gnu"),
            library("lib/aarch64-linux-gnu"),
            library("usr/lib/aarch64-linux-gnu"),
        ];
        command.env("LD_LIBRARY_PATH", libraries.join(":"));
        Ok(command)
    }

    /// Runs one of the programs to its end.
    ///
    /// # Errors
    /// If there is no such program, or it does not end in time.
    pub fn run(
        &self,
        program: &str,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<Spoken, ToolsError> {
        Ok(program::run(self.command(program)?.args(arguments), limit)?)
    }
}

/// Where packages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The release as it is.
    Release,
    /// The release's backports.
    Backports,
}

/// Unpacks Debian packages into `folder`, unless that was done before. Nothing is installed, and
/// the machine's package sources are not touched.
///
/// # Errors
/// If `apt-get` or `dpkg` is missing or fails.
pub fn unpack_debian(
    folder: &Path,
    packages: &[&str],
    source: Source,
) -> Result<Unpacked, ToolsError> {
    let unpacked = Unpacked {
        root: folder.to_path_buf(),
    };
    if folder.is_dir() {
        return Ok(unpacked);
    }
    for program in ["apt-get", "dpkg"] {
        if !is_in_path(program) {
            return Err(ToolsError::NoDebian { program });
        }
    }
    let aside = folder.with_extension("unpacking");
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(refused("remove", &aside))?;
    }
    let apt = Apt::prepare(&aside.join("apt"))?;
    apt.run(&["-qq", "update"])?;
    let target = match source {
        Source::Release => vec!["-qq", "download"],
        Source::Backports => vec!["-qq", "download", "-t", "bookworm-backports"],
    };
    apt.run(&[&target[..], packages].concat())?;
    let root = aside.join("root");
    for package in apt.downloaded()? {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("-x").arg(package).arg(&root);
        program::run(&mut dpkg, Duration::from_secs(120))?.expect_success()?;
    }
    merge_usr(&root)?;
    fs::rename(&root, folder).map_err(refused("move", &root))?;
    fs::remove_dir_all(&aside).map_err(refused("remove", &aside))?;
    Ok(unpacked)
}

/// On an installed machine `/bin`, `/lib` and `/sbin` are links into `/usr`, and some packages
/// still bring files by these names. They are found under both.
fn merge_usr(root: &Path) -> Result<(), ToolsError> {
    for folder in ["bin", "lib", "sbin"] {
        let (from, to) = (root.join(folder), root.join("usr").join(folder));
        if !from.is_dir() {
            continue;
        }
        fs::create_dir_all(&to).map_err(refused("make", &to))?;
        let mut copy = Command::new("cp");
        copy.arg("--archive").arg(from.join(".")).arg(&to);
        program::run(&mut copy, Duration::from_secs(120))?.expect_success()?;
    }
    Ok(())
}

/// `apt-get` with lists and sources of its own.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn prepare(folder: &Path) -> Result<Self, ToolsError> {
        for name in ["lists/partial", "parts", "packages"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(refused("create", &path))?;
        }
        let mirror = mirror();
        let line = |suite: &str| format!("deb {mirror} {suite} main contrib\n");
        let sources = line(RELEASE) + &line(&format!("{RELEASE}-backports"));
        let path = folder.join("sources.list");
        fs::write(&path, sources).map_err(refused("write", &path))?;
        let folder = fs::canonicalize(folder).map_err(refused("find", folder))?;
        Ok(Self { folder })
    }

    fn run(&self, arguments: &[&str]) -> Result<(), ToolsError> {
        let place = |name: &str| self.folder.join(name).display().to_string();
        let mut apt = Command::new("apt-get");
        apt.arg(format!("-oDir::Etc::sourcelist={}", place("sources.list")))
            .arg(format!("-oDir::Etc::sourceparts={}", place("parts")))
            .arg(format!("-oDir::State::lists={}", place("lists")))
            .args([
                "-oAPT::Sandbox::User=root",
                "-oDir::Cache::pkgcache=",
                "-oDir::Cache::srcpkgcache=",
            ])
            .args(arguments)
            .current_dir(self.folder.join("packages"));
        program::run(&mut apt, Duration::from_secs(600))?.expect_success()?;
        Ok(())
    }

    fn downloaded(&self) -> Result<Vec<PathBuf>, ToolsError> {
        let folder = self.folder.join("packages");
        let entries = fs::read_dir(&folder).map_err(refused("list", &folder))?;
        let mut packages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        packages.retain(|path| path.extension().is_some_and(|extension| extension == "deb"));
        packages.sort();
        Ok(packages)
    }
}

/// The mirror this machine uses, or Debian's own.
fn mirror() -> String {
    let sources = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").unwrap_or_default();
    let named = sources.lines().find_map(|line| line.strip_prefix("URIs:"));
    let first = named.and_then(|uris| uris.split_whitespace().next());
    first.unwrap_or("http://deb.debian.org/debian").to_string()
}

/// Whether a program can be started by its name.
#[must_use]
pub fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_package_has_outside_of_usr_is_in_it_too() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str| root.path().join(name);
        fs::create_dir_all(file("lib/here")).unwrap();
        fs::create_dir_all(file("usr/lib/here")).unwrap();
        fs::write(file("lib/here/a.so.1"), "a").unwrap();
        std::os::unix::fs::symlink("a.so.1", file("lib/here/a.so")).unwrap();
        fs::write(file("usr/lib/here/b.so"), "b").unwrap();
        merge_usr(root.path()).unwrap();
        assert_eq!(
            fs::read_link(file("usr/lib/here/a.so")).unwrap(),
            Path::new("a.so.1")
        );
        for (name, content) in [
            ("lib/here/a.so", "a"),
            ("usr/lib/here/a.so", "a"),
            ("usr/lib/here/b.so", "b"),
        ] {
            assert_eq!(fs::read_to_string(file(name)).unwrap(), content);
        }
    }
}
