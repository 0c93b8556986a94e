//! Combining columns with vector instructions.
//!
//! # Mechanism
//! One loop, written once as a macro and made for each vector kind: for a few vectors' width of
//! bytes it goes through all inputs, multiplies each by the factor of each output, and adds. The
//! kinds differ in how wide they are and in how they multiply bytes by a constant: GFNI has an
//! instruction for it (a matrix of bits times each byte); without, both halves of each byte are
//! looked up by a shuffle.
//!
//! Against the portable implementation this gains an order of magnitude, and with GFNI the memory
//! is the limit.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(super) use x86::available;

/// No vector implementation is written for this processor.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn available() -> Vec<(&'static str, super::combine::Kernel)> {
    Vec::new()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::combine::Kernel;

    /// What this processor has, the fastest first.
    pub(in crate::parity) fn available() -> Vec<(&'static str, Kernel)> {
        let avx2 = is_x86_feature_detected!("avx2");
        let gfni = is_x86_feature_detected!("gfni");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let kinds: [(bool, &'static str, Kernel); 5] = [
            (avx512 && gfni, "avx512-gfni", avx512_gfni::kernel),
            (avx2 && gfni, "avx2-gfni", avx2_gfni::kernel),
            (avx512, "avx512bw", avx512bw::kernel),
            (avx2, "avx2", avx2_shuffle::kernel),
            (is_x86_feature_detected!("ssse3"), "ssse3", ssse3::kernel),
        ];
        let there = kinds.into_iter().filter(|(detected, _, _)| *detected);
        there.map(|(_, name, kernel)| (name, kernel)).collect()
    }

    /// The loop. The module around it defines `Vector`, its `BYTES`, how many `UNROLLED` vectors to
    /// do at a time, a prepared `Factor`, and `zero`, `load`, `store`, `add`, `factor` and
    /// `multiply`.
    macro_rules! combine_with {
        ($features:literal) => {
            /// Does as much of the piece as fills whole vectors.
            ///
            /// Reached only through `available`, which lists it where the processor has the
            /// features.
            pub(super) fn kernel(outputs: &mut [&mut [u8]], piece: &Piece<'_>) -> usize {
                piece.assert_in_bounds(outputs);
                if outputs.is_empty() {
                    return piece.end;
                }
                // SAFETY: `available` lists this only where the processor has the features, and the
                // bounds were asserted above.
                unsafe {
                    match (outputs, piece.first_is_sum()) {
                        ([a], true) => outputs_of::<1, true>([a], piece),
                        ([a], false) => outputs_of::<1, false>([a], piece),
                        ([a, b], true) => outputs_of::<2, true>([a, b], piece),
                        ([a, b], false) => outputs_of::<2, false>([a, b], piece),
                        ([a, b, c], true) => outputs_of::<3, true>([a, b, c], piece),
                        ([a, b, c], false) => outputs_of::<3, false>([a, b, c], piece),
                        _ => unreachable!("the bounds were asserted"),
                    }
                }
            }

            /// # Safety
            /// The piece must be within the bounds of all columns and rows.
            #[target_feature(enable = $features)]
            unsafe fn outputs_of<const OUTPUTS: usize, const FIRST_IS_SUM: bool>(
                mut outputs: [&mut &mut [u8]; OUTPUTS],
                piece: &Piece<'_>,
            ) -> usize {
                let mut rows = [&[] as &[u8]; OUTPUTS];
                for (row, given) in rows.iter_mut().zip(piece.rows) {
                    *row = &given[..piece.inputs.len()];
                }
                let mut at = piece.start;
                while at + UNROLLED * BYTES <= piece.end {
                    // SAFETY: as many bytes from `at` on are within the piece.
                    unsafe {
                        step::<OUTPUTS, FIRST_IS_SUM, UNROLLED>(
                            &mut outputs,
                            &rows,
                            piece.inputs,
                            at,
                        );
                    }
                    at += UNROLLED * BYTES;
                }
                while at + BYTES <= piece.end {
                    // SAFETY: as many bytes from `at` on are within the piece.
                    unsafe {
                        step::<OUTPUTS, FIRST_IS_SUM, 1>(&mut outputs, &rows, piece.inputs, at);
                    }
                    at += BYTES;
                }
                at
            }

            /// Combines `WIDTH` vectors from `at` on.
            ///
            /// # Safety
            /// Every column must have that many bytes there, and every row a factor for each input.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn step<const OUTPUTS: usize, const FIRST_IS_SUM: bool, const WIDTH: usize>(
                outputs: &mut [&mut &mut [u8]; OUTPUTS],
                rows: &[&[u8]; OUTPUTS],
                inputs: &[&[u8]],
                at: usize,
            ) {
                let mut sums = [[zero(); WIDTH]; OUTPUTS];
                for (index, input) in inputs.iter().enumerate() {
                    let mut bytes = [zero(); WIDTH];
                    for (place, vector) in bytes.iter_mut().enumerate() {
                        // SAFETY: the caller vouches for the columns.
                        *vector = unsafe { load(input.as_ptr().add(at + place * BYTES)) };
                    }
                    for output in 0..OUTPUTS {
                        if FIRST_IS_SUM && output == 0 {
                            for place in 0..WIDTH {
                                sums[output][place] = add(sums[output][place], bytes[place]);
                            }
                        } else {
                            // SAFETY: the caller vouches for the rows.
                            let factor = factor(unsafe { *rows[output].get_unchecked(index) });
                            for place in 0..WIDTH {
                                let product = multiply(bytes[place], factor);
                                sums[output][place] = add(sums[output][place], product);
                            }
                        }
                    }
                }
                for (output, sums) in outputs.iter_mut().zip(&sums) {
                    for (place, sum) in sums.iter().enumerate() {
                        // SAFETY: the caller vouches for the columns.
                        unsafe { store(output.as_mut_ptr().add(at + place * BYTES), *sum) };
                    }
                }
            }
        };
    }

    mod avx512_gfni {
        use crate::parity::combine::Piece;
        use crate::parity::galois::BIT_MATRICES;
        use std::arch::x86_64::*;

        const BYTES: usize = 64;
        const UNROLLED: usize = 4;
        type Vector = __m512i;
        type Factor = __m512i;

        combine_with!("avx512f,avx512bw,gfni");

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn zero() -> Vector {
            _mm512_setzero_si512()
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        unsafe fn load(from: *const u8) -> Vector {
            // SAFETY: the caller vouches for 64 bytes; no alignment is needed.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        unsafe fn store(to: *mut u8, vector: Vector) {
            // SAFETY: the caller vouches for 64 bytes; no alignment is needed.
            unsafe { _mm512_storeu_si512(to.cast(), vector) }
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn add(a: Vector, b: Vector) -> Vector {
            _mm512_xor_si512(a, b)
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn factor(element: u8) -> Factor {
            _mm512_set1_epi64(BIT_MATRICES[usize::from(element)].cast_signed())
        }

        #[inline]
        #[target_feature(enable = "avx512f,gfni")]
        fn multiply(vector: Vector, factor: Factor) -> Vector {
            _mm512_gf2p8affine_epi64_epi8::<0>(vector, factor)
        }
    }

    mod avx2_gfni {
        use crate::parity::combine::Piece;
        use crate::parity::galois::BIT_MATRICES;
        use std::arch::x86_64::*;

        const BYTES: usize = 32;
        const UNROLLED: usize = 3;
        type Vector = __m256i;
        type Factor = __m256i;

        combine_with!("avx2,gfni");

        #[inline]
        #[target_feature(enable = "avx2")]
        fn zero() -> Vector {
            _mm256_setzero_si256()
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn load(from: *const u8) -> Vector {
            // SAFETY: the caller vouches for 32 bytes; no alignment is needed.
            unsafe { _mm256_loadu_si256(from.cast()) }
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn store(to: *mut u8, vector: Vector) {
            // SAFETY: the caller vouches for 32 bytes; no alignment is needed.
            unsafe { _mm256_storeu_si256(to.cast(), vector) }
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn add(a: Vector, b: Vector) -> Vector {
            _mm256_xor_si256(a, b)
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn factor(element: u8) -> Factor {
            _mm256_set1_epi64x(BIT_MATRICES[usize::from(element)].cast_signed())
        }

        #[inline]
        #[target_feature(enable = "avx2,gfni")]
        fn multiply(vector: Vector, factor: Factor) -> Vector {
            _mm256_gf2p8affine_epi64_epi8::<0>(vector, factor)
        }
    }

    mod avx512bw {
        use crate::parity::combine::Piece;
        use crate::parity::galois::NIBBLE_PRODUCTS;
        use std::arch::x86_64::*;

        const BYTES: usize = 64;
        const UNROLLED: usize = 4;
        type Vector = __m512i;
        /// The products of the low and of the high halves.
        type Factor = (__m512i, __m512i);

        combine_with!("avx512f,avx512bw");

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn zero() -> Vector {
            _mm512_setzero_si512()
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        unsafe fn load(from: *const u8) -> Vector {
            // SAFETY: the caller vouches for 64 bytes; no alignment is needed.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        unsafe fn store(to: *mut u8, vector: Vector) {
            // SAFETY: the caller vouches for 64 bytes; no alignment is needed.
            unsafe { _mm512_storeu_si512(to.cast(), vector) }
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn add(a: Vector, b: Vector) -> Vector {
            _mm512_xor_si512(a, b)
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn factor(element: u8) -> Factor {
            let table = NIBBLE_PRODUCTS[usize::from(element)].as_ptr();
            // SAFETY: the table has twice 16 bytes.
            let (low, high) = unsafe {
                (
                    _mm_loadu_si128(table.cast()),
                    _mm_loadu_si128(table.add(16).cast()),
                )
            };
            (_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high))
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw")]
        fn multiply(vector: Vector, (low, high): Factor) -> Vector {
            let half = _mm512_set1_epi8(15);
            let low_halves = _mm512_and_si512(vector, half);
            let high_halves = _mm512_and_si512(_mm512_srli_epi64::<4>(vector), half);
            let low = _mm512_shuffle_epi8(low, low_halves);
            let high = _mm512_shuffle_epi8(high, high_halves);
            _mm512_xor_si512(low, high)
        }
    }

    mod avx2_shuffle {
        use crate::parity::combine::Piece;
        use crate::parity::galois::NIBBLE_PRODUCTS;
        use std::arch::x86_64::*;

        const BYTES: usize = 32;
        const UNROLLED: usize = 2;
        type Vector = __m256i;
        /// The products of the low and of the high halves.
        type Factor = (__m256i, __m256i);

        combine_with!("avx2");

        #[inline]
        #[target_feature(enable = "avx2")]
        fn zero() -> Vector {
            _mm256_setzero_si256()
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn load(from: *const u8) -> Vector {
            // SAFETY: the caller vouches for 32 bytes; no alignment is needed.
            unsafe { _mm256_loadu_si256(from.cast()) }
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn store(to: *mut u8, vector: Vector) {
            // SAFETY: the caller vouches for 32 bytes; no alignment is needed.
            unsafe { _mm256_storeu_si256(to.cast(), vector) }
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn add(a: Vector, b: Vector) -> Vector {
            _mm256_xor_si256(a, b)
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn factor(element: u8) -> Factor {
            let table = NIBBLE_PRODUCTS[usize::from(element)].as_ptr();
            // SAFETY: the table has twice 16 bytes.
            let (low, high) = unsafe {
                (
                    _mm_loadu_si128(table.cast()),
                    _mm_loadu_si128(table.add(16).cast()),
                )
            };
            (
                _mm256_broadcastsi128_si256(low),
                _mm256_broadcastsi128_si256(high),
            )
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn multiply(vector: Vector, (low, high): Factor) -> Vector {
            let half = _mm256_set1_epi8(15);
            let low_halves = _mm256_and_si256(vector, half);
            let high_halves = _mm256_and_si256(_mm256_srli_epi64::<4>(vector), half);
            let low = _mm256_shuffle_epi8(low, low_halves);
            let high = _mm256_shuffle_epi8(high, high_halves);
            _mm256_xor_si256(low, high)
        }
    }

    mod ssse3 {
        use crate::parity::combine::Piece;
        use crate::parity::galois::NIBBLE_PRODUCTS;
        use std::arch::x86_64::*;

        const BYTES: usize = 16;
        const UNROLLED: usize = 2;
        type Vector = __m128i;
        /// The products of the low and of the high halves.
        type Factor = (__m128i, __m128i);

        combine_with!("ssse3");

        #[inline]
        #[target_feature(enable = "ssse3")]
        fn zero() -> Vector {
            _mm_setzero_si128()
        }

        #[inline]
        #[target_feature(enable = "ssse3")]
        unsafe fn load(from: *const u8) -> Vector {
            // SAFETY: the caller vouches for 16 bytes; no alignment is needed.
            unsafe { _mm_loadu_si128(from.cast()) }
        }

        #[inline]
        #[target_feature(enable = "ssse3")]
        unsafe fn store(to: *mut u8, vector: Vector) {
            // SAFETY: the caller vouches for 16 bytes; no alignment is needed.
            unsafe { _mm_storeu_si128(to.cast(), vector) }
        }

        #[inline]
        #[target_feature(enable = "ssse3")]
        fn add(a: Vector, b: Vector) -> Vector {
            _mm_xor_si128(a, b)
        }

        #[inline]
        #[target_feature(enable = "ssse3")]
        fn factor(element: u8) -> Factor {
            let table = NIBBLE_PRODUCTS[usize::from(element)].as_ptr();
            // SAFETY: the table has twice 16 bytes.
            unsafe {
                (
                    _mm_loadu_si128(table.cast()),
                    _mm_loadu_si128(table.add(16).cast()),
                )
            }
        }

        #[inline]
        #[target_feature(enable = "ssse3")]
        fn multiply(vector: Vector, (low, high): Factor) -> Vector {
            let half = _mm_set1_epi8(15);
            let low_halves = _mm_and_si128(vector, half);
            let high_halves = _mm_and_si128(_mm_srli_epi64::<4>(vector), half);
            let low = _mm_shuffle_epi8(low, low_halves);
            let high = _mm_shuffle_epi8(high, high_halves);
            _mm_xor_si128(low, high)
        }
    }
}
