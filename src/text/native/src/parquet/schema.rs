//! What a Parquet file's columns are: a tree of fields, and for each leaf how deep its values may be null or repeated.
use super::thrift::Thrift;
use crate::border::Failure;

const MOST_FIELDS: usize = 10_000;
const DEEPEST: usize = 32;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Physical {
    Bool,
    Int32,
    Int64,
    Int96,
    Float,
    Double,
    Bytes,
    Fixed(usize),
}

#[derive(Clone, Copy, PartialEq)]
pub enum Meaning {
    Plain,
    Text,
    Unsigned,
    Half, // a float of 16 bits
    Other,
}

pub struct Leaf {
    pub physical: Physical,
    pub meaning: Meaning,
    pub most_def: u32,
    pub most_rep: u32,
}

pub enum Shape {
    Leaf(usize), // its number among the leaves
    Struct(Vec<Field>),
    List(Box<Field>),
    Map(Box<Field>, Box<Field>),
}

/// A value that may be null where `def` says so; an element of a list is a field too.
pub struct Field {
    pub name: String,
    pub shape: Shape,
    pub def: u32,   // from here on the value is there
    pub items: u32, // List and Map: from here on there is an item
    pub rep: u32,   // List and Map: a further item of the same list
    pub first_leaf: usize,
    pub leaves: usize,
}

pub struct Schema {
    pub fields: Vec<Field>,
    pub leaves: Vec<Leaf>,
}

struct Builder<'a, 'b> {
    elements: &'b [Thrift<'a>],
    at: usize,
    leaves: Vec<Leaf>,
}

fn is_list(element: &Thrift) -> bool {
    element.int(6) == Some(3) || element.field(10).is_some_and(|logical| logical.field(3).is_some())
}

fn is_map(element: &Thrift) -> bool {
    matches!(element.int(6), Some(1 | 2)) || element.field(10).is_some_and(|logical| logical.field(2).is_some())
}

fn meaning_of(element: &Thrift) -> Meaning {
    if let Some(logical) = element.field(10) {
        let has = |id| logical.field(id).is_some();
        return match () {
            () if has(1) || has(4) || has(12) => Meaning::Text,
            () if has(10) => match logical.field(10).and_then(|integer| integer.flag(2)) {
                Some(false) => Meaning::Unsigned,
                _ => Meaning::Plain,
            },
            () if has(15) => Meaning::Half,
            () if has(5) || has(14) || has(13) => Meaning::Other,
            () => Meaning::Plain,
        };
    }
    match element.int(6) {
        Some(0 | 4 | 19) => Meaning::Text,
        Some(11..=14) => Meaning::Unsigned,
        Some(5 | 20 | 21) => Meaning::Other,
        _ => Meaning::Plain,
    }
}

pub fn read(footer: &Thrift) -> Result<Schema, Failure> {
    let elements = footer.list(2);
    if elements.len() > MOST_FIELDS {
        return Err(format!("it has {} columns, more than {MOST_FIELDS}", elements.len()).into());
    }
    let root = elements.first().ok_or("it has no columns")?;
    let mut builder = Builder { elements, at: 1, leaves: Vec::new() };
    let children = root.int(5).unwrap_or(0);
    let mut fields = Vec::new();
    for _ in 0..children {
        fields.push(builder.field(0, 0, "", 0)?);
    }
    if fields.is_empty() || builder.at != elements.len() {
        return Err("its columns are not what the footer says".into());
    }
    Ok(Schema { fields, leaves: builder.leaves })
}

impl Builder<'_, '_> {
    /// The next element with all below it. A repeated one that is in no list is a list by itself.
    fn field(&mut self, def: u32, rep: u32, path: &str, depth: usize) -> Result<Field, Failure> {
        let element = self.elements.get(self.at).ok_or("a column is missing")?;
        let name = element.text(4).ok_or("a column has no name")?.to_string();
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let first_leaf = self.leaves.len();
        if depth > DEEPEST {
            return Err(format!("the column {path} is nested deeper than {DEEPEST} levels").into());
        }
        if element.int(3) == Some(2) {
            let inner = self.body(&path, def + 1, rep + 1, depth)?;
            let leaves = self.leaves.len() - first_leaf;
            let item = Field { name: name.clone(), shape: inner, def: def + 1, items: 0, rep: 0, first_leaf, leaves };
            let item = Self::with_items(item, def + 1, rep + 1);
            return Ok(Field { name, shape: Shape::List(Box::new(item)), def, items: def + 1, rep: rep + 1, first_leaf, leaves });
        }
        let own = def + u32::from(element.int(3) == Some(1));
        let shape = self.body(&path, own, rep, depth)?;
        let leaves = self.leaves.len() - first_leaf;
        Ok(Self::with_items(Field { name, shape, def: own, items: 0, rep: 0, first_leaf, leaves }, own, rep))
    }

    fn with_items(mut field: Field, def: u32, rep: u32) -> Field {
        if matches!(field.shape, Shape::List(_) | Shape::Map(..)) {
            field.items = def + 1;
            field.rep = rep + 1;
        }
        field
    }

    /// What the current element holds, its own repetition already counted.
    fn body(&mut self, path: &str, def: u32, rep: u32, depth: usize) -> Result<Shape, Failure> {
        let element = &self.elements[self.at];
        self.at += 1;
        let Some(children) = element.int(5).filter(|&children| children > 0) else { return self.leaf(element, path, def, rep) };
        if (is_list(element) || is_map(element)) && children == 1 {
            if let Some(repeated) = self.elements.get(self.at).filter(|repeated| repeated.int(3) == Some(2)) {
                return if is_map(element) { self.map(path, def, rep, depth) } else { self.list(repeated, path, def, rep, depth) };
            }
        }
        let mut fields = Vec::new();
        for _ in 0..children {
            fields.push(self.field(def, rep, path, depth + 1)?);
        }
        Ok(Shape::Struct(fields))
    }

    /// A group of three levels, or of two as old writers have it: then the repeated group is the item itself.
    fn list(&mut self, repeated: &Thrift, path: &str, def: u32, rep: u32, depth: usize) -> Result<Shape, Failure> {
        let name = repeated.text(4).ok_or("a column has no name")?;
        let path_inside = format!("{path}.{name}");
        let children = repeated.int(5).unwrap_or(0);
        let parent = path.rsplit('.').next().unwrap_or_default();
        let two_levels = children != 1 || name == "array" || name == format!("{parent}_tuple");
        if !two_levels {
            self.at += 1;
            return Ok(Shape::List(Box::new(self.field(def + 1, rep + 1, &path_inside, depth + 1)?)));
        }
        let first_leaf = self.leaves.len();
        let shape = self.body(&path_inside, def + 1, rep + 1, depth + 1)?;
        let leaves = self.leaves.len() - first_leaf;
        let item = Field { name: name.to_string(), shape, def: def + 1, items: 0, rep: 0, first_leaf, leaves };
        Ok(Shape::List(Box::new(Self::with_items(item, def + 1, rep + 1))))
    }

    fn map(&mut self, path: &str, def: u32, rep: u32, depth: usize) -> Result<Shape, Failure> {
        let pairs = &self.elements[self.at];
        let path = format!("{path}.{}", pairs.text(4).ok_or("a column has no name")?);
        if pairs.int(5) != Some(2) {
            return Err(format!("the column {path} is a map without keys and values").into());
        }
        self.at += 1;
        let key = self.field(def + 1, rep + 1, &path, depth + 1)?;
        let value = self.field(def + 1, rep + 1, &path, depth + 1)?;
        Ok(Shape::Map(Box::new(key), Box::new(value)))
    }

    fn leaf(&mut self, element: &Thrift, path: &str, def: u32, rep: u32) -> Result<Shape, Failure> {
        let physical = match element.int(1) {
            Some(0) => Physical::Bool,
            Some(1) => Physical::Int32,
            Some(2) => Physical::Int64,
            Some(3) => Physical::Int96,
            Some(4) => Physical::Float,
            Some(5) => Physical::Double,
            Some(6) => Physical::Bytes,
            Some(7) => Physical::Fixed(usize::try_from(element.int(2).unwrap_or(-1)).map_err(|_| "a column has no width")?),
            // A struct without fields is written as nothing at all by some writers.
            _ => return Err(format!("the column {path} has no type that can be read").into()),
        };
        self.leaves.push(Leaf { physical, meaning: meaning_of(element), most_def: def, most_rep: rep });
        Ok(Shape::Leaf(self.leaves.len() - 1))
    }
}
