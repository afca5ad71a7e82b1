//! The values of a template, with Python's rules: what is equal, what is true, what comes before what, what can be a key.
use super::ast::{For, Macro};
use super::budget;
use super::dict::Dict;
use super::fault::{fault, Outcome};
use super::scope::Scope;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// Where {% generation %} blocks lie in a text, in bytes.
pub type Marks = Rc<Vec<(usize, usize)>>;

#[derive(Clone)]
pub struct Text {
    pub text: Arc<str>,
    pub safe: bool, // Markup: what is added to it is escaped
    pub marks: Option<Marks>,
}

#[derive(Clone)]
pub enum Value {
    Undefined(Rc<str>), // why, for the error that using it gives
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Text),
    List(Rc<List>),
    Tuple(Rc<Tuple>),
    Dict(Rc<Dict>),
    View(ViewOf, Rc<Dict>),
    Range(Range),
    Iterator(Rc<Stream>), // a generator: it is read once
    Namespace(Rc<RefCell<Dict>>),
    Loop(Rc<Loop>),
    Macro(Rc<Closure>),
    Function(Function),
    Method(Box<Value>, Arc<str>),
    Cycler(Rc<(Vec<Value>, Cell<usize>)>),
    Joiner(Rc<(Value, Cell<bool>)>),
}

/// What holds values knows how deep they are nested: dropping and comparing them goes as deep.
pub struct List {
    items: Vec<Value>,
    depth: u32,
}

impl Deref for List {
    type Target = Vec<Value>;
    fn deref(&self) -> &Vec<Value> {
        &self.items
    }
}

pub struct Tuple {
    pub items: Vec<Value>,
    pub is_group: bool, // of groupby: its items also go by the names grouper and list
    depth: u32,
}

pub struct Stream {
    items: RefCell<VecDeque<Value>>,
    depth: u32,
}

impl Deref for Stream {
    type Target = RefCell<VecDeque<Value>>;
    fn deref(&self) -> &RefCell<VecDeque<Value>> {
        &self.items
    }
}

fn depth_around(items: &[Value]) -> u32 {
    let depth = items.iter().map(Value::depth).max().unwrap_or(0) + 1;
    budget::nest(depth);
    depth
}

#[derive(Clone, Copy, PartialEq)]
pub enum ViewOf {
    Keys,
    Values,
    Items,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Function {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    RaiseException,
    StrftimeNow,
    Lipsum,
}

#[derive(Clone, Copy)]
pub struct Range {
    pub start: i128,
    pub stop: i128,
    pub step: i128,
}

pub struct Closure {
    pub made: Arc<Macro>,
    pub scope: Rc<Scope>,
}

/// What `loop` is: items to come, and where the loop stands.
pub struct Loop {
    pub node: Arc<For>,
    pub scope: Rc<Scope>, // around the loop
    pub coming: RefCell<VecDeque<Value>>,
    pub length: Cell<Option<i128>>,
    pub index0: Cell<i128>,
    pub before: RefCell<Option<Value>>,
    pub now: RefCell<Option<Value>>,
    pub after: RefCell<Option<Value>>, // looked at already
    pub changed: RefCell<Option<Vec<Value>>>,
    pub depth0: i128,
    pub passed: Cell<usize>, // so many of those to come have passed the loop's test already
}

impl Loop {
    /// Puts items back that have passed the loop's test.
    pub fn passed(&self, items: Vec<Value>) {
        self.passed.set(items.len());
        self.coming.replace(items.into());
    }
}

impl Range {
    pub fn len(&self) -> i128 {
        let span = if self.step > 0 { self.stop - self.start } else { self.start - self.stop };
        if span <= 0 {
            0
        } else {
            (span - 1) / self.step.abs() + 1
        }
    }

    pub fn items(&self) -> impl Iterator<Item = Value> + '_ {
        (0..self.len()).map(|i| Value::Int(self.start + i * self.step))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::text(&text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::text(text)
    }
}

impl Value {
    pub fn text(text: &str) -> Value {
        Value::Text(Text { text: text.into(), safe: false, marks: None })
    }

    pub fn marked(text: &str, safe: bool) -> Value {
        Value::Text(Text { text: text.into(), safe, marks: None })
    }

    pub fn list(items: Vec<Value>) -> Value {
        let depth = depth_around(&items);
        Value::List(Rc::new(List { items, depth }))
    }

    pub fn tuple(items: Vec<Value>) -> Value {
        let depth = depth_around(&items);
        Value::Tuple(Rc::new(Tuple { items, is_group: false, depth }))
    }

    /// Of groupby: its name and its items.
    pub fn group(key: Value, items: Vec<Value>) -> Value {
        let items = vec![key, Value::list(items)];
        let depth = depth_around(&items);
        Value::Tuple(Rc::new(Tuple { items, is_group: true, depth }))
    }

    pub fn dict(dict: Dict) -> Value {
        Value::Dict(Rc::new(dict))
    }

    pub fn iterator(items: Vec<Value>) -> Value {
        let depth = depth_around(&items);
        Value::Iterator(Rc::new(Stream { items: RefCell::new(items.into()), depth }))
    }

    pub fn undefined(reason: impl Into<Rc<str>>) -> Value {
        Value::Undefined(reason.into())
    }

    pub(super) fn depth(&self) -> u32 {
        match self {
            Value::List(list) => list.depth,
            Value::Tuple(tuple) => tuple.depth,
            Value::Dict(dict) | Value::View(_, dict) => dict.depth,
            Value::Iterator(stream) => stream.depth,
            Value::Namespace(attributes) => attributes.try_borrow().map_or(0, |attributes| attributes.depth + 1),
            Value::Method(receiver, _) => receiver.depth(),
            _ => 0,
        }
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(&text.text),
            _ => None,
        }
    }

    /// As Python's isinstance(value, int) has it: a bool is one.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Bool(value) => Some(i128::from(*value)),
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<f64> {
        match self {
            Value::Float(value) => Some(*value),
            other => other.as_int().map(|value| value as f64),
        }
    }

    /// The name of its type, for errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "undefined value",
            Value::None => "none",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "text",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::View(..) => "view of a dict",
            Value::Range(_) => "range",
            Value::Iterator(_) => "generator",
            Value::Namespace(_) => "namespace",
            Value::Loop(_) => "loop",
            Value::Macro(_) => "macro",
            Value::Function(_) | Value::Method(..) => "function",
            Value::Cycler(_) => "cycler",
            Value::Joiner(_) => "joiner",
        }
    }

    /// The error of using an undefined value; nothing for any other.
    pub fn defined(&self) -> Outcome<&Value> {
        match self {
            Value::Undefined(reason) => Err(fault(&**reason)),
            other => Ok(other),
        }
    }

    pub fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Text(text) => !text.text.is_empty(),
            Value::List(items) => !items.is_empty(),
            Value::Tuple(tuple) => !tuple.items.is_empty(),
            Value::Dict(dict) | Value::View(_, dict) => dict.len() > 0,
            Value::Range(range) => range.len() > 0,
            _ => true,
        }
    }

    /// len(value); a loop's is for the machine to say.
    pub fn len(&self) -> Outcome<usize> {
        Ok(match self {
            Value::Undefined(_) => 0,
            Value::Text(text) => text.text.chars().count(),
            Value::List(items) => items.len(),
            Value::Tuple(tuple) => tuple.items.len(),
            Value::Dict(dict) | Value::View(_, dict) => dict.len(),
            Value::Range(range) => range.len() as usize,
            other => return Err(fault(format!("a {} has no length", other.kind()))),
        })
    }

    pub fn is_iterable(&self) -> bool {
        use Value::*;
        matches!(self, Undefined(_) | Text(_) | List(_) | Tuple(_) | Dict(_) | View(..) | Range(_) | Iterator(_) | Loop(_))
    }

    /// All items; a generator has none left afterwards.
    pub fn items(&self) -> Outcome<Vec<Value>> {
        Ok(match self {
            Value::Undefined(_) => Vec::new(),
            Value::Text(text) => {
                let mut buffer = [0u8; 4];
                text.text.chars().map(|c| Value::text(c.encode_utf8(&mut buffer))).collect()
                // plain, also where the text is safe
            }
            Value::List(items) => items.to_vec(),
            Value::Tuple(tuple) => tuple.items.clone(),
            Value::Dict(dict) | Value::View(ViewOf::Keys, dict) => dict.iter().map(|(key, _)| key.clone()).collect(),
            Value::View(ViewOf::Values, dict) => dict.iter().map(|(_, value)| value.clone()).collect(),
            Value::View(ViewOf::Items, dict) => dict.iter().map(|(key, value)| Value::tuple(vec![key.clone(), value.clone()])).collect(),
            Value::Range(range) => range.items().collect(),
            Value::Iterator(items) => std::mem::take(&mut *items.borrow_mut()).into(),
            other => return Err(fault(format!("a {} cannot be iterated", other.kind()))),
        })
    }
}
