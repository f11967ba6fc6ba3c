//! Runs the same pure work for many items on several threads. The result is that of one thread, and the threads end with the call.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Items that a thread takes at a time. Rendering so many rows takes much longer than starting a thread.
const PIECE: usize = 16;

/// A sync must not take all cores of a large Kubernetes node.
const THREADS_MAX: usize = 4;

/// The cores that the process may use, by its affinity and its CPU limit. Read once, because the limit is in several files.
static CORES: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));

/// Returns the result of `work` for each item, in the order of the items. Panics if `work` panics.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let pieces = items.len().div_ceil(PIECE);
    // Each thread gets two pieces or more.
    let threads = (*CORES).min(THREADS_MAX).min(pieces / 2);
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let share = || {
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        let numbers = numbers.take_while(|number| *number < pieces);
        let done = numbers.map(|number| {
            let piece = items[number * PIECE..].iter().take(PIECE);
            (number, piece.map(&work).collect())
        });
        done.collect::<Vec<(usize, Vec<R>)>>()
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(share)).collect();
        let mut done = share();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().flat_map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn what_comes_out_is_in_the_order_of_the_items() {
        for length in [0, 1, PIECE, 10 * PIECE + 1] {
            let items = Vec::from_iter(0..length);
            let twice: Vec<usize> = items.iter().map(|item| 2 * item).collect();
            assert_eq!(map(&items, |item| 2 * item), twice);
        }
    }

    #[test]
    fn a_panic_goes_on_in_the_caller() {
        let items = Vec::from_iter(0..10 * PIECE);
        let panics = || map(&items, |item| assert_ne!(*item, 9 * PIECE));
        assert!(catch_unwind(panics).is_err());
    }
}
