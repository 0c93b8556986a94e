//! The requests of one mount, from the kernel to the operations and back.

use super::{Session, errno_of};
use crate::clients;
use crate::device::Device;
use crate::inbox::Request;
use crate::nodes::{Node, ROOT_NODE, Which};
use crate::operations::{self, Reply};
use crate::protocol::{Answer, Arguments, RequestHead, opcode};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tarn_engine::files::{
    ErrorCode, FileSystem, Operation, OperationKind, Protocol, Tree, Unsynced, Who,
};
use tarn_serving::RequestTraits;

/// Requests that move more bytes than this take long. A guess: some ten microseconds of copying.
const LONG_BYTES: usize = 64 << 10;

/// A request that is answered when its file is durable.
pub struct DelayedReply {
    unique: u64,
    answer: Answer,
    files: Arc<FileSystem>,
    snapshot: Option<Arc<dyn Tree>>,
    unsynced: Unsynced,
    operation: Operation,
}

impl Session {
    /// The client record of an operation for a user of this mount.
    pub(super) fn who(&self, user: u32) -> Who {
        Who {
            client: clients::of(user),
            protocol: Protocol::Fuse,
            user,
            holder: self.holding.id(),
        }
    }

    /// The kernel forgets nodes. Node numbers need no counting, so this matters only to directories
    /// that were removed while the kernel knew them.
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
            if let Some(Node::Object {
                which: Which::Dataset,
                id,
            }) = Node::from_number(node)
            {
                let who = self.who(head.uid);
                let operation = self.tree.begin(who, OperationKind::Close, id, (0, 0));
                // If it cannot be freed now, the next mount frees it.
                let _ = files.forgotten(id, &operation);
                self.tree.finish(operation);
            }
        }
        Ok(())
    }
}

impl Session {
    /// The traits of a request for the serving threads.
    pub(crate) fn traits_of(&self, request: &Request) -> RequestTraits {
        const NOT_WAITED_FOR: [u32; 4] = [
            opcode::FORGET,
            opcode::BATCH_FORGET,
            opcode::RELEASE,
            opcode::RELEASEDIR,
        ];
        let is_long = request.length() > LONG_BYTES;
        // A cut request is not answered.
        let Ok((head, arguments)) = request.arguments() else {
            return RequestTraits {
                is_long,
                is_waited_for: false,
                may_delay_reply: false,
            };
        };
        RequestTraits {
            is_long: is_long || operations::reads_more_than(&head, arguments.clone(), LONG_BYTES),
            is_waited_for: !NOT_WAITED_FOR.contains(&head.opcode),
            may_delay_reply: operations::waits_for_log(&head, arguments),
        }
    }

    /// Carries out a request, and replies to it, or returns the reply to delay.
    pub(crate) fn serve(&self, request: &mut Request, device: &Device) -> Option<DelayedReply> {
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
            // Only waits for locks can be interrupted.
            opcode::INTERRUPT => {
                let mut arguments = arguments;
                if let Ok(unique) = arguments.u64() {
                    self.interrupted(unique);
                }
                return None;
            }
            _ => {}
        }
        let place = match self.place(head.node) {
            Ok(place) => place,
            Err(errno) => {
                device.refuse(head.unique, errno);
                return None;
            }
        };
        let who = self.who(clients::user(head.uid, head.pid));
        let kind = operations::kind(head.opcode);
        let range = operations::range(&head, arguments.clone());
        let operation = (self.counting(&place.snapshot)).begin(who, kind, place.id, range);
        let credentials = self.credentials_of(&head, &place);
        let call = operations::Call {
            session: self,
            device,
            unique: head.unique,
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
                return Some(DelayedReply {
                    unique: head.unique,
                    answer,
                    files: place.files,
                    snapshot: place.snapshot,
                    unsynced,
                    operation,
                });
            }
            Err(errno) => {
                let errno = operations::told(head.opcode, errno);
                operation.fail(ErrorCode::of_errno(errno.raw_os_error()));
                device.refuse(head.unique, errno);
            }
        }
        self.counting(&place.snapshot).finish(operation);
        None
    }

    /// What counts requests to a file of a snapshot, or of the mounted file system.
    fn counting<'a>(&'a self, snapshot: &'a Option<Arc<dyn Tree>>) -> &'a dyn Tree {
        snapshot.as_deref().unwrap_or(&*self.tree)
    }

    /// Makes the files of these requests durable, those of one file system by one log write, and
    /// replies.
    pub(crate) fn reply_when_durable(&self, mut delayed: Vec<DelayedReply>, device: &Device) {
        // All are of one file system as a rule: nothing below `.zfs` changes.
        while let Some(files) = delayed.first().map(|first| first.files.clone()) {
            let is_of_it = |other: &DelayedReply| Arc::ptr_eq(&other.files, &files);
            let (together, others): (Vec<_>, Vec<_>) =
                delayed.into_iter().partition(|other| is_of_it(other));
            delayed = others;
            let unsynced: Vec<Unsynced> = together.iter().map(|one| one.unsynced).collect();
            let stored = files.sync_together(&unsynced, &together[0].operation);
            for one in together {
                match &stored {
                    Ok(()) => device.reply(one.unique, &[one.answer.as_slice()]),
                    Err(error) => {
                        let errno = errno_of(error);
                        one.operation
                            .fail(ErrorCode::of_errno(errno.raw_os_error()));
                        device.refuse(one.unique, errno);
                    }
                }
                self.counting(&one.snapshot).finish(one.operation);
            }
        }
    }

    /// The kernel has ended the mount.
    pub(crate) fn ended(&self) {
        (self.ended)();
    }

    /// Nodes of the files with possible shared mappings.
    pub(crate) fn mapped_nodes(&self) -> Vec<u64> {
        let files = self.tree.files();
        let mapped = self.mapped();
        mapped
            .keys()
            .map(|id| self.node_of(Which::Dataset, files, *id))
            .collect()
    }

    /// Number of pages that the kernel has written back so far.
    pub(crate) fn pages_written(&self) -> u64 {
        self.written_back.count.load(Ordering::SeqCst)
    }

    /// Takes the error of the last refused write-back since the last call; none where none was
    /// refused.
    pub(crate) fn take_refusal(&self) -> Option<Errno> {
        let number = self.written_back.refusal.swap(0, Ordering::SeqCst);
        (number != 0).then(|| Errno::from_raw_os_error(number))
    }

    /// Has the kernel drop caches that depend on properties of the file system: access control
    /// lists, and the root's link count, which depends on `.zfs`.
    pub(crate) fn properties_changed(&self, device: &Device) {
        for node in self.lists.take() {
            let _ = device.forget_attributes(node);
        }
        let _ = device.forget_attributes(ROOT_NODE);
    }

    /// Has the kernel drop attributes that it got before the file's blocks were stored.
    pub(crate) fn group_stored(&self, device: &Device) {
        for node in self.unsettled.take() {
            let _ = device.forget_attributes(node);
        }
    }
}
