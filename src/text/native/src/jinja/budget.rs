//! How much one rendering may do and make: a template comes from elsewhere and may never end, or fill the memory.
use super::fault::{fault, Outcome};
use std::cell::Cell;

const MOST_STEPS: u64 = 25_000_000; // some two seconds; a conversation of 400 messages takes some 30,000
const MOST_BYTES: u64 = 512 << 20;
const DEEPEST: u32 = 400;
const DEEPEST_VALUE: u32 = 500;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static TOO_DEEP: Cell<bool> = const { Cell::new(false) };
}

pub fn start() {
    STEPS.set(0);
    BYTES.set(0);
    DEPTH.set(0);
    TOO_DEEP.set(false);
}

/// Told of every value that holds others; the next step ends the rendering where they are nested too deep.
pub fn nest(depth: u32) {
    if depth > DEEPEST_VALUE {
        TOO_DEEP.set(true);
    }
}

pub fn step() -> Outcome<()> {
    let steps = STEPS.get() + 1;
    STEPS.set(steps);
    if TOO_DEEP.get() {
        return Err(fault(format!("the template nests values more than {DEEPEST_VALUE} levels deep")));
    }
    if steps > MOST_STEPS {
        return Err(fault(format!("the template does not end: {MOST_STEPS} steps were taken")));
    }
    Ok(())
}

/// Asked before something of that size is made.
pub fn spend(bytes: usize) -> Outcome<()> {
    let all = BYTES.get().saturating_add(bytes as u64);
    BYTES.set(all);
    if all > MOST_BYTES {
        return Err(fault(format!("the template makes more than {} MiB of text and lists", MOST_BYTES >> 20)));
    }
    Ok(())
}

/// One level deeper for as long as it lives.
pub struct Level;

impl Level {
    pub fn enter() -> Outcome<Level> {
        let depth = DEPTH.get() + 1;
        if depth > DEEPEST {
            return Err(fault(format!("the template calls itself more than {DEEPEST} levels deep")));
        }
        DEPTH.set(depth);
        Ok(Level)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
