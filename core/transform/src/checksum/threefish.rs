//! Threefish-512, the cipher under Skein: encryption of one block.
//!
//! # Mechanism
//! 72 rounds on eight words. A round mixes four pairs: add, rotate, exclusive or. Then the words
//! change places; instead of moving them, the pairs of each round are named where the words would
//! have come from, which repeats after four. Before every fourth round, and at the end, a part of
//! the key is added: nine words (the key, and a ninth that is their exclusive or with a constant)
//! and three of the tweak take turns.
//!
//! Written out here because Skein makes a new key of every block: the library's cipher, which
//! prepares all parts of a key before it begins, does little more than a third of the bytes in a
//! second.

/// Makes the ninth word of the key, so that a key of zeros is not one.
const KEY_PARITY: u64 = 0x1bd1_1bda_a9fc_1a22;

/// The places of the four pairs in each of four rounds.
const PAIRS: [[(usize, usize); 4]; 4] = [
    [(0, 1), (2, 3), (4, 5), (6, 7)],
    [(2, 1), (4, 7), (6, 5), (0, 3)],
    [(4, 1), (6, 3), (0, 5), (2, 7)],
    [(6, 1), (0, 7), (2, 5), (4, 3)],
];

/// How far each pair is rotated, in eight rounds that repeat.
const ROTATIONS: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];

/// Encrypts a block under a key and a tweak.
pub(super) fn encrypt(key: &[u64; 8], tweak: [u64; 2], block: &[u64; 8]) -> [u64; 8] {
    let mut keys = [0; 9];
    keys[..8].copy_from_slice(key);
    keys[8] = key.iter().fold(KEY_PARITY, |parity, word| parity ^ word);
    let tweaks = [tweak[0], tweak[1], tweak[0] ^ tweak[1]];
    let mut words = *block;

    // Nine turns of eight rounds, each with two additions of the key, named by constants so that
    // the compiler keeps all words in registers.
    macro_rules! turns {
        ($($turn:literal)*) => {
            $(
                add_key::<{ 2 * $turn }>(&mut words, &keys, &tweaks);
                four_rounds::<0>(&mut words);
                add_key::<{ 2 * $turn + 1 }>(&mut words, &keys, &tweaks);
                four_rounds::<4>(&mut words);
            )*
        };
    }
    turns!(0 1 2 3 4 5 6 7 8);
    add_key::<18>(&mut words, &keys, &tweaks);
    words
}

#[inline(always)]
fn add_key<const PART: usize>(words: &mut [u64; 8], keys: &[u64; 9], tweaks: &[u64; 3]) {
    for (place, word) in words.iter_mut().enumerate() {
        *word = word.wrapping_add(keys[(PART + place) % 9]);
    }
    words[5] = words[5].wrapping_add(tweaks[PART % 3]);
    words[6] = words[6].wrapping_add(tweaks[(PART + 1) % 3]);
    words[7] = words[7].wrapping_add(u64::try_from(PART).expect("at most 18"));
}

#[inline(always)]
fn four_rounds<const FIRST: usize>(words: &mut [u64; 8]) {
    for round in 0..4 {
        for pair in 0..4 {
            let (a, b) = PAIRS[round][pair];
            words[a] = words[a].wrapping_add(words[b]);
            words[b] = words[b].rotate_left(ROTATIONS[FIRST + round][pair]) ^ words[a];
        }
    }
}
