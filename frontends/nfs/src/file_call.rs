//! A request about a file: the file that its handle names, the rights of the client, and the
//! operation record.

use crate::client_numbers::Client;
use crate::ended_operations;
use crate::handle::{BadHandle, Handle, InSnapshot};
use crate::rpc::authentication::{Caller, SystemUser};
use crate::security_flavors::Way;
use crate::share::{Pass, Share};
use crate::share_options::{ClientAccess, WrongWay};
use crate::share_table::{ShareTable, Shares};
use std::cell::Cell;
use std::sync::Arc;
use tarn_engine::files::{
    Attributes, CheckedByCaller, ControlEntry, Credentials, ErrorCode, FileHandle, FileSystem,
    HolderId, ObjectId, Operation, OperationKind, PosixError, Protocol, Tree, Who,
};

/// The client and user that ask, and what is shared.
pub(crate) struct Asker<'a> {
    pub(crate) table: &'a ShareTable,
    pub(crate) client: &'a Client,
    pub(crate) caller: &'a Caller,
    pub(crate) protocol: Protocol,
    /// How the call came; none where that does not count.
    pub(crate) way: Option<Way>,
    /// The client asks how files may be reached, so it has to find them.
    pub(crate) asks_for_security: Cell<bool>,
}

/// Why a handle leads to no file.
#[derive(Debug, Clone)]
pub(crate) enum NotServed {
    /// The bytes are no handle.
    BadHandle,
    /// The file, or its share, is not there any more.
    Stale,
    /// The client may not use the share.
    NotAllowed,
    /// It may, by another way than this call came: with TLS, a certificate, or Kerberos.
    WrongSecurity,
    /// The pool is suspended, or the share comes back soon: the client asks again later.
    Suspended,
    /// The file cannot be read.
    Failed(PosixError),
}

impl From<BadHandle> for NotServed {
    fn from(_: BadHandle) -> NotServed {
        NotServed::BadHandle
    }
}

/// A file system that a client has entered: a share, or a snapshot of it.
#[derive(Clone)]
pub(crate) struct Realm {
    pub(crate) shares: Arc<Shares>,
    pub(crate) share: Arc<Share>,
    pub(crate) tree: Arc<dyn Tree>,
    /// The number of the snapshot's dataset.
    pub(crate) snapshot: Option<ObjectId>,
    pub(crate) access: ClientAccess,
    _pass: Pass,
}

impl Realm {
    pub(crate) fn files(&self) -> &Arc<FileSystem> {
        self.tree.files()
    }

    /// The holder that makes changes. A snapshot is not changed.
    fn holder(&self) -> HolderId {
        match self.snapshot {
            None => self.share.shared.holding.id(),
            Some(_) => HolderId::NONE,
        }
    }

    /// The handle of a file in it.
    pub(crate) fn handle(&self, file: &Attributes) -> Handle {
        let within = |dataset| InSnapshot {
            head: self.share.shared.tree.guid(),
            dataset,
        };
        Handle {
            file: FileHandle::of(self.tree.guid(), file),
            snapshot: self.snapshot.map(within),
        }
    }

    /// Whether both are of one file system.
    pub(crate) fn is_same(&self, other: &Realm) -> bool {
        Arc::ptr_eq(self.files(), other.files())
    }

    /// Whether an entry leads into another file system.
    pub(crate) fn is_boundary(&self, id: ObjectId) -> bool {
        let is_snapshot = matches!(ControlEntry::of(id), Some(ControlEntry::Snapshot(_)));
        is_snapshot || self.junction(id).is_some()
    }

    /// The share that is found at this folder.
    pub(crate) fn junction(&self, folder: ObjectId) -> Option<&Arc<Share>> {
        match self.snapshot {
            None => self.shares.below(self.tree.guid(), folder),
            Some(_) => None,
        }
    }

    /// The user on whose behalf requests of this caller run here.
    pub(crate) fn credentials(&self, caller: &Caller) -> Credentials {
        let access = &self.access;
        let anonymous =
            || Credentials::user(access.anonymous_uid, access.anonymous_gid, Vec::new());
        let user = match known_user(access, caller) {
            Some(user) => user,
            None => return anonymous(),
        };
        let squashed = |gid: u32| match gid {
            0 if !access.trusts_root => access.anonymous_gid,
            gid => gid,
        };
        Credentials {
            uid: user.uid,
            gid: squashed(user.gid),
            groups: user.groups.iter().map(|gid| squashed(*gid)).collect(),
            has_all_groups: user.has_all_groups,
            privileged: user.uid == 0,
            checked: CheckedByCaller::Nothing,
        }
    }
}

/// The user of a call, unless it is the anonymous one.
fn known_user<'c>(access: &ClientAccess, caller: &'c Caller) -> Option<&'c SystemUser> {
    match caller {
        Caller::System(user) if !access.squashes_all => {
            (user.uid != 0 || access.trusts_root).then_some(user)
        }
        _ => None,
    }
}

/// A request about a file. The operation is finished when this is dropped.
pub(crate) struct FileCall {
    pub(crate) realm: Realm,
    pub(crate) id: ObjectId,
    pub(crate) credentials: Credentials,
    operation: Option<Operation>,
}

impl FileCall {
    pub(crate) fn files(&self) -> &FileSystem {
        self.realm.files()
    }

    pub(crate) fn operation(&self) -> &Operation {
        self.operation
            .as_ref()
            .expect("it is there until the call is dropped")
    }

    /// The record of the call is about the name in this directory, if it was not found.
    pub(crate) fn note_missing(&self, name: &[u8], error: &PosixError) {
        if matches!(error, PosixError::NotFound) {
            self.operation().found_no_name(name);
        }
    }

    /// The attributes of the file as they are now.
    pub(crate) fn attributes(&self) -> Result<Attributes, PosixError> {
        self.attributes_of(self.id)
    }

    /// The attributes of another file of the same file system.
    pub(crate) fn attributes_of(&self, id: ObjectId) -> Result<Attributes, PosixError> {
        self.files().attributes(id, self.operation())
    }
}

impl Drop for FileCall {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            ended_operations::end(&self.realm, operation);
        }
    }
}

impl Asker<'_> {
    fn who(&self, holder: HolderId) -> Who {
        let user = match self.caller {
            Caller::System(user) => user.uid,
            Caller::Nobody => u32::MAX,
        };
        Who {
            client: self.client.id,
            protocol: self.protocol,
            user,
            holder,
        }
    }

    /// Why a share is not there.
    fn missing(&self, guid: u64) -> NotServed {
        match self.table.may_come(guid) {
            true => NotServed::Suspended,
            false => NotServed::Stale,
        }
    }

    /// Enters a share.
    pub(crate) fn enter(
        &self,
        shares: &Arc<Shares>,
        share: &Arc<Share>,
    ) -> Result<Realm, NotServed> {
        let client = self.client;
        let way = self.way.filter(|_| !self.asks_for_security.get());
        let admitted = share.options.admit((client.address, client.port), way);
        let admitted = admitted.map_err(|WrongWay| NotServed::WrongSecurity)?;
        let access = admitted.ok_or(NotServed::NotAllowed)?;
        // A client mounts as root, and asks for locks as the kernel.
        let is_anonymous = way.is_some() && known_user(&access, self.caller).is_none();
        if is_anonymous && access.refuses_anonymous {
            return Err(NotServed::NotAllowed);
        }
        let pass = share.shared.enter();
        let pass = pass.ok_or_else(|| self.missing(share.shared.tree.guid()))?;
        let tree = share.shared.tree.clone();
        if tree.is_suspended() {
            return Err(NotServed::Suspended);
        }
        Ok(Realm {
            shares: shares.clone(),
            share: share.clone(),
            tree,
            snapshot: None,
            access,
            _pass: pass,
        })
    }

    /// Begins a request about a file of a file system that was entered.
    pub(crate) fn call_in(
        &self,
        realm: Realm,
        id: ObjectId,
        kind: OperationKind,
        range: (u64, u64),
    ) -> FileCall {
        let who = self.who(realm.holder());
        let operation = Some(realm.tree.begin(who, kind, id, range));
        FileCall {
            credentials: realm.credentials(self.caller),
            realm,
            id,
            operation,
        }
    }

    /// Begins a request about the file that a handle names.
    pub(crate) fn call(
        &self,
        handle: &[u8],
        kind: OperationKind,
        range: (u64, u64),
    ) -> Result<FileCall, NotServed> {
        let handle = Handle::decode(handle)?;
        let shares = self.table.now();
        let Some(share) = shares.with_guid(handle.share()) else {
            return Err(self.missing(handle.share()));
        };
        let mut realm = self.enter(&shares, share)?;
        if let Some(within) = handle.snapshot {
            let who = self.who(HolderId::NONE);
            let operation = realm
                .tree
                .begin(who, OperationKind::Lookup, ObjectId::ZERO, (0, 0));
            let entered = self.snapshot(&realm, within.dataset, &operation);
            realm.tree.finish(operation);
            realm = entered?;
        }
        let file = self.call_in(realm, handle.file.object, kind, range);
        let guid = file.realm.tree.guid();
        let found = file
            .files()
            .find_by_handle(guid, &handle.file, file.operation());
        found.map_err(|error| {
            file.operation().fail(ErrorCode::of_errno(error.errno()));
            match error {
                PosixError::Stale => NotServed::Stale,
                error => NotServed::Failed(error),
            }
        })?;
        Ok(file)
    }

    /// Enters a snapshot of a share.
    pub(crate) fn snapshot(
        &self,
        realm: &Realm,
        dataset: ObjectId,
        operation: &Operation,
    ) -> Result<Realm, NotServed> {
        let tree = realm.share.shared.snapshot(dataset, operation);
        let tree = tree.map_err(|error| match error {
            PosixError::NotFound => NotServed::Stale,
            error => NotServed::Failed(error),
        })?;
        Ok(Realm {
            tree,
            snapshot: Some(dataset),
            ..realm.clone()
        })
    }
}
