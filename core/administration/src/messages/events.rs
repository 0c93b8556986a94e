//! Requests and replies of `zpool events`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `zpool events`: events behind a number, at most some hundred.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListEvents {
    /// Events with larger numbers are asked for; 0 for all.
    #[serde(default)]
    pub after: u64,
    /// `-f`: wait some seconds for one where there is none.
    #[serde(default)]
    pub wait: bool,
}

/// Reply to [`ListEvents`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// In their order. Empty where there are no more.
    pub events: Vec<EventRecord>,
    /// How many behind the number were dropped before they were asked for.
    #[serde(default)]
    pub dropped: u64,
}

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventRecord {
    /// Its number.
    pub id: u64,
    /// Its values, in their order.
    pub values: Vec<EventPair>,
}

/// A named value of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPair {
    /// Its name.
    pub name: String,
    /// The value.
    pub value: EventValue,
}

/// A value of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "value")]
pub enum EventValue {
    /// True or false.
    Flag(bool),
    /// A number. A negative one is its complement on two within the bits of its type.
    Number(u64),
    /// Numbers.
    Numbers(Vec<u64>),
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// A list.
    #[schema(no_recursion)]
    List(Vec<EventPair>),
    /// A value of a type that events do not have.
    Unknown,
}

/// `zpool events -c`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearEvents {}

/// Reply to [`ClearEvents`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventsCleared {
    /// How many there were.
    pub count: u64,
}
