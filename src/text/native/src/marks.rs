//! `{% generation %}` blocks: rewritten to call blocks before compiling, and found again in the rendered text.
use std::cell::Cell;

/// What a `{% generation %}` block becomes: a filter over its body, in a scope of its own as in transformers.
pub const FILTER: &str = "__lockstep_generation__";
pub const OPEN: &str = "with %}{% filter __lockstep_generation__";
const CLOSE: &str = "endfilter %}{% endwith";

thread_local! {
    /// What stands around an answer in the text being rendered on this thread; None where nobody asked for answers.
    static SIGNS: Cell<Option<(char, char)>> = const { Cell::new(None) };
}

/// The word that a tag starts with, and where it lies; `at` is just behind "{%".
fn first_word(source: &str, at: usize) -> (usize, &str) {
    let rest = &source[at..];
    let trimmed = rest.trim_start_matches(['-', '+']).trim_start();
    let start = at + rest.len() - trimmed.len();
    let length = trimmed.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(trimmed.len());
    (start, &trimmed[..length])
}

/// The end of a tag whose inside starts at `at`: behind its closing sign, strings stepped over.
fn end_of_tag(source: &str, at: usize, close: &str) -> usize {
    let mut quote = None;
    let mut skip = false;
    for (offset, c) in source[at..].char_indices() {
        match quote {
            Some(_) if skip => skip = false,
            Some(_) if c == '\\' => skip = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if source[at + offset..].starts_with(close) => return at + offset + close.len(),
            None => {}
        }
    }
    source.len()
}

fn behind(source: &str, at: usize, word: &str) -> usize {
    source[at..].find(word).map_or(source.len(), |offset| at + offset + word.len())
}

/// The end of a raw block whose opening tag ends at `at`.
fn end_of_raw(source: &str, mut at: usize) -> usize {
    while let Some(offset) = source[at..].find("{%") {
        at += offset + 2;
        let (start, word) = first_word(source, at);
        if word == "endraw" {
            return behind(source, start, "%}");
        }
    }
    source.len()
}

/// The source with `generation` tags rewritten, and whether there were any. Lines and whitespace control stay as they are.
pub fn rewrite(source: &str) -> (String, bool) {
    let mut result = String::with_capacity(source.len());
    let (mut copied, mut at, mut found) = (0, 0, false);
    while let Some(offset) = source[at..].find('{') {
        at += offset;
        match source.as_bytes().get(at + 1) {
            Some(b'#') => at = behind(source, at, "#}"),
            Some(b'{') => at = end_of_tag(source, at + 2, "}}"),
            Some(b'%') => {
                let (start, word) = first_word(source, at + 2);
                let replacement = match word {
                    "generation" => Some(OPEN),
                    "endgeneration" => Some(CLOSE),
                    _ => None,
                };
                if let Some(replacement) = replacement {
                    result.push_str(&source[copied..start]);
                    result.push_str(replacement);
                    copied = start + word.len();
                    found = true;
                }
                at = end_of_tag(source, start, "%}");
                if word == "raw" {
                    at = end_of_raw(source, at);
                }
            }
            _ => at += 1,
        }
    }
    result.push_str(&source[copied..]);
    (result, found)
}

/// Two characters that neither the template nor what it is given contains: Unicode promises that these stand for nothing.
fn unused_signs(texts: &[&str]) -> Option<(char, char)> {
    let mut free = ('\u{FDD0}'..='\u{FDEF}').filter(|&c| texts.iter().all(|text| !text.contains(c)));
    Some((free.next()?, free.next()?))
}

/// Renders with signs around the answers, then takes the signs out: the text, and where the answers lie in it.
pub fn render_with_answers<E>(inputs: &[&str], render: impl FnOnce() -> Result<String, E>) -> Result<(String, Vec<u32>), E> {
    SIGNS.set(unused_signs(inputs));
    let rendered = render();
    let signs = SIGNS.take();
    let rendered = rendered?;
    let Some((open, close)) = signs else { return Ok((rendered, Vec::new())) };
    let mut text = String::with_capacity(rendered.len());
    let (mut answers, mut start) = (Vec::new(), None);
    for c in rendered.chars() {
        if c == open {
            start.get_or_insert(text.len() as u32);
        } else if c == close {
            if let Some(begin) = start.take() {
                answers.extend([begin, text.len() as u32]);
            }
        } else {
            text.push(c);
        }
    }
    Ok((text, answers))
}

/// What a generation block puts out for its body.
pub fn marked(body: String) -> String {
    match SIGNS.get() {
        Some((open, close)) => format!("{open}{body}{close}"),
        None => body,
    }
}
