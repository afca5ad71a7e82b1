//! Values of columns as JSON.
use super::encodings::Value;
use super::schema::{Leaf, Meaning, Physical};
use crate::border::Failure;
use std::io::Write;

#[derive(Default)]
pub struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    pub fn text(&mut self, text: &str) {
        self.bytes.push(b'"');
        let mut plain = 0;
        for (at, byte) in text.bytes().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.bytes.extend_from_slice(&text.as_bytes()[plain..at]);
            plain = at + 1;
            match byte {
                b'"' => self.bytes.extend_from_slice(b"\\\""),
                b'\\' => self.bytes.extend_from_slice(b"\\\\"),
                b'\n' => self.bytes.extend_from_slice(b"\\n"),
                _ => self.bytes.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            }
        }
        self.bytes.extend_from_slice(&text.as_bytes()[plain..]);
        self.bytes.push(b'"');
    }

    fn float(&mut self, value: f64) -> Result<(), Failure> {
        if value.is_finite() {
            write!(self.bytes, "{value:?}")?;
        } else {
            self.bytes.extend_from_slice(b"null");
        }
        Ok(())
    }

    pub fn value(&mut self, value: Value, leaf: &Leaf) -> Result<(), Failure> {
        match value {
            Value::Bool(value) => self.bytes.extend_from_slice(if value { b"true" } else { b"false" }),
            Value::Int(value) if leaf.meaning == Meaning::Unsigned && leaf.physical == Physical::Int32 => {
                write!(self.bytes, "{}", value as u32)?
            }
            Value::Int(value) if leaf.meaning == Meaning::Unsigned => write!(self.bytes, "{}", value as u64)?,
            Value::Int(value) => write!(self.bytes, "{value}")?,
            Value::Float(value) => self.float(value)?,
            Value::Bytes(raw) => match std::str::from_utf8(raw) {
                Ok(text) if leaf.meaning == Meaning::Text || (leaf.meaning == Meaning::Plain && leaf.physical == Physical::Bytes) => {
                    self.text(text);
                }
                Err(error) if leaf.meaning == Meaning::Text => {
                    return Err(format!("a text is not UTF-8 at byte {}", error.valid_up_to()).into());
                }
                // An image, a sound, a decimal number: nothing that could be trained as text.
                _ => write!(self.bytes, "{{\"bytes\":{}}}", raw.len())?,
            },
        }
        Ok(())
    }
}
