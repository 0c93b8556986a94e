//! What a request asks for, and on whose behalf.

use crate::client_id::ClientId;
use crate::dataset_table::DatasetId;
use crate::kind::{OperationKind, Protocol};

/// A holder of a served file system: a mount, an export, a command of the engine. Each file system
/// numbers its own, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HolderId(pub u64);

impl HolderId {
    /// The operation comes from no holder: all holders are told of what it changes.
    pub const NONE: HolderId = HolderId(0);
}

/// On whose behalf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Which client, as the front end numbered it.
    pub client: ClientId,
    /// By which way it came.
    pub protocol: Protocol,
    /// The user's numeric id.
    pub user: u32,
    /// Through which holder of the file system it came. That one is not told of the change.
    pub holder: HolderId,
}

impl Who {
    /// Tarn itself.
    pub const INTERNAL: Who = Who {
        client: ClientId::INTERNAL,
        protocol: Protocol::Internal,
        user: 0,
        holder: HolderId::NONE,
    };
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// The kind of operation.
    pub kind: OperationKind,
    /// The dataset, as registered with [`crate::DatasetStatistics::register`].
    pub dataset: DatasetId,
    /// The object (file) number, of 48 bits; 0 if none.
    pub object: u64,
    /// Where in the object, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub size: u64,
}

impl What {
    /// An operation that is not about a range of a file.
    pub const fn plain(kind: OperationKind, dataset: DatasetId, object: u64) -> What {
        What {
            kind,
            dataset,
            object,
            offset: 0,
            size: 0,
        }
    }
}
