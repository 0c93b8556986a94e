//! The numbers of clients in records.

/// A client, numbered by its front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClientId(pub u32);

impl ClientId {
    /// Tarn itself.
    pub const INTERNAL: ClientId = ClientId(0);
    /// Administration by the commands.
    pub const ADMINISTRATION: ClientId = ClientId(1);
    /// The first number a front end may give.
    pub const FIRST_FREE: ClientId = ClientId(16);
}
