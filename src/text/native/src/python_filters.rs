//! Filters, tests and printing where Jinja2 does otherwise than minijinja.
use crate::python_json::{python_float, tojson};
use crate::python_methods::pad;
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{escape_formatter, Environment, Error, ErrorKind, Output, State};

fn is_float(value: &Value) -> bool {
    value.kind() == ValueKind::Number && !value.is_integer()
}

/// str(value) of Python: floats are where the two differ.
fn python_text(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(number) if is_float(value) => python_float(number),
        _ => value.to_string(),
    }
}

fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if is_float(value) {
        return out.write_str(&python_text(value)).map_err(Error::from);
    }
    escape_formatter(out, state, value)
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("a {} has no length", value.kind())))
}

fn replace(value: &Value, from: &str, to: &str, count: Option<usize>) -> String {
    let text = python_text(value);
    count.map_or_else(|| text.replace(from, to), |count| text.replacen(from, to, count))
}

fn int(value: Value, default: Option<Value>, base: Option<u32>) -> Value {
    let parsed = match value.as_str() {
        Some(text) => {
            let text = text.trim();
            let whole = i128::from_str_radix(&text.replace('_', ""), base.unwrap_or(10).clamp(2, 36)).ok();
            whole.or_else(|| text.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number as i128))
        }
        None if value.kind() == ValueKind::Bool => Some(i128::from(value.is_true())),
        None if is_float(&value) => f64::try_from(value).ok().filter(|number| number.is_finite()).map(|number| number as i128),
        None => i128::try_from(value).ok(),
    };
    match parsed {
        Some(number) => i64::try_from(number).map_or_else(|_| Value::from(number), Value::from),
        None => default.unwrap_or_else(|| Value::from(0)),
    }
}

fn float(value: Value, default: Option<Value>) -> Value {
    let parsed = match value.as_str() {
        Some(text) => text.trim().parse::<f64>().ok(),
        None => f64::try_from(value).ok(),
    };
    parsed.map_or_else(|| default.unwrap_or_else(|| Value::from(0.0)), Value::from)
}

fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::String)
}

fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.is_undefined()
}

pub fn add_to(environment: &mut Environment) {
    environment.set_formatter(print);
    environment.add_filter("tojson", tojson);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("replace", replace);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_filter("string", |value: &Value| python_text(value));
    environment.add_filter("center", |text: &str, width: Option<usize>| pad(text, width.unwrap_or(80), None, true, true));
    environment.add_filter("wordcount", |text: &str| {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count()
    });
    environment.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    // Strings can be iterated, and a mapping has a length and items.
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
}
