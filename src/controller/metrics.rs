//! The metrics of the loops. Labels are forms with their namespaces, kinds and results: never nodes or rows.

pub mod lynq;
pub mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::api::conditions::ConditionReason;
use crate::api::form::Phase;
use crate::api::resource::ConflictPolicy;
use crate::cluster::clock;
use crate::cluster::nodes::HubKey;
use crate::cluster::vital::Mutex;
use crate::decide::rollout::Way;
use crate::decide::rollout::status::FormState;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Applied {
    kind: String,
    result: &'static str,
    conflict_policy: &'static str,
}

/// A turn of one of the loops, under the names of Lynq's.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reconciled {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfLoop {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Waiting {
    namespace: String,
    form: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct OfForm {
    namespace: String,
    form: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfHub {
    namespace: String,
    hub: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HeldOfHub {
    namespace: String,
    hub: String,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Skipped {
    namespace: String,
    hub: String,
    cause: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Released {
    namespace: String,
    form: String,
    cause: &'static str,
}

impl OfForm {
    fn new(hub: &HubKey, form: &str) -> Self {
        OfForm {
            namespace: hub.0.clone(),
            form: form.to_owned(),
        }
    }
}

impl OfHub {
    fn new(hub: &HubKey) -> Self {
        OfHub {
            namespace: hub.0.clone(),
            hub: hub.1.clone(),
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Synced {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Looked {
    result: &'static str,
}

/// Cheap to clone; all clones count together.
#[derive(Clone, Default)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    applied: Family<Applied, Counter>,
    released: Family<Released, Counter>,
    held_seconds: Family<OfForm, Histogram, fn() -> Histogram>,
    settle_seconds: Family<OfForm, Histogram, fn() -> Histogram>,
    held: Family<OfForm, Gauge>,
    in_flight: Family<OfForm, Gauge>,
    non_ready: Family<OfForm, Gauge>,
    forced: Family<OfForm, Gauge>,
    window: Family<OfForm, Gauge>,
    hub_window: Family<OfHub, Gauge>,
    halted: Family<OfForm, Gauge>,
    last_sync: Family<OfHub, Gauge>,
    held_of_hub: Family<HeldOfHub, Gauge>,
    skipped: Family<Skipped, Gauge>,
    certificate: Gauge,
    /// The causes that `skipped` has of each hub.
    causes: Mutex<BTreeMap<HubKey, BTreeSet<&'static str>>>,
    waiting: Family<Waiting, Gauge>,
    /// The reasons that `waiting` has of each form.
    reasons: Mutex<BTreeMap<OfForm, BTreeSet<&'static str>>>,
    halts: Family<OfForm, Counter>,
    ledger_conflicts: Counter,
    bypasses: Counter,
    syncs: Family<Synced, Counter>,
    looks: Family<Looked, Histogram, fn() -> Histogram>,
    reconciled: Family<Reconciled, Counter>,
    panics: Family<OfLoop, Counter>,
}

impl Default for Inner {
    fn default() -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.5, 2.0, 16));
        Inner {
            applied: Family::default(),
            released: Family::default(),
            held_seconds: Family::new_with_constructor(seconds),
            settle_seconds: Family::new_with_constructor(seconds),
            held: Family::default(),
            in_flight: Family::default(),
            non_ready: Family::default(),
            forced: Family::default(),
            window: Family::default(),
            hub_window: Family::default(),
            halted: Family::default(),
            last_sync: Family::default(),
            held_of_hub: Family::default(),
            skipped: Family::default(),
            certificate: Gauge::default(),
            causes: Mutex::default(),
            waiting: Family::default(),
            reasons: Mutex::default(),
            halts: Family::default(),
            ledger_conflicts: Counter::default(),
            bypasses: Counter::default(),
            syncs: Family::default(),
            looks: Family::new_with_constructor(|| {
                Histogram::new([0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0])
            }),
            reconciled: Family::default(),
            panics: Family::default(),
        }
    }
}

/// Nodes of a hub whose deletion or creation waits for a confirmation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    pub deletions: i64,
    pub creations: i64,
}

impl Held {
    fn by_direction(self) -> [(&'static str, i64); 2] {
        [("deletions", self.deletions), ("creations", self.creations)]
    }
}

fn of_direction(hub: &HubKey, direction: &'static str) -> HeldOfHub {
    HeldOfHub {
        namespace: hub.0.clone(),
        hub: hub.1.clone(),
        direction,
    }
}

fn of_cause(hub: &HubKey, cause: &'static str) -> Skipped {
    Skipped {
        namespace: hub.0.clone(),
        hub: hub.1.clone(),
        cause,
    }
}

impl Inner {
    /// What waits for no reason any more has no series.
    fn set_waiting(&self, form: &OfForm, waiting: &BTreeMap<&'static str, i64>) {
        let of = |reason| Waiting {
            namespace: form.namespace.clone(),
            form: form.form.clone(),
            reason,
        };
        let mut reasons = self.reasons.lock();
        for reason in reasons.remove(form).unwrap_or_default() {
            if !waiting.contains_key(reason) {
                self.waiting.remove(&of(reason));
            }
        }
        for (reason, nodes) in waiting {
            self.waiting.get_or_create(&of(reason)).set(*nodes);
        }
        if !waiting.is_empty() {
            let shown = waiting.keys().copied().collect();
            reasons.insert(form.clone(), shown);
        }
    }
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
            "Releases, by what let them go: a slot, no window, force on the node, form or hub, or that it changes nothing of what Lynq left",
            inner.released.clone(),
        );
        for (name, help, gauge) in [
            ("held", "Nodes whose newest content waits", &inner.held),
            ("in_flight", "Slots of the ledger", &inner.in_flight),
            (
                "non_ready",
                "Nodes whose live content is not ready",
                &inner.non_ready,
            ),
            (
                "forced",
                "Nodes whose changes go live at once, by force on them, on their form or on its hub",
                &inner.forced,
            ),
            (
                "window",
                "Nodes of the form that may be non-ready at a time; 0: no window of its own, or it is forced",
                &inner.window,
            ),
        ] {
            registry.register(
                format!("lynqgate_rollout_{name}_nodes"),
                help,
                gauge.clone(),
            );
        }
        registry.register(
            "lynqgate_hub_window_nodes",
            "Nodes of all forms of the hub that may be non-ready at a time; 0: no such window, or it is forced",
            inner.hub_window.clone(),
        );
        registry.register(
            "lynqgate_rollout_halted",
            "1 if the rollout is failed or stalled, so that only a correction continues it",
            inner.halted.clone(),
        );
        registry.register_with_unit(
            "lynqgate_hub_last_sync_timestamp",
            "Time of the hub's last complete sync; before the first one of this leader, since when its status says that the rows cannot be read",
            Unit::Seconds,
            inner.last_sync.clone(),
        );
        registry.register(
            "lynqgate_hub_held_nodes",
            "Nodes whose deletion or creation waits for a confirmation",
            inner.held_of_hub.clone(),
        );
        registry.register(
            "lynqgate_hub_skipped_rows",
            "Rows that are left out, by cause",
            inner.skipped.clone(),
        );
        registry.register_with_unit(
            "lynqgate_certificate_expiry_timestamp",
            "End of the webhooks' certificate, which is renewed when a third of its lifetime is left; 0: there is none yet",
            Unit::Seconds,
            inner.certificate.clone(),
        );
        let build: Family<Build, Gauge> = Family::default();
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&Build { version }).set(1);
        registry.register("lynqgate_build_info", "The version that runs", build);
        registry.register(
            "lynqgate_rollout_waiting_nodes",
            "Held nodes, by the reason why they wait",
            inner.waiting.clone(),
        );
        registry.register_with_unit(
            "lynqgate_rollout_hold",
            "How long released nodes had waited",
            Unit::Seconds,
            inner.held_seconds.clone(),
        );
        registry.register_with_unit(
            "lynqgate_rollout_settle",
            "How long released nodes took to become ready",
            Unit::Seconds,
            inner.settle_seconds.clone(),
        );
        registry.register(
            "lynqgate_rollout_halts",
            "Rollouts that nothing but a correction moves on: the failure budget was spent, or all that is in flight is past its deadline",
            inner.halts.clone(),
        );
        registry.register(
            "lynqgate_gate_bypasses",
            "Nodes found with content that the gate did not let through; they are held again",
            inner.bypasses.clone(),
        );
        registry.register(
            "lynqgate_ledger_conflicts",
            "Ledger writes that lost the compare-and-swap",
            inner.ledger_conflicts.clone(),
        );
        registry.register_with_unit(
            "lynqnode_reconcile_duration",
            "Duration of a node's reconciliation, by its result",
            Unit::Seconds,
            inner.looks.clone(),
        );
        registry.register(
            "controller_runtime_reconcile",
            "Turns of the loops, by their result",
            inner.reconciled.clone(),
        );
        registry.register(
            "lynqgate_panics",
            "Reconciles that panicked; their key rests from 30 s up to 10 min, and a node counts as not ready meanwhile",
            inner.panics.clone(),
        );
        for controller in ["lynqhub", "lynqform", "lynqnode", "statefulset"] {
            // From 0 on: an increase of what was not there before is none.
            drop(inner.panics.get_or_create(&OfLoop { controller }));
        }
        registry.register(
            "lynqgate_hub_syncs",
            "Reads of a hub's rows",
            inner.syncs.clone(),
        );
    }

    pub fn applied(&self, kind: &str, policy: ConflictPolicy, good: bool) {
        let result = if good { "success" } else { "error" };
        self.inner
            .applied
            .get_or_create(&Applied {
                kind: kind.to_owned(),
                result,
                conflict_policy: policy.name(),
            })
            .inc();
    }

    pub fn released(&self, hub: &HubKey, form: &str, way: Way, held_since: Option<Timestamp>) {
        let released = Released {
            namespace: hub.0.clone(),
            form: form.to_owned(),
            cause: way.code(),
        };
        self.inner.released.get_or_create(&released).inc();
        if let Some(since) = held_since {
            let waited = clock::now().duration_since(since).as_secs_f64();
            let form = OfForm::new(hub, form);
            self.inner.held_seconds.get_or_create(&form).observe(waited);
        }
    }

    pub fn settled(&self, hub: &HubKey, form: &str, took: SignedDuration) {
        let form = OfForm::new(hub, form);
        let histogram = self.inner.settle_seconds.get_or_create(&form);
        histogram.observe(took.as_secs_f64());
    }

    /// What the planner counted.
    pub fn rollout(&self, hub: &HubKey, form: &str, state: &FormState) {
        let form = OfForm::new(hub, form);
        let inner = &self.inner;
        let set = |family: &Family<OfForm, Gauge>, n: i64| {
            family.get_or_create(&form).set(n);
        };
        set(&inner.held, state.rollout.held_nodes.into());
        set(&inner.in_flight, state.rollout.slots.into());
        set(&inner.non_ready, state.non_ready.into());
        set(&inner.forced, state.rollout.forced_nodes.into());
        set(&inner.window, state.window.unwrap_or_default() as i64);
        let is_halted = state.rollout.phase == Phase::Failed || state.stalled.is_some();
        set(&inner.halted, is_halted.into());
        let waiting = state.rollout.waiting.iter().filter_map(|nodes| {
            let reason = ConditionReason::named(&nodes.reason)?;
            Some((reason.as_str(), nodes.count.into()))
        });
        inner.set_waiting(&form, &waiting.collect());
        // From 0 on: an increase of what was not there before is none.
        drop(inner.halts.get_or_create(&form));
    }

    /// Held nodes without a form.
    pub fn formless(&self, hub: &HubKey, form: &str, reason: &'static str, nodes: i64) {
        let form = OfForm::new(hub, form);
        self.inner.held.get_or_create(&form).set(nodes);
        let waiting = BTreeMap::from([(reason, nodes)]);
        self.inner.set_waiting(&form, &waiting);
    }

    /// The window over all forms of a hub.
    pub fn hub_window(&self, hub: &HubKey, window: Option<usize>) {
        let gauge = self.inner.hub_window.get_or_create(&OfHub::new(hub));
        gauge.set(window.unwrap_or_default() as i64);
    }

    /// The rows of the hub are to be read again and again. Until a sync comes to its end here, the last one counts as that of `since`.
    pub fn hub_due(&self, hub: &HubKey, since: impl FnOnce() -> Timestamp) {
        let (last_sync, hub) = (&self.inner.last_sync, OfHub::new(hub));
        let known = last_sync.get(&hub).is_some();
        if !known {
            last_sync.get_or_create(&hub).set(since().as_second());
        }
    }

    /// A sync came to its end. `held`: nodes that wait for a confirmation. `skipped`: rows by the code of what is wrong.
    pub fn hub_synced(
        &self,
        hub: &HubKey,
        held: Held,
        skipped: &BTreeMap<&'static str, i64>,
        now: Timestamp,
    ) {
        let inner = &self.inner;
        let last_sync = inner.last_sync.get_or_create(&OfHub::new(hub));
        last_sync.set(now.as_second());
        for (direction, nodes) in held.by_direction() {
            inner
                .held_of_hub
                .get_or_create(&of_direction(hub, direction))
                .set(nodes);
        }
        let mut causes = inner.causes.lock();
        let before = causes.insert(hub.clone(), skipped.keys().copied().collect());
        for cause in before.unwrap_or_default() {
            if !skipped.contains_key(cause) {
                inner.skipped.remove(&of_cause(hub, cause));
            }
        }
        for (cause, rows) in skipped {
            inner
                .skipped
                .get_or_create(&of_cause(hub, cause))
                .set(*rows);
        }
    }

    /// A hub that is gone has no series any more.
    pub fn forget_hub(&self, hub: &HubKey) {
        let inner = &self.inner;
        inner.hub_window.remove(&OfHub::new(hub));
        inner.last_sync.remove(&OfHub::new(hub));
        for (direction, _) in Held::default().by_direction() {
            inner.held_of_hub.remove(&of_direction(hub, direction));
        }
        for cause in inner.causes.lock().remove(hub).unwrap_or_default() {
            inner.skipped.remove(&of_cause(hub, cause));
        }
    }

    /// A form that is gone is not counted any more, nor is what it did.
    pub fn forget(&self, namespace: &str, form: &str) {
        let form = OfForm {
            namespace: namespace.to_owned(),
            form: form.to_owned(),
        };
        let inner = &self.inner;
        for family in [
            &inner.held,
            &inner.in_flight,
            &inner.non_ready,
            &inner.forced,
            &inner.window,
            &inner.halted,
        ] {
            family.remove(&form);
        }
        inner.set_waiting(&form, &BTreeMap::new());
        inner.held_seconds.remove(&form);
        inner.settle_seconds.remove(&form);
        inner.halts.remove(&form);
        for way in Way::ALL {
            inner.released.remove(&Released {
                namespace: form.namespace.clone(),
                form: form.form.clone(),
                cause: way.code(),
            });
        }
    }

    pub fn halted(&self, hub: &HubKey, form: &str) {
        let form = OfForm::new(hub, form);
        self.inner.halts.get_or_create(&form).inc();
    }

    /// `result` as Lynq calls it.
    pub fn looked(&self, result: &'static str, took: Duration) {
        let histogram = self.inner.looks.get_or_create(&Looked { result });
        histogram.observe(took.as_secs_f64());
        self.reconciled("lynqnode", result != "error");
    }

    pub fn reconciled(&self, controller: &'static str, good: bool) {
        let result = if good { "success" } else { "error" };
        let turn = Reconciled { controller, result };
        self.inner.reconciled.get_or_create(&turn).inc();
    }

    pub fn panicked(&self, controller: &'static str) {
        let turn = OfLoop { controller };
        self.inner.panics.get_or_create(&turn).inc();
        self.reconciled(controller, false);
    }

    /// When the webhooks' certificate ends.
    pub fn certificate(&self, ends: Option<Timestamp>) {
        let ends = ends.map_or(0, Timestamp::as_second);
        self.inner.certificate.set(ends);
    }

    pub fn bypassed(&self) {
        self.inner.bypasses.inc();
    }

    pub fn ledger_conflict(&self) {
        self.inner.ledger_conflicts.inc();
    }

    pub fn synced(&self, result: &'static str) {
        self.inner.syncs.get_or_create(&Synced { result }).inc();
    }
}
