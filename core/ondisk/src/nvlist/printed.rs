//! Lists as OpenZFS's `nvlist_print` prints them, for `zstream dump`.

use super::{NvList, NvValue, VERSION};
use std::fmt;

impl NvList {
    /// The list as `nvlist_print` prints it.
    #[doc(alias = "nvlist_print")]
    pub fn printed(&self) -> impl fmt::Display + '_ {
        Printed {
            list: self,
            depth: 0,
        }
    }
}

struct Printed<'a> {
    list: &'a NvList,
    depth: usize,
}

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}nvlist version: {VERSION}", Tabs(self.depth))?;
        let tabs = Tabs(self.depth + 1);
        for (name, value) in self.list.iter() {
            match value {
                NvValue::List(list) => {
                    writeln!(f, "{tabs}{name} = (embedded nvlist)")?;
                    self.inner(f, list)?;
                    writeln!(f, "{tabs}(end {name})")?;
                }
                NvValue::Lists(lists) => {
                    writeln!(f, "{tabs}{name} = (array of embedded nvlists)")?;
                    for (index, list) in lists.iter().enumerate() {
                        writeln!(f, "{tabs}(start {name}[{index}])")?;
                        self.inner(f, list)?;
                        writeln!(f, "{tabs}(end {name}[{index}])")?;
                    }
                }
                plain => write!(f, "{tabs}{name} = {}", Plain(plain))?,
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Printed<'_> {
    fn inner(&self, f: &mut fmt::Formatter<'_>, list: &NvList) -> fmt::Result {
        let depth = self.depth + 1;
        write!(f, "{}", Printed { list, depth })
    }
}

struct Tabs(usize);

impl fmt::Display for Tabs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.0).try_for_each(|_| f.write_str("\t"))
    }
}

/// A value without lists in it.
struct Plain<'a>(&'a NvValue);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NvValue::Boolean => f.write_str("1"),
            NvValue::BooleanValue(value) => write!(f, "{}", u8::from(*value)),
            NvValue::Byte(value) => write!(f, "0x{value:02x}"),
            NvValue::Int8(value) => write!(f, "{value}"),
            NvValue::Int16(value) => write!(f, "{value}"),
            NvValue::Int32(value) => write!(f, "{value}"),
            NvValue::Int64(value) => write!(f, "{value}"),
            NvValue::Uint8(value) => write!(f, "{value:#x}"),
            NvValue::Uint16(value) => write!(f, "{value:#x}"),
            NvValue::Uint32(value) => write!(f, "{value:#x}"),
            NvValue::Uint64(value) => write!(f, "{value:#x}"),
            NvValue::Hrtime(value) => write!(f, "{value:#x}"),
            NvValue::Double(value) => write!(f, "0x{:.6}", f64::from(*value)),
            NvValue::String(text) => write!(f, "{text}"),
            NvValue::ByteArray(values) => each(f, values, |value| format!("0x{value:02x}")),
            NvValue::Int8Array(values) => each(f, values, i8::to_string),
            NvValue::Int16Array(values) => each(f, values, i16::to_string),
            NvValue::Int32Array(values) => each(f, values, i32::to_string),
            NvValue::Int64Array(values) => each(f, values, i64::to_string),
            NvValue::Uint8Array(values) => each(f, values, |value| format!("{value:#x}")),
            NvValue::Uint16Array(values) => each(f, values, |value| format!("{value:#x}")),
            NvValue::Uint32Array(values) => each(f, values, |value| format!("{value:#x}")),
            NvValue::Uint64Array(values) => each(f, values, |value| format!("{value:#x}")),
            NvValue::BooleanArray(values) => each(f, values, |value| u8::from(*value).to_string()),
            NvValue::StringArray(values) => each(f, values, |text| text.to_string()),
            NvValue::List(_) | NvValue::Lists(_) => Ok(()),
        }
    }
}

/// The values of an array, with spaces between them.
fn each<T>(f: &mut fmt::Formatter<'_>, values: &[T], show: impl Fn(&T) -> String) -> fmt::Result {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            f.write_str(" ")?;
        }
        f.write_str(&show(value))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_in_lists_are_moved_in() {
        let inner = NvList::new().with("number", 10u64);
        let list = NvList::new()
            .with("name", "tank")
            .with("inner", inner)
            .with("words", vec![1u64, 255]);
        let mut list = list;
        list.set_flag("flag");
        let expected = "nvlist version: 0\n\tname = tank\n\tinner = (embedded nvlist)\n\
                        \tnvlist version: 0\n\t\tnumber = 0xa\n\t(end inner)\n\n\
                        \twords = 0x1 0xff\n\tflag = 1\n";
        assert_eq!(list.printed().to_string(), expected);
    }
}
