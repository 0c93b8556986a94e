//! Raw damage: what dying disks, wrong copies and people do to images. No checksum is put right.

use crate::images::{Base, Image};
use tarn_host::sim::{Random, SimHost};

/// A label.
const LABEL_BYTES: u64 = 256 << 10;

/// Damages the disks of a machine, and says how.
pub fn damage(machine: &SimHost, base: &Base, random: &mut Random) -> String {
    let count = 1 + random.index(3);
    let told: Vec<String> = (0..count).map(|_| one(machine, base, random)).collect();
    told.join("; ")
}

fn one(machine: &SimHost, base: &Base, random: &mut Random) -> String {
    let image = &base.images[random.index(base.images.len())];
    let name = &image.name;
    let path = format!("{}/{name}", crate::house::DISKS);
    let Some(disk) = machine.disk(&path) else {
        return format!("{name} stays missing");
    };
    match random.index(10) {
        0 | 1 => {
            let count = 1 + random.index(200);
            for _ in 0..count {
                let at = somewhere(image, random);
                let mut sector = vec![0; 512];
                random.fill(&mut sector);
                disk.poke(at, &sector);
            }
            format!("{name}: {count} sectors overwritten")
        }
        2 => {
            let at = somewhere(image, random);
            let length = (1_usize << (12 + random.index(11))).min(room(image, at));
            disk.poke(at, &vec![0; length]);
            format!("{name}: {length} bytes zeroed at {at:#x}")
        }
        3 => {
            let at = somewhere(image, random);
            let length = (1_usize << (9 + random.index(12))).min(room(image, at));
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            disk.poke(at, &bytes);
            format!("{name}: {length} random bytes at {at:#x}")
        }
        4 => {
            let new = match random.index(4) {
                0 => random.below(image.size_bytes),
                1 => image.size_bytes - 512,
                2 => image.size_bytes / 2,
                _ => random.below(1 << 20),
            };
            image.cut(new & !511).insert(machine);
            format!("{name}: cut to {} bytes", new & !511)
        }
        5 => {
            machine.host().remove_file(path.as_ref()).ok();
            format!("{name}: missing")
        }
        6 => {
            image.called(&format!("copy-of-{name}")).insert(machine);
            format!("{name}: there twice")
        }
        7 => {
            let other = &base.images[random.index(base.images.len())];
            other.called(name).insert(machine);
            format!("{name}: is a copy of {}", other.name)
        }
        8 => {
            let (from, to) = (random.below(4), random.below(4));
            if let (Some(from), Some(to)) = (label(image, from), label(image, to)) {
                let length = usize::try_from(LABEL_BYTES).unwrap_or(0);
                let bytes = disk.peek(from, length);
                disk.poke(to, &bytes);
            }
            format!("{name}: label {from} copied over label {to}")
        }
        _ => {
            let labels: Vec<u64> = (0..4).filter(|_| random.chance(2, 3)).collect();
            for number in &labels {
                let Some(at) = label(image, *number) else {
                    continue;
                };
                let offset = 512 * random.below(LABEL_BYTES / 512);
                let mut bytes = vec![0; 4096.min(room(image, at + offset))];
                random.fill(&mut bytes);
                disk.poke(at + offset, &bytes);
            }
            format!("{name}: labels {labels:?} damaged")
        }
    }
}

/// A sector, more often one that says something.
fn somewhere(image: &Image, random: &mut Random) -> u64 {
    let written = image.written();
    if written.is_empty() || random.chance(1, 8) {
        return random.below(image.size_bytes) & !511;
    }
    let piece = written[random.index(written.len())];
    piece + 512 * random.below(128)
}

fn room(image: &Image, at: u64) -> usize {
    usize::try_from(image.size_bytes.saturating_sub(at)).unwrap_or(0)
}

fn label(image: &Image, number: u64) -> Option<u64> {
    tarn_ondisk::label::label_offset(image.size_bytes, number)
}
