//! Edits of nodes by people: held like the operator's own, and undone without a trace.

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::*;

const NODE: &str = "t0-web";
const EDITED_BY: &str = "lynq.sh/edited-by";
const EDITED_AT: &str = "lynq.sh/edited-at";
const DISCARD: &str = "lynq.sh/discard-edit";

/// Requests of the operator that wrote a child of the fleet.
fn child_writes(events: &[crate::cluster::audit::AuditEvent], namespace: &str) -> Vec<String> {
    let of_child = |event: &&crate::cluster::audit::AuditEvent| {
        event.namespace == namespace
            && event.is_write()
            && event.user == operator::identity().username()
            && event.group != "operator.lynq.sh"
            && !event.resource.contains("event")
            && event.resource != "controllerrevisions"
    };
    events
        .iter()
        .filter(of_child)
        .map(|event| format!("{} {}", event.verb, event.uri))
        .collect()
}

/// The same edit by the operator and by `kubectl edit`: the same annotations and the same `released`, the children
/// untouched, and a line that tells the user. Undone before its release, it leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_edit_is_held_exactly_like_a_write_of_the_operator() -> Result<()> {
    let (cluster, fleet) = paused_fleet("edit").await?;
    let before = fleet.get("LynqNode", NODE).await?;
    let deployment = child(&fleet, "Deployment", "t0-app").await?;
    let mut audit = cluster.audit().await?;

    fleet.apply(&form(&fleet, 2, true)).await?;
    let by_operator = until_held(&fleet, NODE, true).await?;
    fleet.apply(&form(&fleet, 1, true)).await?;
    let reverted = until_held(&fleet, NODE, false).await?;
    assert_eq!(state(&reverted), state(&before), "a revert by the operator");

    let arguments = ["lynqnode", NODE, "--namespace", &fleet.namespace];
    let edit = async |script: &str| -> Result<String> {
        let edited = cluster.kubectl_edit(&arguments, script).await?;
        let said = edited.stderr.clone();
        edited.expect_success()?;
        Ok(said)
    };
    let said = edit("sed -i s/web:1/web:2/").await?;
    assert!(
        said.contains("Warning: held: lynqnode t0-web waits, because form web is paused"),
        "{said}"
    );
    let by_user = fleet.get("LynqNode", NODE).await?;
    let (mut expected, released) = state(&by_operator);
    let (mut found, found_released) = state(&by_user);
    for annotations in [&mut expected, &mut found] {
        let since = annotations.remove(HELD_SINCE).expect("a time");
        since.parse::<jiff::Timestamp>()?;
    }
    assert_eq!(
        expected.remove(HELD_BY),
        Some(operator::identity().username())
    );
    assert_eq!(found.remove(HELD_BY).as_deref(), Some("admin"));
    assert_eq!(found, expected);
    assert_eq!(found_released, released);
    assert_eq!(by_user["spec"], by_operator["spec"]);

    let said = edit("sed -i s/web:2/web:1/").await?;
    assert!(!said.contains("held:"), "{said}");
    let reverted = fleet.get("LynqNode", NODE).await?;
    assert_eq!(state(&reverted), state(&before), "a revert by hand");

    assert_eq!(child(&fleet, "Deployment", "t0-app").await?, deployment);
    let writes = child_writes(&audit.read().await?, &fleet.namespace);
    assert!(writes.is_empty(), "{writes:?}");
    Ok(())
}

/// A PUT by a client that keeps neither annotations nor `released`, and an edit of `released` itself: the hold and the
/// live content stay as they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replace_that_drops_released_and_all_annotations_changes_nothing() -> Result<()> {
    let (cluster, fleet) = paused_fleet("replace").await?;
    fleet.apply(&form(&fleet, 2, true)).await?;
    let held = until_held(&fleet, NODE, true).await?;
    let deployment = child(&fleet, "Deployment", "t0-app").await?;

    let mut stripped = bare(&held)?;
    let metadata = stripped["metadata"].as_object_mut().expect("metadata");
    metadata.remove("annotations");
    metadata.remove("resourceVersion");
    let spec = stripped["spec"].as_object_mut().expect("a spec");
    spec.remove("released").expect("what is live");
    cluster
        .kubectl(&["replace", "-f", "-"], Some(&stripped.to_string()))
        .await?
        .expect_success()?;
    let replaced = fleet.get("LynqNode", NODE).await?;
    assert_eq!(state(&replaced), state(&held));

    let forged = json!({
        "metadata": {"annotations": {LIVE: annotation(&held, DESIRED), HELD_SINCE: null, START: "2001-01-01T00:00:00.000Z"}},
        "spec": {"released": null},
    });
    let nodes = fleet.api("LynqNode");
    let patched = merge(&nodes, NODE, &forged).await?;
    assert_eq!(state(&patched), state(&held));
    let smuggled = json!({"spec": {"released": {"deployments": held["spec"]["deployments"]}}});
    let patched = merge(&nodes, NODE, &smuggled).await?;
    assert_eq!(state(&patched), state(&held));
    assert_eq!(child(&fleet, "Deployment", "t0-app").await?, deployment);
    Ok(())
}

/// PUT, merge patch, JSON patch and server-side apply, each by another manager: content is held whichever way it
/// comes, metadata passes, and nobody's write makes the gate's fields his.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_write_goes_through_the_gate() -> Result<()> {
    let nodes = Nodes::new("ways").await?;
    let live = nodes
        .create_live("n", config_map(json!({"version": "1"})))
        .await?;
    let image = |version: &str| config_map(json!({"version": version}));

    wait::until("a PUT", SOON, async || {
        let mut put = nodes.get("n").await?;
        put["spec"]["configMaps"] = image("2")["configMaps"].clone();
        // The operator may have written the status since then, which is a conflict.
        let object = serde_json::from_value(put)?;
        let params = PostParams::default();
        Ok(nodes.admin.replace("n", &params, &object).await?)
    })
    .await?;
    let assert_held = async |way: &str, version: &str| -> Result<()> {
        let node = nodes.get("n").await?;
        let data = |spec: &Value| spec["configMaps"][0]["spec"]["data"]["version"].clone();
        assert_eq!(data(&node["spec"]), version, "{way}");
        assert_eq!(data(&node["spec"]["released"]), "1", "{way}");
        assert_eq!(annotation(&node, LIVE), annotation(&live, LIVE), "{way}");
        assert_ne!(annotation(&node, DESIRED), annotation(&live, LIVE), "{way}");
        Ok(())
    };
    assert_held("PUT", "2").await?;

    merge(&nodes.admin, "n", &json!({"spec": image("3")})).await?;
    assert_held("merge patch", "3").await?;

    let path = "/spec/configMaps/0/spec/data/version";
    let patch = serde_json::from_value(json!([{"op": "replace", "path": path, "value": "4"}]))?;
    let params = PatchParams::default();
    nodes
        .admin
        .patch("n", &params, &Patch::<()>::Json(patch))
        .await?;
    assert_held("JSON patch", "4").await?;

    let applied = nodes.node("n", image("5"));
    let apply = async |manager: &str, force: bool, object: &Value| {
        let params = PatchParams {
            force,
            ..PatchParams::apply(manager)
        };
        nodes.admin.patch("n", &params, &Patch::Apply(object)).await
    };
    let conflict = apply("alice", false, &applied).await;
    assert!(
        matches!(&conflict, Err(kube::Error::Api(status)) if status.code == 409),
        "the arrays belong to who wrote them before: {conflict:?}"
    );
    apply("alice", true, &applied).await?;
    assert_held("server-side apply", "5").await?;

    let mut labels = nodes.node("n", json!({}));
    labels["metadata"]["labels"] = json!({"team": "blue"});
    labels.as_object_mut().expect("an object").remove("spec");
    let labelled = serde_json::to_value(apply("bob", false, &labels).await?)?;
    assert_eq!(labelled["metadata"]["labels"]["team"], "blue");
    assert_held("a label", "5").await?;

    // The same apply again neither conflicts with what the webhook set nor takes it away.
    let again = serde_json::to_value(apply("alice", false, &applied).await?)?;
    assert_eq!(state(&again), state(&labelled));
    Ok(())
}

/// Which node it is cannot be edited: it would move to another form's window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uid_form_and_hub_are_immutable() -> Result<()> {
    let nodes = Nodes::new("immutable").await?;
    nodes.create("n", json!({})).await?;
    for (field, said) in [
        ("uid", "uid is immutable: it decides whose node this is"),
        (
            "templateRef",
            "templateRef is immutable: it decides whose window this node counts in",
        ),
    ] {
        let patch = json!({"spec": {field: "another"}});
        let (code, message) = refusal(merge(&nodes.admin, "n", &patch).await)?;
        assert_eq!(code, 422, "{field}: {message}");
        assert!(message.contains(said), "{field}: {message}");
    }
    // A hub may be named where none was; then it stays.
    merge(&nodes.admin, "n", &json!({"spec": {"hubId": "tenants"}})).await?;
    for hub in [json!("another"), Value::Null] {
        let patch = json!({"spec": {"hubId": hub}});
        let (code, message) = refusal(merge(&nodes.admin, "n", &patch).await)?;
        assert_eq!(code, 422, "{message}");
        assert!(message.contains("hubId is immutable"), "{message}");
    }
    Ok(())
}

/// As the hub rendered it, and nothing is left to discard.
async fn until_discarded(fleet: &Fleet) -> Result<Value> {
    wait::until("the edit is discarded", SOON, async || {
        let node = fleet.get("LynqNode", NODE).await?;
        let annotations = &node["metadata"]["annotations"];
        for name in [DISCARD, EDITED_BY, EDITED_AT] {
            anyhow::ensure!(annotations[name].is_null(), "{annotations}");
        }
        anyhow::ensure!(node["spec"]["configMaps"] == json!([]), "{}", node["spec"]);
        Ok(node)
    })
    .await
}

/// A hand edit survives the hub's syncs until somebody discards it, or something new is rendered for its row; then the rendering
/// replaces all of it, also an array that the form does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_edit_stays_until_the_next_rendering() -> Result<()> {
    let (cluster, fleet) = paused_fleet("hand").await?;
    let rendered = fleet.get("LynqNode", NODE).await?;
    let nodes = fleet.api("LynqNode");
    let added = json!({"spec": config_map(json!({"added": "by hand"}))});
    let edited = merge(&nodes, NODE, &added).await?;
    assert!(is_held(&edited));

    // A node of a row that was added later means that the hub has read its rows since.
    fleet.insert(1..2).await?;
    wait::until("the hub has synced", SOON, async || {
        Ok(nodes.get("t1-web").await?)
    })
    .await?;
    let kept = fleet.get("LynqNode", NODE).await?;
    assert_eq!(kept["spec"], edited["spec"]);
    let at = annotation(&kept, EDITED_AT);
    at.parse::<jiff::Timestamp>()?;
    let told = format!(
        "the content is not what the hub rendered: it was changed by \"admin\" at {at}. It stays so until the hub renders something new for \
         the row. To discard the change: kubectl annotate lynqnode {NODE} -n {} {DISCARD}=true",
        fleet.namespace
    );
    let is_edited = ("Edited", "True", "NotAsRendered");
    fleet.says(("LynqNode", NODE), is_edited, &told).await?;
    fleet.event(NODE, "Edited", &told).await?;
    let wide = ["get", "lynqnode", "-o", "wide", "-n", &fleet.namespace];
    let table = cluster.kubectl(&wide, None).await?.expect_success()?;
    let mut columns = vec![];
    for line in table.lines().take(2) {
        let from = table.find(" EDITED ").context("a column")?;
        columns.push(line[from..].split_whitespace().next());
    }
    assert_eq!(columns, [Some("EDITED"), Some("True")], "{table}");

    // Discarded before its release, it leaves nothing behind; discarded once it is live, it is held like any change.
    merge(&nodes, NODE, &annotate(DISCARD, "true")).await?;
    let discarded = until_discarded(&fleet).await?;
    assert_eq!(state(&discarded), state(&rendered));
    let mut forced = annotate(FORCE, "true");
    forced["spec"] = edited["spec"].clone();
    let live = merge(&nodes, NODE, &forced).await?;
    assert!(
        !is_held(&live) && annotation(&live, EDITED_BY) == "admin",
        "{live}"
    );
    wait::until("the edit is live", SOON, async || {
        fleet.get("ConfigMap", "settings").await
    })
    .await?;
    let asked = json!({"metadata": {"annotations": {FORCE: null, DISCARD: "true"}}});
    merge(&nodes, NODE, &asked).await?;
    let discarded = until_discarded(&fleet).await?;
    assert!(is_held(&discarded), "{discarded}");
    assert_eq!(
        discarded["spec"]["released"]["configMaps"],
        edited["spec"]["configMaps"]
    );
    assert_eq!(
        annotation(&discarded, HELD_BY),
        operator::identity().username()
    );
    let as_rendered = ("Edited", "False", "AsRendered");
    let told = "the content is what the hub rendered";
    fleet.says(("LynqNode", NODE), as_rendered, told).await?;

    // An apply of the operator's that changes the row's rendering, although the form is the same.
    fleet.apply(&form(&fleet, 2, true)).await?;
    let replaced = wait::until("the rendering is written", SOON, async || {
        let node = fleet.get("LynqNode", NODE).await?;
        let image = node.pointer("/spec/deployments/0/spec/spec/template/spec/containers/0/image");
        anyhow::ensure!(
            image.is_some_and(|image| image == "registry.example.com/web:2"),
            "{}",
            node["spec"]
        );
        Ok(node)
    })
    .await?;
    assert_eq!(replaced["spec"]["configMaps"], json!([]));
    for array in rendered["spec"].as_object().expect("a spec").keys() {
        assert!(!replaced["spec"][array].is_null(), "{array} is not named");
    }
    assert_eq!(
        rendered["spec"].as_object().map(serde_json::Map::len),
        Some(16 + 3),
        "all 16 arrays are named, also those without a resource"
    );
    Ok(())
}
