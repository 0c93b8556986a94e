//! A name-value list in memory: ordered pairs, looked up by name and type.
//!
//! # Mechanism
//! Pairs keep the order in which they were added, for the order is stored. Setting a name that is
//! there removes the old pair and appends the new one, as OpenZFS does, so that a list built in
//! the same way encodes to the same bytes.
//!
//! Lookups go through the pairs one by one: lists are short, and the few long ones (the snapshots
//! of a replication stream) are walked, not searched.

use super::DEPTH_MAX;
use crate::declare::{Corrupt, Reader, widen};
use std::collections::BTreeSet;
use std::fmt;

/// Names occur once.
#[doc(alias = "NV_UNIQUE_NAME")]
const UNIQUE_NAME: u32 = 1;
/// A name occurs once for each type.
#[doc(alias = "NV_UNIQUE_NAME_TYPE")]
const UNIQUE_NAME_AND_TYPE: u32 = 2;

/// A string as C has it: bytes without a zero among them. Usually UTF-8, but paths and attribute
/// names may be anything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text(Vec<u8>);

impl Text {
    /// The bytes, without the final zero.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, where it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// How many bytes it has, without the final zero.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Up to the first zero byte, as C would read it.
impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Text {
        let length = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(bytes.len());
        Text(bytes[..length].to_vec())
    }
}

/// Up to the first zero byte, as C would read it.
impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::from(text.as_bytes())
    }
}

/// Up to the first zero byte, as C would read it.
impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::from(text.as_bytes())
    }
}

/// Up to the first zero byte, as C would read it.
impl From<&String> for Text {
    fn from(text: &String) -> Text {
        Text::from(text.as_bytes())
    }
}

impl From<&Text> for Text {
    fn from(text: &Text) -> Text {
        text.clone()
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

/// Declares the types of values: their stored numbers and their names in errors.
macro_rules! types {
    ($($(#[$attribute:meta])* $name:ident = $number:literal $label:literal,)*) => {
        /// The type of a value.
        #[doc(alias = "data_type_t")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum NvType {
            $($(#[$attribute])* $name,)*
        }

        impl NvType {
            /// The type with this stored number.
            pub fn from_number(number: u32) -> Option<NvType> {
                match number {
                    $($number => Some(NvType::$name),)*
                    _ => None,
                }
            }

            /// The number that stands for the type on disk.
            pub const fn number(self) -> u32 {
                match self {
                    $(NvType::$name => $number,)*
                }
            }
        }

        impl fmt::Display for NvType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(NvType::$name => $label,)*
                })
            }
        }
    };
}

types! {
    /// A name without a value.
    Boolean = 1 "flag",
    /// A byte.
    Byte = 2 "byte",
    /// A number.
    Int16 = 3 "int16",
    /// A number.
    Uint16 = 4 "uint16",
    /// A number.
    Int32 = 5 "int32",
    /// A number.
    Uint32 = 6 "uint32",
    /// A number.
    Int64 = 7 "int64",
    /// A number.
    Uint64 = 8 "uint64",
    /// A string.
    String = 9 "string",
    /// Bytes.
    ByteArray = 10 "array of bytes",
    /// Numbers.
    Int16Array = 11 "array of int16",
    /// Numbers.
    Uint16Array = 12 "array of uint16",
    /// Numbers.
    Int32Array = 13 "array of int32",
    /// Numbers.
    Uint32Array = 14 "array of uint32",
    /// Numbers.
    Int64Array = 15 "array of int64",
    /// Numbers.
    Uint64Array = 16 "array of uint64",
    /// Strings.
    StringArray = 17 "array of strings",
    /// A time in nanoseconds.
    Hrtime = 18 "time",
    /// A list.
    List = 19 "list",
    /// Lists.
    Lists = 20 "array of lists",
    /// True or false.
    BooleanValue = 21 "boolean",
    /// A number.
    Int8 = 22 "int8",
    /// A number.
    Uint8 = 23 "uint8",
    /// Truths.
    BooleanArray = 24 "array of booleans",
    /// Numbers.
    Int8Array = 25 "array of int8",
    /// Numbers.
    Uint8Array = 26 "array of uint8",
    /// A number with a fraction. Kernels do not know it, so it is never in a pool.
    Double = 27 "double",
}

impl NvType {
    /// The type of the pair that `reader` is in.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<NvType, Corrupt> {
        let number = reader.u32()?;
        NvType::from_number(number).ok_or_else(|| reader.bad_value("type", 4, u64::from(number)))
    }

    /// Refuses an element count that the type cannot have.
    pub(super) fn check_count(self, count: usize, reader: &Reader<'_>) -> Result<(), Corrupt> {
        let fits = match self {
            NvType::Boolean => count == 0,
            _ if NvValue::empty_array(self).is_some() => true,
            _ => count == 1,
        };
        if fits {
            Ok(())
        } else {
            Err(reader.bad_value("element count", 4, widen(count)))
        }
    }
}

/// A number with a fraction, as it is stored: two are equal when their bits are, so that also a
/// number that is none is equal to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvDouble(u64);

impl NvDouble {
    /// The number with these bits, as IEEE 754 has them.
    pub(crate) fn from_bits(bits: u64) -> NvDouble {
        NvDouble(bits)
    }

    /// The bits of the number.
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }
}

impl From<f64> for NvDouble {
    fn from(number: f64) -> NvDouble {
        NvDouble(number.to_bits())
    }
}

impl From<NvDouble> for f64 {
    fn from(number: NvDouble) -> f64 {
        f64::from_bits(number.0)
    }
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NvValue {
    /// No value: that the name is there says all.
    Boolean,
    /// A byte.
    Byte(u8),
    /// A number.
    Int8(i8),
    /// A number.
    Uint8(u8),
    /// A number.
    Int16(i16),
    /// A number.
    Uint16(u16),
    /// A number.
    Int32(i32),
    /// A number.
    Uint32(u32),
    /// A number.
    Int64(i64),
    /// A number.
    Uint64(u64),
    /// A time in nanoseconds.
    Hrtime(i64),
    /// A number with a fraction.
    Double(NvDouble),
    /// True or false.
    BooleanValue(bool),
    /// A string.
    String(Text),
    /// A list.
    List(NvList),
    /// Bytes.
    ByteArray(Vec<u8>),
    /// Numbers.
    Int8Array(Vec<i8>),
    /// Numbers.
    Uint8Array(Vec<u8>),
    /// Numbers.
    Int16Array(Vec<i16>),
    /// Numbers.
    Uint16Array(Vec<u16>),
    /// Numbers.
    Int32Array(Vec<i32>),
    /// Numbers.
    Uint32Array(Vec<u32>),
    /// Numbers.
    Int64Array(Vec<i64>),
    /// Numbers.
    Uint64Array(Vec<u64>),
    /// Truths.
    BooleanArray(Vec<bool>),
    /// Strings.
    StringArray(Vec<Text>),
    /// Lists.
    Lists(Vec<NvList>),
}

impl NvValue {
    /// The type.
    pub fn kind(&self) -> NvType {
        match self {
            NvValue::Boolean => NvType::Boolean,
            NvValue::Byte(_) => NvType::Byte,
            NvValue::Int8(_) => NvType::Int8,
            NvValue::Uint8(_) => NvType::Uint8,
            NvValue::Int16(_) => NvType::Int16,
            NvValue::Uint16(_) => NvType::Uint16,
            NvValue::Int32(_) => NvType::Int32,
            NvValue::Uint32(_) => NvType::Uint32,
            NvValue::Int64(_) => NvType::Int64,
            NvValue::Uint64(_) => NvType::Uint64,
            NvValue::Hrtime(_) => NvType::Hrtime,
            NvValue::Double(_) => NvType::Double,
            NvValue::BooleanValue(_) => NvType::BooleanValue,
            NvValue::String(_) => NvType::String,
            NvValue::List(_) => NvType::List,
            NvValue::ByteArray(_) => NvType::ByteArray,
            NvValue::Int8Array(_) => NvType::Int8Array,
            NvValue::Uint8Array(_) => NvType::Uint8Array,
            NvValue::Int16Array(_) => NvType::Int16Array,
            NvValue::Uint16Array(_) => NvType::Uint16Array,
            NvValue::Int32Array(_) => NvType::Int32Array,
            NvValue::Uint32Array(_) => NvType::Uint32Array,
            NvValue::Int64Array(_) => NvType::Int64Array,
            NvValue::Uint64Array(_) => NvType::Uint64Array,
            NvValue::BooleanArray(_) => NvType::BooleanArray,
            NvValue::StringArray(_) => NvType::StringArray,
            NvValue::Lists(_) => NvType::Lists,
        }
    }

    /// The element count as it is stored: 0 for a flag, 1 for what is not an array.
    pub(super) fn count(&self) -> usize {
        match self {
            NvValue::Boolean => 0,
            NvValue::ByteArray(items) | NvValue::Uint8Array(items) => items.len(),
            NvValue::Int8Array(items) => items.len(),
            NvValue::Int16Array(items) => items.len(),
            NvValue::Uint16Array(items) => items.len(),
            NvValue::Int32Array(items) => items.len(),
            NvValue::Uint32Array(items) => items.len(),
            NvValue::Int64Array(items) => items.len(),
            NvValue::Uint64Array(items) => items.len(),
            NvValue::BooleanArray(items) => items.len(),
            NvValue::StringArray(items) => items.len(),
            NvValue::Lists(items) => items.len(),
            _ => 1,
        }
    }

    /// The array of this type without elements; `None` where the type is not an array.
    pub(super) fn empty_array(kind: NvType) -> Option<NvValue> {
        Some(match kind {
            NvType::ByteArray => NvValue::ByteArray(Vec::new()),
            NvType::Int8Array => NvValue::Int8Array(Vec::new()),
            NvType::Uint8Array => NvValue::Uint8Array(Vec::new()),
            NvType::Int16Array => NvValue::Int16Array(Vec::new()),
            NvType::Uint16Array => NvValue::Uint16Array(Vec::new()),
            NvType::Int32Array => NvValue::Int32Array(Vec::new()),
            NvType::Uint32Array => NvValue::Uint32Array(Vec::new()),
            NvType::Int64Array => NvValue::Int64Array(Vec::new()),
            NvType::Uint64Array => NvValue::Uint64Array(Vec::new()),
            NvType::BooleanArray => NvValue::BooleanArray(Vec::new()),
            NvType::StringArray => NvValue::StringArray(Vec::new()),
            NvType::Lists => NvValue::Lists(Vec::new()),
            _ => return None,
        })
    }

    /// The lists directly within this value.
    pub(super) fn lists_within(&self) -> &[NvList] {
        match self {
            NvValue::List(list) => std::slice::from_ref(list),
            NvValue::Lists(lists) => lists,
            _ => &[],
        }
    }
}

/// Converts into a value, for [`NvList::set`] and [`NvList::with`].
macro_rules! value_from {
    ($($type:ty => |$value:ident| $made:expr,)*) => {
        $(impl From<$type> for NvValue {
            fn from($value: $type) -> NvValue {
                $made
            }
        })*
    };
}

value_from! {
    u64 => |number| NvValue::Uint64(number),
    i64 => |number| NvValue::Int64(number),
    u32 => |number| NvValue::Uint32(number),
    i32 => |number| NvValue::Int32(number),
    bool => |truth| NvValue::BooleanValue(truth),
    &str => |text| NvValue::String(Text::from(text)),
    String => |text| NvValue::String(Text::from(text)),
    &String => |text| NvValue::String(Text::from(text)),
    Text => |text| NvValue::String(text),
    NvList => |list| NvValue::List(list),
    Vec<u64> => |numbers| NvValue::Uint64Array(numbers),
    Vec<Text> => |texts| NvValue::StringArray(texts),
    Vec<&str> => |texts| NvValue::StringArray(texts.into_iter().map(Text::from).collect()),
    Vec<String> => |texts| NvValue::StringArray(texts.into_iter().map(Text::from).collect()),
    Vec<NvList> => |lists| NvValue::Lists(lists),
}

/// Why a list does not answer a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvError {
    /// The name is not there.
    #[error("the list has no '{name}'")]
    Missing {
        /// The name that was asked for.
        name: Text,
    },
    /// The name is there, with a value of another type.
    #[error("'{name}' in the list is of type {found}, not {expected}")]
    OtherType {
        /// The name that was asked for.
        name: Text,
        /// The type that was asked for.
        expected: NvType,
        /// The type that it has.
        found: NvType,
    },
    /// The string is there, and is not UTF-8.
    #[error("'{name}' in the list is not text")]
    NotText {
        /// The name that was asked for.
        name: Text,
    },
}

/// A list of names with values.
#[doc(alias = "nvlist_t")]
#[derive(Clone, PartialEq, Eq)]
pub struct NvList {
    flags: u32,
    pairs: Vec<(Text, NvValue)>,
}

impl Default for NvList {
    fn default() -> Self {
        NvList::new()
    }
}

impl NvList {
    /// An empty list in which every name occurs once, as nearly all do.
    pub const fn new() -> NvList {
        NvList {
            flags: UNIQUE_NAME,
            pairs: Vec::new(),
        }
    }

    /// An empty list in which names may occur again.
    pub const fn with_duplicates() -> NvList {
        NvList {
            flags: 0,
            pairs: Vec::new(),
        }
    }

    /// The same list with one more pair.
    #[must_use]
    pub fn with(mut self, name: impl Into<Text>, value: impl Into<NvValue>) -> NvList {
        self.set(name, value);
        self
    }

    /// Adds a pair at the end, in place of those it may not stand beside.
    pub fn set(&mut self, name: impl Into<Text>, value: impl Into<NvValue>) {
        let (name, value) = (name.into(), value.into());
        if self.flags & UNIQUE_NAME != 0 {
            self.pairs.retain(|(other, _)| *other != name);
        } else if self.flags & UNIQUE_NAME_AND_TYPE != 0 {
            self.pairs
                .retain(|(other, old)| *other != name || old.kind() != value.kind());
        }
        self.pairs.push((name, value));
    }

    /// Adds a name without a value.
    pub fn set_flag(&mut self, name: impl Into<Text>) {
        self.set(name, NvValue::Boolean);
    }

    /// Removes all pairs of this name. True when there were any.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let before = self.pairs.len();
        self.pairs
            .retain(|(other, _)| other.as_bytes() != name.as_ref());
        self.pairs.len() < before
    }

    /// The first value of this name.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&NvValue> {
        let is_it = |pair: &&(Text, NvValue)| pair.0.as_bytes() == name.as_ref();
        self.pairs.iter().find(is_it).map(|(_, value)| value)
    }

    /// The first value of this name, to be changed in place.
    pub fn get_mut(&mut self, name: impl AsRef<[u8]>) -> Option<&mut NvValue> {
        let is_it = |pair: &&mut (Text, NvValue)| pair.0.as_bytes() == name.as_ref();
        self.pairs.iter_mut().find(is_it).map(|(_, value)| value)
    }

    /// True when the name is there, whatever its value.
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// The pairs, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Text, &NvValue)> {
        self.pairs.iter().map(|(name, value)| (name, value))
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// True without pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The list with its stored flags, from pairs that were decoded.
    pub(super) fn from_decoded(
        flags: u32,
        pairs: Vec<(Text, NvValue)>,
        reader: &Reader<'_>,
    ) -> Result<NvList, Corrupt> {
        let is_unique = if flags & UNIQUE_NAME != 0 {
            let mut seen = BTreeSet::new();
            pairs.iter().all(|(name, _)| seen.insert(name))
        } else if flags & UNIQUE_NAME_AND_TYPE != 0 {
            let mut seen = BTreeSet::new();
            pairs
                .iter()
                .all(|(name, value)| seen.insert((name, value.kind())))
        } else {
            true
        };
        if !is_unique {
            return Err(reader.inconsistent("a name occurs twice in a list of unique names"));
        }
        Ok(NvList { flags, pairs })
    }

    /// The stored flags.
    pub(super) fn flags(&self) -> u32 {
        self.flags
    }

    /// How many lists lie within each other below this one.
    pub(super) fn depth(&self) -> usize {
        let inner = self
            .pairs
            .iter()
            .flat_map(|(_, value)| value.lists_within());
        inner.map(|list| 1 + list.depth()).max().unwrap_or(0)
    }
}

/// Declares the typed accessors: one that wants the value, and one that does without it.
macro_rules! accessors {
    ($($(#[$attribute:meta])* $name:ident, $optional:ident: $variant:ident($value:ident)
        => $type:ty { $made:expr })*) => {
        impl NvList {
            $(
                $(#[$attribute])*
                pub fn $name(&self, name: impl AsRef<[u8]>) -> Result<$type, NvError> {
                    self.$optional(name.as_ref())?.ok_or_else(|| missing(name.as_ref()))
                }

                $(#[$attribute])*
                /// `None` when the name is not there; a value of another type is an error still.
                pub fn $optional(
                    &self,
                    name: impl AsRef<[u8]>,
                ) -> Result<Option<$type>, NvError> {
                    match self.get(name.as_ref()) {
                        None => Ok(None),
                        Some(NvValue::$variant($value)) => Ok(Some($made)),
                        Some(other) => Err(other_type(name.as_ref(), NvType::$variant, other)),
                    }
                }
            )*
        }
    };
}

accessors! {
    /// The number of this name.
    u64, optional_u64: Uint64(number) => u64 { *number }
    /// The number of this name.
    i64, optional_i64: Int64(number) => i64 { *number }
    /// The number of this name.
    u32, optional_u32: Uint32(number) => u32 { *number }
    /// The number of this name.
    i32, optional_i32: Int32(number) => i32 { *number }
    /// The truth of this name.
    boolean, optional_boolean: BooleanValue(truth) => bool { *truth }
    /// The string of this name, which may be any bytes.
    text, optional_text: String(text) => &Text { text }
    /// The list of this name.
    list, optional_list: List(list) => &NvList { list }
    /// The lists of this name.
    lists, optional_lists: Lists(lists) => &[NvList] { lists }
    /// The numbers of this name.
    u64s, optional_u64s: Uint64Array(numbers) => &[u64] { numbers }
    /// The strings of this name.
    texts, optional_texts: StringArray(texts) => &[Text] { texts }
    /// The bytes of this name.
    bytes, optional_bytes: ByteArray(bytes) => &[u8] { bytes }
    /// The bytes of this name, stored as numbers of eight bits.
    u8s, optional_u8s: Uint8Array(bytes) => &[u8] { bytes }
}

impl NvList {
    /// The string of this name, which must be UTF-8.
    pub fn string(&self, name: impl AsRef<[u8]>) -> Result<&str, NvError> {
        self.optional_string(name.as_ref())?
            .ok_or_else(|| missing(name.as_ref()))
    }

    /// The string of this name, which must be UTF-8; `None` when the name is not there.
    pub fn optional_string(&self, name: impl AsRef<[u8]>) -> Result<Option<&str>, NvError> {
        let Some(text) = self.optional_text(name.as_ref())? else {
            return Ok(None);
        };
        match text.as_str() {
            Some(text) => Ok(Some(text)),
            None => Err(NvError::NotText {
                name: Text::from(name.as_ref()),
            }),
        }
    }

    /// True when the name is there as a flag: a name without a value.
    pub fn flag(&self, name: impl AsRef<[u8]>) -> bool {
        matches!(self.get(name), Some(NvValue::Boolean))
    }

    /// The list of this name, to be changed in place.
    pub fn list_mut(&mut self, name: impl AsRef<[u8]>) -> Result<&mut NvList, NvError> {
        match self.get_mut(name.as_ref()) {
            None => Err(missing(name.as_ref())),
            Some(NvValue::List(list)) => Ok(list),
            Some(other) => Err(other_type(name.as_ref(), NvType::List, other)),
        }
    }

    /// The lists of this name, to be changed in place.
    pub fn lists_mut(&mut self, name: impl AsRef<[u8]>) -> Result<&mut Vec<NvList>, NvError> {
        match self.get_mut(name.as_ref()) {
            None => Err(missing(name.as_ref())),
            Some(NvValue::Lists(lists)) => Ok(lists),
            Some(other) => Err(other_type(name.as_ref(), NvType::Lists, other)),
        }
    }

    /// The list as `zdb` prints it, each line moved in by `indent` spaces.
    pub fn indented(&self, indent: usize) -> impl fmt::Display + '_ {
        Indented { list: self, indent }
    }
}

fn missing(name: &[u8]) -> NvError {
    NvError::Missing {
        name: Text::from(name),
    }
}

fn other_type(name: &[u8], expected: NvType, found: &NvValue) -> NvError {
    NvError::OtherType {
        name: Text::from(name),
        expected,
        found: found.kind(),
    }
}

/// Refuses a list inside `depth` others when that is too deep.
pub(super) fn check_depth(depth: usize, reader: &Reader<'_>) -> Result<(), Corrupt> {
    if depth < DEPTH_MAX {
        return Ok(());
    }
    Err(Corrupt::Unsupported {
        what: reader.what(),
        offset: widen(reader.position()),
        which: "a list nested this deep",
    })
}

impl fmt::Display for NvList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.indented(0))
    }
}

impl fmt::Debug for NvList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

struct Indented<'a> {
    list: &'a NvList,
    indent: usize,
}

impl fmt::Display for Indented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.list.iter() {
            self.pair(f, name, value)?;
        }
        Ok(())
    }
}

impl Indented<'_> {
    /// One line for a value, one for each element of an array, and lists below their name.
    fn pair(&self, f: &mut fmt::Formatter<'_>, name: &Text, value: &NvValue) -> fmt::Result {
        let indent = self.indent;
        match value {
            NvValue::Boolean => writeln!(f, "{:indent$}{name}", ""),
            NvValue::Byte(number) | NvValue::Uint8(number) => self.line(f, name, number),
            NvValue::Int8(number) => self.line(f, name, number),
            NvValue::Int16(number) => self.line(f, name, number),
            NvValue::Uint16(number) => self.line(f, name, number),
            NvValue::Int32(number) => self.line(f, name, number),
            NvValue::Uint32(number) => self.line(f, name, number),
            NvValue::Int64(number) => self.line(f, name, number),
            NvValue::Uint64(number) => self.line(f, name, number),
            NvValue::BooleanValue(truth) => self.line(f, name, truth),
            NvValue::String(text) => self.line(f, name, format_args!("'{text}'")),
            NvValue::Hrtime(_) | NvValue::Double(_) => {
                writeln!(f, "bad config type {} for {name}", value.kind().number())
            }
            NvValue::ByteArray(items) | NvValue::Uint8Array(items) => self.lines(f, name, items),
            NvValue::Int8Array(items) => self.lines(f, name, items),
            NvValue::Int16Array(items) => self.lines(f, name, items),
            NvValue::Uint16Array(items) => self.lines(f, name, items),
            NvValue::Int32Array(items) => self.lines(f, name, items),
            NvValue::Uint32Array(items) => self.lines(f, name, items),
            NvValue::Int64Array(items) => self.lines(f, name, items),
            NvValue::Uint64Array(items) => self.lines(f, name, items),
            NvValue::BooleanArray(items) => self.lines(f, name, items),
            NvValue::StringArray(items) => {
                self.lines(f, name, items.iter().map(|text| format!("'{text}'")))
            }
            NvValue::List(list) => {
                writeln!(f, "{:indent$}{name}:", "")?;
                write!(f, "{}", list.indented(indent + 4))
            }
            NvValue::Lists(lists) => {
                for (index, list) in lists.iter().enumerate() {
                    writeln!(f, "{:indent$}{name}[{index}]:", "")?;
                    write!(f, "{}", list.indented(indent + 4))?;
                }
                Ok(())
            }
        }
    }

    fn line(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &Text,
        value: impl fmt::Display,
    ) -> fmt::Result {
        let indent = self.indent;
        writeln!(f, "{:indent$}{name}: {value}", "")
    }

    fn lines<T: fmt::Display>(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &Text,
        values: impl IntoIterator<Item = T>,
    ) -> fmt::Result {
        let indent = self.indent;
        for (index, value) in values.into_iter().enumerate() {
            writeln!(f, "{:indent$}{name}[{index}]: {value}", "")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_has_no_answer_names_the_key() {
        let list = NvList::new().with("txg", "late");
        let missing = list.u64("version").expect_err("it is not there");
        assert_eq!(missing.to_string(), "the list has no 'version'");
        let other = list.u64("txg").expect_err("it is a string");
        assert_eq!(
            other.to_string(),
            "'txg' in the list is of type string, not uint64"
        );
        assert_eq!(list.optional_u64("version"), Ok(None));
        assert!(list.optional_u64("txg").is_err());
    }

    #[test]
    fn setting_a_name_again_moves_it_to_the_end() {
        let mut list = NvList::new().with("a", 1u64).with("b", 2u64);
        list.set("a", 3u64);
        let names: Vec<String> = list.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(list.u64("a"), Ok(3));
    }

    #[test]
    fn a_list_prints_as_zdb_prints_it() {
        let list = NvList::new()
            .with("version", 5000u64)
            .with("name", "tank")
            .with(
                "tree",
                NvList::new().with("children", vec![NvList::new().with("id", 0u64)]),
            )
            .with("org.zfs:flag", NvValue::Boolean)
            .with("numbers", vec![7u64, 8]);
        let expected = "    version: 5000\n    name: 'tank'\n    tree:\n        children[0]:\n            \
            id: 0\n    org.zfs:flag\n    numbers[0]: 7\n    numbers[1]: 8\n";
        assert_eq!(list.indented(4).to_string(), expected);
    }
}
