//! Filters over lists and dicts. What is a generator in Jinja2 is one here: it has no length and is read once.
use super::super::arguments::{int_argument, needed, Given};
use super::super::ast::Operator;
use super::super::budget::{spend, step};
use super::super::dict::key_of;
use super::super::fault::{fault, Fault, Outcome};
use super::super::machine::Machine;
use super::super::operators::{binary, join_texts};
use super::super::tests;
use super::super::text::text_of;
use super::super::value::Value;
use super::{attribute_of, attribute_parts};
use std::cmp::Ordering;
use std::collections::HashSet;

fn flag(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

fn items_of(value: &Value) -> Outcome<Vec<Value>> {
    let items = value.items()?;
    spend(items.len() * size_of::<Value>())?;
    Ok(items)
}

pub fn call(machine: &Machine, name: &str, value: &Value, given: &Given) -> Outcome<Value> {
    match name {
        "list" => given.places::<0>(name).and_then(|_| Ok(Value::list(items_of(value)?))),
        "first" => {
            given.places::<0>(name)?;
            let first = match value {
                Value::Iterator(items) => items.borrow_mut().pop_front(),
                other => other.items()?.into_iter().next(),
            };
            Ok(first.unwrap_or_else(|| Value::undefined("No first item, sequence was empty.")))
        }
        "last" => {
            given.places::<0>(name)?;
            if matches!(value, Value::Iterator(_)) {
                return Err(fault("a generator has no last item: make a list of it first"));
            }
            // An undefined value has no order to reverse, but it is empty all the same.
            Ok(value.items()?.pop().unwrap_or_else(|| Value::undefined("No last item, sequence was empty.")))
        }
        "items" => {
            given.places::<0>(name)?;
            match value {
                Value::Undefined(_) => Ok(Value::iterator(Vec::new())),
                Value::Dict(dict) => {
                    Ok(Value::iterator(dict.iter().map(|(key, value)| Value::tuple(vec![key.clone(), value.clone()])).collect()))
                }
                other => Err(fault(format!("items takes a dict, not a {}", other.kind()))),
            }
        }
        "reverse" => {
            given.places::<0>(name)?;
            if let Value::Text(text) = value {
                return Ok(Value::marked(&text.text.chars().rev().collect::<String>(), text.safe));
            }
            let mut items = items_of(value)?;
            items.reverse();
            let as_list = matches!(value, Value::Iterator(_) | Value::Undefined(_));
            Ok(if as_list { Value::list(items) } else { Value::iterator(items) })
        }
        "join" => {
            let [separator, attribute] = given.bind(name, ["d", "attribute"])?;
            let mut items = items_of(value)?;
            if let Some(attribute) = attribute.filter(|attribute| !attribute.is_none()) {
                let parts = attribute_parts(&attribute);
                items = items.iter().map(|item| attribute_of(machine, item, &parts, None)).collect::<Outcome<_>>()?;
            }
            let mut separator = text_of(&separator.unwrap_or_else(|| Value::text("")))?;
            separator.safe = false; // nothing is escaped where autoescape is off
            join_texts(&separator, &items, false)
        }
        "batch" => batch(value, given),
        "slice" => slices(value, given),
        "dictsort" => dict_sort(value, given),
        "sort" => sort(machine, value, given),
        "unique" => unique(machine, value, given),
        "min" | "max" => extreme(machine, name, value, given),
        "groupby" => group_by(machine, value, given),
        "sum" => {
            let [attribute, start] = given.bind(name, ["attribute", "start"])?;
            let parts = attribute_parts(&attribute.unwrap_or(Value::None));
            let mut total = start.unwrap_or(Value::Int(0));
            if matches!(total, Value::Text(_)) {
                return Err(fault("sum is not for texts"));
            }
            for item in items_of(value)? {
                total = binary(Operator::Add, &total, &attribute_of(machine, &item, &parts, None)?)?;
            }
            Ok(total)
        }
        "map" => map(machine, value, given),
        _ => select(machine, name, value, given),
    }
}

fn batch(value: &Value, given: &Given) -> Outcome<Value> {
    let [count, fill] = given.bind("batch", ["linecount", "fill_with"])?;
    let count = int_argument(&needed(count, "batch", "linecount")?, "batch", "linecount")?;
    let fill = fill.filter(|fill| !fill.is_none());
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for item in items_of(value)? {
        match rows.last_mut() {
            Some(row) if row.len() as i128 != count => row.push(item),
            // Jinja2 hands out the empty first row where rows have no room.
            None if count == 0 => rows.extend([Vec::new(), vec![item]]),
            _ => rows.push(vec![item]),
        }
    }
    if let (Some(row), Some(fill)) = (rows.last_mut(), fill) {
        while (row.len() as i128) < count {
            spend(size_of::<Value>())?;
            row.push(fill.clone());
        }
    }
    Ok(Value::iterator(rows.into_iter().map(Value::list).collect()))
}

fn slices(value: &Value, given: &Given) -> Outcome<Value> {
    let [count, fill] = given.bind("slice", ["slices", "fill_with"])?;
    let count = int_argument(&needed(count, "slice", "slices")?, "slice", "slices")?;
    let items = items_of(value)?;
    let count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or_else(|| fault("slice needs at least one slice"))?;
    spend(count.saturating_mul(size_of::<Value>()))?;
    let (each, extra) = (items.len() / count, items.len() % count);
    let fill = fill.filter(|fill| !fill.is_none());
    let (mut rows, mut at) = (Vec::new(), 0);
    for number in 0..count {
        let length = each + usize::from(number < extra);
        let mut row = items[at..at + length].to_vec();
        at += length;
        if let (Some(fill), true) = (&fill, number >= extra) {
            row.push(fill.clone());
        }
        rows.push(Value::list(row));
    }
    Ok(Value::iterator(rows))
}

/// A text in small letters, where case does not count.
fn folded(value: Value, case_sensitive: bool) -> Value {
    match &value {
        Value::Text(text) if !case_sensitive => Value::marked(&text.text.to_lowercase(), text.safe),
        _ => value,
    }
}

/// Python's sorted: stable, also when reversed.
fn sorted(mut keyed: Vec<(Value, Value)>, reverse: bool) -> Outcome<Vec<(Value, Value)>> {
    let mut failed: Option<Fault> = None;
    let mut order = |a: &(Value, Value), b: &(Value, Value)| {
        let _ = step();
        a.0.order(&b.0).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            None
        })
    };
    if keyed.len() > 1 {
        keyed.sort_by(|a, b| {
            let found = order(a, b).unwrap_or(Ordering::Equal);
            if reverse {
                found.reverse()
            } else {
                found
            }
        });
    }
    failed.map_or(Ok(keyed), Err)
}

fn values(keyed: Vec<(Value, Value)>) -> Vec<Value> {
    keyed.into_iter().map(|(_, value)| value).collect()
}

fn dict_sort(value: &Value, given: &Given) -> Outcome<Value> {
    let [case_sensitive, by, reverse] = given.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let case_sensitive = flag(case_sensitive);
    let by_value = match by.as_ref().map(Value::as_str) {
        None | Some(Some("key")) => false,
        Some(Some("value")) => true,
        _ => return Err(fault("dictsort sorts by \"key\" or \"value\"")),
    };
    let Value::Dict(dict) = value.defined()? else { return Err(fault(format!("dictsort takes a dict, not a {}", value.kind()))) };
    let keyed = dict.iter().map(|(key, value)| {
        let sort_key = folded(if by_value { value.clone() } else { key.clone() }, case_sensitive);
        (sort_key, Value::tuple(vec![key.clone(), value.clone()]))
    });
    Ok(Value::list(values(sorted(keyed.collect(), flag(reverse))?)))
}

fn sort(machine: &Machine, value: &Value, given: &Given) -> Outcome<Value> {
    let [reverse, case_sensitive, attribute] = given.bind("sort", ["reverse", "case_sensitive", "attribute"])?;
    let case_sensitive = flag(case_sensitive);
    // Several attributes with commas between are compared one after the other.
    let all: Vec<Vec<Value>> = match &attribute {
        Some(Value::Text(text)) => text.text.split(',').map(|part| attribute_parts(&Value::text(part))).collect(),
        Some(other) => vec![attribute_parts(other)],
        None => vec![Vec::new()],
    };
    let mut keyed = Vec::new();
    for item in items_of(value)? {
        let mut key = Vec::with_capacity(all.len());
        for parts in &all {
            key.push(folded(attribute_of(machine, &item, parts, None)?, case_sensitive));
        }
        keyed.push((Value::list(key), item));
    }
    Ok(Value::list(values(sorted(keyed, flag(reverse))?)))
}

fn unique(machine: &Machine, value: &Value, given: &Given) -> Outcome<Value> {
    let [case_sensitive, attribute] = given.bind("unique", ["case_sensitive", "attribute"])?;
    let case_sensitive = flag(case_sensitive);
    let parts = attribute_parts(&attribute.unwrap_or(Value::None));
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for item in items_of(value)? {
        let key = folded(attribute_of(machine, &item, &parts, None)?, case_sensitive);
        if seen.insert(key_of(&key)?) {
            kept.push(item);
        }
    }
    Ok(Value::iterator(kept))
}

fn extreme(machine: &Machine, name: &str, value: &Value, given: &Given) -> Outcome<Value> {
    let [case_sensitive, attribute] = given.bind(name, ["case_sensitive", "attribute"])?;
    let case_sensitive = flag(case_sensitive);
    let parts = attribute_parts(&attribute.unwrap_or(Value::None));
    let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
    let mut best: Option<(Value, Value)> = None;
    for item in items_of(value)? {
        let key = folded(attribute_of(machine, &item, &parts, None)?, case_sensitive);
        let better = match &best {
            Some((other, _)) => key.order(other)? == Some(wanted),
            None => true,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(|| Value::undefined("No aggregated item, sequence was empty."), |(_, item)| item))
}

fn group_by(machine: &Machine, value: &Value, given: &Given) -> Outcome<Value> {
    let [attribute, default, case_sensitive] = given.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let parts = attribute_parts(&needed(attribute, "groupby", "attribute")?);
    let default = default.filter(|default| !default.is_none());
    let case_sensitive = flag(case_sensitive);
    let mut keyed = Vec::new();
    for item in items_of(value)? {
        keyed.push((folded(attribute_of(machine, &item, &parts, default.as_ref())?, case_sensitive), item));
    }
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, item) in sorted(keyed, false)? {
        match groups.last_mut() {
            Some((last, items)) if last.equals(&key)? => items.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut result = Vec::new();
    for (key, items) in groups {
        // The name of a group is spelled as its first item has it.
        let key = if case_sensitive { key } else { attribute_of(machine, &items[0], &parts, default.as_ref())? };
        result.push(Value::group(key, items));
    }
    Ok(Value::list(result))
}

fn map(machine: &Machine, value: &Value, given: &Given) -> Outcome<Value> {
    if !value.is_true() {
        return Ok(Value::iterator(Vec::new()));
    }
    let items = items_of(value)?;
    let mut result = Vec::with_capacity(items.len());
    if given.positional.is_empty() && given.named.iter().any(|(name, _)| &**name == "attribute") {
        let [attribute, default] = given.bind("map", ["attribute", "default"])?;
        let parts = attribute_parts(&attribute.unwrap_or(Value::None));
        let default = default.filter(|default| !default.is_none());
        for item in &items {
            step()?;
            result.push(attribute_of(machine, item, &parts, default.as_ref())?);
        }
        return Ok(Value::iterator(result));
    }
    let Some((Value::Text(name), rest)) = given.positional.split_first() else { return Err(fault("map needs the name of a filter")) };
    let inner = Given { positional: rest.to_vec(), named: given.named.clone() };
    for item in &items {
        step()?;
        result.push(super::call(machine, &name.text, item, &inner)?);
    }
    Ok(Value::iterator(result))
}

/// select, reject, selectattr, rejectattr
fn select(machine: &Machine, name: &str, value: &Value, given: &Given) -> Outcome<Value> {
    if !value.is_true() {
        return Ok(Value::iterator(Vec::new()));
    }
    let by_attribute = name.ends_with("attr");
    let mut arguments = given.positional.as_slice();
    let mut parts = Vec::new();
    if by_attribute {
        let (first, rest) = arguments.split_first().ok_or_else(|| fault(format!("{name} needs the name of an attribute")))?;
        parts = attribute_parts(first);
        arguments = rest;
    }
    let test = match arguments.split_first() {
        Some((Value::Text(test), rest)) => Some((test.text.clone(), Given { positional: rest.to_vec(), named: given.named.clone() })),
        Some(_) => return Err(fault(format!("{name}: a test goes by its name"))),
        None => None,
    };
    let keeps = name.starts_with("select");
    let mut kept = Vec::new();
    for item in items_of(value)? {
        step()?;
        let looked_at = attribute_of(machine, &item, &parts, None)?;
        let answer = match &test {
            Some((test, given)) => tests::call(machine, test, &looked_at, given)?,
            None => looked_at.is_true(),
        };
        if answer == keeps {
            kept.push(item);
        }
    }
    Ok(Value::iterator(kept))
}
