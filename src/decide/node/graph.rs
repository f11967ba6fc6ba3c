//! The dependency graph of one node's resources (`dependIds`): is it sound, what may be applied now, and in
//! which order is it taken down. It must not know what a resource is, nor remember anything between calls.
//!
//! Everything here is a loop over an array: a chain of ten thousand resources costs no stack.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// A resource as a vertex of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vertex<'a> {
    pub id: &'a str,
    pub depend_ids: &'a [String],
    /// The id of the resource that creates its namespace; empty if no other resource is known to.
    pub namespace_from: &'a str,
    pub skip_on_dependency_failure: bool,
    pub wait_for_ready: bool,
}

/// The state of a resource's *live* content. Readiness with earlier content does not count: the resource is `NotApplied` until
/// its current content is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    NotApplied,
    /// The apply failed: the resource does not render, is rejected, or has a conflict.
    ApplyFailed,
    /// Applied, and not ready yet.
    Waiting,
    Ready,
    /// Applied, and failed or not ready within its timeout.
    Failed,
}

/// What the dependencies allow for a resource now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// It may be applied, or be applied again.
    Apply,
    /// The same, although this dependency has failed: `skipOnDependencyFailure` is false.
    Proceed { despite: &'a str },
    /// Wait, without a report, until this dependency is ready.
    Blocked { on: &'a str },
    /// Nothing is done, because this dependency has failed or is skipped itself.
    Skip { because: &'a str },
}

/// The texts are Lynq's; form admission puts `dependency validation failed: ` before the last two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    #[error("duplicate resource IDs found: [{}]", ids.join(" "))]
    DuplicateIds { ids: Vec<String> },
    #[error("resource must have a non-empty ID")]
    EmptyId,
    #[error("resource '{id}' depends on non-existent resource '{dependency}'")]
    MissingDependency { id: String, dependency: String },
    /// Each depends on the next, and the last on the first.
    #[error("circular dependency detected: {}", shown(ids))]
    Cycle { ids: Vec<String> },
}

#[derive(Debug)]
pub struct Graph<'a> {
    vertices: &'a [Vertex<'a>],
    /// The dependencies of each vertex, in the order of its `depend_ids`.
    dependencies: Vec<Vec<usize>>,
    /// Every vertex after all its dependencies.
    order: Vec<usize>,
}

impl<'a> Graph<'a> {
    pub fn new(vertices: &'a [Vertex<'a>]) -> Result<Self, GraphError> {
        let index = index(vertices)?;
        let dependencies = vertices
            .iter()
            .map(|vertex| dependencies(vertex, &index))
            .collect::<Result<Vec<_>, _>>()?;
        let order = order(&dependencies);
        if order.len() < vertices.len() {
            let ids = cycle(&dependencies, &order);
            return Err(GraphError::Cycle {
                ids: ids.into_iter().map(|v| vertices[v].id.to_owned()).collect(),
            });
        }
        Ok(Self {
            vertices,
            dependencies,
            order,
        })
    }

    /// The step of each resource now, in the order of the vertices. `states` has the same order; a missing state is `NotApplied`.
    ///
    /// Skips are not stored: they follow from the current failures, through any number of resources, and end with them.
    pub fn steps(&self, states: &[State]) -> Vec<Step<'a>> {
        let mut steps = vec![Step::Apply; self.vertices.len()];
        for &v in &self.order {
            steps[v] = self.step(v, &steps, states);
        }
        steps
    }

    /// One failed dependency decides, also while others are not ready yet (as in Lynq).
    fn step(&self, v: usize, steps: &[Step<'a>], states: &[State]) -> Step<'a> {
        let find = |outcome: DependencyState| {
            let found = self.dependencies[v]
                .iter()
                .find(|d| self.outcome(**d, steps, states) == outcome);
            found.map(|d| self.vertices[*d].id)
        };
        let vertex = &self.vertices[v];
        let home = vertex.namespace_from;
        match (find(DependencyState::Failed), self.home(v, steps, states)) {
            (Some(because), _) if vertex.skip_on_dependency_failure => Step::Skip { because },
            (_, Some(DependencyState::Failed)) => Step::Skip { because: home },
            (_, Some(DependencyState::Open)) => Step::Blocked { on: home },
            (Some(despite), _) => Step::Proceed { despite },
            (None, _) => find(DependencyState::Open).map_or(Step::Apply, |on| Step::Blocked { on }),
        }
    }

    /// The state of the resource that creates its namespace. Until that succeeds the namespace may belong to others, so nothing
    /// may be applied in it, whatever `skipOnDependencyFailure` says.
    fn home(&self, v: usize, steps: &[Step<'a>], states: &[State]) -> Option<DependencyState> {
        let home = self.vertices[v].namespace_from;
        let mut dependencies = self.dependencies[v].iter();
        let home = dependencies.find(|d| self.vertices[**d].id == home)?;
        Some(self.outcome(*home, steps, states))
    }

    /// The state of a resource for its dependents, once its own step is known.
    fn outcome(&self, v: usize, steps: &[Step<'a>], states: &[State]) -> DependencyState {
        match steps[v] {
            Step::Skip { .. } => return DependencyState::Failed,
            Step::Blocked { .. } => return DependencyState::Open,
            Step::Apply | Step::Proceed { .. } => {}
        }
        match states.get(v).copied().unwrap_or(State::NotApplied) {
            State::NotApplied => DependencyState::Open,
            State::ApplyFailed => DependencyState::Failed,
            State::Ready => DependencyState::Satisfied,
            // For its dependents it is enough that the resource is applied.
            State::Waiting | State::Failed if !self.vertices[v].wait_for_ready => {
                DependencyState::Satisfied
            }
            State::Waiting => DependencyState::Open,
            State::Failed => DependencyState::Failed,
        }
    }

    /// The order of deletion: all of one level may be deleted at the same time, and must be gone before the next level. It
    /// reverses the order of applying.
    pub fn deletion_order(&self) -> Vec<Vec<&'a str>> {
        let mut level_of = vec![0; self.vertices.len()];
        for &v in &self.order {
            level_of[v] = self.dependencies[v]
                .iter()
                .map(|d| level_of[*d] + 1)
                .max()
                .unwrap_or(0);
        }
        let mut levels = vec![vec![]; level_of.iter().max().map_or(0, |deepest| deepest + 1)];
        for (vertex, level) in self.vertices.iter().zip(level_of) {
            levels[level].push(vertex.id);
        }
        levels.reverse();
        levels
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DependencyState {
    Satisfied,
    Open,
    Failed,
}

fn index<'a>(vertices: &'a [Vertex<'a>]) -> Result<BTreeMap<&'a str, usize>, GraphError> {
    let mut index = BTreeMap::new();
    let mut duplicates = BTreeSet::new();
    for (v, vertex) in vertices.iter().enumerate() {
        if index.insert(vertex.id, v).is_some() && !vertex.id.is_empty() {
            duplicates.insert(vertex.id.to_owned());
        }
    }
    if !duplicates.is_empty() {
        return Err(GraphError::DuplicateIds {
            ids: duplicates.into_iter().collect(),
        });
    }
    if index.contains_key("") {
        return Err(GraphError::EmptyId);
    }
    Ok(index)
}

fn dependencies(
    vertex: &Vertex<'_>,
    index: &BTreeMap<&str, usize>,
) -> Result<Vec<usize>, GraphError> {
    let find = |dependency: &str| {
        let found = index.get(dependency).copied();
        found.ok_or_else(|| GraphError::MissingDependency {
            id: vertex.id.to_owned(),
            dependency: dependency.to_owned(),
        })
    };
    let home = Some(vertex.namespace_from).filter(|home| !home.is_empty());
    let all = vertex.depend_ids.iter().map(String::as_str).chain(home);
    all.map(find).collect()
}

/// Every vertex after its dependencies, without those on a cycle or dependent on one.
fn order(dependencies: &[Vec<usize>]) -> Vec<usize> {
    let mut dependents = vec![vec![]; dependencies.len()];
    let mut open: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    for (v, on) in dependencies.iter().enumerate() {
        for &d in on {
            dependents[d].push(v);
        }
    }
    let mut order: Vec<usize> = (0..dependencies.len()).filter(|v| open[*v] == 0).collect();
    let mut next = 0;
    while let Some(&done) = order.get(next) {
        next += 1;
        for &v in &dependents[done] {
            open[v] -= 1;
            if open[v] == 0 {
                order.push(v);
            }
        }
    }
    order
}

/// One cycle among the vertices that `order` left out, beginning with its first in the order of the form.
fn cycle(dependencies: &[Vec<usize>], order: &[usize]) -> Vec<usize> {
    let ordered: BTreeSet<usize> = order.iter().copied().collect();
    let left_out = |v: &usize| !ordered.contains(v);
    // Each of these depends on another one of them, so the walk must return to a visited vertex.
    let mut walked: Vec<usize> = vec![];
    let mut place_of = BTreeMap::new();
    let mut at = (0..dependencies.len()).find(left_out);
    while let Some(v) = at {
        if let Some(place) = place_of.insert(v, walked.len()) {
            walked.drain(..place);
            break;
        }
        walked.push(v);
        at = dependencies[v].iter().copied().find(left_out);
    }
    let first = walked
        .iter()
        .enumerate()
        .min_by_key(|(_, v)| **v)
        .map_or(0, |(place, _)| place);
    walked.rotate_left(first);
    walked
}

/// `a -> b -> a`. A cycle of thousands is cut: a message has to be read, and fit into an event.
fn shown(ids: &[String]) -> String {
    const SHOWN_MAX: usize = 10;
    let mut parts: Vec<&str> = ids.iter().take(SHOWN_MAX).map(String::as_str).collect();
    let more = format!("({} more)", ids.len().saturating_sub(SHOWN_MAX));
    if ids.len() > SHOWN_MAX {
        parts.push(&more);
    }
    parts.extend(ids.first().map(String::as_str));
    parts.join(" -> ")
}

#[cfg(test)]
mod tests;
