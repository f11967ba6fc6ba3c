//! A fleet under test: a namespace, a database with one row per tenant, and a hub and form over them.

#![allow(dead_code)]

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::cluster::database::{self, Database, DatabaseHandle, Product};
use crate::cluster::{Cluster, wait};

pub struct Fleet {
    pub namespace: String,
    pub client: kube::Client,
    pub database: DatabaseHandle,
}

/// Long enough for a busy machine, short enough to see what hangs.
pub const SOON: Duration = Duration::from_secs(60);

impl Fleet {
    /// `rows` tenants `t0`, `t1`, ... in a table `tenants (id, active, url, plan, image)`, and a hub over them.
    pub async fn new(cluster: &Cluster, prefix: &str, rows: usize) -> Result<Fleet> {
        Fleet::new_with(cluster, prefix, rows, "SELECT 1").await
    }

    /// The statement is executed before the hub reads the table.
    pub async fn new_with(
        cluster: &Cluster,
        prefix: &str,
        rows: usize,
        statement: &str,
    ) -> Result<Fleet> {
        let database = database::shared(Product::Mariadb).await?;
        Fleet::on(cluster, database, prefix, rows, statement).await
    }

    /// The same on a server of whatever product.
    pub async fn on(
        cluster: &Cluster,
        database: &Database,
        prefix: &str,
        rows: usize,
        statement: &str,
    ) -> Result<Fleet> {
        let namespace = cluster.namespace(prefix).await?;
        Fleet::within(cluster, database, &namespace, rows, statement).await
    }

    /// The same in a namespace that is there.
    pub async fn within(
        cluster: &Cluster,
        database: &Database,
        namespace: &str,
        rows: usize,
        statement: &str,
    ) -> Result<Fleet> {
        let database = database.create(&namespace.replace('-', "_")).await?;
        database
            .execute("CREATE TABLE tenants (id VARCHAR(80), active VARCHAR(10), url VARCHAR(200), plan VARCHAR(40), image VARCHAR(200))")
            .await?;
        let fleet = Fleet {
            namespace: namespace.to_owned(),
            client: cluster.admin().await?,
            database,
        };
        fleet.insert(0..rows).await?;
        fleet.database.execute(statement).await?;
        fleet.apply(&fleet.hub()).await?;
        fleet.apply(&fleet.password()).await?;
        Ok(fleet)
    }

    pub async fn insert(&self, rows: std::ops::Range<usize>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let values: Vec<String> = rows
            .map(|i| format!("('t{i}', '1', 'https://t{i}.example.com/', 'pro', NULL)"))
            .collect();
        self.database
            .execute(&format!("INSERT INTO tenants VALUES {}", values.join(", ")))
            .await
    }

    pub fn password(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database", "namespace": self.namespace},
            "stringData": {"password": self.database.password},
        })
    }

    pub fn hub(&self) -> Value {
        let source = self.database.product.source();
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqHub", "metadata": {"name": "tenants", "namespace": self.namespace},
            "spec": {
                "source": {"type": source, "syncInterval": "1s", source: {
                    "host": self.database.host, "port": self.database.port, "username": self.database.username,
                    "passwordRef": {"name": "database", "key": "password"}, "database": self.database.database, "table": "tenants",
                }},
                "valueMappings": {"uid": "id", "activate": "active"},
                "extraValueMappings": {"tenantUrl": "url", "plan": "plan", "image": "image"},
            },
        })
    }

    /// One Deployment a tenant, ready `delay` seconds after its pods start.
    pub fn form(&self, image: &str, max_skew: Value, delay: u32) -> Value {
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm", "metadata": {"name": "web", "namespace": self.namespace},
            "spec": {
                "hubId": "tenants",
                "rollout": {"maxSkew": max_skew, "progressDeadlineSeconds": 60},
                "deployments": [{"id": "app", "nameTemplate": "{{ .uid }}-app", "spec": deployment(image, delay)}],
            },
        })
    }

    pub async fn apply(&self, object: &Value) -> Result<Value> {
        let kind = object["kind"].as_str().context("kind")?;
        let name = object["metadata"]["name"].as_str().context("name")?;
        let params = PatchParams::apply("user").force();
        let apply = async || {
            self.api(kind)
                .patch(name, &params, &Patch::Apply(object))
                .await
        };
        let mut applied = apply().await;
        // While the API server takes up a changed definition, it does not know the path, and says so in plain text.
        let is_unknown = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.message.contains("404 page not found"));
        for _ in 0..20 {
            if !applied.as_ref().is_err_and(is_unknown) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
            applied = apply().await;
        }
        Ok(serde_json::to_value(
            applied.with_context(|| format!("apply {kind} {name}"))?,
        )?)
    }

    /// As a backup does that has no statuses.
    pub async fn lose_ledger(&self) -> Result<()> {
        let lost = Patch::Merge(json!({"status": {"rollout": null}}));
        let hubs = self.api("LynqHub");
        let params = PatchParams::default();
        hubs.patch_status("tenants", &params, &lost).await?;
        Ok(())
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        self.api_in(kind, &self.namespace)
    }

    pub fn api_in(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "LynqHub" | "LynqForm" | "LynqNode" => ("operator.lynq.sh", "v1"),
            "Deployment" | "StatefulSet" | "DaemonSet" => ("apps", "v1"),
            "Job" | "CronJob" => ("batch", "v1"),
            "PodDisruptionBudget" => ("policy", "v1"),
            "HorizontalPodAutoscaler" => ("autoscaling", "v2"),
            "Ingress" | "NetworkPolicy" => ("networking.k8s.io", "v1"),
            "PriorityClass" => ("scheduling.k8s.io", "v1"),
            _ => ("", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.client.clone();
        match namespace {
            "" => Api::all_with(client, &resource),
            namespace => Api::namespaced_with(client, namespace, &resource),
        }
    }

    pub async fn get(&self, kind: &str, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.api(kind).get(name).await?)?)
    }

    pub async fn list(&self, kind: &str) -> Result<Vec<Value>> {
        let list = self.api(kind).list(&ListParams::default()).await?;
        Ok(list
            .items
            .into_iter()
            .map(|object| serde_json::to_value(object).expect("JSON"))
            .collect())
    }

    /// Until the form's rollout is what `good` says.
    pub async fn rollout(
        &self,
        what: &str,
        deadline: Duration,
        good: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        wait::until(what, deadline, async || {
            let form = self.get("LynqForm", "web").await?;
            let current = form["status"]["observedGeneration"] == form["metadata"]["generation"];
            anyhow::ensure!(
                current && good(&form["status"]["rollout"]),
                "{}",
                form["status"]
            );
            Ok(form["status"]["rollout"].clone())
        })
        .await
    }

    /// Until every node is done, and no slot is left that would let its node go first in the next change.
    pub async fn complete(&self, nodes: usize, deadline: Duration) -> Result<Value> {
        self.rollout("the rollout is complete", deadline, |r| {
            r["phase"] == "Complete" && r["totalNodes"] == nodes && r["slots"] == 0
        })
        .await
    }

    /// Until the hub's condition is what is wanted; returns its message.
    pub async fn hub_condition(&self, type_: &str, status: &str, said: &str) -> Result<String> {
        wait::until(
            &format!("the hub's {type_} is {status} and says {said:?}"),
            SOON,
            async || {
                let hub = self.get("LynqHub", "tenants").await?;
                let condition =
                    condition(&hub, type_).with_context(|| format!("{}", hub["status"]))?;
                let message = condition["message"].as_str().unwrap_or_default();
                anyhow::ensure!(
                    condition["status"] == status && message.contains(said),
                    "{}",
                    hub["status"]
                );
                Ok(message.to_owned())
            },
        )
        .await
    }

    /// Messages of the events about an object, with their reasons.
    pub async fn events(&self, name: &str) -> Result<Vec<(String, String)>> {
        let events = self.list("Event").await?;
        let about = events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == name);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(about
            .map(|event| (text(&event["reason"]), text(&event["message"])))
            .collect())
    }
}

pub fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|c| c["type"] == type_)
}

pub fn deployment(image: &str, delay: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "{{ .uid }}"}},
            "template": {
                "metadata": {"labels": {"app": "{{ .uid }}"}},
                "spec": {"containers": [{
                    "name": "app", "image": image,
                    "readinessProbe": {"tcpSocket": {"port": 80}, "initialDelaySeconds": delay},
                }]},
            },
        },
    })
}
