//! Mutating webhooks of others that run after ours: whatever they do, what is stored is what the gate decides on it.

use anyhow::Result;
use lynqgate::decide::shared::content;
use serde_json::{Value, json};

use super::tls::{Change, OtherWebhook};
use super::*;

/// The nodes of a namespace in which such a webhook is at work.
async fn installed(
    prefix: &str,
    reinvocation: &str,
    change: Change,
) -> Result<(Nodes, OtherWebhook)> {
    let nodes = Nodes::new(prefix).await?;
    let kube = nodes.cluster.admin().await?;
    let other = OtherWebhook::install(kube, &nodes.namespace, reinvocation, change).await?;
    let probe = nodes.node("probe", json!({}));
    wait::until("the API server calls the other webhook", SOON, async || {
        let params = kube::api::PostParams {
            dry_run: true,
            ..Default::default()
        };
        let object = serde_json::from_value(probe.clone())?;
        // What the webhook makes of the probe is of no interest here.
        let _ = nodes.admin.create(&params, &object).await;
        anyhow::ensure!(other.calls() > 0, "not yet");
        Ok(())
    })
    .await?;
    Ok((nodes, other))
}

/// A patch that sets a label to another value at every call.
fn relabel(object: &Value, call: usize) -> Value {
    match object["metadata"]["labels"].is_object() {
        true => {
            json!([{"op": "add", "path": "/metadata/labels/stamp", "value": call.to_string()}])
        }
        false => {
            json!([{"op": "add", "path": "/metadata/labels", "value": {"stamp": call.to_string()}}])
        }
    }
}

/// Adds a key to the content where it is not there yet.
fn add_once(object: &Value, _: usize) -> Value {
    let data = "/spec/configMaps/0/spec/data";
    match object.pointer(data) {
        Some(data_now) if data_now["injected"].is_null() => {
            json!([{"op": "add", "path": format!("{data}/injected"), "value": "by another"}])
        }
        _ => json!([]),
    }
}

/// Changes the content at every call.
fn keep_changing(object: &Value, call: usize) -> Value {
    let data = "/spec/configMaps/0/spec/data";
    match object.pointer(data) {
        Some(_) => {
            json!([{"op": "add", "path": format!("{data}/injected"), "value": call.to_string()}])
        }
        None => json!([]),
    }
}

/// For how many of the successful writes of this node the API server called our webhook a second time.
async fn reinvocations(
    audit: &mut crate::cluster::audit::AuditLog,
    namespace: &str,
    name: &str,
) -> Result<Vec<bool>> {
    let events = audit.read().await?;
    let writes = events.iter().filter(|event| {
        event.namespace == namespace
            && event.resource == "lynqnodes"
            && event.subresource.is_empty()
            && event.is_write()
            && event.succeeded()
            && (event.name == name || event.verb == "create")
    });
    let again = |event: &crate::cluster::audit::AuditEvent| {
        let second = "mutation.webhook.admission.k8s.io/round_1_index_0";
        event.annotations[second]
            .as_str()
            .is_some_and(|webhook| webhook.contains("lynq-mutating-webhook-configuration"))
    };
    Ok(writes.map(again).collect())
}

/// Takes off what the gate has put on, or makes it false, whenever it is called; markers aside.
fn meddle(object: &Value, call: usize) -> Value {
    let mut patch = vec![];
    for name in [DESIRED, LIVE, START, HELD_SINCE, HELD_BY] {
        let path = format!("/metadata/annotations/{}", name.replace('/', "~1"));
        match object["metadata"]["annotations"][name].is_string() {
            true if call.is_multiple_of(2) => patch.push(json!({"op": "remove", "path": path})),
            true => patch.push(json!({"op": "add", "path": path, "value": "meddled"})),
            false => {}
        }
    }
    match &object["spec"]["released"] {
        Value::Null => {
            patch.push(json!({"op": "add", "path": "/spec/released", "value": {"jobs": []}}))
        }
        _ => patch.push(json!({"op": "remove", "path": "/spec/released"})),
    }
    json!(patch)
}

/// A creation, a release, an edit, a force, an ungated write, and creations that are live at once: each with all that the
/// gate leaves of it.
async fn every_decision_is_as_it_must_be(nodes: &Nodes) -> Result<()> {
    let data = |version: &str| config_map(json!({"version": version}));

    let created = nodes.create("n", data("1")).await?;
    assert_eq!(annotation(&created, LIVE), "none");
    assert_eq!(created["spec"]["released"], json!({}));

    let created = nodes.settled("n").await?;
    let release = annotate(RELEASE, release_marker(&created));
    let released = merge(&nodes.operator, "n", &release).await?;
    assert_eq!(annotation(&released, LIVE), annotation(&created, DESIRED));
    assert!(released["spec"].get("released").is_none());
    assert_ne!(annotation(&released, START), "");

    let held = merge(&nodes.admin, "n", &json!({"spec": data("2")})).await?;
    assert_eq!(annotation(&held, LIVE), annotation(&released, LIVE));
    assert_ne!(annotation(&held, DESIRED), annotation(&held, LIVE));
    assert_eq!(
        held["spec"]["released"]["configMaps"],
        released["spec"]["configMaps"]
    );
    assert_eq!(annotation(&held, START), annotation(&released, START));
    assert_eq!(annotation(&held, HELD_BY), "admin");

    let forced = merge(&nodes.admin, "n", &annotate(FORCE, "true")).await?;
    assert_eq!(annotation(&forced, LIVE), annotation(&held, DESIRED));
    assert!(annotation(&forced, START) > annotation(&released, START));
    merge(&nodes.admin, "n", &annotate(FORCE, Value::Null)).await?;

    let spec = json!({"spec": data("3")});
    let hash = content::hash(spec.get("spec"));
    // The node loop may write a status between.
    let live = wait::until("the node stands still", SOON, async || {
        let stored = nodes.get("n").await?;
        let version = &stored["metadata"]["resourceVersion"];
        let marker = format!("{hash}/{}", version.as_str().unwrap_or_default());
        let mut patch = annotate(UNGATED, marker);
        patch["metadata"]["resourceVersion"] = version.clone();
        patch["spec"] = spec["spec"].clone();
        Ok(merge(&nodes.operator, "n", &patch).await?)
    })
    .await?;
    assert_eq!(annotation(&live, LIVE), hash.as_str());
    assert_eq!(annotation(&live, DESIRED), hash.as_str());
    assert!(live["spec"].get("released").is_none());

    for (name, api, annotations) in [
        ("forced", &nodes.admin, json!({FORCE: "true"})),
        ("ungated", &nodes.operator, json!({UNGATED: hash.as_str()})),
    ] {
        let mut node = nodes.node(name, data("3"));
        node["metadata"]["annotations"] = annotations;
        let live = create(api, &node).await?;
        assert_eq!(annotation(&live, LIVE), hash.as_str(), "{name}");
        assert_eq!(annotation(&live, DESIRED), hash.as_str(), "{name}");
        assert!(live["spec"].get("released").is_none(), "{name}");
        assert_ne!(annotation(&live, START), "", "{name}");
    }
    let user = json!({"metadata": {"annotations": {UNGATED: "x"}}});
    let (code, _) = refusal(merge(&nodes.admin, "ungated", &user).await)?;
    assert_eq!(code, 403);
    Ok(())
}

/// A webhook that sets a label after the gate has decided: the gate is asked again about its own answer, and everything
/// ends as without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reinvocation_leaves_every_decision_as_it_was() -> Result<()> {
    for reinvocation in ["Never", "IfNeeded"] {
        let prefix = format!("relabel-{}", reinvocation.to_lowercase());
        let (nodes, other) = installed(&prefix, reinvocation, relabel).await?;
        let mut audit = nodes.cluster.audit().await?;
        every_decision_is_as_it_must_be(&nodes).await?;
        assert!(!nodes.get("n").await?["metadata"]["labels"]["stamp"].is_null());
        let again = reinvocations(&mut audit, &nodes.namespace, "n").await?;
        assert!(again.len() >= 9, "{again:?}");
        assert!(
            again.iter().all(|again| *again),
            "a write without reinvocation: {again:?}"
        );
        other.remove().await?;
    }
    Ok(())
}

/// A webhook that takes off the gate's annotations and `released`, or writes others: the gate, asked again, puts all of
/// it back from the stored object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_later_webhook_makes_of_the_state_is_undone() -> Result<()> {
    let (nodes, other) = installed("meddle", "Never", meddle).await?;
    every_decision_is_as_it_must_be(&nodes).await?;
    other.remove().await
}

/// A webhook that adds to the content: what it added is part of what is held, and a release of it goes through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_that_a_later_webhook_adds_is_held_with_the_rest() -> Result<()> {
    let (nodes, other) = installed("inject", "Never", add_once).await?;
    let created = nodes
        .create("n", config_map(json!({"version": "1"})))
        .await?;
    assert_true_hashes(&created);
    assert_eq!(annotation(&created, LIVE), "none");
    let data = "/spec/configMaps/0/spec/data/injected";
    assert_eq!(created.pointer(data), Some(&json!("by another")));

    let created = nodes.settled("n").await?;
    let release = annotate(RELEASE, release_marker(&created));
    let released = merge(&nodes.operator, "n", &release).await?;
    assert_true_hashes(&released);
    assert!(!is_held(&released), "{released}");

    let patch = json!({"spec": config_map(json!({"version": "2", "injected": null}))});
    let held = merge(&nodes.admin, "n", &patch).await?;
    assert_true_hashes(&held);
    assert!(is_held(&held), "{held}");
    assert_eq!(held.pointer(data), Some(&json!("by another")));
    other.remove().await
}

/// A webhook that changes the content whenever it is called, also after the gate's last word: the write is refused, and
/// nothing inconsistent is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_keeps_changing_content_is_refused() -> Result<()> {
    let (nodes, other) = installed("restless", "IfNeeded", keep_changing).await?;
    let (code, message) = refusal(nodes.create("n", config_map(json!({"version": "1"}))).await)?;
    assert_eq!(code, 403, "{message}");
    let said = "this write leaves content that the desired hash does not name";
    assert!(message.contains(said), "{message}");
    assert!(nodes.get("n").await.is_err(), "nothing is stored");

    // A node without content leaves that webhook nothing to change; given some, it is refused again.
    let empty = nodes.create("empty", json!({})).await?;
    let patch = json!({"spec": config_map(json!({"version": "1"}))});
    let (code, message) = refusal(merge(&nodes.admin, "empty", &patch).await)?;
    assert_eq!(code, 403, "{message}");
    let stored = nodes.get("empty").await?;
    assert_eq!(state(&stored), state(&empty));
    assert_eq!(stored["spec"], empty["spec"]);
    other.remove().await
}

/// The stored object is what its annotations say.
#[track_caller]
fn assert_true_hashes(object: &Value) {
    let desired = content::hash(object.get("spec"));
    assert_eq!(annotation(object, DESIRED), desired.as_str());
    if annotation(object, LIVE).starts_with("1:") {
        let released = object["spec"].get("released");
        let live = content::hash(released.or(object.get("spec")));
        assert_eq!(annotation(object, LIVE), live.as_str());
    }
}
