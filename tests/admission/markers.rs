//! Releases and the markers that ask for them: the operator's alone, exact, and never taken off.

use anyhow::Result;
use serde_json::{Value, json};

use super::*;

/// Markers set by anybody but the operator are refused, and the message says how a person lets content go live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markers_of_users_are_denied_with_the_way_to_force() -> Result<()> {
    let nodes = Nodes::new("denied").await?;
    nodes
        .create_live("n", config_map(json!({"version": "1"})))
        .await?;
    let held = merge(
        &nodes.admin,
        "n",
        &json!({"spec": config_map(json!({"version": "2"}))}),
    )
    .await?;
    for (marker, value) in [
        (RELEASE, release_marker(&held)),
        (UNGATED, annotation(&held, DESIRED).to_owned()),
    ] {
        let (code, message) =
            refusal(merge(&nodes.admin, "n", &annotate(marker, value.as_str())).await)?;
        assert_eq!(code, 403, "{message}");
        let said = format!("only lynqgate itself sets {marker} (you are admin)");
        assert!(message.contains(&said), "{message}");
        let hint = format!(
            "kubectl annotate lynqnode n -n {} lynq.sh/force-rollout=true",
            nodes.namespace
        );
        assert!(message.contains(&hint), "{message}");
    }
    let mut node = nodes.node("ungated", config_map(json!({"version": "1"})));
    node["metadata"]["annotations"] = json!({UNGATED: annotation(&held, DESIRED)});
    let restored = create(&nodes.admin, &node).await?;
    assert_eq!(
        (
            annotation(&restored, LIVE),
            &restored["metadata"]["annotations"][UNGATED]
        ),
        ("none", &Value::Null),
        "restored from a backup, it is held like any other creation"
    );
    assert_eq!(state(&nodes.get("n").await?), state(&held));
    Ok(())
}

/// A release goes through only with the content and the version that it was decided on: each stale one is a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exact_a_stale_release_is_a_conflict() -> Result<()> {
    let nodes = Nodes::new("stale").await?;
    nodes
        .create_live("n", config_map(json!({"version": "1"})))
        .await?;
    let edit = |version: &str| json!({"spec": config_map(json!({"version": version}))});
    let first = merge(&nodes.admin, "n", &edit("2")).await?;
    let second = merge(&nodes.admin, "n", &edit("3")).await?;
    let mut outdated = annotate(RELEASE, release_marker(&first));
    outdated["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"].clone();
    let older_version = first["metadata"]["resourceVersion"].as_str();
    let newest = annotation(&second, DESIRED);
    for (name, patch, said) in [
        ("decided on an older object", outdated, "stale release"),
        (
            "the older object's marker",
            annotate(RELEASE, release_marker(&first)),
            "stale release",
        ),
        (
            "the newest content, an older version",
            annotate(
                RELEASE,
                format!("{newest}/{}", older_version.unwrap_or_default()),
            ),
            "stale release",
        ),
        ("no version", annotate(RELEASE, newest), "stale release"),
    ] {
        let (code, message) = refusal(merge(&nodes.operator, "n", &patch).await)?;
        assert_eq!(code, 409, "{name}: {message}");
        assert!(message.contains(said), "{name}: {message}");
        assert_eq!(state(&nodes.get("n").await?), state(&second), "{name}");
    }
    let second = nodes.settled("n").await?;
    let mut both = annotate(RELEASE, release_marker(&second));
    both["spec"] = edit("4")["spec"].clone();
    let (code, message) = refusal(merge(&nodes.operator, "n", &both).await)?;
    assert_eq!(code, 403, "{message}");
    assert!(
        message.contains("a release changes nothing but its marker"),
        "{message}"
    );

    let exact = annotate(RELEASE, release_marker(&second));
    let released = merge(&nodes.operator, "n", &exact).await?;
    assert!(!is_held(&released), "{released}");
    assert_eq!(annotation(&released, LIVE), annotation(&second, DESIRED));
    assert!(released["spec"].get("released").is_none());
    // The same marker once more is no second release, and one that is taken off is put back.
    let start = annotation(&released, START).to_owned();
    let again = merge(&nodes.operator, "n", &exact).await?;
    assert_eq!(annotation(&again, START), start);
    let put_back = merge(&nodes.admin, "n", &annotate(RELEASE, Value::Null)).await?;
    assert_eq!(state(&put_back), state(&released));
    Ok(())
}

/// `lynq.sh/force-rollout: "true"` makes what is held live at once and, while it is there, every later change; the
/// objects follow. Any other value forces nothing, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_force_annotation_lets_a_node_go_although_its_form_is_paused() -> Result<()> {
    let (cluster, fleet) = paused_fleet("force").await?;
    fleet.apply(&form(&fleet, 2, true)).await?;
    let held = until_held(&fleet, "t0-web", true).await?;
    let annotate = async |value: &str| -> Result<String> {
        let annotation = format!("lynq.sh/force-rollout={value}");
        let node = [
            "annotate",
            "--overwrite",
            "--namespace",
            &fleet.namespace,
            "lynqnode",
            "t0-web",
            &annotation,
        ];
        let annotated = cluster.kubectl(&node, None).await?;
        let said = annotated.stderr.clone();
        annotated.expect_success()?;
        Ok(said)
    };
    for value in ["yes", "True", ""] {
        let said = annotate(value).await?;
        let warning =
            format!("Warning: lynq.sh/force-rollout: only \"true\" forces; {value:?} does nothing");
        assert!(said.contains(&warning), "{value:?}: {said}");
        assert_eq!(state(&fleet.get("LynqNode", "t0-web").await?), state(&held));
    }
    let said = annotate("true").await?;
    assert!(!said.contains("Warning"), "{said}");
    for version in 2..4 {
        fleet.apply(&form(&fleet, version, true)).await?;
        let image = format!("registry.example.com/web:{version}");
        wait::until("the Deployment follows", SOON, async || {
            let deployment = fleet.get("Deployment", "t0-app").await?;
            let containers = &deployment["spec"]["template"]["spec"]["containers"];
            anyhow::ensure!(containers[0]["image"] == image, "{containers}");
            Ok(())
        })
        .await?;
    }
    let forced = fleet.get("LynqNode", "t0-web").await?;
    assert!(!is_held(&forced), "{forced}");
    let said = "lynq.sh/force-rollout is on it: its changes go live at once, past the window, until you remove it";
    fleet.event("t0-web", "Forced", said).await
}
