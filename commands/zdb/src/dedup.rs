//! `zdb -S`: the space that deduplication would save, and the signature of every block.
//!
//! With `-S user:all` or `-S all:all`, as older versions had it, nothing is estimated: every block
//! of data of users, or every block, is a line with its level, physical size, number of DVAs, type,
//! checksum function, compression and checksum. The part behind the colon is the weakest checksum
//! function to show. Lines can be sorted and counted by other programs.

use crate::look::Look;
use crate::out::Out;
use std::collections::BTreeMap;
use tarn_engine::inspect::InspectError;
use tarn_engine::inspect::visit::{BlockVisitor, FoundBlock};
use tarn_object::ObjectError;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::checksum::{Checksum, ChecksumKind};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::object_type::ObjectType;
use tarn_terminal::number::{nice_bytes, nice_count};

/// The signatures to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signatures {
    /// Whether only blocks of files are shown.
    only_user_data: bool,
    /// The number of the weakest checksum function.
    weakest: u8,
}

impl Signatures {
    /// From `user:all`, `all:all`, `user:sha256` and so on; none for anything else.
    pub fn parse(text: &str) -> Option<Signatures> {
        let (whose, checksum) = text.split_once(':')?;
        let only_user_data = match whose {
            "user" => true,
            "all" => false,
            _ => return None,
        };
        let weakest = match checksum {
            "all" => 0,
            name => (0..=ChecksumKind::Blake3.code())
                .find(|code| ChecksumKind::from_code(*code).to_string() == name)?,
        };
        Some(Signatures {
            only_user_data,
            weakest,
        })
    }

    fn wants(self, pointer: &BlockPointer) -> bool {
        let is_user_data =
            pointer.level().is_data() && pointer.object_type() == ObjectType::PlainFile;
        let is_strong = pointer.checksum_kind().code() >= self.weakest;
        is_strong && (is_user_data || !self.only_user_data)
    }
}

/// A block's signature, in columns.
fn signature(pointer: &BlockPointer) -> String {
    let [a, b, c, d] = pointer.checksum().0;
    let compression = match pointer.compression() {
        // Here it has the name of the property.
        Compression::Off => "off".to_string(),
        other => other.to_string(),
    };
    format!(
        "{}\t{}\t{}\t{}\t{}\t{compression}\t{a:x}:{b:x}:{c:x}:{d:x}",
        pointer.level(),
        pointer.physical_size().get(),
        pointer.dva_count(),
        pointer.object_type(),
        pointer.checksum_kind(),
    )
}

/// Sums over references to equal blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    blocks: u64,
    logical: u64,
    physical: u64,
    deflated: u64,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.logical = self.logical.saturating_add(other.logical);
        self.physical = self.physical.saturating_add(other.physical);
        self.deflated = self.deflated.saturating_add(other.deflated);
    }

    /// The part of the sums that one block of this number has.
    fn divided(self, count: u64) -> Sums {
        Sums {
            blocks: self.blocks / count,
            logical: self.logical / count,
            physical: self.physical / count,
            deflated: self.deflated / count,
        }
    }
}

/// The key of equal blocks: checksum, sizes and compression.
type Key = (Checksum, u64, u64, Compression);

/// Gathers equal blocks.
struct Estimate<'a, 'b> {
    out: &'a mut Out,
    look: &'a Look<'b>,
    signatures: Option<Signatures>,
    seen: BTreeMap<Key, Sums>,
    error_count: u64,
}

/// Prints the estimate, or signatures. Returns the exit code.
pub fn show(out: &mut Out, look: &Look<'_>) -> Result<u8, InspectError> {
    let mut estimate = Estimate {
        out,
        look,
        signatures: look.options.signatures,
        seen: BTreeMap::new(),
        error_count: 0,
    };
    look.inspection.visit_used(&mut estimate)?;
    let Estimate {
        signatures,
        seen,
        error_count,
        ..
    } = estimate;
    if signatures.is_none() {
        table(out, look, seen.into_values());
    }
    Ok(if error_count == 0 { 0 } else { 3 })
}

impl BlockVisitor for Estimate<'_, '_> {
    fn block(&mut self, found: &FoundBlock<'_>) {
        let pointer = found.pointer;
        if pointer.is_embedded() {
            return;
        }
        if let Some(signatures) = self.signatures {
            if signatures.wants(pointer) {
                writeln!(self.out, "{}", signature(pointer));
            }
            return;
        }
        if pointer.is_metadata() || pointer.checksum_kind() == ChecksumKind::Off {
            return;
        }
        let (logical, physical) = (pointer.logical_size().get(), pointer.physical_size().get());
        let key = (pointer.checksum(), logical, physical, pointer.compression());
        self.seen.entry(key).or_default().add(Sums {
            blocks: 1,
            logical,
            physical,
            deflated: self.look.pool().io().deflated_size(pointer).get(),
        });
    }

    fn unreadable(&mut self, mark: &TraversalMark, why: &ObjectError) {
        self.error_count += 1;
        self.out.complain(format_args!(
            "cannot go on below <{}, {}, {}, {:x}>: {why}",
            mark.objset,
            mark.object.get(),
            mark.level,
            mark.block
        ));
    }
}

fn table(out: &mut Out, look: &Look<'_>, blocks: impl Iterator<Item = Sums>) {
    let mut buckets: BTreeMap<u32, (Sums, Sums)> = BTreeMap::new();
    let mut total = (Sums::default(), Sums::default());
    for referenced in blocks.filter(|sums| sums.blocks > 0) {
        let stored = referenced.divided(referenced.blocks);
        let bucket = buckets.entry(referenced.blocks.ilog2()).or_default();
        for sums in [bucket, &mut total] {
            sums.0.add(stored);
            sums.1.add(referenced);
        }
    }
    writeln!(out, "Simulated DDT histogram:\n");
    let space = |count: usize| " ".repeat(count);
    writeln!(
        out,
        "bucket   {}allocated{}{}referenced{}",
        space(11),
        space(13),
        space(10),
        space(10)
    );
    writeln!(out, "______   {0}   {0}", "_".repeat(30));
    let line = |out: &mut Out, cells: [String; 9]| {
        let [name, a, b, c, d, e, f, g, h] = cells;
        writeln!(
            out,
            "{name:>6}   {a:>6}   {b:>5}   {c:>5}   {d:>5}   {e:>6}   {f:>5}   {g:>5}   {h:>5}"
        );
    };
    let titles = [
        "refcnt", "blocks", "LSIZE", "PSIZE", "DSIZE", "blocks", "LSIZE", "PSIZE", "DSIZE",
    ];
    line(out, titles.map(str::to_string));
    line(out, titles.map(|title| "-".repeat(title.len())));
    let is_exact = look.options.has('P');
    let count = |number: u64| match is_exact {
        true => number.to_string(),
        false => nice_count(number),
    };
    let bytes = |number: u64| match is_exact {
        true => number.to_string(),
        false => nice_bytes(number),
    };
    let row = |name: String, (stored, referenced): (Sums, Sums)| {
        [
            name,
            count(stored.blocks),
            bytes(stored.logical),
            bytes(stored.physical),
            bytes(stored.deflated),
            count(referenced.blocks),
            bytes(referenced.logical),
            bytes(referenced.physical),
            bytes(referenced.deflated),
        ]
    };
    for (power, sums) in buckets {
        line(out, row(count(1 << power), sums));
    }
    if total.0.blocks > 0 {
        line(out, row("Total".to_string(), total));
    }
    writeln!(out);
    rates(out, total.0, total.1);
}

/// Rates of sizes, which are exact in floats as far as they are shown.
fn rates(out: &mut Out, stored: Sums, referenced: Sums) {
    if stored.blocks == 0 {
        return;
    }
    let dedup = referenced.deflated as f64 / stored.deflated as f64;
    let compress = referenced.logical as f64 / referenced.physical as f64;
    let copies = referenced.deflated as f64 / referenced.physical as f64;
    let all = dedup * compress / copies;
    writeln!(
        out,
        "dedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, dedup * compress / copies = {all:.2}\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::block_pointer::{Dva, StoredBlock};
    use tarn_ondisk::units::{
        AllocatedSize, Level, LogicalSize, PhysicalSize, Txg, VdevId, VdevOffset,
    };

    fn block(object_type: ObjectType, level: u8) -> BlockPointer {
        BlockPointer::stored(&StoredBlock {
            dvas: &[Dva::new(
                VdevId::from(0),
                VdevOffset::from(0x1000),
                AllocatedSize::from(0x1000),
            )],
            logical_size: LogicalSize::from(0x2000),
            physical_size: PhysicalSize::from(0x1000),
            compression: Compression::Off,
            checksum_kind: ChecksumKind::Fletcher4,
            checksum: Checksum([0xa, 0xb, 0xc, 0xd]),
            object_type,
            level: Level::new(level),
            birth: Txg::from(9),
            fill: 1,
        })
    }

    #[test]
    fn a_signature_is_one_line_of_columns() {
        assert_eq!(
            signature(&block(ObjectType::PlainFile, 0)),
            "0\t4096\t1\tZFS plain file\tfletcher4\toff\ta:b:c:d"
        );
    }

    #[test]
    fn users_have_data_of_files_and_a_checksum_can_be_asked_for() {
        let file = block(ObjectType::PlainFile, 0);
        let (indirect, directory) = (
            block(ObjectType::PlainFile, 1),
            block(ObjectType::Directory, 0),
        );
        let user = Signatures::parse("user:all").unwrap();
        let all = Signatures::parse("all:all").unwrap();
        let strong = Signatures::parse("all:sha256").unwrap();
        assert_eq!(
            [&file, &indirect, &directory].map(|block| user.wants(block)),
            [true, false, false]
        );
        assert_eq!(
            [&file, &indirect, &directory].map(|block| all.wants(block)),
            [true; 3]
        );
        assert!(!strong.wants(&file));
        assert_eq!(Signatures::parse("tank"), None);
        assert_eq!(Signatures::parse("user:rot13"), None);
    }
}
