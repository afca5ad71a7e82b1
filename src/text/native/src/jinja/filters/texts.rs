//! Filters over texts.
use super::super::arguments::{int_argument, needed, text_argument, Given};
use super::super::budget::spend;
use super::super::dict::Dict;
use super::super::fault::{fault, Outcome};
use super::super::format::percent;
use super::super::machine::Machine;
use super::super::methods::{capitalize, lines, pad, replace, strip};
use super::super::operators::repeated;
use super::super::text::{escape, escaped, string_of};
use super::super::unicode::{is_space, is_word};
use super::super::value::{Text, Value};
use super::soft_text;

pub fn call(_machine: &Machine, name: &str, value: &Value, given: &Given) -> Outcome<Value> {
    let alone = || given.places::<0>(name);
    let kept = |text: &Text, made: &str| spend(made.len()).map(|_| Value::marked(made, text.safe));
    match name {
        "string" => alone().and_then(|_| Ok(Value::Text(soft_text(value)?))),
        "upper" => alone().and_then(|_| soft_text(value).and_then(|text| kept(&text, &text.text.to_uppercase()))),
        "lower" => alone().and_then(|_| soft_text(value).and_then(|text| kept(&text, &text.text.to_lowercase()))),
        "capitalize" => alone().and_then(|_| soft_text(value).and_then(|text| kept(&text, &capitalize(&text.text)))),
        "title" => alone().and_then(|_| Ok(Value::from(title(&soft_text(value)?.text)))),
        "trim" => {
            let [chars] = given.bind(name, ["chars"])?;
            let chars = chars.filter(|value| !value.is_none());
            let chars = chars.as_ref().map(|value| text_argument(value, name, "chars")).transpose()?;
            let text = soft_text(value)?;
            kept(&text, strip(&text.text, chars, true, true))
        }
        "replace" => {
            let [old, new, count] = given.bind(name, ["old", "new", "count"])?;
            let count = count.filter(|count| !count.is_none()).map_or(Ok(-1), |count| int_argument(&count, name, "count"))?;
            let (old, new) = (string_of(&needed(old, name, "old")?)?, string_of(&needed(new, name, "new")?)?);
            Ok(Value::from(replace(&string_of(value)?, &old, &new, count)?))
        }
        "center" => {
            let [width] = given.bind(name, ["width"])?;
            let width = width.map_or(Ok(80), |width| int_argument(&width, name, "width"))?;
            let text = soft_text(value)?;
            kept(&text, &pad(&text.text, width, " ", true, true)?)
        }
        "safe" => alone().and_then(|_| Ok(Value::marked(&string_of(value)?, true))),
        "escape" | "e" => alone().and_then(|_| Ok(Value::marked(&escaped(value)?, true))),
        "forceescape" => alone().and_then(|_| Ok(Value::marked(&escape(&string_of(value)?), true))),
        "wordcount" => alone().and_then(|_| {
            let text = string_of(value)?;
            Ok(Value::Int(text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).count() as i128))
        }),
        "striptags" => alone().and_then(|_| Ok(Value::from(strip_tags(&string_of(value)?)?))),
        "indent" => indent(value, given),
        "truncate" => truncate(value, given),
        "urlencode" => alone().and_then(|_| url_encode(value)),
        "xmlattr" => xml_attributes(value, given),
        "format" => {
            let text = soft_text(value)?;
            if given.named.is_empty() {
                return percent(&text, &Value::tuple(given.positional.clone()));
            }
            if !given.positional.is_empty() {
                return Err(fault("format takes values with or without names, not both"));
            }
            let mut names = Dict::default();
            for (name, value) in &given.named {
                names.insert(Value::text(name), value.clone())?;
            }
            percent(&text, &Value::dict(names))
        }
        _ => Err(fault(format!("the filter {name} is not supported"))),
    }
}

/// Every word with a capital: words start behind white space, hyphens and opening brackets.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    let finish = |word: &mut String, out: &mut String| {
        let mut letters = word.chars();
        if let Some(first) = letters.next() {
            out.extend(first.to_uppercase());
            out.push_str(&letters.as_str().to_lowercase());
        }
        word.clear();
    };
    for c in text.chars() {
        if is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<') {
            finish(&mut word, &mut out);
            out.push(c);
        } else {
            word.push(c);
        }
    }
    finish(&mut word, &mut out);
    out
}

fn indent(value: &Value, given: &Given) -> Outcome<Value> {
    let [width, first, blank] = given.bind("indent", ["width", "first", "blank"])?;
    let Value::Text(text) = value.defined()? else { return Err(fault(format!("indent is for texts, not for a {}", value.kind()))) };
    let indention = match width.unwrap_or(Value::Int(4)) {
        Value::Text(width) if text.safe => width.text.to_string(), // it is marked safe as it stands
        Value::Text(width) => width.text.to_string(),
        other => repeated(" ", int_argument(&other, "indent", "width")?)?,
    };
    let whole = format!("{}\n", text.text);
    let lines = lines(&whole, false);
    spend(text.text.len() + lines.len().saturating_mul(indention.len() + 1))?;
    let everywhere = blank.is_some_and(|blank| blank.is_true());
    let mut out = String::new();
    if first.is_some_and(|first| first.is_true()) {
        out.push_str(&indention);
    }
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            out.push('\n');
            if everywhere || !line.is_empty() {
                out.push_str(&indention);
            }
        }
        out.push_str(line);
    }
    Ok(Value::marked(&out, text.safe))
}

fn truncate(value: &Value, given: &Given) -> Outcome<Value> {
    let name = "truncate";
    let [length, kill, end, leeway] = given.bind(name, ["length", "killwords", "end", "leeway"])?;
    let number = |value: Option<Value>, usual: i128| match value.filter(|value| !value.is_none()) {
        Some(value) => int_argument(&value, name, "a length"),
        None => Ok(usual),
    };
    let (length, leeway) = (number(length, 255)?, number(leeway, 5)?);
    let end = end.unwrap_or_else(|| Value::text("..."));
    let end = text_argument(&end, name, "end")?;
    let end_length = end.chars().count() as i128;
    if length < end_length || leeway < 0 {
        return Err(fault("truncate: the length is less than that of its end"));
    }
    if value.len()? as i128 <= length + leeway {
        return Ok(value.clone());
    }
    let text = match value {
        Value::Text(text) if !text.safe => text,
        other => return Err(fault(format!("truncate of a {} is not supported", other.kind()))),
    };
    let cut: String = text.text.chars().take((length - end_length) as usize).collect();
    let kept = if kill.is_some_and(|kill| kill.is_true()) { &cut } else { cut.rsplit_once(' ').map_or(&*cut, |(before, _)| before) };
    Ok(Value::from(format!("{kept}{end}")))
}

fn url_quoted(text: &str, query: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push(byte as char),
            b'/' if !query => out.push('/'),
            b' ' if query => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn url_encode(value: &Value) -> Outcome<Value> {
    if matches!(value, Value::Text(_)) || !value.is_iterable() {
        return Ok(Value::from(url_quoted(&string_of(value)?, false)));
    }
    let pairs: Vec<(Value, Value)> = match value {
        Value::Dict(dict) => dict.iter().cloned().collect(),
        other => {
            let mut pairs = Vec::new();
            for pair in other.items()? {
                let [key, value] = <[Value; 2]>::try_from(pair.items()?).map_err(|_| fault("urlencode takes pairs"))?;
                pairs.push((key, value));
            }
            pairs
        }
    };
    let mut parts = Vec::new();
    for (key, value) in pairs {
        parts.push(format!("{}={}", url_quoted(&string_of(&key)?, true), url_quoted(&string_of(&value)?, true)));
    }
    Ok(Value::from(parts.join("&")))
}

fn xml_attributes(value: &Value, given: &Given) -> Outcome<Value> {
    let [space] = given.bind("xmlattr", ["autospace"])?;
    let Value::Dict(dict) = value.defined()? else { return Err(fault("xmlattr takes a dict")) };
    let mut parts = Vec::new();
    for (key, value) in dict.iter() {
        if value.is_none() || value.is_undefined() {
            continue;
        }
        let key_text = text_argument(key, "xmlattr", "a key")?;
        if key_text.contains([' ', '\t', '\n', '\r', '\x0b', '\x0c', '/', '>', '=']) {
            return Err(fault(format!("xmlattr: {key_text:?} cannot be the name of an attribute")));
        }
        parts.push(format!("{}=\"{}\"", escaped(key)?, escaped(value)?));
    }
    let joined = parts.join(" ");
    let spaced = !joined.is_empty() && space.is_none_or(|space| space.is_true());
    Ok(Value::from(if spaced { format!(" {joined}") } else { joined }))
}

/// Tags and comments taken out, white space drawn together. Entities would be replaced too; they are refused.
fn strip_tags(text: &str) -> Outcome<String> {
    if text.contains('&') {
        return Err(fault("striptags of a text with & is not supported"));
    }
    let mut text = text.to_string();
    while let Some(begin) = text.find("<!--") {
        let Some(end) = text[begin..].find("-->") else { break };
        text.replace_range(begin..begin + end + 3, "");
    }
    while let Some(begin) = text.find('<') {
        let Some(end) = text[begin..].find('>') else { break };
        text.replace_range(begin..=begin + end, "");
    }
    Ok(text.split(is_space).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "))
}
