//! What may differ between ext4 and us, each with what imposes it; and what should not, and is not mended yet.

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
        program: "removing",
        step: "open files",
        line: "its list",
        reason: "defect: a folder that was removed while a program is in it cannot be listed any more (ESTALE)",
    },
    Tolerated {
        program: "from-a-snapshot",
        step: "nothing can be changed in it",
        line: "may be written",
        reason: "defect: access(W_OK) says that files of a snapshot may be written, not EROFS",
    },
    Tolerated {
        program: "times",
        step: "which operations change which times",
        line: "chown to nothing",
        reason: "defect: chown(-1, -1) does not change st_ctime",
    },
];
