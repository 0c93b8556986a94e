//! What may differ between ext4 and us, each with what imposes it.

use super::compare::Tolerated;

const NO_SHIFTING: &str = "ranges are neither taken out nor put in between: `fuse_file_fallocate` passes on \
                           FALLOC_FL_KEEP_SIZE, PUNCH_HOLE and ZERO_RANGE, nothing else (fs/fuse/file.c)";

/// Every difference that is known.
pub const TOLERATED: &[Tolerated] = &[
    Tolerated {
        program: "copying",
        step: "manifest",
        line: "\"tree/fifo\"",
        reason: "what goes through a pipe does not change its time: `fuse_init_inode` sets `S_NOCMTIME` \
                 (fs/fuse/inode.c), by which `pipe_write` updates nothing",
    },
    Tolerated {
        program: "copying",
        step: "copy_file_range",
        line: "across file systems",
        reason: "copies between two FUSE mounts are done where ext4 says EXDEV: `fuse_copy_file_range` falls back \
                 to `splice_copy_file_range` (fs/fuse/file.c)",
    },
    Tolerated {
        program: "room-in-files",
        step: "shifting",
        line: "fallocate failed",
        reason: NO_SHIFTING,
    },
    Tolerated {
        program: "room-in-files",
        step: "shifting",
        line: "=> ",
        reason: NO_SHIFTING,
    },
    Tolerated {
        program: "from-a-snapshot",
        step: "nothing can be changed in it",
        line: "may be written",
        reason: "access(W_OK) says that files of a snapshot may be written, not EROFS: `fuse_permission` (fs/fuse/dir.c) asks \
                 nobody where the mount has default_permissions, `sb_permission` (fs/namei.c) says EROFS for the whole of a \
                 mount, and a snapshot is no mount of its own: `FUSE_SUBMOUNTS` is offered to virtiofs alone (fs/fuse/inode.c); \
                 writing itself fails with EROFS",
    },
];
