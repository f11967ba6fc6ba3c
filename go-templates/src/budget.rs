//! The limits of one rendering: steps, memory, output and depth; and limits that several renderings share. Never reads a clock,
//! so that a template renders on every machine or on none.

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

/// Which limit ended the rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Actions, loop iterations, function calls.
    Steps,
    /// Bytes of values.
    Memory,
    /// Bytes written.
    Output,
    /// Levels of nesting.
    Depth,
}

/// A rendering wanted more than its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LimitError {
    /// More than so many steps.
    #[error("the template takes more than {0} steps; shorten its loops")]
    Steps(u64),
    /// More than so many bytes of values.
    #[error("the template's values take more than {0} bytes; build smaller strings and lists")]
    Memory(u64),
    /// More than so many bytes of output.
    #[error("the template writes more than {0} bytes; make its result smaller")]
    Output(u64),
    /// More than so many steps of a shared budget.
    #[error("{} take more than {steps} steps {}; shorten their loops", .sharers.templates, .sharers.occasion)]
    SharedSteps {
        /// How many they may take.
        steps: u64,
        /// The templates that share it, for the message.
        sharers: Sharers,
    },
    /// More than so many bytes of output of a shared budget.
    #[error("{} write more than {bytes} bytes {}; make their results smaller", .sharers.templates, .sharers.occasion)]
    SharedOutput {
        /// How many they may write.
        bytes: u64,
        /// The templates that share it, for the message.
        sharers: Sharers,
    },
    /// More than so many levels.
    #[error(
        "the template nests blocks, parentheses, values or template calls more than {0} deep; make it flatter"
    )]
    Depth(u32),
}

impl LimitError {
    /// Which limit it is.
    pub fn limit(&self) -> Limit {
        match self {
            LimitError::Steps(_) | LimitError::SharedSteps { .. } => Limit::Steps,
            LimitError::Memory(_) => Limit::Memory,
            LimitError::Output(_) | LimitError::SharedOutput { .. } => Limit::Output,
            LimitError::Depth(_) => Limit::Depth,
        }
    }
}

/// The four limits of one rendering. The default is 200,000 steps, 8 MiB of values, 1 MiB of output and 100 levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Actions, loop iterations and function calls; functions add to it for long inputs.
    pub steps: u64,
    /// Bytes that all values made during the rendering may take together, freed ones included.
    pub memory_bytes: u64,
    /// Bytes that the rendering may write.
    pub output_bytes: u64,
    /// Blocks, parentheses, template calls and levels of a value inside each other. What a template's text nests deeper
    /// than 100 levels does not parse, whatever this says.
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

/// A budget that renderings share, on any thread.
#[derive(Debug)]
pub struct SharedBudget {
    limits: SharedLimits,
    steps_left: Mutex<u64>,
    output_left_bytes: Mutex<u64>,
}

/// The limits of renderings that share a budget, and how messages speak of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedLimits {
    /// Steps of all of them.
    pub steps: u64,
    /// Bytes that all of them may write.
    pub output_bytes: u64,
    /// The templates that share it, for the message.
    pub sharers: Sharers,
}

/// How a message speaks of the templates that share a budget: `{templates} take more than 1000 steps {occasion}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharers {
    /// Such as `the page's templates`.
    pub templates: &'static str,
    /// Such as `for one user`.
    pub occasion: &'static str,
}

impl SharedBudget {
    /// An unspent budget.
    pub fn new(limits: SharedLimits) -> SharedBudget {
        SharedBudget {
            limits,
            steps_left: limits.steps.into(),
            output_left_bytes: limits.output_bytes.into(),
        }
    }
}

/// Takes `count`; if less is left, takes all of it and returns None.
fn take(left: &Mutex<u64>, count: u64) -> Option<()> {
    let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
    let is_enough = *left >= count;
    *left = left.saturating_sub(count);
    is_enough.then_some(())
}

/// The rest of the limits during a rendering.
#[derive(Debug, Clone)]
pub struct Budget {
    limits: Limits,
    shared: Option<Arc<SharedBudget>>,
    steps_left: u64,
    memory_left_bytes: u64,
    output_left_bytes: u64,
    depth: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(Limits::default())
    }
}

impl Budget {
    /// An unspent budget.
    pub fn new(limits: Limits) -> Self {
        Budget {
            limits,
            shared: None,
            steps_left: limits.steps,
            memory_left_bytes: limits.memory_bytes,
            output_left_bytes: limits.output_bytes,
            depth: 0,
        }
    }

    /// The same budget, which also takes its steps and output from a shared one.
    pub fn within(mut self, shared: Arc<SharedBudget>) -> Self {
        self.shared = Some(shared);
        self
    }

    /// The limits with which it began.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Spends `count` steps. A function whose work grows with its arguments spends one step for every 256
    /// bytes or 64 items that it looks at, before it does so.
    pub fn spend_steps(&mut self, count: u64) -> Result<(), LimitError> {
        match self.steps_left.checked_sub(count) {
            Some(left) => {
                self.steps_left = left;
                let Some(shared) = &self.shared else {
                    return Ok(());
                };
                let SharedLimits { steps, sharers, .. } = shared.limits;
                let taken = take(&shared.steps_left, count);
                taken.ok_or(LimitError::SharedSteps { steps, sharers })
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
                let Some(shared) = &self.shared else {
                    return Ok(());
                };
                let taken = take(&shared.output_left_bytes, bytes);
                taken.ok_or(LimitError::SharedOutput {
                    bytes: shared.limits.output_bytes,
                    sharers: shared.limits.sharers,
                })
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

    /// Leaves a level.
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
        Budget::new(limits)
    }

    #[test]
    fn many_renderings_can_have_one_budget() {
        let sharers = Sharers {
            templates: "the page's templates",
            occasion: "for one user",
        };
        let shared = Arc::new(SharedBudget::new(SharedLimits {
            steps: 2 * STEPS_MAX,
            output_bytes: OUTPUT_MAX_BYTES,
            sharers,
        }));
        let one = || Budget::default().within(shared.clone());
        assert_eq!(one().spend_steps(STEPS_MAX), Ok(()));
        assert_eq!(one().spend_steps(STEPS_MAX), Ok(()));
        let more = one().spend_steps(1).unwrap_err();
        assert_eq!(
            more,
            LimitError::SharedSteps {
                steps: 2 * STEPS_MAX,
                sharers
            }
        );
        assert_eq!(
            more.to_string(),
            "the page's templates take more than 400000 steps for one user; shorten their loops"
        );
        assert_eq!(one().spend_output(OUTPUT_MAX_BYTES), Ok(()));
        let more = one().spend_output(1).unwrap_err();
        assert_eq!(
            more,
            LimitError::SharedOutput {
                bytes: OUTPUT_MAX_BYTES,
                sharers
            }
        );
        assert_eq!(
            more.to_string(),
            "the page's templates write more than 1048576 bytes for one user; make their results smaller"
        );
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
