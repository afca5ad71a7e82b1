//! Names and their values: a chain of scopes, as loops, macros and blocks open them.
use super::ast::Symbol;
use super::value::Value;
use std::cell::RefCell;
use std::rc::Rc;

pub struct Scope {
    values: RefCell<Vec<(Symbol, Value)>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub fn root() -> Rc<Scope> {
        Rc::new(Scope { values: RefCell::default(), parent: None })
    }

    pub fn inside(parent: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { values: RefCell::default(), parent: Some(parent.clone()) })
    }

    pub fn set(&self, name: Symbol, value: Value) {
        let mut values = self.values.borrow_mut();
        match values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => values.push((name, value)),
        }
    }

    pub fn clear(&self) {
        self.values.take();
    }

    pub fn get(&self, name: Symbol) -> Option<Value> {
        let mut scope = self;
        loop {
            if let Some((_, value)) = scope.values.borrow().iter().find(|(known, _)| *known == name) {
                return Some(value.clone());
            }
            scope = scope.parent.as_deref()?;
        }
    }
}
