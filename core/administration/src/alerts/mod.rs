//! Alerts: conditions on statistics that are looked at all the time.
//!
//! # Map
//! - `alert_rules`: the alerts, kept in a file, and what one must have
//! - `alert_window`: what was counted in the seconds that a value is of
//! - `alert_phase`: quiet, pending, firing: hysteresis
//! - `alert_texts`: what is told to people
//! - `changing_alerts`: adding, removing, listing
//! - `alert_watch`: looks at all of them each second
//!
//! # Permissions
//! Programs run as the daemon's user, and statements may name clients: alerts are for root and that
//! user.

mod alert_phase;
pub(crate) mod alert_rules;
mod alert_texts;
mod alert_watch;
mod alert_window;
mod changing_alerts;

pub use alert_watch::AlertWatch;
