//! Thrift's compact protocol, in which Parquet writes its footer and page headers: read into a tree that is then asked by field number.
use crate::border::Failure;

const DEEPEST: u32 = 24;

pub enum Thrift<'a> {
    Bool(bool),
    Int(i64),
    Double,
    Bytes(&'a [u8]),
    List(Vec<Thrift<'a>>),
    Struct(Vec<(i16, Thrift<'a>)>),
}

pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Unsigned, seven bits a byte; moves `at` behind it.
pub fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, Failure> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or("a number is cut off")?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number is longer than 64 bits".into())
}

pub fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub fn place(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Result<u8, Failure> {
        let byte = *self.bytes.get(self.at).ok_or("it is cut off")?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<i64, Failure> {
        Ok(zigzag(varint(self.bytes, &mut self.at)?))
    }

    pub fn structure(&mut self) -> Result<Thrift<'a>, Failure> {
        self.structure_at(0)
    }

    fn structure_at(&mut self, depth: u32) -> Result<Thrift<'a>, Failure> {
        let mut fields = Vec::new();
        let mut id = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(Thrift::Struct(fields));
            }
            id = match head >> 4 {
                0 => i16::try_from(self.number()?)?,
                delta => id.checked_add(i16::from(delta)).ok_or("a field number is too large")?,
            };
            let value = match head & 0x0f {
                1 => Thrift::Bool(true),
                2 => Thrift::Bool(false),
                kind => self.value(kind, depth)?,
            };
            fields.push((id, value));
        }
    }

    fn value(&mut self, kind: u8, depth: u32) -> Result<Thrift<'a>, Failure> {
        if depth > DEEPEST {
            return Err("it is nested too deep".into());
        }
        Ok(match kind {
            1 | 2 => Thrift::Bool(self.byte()? == 1),
            3 => Thrift::Int(i64::from(self.byte()? as i8)),
            4..=6 => Thrift::Int(self.number()?),
            7 => {
                self.at = self.at.checked_add(8).filter(|&at| at <= self.bytes.len()).ok_or("it is cut off")?;
                Thrift::Double
            }
            8 => {
                let length = usize::try_from(varint(self.bytes, &mut self.at)?)?;
                let end = self.at.checked_add(length).filter(|&end| end <= self.bytes.len()).ok_or("a text is cut off")?;
                let bytes = &self.bytes[self.at..end];
                self.at = end;
                Thrift::Bytes(bytes)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => usize::try_from(varint(self.bytes, &mut self.at)?)?,
                    short => usize::from(short),
                };
                // Every item takes at least a byte, so no count can ask for more than the file holds.
                if count > self.bytes.len() - self.at {
                    return Err("a list is cut off".into());
                }
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(self.value(head & 0x0f, depth + 1)?);
                }
                Thrift::List(items)
            }
            12 => self.structure_at(depth + 1)?,
            other => return Err(format!("a field has the unknown type {other}").into()),
        })
    }
}

impl<'a> Thrift<'a> {
    pub fn field(&self, id: i16) -> Option<&Thrift<'a>> {
        match self {
            Thrift::Struct(fields) => fields.iter().find(|(known, _)| *known == id).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn int(&self, id: i16) -> Option<i64> {
        match self.field(id) {
            Some(Thrift::Int(value)) => Some(*value),
            _ => None,
        }
    }

    pub fn flag(&self, id: i16) -> Option<bool> {
        match self.field(id) {
            Some(Thrift::Bool(value)) => Some(*value),
            _ => None,
        }
    }

    pub fn text(&self, id: i16) -> Option<&'a str> {
        match self.field(id) {
            Some(Thrift::Bytes(bytes)) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    pub fn list(&self, id: i16) -> &[Thrift<'a>] {
        match self.field(id) {
            Some(Thrift::List(items)) => items,
            _ => &[],
        }
    }
}
