//! The field with 256 elements that RAID-Z counts in.
//!
//! # Mechanism
//! A byte stands for a polynomial of degree seven over bits: addition is exclusive or,
//! multiplication is that of polynomials, modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d). Two generates:
//! its powers run through all elements but zero, so that a product is a sum of logarithms.
//!
//! Vector instructions multiply by a constant in one of two ways, and both tables are here: by
//! looking up the two halves of each byte in sixteen products each (`NIBBLE_PRODUCTS`), or, because
//! multiplication by a constant is linear in the bits, by a matrix of bits (`BIT_MATRICES`).
//!
//! All tables are computed by the compiler.

/// The modulus without its highest bit.
const MODULUS: u8 = 0x1d;

/// Powers of two in the field, twice round, so that the sum of two logarithms needs no reduction.
static POWERS: [u8; 510] = powers();
/// The logarithm to base two of each element but zero.
static LOGARITHMS: [u8; 256] = logarithms();

/// For each element, its products with 0 to 15, then with 0, 16, 32 and so on to 240.
pub(super) static NIBBLE_PRODUCTS: [[u8; 32]; 256] = nibble_products();

/// For each element, the matrix that multiplies by it, as `vgf2p8affineqb` takes it: the last byte
/// has the bits of the operand whose sum is bit 0 of the product, the first byte those for bit 7.
pub(super) static BIT_MATRICES: [u64; 256] = bit_matrices();

/// The product of two elements.
pub fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let logarithm =
        usize::from(LOGARITHMS[usize::from(a)]) + usize::from(LOGARITHMS[usize::from(b)]);
    POWERS[logarithm]
}

/// The element whose product with this one is 1.
///
/// # Panics
/// For zero, which has none.
pub fn inverse(element: u8) -> u8 {
    assert_ne!(element, 0, "zero has no inverse");
    POWERS[255 - usize::from(LOGARITHMS[usize::from(element)])]
}

/// The product with two.
pub(super) const fn double(element: u8) -> u8 {
    let carry = if element & 0x80 == 0 { 0 } else { MODULUS };
    (element << 1) ^ carry
}

const fn powers() -> [u8; 510] {
    let mut table = [0; 510];
    let mut power = 1;
    let mut index = 0;
    while index < table.len() {
        table[index] = power;
        power = double(power);
        index += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut element = 0_usize;
    let mut byte = 0_u8;
    while element < table.len() {
        let mut index = 0;
        let mut logarithm = 0_u8;
        while index < 255 {
            if POWERS_FOR_TABLES[index] == byte {
                table[element] = logarithm;
            }
            logarithm = logarithm.wrapping_add(1);
            index += 1;
        }
        byte = byte.wrapping_add(1);
        element += 1;
    }
    table
}

/// Tables cannot read a `static` while they are made.
const POWERS_FOR_TABLES: [u8; 510] = powers();

/// Multiplies without tables: adds the doubles of `a` that the bits of `b` name.
const fn multiply_by_doubling(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut addend = a;
    let mut bits = b;
    while bits != 0 {
        if bits & 1 == 1 {
            product ^= addend;
        }
        addend = double(addend);
        bits >>= 1;
    }
    product
}

const fn nibble_products() -> [[u8; 32]; 256] {
    let mut tables = [[0; 32]; 256];
    let mut element = 0_u8;
    let mut index = 0;
    while index < tables.len() {
        let mut nibble = 0_u8;
        let mut place = 0;
        while place < 16 {
            tables[index][place] = multiply_by_doubling(element, nibble);
            tables[index][place + 16] = multiply_by_doubling(element, nibble << 4);
            nibble += 1;
            place += 1;
        }
        element = element.wrapping_add(1);
        index += 1;
    }
    tables
}

const fn bit_matrices() -> [u64; 256] {
    let mut matrices = [0; 256];
    let mut element = 0_u8;
    let mut index = 0;
    while index < matrices.len() {
        let mut rows = [0_u8; 8];
        let mut operand_bit = 0;
        while operand_bit < 8 {
            let product = multiply_by_doubling(element, 1 << operand_bit);
            let mut product_bit = 0;
            while product_bit < 8 {
                if product & (1 << product_bit) != 0 {
                    rows[7 - product_bit] |= 1 << operand_bit;
                }
                product_bit += 1;
            }
            operand_bit += 1;
        }
        matrices[index] = u64::from_le_bytes(rows);
        element = element.wrapping_add(1);
        index += 1;
    }
    matrices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_by_logarithms_are_those_by_doubling() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), multiply_by_doubling(a, b));
            }
        }
        assert_eq!(multiply(2, 0x80), 0x1d);
    }

    #[test]
    fn every_element_times_its_inverse_is_one() {
        for element in 1..=255 {
            assert_eq!(multiply(element, inverse(element)), 1);
        }
    }

    #[test]
    fn the_vector_tables_multiply() {
        for element in 0..=255_u8 {
            let table = NIBBLE_PRODUCTS[usize::from(element)];
            let rows = BIT_MATRICES[usize::from(element)].to_le_bytes();
            for byte in 0..=255_u8 {
                let expected = multiply(element, byte);
                let by_nibbles = table[usize::from(byte & 15)] ^ table[16 + usize::from(byte >> 4)];
                assert_eq!(by_nibbles, expected);
                let by_matrix = (0..8).fold(0, |product, bit| {
                    let row = rows[7 - bit] & byte;
                    product | (u8::from(row.count_ones() % 2 == 1) << bit)
                });
                assert_eq!(by_matrix, expected);
            }
        }
    }
}
