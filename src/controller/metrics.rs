//! The metrics of the loops. Labels are forms, kinds and results: never nodes, rows or names of people's making.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Applied {
    kind: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Released {
    form: String,
    cause: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Synced {
    result: &'static str,
}

/// Cheap to clone; all clones count together.
#[derive(Clone, Default)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    applied: Family<Applied, Counter>,
    released: Family<Released, Counter>,
    ledger_conflicts: Counter,
    syncs: Family<Synced, Counter>,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let inner = &self.inner;
        registry.register(
            "apply_attempts",
            "Writes of child objects",
            inner.applied.clone(),
        );
        registry.register(
            "lynqgate_released",
            "Releases, through a slot or because no window applies",
            inner.released.clone(),
        );
        registry.register(
            "lynqgate_ledger_conflicts",
            "Ledger writes that lost the compare-and-swap",
            inner.ledger_conflicts.clone(),
        );
        registry.register(
            "lynqgate_hub_syncs",
            "Reads of a hub's rows",
            inner.syncs.clone(),
        );
    }

    pub fn applied(&self, kind: &str, good: bool) {
        let result = if good { "success" } else { "error" };
        self.inner
            .applied
            .get_or_create(&Applied {
                kind: kind.to_owned(),
                result,
            })
            .inc();
    }

    pub fn released(&self, form: &str, gated: bool) {
        let cause = if gated { "slot" } else { "ungated" };
        self.inner
            .released
            .get_or_create(&Released {
                form: form.to_owned(),
                cause,
            })
            .inc();
    }

    pub fn ledger_conflict(&self) {
        self.inner.ledger_conflicts.inc();
    }

    pub fn synced(&self, result: &'static str) {
        self.inner.syncs.get_or_create(&Synced { result }).inc();
    }
}
