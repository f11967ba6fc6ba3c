//! The users: they edit the form in every way, force nodes, change rows and touch children, whatever is broken just now;
//! and in the end they apply a healthy form and wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::watch;

use crate::cluster::wait;
use crate::dice::Dice;
use crate::operator;
use crate::stage::{Content, Stage, is_set, soon};

/// For a fleet that is healthy again: a full rollout, and a lease that has to run out first.
const CONVERGE: Duration = Duration::from_secs(240);

/// A node fails after a minute; lynqgate tries to set the form back every half minute.
const FAILED: Duration = Duration::from_secs(100);

pub struct Bot {
    stage: Arc<Stage>,
    dice: Dice,
    content: Content,
    versions: u32,
    /// Row numbers that are active.
    rows: BTreeSet<usize>,
    forced: BTreeSet<String>,
    /// How often the form was set back by the command.
    pub undone: usize,
}

impl Bot {
    pub fn new(stage: Arc<Stage>, dice: Dice) -> Bot {
        Bot {
            rows: (0..stage.nodes).collect(),
            stage,
            dice,
            content: Content::first(),
            versions: 0,
            forced: BTreeSet::new(),
            undone: 0,
        }
    }

    pub async fn play_until(&mut self, mut is_over: watch::Receiver<bool>) {
        // The first content had no window; from now on there is one.
        self.content.max_skew = json!(5);
        self.content.failures = json!(3);
        if self.dice.percent(50) {
            self.wait_for_a_revert(&mut is_over).await;
        }
        while !*is_over.borrow() {
            // What fails is done again by some later edit, as users do.
            if let Err(error) = self.act().await {
                let text = format!("{error:#}");
                if is_set("VERBOSE") {
                    println!("         user: {}", text.lines().next().unwrap_or_default());
                }
            }
            // Long enough for a rollout to fail, halt, and be found so by the next edit.
            let is_left_broken = self.content.version.ends_with("-broken") && self.dice.percent(25);
            let pause = match is_left_broken {
                true => self.dice.seconds(62, 70),
                false => self.dice.seconds(2, 9),
            };
            // Either way, it is looked at again.
            let _ = tokio::time::timeout(pause, is_over.wait_for(|over| *over)).await;
        }
    }

    /// A bad change is left to lynqgate, which takes it back once a node has failed. Between two edits there is hardly ever a rollout
    /// that was complete, to which it could go back.
    async fn wait_for_a_revert(&mut self, is_over: &mut watch::Receiver<bool>) {
        println!("         user: a bad change, which lynqgate is to take back");
        let before = self.content.clone();
        (self.content.failures, self.content.reverts) = (json!(1), true);
        self.content.version = "0-broken".to_owned();
        let applied = wait::until("the bad form is accepted", FAILED, async || {
            self.apply().await
        });
        if applied.await.is_ok() {
            let _ = tokio::time::timeout(FAILED, is_over.wait_for(|over| *over)).await;
        }
        self.content = before;
    }

    async fn act(&mut self) -> Result<()> {
        match self.dice.below(26) {
            0..5 => self.edit().await,
            5 => self.change_rows().await,
            6 => {
                for _ in 0..3 {
                    self.edit().await?;
                }
                Ok(())
            }
            7 | 8 => self.revert_half_way().await,
            9 => {
                self.content.replicas = *self.dice.one_of(&[0, 1, 1, 2]);
                self.apply().await
            }
            10 => {
                let skews = [
                    json!(0),
                    json!(1),
                    json!(3),
                    json!(5),
                    json!(10),
                    json!("7%"),
                ];
                self.content.max_skew = self.dice.one_of(&skews).clone();
                self.content.paused = self.dice.percent(15);
                self.content.immediate = self.dice.percent(30);
                self.content.soak = *self.dice.one_of(&[0, 0, 1, 3]);
                let failures = [json!("100%"), json!("100%"), json!(1), json!(3)];
                self.content.failures = self.dice.one_of(&failures).clone();
                self.apply().await
            }
            11 | 12 => self.force().await,
            13 | 14 => self.change_rows().await,
            15 | 16 => self.touch_child().await,
            17 | 18 => self.delete_child().await,
            19 => self.make_form_anew().await,
            20..25 => self.undo().await,
            _ => self.unpause().await,
        }
    }

    async fn apply(&self) -> Result<()> {
        let form = self.stage.form(&self.content);
        soon("apply", self.stage.fleet.apply(&form)).await?;
        Ok(())
    }

    async fn edit(&mut self) -> Result<()> {
        self.versions += 1;
        let kind = match self.dice.below(10) {
            0 => "-broken",
            1 => "-flapping",
            _ => "",
        };
        self.content.version = format!("{}{kind}", self.versions);
        self.content.delay = self.dice.below(3) as u32;
        self.content.reverts = self.dice.percent(50);
        self.apply().await
    }

    async fn revert_half_way(&mut self) -> Result<()> {
        let before = self.content.clone();
        self.edit().await?;
        tokio::time::sleep(self.dice.seconds(0, 4)).await;
        self.content = before;
        self.apply().await
    }

    /// By the command, to any revision that there is: rollouts are rarely complete before the next edit.
    async fn undo(&mut self) -> Result<()> {
        let history = self.types(&["history", "web", "-o", "json"]).await?;
        let revisions: Vec<Value> = serde_json::from_str(&history)?;
        ensure!(!revisions.is_empty(), "the form has no revisions yet");
        let number = self.dice.one_of(&revisions)["revision"].to_string();
        self.types(&["undo", "web", "--yes", "--to", &number])
            .await?;
        self.undone += 1;
        Ok(())
    }

    /// Runs a command of lynqgate, and returns what it prints.
    async fn types(&self, arguments: &[&str]) -> Result<String> {
        let cluster = &self.stage.cluster;
        let kubeconfig = cluster.kubeconfig_for(&operator::identity()).await?;
        let mut command = Command::new(operator::program("lynqgate")?);
        command.args(arguments).arg("--namespace");
        command.arg(&self.stage.fleet.namespace);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.kill_on_drop(true);
        let output = soon("lynqgate", async { Ok(command.output().await?) }).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {}", said.trim());
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Deleted by mistake: its nodes are more than the guard lets go, and wait for it. It comes back with another content.
    async fn make_form_anew(&mut self) -> Result<()> {
        let api = self.stage.fleet.api("LynqForm");
        let delete = async { Ok(api.delete("web", &DeleteParams::background()).await?) };
        soon("delete", delete).await?;
        tokio::time::sleep(self.dice.seconds(0, 6)).await;
        self.edit().await
    }

    async fn unpause(&mut self) -> Result<()> {
        self.content.paused = false;
        self.apply().await
    }

    /// Force stays for a while: whatever changes meanwhile goes live at once.
    async fn force(&mut self) -> Result<()> {
        if let Some(node) = self.forced.pop_first() {
            return self.annotate(&node, Value::Null).await;
        }
        let node = format!("t{}-web", self.a_row());
        self.forced.insert(node.clone());
        self.annotate(&node, json!("true")).await
    }

    async fn annotate(&self, node: &str, value: Value) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"lynq.sh/force-rollout": value}}});
        self.merge("LynqNode", node, patch).await
    }

    async fn merge(&self, kind: &str, name: &str, patch: Value) -> Result<()> {
        let api = self.stage.fleet.api(kind);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        soon(kind, async { Ok(api.patch(name, &params, &patch).await?) }).await?;
        Ok(())
    }

    fn a_row(&mut self) -> usize {
        let rows: Vec<usize> = self.rows.iter().copied().collect();
        *self.dice.one_of(&rows)
    }

    /// A few go, a few come back; far fewer than the guard holds.
    async fn change_rows(&mut self) -> Result<()> {
        let row = self.stage.nodes - 1 - self.dice.below(self.stage.nodes / 10);
        let active = self.rows.contains(&row);
        let statement = match (active, self.dice.percent(50)) {
            (true, true) => format!("DELETE FROM tenants WHERE id = 't{row}'"),
            (true, false) => format!("UPDATE tenants SET active = '0' WHERE id = 't{row}'"),
            (false, _) => format!(
                "REPLACE INTO tenants VALUES ('t{row}', '1', 'https://t{row}.example.com/', 'pro', NULL)"
            ),
        };
        // Without a key, REPLACE would add a second row of the name.
        if !active {
            let clear = format!("DELETE FROM tenants WHERE id = 't{row}'");
            self.stage.fleet.database.execute(&clear).await?;
        }
        self.stage.fleet.database.execute(&statement).await?;
        match active {
            true => self.rows.remove(&row),
            false => self.rows.insert(row),
        };
        Ok(())
    }

    /// Somebody else changes a field that is ours.
    async fn touch_child(&mut self) -> Result<()> {
        let row = self.a_row();
        if self.dice.percent(50) {
            let patch = json!({"data": {"version": "meddled"}});
            return self
                .merge("ConfigMap", &format!("t{row}-settings"), patch)
                .await;
        }
        let patch = json!({"spec": {"replicas": self.dice.below(3)}});
        self.merge("Deployment", &format!("t{row}-app"), patch)
            .await
    }

    async fn delete_child(&mut self) -> Result<()> {
        let row = self.a_row();
        let (kind, name) = match self.dice.percent(50) {
            true => ("ConfigMap", format!("t{row}-settings")),
            false => ("Deployment", format!("t{row}-app")),
        };
        let api = self.stage.fleet.api(kind);
        let delete = async { Ok(api.delete(&name, &DeleteParams::background()).await?) };
        soon("delete", delete).await?;
        Ok(())
    }

    /// A healthy form, and everything must come to it.
    pub async fn settle(&mut self) -> Result<()> {
        self.content = Content {
            version: "final".to_owned(),
            replicas: 1,
            delay: 1,
            max_skew: json!(10),
            ..Content::first()
        };
        let stage = self.stage.clone();
        for node in std::mem::take(&mut self.forced) {
            // The row may be gone, and the node with it.
            let _ = self.annotate(&node, Value::Null).await;
        }
        let apply = async || self.apply().await;
        wait::until(
            "the healthy form is accepted",
            Duration::from_secs(60),
            apply,
        )
        .await?;
        stage.fleet.complete(self.rows.len(), CONVERGE).await?;
        let settled = async || self.is_settled().await;
        wait::until("the children are as the form says", CONVERGE, settled).await
    }

    async fn is_settled(&self) -> Result<()> {
        let fleet = &self.stage.fleet;
        let hub = fleet.get("LynqHub", "tenants").await?;
        let slots = &hub["status"]["rollout"]["slots"];
        ensure!(*slots == json!([]), "the ledger has {slots}");
        let image = format!("registry.example.com/web:{}", self.content.version);
        let deployments = fleet.list("Deployment").await?;
        ensure!(
            deployments.len() == self.rows.len(),
            "{} Deployments",
            deployments.len()
        );
        for one in &deployments {
            let (name, spec) = (&one["metadata"]["name"], &one["spec"]);
            let is = &spec["template"]["spec"]["containers"][0]["image"];
            ensure!(*is == *image, "{name} runs {is}");
            ensure!(
                spec["replicas"] == 1,
                "{name} has {} replicas",
                spec["replicas"]
            );
            ensure!(
                one["status"]["availableReplicas"] == 1,
                "{name} is not available"
            );
        }
        let maps = fleet.list("ConfigMap").await?;
        let ours = |m: &&Value| m["metadata"]["labels"]["lynq.sh/managed"] == "true";
        let maps: Vec<&Value> = maps.iter().filter(ours).collect();
        ensure!(maps.len() == self.rows.len(), "{} ConfigMaps", maps.len());
        for one in maps {
            let (name, data) = (&one["metadata"]["name"], &one["data"]);
            ensure!(
                data["version"] == *self.content.version,
                "{name} has {data}"
            );
        }
        Ok(())
    }
}
