//! Carries out statements: what is written, loops, macros, and whose turn each part of the text is.
use super::arguments::Given;
use super::ast::*;
use super::budget::{spend, step, Level};
use super::dict::Dict;
use super::fault::{fault, Outcome};
use super::machine::Machine;
use super::scope::Scope;
use super::text::text_of;
use super::value::{Closure, Loop, Text, Value};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// A part of the text that was written while the template was at one message.
#[derive(Clone, Copy)]
pub struct Turn {
    pub message: u32,
    pub begin: usize,
    pub end: usize,
}

/// Where text goes: the result, or a block that becomes a value.
#[derive(Default)]
pub struct Sink {
    pub text: String,
    pub marks: Vec<(usize, usize)>,
    pub turns: Vec<Turn>,
}

impl Sink {
    fn write(&mut self, text: &Text, message: Option<u32>) -> Outcome<()> {
        spend(text.text.len())?;
        let begin = self.text.len();
        self.text.push_str(&text.text);
        if let Some(marks) = &text.marks {
            self.marks.extend(marks.iter().map(|(from, to)| (begin + from, begin + to)));
        }
        let Some(message) = message.filter(|_| !text.text.is_empty()) else { return Ok(()) };
        match self.turns.last_mut() {
            Some(last) if last.message == message && last.end == begin => last.end = self.text.len(),
            _ => self.turns.push(Turn { message, begin, end: self.text.len() }),
        }
        Ok(())
    }

    fn into_value(self) -> Value {
        let marks = if self.marks.is_empty() { None } else { Some(Rc::new(self.marks)) };
        Value::Text(Text { text: self.text.into(), safe: false, marks })
    }
}

#[derive(PartialEq)]
pub enum Flow {
    Next,
    Break,
    Continue,
}

impl Machine<'_> {
    pub fn run(&self, body: &Body, scope: &Rc<Scope>, out: &mut Sink) -> Outcome<Flow> {
        for statement in body {
            step()?;
            let flow = match &statement.does {
                Does::Data(text) => {
                    out.write(&Text { text: text.clone(), safe: false, marks: None }, self.message.get())?;
                    Flow::Next
                }
                _ => {
                    let _level = Level::enter().map_err(|error| error.at(statement.line))?;
                    self.run_one(&statement.does, scope, out).map_err(|error| error.at(statement.line))?
                }
            };
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn run_one(&self, does: &Does, scope: &Rc<Scope>, out: &mut Sink) -> Outcome<Flow> {
        match does {
            Does::Data(_) => {}
            Does::Print(expr) => out.write(&text_of(&self.eval(expr, scope)?)?, self.message.get())?,
            Does::Set(target, expr) => {
                let value = self.eval(expr, scope)?;
                // {% for i in range(n) %}{% set message = messages[i] %}: from here on it is this message's turn.
                if let (true, Some(message)) = (self.counts.get(), message_of(&value)) {
                    self.message.set(Some(message));
                }
                self.assign(target, value, scope)?;
            }
            Does::SetBlock { target, filter, body } => {
                let mut inner = Sink::default();
                let flow = self.run(body, &Scope::inside(scope), &mut inner)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
                let mut value = inner.into_value();
                if let Some(filter) = filter {
                    value = self.filtered(filter, value, scope)?;
                }
                self.assign(target, value, scope)?;
            }
            Does::If { branches, otherwise } => {
                for (test, body) in branches {
                    if self.eval(test, scope)?.is_true() {
                        return self.run(body, scope, out);
                    }
                }
                return self.run(otherwise, scope, out);
            }
            Does::For(node) => return self.run_for(node, scope, out),
            Does::With { bindings, body } => {
                let inner = Scope::inside(scope);
                for (target, expr) in bindings {
                    self.assign(target, self.eval(expr, scope)?, &inner)?;
                }
                return self.run(body, &inner, out);
            }
            Does::Macro(made) => {
                self.with_macros.borrow_mut().push(Rc::downgrade(scope));
                scope.set(made.symbol, Value::Macro(Rc::new(Closure { made: made.clone(), scope: scope.clone() })));
            }
            Does::CallBlock { call, body } => {
                let Kind::Call(callee, arguments) = &call.kind else { return Err(fault("a call block needs a call")) };
                let callee = self.eval(callee, scope)?;
                let mut given = self.given(arguments, scope)?;
                let caller = Value::Macro(Rc::new(Closure { made: body.clone(), scope: scope.clone() }));
                given.named.push(("caller".into(), caller));
                out.write(&text_of(&self.call(&callee, given)?)?, self.message.get())?;
            }
            Does::FilterBlock { filter, body } => {
                let mut inner = Sink::default();
                let flow = self.run(body, &Scope::inside(scope), &mut inner)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
                out.write(&text_of(&self.filtered(filter, inner.into_value(), scope)?)?, self.message.get())?;
            }
            Does::Generation(body) => {
                self.marks_made.set(self.marks_made.get() + 1);
                let begin = out.text.len();
                self.run(body, &Scope::inside(scope), out)?;
                out.marks.push((begin, out.text.len()));
            }
            Does::Block { scoped, body } => {
                self.run(body, &Scope::inside(if *scoped { scope } else { &self.root }), out)?;
            }
            Does::Scope(body) => return self.run(body, &Scope::inside(scope), out),
            Does::Break => return Ok(Flow::Break),
            Does::Continue => return Ok(Flow::Continue),
            Does::Refuse(reason) => return Err(fault(reason.as_str())),
        }
        Ok(Flow::Next)
    }

    fn assign(&self, target: &Target, value: Value, scope: &Rc<Scope>) -> Outcome<()> {
        match target {
            Target::Name(symbol) => scope.set(*symbol, value),
            Target::Tuple(targets) => {
                let items = value.defined()?.items()?;
                if items.len() != targets.len() {
                    return Err(fault(format!("{} values cannot be given to {} names", items.len(), targets.len())));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item, scope)?;
                }
            }
            Target::Attribute(symbol, name) => match scope.get(*symbol) {
                Some(Value::Namespace(_)) if name.starts_with('_') => {
                    return Err(fault(format!("a namespace takes no attribute that starts with _, such as {name}")));
                }
                Some(Value::Namespace(attributes)) => attributes.borrow_mut().insert(Value::text(name), value)?,
                _ => return Err(fault("an attribute can be set on a namespace alone")),
            },
        }
        Ok(())
    }

    fn run_for(&self, node: &Arc<For>, scope: &Rc<Scope>, out: &mut Sink) -> Outcome<Flow> {
        let over = self.eval(&node.over, scope)?;
        if !node.recursive {
            self.iterate(node, &over, scope, 0, out)?;
            return Ok(Flow::Next);
        }
        let mut inner = Sink::default();
        self.iterate(node, &over, scope, 0, &mut inner)?;
        out.write(&text_of(&inner.into_value())?, self.message.get())?;
        Ok(Flow::Next)
    }

    pub fn call_loop(&self, state: &Rc<Loop>, given: Given) -> Outcome<Value> {
        if !state.node.recursive {
            return Err(fault("only a loop that is marked recursive can be called"));
        }
        let [over] = given.bind("loop", ["iterable"])?;
        let over = over.ok_or_else(|| fault("loop needs something to go over"))?;
        let mut inner = Sink::default();
        self.iterate(&state.node, &over, &state.scope, state.depth0 + 1, &mut inner)?;
        Ok(inner.into_value())
    }

    fn iterate(&self, node: &Arc<For>, over: &Value, scope: &Rc<Scope>, depth0: i128, out: &mut Sink) -> Outcome<()> {
        let generator = match over {
            Value::Iterator(items) => Some(items.clone()),
            _ => None,
        };
        let coming: VecDeque<Value> = match over {
            Value::Loop(_) => return Err(fault("a loop over a loop is not supported")),
            other => other.items()?.into(),
        };
        let known = node.test.is_none() && generator.is_none();
        let state = Rc::new(Loop {
            node: node.clone(),
            scope: scope.clone(),
            length: Cell::new(known.then_some(coming.len() as i128)),
            coming: RefCell::new(coming),
            index0: Cell::new(-1),
            before: RefCell::new(None),
            now: RefCell::new(None),
            after: RefCell::new(None),
            changed: RefCell::new(None),
            depth0,
            passed: Cell::new(0),
        });
        let (message, counts) = (self.message.get(), self.counts.get());
        let mut any = false;
        let mut result = Ok(());
        while let Some(item) = self.next_item(&state)? {
            any = true;
            match self.one_round(&state, item, message, out) {
                Ok(Flow::Break) => break,
                Ok(_) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.message.set(message);
        self.counts.set(counts);
        if let Some(generator) = generator {
            *generator.borrow_mut() = state.coming.take();
        }
        result?;
        if !any {
            self.run(&node.otherwise, &Scope::inside(scope), out)?;
        }
        Ok(())
    }

    fn one_round(&self, state: &Rc<Loop>, item: Value, around: Option<u32>, out: &mut Sink) -> Outcome<Flow> {
        step()?;
        let before = state.now.replace(Some(item.clone()));
        state.before.replace(before);
        state.index0.set(state.index0.get() + 1);
        self.message.set(message_of(&item).or(around));
        self.counts.set(matches!(item, Value::Int(_)));
        let inner = Scope::inside(&state.scope);
        if let Some(symbol) = self.loop_symbol {
            inner.set(symbol, Value::Loop(state.clone()));
        }
        self.assign(&state.node.target, item, &inner)?;
        self.run(&state.node.body, &inner, out)
    }

    /// The next item that the loop's test lets through.
    pub fn next_item(&self, state: &Rc<Loop>) -> Outcome<Option<Value>> {
        if let Some(seen) = state.after.take() {
            return Ok(Some(seen));
        }
        loop {
            let next = state.coming.borrow_mut().pop_front();
            let (Some(item), Some(test)) = (&next, &state.node.test) else { return Ok(next) };
            step()?;
            if state.passed.get() > 0 {
                state.passed.set(state.passed.get() - 1);
                return Ok(next);
            }
            let inner = Scope::inside(&state.scope);
            self.assign(&state.node.target, item.clone(), &inner)?;
            if self.eval(test, &inner)?.is_true() {
                return Ok(next);
            }
        }
    }

    pub fn call_macro(&self, closure: &Closure, given: Given) -> Outcome<Value> {
        let _level = Level::enter()?;
        let made = &closure.made;
        let scope = Scope::inside(&closure.scope);
        let Given { positional, mut named } = given;
        let mut take = |name: &str| {
            let at = named.iter().position(|(known, _)| &**known == name)?;
            Some(named.remove(at).1)
        };
        for (index, (symbol, name, default)) in made.parameters.iter().enumerate() {
            let value = match positional.get(index) {
                Some(value) => value.clone(),
                None => match (take(name), default) {
                    (Some(value), _) => value,
                    (None, Some(default)) => self.eval(default, &scope)?,
                    (None, None) => Value::undefined(format!("parameter '{name}' was not provided")),
                },
            };
            scope.set(*symbol, value);
        }
        let special = |name: &str| self.tree.names.iter().position(|known| &**known == name).map(|at| at as Symbol);
        let takes_caller = made.parameters.iter().any(|(_, name, _)| &**name == "caller");
        if made.reads_caller && !takes_caller {
            let caller = take("caller").filter(|value| !value.is_none());
            let caller = caller.unwrap_or_else(|| Value::undefined("No caller defined"));
            special("caller").into_iter().for_each(|symbol| scope.set(symbol, caller.clone()));
        }
        if made.reads_kwargs {
            let mut kwargs = Dict::default();
            for (name, value) in std::mem::take(&mut named) {
                kwargs.insert(Value::text(&name), value)?;
            }
            let kwargs = Value::dict(kwargs);
            special("kwargs").into_iter().for_each(|symbol| scope.set(symbol, kwargs.clone()));
        } else if let Some((name, _)) = named.first() {
            return Err(fault(format!("the macro {} has no argument {name}", made.name)));
        }
        let surplus = positional.get(made.parameters.len()..).unwrap_or_default().to_vec();
        if made.reads_varargs {
            let varargs = Value::tuple(surplus);
            special("varargs").into_iter().for_each(|symbol| scope.set(symbol, varargs.clone()));
        } else if !surplus.is_empty() {
            return Err(fault(format!("the macro {} takes not more than {} arguments", made.name, made.parameters.len())));
        }
        let mut out = Sink::default();
        self.run(&made.body, &scope, &mut out)?;
        Ok(out.into_value())
    }
}

fn message_of(item: &Value) -> Option<u32> {
    match item {
        Value::Dict(dict) => dict.message,
        _ => None,
    }
}
