//! One mount: its file system, and the snapshots that were entered below `.zfs`.

use crate::clients;
use crate::handles::Handle;
use crate::inbox::Request;
use crate::kept::{RecentNodes, is_unsettled};
use crate::nodes::{Node, ROOT_NODE, inode_in_snapshot};
use crate::operations::{self, Reply};
use crate::protocol::{
    Answer, Arguments, MAJOR, MINOR, RequestHead, WRITE_BYTES_MAX, init_flags, opcode,
};
use crate::server::{Device, Handler, Promise};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tarn_engine::files::{
    Actor, Attributes, ControlEntry, Credentials, DirectoryEntry, FileSystem, ObjectId, Operation,
    OperationKind, Outcome, PosixError, Protocol, Tree, Unsynced, Who, actor_of_process,
};
use tarn_engine::mounts::Ended;

/// What we ask of the kernel. Not that its pages go when a modification time moves: what changes a
/// mounted file comes through it. Not asynchronous direct I/O (`ASYNC_DIO`): the kernel drops pages
/// of what is written past them when it is sent, and again when it is answered only where the
/// writer waits for that. Reads through the page cache in between would bring back what was there
/// before, and leave it there. It cannot be made up for here: a notice that drops pages waits for
/// reads, and those wait until enough of the writes are answered.
const WANTED: u64 = init_flags::ASYNC_READ
    | init_flags::EXPORT_SUPPORT
    | init_flags::BIG_WRITES
    | init_flags::DONT_MASK
    | init_flags::DO_READDIRPLUS
    | init_flags::READDIRPLUS_AUTO
    | init_flags::PARALLEL_DIROPS
    | init_flags::HANDLE_KILLPRIV_V2
    | init_flags::POSIX_ACL
    | init_flags::MAX_PAGES
    | init_flags::CACHE_SYMLINKS
    | init_flags::SETXATTR_EXT
    | init_flags::INIT_EXT
    | init_flags::ALLOW_IDMAP;

/// Requests the kernel may have under way in the background (reading ahead, writing back). Linux
/// has 12 unless told.
const BACKGROUND_MAX: u16 = 64;

/// Pages of the kernel in a request of the largest size.
const PAGES_MAX: u16 = 256;

/// Requests that move more bytes than this take long. A guess: some ten microseconds of copying.
const LONG_BYTES: usize = 64 << 10;

/// One mount.
pub struct Session {
    tree: Arc<dyn Tree>,
    entered: Mutex<Entered>,
    /// Files of the dataset that may be mapped, and by how many opens.
    mapped: Mutex<BTreeMap<ObjectId, u64>>,
    /// What the kernel has written back of them.
    written_back: WrittenBack,
    /// Nodes whose access control lists the kernel may keep.
    lists: RecentNodes,
    /// Nodes of which it may keep what space they take until blocks that wait are stored.
    unsettled: RecentNodes,
    /// What was agreed on with the kernel.
    agreed: AtomicU64,
    ended: Ended,
}

/// Writes of the kernel's own.
#[derive(Default)]
struct WrittenBack {
    count: AtomicU64,
    /// The last error; zero for none.
    refusal: AtomicI32,
}

/// Snapshots that were entered, by number and by their entry below `.zfs`.
#[derive(Default)]
struct Entered {
    by_number: Vec<Option<Arc<FileSystem>>>,
    by_entry: BTreeMap<ObjectId, u16>,
}

impl Entered {
    /// The snapshot of this number. Of one that is destroyed nothing is left, and its number stays empty.
    fn find(&mut self, which: u16) -> Option<&Arc<FileSystem>> {
        let place = self.by_number.get_mut(usize::from(which).checked_sub(1)?)?;
        if place.as_ref().is_some_and(|files| files.is_ending()) {
            *place = None;
        }
        place.as_ref()
    }
}

/// A request that is answered when its file is durable.
struct Promised {
    unique: u64,
    answer: Answer,
    files: Arc<FileSystem>,
    unsynced: Unsynced,
    operation: Operation,
}

/// A file of the dataset or of a snapshot.
pub(crate) struct Place {
    /// Its file system.
    pub(crate) files: Arc<FileSystem>,
    /// Which one that is: see [`Node`].
    pub(crate) which: u16,
    /// Its object.
    pub(crate) id: ObjectId,
}

impl Place {
    /// Another object of the same file system.
    pub(crate) fn beside(&self, id: ObjectId) -> Place {
        Place {
            files: self.files.clone(),
            which: self.which,
            id,
        }
    }

    /// Whether it is the root of a snapshot.
    pub(crate) fn is_root_of_snapshot(&self) -> bool {
        self.which > 0 && self.id == self.files.root()
    }

    /// The inode number that an object of the same file system shows. The root of a snapshot has that of its entry in `.zfs/snapshot`, as if it were mounted there.
    fn inode_of(&self, id: ObjectId) -> ObjectId {
        let dataset = self.files.object_set().id();
        match self.which {
            0 => id,
            _ if id == self.files.root() => ControlEntry::Snapshot(dataset).id(),
            _ => ObjectId::new(inode_in_snapshot(dataset, id)),
        }
    }

    /// The attributes of an object of the same file system as they are shown. A snapshot can get the number of one that was destroyed, and its
    /// node number after a restart: what tells their files apart is the generation, which says the group in which the snapshot was last changed, too.
    pub(crate) fn shown(&self, attributes: Attributes) -> Attributes {
        if self.which == 0 {
            return attributes;
        }
        let born = self.files.object_set().root_pointer().logical_birth.get();
        // Linux keeps 32 bits. The factor is odd, so that groups which differ in these do so afterwards.
        let of_snapshot = born.wrapping_mul(0x9e37_79b1) & u64::from(u32::MAX);
        Attributes {
            id: self.inode_of(attributes.id),
            generation: attributes.generation ^ of_snapshot,
            ..attributes
        }
    }

    /// An entry of this directory as it is shown.
    pub(crate) fn shown_entry(&self, entry: DirectoryEntry) -> DirectoryEntry {
        let is_above = self.is_root_of_snapshot() && entry.name == b"..";
        let id = match is_above {
            true => ControlEntry::Snapshots.id(),
            false => self.inode_of(entry.id),
        };
        DirectoryEntry { id, ..entry }
    }
}

impl Session {
    /// A session for a tree. `ended` is called when the kernel ends the mount.
    pub fn new(tree: Arc<dyn Tree>, ended: Ended) -> Arc<Session> {
        tree.files().keep_removed_directories();
        Arc::new(Session {
            tree,
            entered: Mutex::new(Entered::default()),
            mapped: Mutex::default(),
            written_back: WrittenBack::default(),
            lists: RecentNodes::with_lists(),
            unsettled: RecentNodes::unsettled(),
            agreed: AtomicU64::new(0),
            ended,
        })
    }

    /// Whether the kernel speaks the protocol with this capability.
    pub(crate) fn agreed_on(&self, capability: u64) -> bool {
        // Agreed on before the kernel sends anything else.
        self.agreed.load(Ordering::Relaxed) & capability != 0
    }

    /// A file was opened so.
    pub(crate) fn opened(&self, file: &Place, handle: Handle) {
        if file.which == 0 && handle.may_be_mapped() {
            *self.mapped().entry(file.id).or_default() += 1;
        }
    }

    /// A file is closed that was opened so.
    pub(crate) fn closed(&self, file: &Place, handle: Handle) {
        if file.which > 0 || !handle.may_be_mapped() {
            return;
        }
        if let Entry::Occupied(mut opens) = self.mapped().entry(file.id) {
            *opens.get_mut() -= 1;
            if *opens.get() == 0 {
                opens.remove();
            }
        }
    }

    /// Whether a program may have stored into a file what the kernel has not told us yet.
    pub(crate) fn may_be_mapped(&self, file: &Place) -> bool {
        file.which == 0 && self.mapped().contains_key(&file.id)
    }

    /// The kernel has written back what a program stored into mapped memory, or was refused.
    pub(crate) fn wrote_back(&self, refusal: Option<Errno>) {
        self.written_back.count.fetch_add(1, Ordering::SeqCst);
        if let Some(errno) = refusal {
            let number = errno.raw_os_error();
            self.written_back.refusal.store(number, Ordering::SeqCst);
        }
    }

    /// Of which files the kernel may keep access control lists.
    pub(crate) fn lists(&self) -> &RecentNodes {
        &self.lists
    }

    /// The kernel is told the attributes of a node.
    pub(crate) fn telling(&self, node: u64, attributes: &Attributes) {
        if is_unsettled(attributes) {
            self.unsettled.note(node);
        }
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeMap<ObjectId, u64>> {
        // A thread that panicked while it held it was counting one.
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a node number of the kernel's is.
    pub(crate) fn place(&self, number: u64) -> Result<Place, Errno> {
        let (which, id) = match Node::from_number(number) {
            Node::Root => (0, self.tree.files().root()),
            Node::Object { which, id } => (which, id),
        };
        let files = match which {
            0 => self.tree.files().clone(),
            which => {
                let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
                // The kernel looks the name up again.
                entered.find(which).ok_or(Errno::STALE)?.clone()
            }
        };
        Ok(Place { files, which, id })
    }

    /// The node of an object, which for the dataset's root is the kernel's own.
    pub(crate) fn node_of(&self, which: u16, files: &FileSystem, id: ObjectId) -> u64 {
        if which == 0 && id == files.root() {
            return Node::Root.number();
        }
        Node::Object { which, id }.number()
    }

    /// The file system that is mounted, which a snapshot is entered from.
    pub(crate) fn mounted(&self) -> Place {
        let files = self.tree.files().clone();
        Place {
            id: files.root(),
            files,
            which: 0,
        }
    }

    /// Enters a snapshot, at its root: the one with this entry below `.zfs`, which was found under this name.
    pub(crate) fn enter(
        &self,
        name: &[u8],
        entry: ObjectId,
        operation: &Operation,
    ) -> Result<Place, Errno> {
        let known = |entered: &mut Entered| {
            let which = *entered.by_entry.get(&entry)?;
            let files = entered.find(which)?.clone();
            Some(Place {
                id: files.root(),
                files,
                which,
            })
        };
        let lock = || self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known(&mut lock()) {
            return Ok(found);
        }
        // Opened without the lock, since it reads from devices; another thread may be faster.
        let files = self.tree.snapshot(name, operation);
        let files = files.map_err(operations::refused)?;
        // The name may be another's by now. The kernel looks it up again.
        if ControlEntry::Snapshot(files.object_set().id()).id() != entry {
            return Err(Errno::STALE);
        }
        let mut entered = lock();
        if let Some(found) = known(&mut entered) {
            return Ok(found);
        }
        let which = u16::try_from(entered.by_number.len() + 1);
        let which = which.map_err(|_| Errno::NOENT)?;
        entered.by_number.push(Some(files.clone()));
        entered.by_entry.insert(entry, which);
        Ok(Place {
            id: files.root(),
            files,
            which,
        })
    }

    /// The kernel forgets nodes. Their numbers are computed, not counted: this matters to directories alone that it knew and that have been removed.
    fn forgotten(&self, head: &RequestHead, mut arguments: Arguments<'_>) -> Result<(), Errno> {
        let files = self.tree.files();
        if !files.has_removed_directories() {
            return Ok(());
        }
        let mut nodes = Vec::new();
        match head.opcode {
            opcode::FORGET => nodes.push(head.node),
            _ => {
                let count = arguments.u32()?;
                arguments.skip(4)?;
                for _ in 0..count {
                    nodes.push(arguments.u64()?);
                    // How often it was looked up.
                    arguments.skip(8)?;
                }
            }
        }
        for node in nodes {
            if let Node::Object { which: 0, id } = Node::from_number(node) {
                let who = Who {
                    client: clients::of(head.uid),
                    protocol: Protocol::Fuse,
                    user: head.uid,
                };
                let operation = self.tree.begin(who, OperationKind::Close, id, (0, 0));
                // What cannot be freed now is freed by the next mount.
                let _ = files.forgotten(id, &operation);
                self.tree.finish(operation);
            }
        }
        Ok(())
    }

    /// Answers the kernel's first request: which version, which capabilities.
    fn initialise(&self, mut arguments: Arguments<'_>) -> Result<Answer, Errno> {
        let (major, minor) = (arguments.u32()?, arguments.u32()?);
        let mut answer = Answer::new();
        if major > MAJOR {
            // The kernel asks again with our version.
            answer.u32(MAJOR).u32(MINOR).zeros(56);
            return Ok(answer);
        }
        if major < MAJOR || minor < 28 {
            return Err(Errno::PROTO);
        }
        let (readahead, low) = (arguments.u32()?, u64::from(arguments.u32()?));
        let high = match low & init_flags::INIT_EXT {
            0 => 0,
            _ => u64::from(arguments.u32()?) << 32,
        };
        let agreed = (high | low) & WANTED;
        self.agreed.store(agreed, Ordering::Relaxed);
        let [low, high] = [agreed & u64::from(u32::MAX), agreed >> 32]
            .map(|half| u32::try_from(half).expect("it has 32 bits"));
        answer.u32(MAJOR).u32(MINOR).u32(readahead).u32(low);
        answer.u16(BACKGROUND_MAX).u16(BACKGROUND_MAX / 4 * 3);
        let write_bytes_max = u32::try_from(WRITE_BYTES_MAX).expect("a constant of one mebibyte");
        answer
            .u32(write_bytes_max)
            .u32(1)
            .u16(PAGES_MAX)
            .u16(0)
            .u32(high)
            .zeros(28);
        Ok(answer)
    }
}

impl Handler for Session {
    fn is_long(&self, request: &Request) -> bool {
        request.length() > LONG_BYTES || operations::reads_more_than(request, LONG_BYTES)
    }

    fn is_waited_for(&self, request: &Request) -> bool {
        const NOT: [u32; 4] = [
            opcode::FORGET,
            opcode::BATCH_FORGET,
            opcode::RELEASE,
            opcode::RELEASEDIR,
        ];
        request
            .arguments()
            .is_ok_and(|(head, _)| !NOT.contains(&head.opcode))
    }

    fn may_promise(&self, request: &Request) -> bool {
        operations::waits_for_log(request)
    }

    fn serve(&self, request: &mut Request, device: &Device) -> Option<Promise> {
        let contents = request.take_contents();
        let (head, arguments) = request.arguments().ok()?;
        match head.opcode {
            opcode::INIT => {
                match self.initialise(arguments) {
                    Ok(answer) => device.reply(head.unique, &[answer.as_slice()]),
                    Err(errno) => device.refuse(head.unique, errno),
                }
                return None;
            }
            opcode::FORGET | opcode::BATCH_FORGET => {
                let _ = self.forgotten(&head, arguments);
                return None;
            }
            // An operation is not stopped half-way, so an interruption changes nothing.
            opcode::INTERRUPT => return None,
            _ => {}
        }
        let place = match self.place(head.node) {
            Ok(place) => place,
            Err(errno) => {
                device.refuse(head.unique, errno);
                return None;
            }
        };
        let who = Who {
            client: clients::of(head.uid),
            protocol: Protocol::Fuse,
            user: head.uid,
        };
        let kind = operations::kind(head.opcode);
        let range = operations::range(&head, arguments.clone());
        let operation = self.tree.begin(who, kind, place.id, range);
        let credentials = credentials_of(&head, &place);
        let call = operations::Call {
            session: self,
            device,
            node: head.node,
            process: head.pid,
            credentials: &credentials,
            operation: &operation,
        };
        let answered = match contents {
            Some(contents) => call.write_contents(&place, arguments, contents),
            None => operations::run(&call, &head, arguments, &place),
        };
        match answered {
            Ok(Reply::Nothing) => {}
            Ok(Reply::Parts(answer)) => device.reply(head.unique, &[answer.as_slice()]),
            Ok(Reply::Read(data)) => {
                let parts: Vec<&[u8]> = data.parts().collect();
                device.reply(head.unique, &parts);
            }
            Ok(Reply::WhenDurable(answer, unsynced)) => {
                return Some(Box::new(Promised {
                    unique: head.unique,
                    answer,
                    files: place.files,
                    unsynced,
                    operation,
                }));
            }
            Err(errno) => {
                let errno = operations::told(head.opcode, errno);
                if !is_an_answer(errno) {
                    operation.mark(Outcome::Error);
                }
                device.refuse(head.unique, errno);
            }
        }
        self.tree.finish(operation);
        None
    }

    fn keep(&self, promises: Vec<Promise>, device: &Device) {
        let mine = |promise: Promise| promise.downcast::<Promised>();
        let promised: Result<Vec<_>, _> = promises.into_iter().map(mine).collect();
        let mut promised = promised.expect("who keeps a promise has made it");
        // All of one file system as a rule: what is below `.zfs` never changes.
        while let Some(files) = promised.first().map(|first| first.files.clone()) {
            let is_of_it = |other: &Promised| Arc::ptr_eq(&other.files, &files);
            let (together, others): (Vec<_>, Vec<_>) =
                promised.into_iter().partition(|other| is_of_it(other));
            promised = others;
            let unsynced: Vec<Unsynced> = together.iter().map(|one| one.unsynced).collect();
            let stored = files.sync_together(&unsynced, &together[0].operation);
            for one in together {
                match &stored {
                    Ok(()) => device.reply(one.unique, &[one.answer.as_slice()]),
                    Err(error) => {
                        one.operation.mark(Outcome::Error);
                        device.refuse(one.unique, errno_of(error));
                    }
                }
                self.tree.finish(one.operation);
            }
        }
    }

    fn ended(&self) {
        (self.ended)();
    }

    fn mapped_nodes(&self) -> Vec<u64> {
        let files = self.tree.files();
        let mapped = self.mapped();
        mapped
            .keys()
            .map(|id| self.node_of(0, files, *id))
            .collect()
    }

    fn pages_written(&self) -> u64 {
        self.written_back.count.load(Ordering::SeqCst)
    }

    fn take_refusal(&self) -> Option<Errno> {
        let number = self.written_back.refusal.swap(0, Ordering::SeqCst);
        (number != 0).then(|| Errno::from_raw_os_error(number))
    }

    fn properties_changed(&self, device: &Device) {
        for node in self.lists.take() {
            device.forget_attributes(node);
        }
        // Whether it has `.zfs` shows in its links.
        device.forget_attributes(ROOT_NODE);
    }

    fn group_stored(&self, device: &Device) {
        for node in self.unsettled.take() {
            device.forget_attributes(node);
        }
    }
}

/// The caller. The kernel has checked permissions, with groups that we are not told; so what reaches us is allowed. Who changes snapshots is not known to
/// the kernel: there user and groups are looked up, while the caller waits.
fn credentials_of(head: &RequestHead, place: &Place) -> Credentials {
    let changes_names = matches!(head.opcode, opcode::MKDIR | opcode::RMDIR)
        || matches!(head.opcode, opcode::RENAME | opcode::RENAME2);
    let changes_snapshots = changes_names && ControlEntry::of(place.id).is_some();
    let told = Actor {
        uid: head.uid,
        gid: head.gid,
        groups: Vec::new(),
    };
    let Actor { uid, gid, groups } = match changes_snapshots {
        true => actor_of_process(head.pid).unwrap_or(told),
        false => told,
    };
    Credentials {
        uid,
        gid,
        groups,
        privileged: true,
    }
}

/// Errors that say something about a name or a file, as asked for every day: no failures.
fn is_an_answer(errno: Errno) -> bool {
    [
        Errno::NOENT,
        Errno::STALE,
        Errno::NODATA,
        Errno::NOSYS,
        Errno::NXIO,
        Errno::RANGE,
    ]
    .contains(&errno)
}

/// An operation's error for the kernel.
pub(crate) fn errno_of(error: &PosixError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// The kind that statistics count requests under which have none of their own.
pub(crate) const OTHER: OperationKind = OperationKind::Other;

#[cfg(test)]
mod tests;
