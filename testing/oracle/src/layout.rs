//! Pool layouts: which vdevs a test pool is made of.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// A layout, as `zpool create` is told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One vdev without redundancy.
    Single,
    /// A mirror of so many.
    Mirror(usize),
    /// RAID-Z with so much parity, over twice as many disks and two.
    RaidZ(usize),
    /// Two mirrors, a mirrored log and a spare.
    Mixed,
    /// Three single vdevs of different sizes.
    Stripe,
}

/// Every layout that is judged.
pub const LAYOUTS: [Layout; 8] = [
    Layout::Single,
    Layout::Mirror(2),
    Layout::Mirror(3),
    Layout::RaidZ(1),
    Layout::RaidZ(2),
    Layout::RaidZ(3),
    Layout::Mixed,
    Layout::Stripe,
];

impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single => write!(out, "single"),
            Self::Mirror(ways) => write!(out, "mirror{ways}"),
            Self::RaidZ(parity) => write!(out, "raidz{parity}"),
            Self::Mixed => write!(out, "mixed"),
            Self::Stripe => write!(out, "stripe"),
        }
    }
}

impl Layout {
    /// How many images it needs.
    #[must_use]
    pub fn image_count(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Mirror(ways) => ways,
            Self::RaidZ(parity) => 2 * parity + 2,
            Self::Mixed => 7,
            Self::Stripe => 3,
        }
    }

    /// Makes its empty images in the new folder `images`.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn make_images(self, images: &Path, size_bytes: u64) -> io::Result<()> {
        fs::create_dir_all(images)?;
        for index in 0..self.image_count() {
            // Vdevs of different sizes show where sizes were mixed up.
            let size = match self {
                Self::Stripe => size_bytes / 4 * (index as u64 + 2),
                _ => size_bytes,
            };
            File::create(images.join(format!("{index}.img")))?.set_len(size)?;
        }
        Ok(())
    }

    /// The words after the pool's name in `zpool create`.
    #[must_use]
    pub fn words(self, images: &Path) -> Vec<String> {
        let image = |index: usize| images.join(format!("{index}.img")).display().to_string();
        let all = |kind: &str| -> Vec<String> {
            let images = (0..self.image_count()).map(image);
            std::iter::once(kind.to_string()).chain(images).collect()
        };
        match self {
            Self::Single | Self::Stripe => (0..self.image_count()).map(image).collect(),
            Self::Mirror(_) => all("mirror"),
            Self::RaidZ(parity) => all(&format!("raidz{parity}")),
            Self::Mixed => {
                let words = [
                    "mirror", "0", "1", "mirror", "2", "3", "log", "mirror", "4", "5", "spare", "6",
                ];
                words
                    .iter()
                    .map(|word| word.parse().map_or((*word).to_string(), image))
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_names_every_image_it_makes() {
        let folder = tempfile::tempdir().unwrap();
        for layout in LAYOUTS {
            let images = folder.path().join(layout.to_string());
            layout.make_images(&images, 1 << 20).unwrap();
            let words = layout.words(&images);
            let named = words
                .iter()
                .filter(|word| Path::new(word).is_file())
                .count();
            assert_eq!(named, layout.image_count(), "{words:?}");
        }
    }
}
