//! Random choices from a seed: the same seed makes the same choices on every machine. Fit for tests only.

#![allow(dead_code)]

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Dice of their own for one purpose, so that one more throw here changes nothing there.
    pub fn for_purpose(seed: u64, purpose: &str) -> Dice {
        let mix = |mixed: u64, byte: u8| (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Dice(purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `end` - 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn percent(&mut self, chance: u32) -> bool {
        self.below(100) < chance as usize
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    pub fn seconds(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from * 1000 + self.next() % ((to - from) * 1000 + 1))
    }
}
