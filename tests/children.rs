//! What becomes of a node's objects, and what is told of it: in Lynq's words, where Lynq's are not wrong.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::wait;
use crate::operator;
use crate::tenants::{Fleet, SOON, deployment};

fn map(id: &str, more: Value) -> Value {
    let mut resource = json!({
        "id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"),
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}"}},
    });
    let fields = resource.as_object_mut().expect("a resource");
    fields.extend(more.as_object().expect("fields").clone());
    resource
}

/// Two ConfigMaps that depend on a Deployment that is ready after `delay` seconds and may take 2 s, and one that is to stay.
fn form(fleet: &Fleet, delay: u32, maps: &[Value]) -> Value {
    let mut form = fleet.form("web:1", json!(0), 0);
    form["spec"]["deployments"] = json!([{
        "id": "app", "nameTemplate": "{{ .uid }}-app", "timeoutSeconds": 2, "spec": deployment("web:1", delay),
    }]);
    form["spec"]["configMaps"] = json!(maps);
    form
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_of_resources_is_told() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "told", 1).await?;
    let maps = [
        map("after", json!({"dependIds": ["app"]})),
        map(
            "anyway",
            json!({"dependIds": ["app"], "skipOnDependencyFailure": false}),
        ),
        map("kept", json!({"deletionPolicy": "Retain"})),
    ];
    fleet.apply(&form(&fleet, 3600, &maps)).await?;
    for (reason, text) in [
        (
            "DependencySkipped",
            "Resource 'after' skipped because dependency 'app' failed. Set skipOnDependencyFailure=false to create anyway.",
        ),
        (
            "DependencyFailedButProceeding",
            "Dependency 'app' failed, but creating resource 'anyway' anyway (skipOnDependencyFailure=false)",
        ),
        (
            "TemplateAppliedSuccess",
            "Applied 2 resources [app, kept] of LynqForm 'web'",
        ),
    ] {
        fleet.event("t0-web", reason, text).await?;
    }
    let late = async || -> Result<()> {
        let events = fleet.events("t0-web").await?;
        let late = "Resource 'app' not ready after 2s: ";
        let told = |(reason, text): &(String, String)| {
            reason == "ReadinessTimeout" && text.starts_with(late)
        };
        ensure!(events.iter().any(told), "{events:?}");
        Ok(())
    };
    wait::until("that it is late is told", SOON, late).await?;
    let node = fleet.get("LynqNode", "t0-web").await?;
    let skipped = &node["status"]["skippedResourceIds"];
    ensure!(*skipped == json!(["after"]), "{}", node["status"]);

    fleet.apply(&form(&fleet, 0, &maps)).await?;
    fleet.complete(1, SOON).await?;
    let node = fleet.get("LynqNode", "t0-web").await?;
    let skipped = &node["status"]["skippedResourceIds"];
    ensure!(skipped.is_null(), "{}", node["status"]);

    fleet.apply(&form(&fleet, 0, &maps[..2])).await?;
    let left = format!(
        "lynqnode {}/t0-web has left it behind as an orphan",
        fleet.namespace
    );
    fleet.event("t0-kept", "OrphanMarkersAdded", &left).await?;
    fleet.apply(&form(&fleet, 0, &maps)).await?;
    let again = format!(
        "it is lynqnode {}/t0-web's again, and no orphan",
        fleet.namespace
    );
    fleet
        .event("t0-kept", "OrphanMarkersRemoved", &again)
        .await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't0'")
        .await?;
    let gone = "its objects are gone, or left behind as their deletionPolicy says";
    fleet.event("t0-web", "LynqNodeDeleted", gone).await?;
    fleet.retire().await
}

/// A JSON merge patch, as Lynq's is: what a list had is replaced. And pods go with their Job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_replaces_lists_and_pods_go_with_their_job() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "merged", 1).await?;
    let with_ports = |ports: Value| {
        let service = json!({
            "id": "web", "nameTemplate": "{{ .uid }}-svc", "patchStrategy": "merge",
            "spec": {"apiVersion": "v1", "kind": "Service", "spec": {"selector": {"app": "{{ .uid }}"}, "ports": ports}},
        });
        let job = json!({
            "id": "job", "nameTemplate": "{{ .uid }}-job", "waitForReady": false,
            "spec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": "once:1"}],
            }}}},
        });
        let mut form = fleet.form("web:1", json!(0), 0);
        form["spec"]["services"] = json!([service]);
        form["spec"]["jobs"] = json!([job]);
        form
    };
    let port = |name: &str, port: u32| json!({"name": name, "port": port});
    fleet
        .apply(&with_ports(json!([port("http", 80), port("admin", 81)])))
        .await?;
    fleet.complete(1, SOON).await?;
    fleet.apply(&with_ports(json!([port("http", 82)]))).await?;
    fleet.complete(1, SOON).await?;
    let service = fleet.get("Service", "t0-svc").await?;
    let ports = service["spec"]["ports"].as_array().map_or(0, Vec::len);
    ensure!(
        ports == 1 && service["spec"]["ports"][0]["port"] == 82,
        "{service}"
    );
    let pods = async |some: bool| {
        wait::until("pods of the Job", SOON, async || {
            let pods = fleet.names("Pod").await?;
            let of_job = pods.iter().any(|name| name.starts_with("t0-job-"));
            ensure!(of_job == some, "{pods:?}");
            Ok(())
        })
        .await
    };
    pods(true).await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't0'")
        .await?;
    fleet.until_names("LynqNode", &[]).await?;
    pods(false).await?;
    fleet.retire().await
}
