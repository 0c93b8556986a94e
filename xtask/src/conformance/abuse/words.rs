//! Words that stand in a command line: sound ones, which name what is there, and hostile ones.
//!
//! # Rules
//! Commands run as root on the machine that runs the suite. So no hostile word is an
//! absolute path outside of the scratch folder that could be mounted over, written to or searched:
//! paths and devices are all below `@`, which stands for the folder.

use tarn_workload::twister::Twister;

/// What a place in a command line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Pool,
    Dataset,
    Filesystem,
    Volume,
    Snapshot,
    Bookmark,
    Clone,
    NewFilesystem,
    NewSnapshot,
    NewBookmark,
    NewPool,
    Tag,
    Property,
    Assignment,
    UserAssignment,
    PoolProperty,
    PoolAssignment,
    Size,
    Number,
    Columns,
    Types,
    Sources,
    Permission,
    User,
    Set,
    Token,
    File,
    Folder,
    Device,
    Vdev,
    Path,
    Word,
}

impl Kind {
    /// By the name that templates have.
    pub fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "pool" => Kind::Pool,
            "dataset" => Kind::Dataset,
            "fs" => Kind::Filesystem,
            "vol" => Kind::Volume,
            "snap" => Kind::Snapshot,
            "mark" => Kind::Bookmark,
            "clone" => Kind::Clone,
            "newfs" => Kind::NewFilesystem,
            "newsnap" => Kind::NewSnapshot,
            "newmark" => Kind::NewBookmark,
            "newpool" => Kind::NewPool,
            "tag" => Kind::Tag,
            "prop" => Kind::Property,
            "set" => Kind::Assignment,
            "userset" => Kind::UserAssignment,
            "poolprop" => Kind::PoolProperty,
            "poolset" => Kind::PoolAssignment,
            "size" => Kind::Size,
            "number" => Kind::Number,
            "columns" => Kind::Columns,
            "types" => Kind::Types,
            "sources" => Kind::Sources,
            "perm" => Kind::Permission,
            "user" => Kind::User,
            "setname" => Kind::Set,
            "token" => Kind::Token,
            "file" => Kind::File,
            "folder" => Kind::Folder,
            "device" => Kind::Device,
            "vdev" => Kind::Vdev,
            "path" => Kind::Path,
            "word" => Kind::Word,
            _ => return None,
        })
    }

    /// Words that name what is there, or that may be.
    fn sound(self) -> &'static [&'static str] {
        match self {
            Kind::Pool => &["abused", "plain"],
            Kind::Dataset => &[
                "abused",
                "abused/fs",
                "abused/vol",
                "abused/fs@one",
                "plain/fs",
            ],
            Kind::Filesystem => &[
                "abused/fs",
                "abused/fs/child",
                "abused/received",
                "plain/fs",
            ],
            Kind::Volume => &["abused/vol"],
            Kind::Snapshot => &[
                "abused/fs@one",
                "abused/fs@two",
                "abused@one",
                "plain/fs@one",
            ],
            Kind::Bookmark => &["abused/fs#mark"],
            Kind::Clone => &["abused/clone"],
            Kind::NewFilesystem => &["abused/new", "abused/fs/new", "plain/new"],
            Kind::NewSnapshot => &["abused/fs@new", "plain/fs@new"],
            Kind::NewBookmark => &["abused/fs#new", "plain/fs#new"],
            Kind::NewPool => &["another"],
            Kind::Tag => &["keep", "fresh"],
            Kind::Property => &["compression", "org:note", "quota", "used", "all", "mounted"],
            Kind::Assignment => &[
                "compression=lz4",
                "compression=zstd-9",
                "recordsize=1M",
                "quota=200M",
                "org:note=a",
                "atime=off",
                "filesystem_limit=50",
                "userquota@0=10M",
                "canmount=noauto",
                "dnodesize=auto",
                "copies=2",
            ],
            Kind::UserAssignment => &["org:note=b", "a:b="],
            Kind::PoolProperty => &["all", "size", "org:note", "feature@bookmarks", "comment"],
            Kind::PoolAssignment => &[
                "comment=text",
                "org:note=a",
                "autotrim=on",
                "failmode=wait",
                "listsnapshots=on",
                "compatibility=off",
                "bootfs=abused/fs",
                "cachefile=none",
            ],
            Kind::Size => &["1M", "16M", "512", "10m"],
            Kind::Number => &["0", "1", "2"],
            Kind::Columns => &["name", "name,used", "all"],
            Kind::Types => &["all", "filesystem", "snapshot,bookmark"],
            Kind::Sources => &["local", "received,default"],
            Kind::Permission => &["send", "snapshot,hold", "@set", "userprop"],
            Kind::User => &["65533", "0,1"],
            Kind::Set => &["@set"],
            Kind::Token => &["1-ee8-c8-789c636064000310a500c4ec50360710e72765a5269740"],
            Kind::File => &["@/root/abused/fs/file", "@/root/abused/fs"],
            Kind::Folder => &["@/empty", "@/images"],
            Kind::Device => &["@/images/d1", "@/images/spare"],
            Kind::Vdev => &["@/images/spare", "mirror @/images/spare @/images/spare2"],
            Kind::Path => &["@/elsewhere"],
            Kind::Word => &["all"],
        }
    }

    /// Words that make sense nowhere, or only at the edge of this kind.
    fn hostile(self) -> &'static [&'static str] {
        const NAMES: &[&str] = &[
            "/abused",
            "abused/",
            "abused//fs",
            "abused/fs@",
            "abused/fs#",
            "abused@",
            "@",
            "#",
            "abused/fs@a@b",
            "abused/fs#a#b",
            "abused/fs@a#b",
            "abused/$ORIGIN",
            "abused/$MOS",
            "abused/$FREE",
            "abused/$ORIGIN@$ORIGIN",
            "abused/%recv",
            "abused/fs/%recv",
            "abused/fs@%recv",
            "abused/..",
            "abused/.",
            "abused/fs/../fs",
            ".",
            "..",
            "abused/fs*",
            "abused/fs%one",
            "abused/fs@one%two",
            "abused/fs@%",
            "abused/fs@one,",
            "abused/fs@,one",
            "abused/fs@one,two,nothere",
            "ABUSED/fs",
            "abused/FS",
            "nopool/fs",
            "abused/nothere",
            "abused/fs@nothere",
            "abused/fs/child/x/y/z",
        ];
        match self {
            Kind::Tag => &[".libzfs", "%temp", "-", "keep\tkeep"],
            Kind::Property => &[
                "COMPRESSION",
                "Quota",
                "nosuch",
                "userquota@",
                "userquota@nobody@",
                "written@",
                "written#",
                "userused@99999999999",
                "a:b,c",
                ":",
                "$hasrecvd",
                "org:note$recvd",
                "version",
                "feature@x",
                "quota,quota,quota",
                ",",
                "all,all",
                "org:Note",
                "x:%s%n",
            ],
            Kind::Assignment | Kind::UserAssignment | Kind::PoolAssignment => &[
                "=",
                "a",
                "a=",
                "=a",
                "quota=",
                "quota=-1",
                "quota=0",
                "quota=1e3",
                "quota=0x10",
                "quota=18446744073709551615",
                "quota=18446744073709551616",
                "quota=16E",
                "reservation=16E",
                "refreservation=18446744073709551615",
                "refquota=1.5.5",
                "quota=nan",
                "quota=99999999999999999999999999",
                "recordsize=0",
                "recordsize=1",
                "recordsize=3",
                "recordsize=32M",
                "recordsize=513",
                "volsize=0",
                "volsize=1",
                "volsize=8E",
                "volblocksize=3",
                "copies=0",
                "copies=4",
                "compression=gzip-10",
                "compression=zstd-99",
                "checksum=off",
                "checksum=nosuch",
                "dedup=on",
                "encryption=on",
                "keyformat=passphrase",
                "keylocation=prompt",
                "utf8only=on",
                "normalization=formD",
                "casesensitivity=mixed",
                "version=0",
                "version=6",
                "version=1",
                "mountpoint=",
                "mountpoint=a/b",
                "mountpoint=@/elsewhere",
                "mountpoint=@/text",
                "canmount=maybe",
                "snapdir=visible",
                "special_small_blocks=3",
                "mlslabel=a",
                "acltype=posix",
                "filesystem_limit=0",
                "snapshot_limit=0",
                "snapshot_limit=-1",
                "userquota@=1",
                "userquota@0=",
                "userquota@0=none",
                "groupquota@99999999999=1",
                "projectquota@-1=1",
                "projectquota@4294967295=1",
                "projectobjquota@0=16E",
                "userquota@S-1-5-21-1-2-3-4=1M",
                "org:=",
                ":=",
                ":=:",
                "org:note=a=b=c",
                "COMPRESSION=on",
                "used=1",
                "guid=5",
                "origin=abused/fs@one",
                "name=x",
                "org:note$recvd=1",
                "$hasrecvd=1",
                "comment=\x1b[31m",
                "ashift=99",
                "ashift=8",
                "bootfs=abused",
                "bootfs=nosuch",
                "cachefile=a",
                "cachefile=@/nosuch/x",
                "cachefile=@/",
                "altroot=a",
                "version=28",
                "version=99",
                "compatibility=nosuch",
                "compatibility=../../../etc/passwd",
                "compatibility=,",
                "feature@x=enabled",
                "feature@bookmarks=disabled",
                "feature@=",
                "failmode=no",
                "multihost=on",
                "readonly=on",
                "delegation=2",
                "dedupditto=5",
                "tname=x",
                "load_guid=1",
            ],
            Kind::PoolProperty => &[
                "SIZE",
                "feature@",
                "feature@nosuch",
                "all,all",
                "state",
                ",",
                "name,,",
            ],
            Kind::Size | Kind::Number => &[
                "-1",
                "+1",
                "0x10",
                "1e9",
                "1.5",
                "1.5.5",
                ".",
                "16E",
                "15.9E",
                "1Z",
                "1KK",
                "K",
                "18446744073709551615",
                "18446744073709551616",
                "99999999999999999999999999999",
                "-9223372036854775808",
                "0",
                "00",
                " 1",
                "1 ",
                "1,000",
                "nan",
                "inf",
                "\u{0661}",
            ],
            Kind::Columns | Kind::Types | Kind::Sources => &[
                ",",
                "name,",
                "nosuch",
                "name,name",
                "NAME",
                "all,nosuch",
                "guid,,guid",
            ],
            Kind::Permission => &[
                "nosuch",
                "@",
                "@a/b",
                "send,",
                ",",
                "SEND",
                "userquota@x",
                "@set,nosuch",
            ],
            Kind::User => &[
                "nosuchuser",
                "-1",
                "4294967295",
                "4294967296",
                "0x0",
                ",",
                "everyone,everyone",
            ],
            Kind::Set => &["set", "@", "@@", "@a b", "@a/b", "@a@b", "@%"],
            Kind::Token => &[
                "1",
                "1-",
                "1-0-0-",
                "1-1-1-zz",
                "2-0-0-00",
                "1-ffffffffffffffff-ffffffffffffffff-00",
            ],
            Kind::File | Kind::Folder => &[
                "@/nosuch",
                "@/text",
                "@/link",
                "@/loop",
                "@/images/../images",
                "@/empty/",
            ],
            Kind::Path => &[
                "@/nosuch/x",
                "@/fifo",
                "@/text",
                "@/loop",
                "@/elsewhere/../elsewhere",
            ],
            Kind::Device | Kind::Vdev => &[
                "@/nosuch",
                "@/fifo",
                "@/text",
                "@/link",
                "@/loop",
                "@/empty",
                "@/images/tiny",
                "@/images/nothing",
                "@/images/d1",
                "@/images/d1 @/images/d1",
                "mirror",
                "mirror mirror",
                "mirror @/images/spare",
                "raidz @/images/spare",
                "raidz9 @/images/spare",
                "raidz0",
                "draid @/images/spare",
                "spare",
                "log",
                "cache",
                "special @/images/spare",
                "log mirror",
                "images/spare",
                "../spare",
                "@/images/spare\n",
                "mirror @/images/spare @/images/spare",
                "123456789",
                "18446744073709551616",
                "mirror-0",
            ],
            Kind::Word => &["help", "--help", "all"],
            _ => NAMES,
        }
    }
}

/// Words that are hostile anywhere.
const ANYWHERE: &[&str] = &[
    "",
    " ",
    "-",
    "--",
    "-h",
    "-?",
    "--x",
    "a b",
    " abused",
    "abused ",
    "\t",
    "\n",
    "abused\n",
    "\x1b[2J",
    "\x01",
    "\x7f",
    "\u{e9}",
    "\u{202e}abused",
    "\u{feff}abused",
    "%s%s%n",
    "%",
    "\\",
    "\\0",
    "'",
    "\"",
    "`id`",
    "$(id)",
    "a;b",
    "a|b",
    "*",
    "?",
    "[",
    "{}",
    "null",
    "true",
    "0",
    "-1",
    "NaN",
    "=",
    ",",
    ":",
    "@@@",
    "###",
    "a\u{0301}",
];

/// Lengths at which something ends: names, their parts, values, paths, histories, and more than any
/// of them.
const LENGTHS: &[usize] = &[
    49, 50, 63, 64, 127, 255, 256, 257, 1023, 1024, 4095, 4096, 8191, 8192, 8193, 65536, 120_000,
];

/// Makes words.
pub struct Words {
    pub chance: Twister,
    /// What `@` at the beginning of a path stands for.
    pub folder: String,
}

impl Words {
    /// One of several.
    pub fn one<'a, T: ?Sized>(&mut self, of: &'a [&'a T]) -> &'a T {
        of[self.chance.index(of.len())]
    }

    /// A word that may be right.
    pub fn sound(&mut self, kind: Kind) -> Vec<u8> {
        let word = self.one(kind.sound());
        self.placed(kind, word)
    }

    /// A word that is most likely wrong.
    pub fn hostile(&mut self, kind: Kind) -> Vec<u8> {
        match self.chance.below(8) {
            0..=2 => {
                let word = self.one(kind.hostile());
                self.placed(kind, word)
            }
            3 | 4 => self.one(ANYWHERE).as_bytes().to_vec(),
            5 => self.mutilated(kind),
            6 => {
                let mut word = self.sound(kind);
                // A path that was cut would lead elsewhere.
                let length = LENGTHS[self.chance.index(LENGTHS.len())].max(word.len());
                let fill = self.one(&["a", "/a", "9", "\u{e9}", ",a", "@a", "."]);
                while word.len() < length {
                    word.extend(fill.as_bytes());
                }
                word.truncate(length);
                word
            }
            _ => {
                let length = LENGTHS[self.chance.index(LENGTHS.len())];
                let letter = self.chance.index(3);
                vec![[b'a', b'9', b' '][letter]; length]
            }
        }
    }

    /// A sound word with something wrong put in.
    fn mutilated(&mut self, kind: Kind) -> Vec<u8> {
        const BYTES: [u8; 12] = [
            0xff, 0xc3, 0x80, 0x01, 0x1b, b'\n', b'@', b'#', b'/', b'=', b'%', b',',
        ];
        let mut word = self.sound(kind);
        for _ in 0..=self.chance.below(2) {
            let at = self.chance.index(word.len() + 1);
            let byte = BYTES[self.chance.index(BYTES.len())];
            // What comes before the folder's name would lead elsewhere.
            let is_path = word.starts_with(self.folder.as_bytes());
            let at = if is_path {
                at.max(self.folder.len() + 1).min(word.len())
            } else {
                at
            };
            match self.chance.below(3) {
                0 if at < word.len() => {
                    word.remove(at);
                }
                1 if at < word.len() => word[at] = byte,
                _ => word.insert(at, byte),
            }
        }
        // Such a path would lead out of the folder.
        if word.starts_with(b"/") && !word.starts_with(self.folder.as_bytes()) {
            word.insert(0, b'%');
        }
        word
    }

    /// A word of a table, with the folder put in.
    fn placed(&self, kind: Kind, word: &str) -> Vec<u8> {
        let has_paths = matches!(
            kind,
            Kind::File | Kind::Folder | Kind::Device | Kind::Vdev | Kind::Path
        );
        let is_path = has_paths || word.contains("=@");
        match is_path {
            true => word.replace('@', &self.folder).into_bytes(),
            false => word.as_bytes().to_vec(),
        }
    }
}
