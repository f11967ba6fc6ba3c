//! What a form's templates may know besides a row's variables: when the row was first seen, and the hub's secret. Draws nothing itself.

use std::sync::{Arc, LazyLock};

use go_templates::{Facts, Seed};
use jiff::Timestamp;

/// The facts of one resource of a row. `key` is the hub's secret: whoever knows it can compute every generated password.
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

/// The facts where nobody knows any.
pub fn unknown() -> Arc<Facts> {
    static UNKNOWN: LazyLock<Arc<Facts>> = LazyLock::new(|| {
        Arc::new(Facts {
            now: Err("the time at which the row was first seen is not known here"),
            seed: Err("the hub's seed for random values is not known here"),
        })
    });
    UNKNOWN.clone()
}
