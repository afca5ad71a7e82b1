//! Python's two ways to put values into a text: '%s' % x and '{}'.format(x).
use super::arguments::Given;
use super::attributes::{attribute, item};
use super::budget::spend;
use super::fault::{fault, Outcome};
use super::machine::Machine;
use super::text::{escape, escaped, float_text, repr, string_of};
use super::value::{Text, Value};

/// How one value is written.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

const WIDEST: usize = 1 << 20;

fn number_at(text: &[char], at: &mut usize) -> Outcome<Option<usize>> {
    let begin = *at;
    while *at < text.len() && text[*at].is_ascii_digit() {
        *at += 1;
    }
    if begin == *at {
        return Ok(None);
    }
    let digits: String = text[begin..*at].iter().collect();
    digits.parse().ok().filter(|&number| number <= WIDEST).map(Some).ok_or_else(|| fault("a width is too large"))
}

fn grouped(digits: &str, separator: char) -> String {
    let mut out = String::new();
    for (index, c) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(separator);
        }
        out.push(c);
    }
    out
}

fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |rest| ('-', rest));
    format!("{digits}e{sign}{power:0>2}")
}

impl Spec {
    /// Sign, digits, and what stands before them (0x).
    fn padded(&self, negative: bool, prefix: &str, digits: &str) -> String {
        let sign = match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        };
        let body = format!("{sign}{prefix}{digits}");
        let missing = self.width.saturating_sub(body.chars().count());
        let align = self.align.unwrap_or(if self.zero { '=' } else { '>' });
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        let filled = |count: usize| fill.to_string().repeat(count);
        match align {
            '<' => format!("{body}{}", filled(missing)),
            '^' => format!("{}{body}{}", filled(missing / 2), filled(missing - missing / 2)),
            '=' => format!("{sign}{prefix}{}{digits}", filled(missing)),
            _ => format!("{}{body}", filled(missing)),
        }
    }

    fn text(&self, text: &str) -> Outcome<String> {
        if self.sign.is_some() || self.alternate || self.grouping.is_some() || self.align == Some('=') {
            return Err(fault("this format is not for texts"));
        }
        let kept: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
        let spec = Spec {
            align: Some(self.align.unwrap_or('<')),
            fill: self.fill.or(self.zero.then_some('0')),
            width: self.width,
            ..Spec::default()
        };
        Ok(spec.padded(false, "", &kept))
    }

    fn whole(&self, number: i128, kind: char) -> Outcome<String> {
        let size = number.unsigned_abs();
        let (prefix, digits) = match kind {
            'd' => ("", size.to_string()),
            'x' => ("0x", format!("{size:x}")),
            'X' => ("0X", format!("{size:X}")),
            'o' => ("0o", format!("{size:o}")),
            'b' => ("0b", format!("{size:b}")),
            other => return Err(fault(format!("the format {other} is not supported for whole numbers"))),
        };
        if self.grouping.is_some() && (kind != 'd' || self.zero) {
            return Err(fault("this grouping of digits is not supported"));
        }
        let digits = self.grouping.map_or(digits.clone(), |separator| grouped(&digits, separator));
        Ok(self.padded(number < 0, if self.alternate { prefix } else { "" }, &digits))
    }

    fn fraction(&self, number: f64, kind: char) -> Outcome<String> {
        if !number.is_finite() || self.alternate {
            return Err(fault("this number cannot be formatted"));
        }
        let precision = self.precision.unwrap_or(6);
        let size = number.abs();
        let mut digits = match kind {
            'f' | 'F' => format!("{size:.precision$}"),
            'e' => exponent(size, precision),
            'E' => exponent(size, precision).to_uppercase(),
            '%' => format!("{:.precision$}%", size * 100.0),
            other => return Err(fault(format!("the format {other} is not supported for numbers"))),
        };
        if let Some(separator) = self.grouping {
            if self.zero {
                return Err(fault("this grouping of digits is not supported"));
            }
            let whole = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits = format!("{}{}", grouped(&digits[..whole], separator), &digits[whole..]);
        }
        Ok(self.padded(number.is_sign_negative(), "", &digits))
    }
}

// ---- '%s' % values

/// text % values
pub fn percent(text: &Text, values: &Value) -> Outcome<Value> {
    let items: Vec<Value> = match values {
        Value::Tuple(tuple) => tuple.items.clone(),
        other => vec![other.clone()],
    };
    let letters: Vec<char> = text.text.chars().collect();
    let (mut out, mut at, mut used, mut by_name) = (String::new(), 0, 0, false);
    while at < letters.len() {
        let c = letters[at];
        at += 1;
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut name = None;
        if letters.get(at) == Some(&'(') {
            let length = letters[at..].iter().position(|&c| c == ')').ok_or_else(|| fault("% is followed by ( without )"))?;
            name = Some(letters[at + 1..at + length].iter().collect::<String>());
            at += length + 1;
        }
        let spec = percent_spec(&letters, &mut at)?;
        let kind = *letters.get(at).ok_or_else(|| fault("a text ends in an unfinished %"))?;
        at += 1;
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match (&name, values) {
            (Some(name), Value::Dict(dict)) => {
                by_name = true;
                dict.get_text(name).cloned().ok_or_else(|| fault(format!("% finds no value named {name}")))?
            }
            (Some(_), _) => return Err(fault("% with names needs a dict")),
            (None, _) => {
                used += 1;
                items.get(used - 1).cloned().ok_or_else(|| fault("% has fewer values than the text asks for"))?
            }
        };
        let piece = percent_one(&spec, kind, &value, text.safe)?;
        spend(piece.len())?;
        out.push_str(&piece);
    }
    let takes_any = by_name || matches!(values, Value::Dict(_) | Value::List(_)) && used == 0;
    if !takes_any && used < items.len() {
        return Err(fault("% has more values than the text asks for"));
    }
    Ok(Value::marked(&out, text.safe))
}

fn percent_spec(letters: &[char], at: &mut usize) -> Outcome<Spec> {
    let mut spec = Spec::default();
    while let Some(&flag) = letters.get(*at) {
        match flag {
            '-' => spec.align = Some('<'),
            '0' => spec.zero = true,
            '+' => spec.sign = Some('+'),
            ' ' if spec.sign.is_none() => spec.sign = Some(' '),
            ' ' => {}
            '#' => spec.alternate = true,
            _ => break,
        }
        *at += 1;
    }
    spec.width = number_at(letters, at)?.unwrap_or(0);
    if letters.get(*at) == Some(&'.') {
        *at += 1;
        spec.precision = Some(number_at(letters, at)?.unwrap_or(0));
    }
    if letters.get(*at) == Some(&'*') {
        return Err(fault("%* is not supported"));
    }
    if spec.align.is_some() {
        spec.zero = false;
    }
    Ok(spec)
}

fn percent_one(spec: &Spec, kind: char, value: &Value, safe: bool) -> Outcome<String> {
    let as_text = |text: String| {
        let plain = Spec { align: Some(spec.align.unwrap_or('>')), width: spec.width, precision: spec.precision, ..Spec::default() };
        plain.text(&text)
    };
    match kind {
        's' if safe => as_text(escaped(value)?),
        's' => as_text(string_of(value)?),
        'r' if safe => as_text(escape(&repr(value)?)),
        'r' => as_text(repr(value)?),
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let number = match (value.defined()?.as_int(), value) {
                (Some(number), _) => number,
                (None, Value::Float(number)) if matches!(kind, 'd' | 'i' | 'u') && number.is_finite() => number.trunc() as i128,
                _ => return Err(fault(format!("%{kind} needs a number, not a {}", value.kind()))),
            };
            let kind = if matches!(kind, 'i' | 'u') { 'd' } else { kind };
            if spec.precision.is_some() {
                return Err(fault(format!("%.{kind} is not supported")));
            }
            spec.whole(number, kind)
        }
        'f' | 'F' | 'e' | 'E' => {
            let number = value.defined()?.as_number().ok_or_else(|| fault(format!("%{kind} needs a number, not a {}", value.kind())))?;
            spec.fraction(number, kind)
        }
        'c' => match (value.as_str(), value.as_int()) {
            (Some(text), _) if text.chars().count() == 1 => as_text(text.to_string()),
            (_, Some(code)) => {
                let c = u32::try_from(code).ok().and_then(char::from_u32).ok_or_else(|| fault("%c needs a character"))?;
                as_text(c.to_string())
            }
            _ => Err(fault("%c needs a character")),
        },
        other => Err(fault(format!("%{other} is not supported"))),
    }
}

// ---- '{}'.format(values)

/// text.format(values...)
pub fn braces(machine: &Machine, text: &Text, given: &Given) -> Outcome<Value> {
    let letters: Vec<char> = text.text.chars().collect();
    let (mut out, mut at, mut next) = (String::new(), 0, Some(0usize));
    while at < letters.len() {
        let c = letters[at];
        at += 1;
        let doubled = letters.get(at) == Some(&c);
        match c {
            '{' | '}' if doubled => {
                out.push(c);
                at += 1;
            }
            '}' => return Err(fault("a single } in a text for format")),
            '{' => {
                let length =
                    letters[at..].iter().position(|&c| c == '}').ok_or_else(|| fault("a { of a text for format is never closed"))?;
                let piece = field(machine, &letters[at..at + length], given, &mut next, text.safe)?;
                spend(piece.len())?;
                out.push_str(&piece);
                at += length + 1;
            }
            c => out.push(c),
        }
    }
    Ok(Value::marked(&out, text.safe))
}

fn field(machine: &Machine, field: &[char], given: &Given, next: &mut Option<usize>, safe: bool) -> Outcome<String> {
    if field.contains(&'{') {
        return Err(fault("fields inside fields of format are not supported"));
    }
    let colon = field.iter().position(|&c| c == ':').unwrap_or(field.len());
    let bang = field[..colon].iter().position(|&c| c == '!').unwrap_or(colon);
    let name: String = field[..bang].iter().collect();
    let conversion: String = field[(bang + 1).min(colon)..colon].iter().collect();
    let value = named(machine, &name, given, next)?;
    let value = match conversion.as_str() {
        "" if bang == colon => value,
        "s" => Value::from(string_of(&value)?),
        "r" => Value::from(repr(&value)?),
        _ => return Err(fault(format!("!{conversion} is not supported"))),
    };
    let spec = brace_spec(&field[(colon + 1).min(field.len())..])?;
    let plain = colon + 1 >= field.len();
    let text = if plain { string_of(&value)? } else { brace_one(&spec, &value)? };
    if !safe {
        return Ok(text);
    }
    match value {
        Value::Text(inner) if inner.safe && plain => Ok(text),
        Value::Text(inner) if inner.safe => Err(fault("a safe text cannot be formatted with a width")),
        _ => Ok(escape(&text)),
    }
}

fn named(machine: &Machine, name: &str, given: &Given, next: &mut Option<usize>) -> Outcome<Value> {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at(end);
    let place = match (first.is_empty(), first.parse::<usize>(), *next) {
        (true, _, Some(at)) => {
            *next = Some(at + 1);
            Some(at)
        }
        (true, _, None) => return Err(fault("format: numbered and plain fields cannot be mixed")),
        (false, Ok(_), Some(used)) if used > 0 => return Err(fault("format: numbered and plain fields cannot be mixed")),
        (false, Ok(at), _) => {
            *next = None;
            Some(at)
        }
        (false, Err(_), _) => None,
    };
    let found = match place {
        Some(at) => given.positional.get(at).cloned(),
        None => given.named.iter().find(|(known, _)| &**known == first).map(|(_, value)| value.clone()),
    };
    let mut value = found.ok_or_else(|| fault(format!("format finds no value for {{{name}}}")))?;
    while !rest.is_empty() {
        if let Some(dotted) = rest.strip_prefix('.') {
            let end = dotted.find(['.', '[']).unwrap_or(dotted.len());
            value = attribute(machine, &value, &dotted[..end])?;
            rest = &dotted[end..];
        } else {
            let end = rest.find(']').ok_or_else(|| fault("format: a [ is never closed"))?;
            let key = &rest[1..end];
            let key = key.parse::<i128>().map_or_else(|_| Value::text(key), Value::Int);
            value = item(machine, &value, &key)?;
            rest = &rest[end + 1..];
        }
    }
    Ok(value)
}

fn brace_spec(letters: &[char]) -> Outcome<Spec> {
    let mut spec = Spec::default();
    let mut at = 0;
    let is_align = |c: Option<&char>| matches!(c, Some('<' | '>' | '^' | '='));
    if is_align(letters.get(1)) {
        spec.fill = Some(letters[0]);
        spec.align = Some(letters[1]);
        at = 2;
    } else if is_align(letters.first()) {
        spec.align = Some(letters[0]);
        at = 1;
    }
    if let Some(&sign) = letters.get(at).filter(|c| matches!(c, '+' | '-' | ' ')) {
        spec.sign = Some(sign);
        at += 1;
    }
    if letters.get(at) == Some(&'#') {
        spec.alternate = true;
        at += 1;
    }
    if letters.get(at) == Some(&'0') {
        spec.zero = true;
        at += 1;
    }
    spec.width = number_at(letters, &mut at)?.unwrap_or(0);
    if let Some(&separator) = letters.get(at).filter(|c| matches!(c, ',' | '_')) {
        spec.grouping = Some(separator);
        at += 1;
    }
    if letters.get(at) == Some(&'.') {
        at += 1;
        spec.precision = Some(number_at(letters, &mut at)?.ok_or_else(|| fault("a format's precision is missing"))?);
    }
    spec.kind = letters.get(at).copied();
    if at + 1 < letters.len() {
        return Err(fault("this format is not known"));
    }
    Ok(spec)
}

fn brace_one(spec: &Spec, value: &Value) -> Outcome<String> {
    match (value, spec.kind) {
        (Value::Text(text), None | Some('s')) => spec.text(&text.text),
        (Value::Int(number), Some('f' | 'F' | 'e' | 'E' | '%')) => spec.fraction(*number as f64, spec.kind.unwrap_or('f')),
        (Value::Int(number), kind) if spec.precision.is_none() => spec.whole(*number, kind.unwrap_or('d')),
        (Value::Float(number), Some(kind)) => spec.fraction(*number, kind),
        (Value::Float(number), None) if spec.precision.is_none() && spec.grouping.is_none() && number.is_finite() && !spec.alternate => {
            Ok(spec.padded(number.is_sign_negative(), "", &float_text(number.abs())))
        }
        _ => Err(fault(format!("this format is not supported for a {}", value.kind()))),
    }
}
