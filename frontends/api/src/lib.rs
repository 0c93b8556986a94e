//! The control interface: HTTP and JSON on a Unix socket.
//!
//! # Mechanism
//! `POST /v1/NOUN/VERB` takes an [`Envelope`](tarn_administration::messages::Envelope) and answers
//! with the operation's reply, or with a [`Refusal`](tarn_administration::messages::Refusal) and a
//! status that fits its kind. `GET /v1/openapi.json` describes all of it. Routes, description and
//! [`client::Client`] are made from one list, `tarn_administration::for_each_operation!`.
//!
//! Bytes of streams do not go through it: a command hands its own descriptor over ([`handover`]).
//!
//! All users may connect, so connections are counted ([`admission`]) and none is waited for without
//! end.
//!
//! The caller's user is read from the socket's peer credentials: what a message says of its sender
//! is never believed. Root and the user that runs the daemon may do everything; others may read,
//! and ask for what can be delegated, which the engine then allows or not.

pub mod admission;
pub mod client;
pub mod handover;
mod openapi;
pub mod patient;
pub mod server;

pub use openapi::description;

/// True for operations that change nothing, which every user may call. Those that OpenZFS lets only
/// root do are not among them, nor those that read files that the caller names.
pub fn only_reads(path: &str) -> bool {
    matches!(
        path,
        "analytics/catalogue"
            | "analytics/state"
            | "pool/describe"
            | "pool/iostat"
            | "pool/list-activities"
            | "dataset/describe"
            | "dataset/list-allowed"
            | "dataset/list-holds"
            | "dataset/list-mounts"
            | "dataset/list-activities"
            | "dataset/list-owners"
            | "dataset/plan-send"
            | "dataset/read-token"
            | "dataset/watch-receive"
            | "dataset/watch-send"
            | "statistics/kstat"
            | "statistics/metrics"
    )
}

/// True for operations for which the engine asks, before it does anything, whether the user has the
/// permissions that they need.
pub fn is_delegated(path: &str) -> bool {
    matches!(
        path,
        "analytics/events"
            | "analytics/instrument"
            | "analytics/list"
            | "analytics/live"
            | "analytics/operations"
            | "analytics/query"
            | "analytics/remove"
            | "dataset/abort-receive"
            | "dataset/allow"
            | "dataset/bookmark"
            | "dataset/clone"
            | "dataset/create"
            | "dataset/destroy"
            | "dataset/diff"
            | "dataset/hold"
            | "dataset/inherit"
            | "dataset/mount"
            | "dataset/promote"
            | "dataset/receive"
            | "dataset/release"
            | "dataset/rename"
            | "dataset/rollback"
            | "dataset/send"
            | "dataset/set"
            | "dataset/snapshot"
            | "dataset/unallow"
            | "dataset/unmount"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! paths {
        ($($path:literal $method:ident: $request:ty => $reply:ty, $summary:literal;)*) => {
            const PATHS: &[&str] = &[$($path),*];
        };
    }

    tarn_administration::for_each_operation!(paths);

    #[test]
    fn commands_on_pools_are_for_root_and_the_daemons_user() {
        let of_pools = PATHS.iter().filter(|path| path.starts_with("pool/"));
        let open: Vec<_> = of_pools
            .filter(|path| only_reads(path) || is_delegated(path))
            .collect();
        assert_eq!(
            open,
            [&"pool/describe", &"pool/list-activities", &"pool/iostat"]
        );
        let both = |path: &&&str| only_reads(path) && is_delegated(path);
        assert_eq!(PATHS.iter().find(both), None);
    }
}
