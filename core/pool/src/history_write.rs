//! Writing the pool's history: records of commands and of internal events.
//!
//! A record is appended at the end of the txg of its event, under OpenZFS's names, so that
//! `zpool history` of OpenZFS prints it. The first record is `zpool create`; the ring never
//! overwrites it.

use crate::error::PoolError;
use crate::mos_writer::MosWriter;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use tarn_dataset::task::InternalEvent;
use tarn_object::NewObject;
use tarn_ondisk::declare::{ByteOrder, Stored, narrow, widen};
use tarn_ondisk::history::{HistoryHead, encode_record, name};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::HISTORY;
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;

/// The block size of the ring.
const RING_BLOCK_BYTES: u64 = 128 << 10;

/// The zone in records, as OpenZFS writes it on Linux.
const ZONE: &str = "linux";

/// Creates the ring of a new pool.
#[doc(alias = "spa_history_create_obj")]
pub(crate) fn create(writer: MosWriter<'_>, pool_bytes: u64) -> Result<(), PoolError> {
    let new = NewObject::plain(ObjectType::History, RING_BLOCK_BYTES)
        .with_bonus(ObjectType::HistoryOffsets, HistoryHead::SIZE);
    let object = writer.create(new)?;
    writer.set_bonus(&object, &HistoryHead::new(pool_bytes).to_bytes())?;
    writer.link(HISTORY, object.id())
}

/// Appends records. A record larger than the ring is left out.
#[doc(alias = "spa_history_log_sync")]
pub(crate) fn append(
    writer: MosWriter<'_>,
    records: &[NvList],
    pool_bytes: u64,
) -> Result<(), PoolError> {
    if records.is_empty() {
        return Ok(());
    }
    if writer.directory().find(HISTORY)?.is_none() {
        create(writer, pool_bytes)?;
    }
    let id = writer.directory().require(HISTORY)?;
    let object = writer.directory().object(id)?;
    let corrupt = |cause| PoolError::Corrupt { object: id, cause };
    let mut head =
        HistoryHead::from_short_bytes(&object.bonus(), ByteOrder::Little).map_err(corrupt)?;
    head.check().map_err(corrupt)?;
    for record in records {
        let bytes = encode_record(record);
        let length = widen(bytes.len());
        if !head.can_hold(length) {
            continue;
        }
        while !head.has_room(length) {
            let mut oldest = Vec::new();
            for piece in head.oldest_length() {
                let start = oldest.len();
                oldest.resize(start + narrow(piece.length), 0);
                object
                    .read(piece.offset, &mut oldest[start..], writer.operation)
                    .map_err(|cause| PoolError::Object { object: id, cause })?;
            }
            let oldest: [u8; 8] = oldest.try_into().expect("a length is eight bytes");
            head.drop_oldest(oldest).map_err(corrupt)?;
        }
        let mut rest = bytes.as_slice();
        for piece in head.append(length) {
            let (now, later) = rest.split_at(narrow(piece.length));
            writer.write(&object, piece.offset, now)?;
            rest = later;
        }
        assert!(rest.is_empty(), "the whole record is in the ring");
        if record.contains(name::COMMAND) {
            head.keep_creation();
        }
        debug_assert!(head.check().is_ok(), "the head of the ring stays valid");
    }
    writer.set_bonus(&object, &head.to_bytes())
}

/// The record of an internal event.
pub(crate) fn of_event(event: &InternalEvent, txg: Txg, time_s: u64, host_name: &str) -> NvList {
    let mut record = NvList::new()
        .with(name::EVENT_NAME, event.name)
        .with(name::EVENT_TEXT, event.text.as_str());
    if let Some((dataset, id)) = &event.dataset {
        record.set(name::DATASET, dataset.as_str());
        record.set(name::DATASET_OBJECT, id.get());
    }
    record.set(name::TXG, txg.get());
    record.set(name::TIME, time_s);
    record.set(name::HOST, host_name);
    record
}

/// Most bytes of a call in a record: a larger input is left out. A command for all snapshots of a
/// large pool must not overwrite everything else in the ring.
const CALL_BYTES_MAX: usize = 64 << 10;

/// The OpenZFS ioctl of a command, for `zpool history -i`.
#[derive(Debug, Clone)]
pub struct CallRecord {
    name: &'static str,
    input: NvList,
    begun_ns: u64,
}

impl CallRecord {
    /// An ioctl that begins now, by its name, with its input.
    #[must_use]
    pub fn new(name: &'static str, input: NvList) -> CallRecord {
        CallRecord {
            name,
            input,
            begun_ns: tarn_host::monotonic_ns(),
        }
    }

    fn record(&self, command: &CommandRecord, now_s: u64) -> NvList {
        let elapsed = tarn_host::monotonic_ns().saturating_sub(self.begun_ns);
        let elapsed = i64::try_from(elapsed).unwrap_or(i64::MAX);
        let with = |input: Option<&NvList>| {
            let mut record = NvList::new().with(name::CALL, self.name);
            if let Some(input) = input {
                record.set(name::INPUT, input.clone());
            }
            record
                .with(name::ELAPSED_NS, elapsed)
                .with(name::ZONE, ZONE)
                .with(name::WHO, u64::from(command.user))
                .with(name::TIME, now_s)
                .with(name::HOST, command.host_name.as_str())
        };
        let whole = with(Some(&self.input));
        match encode_record(&whole).len() > CALL_BYTES_MAX {
            true => with(None),
            false => whole,
        }
    }
}

/// The user and host of a command, for `zpool history -l`.
#[derive(Debug, Clone)]
pub struct CommandRecord {
    /// The command line.
    pub command: String,
    /// Its ioctl, where OpenZFS records that.
    pub call: Option<CallRecord>,
    /// The user's number.
    pub user: u32,
    /// The host's name.
    pub host_name: String,
}

impl Pool {
    /// Adds a command to the history, and waits until that is stored. Does nothing on a read-only
    /// pool.
    ///
    /// # Errors
    /// The pool is suspended or being closed.
    pub fn record_command(
        &self,
        command: CommandRecord,
        operation: &Operation,
    ) -> Result<(), crate::error::TaskError> {
        if self.mode() == crate::pool::Mode::ReadOnly || command.command.is_empty() {
            return Ok(());
        }
        self.run_in_sync(operation, move |scope| {
            append_command(scope, &command)?;
            Ok(Ok(()))
        })
    }
}

/// Adds a command to the history in the syncing txg.
pub(crate) fn append_command(
    scope: &SyncScope<'_>,
    command: &CommandRecord,
) -> Result<(), PoolError> {
    if command.command.is_empty() {
        return Ok(());
    }
    let record = NvList::new()
        .with(name::COMMAND, command.command.as_str())
        .with(name::ZONE, ZONE)
        .with(name::HOST, command.host_name.as_str())
        .with(name::WHO, u64::from(command.user))
        .with(name::TIME, scope.context.now_s);
    let call = command.call.as_ref();
    let call = call.map(|call| call.record(command, scope.context.now_s));
    let records: Vec<NvList> = call.into_iter().chain([record]).collect();
    let bytes = crate::size::deflated_size(&scope.pool.vdevs().top_levels());
    append(scope.writer, &records, bytes)
}
