//! Python's dict: keys keep their order, and 1, 1.0 and true are one key.
use super::budget;
use super::fault::{fault, Outcome};
use super::value::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// What a key is to a dict: 1, 1.0 and true are one key.
#[derive(PartialEq, Eq, Hash, Clone)]
pub enum Key {
    None,
    Int(i128),
    Float(u64),
    Text(Arc<str>),
    Tuple(Vec<Key>),
    Undefined,
}

pub fn key_of(value: &Value) -> Outcome<Key> {
    Ok(match value {
        Value::None => Key::None,
        Value::Bool(value) => Key::Int(i128::from(*value)),
        Value::Int(value) => Key::Int(*value),
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 1e30 => Key::Int(*value as i128),
        Value::Float(value) => Key::Float(value.to_bits()),
        Value::Text(text) => Key::Text(text.text.clone()),
        Value::Tuple(tuple) => Key::Tuple(tuple.items.iter().map(key_of).collect::<Outcome<_>>()?),
        Value::Undefined(_) => Key::Undefined,
        other => return Err(fault(format!("a {} cannot be a key", other.kind()))),
    })
}

const LARGE: usize = 12; // from here on keys are found by their hash

/// A dict in the order in which its keys came.
#[derive(Default)]
pub struct Dict {
    entries: Vec<(Value, Value)>,
    hashed: HashMap<Key, usize>,
    pub(super) depth: u32,
    pub message: Option<u32>, // which message of the conversation this is
}

impl Dict {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &(Value, Value)> {
        self.entries.iter()
    }

    pub fn get_text(&self, name: &str) -> Option<&Value> {
        if self.entries.len() > LARGE {
            return self.hashed.get(&Key::Text(name.into())).map(|&at| &self.entries[at].1);
        }
        self.entries.iter().find(|(key, _)| matches!(key, Value::Text(text) if &*text.text == name)).map(|(_, value)| value)
    }

    pub fn get(&self, key: &Value) -> Outcome<Option<&Value>> {
        if let Value::Text(text) = key {
            return Ok(self.get_text(&text.text));
        }
        let wanted = key_of(key)?;
        if self.entries.len() > LARGE {
            return Ok(self.hashed.get(&wanted).map(|&at| &self.entries[at].1));
        }
        for (key, value) in &self.entries {
            if key_of(key)? == wanted {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// A key that is there keeps its place and its spelling.
    pub fn insert(&mut self, key: Value, value: Value) -> Outcome<()> {
        let wanted = key_of(&key)?;
        self.depth = self.depth.max(value.depth() + 1).max(key.depth() + 1);
        budget::nest(self.depth);
        if self.entries.len() > LARGE {
            if let Some(&at) = self.hashed.get(&wanted) {
                self.entries[at].1 = value;
                return Ok(());
            }
        } else {
            for (key, old) in &mut self.entries {
                if key_of(key)? == wanted {
                    *old = value;
                    return Ok(());
                }
            }
        }
        self.entries.push((key, value));
        if self.entries.len() == LARGE + 1 {
            for (at, (key, _)) in self.entries.iter().enumerate() {
                self.hashed.insert(key_of(key)?, at);
            }
        } else if self.entries.len() > LARGE {
            self.hashed.insert(wanted, self.entries.len() - 1);
        }
        Ok(())
    }

    pub fn copy(&self) -> Dict {
        Dict { entries: self.entries.clone(), hashed: self.hashed.clone(), depth: self.depth, message: None }
    }

    pub fn clear(&mut self) {
        *self = Dict::default();
    }
}
