//! The words of operation records: kinds of operations, protocols, stages and outcomes.
//!
//! Their numbers are stored in records and archives: add at the end, never renumber.

/// Declares an enum of `u8` with its names, its count and the way back from a number.
macro_rules! words {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $number,)* }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name shown to people and used in statistics.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The number stored in records.
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// Its place in an array with one entry for each.
            pub fn index(self) -> usize {
                usize::from(self.number())
            }

            /// What a stored number means, if this version knows it.
            pub const fn from_number(number: u8) -> Option<$name> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

words! {
    /// What was asked for.
    pub enum OperationKind {
        /// Read bytes of a file or a volume.
        Read = 0 "read",
        /// Write bytes of a file or a volume.
        Write = 1 "write",
        /// Make it durable: fsync, COMMIT, SYNCHRONIZE CACHE.
        Sync = 2 "sync",
        /// Find a name in a directory.
        Lookup = 3 "lookup",
        /// Read attributes.
        GetAttributes = 4 "getattr",
        /// Change attributes, including truncation.
        SetAttributes = 5 "setattr",
        /// Check permission.
        Access = 6 "access",
        /// Open a file or directory.
        Open = 7 "open",
        /// Close a file or directory.
        Close = 8 "close",
        /// Create a file.
        Create = 9 "create",
        /// Create a directory.
        MakeDirectory = 10 "mkdir",
        /// Create a device node, fifo or socket.
        MakeNode = 11 "mknod",
        /// Create a symbolic link.
        MakeSymlink = 12 "symlink",
        /// Read a symbolic link.
        ReadLink = 13 "readlink",
        /// Create a hard link.
        Link = 14 "link",
        /// Remove a file's name.
        Remove = 15 "remove",
        /// Remove a directory.
        RemoveDirectory = 16 "rmdir",
        /// Rename.
        Rename = 17 "rename",
        /// List a directory.
        ReadDirectory = 18 "readdir",
        /// Read or list extended attributes.
        GetExtendedAttribute = 19 "getxattr",
        /// Change or remove an extended attribute.
        SetExtendedAttribute = 20 "setxattr",
        /// Reserve or punch a range.
        Allocate = 21 "fallocate",
        /// Find data or a hole.
        Seek = 22 "seek",
        /// Ask for the free space of the file system.
        FileSystemStatus = 23 "statfs",
        /// Take, test or release a lock.
        Lock = 24 "lock",
        /// Copy or clone a range on the server.
        Copy = 25 "copy",
        /// Give up a range of a volume: UNMAP, TRIM.
        Discard = 26 "discard",
        /// A command of an administrator: `zpool`, `zfs`, `zdb`, the control interface.
        Administration = 27 "administration",
        /// Ours: one transaction group is stored.
        TxgSync = 28 "txg_sync",
        /// Ours: scrub or resilver.
        Scan = 29 "scan",
        /// Ours: read ahead of a reader.
        Prefetch = 30 "prefetch",
        /// Ours: freeing of destroyed datasets.
        Destroy = 31 "destroy",
        /// Ours: send or receive.
        Stream = 32 "stream",
        /// Ours: opening or closing a pool or a dataset.
        Assembly = 33 "assembly",
        /// Anything else.
        Other = 34 "other",
        /// Ours: where an intent log ends. What does not verify there is the end, and no device's
        /// fault.
        LogSearch = 35 "log_search",
    }
}

words! {
    /// By which way the request came.
    pub enum Protocol {
        /// Tarn itself.
        Internal = 0 "internal",
        /// A FUSE mount.
        Fuse = 1 "fuse",
        /// NFS version 3.
        Nfs3 = 2 "nfs3",
        /// NFS version 4.
        Nfs4 = 3 "nfs4",
        /// iSCSI.
        Iscsi = 4 "iscsi",
        /// The control interface.
        Control = 5 "control",
        /// A program that uses the engine as a library.
        Library = 6 "library",
        /// NBD.
        Nbd = 7 "nbd",
        /// A block device of this machine.
        BlockDevice = 8 "blockdev",
        /// A request to a device of a pool, for an operation of any way.
        Device = 9 "device",
    }
}

words! {
    /// Where an operation's time went. Each layer adds to its own stage.
    pub enum Stage {
        /// Decoding the request and waiting for a worker.
        Protocol = 0 "protocol",
        /// Waiting to be let into a transaction group (the throttle).
        TxWait = 1 "tx_wait",
        /// In the cache, including the wait for another's read of the same block.
        Cache = 2 "cache",
        /// Waiting for the intent log, or for a txg where there is none.
        Log = 3 "log",
        /// Waiting in a device queue.
        DeviceQueue = 4 "device_queue",
        /// In the device.
        Device = 5 "device",
        /// Checksums, compression, encryption, parity.
        Transform = 6 "transform",
        /// Encoding and sending the reply.
        Reply = 7 "reply",
        /// Waiting for a lock that another operation had, in no other stage.
        Lock = 8 "lock",
    }
}

words! {
    /// What happened on the way. An operation can have several; each is one bit of a record.
    pub enum Outcome {
        /// A block was found in the cache.
        CacheHit = 0 "cache_hit",
        /// A block was already being read for another operation.
        CacheInFlight = 1 "cache_in_flight",
        /// A block came from the second level of the cache.
        SecondLevel = 2 "second_level",
        /// A block came from a device of the pool that is in no special vdev.
        Disk = 3 "disk",
        /// It waited until the intent log was written, or a txg stored.
        Log = 4 "log",
        /// The write throttle delayed it.
        Throttled = 5 "throttled",
        /// It failed.
        Error = 6 "error",
        /// A bad copy was found and another one used.
        Repaired = 7 "repaired",
        /// It was asked to be durable before it was answered.
        Synchronous = 8 "synchronous",
        /// It read several blocks, or the one behind a block that was read before.
        Sequential = 9 "sequential",
        /// It was answered from data not stored yet.
        Dirty = 10 "dirty",
        /// A block came from a special vdev.
        Special = 11 "special",
        /// The intent log was written to a log device.
        LogDevice = 12 "log_device",
        /// Waiting for locks took a quarter of it, or more.
        Lock = 13 "lock",
        /// It waited until a txg was stored.
        Txg = 14 "txg",
        /// It waited for room in the queue of a device that a scrub or resilver was using.
        Scan = 15 "scan",
    }
}

impl Outcome {
    /// Its bit in a record.
    pub const fn bit(self) -> u16 {
        1 << (self as u16)
    }
}
