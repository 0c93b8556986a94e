//! `zdb -m` and `-M`: metaslabs, their space maps, and log space maps.

use crate::look::Look;
use crate::metaslab::{
    Metaslab, MetaslabClass, class_of, for_each_entry, for_each_piece, has_logs, head, logs,
    metaslabs, unflushed_array,
};
use crate::options::number;
use crate::out::Out;
use crate::pointer::histogram;
use std::collections::BTreeMap;
use tarn_engine::inspect::InspectError;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::space_map::{
    Action, Entry, HISTOGRAM_BUCKETS, Region, SpaceMapDecoder, SpaceMapHead,
};
use tarn_ondisk::units::{ObjectId, Txg, VdevId};
use tarn_space::totals::fragmentation;
use tarn_space::{Range, RangeTree};
use tarn_vdev::TopLevel;

/// A bad number on the command line.
const EXIT_BAD: u8 = 1;

/// Free ranges below this power of two are not in OpenZFS's tree by size while there are larger
/// ones.
const BY_SIZE_SHIFT_MIN: u32 = 14;

/// What OpenZFS shows where an entry names no vdev.
#[doc(alias = "SM_NO_VDEVID")]
const NO_VDEV: u64 = 1 << 24;

/// What OpenZFS shows where no fragmentation can be told.
const FRAGMENTATION_UNKNOWN: u64 = u64::MAX;

/// Prints the metaslabs of all vdevs, or those that were named. Returns an exit code when a name is
/// bad.
pub fn show(out: &mut Out, look: &Look<'_>) -> Result<Option<u8>, InspectError> {
    writeln!(out, "\nMetaslabs:");
    let vdevs = look.pool().vdevs().top_levels();
    let words = match look.options.has('m') && !look.options.has('d') {
        true => &look.options.operands[1..],
        false => &[],
    };
    let mut numbers = Vec::new();
    for word in words {
        let Some(number) = number(word) else {
            out.complain(format_args!("zdb: bad number {word}"));
            return Ok(Some(EXIT_BAD));
        };
        numbers.push(number);
    }
    let view = View { look };
    let Some((wanted, only)) = numbers.split_first() else {
        for vdev in &vdevs {
            view.vdev(out, vdev, &[])?;
        }
        return Ok(None);
    };
    let Some(vdev) = vdevs.iter().find(|vdev| u64::from(vdev.id) == *wanted) else {
        out.complain(format_args!("zdb: bad vdev id: {wanted}"));
        return Ok(Some(EXIT_BAD));
    };
    view.vdev(out, vdev, only)?;
    Ok(None)
}

/// Prints metaslabs.
struct View<'a, 'b> {
    look: &'a Look<'b>,
}

impl View<'_, '_> {
    fn vdev(&self, out: &mut Out, vdev: &TopLevel, only: &[u64]) -> Result<(), InspectError> {
        let metaslabs = metaslabs(self.look, vdev)?;
        self.header(out, vdev, metaslabs.len())?;
        if only.is_empty() {
            for metaslab in &metaslabs {
                self.metaslab(out, vdev, metaslab)?;
            }
        }
        for number in only {
            match metaslabs.get(narrow(*number)) {
                Some(metaslab) => self.metaslab(out, vdev, metaslab)?,
                None => out.complain(format_args!("bad metaslab number {number}")),
            }
        }
        writeln!(out);
        Ok(())
    }

    fn header(&self, out: &mut Out, vdev: &TopLevel, count: usize) -> Result<(), InspectError> {
        let bias = match class_of(vdev) {
            MetaslabClass::Log => "log",
            MetaslabClass::Special => "special",
            MetaslabClass::Dedup => "dedup",
            MetaslabClass::Normal | MetaslabClass::EmbeddedLog => "",
        };
        write!(out, "\tvdev {:10}   {bias}", u64::from(vdev.id));
        if let Some(array) = unflushed_array(self.look, vdev.id)? {
            write!(out, "   ms_unflushed_phys object {array}");
        }
        writeln!(
            out,
            "\n\t{:<10}{count:5}   {:<19}   {:<15}   {:<12}",
            "metaslabs", "offset", "spacemap", "free"
        );
        let rules = [15, 19, 15, 12].map(|width| "-".repeat(width));
        writeln!(out, "\t{}", rules.join("   "));
        Ok(())
    }

    fn metaslab(
        &self,
        out: &mut Out,
        vdev: &TopLevel,
        metaslab: &Metaslab,
    ) -> Result<(), InspectError> {
        let look = self.look;
        let level = look.options.level('m');
        let map = metaslab.map.as_ref();
        let free = metaslab
            .size
            .get()
            .wrapping_sub(metaslab.allocated().cast_unsigned());
        writeln!(
            out,
            "\tmetaslab {:6}   offset {:12x}   spacemap {:6}   free    {:>5}",
            metaslab.index,
            metaslab.start.get(),
            map.map_or(0, |(id, _)| id.get()),
            look.nice(free)
        );
        if level > 2 && !look.options.has('L') {
            self.loaded(out, vdev, metaslab)?;
        }
        let has_histograms = look
            .pool()
            .features()
            .is_active(Feature::SpacemapHistogram.guid());
        if let Some((_, head)) = map
            && level > 1
            && has_histograms
        {
            let fragmentation = match metaslab.has_histogram {
                true => fragmentation_of(head, vdev.ashift),
                false => FRAGMENTATION_UNKNOWN,
            };
            writeln!(out, "\tOn-disk histogram:\t\tfragmentation {fragmentation}");
            let first = usize::try_from(vdev.ashift).unwrap_or(0);
            write!(out, "{}", histogram(&head.histogram, first));
        }
        if let Some((id, _)) = map {
            show_map(out, look, *id, metaslab.region(vdev.ashift))?;
        }
        if has_logs(look) {
            writeln!(
                out,
                "\tFlush data:\n\tunflushed txg={}\n",
                metaslab.unflushed
            );
        }
        Ok(())
    }

    /// The free ranges of a metaslab by its own map. Log space maps are printed apart.
    fn loaded(
        &self,
        out: &mut Out,
        vdev: &TopLevel,
        metaslab: &Metaslab,
    ) -> Result<(), InspectError> {
        let mut allocated = RangeTree::new();
        let mut apply = |entry: &Entry| {
            let range = Range::new(entry.start, entry.size);
            let done = match entry.action {
                Action::Allocate => allocated.add(range),
                Action::Free => allocated.remove(range),
            };
            if done.is_err() {
                self.look.is_corrupt.set(true);
            }
        };
        if let Some((id, _)) = &metaslab.map {
            let decoder = SpaceMapDecoder::new(metaslab.region(vdev.ashift));
            for_each_entry(self.look, *id, decoder, &mut |entry| apply(&entry))?;
        }
        let mut free = allocated.complement(Range::new(metaslab.start, metaslab.size));
        free.index_by_size();
        let counts = free.histogram();
        let shift = usize::try_from(BY_SIZE_SHIFT_MIN).unwrap_or(0);
        let mut segments: u64 = counts.iter().skip(shift).sum();
        if segments == 0 {
            segments = counts.iter().sum();
        }
        let percent = free.bytes().get() * 100 / metaslab.size.get().max(1);
        writeln!(
            out,
            "\t {:>25} {segments:10}   {:>7}  {:>6}   {:>4} {percent:4}%",
            "segments",
            "maxsize",
            self.look.nice(free.largest().get()),
            "freepct"
        );
        writeln!(out, "\tIn-memory histogram:");
        write!(out, "{}", histogram(counts, 0));
        Ok(())
    }
}

fn place_of(vdevs: &[TopLevel], entry: &Entry) -> Option<(VdevId, u64)> {
    let vdev = entry.vdev?;
    let top = vdevs.iter().find(|top| top.id == vdev)?;
    Some((vdev, entry.start.get().checked_shr(top.metaslab_shift)?))
}

/// The fragmentation of a metaslab, from its map's histogram.
fn fragmentation_of(head: &SpaceMapHead, shift: u32) -> u64 {
    fragmentation(&spread(head, shift))
}

/// A map's histogram by powers of two of bytes.
fn spread(head: &SpaceMapHead, shift: u32) -> [u64; tarn_space::range_tree::HISTOGRAM_BUCKETS] {
    let mut counts = [0; tarn_space::range_tree::HISTOGRAM_BUCKETS];
    let first = usize::try_from(shift).unwrap_or(0);
    for (index, count) in head.histogram.iter().enumerate().take(HISTOGRAM_BUCKETS) {
        if let Some(bucket) = counts.get_mut(index + first) {
            *bucket = *count;
        }
    }
    counts
}

/// Prints a space map: its header, and in detail all its words.
pub fn show_map(
    out: &mut Out,
    look: &Look<'_>,
    id: ObjectId,
    region: Region,
) -> Result<(), InspectError> {
    let (head, _) = head(look, id)?;
    writeln!(out, "space map object {id}:");
    writeln!(out, "  smp_length = 0x{:x}", head.length);
    writeln!(out, "  smp_alloc = 0x{:x}", head.allocated);
    if look.depth() < 6 && look.options.level('m') < 4 {
        return Ok(());
    }
    let mut words = Words {
        region,
        count: 0,
        allocated: 0,
        first: None,
    };
    for_each_piece(look, id, &mut |piece| {
        let (chunks, _) = piece.as_chunks::<8>();
        for chunk in chunks {
            words.word(out, u64::from_le_bytes(*chunk));
        }
        Ok(())
    })?;
    if words.allocated != head.allocated {
        look.is_corrupt.set(true);
        writeln!(
            out,
            "space_map_object alloc ({}) INCONSISTENT with space map summary ({})",
            head.allocated, words.allocated
        );
    }
    Ok(())
}

/// Decodes the words of a map.
struct Words {
    region: Region,
    count: u64,
    allocated: i64,
    /// The first word of an entry of two.
    first: Option<u64>,
}

impl Words {
    fn word(&mut self, out: &mut Out, word: u64) {
        if let Some(first) = self.first.take() {
            let run = ((first >> 24) & 0xf_ffff_ffff) + 1;
            let vdev = first & 0xff_ffff;
            self.run(
                out,
                word >> 63 != 0,
                word & (u64::MAX >> 1),
                run,
                Some(vdev),
            );
            return;
        }
        match word >> 62 {
            0b10 => self.debug(out, word),
            0b11 => self.first = Some(word),
            _ => self.run(
                out,
                word & (1 << 15) != 0,
                (word >> 16) & ((1 << 47) - 1),
                (word & 0x7fff) + 1,
                None,
            ),
        }
    }

    fn debug(&mut self, out: &mut Out, word: u64) {
        let (txg, pass) = (word & ((1 << 50) - 1), (word >> 50) & 0x3ff);
        let action = match (word >> 60) & 3 {
            0 => "ALLOC",
            1 => "FREE",
            2 => "CONDENSE",
            _ => "INVALID",
        };
        match txg {
            0 => writeln!(out, "\t    [{:6}] PADDING", self.count),
            _ => writeln!(
                out,
                "\t    [{:6}] {action}: txg {txg} pass {pass}",
                self.count
            ),
        }
        self.count += 1;
    }

    fn run(&mut self, out: &mut Out, is_free: bool, offset: u64, run: u64, vdev: Option<u64>) {
        let shift = self.region.shift;
        let start = offset
            .wrapping_shl(shift)
            .wrapping_add(self.region.start.get());
        let size = run.wrapping_shl(shift);
        let letter = if is_free { 'F' } else { 'A' };
        let (vdev, words) = match vdev {
            Some(vdev) => (vdev, 2),
            None => (NO_VDEV, 1),
        };
        writeln!(
            out,
            "\t    [{:6}]    {letter}  range: {start:010x}-{:010x}  size: {size:06x} vdev: {vdev:06} words: {words}",
            self.count,
            start.wrapping_add(size)
        );
        let size = size.cast_signed();
        self.allocated = self
            .allocated
            .wrapping_add(if is_free { -size } else { size });
        self.count += 1;
    }
}

/// Prints log space maps, and how many of their entries still count.
pub fn show_logs(out: &mut Out, look: &Look<'_>) -> Result<(), InspectError> {
    if !has_logs(look) {
        return Ok(());
    }
    writeln!(out, "\nLog Space Maps in Pool:");
    let logs = logs(look)?;
    for (txg, log) in &logs {
        writeln!(out, "Log Spacemap object {log} txg {txg}");
        show_map(out, look, *log, Region::LOG)?;
    }
    writeln!(out, "\nLog Space Map Obsolete Entry Statistics:");
    let vdevs = look.pool().vdevs().top_levels();
    let mut since: BTreeMap<(VdevId, u64), Txg> = BTreeMap::new();
    for vdev in &vdevs {
        for metaslab in metaslabs(look, vdev)? {
            since.insert((vdev.id, metaslab.index), metaslab.unflushed);
        }
    }
    let (mut valid_total, mut total) = (0u64, 0u64);
    for (txg, log) in &logs {
        let (mut valid, mut count) = (0u64, 0u64);
        for_each_entry(look, *log, SpaceMapDecoder::of_log(), &mut |entry| {
            count += 1;
            let since = place_of(&vdevs, &entry).and_then(|key| since.get(&key));
            valid += u64::from(since.is_some_and(|since| txg >= since));
        })?;
        writeln!(
            out,
            "{valid:<8} valid entries out of {count:<8} - txg {txg}"
        );
        valid_total += valid;
        total += count;
    }
    if logs.is_empty() {
        writeln!(out, "{:<8} valid entries out of {:<8} - txg 0", 0, 0);
    }
    writeln!(
        out,
        "{valid_total:<8} valid entries out of {total:<8} - total\n"
    );
    Ok(())
}

/// Prints free space by vdev: histograms and fragmentation.
pub fn show_groups(out: &mut Out, look: &Look<'_>) -> Result<(), InspectError> {
    let show_special = look.options.level('M') > 1;
    let mut pool = [0u64; tarn_space::range_tree::HISTOGRAM_BUCKETS];
    let (mut weighted, mut size, mut is_known) = (0u128, 0u128, true);
    for vdev in look.pool().vdevs().top_levels() {
        let class = class_of(&vdev);
        let is_normal = class == MetaslabClass::Normal;
        let is_shown = is_normal || show_special && class == MetaslabClass::Special;
        if !is_shown {
            continue;
        }
        let metaslabs = metaslabs(look, &vdev)?;
        let mut counts = [0u64; tarn_space::range_tree::HISTOGRAM_BUCKETS];
        let (mut sum, mut known) = (0u64, 0u64);
        for metaslab in metaslabs.iter().filter(|metaslab| metaslab.class == class) {
            let Some((_, head)) = &metaslab.map else {
                known += 1;
                continue;
            };
            if metaslab.has_histogram {
                known += 1;
                sum += fragmentation_of(head, vdev.ashift);
            }
            for (count, more) in counts.iter_mut().zip(spread(head, vdev.ashift)) {
                *count += more;
            }
        }
        let count = u64::try_from(metaslabs.len()).unwrap_or(u64::MAX);
        let mean = (known > count / 2).then(|| sum / known.max(1));
        writeln!(
            out,
            "\tvdev {:10}\t\tmetaslabs{count:5}\t\tfragmentation{}",
            u64::from(vdev.id),
            percent(mean)
        );
        write!(out, "{}", histogram(&counts, 0));
        if is_normal {
            let bytes: u128 = metaslabs
                .iter()
                .map(|metaslab| u128::from(metaslab.size.get()))
                .sum();
            is_known &= mean.is_some();
            weighted += u128::from(mean.unwrap_or(0)) * bytes;
            size += bytes;
            for (count, more) in pool.iter_mut().zip(counts) {
                *count += more;
            }
        }
    }
    let mean = weighted
        .checked_div(size)
        .and_then(|mean| u64::try_from(mean).ok());
    writeln!(
        out,
        "\tpool {}\tfragmentation\t{}",
        look.pool().name(),
        percent(mean.filter(|_| is_known))
    );
    write!(out, "{}", histogram(&pool, 0));
    Ok(())
}

fn percent(number: Option<u64>) -> String {
    number.map_or_else(|| "  -".to_string(), |number| format!("{number:3}%"))
}

/// Whether the number of space maps with histograms equals the feature's count. Prints the
/// difference if not.
pub fn verify_counts(out: &mut Out, look: &Look<'_>) -> Result<bool, InspectError> {
    let has_histogram = |id: ObjectId| head(look, id).map(|(_, has)| u64::from(has));
    let mut of_metaslabs = 0;
    let (mut of_checkpoint, mut of_obsolete) = (0, 0);
    for vdev in look.pool().vdevs().top_levels() {
        let metaslabs = metaslabs(look, &vdev)?;
        let with = metaslabs.iter().filter(|metaslab| metaslab.has_histogram);
        of_metaslabs += u64::try_from(with.count()).unwrap_or(0);
        if let Some(zap) = crate::metaslab::top_zap(look, vdev.id) {
            let map = |entry| look.directory().value_in(zap, entry);
            of_checkpoint += u64::from(map(name::VDEV_CHECKPOINT_SPACE_MAP)?.is_some());
            let obsolete = map(name::VDEV_OBSOLETE_SPACE_MAP)?.and_then(|value| value.as_word());
            if let Some(obsolete) = obsolete {
                of_obsolete += has_histogram(ObjectId::new(obsolete))?;
            }
        }
    }
    let mut of_dtl = 0;
    for leaf in look.pool().vdevs().config().walk() {
        if let Some(map) = leaf.dtl.filter(|map| leaf.kind.is_leaf() && !map.is_zero()) {
            of_dtl += has_histogram(map)?;
        }
    }
    let of_logs = u64::try_from(logs(look)?.len()).unwrap_or(0);
    let features = look.pool().features();
    let expected = features
        .count(Feature::SpacemapHistogram.guid())
        .unwrap_or(0);
    let actual = of_metaslabs + of_checkpoint + of_obsolete + of_dtl + of_logs;
    if expected != actual {
        writeln!(
            out,
            "space map refcount mismatch: expected {expected} != actual {actual}"
        );
        writeln!(
            out,
            "\tDTL: {of_dtl}, metaslab: {of_metaslabs}, obsolete: {of_obsolete}, prev obsolete: 0, checkpoint: {of_checkpoint}, log spacemap: {of_logs}"
        );
    }
    Ok(expected == actual)
}
