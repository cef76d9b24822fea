//! Hashes of bodies under load: a server may answer its probe correctly but other requests wrongly.
//! Only the bodies of a random few replies are hashed.

use std::collections::BTreeMap;

/// Counts of replies with the expected status, by the SHA-256 of their bodies.
#[derive(Debug, Default)]
pub struct Bodies {
    seen: BTreeMap<[u8; 32], u64>,
}

/// Most different hashes kept: a few are enough to show that bodies vary.
const KINDS_MAX: usize = 8;

impl Bodies {
    pub fn add(&mut self, hash: [u8; 32]) {
        if self.seen.len() < KINDS_MAX || self.seen.contains_key(&hash) {
            *self.seen.entry(hash).or_default() += 1;
        }
    }

    /// Returns the hashes since the last call, in hexadecimal, and their counts.
    pub fn take(&mut self) -> Vec<(String, u64)> {
        let hex = |hash: [u8; 32]| hash.iter().map(|byte| format!("{byte:02x}")).collect();
        std::mem::take(&mut self.seen).into_iter().map(|(hash, n)| (hex(hash), n)).collect()
    }
}
