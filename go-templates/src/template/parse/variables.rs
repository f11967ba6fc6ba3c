//! The variables that the parser has met so far: a name must be declared above its use, in a dead branch too.

use std::collections::BTreeMap;

/// Names with their dollar sign. `$` itself always exists.
#[derive(Default)]
pub struct Variables<'t> {
    declared: Vec<&'t str>,
    /// How often each name is declared, so that a look-up does not grow with the template.
    counts: BTreeMap<&'t str, usize>,
}

impl<'t> Variables<'t> {
    pub fn declare(&mut self, name: &'t str) {
        self.declared.push(name);
        *self.counts.entry(name).or_default() += 1;
    }

    pub fn contains(&self, name: &str) -> bool {
        name == "$" || self.counts.contains_key(name)
    }

    pub fn mark(&self) -> usize {
        self.declared.len()
    }

    /// Forgets what was declared since `mark` was taken.
    pub fn forget_since(&mut self, mark: usize) {
        for name in self.declared.drain(mark..) {
            if let Some(count) = self.counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(name);
                }
            }
        }
    }
}
