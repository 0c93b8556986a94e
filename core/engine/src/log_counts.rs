//! What an intent log counted, as statistics have it.

use tarn_probe::Value;

/// Counters by their names.
pub(crate) fn counters(counted: Vec<(&'static str, u64)>) -> Vec<(String, Value)> {
    let named = |(name, count): (&str, u64)| (name.to_owned(), Value::Counter(count));
    counted.into_iter().map(named).collect()
}
