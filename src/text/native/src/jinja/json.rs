//! json.dumps as Python writes it: its separators, its floats, no HTML escapes.
use super::arguments::Given;
use super::dict::Dict;
use super::fault::{fault, Outcome};
use super::operators::repeated;
use super::text::float_text;
use super::value::Value;
use std::fmt::Write;

struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

fn write_string(text: &str, style: &Style, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => write!(out, "\\u{:04x}", c as u32).unwrap(),
            c if style.ensure_ascii && (c as u32) > 0x7e => {
                let mut units = [0u16; 2];
                for unit in c.encode_utf16(&mut units) {
                    write!(out, "\\u{unit:04x}").unwrap();
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn new_line(style: &Style, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        (0..depth).for_each(|_| out.push_str(indent));
    }
}

fn float_json(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    float_text(value)
}

fn key_text(key: &Value) -> Outcome<String> {
    Ok(match key {
        Value::Text(text) => text.text.to_string(),
        Value::Bool(value) => (if *value { "true" } else { "false" }).into(),
        Value::None => "null".into(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => float_json(*value),
        other => return Err(fault(format!("tojson: a {} cannot be a key", other.kind()))),
    })
}

fn write_list(items: &[Value], style: &Style, depth: usize, out: &mut String) -> Outcome<()> {
    if items.is_empty() {
        out.push_str("[]");
        return Ok(());
    }
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item);
        }
        new_line(style, depth + 1, out);
        write_value(item, style, depth + 1, out)?;
    }
    new_line(style, depth, out);
    out.push(']');
    Ok(())
}

/// Python sorts the keys themselves, before they become texts.
fn sorted(dict: &Dict) -> Outcome<Vec<&(Value, Value)>> {
    let mut entries: Vec<_> = dict.iter().collect();
    let mut failed = None;
    entries.sort_by(|a, b| match a.0.order(&b.0) {
        Ok(order) => order.unwrap_or(std::cmp::Ordering::Equal),
        Err(error) => {
            failed = Some(error);
            std::cmp::Ordering::Equal
        }
    });
    failed.map_or(Ok(entries), Err)
}

fn write_map(dict: &Dict, style: &Style, depth: usize, out: &mut String) -> Outcome<()> {
    if dict.len() == 0 {
        out.push_str("{}");
        return Ok(());
    }
    let entries = if style.sort_keys { sorted(dict)? } else { dict.iter().collect() };
    out.push('{');
    for (index, (key, item)) in entries.into_iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item);
        }
        new_line(style, depth + 1, out);
        write_string(&key_text(key)?, style, out);
        out.push_str(&style.key);
        write_value(item, style, depth + 1, out)?;
    }
    new_line(style, depth, out);
    out.push('}');
    Ok(())
}

fn write_value(value: &Value, style: &Style, depth: usize, out: &mut String) -> Outcome<()> {
    if depth > 200 {
        return Err(fault("tojson: the value is nested deeper than 200 levels"));
    }
    match value {
        Value::None => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => write!(out, "{value}").unwrap(),
        Value::Float(value) => out.push_str(&float_json(*value)),
        Value::Text(text) => write_string(&text.text, style, out),
        Value::List(items) => write_list(items, style, depth, out)?,
        Value::Tuple(tuple) => write_list(&tuple.items, style, depth, out)?,
        Value::Dict(dict) => write_map(dict, style, depth, out)?,
        Value::Undefined(reason) => return Err(fault(format!("tojson: {reason}"))),
        other => return Err(fault(format!("tojson: a {} is not JSON", other.kind()))),
    }
    Ok(())
}

fn separators(given: &Value, indented: bool) -> Outcome<(String, String)> {
    if given.is_none() {
        return Ok((if indented { ",".into() } else { ", ".into() }, ": ".into()));
    }
    let parts = given.items()?;
    match (parts.first().and_then(Value::as_str), parts.get(1).and_then(Value::as_str), parts.len()) {
        (Some(item), Some(key), 2) => Ok((item.into(), key.into())),
        _ => Err(fault("tojson: separators is a pair of texts")),
    }
}

/// The filter `tojson` with the arguments that transformers gives it.
pub fn tojson(value: &Value, given: &Given) -> Outcome<Value> {
    let [ensure_ascii, indent, separators_given, sort_keys] =
        given.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match indent.unwrap_or(Value::None) {
        Value::None => None,
        Value::Text(text) => Some(text.text.to_string()),
        other => match other.as_int() {
            Some(count) => Some(repeated(" ", count)?),
            None => return Err(fault(format!("tojson: indent is a number or a text, not a {}", other.kind()))),
        },
    };
    let (item, key) = separators(&separators_given.unwrap_or(Value::None), indent.is_some())?;
    let style = Style {
        ensure_ascii: ensure_ascii.is_some_and(|value| value.is_true()),
        indent,
        item,
        key,
        sort_keys: sort_keys.is_some_and(|value| value.is_true()),
    };
    let mut out = String::new();
    write_value(value, &style, 0, &mut out)?;
    Ok(Value::from(out))
}
