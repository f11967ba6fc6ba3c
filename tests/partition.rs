//! The partition gate of StatefulSets, on the real control plane.

mod alerts;
mod steps;
mod tenants;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::auditor::Auditor;
use crate::cluster::access::Outcome;
use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator, Place};
use crate::proxy::Proxy;
use crate::proxy::rules::{Action, Rule};
use crate::tenants::{Fleet, SOON, condition};
use steps::Witness;

const HELD: i64 = i32::MAX as i64;

/// A team's own, without a form.
fn stateful_set(fleet: &Fleet, replicas: u32, image: &str) -> Value {
    let labels = json!({"db": "own"});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": fleet.namespace, "labels": {"lynq.sh/partition-gate": "true"}},
        "spec": {
            "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": labels}, "podManagementPolicy": "Parallel",
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "db", "image": image}]}},
        },
    })
}

/// Without any tenant.
async fn fleet(cluster: &Cluster) -> Result<Fleet> {
    Fleet::new(cluster, "partition", 0).await
}

async fn edit(fleet: &Fleet, to: &str) -> Result<()> {
    let path = "/spec/template/spec/containers/0/image";
    let patch = json!([{"op": "replace", "path": path, "value": to}]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch)?);
    let api = fleet.api("StatefulSet");
    api.patch("db", &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn scale(cluster: &Cluster, fleet: &Fleet, replicas: u32) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    let namespace = format!("--namespace={}", fleet.namespace);
    let scale = ["scale", "statefulset/db", &replicas, &namespace];
    cluster.kubectl(&scale, None).await?.expect_success()?;
    Ok(())
}

fn annotated(name: &str, value: Value) -> Value {
    json!({"metadata": {"annotations": {name: value}}})
}

fn at(partition: i64) -> Value {
    json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}}})
}

async fn waits(fleet: &Fleet, why: &str) -> Result<()> {
    wait::until(&format!("it waits: {why}"), SOON, async || {
        let set = fleet.get("StatefulSet", "db").await?;
        let told = set["metadata"]["annotations"]["lynq.sh/partition-waits"]
            .as_str()
            .unwrap_or_default();
        ensure!(told.starts_with(why), "{told:?} at {}", partition(&set));
        Ok(())
    })
    .await
}

async fn set_ready(fleet: &Fleet, pod: &str, is: &str) -> Result<()> {
    let condition =
        json!({"type": "Ready", "status": is, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let api = fleet.api("Pod");
    api.patch_status(pod, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

fn partition(set: &Value) -> i64 {
    set["spec"]["updateStrategy"]["rollingUpdate"]["partition"]
        .as_i64()
        .unwrap_or(0)
}

/// Until nothing waits, and all pods are of the last revision.
async fn settled(fleet: &Fleet, replicas: u32) -> Result<()> {
    wait::until("the walk is over", 2 * SOON, async || {
        let set = fleet.get("StatefulSet", "db").await?;
        let status = &set["status"];
        ensure!(
            partition(&set) == 0
                && status["observedGeneration"] == set["metadata"]["generation"]
                && status["currentRevision"] == status["updateRevision"]
                && status["readyReplicas"] == replicas
                && set["metadata"]["annotations"]["lynq.sh/partition-waits"].is_null(),
            "{}: {status}",
            partition(&set)
        );
        Ok(())
    })
    .await
}

async fn reached(fleet: &Fleet, expected: i64) -> Result<()> {
    wait::until(&format!("partition {expected}"), 2 * SOON, async || {
        let set = fleet.get("StatefulSet", "db").await?;
        ensure!(
            partition(&set) == expected,
            "{}: {}",
            partition(&set),
            set["metadata"]["annotations"]
        );
        Ok(())
    })
    .await
}

async fn runs(fleet: &Fleet, pod: &str, image: &str) -> Result<()> {
    wait::until(&format!("{pod} runs {image}"), SOON, async || {
        let pod = fleet.get("Pod", pod).await?;
        ensure!(
            pod["spec"]["containers"][0]["image"] == image,
            "{}",
            pod["spec"]
        );
        ensure!(
            condition(&pod, "Ready").is_some_and(|ready| ready["status"] == "True"),
            "{}",
            pod["status"]
        );
        Ok(())
    })
    .await
}

async fn images(fleet: &Fleet) -> Result<Vec<String>> {
    let mut pods = fleet.list("Pod").await?;
    pods.sort_by_key(|pod| {
        pod["metadata"]["name"]
            .as_str()
            .map(|name| (name.len(), name.to_owned()))
    });
    let image = |pod: &Value| {
        pod["spec"]["containers"][0]["image"]
            .as_str()
            .map(str::to_owned)
    };
    pods.iter()
        .map(|pod| image(pod).context("an image"))
        .collect()
}

/// What the program prints, and its exit status.
async fn lynqgate(
    cluster: &Cluster,
    fleet: &Fleet,
    program: &Path,
    [command, kind, name]: [&str; 3],
) -> Result<(Option<i32>, String)> {
    let output = tokio::process::Command::new(program)
        .args([command, kind, "--namespace", &fleet.namespace])
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig_for(&operator::identity()).await?)
        .arg(name)
        .output()
        .await?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

/// One pod at a time through an edit half way and a pod that breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_walks_one_pod_at_a_time() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster).await?;
    fleet.apply(&stateful_set(&fleet, 5, "db:1")).await?;
    settled(&fleet, 5).await?;
    let witness = Witness::start(&fleet).await?;

    edit(&fleet, "db:2").await?;
    reached(&fleet, 3).await?;
    edit(&fleet, "db:3").await?;
    reached(&fleet, 3).await?;
    runs(&fleet, "db-3", "db:3").await?;
    // Below the partition, and not the next one.
    set_ready(&fleet, "db-0", "False").await?;
    waits(
        &fleet,
        "pod db-0 is not ready, and not the next to be updated",
    )
    .await?;
    set_ready(&fleet, "db-0", "True").await?;
    settled(&fleet, 5).await?;
    ensure!(
        images(&fleet).await? == ["db:3"; 5],
        "{:?}",
        images(&fleet).await?
    );
    let (partitions, most) = witness.judge("db")?;
    ensure!(most == 1, "{most} pods were not ready at a time");
    let held = partitions.iter().filter(|p| **p == HELD).count();
    ensure!(
        held == 2 && partitions.ends_with(&[HELD, 4, 3, 2, 1, 0]),
        "{partitions:?}"
    );
    fleet
        .event(
            "db",
            "PartitionLowered",
            "pod db-4 is updated now (partition none to 4)",
        )
        .await
}

/// Their ordinals begin at 1, and some have two digits; a person pauses the walk, scales the StatefulSet, and lets all go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_ordinals_walk_in_numeric_order_until_they_are_forced() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster).await?;
    let mut set = stateful_set(&fleet, 12, "db:1");
    set["spec"]["ordinals"] = json!({"start": 1});
    fleet.apply(&set).await?;
    settled(&fleet, 12).await?;
    let witness = Witness::start(&fleet).await?;

    edit(&fleet, "db:2").await?;
    reached(&fleet, 8).await?;
    runs(&fleet, "db-9", "db:2").await?;
    let updated = |all: &[String]| all.iter().map(|image| image == "db:2").collect::<Vec<_>>();
    let expected: Vec<bool> = (1..13).map(|ordinal| ordinal >= 9).collect();
    ensure!(
        updated(&images(&fleet).await?) == expected,
        "{:?}",
        images(&fleet).await?
    );

    fleet.merge("StatefulSet", "db", &at(9)).await?;
    waits(&fleet, "admin raised its partition; to continue, ").await?;
    ensure!(
        partition(&fleet.get("StatefulSet", "db").await?) == 9,
        "it went on"
    );
    // What is above the partition is released.
    scale(cluster, &fleet, 13).await?;
    runs(&fleet, "db-13", "db:2").await?;
    fleet.merge("StatefulSet", "db", &at(8)).await?;
    reached(&fleet, 7).await?;
    witness.judge("db")?;

    // A pause would hold the rest for ever.
    fleet.merge("StatefulSet", "db", &at(12)).await?;
    let force = annotated("lynq.sh/force-rollout", json!("true"));
    fleet.merge("StatefulSet", "db", &force).await?;
    settled(&fleet, 13).await?;
    ensure!(
        updated(&images(&fleet).await?) == [true; 13],
        "{:?}",
        images(&fleet).await?
    );
    Ok(())
}

/// What is written round the gate waits all the same, whoever writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_no_way_round_the_partition_gate() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster).await?;
    fleet.apply(&stateful_set(&fleet, 2, "db:1")).await?;
    settled(&fleet, 2).await?;
    let namespace = format!("--namespace={}", fleet.namespace);
    let kubectl = async |arguments: &[&str]| -> Result<Outcome> {
        cluster
            .kubectl(&[arguments, &[&namespace]].concat(), None)
            .await
    };
    let kubectl_with = async |arguments: &[&str], object: &Value| -> Result<Outcome> {
        cluster.kubectl(arguments, Some(&object.to_string())).await
    };
    let paused = |by: Value| annotated("lynq.sh/partition-paused-by", by);
    fleet
        .merge("StatefulSet", "db", &paused(json!("test")))
        .await?;

    // The label first, the template second.
    let told = kubectl(&["label", "statefulset/db", "lynq.sh/partition-gate-"]).await?;
    let told = told.expect_success()?;
    let set = fleet.get("StatefulSet", "db").await?;
    ensure!(
        set["metadata"]["labels"]["lynq.sh/partition-gate"] == "true",
        "{told}"
    );
    // With a partition in the manifest.
    let mut manifest = stateful_set(&fleet, 2, "db:2");
    manifest["spec"]["updateStrategy"] = json!({"rollingUpdate": {"partition": 0}});
    fleet.apply(&manifest).await?;
    let held = async |what: &str| -> Result<Value> {
        let set = fleet.get("StatefulSet", "db").await?;
        ensure!(partition(&set) == HELD, "{what}: {}", partition(&set));
        Ok(set)
    };
    held("a manifest").await?;
    // Again, when nothing else changes; and as one that writes the whole object, without the field.
    fleet.apply(&manifest).await?;
    held("the same manifest").await?;
    let mut whole = fleet.get("StatefulSet", "db").await?;
    let spec = whole["spec"].as_object_mut().context("a spec")?;
    spec.remove("updateStrategy");
    // Whatever its controller writes meanwhile.
    let metadata = whole["metadata"].as_object_mut().context("metadata")?;
    metadata.remove("resourceVersion");
    let replaced = kubectl_with(&["replace", "-f", "-"], &whole).await?;
    replaced.expect_success()?;
    let set = held("a PUT").await?;
    // As the operator, with other managers than the loop's; and as the loop, with more than a step, or too late.
    let operator = "--as=system:serviceaccount:lynq-system:lynq-controller-manager";
    let patched = async |manager: &str, patch: Value| -> Result<String> {
        let (manager, patch) = (
            format!("--field-manager={manager}"),
            format!("--patch={patch}"),
        );
        let patch = [
            "patch",
            "statefulset/db",
            operator,
            &manager,
            "--type=merge",
            &patch,
        ];
        Ok(format!("{:?}", kubectl(&patch).await?))
    };
    patched("lynq-operator", at(0)).await?;
    held("the operator").await?;
    let mut late = at(0);
    late["metadata"] = json!({"resourceVersion": set["metadata"]["resourceVersion"]});
    edit(&fleet, "db:3").await?;
    let told = patched("lynqgate-partition", late).await?;
    ensure!(told.contains("the object has been modified"), "{told}");
    let mut more = at(0);
    more["spec"]["template"] = json!({"metadata": {"annotations": {"a": "b"}}});
    patched("lynqgate-partition", more).await?;
    held("the loop").await?;
    ensure!(
        images(&fleet).await? == ["db:1"; 2],
        "{:?}",
        images(&fleet).await?
    );

    // New pods have the old revision, for nothing of the new one is released.
    scale(cluster, &fleet, 3).await?;
    runs(&fleet, "db-2", "db:1").await?;
    fleet
        .merge("StatefulSet", "db", &paused(Value::Null))
        .await?;
    settled(&fleet, 3).await?;
    ensure!(
        images(&fleet).await? == ["db:3"; 3],
        "{:?}",
        images(&fleet).await?
    );
    // Whoever wants to do without it says so; what waited goes.
    fleet
        .merge("StatefulSet", "db", &paused(json!("test")))
        .await?;
    edit(&fleet, "db:4").await?;
    kubectl(&[
        "label",
        "--overwrite",
        "statefulset/db",
        "lynq.sh/partition-gate=false",
    ])
    .await?
    .expect_success()?;
    settled(&fleet, 3).await?;
    ensure!(
        images(&fleet).await? == ["db:4"; 3],
        "{:?}",
        images(&fleet).await?
    );
    Ok(())
}

/// In order, a StatefulSet replaces no pod while one is broken. A broken target is replaced all the same, also while the whole is not
/// ready or pods are added; the other steps wait for the whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_revision_breaks_one_pod_and_its_correction_mends_it() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster).await?;
    let whole = |state: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "whole", "namespace": fleet.namespace}, "data": {"state": state}});
    fleet.apply(&whole("sick")).await?;
    let mut set = stateful_set(&fleet, 3, "db:1");
    set["spec"]["podManagementPolicy"] = json!("OrderedReady");
    let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "whole", "cel": "object.data.state == 'healthy'"});
    set["metadata"]["annotations"] = json!({"lynq.sh/partition-probe": probe.to_string()});
    fleet.apply(&set).await?;
    settled(&fleet, 3).await?;
    let witness = Witness::start(&fleet).await?;

    edit(&fleet, "db:2-broken").await?;
    waits(&fleet, "ConfigMap/").await?;
    ensure!(
        partition(&fleet.get("StatefulSet", "db").await?) == HELD,
        "it went on"
    );
    fleet.apply(&whole("healthy")).await?;
    reached(&fleet, 2).await?;
    waits(&fleet, "pod db-2 is updated and not ready").await?;
    let program = operator::program("lynqgate")?;
    let status = ["status", "statefulset", "db"];
    let (code, told) = lynqgate(cluster, &fleet, &program, status).await?;
    let namespace = &fleet.namespace;
    let why = format!(
        "pod db-2: container db: its image db:2-broken cannot be pulled; correct the pod template (kubectl apply), or take its change back \
         (kubectl rollout undo statefulset/db -n {namespace})"
    );
    let expected = format!(
        "statefulset db: progressing: partition 2\n  pods       0 of 3 updated and ready, 1 updating, 2 held, 0 failed; \
         2 of 3 ready in all\n  why        NotAvailable: the next pod waits: {why}\n"
    );
    ensure!(code == Some(1) && told == expected, "{code:?}: {told}");
    let directory = tempfile::tempdir()?;
    let for_kubectl = directory.path().join("kubectl_complete-lynqgate");
    std::os::unix::fs::symlink(&program, &for_kubectl)?;
    let (_, names) = lynqgate(cluster, &fleet, &for_kubectl, ["explain", "sts", "d"]).await?;
    ensure!(names == "db\n:4\n", "{names}");
    // The whole is sick because of it: that keeps back the next pods, not its correction.
    fleet.apply(&whole("sick")).await?;
    edit(&fleet, "db:3").await?;
    runs(&fleet, "db-2", "db:3").await?;
    waits(&fleet, "ConfigMap/").await?;
    fleet.apply(&whole("healthy")).await?;
    settled(&fleet, 3).await?;
    ensure!(
        images(&fleet).await? == ["db:3"; 3],
        "{:?}",
        images(&fleet).await?
    );
    let (_, most) = witness.judge("db")?;
    ensure!(most == 1, "{most} pods were not ready at a time");
    let why =
        "pod db-2 is deleted: it is not ready, and its StatefulSet replaces no pod before it is";
    fleet.event("db", "BrokenPodDeleted", why).await?;

    // In order, what a scale-up adds waits for the broken pod; the correction must not wait for that.
    edit(&fleet, "db:4-broken").await?;
    reached(&fleet, 2).await?;
    scale(cluster, &fleet, 5).await?;
    edit(&fleet, "db:5").await?;
    settled(&fleet, 5).await?;
    ensure!(
        images(&fleet).await? == ["db:5"; 5],
        "{:?}",
        images(&fleet).await?
    );
    let (code, told) = lynqgate(cluster, &fleet, &program, status).await?;
    let complete = told.starts_with("statefulset db: complete: no update waits\n");
    ensure!(code == Some(0) && complete, "{code:?}: {told}");
    Ok(())
}

/// Two operators that both lead, each killed once in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_two_operators_nor_their_deaths_break_a_second_pod() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    operator::install(&cluster).await?;
    let kubeconfig = cluster.kubeconfig_for(&operator::identity()).await?;
    let proxy = Proxy::start(&cluster, 1).await?;
    let behind = proxy.kubeconfig(&kubeconfig, kubeconfig.with_extension("proxy"))?;
    let first = Operator::start_at(&cluster, "first", &behind, &[]).await?;
    let url = format!("https://127.0.0.1:{}", first.webhook_port);
    let place = Place {
        kubeconfig: &kubeconfig,
        webhook_url: Some(&url),
        environment: &[],
    };
    let second = Operator::prepare(&cluster, "second", &place, &[])?;
    second.process.start()?;
    second.ready().await?;
    let fleet = fleet(&cluster).await?;
    fleet.apply(&stateful_set(&fleet, 5, "db:1")).await?;
    settled(&fleet, 5).await?;
    let witness = Witness::start(&fleet).await?;
    let auditor = Auditor::start(&["etcd", "--endpoint", &cluster.etcd_url()]).await?;

    edit(&fleet, "db:2").await?;
    for (partition, killed) in [(4, &second), (3, &first), (2, &second)] {
        reached(&fleet, partition).await?;
        killed.process.kill()?;
        killed.process.start()?;
        killed.ready().await?;
    }
    settled(&fleet, 5).await?;
    let (partitions, most) = witness.judge("db")?;
    ensure!(
        partitions.ends_with(&[HELD, 4, 3, 2, 1, 0]),
        "{partitions:?}"
    );
    ensure!(most == 1, "{most} pods were not ready at a time");
    // What the auditor finds is what is planted: a step in the loop's name, while a pod is not ready.
    let paused = annotated("lynq.sh/partition-paused-by", json!("test"));
    fleet.merge("StatefulSet", "db", &paused).await?;
    edit(&fleet, "db:3").await?;
    set_ready(&fleet, "db-0", "False").await?;
    let (namespace, step) = (
        format!("--namespace={}", fleet.namespace),
        format!("--patch={}", at(4)),
    );
    let by_the_loop = [
        "--as=system:serviceaccount:lynq-system:lynq-controller-manager",
        "--field-manager=lynqgate-partition",
    ];
    let patch = ["patch", "statefulset/db", "--type=merge", &namespace, &step];
    let patch = [&patch[..], &by_the_loop].concat();
    cluster.kubectl(&patch, None).await?.expect_success()?;
    let report = auditor.end().await?;
    let violations = &report.json["violations"];
    ensure!(
        report.status == 1 && violations.as_array().is_some_and(|all| all.len() == 1),
        "{violations:#}"
    );
    ensure!(violations[0]["rule"] == "partition", "{violations:#}");
    let what = "its partition was lowered from 2147483647 to 4 while pod 0 is not ready";
    ensure!(violations[0]["what"] == what, "{violations:#}");
    second.process.kill()?;
    a_late_step_does_not_release_an_edit(&cluster, &proxy).await
}

/// The last step reaches the API server after an edit that the operator did not know.
async fn a_late_step_does_not_release_an_edit(cluster: &Cluster, proxy: &Proxy) -> Result<()> {
    let fleet = fleet(cluster).await?;
    fleet.apply(&stateful_set(&fleet, 3, "db:1")).await?;
    settled(&fleet, 3).await?;
    let witness = Witness::start(&fleet).await?;
    let mut late = Rule::new(Action::Delay(Duration::from_secs(3))).body(r#""partition":0"#);
    late.times = 1;
    proxy.set_rules(vec![late.verbs(&["patch"]).resources(&["statefulsets"])]);
    edit(&fleet, "db:2").await?;
    wait::until("the last step is under way", SOON, async || {
        ensure!(!proxy.met().is_empty(), "not yet");
        Ok(())
    })
    .await?;
    edit(&fleet, "db:3-broken").await?;
    waits(&fleet, "pod db-2 is updated and not ready").await?;
    let all = images(&fleet).await?;
    ensure!(all == ["db:1", "db:2", "db:3-broken"], "{all:?}");
    let (partitions, _) = witness.judge("db")?;
    ensure!(
        partitions.ends_with(&[HELD, 2, 1, HELD, 2]),
        "{partitions:?}"
    );
    Ok(())
}
