//! What the operator says to its users, compared word for word: conditions and events. And what it must never say.

#![allow(dead_code)]

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use kube::api::{DeleteParams, ListParams, ObjectMeta};
use serde_json::{Value, json};

use crate::cluster::wait;
use crate::operator::Operator;
use crate::tenants::{Fleet, condition};

/// Long enough for a sync of every hub under test on a busy machine, and for the events: the operator writes them last, one by one.
const HEARD: Duration = Duration::from_secs(60);

/// A value of every row under test that is in no name: it may be in objects, and nowhere else.
pub const CANARY: &str = "c4nary-va1ue";

impl Fleet {
    /// Until the object's condition is this, word for word. `{namespace}` and the like in `message` stand for the fleet's.
    pub async fn says(
        &self,
        (kind, name): (&str, &str),
        (type_, status, reason): (&str, &str, &str),
        message: &str,
    ) -> Result<()> {
        let message = self.filled(message);
        let what = format!("{kind} {name} says {type_}={status} {reason}: {message}");
        wait::until(&what, HEARD, async || {
            let object = self.get(kind, name).await?;
            let said = condition(&object, type_)
                .with_context(|| format!("no condition {type_}: {}", object["status"]))?;
            let text = |field: &str| said[field].as_str().unwrap_or_default();
            let found = (text("status"), text("reason"), text("message"));
            ensure!(
                found == (status, reason, message.as_str()),
                "{}={} {}: {}",
                type_,
                found.0,
                found.1,
                found.2
            );
            Ok(())
        })
        .await
    }

    /// Until there is this event about the object, word for word.
    pub async fn event(&self, name: &str, reason: &str, message: &str) -> Result<()> {
        let message = self.filled(message);
        let what = format!("an event {reason} about {name}: {message}");
        wait::until(&what, HEARD, async || {
            let events = self.events(name).await?;
            let found = events.iter().any(|(r, m)| r == reason && *m == message);
            ensure!(found, "{events:#?}");
            Ok(())
        })
        .await
    }

    pub fn filled(&self, text: &str) -> String {
        let database = &self.database;
        text.replace("{namespace}", &self.namespace)
            .replace("{port}", &database.port.to_string())
            .replace("{user}", &database.username)
            .replace("{database}", &database.database)
            .replace("{source}", database.product.source())
            .replace("{q}", database.product.mark())
    }

    /// Changes some fields of an object's spec.
    pub async fn change(&self, kind: &str, name: &str, spec: &Value) -> Result<()> {
        self.merge(kind, name, &json!({ "spec": spec })).await
    }

    pub async fn merge(&self, kind: &str, name: &str, patch: &Value) -> Result<()> {
        let patch = kube::api::Patch::Merge(patch);
        let params = kube::api::PatchParams::default();
        let patched = self.api(kind).patch(name, &params, &patch).await;
        patched.with_context(|| format!("patch {kind} {name}"))?;
        Ok(())
    }

    /// Name, uid and version of every object of these kinds: equal as long as nothing but a status is written.
    pub async fn versions(&self, kinds: &[&str]) -> Result<BTreeSet<[String; 4]>> {
        let mut all = BTreeSet::new();
        for kind in kinds {
            for object in self.list(kind).await? {
                let metadata = &object["metadata"];
                let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
                // A status may come late; what has a status counts the changes of the rest as generations.
                let version = match &metadata["generation"] {
                    Value::Null => text("resourceVersion"),
                    generation => generation.to_string(),
                };
                all.insert([(*kind).to_owned(), text("name"), text("uid"), version]);
            }
        }
        Ok(all)
    }

    /// Names of the objects of a kind, sorted.
    pub async fn names(&self, kind: &str) -> Result<Vec<String>> {
        let versions = self.versions(&[kind]).await?;
        Ok(versions.into_iter().map(|[_, name, ..]| name).collect())
    }

    pub async fn until_names(&self, kind: &str, names: &[&str]) -> Result<()> {
        wait::until(&format!("there are {kind}s {names:?}"), HEARD, async || {
            let found = self.names(kind).await?;
            ensure!(found == names, "{found:?}");
            Ok(())
        })
        .await
    }

    /// The last syncs of a test that is over would load the machine until the end of the run.
    pub async fn retire(&self) -> Result<()> {
        for hub in self.names("LynqHub").await? {
            let params = DeleteParams::default();
            let delete = async || self.delete_hub(&hub, &params).await;
            wait::until("the hub is deleted", HEARD, delete).await?;
        }
        Ok(())
    }

    /// Confirms that its nodes go with it.
    pub async fn delete_hub(&self, hub: &str, params: &DeleteParams) -> Result<()> {
        let of_hub = ListParams::default().labels(&format!("lynq.sh/hub={hub}"));
        let nodes = self.api("LynqNode").list_metadata(&of_hub).await?.items;
        let going = |node: &ObjectMeta| node.deletion_timestamp.is_some();
        let stays = nodes.iter().filter(|node| !going(&node.metadata));
        let count = stays.count().to_string();
        let confirmed =
            json!({"metadata": {"annotations": {"lynq.sh/confirm-hub-deletion": count}}});
        self.merge("LynqHub", hub, &confirmed).await?;
        self.api("LynqHub").delete(hub, params).await?;
        Ok(())
    }
}

/// Runs the cases side by side, and names each that went wrong.
pub async fn all<F: Future<Output = Result<()>>>(cases: Vec<(&str, F)>) -> Result<()> {
    let results = join_all(
        cases
            .into_iter()
            .map(async |(name, case)| (name, case.await)),
    )
    .await;
    let failed: Vec<String> = results
        .into_iter()
        .filter_map(|(name, result)| Some(format!("== {name}\n{:#}", result.err()?)))
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

/// No password and no value of a row stands in a condition, an event, the operator's log or its state.
pub async fn keeps_secrets(fleets: &[&Fleet], operator: &Operator) -> Result<()> {
    let log = std::fs::read_to_string(operator.process.log())?;
    ensure!(log.contains("leading"), "the log is the operator's");
    let state = operator.state().await?;
    for fleet in fleets {
        ensure!(state.contains(&fleet.namespace), "the state is the fleet's");
        let mut said = vec![
            ("the operator's log".to_owned(), log.clone()),
            ("/debug/state".to_owned(), state.clone()),
        ];
        for kind in ["LynqHub", "LynqForm", "LynqNode"] {
            for object in fleet.list(kind).await? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                said.push((
                    format!("the status of {kind} {name}"),
                    object["status"].to_string(),
                ));
            }
        }
        for event in fleet.list("Event").await? {
            said.push((
                format!("an event about {}", event["involvedObject"]["name"]),
                event["message"].to_string(),
            ));
        }
        ensure!(
            said.len() > 4,
            "{}: there is something to look at",
            fleet.namespace
        );
        for (place, text) in said {
            for secret in [CANARY, &fleet.database.password] {
                let line = text.lines().find(|line| line.contains(secret));
                ensure!(line.is_none(), "{secret} stands in {place}: {line:?}");
            }
        }
    }
    Ok(())
}
