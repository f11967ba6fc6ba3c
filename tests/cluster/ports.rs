//! Ports of 127.0.0.1 for the servers of the tests. Binds nothing for longer than a look.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// The ports that this process gave out: two servers may ask before the first one listens.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

const LOWEST: u16 = 12_000;

/// A port on which nothing listens, below those that the kernel gives to outgoing connections.
///
/// A port out of the kernel's own range could not be bound again by a server that is restarted: while it is down, any
/// outgoing connection may be given the port, even one *to* it, which then talks to itself.
/// Another process can still take the port first; whoever starts a server must be ready to try another one.
pub fn free_port() -> Result<u16> {
    let ephemeral =
        fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ephemeral_low = ephemeral
        .split_whitespace()
        .next()
        .and_then(|low| low.parse().ok());
    let highest: u16 = ephemeral_low
        .filter(|low| *low > LOWEST + 1000)
        .unwrap_or(32_768);
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..1000 {
        let random = RandomState::new().hash_one(taken.len());
        let port = LOWEST + (random % u64::from(highest - LOWEST)) as u16;
        if !taken.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            taken.insert(port);
            return Ok(port);
        }
    }
    bail!("no free port of 127.0.0.1 found between {LOWEST} and {highest}")
}
