//! The functions that a template finds by name.
use super::arguments::{int_argument, needed, Given};
use super::dict::Dict;
use super::fault::{fault, Outcome};
use super::text::string_of;
use super::value::{Function, Range, Value};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

const LONGEST_RANGE: i128 = 100_000; // Jinja2's sandbox draws the same line

thread_local! {
    /// Namespaces of the current rendering: one may hold itself, and is emptied at the end.
    static NAMESPACES: RefCell<Vec<Weak<RefCell<Dict>>>> = const { RefCell::new(Vec::new()) };
}

pub fn forget_namespaces() {
    for namespace in NAMESPACES.take() {
        if let Some(attributes) = namespace.upgrade() {
            attributes.borrow_mut().clear();
        }
    }
}

pub fn call(function: Function, given: Given) -> Outcome<Value> {
    match function {
        Function::Range => range(&given),
        Function::Dict => Ok(Value::dict(dict(&given)?)),
        Function::Namespace => {
            let attributes = dict(&given)?;
            for (name, _) in attributes.iter() {
                if name.as_str().is_some_and(|name| name.starts_with('_')) {
                    return Err(fault("a namespace takes no attribute that starts with _"));
                }
            }
            let made = Rc::new(RefCell::new(attributes));
            NAMESPACES.with_borrow_mut(|all| all.push(Rc::downgrade(&made)));
            Ok(Value::Namespace(made))
        }
        Function::Cycler if given.positional.is_empty() || !given.named.is_empty() => Err(fault("cycler needs at least one item")),
        Function::Cycler if !given.positional.iter().all(is_simple) => Err(fault("cycler is supported for texts and numbers alone")),
        Function::Cycler => Ok(Value::Cycler(Rc::new((given.positional, Cell::new(0))))),
        Function::Joiner => {
            let [separator] = given.bind("joiner", ["sep"])?;
            if !separator.iter().all(is_simple) {
                return Err(fault("joiner is supported for texts alone"));
            }
            Ok(Value::Joiner(Rc::new((separator.unwrap_or_else(|| Value::text(", ")), Cell::new(false)))))
        }
        Function::RaiseException => {
            let [message] = given.bind("raise_exception", ["message"])?;
            Err(fault(format!("the template says: {}", string_of(&needed(message, "raise_exception", "message")?)?)))
        }
        Function::StrftimeNow => {
            let [format] = given.bind("strftime_now", ["format"])?;
            let format = needed(format, "strftime_now", "format")?;
            let format = format.as_str().ok_or_else(|| fault("strftime_now takes a text"))?;
            Ok(Value::from(strftime_now(format)?))
        }
        Function::Lipsum => Err(fault("lipsum is not supported: its text is random")),
    }
}

fn is_simple(value: &Value) -> bool {
    matches!(value, Value::Undefined(_) | Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_))
}

fn range(given: &Given) -> Outcome<Value> {
    let [first, second, third] = given.places::<3>("range")?;
    let number = |value: &Value| int_argument(value, "range", "a bound");
    let first = number(&needed(first, "range", "stop")?)?;
    let (start, stop) = match second {
        Some(stop) => (first, number(&stop)?),
        None => (0, first),
    };
    let step = third.as_ref().map_or(Ok(1), number)?;
    if step == 0 {
        return Err(fault("range: the step cannot be 0"));
    }
    let range = Range { start, stop, step };
    if range.len() > LONGEST_RANGE {
        return Err(fault(format!("a range has at most {LONGEST_RANGE} items, this one {}", range.len())));
    }
    Ok(Value::Range(range))
}

/// dict(mapping or pairs, name=value, ...)
fn dict(given: &Given) -> Outcome<Dict> {
    let mut result = match given.positional.as_slice() {
        [] => Dict::default(),
        [Value::Dict(other)] => other.copy(),
        [pairs] => {
            let mut result = Dict::default();
            for pair in pairs.defined()?.items()? {
                match <[Value; 2]>::try_from(pair.items()?) {
                    Ok([key, value]) => result.insert(key, value)?,
                    Err(_) => return Err(fault("dict takes pairs of a key and a value")),
                }
            }
            result
        }
        _ => return Err(fault("dict takes at most one argument without a name")),
    };
    for (name, value) in &given.named {
        result.insert(Value::text(name), value.clone())?;
    }
    Ok(result)
}

/// dict.fromkeys(keys, value)
pub fn from_keys(given: &Given) -> Outcome<Value> {
    let [keys, value] = given.places::<2>("fromkeys")?;
    let value = value.unwrap_or(Value::None);
    let mut result = Dict::default();
    for key in needed(keys, "fromkeys", "keys")?.defined()?.items()? {
        result.insert(key, value.clone())?;
    }
    Ok(Value::dict(result))
}

/// datetime.now().strftime(format)
fn strftime_now(format: &str) -> Outcome<String> {
    let refused = || fault("strftime_now: the format cannot be used");
    if format.contains("%f") || format.contains("%z") || format.contains("%Z") {
        return Err(fault("strftime_now: %f, %z and %Z are not supported"));
    }
    let format = std::ffi::CString::new(format).map_err(|_| refused())?;
    let mut buffer = vec![0u8; 64 + 32 * format.as_bytes().len()];
    // Safety: localtime_r fills the struct that strftime then reads; strftime writes at most the buffer's length.
    let length = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut fields: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut fields).is_null() {
            return Err(refused());
        }
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &fields)
    };
    buffer.truncate(length);
    String::from_utf8(buffer).map_err(|_| refused())
}
