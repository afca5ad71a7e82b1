//! Arguments of a call, once their values are known.
use super::fault::{fault, Outcome};
use super::value::Value;
use std::sync::Arc;

#[derive(Default, Clone)]
pub struct Given {
    pub positional: Vec<Value>,
    pub named: Vec<(Arc<str>, Value)>,
}

impl Given {
    /// The arguments by the names of the parameters; what is not given is None.
    pub fn bind<const N: usize>(&self, function: &str, names: [&str; N]) -> Outcome<[Option<Value>; N]> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            return Err(fault(format!("{function} takes at most {N} arguments, not {}", self.positional.len())));
        }
        for (slot, value) in bound.iter_mut().zip(&self.positional) {
            *slot = Some(value.clone());
        }
        for (name, value) in &self.named {
            match names.iter().position(|known| *known == &**name) {
                Some(at) if bound[at].is_none() => bound[at] = Some(value.clone()),
                Some(_) => return Err(fault(format!("{function} gets its argument {name} twice"))),
                None => return Err(fault(format!("{function} has no argument {name}"))),
            }
        }
        Ok(bound)
    }

    /// The same for functions of Python that know their arguments by their places alone.
    pub fn places<const N: usize>(&self, function: &str) -> Outcome<[Option<Value>; N]> {
        if let Some((name, _)) = self.named.first() {
            return Err(fault(format!("{function} has no argument {name}")));
        }
        self.bind(function, [""; N])
    }
}

/// The argument, which must be there.
pub fn needed(value: Option<Value>, function: &str, name: &str) -> Outcome<Value> {
    value.ok_or_else(|| fault(format!("{function} needs its argument {name}")))
}

pub fn int_argument(value: &Value, function: &str, name: &str) -> Outcome<i128> {
    value.defined()?.as_int().ok_or_else(|| fault(format!("{function}: {name} must be an int, not a {}", value.kind())))
}

pub fn text_argument<'a>(value: &'a Value, function: &str, name: &str) -> Outcome<&'a str> {
    value.as_str().ok_or_else(|| fault(format!("{function}: {name} must be a text, not a {}", value.kind())))
}
