//! What the acts play on: a control plane, a database, the operator and the witness; and the ways to act and to wait.
//! Tells no story itself.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::Value;

use crate::cluster::audit::AuditLog;
use crate::cluster::database::{Database, Product};
use crate::cluster::{Cluster, Options};
use crate::operator::{self, Operator};
use crate::screen::Screen;
use crate::witness::{Sight, Witness};

pub const NAMESPACE: &str = "tenants";
/// Active rows in tests/demo/tenants.sql.
pub const TENANTS: usize = 20;
/// `maxSkew` in tests/demo/form.yaml.
pub const WINDOW: usize = 3;

/// How often the counts are drawn and conditions are looked at.
const TICK: Duration = Duration::from_millis(100);
/// The unit of /proc, on every Linux that there is.
const TICKS_PER_SECOND: u64 = 100;

/// How many of the tenants have rolled out the wanted image, how many are not rolled out, and how many wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    pub new: usize,
    pub not_ready: usize,
    pub held: usize,
}

pub struct Stage {
    pub screen: Screen,
    pub cluster: Cluster,
    pub database: Database,
    operator: Operator,
    pub witness: Witness,
    forms: Api<DynamicObject>,
    deployments: Api<Deployment>,
}

impl Stage {
    pub async fn set(screen: Screen) -> Result<Stage> {
        println!("lynqgate: 20 tenants, and never more than 3 of them not ready at a time");
        screen.say("\nStarting a control plane, MariaDB and lynqgate ...");
        let (cluster, database) = tokio::try_join!(
            Cluster::start(Options::default()),
            Database::start(Product::Mariadb)
        )?;
        operator::install_overlay(&cluster, "tests/maintenance/overlay").await?;
        let operator = Operator::start(
            &cluster,
            "lynqgate",
            &["--leader-elect", "--node-maintenance"],
        )
        .await?;
        database
            .execute(include_str!("tenants.sql"))
            .await
            .context("tests/demo/tenants.sql")?;
        let use_namespace = format!("kubectl config set-context --current --namespace={NAMESPACE}");
        let client = cluster.admin().await?;
        let kind =
            ApiResource::from_gvk(&GroupVersionKind::gvk("operator.lynq.sh", "v1", "LynqForm"));
        let stage = Stage {
            witness: Witness::start(client.clone(), NAMESPACE).await?,
            forms: Api::namespaced_with(client.clone(), NAMESPACE, &kind),
            deployments: Api::namespaced(client, NAMESPACE),
            screen,
            cluster,
            database,
            operator,
        };
        stage
            .run(&format!("kubectl create namespace {NAMESPACE}"))
            .await?;
        stage.run(&use_namespace).await?;
        Ok(stage)
    }

    /// Shows a command line, runs it in the repository's directory, and shows what it printed.
    pub async fn shell(&self, line: &str) -> Result<()> {
        self.screen.command("$", line);
        self.screen.say(&self.run(line).await?);
        Ok(())
    }

    /// Runs a command line without a word.
    pub async fn run(&self, line: &str) -> Result<String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let lynqgate = operator::program("lynqgate")?;
        let own = lynqgate.parent().context("its directory")?;
        let output = tokio::process::Command::new("sh")
            .args(["-c", &format!("{{ {line}; }} 2>&1")])
            .current_dir(operator::root())
            .env("KUBECONFIG", self.cluster.admin_kubeconfig())
            .env(
                "PATH",
                format!(
                    "{}:{}:{path}",
                    self.cluster.programs().display(),
                    own.display()
                ),
            )
            .env("HOME", self.cluster.group().directory())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "`{line}` failed: {}", text.trim());
        Ok(text)
    }

    /// Shows a statement and runs it in the product's database.
    pub async fn sql(&self, statement: &str) -> Result<()> {
        self.screen.command("sql>", statement);
        self.database
            .execute(&format!("USE product; {statement}"))
            .await
    }

    /// The tenants' Deployments at this moment: a list, since the witness's watch may be an event behind.
    pub async fn deployments(&self) -> Result<BTreeMap<String, Sight>> {
        let listed = self.deployments.list(&ListParams::default()).await?;
        let sight = |one: Deployment| (one.name_any(), Sight::of(&one));
        Ok(listed.into_iter().map(sight).collect())
    }

    /// The Deployments in whose names this log has writes of lynqgate's.
    pub async fn written(&self, log: &mut AuditLog) -> Result<BTreeSet<String>> {
        let lynqgate = operator::identity().username();
        let events = log.read().await?;
        let writes = (events.into_iter())
            .filter(|event| event.is_write() && event.user == lynqgate)
            .filter(|event| event.resource == "deployments" && event.namespace == NAMESPACE);
        Ok(writes.map(|event| event.name).collect())
    }

    /// The form's status, and whether it speaks of the form as it is now.
    async fn form(&self) -> Result<(Value, bool)> {
        let form = serde_json::to_value(self.forms.get("web").await?)?;
        let rollout = &form["status"]["rollout"];
        let current = rollout["targetGeneration"] == form["metadata"]["generation"];
        Ok((rollout.clone(), current))
    }

    pub fn tally(&self, image: &str) -> Tally {
        let seen = self.witness.seen();
        let (new, not_ready) = (seen.with_image(image), seen.open());
        Tally {
            new,
            not_ready,
            held: TENANTS.saturating_sub(new + not_ready),
        }
    }

    /// Draws the counts until `met` holds. Fails with the sentence `what` when it takes longer than the deadline.
    pub async fn until(
        &mut self,
        what: &str,
        image: &str,
        deadline: Duration,
        met: impl Fn(&Moment) -> bool,
    ) -> Result<()> {
        let started = Instant::now();
        loop {
            let (rollout, current) = self.form().await.unwrap_or_default();
            let tally = self.tally(image);
            let phase = rollout["phase"].as_str().filter(|_| current);
            let moment = Moment {
                tally,
                phase: phase.unwrap_or_default(),
                failed: rollout["failedNodes"].as_u64().unwrap_or_default() as usize,
            };
            if met(&moment) {
                self.screen.end_live(tally);
                return Ok(());
            }
            if started.elapsed() > deadline {
                self.screen.end_live(tally);
                let (limit, said) = (deadline.as_secs(), &rollout["message"]);
                bail!(
                    "within {limit} s it did not happen that {what}. The form's status says: {said}"
                );
            }
            self.operator.process.check()?;
            self.screen.live(tally, false);
            tokio::time::sleep(TICK).await;
        }
    }

    /// What the operator has used so far.
    pub fn cost(&self) -> Result<Cost> {
        let id = self.operator.process.id().context("the operator is gone")?;
        Cost::of(id)
    }
}

/// What [`Stage::until`] looks at.
pub struct Moment<'a> {
    pub tally: Tally,
    /// The phase of the form's rollout; empty while the status speaks of an older generation.
    pub phase: &'a str,
    /// Nodes past their deadline, as the form's status counts them.
    pub failed: usize,
}

/// Processor time and memory of a process.
pub struct Cost {
    pub processor: Duration,
    pub peak_mib: u64,
}

impl Cost {
    fn of(process: u32) -> Result<Cost> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        // The name, in parentheses, may have spaces; user and system time are the 12th and 13th field after it.
        let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat")?;
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
            .context("VmHWM in /proc/PID/status")?;
        Ok(Cost {
            processor: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND),
            peak_mib: peak / 1024,
        })
    }
}
