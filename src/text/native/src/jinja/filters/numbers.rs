//! Filters over numbers.
use super::super::arguments::{int_argument, Given};
use super::super::fault::{fault, Outcome};
use super::super::operators::negative;
use super::super::text::float_text;
use super::super::unicode::is_space;
use super::super::value::Value;

pub fn call(name: &str, value: &Value, given: &Given) -> Outcome<Value> {
    match name {
        "abs" => {
            given.places::<0>(name)?;
            match value.defined()? {
                Value::Float(number) => Ok(Value::Float(number.abs())),
                other => match other.as_int() {
                    Some(number) if number < 0 => negative(value),
                    Some(number) => Ok(Value::Int(number)),
                    None => Err(fault(format!("abs is for numbers, not for a {}", value.kind()))),
                },
            }
        }
        "int" => int(value, given),
        "float" => {
            let [default] = given.bind(name, ["default"])?;
            let parsed = match value.defined()? {
                Value::Text(text) => parsed_float(&text.text),
                other => other.as_number(),
            };
            Ok(parsed.map_or_else(|| default.unwrap_or(Value::Float(0.0)), Value::Float))
        }
        "round" => round(value, given),
        _ => file_size(value, given),
    }
}

/// float(text) of Python.
fn parsed_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    let body = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let named = matches!(body.as_str(), "inf" | "infinity" | "nan");
    let digits = body.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let good = |text: &str| {
        let bytes = text.as_bytes();
        // An underscore stands between digits.
        (0..bytes.len())
            .all(|at| bytes[at] != b'_' || (at > 0 && bytes[at - 1].is_ascii_digit() && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)))
    };
    if text.len() - body.len() > 1 || !(named || digits) || !good(text) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// int(text, base) of Python.
fn parsed_int(text: &str, base: i128) -> Outcome<Option<i128>> {
    let text = text.trim_matches(is_space);
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = rest.to_ascii_lowercase();
    let prefix = [("0b", 2u32), ("0o", 8), ("0x", 16)]
        .into_iter()
        .find(|(prefix, of)| lower.starts_with(prefix) && (base == i128::from(*of) || base == 0));
    let (mut digits, base) = match (prefix, base) {
        (Some((_, of)), _) => (&lower[2..], of),
        (None, 0) if lower.starts_with('0') && lower.bytes().any(|c| c != b'0' && c != b'_') => return Ok(None),
        (None, 0) => (&*lower, 10),
        (None, base) if (2..=36).contains(&base) => (&*lower, base as u32),
        _ => return Ok(None), // Python: a ValueError, which the filter takes as "no number"
    };
    if prefix.is_some() {
        digits = digits.strip_prefix('_').unwrap_or(digits);
    }
    let bytes = digits.as_bytes();
    let good = !bytes.is_empty() && bytes[0] != b'_' && bytes[bytes.len() - 1] != b'_' && !digits.contains("__");
    if !good || !digits.chars().all(|c| c == '_' || c.is_digit(base)) {
        if digits.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
            return Err(fault("int of digits that are not 0 to 9 is not supported"));
        }
        return Ok(None);
    }
    let number = i128::from_str_radix(&digits.replace('_', ""), base).map_err(|_| fault("a number is larger than is supported"))?;
    Ok(Some(if negative { -number } else { number }))
}

fn truncated(number: f64) -> Outcome<Option<i128>> {
    if !number.is_finite() {
        return Ok(None);
    }
    if number.abs() >= 1e38 {
        return Err(fault("a number is larger than is supported"));
    }
    Ok(Some(number.trunc() as i128))
}

fn int(value: &Value, given: &Given) -> Outcome<Value> {
    let [default, base] = given.bind("int", ["default", "base"])?;
    let base = base.map_or(Ok(10), |base| int_argument(&base, "int", "base"))?;
    let parsed = match value.defined()? {
        Value::Text(text) => match parsed_int(&text.text, base)? {
            Some(number) => Some(number),
            None => parsed_float(&text.text).map_or(Ok(None), truncated)?,
        },
        Value::Float(number) if number.is_infinite() => return Err(fault("int of infinity")),
        Value::Float(number) => truncated(*number)?,
        other => other.as_int(),
    };
    Ok(parsed.map_or_else(|| default.unwrap_or(Value::Int(0)), Value::Int))
}

/// round(number, places) of Python for floats: correctly rounded decimals, halves to even.
fn rounded(number: f64, places: i128) -> Outcome<f64> {
    if !number.is_finite() {
        return Ok(number);
    }
    if places >= 0 {
        // Rust writes a float's exact decimal, rounded half to even: what Python rounds by.
        let places = usize::try_from(places.min(400)).unwrap_or(400);
        return format!("{number:.places$}").parse().map_err(|_| fault("round: no number"));
    }
    let power = 10f64.powi((-places).min(400) as i32);
    let scaled = number / power;
    Ok(if scaled.is_finite() { scaled.round_ties_even() * power } else { 0.0 })
}

fn round(value: &Value, given: &Given) -> Outcome<Value> {
    let [precision, method] = given.bind("round", ["precision", "method"])?;
    let precision = precision.map_or(Ok(0), |precision| int_argument(&precision, "round", "precision"))?;
    let method = method.unwrap_or_else(|| Value::text("common"));
    let method = method.as_str().unwrap_or_default();
    let number = value.defined()?.as_number().ok_or_else(|| fault(format!("round is for numbers, not for a {}", value.kind())))?;
    match method {
        "common" => match value.as_int() {
            Some(whole) if precision >= 0 => Ok(Value::Int(whole)),
            Some(_) => Err(fault("round of a whole number to tens is not supported")),
            None => Ok(Value::Float(rounded(number, precision)?)),
        },
        "ceil" | "floor" if (0..=15).contains(&precision) => {
            let power = 10f64.powi(precision as i32);
            let scaled = number * power;
            let whole = if method == "ceil" { scaled.ceil() } else { scaled.floor() };
            // Python's ceil gives a whole number, which knows no -0.0.
            Ok(Value::Float((whole + 0.0) / power))
        }
        _ => Err(fault("round: the method is common, ceil or floor")),
    }
}

fn file_size(value: &Value, given: &Given) -> Outcome<Value> {
    let [binary] = given.bind("filesizeformat", ["binary"])?;
    let binary = binary.is_some_and(|binary| binary.is_true());
    let parsed = match value.defined()? {
        Value::Text(text) => parsed_float(&text.text),
        other => other.as_number(),
    };
    let bytes = parsed.filter(|bytes| bytes.is_finite()).ok_or_else(|| fault("filesizeformat is for numbers"))?;
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return Ok(Value::text("1 Byte"));
    }
    if bytes < base {
        return Ok(Value::from(format!("{} Bytes", float_text(bytes.trunc()).trim_end_matches(".0"))));
    }
    let names =
        if binary { ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"] } else { ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"] };
    let mut unit = base;
    for (index, name) in names.into_iter().enumerate() {
        unit = base.powi(index as i32 + 2);
        if bytes < unit {
            return Ok(Value::from(format!("{:.1} {name}", base * bytes / unit)));
        }
    }
    Ok(Value::from(format!("{:.1} {}", base * bytes / unit, names[7])))
}
