//! `x | ...`
mod lists;
mod numbers;
mod texts;

use super::arguments::Given;
use super::attributes::{attribute, item, loop_length};
use super::fault::{fault, Outcome};
use super::json::tojson;
use super::machine::Machine;
use super::text::text_of;
use super::value::{Text, Value};

const NAMES: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "items",
    "map",
    "min",
    "max",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
    "tojson",
];

pub fn exists(name: &str) -> bool {
    NAMES.contains(&name)
}

pub fn call(machine: &Machine, name: &str, value: &Value, given: &Given) -> Outcome<Value> {
    match name {
        "tojson" => tojson(value, given),
        "length" | "count" => {
            given.places::<0>(name)?;
            match value {
                Value::Loop(state) => Ok(Value::Int(loop_length(machine, state)?)),
                other => Ok(Value::Int(other.len()? as i128)),
            }
        }
        "default" | "d" => {
            let [default, boolean] = given.bind(name, ["default_value", "boolean"])?;
            let missing = value.is_undefined() || (boolean.is_some_and(|boolean| boolean.is_true()) && !value.is_true());
            Ok(if missing { default.unwrap_or_else(|| Value::text("")) } else { value.clone() })
        }
        "attr" => {
            let [wanted] = given.bind(name, ["name"])?;
            match (wanted, value) {
                // The attribute alone counts, not an item of that name.
                (Some(Value::Text(wanted)), Value::Dict(dict)) if dict.get_text(&wanted.text).is_some() => {
                    match attribute(machine, value, &wanted.text)? {
                        method @ Value::Method(..) => Ok(method),
                        _ => Ok(Value::undefined(format!("a dict has no attribute '{}'", wanted.text))),
                    }
                }
                (Some(Value::Text(wanted)), _) => attribute(machine, value, &wanted.text),
                _ => Err(fault("attr needs the name of an attribute")),
            }
        }
        "abs" | "int" | "float" | "round" | "filesizeformat" => numbers::call(name, value, given),
        "batch" | "slice" | "first" | "last" | "list" | "items" | "dictsort" | "groupby" | "map" | "min" | "max" | "reject"
        | "rejectattr" | "reverse" | "select" | "selectattr" | "sort" | "sum" | "unique" | "join" => {
            lists::call(machine, name, value, given)
        }
        "pprint" | "random" | "urlize" | "wordwrap" => Err(fault(format!("the filter {name} is not supported"))),
        other if exists(other) => texts::call(machine, name, value, given),
        _ => Err(fault(format!("there is no filter named {name}"))),
    }
}

/// The value as a text, still safe if it was.
fn soft_text(value: &Value) -> Outcome<Text> {
    text_of(value)
}

/// The parts of 'a.b.0': names and numbers.
fn attribute_parts(wanted: &Value) -> Vec<Value> {
    match wanted {
        Value::None => Vec::new(),
        Value::Text(text) => text
            .text
            .split('.')
            .map(|part| {
                let digits = !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
                part.parse().ok().filter(|_| digits).map_or_else(|| Value::text(part), Value::Int)
            })
            .collect(),
        other => vec![other.clone()],
    }
}

/// An item's attribute by such parts.
fn attribute_of(machine: &Machine, value: &Value, parts: &[Value], default: Option<&Value>) -> Outcome<Value> {
    let mut found = value.clone();
    for part in parts {
        found = item(machine, &found, part)?;
        if let (true, Some(default)) = (found.is_undefined(), default) {
            found = default.clone();
        }
    }
    Ok(found)
}
