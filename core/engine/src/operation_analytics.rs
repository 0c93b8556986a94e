//! What keeps the operations of this process: the flight recorder and its collector thread.

use std::sync::Arc;
use tarn_analytics::Analytics;
use tarn_archive::Archive;
use tarn_host::RepeatingThread;

/// Analytics that was started.
#[derive(Debug)]
pub(crate) struct StartedAnalytics {
    pub(crate) analytics: Arc<Analytics>,
    /// Ends with the engine; none where a test makes the passes.
    pub(crate) _thread: Option<RepeatingThread>,
}

/// An archive that was opened.
#[derive(Debug)]
pub(crate) struct StartedArchive {
    pub(crate) archive: Arc<Archive>,
    /// Ends with the engine; none where a test archives.
    pub(crate) _thread: Option<RepeatingThread>,
}
