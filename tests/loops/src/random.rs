//! The one source of chance: SplitMix64, so that a seed replays the same run whatever crates are built. Nothing here
//! may read a clock or the system's randomness.

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Another stream of the same seed: what one part draws does not shift what another draws.
    pub fn stream(seed: u64, number: u64) -> Self {
        let mut mixed = Random::new(
            seed.wrapping_mul(0x2545_f491_4f6c_dd1d)
                .wrapping_add(number),
        );
        mixed.draw();
        mixed
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `n` - 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n.max(1) as u64) as usize
    }

    pub fn permille(&mut self, chance: u32) -> bool {
        self.below(1000) < chance as usize
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
