//! What the API server stores and nobody here can read, and kinds that it does not answer for: both must hide nothing else.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::bad_input::{config_map, fleet, form};
use crate::cluster::{Cluster, Options, etcd, wait};
use crate::operator::{self, Operator};
use crate::tenants::SOON;

/// A definition of the kind, in two versions, that keeps every field.
fn definition(kind: &str, conversion: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [version("v1", true), version("v2", false)], "conversion": conversion,
        },
    })
}

/// The API server stores what nobody here can read, and fails to answer for kinds that others have broken. After a
/// restart, when everything is listed anew, that must hide nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_hides_nothing_else() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = fleet(&cluster, 2).await?;
    let namespace = fleet.namespace.as_str();
    operator::grant(&cluster, "example.com", &["widgets", "gadgets"]).await?;
    let none = json!({"strategy": "None"});
    cluster
        .apply(&definition("Widget", &none).to_string())
        .await?;
    cluster
        .apply(&definition("Gadget", &none).to_string())
        .await?;
    let custom = |kind: &str, size: &str| {
        let id = kind.to_lowercase();
        json!({
            "id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"),
            "spec": {"apiVersion": "example.com/v2", "kind": kind, "size": size},
        })
    };
    let of = |resource: Value| json!({"manifests": [resource], "rollout": {"maxSkew": 1}});
    for kind in ["Widget", "Gadget"] {
        let form = form(&fleet, &kind.to_lowercase(), &of(custom(kind, "s")));
        fleet.apply(&form).await?;
    }
    let all_complete = async |forms: &[&str], nodes: usize| {
        wait::until("the forms are complete", 2 * SOON, async || {
            for form in forms {
                let form = fleet.get("LynqForm", form).await?;
                let generation = &form["metadata"]["generation"];
                let rollout = &form["status"]["rollout"];
                let complete =
                    rollout["phase"] == "Complete" && rollout["targetGeneration"] == *generation;
                ensure!(
                    complete && rollout["totalNodes"] == nodes,
                    "{}",
                    form["status"]
                );
            }
            Ok(())
        })
        .await
    };
    all_complete(&["widget", "gadget"], 2).await?;

    // Somebody writes into an object of ours what is nested deeper than the operator's parser goes.
    let nested = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let deep = format!("{{\"deep\":{nested}}}");
    let patch = [
        "patch",
        "widget.v1.example.com",
        "t0-widget",
        "-n",
        namespace,
        "--type=merge",
        "-p",
        &deep,
    ];
    cluster.kubectl(&patch, None).await?.expect_success()?;
    // And a form.
    let deep = form(&fleet, "deep", &of(custom("Widget", "DEEP")));
    let nests = |text: String| text.replace("\"DEEP\"", &nested);
    let refused = cluster.apply(&nests(deep.to_string())).await;
    let why = refused.err().context("it was let in")?.to_string();
    ensure!(why.contains("it is nested too deeply"), "{why}");
    etcd::store(&cluster, &deep).await?;
    let key = etcd::key_of(&deep)?;
    let mut stored = etcd::read(&cluster, &key).await?.context("not stored")?;
    stored["metadata"]["generation"] = json!(2);
    etcd::write(&cluster, &key, &nests(stored.to_string())).await?;
    let path = "jsonpath={.status.conditions[?(@.type==\"Valid\")].message}";
    let get = ["get", "lynqform", "deep", "-n", namespace, "-o", path];
    let said = "resource 'widget' is nested too deeply: spec may have 64 levels, itself included. Until this is corrected, the \
                form's nodes stay as they are";
    wait::until("the deep form says so", SOON, async || {
        let answer = cluster.kubectl(&get, None).await?.expect_success()?;
        ensure!(answer == said, "{answer}");
        Ok(())
    })
    .await?;

    // The conversion between two versions of a kind is broken: the API server answers no list of it.
    let webhook = json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}},
    });
    cluster
        .apply(&definition("Gadget", &webhook).to_string())
        .await?;
    let list = ["get", "gadgets.v2.example.com", "-A"];
    wait::until("the list fails", SOON, async || {
        let listed = cluster.kubectl(&list, None).await?;
        ensure!(!listed.success, "{}", listed.stdout);
        Ok(())
    })
    .await?;

    operator.process.kill()?;
    operator.process.start()?;
    operator.ready().await?;
    fleet
        .apply(&form(&fleet, "widget", &of(custom("Widget", "l"))))
        .await?;
    let changed = json!({
        "configMaps": [config_map("app", "{{ .uid }}-app", "changed")], "rollout": {"maxSkew": 1},
    });
    fleet.apply(&form(&fleet, "web", &changed)).await?;
    all_complete(&["web", "widget"], 2).await?;
    let size = [
        "get",
        "widget.v1.example.com",
        "t0-widget",
        "-n",
        namespace,
        "-o",
        "jsonpath={.size}",
    ];
    let size = cluster.kubectl(&size, None).await?.expect_success()?;
    ensure!(size == "l", "{size}");
    let said = "LynqNode has 1 failed resources: Gadget t0-gadget: the operator cannot watch objects of kind Gadget: storage is (re)initializing: failed to list";
    wait::until("the node says what cannot be listed", SOON, async || {
        let node = fleet.get("LynqNode", "t0-gadget").await?;
        let degraded = crate::tenants::condition(&node, "Degraded");
        let message = degraded.map_or("", |c| c["message"].as_str().unwrap_or_default());
        ensure!(message.starts_with(said), "{}", node["status"]);
        Ok(())
    })
    .await?;
    let gone = "DELETE FROM tenants WHERE id = 't1'";
    fleet.database.execute(gone).await?;
    let said = "the lynqnode stays until its objects of kind example.com/v2 Gadget are gone, which the operator cannot list: see that the API \
                server serves them, and that the operator may get, list, watch and delete them";
    wait::until("the event of what cannot be taken down", SOON, async || {
        let events = fleet.events("t1-gadget").await?;
        let told = ("CleanupPartialFailure".to_owned(), said.to_owned());
        ensure!(events.contains(&told), "{events:#?}");
        let nodes = fleet.names("LynqNode").await?;
        ensure!(!nodes.contains(&"t1-widget".to_owned()), "{nodes:?}");
        ensure!(nodes.contains(&"t1-gadget".to_owned()), "{nodes:?}");
        Ok(())
    })
    .await?;

    cluster
        .apply(&definition("Gadget", &none).to_string())
        .await?;
    fleet
        .apply(&form(&fleet, "gadget", &of(custom("Gadget", "l"))))
        .await?;
    all_complete(&["gadget"], 1).await?;
    fleet.retire().await
}
