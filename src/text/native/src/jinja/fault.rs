//! Why a template cannot be used or rendered, and on which line.
pub struct Fault {
    pub reason: String,
    pub line: u32, // 0: not known yet
}

pub type Outcome<T> = Result<T, Fault>;

pub fn fault(reason: impl Into<String>) -> Fault {
    Fault { reason: reason.into(), line: 0 }
}

impl Fault {
    /// Keeps a line that is known already: the innermost one.
    pub fn at(mut self, line: u32) -> Fault {
        if self.line == 0 {
            self.line = line;
        }
        self
    }
}
