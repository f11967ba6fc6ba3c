//! Objects that go while what they did goes on: those that a change replaces, and Jobs that have done their work.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::wait;
use crate::operator;
use crate::tenants::{Fleet, SOON, condition, deployment};

/// Each tenant's Deployment by this name, with two replicas.
fn form(fleet: &Fleet, name: &str, image: &str) -> Value {
    let mut spec = deployment(image, 0);
    spec["spec"]["replicas"] = json!(2);
    let mut form = fleet.form(image, json!(1), 0);
    form["spec"]["deployments"] = json!([{
        "id": "app", "nameTemplate": format!("{{{{ .uid }}}}-{name}"), "spec": spec,
    }]);
    form
}

/// The message of a node that waits for what cannot become ready.
async fn told(fleet: &Fleet, node: &str, words: &[&str]) -> Result<String> {
    let what = format!("{node} says {words:?}");
    wait::until(&what, SOON, async || {
        let node = fleet.get("LynqNode", node).await?;
        let ready = condition(&node, "Ready").context("Ready")?;
        let message = ready["message"].as_str().unwrap_or_default();
        ensure!(words.iter().all(|word| message.contains(word)), "{message}");
        Ok(message.to_owned())
    })
    .await
}

/// A bad rename costs nobody anything: what replaces an object is ready before the object goes. Whoever takes the rename back
/// finds what ran as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_rename_leaves_what_runs_until_its_correction_is_ready() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "renamed", 3).await?;
    fleet.apply(&form(&fleet, "api", "web:1")).await?;
    fleet.complete(3, SOON).await?;
    let before = fleet.get("Deployment", "t0-api").await?;

    fleet.apply(&form(&fleet, "api2", "web:2-broken")).await?;
    let released = std::time::Instant::now();
    let namespace = &fleet.namespace;
    let out = format!("delete it: kubectl delete deployment.apps t0-api -n {namespace}");
    let words = [
        "Deployment t0-api2: ",
        "; pod t0-api2-",
        ": container app: its image web:2-broken cannot be pulled; ",
        "lynqgate keeps Deployment t0-api, which the form no longer names, until all resources are ready",
        &out,
    ];
    let message = told(&fleet, "t0-web", &words).await?;
    println!("after {:?}: {message}", released.elapsed());
    let runs = async |name: &str| -> Result<Value> {
        let object = fleet.get("Deployment", name).await?;
        ensure!(object["status"]["availableReplicas"] == 2, "{object}");
        Ok(object)
    };
    ensure!(runs("t0-api").await?["metadata"]["uid"] == before["metadata"]["uid"]);
    fleet
        .until_names("Deployment", &["t0-api", "t0-api2", "t1-api", "t2-api"])
        .await?;

    fleet.apply(&form(&fleet, "api2", "web:2")).await?;
    fleet.complete(3, SOON).await?;
    fleet
        .until_names("Deployment", &["t0-api2", "t1-api2", "t2-api2"])
        .await?;

    let before = runs("t0-api2").await?;
    let pods_of = async |name: &str| -> Result<Vec<String>> {
        let pods = fleet.names("Pod").await?;
        Ok(pods
            .into_iter()
            .filter(|pod| pod.starts_with(name))
            .collect())
    };
    let pods = pods_of("t0-api2-").await?;
    fleet.apply(&form(&fleet, "api3", "web:3-broken")).await?;
    told(
        &fleet,
        "t0-web",
        &["; pod t0-api3-", "keeps Deployment t0-api2,"],
    )
    .await?;
    fleet.apply(&form(&fleet, "api2", "web:2")).await?;
    fleet.complete(3, SOON).await?;
    fleet
        .until_names("Deployment", &["t0-api2", "t1-api2", "t2-api2"])
        .await?;
    let after = runs("t0-api2").await?;
    for field in ["uid", "generation"] {
        let (before, after) = (&before["metadata"][field], &after["metadata"][field]);
        ensure!(before == after, "{field}: {before} became {after}");
    }
    ensure!(
        pods_of("t0-api2-").await? == pods,
        "its pods were restarted"
    );
    fleet.retire().await
}

/// A StatefulSet says nothing of the pods that it may not make.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_a_stateful_set_may_not_make_is_named_with_the_refusal() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "refused", 1).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": fleet.namespace},
        "spec": {"hard": {"pods": "0"}},
    });
    cluster.apply(&quota.to_string()).await?;
    let labels = json!({"app": "{{ .uid }}"});
    let pods = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}});
    let spec = json!({"replicas": 1, "serviceName": "db", "selector": {"matchLabels": labels}, "template": pods});
    let mut form = form(&fleet, "api", "web:1");
    form["spec"]["deployments"] = json!([]);
    form["spec"]["statefulSets"] = json!([{
        "id": "db", "nameTemplate": "{{ .uid }}-db",
        "spec": {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec},
    }]);
    wait::until("the quota is in force", SOON, async || {
        let quota = [
            "get",
            "quota",
            "none",
            "-n",
            &fleet.namespace,
            "-o=jsonpath={.status.hard.pods}",
        ];
        let said = cluster.kubectl(&quota, None).await?.expect_success()?;
        ensure!(said == "0", "{said}");
        Ok(())
    })
    .await?;
    fleet.apply(&form).await?;
    let words = [
        "StatefulSet t0-db: 0/1 ready; ",
        "pods \"t0-db-0\" is forbidden: exceeded quota: none",
    ];
    println!("{}", told(&fleet, "t0-web", &words).await?);
    fleet.retire().await
}

/// How often a Job has made its pod.
async fn runs(fleet: &Fleet, job: &str) -> Result<usize> {
    let events = fleet.events(job).await?;
    let created = events
        .iter()
        .filter(|(reason, _)| reason == "SuccessfulCreate");
    Ok(created.count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_once_for_its_content_and_once_means_once() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "jobs", 1).await?;
    let form = |app: &str, jobs: &str| {
        let job = |id: &str, policy: &str, ttl: u32| {
            let pods = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": jobs}]}});
            json!({
                "id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"), "creationPolicy": policy,
                "spec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"ttlSecondsAfterFinished": ttl, "template": pods}},
            })
        };
        let mut form = fleet.form(app, json!(1), 0);
        form["spec"]["jobs"] = json!([job("migrate", "WhenNeeded", 0), job("seed", "Once", 1)]);
        form["spec"]["deployments"][0]["dependIds"] = json!(["migrate", "seed"]);
        form
    };
    let done = async |app: &str, jobs: &str, expected: [usize; 2]| -> Result<()> {
        fleet.apply(&form(app, jobs)).await?;
        fleet.complete(1, SOON).await?;
        wait::until("the Jobs are gone", SOON, async || {
            let left = fleet.names("Job").await?;
            ensure!(left.is_empty(), "{left:?}");
            let node = fleet.get("LynqNode", "t0-web").await?;
            let status = &node["status"];
            let ready = condition(&node, "Ready").context("Ready")?;
            ensure!(
                ready["status"] == "True" && status["readyResources"] == 3,
                "{status}"
            );
            let applied = status["appliedResources"].as_array().map_or(0, Vec::len);
            ensure!(applied == 1, "{status}");
            Ok(())
        })
        .await?;
        let found = [
            runs(&fleet, "t0-migrate").await?,
            runs(&fleet, "t0-seed").await?,
        ];
        ensure!(found == expected, "{app}, {jobs}: {found:?} runs");
        Ok(())
    };
    done("web:1", "once:1", [1, 1]).await?;
    done("web:2", "once:1", [1, 1]).await?;
    done("web:2", "once:2", [2, 1]).await?;
    done("web:3", "once:2", [2, 1]).await?;
    let deployment = fleet.get("Deployment", "t0-app").await?;
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    ensure!(image == "web:3", "{image}");
    fleet.retire().await
}
