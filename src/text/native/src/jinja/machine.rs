//! Works out expressions: names, calls, filters, tests.
use super::arguments::Given;
use super::ast::*;
use super::attributes::{attribute, item};
use super::budget::{spend, step, Level};
use super::dict::Dict;
use super::fault::{fault, Outcome};
use super::scope::Scope;
use super::value::{Function, Value};
use super::{filters, functions, methods, operators, tests, text};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// One rendering of a tree.
pub struct Machine<'a> {
    pub tree: &'a Tree,
    pub root: Rc<Scope>,
    pub message: Cell<Option<u32>>,             // whose turn is being written
    pub marks_made: Cell<usize>,                // {% generation %} blocks so far
    pub counts: Cell<bool>,                     // the loop around goes over numbers
    pub with_macros: RefCell<Vec<Weak<Scope>>>, // scopes that hold a macro, which holds the scope
    pub loop_symbol: Option<Symbol>,
}

pub fn constant(value: &Const) -> Value {
    match value {
        Const::None => Value::None,
        Const::Bool(value) => Value::Bool(*value),
        Const::Int(value) => Value::Int(*value),
        Const::Float(value) => Value::Float(*value),
        Const::Text(text) => Value::Text(super::value::Text { text: text.clone(), safe: false, marks: None }),
    }
}

fn global(name: &str) -> Option<Function> {
    Some(match name {
        "range" => Function::Range,
        "dict" => Function::Dict,
        "namespace" => Function::Namespace,
        "cycler" => Function::Cycler,
        "joiner" => Function::Joiner,
        "raise_exception" => Function::RaiseException,
        "strftime_now" => Function::StrftimeNow,
        "lipsum" => Function::Lipsum,
        _ => return None,
    })
}

impl Machine<'_> {
    pub fn name(&self, symbol: Symbol) -> &str {
        &self.tree.names[symbol as usize]
    }

    pub fn eval(&self, expr: &Expr, scope: &Rc<Scope>) -> Outcome<Value> {
        step()?;
        match &expr.kind {
            Kind::Const(value) => return Ok(constant(value)),
            Kind::Name(symbol) => return self.lookup(*symbol, scope),
            _ => {}
        }
        let _level = Level::enter().map_err(|error| error.at(expr.line))?;
        self.eval_kind(expr, scope).map_err(|error| error.at(expr.line))
    }

    fn lookup(&self, symbol: Symbol, scope: &Rc<Scope>) -> Outcome<Value> {
        if let Some(value) = scope.get(symbol) {
            return Ok(value);
        }
        let name = self.name(symbol);
        if let Some(function) = global(name) {
            return Ok(Value::Function(function));
        }
        if name == "self" {
            return Err(fault("self is not supported"));
        }
        Ok(Value::undefined(format!("'{name}' is undefined")))
    }

    fn eval_kind(&self, expr: &Expr, scope: &Rc<Scope>) -> Outcome<Value> {
        Ok(match &expr.kind {
            Kind::Const(value) => constant(value),
            Kind::Name(symbol) => self.lookup(*symbol, scope)?,
            Kind::List(items) => Value::list(self.all(items, scope)?),
            Kind::Tuple(items) => Value::tuple(self.all(items, scope)?),
            Kind::Dict(entries) => {
                let mut dict = Dict::default();
                for (key, value) in entries {
                    let key = self.eval(key, scope)?;
                    dict.insert(key, self.eval(value, scope)?)?;
                }
                Value::dict(dict)
            }
            Kind::Choice { test, then, other } => {
                if self.eval(test, scope)?.is_true() {
                    self.eval(then, scope)?
                } else if let Some(other) = other {
                    self.eval(other, scope)?
                } else {
                    Value::undefined("an inline if has no else and its test is false")
                }
            }
            Kind::Or(a, b) => {
                let first = self.eval(a, scope)?;
                if first.is_true() {
                    first
                } else {
                    self.eval(b, scope)?
                }
            }
            Kind::And(a, b) => {
                let first = self.eval(a, scope)?;
                if first.is_true() {
                    self.eval(b, scope)?
                } else {
                    first
                }
            }
            Kind::Not(inner) => Value::Bool(!self.eval(inner, scope)?.is_true()),
            Kind::Compare(first, others) => {
                let mut left = self.eval(first, scope)?;
                for (comparison, other) in others {
                    let right = self.eval(other, scope)?;
                    if !operators::compare(*comparison, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            Kind::Binary(operator, a, b) => {
                let left = self.eval(a, scope)?;
                operators::binary(*operator, &left, &self.eval(b, scope)?)?
            }
            Kind::Negative(inner) => operators::negative(&self.eval(inner, scope)?)?,
            Kind::Positive(inner) => operators::positive(&self.eval(inner, scope)?)?,
            Kind::Concat(parts) => {
                let mut joined = String::new();
                for part in parts {
                    let part = text::text_of(&self.eval(part, scope)?)?;
                    spend(part.text.len())?;
                    joined.push_str(&part.text);
                }
                Value::from(joined)
            }
            Kind::Attribute(inner, name) => attribute(self, &self.eval(inner, scope)?, name)?,
            Kind::Item(inner, key) => {
                let value = self.eval(inner, scope)?;
                item(self, &value, &self.eval(key, scope)?)?
            }
            Kind::Slice(inner, bounds) => {
                let value = self.eval(inner, scope)?;
                let mut numbers = [Value::None, Value::None, Value::None];
                for (number, bound) in numbers.iter_mut().zip(bounds) {
                    if let Some(bound) = bound {
                        *number = self.eval(bound, scope)?;
                    }
                }
                operators::slice(&value, &numbers)?
            }
            Kind::Call(callee, arguments) => {
                let callee = self.eval(callee, scope)?;
                let given = self.given(arguments, scope)?;
                self.call(&callee, given)?
            }
            Kind::Filter(Some(inner), name, arguments) => {
                let value = self.eval(inner, scope)?;
                filters::call(self, name, &value, &self.given(arguments, scope)?)?
            }
            Kind::Filter(None, ..) => return Err(fault("a filter without a value")),
            Kind::Test(inner, name, arguments) => {
                let value = self.eval(inner, scope)?;
                Value::Bool(tests::call(self, name, &value, &self.given(arguments, scope)?)?)
            }
        })
    }

    /// Filters of a block, over its text.
    pub fn filtered(&self, filter: &Expr, block: Value, scope: &Rc<Scope>) -> Outcome<Value> {
        match &filter.kind {
            Kind::Filter(inner, name, arguments) => {
                let value = match inner {
                    Some(inner) => self.filtered(inner, block, scope)?,
                    None => block,
                };
                filters::call(self, name, &value, &self.given(arguments, scope)?).map_err(|error| error.at(filter.line))
            }
            _ => Err(fault("expected a filter").at(filter.line)),
        }
    }

    fn all(&self, items: &[Expr], scope: &Rc<Scope>) -> Outcome<Vec<Value>> {
        items.iter().map(|item| self.eval(item, scope)).collect()
    }

    pub fn given(&self, arguments: &Arguments, scope: &Rc<Scope>) -> Outcome<Given> {
        let mut given = Given { positional: self.all(&arguments.positional, scope)?, named: Vec::new() };
        for (name, value) in &arguments.named {
            given.named.push((name.clone(), self.eval(value, scope)?));
        }
        if let Some(more) = &arguments.more_positional {
            given.positional.extend(self.eval(more, scope)?.defined()?.items()?);
        }
        if let Some(more) = &arguments.more_named {
            let Value::Dict(dict) = self.eval(more, scope)? else { return Err(fault("** takes a dict")) };
            for (key, value) in dict.iter() {
                let Value::Text(name) = key else { return Err(fault("** takes a dict with texts as keys")) };
                if given.named.iter().any(|(known, _)| *known == name.text) {
                    return Err(fault(format!("the argument {} is given twice", name.text)));
                }
                given.named.push((name.text.clone(), value.clone()));
            }
        }
        Ok(given)
    }

    pub fn call(&self, callee: &Value, given: Given) -> Outcome<Value> {
        match callee.defined()? {
            Value::Macro(closure) => self.call_macro(closure, given),
            Value::Function(function) => functions::call(*function, given),
            Value::Method(receiver, name) => methods::call(self, receiver, name, given),
            Value::Loop(state) => self.call_loop(state, given),
            Value::Joiner(joiner) => {
                given.bind::<0>("joiner", [])?;
                let used = joiner.1.replace(true);
                Ok(if used { joiner.0.clone() } else { Value::text("") })
            }
            other => Err(fault(format!("a {} cannot be called", other.kind()))),
        }
    }
}
