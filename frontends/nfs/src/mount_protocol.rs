//! The MOUNT protocol, version 3 (RFC 1813, appendix I): handles of shared folders, and lists of
//! what is shared and which clients have mounted it.
//!
//! The list of mounts is what clients have said: it is for people, and is lost when the daemon
//! ends. It has at most [`MOUNTS_MAX`] entries.

use crate::crossing::{Found, NotFound};
use crate::file_call::{Asker, NotServed};
use crate::xdr::{Malformed, Reader, Writer};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tarn_engine::files::{Credentials, FileKind, OperationKind, PosixError};

/// The program's number.
pub const PROGRAM: u32 = 100_005;
/// The versions: `showmount` asks for the first too, whose lists are the same.
pub const VERSION_LOW: u32 = 1;
/// The version that has handles of version 3 of NFS.
pub const VERSION: u32 = 3;

/// Most bytes of a path.
const PATH_BYTES_MAX: usize = 1024;
/// Most mounts that are listed. A guess; it bounds memory.
const MOUNTS_MAX: usize = 4096;

const MNT: u32 = 1;
const DUMP: u32 = 2;
const UMNT: u32 = 3;
const UMNTALL: u32 = 4;
const EXPORT: u32 = 5;

/// What clients have mounted.
#[derive(Default)]
pub(crate) struct MountList {
    mounts: Mutex<BTreeSet<(IpAddr, Vec<u8>)>>,
}

impl MountList {
    fn mounts(&self) -> MutexGuard<'_, BTreeSet<(IpAddr, Vec<u8>)>> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries out a procedure, and appends its result. None where there is no such procedure.
///
/// # Errors
/// The arguments cannot be decoded.
pub(crate) fn run(
    asker: &Asker<'_>,
    list: &MountList,
    (version, procedure): (u32, u32),
    arguments: &[u8],
    reply: &mut Writer,
) -> Option<Result<(), Malformed>> {
    let mut arguments = Reader::new(arguments);
    let client = asker.client.address;
    Some(match procedure {
        0 => Ok(()),
        // The first versions have handles of other lengths.
        MNT if version == VERSION => asker.mount(list, &mut arguments, reply),
        DUMP => {
            put_mounts(list, reply);
            Ok(())
        }
        UMNT => arguments.opaque(PATH_BYTES_MAX).map(|path| {
            list.mounts().remove(&(client, path.to_vec()));
        }),
        UMNTALL => {
            list.mounts().retain(|(other, _)| *other != client);
            Ok(())
        }
        EXPORT => {
            asker.put_shares(reply);
            Ok(())
        }
        _ => return None,
    })
}

fn put_mounts(list: &MountList, reply: &mut Writer) {
    for (client, path) in list.mounts().iter() {
        reply.bool(true).opaque(client.to_string().as_bytes());
        reply.opaque(path);
    }
    reply.bool(false);
}

impl Asker<'_> {
    fn mount(
        &self,
        list: &MountList,
        arguments: &mut Reader<'_>,
        reply: &mut Writer,
    ) -> Result<(), Malformed> {
        let path = arguments.opaque(PATH_BYTES_MAX)?;
        match self.find_folder(Path::new(OsStr::from_bytes(path))) {
            Ok(found) => {
                reply.u32(0);
                reply.opaque(&found.realm.handle(&found.attributes).encode());
                let flavors = found.realm.share.options.flavors();
                let flavors = flavors.all();
                reply.u32(u32::try_from(flavors.len()).expect("there are five at most"));
                for flavor in flavors {
                    reply.u32(flavor.number());
                }
                let mut mounts = list.mounts();
                if mounts.len() < MOUNTS_MAX {
                    mounts.insert((self.client.address, path.to_vec()));
                }
            }
            Err(why) => drop(reply.u32(status(&why))),
        }
        Ok(())
    }

    /// The folder at a path of this machine, in the share that has it.
    fn find_folder(&self, path: &Path) -> Result<Found, NotFound> {
        let shares = self.table.now();
        let Some((share, rest)) = shares.on_the_way(path) else {
            // As other servers: a client does not learn which folders there are.
            return Err(NotFound::NotServed(NotServed::NotAllowed));
        };
        if share.options.is_mounted_whole && rest.components().next().is_some() {
            return Err(NotFound::NotServed(NotServed::NotAllowed));
        }
        let mut found = self.root_of(self.enter(&shares, share)?)?;
        for part in rest.components() {
            let Component::Normal(name) = part else {
                return Err(NotFound::Posix(PosixError::PermissionDenied));
            };
            let id = found.attributes.id;
            let mut folder = self.call_in(found.realm, id, OperationKind::Lookup, (0, 0));
            // The client mounts for its users: these are checked when they use it.
            folder.credentials = Credentials::root();
            found = self.lookup(&folder, name.as_bytes())?;
        }
        match found.attributes.kind {
            FileKind::Directory => Ok(found),
            _ => Err(NotFound::Posix(PosixError::NotDirectory)),
        }
    }

    fn put_shares(&self, reply: &mut Writer) {
        let shares = self.table.now();
        let mut shares: Vec<_> = shares.all().collect();
        shares.sort_by(|one, other| one.path.cmp(&other.path));
        for share in shares {
            reply.bool(true);
            reply.opaque(share.path.as_os_str().as_bytes());
            for client in share.options.listed_clients() {
                reply.bool(true).opaque(client.as_bytes());
            }
            reply.bool(false);
        }
        reply.bool(false);
    }
}

/// `mountstat3`.
fn status(why: &NotFound) -> u32 {
    const NOENT: u32 = 2;
    const IO: u32 = 5;
    const ACCES: u32 = 13;
    const NOTDIR: u32 = 20;
    const NAMETOOLONG: u32 = 63;
    match why {
        NotFound::Posix(PosixError::NotFound) => NOENT,
        NotFound::Posix(PosixError::PermissionDenied) => ACCES,
        NotFound::Posix(PosixError::NotDirectory) => NOTDIR,
        NotFound::Posix(PosixError::NameTooLong) => NAMETOOLONG,
        NotFound::NotServed(NotServed::NotAllowed | NotServed::WrongSecurity) => ACCES,
        NotFound::NotServed(NotServed::Stale | NotServed::BadHandle) => NOENT,
        NotFound::Posix(_) | NotFound::NotServed(_) => IO,
    }
}
