//! A compiled pattern and its search, one pass over the text for any pattern. A library compiles; the search is implemented here,
//! because it charges for each step.

use regex_automata::nfa::thompson::{Compiler, Config, NFA, State, WhichCaptures};
use regex_automata::util::primitives::StateID;

use crate::budget::Budget;
use crate::functions::FunctionError;
use crate::functions::regex::syntax;

/// The largest pattern in bytes.
const PATTERN_MAX_BYTES: usize = 64 << 10;
/// The largest compiled pattern in bytes.
const PROGRAM_MAX_BYTES: usize = 1 << 20;
/// Bytes of a compiled form that count as one step.
const BYTES_PER_STEP: usize = 256;
/// How many states a search may visit for one step.
const VISITS_PER_STEP: u64 = 64;

/// The position of a group that did not match.
const NONE: usize = usize::MAX;

/// The result that a search needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Start and end of the whole match.
    Match,
    /// Also those of each group.
    Groups,
}

/// A compiled pattern.
#[derive(Debug)]
pub struct Program {
    nfa: NFA,
    /// The names of groups, by their number; empty for those without.
    names: Vec<String>,
}

impl Program {
    pub fn compile(
        pattern: &[u8],
        wanted: Wanted,
        budget: &mut Budget,
    ) -> Result<Program, FunctionError> {
        if pattern.len() > PATTERN_MAX_BYTES {
            return Err(FunctionError::new(format!(
                "the pattern has {} bytes, and may have {PATTERN_MAX_BYTES}; make it shorter",
                pattern.len()
            )));
        }
        let parsed = syntax::parse(pattern, budget)?;
        let captures = match wanted {
            Wanted::Match => WhichCaptures::Implicit,
            Wanted::Groups => WhichCaptures::All,
        };
        let config = Config::new()
            .nfa_size_limit(Some(PROGRAM_MAX_BYTES))
            .which_captures(captures);
        let compiled = Compiler::new()
            .configure(config)
            .build_from_hir(&parsed.hir);
        let nfa = compiled.map_err(|error| match error.size_limit() {
            Some(limit) => FunctionError::new(format!(
                "the pattern's compiled form takes more than {limit} bytes; repeat less, or smaller classes"
            )),
            None => FunctionError::new(error.to_string()),
        })?;
        let bytes = nfa.memory_usage();
        budget.spend_steps((bytes / BYTES_PER_STEP) as u64)?;
        budget.spend_memory(bytes as u64)?;
        Ok(Program {
            nfa,
            names: parsed.names,
        })
    }

    /// The first match from `start` on, as Go gives it: the leftmost, and of those the one that the pattern prefers.
    /// Begin and end of the match, and of each group if they are wanted; `None` for a group that took no part.
    pub fn find(
        &self,
        text: &str,
        start: usize,
        search: &mut Search,
        budget: &mut Budget,
    ) -> Result<Option<Vec<Option<usize>>>, FunctionError> {
        search.visits = 0;
        search.now.clear();
        let mut slots = vec![NONE; self.slots()];
        let mut found = None;
        let mut at = start;
        loop {
            if found.is_none() && text.is_char_boundary(at) {
                slots.fill(NONE);
                let first = self.nfa.start_anchored();
                self.follow(first, at, text, &mut slots, search, Round::Now);
            }
            if search.now.states.is_empty() && (found.is_some() || at >= text.len()) {
                break;
            }
            let byte = text.as_bytes().get(at).copied();
            if let Some(ends) = self.step(text, at, byte, &mut slots, search) {
                found = Some(ends);
            }
            std::mem::swap(&mut search.now, &mut search.next);
            search.next.clear();
            // Scanning a byte also counts as a visit.
            search.visits += 1;
            if search.visits >= VISITS_PER_STEP {
                budget.spend_steps(search.visits / VISITS_PER_STEP)?;
                search.visits %= VISITS_PER_STEP;
            }
            if byte.is_none() {
                break;
            }
            at += 1;
        }
        budget.spend_steps(1)?;
        Ok(found)
    }

    /// Moves every thread over one byte, in the order of preference, up to one that has matched: behind it none is of
    /// use. Gives the ends that it found.
    fn step(
        &self,
        text: &str,
        at: usize,
        byte: Option<u8>,
        slots: &mut [usize],
        search: &mut Search,
    ) -> Option<Vec<Option<usize>>> {
        for index in 0..search.now.states.len() {
            let id = search.now.states[index];
            search.visits += 1 + slots.len() as u64 / 8;
            let next = match (self.nfa.state(id), byte) {
                (State::Match { .. }, _) => {
                    let ends = search.now.slots_of(id, slots.len()).iter();
                    return Some(ends.map(|at| Some(*at).filter(|at| *at != NONE)).collect());
                }
                (State::ByteRange { trans }, Some(byte)) => {
                    trans.matches_byte(byte).then_some(trans.next)
                }
                (State::Sparse(ranges), Some(byte)) => ranges.matches_byte(byte),
                (State::Dense(table), Some(byte)) => table.matches_byte(byte),
                _ => None,
            };
            if let Some(next) = next {
                slots.copy_from_slice(search.now.slots_of(id, slots.len()));
                self.follow(next, at + 1, text, slots, search, Round::Next);
            }
        }
        None
    }

    fn slots(&self) -> usize {
        self.nfa.group_info().slot_len()
    }

    /// Adds the states that are reached from `id` without a byte, those that the pattern prefers first.
    fn follow(
        &self,
        id: StateID,
        at: usize,
        text: &str,
        slots: &mut [usize],
        search: &mut Search,
        round: Round,
    ) {
        let Search {
            now,
            next,
            stack,
            visits,
            ..
        } = search;
        let threads = match round {
            Round::Now => now,
            Round::Next => next,
        };
        stack.push(Todo::Visit(id));
        while let Some(todo) = stack.pop() {
            *visits += 1;
            let id = match todo {
                Todo::Visit(id) => id,
                Todo::Restore(slot, old) => {
                    slots[slot] = old;
                    continue;
                }
            };
            if !threads.insert(id) {
                continue;
            }
            match self.nfa.state(id) {
                State::Look { look, next } => {
                    let matcher = self.nfa.look_matcher();
                    if matcher.matches(*look, text.as_bytes(), at) {
                        stack.push(Todo::Visit(*next));
                    }
                }
                State::Union { alternates } => {
                    stack.extend(alternates.iter().rev().map(|id| Todo::Visit(*id)));
                }
                State::BinaryUnion { alt1, alt2 } => {
                    stack.push(Todo::Visit(*alt2));
                    stack.push(Todo::Visit(*alt1));
                }
                State::Capture { next, slot, .. } => {
                    let slot = slot.as_usize();
                    if let Some(old) = slots.get(slot).copied() {
                        stack.push(Todo::Restore(slot, old));
                        slots[slot] = at;
                    }
                    stack.push(Todo::Visit(*next));
                }
                State::Fail => {}
                State::ByteRange { .. }
                | State::Sparse(_)
                | State::Dense(_)
                | State::Match { .. } => threads.run(id, slots),
            }
        }
    }

    /// The numbers of the groups with that name.
    pub fn groups_named<'p>(&'p self, name: &'p [u8]) -> impl Iterator<Item = usize> + 'p {
        let named = self.names.iter().enumerate();
        named
            .filter(move |(_, other)| !name.is_empty() && other.as_bytes() == name)
            .map(|(number, _)| number)
    }
}

/// Whether to add threads for the current or for the next byte.
#[derive(Clone, Copy)]
enum Round {
    Now,
    Next,
}

enum Todo {
    Visit(StateID),
    /// Resets a group's position, after the states for which it was set.
    Restore(usize, usize),
}

/// The memory of searches with one program, taken once.
pub struct Search {
    now: Threads,
    next: Threads,
    stack: Vec<Todo>,
    /// Visited states that are not charged yet.
    visits: u64,
}

impl Search {
    pub fn new(program: &Program, budget: &mut Budget) -> Result<Search, FunctionError> {
        let states = program.nfa.states().len();
        let slots = program.slots();
        let words = states
            .saturating_mul(slots.saturating_add(4))
            .saturating_mul(2);
        budget.spend_memory(words.saturating_mul(size_of::<usize>()) as u64)?;
        budget.spend_steps(words as u64 / VISITS_PER_STEP)?;
        Ok(Search {
            now: Threads::new(states, slots),
            next: Threads::new(states, slots),
            stack: Vec::new(),
            visits: 0,
        })
    }
}

/// Threads of a search: each state at most once.
struct Threads {
    /// Those that wait for a byte, in the order of preference.
    states: Vec<StateID>,
    /// The round in which each state was last reached.
    reached: Vec<u64>,
    round: u64,
    /// A row for each state.
    slots: Vec<usize>,
}

impl Threads {
    fn new(states: usize, slots: usize) -> Threads {
        Threads {
            states: Vec::new(),
            reached: vec![0; states],
            round: 1,
            slots: vec![NONE; states * slots],
        }
    }

    fn clear(&mut self) {
        self.states.clear();
        self.round += 1;
    }

    /// Whether the state is new to this round.
    fn insert(&mut self, id: StateID) -> bool {
        let reached = &mut self.reached[id.as_usize()];
        let is_new = *reached != self.round;
        *reached = self.round;
        is_new
    }

    fn run(&mut self, id: StateID, slots: &[usize]) {
        let row = id.as_usize() * slots.len();
        self.slots[row..row + slots.len()].copy_from_slice(slots);
        self.states.push(id);
    }

    fn slots_of(&self, id: StateID, count: usize) -> &[usize] {
        let row = id.as_usize() * count;
        &self.slots[row..row + count]
    }
}
