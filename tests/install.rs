//! What users install: the manifests on a fresh cluster, the rights they give, and what the CRDs refuse by themselves.

mod rights;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, root};
use crate::tenants::SOON;

/// Every overlay as it stands in the repository: the API server accepts each in a dry run, and the default one for real,
/// with its pods. Without an answering webhook nobody writes a LynqNode, and everything else goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_cluster_takes_every_overlay() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let kubectl = async |arguments: &[&str], input: Option<&str>| -> Result<String> {
        cluster.kubectl(arguments, input).await?.expect_success()
    };
    let mut overlays = vec![root().join("tests/install/elsewhere")];
    for entry in std::fs::read_dir(root().join("kustomize/overlays"))? {
        overlays.push(entry?.path());
    }
    assert!(overlays.len() > 2, "{overlays:?}");
    let mut operators = vec![];
    for overlay in &overlays {
        let manifests = cluster.kustomize_build(overlay).await?;
        let namespace = manifests
            .split("\n---\n")
            .find(|document| document.contains("\nkind: Namespace\n"))
            .context("an overlay makes its namespace")?;
        kubectl(&["apply", "-f", "-"], Some(namespace)).await?;
        let dry_run = ["apply", "--dry-run=server", "--output=json", "-f", "-"];
        let applied = kubectl(&dry_run, Some(&manifests)).await?;
        let applied: Value = serde_json::from_str(&applied)?;
        let mut items = applied["items"].as_array().into_iter().flatten();
        let fence = items.find(|item| item["kind"] == "ValidatingAdmissionPolicy");
        let fence = fence.context("a fence")?["spec"]["variables"].as_array();
        let mut variables = fence.into_iter().flatten();
        let operator = variables.find(|variable| variable["name"] == "operator");
        operators.push(operator.context("a variable")?["expression"].clone());
    }
    // The fence names the operator of each, in another namespace too.
    let named = |name: &str| {
        let literal = format!("system:serviceaccount:{name}:");
        json!(format!("{literal:?} == request.userInfo.username + \":\""))
    };
    let installed = named("lynq-system:lynq-controller-manager");
    assert_eq!(operators[0], named("tenancy:releaser"));
    assert!(
        operators[1..].iter().all(|o| *o == installed),
        "{operators:?}"
    );

    let default = root().join("kustomize/overlays/default");
    let directory = default.to_str().context("a path")?;
    kubectl(&["apply", "-k", directory], None).await?;
    // The pods pass the restricted level that their namespace enforces.
    let rollout = [
        "rollout",
        "status",
        "deployment/lynq-controller-manager",
        "--namespace=lynq-system",
        "--timeout=60s",
    ];
    kubectl(&rollout, None).await?;
    let again = kubectl(&["apply", "-k", directory], None).await?;
    let changed: Vec<&str> = again
        .lines()
        .filter(|line| !line.ends_with(" unchanged") && !line.ends_with(" configured"))
        .collect();
    assert!(changed.is_empty(), "{changed:?}");

    let namespace = cluster.namespace("fresh").await?;
    let object = |kind: &str, spec: Value| {
        let metadata = json!({"name": "x", "namespace": namespace});
        json!({"apiVersion": "operator.lynq.sh/v1", "kind": kind, "metadata": metadata, "spec": spec})
            .to_string()
    };
    wait::until("the CRDs are served", SOON, async || {
        kubectl(&["get", "lynqforms"], None).await
    })
    .await?;
    for object in [
        object("LynqForm", json!({"hubId": "x"})),
        object("LynqNode", json!({"uid": "x", "templateRef": "x"})),
    ] {
        let refused = cluster
            .kubectl(&["create", "-f", "-"], Some(&object))
            .await?;
        assert!(
            !refused.success && refused.stderr.contains("failed calling webhook"),
            "the webhooks fail closed: {}{}",
            refused.stdout,
            refused.stderr
        );
    }
    kubectl(&["delete", "-k", directory, "--wait=false"], None).await?;
    Ok(())
}

/// The example forms are accepted as they stand, namespace aside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_forms_are_accepted_by_a_dry_run() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let namespace = cluster.namespace("examples").await?;
    for file in std::fs::read_dir(root().join("tests/forms"))? {
        let text = std::fs::read_to_string(file?.path())?;
        let text = text.replace("namespace: tenants", &format!("namespace: {namespace}"));
        let apply = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        cluster
            .kubectl(&apply, Some(&text))
            .await?
            .expect_success()?;
    }
    Ok(())
}

fn hub(namespace: &str) -> Value {
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqHub", "metadata": {"name": "x", "namespace": namespace},
        "spec": {
            // Never read: what is tested is the schema.
            "source": {"type": "mysql", "syncInterval": "24h", "mysql": {"host": "db.invalid", "port": 3306, "username": "u", "database": "d", "table": "t"}},
            "valueMappings": {"uid": "id", "activate": "active"},
        },
    })
}

fn form(namespace: &str) -> Value {
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm", "metadata": {"name": "x", "namespace": namespace},
        "spec": {"hubId": "no-hub"},
    })
}

/// What the CRDs refuse without a webhook, each with a message that tells what would be right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crds_refuse_what_cannot_be_meant() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let namespace = cluster.namespace("schema").await?;
    let create = async |object: &Value| {
        let dry_run = ["create", "--dry-run=server", "--validate=ignore", "-f", "-"];
        cluster.kubectl(&dry_run, Some(&object.to_string())).await
    };
    let resource = |id: &str| {
        let spec = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        json!({"id": id, "nameTemplate": id, "spec": spec})
    };
    let percentage = "1% to 100%";
    for (name, path, value, said) in [
        (
            "0%",
            "/spec/rollout/maxSkew",
            json!("0%"),
            "set paused: true",
        ),
        ("101%", "/spec/rollout/maxSkew", json!("101%"), percentage),
        ("-1%", "/spec/rollout/maxSkew", json!("-1%"), percentage),
        (
            "a blank",
            "/spec/rollout/maxSkew",
            json!("10 %"),
            percentage,
        ),
        (
            "a number as text",
            "/spec/rollout/maxSkew",
            json!("3"),
            percentage,
        ),
        ("01%", "/spec/rollout/maxSkew", json!("01%"), percentage),
        (
            "-1",
            "/spec/rollout/maxSkew",
            json!(-1),
            "greater than or equal to 0",
        ),
        (
            "2^32",
            "/spec/rollout/maxSkew",
            json!(1_u64 << 32),
            "less than or equal to",
        ),
        ("a fraction", "/spec/rollout/maxSkew", json!(1.5), "maxSkew"),
        (
            "maxFailures 0",
            "/spec/rollout/maxFailures",
            json!(0),
            "greater than or equal to 1",
        ),
        (
            "maxFailures 0%",
            "/spec/rollout/maxFailures",
            json!("0%"),
            percentage,
        ),
        (
            "a short deadline",
            "/spec/rollout/progressDeadlineSeconds",
            json!(59),
            "greater than or equal to 60",
        ),
        (
            "an engine",
            "/spec/templateEngine",
            json!("Erb"),
            "supported values: \"Go\", \"Jinja\"",
        ),
        ("no hubId", "/spec/hubId", Value::Null, "spec.hubId"),
        (
            "one id twice",
            "/spec/configMaps",
            json!([resource("a"), resource("a")]),
            "Duplicate value: {\"id\":\"a\"}",
        ),
        ("no id", "/spec/configMaps", json!([{"spec": {}}]), "id"),
        (
            "a policy",
            "/spec/configMaps",
            json!([{"id": "a", "spec": {}, "conflictPolicy": "Fight"}]),
            "supported values: \"Stuck\", \"Force\"",
        ),
        (
            "a timeout",
            "/spec/configMaps",
            json!([{"id": "a", "spec": {}, "timeoutSeconds": 0}]),
            "greater than or equal to 1",
        ),
    ] {
        let mut object = form(&namespace);
        set(&mut object, path, value);
        let outcome = create(&object).await?;
        assert!(!outcome.success, "{name} is accepted");
        assert!(outcome.stderr.contains(said), "{name}: {}", outcome.stderr);
    }
    for (name, path, value, said) in [
        (
            "0%",
            "/spec/rollout/maxSkew",
            json!("0%"),
            "set paused: true",
        ),
        (
            "101% of deletions",
            "/spec/guard/maxDeletions",
            json!("101%"),
            percentage,
        ),
        (
            "an interval",
            "/spec/source/syncInterval",
            json!("1 day"),
            "spec.source.syncInterval",
        ),
        (
            "a port",
            "/spec/source/mysql/port",
            json!(65_536),
            "less than or equal to 65535",
        ),
        (
            "a source",
            "/spec/source/type",
            json!("oracle"),
            "supported values: \"mysql\"",
        ),
    ] {
        let mut object = hub(&namespace);
        set(&mut object, path, value);
        let outcome = create(&object).await?;
        assert!(!outcome.success, "{name} is accepted");
        assert!(outcome.stderr.contains(said), "{name}: {}", outcome.stderr);
    }
    for (name, path, value) in [
        ("1%", "/spec/rollout/maxSkew", json!("1%")),
        ("100%", "/spec/rollout/maxSkew", json!("100%")),
        ("0", "/spec/rollout/maxSkew", json!(0)),
        ("1000", "/spec/rollout/maxSkew", json!(1_000)),
        (
            "the same id in two arrays",
            "/spec/configMaps",
            json!([resource("a"), resource("b")]),
        ),
    ] {
        let mut object = form(&namespace);
        set(&mut object, path, value);
        let outcome = create(&object).await?;
        assert!(outcome.success, "{name}: {}", outcome.stderr);
    }
    Ok(())
}

fn set(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for token in path.split('/').skip(1) {
        place = &mut place[token];
    }
    *place = value;
}

/// A form stays with its hub: its nodes would have to go, and others come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_id_is_immutable() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let namespace = cluster.namespace("hub-id").await?;
    let mut object = form(&namespace);
    cluster
        .kubectl(&["apply", "-f", "-"], Some(&object.to_string()))
        .await?
        .expect_success()?;
    object["spec"]["hubId"] = json!("another");
    let outcome = cluster
        .kubectl(&["apply", "-f", "-"], Some(&object.to_string()))
        .await?;
    assert!(
        outcome.stderr.contains("hubId is immutable"),
        "{}",
        outcome.stderr
    );
    Ok(())
}

/// `kubectl get` by short names and by category, with the columns that tell how a rollout goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_the_kinds_by_short_names_in_columns() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let namespace = cluster.namespace("columns").await?;
    let mut node = form(&namespace);
    node["kind"] = json!("LynqNode");
    node["spec"] = json!({"uid": "acme", "templateRef": "web"});
    for object in [hub(&namespace), form(&namespace), node] {
        cluster
            .kubectl(&["apply", "-f", "-"], Some(&object.to_string()))
            .await?
            .expect_success()?;
    }
    for (what, columns) in [
        (
            "lhub",
            "NAME TEMPLATES DESIRED READY FAILED CONDITIONS RENDERFAILED DELETIONSHELD AGE",
        ),
        (
            "lform",
            "NAME HUB TOTAL READY ROLLOUT UPDATING HELD APPLIED AGE",
        ),
        (
            "lnode",
            "NAME UID FORM READY DESIRED SKIPPED CONFLICTED CONDITIONS HELD REASON SINCE AGE",
        ),
    ] {
        let table = cluster
            .kubectl(&["get", what, "--namespace", &namespace], None)
            .await?
            .expect_success()?;
        let found: Vec<&str> = table
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(found.join(" "), columns, "{what}: {table}");
    }
    for what in ["lhub,lform,lnode", "lynq"] {
        let get = ["get", what, "--namespace", &namespace, "--output=name"];
        let names = cluster.kubectl(&get, None).await?.expect_success()?;
        let found: Vec<&str> = names.lines().collect();
        let wanted = [
            "lynqhub.operator.lynq.sh/x",
            "lynqform.operator.lynq.sh/x",
            "lynqnode.operator.lynq.sh/x",
        ];
        assert!(
            found.len() == 3 && wanted.iter().all(|name| found.contains(name)),
            "{what}: {found:?}"
        );
    }
    Ok(())
}
