//! For the tests that search for a panic: one that is planted where few inputs lead must come up.

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The number of cases in each of those tests.
pub const CASES: u32 = 8192;

/// Whether a search through these values, always the same, comes upon one for which `planted` is true; it panics there.
pub fn is_found<T: Debug>(values: &impl Strategy<Value = T>, planted: impl Fn(&T) -> bool) -> bool {
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let searched = runner.run(values, |value| {
        assert!(!planted(&value), "planted");
        Ok(())
    });
    searched.is_err()
}
