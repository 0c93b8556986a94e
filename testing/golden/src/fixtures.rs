//! Finding fixtures, unpacking them, and copying what is to be changed.
//!
//! # Invariants
//! - An unpacked fixture is whole or absent: it is unpacked beside its place and renamed into it.
//! - Unpacked images are never changed; [`Fixture::working_copy`] gives those that may be.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that names the folder of fixtures.
pub const VARIABLE: &str = "TARN_FIXTURES";

/// Why a fixture cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    /// No folder of fixtures was found.
    #[error(
        "no fixtures: looked in {}. Set {VARIABLE} to the folder that holds basic.tar.zst and the others, \
         or put it beside the checkout as ../shared/fixtures",
        .looked.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Absent {
        /// Where.
        looked: Vec<PathBuf>,
    },
    /// The folder is there, and this fixture is not in it.
    #[error("there is no fixture {name} in {}; there are: {}", folder.display(), known.join(" "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The folder.
        folder: PathBuf,
        /// What it holds.
        known: Vec<String>,
    },
    /// A program that unpacks or copies failed.
    #[error("{program} failed on {}: {what}", path.display())]
    Program {
        /// Its name.
        program: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        what: String,
    },
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
}

impl FixtureError {
    pub(crate) fn io(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }
}

/// The folder of archives, and where they are unpacked.
#[derive(Debug, Clone)]
pub struct Fixtures {
    folder: PathBuf,
    unpacked: PathBuf,
}

impl Fixtures {
    /// Looks in `$TARN_FIXTURES`, `../shared/fixtures` beside the checkout, and
    /// `testing/golden/fixtures`. Archives are unpacked below `unpacked`.
    ///
    /// # Errors
    /// [`FixtureError::Absent`], naming the cure.
    pub fn find(checkout: &Path, unpacked: &Path) -> Result<Self, FixtureError> {
        let named = std::env::var_os(VARIABLE).map(PathBuf::from);
        let beside = checkout
            .parent()
            .map(|parent| parent.join("shared/fixtures"));
        let inside = checkout.join("testing/golden/fixtures");
        let looked: Vec<PathBuf> = match named {
            // A folder that was named and is wrong is a mistake to tell, not to work around.
            Some(folder) => vec![folder],
            None => beside.into_iter().chain([inside]).collect(),
        };
        let folder = looked
            .iter()
            .find(|folder| folder.join("basic.tar.zst").is_file())
            .cloned();
        match folder {
            Some(folder) => Ok(Self {
                folder,
                unpacked: unpacked.to_path_buf(),
            }),
            None => Err(FixtureError::Absent { looked }),
        }
    }

    /// The names of all fixtures there are, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                Some(
                    entry
                        .file_name()
                        .to_str()?
                        .strip_suffix(".tar.zst")?
                        .to_string(),
                )
            })
            .collect();
        names.sort();
        names
    }

    /// Unpacks one fixture, unless it is unpacked already.
    ///
    /// # Errors
    /// If there is none of that name, or `tar` and `zstd` cannot unpack it.
    pub fn unpack(&self, name: &str) -> Result<Fixture, FixtureError> {
        let archive = self.folder.join(format!("{name}.tar.zst"));
        if !archive.is_file() {
            let (name, folder) = (name.to_string(), self.folder.clone());
            return Err(FixtureError::Unknown {
                name,
                folder,
                known: self.names(),
            });
        }
        let fixture = Fixture {
            name: name.to_string(),
            folder: self.unpacked.join(name),
        };
        if is_newer(&fixture.folder, &archive) {
            return Ok(fixture);
        }
        let aside = self.unpacked.join(format!(".{name}.unpacking"));
        remove_folder(&aside)?;
        remove_folder(&fixture.folder)?;
        fs::create_dir_all(&aside).map_err(FixtureError::io("create", &aside))?;
        let mut tar = Command::new("tar");
        tar.args(["--zstd", "--no-same-owner", "-xSf"])
            .arg(&archive)
            .arg("-C")
            .arg(&aside);
        run("tar", &archive, &mut tar)?;
        let made = aside.join(name);
        // The folder's time says which archive it came from.
        let touched = fs::File::open(&made)
            .and_then(|folder| folder.set_modified(std::time::SystemTime::now()));
        touched.map_err(FixtureError::io("mark", &made))?;
        fs::rename(&made, &fixture.folder).map_err(FixtureError::io("move", &made))?;
        remove_folder(&aside)?;
        Ok(fixture)
    }
}

/// One unpacked fixture.
#[derive(Debug, Clone)]
pub struct Fixture {
    name: String,
    folder: PathBuf,
}

impl Fixture {
    /// Its name, such as `raidz2`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its pool.
    #[must_use]
    pub fn pool(&self) -> String {
        format!("fx{}", self.name)
    }

    /// The folder with `commands`, `truth` and the images. Nothing in it may be changed.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its images, sorted by name.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn images(&self) -> Result<Vec<PathBuf>, FixtureError> {
        let entries = fs::read_dir(&self.folder).map_err(FixtureError::io("list", &self.folder))?;
        let mut images: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension() == Some(OsStr::new("img")))
            .collect();
        images.sort();
        Ok(images)
    }

    /// Copies the images, holes and all, into the new folder `to`.
    ///
    /// # Errors
    /// If there is no room, or `to` cannot be made.
    pub fn working_copy(&self, to: &Path) -> Result<(), FixtureError> {
        fs::create_dir_all(to).map_err(FixtureError::io("create", to))?;
        let images = self.images()?;
        let mut copy = Command::new("cp");
        copy.args(["--sparse=always", "--reflink=auto"])
            .args(&images)
            .arg(to);
        run("cp", &self.folder, &mut copy)
    }

    /// What OpenZFS saw in it.
    ///
    /// # Errors
    /// If a file of the truth cannot be read or makes no sense.
    pub fn truth(&self) -> Result<crate::truth::Truth, crate::truth::TruthError> {
        crate::truth::Truth::read(&self.folder.join("truth"))
    }
}

fn is_newer(folder: &Path, archive: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    match (time(folder), time(archive)) {
        (Ok(folder), Ok(archive)) => folder > archive,
        _ => false,
    }
}

fn remove_folder(folder: &Path) -> Result<(), FixtureError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(FixtureError::io("remove", folder)),
    }
}

fn run(program: &'static str, path: &Path, command: &mut Command) -> Result<(), FixtureError> {
    let failed = |what: String| FixtureError::Program {
        program,
        path: path.to_path_buf(),
        what,
    };
    let output = command
        .output()
        .map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_string(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fixtures_name_the_cure() {
        let folder = tempfile::tempdir().unwrap();
        let looked = vec![folder.path().to_path_buf()];
        let text = FixtureError::Absent { looked }.to_string();
        assert!(
            text.contains(VARIABLE) && text.contains("../shared/fixtures"),
            "{text}"
        );
    }
}
