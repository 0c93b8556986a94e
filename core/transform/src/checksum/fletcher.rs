//! fletcher2 and fletcher4: sums, and sums of sums.
//!
//! # Mechanism
//! fletcher4 runs over 32-bit words: `a += word; b += a; c += b; d += c`, in 64 bits that wrap. So
//! each of `b`, `c`, `d` weighs a word by how far it is from the end: with `y` words left, itself
//! included, the weights are `y`, `y(y+1)/2` and `y(y+1)(y+2)/6`. Two things follow, and both are
//! used here:
//!
//! - A checksum can be *continued* by that of what comes next ([`Fletcher4::then`]): with `n` more
//!   words every weight grows from `y` to `y + n`, and what that adds is a sum of the lower ones.
//! - The words can be dealt out to lanes, each summed on its own, and the lanes *joined*
//!   (`join_lanes`): in one of `L` lanes, a word with `m` left in its lane has `mL - j` left in
//!   all, `j` being the lane. That is what makes vector instructions of use.
//!
//! fletcher2 is older and weaker: two interleaved sums of 64-bit words, and the sums of these.

use super::{ByteOrder, Checksum, fletcher_simd};
use std::sync::OnceLock;

/// The four sums over a piece, from zero.
pub(super) type Sums = fn(&[u8], ByteOrder) -> [u64; 4];

/// Every implementation is given pieces of a multiple of this many bytes; the rest is summed by the
/// portable one. The widest step takes 128.
pub(super) const STRIDE_BYTES: usize = 128;

/// One way to compute fletcher4. All give the same.
#[derive(Clone, Copy)]
pub struct Implementation {
    name: &'static str,
    sums: Sums,
}

impl Implementation {
    /// What this processor can do, the fastest first. The last is always the portable one.
    pub fn available() -> Vec<Self> {
        let mut found: Vec<Self> = fletcher_simd::available()
            .into_iter()
            .map(|(name, sums)| Self { name, sums })
            .collect();
        found.push(Self {
            name: "portable",
            sums: portable,
        });
        found
    }

    /// The fastest, looked up once.
    pub fn fastest() -> Self {
        static FASTEST: OnceLock<Implementation> = OnceLock::new();
        *FASTEST.get_or_init(|| Self::available()[0])
    }

    /// The instructions it is named for.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// fletcher4 of a block. Bytes after the last whole word do not count.
    pub fn checksum(&self, block: &[u8], order: ByteOrder) -> Checksum {
        let mut sum = Fletcher4::new();
        sum.update_with(self, block, order);
        sum.finish()
    }
}

/// A fletcher4 under way: of a block in pieces, or of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fletcher4 {
    sums: [u64; 4],
    words: u64,
}

impl Fletcher4 {
    /// Starts with nothing.
    pub const fn new() -> Self {
        Self {
            sums: [0; 4],
            words: 0,
        }
    }

    /// Takes in more words of `order`. Bytes after the last whole word do not count, so only a last
    /// piece may have them.
    pub fn update(&mut self, bytes: &[u8], order: ByteOrder) {
        self.update_with(&Implementation::fastest(), bytes, order);
    }

    fn update_with(&mut self, implementation: &Implementation, bytes: &[u8], order: ByteOrder) {
        let (bulk, rest) = bytes.split_at(bytes.len() - bytes.len() % STRIDE_BYTES);
        if !bulk.is_empty() {
            let sums = (implementation.sums)(bulk, order);
            *self = self.then(&Self {
                sums,
                words: words_in(bulk),
            });
        }
        self.sums = continue_sums(self.sums, rest, order);
        self.words += words_in(rest);
    }

    /// The checksum of what this one has seen, followed by what `next` has seen.
    pub fn then(&self, next: &Self) -> Self {
        let n = next.words;
        let [a, b, c, d] = self.sums;
        let [next_a, next_b, next_c, next_d] = next.sums;
        let by_two = triangular(n);
        let by_three = tetrahedral(n);
        let times = u64::wrapping_mul;
        let total = |parts: &[u64]| parts.iter().copied().fold(0, u64::wrapping_add);
        Self {
            sums: [
                total(&[a, next_a]),
                total(&[b, times(n, a), next_b]),
                total(&[c, times(n, b), times(by_two, a), next_c]),
                total(&[d, times(n, c), times(by_two, b), times(by_three, a), next_d]),
            ],
            words: self.words.wrapping_add(n),
        }
    }

    /// The checksum so far.
    pub const fn finish(&self) -> Checksum {
        Checksum(self.sums)
    }

    /// Goes on from a checksum seen elsewhere, as a stream's records carry it. How many words went
    /// before it does not matter to what follows.
    pub const fn resume(checksum: Checksum) -> Self {
        Self {
            sums: checksum.0,
            words: 0,
        }
    }
}

/// fletcher4 of a block that lies in pieces; all but the last must be whole words.
pub fn fletcher4(pieces: &[&[u8]], order: ByteOrder) -> Checksum {
    let mut sum = Fletcher4::new();
    for piece in pieces {
        sum.update(piece, order);
    }
    sum.finish()
}

/// fletcher2 of a block that lies in pieces; all but the last must be multiples of 16 bytes, and
/// what follows the last such multiple does not count.
pub fn fletcher2(pieces: &[&[u8]], order: ByteOrder) -> Checksum {
    let [mut a, mut b, mut c, mut d] = [0_u64; 4];
    for piece in pieces {
        let (pairs, _) = piece.as_chunks::<16>();
        for pair in pairs {
            let (words, _) = pair.as_chunks::<8>();
            a = a.wrapping_add(order.read_u64(words[0]));
            b = b.wrapping_add(order.read_u64(words[1]));
            c = c.wrapping_add(a);
            d = d.wrapping_add(b);
        }
    }
    Checksum([a, b, c, d])
}

/// The definition, word by word.
fn portable(bytes: &[u8], order: ByteOrder) -> [u64; 4] {
    continue_sums([0; 4], bytes, order)
}

fn continue_sums(sums: [u64; 4], bytes: &[u8], order: ByteOrder) -> [u64; 4] {
    match order {
        ByteOrder::Little => sum_words(sums, bytes, u32::from_le_bytes),
        ByteOrder::Big => sum_words(sums, bytes, u32::from_be_bytes),
    }
}

#[inline(always)]
fn sum_words(sums: [u64; 4], bytes: &[u8], read: fn([u8; 4]) -> u32) -> [u64; 4] {
    let [mut a, mut b, mut c, mut d] = sums;
    let (words, _) = bytes.as_chunks::<4>();
    for word in words {
        a = a.wrapping_add(u64::from(read(*word)));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    [a, b, c, d]
}

/// The sums over all words, from those over each lane.
///
/// `lanes[s][j]` is sum `s` over the words `j`, `j + L`, `j + 2 L` and so on, `L` being the number
/// of lanes, which is even. The weight of a word is a polynomial in the number `m` of words left in
/// its lane; in terms of the lane's own weights (1, `m`, `m(m+1)/2`, `m(m+1)(m+2)/6`) it has these
/// factors, all of them whole:
///
/// ```text
///   b:   L * b[j]  -  j * a[j]
///   c:   L^2 * c[j]  -  ((L^2 - L)/2 + L j) * b[j]  +  j(j-1)/2 * a[j]
///   d:   L^3 * d[j]  -  (L^3 - L^2 + L^2 j) * c[j]
///          +  (L(L-1)(L-2)/6 + (L^2 - 2L)/2 j + L/2 j^2) * b[j]  -  j(j-1)(j-2)/6 * a[j]
/// ```
///
/// So it is enough to sum each over the lanes, plain and by powers of `j`.
// Into its callers, where it is compiled for their instructions: on small blocks it is half the
// work.
#[inline(always)]
pub(super) fn join_lanes<const LANES: usize>(lanes: &[[u64; LANES]; 4]) -> [u64; 4] {
    let [a, b, c, d] = lanes;
    let plain = weigh(a, |_| 1);
    let [a1, a2, a3] = [
        weigh(a, |j| j),
        weigh(a, |j| j * j.saturating_sub(1) / 2),
        weigh(a, |j| j * j.saturating_sub(1) * j.saturating_sub(2) / 6),
    ];
    let [b0, b1, b2] = [weigh(b, |_| 1), weigh(b, |j| j), weigh(b, |j| j * j)];
    let [c0, c1] = [weigh(c, |_| 1), weigh(c, |j| j)];
    let d0 = weigh(d, |_| 1);

    let l = u64::try_from(LANES).expect("a handful");
    let times = u64::wrapping_mul;
    let sum_b = times(l, b0).wrapping_sub(a1);
    let sum_c = times(l * l, c0)
        .wrapping_sub(times((l * l - l) / 2, b0))
        .wrapping_sub(times(l, b1))
        .wrapping_add(a2);
    let sum_d = times(l * l * l, d0)
        .wrapping_sub(times(l * l * l - l * l, c0))
        .wrapping_sub(times(l * l, c1))
        .wrapping_add(times(l * (l - 1) * (l - 2) / 6, b0))
        .wrapping_add(times((l * l - 2 * l) / 2, b1))
        .wrapping_add(times(l / 2, b2))
        .wrapping_sub(a3);
    [plain, sum_b, sum_c, sum_d]
}

#[inline(always)]
fn weigh<const LANES: usize>(lanes: &[u64; LANES], weight: impl Fn(u64) -> u64) -> u64 {
    let weighed = (0..)
        .zip(lanes)
        .map(|(j, lane)| lane.wrapping_mul(weight(j)));
    weighed.fold(0, u64::wrapping_add)
}

fn words_in(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len() / 4).expect("a length fits 64 bits")
}

/// `n(n+1)/2`, wrapping only after the division.
const fn triangular(n: u64) -> u64 {
    if n.is_multiple_of(2) {
        (n / 2).wrapping_mul(n + 1)
    } else {
        n.wrapping_mul(n.div_ceil(2))
    }
}

/// `n(n+1)(n+2)/6`, wrapping only after the division.
const fn tetrahedral(n: u64) -> u64 {
    // One of three neighbours divides by three; the product of the others with what is left of it
    // is still even, so one of the factors is.
    let mut factors = [n, n + 1, n + 2];
    let mut index = 0;
    while index < 3 {
        if factors[index].is_multiple_of(3) {
            factors[index] /= 3;
            break;
        }
        index += 1;
    }
    let mut index = 0;
    while index < 3 {
        if factors[index].is_multiple_of(2) {
            factors[index] /= 2;
            break;
        }
        index += 1;
    }
    factors[0].wrapping_mul(factors[1]).wrapping_mul(factors[2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    #[test]
    fn small_blocks_give_sums_done_by_hand() {
        let bytes = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        assert_eq!(
            fletcher4(&[&bytes], ByteOrder::Little),
            Checksum([6, 10, 15, 21])
        );
        let mut pairs = [0; 32];
        pairs[0] = 1;
        pairs[8] = 2;
        pairs[16] = 3;
        pairs[24] = 4;
        assert_eq!(
            fletcher2(&[&pairs], ByteOrder::Little),
            Checksum([4, 6, 5, 8])
        );
    }

    #[test]
    fn swapped_words_in_the_other_order_sum_alike() {
        let block: Vec<u8> = (0..=255).cycle().take(4096).collect();
        let fours: Vec<u8> = block
            .chunks(4)
            .flat_map(|word| word.iter().rev().copied())
            .collect();
        let eights: Vec<u8> = block
            .chunks(8)
            .flat_map(|word| word.iter().rev().copied())
            .collect();
        assert_eq!(
            fletcher4(&[&block], ByteOrder::Little),
            fletcher4(&[&fours], ByteOrder::Big)
        );
        assert_eq!(
            fletcher2(&[&block], ByteOrder::Little),
            fletcher2(&[&eights], ByteOrder::Big)
        );
    }

    #[test]
    fn the_largest_block_of_ones_wraps_alike_everywhere() {
        let block = vec![0xff; 16 << 20];
        let expected = Checksum(portable(&block, ByteOrder::Little));
        for implementation in Implementation::available() {
            let sum = implementation.checksum(&block, ByteOrder::Little);
            assert_eq!(sum, expected, "{}", implementation.name());
        }
    }

    proptest! {
        #[test]
        fn every_implementation_gives_what_the_portable_one_does(
            block in proptest::collection::vec(any::<u8>(), 0..5000),
        ) {
            for order in ORDERS {
                let expected = Checksum(portable(&block, order));
                for implementation in Implementation::available() {
                    prop_assert_eq!(
                        implementation.checksum(&block, order), expected, "{}", implementation.name()
                    );
                }
            }
        }

        #[test]
        fn a_checksum_continues_where_another_ends(
            block in proptest::collection::vec(any::<u8>(), 0..3000), cut in 0_usize..3000,
        ) {
            let cut = cut.min(block.len()) / 4 * 4;
            let (head, tail) = block.split_at(cut);
            for order in ORDERS {
                let whole = fletcher4(&[&block], order);
                let mut first = Fletcher4::new();
                first.update(head, order);
                let mut second = Fletcher4::new();
                second.update(tail, order);
                prop_assert_eq!(first.then(&second).finish(), whole);
                let mut resumed = Fletcher4::resume(first.finish());
                resumed.update(tail, order);
                prop_assert_eq!(resumed.finish(), whole);
            }
        }
    }
}
