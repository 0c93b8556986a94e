//! The names of events: the last part of their classes, as OpenZFS has them
//! (`sys/sysevent/eventdefs.h`, `sys/fm/fs/zfs.h`).

/// A pool was created.
pub const POOL_CREATE: &str = "pool_create";
/// A pool was imported.
pub const POOL_IMPORT: &str = "pool_import";
/// A pool was exported.
pub const POOL_EXPORT: &str = "pool_export";
/// A pool was destroyed.
pub const POOL_DESTROY: &str = "pool_destroy";
/// A pool has another guid.
pub const POOL_REGUID: &str = "pool_reguid";
/// The configuration of a pool was stored.
pub const CONFIG_SYNC: &str = "config_sync";
/// The history got a record of an internal event.
pub const HISTORY_EVENT: &str = "history_event";

/// Vdevs were added.
pub const VDEV_ADD: &str = "vdev_add";
/// A device was attached.
pub const VDEV_ATTACH: &str = "vdev_attach";
/// A device was detached.
pub const VDEV_REMOVE: &str = "vdev_remove";
/// A hot spare or cache device was removed.
pub const VDEV_REMOVE_AUX: &str = "vdev_remove_aux";
/// A top-level vdev was removed.
pub const VDEV_REMOVE_DEV: &str = "vdev_remove_dev";
/// A device is online.
pub const VDEV_ONLINE: &str = "vdev_online";
/// The errors of a vdev were cleared.
pub const VDEV_CLEAR: &str = "vdev_clear";
/// A hot spare is in use.
pub const VDEV_SPARE: &str = "vdev_spare";
/// A device has grown.
pub const VDEV_AUTOEXPAND: &str = "vdev_autoexpand";

/// A scrub has begun.
pub const SCRUB_START: &str = "scrub_start";
/// A scrub came to its end.
pub const SCRUB_FINISH: &str = "scrub_finish";
/// A scrub was ended.
pub const SCRUB_ABORT: &str = "scrub_abort";
/// A paused scrub goes on.
pub const SCRUB_RESUME: &str = "scrub_resume";
/// A scrub is paused.
pub const SCRUB_PAUSED: &str = "scrub_paused";
/// A scrub of known errors has begun.
pub const ERROR_SCRUB_START: &str = "errorscrub_start";
/// A scrub of known errors came to its end.
pub const ERROR_SCRUB_FINISH: &str = "errorscrub_finish";
/// A scrub of known errors was ended.
pub const ERROR_SCRUB_ABORT: &str = "errorscrub_abort";
/// A paused scrub of known errors goes on.
pub const ERROR_SCRUB_RESUME: &str = "errorscrub_resume";
/// A scrub of known errors is paused.
pub const ERROR_SCRUB_PAUSED: &str = "errorscrub_paused";
/// A resilver has begun.
pub const RESILVER_START: &str = "resilver_start";
/// A resilver came to its end.
pub const RESILVER_FINISH: &str = "resilver_finish";

/// TRIM of a device has begun.
pub const TRIM_START: &str = "trim_start";
/// TRIM of a device came to its end.
pub const TRIM_FINISH: &str = "trim_finish";
/// TRIM of a device was ended.
pub const TRIM_CANCEL: &str = "trim_cancel";
/// TRIM of a device goes on.
pub const TRIM_RESUME: &str = "trim_resume";
/// TRIM of a device is suspended.
pub const TRIM_SUSPEND: &str = "trim_suspend";

/// The intent log of a dataset could not be read at import.
pub const LOG_REPLAY: &str = "log_replay";
/// A cache file could not be written.
pub const CONFIG_CACHE_WRITE: &str = "config_cache_write";
/// The pool is suspended.
pub const IO_FAILURE: &str = "io_failure";
