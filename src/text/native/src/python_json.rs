//! json.dumps as Python writes it: its separators, its floats, no HTML escapes.
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

/// Python's repr of a float: 1e-05 where Rust says 1e-5.
pub fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let text = format!("{value:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
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

fn number_text(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) if number.is_nan() => "NaN".into(),
        Ok(number) if number.is_infinite() => {
            if number > 0.0 {
                "Infinity".into()
            } else {
                "-Infinity".into()
            }
        }
        Ok(number) => python_float(number),
        Err(_) => value.to_string(),
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().into()),
        ValueKind::Bool => Ok(if key.is_true() { "true".into() } else { "false".into() }),
        ValueKind::None => Ok("null".into()),
        ValueKind::Number => Ok(number_text(key)),
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a {kind} cannot be a key"))),
    }
}

fn write_list(items: &[Value], style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
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

fn write_map(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    let mut entries = Vec::new();
    for key in value.try_iter()? {
        entries.push((key_text(&key)?, value.get_item(&key)?));
    }
    if entries.is_empty() {
        out.push_str("{}");
        return Ok(());
    }
    if style.sort_keys {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
    }
    out.push('{');
    for (index, (key, item)) in entries.iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item);
        }
        new_line(style, depth + 1, out);
        write_string(key, style, out);
        out.push_str(&style.key);
        write_value(item, style, depth + 1, out)?;
    }
    new_line(style, depth, out);
    out.push('}');
    Ok(())
}

fn write_value(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > 200 {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is nested deeper than 200 levels"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number_text(value)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Seq | ValueKind::Iterable => write_list(&value.try_iter()?.collect::<Vec<_>>(), style, depth, out)?,
        ValueKind::Map => write_map(value, style, depth, out)?,
        ValueKind::Undefined => return Err(Error::new(ErrorKind::UndefinedError, "tojson: the value is undefined")),
        kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a {kind} is not JSON"))),
    }
    Ok(())
}

fn separators(given: Option<Value>, indented: bool) -> Result<(String, String), Error> {
    let Some(given) = given.filter(|value| !value.is_none()) else {
        return Ok((if indented { ",".into() } else { ", ".into() }, ": ".into()));
    };
    let parts: Vec<String> = given.try_iter()?.map(|part| part.to_string()).collect();
    match <[String; 2]>::try_from(parts) {
        Ok([item, key]) => Ok((item, key)),
        Err(_) => Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators is a pair")),
    }
}

/// The filter `tojson` with the arguments that transformers gives it.
pub fn tojson(value: Value, ensure_ascii: Option<Value>, indent: Option<Value>, options: Kwargs) -> Result<String, Error> {
    let ensure_ascii = options.get::<Option<Value>>("ensure_ascii")?.or(ensure_ascii);
    let indent = options.get::<Option<Value>>("indent")?.or(indent).filter(|value| !value.is_none());
    let indent = match indent {
        None => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(i64::try_from(value)?.max(0) as usize),
        }),
    };
    let (item, key) = separators(options.get("separators")?, indent.is_some())?;
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let style = Style { ensure_ascii: ensure_ascii.is_some_and(|value| value.is_true()), indent, item, key, sort_keys };
    let mut out = String::new();
    write_value(&value, &style, 0, &mut out)?;
    Ok(out)
}
