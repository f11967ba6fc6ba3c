//! What an operator finds after its start: drift that nobody saw, and objects of kinds that no content names any more.

use anyhow::{Result, ensure};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::hub::{form, map, until_maps, with};
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON};

/// A kind that the operator does not know of, and may handle.
const WIDGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: widgets}
rules:
- {apiGroups: [example.com], resources: [widgets], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: widgets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: widgets}
subjects:
- {kind: ServiceAccount, name: lynq-controller-manager, namespace: lynq-system}
"#;

async fn kubectl(cluster: &Cluster, words: &[&str], input: Option<&str>) -> Result<()> {
    cluster.kubectl(words, input).await?.expect_success()?;
    Ok(())
}

async fn restarted(operator: &Operator, meanwhile: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    operator.process.kill()?;
    operator.process.ended(SOON).await?;
    meanwhile().await?;
    operator.process.start()?;
    operator.ready().await
}

/// Before the rows can be read, only the form's status tells how many nodes there should be; over any number of starts.
async fn a_node_deleted_meanwhile(cluster: &Cluster, operator: &Operator) -> Result<()> {
    let fleet = Fleet::new(cluster, "fewer", 3).await?;
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app")]))
        .await?;
    fleet.complete(3, SOON).await?;
    let rename = |from: &str, to: &str| format!("RENAME TABLE {from} TO {to}");
    restarted(operator, async || {
        fleet.database.execute(&rename("tenants", "away")).await?;
        let delete = kube::api::DeleteParams::default();
        fleet.api("LynqNode").delete("t1-web", &delete).await?;
        Ok(())
    })
    .await?;
    for again in [true, false] {
        fleet
            .rollout("one is gone", SOON, |r| r["totalNodes"] == 2)
            .await?;
        for _ in 0..40 {
            let rollout = &fleet.get("LynqForm", "web").await?["status"]["rollout"];
            ensure!(rollout["phase"] == "InProgress", "{rollout}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        if again {
            restarted(operator, async || Ok(())).await?;
        }
    }
    fleet.database.execute(&rename("away", "tenants")).await?;
    fleet.complete(3, SOON).await?;
    Ok(())
}

/// Two maps per tenant, the second of which gives way to nobody.
fn two_maps(fleet: &Fleet) -> Value {
    let taken_back = with(map("taken-back", "-back"), "conflictPolicy", "Force");
    form(fleet, "web", &[map("stuck", "-stuck"), taken_back])
}

/// It is taken back, or said; and of nodes that nobody has touched, nothing is asked.
async fn drift_made_meanwhile(cluster: &Cluster, operator: &Operator) -> Result<()> {
    let (touched, quiet) = (
        Fleet::new(cluster, "touched", 1).await?,
        Fleet::new(cluster, "quiet", 3).await?,
    );
    for (fleet, nodes) in [(&touched, 1), (&quiet, 3)] {
        fleet.apply(&two_maps(fleet)).await?;
        fleet.complete(nodes, SOON).await?;
    }
    let mut audit = cluster.audit().await?;
    restarted(operator, async || {
        let theirs = json!({"data": {"plan": "theirs"}});
        touched.merge("ConfigMap", "t0-stuck", &theirs).await?;
        touched.merge("ConfigMap", "t0-back", &theirs).await
    })
    .await?;
    until_maps(&touched, &[("t0-back", "pro"), ("t0-stuck", "theirs")]).await?;
    wait::until("the conflict is said", SOON, async || {
        let node = touched.get("LynqNode", "t0-web").await?;
        let message = crate::tenants::condition(&node, "Conflicted").map(|c| c["message"].clone());
        let message = message.unwrap_or_default().to_string();
        ensure!(
            message.contains("t0-stuck") && message.contains(".data.plan"),
            "{node}"
        );
        Ok(())
    })
    .await?;
    let user = operator::identity().username();
    let events = audit.read().await?;
    // The counters of hub and form aside.
    let asked: Vec<_> = events
        .iter()
        .filter(|e| e.user == user && e.namespace == quiet.namespace && e.is_write())
        .filter(|e| ["configmaps", "lynqnodes"].contains(&e.resource.as_str()))
        .map(|e| format!("{} {}/{}", e.verb, e.resource, e.name))
        .collect();
    ensure!(asked.is_empty(), "nothing has changed there: {asked:?}");
    touched.retire().await?;
    quiet.retire().await
}

/// While its pruning is held up no content names its kind, and the new process must find it all the same: to prune it, and
/// to delete it with its node.
async fn kinds_that_no_content_names(cluster: &Cluster, operator: &Operator) -> Result<()> {
    let fleet = Fleet::new(cluster, "kinds", 2).await?;
    let elsewhere = cluster.namespace("widgets").await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let api: Api<DynamicObject> = Api::namespaced_with(fleet.client.clone(), &elsewhere, &kind);
    let until_widgets = async |expected: &[&str]| {
        wait::until(&format!("the widgets are {expected:?}"), SOON, async || {
            let all = api.list(&ListParams::default()).await?;
            let found: Vec<_> = all
                .items
                .into_iter()
                .filter_map(|w| w.metadata.name)
                .collect();
            ensure!(found == expected, "{found:?}");
            Ok(())
        })
        .await
    };
    let widget = json!({
        "id": "widget", "nameTemplate": "{{ .uid }}-widget", "targetNamespace": elsewhere,
        "spec": {"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 1}},
    });
    let mut with_widget = form(&fleet, "web", &[map("app", "-app")]);
    with_widget["spec"]["rollout"]["maxSkew"] = json!(0);
    let mut held_up = with_widget.clone();
    let repaired = with_widget.clone();
    with_widget["spec"]["manifests"] = json!([widget]);
    fleet.apply(&with_widget).await?;
    until_widgets(&["t0-widget", "t1-widget"]).await?;
    fleet.complete(2, SOON).await?;

    let mut never = crate::tenants::deployment("broken", 0);
    never["spec"]["progressDeadlineSeconds"] = json!(600);
    held_up["spec"]["deployments"] =
        json!([{"id": "never", "nameTemplate": "{{ .uid }}-never", "spec": never}]);
    held_up["spec"]["configMaps"][0]["dependIds"] = json!(["never"]);
    held_up["spec"]["configMaps"][0]["spec"]["data"]["plan"] = json!("another");
    fleet.apply(&held_up).await?;
    wait::until("the dependency is waited for", SOON, async || {
        for node in fleet.list("LynqNode").await? {
            let applied = node["status"]["appliedResources"].to_string();
            ensure!(applied.contains("-never@never"), "{}", node["status"]);
            ensure!(applied.contains("-widget@widget"), "{}", node["status"]);
        }
        Ok(())
    })
    .await?;
    restarted(operator, async || Ok(())).await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't1'")
        .await?;
    until_widgets(&["t0-widget"]).await?;
    fleet.apply(&repaired).await?;
    until_widgets(&[]).await?;
    fleet.complete(1, SOON).await?;
    let node = fleet.get("LynqNode", "t0-web").await?;
    let kinds = &node["status"]["appliedKinds"];
    ensure!(*kinds == json!(["v1 ConfigMap"]), "{kinds}");

    // The kind itself goes, and that is what is said.
    fleet.apply(&with_widget).await?;
    until_widgets(&["t0-widget"]).await?;
    fleet.complete(1, SOON).await?;
    kubectl(cluster, &["delete", "crd", "widgets.example.com"], None).await?;
    let said = "LynqNode has 1 failed resources: Widget t0-widget: the cluster has no kind Widget in example.com/v1; install its CustomResourceDefinition, or correct apiVersion and kind";
    let degraded = ("Degraded", "True", "ResourceFailures");
    fleet.says(("LynqNode", "t0-web"), degraded, said).await?;
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_finds_what_happened_meanwhile() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    kubectl(&cluster, &["apply", "-f", "-"], Some(WIDGETS)).await?;
    let established = [
        "wait",
        "--for=condition=Established",
        "crd/widgets.example.com",
    ];
    kubectl(&cluster, &established, None).await?;
    drift_made_meanwhile(&cluster, &operator).await?;
    a_node_deleted_meanwhile(&cluster, &operator).await?;
    kinds_that_no_content_names(&cluster, &operator).await
}
