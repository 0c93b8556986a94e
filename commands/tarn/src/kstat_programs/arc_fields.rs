//! The fields of `zarcstat`: their names and widths, and how they are computed of what the cache
//! has counted. Those are of OpenZFS's `arcstat`.

use super::number_columns;
pub use super::number_columns::Number;
use std::collections::BTreeMap;

/// Numbers of a group of statistics by their names.
pub type Counted = BTreeMap<String, i128>;

/// What is counted at one moment.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    /// `zfs:0:arcstats`.
    pub cache: Counted,
    /// `zfs:0:zfetchstats`.
    pub prefetch: Counted,
}

/// What a field is a number of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The time of day.
    Time,
    /// Accesses and other events.
    Count,
    /// Bytes.
    Bytes,
    /// A share.
    Percent,
}

/// A part of the cache that has a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Data,
    Metadata,
    Recent,
    RecentData,
    RecentMetadata,
    Frequent,
    FrequentData,
    FrequentMetadata,
}

/// How a field is computed.
#[derive(Debug, Clone, Copy)]
enum Source {
    Time,
    /// What these have grown by, a second.
    Rate(&'static [&'static str]),
    /// The same of prefetchers.
    PrefetchRate(&'static [&'static str]),
    /// What it is now.
    Gauge(&'static str),
    /// What the first field is of the second.
    Percent(&'static str, &'static str),
    /// What these fields leave of all, where the last one is not 0.
    Rest(&'static [&'static str], &'static str),
    /// What a field is of all blocks in the lists of the cache.
    ShareOfStates(&'static str),
    /// How large a part is to be.
    Target(Part),
    /// 1 where the cache may grow.
    Grows,
}

use Source::{Gauge, Grows, Percent, PrefetchRate, Rate, Rest, ShareOfStates, Target, Time};

/// A field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name, which heads its column.
    pub name: &'static str,
    /// How wide its column is.
    pub width: usize,
    /// What it is a number of.
    pub unit: Unit,
    /// What it is, for people.
    pub about: &'static str,
    source: Source,
}

const fn field(
    name: &'static str,
    width: usize,
    unit: Unit,
    about: &'static str,
    source: Source,
) -> Field {
    Field {
        name,
        width,
        unit,
        about,
        source,
    }
}

/// All fields.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    field("time", 8, Unit::Time, "Time", Time),
    field("hits", 4, Unit::Count, "ARC hits per second", Rate(&["hits"])),
    field("iohs", 4, Unit::Count, "ARC I/O hits per second", Rate(&["iohits"])),
    field("miss", 4, Unit::Count, "ARC misses per second", Rate(&["misses"])),
    field("read", 4, Unit::Count, "Total ARC accesses per second", Rate(&["hits", "iohits", "misses"])),
    field("hit%", 4, Unit::Percent, "ARC hit percentage", Percent("hits", "read")),
    field("ioh%", 4, Unit::Percent, "ARC I/O hit percentage", Percent("iohs", "read")),
    field("miss%", 5, Unit::Percent, "ARC miss percentage", Rest(&["hit%", "ioh%"], "read")),
    field("dhit", 4, Unit::Count, "Demand hits per second", Rate(&["demand_data_hits", "demand_metadata_hits"])),
    field("dioh", 4, Unit::Count, "Demand I/O hits per second", Rate(&["demand_data_iohits", "demand_metadata_iohits"])),
    field("dmis", 4, Unit::Count, "Demand misses per second", Rate(&["demand_data_misses", "demand_metadata_misses"])),
    field("dh%", 3, Unit::Percent, "Demand hit percentage", Percent("dhit", "dread")),
    field("di%", 3, Unit::Percent, "Demand I/O hit percentage", Percent("dioh", "dread")),
    field("dm%", 3, Unit::Percent, "Demand miss percentage", Rest(&["dh%", "di%"], "dread")),
    field("ddhit", 5, Unit::Count, "Demand data hits per second", Rate(&["demand_data_hits"])),
    field("ddioh", 5, Unit::Count, "Demand data I/O hits per second", Rate(&["demand_data_iohits"])),
    field("ddmis", 5, Unit::Count, "Demand data misses per second", Rate(&["demand_data_misses"])),
    field("ddh%", 4, Unit::Percent, "Demand data hit percentage", Percent("ddhit", "ddread")),
    field("ddi%", 4, Unit::Percent, "Demand data I/O hit percentage", Percent("ddioh", "ddread")),
    field("ddm%", 4, Unit::Percent, "Demand data miss percentage", Rest(&["ddh%", "ddi%"], "ddread")),
    field("dmhit", 5, Unit::Count, "Demand metadata hits per second", Rate(&["demand_metadata_hits"])),
    field("dmioh", 5, Unit::Count, "Demand metadata I/O hits per second", Rate(&["demand_metadata_iohits"])),
    field("dmmis", 5, Unit::Count, "Demand metadata misses per second", Rate(&["demand_metadata_misses"])),
    field("dmh%", 4, Unit::Percent, "Demand metadata hit percentage", Percent("dmhit", "dmread")),
    field("dmi%", 4, Unit::Percent, "Demand metadata I/O hit percentage", Percent("dmioh", "dmread")),
    field("dmm%", 4, Unit::Percent, "Demand metadata miss percentage", Rest(&["dmh%", "dmi%"], "dmread")),
    field("phit", 4, Unit::Count, "Prefetch hits per second", Rate(&["prefetch_data_hits", "prefetch_metadata_hits"])),
    field("pioh", 4, Unit::Count, "Prefetch I/O hits per second", Rate(&["prefetch_data_iohits", "prefetch_metadata_iohits"])),
    field("pmis", 4, Unit::Count, "Prefetch misses per second", Rate(&["prefetch_data_misses", "prefetch_metadata_misses"])),
    field("ph%", 3, Unit::Percent, "Prefetch hits percentage", Percent("phit", "pread")),
    field("pi%", 3, Unit::Percent, "Prefetch I/O hits percentage", Percent("pioh", "pread")),
    field("pm%", 3, Unit::Percent, "Prefetch miss percentage", Rest(&["ph%", "pi%"], "pread")),
    field("pdhit", 5, Unit::Count, "Prefetch data hits per second", Rate(&["prefetch_data_hits"])),
    field("pdioh", 5, Unit::Count, "Prefetch data I/O hits per second", Rate(&["prefetch_data_iohits"])),
    field("pdmis", 5, Unit::Count, "Prefetch data misses per second", Rate(&["prefetch_data_misses"])),
    field("pdh%", 4, Unit::Percent, "Prefetch data hits percentage", Percent("pdhit", "pdread")),
    field("pdi%", 4, Unit::Percent, "Prefetch data I/O hits percentage", Percent("pdioh", "pdread")),
    field("pdm%", 4, Unit::Percent, "Prefetch data miss percentage", Rest(&["pdh%", "pdi%"], "pdread")),
    field("pmhit", 5, Unit::Count, "Prefetch metadata hits per second", Rate(&["prefetch_metadata_hits"])),
    field("pmioh", 5, Unit::Count, "Prefetch metadata I/O hits per second", Rate(&["prefetch_metadata_iohits"])),
    field("pmmis", 5, Unit::Count, "Prefetch metadata misses per second", Rate(&["prefetch_metadata_misses"])),
    field("pmh%", 4, Unit::Percent, "Prefetch metadata hits percentage", Percent("pmhit", "pmread")),
    field("pmi%", 4, Unit::Percent, "Prefetch metadata I/O hits percentage", Percent("pmioh", "pmread")),
    field("pmm%", 4, Unit::Percent, "Prefetch metadata miss percentage", Rest(&["pmh%", "pmi%"], "pmread")),
    field("mhit", 4, Unit::Count, "Metadata hits per second", Rate(&["demand_metadata_hits", "prefetch_metadata_hits"])),
    field("mioh", 4, Unit::Count, "Metadata I/O hits per second", Rate(&["demand_metadata_iohits", "prefetch_metadata_iohits"])),
    field("mmis", 4, Unit::Count, "Metadata misses per second", Rate(&["demand_metadata_misses", "prefetch_metadata_misses"])),
    field("mread", 5, Unit::Count, "Metadata accesses per second", Rate(&["demand_metadata_hits", "prefetch_metadata_hits", "demand_metadata_iohits", "prefetch_metadata_iohits", "demand_metadata_misses", "prefetch_metadata_misses"])),
    field("mh%", 3, Unit::Percent, "Metadata hit percentage", Percent("mhit", "mread")),
    field("mi%", 3, Unit::Percent, "Metadata I/O hit percentage", Percent("mioh", "mread")),
    field("mm%", 3, Unit::Percent, "Metadata miss percentage", Rest(&["mh%", "mi%"], "mread")),
    field("arcsz", 5, Unit::Bytes, "ARC size", Gauge("size")),
    field("size", 5, Unit::Bytes, "ARC size", Gauge("size")),
    field("c", 5, Unit::Bytes, "ARC target size", Gauge("c")),
    field("mfu", 4, Unit::Count, "MFU list hits per second", Rate(&["mfu_hits"])),
    field("mru", 4, Unit::Count, "MRU list hits per second", Rate(&["mru_hits"])),
    field("mfug", 4, Unit::Count, "MFU ghost list hits per second", Rate(&["mfu_ghost_hits"])),
    field("mrug", 4, Unit::Count, "MRU ghost list hits per second", Rate(&["mru_ghost_hits"])),
    field("unc", 4, Unit::Count, "Uncached list hits per second", Rate(&["uncached_hits"])),
    field("eskip", 5, Unit::Count, "evict_skip per second", Rate(&["evict_skip"])),
    field("el2skip", 7, Unit::Count, "evict skip, due to l2 writes, per second", Rate(&["evict_l2_skip"])),
    field("el2cach", 7, Unit::Bytes, "Size of L2 cached evictions per second", Rate(&["evict_l2_cached"])),
    field("el2el", 5, Unit::Bytes, "Size of L2 eligible evictions per second", Rate(&["evict_l2_eligible"])),
    field("el2mfu", 6, Unit::Bytes, "Size of L2 eligible MFU evictions per second", Rate(&["evict_l2_eligible_mfu"])),
    field("el2mru", 6, Unit::Bytes, "Size of L2 eligible MRU evictions per second", Rate(&["evict_l2_eligible_mru"])),
    field("el2inel", 7, Unit::Bytes, "Size of L2 ineligible evictions per second", Rate(&["evict_l2_ineligible"])),
    field("mtxmis", 6, Unit::Count, "mutex_miss per second", Rate(&["mutex_miss"])),
    field("dread", 5, Unit::Count, "Demand accesses per second", Rate(&["demand_data_hits", "demand_metadata_hits", "demand_data_iohits", "demand_metadata_iohits", "demand_data_misses", "demand_metadata_misses"])),
    field("ddread", 6, Unit::Count, "Demand data accesses per second", Rate(&["demand_data_hits", "demand_data_iohits", "demand_data_misses"])),
    field("dmread", 6, Unit::Count, "Demand metadata accesses per second", Rate(&["demand_metadata_hits", "demand_metadata_iohits", "demand_metadata_misses"])),
    field("pread", 5, Unit::Count, "Prefetch accesses per second", Rate(&["prefetch_data_hits", "prefetch_metadata_hits", "prefetch_data_iohits", "prefetch_metadata_iohits", "prefetch_data_misses", "prefetch_metadata_misses"])),
    field("pdread", 6, Unit::Count, "Prefetch data accesses per second", Rate(&["prefetch_data_hits", "prefetch_data_iohits", "prefetch_data_misses"])),
    field("pmread", 6, Unit::Count, "Prefetch metadata accesses per second", Rate(&["prefetch_metadata_hits", "prefetch_metadata_iohits", "prefetch_metadata_misses"])),
    field("l2hits", 6, Unit::Count, "L2ARC hits per second", Rate(&["l2_hits"])),
    field("l2miss", 6, Unit::Count, "L2ARC misses per second", Rate(&["l2_misses"])),
    field("l2read", 6, Unit::Count, "Total L2ARC accesses per second", Rate(&["l2_hits", "l2_misses"])),
    field("l2hit%", 6, Unit::Percent, "L2ARC access hit percentage", Percent("l2hits", "l2read")),
    field("l2miss%", 7, Unit::Percent, "L2ARC access miss percentage", Rest(&["l2hit%"], "l2read")),
    field("l2pref", 6, Unit::Bytes, "L2ARC prefetch allocated size", Gauge("l2_prefetch_asize")),
    field("l2mfu", 5, Unit::Bytes, "L2ARC MFU allocated size", Gauge("l2_mfu_asize")),
    field("l2mru", 5, Unit::Bytes, "L2ARC MRU allocated size", Gauge("l2_mru_asize")),
    field("l2data", 6, Unit::Bytes, "L2ARC data allocated size", Gauge("l2_bufc_data_asize")),
    field("l2meta", 6, Unit::Bytes, "L2ARC metadata allocated size", Gauge("l2_bufc_metadata_asize")),
    field("l2pref%", 7, Unit::Percent, "L2ARC prefetch percentage", Percent("l2pref", "l2asize")),
    field("l2mfu%", 6, Unit::Percent, "L2ARC MFU percentage", Percent("l2mfu", "l2asize")),
    field("l2mru%", 6, Unit::Percent, "L2ARC MRU percentage", Percent("l2mru", "l2asize")),
    field("l2data%", 7, Unit::Percent, "L2ARC data percentage", Percent("l2data", "l2asize")),
    field("l2meta%", 7, Unit::Percent, "L2ARC metadata percentage", Percent("l2meta", "l2asize")),
    field("l2asize", 7, Unit::Bytes, "Actual (compressed) size of the L2ARC", Gauge("l2_asize")),
    field("l2size", 6, Unit::Bytes, "Size of the L2ARC", Gauge("l2_size")),
    field("l2bytes", 7, Unit::Bytes, "Bytes read per second from the L2ARC", Rate(&["l2_read_bytes"])),
    field("l2wbytes", 8, Unit::Bytes, "Bytes written per second to the L2ARC", Rate(&["l2_write_bytes"])),
    field("grow", 4, Unit::Count, "ARC grow disabled", Grows),
    field("need", 5, Unit::Bytes, "ARC reclaim need", Gauge("arc_need_free")),
    field("free", 5, Unit::Bytes, "ARC free memory", Gauge("memory_free_bytes")),
    field("avail", 5, Unit::Bytes, "ARC available memory", Gauge("memory_available_bytes")),
    field("waste", 5, Unit::Bytes, "Wasted memory due to round up to pagesize", Gauge("abd_chunk_waste_size")),
    field("ztotal", 6, Unit::Count, "zfetch total prefetcher calls per second", PrefetchRate(&["hits", "future", "stride", "past", "misses"])),
    field("zhits", 5, Unit::Count, "zfetch stream hits per second", PrefetchRate(&["hits"])),
    field("zahead", 6, Unit::Count, "zfetch hits ahead of streams per second", PrefetchRate(&["future", "stride"])),
    field("zpast", 5, Unit::Count, "zfetch hits behind streams per second", PrefetchRate(&["past"])),
    field("zmisses", 7, Unit::Count, "zfetch stream misses per second", PrefetchRate(&["misses"])),
    field("zmax", 4, Unit::Count, "zfetch limit reached per second", PrefetchRate(&["max_streams"])),
    field("zfuture", 7, Unit::Count, "zfetch stream future per second", PrefetchRate(&["future"])),
    field("zstride", 7, Unit::Count, "zfetch stream strides per second", PrefetchRate(&["stride"])),
    field("zissued", 7, Unit::Count, "zfetch prefetches issued per second", PrefetchRate(&["io_issued"])),
    field("zactive", 7, Unit::Count, "zfetch prefetches active per second", PrefetchRate(&["io_active"])),
    field("cmpsz", 5, Unit::Bytes, "Compressed size", Gauge("compressed_size")),
    field("cmpsz%", 6, Unit::Percent, "Compressed size percentage", Percent("cmpsz", "size")),
    field("ovhsz", 5, Unit::Bytes, "Overhead size", Gauge("overhead_size")),
    field("ovhsz%", 6, Unit::Percent, "Overhead size percentage", Percent("ovhsz", "size")),
    field("bonsz", 5, Unit::Bytes, "Bonus size", Gauge("bonus_size")),
    field("bonsz%", 6, Unit::Percent, "Bonus size percentage", Percent("bonsz", "size")),
    field("dnosz", 5, Unit::Bytes, "Dnode size", Gauge("dnode_size")),
    field("dnosz%", 6, Unit::Percent, "Dnode size percentage", Percent("dnosz", "size")),
    field("dbusz", 5, Unit::Bytes, "Dbuf size", Gauge("dbuf_size")),
    field("dbusz%", 6, Unit::Percent, "Dbuf size percentage", Percent("dbusz", "size")),
    field("hdrsz", 5, Unit::Bytes, "Header size", Gauge("hdr_size")),
    field("hdrsz%", 6, Unit::Percent, "Header size percentage", Percent("hdrsz", "size")),
    field("l2hsz", 5, Unit::Bytes, "L2 header size", Gauge("l2_hdr_size")),
    field("l2hsz%", 6, Unit::Percent, "L2 header size percentage", Percent("l2hsz", "size")),
    field("abdsz", 5, Unit::Bytes, "ABD chunk waste size", Gauge("abd_chunk_waste_size")),
    field("abdsz%", 6, Unit::Percent, "ABD chunk waste size percentage", Percent("abdsz", "size")),
    field("datatg", 6, Unit::Bytes, "ARC data target", Target(Part::Data)),
    field("datatg%", 7, Unit::Percent, "ARC data target percentage", ShareOfStates("datatg")),
    field("datasz", 6, Unit::Bytes, "ARC data size", Gauge("data_size")),
    field("datasz%", 7, Unit::Percent, "ARC data size percentage", ShareOfStates("datasz")),
    field("metatg", 6, Unit::Bytes, "ARC metadata target", Target(Part::Metadata)),
    field("metatg%", 7, Unit::Percent, "ARC metadata target percentage", ShareOfStates("metatg")),
    field("metasz", 6, Unit::Bytes, "ARC metadata size", Gauge("metadata_size")),
    field("metasz%", 7, Unit::Percent, "ARC metadata size percentage", ShareOfStates("metasz")),
    field("anosz", 5, Unit::Bytes, "Anonymous size", Gauge("anon_size")),
    field("anosz%", 6, Unit::Percent, "Anonymous size percentage", ShareOfStates("anosz")),
    field("anoda", 5, Unit::Bytes, "Anonymous data size", Gauge("anon_data")),
    field("anoda%", 6, Unit::Percent, "Anonymous data size percentage", ShareOfStates("anoda")),
    field("anome", 5, Unit::Bytes, "Anonymous metadata size", Gauge("anon_metadata")),
    field("anome%", 6, Unit::Percent, "Anonymous metadata size percentage", ShareOfStates("anome")),
    field("anoed", 5, Unit::Bytes, "Anonymous evictable data size", Gauge("anon_evictable_data")),
    field("anoed%", 6, Unit::Percent, "Anonymous evictable data size percentage", ShareOfStates("anoed")),
    field("anoem", 5, Unit::Bytes, "Anonymous evictable metadata size", Gauge("anon_evictable_metadata")),
    field("anoem%", 6, Unit::Percent, "Anonymous evictable metadata size percentage", ShareOfStates("anoem")),
    field("mfutg", 5, Unit::Bytes, "MFU target", Target(Part::Frequent)),
    field("mfutg%", 6, Unit::Percent, "MFU target percentage", ShareOfStates("mfutg")),
    field("mfudt", 5, Unit::Bytes, "MFU data target", Target(Part::FrequentData)),
    field("mfudt%", 6, Unit::Percent, "MFU data target percentage", ShareOfStates("mfudt")),
    field("mfumt", 5, Unit::Bytes, "MFU metadata target", Target(Part::FrequentMetadata)),
    field("mfumt%", 6, Unit::Percent, "MFU metadata target percentage", ShareOfStates("mfumt")),
    field("mfusz", 5, Unit::Bytes, "MFU size", Gauge("mfu_size")),
    field("mfusz%", 6, Unit::Percent, "MFU size percentage", ShareOfStates("mfusz")),
    field("mfuda", 5, Unit::Bytes, "MFU data size", Gauge("mfu_data")),
    field("mfuda%", 6, Unit::Percent, "MFU data size percentage", ShareOfStates("mfuda")),
    field("mfume", 5, Unit::Bytes, "MFU metadata size", Gauge("mfu_metadata")),
    field("mfume%", 6, Unit::Percent, "MFU metadata size percentage", ShareOfStates("mfume")),
    field("mfued", 5, Unit::Bytes, "MFU evictable data size", Gauge("mfu_evictable_data")),
    field("mfued%", 6, Unit::Percent, "MFU evictable data size percentage", ShareOfStates("mfued")),
    field("mfuem", 5, Unit::Bytes, "MFU evictable metadata size", Gauge("mfu_evictable_metadata")),
    field("mfuem%", 6, Unit::Percent, "MFU evictable metadata size percentage", ShareOfStates("mfuem")),
    field("mfugsz", 6, Unit::Bytes, "MFU ghost size", Gauge("mfu_ghost_size")),
    field("mfugd", 5, Unit::Bytes, "MFU ghost data size", Gauge("mfu_ghost_data")),
    field("mfugm", 5, Unit::Bytes, "MFU ghost metadata size", Gauge("mfu_ghost_metadata")),
    field("mrutg", 5, Unit::Bytes, "MRU target", Target(Part::Recent)),
    field("mrutg%", 6, Unit::Percent, "MRU target percentage", ShareOfStates("mrutg")),
    field("mrudt", 5, Unit::Bytes, "MRU data target", Target(Part::RecentData)),
    field("mrudt%", 6, Unit::Percent, "MRU data target percentage", ShareOfStates("mrudt")),
    field("mrumt", 5, Unit::Bytes, "MRU metadata target", Target(Part::RecentMetadata)),
    field("mrumt%", 6, Unit::Percent, "MRU metadata target percentage", ShareOfStates("mrumt")),
    field("mrusz", 5, Unit::Bytes, "MRU size", Gauge("mru_size")),
    field("mrusz%", 6, Unit::Percent, "MRU size percentage", ShareOfStates("mrusz")),
    field("mruda", 5, Unit::Bytes, "MRU data size", Gauge("mru_data")),
    field("mruda%", 6, Unit::Percent, "MRU data size percentage", ShareOfStates("mruda")),
    field("mrume", 5, Unit::Bytes, "MRU metadata size", Gauge("mru_metadata")),
    field("mrume%", 6, Unit::Percent, "MRU metadata size percentage", ShareOfStates("mrume")),
    field("mrued", 5, Unit::Bytes, "MRU evictable data size", Gauge("mru_evictable_data")),
    field("mrued%", 6, Unit::Percent, "MRU evictable data size percentage", ShareOfStates("mrued")),
    field("mruem", 5, Unit::Bytes, "MRU evictable metadata size", Gauge("mru_evictable_metadata")),
    field("mruem%", 6, Unit::Percent, "MRU evictable metadata size percentage", ShareOfStates("mruem")),
    field("mrugsz", 6, Unit::Bytes, "MRU ghost size", Gauge("mru_ghost_size")),
    field("mrugd", 5, Unit::Bytes, "MRU ghost data size", Gauge("mru_ghost_data")),
    field("mrugm", 5, Unit::Bytes, "MRU ghost metadata size", Gauge("mru_ghost_metadata")),
    field("uncsz", 5, Unit::Bytes, "Uncached size", Gauge("uncached_size")),
    field("uncsz%", 6, Unit::Percent, "Uncached size percentage", ShareOfStates("uncsz")),
    field("uncda", 5, Unit::Bytes, "Uncached data size", Gauge("uncached_data")),
    field("uncda%", 6, Unit::Percent, "Uncached data size percentage", ShareOfStates("uncda")),
    field("uncme", 5, Unit::Bytes, "Uncached metadata size", Gauge("uncached_metadata")),
    field("uncme%", 6, Unit::Percent, "Uncached metadata size percentage", ShareOfStates("uncme")),
    field("unced", 5, Unit::Bytes, "Uncached evictable data size", Gauge("uncached_evictable_data")),
    field("unced%", 6, Unit::Percent, "Uncached evictable data size percentage", ShareOfStates("unced")),
    field("uncem", 5, Unit::Bytes, "Uncached evictable metadata size", Gauge("uncached_evictable_metadata")),
    field("uncem%", 6, Unit::Percent, "Uncached evictable metadata size percentage", ShareOfStates("uncem")),
];

/// The field of a name.
pub fn find(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

/// The lists of the cache.
const STATES: [&str; 4] = ["anon", "mfu", "mru", "uncached"];

/// Two moments, and the seconds between them.
#[derive(Debug, Clone, Copy)]
pub struct Between<'a> {
    pub before: &'a Moment,
    pub now: &'a Moment,
    pub interval_s: u64,
}

impl Between<'_> {
    /// The number of a field.
    ///
    /// # Errors
    /// The name of a statistic that it is computed of and that is not counted.
    pub fn number(&self, field: &Field) -> Result<Number, &'static str> {
        let cache = (&self.before.cache, &self.now.cache);
        match field.source {
            Time => Ok(Number::Whole(0)),
            Rate(names) => self.rate(cache, names),
            PrefetchRate(names) => self.rate((&self.before.prefetch, &self.now.prefetch), names),
            Gauge(name) => Ok(Number::Whole(self.gauge(name)?)),
            Percent(part, whole) => Ok(share(self.named(part)?, self.named(whole)?)),
            Rest(parts, whole) => {
                if self.named(whole)?.real() <= 0.0 {
                    return Ok(Number::Whole(0));
                }
                let mut rest = 100.0;
                for part in parts {
                    rest -= self.named(part)?.real();
                }
                Ok(Number::Real(rest))
            }
            ShareOfStates(part) => {
                let states = Number::Whole(self.states()?);
                Ok(share(self.named(part)?, states))
            }
            Target(part) => Ok(Number::Real(self.target(part)?)),
            Grows => Ok(Number::Whole(i128::from(self.gauge("arc_no_grow")? == 0))),
        }
    }

    fn named(&self, name: &str) -> Result<Number, &'static str> {
        self.number(find(name).expect("fields are computed of fields"))
    }

    fn rate(
        &self,
        (before, now): (&Counted, &Counted),
        names: &'static [&'static str],
    ) -> Result<Number, &'static str> {
        let mut grown = 0;
        for name in names {
            let known = now.get(*name).ok_or(*name)?;
            grown += known - before.get(*name).copied().unwrap_or(0);
        }
        Ok(Number::Real(grown as f64 / self.interval_s as f64))
    }

    fn gauge(&self, name: &'static str) -> Result<i128, &'static str> {
        self.now.cache.get(name).copied().ok_or(name)
    }

    /// All blocks in the lists of the cache, in bytes.
    fn states(&self) -> Result<i128, &'static str> {
        let mut sum = 0;
        for state in STATES {
            for kind in ["data", "metadata"] {
                let name = format!("{state}_{kind}");
                sum += self.now.cache.get(&name).ok_or("mru_data")?;
            }
        }
        Ok(sum)
    }

    fn target(&self, part: Part) -> Result<f64, &'static str> {
        /// Targets are shares in 2^32ths.
        const WHOLE: f64 = 4_294_967_296.0;
        let of = |name| self.gauge(name).map(|share| share as f64 / WHOLE);
        let all = self.states()? as f64;
        let metadata = || of("meta").map(|share| all * share);
        Ok(match part {
            Part::Metadata => metadata()?,
            Part::Data => all - metadata()?,
            Part::RecentData => self.target(Part::Data)? * of("pd")?,
            Part::RecentMetadata => self.target(Part::Metadata)? * of("pm")?,
            Part::FrequentData => self.target(Part::Data)? - self.target(Part::RecentData)?,
            Part::FrequentMetadata => {
                self.target(Part::Metadata)? - self.target(Part::RecentMetadata)?
            }
            Part::Recent => self.target(Part::RecentData)? + self.target(Part::RecentMetadata)?,
            Part::Frequent => {
                self.target(Part::FrequentData)? + self.target(Part::FrequentMetadata)?
            }
        })
    }

    /// The number of a field as its column has it.
    pub fn cell(&self, field: &Field, number: Number) -> String {
        let step = match field.unit {
            Unit::Count => Some(1000.0),
            Unit::Bytes => Some(1024.0),
            Unit::Percent | Unit::Time => None,
        };
        number_columns::rounded(number, field.width, step, self.interval_s)
    }
}

fn share(part: Number, whole: Number) -> Number {
    match whole.real() > 0.0 {
        true => Number::Real(100.0 * part.real() / whole.real()),
        false => Number::Whole(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics of a kernel of OpenZFS 2.3.2, each grown by another prime number, and what its
    /// `arcstat -a` printed of them: exact numbers of one second, and columns of two.
    const GOLDEN: &str = include_str!("golden_arcstat.txt");

    fn part<'g>(title: &str) -> impl Iterator<Item = Vec<&'g str>>
    where
        'g: 'g,
    {
        let text = GOLDEN.split_once(&format!("[{title}]\n"));
        let text = text.expect("the file has the part").1;
        let text = text.split_once("\n\n").map_or(text, |(text, _)| text);
        text.lines().map(|line| line.split_whitespace().collect())
    }

    fn moments() -> [Moment; 2] {
        let of = |title: &str, column: usize| -> Counted {
            let lines = part(title);
            lines
                .map(|line| (line[0].to_owned(), line[column].parse().unwrap()))
                .collect()
        };
        [1, 2].map(|column| Moment {
            cache: of("arcstats", column),
            prefetch: of("zfetchstats", column),
        })
    }

    #[test]
    fn each_field_is_what_arcstat_prints() {
        let [before, now] = &moments();
        for (title, interval_s) in [("exact", 1), ("columns", 2)] {
            let between = Between {
                before,
                now,
                interval_s,
            };
            let mut seen = 0;
            for line in part(title) {
                let field = find(line[0]).unwrap();
                let number = between.number(field).unwrap();
                let printed = match title {
                    "exact" => number.exact(),
                    _ => between.cell(field, number),
                };
                assert_eq!(printed.trim(), line[1], "{title} {}", field.name);
                assert!(
                    title == "exact" || printed.len() == field.width,
                    "{printed}"
                );
                seen += 1;
            }
            assert_eq!(seen + 1, FIELDS.len(), "but for the time");
        }
    }

    #[test]
    fn a_field_names_the_statistic_that_is_not_counted() {
        let [before, now] = moments();
        let mut lacking = now.clone();
        lacking.cache.remove("mru_hits");
        let between = Between {
            before: &before,
            now: &lacking,
            interval_s: 1,
        };
        assert_eq!(between.number(find("mru").unwrap()), Err("mru_hits"));
        assert!(between.number(find("hits").unwrap()).is_ok());
        // Nothing at all was asked of the cache: no share of nothing.
        let idle = Between {
            before: &now,
            now: &now,
            interval_s: 1,
        };
        let share = idle.number(find("hit%").unwrap());
        assert_eq!(share, Ok(Number::Whole(0)));
    }
}
