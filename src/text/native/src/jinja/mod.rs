//! Jinja as jinja2 renders it for transformers: values and their texts are Python's. What is not done in just the same way is refused.
mod arguments;
mod ast;
mod attributes;
mod budget;
mod dict;
mod equality;
mod fault;
mod filters;
mod format;
mod functions;
mod json;
mod lexer;
mod machine;
mod methods;
mod operators;
mod parser;
mod run;
mod scope;
mod statements;
mod suffixes;
mod tests;
mod text;
mod unicode;
mod value;

pub use fault::Fault;
pub use run::Turn;

use dict::Dict;
use fault::{fault, Outcome};
use machine::Machine;
use run::Sink;
use scope::Scope;
use serde_json::Value as Json;
use std::cell::{Cell, RefCell};
use value::Value;

/// Compiled once, rendered by any thread.
pub struct Template {
    tree: ast::Tree,
}

pub struct Rendered {
    pub text: String,
    pub marks: Vec<(usize, usize)>, // {% generation %} blocks
    pub turns: Vec<Turn>,           // which part was written for which message
    pub said_none: u32,             // how often a `none` was written as the word None
}

fn value_of(json: Json) -> Outcome<Value> {
    Ok(match json {
        Json::Null => Value::None,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), _, _) => Value::Int(whole.into()),
            (_, Some(whole), _) => Value::Int(whole.into()),
            (_, _, Some(value)) => Value::Float(value),
            _ => return Err(fault("a number of the conversation cannot be read")),
        },
        Json::String(text) => Value::from(text),
        Json::Array(items) => Value::list(items.into_iter().map(value_of).collect::<Outcome<_>>()?),
        Json::Object(members) => Value::dict(dict_of(members)?),
    })
}

fn dict_of(members: serde_json::Map<String, Json>) -> Outcome<Dict> {
    let mut dict = Dict::default();
    for (name, value) in members {
        dict.insert(Value::from(name), value_of(value)?)?;
    }
    Ok(dict)
}

/// Each message knows its place, so that the text written for it can be told.
fn messages_of(messages: Json) -> Outcome<Value> {
    let Json::Array(messages) = messages else { return value_of(messages) };
    let mut list = Vec::with_capacity(messages.len());
    for (number, message) in messages.into_iter().enumerate() {
        list.push(match message {
            Json::Object(members) => {
                let mut dict = dict_of(members)?;
                dict.message = Some(number as u32);
                Value::dict(dict)
            }
            other => value_of(other)?,
        });
    }
    Ok(Value::list(list))
}

impl Template {
    pub fn compile(source: &str) -> Result<Template, Fault> {
        Ok(Template { tree: statements::parse(source)? })
    }

    pub fn has_marks(&self) -> bool {
        self.tree.has_marks
    }

    /// context: a JSON object of the names that the template sees.
    pub fn render(&self, context: Json) -> Result<Rendered, Fault> {
        budget::start();
        text::take_said_none();
        let Json::Object(members) = context else { return Err(fault("the names of a template come as an object")) };
        let root = Scope::root();
        let symbol = |name: &str| self.tree.names.iter().position(|known| &**known == name).map(|at| at as ast::Symbol);
        for (name, value) in members {
            let Some(symbol) = symbol(&name) else { continue };
            root.set(symbol, if name == "messages" { messages_of(value)? } else { value_of(value)? });
        }
        let machine = Machine {
            tree: &self.tree,
            root: Scope::inside(&root),
            message: Cell::new(None),
            marks_made: Cell::new(0),
            counts: Cell::new(false),
            with_macros: RefCell::default(),
            loop_symbol: symbol("loop"),
        };
        let mut out = Sink::default();
        let ran = machine.run(&self.tree.body, &machine.root, &mut out);
        // What holds itself would stay in memory for good.
        machine.with_macros.take().iter().filter_map(std::rc::Weak::upgrade).for_each(|scope| scope.clear());
        functions::forget_namespaces();
        ran?;
        if out.marks.len() != machine.marks_made.get() {
            return Err(fault(
                "a {% generation %} block stands inside a text that is changed before it is written, so its place is not known",
            ));
        }
        Ok(Rendered { text: out.text, marks: out.marks, turns: out.turns, said_none: text::take_said_none() })
    }
}
