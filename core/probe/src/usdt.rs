//! Probes for bpftrace, perf and SystemTap (USDT): where operations begin, end, and pass a stage.
//!
//! # Mechanism
//! A probe is an instruction that does nothing, and a note in the program that tells tracers where
//! it is, what it is called and in which registers its arguments are (`.note.stapsdt`, version 3,
//! as `sys/sdt.h` of SystemTap writes it). The note names a semaphore as well: a number that the
//! kernel raises while a tracer is attached to the probe. As long as it is 0, which is nearly
//! always, a probe is a load and a branch: less than a nanosecond.
//!
//! Numbers in arguments are those of records: kinds, protocols, stages, outcomes, errors.
//! `docs/tracing.md` has a table of the probes.
//!
//! Why `unsafe`: a note and a register for each argument are made by inline assembly alone. The
//! assembly is one `nop`, which neither reads nor writes anything. Gained: any tracer of Linux sees
//! each operation with all its numbers, at no price while none does.

#![allow(unsafe_code)]

/// Declares a probe: its function fires it if it is traced, and makes the arguments only then. All
/// of them have 64 bits.
macro_rules! probe {
    ($(#[$doc:meta])* fn $name:ident / $cold:ident ( $($argument:ident),* ) in $section:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(arguments: impl FnOnce() -> $section::Arguments) {
            if $section::SEMAPHORE.load(std::sync::atomic::Ordering::Relaxed) != 0 {
                $section::$cold(arguments());
            }
        }

        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        pub(crate) mod $section {
            use std::sync::atomic::AtomicU16;

            pub(crate) type Arguments = [u64; [$(stringify!($argument)),*].len()];

            /// How many tracers there are: the kernel counts them here.
            // SAFETY: the section is one of plain data, which a tracer finds by the note alone.
            #[unsafe(link_section = ".probes")]
            pub(super) static SEMAPHORE: AtomicU16 = AtomicU16::new(0);

            #[cold]
            #[inline(never)]
            pub(super) fn $cold([$($argument),*]: Arguments) {
                // SAFETY: `nop` has no effect; the rest are sections that are never loaded.
                unsafe {
                    std::arch::asm!(
                        "990: nop",
                        ".pushsection .note.stapsdt, \"\", \"note\"",
                        ".balign 4",
                        ".4byte 992f-991f, 994f-993f, 3",
                        "991: .asciz \"stapsdt\"",
                        "992: .balign 4",
                        "993: .8byte 990b",
                        ".8byte _.stapsdt.base",
                        ".8byte {semaphore}",
                        ".asciz \"tarn\"",
                        concat!(".asciz \"", stringify!($name), "\""),
                        concat!(".asciz \"", probe!(@places $($argument)*), "\""),
                        "994: .balign 4",
                        ".popsection",
                        ".ifndef _.stapsdt.base",
                        ".pushsection .stapsdt.base, \"aGR\", \"progbits\", .stapsdt.base, comdat",
                        ".weak _.stapsdt.base",
                        ".hidden _.stapsdt.base",
                        "_.stapsdt.base: .space 1",
                        ".size _.stapsdt.base, 1",
                        ".popsection",
                        ".endif",
                        semaphore = sym SEMAPHORE,
                        $($argument = in(reg) $argument,)*
                        options(nomem, nostack, preserves_flags, att_syntax)
                    );
                }
            }
        }

        #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
        pub(crate) mod $section {
            pub(crate) type Arguments = [u64; [$(stringify!($argument)),*].len()];
            pub(super) static SEMAPHORE: std::sync::atomic::AtomicU16 =
                std::sync::atomic::AtomicU16::new(0);
            pub(super) fn $cold(_: Arguments) {}
        }
    };
    (@places $first:ident $($rest:ident)*) => {
        concat!("8@{", stringify!($first), "}", $(" 8@{", stringify!($rest), "}"),*)
    };
}

probe! {
    /// An operation has begun.
    fn operation_begin / operation_begin_traced
        (kind, protocol, client, user, dataset, object, offset, size) in operation_begin_note
}
probe! {
    /// An operation has ended.
    fn operation_end / operation_end_traced
        (latency_ns, kind, protocol, client, dataset, object, outcome, error) in operation_end_note
}
probe! {
    /// Time was added to a stage of an operation.
    fn stage_end / stage_end_traced
        (stage, time_ns, kind, protocol, client, dataset, object) in stage_end_note
}
probe! {
    /// A request to a device has ended.
    fn device_io / device_io_traced
        (device_class, kind, offset, bytes, queue_ns, device_ns, dataset, object) in device_io_note
}
