//! The disks to be damaged: images as bytes, which a round copies, changes and hands to a simulated
//! machine.

use crate::devices::{Devices, Disk};
use crate::house::{DISKS, House, noise};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use tarn_administration::messages::pool::VdevKind;
use tarn_host::sim::{Random, SimDisk, SimHost, SimOptions};
use tarn_ondisk::declare::widen;

/// In such pieces images are copied; pieces of zeros are left out.
const PIECE_BYTES: usize = 64 << 10;
/// The size of disks that are made here.
const OWN_DISK_BYTES: u64 = 64 << 20;

/// One disk: its size, and what is on it, by pieces.
#[derive(Clone)]
pub struct Image {
    /// Its file name.
    pub name: String,
    /// How large it is.
    pub size_bytes: u64,
    pieces: Vec<(u64, Arc<[u8]>)>,
}

/// A pool as its disks.
#[derive(Clone)]
pub struct Base {
    /// What it is called here.
    pub name: String,
    /// The disks.
    pub images: Vec<Image>,
}

impl Image {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> io::Result<Image> {
        let mut file = File::open(path)?;
        let size_bytes = file.seek(SeekFrom::End(0))?;
        file.rewind()?;
        let mut pieces = Vec::new();
        let mut offset = 0;
        while offset < size_bytes {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            (&mut file)
                .take(widen(PIECE_BYTES))
                .read_to_end(&mut piece)?;
            let length = widen(piece.len());
            if piece.iter().any(|byte| *byte != 0) {
                pieces.push((offset, piece.into()));
            }
            offset += length.max(1);
        }
        Ok(Image {
            name: file_name(path),
            size_bytes,
            pieces,
        })
    }

    /// Copies a disk of a simulated machine.
    pub fn of_disk(name: &str, disk: &SimDisk, size_bytes: u64) -> Image {
        let mut pieces = Vec::new();
        for offset in (0..size_bytes).step_by(PIECE_BYTES) {
            let piece = disk.peek(offset, PIECE_BYTES);
            if piece.iter().any(|byte| *byte != 0) {
                pieces.push((offset, piece.into()));
            }
        }
        Image {
            name: name.to_string(),
            size_bytes,
            pieces,
        }
    }

    /// Puts the image into a machine.
    pub fn insert(&self, machine: &SimHost) -> SimDisk {
        let disk = machine.add_disk(format!("{DISKS}/{}", self.name), self.size_bytes);
        for (offset, piece) in &self.pieces {
            disk.poke(*offset, piece);
        }
        disk
    }

    /// The same under another name.
    pub fn called(&self, name: &str) -> Image {
        Image {
            name: name.to_string(),
            ..self.clone()
        }
    }

    /// The beginning of it.
    pub fn cut(&self, size_bytes: u64) -> Image {
        Image {
            size_bytes,
            ..self.clone()
        }
    }

    /// Where there is something else than zeros: starts of pieces.
    pub fn written(&self) -> Vec<u64> {
        self.pieces.iter().map(|(offset, _)| *offset).collect()
    }
}

impl Base {
    /// All images of a folder.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read(name: &str, images: &[std::path::PathBuf]) -> io::Result<Base> {
        let images = images.iter().map(|path| Image::read(path));
        Ok(Base {
            name: name.to_string(),
            images: images.collect::<io::Result<_>>()?,
        })
    }

    /// A pool that is made here: of one disk, or several.
    ///
    /// # Panics
    /// When a good machine cannot make it: that is no matter of bad input.
    pub fn make(name: &str, kind: VdevKind, disk_count: usize) -> Base {
        Base::make_with(name, kind, disk_count, fill)
    }

    /// The same, filled otherwise.
    ///
    /// # Panics
    /// As [`make`](Self::make).
    pub fn make_with(
        name: &str,
        kind: VdevKind,
        disk_count: usize,
        fill: impl FnOnce(&House) + Send,
    ) -> Base {
        let machine = SimHost::new(SimOptions::seed(1));
        let names: Vec<String> = (0..disk_count)
            .map(|number| format!("disk{number}"))
            .collect();
        for name in &names {
            machine.add_disk(format!("{DISKS}/{name}"), OWN_DISK_BYTES);
        }
        let disks: Vec<&str> = names.iter().map(String::as_str).collect();
        let made = machine.run(|host| {
            let house = House::new(host);
            house
                .create("tank", kind, &disks, &[])
                .expect("a good machine makes a pool");
            fill(&house);
            house
                .export("tank", false)
                .expect("a good pool is exported");
        });
        made.expect("nobody cuts the power");
        let image = |name: &String| {
            let disk = machine
                .disk(format!("{DISKS}/{name}"))
                .expect("it was added");
            Image::of_disk(name, &disk, OWN_DISK_BYTES)
        };
        Base {
            name: name.to_string(),
            images: names.iter().map(image).collect(),
        }
    }

    /// A machine with these disks.
    pub fn machine(&self, seed: u64) -> SimHost {
        let machine = SimHost::new(SimOptions {
            // Which thread goes on when is not what is tested here.
            switch_one_in: 0,
            ..SimOptions::seed(seed)
        });
        for image in &self.images {
            image.insert(&machine);
        }
        machine
    }
}

impl Base {
    /// The disks of a machine with this pool, and where in them its blocks are.
    pub fn devices(&self, machine: &SimHost) -> Devices {
        let disk = |image: &Image| {
            let disk = machine.disk(format!("{DISKS}/{}", image.name))?;
            let size_bytes = image.size_bytes;
            Some(Disk { disk, size_bytes })
        };
        Devices::new(self.images.iter().filter_map(disk).collect())
    }
}

/// A little of everything, so that there is something to damage.
fn fill(house: &House) {
    let files = house.files("tank");
    let mut random = Random::new(2);
    for number in 0..120 {
        let file = files.make(&format!(
            "a file with a name of some length, number {number}"
        ));
        let file = file.expect("there is room");
        let size = match number % 4 {
            0 => 0,
            1 => 100,
            2 => random.index(20_000),
            _ => random.index(300_000),
        };
        files
            .write(file, 0, &noise(number, size))
            .expect("there is room");
        if number % 10 == 0 {
            files
                .write(file, 30 << 20, b"far behind a hole")
                .expect("there is room");
            house.sync().expect("a good disk stores");
        }
        if number % 7 == 3 {
            files
                .set_xattr(file, "user.note", &noise(number, 50 + random.index(3000)))
                .expect("there is room");
        }
    }
    for number in (0..120).filter(|number| number % 5 == 0) {
        files
            .unlink(&format!(
                "a file with a name of some length, number {number}"
            ))
            .expect("it is there");
    }
    house.sync().expect("a good disk stores");
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
