//! Buffers: aligned bytes that a device can read into and write from without a copy.
//!
//! # Problem
//! Devices opened with `O_DIRECT` want aligned memory, so every block that moves has to live in
//! such memory from the start, or be copied once more. The general allocator serves aligned blocks
//! badly: each 4 KiB block aligned to 4 KiB leaves a hole of nearly 4 KiB before it, and fresh
//! memory costs a page fault for each page.
//!
//! # Mechanism
//! Sizes are rounded up to a class: four classes an octave, all multiples of 4 KiB from there on,
//! 512, 1024 and 2048 below. A class cuts its buffers from slabs of 1 or 4 MiB which are mapped
//! straight from the system and given back when all their buffers are free, but for some that are
//! kept. Each thread keeps a few free buffers of each class for itself, so that most allocations
//! take no lock. What is larger than 1 MiB is mapped alone.
//!
//! Huge pages are not asked for. They save page faults, but each has to be found and cleared as a
//! whole: in a virtual machine that gives free memory back to its host one took milliseconds, and
//! writing was half as fast.
//!
//! # Invariants
//! - A buffer is aligned to 4096 bytes, or to its class if that is smaller.
//! - All bytes of a buffer are initialised at all times; [`Buffer::for_overwrite`] leaves old
//!   contents, never garbage the compiler may reason about.
//! - [`mapped_bytes`] is what all buffers together hold of the machine's memory, free ones
//!   included.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The alignment of buffers of this size or more: a page, and the largest logical sector we expect.
pub const ALIGNMENT: usize = 4096;

/// The smallest class.
const CLASS_BYTES_MIN: usize = 512;
/// The largest size cut from slabs; larger buffers are mapped alone.
const CLASS_BYTES_MAX: usize = 1 << 20;
/// Classes: 512, 1024, 2048; 4, 8, 12, 16 KiB; then four an octave up to 1 MiB.
const CLASS_COUNT: usize = 3 + 4 + 4 * 6;
/// Slab size of classes up to 32 KiB.
const SMALL_SLAB_BYTES: usize = 1 << 20;
/// Slab size of the other classes.
const LARGE_SLAB_BYTES: usize = 4 << 20;
/// Free bytes of one class a thread keeps for itself. A guess: a few blocks of the usual sizes.
const THREAD_BYTES_MAX: usize = 256 << 10;
/// Free buffers of one class a thread keeps for itself at most.
const THREAD_COUNT_MAX: usize = 16;
/// So many bytes of entirely free slabs are kept for later allocations, over all classes: what one
/// transaction group gives back the next takes, and fresh memory has to be cleared by the system. A
/// guess: the metadata of a large group.
const FREE_BYTES_MAX: usize = 64 << 20;

/// Bytes on the heap, aligned for devices.
pub struct Buffer {
    pointer: NonNull<u8>,
    length: usize,
    /// What was allocated: the size of the class, or whole pages.
    capacity: usize,
}

// SAFETY: a buffer owns its memory alone; access follows the borrow of the buffer as with
// `Box<[u8]>`.
unsafe impl Send for Buffer {}
// SAFETY: as above; `&Buffer` gives only `&[u8]`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// All bytes zero.
    pub fn zeroed(length: usize) -> Buffer {
        let mut buffer = Buffer::for_overwrite(length);
        if buffer.capacity <= CLASS_BYTES_MAX {
            buffer.fill(0);
        }
        buffer
    }

    /// Contents unspecified, for a caller that overwrites them all.
    pub fn for_overwrite(length: usize) -> Buffer {
        let Some(class) = class_of(length) else {
            let capacity = memory_for(length);
            return Buffer {
                pointer: map(capacity),
                length,
                capacity,
            };
        };
        Buffer {
            pointer: take(class),
            length,
            capacity: class_bytes(class),
        }
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::for_overwrite(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// How many bytes of memory it holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes it shorter; the memory stays.
    ///
    /// # Panics
    /// If `length` is more than it has.
    pub fn truncate(&mut self, length: usize) {
        assert!(
            length <= self.length,
            "a buffer cannot be truncated to more than it has"
        );
        self.length = length;
    }

    /// Makes it as long as asked for: new bytes are zero, and it moves if its memory does not
    /// suffice.
    pub fn resize(&mut self, length: usize) {
        if length > self.capacity {
            let mut larger = Buffer::for_overwrite(length);
            larger[..self.length].copy_from_slice(self);
            larger[self.length..].fill(0);
            *self = larger;
            return;
        }
        let old_length = std::mem::replace(&mut self.length, length);
        if length > old_length {
            self[old_length..].fill(0);
        }
    }

    /// As [`resize`](Self::resize), for what goes on growing: where its memory does not suffice it
    /// takes twice as much, but not more than `most` unless so much is asked for. So growing by
    /// small steps copies each byte a few times at most.
    pub fn grow(&mut self, length: usize, most: usize) {
        if length > self.capacity {
            let mut larger = Buffer::for_overwrite(length.max((2 * self.capacity).min(most)));
            larger.truncate(self.length);
            larger.copy_from_slice(self);
            *self = larger;
        }
        self.resize(length);
    }

    /// Whether it holds more memory than one of its length would have to.
    pub fn has_room_to_spare(&self) -> bool {
        self.capacity > memory_for(self.length)
    }

    /// Where it is, for the devices.
    pub(crate) fn raw(&self) -> NonNull<u8> {
        self.pointer
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer {
            pointer: NonNull::dangling(),
            length: 0,
            capacity: 0,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        match class_of(self.capacity) {
            Some(class) => give_back(class, self.pointer),
            None => unmap(self.pointer, self.capacity),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes from `pointer` are allocated, initialised and owned by us.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and we are borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        Buffer::from_slice(self)
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Buffer {
        Buffer::from_slice(bytes)
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        **self == **other
    }
}

impl Eq for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

/// What all buffers together hold of the machine's memory, free ones included.
pub fn mapped_bytes() -> usize {
    MAPPED_BYTES.load(Ordering::Relaxed)
}

static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of slabs that are entirely free, of all classes.
static FREE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The class that serves `length`; none if it is too large for one.
fn class_of(length: usize) -> Option<usize> {
    const KIB: usize = 1024;
    match length {
        0..=512 => Some(0),
        513..=1024 => Some(1),
        1025..=2048 => Some(2),
        2049..=16384 => Some(2 + length.div_ceil(4 * KIB)),
        16385..=CLASS_BYTES_MAX => {
            // `length` lies above `base` and at most at twice of it; cut that into four steps.
            let octave = (length - 1).ilog2();
            let base = 1 << octave;
            let step = (length - base).div_ceil(base / 4);
            let octaves_above = usize::try_from(octave - 14).expect("at most 20");
            Some(6 + 4 * octaves_above + step)
        }
        _ => None,
    }
}

/// How much memory a buffer of so many bytes takes.
fn memory_for(length: usize) -> usize {
    class_of(length).map_or_else(|| length.div_ceil(ALIGNMENT) * ALIGNMENT, class_bytes)
}

/// The size of a class.
fn class_bytes(class: usize) -> usize {
    match class {
        0..=2 => CLASS_BYTES_MIN << class,
        3..=6 => (class - 2) * 4096,
        _ => {
            let (octave, step) = ((class - 7) / 4, (class - 7) % 4 + 1);
            let base = 16384 << octave;
            base + step * (base / 4)
        }
    }
}

fn slab_bytes(class: usize) -> usize {
    if class_bytes(class) <= 32 << 10 {
        SMALL_SLAB_BYTES
    } else {
        LARGE_SLAB_BYTES
    }
}

fn thread_count_max(class: usize) -> usize {
    (THREAD_BYTES_MAX / class_bytes(class)).clamp(1, THREAD_COUNT_MAX)
}

/// The address of free memory. Its contents are initialised bytes.
#[derive(Clone, Copy)]
struct Free(NonNull<u8>);

// SAFETY: free memory belongs to the holder of its address; nothing else uses it.
unsafe impl Send for Free {}

/// The free buffers a thread keeps for itself.
struct ThreadFree([Vec<Free>; CLASS_COUNT]);

impl Drop for ThreadFree {
    fn drop(&mut self) {
        for (class, free) in self.0.iter_mut().enumerate() {
            CLASSES[class].lock().put(class, free.drain(..));
        }
    }
}

thread_local! {
    static THREAD_FREE: RefCell<ThreadFree> =
        const { RefCell::new(ThreadFree([const { Vec::new() }; CLASS_COUNT])) };
}

/// Leaf locks: nothing is locked, waited for or called while one is held.
static CLASSES: [Mutex<Class>; CLASS_COUNT] = [const { Mutex::new(Class::new()) }; CLASS_COUNT];

fn take(class: usize) -> NonNull<u8> {
    let own = THREAD_FREE.try_with(|free| {
        let own = &mut free.borrow_mut().0[class];
        if own.is_empty() {
            let wanted = thread_count_max(class).div_ceil(2);
            CLASSES[class].lock().fill(class, own, wanted);
        }
        own.pop().expect("filled above")
    });
    // While a thread is torn down it has no buffers of its own.
    let free = own.unwrap_or_else(|_| {
        let mut one = Vec::new();
        CLASSES[class].lock().fill(class, &mut one, 1);
        one.pop().expect("filled above")
    });
    free.0
}

fn give_back(class: usize, pointer: NonNull<u8>) {
    let own = THREAD_FREE.try_with(|free| {
        let own = &mut free.borrow_mut().0[class];
        own.push(Free(pointer));
        let max = thread_count_max(class);
        if own.len() > max {
            CLASSES[class].lock().put(class, own.drain(max / 2..));
        }
    });
    if own.is_err() {
        CLASSES[class]
            .lock()
            .put(class, std::iter::once(Free(pointer)));
    }
}

/// The slabs of one size.
struct Class {
    /// Slabs by address.
    slabs: BTreeMap<usize, Slab>,
    /// Addresses of slabs with free buffers. We allocate from the lowest, so that high ones run
    /// empty.
    with_free: BTreeSet<usize>,
}

struct Slab {
    base: Free,
    /// Buffers never handed out begin at this index.
    untouched: usize,
    /// Buffers that came back.
    free: Vec<Free>,
    count: usize,
}

impl Slab {
    fn free_count(&self) -> usize {
        self.free.len() + self.count - self.untouched
    }

    fn take(&mut self, class: usize) -> Free {
        self.free.pop().unwrap_or_else(|| {
            let offset = self.untouched * class_bytes(class);
            self.untouched += 1;
            // SAFETY: `untouched < count`, so the offset is inside the slab.
            Free(unsafe { self.base.0.add(offset) })
        })
    }
}

impl Class {
    const fn new() -> Class {
        Class {
            slabs: BTreeMap::new(),
            with_free: BTreeSet::new(),
        }
    }

    /// Moves `wanted` free buffers to `own`.
    fn fill(&mut self, class: usize, own: &mut Vec<Free>, wanted: usize) {
        for _ in 0..wanted {
            let address = match self.with_free.first() {
                Some(address) => *address,
                None => self.add_slab(class),
            };
            let slab = self
                .slabs
                .get_mut(&address)
                .expect("listed as having free buffers");
            if slab.free_count() == slab.count {
                FREE_BYTES.fetch_sub(slab_bytes(class), Ordering::Relaxed);
            }
            own.push(slab.take(class));
            if slab.free_count() == 0 {
                self.with_free.remove(&address);
            }
        }
    }

    fn add_slab(&mut self, class: usize) -> usize {
        let bytes = slab_bytes(class);
        let base = map_aligned(bytes);
        let address = base.as_ptr().addr();
        let count = bytes / class_bytes(class);
        self.slabs.insert(
            address,
            Slab {
                base: Free(base),
                untouched: 0,
                free: Vec::new(),
                count,
            },
        );
        self.with_free.insert(address);
        FREE_BYTES.fetch_add(bytes, Ordering::Relaxed);
        address
    }

    /// Takes free buffers back into their slabs, and unmaps slabs that are entirely free.
    fn put(&mut self, class: usize, free: impl Iterator<Item = Free>) {
        let bytes = slab_bytes(class);
        for one in free {
            let address = one.0.as_ptr().addr() & !(bytes - 1);
            let slab = self
                .slabs
                .get_mut(&address)
                .expect("cut from a slab of this class");
            slab.free.push(one);
            if slab.free_count() == 1 {
                self.with_free.insert(address);
            }
            if slab.free_count() < slab.count {
                continue;
            }
            let free_bytes = FREE_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if free_bytes <= FREE_BYTES_MAX {
                continue;
            }
            FREE_BYTES.fetch_sub(bytes, Ordering::Relaxed);
            let slab = self.slabs.remove(&address).expect("found above");
            self.with_free.remove(&address);
            unmap(slab.base.0, bytes);
        }
    }
}

/// Maps zeroed memory.
fn map(bytes: usize) -> NonNull<u8> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new private mapping at an address of the system's choice touches nothing that
    // exists.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) };
    let Ok(pointer) = mapped else {
        out_of_memory(bytes)
    };
    MAPPED_BYTES.fetch_add(bytes, Ordering::Relaxed);
    NonNull::new(pointer.cast()).expect("the system does not map address 0")
}

/// Maps zeroed memory aligned to its size, a power of two.
fn map_aligned(bytes: usize) -> NonNull<u8> {
    let whole = map(2 * bytes);
    let start = whole.as_ptr().addr();
    let before = start.next_multiple_of(bytes) - start;
    // SAFETY: `before <= bytes`, so both parts are inside the mapping just made.
    let (aligned, after) = unsafe { (whole.add(before), whole.add(before + bytes)) };
    if before > 0 {
        unmap(whole, before);
    }
    if before < bytes {
        unmap(after, bytes - before);
    }
    aligned
}

fn unmap(pointer: NonNull<u8>, bytes: usize) {
    // SAFETY: callers own this part of a mapping, and no reference to it is kept.
    let unmapped = unsafe { munmap(pointer.as_ptr().cast(), bytes) };
    unmapped.expect("a mapping of ours can be unmapped");
    MAPPED_BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

/// There is no memory. As with the general allocator, nothing sensible can follow.
fn out_of_memory(bytes: usize) -> ! {
    let layout = std::alloc::Layout::from_size_align(bytes, ALIGNMENT);
    std::alloc::handle_alloc_error(layout.unwrap_or(std::alloc::Layout::new::<u8>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_by_small_steps_seldom_moves_and_keeps_its_bytes() {
        const MOST: usize = 16 << 20;
        let mut buffer = Buffer::zeroed(512);
        let (mut moves, mut place) = (0, buffer.raw());
        for length in (512..=MOST).step_by(8192) {
            let end = buffer.len();
            buffer.grow(length, MOST);
            assert!(buffer[end..].iter().all(|byte| *byte == 0));
            assert!(
                buffer.capacity() <= (2 * length).clamp(4096, MOST),
                "{length}"
            );
            let mark = u8::try_from(length / 8192 % 251).unwrap();
            *buffer.last_mut().unwrap() = mark;
            moves += usize::from(buffer.raw() != place);
            place = buffer.raw();
        }
        assert!(moves <= 20, "{moves}");
        for length in (512..=MOST).step_by(8192) {
            assert_eq!(usize::from(buffer[length - 1]), length / 8192 % 251);
        }
        assert!(!Buffer::zeroed(MOST).has_room_to_spare());
        buffer.truncate(300_000);
        assert!(buffer.has_room_to_spare());
        assert!(!buffer.clone().has_room_to_spare());
    }

    #[test]
    fn every_length_gets_a_class_that_holds_it_with_little_waste() {
        let mut largest = 0;
        for length in (0..=CLASS_BYTES_MAX).step_by(256).flat_map(|n| [n, n + 1]) {
            let Some(class) = class_of(length) else {
                continue;
            };
            let bytes = class_bytes(class);
            assert!(bytes >= length, "class {class} of {bytes} holds {length}");
            assert!(
                length <= 16384 || bytes * 4 <= length * 5,
                "{length} takes {bytes}"
            );
            assert_eq!(class_of(bytes), Some(class), "a class serves its own size");
            largest = largest.max(class);
        }
        assert_eq!(largest, CLASS_COUNT - 1);
        assert_eq!(class_of(CLASS_BYTES_MAX + 1), None);
    }

    #[test]
    fn buffers_are_aligned_and_do_not_overlap() {
        let lengths = [
            1,
            512,
            1000,
            4096,
            5000,
            40_000,
            131_072,
            1 << 20,
            (1 << 20) + 1,
            16 << 20,
        ];
        let mut buffers = Vec::new();
        for round in 0..3_u8 {
            for length in lengths {
                let mut buffer = Buffer::zeroed(length);
                assert!(buffer.iter().all(|byte| *byte == 0));
                let alignment = buffer.capacity().next_power_of_two().min(ALIGNMENT);
                assert_eq!(buffer.as_ptr().addr() % alignment, 0);
                buffer.fill(round + 1);
                buffers.push((buffer, round + 1));
            }
        }
        for (buffer, fill) in &buffers {
            assert!(buffer.iter().all(|byte| byte == fill));
        }
    }

    #[test]
    fn memory_freed_by_another_thread_is_used_again() {
        let before = mapped_bytes();
        for _ in 0..20 {
            let buffers: Vec<Buffer> = (0..64).map(|_| Buffer::for_overwrite(128 << 10)).collect();
            std::thread::spawn(move || drop(buffers)).join().unwrap();
        }
        // 8 MiB at a time; others tests map as well, but not hundreds of MiB.
        assert!(mapped_bytes() < before + (100 << 20));
    }

    #[test]
    fn resizing_keeps_the_bytes_and_zeroes_new_ones() {
        let mut buffer = Buffer::from_slice(&[7; 600]);
        buffer.truncate(10);
        buffer.resize(20);
        assert_eq!(buffer[..], [[7; 10], [0; 10]].concat());
        buffer.resize(5000);
        assert_eq!((buffer.len(), buffer[9], buffer[4999]), (5000, 7, 0));
        assert_eq!(buffer.clone(), buffer);
    }
}
