//! `x is ...`
use super::arguments::{needed, Given};
use super::ast::Comparison::*;
use super::fault::{fault, Outcome};
use super::machine::Machine;
use super::operators::{binary, compare};
use super::text::string_of;
use super::value::Value;
use super::{ast::Operator, filters, methods};
use std::rc::Rc;

const NAMES: &[&str] = &[
    "odd",
    "even",
    "divisibleby",
    "defined",
    "undefined",
    "filter",
    "test",
    "none",
    "boolean",
    "false",
    "true",
    "integer",
    "float",
    "lower",
    "upper",
    "string",
    "mapping",
    "number",
    "sequence",
    "iterable",
    "callable",
    "sameas",
    "escaped",
    "in",
    "==",
    "eq",
    "equalto",
    "!=",
    "ne",
    ">",
    "gt",
    "greaterthan",
    "ge",
    ">=",
    "<",
    "lt",
    "lessthan",
    "<=",
    "le",
];

fn rest_is(value: &Value, by: &Value, wanted: i128) -> Outcome<bool> {
    binary(Operator::Modulo, value.defined()?, by.defined()?)?.equals(&Value::Int(wanted))
}

pub fn exists(name: &str) -> bool {
    NAMES.contains(&name)
}

pub fn call(_machine: &Machine, name: &str, value: &Value, given: &Given) -> Outcome<bool> {
    let alone = |answer: bool| given.bind::<0>(name, []).map(|_| answer);
    let other = || {
        let [other] = given.bind(name, ["other"])?;
        needed(other, name, "other")
    };
    match name {
        "defined" => alone(!value.is_undefined()),
        "undefined" => alone(value.is_undefined()),
        "none" => alone(value.is_none()),
        "boolean" => alone(matches!(value, Value::Bool(_))),
        "true" => alone(matches!(value, Value::Bool(true))),
        "false" => alone(matches!(value, Value::Bool(false))),
        "integer" => alone(matches!(value, Value::Int(_))),
        "float" => alone(matches!(value, Value::Float(_))),
        "number" => alone(matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_))),
        "string" => alone(matches!(value, Value::Text(_))),
        "mapping" => alone(matches!(value, Value::Dict(_))),
        "sequence" => alone(matches!(
            value,
            Value::Undefined(_) | Value::Text(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Range(_)
        )),
        "iterable" => alone(value.is_iterable()),
        "callable" => alone(matches!(
            value,
            Value::Undefined(_) | Value::Macro(_) | Value::Function(_) | Value::Method(..) | Value::Loop(_) | Value::Joiner(_)
        )),
        "escaped" => alone(matches!(value, Value::Text(text) if text.safe)),
        "lower" => alone(methods::is_lower(&string_of(value)?)),
        "upper" => alone(methods::is_upper(&string_of(value)?)),
        "odd" => alone(rest_is(value, &Value::Int(2), 1)?),
        "even" => alone(rest_is(value, &Value::Int(2), 0)?),
        "divisibleby" => {
            let [by] = given.bind(name, ["num"])?;
            rest_is(value, &needed(by, name, "num")?, 0)
        }
        "filter" => alone(value.as_str().is_some_and(filters::exists)),
        "test" => alone(value.as_str().is_some_and(exists)),
        "sameas" => same(value, &other()?),
        "in" => {
            let [all] = given.bind(name, ["seq"])?;
            compare(In, value, &needed(all, name, "seq")?)
        }
        "==" | "eq" | "equalto" => compare(Equal, value, &other()?),
        "!=" | "ne" => compare(Unequal, value, &other()?),
        ">" | "gt" | "greaterthan" => compare(Greater, value, &other()?),
        ">=" | "ge" => compare(GreaterEqual, value, &other()?),
        "<" | "lt" | "lessthan" => compare(Less, value, &other()?),
        "<=" | "le" => compare(LessEqual, value, &other()?),
        _ => Err(fault(format!("there is no test named {name}"))),
    }
}

/// value is other
fn same(value: &Value, other: &Value) -> Outcome<bool> {
    Ok(match (value, other) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::List(a), Value::List(b)) => Rc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        (Value::None | Value::Bool(_), _) | (_, Value::None | Value::Bool(_)) => false,
        _ => return Err(fault(format!("sameas between a {} and a {} is not supported", value.kind(), other.kind()))),
    })
}
