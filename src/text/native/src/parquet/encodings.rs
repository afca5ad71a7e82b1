//! How values lie in a page. Everything is read as it is asked for, so a page's claims cost no memory.
use super::schema::Physical;
use super::thrift::{varint, zigzag};
use crate::border::Failure;
use std::rc::Rc;

/// Runs of one number, and numbers packed into bits.
pub struct Hybrid {
    bytes: Rc<[u8]>,
    at: usize,
    end: usize,
    width: u32,
    left: u64, // of the current run
    run: Option<u32>,
    bit: u64, // of the current packed run
}

impl Hybrid {
    pub fn new(bytes: Rc<[u8]>, at: usize, end: usize, width: u32) -> Result<Hybrid, Failure> {
        if width > 32 || at > end || end > bytes.len() {
            return Err("a page's levels or indices are not what its header says".into());
        }
        Ok(Hybrid { bytes, at, end, width, left: 0, run: None, bit: 0 })
    }

    pub fn next(&mut self) -> Result<u32, Failure> {
        if self.width == 0 {
            return Ok(0);
        }
        if self.left == 0 {
            self.begin_run()?;
        }
        self.left -= 1;
        if let Some(value) = self.run {
            return Ok(value);
        }
        let mut value = 0u64;
        let first = self.at + (self.bit / 8) as usize;
        for (index, byte) in self.bytes[first.min(self.end)..self.end].iter().take(5).enumerate() {
            value |= u64::from(*byte) << (8 * index);
        }
        let last = self.bit + u64::from(self.width);
        if last > 8 * (self.end - self.at) as u64 {
            return Err("a page ends before its values do".into());
        }
        value = value >> (self.bit % 8) & ((1u64 << self.width) - 1);
        self.bit = last;
        if self.left == 0 {
            self.at += self.bit.div_ceil(8) as usize;
        }
        Ok(value as u32)
    }

    fn begin_run(&mut self) -> Result<(), Failure> {
        if self.at >= self.end {
            return Err("a page ends before its values do".into());
        }
        let head = varint(&self.bytes[..self.end], &mut self.at)?;
        self.left = head >> 1;
        self.run = None;
        if head & 1 == 1 {
            // Groups of eight; the last may be cut short by the end of the page.
            self.left = self.left.checked_mul(8).ok_or("a run is too long")?;
            self.bit = 0;
        } else {
            let bytes = self.width.div_ceil(8) as usize;
            let raw = self.bytes[..self.end].get(self.at..self.at + bytes).ok_or("a page ends before its values do")?;
            self.run = Some(raw.iter().rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte)));
            self.at += bytes;
        }
        if self.left == 0 {
            return Err("a run of no values".into());
        }
        Ok(())
    }
}

/// Differences in blocks (DELTA_BINARY_PACKED).
pub struct Delta {
    bytes: Rc<[u8]>,
    at: usize,
    block: u64, // values a block
    minis: u64, // blocks in a block
    pub count: u64,
    value: i64,
    given: u64, // values handed out
    least: i64,
    widths: Vec<u8>,
    in_block: u64,
}

impl Delta {
    pub fn new(bytes: Rc<[u8]>, mut at: usize) -> Result<Delta, Failure> {
        let block = varint(&bytes, &mut at)?;
        let minis = varint(&bytes, &mut at)?;
        let count = varint(&bytes, &mut at)?;
        let value = zigzag(varint(&bytes, &mut at)?);
        if minis == 0 || minis > 1024 || block == 0 || block > 1 << 24 || block % minis != 0 || (block / minis) % 8 != 0 {
            return Err("a block of differences is not what its header says".into());
        }
        Ok(Delta { bytes, at, block, minis, count, value, given: 0, least: 0, widths: Vec::new(), in_block: block })
    }

    pub fn next(&mut self) -> Result<i64, Failure> {
        if self.given >= self.count {
            return Err("a page ends before its values do".into());
        }
        self.given += 1;
        if self.given == 1 {
            return Ok(self.value);
        }
        let mini = self.block / self.minis;
        if self.in_block == self.block {
            self.least = zigzag(varint(&self.bytes, &mut self.at)?);
            self.widths = self.bytes.get(self.at..self.at + self.minis as usize).ok_or("a page is cut off")?.to_vec();
            self.at += self.minis as usize;
            self.in_block = 0;
        }
        let width = u64::from(self.widths[(self.in_block / mini) as usize]);
        if width > 64 {
            return Err("a difference has more than 64 bits".into());
        }
        let bit = self.in_block % mini * width;
        let first = self.at + (bit / 8) as usize;
        let mut raw = 0u128;
        let bytes = (bit % 8 + width).div_ceil(8) as usize;
        for (index, byte) in self.bytes.get(first..first + bytes).ok_or("a page is cut off")?.iter().enumerate() {
            raw |= u128::from(*byte) << (8 * index);
        }
        let difference = (raw >> (bit % 8) & ((1u128 << width) - 1)) as u64;
        self.in_block += 1;
        if self.in_block % mini == 0 {
            self.at += (mini * width / 8) as usize;
        }
        self.value = self.value.wrapping_add(self.least).wrapping_add(difference as i64);
        Ok(self.value)
    }

    /// All values at once, and where they end.
    fn all(mut self, most: u64) -> Result<(Vec<u32>, usize), Failure> {
        if self.count > most {
            return Err("a page has more lengths than values".into());
        }
        let mut values = Vec::new();
        for _ in 0..self.count {
            values.push(u32::try_from(self.next()?).map_err(|_| "a length is negative")?);
        }
        // The last block is filled up to whole small blocks; those without values have no bytes.
        let mini = self.block / self.minis;
        if !self.widths.is_empty() && self.in_block % mini != 0 {
            self.at += (mini * u64::from(self.widths[(self.in_block / mini) as usize]) / 8) as usize;
        }
        Ok((values, self.at))
    }
}

pub enum Value<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Bytes(&'a [u8]),
}

/// Values of a page, one after the other.
pub enum Values {
    Plain { bytes: Rc<[u8]>, at: usize, bit: u8 },
    Bits(Hybrid),
    Indices(Hybrid, Rc<Dictionary>),
    Delta(Delta),
    Lengths { bytes: Rc<[u8]>, at: usize, lengths: std::vec::IntoIter<u32> },
    Prefixes { bytes: Rc<[u8]>, at: usize, prefixes: std::vec::IntoIter<u32>, lengths: std::vec::IntoIter<u32>, last: Vec<u8> },
    Split { bytes: Rc<[u8]>, at: usize, count: usize, next: usize },
}

/// Where each value of a dictionary page lies.
pub struct Dictionary {
    pub bytes: Rc<[u8]>,
    pub places: Vec<usize>,
}

fn width_of(physical: Physical) -> usize {
    match physical {
        Physical::Int32 | Physical::Float => 4,
        Physical::Int64 | Physical::Double => 8,
        Physical::Int96 => 12,
        Physical::Fixed(width) => width,
        Physical::Bool | Physical::Bytes => 0,
    }
}

/// The value that starts at `at`, which is moved behind it.
fn plain<'a>(bytes: &'a [u8], at: &mut usize, physical: Physical) -> Result<Value<'a>, Failure> {
    let mut take = |length: usize| -> Result<&'a [u8], Failure> {
        let end = at.checked_add(length).ok_or("a value is too long")?;
        let taken = bytes.get(*at..end).ok_or("a page ends before its values do")?;
        *at = end;
        Ok(taken)
    };
    if physical == Physical::Bytes {
        let length = u32::from_le_bytes(take(4)?.try_into()?) as usize;
        return Ok(Value::Bytes(take(length)?));
    }
    number(take(width_of(physical))?, physical)
}

fn number(raw: &[u8], physical: Physical) -> Result<Value<'_>, Failure> {
    Ok(match physical {
        Physical::Int32 => Value::Int(i64::from(i32::from_le_bytes(raw.try_into()?))),
        Physical::Int64 => Value::Int(i64::from_le_bytes(raw.try_into()?)),
        Physical::Float => Value::Float(f64::from(f32::from_le_bytes(raw.try_into()?))),
        Physical::Double => Value::Float(f64::from_le_bytes(raw.try_into()?)),
        _ => Value::Bytes(raw),
    })
}

impl Dictionary {
    pub fn new(bytes: Rc<[u8]>, count: usize, physical: Physical) -> Result<Dictionary, Failure> {
        let mut places = Vec::new();
        let mut at = 0;
        if physical == Physical::Bool || (width_of(physical) == 0 && physical != Physical::Bytes) {
            return Err("a dictionary of values without a width".into());
        }
        for _ in 0..count {
            places.push(at);
            plain(&bytes, &mut at, physical)?;
        }
        Ok(Dictionary { bytes, places })
    }
}

impl Values {
    /// `bytes` from `at` on, `count` values in the encoding of that number.
    pub fn new(
        bytes: Rc<[u8]>,
        at: usize,
        count: u64,
        encoding: i64,
        physical: Physical,
        dictionary: &Option<Rc<Dictionary>>,
    ) -> Result<Values, Failure> {
        let end = bytes.len();
        Ok(match (encoding, physical) {
            (0, _) => Values::Plain { bytes, at, bit: 0 },
            (2 | 8, _) => {
                let dictionary = dictionary.clone().ok_or("a page needs a dictionary, but there is none")?;
                let width = bytes.get(at).copied();
                // A page of nulls alone may be empty.
                Values::Indices(Hybrid::new(bytes, (at + 1).min(end), end, u32::from(width.unwrap_or(0)))?, dictionary)
            }
            (3, Physical::Bool) => {
                let length = bytes.get(at..at + 4).ok_or("a page is cut off")?.try_into().map(u32::from_le_bytes)?;
                let last = (at + 4).checked_add(length as usize).filter(|&last| last <= end).ok_or("a page is cut off")?;
                Values::Bits(Hybrid::new(bytes, at + 4, last, 1)?)
            }
            (5, Physical::Int32 | Physical::Int64) => Values::Delta(Delta::new(bytes, at)?),
            (6, Physical::Bytes) => {
                let (lengths, at) = Delta::new(bytes.clone(), at)?.all(count)?;
                Values::Lengths { bytes, at, lengths: lengths.into_iter() }
            }
            (7, Physical::Bytes | Physical::Fixed(_)) => {
                let (prefixes, at) = Delta::new(bytes.clone(), at)?.all(count)?;
                let (lengths, at) = Delta::new(bytes.clone(), at)?.all(count)?;
                Values::Prefixes { bytes, at, prefixes: prefixes.into_iter(), lengths: lengths.into_iter(), last: Vec::new() }
            }
            (9, _) if width_of(physical) > 0 => {
                let count = (end - at.min(end)) / width_of(physical);
                Values::Split { bytes, at, count, next: 0 }
            }
            (other, _) => return Err(format!("the encoding {other} is not read").into()),
        })
    }

    /// Hands the next value to `with`.
    pub fn next<T>(&mut self, physical: Physical, with: impl FnOnce(Value) -> T) -> Result<T, Failure> {
        let cut_off = || Failure::from("a page ends before its values do");
        match self {
            Values::Plain { bytes, at, bit } if physical == Physical::Bool => {
                let byte = *bytes.get(*at).ok_or_else(cut_off)?;
                let value = byte >> *bit & 1 == 1;
                *at += usize::from(*bit == 7);
                *bit = (*bit + 1) % 8;
                Ok(with(Value::Bool(value)))
            }
            Values::Plain { bytes, at, .. } => Ok(with(plain(bytes, at, physical)?)),
            Values::Bits(bits) => Ok(with(Value::Bool(bits.next()? == 1))),
            Values::Indices(indices, dictionary) => {
                let index = indices.next()? as usize;
                let mut at = *dictionary.places.get(index).ok_or("an index lies outside its dictionary")?;
                Ok(with(plain(&dictionary.bytes, &mut at, physical)?))
            }
            Values::Delta(delta) => {
                let value = delta.next()?;
                Ok(with(Value::Int(if physical == Physical::Int32 { i64::from(value as i32) } else { value })))
            }
            Values::Lengths { bytes, at, lengths } => {
                let length = lengths.next().ok_or_else(cut_off)? as usize;
                let value = bytes.get(*at..at.saturating_add(length)).ok_or_else(cut_off)?;
                *at += length;
                Ok(with(Value::Bytes(value)))
            }
            Values::Prefixes { bytes, at, prefixes, lengths, last } => {
                let (prefix, length) = (prefixes.next().ok_or_else(cut_off)? as usize, lengths.next().ok_or_else(cut_off)? as usize);
                if prefix > last.len() {
                    return Err("a text goes on from one that is shorter".into());
                }
                last.truncate(prefix);
                last.extend_from_slice(bytes.get(*at..at.saturating_add(length)).ok_or_else(cut_off)?);
                *at += length;
                Ok(with(Value::Bytes(last)))
            }
            Values::Split { bytes, at, count, next } => {
                if *next >= *count {
                    return Err(cut_off());
                }
                let raw: Vec<u8> = (0..width_of(physical)).map(|stream| bytes[*at + stream * *count + *next]).collect();
                *next += 1;
                Ok(with(number(&raw, physical)?))
            }
        }
    }
}
