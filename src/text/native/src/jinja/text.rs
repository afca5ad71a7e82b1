//! str() and repr() of Python.
use super::dict::Dict;
use super::fault::{fault, Outcome};
use super::unicode::is_printable;
use super::value::{Text, Value, ViewOf};
use std::cell::Cell;
use std::fmt::Write;

const DEEPEST: usize = 200;

thread_local! {
    /// How often `none` was written as a text of its own since this was cleared.
    static SAID_NONE: Cell<u32> = const { Cell::new(0) };
}

pub fn take_said_none() -> u32 {
    SAID_NONE.take()
}

/// Python's repr of a float: 1e-05 where Rust says 1e-5.
pub fn float_text(value: f64) -> String {
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

/// str(value), with the marks of a text that is one already.
pub fn text_of(value: &Value) -> Outcome<Text> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => Ok(Text { text: string_of(other)?.into(), safe: false, marks: None }),
    }
}

/// str(value)
pub fn string_of(value: &Value) -> Outcome<String> {
    match value {
        Value::Text(text) => Ok(text.text.to_string()),
        Value::Undefined(_) => Ok(String::new()),
        Value::None => {
            SAID_NONE.set(SAID_NONE.get() + 1);
            Ok("None".into())
        }
        other => repr(other),
    }
}

pub fn repr(value: &Value) -> Outcome<String> {
    let mut out = String::new();
    write(value, 0, &mut out)?;
    Ok(out)
}

pub fn write_text(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x100 => write!(out, "\\x{:02x}", c as u32).unwrap(),
            c if (c as u32) < 0x10000 => write!(out, "\\u{:04x}", c as u32).unwrap(),
            c => write!(out, "\\U{:08x}", c as u32).unwrap(),
        }
    }
    out.push(quote);
}

fn write_items<'a>(items: impl Iterator<Item = &'a Value>, depth: usize, out: &mut String) -> Outcome<()> {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write(item, depth + 1, out)?;
    }
    Ok(())
}

fn write_dict(dict: &Dict, depth: usize, out: &mut String) -> Outcome<()> {
    out.push('{');
    for (index, (key, value)) in dict.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write(key, depth + 1, out)?;
        out.push_str(": ");
        write(value, depth + 1, out)?;
    }
    out.push('}');
    Ok(())
}

fn write(value: &Value, depth: usize, out: &mut String) -> Outcome<()> {
    if depth > DEEPEST {
        return Err(fault(format!("a value is nested deeper than {DEEPEST} levels")));
    }
    match value {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(value) => out.push_str(if *value { "True" } else { "False" }),
        Value::Int(value) => write!(out, "{value}").unwrap(),
        Value::Float(value) => out.push_str(&float_text(*value)),
        Value::Text(text) if text.safe => {
            out.push_str("Markup(");
            write_text(&text.text, out);
            out.push(')');
        }
        Value::Text(text) => write_text(&text.text, out),
        Value::List(items) => {
            out.push('[');
            write_items(items.iter(), depth, out)?;
            out.push(']');
        }
        Value::Tuple(tuple) => {
            out.push('(');
            write_items(tuple.items.iter(), depth, out)?;
            out.push_str(if tuple.items.len() == 1 { ",)" } else { ")" });
        }
        Value::Dict(dict) => write_dict(dict, depth, out)?,
        Value::View(of, _) => {
            out.push_str(match of {
                ViewOf::Keys => "dict_keys([",
                ViewOf::Values => "dict_values([",
                ViewOf::Items => "dict_items([",
            });
            write_items(value.items()?.iter(), depth, out)?;
            out.push_str("])");
        }
        Value::Range(range) if range.step == 1 => write!(out, "range({}, {})", range.start, range.stop).unwrap(),
        Value::Range(range) => write!(out, "range({}, {}, {})", range.start, range.stop, range.step).unwrap(),
        Value::Namespace(attributes) => {
            out.push_str("<Namespace ");
            match attributes.try_borrow() {
                Ok(attributes) => write_dict(&attributes, depth, out)?,
                Err(_) => return Err(fault("a namespace that holds itself cannot be printed")),
            }
            out.push('>');
        }
        other => return Err(fault(format!("a {} cannot be printed: its text would be an address in memory", other.kind()))),
    }
    Ok(())
}

/// The five characters that HTML gives a meaning, replaced.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

/// Markup(value) where it is none yet.
pub fn escaped(value: &Value) -> Outcome<String> {
    match value {
        Value::Text(text) if text.safe => Ok(text.text.to_string()),
        other => Ok(escape(&string_of(other)?)),
    }
}
