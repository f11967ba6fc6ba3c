//! What users may ask of a rollout, and what they are told, on the real control plane.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, etcd, wait};
use crate::operator;
use crate::tenants::{Fleet, SOON, condition};

const FORM: (&str, &str) = ("LynqForm", "web");

pub async fn explain(cluster: &Cluster, fleet: &Fleet, arguments: &[&str]) -> Result<String> {
    let kubeconfig = cluster.kubeconfig_for(&operator::identity()).await?;
    let output = tokio::process::Command::new(operator::program("lynqgate")?)
        .arg("explain")
        .args(arguments)
        .args(["--namespace", &fleet.namespace, "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn start(node: &Value) -> &str {
    node["metadata"]["annotations"]["lynq.sh/rollout-update-start-time"]
        .as_str()
        .unwrap_or_default()
}

/// A bad change stops at the canaries, however wide the window; the good one reaches them first. `explain` says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canaries_go_first() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let canary = "UPDATE tenants SET plan = 'canary' WHERE id = 't3'";
    let fleet = Fleet::new_with(cluster, "order", 5, canary).await?;
    let form = |image: &str| {
        let mut form = fleet.form(image, json!(5), 0);
        form["spec"]["rollout"]["order"] = json!([
            {"name": "picked", "matchLabels": {"ring": "0"}},
            {"name": "canaries", "when": "{{ eq .plan \"canary\" }}"},
        ]);
        form
    };
    fleet.apply(&form("web:1")).await?;
    fleet.complete(5, SOON).await?;
    let node = fleet.get("LynqNode", "t3-web").await?;
    ensure!(
        node["metadata"]["annotations"]["lynq.sh/rollout-group"] == "1",
        "{node}"
    );
    let labelled = json!({"metadata": {"labels": {"ring": "0"}}});
    fleet.merge("LynqNode", "t1-web", &labelled).await?;

    fleet.apply(&form("web:2-broken")).await?;
    fleet
        .rollout("the picked one is broken", SOON, |rollout| {
            rollout["updatingNodes"] == 1 && rollout["heldNodes"] == 4
        })
        .await?;
    let pods = fleet.list("Pod").await?;
    let broken = pods.iter().find(|pod| {
        let image = &pod["spec"]["containers"][0]["image"];
        pod["metadata"]["labels"]["app"] == "t1" && image == "web:2-broken"
    });
    let pod = broken.and_then(|pod| pod["metadata"]["name"].as_str());
    let pod = pod.context("the broken pod")?;
    let said = format!(
        "the group \"picked\" comes first and is not done: t1-web (Deployment t1-app: 1 of 2 pods, \
         old and new, is not available, so 1 old pod runs on; with it, 1 of 1 wanted pods available; pod {pod}: container app: its image web:2-broken cannot be pulled)"
    );
    let next = "nothing, if those nodes become ready soon and stay so for rollout.minReadySeconds (lynqgate explain node NODE); else correct the \
                form";
    let told = format!("{said}. Next: {next}");
    fleet
        .says(FORM, ("Held", "True", "GroupNotDone"), &told)
        .await?;
    let summary = "waits for an earlier group of the form's order; the form's condition Held names the group and its nodes";
    let held = ("Held", "True", "GroupNotDone");
    fleet.says(("LynqNode", "t3-web"), held, summary).await?;
    let explained = explain(cluster, &fleet, &["node", "t3-web"]).await?;
    for line in [
        &format!("lynqnode {}/t3-web", fleet.namespace),
        "  of         form web, hub tenants",
        "; what was live before runs on",
        &format!("  why        GroupNotDone: {said}"),
        &format!("  next       {next}"),
    ] {
        ensure!(explained.contains(line), "no {line:?} in\n{explained}");
    }
    let form_explained = explain(cluster, &fleet, &["form", "web", "-o", "json"]).await?;
    let form_explained: Value = serde_json::from_str(&form_explained)?;
    ensure!(
        form_explained["reason"] == "GroupNotDone"
            && form_explained["inFlight"] == json!(["t1-web"]),
        "{form_explained}"
    );

    // Another label is another place in the order, also now.
    fleet.merge("LynqNode", "t4-web", &labelled).await?;
    let both = told.replace("t1-web (Deployment", "t1-web, t4-web (t1-web: Deployment");
    fleet
        .says(FORM, ("Held", "True", "GroupNotDone"), &both)
        .await?;

    fleet.apply(&form("web:3")).await?;
    fleet.complete(5, SOON).await?;
    let nodes = fleet.list("LynqNode").await?;
    let mut order: Vec<(&str, &str)> = nodes
        .iter()
        .map(|node| {
            (
                start(node),
                node["metadata"]["name"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    order.sort();
    let mut names: Vec<&str> = order.iter().map(|(_, name)| *name).collect();
    // Both of the first group have room.
    names[..2].sort();
    ensure!(names[..3] == ["t1-web", "t4-web", "t3-web"], "{order:?}");
    fleet.retire().await
}

/// Force on the form lets everything go, although it is paused; without it the rest waits again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn force_on_a_form_lets_all_of_it_go() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "force", 4).await?;
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    fleet.complete(4, SOON).await?;
    let paused = |image: &str| {
        let mut form = fleet.form(image, json!(1), 0);
        form["spec"]["rollout"]["paused"] = json!(true);
        form
    };
    fleet.apply(&paused("web:2")).await?;
    let summary = "the rollout of form \"web\" is paused: lynqgate releases none of its nodes, not even broken ones. Next: set rollout.paused: false on the form (lynqgate resume web), or release \
                   one node with the annotation lynq.sh/force-rollout=true (lynqgate release NODE)";
    fleet
        .says(FORM, ("Held", "True", "Paused"), summary)
        .await?;
    let force =
        |value: Value| json!({"metadata": {"annotations": {"lynq.sh/force-rollout": value}}});
    fleet.merge(FORM.0, FORM.1, &force(json!("true"))).await?;
    fleet.complete(4, SOON).await?;
    fleet
        .event(
            "t0-web",
            "Forced",
            "went live at once: lynq.sh/force-rollout is on its form or hub",
        )
        .await?;
    // What comes while it is there goes at once, too.
    fleet.apply(&paused("web:3")).await?;
    fleet.complete(4, SOON).await?;
    let forgotten = "all 4 nodes run the newest content and are ready; no window applies: lynq.sh/force-rollout=true is on \
                     the form, until you remove it";
    let complete = ("RolloutComplete", "True", "Complete");
    fleet.says(FORM, complete, forgotten).await?;
    fleet.merge(FORM.0, FORM.1, &force(Value::Null)).await?;
    fleet.apply(&paused("web:4")).await?;
    fleet
        .rollout("all are held again", SOON, |rollout| {
            rollout["heldNodes"] == 4
        })
        .await?;
    fleet.retire().await
}

/// The form is not complete, and its message says so.
async fn unrendered(fleet: &Fleet, said: &str) -> Result<()> {
    wait::until("the form says what does not render", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        let complete = condition(&form, "RolloutComplete").context("RolloutComplete")?;
        let text = complete["message"].as_str().unwrap_or_default();
        ensure!(
            complete["status"] == "False" && text.contains(said),
            "{complete}"
        );
        Ok(())
    })
    .await
}

/// A form that renders for nobody is not complete, and neither is a wait for it over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_render_is_not_complete() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "unrendered", 2).await?;
    let map = |value: &str| {
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
            "metadata": {"name": "web", "namespace": fleet.namespace},
            "spec": {"hubId": "tenants", "configMaps": [{
                "id": "app", "nameTemplate": "{{ .uid }}-app",
                "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": value}},
            }]},
        })
    };
    etcd::store(cluster, &map("{{ .nosuch }}")).await?;
    let incomplete = ("RolloutComplete", "False", "InProgress");
    let said = "resources do not render: t0-web, t1-web (t0-web: ";
    unrendered(&fleet, said).await?;
    let form = fleet.get("LynqForm", "web").await?;
    ensure!(form["status"]["readyNodes"] == 0, "{}", form["status"]);

    fleet.apply(&map("{{ .plan }}")).await?;
    let complete = ("RolloutComplete", "True", "Complete");
    let said = "all 2 nodes run the newest content and are ready";
    fleet.says(FORM, complete, said).await?;
    etcd::store(cluster, &map("{{ .plan")).await?;
    let said = "the newest templates have not reached every node yet; if that lasts, see the form's condition Valid, and the \
                conditions of the hub";
    fleet.says(FORM, incomplete, said).await?;
    fleet.retire().await
}

/// What waits for a resource that does not render fills no window, no more than that one itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_skipped_because_of_a_render_error_stops_no_rollout() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "mixed", 3).await?;
    let form = |first: &str, value: &str| {
        let map = |id: &str, depends: &[&str], value: &str| {
            json!({
                "id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"), "dependIds": depends,
                "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": value}},
            })
        };
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
            "metadata": {
                "name": "web", "namespace": fleet.namespace, "annotations": {"lynq.sh/allow-render-errors": "true"},
            },
            "spec": {
                "hubId": "tenants", "rollout": {"maxSkew": 1, "progressDeadlineSeconds": 60},
                "configMaps": [
                    map("a", &[], first), map("b", &["a"], value), map("c", &["b"], value), map("d", &[], value),
                ],
            },
        })
    };
    fleet.apply(&form("old", "old")).await?;
    fleet.complete(3, SOON).await?;
    fleet.apply(&form("{{ fail \"no\" }}", "new")).await?;
    let said = "3/3 updated, 3 not ready yet, 0 held: stalled: resources do not render: t0-web, t1-web, t2-web (t0-web: ";
    unrendered(&fleet, said).await?;
    for row in ["t0", "t1", "t2"] {
        for (map, value) in [("a", "old"), ("b", "old"), ("c", "old"), ("d", "new")] {
            let map = fleet.get("ConfigMap", &format!("{row}-{map}")).await?;
            ensure!(map["data"]["value"] == value, "{map}");
        }
        let node = fleet.get("LynqNode", &format!("{row}-web")).await?;
        let status = &node["status"];
        ensure!(
            status["skippedResourceIds"] == json!(["b", "c"]),
            "{status}"
        );
        ensure!(status["readyResources"] == 1, "{status}");
    }
    let skipped = "Resource 'b' skipped because dependency 'a' failed. Set skipOnDependencyFailure=false to create anyway.";
    fleet.event("t0-web", "DependencySkipped", skipped).await?;

    fleet.apply(&form("new", "new")).await?;
    fleet.complete(3, SOON).await?;
    fleet.retire().await
}

/// A status without a rollout loses it, and is not written again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_without_a_window_has_no_rollout_in_its_status() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "plain", 2).await?;
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    fleet.complete(2, SOON).await?;
    let mut plain = fleet.form("web:1", json!(1), 0);
    plain["spec"]
        .as_object_mut()
        .context("spec")?
        .remove("rollout");
    fleet.apply(&plain).await?;
    wait::until("the status has no rollout", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        ensure!(form["status"]["rollout"].is_null(), "{}", form["status"]);
        Ok(())
    })
    .await?;
    let version = async || -> Result<Value> {
        let form = fleet.get("LynqForm", "web").await?;
        Ok(form["metadata"]["resourceVersion"].clone())
    };
    let before = version().await?;
    fleet.insert(2..3).await?;
    fleet
        .until_names("Deployment", &["t0-app", "t1-app", "t2-app"])
        .await?;
    let said = "all 3 nodes run the newest content and are ready";
    fleet
        .says(FORM, ("RolloutComplete", "True", "Complete"), said)
        .await?;
    ensure!(version().await? != before, "a third node is worth a write");
    fleet.retire().await
}

/// A hub that nobody can mean does not end the operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_interval_is_only_a_long_one() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "interval", 1).await?;
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    fleet.complete(1, SOON).await?;
    let interval = |text: &str| json!({"source": {"syncInterval": text}});
    let refused = fleet
        .change("LynqHub", "tenants", &interval("18446744073709551615s"))
        .await;
    ensure!(
        format!("{refused:?}").contains("syncInterval"),
        "{refused:?}"
    );
    fleet
        .change("LynqHub", "tenants", &interval("999999999h"))
        .await?;
    fleet.insert(1..2).await?;
    fleet.change("LynqHub", "tenants", &interval("1s")).await?;
    fleet.complete(2, SOON).await?;
    operator.process.check()?;
    fleet.retire().await
}

/// A form without a window of its own is told about all the same, and so is whoever goes past the hub's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hubs_window_and_what_goes_past_it_are_told() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "hubs", 3).await?;
    let window = json!({"rollout": {"maxSkew": 1}});
    fleet.change("LynqHub", "tenants", &window).await?;
    let form = |image: &str, rollout: Value| {
        let mut form = fleet.form(image, json!(0), 0);
        form["spec"]["rollout"] = rollout;
        form
    };
    let plain = |image: &str| {
        let mut form = form(image, Value::Null);
        let spec = form["spec"].as_object_mut();
        spec.map(|spec| spec.remove("rollout"));
        form
    };
    let counts = async |series: String| {
        wait::until(&series, SOON, async || {
            let metrics = operator.metrics().await?;
            ensure!(metrics.contains(&format!("{series}\n")), "{metrics}");
            Ok(())
        })
        .await
    };
    let namespace = &fleet.namespace;
    let forced = |n: u32| {
        format!(
            "lynqgate_released_total{{namespace=\"{namespace}\",form=\"web\",cause=\"forced\"}} {n}"
        )
    };
    fleet.apply(&plain("web:1")).await?;
    fleet.complete(3, SOON).await?;
    let started =
        "nodes with changed content are released; no maxSkew of its own, but 1 of the hub";
    fleet.event("web", "RolloutStarted", started).await?;
    counts(format!(
        "lynqgate_hub_window_nodes{{namespace=\"{namespace}\",hub=\"tenants\"}} 1"
    ))
    .await?;

    let force = json!({"metadata": {"annotations": {"lynq.sh/force-rollout": "true"}}});
    fleet.merge("LynqNode", "t0-web", &force).await?;
    fleet.apply(&plain("web:2")).await?;
    let rollout = fleet.complete(3, SOON).await?;
    ensure!(rollout["forcedNodes"] == 1, "{rollout}");
    counts(forced(1)).await?;

    let paused = json!({"maxSkew": 1, "paused": true});
    fleet.apply(&form("web:3", paused)).await?;
    let summary = "the rollout is paused; set paused: false on the form, or force this node";
    let held = ("Held", "True", "Paused");
    fleet.says(("LynqNode", "t1-web"), held, summary).await?;
    fleet.merge("LynqNode", "t1-web", &force).await?;
    counts(forced(3)).await?;
    fleet.retire().await
}

/// More may fail than the window has places: that is no failure, but somebody has to know of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_that_can_neither_go_on_nor_fail_says_so() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "stalled", 3).await?;
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    fleet.complete(3, SOON).await?;
    let mut broken = fleet.form("web:2-broken", json!(1), 0);
    broken["spec"]["rollout"]["maxFailures"] = json!(2);
    fleet.apply(&broken).await?;
    wait::until("an event RolloutStalled", 2 * SOON, async || {
        let events = fleet.events("web").await?;
        let said = events
            .iter()
            .filter(|(reason, _)| reason == "RolloutStalled");
        let said: Vec<&String> = said.map(|(_, message)| message).collect();
        let said_once =
            matches!(said[..], [message] if message.contains("stalled: the nodes that"));
        ensure!(said_once, "{events:#?}");
        Ok(())
    })
    .await?;
    let form = fleet.get("LynqForm", "web").await?;
    let complete = condition(&form, "RolloutComplete").context("RolloutComplete")?;
    ensure!(complete["reason"] == "Stalled", "{complete}");
    let rollout = &form["status"]["rollout"];
    ensure!(
        rollout["phase"] == "InProgress" && rollout["failedNodes"] == 1,
        "{rollout}"
    );
    let text = complete["message"].as_str().unwrap_or_default();
    ensure!(text.contains("; pod t0-app-"), "{text}");
    let said = ": container app: its image web:2-broken cannot be pulled). Next: correct the form, or take its change \
                back (lynqgate undo web): those nodes get that first; or repair what they wait for; or raise maxSkew";
    ensure!(text.ends_with(said), "{text}");
    let explained = explain(cluster, &fleet, &["form", "web"]).await?;
    ensure!(
        explained.contains("maxFailures (2) halts only at more failures than 1"),
        "{explained}"
    );
    fleet.apply(&fleet.form("web:3", json!(1), 0)).await?;
    fleet.complete(3, SOON).await?;
    fleet.retire().await
}
