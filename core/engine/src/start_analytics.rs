//! Starts analytics of the operations of this process.
//!
//! The daemon does. Engines in tests and in simulations do not: a run is decided by its seed alone.

use crate::engine::Engine;
use crate::operation_analytics::StartedAnalytics;
use std::sync::Arc;
use tarn_analytics::Analytics;
use tarn_host::RepeatingThread;

impl Engine {
    /// Keeps the records of operations from now on, in so many bytes.
    ///
    /// # Panics
    /// When it was started already.
    pub fn start_analytics(&self, budget_bytes: usize) {
        let analytics = Arc::new(Analytics::new(budget_bytes));
        let thread = analytics.start(&self.host);
        self.set_analytics(analytics, Some(thread));
    }

    /// Has queries answered from what another one collects.
    ///
    /// # Panics
    /// When it was started already.
    pub fn answer_from(&self, analytics: Arc<Analytics>) {
        self.set_analytics(analytics, None);
    }

    fn set_analytics(&self, analytics: Arc<Analytics>, thread: Option<RepeatingThread>) {
        let started = StartedAnalytics {
            analytics,
            _thread: thread,
        };
        let is_first = self.analytics.set(started).is_ok();
        assert!(is_first, "an engine starts analytics once");
    }

    /// The operations that are kept; none where analytics is off.
    pub fn analytics(&self) -> Option<&Arc<Analytics>> {
        self.analytics.get().map(|started| &started.analytics)
    }
}
