//! What the faults strike: a control plane, a database, operators with a fault proxy each, one address for their
//! webhooks, and a fleet. Strikes nothing itself, and puts everything right again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use lynqgate::cluster::lease::lease_key;
use lynqgate::decide::operator::shards::shard_of;
use serde_json::{Value, json};

use crate::auditor::Auditor;
use crate::clock::Clock;
use crate::cluster::ports::free_port;
use crate::cluster::programs::Component;
use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator, Place};
use crate::proxy::Proxy;
use crate::relay::Relay;
use crate::tenants::{Fleet, SOON, deployment};
use crate::widgets::Widgets;

/// An operator that ended is started again after this long, as a kubelet would.
const RESTART: Duration = Duration::from_secs(1);

pub struct Replica {
    pub operator: Operator,
    pub proxy: Proxy,
    pub clock: Clock,
    /// A fault wants it down, or frozen, for now.
    pub struck: AtomicBool,
    starts: AtomicUsize,
}

pub struct Stage {
    pub cluster: Cluster,
    pub fleet: Fleet,
    pub replicas: Vec<Replica>,
    pub webhooks: Relay,
    pub auditor: Auditor,
    pub widgets: Widgets,
    pub nodes: usize,
    shards: usize,
    /// What is under way now, and how often each fault was.
    under_way: Mutex<BTreeMap<&'static str, usize>>,
    struck: Mutex<BTreeMap<&'static str, usize>>,
}

impl Stage {
    /// For `lag` and `converge` see [`Auditor::start`]; the operators divide the work into so many shards.
    pub async fn set(
        seed: u64,
        nodes: usize,
        (lag, converge): (u32, bool),
        shards: usize,
    ) -> Result<Stage> {
        let options = Options {
            keep_directory: is_set("KEEP"),
            ..Options::default()
        };
        let cluster = Cluster::start(options).await?;
        let auditor = Auditor::start(&cluster, lag, converge)?;
        operator::install(&cluster).await?;
        let port = free_port()?;
        let url = format!("https://127.0.0.1:{port}");
        let own = cluster.kubeconfig_for(&operator::identity()).await?;
        let divided = format!("--shards={shards}");
        let mut replicas = Vec::new();
        for name in ["a", "b", "c"].iter().take(shards.max(2)) {
            let proxy = Proxy::start(&cluster, seed).await?;
            let kubeconfig = proxy.kubeconfig(&own, own.with_extension(name))?;
            let name = format!("operator-{name}");
            let clock = Clock::new(cluster.group().directory().join(format!("{name}.clock")))?;
            let place = Place {
                kubeconfig: &kubeconfig,
                webhook_url: Some(&url),
                environment: &clock.environment(),
            };
            replicas.push(Replica {
                operator: Operator::prepare(
                    &cluster,
                    &name,
                    &place,
                    &["--leader-elect", &divided],
                )?,
                clock,
                proxy,
                struck: AtomicBool::new(false),
                starts: AtomicUsize::new(0),
            });
        }
        let ports = |r: &Replica| (r.operator.webhook_port, r.operator.health_port);
        let backends: Vec<(u16, u16)> = replicas.iter().map(ports).collect();
        let webhooks = Relay::start(port, &backends).await?;
        for replica in &replicas {
            replica.start()?;
            replica.operator.ready().await?;
        }
        // That they are ready the relay learns by its next probe.
        let fleet = wait::until("the webhooks take a hub", SOON, async || {
            Fleet::new(&cluster, "chaos", nodes).await
        });
        let stage = Stage {
            fleet: fleet.await?,
            widgets: Widgets::new(&cluster).await?,
            auditor,
            cluster,
            replicas,
            webhooks,
            nodes,
            shards,
            under_way: Mutex::default(),
            struck: Mutex::default(),
        };
        stage.fleet.apply(&stage.form(&Content::first())).await?;
        stage
            .fleet
            .complete(nodes, Duration::from_secs(120))
            .await?;
        Ok(stage)
    }

    pub fn form(&self, content: &Content) -> Value {
        let image = format!("registry.example.com/web:{}", content.version);
        let mut form = self
            .fleet
            .form(&image, content.max_skew.clone(), content.delay);
        form["spec"]["rollout"]["paused"] = json!(content.paused);
        let creation = if content.immediate {
            "Immediate"
        } else {
            "Gated"
        };
        form["spec"]["rollout"]["creation"] = json!(creation);
        // The shortest there is, so that rollouts halt.
        form["spec"]["rollout"]["progressDeadlineSeconds"] = json!(60);
        form["spec"]["rollout"]["minReadySeconds"] = json!(content.soak);
        form["spec"]["rollout"]["maxFailures"] = content.failures.clone();
        let on_failure = if content.reverts { "Revert" } else { "Halt" };
        form["spec"]["rollout"]["onFailure"] = json!(on_failure);
        let mut workload = deployment(&image, content.delay);
        workload["spec"]["replicas"] = json!(content.replicas);
        form["spec"]["deployments"][0]["spec"] = workload;
        // Others write to the children; what they changed has to come back.
        form["spec"]["deployments"][0]["conflictPolicy"] = json!("Force");
        form["spec"]["configMaps"] = json!([{
            "id": "settings", "nameTemplate": "{{ .uid }}-settings", "conflictPolicy": "Force",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"version": content.version}},
        }]);
        form
    }

    /// Who leads the shard of the fleet; empty if that cannot be told.
    pub async fn holder(&self) -> String {
        let lease = lease_key(
            "lynq-system",
            shard_of(&self.fleet.namespace, "tenants", self.shards),
        );
        let name = lease.name.as_str();
        let get = ["get", "lease", name, "--namespace=lynq-system"];
        let only = [
            "--output=jsonpath={.spec.holderIdentity}",
            "--request-timeout=2s",
        ];
        let args = [&get[..], &only].concat();
        let lease = self.cluster.kubectl(&args, None);
        let holder = tokio::time::timeout(Duration::from_secs(3), lease).await;
        let holder = holder.ok().and_then(Result::ok).map(|o| o.stdout);
        holder.unwrap_or_default()
    }

    /// The replica that holds the lease; some replica if nobody does.
    pub async fn leader(&self) -> &Replica {
        let holder = self.holder().await;
        let leads = |r: &&Replica| {
            let id = r.operator.process.id();
            id.is_some_and(|id| holder.ends_with(&format!("_{id}")))
        };
        self.replicas
            .iter()
            .find(leads)
            .unwrap_or(&self.replicas[0])
    }

    /// The fault is shown as under way until what is returned is dropped.
    pub fn begin(self: &Arc<Self>, fault: &'static str) -> UnderWay {
        *self
            .struck
            .lock()
            .expect("faults")
            .entry(fault)
            .or_default() += 1;
        *self
            .under_way
            .lock()
            .expect("faults")
            .entry(fault)
            .or_default() += 1;
        UnderWay(self.clone(), fault)
    }

    pub fn under_way(&self) -> String {
        let now = self.under_way.lock().expect("faults");
        match now.is_empty() {
            true => "none".to_owned(),
            false => now.keys().copied().collect::<Vec<_>>().join(" + "),
        }
    }

    /// Everything runs, nothing is in the way.
    pub async fn heal(&self) -> Result<()> {
        self.webhooks.set_up(true);
        for replica in &self.replicas {
            replica.proxy.heal();
            replica.clock.set(0)?;
            replica.struck.store(false, Ordering::SeqCst);
            let _ = replica.operator.process.thaw();
        }
        for component in [Component::Etcd, Component::Apiserver] {
            self.cluster.ready(component).await?;
        }
        for replica in &self.replicas {
            let ready = async || {
                let answer = operator::get(replica.operator.health_port, "/readyz").await?;
                anyhow::ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                Ok(())
            };
            wait::until("all operators are ready", Duration::from_secs(60), ready).await?;
        }
        Ok(())
    }

    pub fn summary(&self) {
        let list = |counts: &BTreeMap<&'static str, usize>| {
            let each = counts.iter().map(|(name, count)| format!("{name} {count}"));
            each.collect::<Vec<_>>().join(", ")
        };
        println!("faults: {}", list(&self.struck.lock().expect("faults")));
        for replica in &self.replicas {
            println!(
                "{}: started {} times; requests met: {}",
                replica
                    .operator
                    .process
                    .log()
                    .file_stem()
                    .unwrap_or_default()
                    .display(),
                replica.starts.load(Ordering::SeqCst),
                list(&replica.proxy.met())
            );
        }
    }
}

impl Replica {
    pub fn start(&self) -> Result<()> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        self.operator.process.start()
    }
}

/// Starts operators that have ended, until it is aborted.
pub async fn keep_running(stage: Arc<Stage>) {
    loop {
        tokio::time::sleep(RESTART).await;
        for replica in &stage.replicas {
            if !replica.struck.load(Ordering::SeqCst) && !replica.operator.process.is_running() {
                let _ = replica.start();
            }
        }
    }
}

pub struct UnderWay(Arc<Stage>, &'static str);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut now = self.0.under_way.lock().expect("faults");
        if let Some(count) = now.get_mut(self.1) {
            *count -= 1;
        }
        now.retain(|_, count| *count > 0);
    }
}

/// What the form says at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The image's tag and the ConfigMap's value. `broken` in it: never ready.
    pub version: String,
    pub replicas: u32,
    pub delay: u32,
    pub max_skew: Value,
    pub paused: bool,
    /// New nodes do not wait.
    pub immediate: bool,
    /// Seconds that a node has to stay ready.
    pub soak: u32,
    /// How many failures halt the rollout.
    pub failures: Value,
    /// lynqgate takes back what failed.
    pub reverts: bool,
}

impl Content {
    pub fn first() -> Content {
        Content {
            version: "0".to_owned(),
            replicas: 1,
            delay: 0,
            max_skew: json!(0),
            paused: false,
            immediate: false,
            soak: 0,
            failures: json!("100%"),
            reverts: false,
        }
    }
}

/// An answer within this time, or an error: the API server may be away, or frozen.
pub async fn soon<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(Duration::from_secs(10), work).await;
    answer.with_context(|| format!("{what}: no answer"))?
}

/// `make` passes on what it was not given as an empty text.
pub fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}
