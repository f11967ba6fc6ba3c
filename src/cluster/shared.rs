//! Values that many objects have in common, once each.

use std::collections::BTreeSet;
use std::sync::Arc;

pub struct Shared<T: ?Sized> {
    all: BTreeSet<Arc<T>>,
    /// The number of values in use at the last count.
    used: usize,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Shared {
            all: BTreeSet::new(),
            used: 0,
        }
    }
}

impl<T: ?Sized + Ord> Shared<T> {
    /// Replaces `value` by the known equal one, if there is one.
    pub fn share(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.all.get(&**value) {
            *value = known.clone();
            return;
        }
        if self.all.len() > 2 * self.used + 64 {
            self.all.retain(|value| Arc::strong_count(value) > 1);
            self.used = self.all.len();
        }
        self.all.insert(value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_objects_have_is_kept_once_and_for_as_long_as_one_has_it() {
        let mut shared: Shared<str> = Shared::default();
        let mut one = |text: &str| {
            let mut text = Arc::from(text);
            shared.share(&mut text);
            text
        };
        let first = one("a");
        assert!(Arc::ptr_eq(&first, &one("a")));
        for i in 0..1000 {
            one(&i.to_string());
        }
        assert!(Arc::ptr_eq(&first, &one("a")));
        assert!(shared.all.len() < 100, "{}", shared.all.len());
    }
}
