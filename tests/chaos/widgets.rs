//! A second, small fleet, whose children are of a kind that comes and goes.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};
use crate::operator;
use crate::tenants::Fleet;

const ROWS: usize = 4;

pub struct Widgets {
    fleet: Fleet,
}

impl Widgets {
    pub async fn new(cluster: &Cluster) -> Result<Widgets> {
        operator::grant(cluster, "example.com", &["widgets"]).await?;
        set_kind(cluster, true).await?;
        let fleet = Fleet::new(cluster, "widgets", ROWS).await?;
        fleet
            .apply(&json!({
                "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
                "metadata": {"name": "web", "namespace": fleet.namespace},
                "spec": {
                    "hubId": "tenants",
                    "rollout": {"maxSkew": 1},
                    "manifests": [{
                        "id": "widget", "nameTemplate": "{{ .uid }}",
                        "spec": {"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 1}},
                    }],
                    "configMaps": [{
                        "id": "settings", "nameTemplate": "{{ .uid }}-settings",
                        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"version": "1"}},
                    }],
                },
            }))
            .await?;
        let widgets = Widgets { fleet };
        widgets.settle(cluster).await?;
        Ok(widgets)
    }

    /// Every row has its widget and its ConfigMap again.
    pub async fn settle(&self, cluster: &Cluster) -> Result<()> {
        let there = async || {
            let namespace = format!("--namespace={}", self.fleet.namespace);
            let arguments = ["get", "widgets,configmaps", "--output=json", &namespace];
            let listed = cluster.kubectl(&arguments, None).await?.expect_success()?;
            let listed: Value = serde_json::from_str(&listed)?;
            let managed = |kind: &str| {
                let items = listed["items"].as_array().into_iter().flatten();
                items
                    .filter(|o| {
                        o["kind"] == kind && o["metadata"]["labels"]["lynq.sh/managed"] == "true"
                    })
                    .count()
            };
            let (widgets, maps) = (managed("Widget"), managed("ConfigMap"));
            ensure!(
                widgets == ROWS && maps == ROWS,
                "{widgets} widgets, {maps} ConfigMaps"
            );
            Ok(())
        };
        wait::until("every row has its widget", Duration::from_secs(120), there).await
    }
}

/// Makes the kind, or deletes it with everything of it.
pub async fn set_kind(cluster: &Cluster, there: bool) -> Result<()> {
    if !there {
        let delete = ["delete", "crd", "widgets.example.com", "--wait=false"];
        cluster.kubectl(&delete, None).await?.expect_success()?;
        return Ok(());
    }
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let kind = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let made = async || {
        cluster.apply(&kind.to_string()).await?;
        let wait = [
            "wait",
            "--for=condition=Established",
            "--timeout=3s",
            "crd/widgets.example.com",
        ];
        cluster.kubectl(&wait, None).await?.expect_success()
    };
    wait::until("the kind is there", Duration::from_secs(60), made).await?;
    Ok(())
}
