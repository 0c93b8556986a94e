//! When txgs were stored: noted every ten minutes in which a txg is stored, for the dates of
//! `zpool scrub`.

use crate::error::PoolError;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use tarn_object::zap::ZapValue;
use tarn_ondisk::pool_directory::{POOL_DIRECTORY, TXG_TIMES};
use tarn_ondisk::txg_times::{TimeRing, TxgTimes};
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;

/// How often, in seconds.
#[doc(alias("spa_note_txg_time", "spa_flush_txg_time"))]
const INTERVAL_S: u64 = 600;

impl Pool {
    /// Loads what the MOS has, when the pool is opened. An array that makes no sense counts as one
    /// without entries.
    #[doc(alias = "spa_load_txg_log_time")]
    pub(crate) fn load_txg_times(&self, operation: &Operation) -> Result<(), PoolError> {
        let directory = self.directory(operation);
        let ring = |name: &str| -> Result<TimeRing, PoolError> {
            let words = directory.value(name)?.map(|value| value.to_words());
            Ok(words
                .and_then(|words| TimeRing::from_words(&words))
                .unwrap_or_default())
        };
        let [minutes, days, months] = TXG_TIMES.map(ring);
        let times = TxgTimes {
            minutes: minutes?,
            days: days?,
            months: months?,
        };
        self.txg_times.0.lock().times = times;
        Ok(())
    }

    /// The txgs between these times, in seconds since 1970: blocks born after the first, and before
    /// the second. Zero for the first, and none for the second, where there is no bound or none is
    /// known.
    #[doc(alias = "dbrrd_query")]
    pub(crate) fn txgs_between(&self, start_s: u64, end_s: u64) -> (Txg, Option<Txg>) {
        let noted = self.txg_times.0.lock();
        let start = Some(start_s).filter(|start_s| *start_s != 0);
        let end = Some(end_s).filter(|end_s| *end_s != 0);
        let start = start.and_then(|start_s| noted.times.txg_until(start_s));
        let end = end
            .and_then(|end_s| noted.times.txg_from(end_s))
            .filter(|txg| *txg != 0);
        (Txg::new(start.unwrap_or(0)), end.map(Txg::new))
    }
}

/// Notes the txg that is being stored, if it is time.
#[doc(alias = "spa_sync_time_logger")]
pub(crate) fn note(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    let now_s = scope.context.now_s;
    let times = {
        let mut noted = scope.pool.txg_times.0.lock();
        if now_s < noted.last_s.saturating_add(INTERVAL_S) {
            return Ok(());
        }
        assert!(
            now_s >= noted.last_s,
            "the time of a txg that is noted is later than the last one"
        );
        noted.last_s = now_s;
        noted.times.add(now_s, scope.writer.tx.txg().get());
        noted.times.clone()
    };
    assert_eq!(
        scope.context.tx.pass(),
        1,
        "a txg is noted once, before its object directory is stored"
    );
    let rings = [&times.minutes, &times.days, &times.months];
    for (name, ring) in TXG_TIMES.into_iter().zip(rings) {
        let words = ZapValue::Words(ring.to_words());
        scope.writer.put(POOL_DIRECTORY, name, &words)?;
    }
    Ok(())
}
