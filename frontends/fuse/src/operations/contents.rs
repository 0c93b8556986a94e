//! Contents of files: reading and writing, allocating and copying ranges, finding holes.
//!
//! `READ`, `WRITE`, `FALLOCATE`, `COPY_FILE_RANGE`, `LSEEK`.

use super::opening::noting_of;
use super::{Call, Reply, refused};
use crate::handles::Handle;
use crate::protocol::{Answer, Arguments, WRITE_BYTES_MAX, WRITE_CACHE, WRITE_DROP_SET_IDS};
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{Allocate, Caching, NewContents, PosixError, Seek, WriteAt};

/// The structure before the bytes of a write.
pub(crate) struct WriteHead {
    offset: u64,
    size: u32,
    write_flags: u32,
    /// The flags that the file was opened with.
    flags: u32,
}

impl WriteHead {
    /// Whether the file was opened with `O_SYNC` or `O_DSYNC`: the write is answered when it is
    /// durable.
    pub(crate) fn wants_sync(&self) -> bool {
        i32::from_ne_bytes(self.flags.to_ne_bytes()) & libc::O_DSYNC != 0
    }
}

/// Decodes the structure of a write.
pub(super) fn write_head(arguments: &mut Arguments<'_>) -> Result<WriteHead, Errno> {
    arguments.u64()?;
    let (offset, size) = (arguments.u64()?, arguments.u32()?);
    let write_flags = arguments.u32()?;
    arguments.skip(8)?;
    let flags = arguments.u32()?;
    arguments.skip(4)?;
    Ok(WriteHead {
        offset,
        size,
        write_flags,
        flags,
    })
}

/// The ranges of a copy.
pub(crate) struct CopyHead {
    from: u64,
    /// The node of the target file.
    node: u64,
    handle: Handle,
    to: u64,
    length: u64,
    flags: u64,
}

impl CopyHead {
    /// Whether the target file was opened with `O_SYNC` or `O_DSYNC`.
    pub(crate) fn wants_sync(&self) -> bool {
        self.handle.wants_sync()
    }
}

/// Decodes the structure of a copy.
pub(super) fn copy_head(arguments: &mut Arguments<'_>) -> Result<CopyHead, Errno> {
    arguments.handle()?;
    Ok(CopyHead {
        from: arguments.u64()?,
        node: arguments.u64()?,
        handle: arguments.handle()?,
        to: arguments.u64()?,
        length: arguments.u64()?,
        flags: arguments.u64()?,
    })
}

impl Call<'_> {
    pub(super) fn read(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let noting = noting_of(arguments.handle()?);
        let (offset, size) = (arguments.u64()?, arguments.u32()?);
        arguments.skip(12)?;
        let caching = caching_of(arguments.u32()?);
        let size = usize::try_from(size).map_or(WRITE_BYTES_MAX, |size| size.min(WRITE_BYTES_MAX));
        let data = file.files.read_caching(
            self.credentials,
            file.id,
            offset,
            size,
            caching,
            noting,
            self.operation,
        );
        Ok(Reply::Read(data.map_err(refused)?))
    }

    pub(super) fn write(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let head = write_head(&mut arguments)?;
        let bytes = arguments.bytes(head.size)?;
        self.write_at(file, &head, NewContents::Bytes(bytes))
    }

    /// A write whose contents are in buffers of their own, with exactly the length that it gives.
    pub(crate) fn write_contents(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
        contents: NewContents<'_>,
    ) -> Result<Reply, Errno> {
        let head = write_head(&mut arguments)?;
        self.write_at(file, &head, contents)
    }

    fn write_at(
        &self,
        file: &Place,
        head: &WriteHead,
        contents: NewContents<'_>,
    ) -> Result<Reply, Errno> {
        let written = self.write_contents_at(file, head, contents);
        if head.write_flags & WRITE_CACHE != 0 {
            self.session.wrote_back(written.as_ref().err().copied());
        }
        written
    }

    fn write_contents_at(
        &self,
        file: &Place,
        head: &WriteHead,
        contents: NewContents<'_>,
    ) -> Result<Reply, Errno> {
        self.drop_privileges(file, head.write_flags & WRITE_DROP_SET_IDS != 0)?;
        let is_of_cache = head.write_flags & WRITE_CACHE != 0;
        let appends = !is_of_cache && self.session.appends(file, head.flags);
        let at = match appends {
            true => WriteAt::End,
            false => WriteAt::Offset(head.offset),
        };
        let written = file.files.write_contents(
            self.credentials,
            file.id,
            at,
            contents,
            caching_of(head.flags),
            self.operation,
        );
        let written = written.map_err(refused)?;
        // A short write-back would lose the rest of the page: the kernel takes all of it for
        // written.
        let written = u32::try_from(written).map_err(|_| Errno::IO)?;
        if is_of_cache && written < head.size {
            return Err(Errno::NOSPC);
        }
        if appends {
            let end = file.files.attributes(file.id, self.operation);
            if end.map_err(refused)?.size != head.offset + u64::from(written) {
                self.session.appended_elsewhere(self.node);
            }
        }
        let mut answer = Answer::new();
        answer.u32(written).u32(0);
        match head.wants_sync() {
            true => self.when_durable(file, answer),
            false => Ok(Reply::Parts(answer)),
        }
    }

    pub(super) fn allocate(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let handle = arguments.handle()?;
        let (offset, length, mode) = (arguments.u64()?, arguments.u64()?, arguments.u32()?);
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let kind = match i32::try_from(mode).map_err(|_| Errno::OPNOTSUPP)? {
            0 => Allocate::Extend,
            mode if mode == keep => Allocate::KeepSize,
            mode if mode == keep | libc::FALLOC_FL_PUNCH_HOLE => Allocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::ZeroRange,
            mode if mode == keep | libc::FALLOC_FL_ZERO_RANGE => Allocate::ZeroRangeKeepSize,
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.drop_privileges(file, self.takes_set_ids(file)?)?;
        let operation = self.operation;
        let allocated =
            file.files
                .allocate(self.credentials, file.id, kind, offset, length, operation);
        allocated.map_err(refused)?;
        match handle.wants_sync() {
            true => self.when_durable(file, Answer::new()),
            false => Ok(Reply::Parts(Answer::new())),
        }
    }

    /// Copies a range to another file, or within this one. Between a file system and a snapshot
    /// this is refused, and the kernel copies.
    pub(super) fn copy_range(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let head = copy_head(&mut arguments)?;
        if head.flags != 0 {
            return Err(Errno::INVAL);
        }
        let id = self.same_files(file, head.node)?;
        let target = file.beside(id);
        self.drop_privileges_of(&target, head.node, self.takes_set_ids(&target)?)?;
        let copied = file.files.copy_range(
            self.credentials,
            (file.id, head.from),
            (id, head.to),
            // The answer has 32 bits.
            head.length.min(u64::from(u32::MAX)),
            self.operation,
        );
        let copied = u32::try_from(copied.map_err(refused)?).map_err(|_| Errno::IO)?;
        let mut answer = Answer::new();
        answer.u32(copied).u32(0);
        match head.wants_sync() {
            true => self.when_durable(&target, answer),
            false => Ok(Reply::Parts(answer)),
        }
    }

    /// Finds data or a hole. Stores to mapped memory arrive only when the kernel writes them back,
    /// which it does not do before this request: while a file may be mapped, none of its ranges is
    /// certain to be a hole.
    pub(super) fn seek(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        arguments.u64()?;
        let (offset, whence) = (arguments.u64()?, arguments.u32()?);
        let seek = match i32::try_from(whence) {
            Ok(libc::SEEK_DATA) => Seek::Data,
            Ok(libc::SEEK_HOLE) => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        let found = match self.session.may_be_mapped(file) {
            true => self.seek_where_all_is_data(file, offset, seek),
            false => file.files.seek(file.id, offset, seek, self.operation),
        };
        let found = found.map_err(refused)?;
        let mut answer = Answer::new();
        answer.u64(found);
        Ok(Reply::Parts(answer))
    }

    /// Of a regular file.
    fn seek_where_all_is_data(
        &self,
        file: &Place,
        offset: u64,
        seek: Seek,
    ) -> Result<u64, PosixError> {
        let size = file.files.attributes(file.id, self.operation)?.size;
        match seek {
            _ if offset >= size => Err(PosixError::BeyondEnd),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }
}

/// Whether the kernel caches contents that are read or written with these flags: it does unless the
/// file was opened with `O_DIRECT`.
fn caching_of(flags: u32) -> Caching {
    match flags & libc::O_DIRECT.cast_unsigned() {
        0 => Caching::Callers,
        _ => Caching::Ours,
    }
}
