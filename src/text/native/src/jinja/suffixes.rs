//! Reads what stands behind a value: attributes, subscripts, calls, filters and tests.
use super::ast::*;
use super::fault::Outcome;
use super::lexer::Token;
use super::parser::Parser;
use super::{filters, tests};
use std::sync::Arc;

impl Parser {
    pub(super) fn postfix(&mut self, mut node: Expr) -> Outcome<Expr> {
        let mut links = 0;
        loop {
            self.link(&mut links)?;
            node = match self.current() {
                Token::Op(".") | Token::Op("[") => self.subscript(node)?,
                Token::Op("(") => self.call(node)?,
                _ => return Ok(node),
            };
        }
    }

    pub(super) fn filters_and_tests(&mut self, mut node: Expr) -> Outcome<Expr> {
        let mut links = 0;
        loop {
            self.link(&mut links)?;
            node = match self.current() {
                Token::Op("|") => {
                    self.advance();
                    self.filter(Some(node))?
                }
                Token::Name(word) if &**word == "is" => self.test(node)?,
                Token::Op("(") => self.call(node)?,
                _ => return Ok(node),
            };
        }
    }

    fn subscript(&mut self, node: Expr) -> Outcome<Expr> {
        let line = self.line();
        let node = Box::new(node);
        if self.skip_op(".") {
            let kind = match self.current().clone() {
                Token::Name(name) => Kind::Attribute(node, name),
                Token::Int(number) => Kind::Item(node, Box::new(Expr { line, kind: Kind::Const(Const::Int(number)) })),
                _ => return self.failed("expected a name or a number behind the dot"),
            };
            self.advance();
            return Ok(Expr { line, kind });
        }
        self.expect_op("[")?;
        let mut bounds = [None, None, None];
        let mut count = 0;
        if !self.is_op(":") {
            bounds[0] = Some(Box::new(self.expression()?));
        }
        while self.is_op(":") && count < 2 {
            self.advance();
            count += 1;
            if !self.is_op(":") && !self.is_op("]") && !self.is_op(",") {
                bounds[count] = Some(Box::new(self.expression()?));
            }
        }
        if self.is_op(",") && count > 0 {
            return self.failed("several slices in one subscript are not supported");
        }
        let kind = match bounds {
            bounds if count > 0 => Kind::Slice(node, bounds),
            [Some(first), _, _] if self.is_op(",") => {
                let mut items = vec![*first];
                while self.skip_op(",") {
                    items.push(self.expression()?);
                }
                Kind::Item(node, Box::new(Expr { line, kind: Kind::Tuple(items) }))
            }
            [Some(first), _, _] => Kind::Item(node, first),
            _ => return self.failed("an empty subscript"),
        };
        self.expect_op("]")?;
        Ok(Expr { line, kind })
    }

    fn call(&mut self, node: Expr) -> Outcome<Expr> {
        let line = self.line();
        let arguments = self.arguments()?;
        Ok(Expr { line, kind: Kind::Call(Box::new(node), arguments) })
    }

    fn arguments(&mut self) -> Outcome<Arguments> {
        self.expect_op("(")?;
        let mut all = Arguments::default();
        let mut first = true;
        while !self.is_op(")") {
            if !first {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            first = false;
            let simple = all.more_positional.is_none() && all.more_named.is_none();
            if self.is_op("*") && simple {
                self.advance();
                all.more_positional = Some(Box::new(self.expression()?));
            } else if self.is_op("**") && all.more_named.is_none() {
                self.advance();
                all.more_named = Some(Box::new(self.expression()?));
            } else if matches!(self.look(), Token::Op("=")) && all.more_named.is_none() {
                let name = self.expect_name()?;
                self.advance();
                if all.named.iter().any(|(known, _)| *known == name) {
                    return self.failed(format!("the argument {name} is given twice"));
                }
                let value = self.expression()?;
                all.named.push((name, value));
            } else if simple && all.named.is_empty() {
                all.positional.push(self.expression()?);
            } else {
                return self.failed("a call's arguments are in the wrong order");
            }
        }
        self.expect_op(")")?;
        Ok(all)
    }

    fn dotted_name(&mut self) -> Outcome<Arc<str>> {
        let mut name = self.expect_name()?;
        while self.skip_op(".") {
            name = format!("{name}.{}", self.expect_name()?).into();
        }
        Ok(name)
    }

    /// One filter, behind its bar.
    pub(super) fn filter(&mut self, node: Option<Expr>) -> Outcome<Expr> {
        let line = self.line();
        let name = self.dotted_name()?;
        self.expect_known(line, filters::exists(&name), "filter", &name);
        let arguments = if self.is_op("(") { self.arguments()? } else { Arguments::default() };
        Ok(Expr { line, kind: Kind::Filter(node.map(Box::new), name, arguments) })
    }

    fn test(&mut self, node: Expr) -> Outcome<Expr> {
        let line = self.line();
        self.advance();
        let negated = self.skip_word("not");
        let name = self.dotted_name()?;
        self.expect_known(line, tests::exists(&name), "test", &name);
        let mut arguments = Arguments::default();
        let operand = match self.current() {
            Token::Op("(") => {
                arguments = self.arguments()?;
                false
            }
            Token::Name(word) if &**word == "is" => return self.failed("tests cannot be chained with is"),
            Token::Name(word) => !matches!(&**word, "else" | "or" | "and"),
            Token::Text(_) | Token::Int(_) | Token::Float(_) | Token::Op("[" | "{") => true,
            _ => false,
        };
        if operand {
            let argument = self.primary()?;
            arguments.positional.push(self.postfix(argument)?);
        }
        let test = Expr { line, kind: Kind::Test(Box::new(node), name, arguments) };
        Ok(if negated { Expr { line, kind: Kind::Not(Box::new(test)) } } else { test })
    }
}
