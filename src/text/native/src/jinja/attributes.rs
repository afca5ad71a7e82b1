//! a.b and a['b']: Python's attributes first, then items, or the other way round.
use super::fault::{fault, Outcome};
use super::machine::Machine;
use super::value::{Function, Loop, Value};
use std::rc::Rc;
use std::sync::Arc;

const TEXT: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
const SAFE_TEXT: &[&str] = &["escape", "striptags", "unescape"];
const DICT: &[&str] = &["copy", "fromkeys", "get", "items", "keys", "values"];
const LIST: &[&str] = &["copy", "count", "index"];
const TUPLE: &[&str] = &["count", "index"];
const VIEW: &[&str] = &["isdisjoint", "mapping"];
const INT: &[&str] = &["as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes"];
const FLOAT: &[&str] = &["as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"];
const LOOP: &[&str] = &["changed", "cycle"];
const CYCLER: &[&str] = &["next", "reset"];
// They would change the value, which the sandbox of transformers does not let a template do.
const CHANGES_DICT: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];
const CHANGES_LIST: &[&str] = &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];

enum Found {
    Value(Value),
    Method,
    Unsafe,
    Nothing,
}

fn in_list(list: &[&str], name: &str) -> Found {
    if list.contains(&name) {
        Found::Method
    } else {
        Found::Nothing
    }
}

fn own(machine: &Machine, value: &Value, name: &str) -> Outcome<Found> {
    Ok(match value {
        Value::Text(text) if text.safe && SAFE_TEXT.contains(&name) => Found::Method,
        Value::Text(_) => in_list(TEXT, name),
        Value::Dict(_) if CHANGES_DICT.contains(&name) => Found::Unsafe,
        Value::Dict(_) => in_list(DICT, name),
        Value::List(_) if CHANGES_LIST.contains(&name) => Found::Unsafe,
        Value::List(_) => in_list(LIST, name),
        Value::Tuple(tuple) if tuple.is_group && name == "grouper" => Found::Value(tuple.items[0].clone()),
        Value::Tuple(tuple) if tuple.is_group && name == "list" => Found::Value(tuple.items[1].clone()),
        Value::Tuple(_) => in_list(TUPLE, name),
        Value::Range(range) => match name {
            "start" => Found::Value(Value::Int(range.start)),
            "stop" => Found::Value(Value::Int(range.stop)),
            "step" => Found::Value(Value::Int(range.step)),
            _ => in_list(TUPLE, name),
        },
        Value::View(..) => in_list(VIEW, name),
        Value::Int(_) | Value::Bool(_) => match (name, value.as_int()) {
            ("real" | "numerator", Some(number)) => Found::Value(Value::Int(number)),
            ("imag", _) => Found::Value(Value::Int(0)),
            ("denominator", _) => Found::Value(Value::Int(1)),
            _ => in_list(INT, name),
        },
        Value::Float(number) => match name {
            "real" => Found::Value(Value::Float(*number)),
            "imag" => Found::Value(Value::Float(0.0)),
            _ => in_list(FLOAT, name),
        },
        Value::Namespace(attributes) => attributes.borrow().get_text(name).map_or(Found::Nothing, |found| Found::Value(found.clone())),
        Value::Loop(state) => loop_attribute(machine, state, name)?.map_or_else(|| in_list(LOOP, name), Found::Value),
        Value::Cycler(cycler) if name == "current" => Found::Value(cycler.0[cycler.1.get()].clone()),
        Value::Cycler(_) => in_list(CYCLER, name),
        Value::Macro(closure) => match name {
            "name" => Found::Value(Value::text(&closure.made.name)),
            "arguments" => Found::Value(Value::tuple(closure.made.parameters.iter().map(|(_, name, _)| Value::text(name)).collect())),
            "catch_kwargs" => Found::Value(Value::Bool(closure.made.reads_kwargs)),
            "catch_varargs" => Found::Value(Value::Bool(closure.made.reads_varargs)),
            "caller" => Found::Value(Value::Bool(closure.made.reads_caller)),
            _ => Found::Nothing,
        },
        Value::Function(Function::Dict) if name == "fromkeys" => Found::Method,
        Value::Iterator(_) if !matches!(name, "send" | "throw" | "close") && !name.starts_with("gi_") => Found::Nothing,
        Value::Joiner(_) | Value::Function(_) | Value::Method(..) | Value::Iterator(_) => {
            return Err(fault(format!("the attribute {name} of a {} is not supported", value.kind())));
        }
        Value::Undefined(_) | Value::None => Found::Nothing,
    })
}

pub fn loop_length(machine: &Machine, state: &Rc<Loop>) -> Outcome<i128> {
    if let Some(length) = state.length.get() {
        return Ok(length);
    }
    let looked_at = state.after.take();
    let mut rest = Vec::new();
    while let Some(item) = machine.next_item(state)? {
        rest.push(item);
    }
    let length = state.index0.get() + 1 + rest.len() as i128 + i128::from(looked_at.is_some());
    // The rest has passed the test: it is put back behind an item that was looked at already.
    state.passed(rest);
    state.after.replace(looked_at);
    state.length.set(Some(length));
    Ok(length)
}

fn peek(machine: &Machine, state: &Rc<Loop>) -> Outcome<Option<Value>> {
    let next = machine.next_item(state)?;
    state.after.replace(next.clone());
    Ok(next)
}

fn loop_attribute(machine: &Machine, state: &Rc<Loop>, name: &str) -> Outcome<Option<Value>> {
    let index0 = state.index0.get();
    Ok(Some(match name {
        "index" => Value::Int(index0 + 1),
        "index0" => Value::Int(index0),
        "first" => Value::Bool(index0 == 0),
        "depth" => Value::Int(state.depth0 + 1),
        "depth0" => Value::Int(state.depth0),
        "length" => Value::Int(loop_length(machine, state)?),
        "revindex" => Value::Int(loop_length(machine, state)? - index0),
        "revindex0" => Value::Int(loop_length(machine, state)? - index0 - 1),
        "last" => Value::Bool(peek(machine, state)?.is_none()),
        "nextitem" => peek(machine, state)?.unwrap_or_else(|| Value::undefined("there is no next item")),
        "previtem" => match (index0 == 0, &*state.before.borrow()) {
            (false, Some(before)) => before.clone(),
            _ => Value::undefined("there is no previous item"),
        },
        _ => return Ok(None),
    }))
}

fn missing(value: &Value, name: &str) -> Value {
    let of = if value.is_none() { "None".to_string() } else { format!("a {}", value.kind()) };
    Value::undefined(format!("{of} has no attribute '{name}'"))
}

fn finish(value: &Value, name: &str, found: Found) -> Option<Value> {
    match found {
        Found::Value(found) => Some(found),
        Found::Method => Some(Value::Method(Box::new(value.clone()), Arc::from(name))),
        Found::Unsafe => Some(Value::undefined(format!("{name} would change a {}, which a template may not do", value.kind()))),
        Found::Nothing => None,
    }
}

/// a.name
pub fn attribute(machine: &Machine, value: &Value, name: &str) -> Outcome<Value> {
    value.defined()?;
    if name.starts_with("__") {
        return Ok(Value::undefined(format!("the attribute {name} may not be used")));
    }
    if let Some(found) = finish(value, name, own(machine, value, name)?) {
        return Ok(found);
    }
    if let Value::Dict(dict) = value {
        if let Some(found) = dict.get_text(name) {
            return Ok(found.clone());
        }
    }
    Ok(missing(value, name))
}

/// a[key]
pub fn item(machine: &Machine, value: &Value, key: &Value) -> Outcome<Value> {
    let at = |length: usize| {
        let at = key.as_int()?;
        let at = if at < 0 { at + length as i128 } else { at };
        usize::try_from(at).ok().filter(|&at| at < length)
    };
    let found = match value.defined()? {
        Value::Dict(dict) => match dict.get(key) {
            Ok(found) => found.cloned(),
            Err(_) => None, // a key that cannot be one
        },
        Value::List(items) => at(items.len()).map(|at| items[at].clone()),
        Value::Tuple(tuple) => at(tuple.items.len()).map(|at| tuple.items[at].clone()),
        Value::Range(range) => at(range.len() as usize).map(|at| Value::Int(range.start + at as i128 * range.step)),
        Value::Text(text) if key.as_int().is_some() => at(text.text.chars().count()).and_then(|at| {
            let mut buffer = [0u8; 4];
            text.text.chars().nth(at).map(|c| Value::marked(c.encode_utf8(&mut buffer), text.safe))
        }),
        _ => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let Value::Text(name) = key else { return Ok(Value::undefined(format!("a {} has no such element", value.kind()))) };
    if name.text.starts_with("__") {
        return Ok(Value::undefined(format!("the attribute {} may not be used", name.text)));
    }
    Ok(finish(value, &name.text, own(machine, value, &name.text)?).unwrap_or_else(|| missing(value, &name.text)))
}
