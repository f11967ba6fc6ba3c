//! What templates may use besides a row's variables: the time at which the row was first seen, and the hub's secret. Generates no
//! random values itself.

use std::sync::{Arc, LazyLock};

use go_templates::{Facts, Seed};
use jiff::Timestamp;

/// The facts for one resource of a row. `key` is the hub's secret: with it, every generated password can be computed.
pub fn of(first_seen: Timestamp, key: [u8; 32], uid: &str, resource_id: &str) -> Arc<Facts> {
    let scope = [
        &b"lynq.sh/random/1"[..],
        uid.as_bytes(),
        resource_id.as_bytes(),
    ];
    Arc::new(Facts {
        now: Ok(first_seen),
        seed: Ok(Seed::new(key, scope)),
    })
}

/// For renderings without a known row: `now` and random functions return an error.
pub fn unknown() -> Arc<Facts> {
    static UNKNOWN: LazyLock<Arc<Facts>> = LazyLock::new(|| {
        Arc::new(Facts {
            now: Err("the time at which the row was first seen is not known here"),
            seed: Err("the hub's seed for random values is not known here"),
        })
    });
    UNKNOWN.clone()
}
