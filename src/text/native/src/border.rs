//! What crosses the border to C: views, buffers, and a guard that turns errors and panics into text.
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const c_char,
    size: usize,
}

/// A Vec taken apart; capacity is kept so that it can be put together again.
#[repr(C)]
pub struct Buffer<T> {
    data: *mut T,
    size: usize,
    capacity: usize,
}

pub type Bytes = Buffer<u8>;
pub type Numbers = Buffer<u32>;
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

impl View {
    pub const EMPTY: View = View { data: std::ptr::null(), size: 0 };

    /// # Safety
    /// The view must point at `size` bytes that live as long as the result is used.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        std::slice::from_raw_parts(self.data.cast(), self.size)
    }

    /// # Safety
    /// As `bytes`.
    pub unsafe fn text<'a>(self) -> Result<&'a str, Failure> {
        std::str::from_utf8(self.bytes()).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()).into())
    }
}

impl<T> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Self {
        let mut values = std::mem::ManuallyDrop::new(values);
        Buffer { data: values.as_mut_ptr(), size: values.len(), capacity: values.capacity() }
    }
}

impl<T> Buffer<T> {
    unsafe fn free(self) {
        if !self.data.is_null() {
            drop(Vec::from_raw_parts(self.data, self.size, self.capacity));
        }
    }
}

#[no_mangle]
unsafe extern "C" fn lockstep_bytes_free(bytes: Bytes) {
    bytes.free();
}

#[no_mangle]
unsafe extern "C" fn lockstep_numbers_free(numbers: Numbers) {
    numbers.free();
}

/// What a panic has to say goes into the error, not to the terminal as well.
fn silence_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

/// Runs `work`; an error or a panic of it becomes text in `error` and the result false. Nothing unwinds into C++.
pub unsafe fn guarded(error: *mut Bytes, work: impl FnOnce() -> Result<(), Failure>) -> bool {
    silence_panics();
    let reason = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return true,
        Ok(Err(failure)) => failure.to_string(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            format!("the library gave up: {}", words.unwrap_or("no reason given"))
        }
    };
    error.write(reason.into_bytes().into());
    false
}
