//! burn's enumerations.

use crate::Error;
use std::{fmt, str::FromStr};

/// A strategy: within a process the order of association, between processes how data moves.
///
/// ```
/// use tutti::AllReduceStrategy;
/// let strategy: AllReduceStrategy = "tree:2".parse()?;
/// assert_eq!(strategy, AllReduceStrategy::Tree(2));
/// assert_eq!(strategy.to_string(), "tree:2");
/// assert_eq!(strategy.to_json(), r#"{"Tree":2}"#);
/// assert_eq!(AllReduceStrategy::from_json(r#""Ring""#)?, AllReduceStrategy::Ring);
/// # Ok::<(), tutti::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllReduceStrategy {
    /// All send to one, which sends the result back.
    Centralized,
    /// Each peer of the tree has as many children, from 1.
    Tree(u32),
    /// The tensor goes round in chunks. Not for reduce and broadcast.
    Ring,
}

/// burn's type for a reduce.
pub type ReduceStrategy = AllReduceStrategy;
/// burn's type for a broadcast.
pub type BroadcastStrategy = AllReduceStrategy;

impl AllReduceStrategy {
    /// What serde writes for burn's enumeration: `"Centralized"`, `{"Tree":2}`, `"Ring"`.
    pub fn to_json(self) -> String {
        match self {
            Self::Centralized => r#""Centralized""#.to_string(),
            Self::Tree(arity) => format!(r#"{{"Tree":{arity}}}"#),
            Self::Ring => r#""Ring""#.to_string(),
        }
    }

    /// Reads what serde writes for burn's enumeration, with any blanks. InvalidConfig for another
    /// text, and for an arity that is not 1 to 2^32 - 1.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        match trimmed(text) {
            r#""Centralized""# => Ok(Self::Centralized),
            r#""Ring""# => Ok(Self::Ring),
            json => tree_of_json(json)
                .ok_or_else(|| refuse(text, r#""Centralized", {"Tree":N} with N from 1, "Ring""#)),
        }
    }
}

impl fmt::Display for AllReduceStrategy {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Centralized => to.write_str("centralized"),
            Self::Tree(arity) => write!(to, "tree:{arity}"),
            Self::Ring => to.write_str("ring"),
        }
    }
}

/// Reads "centralized", "tree:N" and "ring". InvalidConfig as for `from_json`.
impl FromStr for AllReduceStrategy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "centralized" => Ok(Self::Centralized),
            "ring" => Ok(Self::Ring),
            _ => text
                .strip_prefix("tree:")
                .and_then(tree_of)
                .ok_or_else(|| refuse(text, "centralized, tree:N with N from 1, ring")),
        }
    }
}

fn refuse(text: &str, choices: &str) -> Error {
    Error::invalid(&format!("InvalidConfig: {text:?} is none of {choices}"))
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(|c| matches!(c, ' ' | '\t' | '\n' | '\r'))
}

fn tree_of_json(text: &str) -> Option<AllReduceStrategy> {
    let (name, arity) = text.strip_prefix('{')?.strip_suffix('}')?.split_once(':')?;
    Some(trimmed(arity)).filter(|_| trimmed(name) == r#""Tree""#).and_then(tree_of)
}

/// The arity in digits alone, as JSON has them.
fn tree_of(arity: &str) -> Option<AllReduceStrategy> {
    let digits = arity.bytes().all(|c| c.is_ascii_digit()) && !arity.starts_with('0');
    arity.parse().ok().filter(|_| digits).map(AllReduceStrategy::Tree)
}

/// How the peers' tensors are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOperation {
    /// Integers wrap around.
    Sum,
    /// The sum divided by the number of peers that took part, of floats only.
    Mean,
}
