//! Cuts a template into tokens as Jinja2 does with trim_blocks and lstrip_blocks: what is text, what is a tag, and which white space goes.
use super::fault::{fault, Outcome};
use super::unicode::is_space;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Data(String),
    PrintBegin,
    PrintEnd,
    BlockBegin,
    BlockEnd,
    Name(Arc<str>),
    Text(String),
    Int(i128),
    Float(f64),
    Op(&'static str),
    End,
}

pub struct Placed {
    pub token: Token,
    pub line: u32,
}

const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
];

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: u32,
    line_starting: bool, // what was read last ended a line
    tokens: Vec<Placed>,
}

/// All tokens of the source, with the line that each starts on.
pub fn tokens_of(source: &str) -> Outcome<Vec<Placed>> {
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.ends_with('\n') {
        source.pop();
    }
    let mut lexer = Lexer { source: &source, at: 0, line: 1, line_starting: true, tokens: Vec::new() };
    lexer.root()?;
    lexer.push(Token::End);
    Ok(lexer.tokens)
}

fn skip_space(text: &str) -> usize {
    text.len() - text.trim_start_matches(is_space).len()
}

/// The length of (\d+_)*\d+ at the start of the text.
fn digits(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut length = 0;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at].is_ascii_digit() {
            at += 1;
            length = at;
        } else if bytes[at] == b'_' && at == length && length > 0 {
            at += 1;
        } else {
            break;
        }
    }
    length
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn push(&mut self, token: Token) {
        self.tokens.push(Placed { token, line: self.line });
    }

    fn take(&mut self, length: usize) -> &'a str {
        let taken = &self.source[self.at..self.at + length];
        self.line += taken.bytes().filter(|&c| c == b'\n').count() as u32;
        self.at += length;
        self.line_starting = taken.ends_with('\n');
        taken
    }

    fn failed<T>(&self, reason: impl Into<String>) -> Outcome<T> {
        Err(fault(reason).at(self.line))
    }

    fn root(&mut self) -> Outcome<()> {
        loop {
            let rest = self.rest();
            let found = rest.as_bytes().windows(2).position(|pair| pair[0] == b'{' && matches!(pair[1], b'%' | b'{' | b'#'));
            let Some(begin) = found else {
                if !rest.is_empty() {
                    self.push(Token::Data(rest.to_string()));
                }
                return Ok(());
            };
            let kind = rest.as_bytes()[begin + 1];
            let sign = rest.as_bytes().get(begin + 2).copied().filter(|c| matches!(c, b'-' | b'+'));
            self.data(begin, sign, kind == b'{');
            self.take(2 + usize::from(sign.is_some()));
            match kind {
                b'#' => self.comment()?,
                b'{' => self.tag(true)?,
                _ => match self.raw_tag() {
                    Some(length) => self.raw(length)?,
                    None => self.tag(false)?,
                },
            }
        }
    }

    /// The text before a tag, less the white space that the tag or lstrip_blocks takes.
    fn data(&mut self, length: usize, sign: Option<u8>, prints: bool) {
        let text = &self.rest()[..length];
        let mut kept = text;
        if sign == Some(b'-') {
            kept = text.trim_end_matches(is_space);
        } else if sign.is_none() && !prints {
            let line = text.rfind('\n').map_or(0, |at| at + 1);
            if (line > 0 || self.line_starting) && text[line..].chars().all(is_space) {
                kept = &text[..line];
            }
        }
        if !kept.is_empty() {
            self.push(Token::Data(kept.to_string()));
        }
        let starting = self.line_starting;
        self.take(length);
        if length == 0 {
            self.line_starting = starting;
        }
    }

    fn comment(&mut self) -> Outcome<()> {
        let rest = self.rest();
        let Some(end) = rest.find("#}") else { return self.failed("a comment is never closed with #}") };
        let sign = rest[..end].as_bytes().last().copied();
        self.close(end, 2, sign.filter(|c| matches!(c, b'-' | b'+')));
        Ok(())
    }

    /// Takes `before` bytes and the closing sign, then what white space control takes.
    fn close(&mut self, before: usize, sign_length: usize, sign: Option<u8>) {
        let after = &self.rest()[before + sign_length..];
        let more = match sign {
            Some(b'-') => skip_space(after),
            Some(_) => 0,
            None => usize::from(after.starts_with('\n')),
        };
        self.take(before + sign_length + more);
    }

    /// How long `raw %}` is, behind {%; None for any other tag.
    fn raw_tag(&self) -> Option<usize> {
        let rest = self.rest();
        let word = skip_space(rest);
        let after = word + 3 + skip_space(rest[word..].strip_prefix("raw")?);
        if rest[after..].starts_with("-%}") {
            return Some(after + 3 + skip_space(&rest[after + 3..]));
        }
        rest[after..].starts_with("%}").then_some(after + 2)
    }

    fn raw(&mut self, length: usize) -> Outcome<()> {
        self.take(length);
        let rest = self.rest();
        let mut from = 0;
        while let Some(offset) = rest[from..].find("{%") {
            let begin = from + offset;
            let sign = rest.as_bytes().get(begin + 2).copied().filter(|c| matches!(c, b'-' | b'+'));
            let inside = begin + 2 + usize::from(sign.is_some());
            let word = inside + skip_space(&rest[inside..]);
            if let Some(tail) = rest[word..].strip_prefix("endraw") {
                let end = word + 6 + skip_space(tail);
                let closing = rest.as_bytes().get(end).copied().filter(|c| matches!(c, b'-' | b'+'));
                let end = end + usize::from(closing.is_some());
                if rest[end..].starts_with("%}") {
                    self.data(begin, sign, false);
                    self.close(end - begin, 2, closing);
                    return Ok(());
                }
            }
            from = begin + 2;
        }
        self.failed("a raw block is never closed with {% endraw %}")
    }

    fn tag(&mut self, prints: bool) -> Outcome<()> {
        self.push(if prints { Token::PrintBegin } else { Token::BlockBegin });
        let mut open: Vec<u8> = Vec::new();
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return Ok(()); // whoever reads the tokens misses the end of the tag
            }
            if open.is_empty() {
                let sign = rest.as_bytes().first().copied().filter(|&c| c == b'-' || (c == b'+' && !prints));
                let close = if prints { "}}" } else { "%}" };
                if rest[usize::from(sign.is_some())..].starts_with(close) {
                    self.push(if prints { Token::PrintEnd } else { Token::BlockEnd });
                    let before = usize::from(sign.is_some());
                    // Only blocks take the line end behind them.
                    let sign = if prints && sign.is_none() { Some(b'+') } else { sign };
                    self.close(before, 2, sign);
                    return Ok(());
                }
            }
            let space = skip_space(rest);
            if space > 0 {
                self.take(space);
            } else if rest.as_bytes()[0].is_ascii_digit() {
                self.number()?;
            } else if rest.starts_with(['"', '\'']) {
                self.text()?;
            } else if rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                self.push(Token::Name(rest[..length].into()));
                self.take(length);
            } else {
                self.operator(&mut open)?;
            }
        }
    }

    fn operator(&mut self, open: &mut Vec<u8>) -> Outcome<()> {
        let rest = self.rest();
        let Some(op) = OPERATORS.iter().find(|op| rest.starts_with(**op)) else {
            return self.failed(format!("unexpected character {:?}", rest.chars().next().unwrap_or_default()));
        };
        match *op {
            "{" => open.push(b'}'),
            "(" => open.push(b')'),
            "[" => open.push(b']'),
            "}" | ")" | "]" if open.pop() != Some(op.as_bytes()[0]) => return self.failed(format!("unexpected '{op}'")),
            _ => {}
        }
        self.push(Token::Op(op));
        self.take(op.len());
        Ok(())
    }

    fn number(&mut self) -> Outcome<()> {
        let rest = self.rest();
        let after_dot = self.at > 0 && self.source.as_bytes()[self.at - 1] == b'.';
        let whole = digits(rest);
        if !after_dot {
            let fraction = if rest[whole..].starts_with('.') { digits(&rest[whole + 1..]) } else { 0 };
            let mut end = if fraction > 0 { whole + 1 + fraction } else { whole };
            if rest[end..].starts_with(['e', 'E']) {
                let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
                let exponent = digits(&rest[end + 1 + sign..]);
                if exponent > 0 {
                    end += 1 + sign + exponent;
                }
            }
            if end > whole {
                let value: f64 = rest[..end].replace('_', "").parse().map_err(|_| fault("not a number").at(self.line))?;
                self.push(Token::Float(value));
                self.take(end);
                return Ok(());
            }
        }
        let (radix, skip) = match rest.get(..2).map(str::to_ascii_lowercase).as_deref() {
            Some("0b") => (2, 2),
            Some("0o") => (8, 2),
            Some("0x") => (16, 2),
            _ => (10, 0),
        };
        let mut end = skip;
        for (offset, c) in rest[skip..].char_indices() {
            let zero = radix == 10 && rest.starts_with('0') && c != '0';
            let good = c == '_' || (c.is_digit(radix) && !zero);
            if !good {
                break;
            }
            end = skip + offset + 1;
        }
        let text = rest[skip..end].trim_end_matches('_');
        let Ok(value) = i128::from_str_radix(&text.replace('_', ""), radix) else {
            return self.failed(format!("the number {} cannot be used", &rest[..end]));
        };
        self.push(Token::Int(value));
        self.take(skip + text.len());
        Ok(())
    }

    fn text(&mut self) -> Outcome<()> {
        let rest = self.rest();
        let quote = rest.as_bytes()[0];
        let bytes = rest.as_bytes();
        let mut end = 1;
        while end < bytes.len() && bytes[end] != quote {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        if end >= bytes.len() {
            return self.failed("a text in quotes is never closed");
        }
        let value = unescape(&rest[1..end]).map_err(|reason| fault(reason).at(self.line))?;
        self.push(Token::Text(value));
        self.take(end + 1);
        Ok(())
    }
}

/// Python's escapes in a string.
fn unescape(text: &str) -> Result<String, String> {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        result.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else { return Err("a text ends in a backslash".into()) };
        let mut used = c.len_utf8();
        match c {
            '\n' => {}
            '\\' | '\'' | '"' => result.push(c),
            'a' => result.push('\x07'),
            'b' => result.push('\x08'),
            'f' => result.push('\x0c'),
            'n' => result.push('\n'),
            'r' => result.push('\r'),
            't' => result.push('\t'),
            'v' => result.push('\x0b'),
            '0'..='7' => {
                used = rest.bytes().take(3).take_while(|c| (b'0'..=b'7').contains(c)).count();
                result.push(char::from_u32(u32::from_str_radix(&rest[..used], 8).unwrap_or(0)).unwrap_or_default());
            }
            'x' | 'u' | 'U' => {
                let length = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let code = rest.get(1..1 + length).filter(|hex| hex.bytes().all(|c| c.is_ascii_hexdigit()));
                let code = code.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
                result.push(code.ok_or_else(|| format!("\\{c} does not name a character"))?);
                used = 1 + length;
            }
            'N' => return Err("\\N in a text is not supported".into()),
            other => {
                result.push('\\');
                result.push(other);
            }
        }
        rest = &rest[used..];
    }
    result.push_str(rest);
    Ok(result)
}
