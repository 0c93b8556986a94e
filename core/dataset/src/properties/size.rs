//! Sizes as users type them: `10G`, `1.5T`, `512`, `128KiB`.

/// Why a size was refused: the reason is OpenZFS's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSize {
    /// For people.
    pub reason: String,
}

/// The bytes that a size with an optional suffix names. Fractions need a suffix.
pub fn size(text: &str) -> Result<u64, BadSize> {
    let bad = |reason: &str| BadSize {
        reason: format!("{reason} '{text}'"),
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        return Err(bad("bad numeric value"));
    }
    let shift = shift_of(suffix).ok_or_else(|| BadSize {
        reason: format!("invalid numeric suffix '{suffix}'"),
    })?;
    if number.contains('.') {
        let value: f64 = number.parse().map_err(|_| bad("bad numeric value"))?;
        let bytes = value * (shift as f64).exp2();
        // The largest number that a double and 64 bits share.
        if !(0.0..18_446_744_073_709_549_568.0).contains(&bytes) {
            return Err(BadSize {
                reason: "numeric value is too large".to_string(),
            });
        }
        return Ok(bytes as u64);
    }
    let value: u64 = number.parse().map_err(|_| BadSize {
        reason: "numeric value is too large".to_string(),
    })?;
    value
        .checked_shl(shift)
        .filter(|bytes| bytes >> shift == value)
        .ok_or_else(|| BadSize {
            reason: "numeric value is too large".to_string(),
        })
}

/// The power of two that a suffix stands for: `K`, `KB`, `KiB`, in either case; `B` and nothing are
/// bytes.
fn shift_of(suffix: &str) -> Option<u32> {
    let lower = suffix.to_ascii_lowercase();
    let mut letters = lower.chars();
    let Some(first) = letters.next() else {
        return Some(0);
    };
    let rest = letters.as_str();
    if first == 'b' {
        return rest.is_empty().then_some(0);
    }
    let power = u32::try_from("kmgtpez".find(first)?).ok()? + 1;
    matches!(rest, "" | "b" | "ib").then_some(power * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("10g"), Ok(10 << 30));
        assert_eq!(size("1.5K"), Ok(1536));
        assert_eq!(size("4KiB"), Ok(4096));
        assert_eq!(size("0"), Ok(0));
    }

    #[test]
    fn what_is_no_size_is_refused_with_its_reason() {
        assert_eq!(size("abc").unwrap_err().reason, "bad numeric value 'abc'");
        assert_eq!(
            size("10q").unwrap_err().reason,
            "invalid numeric suffix 'q'"
        );
        assert_eq!(
            size("99999999999999999999").unwrap_err().reason,
            "numeric value is too large"
        );
        assert!(size("17E").is_err());
    }
}
