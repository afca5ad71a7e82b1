//! Which values are equal, and which comes first.
use super::dict::Dict;
use super::fault::{fault, Outcome};
use super::value::{Value, ViewOf};
use std::cmp::Ordering;
use std::rc::Rc;

impl Value {
    /// value == other
    pub fn equals(&self, other: &Value) -> Outcome<bool> {
        Ok(match (self, other) {
            (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
            (Value::Text(a), Value::Text(b)) => a.text == b.text,
            (Value::List(a), Value::List(b)) => Rc::ptr_eq(a, b) || all_equal(a, b)?,
            (Value::Tuple(a), Value::Tuple(b)) => all_equal(&a.items, &b.items)?,
            (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b) || dicts_equal(a, b)?,
            (Value::View(one, a), Value::View(other, b)) if one == other && *one != ViewOf::Values => dicts_equal(a, b)?,
            (Value::Range(a), Value::Range(b)) => {
                a.len() == b.len() && (a.len() == 0 || (a.start == b.start && (a.len() == 1 || a.step == b.step)))
            }
            (Value::Float(_), _) | (_, Value::Float(_)) => match (self.as_number(), other.as_number()) {
                (Some(a), Some(b)) => a == b,
                _ => false,
            },
            (Value::Iterator(a), Value::Iterator(b)) => Rc::ptr_eq(a, b),
            (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
            (Value::Function(a), Value::Function(b)) => a == b,
            (Value::Macro(a), Value::Macro(b)) => Rc::ptr_eq(a, b),
            _ => match (self.as_int(), other.as_int()) {
                (Some(a), Some(b)) => a == b,
                _ => false,
            },
        })
    }

    /// Which comes first, where Python knows an order. None: not a number is neither before nor behind.
    pub fn order(&self, other: &Value) -> Outcome<Option<Ordering>> {
        self.defined()?;
        other.defined()?;
        match (self, other) {
            (Value::Text(a), Value::Text(b)) => Ok(Some(a.text.cmp(&b.text))),
            (Value::List(a), Value::List(b)) => lists_order(a, b),
            (Value::Tuple(a), Value::Tuple(b)) => lists_order(&a.items, &b.items),
            _ => match (self.as_int(), other.as_int()) {
                (Some(a), Some(b)) => Ok(Some(a.cmp(&b))),
                _ => match (self.as_number(), other.as_number()) {
                    (Some(a), Some(b)) => Ok(a.partial_cmp(&b)),
                    _ => Err(fault(format!("a {} and a {} have no order", self.kind(), other.kind()))),
                },
            },
        }
    }
}

fn all_equal(a: &[Value], b: &[Value]) -> Outcome<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (one, other) in a.iter().zip(b) {
        if !one.equals(other)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn dicts_equal(a: &Dict, b: &Dict) -> Outcome<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, value) in a.iter() {
        match b.get(key)? {
            Some(other) if value.equals(other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn lists_order(a: &[Value], b: &[Value]) -> Outcome<Option<Ordering>> {
    for (one, other) in a.iter().zip(b) {
        if !one.equals(other)? {
            return one.order(other);
        }
    }
    Ok(Some(a.len().cmp(&b.len())))
}
