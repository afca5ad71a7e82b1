//! Parquet files as rows of JSON: one object a row, the columns as its members. Row groups and pages are read as they are needed.
mod encodings;
mod json;
mod pages;
mod schema;
mod thrift;

use crate::border::{guarded, Bytes, Failure, View};
use json::Writer;
use pages::{chunk_of, is_readable, Column};
use schema::{Field, Schema, Shape};
use thrift::{Reader, Thrift};

/// Reads front to back. Borrows the file's bytes, which must outlive it.
pub struct Rows {
    file: &'static [u8],
    schema: &'static Schema,
    groups: Vec<Group>,
    left: u64, // rows of the current group
    columns: Vec<Option<Column<'static>>>,
    rows: u64,
    owned: *mut Schema,
}

/// The chunks of a row group, one a leaf.
struct Group {
    rows: u64,
    chunks: Vec<pages::Chunk>,
}

fn footer_of(file: &[u8]) -> Result<Thrift<'_>, Failure> {
    let size = file.len();
    if size < 12 || &file[..4] != b"PAR1" {
        return Err("it does not start as a Parquet file does".into());
    }
    match &file[size - 4..] {
        b"PAR1" => {}
        b"PARE" => return Err("it is encrypted".into()),
        _ => return Err("it does not end as a Parquet file does: it is cut off".into()),
    }
    let length = u32::from_le_bytes(file[size - 8..size - 4].try_into()?) as usize;
    let begin = (size - 8).checked_sub(length).filter(|&begin| begin >= 4).ok_or("its footer is longer than the file")?;
    Reader::new(&file[begin..size - 8]).structure()
}

fn groups_of(footer: &Thrift, leaves: usize, file_size: usize) -> Result<Vec<Group>, Failure> {
    let mut groups = Vec::new();
    for group in footer.list(4) {
        let rows = group.int(3).and_then(|rows| u64::try_from(rows).ok()).ok_or("a row group has no count")?;
        let chunks = group.list(1).iter().map(|entry| chunk_of(entry, file_size)).collect::<Result<Vec<_>, Failure>>()?;
        if chunks.len() != leaves {
            return Err(format!("a row group has {} columns, the file {leaves}", chunks.len()).into());
        }
        groups.push(Group { rows, chunks });
    }
    Ok(groups)
}

impl Rows {
    pub fn open(file: &'static [u8]) -> Result<Rows, Failure> {
        let footer = footer_of(file)?;
        let schema = schema::read(&footer)?;
        if !schema.leaves.iter().any(is_readable) {
            return Err("it has no column that can be read".into());
        }
        let mut groups = groups_of(&footer, schema.leaves.len(), file.len())?;
        groups.reverse(); // the next one is at the end
        let rows = groups.iter().map(|group| group.rows).fold(0u64, u64::saturating_add);
        let owned = Box::into_raw(Box::new(schema));
        // Safety: freed in drop, after the columns that point at it.
        let schema = unsafe { &*owned };
        Ok(Rows { file, schema, groups, left: 0, columns: Vec::new(), rows, owned })
    }

    /// Goes to a group with rows; false at the end.
    fn advance(&mut self) -> Result<bool, Failure> {
        while self.left == 0 {
            for column in self.columns.iter_mut().flatten() {
                if column.peek()?.is_some() {
                    return Err("a column has more values than there are rows".into());
                }
            }
            let Some(group) = self.groups.pop() else { return Ok(false) };
            self.left = group.rows;
            self.columns = (self.schema.leaves.iter().zip(group.chunks))
                .map(|(leaf, chunk)| is_readable(leaf).then(|| Column::new(self.file, leaf, chunk)))
                .collect();
        }
        Ok(true)
    }

    /// Up to `most` rows as lines of JSON, fewer once they are `enough` bytes long; nothing at the end.
    pub fn read(&mut self, most: u64, enough: usize) -> Result<Vec<u8>, Failure> {
        let mut out = Writer::default();
        for _ in 0..most {
            if out.bytes.len() >= enough || !self.advance()? {
                break;
            }
            self.row(&mut out)?;
            out.bytes.push(b'\n');
            self.left -= 1;
        }
        Ok(out.bytes)
    }

    fn row(&mut self, out: &mut Writer) -> Result<(), Failure> {
        out.bytes.push(b'{');
        let mut first = true;
        for field in &self.schema.fields {
            if self.lead(field).is_none() {
                continue; // nothing of it can be written as JSON
            }
            if !std::mem::take(&mut first) {
                out.bytes.push(b',');
            }
            out.text(&field.name);
            out.bytes.push(b':');
            self.value(field, out).map_err(|error| format!("the column {}: {error}", field.name))?;
        }
        out.bytes.push(b'}');
        Ok(())
    }

    /// The first leaf below the field that is read: its levels tell what is there.
    fn lead(&self, field: &Field) -> Option<usize> {
        (field.first_leaf..field.first_leaf + field.leaves).find(|&leaf| self.columns[leaf].is_some())
    }

    fn levels(&mut self, field: &Field) -> Result<(u32, u32), Failure> {
        let lead = self.lead(field).ok_or("it cannot be read")?;
        let column = self.columns[lead].as_mut().ok_or("it cannot be read")?;
        Ok(column.peek()?.ok_or("it ends before the others do")?)
    }

    /// Passes over one value, null at some level, in every leaf below the field.
    fn pass_over(&mut self, field: &Field) -> Result<(), Failure> {
        for column in self.columns[field.first_leaf..field.first_leaf + field.leaves].iter_mut().flatten() {
            if column.take(|_| ())?.is_some() {
                return Err("its parts do not fit together".into());
            }
        }
        Ok(())
    }

    fn value(&mut self, field: &Field, out: &mut Writer) -> Result<(), Failure> {
        if let Shape::Leaf(leaf) = field.shape {
            let described = &self.schema.leaves[leaf];
            let column = self.columns[leaf].as_mut().ok_or("it cannot be read")?;
            return match column.take(|value| out.value(value, described))? {
                Some(written) => written,
                None => {
                    out.bytes.extend_from_slice(b"null");
                    Ok(())
                }
            };
        }
        let (_, def) = self.levels(field)?;
        if def < field.def {
            out.bytes.extend_from_slice(b"null");
            return self.pass_over(field);
        }
        match &field.shape {
            Shape::Struct(fields) => {
                out.bytes.push(b'{');
                let mut first = true;
                for inner in fields {
                    if self.lead(inner).is_none() {
                        continue;
                    }
                    if !std::mem::take(&mut first) {
                        out.bytes.push(b',');
                    }
                    out.text(&inner.name);
                    out.bytes.push(b':');
                    self.value(inner, out)?;
                }
                out.bytes.push(b'}');
                Ok(())
            }
            Shape::List(item) => self.items(field, (b'[', b']'), out, |rows, out| rows.value(item, out)),
            Shape::Map(key, value) => {
                // Keys that are no texts cannot be members of an object: such a map is a list of pairs.
                let texts = matches!(key.shape, Shape::Leaf(leaf) if self.schema.leaves[leaf].physical == schema::Physical::Bytes);
                let (around, begin, between, end) = if texts { ((b'{', b'}'), "", b':', "") } else { ((b'[', b']'), "[", b',', "]") };
                self.items(field, around, out, |rows, out| {
                    out.bytes.extend_from_slice(begin.as_bytes());
                    rows.value(key, out)?;
                    out.bytes.push(between);
                    rows.value(value, out)?;
                    out.bytes.extend_from_slice(end.as_bytes());
                    Ok(())
                })
            }
            Shape::Leaf(_) => Ok(()),
        }
    }

    fn items(
        &mut self,
        field: &Field,
        brackets: (u8, u8),
        out: &mut Writer,
        one: impl Fn(&mut Rows, &mut Writer) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        out.bytes.push(brackets.0);
        if self.levels(field)?.1 < field.items {
            self.pass_over(field)?;
        } else {
            loop {
                one(self, out)?;
                let lead = self.lead(field).ok_or("it cannot be read")?;
                let next = self.columns[lead].as_mut().map_or(Ok(None), |column| column.peek())?;
                if !next.is_some_and(|(rep, _)| rep >= field.rep) {
                    break;
                }
                out.bytes.push(b',');
            }
        }
        out.bytes.push(brackets.1);
        Ok(())
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.columns.clear();
        // Safety: made by Box::into_raw in open; nothing points at it any more.
        drop(unsafe { Box::from_raw(self.owned) });
    }
}

#[no_mangle]
unsafe extern "C" fn lockstep_parquet_open(file: View, result: *mut *mut Rows, rows: *mut u64, error: *mut Bytes) -> bool {
    guarded(error, || {
        let opened = Rows::open(file.bytes())?;
        rows.write(opened.rows);
        result.write(Box::into_raw(Box::new(opened)));
        Ok(())
    })
}

#[no_mangle]
unsafe extern "C" fn lockstep_parquet_free(rows: *mut Rows) {
    drop(Box::from_raw(rows));
}

#[no_mangle]
unsafe extern "C" fn lockstep_parquet_read(rows: &mut Rows, most: u64, enough: usize, lines: *mut Bytes, error: *mut Bytes) -> bool {
    guarded(error, || {
        lines.write(rows.read(most, enough)?.into());
        Ok(())
    })
}
