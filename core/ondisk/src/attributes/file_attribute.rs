//! The attributes that files have: their names, sizes and forms, as OpenZFS registers them.

use super::{AttributeForm, AttributeId, ZNODE_ATTRIBUTES};

/// Declares the attributes that files have.
macro_rules! file_attributes {
    ($($(#[$attribute:meta])* $variant:ident $name:literal, $size:literal, $form:ident;)*) => {
        /// An attribute that files may have, whatever its number in a file system.
        #[doc(alias = "zpl_attr_t")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FileAttribute {
            $($(#[$attribute])* $variant,)*
        }

        impl FileAttribute {
            /// All of them, in the order in which a new file system numbers them.
            #[doc(alias = "zfs_attr_table")]
            pub const ALL: &[FileAttribute] = &[$(FileAttribute::$variant,)*];

            /// The name in the registry.
            pub const fn name(self) -> &'static str {
                match self {
                    $(FileAttribute::$variant => $name,)*
                }
            }

            /// The size of its values in bytes; 0 where each has its own.
            pub const fn size(self) -> u16 {
                match self {
                    $(FileAttribute::$variant => $size,)*
                }
            }

            /// How its values turn with the byte order.
            pub const fn form(self) -> AttributeForm {
                match self {
                    $(FileAttribute::$variant => AttributeForm::$form,)*
                }
            }
        }
    };
}

file_attributes! {
    /// When it was last read: seconds and nanoseconds.
    AccessTime "ZPL_ATIME", 16, Words;
    /// When its contents last changed: seconds and nanoseconds.
    ModificationTime "ZPL_MTIME", 16, Words;
    /// When anything of it last changed: seconds and nanoseconds.
    ChangeTime "ZPL_CTIME", 16, Words;
    /// When it was made: seconds and nanoseconds.
    CreationTime "ZPL_CRTIME", 16, Words;
    /// The txg in which it was made.
    Generation "ZPL_GEN", 8, Words;
    /// Type and permissions.
    Mode "ZPL_MODE", 8, Words;
    /// How many bytes it has; for directories, how many entries with `.` and `..`.
    Size "ZPL_SIZE", 8, Words;
    /// The directory it is in, or was last linked into.
    Parent "ZPL_PARENT", 8, Words;
    /// How many names it has.
    Links "ZPL_LINKS", 8, Words;
    /// The directory of its extended attributes, or 0.
    XattrDirectory "ZPL_XATTR", 8, Words;
    /// The number of a device, as the kernel that made it has them: Linux the minor number in the
    /// lower 20 bits, and the major number above.
    Device "ZPL_RDEV", 8, Words;
    /// [`ZnodeFlags`](crate::znode::ZnodeFlags).
    Flags "ZPL_FLAGS", 8, Words;
    /// Its owner, a [`Fuid`](crate::fuid::Fuid).
    Owner "ZPL_UID", 8, Words;
    /// Its group, a [`Fuid`](crate::fuid::Fuid).
    Group "ZPL_GID", 8, Words;
    /// Room that old files have, unused.
    Pad "ZPL_PAD", 32, Words;
    /// The access control list of old files, an [`AclPhys`](crate::acl::AclPhys).
    ZnodeAcl "ZPL_ZNODE_ACL", 88, Bytes;
    /// How many entries its access control list has.
    AclCount "ZPL_DACL_COUNT", 8, Words;
    /// The target of a symbolic link.
    LinkTarget "ZPL_SYMLINK", 0, Bytes;
    /// What a virus scanner left.
    ScanStamp "ZPL_SCANSTAMP", 32, Bytes;
    /// Its access control list's entries.
    AclEntries "ZPL_DACL_ACES", 0, Acl;
    /// Its extended attributes: an [`NvList`](crate::nvlist::NvList) of byte arrays, as XDR.
    Xattrs "ZPL_DXATTR", 0, Bytes;
    /// The project whose quota it counts against.
    Project "ZPL_PROJID", 8, Words;
}

impl FileAttribute {
    /// The number it has in every file system, for the sixteen that old files have.
    pub fn fixed_id(self) -> Option<AttributeId> {
        let number = FileAttribute::ALL
            .iter()
            .position(|&attribute| attribute == self)?;
        let number = u16::try_from(number).ok()?;
        (number < ZNODE_ATTRIBUTES).then_some(AttributeId(number))
    }
}
