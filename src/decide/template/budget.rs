//! What one rendering may use: steps, memory, output and depth; and what all of a row's may, together. Never reads a clock, so
//! that a template renders everywhere or nowhere.

use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

/// Actions, loop iterations and function calls of one rendering; functions add to it for long inputs.
pub const STEPS_MAX: u64 = 200_000;
/// Bytes that the values made during one rendering may take, all together, freed ones included.
pub const MEMORY_MAX_BYTES: u64 = 8 << 20;
/// Bytes that one rendering may write.
pub const OUTPUT_MAX_BYTES: u64 = 1 << 20;
/// Blocks, parentheses, template calls and levels of a value inside each other.
pub const DEPTH_MAX: u32 = 100;

/// Steps of all renderings of one form for one row.
pub const ROW_STEPS_MAX: u64 = 400_000;
/// Bytes that they may write, all together.
pub const ROW_OUTPUT_MAX_BYTES: u64 = 1 << 20;

/// Which limit ended the rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    Steps,
    Memory,
    Output,
    Depth,
}

/// A rendering wanted more than its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LimitError {
    #[error("the template takes more than {0} steps; shorten its loops")]
    Steps(u64),
    #[error("the template's values take more than {0} bytes; build smaller strings and lists")]
    Memory(u64),
    #[error("the template writes more than {0} bytes; make its result smaller")]
    Output(u64),
    #[error("the form's templates take more than {0} steps for one row; shorten their loops")]
    RowSteps(u64),
    #[error(
        "the form's templates write more than {0} bytes for one row; make their results smaller"
    )]
    RowOutput(u64),
    #[error(
        "the template nests blocks, parentheses, values or template calls more than {0} deep; make it flatter"
    )]
    Depth(u32),
}

impl LimitError {
    pub fn limit(&self) -> Limit {
        match self {
            LimitError::Steps(_) | LimitError::RowSteps(_) => Limit::Steps,
            LimitError::Memory(_) => Limit::Memory,
            LimitError::Output(_) | LimitError::RowOutput(_) => Limit::Output,
            LimitError::Depth(_) => Limit::Depth,
        }
    }
}

/// The four limits of one rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub steps: u64,
    pub memory_bytes: u64,
    pub output_bytes: u64,
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            steps: STEPS_MAX,
            memory_bytes: MEMORY_MAX_BYTES,
            output_bytes: OUTPUT_MAX_BYTES,
            depth: DEPTH_MAX,
        }
    }
}

/// What is left for all renderings of one form for one row.
#[derive(Debug)]
pub struct RowBudget {
    steps_left: Mutex<u64>,
    output_left_bytes: Mutex<u64>,
}

impl Default for RowBudget {
    fn default() -> Self {
        RowBudget {
            steps_left: ROW_STEPS_MAX.into(),
            output_left_bytes: ROW_OUTPUT_MAX_BYTES.into(),
        }
    }
}

/// Takes `count`, or all that is left, which is too little.
fn take(left: &Mutex<u64>, count: u64) -> Option<()> {
    let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
    let is_enough = *left >= count;
    *left = left.saturating_sub(count);
    is_enough.then_some(())
}

/// What is left of the limits while a template renders.
#[derive(Debug, Clone)]
pub struct Budget {
    limits: Limits,
    row: Arc<RowBudget>,
    steps_left: u64,
    memory_left_bytes: u64,
    output_left_bytes: u64,
    depth: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(Limits::default(), Arc::default())
    }
}

impl Budget {
    pub fn new(limits: Limits, row: Arc<RowBudget>) -> Self {
        Budget {
            limits,
            row,
            steps_left: limits.steps,
            memory_left_bytes: limits.memory_bytes,
            output_left_bytes: limits.output_bytes,
            depth: 0,
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Spends `count` steps. A function whose work grows with its arguments spends one step for every 256
    /// bytes or 64 items that it looks at, before it does so.
    pub fn spend_steps(&mut self, count: u64) -> Result<(), LimitError> {
        match self.steps_left.checked_sub(count) {
            Some(left) => {
                self.steps_left = left;
                take(&self.row.steps_left, count).ok_or(LimitError::RowSteps(ROW_STEPS_MAX))
            }
            None => {
                self.steps_left = 0;
                Err(LimitError::Steps(self.limits.steps))
            }
        }
    }

    /// Spends memory for a value about to be made: the bytes of a string, or `size_of::<Value>()` for each item.
    /// To be called before the memory is taken; what is freed later is not given back.
    pub fn spend_memory(&mut self, bytes: u64) -> Result<(), LimitError> {
        match self.memory_left_bytes.checked_sub(bytes) {
            Some(left) => {
                self.memory_left_bytes = left;
                Ok(())
            }
            None => {
                self.memory_left_bytes = 0;
                Err(LimitError::Memory(self.limits.memory_bytes))
            }
        }
    }

    /// Spends output for bytes about to be written to the result.
    pub fn spend_output(&mut self, bytes: u64) -> Result<(), LimitError> {
        match self.output_left_bytes.checked_sub(bytes) {
            Some(left) => {
                self.output_left_bytes = left;
                let taken = take(&self.row.output_left_bytes, bytes);
                taken.ok_or(LimitError::RowOutput(ROW_OUTPUT_MAX_BYTES))
            }
            None => {
                self.output_left_bytes = 0;
                Err(LimitError::Output(self.limits.output_bytes))
            }
        }
    }

    /// One level deeper: a block, a parenthesis, a template call, a value inside a value. On `Ok`, the caller
    /// calls [`Budget::leave`] when it is done.
    pub fn enter(&mut self) -> Result<(), LimitError> {
        if self.depth >= self.limits.depth {
            return Err(LimitError::Depth(self.limits.depth));
        }
        self.depth += 1;
        Ok(())
    }

    pub fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Budget {
        let limits = Limits {
            steps: 3,
            memory_bytes: 3,
            output_bytes: 3,
            depth: 3,
        };
        Budget::new(limits, Arc::default())
    }

    #[test]
    fn many_renderings_of_a_row_have_one_budget() {
        let row = Arc::new(RowBudget::default());
        let one = || Budget::new(Limits::default(), row.clone());
        for _ in 0..ROW_STEPS_MAX / STEPS_MAX {
            assert_eq!(one().spend_steps(STEPS_MAX), Ok(()));
        }
        assert_eq!(
            one().spend_steps(1),
            Err(LimitError::RowSteps(ROW_STEPS_MAX))
        );
        assert_eq!(one().spend_output(OUTPUT_MAX_BYTES), Ok(()));
        let more = one().spend_output(1);
        assert_eq!(more, Err(LimitError::RowOutput(ROW_OUTPUT_MAX_BYTES)));
    }

    #[test]
    fn each_limit_is_spent_to_the_last_unit_and_then_names_itself() {
        type Spend = fn(&mut Budget) -> Result<(), LimitError>;
        let cases: [(Limit, Spend); 4] = [
            (Limit::Steps, |b| b.spend_steps(1)),
            (Limit::Memory, |b| b.spend_memory(1)),
            (Limit::Output, |b| b.spend_output(1)),
            (Limit::Depth, |b| b.enter()),
        ];
        for (limit, spend) in cases {
            let mut budget = small();
            for unit in 1..=3 {
                assert_eq!(spend(&mut budget), Ok(()), "{limit:?}, unit {unit}");
            }
            assert_eq!(
                spend(&mut budget).map_err(|e| e.limit()),
                Err(limit),
                "{limit:?}"
            );
        }
    }

    #[test]
    fn a_refused_amount_leaves_nothing_to_spend() {
        let mut budget = small();
        assert!(budget.spend_steps(u64::MAX).is_err());
        assert!(budget.spend_steps(1).is_err());
    }

    #[test]
    fn leaving_gives_depth_back() {
        let mut budget = small();
        for round in 0..10 {
            assert_eq!(budget.enter(), Ok(()), "round {round}");
            budget.leave();
        }
    }
}
