//! Metrics for programs that keep histories of their own: Prometheus, InfluxDB.
//!
//! # Map
//! - `metric_families`: families as they are gathered
//! - `of_operations`: what clients did, by protocol, kind and dataset
//! - `of_pools`: pools and devices
//! - `of_counters`: what layers count: the ARC, intent logs, the write throttle
//! - `of_machine`: processors, memory, interfaces and disks
//!
//! # Permissions
//! All may know, as all may list pools and datasets: no client, user or file is named.

mod metric_families;
mod of_counters;
mod of_machine;
mod of_operations;
mod of_pools;

use crate::administrator::Administrator;
use crate::messages::metrics::MetricFamilies;
use metric_families::Families;

impl Administrator {
    /// All metrics, as they are now.
    pub(crate) fn metrics(&self) -> MetricFamilies {
        let mut families = Families::default();
        of_operations::add(&mut families, &self.engine);
        self.add_pools(&mut families);
        self.engine.cache.publish_sizes();
        of_counters::add(&mut families);
        of_machine::add(&mut families, &self.engine.host.machine_counters());
        families.told()
    }
}
