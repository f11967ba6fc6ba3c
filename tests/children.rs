//! What becomes of a node's objects, and what is told of it: in Lynq's words, where Lynq's are not wrong.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use lynqgate::api::resource::ARRAYS;
use lynqgate::decide::child::Child;
use lynqgate::decide::shared::content::hash_value;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator};
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
    let text = "ConfigMap/{namespace}/t0-kept is left behind as an orphan: the live content names it no more";
    fleet
        .event("t0-web", "OrphanedResourceRetained", text)
        .await?;
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
    let text = "ConfigMap/{namespace}/t0-kept is left behind as an orphan: the lynqnode is deleted";
    fleet.event("t0-web", "ResourceRetained", text).await?;
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

/// What others have put into an object goes with a `replace`, and with that only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replace_leaves_nothing_of_others() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "replaced", 1).await?;
    let with_plan = |plan: &str| {
        let data = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": plan}});
        let maps = ["apply", "merge", "replace"].map(|strategy| {
            map(
                strategy,
                json!({"patchStrategy": strategy, "conflictPolicy": "Force", "spec": data}),
            )
        });
        form(&fleet, 0, &maps)
    };
    fleet.apply(&with_plan("small")).await?;
    fleet.complete(1, SOON).await?;
    let theirs = json!({"data": {"theirs": "yes"}, "metadata": {"annotations": {"theirs": "yes"}}});
    for strategy in ["apply", "merge", "replace"] {
        let name = format!("t0-{strategy}");
        fleet.merge("ConfigMap", &name, &theirs).await?;
    }
    fleet.apply(&with_plan("large")).await?;
    fleet.complete(1, SOON).await?;
    for (strategy, stays) in [("apply", true), ("merge", true), ("replace", false)] {
        let map = fleet.get("ConfigMap", &format!("t0-{strategy}")).await?;
        ensure!(map["data"]["plan"] == "large", "{map}");
        let found = [
            &map["data"]["theirs"],
            &map["metadata"]["annotations"]["theirs"],
        ];
        ensure!(
            found.iter().all(|value| value.is_string() == stays),
            "{map}"
        );
        ensure!(
            map["metadata"]["labels"]["lynq.sh/managed"] == "true",
            "{map}"
        );
    }
    fleet.retire().await
}

const STRATEGIES: [&str; 3] = ["apply", "merge", "replace"];

/// How often an object was applied since the operator was started.
async fn applies(operator: &Operator) -> Result<u32> {
    let metrics = operator.metrics().await?;
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("apply_attempts_total{"));
    let count = |line: &str| line.rsplit_once(' ')?.1.parse::<u32>().ok();
    Ok(lines.filter_map(count).sum())
}

/// What a `merge` or a `replace` has written is ours like what an apply names: whoever changes it, and while no operator was
/// there as well. What is as it was left costs nothing; nor does what a version wrote that did not know of those writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_taken_back_whatever_the_strategy() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "drifted", 1).await?;
    let with_plan = |plan: &str| {
        let data = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": plan}});
        let of =
            |strategy| json!({"patchStrategy": strategy, "conflictPolicy": "Force", "spec": data});
        let mut form = form(
            &fleet,
            0,
            &STRATEGIES.map(|strategy| map(strategy, of(strategy))),
        );
        // No process runs it again after it is gone.
        let pods = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "once:1"}]}});
        form["spec"]["jobs"] = json!([{
            "id": "job", "nameTemplate": "{{ .uid }}-job",
            "spec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"ttlSecondsAfterFinished": 0, "template": pods}},
        }]);
        form
    };
    fleet.apply(&with_plan("small")).await?;
    fleet.complete(1, SOON).await?;
    fleet.apply(&with_plan("large")).await?;
    fleet.complete(1, SOON).await?;
    let drift = async |plan: &str| -> Result<()> {
        for strategy in STRATEGIES {
            let patch = json!({"data": {"plan": plan}});
            let name = format!("t0-{strategy}");
            fleet.merge("ConfigMap", &name, &patch).await?;
        }
        Ok(())
    };
    let taken_back = async || {
        wait::until("what was changed is taken back", SOON, async || {
            for strategy in STRATEGIES {
                let map = fleet.get("ConfigMap", &format!("t0-{strategy}")).await?;
                ensure!(map["data"]["plan"] == "large", "{map}");
            }
            Ok(())
        })
        .await
    };
    for plan in ["evil", "worse"] {
        drift(plan).await?;
        taken_back().await?;
    }

    let no_job = async || -> Result<()> {
        let jobs = fleet.names("Job").await?;
        ensure!(jobs.is_empty(), "{jobs:?}");
        Ok(())
    };
    wait::until("the Job is gone", SOON, no_job).await?;

    operator.process.kill()?;
    drift("unseen").await?;
    operator.process.start()?;
    operator.ready().await?;
    taken_back().await?;
    let fields_told = async || -> Result<Value> {
        let node = fleet.get("LynqNode", "t0-web").await?;
        Ok(node["status"]["appliedFieldsHash"].clone())
    };

    // Two more processes: of what this one left, and of what an older version would have.
    let mut applied = BTreeMap::new();
    for (kind, id) in [("Deployment", "app")]
        .into_iter()
        .chain(STRATEGIES.map(|strategy| ("ConfigMap", strategy)))
    {
        let object = fleet.get(kind, &format!("t0-{id}")).await?;
        let hash = Child::of(&object).applied_fields_hash;
        applied.insert(id, hash.to_string());
    }
    let older = json!(hash_value(&json!(applied)));
    for is_older in [false, true] {
        fleet.complete(1, SOON).await?;
        operator.process.kill()?;
        let ours = fields_told().await?;
        ensure!(ours != older, "nothing was merged");
        if is_older {
            let status = json!({"status": {"appliedFieldsHash": older}});
            let (nodes, params) = (fleet.api("LynqNode"), PatchParams::default());
            nodes
                .patch_status("t0-web", &params, &Patch::Merge(&status))
                .await?;
        }
        operator.process.start()?;
        operator.ready().await?;
        wait::until("the node was looked at", SOON, async || {
            let metrics = operator.metrics().await?;
            let looks = "lynqnode_reconcile_duration_seconds_count{result=\"success\"} ";
            let line = metrics.lines().find_map(|line| line.strip_prefix(looks));
            let looks: u32 = line.context("no look")?.parse()?;
            ensure!(looks > 0 && fields_told().await? == ours, "not yet");
            Ok(())
        })
        .await?;
        drift("again").await?;
        taken_back().await?;
        // What is seen in an object is counted a moment later.
        let sent = wait::until("all applies are counted", SOON, async || {
            let sent = applies(&operator).await?;
            ensure!(sent >= 3, "{sent} applies");
            Ok(sent)
        })
        .await?;
        ensure!(sent == 3, "{sent} applies, older: {is_older}");
        no_job().await?;
    }
    Ok(())
}

/// Each of Lynq's arrays, with a kind that it is for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_array_makes_its_kind() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "arrays", 1).await?;
    let labels = json!({"app": "{{ .uid }}"});
    let pods = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}});
    let once = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "once:1"}]}});
    let selector = json!({"matchLabels": labels});
    let backend = json!({"service": {"name": "{{ .uid }}-services", "port": {"number": 80}}});
    let namespace = format!("{}-of-{{{{ .uid }}}}", fleet.namespace);
    let mut kinds = [
        (
            "serviceAccounts",
            "v1",
            "ServiceAccount",
            json!({"automountServiceAccountToken": false}),
        ),
        (
            "deployments",
            "apps/v1",
            "Deployment",
            deployment("web:1", 0),
        ),
        (
            "statefulSets",
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"replicas": 0, "serviceName": "db", "selector": selector, "template": pods}}),
        ),
        (
            "daemonSets",
            "apps/v1",
            "DaemonSet",
            json!({"spec": {"selector": selector, "template": pods}}),
        ),
        (
            "services",
            "v1",
            "Service",
            json!({"spec": {"selector": labels, "ports": [{"port": 80}]}}),
        ),
        (
            "ingresses",
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}}),
        ),
        (
            "configMaps",
            "v1",
            "ConfigMap",
            json!({"data": {"plan": "{{ .plan }}"}}),
        ),
        (
            "secrets",
            "v1",
            "Secret",
            json!({"stringData": {"plan": "{{ .plan }}"}}),
        ),
        (
            "persistentVolumeClaims",
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            "jobs",
            "batch/v1",
            "Job",
            json!({"spec": {"template": once}}),
        ),
        (
            "cronJobs",
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": once}}}}),
        ),
        (
            "podDisruptionBudgets",
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": 1, "selector": selector}}),
        ),
        (
            "networkPolicies",
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": selector}}),
        ),
        (
            "horizontalPodAutoscalers",
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "{{ .uid }}-deployments"}}}),
        ),
        ("namespaces", "v1", "Namespace", json!({})),
        (
            "manifests",
            "v1",
            "ConfigMap",
            json!({"data": {"of": "{{ .uid }}"}}),
        ),
    ];
    ensure!(kinds.iter().map(|kind| kind.0).eq(ARRAYS), "each of them");
    // Nothing here makes volumes, addresses or figures of use.
    let never = [
        "persistentVolumeClaims",
        "ingresses",
        "horizontalPodAutoscalers",
    ];
    // A number where its kind has a text is sent as a text.
    let mut web = deployment("web:1", 0);
    let container = &mut web["spec"]["template"]["spec"]["containers"][0];
    container["ports"] = json!([{"containerPort": "{{ 8080 | int }}"}]);
    container["env"] = json!([{"name": "PORT", "value": "{{ 8080 | int }}"}]);
    container["args"] = json!(["{{ true | bool }}", "{{ 1.5 | float }}"]);
    kinds[1].3 = web;
    let mut form = fleet.form("web:1", json!(0), 0);
    for (array, api_version, kind, mut spec) in kinds.clone() {
        (spec["apiVersion"], spec["kind"]) = (json!(api_version), json!(kind));
        let name = match kind {
            "Namespace" => namespace.clone(),
            _ => format!("{{{{ .uid }}}}-{}", array.to_lowercase()),
        };
        form["spec"][array] = json!([{
            "id": array, "nameTemplate": name, "waitForReady": !never.contains(&array), "spec": spec,
        }]);
    }
    fleet.apply(&form).await?;
    fleet.complete(1, 2 * SOON).await?;
    let web = fleet.get("Deployment", "t0-deployments").await?;
    let container = &web["spec"]["template"]["spec"]["containers"][0];
    ensure!(
        container["ports"][0]["containerPort"] == 8080
            && container["env"][0]["value"] == "8080"
            && container["args"] == json!(["true", "1.5"]),
        "{container}"
    );
    for (array, _, kind, _) in &kinds {
        let (kind, name) = (kind.to_lowercase(), format!("t0-{}", array.to_lowercase()));
        let name = match *array {
            "namespaces" => namespace.replace("{{ .uid }}", "t0"),
            _ => name,
        };
        let words = ["get", "--namespace", &fleet.namespace, &kind, &name];
        cluster.kubectl(&words, None).await?.expect_success()?;
    }
    fleet.retire().await
}
