//! One column of one row group: pages are taken in turn, unpacked, and read value by value with their levels.
use super::encodings::{Dictionary, Hybrid, Value, Values};
use super::schema::{Leaf, Physical};
use super::thrift::{Reader, Thrift};
use crate::border::Failure;
use std::io::Read;
use std::rc::Rc;

const LARGEST_PAGE: usize = 1 << 30;
const MOST_VALUES: u64 = 1 << 26; // of a page

/// Where a column lies in the file.
pub struct Chunk {
    pub codec: i64,
    pub values: u64,
    pub begin: usize,
    pub end: usize,
}

/// The chunk that a row group's entry tells of.
pub fn chunk_of(entry: &Thrift, file_size: usize) -> Result<Chunk, Failure> {
    if entry.field(1).is_some() {
        return Err("a column lies in another file, which is not read".into());
    }
    let meta = entry.field(3).ok_or("a column is encrypted or has no description")?;
    let number = |id: i16| meta.int(id).and_then(|value| u64::try_from(value).ok());
    let data = number(9).ok_or("a column has no place")?;
    let begin = number(11).filter(|&at| at > 0).map_or(data, |dictionary| dictionary.min(data));
    let length = number(7).ok_or("a column has no length")?;
    let end = begin.checked_add(length).filter(|&end| end <= file_size as u64).ok_or("a column lies outside the file: it is cut off")?;
    Ok(Chunk {
        codec: meta.int(4).unwrap_or(0),
        values: number(5).ok_or("a column has no count")?,
        begin: begin as usize,
        end: end as usize,
    })
}

struct Page {
    left: u64,
    reps: Hybrid,
    defs: Hybrid,
    values: Values,
}

pub struct Column<'a> {
    file: &'a [u8],
    leaf: &'a Leaf,
    chunk: Chunk,
    at: usize,
    left: u64, // values of the chunk in pages to come
    dictionary: Option<Rc<Dictionary>>,
    page: Option<Page>,
    peeked: Option<(u32, u32)>, // repetition and definition of the value to come
}

fn bits_for(most: u32) -> u32 {
    32 - most.leading_zeros()
}

fn unpack(codec: i64, packed: &[u8], size: usize) -> Result<Vec<u8>, Failure> {
    if size > LARGEST_PAGE {
        return Err(format!("a page of {} MiB is larger than is read", size >> 20).into());
    }
    let read = |from: &mut dyn Read| -> Result<Vec<u8>, Failure> {
        let mut out = Vec::new();
        from.take(size as u64 + 1).read_to_end(&mut out)?;
        Ok(out)
    };
    let out = match codec {
        0 => packed.to_vec(),
        1 => {
            // No copy of three bytes stands for more than 64.
            if size > packed.len().saturating_mul(64) + 64 || snap::raw::decompress_len(packed)? != size {
                return Err("a page's size is not what its header says".into());
            }
            snap::raw::Decoder::new().decompress_vec(packed)?
        }
        2 => read(&mut flate2::read::MultiGzDecoder::new(packed))?,
        6 => read(&mut ruzstd::decoding::StreamingDecoder::new(packed)?)?,
        other => {
            let names = ["", "", "", "LZO", "Brotli", "LZ4", "", "LZ4"];
            let name =
                usize::try_from(other).ok().and_then(|at| names.get(at)).filter(|name| !name.is_empty()).unwrap_or(&"an unknown method");
            return Err(format!("it is compressed with {name}; Snappy, Zstandard and gzip are read").into());
        }
    };
    if out.len() != size {
        return Err("a page's size is not what its header says".into());
    }
    Ok(out)
}

impl<'a> Column<'a> {
    pub fn new(file: &'a [u8], leaf: &'a Leaf, chunk: Chunk) -> Column<'a> {
        let (at, left) = (chunk.begin, chunk.values);
        Column { file, leaf, chunk, at, left, dictionary: None, page: None, peeked: None }
    }

    /// Repetition and definition of the value to come; None at the end of the chunk.
    pub fn peek(&mut self) -> Result<Option<(u32, u32)>, Failure> {
        if self.peeked.is_none() {
            while self.page.as_ref().is_none_or(|page| page.left == 0) {
                if self.left == 0 {
                    return Ok(None);
                }
                self.next_page()?;
            }
            if let Some(page) = &mut self.page {
                page.left -= 1;
                let levels = (page.reps.next()?, page.defs.next()?);
                if levels.0 > self.leaf.most_rep || levels.1 > self.leaf.most_def {
                    return Err("a level is larger than its column allows".into());
                }
                self.peeked = Some(levels);
            }
        }
        Ok(self.peeked)
    }

    /// Takes the value that was peeked at; None where it is null at some level.
    pub fn take<T>(&mut self, with: impl FnOnce(Value) -> T) -> Result<Option<T>, Failure> {
        let (_, def) = self.peek()?.ok_or("a column ends before the others do")?;
        self.peeked = None;
        match &mut self.page {
            Some(page) if def == self.leaf.most_def => Ok(Some(page.values.next(self.leaf.physical, with)?)),
            _ => Ok(None),
        }
    }

    fn next_page(&mut self) -> Result<(), Failure> {
        let mut reader = Reader::new(&self.file[self.at..self.chunk.end]);
        let header = reader.structure()?;
        let body = self.at + reader.place();
        let size = |id: i16| header.int(id).and_then(|size| usize::try_from(size).ok()).ok_or("a page has no size");
        let (unpacked, packed) = (size(2)?, size(3)?);
        let end = body.checked_add(packed).filter(|&end| end <= self.chunk.end).ok_or("a page lies outside its column")?;
        let bytes = &self.file[body..end];
        self.at = end;
        match header.int(1) {
            Some(0) => self.data_page(header.field(5).ok_or("a page has no description")?, bytes, unpacked),
            Some(2) => {
                let described = header.field(7).ok_or("a dictionary has no description")?;
                let count = described.int(1).and_then(|count| usize::try_from(count).ok()).ok_or("a dictionary has no count")?;
                let bytes: Rc<[u8]> = unpack(self.chunk.codec, bytes, unpacked)?.into();
                self.dictionary = Some(Rc::new(Dictionary::new(bytes, count, self.leaf.physical)?));
                Ok(())
            }
            Some(3) => self.data_page_2(header.field(8).ok_or("a page has no description")?, bytes, unpacked),
            _ => Ok(()), // an index: nothing to read
        }
    }

    /// How many values the page has, which must be among those that the column has left.
    fn count(&mut self, header: &Thrift) -> Result<u64, Failure> {
        let count = header.int(1).and_then(|count| u64::try_from(count).ok()).ok_or("a page has no count")?;
        if count > self.left || count > MOST_VALUES {
            return Err("a page has more values than its column".into());
        }
        self.left -= count;
        Ok(count)
    }

    fn data_page(&mut self, header: &Thrift, bytes: &[u8], unpacked: usize) -> Result<(), Failure> {
        let count = self.count(header)?;
        let bytes: Rc<[u8]> = unpack(self.chunk.codec, bytes, unpacked)?.into();
        let mut at = 0;
        let mut levels = |most: u32, encoding: Option<i64>| -> Result<Hybrid, Failure> {
            if most == 0 {
                return Hybrid::new(bytes.clone(), 0, 0, 0);
            }
            if encoding != Some(3) {
                return Err("levels in an encoding that is not read".into());
            }
            let length = bytes.get(at..at + 4).ok_or("a page is cut off")?.try_into().map(u32::from_le_bytes)? as usize;
            let begin = at + 4;
            at = begin.checked_add(length).filter(|&end| end <= bytes.len()).ok_or("a page is cut off")?;
            Hybrid::new(bytes.clone(), begin, at, bits_for(most))
        };
        let reps = levels(self.leaf.most_rep, header.int(4))?;
        let defs = levels(self.leaf.most_def, header.int(3))?;
        self.set_page(count, reps, defs, bytes, at, header.int(2))
    }

    fn data_page_2(&mut self, header: &Thrift, bytes: &[u8], unpacked: usize) -> Result<(), Failure> {
        let count = self.count(header)?;
        let length = |id: i16| header.int(id).and_then(|length| usize::try_from(length).ok()).ok_or("a page's levels have no length");
        let (rep_bytes, def_bytes) = (length(6)?, length(5)?);
        let levels_end = rep_bytes.checked_add(def_bytes).filter(|&end| end <= bytes.len()).ok_or("a page is cut off")?;
        let packed = header.flag(7).unwrap_or(true) && self.chunk.codec != 0;
        let rest = unpacked.checked_sub(levels_end).ok_or("a page's size is not what its header says")?;
        let mut whole = bytes[..levels_end].to_vec();
        whole.extend(unpack(if packed && rest > 0 { self.chunk.codec } else { 0 }, &bytes[levels_end..], rest)?);
        let bytes: Rc<[u8]> = whole.into();
        let width = |most: u32| bits_for(most);
        let reps = Hybrid::new(bytes.clone(), 0, rep_bytes, width(self.leaf.most_rep))?;
        let defs = Hybrid::new(bytes.clone(), rep_bytes, levels_end, width(self.leaf.most_def))?;
        self.set_page(count, reps, defs, bytes, levels_end, header.int(4))
    }

    fn set_page(
        &mut self,
        count: u64,
        reps: Hybrid,
        defs: Hybrid,
        bytes: Rc<[u8]>,
        at: usize,
        encoding: Option<i64>,
    ) -> Result<(), Failure> {
        let encoding = encoding.ok_or("a page has no encoding")?;
        let values = Values::new(bytes, at, count, encoding, self.leaf.physical, &self.dictionary)?;
        self.page = Some(Page { left: count, reps, defs, values });
        Ok(())
    }
}

/// Can values of the column be written as JSON?
pub fn is_readable(leaf: &Leaf) -> bool {
    !matches!(leaf.physical, Physical::Int96)
}
