//! Reads tokens into a tree: text, prints and tags.
use super::ast::*;
use super::fault::{fault, Outcome};
use super::lexer::{tokens_of, Token};
use super::parser::Parser;
use std::sync::Arc;

pub fn parse(source: &str) -> Outcome<Tree> {
    let mut parser = Parser::new(tokens_of(source)?);
    let body = parser.body(&[])?;
    if let Some((line, reason)) = parser.unknown.pop() {
        return Err(fault(reason).at(line));
    }
    Ok(Tree { body, names: parser.names, has_marks: parser.has_marks })
}

impl Parser {
    /// Statements up to a tag that starts with one of the words, which becomes current; without words, up to the end.
    fn body(&mut self, ends: &[&str]) -> Outcome<Body> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            match self.current().clone() {
                Token::End if ends.is_empty() => return Ok(body),
                Token::End => return self.failed(format!("the template ends, but {{% {} %}} is missing", ends.join(" %} or {% "))),
                Token::Data(text) => {
                    self.advance();
                    body.push(Statement { line, does: Does::Data(text.into()) });
                }
                Token::PrintBegin => {
                    self.advance();
                    let value = self.tuple(true, false, None)?;
                    if *self.current() != Token::PrintEnd {
                        return self.failed(format!("expected }}}}, found {}", self.shown()));
                    }
                    self.advance();
                    body.push(Statement { line, does: Does::Print(value) });
                }
                Token::BlockBegin => {
                    self.advance();
                    if ends.iter().any(|word| self.is_word(word)) {
                        return Ok(body);
                    }
                    let does = self.deeper(Parser::statement)?;
                    body.extend(does.into_iter().map(|does| Statement { line, does }));
                    self.block_end()?;
                }
                _ => return self.failed(format!("unexpected {}", self.shown())),
            }
        }
    }

    fn block_end(&mut self) -> Outcome<()> {
        if *self.current() != Token::BlockEnd {
            return self.failed(format!("expected %}}, found {}", self.shown()));
        }
        self.advance();
        Ok(())
    }

    /// The rest of a tag's head, then its body up to one of the words.
    fn block(&mut self, ends: &[&str]) -> Outcome<Body> {
        self.skip_op(":");
        self.block_end()?;
        self.body(ends)
    }

    /// The same in a scope of its own, the closing word taken.
    fn closed_block(&mut self, end: &str) -> Outcome<Body> {
        let soft = std::mem::take(&mut self.soft);
        let body = self.block(&[end])?;
        self.soft = soft;
        self.advance();
        Ok(body)
    }

    /// A body that becomes a function of its own, so that no loop around it can be left.
    fn function_body(&mut self, end: &str) -> Outcome<(Body, [bool; 3])> {
        let loops = std::mem::take(&mut self.loops);
        let before = self.reads.len();
        let body = self.closed_block(end)?;
        self.loops = loops;
        let special = ["caller", "varargs", "kwargs"].map(|name| self.reads_first(before, name));
        Ok((body, special))
    }

    /// Is the name read before it is set, behind the given place?
    fn reads_first(&self, from: usize, name: &str) -> bool {
        let first = self.reads[from..].iter().find(|(symbol, _)| &*self.names[*symbol as usize] == name);
        first.is_some_and(|(_, read)| *read)
    }

    fn statement(&mut self) -> Outcome<Option<Does>> {
        let Token::Name(word) = self.current().clone() else { return self.failed("expected the name of a tag") };
        self.advance();
        let does = match &*word {
            "if" => {
                self.soft += 1;
                let does = self.if_tag()?;
                self.soft -= 1;
                does
            }
            "for" => self.for_tag()?,
            "set" => self.set_tag()?,
            "with" => self.with_tag()?,
            "macro" => self.macro_tag()?,
            "call" => self.call_tag()?,
            "filter" => {
                let soft = std::mem::take(&mut self.soft);
                let mut filter = self.filter(None)?;
                let mut links = 0;
                while self.skip_op("|") {
                    self.link(&mut links)?;
                    filter = self.filter(Some(filter))?;
                }
                let body = self.closed_block("endfilter")?;
                self.soft = soft;
                Does::FilterBlock { filter, body }
            }
            "print" => return self.print_tag(),
            "block" => self.block_tag()?,
            "autoescape" => {
                let value = self.expression()?;
                if !matches!(value.kind, Kind::Const(Const::Bool(false))) {
                    return self.failed("autoescape is not supported");
                }
                Does::Scope(self.closed_block("endautoescape")?)
            }
            "generation" => {
                self.has_marks = true;
                Does::Generation(self.function_body("endgeneration")?.0)
            }
            "break" | "continue" => {
                if self.loops == 0 {
                    return self.failed(format!("{word} stands outside a loop"));
                }
                if &*word == "break" {
                    Does::Break
                } else {
                    Does::Continue
                }
            }
            "extends" | "include" | "import" | "from" => {
                while !matches!(self.current(), Token::BlockEnd | Token::End) {
                    self.advance();
                }
                Does::Refuse(format!("{word}: a chat template cannot read other templates"))
            }
            _ => return Err(fault(format!("unknown tag {word}")).at(self.line())),
        };
        Ok(Some(does))
    }

    fn print_tag(&mut self) -> Outcome<Option<Does>> {
        let line = self.line();
        let mut parts = Vec::new();
        while *self.current() != Token::BlockEnd {
            if !parts.is_empty() {
                self.expect_op(",")?;
            }
            parts.push(self.expression()?);
        }
        Ok(Some(Does::Print(Expr { line, kind: Kind::Concat(parts) })))
    }

    fn block_tag(&mut self) -> Outcome<Does> {
        let name = self.expect_name()?;
        let scoped = self.skip_word("scoped");
        if self.is_word("required") {
            return self.failed("a required block needs another template, which a chat template cannot read");
        }
        let (body, _) = self.function_body("endblock")?;
        self.skip_word(&name);
        Ok(Does::Block { scoped, body })
    }

    fn if_tag(&mut self) -> Outcome<Does> {
        let mut branches = Vec::new();
        loop {
            let test = self.tuple(false, false, None)?;
            let body = self.block(&["elif", "else", "endif"])?;
            branches.push((test, body));
            if self.skip_word("elif") {
                continue;
            }
            let otherwise = if self.skip_word("else") { self.block(&["endif"])? } else { Vec::new() };
            self.advance();
            return Ok(Does::If { branches, otherwise });
        }
    }

    fn for_tag(&mut self) -> Outcome<Does> {
        let target = self.target(Some("in"), false)?;
        if !self.skip_word("in") {
            return self.failed(format!("expected in, found {}", self.shown()));
        }
        let over = self.tuple(false, false, Some("recursive"))?;
        let soft = std::mem::take(&mut self.soft);
        let test = if self.skip_word("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_word("recursive");
        // A recursive loop is a function of its own, but its body is still a loop.
        let loops = if recursive { std::mem::take(&mut self.loops) } else { self.loops };
        self.loops += 1;
        let body = self.block(&["endfor", "else"]);
        self.loops = loops;
        let body = body?;
        let otherwise = if self.skip_word("else") { self.block(&["endfor"])? } else { Vec::new() };
        self.soft = soft;
        self.advance();
        Ok(Does::For(Arc::new(For { target, over, test, recursive, body, otherwise })))
    }

    fn set_tag(&mut self) -> Outcome<Does> {
        let target = self.target(None, true)?;
        if self.skip_op("=") {
            let value = self.tuple(true, false, None)?;
            self.note(&target);
            return Ok(Does::Set(target, value));
        }
        let (mut filter, mut links) = (None, 0);
        while self.skip_op("|") {
            self.link(&mut links)?;
            filter = Some(self.filter(filter)?);
        }
        let body = self.closed_block("endset")?;
        self.note(&target);
        Ok(Does::SetBlock { target, filter, body })
    }

    fn with_tag(&mut self) -> Outcome<Does> {
        let mut bindings = Vec::new();
        while *self.current() != Token::BlockEnd {
            if !bindings.is_empty() {
                self.expect_op(",")?;
            }
            let target = self.target(None, false)?;
            self.expect_op("=")?;
            let value = self.expression()?;
            self.note(&target);
            bindings.push((target, value));
        }
        Ok(Does::With { bindings, body: self.closed_block("endwith")? })
    }

    fn parameters(&mut self) -> Outcome<Vec<(Symbol, Arc<str>, Option<Expr>)>> {
        let mut parameters: Vec<(Symbol, Arc<str>, Option<Expr>)> = Vec::new();
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !parameters.is_empty() {
                self.expect_op(",")?;
            }
            let name = self.expect_name()?;
            let symbol = self.symbol(&name);
            let default = if self.skip_op("=") { Some(self.expression()?) } else { None };
            if default.is_none() && parameters.iter().any(|(_, _, default)| default.is_some()) {
                return self.failed("a parameter without a default follows one that has a default");
            }
            if parameters.iter().any(|(known, _, _)| *known == symbol) {
                return self.failed(format!("the parameter {name} is named twice"));
            }
            parameters.push((symbol, name, default));
        }
        self.expect_op(")")?;
        Ok(parameters)
    }

    fn function(&mut self, name: Arc<str>, parameters: Vec<(Symbol, Arc<str>, Option<Expr>)>, end: &str) -> Outcome<Arc<Macro>> {
        let symbol = self.symbol(&name);
        let (body, [reads_caller, reads_varargs, reads_kwargs]) = self.function_body(end)?;
        let takes = |special: &str| parameters.iter().any(|(_, name, _)| &**name == special);
        let (reads_varargs, reads_kwargs) = (reads_varargs && !takes("varargs"), reads_kwargs && !takes("kwargs"));
        let reads_caller = reads_caller || takes("caller");
        Ok(Arc::new(Macro { name, symbol, parameters, body, reads_caller, reads_varargs, reads_kwargs }))
    }

    fn macro_tag(&mut self) -> Outcome<Does> {
        let name = self.expect_name()?;
        let parameters = self.parameters()?;
        let made = self.function(name, parameters, "endmacro")?;
        self.reads.push((made.symbol, false));
        Ok(Does::Macro(made))
    }

    fn call_tag(&mut self) -> Outcome<Does> {
        let parameters = if self.is_op("(") { self.parameters()? } else { Vec::new() };
        let call = self.expression()?;
        if !matches!(call.kind, Kind::Call(..)) {
            return self.failed("a call block needs a call");
        }
        let body = self.function("caller".into(), parameters, "endcall")?;
        Ok(Does::CallBlock { call, body })
    }

    fn note(&mut self, target: &Target) {
        match target {
            Target::Name(symbol) => self.reads.push((*symbol, false)),
            Target::Tuple(all) => all.iter().for_each(|one| self.note(one)),
            Target::Attribute(symbol, _) => self.reads.push((*symbol, true)),
        }
    }

    fn target(&mut self, end_word: Option<&str>, with_attribute: bool) -> Outcome<Target> {
        let mut all = Vec::new();
        let mut is_tuple = false;
        loop {
            if !all.is_empty() {
                self.expect_op(",")?;
            }
            if matches!(self.current(), Token::BlockEnd | Token::Op(")")) || end_word.is_some_and(|word| self.is_word(word)) {
                break;
            }
            all.push(self.one_target(with_attribute)?);
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
        }
        match all.pop() {
            Some(only) if !is_tuple => Ok(only),
            Some(last) => {
                all.push(last);
                Ok(Target::Tuple(all))
            }
            None => self.failed(format!("expected a name to assign to, found {}", self.shown())),
        }
    }

    fn one_target(&mut self, with_attribute: bool) -> Outcome<Target> {
        if self.skip_op("(") {
            let inner = self.deeper(|parser| parser.target(None, false))?;
            self.expect_op(")")?;
            return Ok(inner);
        }
        let name = self.expect_name()?;
        if matches!(&*name, "true" | "false" | "none" | "True" | "False" | "None") {
            return self.failed(format!("nothing can be assigned to {name}"));
        }
        let symbol = self.symbol(&name);
        if with_attribute && self.skip_op(".") {
            let attribute = self.expect_name()?;
            return Ok(Target::Attribute(symbol, attribute));
        }
        Ok(Target::Name(symbol))
    }
}
