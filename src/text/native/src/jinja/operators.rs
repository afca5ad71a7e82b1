//! Arithmetic, comparison, membership and slices as Python has them.
use super::ast::{Comparison, Operator};
use super::budget::spend;
use super::dict::key_of;
use super::fault::{fault, Outcome};
use super::format::percent;
use super::text::{escape, escaped};
use super::value::{Range, Text, Value, ViewOf};
use std::cmp::Ordering;

fn unsupported(sign: &str, a: &Value, b: &Value) -> super::fault::Fault {
    if let (Err(error), _) | (_, Err(error)) = (a.defined(), b.defined()) {
        return error;
    }
    fault(format!("{sign} is not possible between a {} and a {}", a.kind(), b.kind()))
}

fn too_large() -> super::fault::Fault {
    fault("a number is larger than is supported")
}

pub fn repeated(text: &str, count: i128) -> Outcome<String> {
    let count = usize::try_from(count.max(0)).map_err(|_| too_large())?;
    spend(text.len().saturating_mul(count))?;
    Ok(text.repeat(count))
}

fn repeated_list(items: &[Value], count: i128) -> Outcome<Vec<Value>> {
    let count = usize::try_from(count.max(0)).map_err(|_| too_large())?;
    spend(items.len().saturating_mul(count).saturating_mul(size_of::<Value>()))?;
    let mut result = Vec::with_capacity(items.len() * count);
    (0..count).for_each(|_| result.extend_from_slice(items));
    Ok(result)
}

/// a + b of texts: where one is safe, the other is escaped.
pub fn joined(a: &Text, b: &Text) -> Outcome<Value> {
    spend(a.text.len() + b.text.len())?;
    let safe = a.safe || b.safe;
    let part = |text: &Text| if safe && !text.safe { escape(&text.text) } else { text.text.to_string() };
    let mut result = part(a);
    result.push_str(&part(b));
    Ok(Value::marked(&result, safe))
}

fn extended(a: &[Value], b: &[Value]) -> Outcome<Vec<Value>> {
    spend((a.len() + b.len()) * size_of::<Value>())?;
    Ok(a.iter().chain(b).cloned().collect())
}

pub fn binary(operator: Operator, a: &Value, b: &Value) -> Outcome<Value> {
    match (operator, a, b) {
        (Operator::Add, Value::Text(a), Value::Text(b)) => joined(a, b),
        (Operator::Add, Value::List(a), Value::List(b)) => Ok(Value::list(extended(a, b)?)),
        (Operator::Add, Value::Tuple(a), Value::Tuple(b)) => Ok(Value::tuple(extended(&a.items, &b.items)?)),
        (Operator::Multiply, Value::Text(text), count) | (Operator::Multiply, count, Value::Text(text)) if count.as_int().is_some() => {
            Ok(Value::marked(&repeated(&text.text, count.as_int().unwrap_or(0))?, text.safe))
        }
        (Operator::Multiply, Value::List(items), count) | (Operator::Multiply, count, Value::List(items)) if count.as_int().is_some() => {
            Ok(Value::list(repeated_list(items, count.as_int().unwrap_or(0))?))
        }
        (Operator::Multiply, Value::Tuple(tuple), count) | (Operator::Multiply, count, Value::Tuple(tuple)) if count.as_int().is_some() => {
            Ok(Value::tuple(repeated_list(&tuple.items, count.as_int().unwrap_or(0))?))
        }
        (Operator::Modulo, Value::Text(text), values) => percent(text, values),
        _ => match (a.as_int(), b.as_int(), a.as_number(), b.as_number()) {
            (Some(a), Some(b), _, _) => whole(operator, a, b),
            (_, _, Some(a), Some(b)) => fractional(operator, a, b),
            _ => Err(unsupported(sign_of(operator), a, b)),
        },
    }
}

fn sign_of(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::FloorDivide => "//",
        Operator::Modulo => "%",
        Operator::Power => "**",
    }
}

fn whole(operator: Operator, a: i128, b: i128) -> Outcome<Value> {
    let by_zero = || fault("division by zero");
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide if b == 0 => return Err(by_zero()),
        Operator::Divide => return Ok(Value::Float(a as f64 / b as f64)),
        Operator::FloorDivide | Operator::Modulo if b == 0 => return Err(by_zero()),
        Operator::FloorDivide => a.checked_div_euclid(b).and_then(|quotient| {
            let rest = a.checked_rem_euclid(b)?;
            quotient.checked_sub(i128::from(b < 0 && rest != 0))
        }),
        Operator::Modulo => a.checked_rem_euclid(b).map(|rest| if b < 0 && rest != 0 { rest + b } else { rest }),
        Operator::Power if b < 0 => return fractional(operator, a as f64, b as f64),
        Operator::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    result.map(Value::Int).ok_or_else(too_large)
}

fn fractional(operator: Operator, a: f64, b: f64) -> Outcome<Value> {
    let modulo = |a: f64, b: f64| {
        let rest = a % b;
        if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
            rest + b
        } else if rest == 0.0 {
            0.0f64.copysign(b)
        } else {
            rest
        }
    };
    Ok(Value::Float(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide | Operator::FloorDivide | Operator::Modulo if b == 0.0 => return Err(fault("division by zero")),
        Operator::Divide => a / b,
        Operator::Modulo => modulo(a, b),
        Operator::FloorDivide => {
            let quotient = (a - modulo(a, b)) / b;
            let floor = quotient.floor();
            if quotient == 0.0 {
                0.0f64.copysign(a / b)
            } else if quotient - floor > 0.5 {
                floor + 1.0
            } else {
                floor
            }
        }
        Operator::Power => {
            let power = a.powf(b);
            if (a == 0.0 && b < 0.0)
                || (power.is_nan() && !a.is_nan() && !b.is_nan())
                || (power.is_infinite() && a.is_finite() && b.is_finite())
            {
                return Err(fault("this power is no number"));
            }
            power
        }
    }))
}

pub fn negative(value: &Value) -> Outcome<Value> {
    match value {
        Value::Float(number) => Ok(Value::Float(-number)),
        other => match other.defined()?.as_int() {
            Some(number) => number.checked_neg().map(Value::Int).ok_or_else(too_large),
            None => Err(fault(format!("a {} has no negative", value.kind()))),
        },
    }
}

pub fn positive(value: &Value) -> Outcome<Value> {
    match value.defined()? {
        Value::Float(number) => Ok(Value::Float(*number)),
        other => other.as_int().map(Value::Int).ok_or_else(|| fault(format!("+ is not possible for a {}", value.kind()))),
    }
}

pub fn compare(comparison: Comparison, a: &Value, b: &Value) -> Outcome<bool> {
    Ok(match comparison {
        Comparison::Equal => a.equals(b)?,
        Comparison::Unequal => !a.equals(b)?,
        Comparison::Less => a.order(b)? == Some(Ordering::Less),
        Comparison::LessEqual => matches!(a.order(b)?, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => a.order(b)? == Some(Ordering::Greater),
        Comparison::GreaterEqual => matches!(a.order(b)?, Some(Ordering::Greater | Ordering::Equal)),
        Comparison::In => contains(b, a)?,
        Comparison::NotIn => !contains(b, a)?,
    })
}

fn contains(all: &Value, wanted: &Value) -> Outcome<bool> {
    match all {
        Value::Text(text) => match wanted.as_str() {
            Some(part) => Ok(text.text.contains(part)),
            None => Err(fault(format!("a {} cannot be looked for in a text", wanted.kind()))),
        },
        Value::Dict(dict) | Value::View(ViewOf::Keys, dict) => {
            key_of(wanted)?;
            Ok(dict.get(wanted)?.is_some())
        }
        Value::Iterator(items) => {
            // A generator is read as far as the item is found.
            loop {
                let Some(next) = items.borrow_mut().pop_front() else { return Ok(false) };
                if next.equals(wanted)? {
                    return Ok(true);
                }
            }
        }
        Value::List(items) => any_equal(items, wanted),
        Value::Tuple(tuple) => any_equal(&tuple.items, wanted),
        other => any_equal(&other.items()?, wanted),
    }
}

fn any_equal(items: &[Value], wanted: &Value) -> Outcome<bool> {
    for item in items {
        if item.equals(wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The places that a slice takes: start, stop and step of Python's slice.indices.
fn indices(bounds: &[Value; 3], length: i128) -> Outcome<(i128, i128, i128)> {
    let number = |value: &Value| value.as_int();
    let step = number(&bounds[2]).unwrap_or(1);
    if step == 0 {
        return Err(fault("a slice's step cannot be 0"));
    }
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let place = |bound: Option<i128>, missing: i128| match bound {
        None => missing,
        Some(at) if at < 0 => at.saturating_add(length).max(low),
        Some(at) => at.min(high),
    };
    let start = place(number(&bounds[0]), if step > 0 { low } else { high });
    let stop = place(number(&bounds[1]), if step > 0 { high } else { low });
    Ok((start, stop, step))
}

pub fn slice(value: &Value, bounds: &[Value; 3]) -> Outcome<Value> {
    let taken = |length: usize| -> Outcome<Vec<usize>> {
        let (start, stop, step) = indices(bounds, length as i128)?;
        let range = Range { start, stop, step };
        Ok((0..range.len()).map(|i| (start + i * step) as usize).collect())
    };
    if let Some(wrong) = bounds.iter().find(|bound| !bound.is_none() && bound.as_int().is_none()) {
        return Err(fault(format!("a slice has whole numbers as bounds, not a {}", wrong.kind())));
    }
    match value.defined()? {
        Value::Text(text) => {
            spend(text.text.len())?;
            let letters: Vec<char> = text.text.chars().collect();
            let kept: String = taken(letters.len())?.into_iter().map(|at| letters[at]).collect();
            Ok(Value::marked(&kept, text.safe))
        }
        Value::List(items) => Ok(Value::list(taken(items.len())?.into_iter().map(|at| items[at].clone()).collect())),
        Value::Tuple(tuple) => Ok(Value::tuple(taken(tuple.items.len())?.into_iter().map(|at| tuple.items[at].clone()).collect())),
        Value::Range(range) => {
            let (start, stop, step) = indices(bounds, range.len())?;
            let step = range.step.checked_mul(step).ok_or_else(too_large)?;
            Ok(Value::Range(Range { start: range.start + start * range.step, stop: range.start + stop * range.step, step }))
        }
        other => Err(fault(format!("a {} cannot be sliced", other.kind()))),
    }
}

/// What joins texts: escaped where the separator is safe.
pub fn join_texts(separator: &Text, items: &[Value], strict: bool) -> Outcome<Value> {
    let mut result = String::new();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            result.push_str(&separator.text);
        }
        if strict && item.as_str().is_none() {
            return Err(fault(format!("join: item {index} is a {}, not a text", item.kind())));
        }
        let part = if separator.safe { escaped(item)? } else { super::text::string_of(item)? };
        spend(part.len() + separator.text.len())?;
        result.push_str(&part);
    }
    Ok(Value::marked(&result, separator.safe))
}
