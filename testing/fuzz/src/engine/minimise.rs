//! Making what was found small, so that a person sees what it is.
//!
//! # Mechanism
//! Parts are taken away as long as it breaks in the same way, the largest first; then bytes become
//! zeros.

/// So often a finding is run at most.
const TRIES_MAX: usize = 20_000;

/// The smallest input found that `still_breaks`, which the one given does. At most `tries` are run.
pub fn minimise(
    input: &[u8],
    tries: usize,
    mut still_breaks: impl FnMut(&[u8]) -> bool,
) -> Vec<u8> {
    let mut best = input.to_vec();
    let mut left = tries.min(TRIES_MAX);
    let mut holds = |candidate: &[u8]| {
        let may = left > 0;
        left = left.saturating_sub(1);
        may && still_breaks(candidate)
    };
    let mut size = best.len().next_power_of_two();
    while size > 0 {
        let mut at = 0;
        while at < best.len() {
            let end = (at + size).min(best.len());
            let candidate = [&best[..at], &best[end..]].concat();
            if holds(&candidate) {
                best = candidate;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    let mut size = best.len().next_power_of_two();
    while size > 0 {
        for at in (0..best.len()).step_by(size) {
            let end = (at + size).min(best.len());
            if best[at..end].iter().all(|byte| *byte == 0) {
                continue;
            }
            let mut candidate = best.clone();
            candidate[at..end].fill(0);
            if holds(&candidate) {
                best = candidate;
            }
        }
        size /= 2;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_goes() {
        let input: Vec<u8> = (0..=255).collect();
        let breaks = |bytes: &[u8]| {
            let place = bytes.iter().position(|byte| *byte == 77);
            place.is_some_and(|place| bytes[place..].contains(&200))
        };
        assert_eq!(minimise(&input, 10_000, breaks), [77, 200]);
        assert_eq!(minimise(&input, 0, breaks), input);
    }
}
