//! What fleets of several sizes cost: the first sync, idle time, a change, a correction, a start with an empty memory, and the end
//! of the leader. Run by `make bench-fleet`, with `N=300,1000` for these sizes alone, `BYTES=5000` for larger objects, and
//! `CORRECTION=1` for a bad change and its correction alone.
//!
//! `CHART=docs/fleet.svg` draws the CPU for each tenant and the peak memory over the sizes of the fleets.
//!
//! The requests are those of the API server's audit log, the times those of a client of its own that watches the objects.

/// The harness of the tests. The path leads out of this directory; below it the files are found as usual.
#[path = ".."]
mod harness {
    pub mod cluster;
    pub mod operator;
    pub mod tenants;
}

mod chart;
mod meter;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use harness::{cluster, operator, tenants};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

use chart::{Line, Panel};
use cluster::audit::{AuditEvent, AuditLog};
use cluster::{Cluster, Options, wait};
use operator::Operator;
use tenants::Fleet;

const SIZES: [usize; 4] = [300, 1_000, 3_000, 10_000];
const WINDOW: usize = 100;
/// ConfigMaps of a tenant, and the bytes in each if nothing else is asked for.
const OBJECTS: usize = 4;
const BYTES: usize = 600;
const IDLE: Duration = Duration::from_secs(30);
const SETTLING: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(1_800);
const FIRST_SYNC: &str = "first sync";
const CHANGE: &str = "change";
const HELD: &str = "bad change: all others are held";
const REST: &str = "correction of the rest";
const COLD_START: &str = "cold start";
const BAD: &str = "bad";
/// The label of what a change changes.
const CHANGED: &str = "bench-changed";

#[tokio::main]
async fn main() -> Result<()> {
    let asked = std::env::var("N").unwrap_or_default();
    let asked = asked.split(',').filter(|n| !n.is_empty());
    let mut sizes: Vec<usize> = asked
        .map(str::parse)
        .collect::<Result<_, _>>()
        .context("N")?;
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    let bytes = match std::env::var("BYTES") {
        Ok(bytes) if !bytes.is_empty() => bytes.parse().context("BYTES")?,
        _ => BYTES,
    };
    println!("{OBJECTS} ConfigMaps of {bytes} bytes a tenant, maxSkew {WINDOW}\n");
    println!(
        "| tenants | what | took | first | requests | for each tenant | CPU | for each tenant | peak memory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut measured = vec![];
    for size in sizes {
        measured.extend(Bench::of(size, bytes).await?);
    }
    if let Some(path) = std::env::var_os("CHART").filter(|path| !path.is_empty()) {
        std::fs::write(path, chart::svg(&panels(&measured))).context("CHART")?;
    }
    Ok(())
}

/// A row of the table.
struct Measured {
    size: usize,
    what: &'static str,
    /// In milliseconds.
    cpu_of_tenant: f64,
    peak_mib: u64,
}

/// What is proportional to the fleet: a bad change and its correction reach a window of it.
fn panels(measured: &[Measured]) -> [Panel; 2] {
    let line = |what: &str, value: &dyn Fn(&Measured) -> f64| {
        let rows = measured.iter().filter(|row| row.what == what);
        Line {
            name: what.to_owned(),
            points: rows.map(|row| (row.size, value(row))).collect(),
        }
    };
    let lines = |value: &dyn Fn(&Measured) -> f64| {
        let drawn = [FIRST_SYNC, CHANGE, REST, COLD_START];
        let drawn = drawn.map(|what| line(what, value));
        drawn
            .into_iter()
            .filter(|line| !line.points.is_empty())
            .collect()
    };
    [
        Panel {
            title: "CPU for each tenant, in ms, by tenants".to_owned(),
            lines: lines(&|row| row.cpu_of_tenant),
        },
        Panel {
            title: "Peak memory, in MiB, by tenants".to_owned(),
            lines: lines(&|row| row.peak_mib as f64),
        },
    ]
}

struct Bench {
    size: usize,
    bytes: usize,
    cluster: Cluster,
    fleet: Fleet,
    audit: AuditLog,
    /// Events that the operator has dropped since it began, because too many waited.
    dropped: usize,
    measured: Vec<Measured>,
}

impl Bench {
    async fn of(size: usize, bytes: usize) -> Result<Vec<Measured>> {
        let cluster = Cluster::start(Options::default()).await?;
        let mut operator = Operator::start(&cluster, "operator", &[]).await?;
        let fleet = Fleet::new(&cluster, "bench", 0).await?;
        for from in (0..size).step_by(1_000) {
            fleet.insert(from..size.min(from + 1_000)).await?;
        }
        let audit = cluster.audit().await?;
        let mut bench = Bench {
            size,
            bytes,
            cluster,
            fleet,
            audit,
            dropped: 0,
            measured: vec![],
        };
        bench.play(&mut operator).await?;
        Ok(bench.measured)
    }

    async fn play(&mut self, operator: &mut Operator) -> Result<()> {
        let witness = Witness::start(self.cluster.admin().await?, &self.fleet.namespace).await?;
        let mut hub = self.fleet.hub();
        // Lynq's default.
        hub["spec"]["source"]["syncInterval"] = "30s".into();
        hub["spec"]["guard"] = json!({"maxCreations": self.size});
        self.fleet.apply(&hub).await?;
        // The API server ends the first watches of a definition that is seconds old. lynqgate starts them again after a pause.
        sleep(SETTLING).await;
        self.audit.read().await?;

        let meter = Meter::start(operator)?;
        self.fleet.apply(&self.form("v0", 0)).await?;
        self.fleet.complete(self.size, DEADLINE).await?;
        let first = witness.first("v0", meter.began);
        self.row_to_last_event(FIRST_SYNC, &meter, first, operator)
            .await?;

        let meter = Meter::start(operator)?;
        sleep(IDLE).await;
        self.row("idle", &meter, None).await?;

        self.fleet.apply(&self.form("v0", WINDOW)).await?;
        self.fleet.complete(self.size, DEADLINE).await?;
        self.audit.read().await?;
        let correction_alone = std::env::var_os("CORRECTION").is_some();
        if !correction_alone {
            let meter = Meter::start(operator)?;
            self.fleet.apply(&self.form("v1", WINDOW)).await?;
            self.fleet.complete(self.size, DEADLINE).await?;
            let first = witness.first("v1", meter.began);
            self.row_to_last_event(CHANGE, &meter, first, operator)
                .await?;
        }

        let meter = Meter::start(operator)?;
        self.fleet.apply(&self.form(BAD, WINDOW)).await?;
        let broken = self.broken();
        wait::until(
            "the window is full of what is broken",
            DEADLINE,
            async || {
                let count = witness.count(BAD);
                ensure!(count >= broken, "{count} of {broken}");
                Ok(())
            },
        )
        .await?;
        let first = witness.first(BAD, meter.began);
        self.row("bad change", &meter, first).await?;

        // Nobody corrects a change within seconds: by then all other nodes hold it.
        let meter = Meter::start(operator)?;
        wait::until("all other nodes are held", DEADLINE, async || {
            let form = self.fleet.get("LynqForm", "web").await?;
            let held = form["status"]["rollout"]["heldNodes"].as_u64();
            let (held, left) = (held.unwrap_or_default(), self.size - broken);
            ensure!(held >= left as u64, "{held} of {left}");
            Ok(())
        })
        .await?;
        self.row(HELD, &meter, None).await?;

        let meter = Meter::start(operator)?;
        self.fleet.apply(&self.form("v2", WINDOW)).await?;
        wait::until("what is broken is corrected", DEADLINE, async || {
            let count = witness.count("v2");
            ensure!(count >= broken, "{count} of {broken}");
            Ok(())
        })
        .await?;
        let first = witness.first("v2", meter.began);
        self.row("correction of the broken", &meter, first).await?;
        if correction_alone {
            return Ok(());
        }
        let meter = Meter::start(operator)?;
        self.fleet.complete(self.size, DEADLINE).await?;
        self.row_to_last_event(REST, &meter, None, operator).await?;

        // What follows waits for two syncs.
        hub["spec"]["source"]["syncInterval"] = "1s".into();
        self.fleet.apply(&hub).await?;
        operator.process.terminate(DEADLINE).await?;
        self.audit.read().await?;
        let began = Instant::now();
        *operator = self.start("operator-anew").await?;
        let meter = Meter {
            began,
            ..Meter::start(operator)?
        };
        self.synced(operator).await?;
        self.row(COLD_START, &meter, None).await?;

        let other = self.start("operator-other").await?;
        sleep(SETTLING).await;
        self.audit.read().await?;
        let meter = Meter::start(&other)?;
        operator.process.kill()?;
        self.synced(&other).await?;
        self.row("failover", &meter, None).await
    }

    /// How many tenants a bad change breaks.
    fn broken(&self) -> usize {
        self.size.min(WINDOW)
    }

    /// One of several.
    async fn start(&self, name: &str) -> Result<Operator> {
        let kubeconfig = self.cluster.kubeconfig_for(&operator::identity()).await?;
        Operator::start_at(&self.cluster, name, &kubeconfig, &["--leader-elect"]).await
    }

    /// Until the hub was synced twice, so that the second sync found nothing to do.
    async fn synced(&self, operator: &Operator) -> Result<()> {
        wait::until("the hub is synced", DEADLINE, async || {
            let metrics = operator.metrics().await?;
            let name = "lynqgate_hub_syncs_total{result=\"success\"} ";
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            let syncs: u64 = line.unwrap_or("0").parse()?;
            ensure!(syncs >= 2, "{syncs} syncs");
            Ok(())
        })
        .await
    }

    fn form(&self, version: &str, max_skew: usize) -> Value {
        let map = |number: usize| {
            let mut data = json!({"filler": "x".repeat(self.bytes)});
            let mut metadata = json!({});
            let mut map = json!({"id": format!("c{number}"), "nameTemplate": format!("{{{{ .uid }}}}-c{number}")});
            if number == 0 {
                data["version"] = version.into();
                metadata["labels"] = json!({CHANGED: "true"});
                let cel = format!("object.data.version != '{BAD}'");
                map["readyProbe"] = json!({"cel": cel});
            }
            map["spec"] = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            map
        };
        let maps: Vec<Value> = (0..OBJECTS).map(map).collect();
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
            "metadata": {"name": "web", "namespace": self.fleet.namespace},
            "spec": {
                "hubId": "tenants",
                "rollout": {"maxSkew": max_skew, "progressDeadlineSeconds": 600},
                "configMaps": maps,
            },
        })
    }

    async fn row(
        &mut self,
        what: &'static str,
        meter: &Meter,
        first: Option<Duration>,
    ) -> Result<()> {
        let took = meter.began.elapsed();
        let requests = self.requests().await?;
        self.add(what, meter, took, first, &requests, 0)
    }

    /// lynqgate writes events last, with a pause after each. When a phase ends, up to 1,000 wait, and lynqgate has dropped the rest.
    /// The row counts the events that lynqgate writes after the phase, and their CPU, but not their time. The events that it dropped
    /// are those since the last such row.
    async fn row_to_last_event(
        &mut self,
        what: &'static str,
        meter: &Meter,
        first: Option<Duration>,
        operator: &Operator,
    ) -> Result<()> {
        let took = meter.began.elapsed();
        let mut requests = self.requests().await?;
        loop {
            sleep(Duration::from_secs(1)).await;
            let more = self.requests().await?;
            let written = more.iter().any(|request| request.resource == "events");
            requests.extend(more);
            if !written {
                break;
            }
        }
        let metrics = operator.metrics().await?;
        let dropped = metrics.lines().filter_map(|line| {
            let count = line.strip_prefix("lynqgate_events_dropped_total{")?;
            count.rsplit_once(' ')?.1.parse::<usize>().ok()
        });
        let dropped: usize = dropped.sum();
        let before = std::mem::replace(&mut self.dropped, dropped);
        self.add(what, meter, took, first, &requests, dropped - before)
    }

    /// What the operator asked of the API server since the last call, without its leases.
    async fn requests(&mut self) -> Result<Vec<AuditEvent>> {
        let mut requests = self.audit.read().await?;
        let user = operator::identity().username();
        requests.retain(|request| request.user == user && request.resource != "leases");
        Ok(requests)
    }

    fn add(
        &mut self,
        what: &'static str,
        meter: &Meter,
        took: Duration,
        first: Option<Duration>,
        requests: &[AuditEvent],
        dropped: usize,
    ) -> Result<()> {
        let spent = meter.spent()?;
        let mut by_verb: BTreeMap<&str, usize> = BTreeMap::new();
        let mut detail: BTreeMap<String, usize> = BTreeMap::new();
        for request in requests {
            let is_event = request.resource == "events";
            let verb = if is_event { "events" } else { &request.verb };
            *by_verb.entry(verb).or_default() += 1;
            let AuditEvent {
                verb,
                resource,
                subresource,
                code,
                ..
            } = request;
            let kind = format!("{verb} {resource} {subresource} {code}");
            *detail.entry(kind).or_default() += 1;
        }
        eprintln!("{detail:?}");
        // Two phases reach all tenants but the broken ones, which are a tenth of a small fleet.
        let reached = match what {
            HELD | REST => (self.size - self.broken()).max(1),
            _ => self.size,
        } as f64;
        let first = first.map_or(String::new(), |first| {
            format!("{:.1} s", first.as_secs_f64())
        });
        let verbs: Vec<_> = by_verb
            .iter()
            .map(|(verb, n)| format!("{n} {verb}"))
            .collect();
        let dropped = match dropped {
            0 => String::new(),
            _ => format!(", and {dropped} events dropped"),
        };
        let measured = Measured {
            size: self.size,
            what,
            cpu_of_tenant: spent.cpu.as_secs_f64() * 1_000.0 / reached,
            peak_mib: spent.peak_kib / 1_024,
        };
        println!(
            "| {} | {what} | {:.1} s | {first} | {}: {} | {:.2} | {:.1} s | {:.2} ms | {} MiB |",
            self.size,
            took.as_secs_f64(),
            requests.len(),
            verbs.join(", ") + &dropped,
            requests.len() as f64 / reached,
            spent.cpu.as_secs_f64(),
            measured.cpu_of_tenant,
            measured.peak_mib,
        );
        self.measured.push(measured);
        Ok(())
    }
}

/// What a process takes from now on.
struct Meter {
    began: Instant,
    process: u32,
    cpu: Duration,
}

struct Spent {
    cpu: Duration,
    /// The most that was resident.
    peak_kib: u64,
}

impl Meter {
    fn start(operator: &Operator) -> Result<Meter> {
        let process = operator.process.id().context("the operator runs")?;
        meter::forget_peak(process)?;
        Ok(Meter {
            began: Instant::now(),
            process,
            cpu: meter::cpu(process)?,
        })
    }

    fn spent(&self) -> Result<Spent> {
        Ok(Spent {
            cpu: meter::cpu(self.process)?.saturating_sub(self.cpu),
            peak_kib: meter::peak_kib(self.process)?,
        })
    }
}

/// Which version each tenant's changing object has had, and when the first did.
struct Witness {
    seen: Arc<Mutex<BTreeMap<String, (Instant, usize)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Witness {
    async fn start(client: Client, namespace: &str) -> Result<Witness> {
        let seen: Arc<Mutex<BTreeMap<String, (Instant, usize)>>> = Arc::default();
        let api = Api::<ConfigMap>::namespaced(client, namespace);
        let config = watcher::Config::default().labels(CHANGED);
        let mut events = watcher(api, config).default_backoff().boxed();
        let told = seen.clone();
        let task = tokio::spawn(async move {
            let mut versions: BTreeMap<String, String> = BTreeMap::new();
            while let Some(event) = events.next().await {
                let Ok(Event::Apply(map) | Event::InitApply(map)) = event else {
                    continue;
                };
                let version = map.data.unwrap_or_default().remove("version");
                let (name, version) = (
                    map.metadata.name.unwrap_or_default(),
                    version.unwrap_or_default(),
                );
                if versions.insert(name, version.clone()).as_ref() != Some(&version) {
                    let mut told = told.lock().expect("the witness's lock");
                    told.entry(version).or_insert_with(|| (Instant::now(), 0)).1 += 1;
                }
            }
        });
        Ok(Witness { seen, task })
    }

    /// How long after that the first object had this version.
    fn first(&self, version: &str, after: Instant) -> Option<Duration> {
        let seen = self.seen.lock().expect("the witness's lock");
        Some(seen.get(version)?.0.duration_since(after))
    }

    /// How many objects have had it.
    fn count(&self, version: &str) -> usize {
        let seen = self.seen.lock().expect("the witness's lock");
        seen.get(version).map_or(0, |(_, count)| *count)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}
