//! Methods of Python's str, dict, list and numbers.
use super::arguments::{int_argument, needed, text_argument, Given};
use super::budget::spend;
use super::fault::{fault, Outcome};
use super::format::braces;
use super::functions;
use super::machine::Machine;
use super::operators::{join_texts, repeated};
use super::text::escape;
use super::unicode::*;
use super::value::{Function, Text, Value, ViewOf};

pub fn call(machine: &Machine, receiver: &Value, name: &str, given: Given) -> Outcome<Value> {
    match receiver {
        Value::Text(text) => text_method(machine, text, name, &given),
        Value::Dict(dict) => match name {
            "keys" => given.places::<0>(name).map(|_| Value::View(ViewOf::Keys, dict.clone())),
            "values" => given.places::<0>(name).map(|_| Value::View(ViewOf::Values, dict.clone())),
            "items" => given.places::<0>(name).map(|_| Value::View(ViewOf::Items, dict.clone())),
            "copy" => given.places::<0>(name).map(|_| Value::dict(dict.copy())),
            "get" => {
                let [key, default] = given.places::<2>(name)?;
                let key = needed(key, name, "key")?;
                super::dict::key_of(&key)?;
                Ok(dict.get(&key)?.cloned().unwrap_or_else(|| default.unwrap_or(Value::None)))
            }
            "fromkeys" => functions::from_keys(&given),
            _ => Err(unsupported(receiver, name)),
        },
        Value::Function(Function::Dict) if name == "fromkeys" => functions::from_keys(&given),
        Value::List(items) => list_method(receiver, items, name, &given),
        Value::Tuple(tuple) => list_method(receiver, &tuple.items, name, &given),
        Value::Loop(state) => match name {
            "cycle" if given.positional.is_empty() => Err(fault("loop.cycle needs at least one value")),
            "cycle" => Ok(given.positional[(state.index0.get() as usize) % given.positional.len()].clone()),
            _ => {
                let same = match &*state.changed.borrow() {
                    Some(before) => Value::tuple(before.clone()).equals(&Value::tuple(given.positional.clone()))?,
                    None => false,
                };
                if !same {
                    state.changed.replace(Some(given.positional));
                }
                Ok(Value::Bool(!same))
            }
        },
        Value::Cycler(cycler) => {
            let at = cycler.1.get();
            if name == "reset" {
                cycler.1.set(0);
                return Ok(Value::None);
            }
            cycler.1.set((at + 1) % cycler.0.len());
            Ok(cycler.0[at].clone())
        }
        Value::Float(number) if name == "is_integer" => Ok(Value::Bool(number.fract() == 0.0 && number.is_finite())),
        Value::Int(number) if name == "bit_length" => Ok(Value::Int(i128::from(128 - number.unsigned_abs().leading_zeros()))),
        _ => Err(unsupported(receiver, name)),
    }
}

fn unsupported(receiver: &Value, name: &str) -> super::fault::Fault {
    fault(format!("the method {name} of a {} is not supported", receiver.kind()))
}

fn list_method(list: &Value, items: &[Value], name: &str, given: &Given) -> Outcome<Value> {
    match name {
        "copy" => given.places::<0>(name).map(|_| Value::list(items.to_vec())),
        "index" => {
            let [wanted] = given.places::<1>(name)?;
            let wanted = needed(wanted, name, "value")?;
            for (at, item) in items.iter().enumerate() {
                if item.equals(&wanted)? {
                    return Ok(Value::Int(at as i128));
                }
            }
            Err(fault("index: the value is not in the list"))
        }
        "count" => {
            let [wanted] = given.places::<1>(name)?;
            let wanted = needed(wanted, name, "value")?;
            let mut count = 0;
            for item in items {
                count += i128::from(item.equals(&wanted)?);
            }
            Ok(Value::Int(count))
        }
        _ => Err(unsupported(list, name)),
    }
}

// ---- texts

pub fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(|c| c.is_uppercase() || is_title(c))
}

pub fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(|c| c.is_lowercase() || is_title(c))
}

pub fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if !inside {
            push_title(c, &mut out);
        } else if c == 'Σ' {
            out.push_str(&c.to_lowercase().to_string()); // a sigma at a word's end is written otherwise; see lower()
        } else {
            out.extend(c.to_lowercase());
        }
        inside = is_cased(c);
    }
    out
}

pub fn capitalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    if let Some(first) = letters.next() {
        push_title(first, &mut out);
        out.push_str(&letters.as_str().to_lowercase());
    }
    out
}

pub fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let goes = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(goes) } else { text };
    if right {
        text.trim_end_matches(goes)
    } else {
        text
    }
}

pub fn pad(text: &str, width: i128, fill: &str, left: bool, right: bool) -> Outcome<String> {
    let width = width.max(0);
    let missing = (width - text.chars().count() as i128).max(0);
    let before = match (left, right) {
        (true, true) => missing / 2 + (missing & width & 1),
        (true, false) => missing,
        _ => 0,
    };
    Ok(format!("{}{text}{}", repeated(fill, before)?, repeated(fill, missing - before)?))
}

pub fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut result = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some((at, end)) = rest.char_indices().find(|(_, c)| ends_line(*c)) else {
            result.push(rest);
            break;
        };
        let length = if rest[at..].starts_with("\r\n") { 2 } else { end.len_utf8() };
        result.push(&rest[..if keep_ends { at + length } else { at }]);
        rest = &rest[at + length..];
    }
    result
}

pub fn split<'a>(text: &'a str, separator: Option<&str>, limit: i128) -> Outcome<Vec<&'a str>> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(match separator {
        Some("") => return Err(fault("split: an empty separator")),
        Some(separator) => text.splitn(limit.saturating_add(1), separator).collect(),
        None => {
            let mut parts = Vec::new();
            let mut rest = text.trim_start_matches(is_space);
            while !rest.is_empty() {
                let end = rest.find(is_space).filter(|_| parts.len() < limit);
                let Some(end) = end else {
                    parts.push(rest);
                    break;
                };
                parts.push(&rest[..end]);
                rest = rest[end..].trim_start_matches(is_space);
            }
            parts
        }
    })
}

pub fn rsplit<'a>(text: &'a str, separator: Option<&str>, limit: i128) -> Outcome<Vec<&'a str>> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = match separator {
        Some("") => return Err(fault("rsplit: an empty separator")),
        Some(separator) => text.rsplitn(limit.saturating_add(1), separator).collect(),
        None => {
            let mut parts = Vec::new();
            let mut rest = text.trim_end_matches(is_space);
            while !rest.is_empty() {
                let begin = rest.char_indices().rev().find(|(_, c)| is_space(*c)).filter(|_| parts.len() < limit);
                let Some((begin, space)) = begin else {
                    parts.push(rest);
                    break;
                };
                parts.push(&rest[begin + space.len_utf8()..]);
                rest = rest[..begin].trim_end_matches(is_space);
            }
            parts
        }
    };
    parts.reverse();
    Ok(parts)
}

pub fn replace(text: &str, from: &str, to: &str, count: i128) -> Outcome<String> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let found = if from.is_empty() { text.chars().count() + 1 } else { text.matches(from).count() };
    spend(text.len() + found.min(count).saturating_mul(to.len()))?;
    Ok(text.replacen(from, to, count))
}

/// Bytes [begin, end) of the text for the optional start and end of find, count and startswith, in characters.
fn window(text: &str, start: Option<Value>, end: Option<Value>, name: &str) -> Outcome<Option<(usize, usize)>> {
    let length = text.chars().count() as i128;
    let place = |value: Option<Value>, missing: i128| -> Outcome<i128> {
        let at = match value.filter(|value| !value.is_none()) {
            Some(value) => int_argument(&value, name, "a place")?,
            None => missing,
        };
        Ok(if at < 0 { (at + length).max(0) } else { at })
    };
    let (start, end) = (place(start, 0)?, place(end, length)?.min(length));
    if start > end {
        return Ok(None);
    }
    let byte = |at: i128| text.char_indices().nth(at as usize).map_or(text.len(), |(byte, _)| byte);
    Ok(Some((byte(start), byte(end))))
}

fn affix(text: &str, name: &str, given: &Given) -> Outcome<bool> {
    let [part, start, end] = given.places::<3>(name)?;
    let part = needed(part, name, "a text")?;
    let Some((begin, end)) = window(text, start, end, name)? else { return Ok(false) };
    let matches = |part: &str| if name == "startswith" { text[begin..end].starts_with(part) } else { text[begin..end].ends_with(part) };
    match &part {
        Value::Tuple(parts) => {
            let mut any = false;
            for part in &parts.items {
                any = any || matches(text_argument(part, name, "each of the texts")?);
            }
            Ok(any)
        }
        other => Ok(matches(text_argument(other, name, "the part")?)),
    }
}

fn find(text: &str, name: &str, given: &Given) -> Outcome<Value> {
    let [part, start, end] = given.places::<3>(name)?;
    let part = needed(part, name, "sub")?;
    let part = text_argument(&part, name, "sub")?;
    let window = window(text, start, end, name)?;
    if name == "count" {
        let Some((begin, end)) = window else { return Ok(Value::Int(0)) };
        let inside = &text[begin..end];
        return Ok(Value::Int(if part.is_empty() { inside.chars().count() + 1 } else { inside.matches(part).count() } as i128));
    }
    let found = window.and_then(|(begin, end)| {
        let at = if name.starts_with('r') { text[begin..end].rfind(part) } else { text[begin..end].find(part) };
        at.map(|at| text[..begin + at].chars().count() as i128)
    });
    match found {
        Some(at) => Ok(Value::Int(at)),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => Err(fault("substring not found")),
    }
}

fn is_kind(text: &str, name: &str) -> Outcome<bool> {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    let unsure = |c: char| !c.is_ascii() && is_word(c) && !is_decimal(c) && !is_letter(c);
    Ok(match name {
        "isspace" => all(is_space),
        "isalpha" => all(is_letter),
        "isdecimal" => all(is_decimal),
        "isascii" => text.is_ascii(),
        "isprintable" => text.chars().all(is_printable),
        "islower" => is_lower(text),
        "isupper" => is_upper(text),
        "istitle" => text.chars().any(is_cased) && title(text) == text,
        "isidentifier" => all(is_word) && !text.starts_with(|c: char| c.is_numeric()),
        // Digits that are no decimal ones, and letters that are numbers, Python tells apart by tables of its own.
        "isdigit" | "isnumeric" | "isalnum" if text.chars().any(unsure) => {
            return Err(fault(format!("{name} is not supported for this text")));
        }
        "isnumeric" if text.chars().any(|c| !c.is_ascii() && is_letter(c)) => {
            return Err(fault("isnumeric is not supported for this text"));
        }
        "isdigit" | "isnumeric" => all(is_decimal),
        _ => all(|c| is_word(c) && c != '_'),
    })
}

fn text_method(machine: &Machine, text: &Text, name: &str, given: &Given) -> Outcome<Value> {
    let (all, safe) = (&*text.text, text.safe);
    let made = |text: &str| spend(text.len()).map(|_| Value::marked(text, safe));
    let nothing = || given.places::<0>(name);
    // What is put into a safe text is escaped first.
    let part_of = |value: &Value, what: &str| -> Outcome<String> {
        let part = text_argument(value, name, what)?;
        let foreign = safe && !matches!(value, Value::Text(text) if text.safe);
        Ok(if foreign { escape(part) } else { part.to_string() })
    };
    match name {
        "upper" => nothing().and_then(|_| made(&all.to_uppercase())),
        "lower" => nothing().and_then(|_| made(&all.to_lowercase())),
        "title" => nothing().and_then(|_| made(&title(all))),
        "capitalize" => nothing().and_then(|_| made(&capitalize(all))),
        "swapcase" => nothing().and_then(|_| {
            let swap = |c: char| if c.is_uppercase() { c.to_lowercase().collect::<String>() } else { c.to_uppercase().collect() };
            made(&all.chars().map(swap).collect::<String>())
        }),
        "casefold" if all.is_ascii() => nothing().and_then(|_| made(&all.to_lowercase())),
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = given.places::<1>(name)?;
            let chars = chars.filter(|value| !value.is_none());
            let chars = chars.as_ref().map(|value| text_argument(value, name, "chars")).transpose()?;
            made(strip(all, chars, name != "rstrip", name != "lstrip"))
        }
        "split" | "rsplit" => {
            let [separator, limit] = given.bind(name, ["sep", "maxsplit"])?;
            let separator = separator.filter(|value| !value.is_none());
            let separator = separator.as_ref().map(|value| text_argument(value, name, "sep")).transpose()?;
            let limit = limit.map_or(Ok(-1), |limit| int_argument(&limit, name, "maxsplit"))?;
            let parts = if name == "split" { split(all, separator, limit)? } else { rsplit(all, separator, limit)? };
            spend(all.len() + parts.len() * size_of::<Value>())?;
            Ok(Value::list(parts.into_iter().map(|part| Value::marked(part, safe)).collect()))
        }
        "splitlines" => {
            let [keep] = given.bind(name, ["keepends"])?;
            let lines = lines(all, keep.is_some_and(|keep| keep.is_true()));
            Ok(Value::list(lines.into_iter().map(|line| Value::marked(line, safe)).collect()))
        }
        "partition" | "rpartition" => {
            let [part] = given.places::<1>(name)?;
            let part = needed(part, name, "sep")?;
            let part = part_of(&part, "sep")?;
            if part.is_empty() {
                return Err(fault(format!("{name}: an empty separator")));
            }
            let cut = if name == "partition" { all.split_once(&*part) } else { all.rsplit_once(&*part) };
            let parts = match cut {
                Some((before, after)) => [before, &part, after],
                None if name == "partition" => [all, "", ""],
                None => ["", "", all],
            };
            Ok(Value::tuple(parts.iter().map(|part| Value::marked(part, safe)).collect()))
        }
        "replace" => {
            let [from, to, count] = given.places::<3>(name)?;
            let (from, to) = (needed(from, name, "old")?, needed(to, name, "new")?);
            let count = count.map_or(Ok(-1), |count| int_argument(&count, name, "count"))?;
            let from = if safe { part_of(&from, "old")? } else { text_argument(&from, name, "old")?.to_string() };
            made(&replace(all, &from, &part_of(&to, "new")?, count)?)
        }
        "startswith" | "endswith" => Ok(Value::Bool(affix(all, name, given)?)),
        "find" | "rfind" | "index" | "rindex" | "count" => find(all, name, given),
        "removeprefix" | "removesuffix" => {
            let [part] = given.places::<1>(name)?;
            let part = needed(part, name, "a text")?;
            let part = text_argument(&part, name, "the part")?;
            let left = if name == "removeprefix" { all.strip_prefix(part) } else { all.strip_suffix(part) };
            made(left.unwrap_or(all))
        }
        "ljust" | "rjust" | "center" => {
            let [width, fill] = given.places::<2>(name)?;
            let width = int_argument(&needed(width, name, "width")?, name, "width")?;
            let fill = fill.unwrap_or_else(|| Value::text(" "));
            let fill = part_of(&fill, "fillchar")?;
            if fill.chars().count() != 1 {
                return Err(fault(format!("{name}: the fill is one character")));
            }
            made(&pad(all, width, &fill, name != "ljust", name != "rjust")?)
        }
        "zfill" => {
            let [width] = given.places::<1>(name)?;
            let width = int_argument(&needed(width, name, "width")?, name, "width")?;
            let (sign, digits) = all.split_at(usize::from(all.starts_with(['+', '-'])));
            made(&format!("{sign}{}", pad(digits, width - sign.len() as i128, "0", true, false)?))
        }
        "expandtabs" if !all.contains('\t') => made(all),
        "join" => {
            let [items] = given.places::<1>(name)?;
            join_texts(text, &needed(items, name, "iterable")?.items()?, !safe)
        }
        "format" => braces(machine, text, given),
        name if name.starts_with("is") => nothing().and_then(|_| Ok(Value::Bool(is_kind(all, name)?))),
        _ => Err(fault(format!("the method {name} of a text is not supported"))),
    }
}
