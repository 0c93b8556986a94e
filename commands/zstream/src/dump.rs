//! `zstream dump`: the records of a stream as text.
//!
//! # Mechanism
//! Records are read one after the other and shown, with their checksums verified on the way. Unlike
//! a receiver it goes on where it can: a damaged stream is dumped to see how far it is
//! right. A stream that ends early is shown up to there.

use crate::misused;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Read, Write};
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::declare::{ByteOrder, Stored, widen};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::sealing::Sealing;
use tarn_ondisk::stream::{
    Begin, CHECKSUM_OFFSET, Framed, RECORD_BYTES, Record, StreamKind, order_of,
};
use tarn_transform::checksum::ByteOrder as SumOrder;
use tarn_transform::checksum::fletcher::Fletcher4;

/// How many bytes a line of contents shows, and after how many there is a gap.
const LINE_BYTES: usize = 16;
const GROUP_BYTES: usize = 4;

/// How much is read or written at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Records by their stored types, in the order in which the summary counts them.
const SUMMARY: [(u32, &str); 9] = [
    (0, "DRR_BEGIN"),
    (5, "DRR_END"),
    (1, "DRR_OBJECT"),
    (2, "DRR_FREEOBJECTS"),
    (3, "DRR_WRITE"),
    (6, "DRR_WRITE_BYREF"),
    (8, "DRR_WRITE_EMBEDDED"),
    (4, "DRR_FREE"),
    (7, "DRR_SPILL"),
];

/// The highest stored type of a record.
const TYPE_MAX: u32 = 10;

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Options {
    /// All records, not only the first and last.
    records: bool,
    /// Their checksums.
    checksums: bool,
    /// Their contents.
    contents: bool,
    /// Whether checksums are verified.
    verifies: bool,
}

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[String]) -> u8 {
    let Ok((options, path)) = parse(arguments) else {
        return misused();
    };
    let input: Box<dyn Read> = match path {
        Some(path) => match File::open(path) {
            Ok(file) => Box::new(file),
            Err(error) => {
                let text = error.to_string();
                let said = text.split(" (os error").next().unwrap_or_default();
                eprintln!("Error while opening file '{path}': {said}");
                return 1;
            }
        },
        None if std::io::stdin().is_terminal() => {
            eprintln!(
                "Error: The send stream is a binary format and can not be read from a\n\
                 terminal.  Standard input must be redirected, or a file must be\n\
                 specified as a command-line argument."
            );
            return 1;
        }
        None => Box::new(std::io::stdin().lock()),
    };
    let mut dump = Dump::new(BufReader::with_capacity(BUFFER_BYTES, input), options);
    let out = std::io::stdout().lock();
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let code = dump.run(&mut out);
    // A reader that went away has seen enough.
    code.and_then(|code| out.flush().map(|()| code))
        .unwrap_or(1)
}

/// The options, and the file if one is named.
fn parse(arguments: &[String]) -> Result<(Options, Option<&str>), ()> {
    let mut options = Options {
        records: false,
        checksums: false,
        contents: false,
        verifies: true,
    };
    let mut path = None;
    for argument in arguments {
        let Some(letters) = argument.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            path = path.or(Some(argument.as_str()));
            continue;
        };
        for letter in letters.chars() {
            match letter {
                'C' => options.verifies = false,
                'v' => {
                    options.checksums |= options.records;
                    options.records = true;
                }
                'd' => {
                    options.records = true;
                    options.checksums = true;
                    options.contents = true;
                }
                other => {
                    eprintln!("invalid option '{other}'");
                    return Err(());
                }
            }
        }
    }
    Ok((options, path))
}

/// A stream on its way to text.
struct Dump<R> {
    input: R,
    options: Options,
    order: ByteOrder,
    sum: Fletcher4,
    /// Of everything before the last record.
    sum_before: Checksum,
    counts: [(u64, u64); 11],
    payload_bytes: u64,
    header_bytes: u64,
    stream_bytes: u64,
}

impl<R: Read> Dump<R> {
    fn new(input: R, options: Options) -> Self {
        Dump {
            input,
            options,
            order: ByteOrder::Little,
            sum: Fletcher4::new(),
            sum_before: Checksum::ZERO,
            counts: [(0, 0); 11],
            payload_bytes: 0,
            header_bytes: 0,
            stream_bytes: 0,
        }
    }

    /// Shows everything, and gives the exit code.
    fn run<W: Write>(&mut self, out: &mut W) -> std::io::Result<u8> {
        let mut is_first = true;
        while let Some(bytes) = self.header(out, is_first)? {
            if is_first && order_of(&bytes).is_err() {
                out.flush()?;
                eprintln!("Invalid stream (bad magic number)");
                return Ok(1);
            }
            is_first = false;
            let code = self.code_of(&bytes);
            let framed = match Record::decode(&bytes, self.order) {
                Ok(framed) if code <= TYPE_MAX => framed,
                _ => {
                    writeln!(out, "INVALID record found: type {code:#x}\nAborting.")?;
                    return Ok(1);
                }
            };
            self.header_bytes += widen(RECORD_BYTES);
            let Some(size) = size_of(&framed.record) else {
                writeln!(out, "INVALID record found: type {code:#x}\nAborting.")?;
                return Ok(1);
            };
            self.show(out, &framed, size)?;
            let count = &mut self.counts[usize::try_from(code).unwrap_or(0)];
            count.0 += 1;
            count.1 += widen(size);
            self.payload_bytes += widen(size);
            self.sum_before = Checksum(self.sum.finish().0);
        }
        self.summary(out)?;
        Ok(0)
    }

    /// The next record's bytes, checked; none at the end, or where they are damaged.
    fn header<W: Write>(
        &mut self,
        out: &mut W,
        is_first: bool,
    ) -> std::io::Result<Option<[u8; RECORD_BYTES]>> {
        let mut bytes = [0; RECORD_BYTES];
        if !self.fill(&mut bytes)? {
            return Ok(None);
        }
        if is_first && let Ok(order) = order_of(&bytes) {
            self.order = order;
        }
        let order = sum_order(self.order);
        self.sum.update(&bytes[..CHECKSUM_OFFSET], order);
        let expected = Checksum(self.sum.finish().0);
        self.sum.update(&bytes[CHECKSUM_OFFSET..], order);
        let found = Checksum::from_bytes(&bytes[CHECKSUM_OFFSET..], self.order);
        let found = found.unwrap_or(Checksum::ZERO);
        // The first record has a name where others have their checksum.
        let is_begin = self.code_of(&bytes) == 0;
        let agrees = found == Checksum::ZERO || found == expected || is_begin;
        if self.options.verifies && !agrees {
            out.flush()?;
            eprintln!("invalid checksum");
            writeln!(
                out,
                "Incorrect checksum in record header.\nExpected checksum = {}",
                words(&expected)
            )?;
            return Ok(None);
        }
        Ok(Some(bytes))
    }

    fn code_of(&self, bytes: &[u8; RECORD_BYTES]) -> u32 {
        let word = [bytes[0], bytes[1], bytes[2], bytes[3]];
        match self.order {
            ByteOrder::Little => u32::from_le_bytes(word),
            ByteOrder::Big => u32::from_be_bytes(word),
        }
    }

    /// Reads what follows a record. A stream that ends within it has nothing more.
    fn payload(&mut self, size: usize) -> std::io::Result<Vec<u8>> {
        // Memory is taken as bytes come: a size may be a lie.
        let mut payload = Vec::new();
        let limit = widen(size);
        (&mut self.input).take(limit).read_to_end(&mut payload)?;
        if payload.len() < size {
            return Ok(Vec::new());
        }
        self.stream_bytes += limit;
        self.sum.update(&payload, sum_order(self.order));
        Ok(payload)
    }

    fn show<W: Write>(&mut self, out: &mut W, framed: &Framed, size: usize) -> std::io::Result<()> {
        match &framed.record {
            Record::Begin {
                begin,
                payload_bytes,
            } => self.begin(out, begin, *payload_bytes)?,
            Record::End(end) => {
                if self.options.verifies && end.checksum != self.sum_before {
                    writeln!(
                        out,
                        "Expected checksum differs from checksum in stream.\nExpected checksum = {}",
                        words(&self.sum_before)
                    )?;
                }
                writeln!(out, "END checksum = {}", words(&end.checksum))?;
                self.sum = Fletcher4::new();
            }
            record => {
                if self.options.records {
                    writeln!(out, "{}", line_of(record, size))?;
                }
                let payload = self.payload(size)?;
                if self.options.contents {
                    out.write_all(contents(&payload).as_bytes())?;
                }
            }
        }
        let is_begin = matches!(framed.record, Record::Begin { .. });
        if !is_begin && self.options.checksums {
            writeln!(out, "    checksum = {}", words(&framed.checksum))?;
        }
        Ok(())
    }

    fn begin<W: Write>(
        &mut self,
        out: &mut W,
        begin: &Begin,
        payload_bytes: u32,
    ) -> std::io::Result<()> {
        let kind = match begin.kind() {
            StreamKind::Single => 1,
            StreamKind::Compound => 2,
            StreamKind::Unknown(kind) => kind,
        };
        write!(
            out,
            "BEGIN record\n\thdrtype = {kind}\n\tfeatures = {:x}\n\tmagic = {:x}\n\tcreation_time = {:x}\n\
             \ttype = {}\n\tflags = 0x{:x}\n\ttoguid = {:x}\n\tfromguid = {:x}\n\ttoname = ",
            begin.features().0,
            begin.magic,
            begin.creation_time_s,
            begin.objset_type,
            begin.flags,
            begin.to_guid,
            begin.from_guid,
        )?;
        out.write_all(begin.to_name.as_bytes())?;
        write!(out, "\n\tpayloadlen = {payload_bytes}\n")?;
        if self.options.records {
            writeln!(out)?;
        }
        if payload_bytes == 0 {
            return Ok(());
        }
        let size = usize::try_from(payload_bytes).unwrap_or(usize::MAX);
        let payload = self.payload(size)?;
        match NvList::decode_prefix(&payload) {
            Ok((list, _)) => write!(out, "{}", list.printed())?,
            Err(_) => eprintln!("Invalid argument"),
        }
        Ok(())
    }

    fn summary<W: Write>(&self, out: &mut W) -> std::io::Result<()> {
        writeln!(out, "SUMMARY:")?;
        for (code, name) in SUMMARY {
            let (count, bytes) = self.counts[usize::try_from(code).unwrap_or(0)];
            writeln!(out, "\tTotal {name} records = {count} ({bytes} bytes)")?;
        }
        let records: u64 = self.counts.iter().map(|(count, _)| count).sum();
        writeln!(out, "\tTotal records = {records}")?;
        for (what, bytes) in [
            ("payload size", self.payload_bytes),
            ("header overhead", self.header_bytes),
            ("stream length", self.stream_bytes),
        ] {
            writeln!(out, "\tTotal {what} = {bytes} ({bytes:#x})")?;
        }
        Ok(())
    }

    /// Fills the buffer; false where the stream ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> std::io::Result<bool> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.stream_bytes += widen(bytes.len());
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// How many bytes follow a record; none where it claims more than can be.
fn size_of(record: &Record) -> Option<usize> {
    match record {
        Record::Begin { payload_bytes, .. } => usize::try_from(*payload_bytes).ok(),
        other => other.payload_bytes().ok(),
    }
}

/// A record of any type but the first and the last, without its checksum.
fn line_of(record: &Record, size: usize) -> String {
    match record {
        Record::Object(one) => format!(
            "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {} \
             raw_bonuslen = {} flags = {} maxblkid = {} indblkshift = {} nlevels = {} nblkptr = {}",
            one.object,
            one.object_type,
            one.bonus_type,
            one.block_size,
            one.bonus_bytes,
            one.slots,
            one.raw_bonus_bytes,
            one.flags,
            one.max_block,
            one.indirect_shift,
            one.levels,
            one.pointer_count,
        ),
        Record::FreeObjects(one) => format!(
            "FREEOBJECTS firstobj = {} numobjs = {}",
            one.first_object, one.count
        ),
        Record::Write(one) => format!(
            "WRITE object = {} type = {} checksum type = {} compression type = {} flags = {} offset = {} \
             logical_size = {} compressed_size = {} payload_size = {size} props = {:x} {}",
            one.object,
            one.object_type,
            one.checksum_type,
            one.compression,
            one.flags,
            one.offset,
            one.logical_size,
            one.compressed_size,
            one.key.properties,
            sealing(&one.sealing),
        ),
        Record::WriteByReference(one) => format!(
            "WRITE_BYREF object = {} checksum type = {} props = {:x} offset = {} length = {} toguid = {:x} \
             refguid = {:x} refobject = {} refoffset = {}",
            one.object,
            one.checksum_type,
            one.key.properties,
            one.offset,
            one.length,
            one.to_guid,
            one.reference_guid,
            one.reference_object,
            one.reference_offset,
        ),
        Record::Free(one) => format!(
            "FREE object = {} offset = {} length = {}",
            one.object,
            one.offset,
            one.length.cast_signed()
        ),
        Record::Spill(one) => format!(
            "SPILL block for object = {} length = {} flags = {} compression type = {} compressed_size = {} \
             payload_size = {size} {}",
            one.object,
            one.length,
            one.flags,
            one.compression,
            one.compressed_size,
            sealing(&one.sealing),
        ),
        Record::WriteEmbedded(one) => format!(
            "WRITE_EMBEDDED object = {} offset = {} length = {} toguid = {:x} comp = {} etype = {} lsize = {} psize = {}",
            one.object,
            one.offset,
            one.length,
            one.to_guid,
            one.compression,
            one.embedded_type,
            one.logical_size,
            one.physical_size,
        ),
        Record::ObjectRange(one) => format!(
            "OBJECT_RANGE firstobj = {} numslots = {} flags = {} {}",
            one.first_object,
            one.slots,
            one.flags,
            sealing(&one.sealing),
        ),
        Record::Redact(one) => format!(
            "REDACT object = {} offset = {} length = {}",
            one.object, one.offset, one.length
        ),
        Record::Begin { .. } | Record::End(_) => String::new(),
    }
}

fn sealing(sealing: &Sealing) -> String {
    let (salt, vector) = (
        digits(&sealing.salt.0),
        digits(&sealing.initialization_vector.0),
    );
    let code = digits(&sealing.message_authentication_code.0);
    format!("salt = {salt} iv = {vector} mac = {code}")
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn words(checksum: &Checksum) -> String {
    let [a, b, c, d] = checksum.0;
    format!("{a:x}/{b:x}/{c:x}/{d:x}")
}

/// Bytes as lines of numbers and letters.
fn contents(bytes: &[u8]) -> String {
    // Where letters begin: behind the longest line of numbers.
    let start = LINE_BYTES * 3 + LINE_BYTES / GROUP_BYTES + 2;
    let mut text = String::new();
    for line in bytes.chunks(LINE_BYTES) {
        let mut numbers = String::new();
        let mut letters = String::new();
        for (index, &byte) in line.iter().enumerate() {
            if index % GROUP_BYTES == 0 {
                numbers.push(' ');
                if index != 0 {
                    letters.push(' ');
                }
            }
            // Text never fails to be written.
            let _ = write!(numbers, "{byte:02x} ");
            let is_shown = byte.is_ascii_graphic() || byte == b' ';
            letters.push(if is_shown { char::from(byte) } else { '.' });
        }
        let gap = start.saturating_sub(numbers.len()).max(1);
        let _ = writeln!(text, "{numbers}{:gap$}{letters}", "");
    }
    text
}

fn sum_order(order: ByteOrder) -> SumOrder {
    match order {
        ByteOrder::Little => SumOrder::Little,
        ByteOrder::Big => SumOrder::Big,
    }
}
