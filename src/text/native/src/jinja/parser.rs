//! Reads tokens into a tree: expressions, with Jinja2's precedence. Statements are in statements.rs.
use super::ast::*;
use super::fault::{fault, Outcome};
use super::lexer::{Placed, Token};
use std::collections::HashMap;
use std::sync::Arc;

const DEEPEST: u32 = 60; // of nested expressions and blocks; a parser that calls itself must end somewhere

pub struct Parser {
    pub(super) tokens: Vec<Placed>,
    pub(super) at: usize,
    pub(super) names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Symbol>,
    depth: u32,
    pub(super) loops: u32,                 // that break and continue would leave
    pub(super) reads: Vec<(Symbol, bool)>, // names in the order in which they are read (true) or set (false)
    pub(super) has_marks: bool,
    pub(super) soft: u32,                   // inside an if: what is not known may be met only when it is reached
    pub(super) unknown: Vec<(u32, String)>, // filters and tests that do not exist, with their lines
}

const LONGEST_CHAIN: u32 = 300; // of operators, filters or subscripts: each is a level of the tree

impl Parser {
    pub fn new(tokens: Vec<Placed>) -> Parser {
        Parser {
            tokens,
            at: 0,
            names: Vec::new(),
            numbers: HashMap::new(),
            depth: 0,
            loops: 0,
            reads: Vec::new(),
            has_marks: false,
            soft: 0,
            unknown: Vec::new(),
        }
    }

    pub(super) fn symbol(&mut self, name: &Arc<str>) -> Symbol {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as Symbol;
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }

    pub(super) fn current(&self) -> &Token {
        &self.tokens[self.at].token
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens[self.at].line
    }

    pub(super) fn look(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].token
    }

    pub(super) fn advance(&mut self) {
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        matches!(self.current(), Token::Op(found) if *found == op)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.current(), Token::Name(found) if **found == *word)
    }

    pub(super) fn skip_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn skip_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn shown(&self) -> String {
        match self.current() {
            Token::Data(_) => "text".into(),
            Token::PrintBegin => "{{".into(),
            Token::PrintEnd => "}}".into(),
            Token::BlockBegin => "{%".into(),
            Token::BlockEnd => "%}".into(),
            Token::Name(name) => name.to_string(),
            Token::Text(text) => format!("{text:?}"),
            Token::Int(number) => number.to_string(),
            Token::Float(number) => number.to_string(),
            Token::Op(op) => (*op).into(),
            Token::End => "the end of the template".into(),
        }
    }

    pub(super) fn failed<T>(&self, reason: impl Into<String>) -> Outcome<T> {
        Err(fault(reason).at(self.line()))
    }

    pub(super) fn expect_op(&mut self, op: &str) -> Outcome<()> {
        if self.skip_op(op) {
            return Ok(());
        }
        self.failed(format!("expected '{op}', found {}", self.shown()))
    }

    pub(super) fn expect_name(&mut self) -> Outcome<Arc<str>> {
        if let Token::Name(name) = self.current() {
            let name = name.clone();
            self.advance();
            return Ok(name);
        }
        self.failed(format!("expected a name, found {}", self.shown()))
    }

    /// Jinja2 refuses a template that names an unknown filter or test, unless it may never be reached.
    pub(super) fn expect_known(&mut self, line: u32, known: bool, what: &str, name: &str) {
        if !known && self.soft == 0 {
            self.unknown.push((line, format!("there is no {what} named {name}")));
        }
    }

    /// Counts one more link of a chain.
    pub(super) fn link(&self, count: &mut u32) -> Outcome<()> {
        *count += 1;
        if *count > LONGEST_CHAIN {
            return self.failed(format!("an expression is a chain of more than {LONGEST_CHAIN} parts"));
        }
        Ok(())
    }

    /// Runs `read` one level deeper.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Parser) -> Outcome<T>) -> Outcome<T> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.failed(format!("the template is nested deeper than {DEEPEST} levels"));
        }
        let result = read(self);
        self.depth -= 1;
        result
    }

    pub fn expression(&mut self) -> Outcome<Expr> {
        self.deeper(Parser::choice)
    }

    fn choice(&mut self) -> Outcome<Expr> {
        let line = self.line();
        let known = self.unknown.len();
        let mut then = self.or()?;
        let mut links = 0;
        while self.skip_word("if") {
            self.link(&mut links)?;
            let test = Box::new(self.or()?);
            let other = if self.skip_word("else") { Some(Box::new(self.deeper(Parser::choice)?)) } else { None };
            then = Expr { line, kind: Kind::Choice { test, then: Box::new(then), other } };
            self.unknown.truncate(known); // an inline if is as soft as a tag
        }
        Ok(then)
    }

    pub(super) fn or(&mut self) -> Outcome<Expr> {
        let mut left = self.and()?;
        let mut links = 0;
        while self.is_word("or") {
            self.link(&mut links)?;
            let line = self.line();
            self.advance();
            left = Expr { line, kind: Kind::Or(Box::new(left), Box::new(self.and()?)) };
        }
        Ok(left)
    }

    fn and(&mut self) -> Outcome<Expr> {
        let mut left = self.not()?;
        let mut links = 0;
        while self.is_word("and") {
            self.link(&mut links)?;
            let line = self.line();
            self.advance();
            left = Expr { line, kind: Kind::And(Box::new(left), Box::new(self.not()?)) };
        }
        Ok(left)
    }

    fn not(&mut self) -> Outcome<Expr> {
        let line = self.line();
        if self.skip_word("not") {
            let inner = self.deeper(Parser::not)?;
            return Ok(Expr { line, kind: Kind::Not(Box::new(inner)) });
        }
        self.compare()
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let found = match self.current() {
            Token::Op("==") => Comparison::Equal,
            Token::Op("!=") => Comparison::Unequal,
            Token::Op("<") => Comparison::Less,
            Token::Op("<=") => Comparison::LessEqual,
            Token::Op(">") => Comparison::Greater,
            Token::Op(">=") => Comparison::GreaterEqual,
            Token::Name(word) if &**word == "in" => Comparison::In,
            Token::Name(word) if &**word == "not" && matches!(self.look(), Token::Name(next) if &**next == "in") => {
                self.advance();
                Comparison::NotIn
            }
            _ => return None,
        };
        self.advance();
        Some(found)
    }

    fn compare(&mut self) -> Outcome<Expr> {
        let line = self.line();
        let first = self.sum()?;
        let mut others = Vec::new();
        while let Some(comparison) = self.comparison() {
            others.push((comparison, self.sum()?));
        }
        if others.is_empty() {
            return Ok(first);
        }
        Ok(Expr { line, kind: Kind::Compare(Box::new(first), others) })
    }

    fn binary(&mut self, operators: &[(&str, Operator)], operand: impl Fn(&mut Parser) -> Outcome<Expr>) -> Outcome<Expr> {
        let mut left = operand(self)?;
        let mut links = 0;
        loop {
            self.link(&mut links)?;
            let Some(&(_, operator)) = operators.iter().find(|(op, _)| self.is_op(op)) else { return Ok(left) };
            let line = self.line();
            self.advance();
            let right = operand(self)?;
            left = Expr { line, kind: Kind::Binary(operator, Box::new(left), Box::new(right)) };
        }
    }

    fn sum(&mut self) -> Outcome<Expr> {
        self.binary(&[("+", Operator::Add), ("-", Operator::Subtract)], Parser::concat)
    }

    fn concat(&mut self) -> Outcome<Expr> {
        let line = self.line();
        let mut parts = vec![self.product()?];
        while self.skip_op("~") {
            parts.push(self.product()?);
        }
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        Ok(Expr { line, kind: Kind::Concat(parts) })
    }

    fn product(&mut self) -> Outcome<Expr> {
        use Operator::*;
        self.binary(&[("*", Multiply), ("/", Divide), ("//", FloorDivide), ("%", Modulo)], Parser::power)
    }

    fn power(&mut self) -> Outcome<Expr> {
        self.binary(&[("**", Operator::Power)], |parser| parser.unary(true))
    }

    fn unary(&mut self, with_filter: bool) -> Outcome<Expr> {
        let line = self.line();
        let node = if self.skip_op("-") {
            let inner = self.deeper(|parser| parser.unary(false))?;
            Expr { line, kind: Kind::Negative(Box::new(inner)) }
        } else if self.skip_op("+") {
            let inner = self.deeper(|parser| parser.unary(false))?;
            Expr { line, kind: Kind::Positive(Box::new(inner)) }
        } else {
            self.primary()?
        };
        let node = self.postfix(node)?;
        if with_filter {
            return self.filters_and_tests(node);
        }
        Ok(node)
    }

    pub(super) fn primary(&mut self) -> Outcome<Expr> {
        let line = self.line();
        let kind = match self.current().clone() {
            Token::Name(name) => {
                self.advance();
                match &*name {
                    "true" | "True" => Kind::Const(Const::Bool(true)),
                    "false" | "False" => Kind::Const(Const::Bool(false)),
                    "none" | "None" => Kind::Const(Const::None),
                    _ => {
                        let symbol = self.symbol(&name);
                        self.reads.push((symbol, true));
                        Kind::Name(symbol)
                    }
                }
            }
            Token::Text(mut text) => {
                self.advance();
                while let Token::Text(more) = self.current() {
                    text.push_str(more);
                    self.advance();
                }
                Kind::Const(Const::Text(text.into()))
            }
            Token::Int(number) => {
                self.advance();
                Kind::Const(Const::Int(number))
            }
            Token::Float(number) => {
                self.advance();
                Kind::Const(Const::Float(number))
            }
            Token::Op("(") => {
                self.advance();
                let inner = self.deeper(|parser| parser.tuple(true, true, None))?;
                self.expect_op(")")?;
                return Ok(inner);
            }
            Token::Op("[") => {
                self.advance();
                Kind::List(self.items("]", Parser::expression)?)
            }
            Token::Op("{") => {
                self.advance();
                Kind::Dict(self.items("}", |parser| {
                    let key = parser.expression()?;
                    parser.expect_op(":")?;
                    Ok((key, parser.expression()?))
                })?)
            }
            _ => return self.failed(format!("unexpected {}", self.shown())),
        };
        Ok(Expr { line, kind })
    }

    /// Items with commas between, and perhaps one behind, up to the closing sign, which is taken.
    fn items<T>(&mut self, close: &str, read: impl Fn(&mut Parser) -> Outcome<T>) -> Outcome<Vec<T>> {
        let mut items = Vec::new();
        while !self.is_op(close) {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op(close) {
                break;
            }
            items.push(read(self)?);
        }
        self.expect_op(close)?;
        Ok(items)
    }

    /// An expression, or several with commas between: a tuple. `end_word` ends it too.
    pub(super) fn tuple(&mut self, with_choice: bool, in_parentheses: bool, end_word: Option<&str>) -> Outcome<Expr> {
        let line = self.line();
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            let ends = matches!(self.current(), Token::PrintEnd | Token::BlockEnd | Token::Op(")"));
            if ends || end_word.is_some_and(|word| self.is_word(word)) {
                break;
            }
            items.push(if with_choice { self.expression()? } else { self.deeper(Parser::or)? });
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
        }
        if !is_tuple {
            if let Some(only) = items.pop() {
                return Ok(only);
            }
            if !in_parentheses {
                return self.failed(format!("expected an expression, found {}", self.shown()));
            }
        }
        Ok(Expr { line, kind: Kind::Tuple(items) })
    }
}
