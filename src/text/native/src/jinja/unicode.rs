//! What Python knows of single characters.
use regex::Regex;
use std::sync::OnceLock;

/// str.isspace
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// str.splitlines cuts here.
pub fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c' | '\x1d' | '\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// str.isprintable: the standard library escapes just what Python calls unprintable, where another character stands before it.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    let mut text = String::with_capacity(8);
    text.push('x');
    text.push(c);
    text.escape_debug().count() == 2
}

fn matches(cell: &OnceLock<Regex>, pattern: &str, c: char) -> bool {
    let mut buffer = [0u8; 4];
    cell.get_or_init(|| Regex::new(pattern).expect("a pattern of this file")).is_match(c.encode_utf8(&mut buffer))
}

/// str.isalpha: category L.
pub fn is_letter(c: char) -> bool {
    static LETTER: OnceLock<Regex> = OnceLock::new();
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    matches(&LETTER, r"^\p{L}$", c)
}

/// str.isdecimal: category Nd.
pub fn is_decimal(c: char) -> bool {
    static DECIMAL: OnceLock<Regex> = OnceLock::new();
    if c.is_ascii() {
        return c.is_ascii_digit();
    }
    matches(&DECIMAL, r"^\p{Nd}$", c)
}

/// \w of Python's regular expressions, and of str.isalnum less the underscore.
pub fn is_word(c: char) -> bool {
    static NUMBER: OnceLock<Regex> = OnceLock::new();
    c == '_' || is_letter(c) || (if c.is_ascii() { c.is_ascii_digit() } else { matches(&NUMBER, r"^\p{N}$", c) })
}

pub fn is_cased(c: char) -> bool {
    c.is_uppercase() || c.is_lowercase() || is_title(c)
}

/// Category Lt.
pub fn is_title(c: char) -> bool {
    static TITLE: OnceLock<Regex> = OnceLock::new();
    !c.is_ascii() && matches(&TITLE, r"^\p{Lt}$", c)
}

/// The character at the start of a word in title case.
pub fn push_title(c: char, out: &mut String) {
    match c {
        'Ǆ' | 'ǅ' | 'ǆ' => out.push('ǅ'),
        'Ǉ' | 'ǈ' | 'ǉ' => out.push('ǈ'),
        'Ǌ' | 'ǋ' | 'ǌ' => out.push('ǋ'),
        'Ǳ' | 'ǲ' | 'ǳ' => out.push('ǲ'),
        '\u{10d0}'..='\u{10ff}' => out.push(c), // Georgian has capitals, but no word starts with one
        _ => {
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            upper.for_each(|more| out.extend(more.to_lowercase()));
        }
    }
}
