//! Methods of Python's str, dict and list that templates call and minijinja-contrib lacks.
use minijinja::value::{from_args, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

pub fn pad(text: &str, width: usize, fill: Option<&str>, left: bool, right: bool) -> String {
    let fill = fill.unwrap_or(" ");
    let missing = width.saturating_sub(text.chars().count());
    let before = match (left, right) {
        (true, true) => missing / 2 + (missing & width & 1),
        (true, false) => missing,
        _ => 0,
    };
    format!("{}{text}{}", fill.repeat(before), fill.repeat(missing - before))
}

fn split_from_right(text: &str, separator: Option<&str>, limit: Option<i64>) -> Vec<Value> {
    let limit = limit.filter(|&limit| limit >= 0).map_or(usize::MAX, |limit| limit as usize);
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = text;
    match separator {
        Some(separator) => {
            while parts.len() < limit {
                let Some((before, after)) = rest.rsplit_once(separator) else { break };
                parts.push(after);
                rest = before;
            }
            parts.push(rest);
        }
        None => {
            rest = rest.trim_end();
            while parts.len() < limit && !rest.is_empty() {
                let Some((at, space)) = rest.char_indices().rev().find(|(_, c)| c.is_whitespace()) else { break };
                parts.push(&rest[at + space.len_utf8()..]);
                rest = rest[..at].trim_end();
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
        }
    }
    parts.into_iter().rev().map(Value::from).collect()
}

fn text_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "removeprefix" => {
            let (part,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(part).unwrap_or(text))
        }
        "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(part).unwrap_or(text))
        }
        "partition" | "rpartition" => {
            let (part,): (&str,) = from_args(args)?;
            let cut = if method == "partition" { text.split_once(part) } else { text.rsplit_once(part) };
            let parts = match cut {
                Some((before, after)) => [before, part, after],
                None if method == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Value::from(minijinja::value::Tuple::from(parts.map(Value::from).to_vec()))
        }
        "rsplit" => {
            let (separator, limit): (Option<Value>, Option<i64>) = from_args(args)?;
            let separator = separator.filter(|value| !value.is_none());
            Value::from(split_from_right(text, separator.as_ref().and_then(|value| value.as_str()), limit))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<&str>) = from_args(args)?;
            Value::from(pad(text, width, fill, method != "ljust", method != "rjust"))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            Value::from(format!("{sign}{}", pad(digits, width.saturating_sub(sign.len()), Some("0"), true, false)))
        }
        "casefold" => Value::from(text.to_lowercase()),
        "swapcase" => {
            let swap = |c: char| if c.is_uppercase() { c.to_lowercase().collect::<String>() } else { c.to_uppercase().collect() };
            Value::from(text.chars().map(swap).collect::<String>())
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let at = if method == "index" { text.find(part) } else { text.rfind(part) };
            let at = at.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        "isdecimal" => Value::from(!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())),
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn list_method(list: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    if method != "index" {
        return Ok(None);
    }
    let (wanted,): (Value,) = from_args(args)?;
    match list.try_iter()?.position(|item| item == wanted) {
        Some(at) => Ok(Some(Value::from(at))),
        None => Err(Error::new(ErrorKind::InvalidOperation, format!("{wanted} is not in the list"))),
    }
}

pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => text_method(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq | ValueKind::Iterable => list_method(value, method, args)?,
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}
