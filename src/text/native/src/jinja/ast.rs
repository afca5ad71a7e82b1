//! A template in the form of a tree: what is printed, what is done, and the expressions of both. Immutable and shared by threads.
use std::sync::Arc;

/// A name by its number in Tree::names.
pub type Symbol = u32;

#[derive(Debug, Clone)]
pub enum Const {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Arc<str>),
}

#[derive(Debug)]
pub struct Expr {
    pub line: u32,
    pub kind: Kind,
}

pub type Boxed = Box<Expr>;

#[derive(Debug)]
pub enum Kind {
    Const(Const),
    Name(Symbol),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Choice { test: Boxed, then: Boxed, other: Option<Boxed> },
    Or(Boxed, Boxed),
    And(Boxed, Boxed),
    Not(Boxed),
    Compare(Boxed, Vec<(Comparison, Expr)>),
    Binary(Operator, Boxed, Boxed),
    Negative(Boxed),
    Positive(Boxed),
    Concat(Vec<Expr>),
    Attribute(Boxed, Arc<str>),
    Item(Boxed, Boxed),
    Slice(Boxed, [Option<Boxed>; 3]),
    Call(Boxed, Arguments),
    Filter(Option<Boxed>, Arc<str>, Arguments), // None: the text of the block that the filter closes
    Test(Boxed, Arc<str>, Arguments),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Comparison {
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
}

#[derive(Debug, Default)]
pub struct Arguments {
    pub positional: Vec<Expr>,
    pub named: Vec<(Arc<str>, Expr)>,
    pub more_positional: Option<Boxed>, // *args
    pub more_named: Option<Boxed>,      // **kwargs
}

#[derive(Debug)]
pub enum Target {
    Name(Symbol),
    Tuple(Vec<Target>),
    Attribute(Symbol, Arc<str>), // of a namespace
}

#[derive(Debug)]
pub struct Statement {
    pub line: u32,
    pub does: Does,
}

pub type Body = Vec<Statement>;

#[derive(Debug)]
pub enum Does {
    Data(Arc<str>),
    Print(Expr),
    Set(Target, Expr),
    SetBlock { target: Target, filter: Option<Expr>, body: Body },
    If { branches: Vec<(Expr, Body)>, otherwise: Body },
    For(Arc<For>),
    With { bindings: Vec<(Target, Expr)>, body: Body },
    Macro(Arc<Macro>),
    CallBlock { call: Expr, body: Arc<Macro> },
    FilterBlock { filter: Expr, body: Body },
    Generation(Body),
    Block { scoped: bool, body: Body },
    Scope(Body),
    Break,
    Continue,
    Refuse(String), // known to Jinja2, impossible in a chat template
}

#[derive(Debug)]
pub struct For {
    pub target: Target,
    pub over: Expr,
    pub test: Option<Expr>,
    pub recursive: bool,
    pub body: Body,
    pub otherwise: Body,
}

#[derive(Debug)]
pub struct Macro {
    pub name: Arc<str>,
    pub symbol: Symbol,
    pub parameters: Vec<(Symbol, Arc<str>, Option<Expr>)>,
    pub body: Body,
    // Special names that the body reads without having set them.
    pub reads_caller: bool,
    pub reads_varargs: bool,
    pub reads_kwargs: bool,
}

#[derive(Debug)]
pub struct Tree {
    pub body: Body,
    pub names: Vec<Arc<str>>,
    pub has_marks: bool, // {% generation %}
}
