//! Forms that cannot be rendered: for no row, for some rows, for some resources.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bad_input::{config_map, fleet, form};
use crate::cluster::Cluster;
use crate::cluster::wait;
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON};
use crate::words::{CANARY, all, keeps_secrets};

/// A form that no row can be rendered from: its spec beside hubId and rollout.
fn invalid() -> Vec<(&'static str, Value, &'static str)> {
    let maps = |maps: Value| json!({ "configMaps": maps });
    let map = |name: &str, value: &str| maps(json!([config_map("app", name, value)]));
    let with = |id: &str, field: &str, value: Value| {
        let mut map = config_map(id, &format!("{{{{ .uid }}}}-bad-{id}"), "x");
        map[field] = value;
        map
    };
    vec![
        ("name that does not parse", map("{{ .uid", "x"), "?"),
        ("unknown function", map("{{ .uid }}-bad", "{{ nope .plan }}"), "?"),
        ("value that does not parse", map("{{ .uid }}-bad", "{{ if .plan }}x"), "?"),
        (
            "label that does not parse",
            maps(json!([with("app", "labelsTemplate", json!({"plan": "{{ }}"}))])),
            "?",
        ),
        (
            "ids that are not unique over the arrays",
            json!({
                "configMaps": [config_map("app", "{{ .uid }}-bad", "x")],
                "manifests": [config_map("app", "{{ .uid }}-bad-too", "x")],
            }),
            "?",
        ),
        (
            "unknown dependency",
            maps(json!([with("app", "dependIds", json!(["database"]))])),
            "?",
        ),
        (
            "circle of dependencies",
            maps(json!([
                with("a", "dependIds", json!(["b"])),
                with("b", "dependIds", json!(["a"])),
            ])),
            "?",
        ),
        (
            "no kind",
            maps(json!([with("app", "spec", json!({"apiVersion": "v1"}))])),
            "?",
        ),
        (
            "no apiVersion",
            maps(json!([with("app", "spec", json!({"kind": "ConfigMap"}))])),
            "?",
        ),
        (
            "no name",
            maps(json!([with("app", "nameTemplate", json!(""))])),
            "?",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_form_changes_nothing_and_says_why() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let invalid = invalid();
    let cases = invalid
        .iter()
        .map(|(name, spec, said)| (*name, break_form(cluster, operator, Some(spec), said)));
    all(cases.collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_or_hub_that_cannot_be_read_changes_nothing_and_says_why() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let (form, (hub, lost)) = tokio::join!(
        break_form(cluster, operator, None, "?"),
        async { tokio::join!(hub_without_spec(cluster), form_without_hub(cluster)) }
    );
    form?;
    hub?;
    lost
}

/// A second form works, is broken, and works again. `web` beside it does not notice.
async fn break_form(
    cluster: &Cluster,
    operator: &Operator,
    spec: Option<&Value>,
    said: &str,
) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let good = form(&fleet, "bad", &json!({"configMaps": [config_map("app", "{{ .uid }}-bad", "{{ .plan }}")]}));
    fleet.apply(&good).await?;
    let valid = ("Valid", "True", "ValidationPassed");
    fleet.says(("LynqForm", "bad"), valid, "All validations passed").await?;
    until_maps(&fleet, &["t0-app", "t0-bad", "t1-app", "t1-bad"]).await?;
    fleet.complete(2, SOON).await?;

    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    match spec {
        Some(spec) => drop(fleet.apply(&form(&fleet, "bad", spec)).await?),
        None => fleet.merge("LynqForm", "bad", &json!({"spec": null})).await?,
    }
    let invalid = ("Valid", "False", "ValidationFailed");
    fleet.says(("LynqForm", "bad"), invalid, said).await?;
    fleet.event("bad", "ValidationFailed", said).await?;
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is written or deleted"
    );
    fleet.insert(2..3).await?;
    fleet.complete(3, SOON).await?;
    fleet
        .until_names("LynqNode", &["t0-bad", "t0-web", "t1-bad", "t1-web", "t2-web"])
        .await?;

    fleet.apply(&good).await?;
    fleet.says(("LynqForm", "bad"), valid, "All validations passed").await?;
    until_maps(&fleet, &["t0-app", "t0-bad", "t1-app", "t1-bad", "t2-app", "t2-bad"]).await?;
    keeps_secrets(&[&fleet], operator).await?;
    fleet.retire().await
}

/// Until these are the operator's ConfigMaps.
async fn until_maps(fleet: &Fleet, names: &[&str]) -> Result<()> {
    let mut all = vec!["kube-root-ca.crt"];
    all.extend(names);
    all.sort();
    fleet.until_names("ConfigMap", &all).await
}

async fn hub_without_spec(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    fleet.merge("LynqHub", "tenants", &json!({"spec": null})).await?;
    let (hub, form) = (("LynqHub", "tenants"), ("LynqForm", "web"));
    fleet.says(hub, ("Ready", "False", "InvalidSpec"), "?").await?;
    fleet.event("tenants", "InvalidSpec", "?").await?;
    fleet.says(form, ("Valid", "False", "HubInvalid"), "?").await?;
    // What is held meanwhile is not released: the hub's window is not known.
    fleet.apply(&fleet.hub()).await?;
    fleet.says(form, ("Valid", "True", "ValidationPassed"), "All validations passed").await?;
    ensure!(fleet.versions(&["LynqNode", "ConfigMap"]).await? == before, "nothing is written");
    fleet.retire().await
}

async fn form_without_hub(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let mut lost = form(&fleet, "lost", &json!({"configMaps": [config_map("app", "{{ .uid }}-lost", "x")]}));
    lost["spec"]["hubId"] = json!("nowhere");
    fleet.apply(&lost).await?;
    let said = "?";
    fleet.says(("LynqForm", "lost"), ("Valid", "False", "HubNotFound"), said).await?;
    fleet.event("lost", "HubNotFound", said).await?;
    let mut hub = fleet.hub();
    hub["metadata"]["name"] = json!("nowhere");
    fleet.apply(&hub).await?;
    let valid = ("Valid", "True", "ValidationPassed");
    fleet.says(("LynqForm", "lost"), valid, "All validations passed").await?;
    until_maps(&fleet, &["t0-app", "t0-lost"]).await?;
    fleet.retire().await
}

/// A form that fails for some rows or resources.
struct Failing {
    name: &'static str,
    config_maps: Value,
    /// Of the hub.
    said: &'static str,
    /// Of the node of row `t1`; empty for a node that was not written at all.
    node: &'static str,
    /// What stands in the ConfigMap `t0-bad`, `t1-bad` and `t2-bad` at the end; the row of `t2` is new.
    values: [Option<&'static str>; 3],
}

fn failing() -> Vec<Failing> {
    const NEW: Option<&str> = Some("new");
    const OLD: Option<&str> = Some("old");
    let bad = |value: &str| json!([config_map("app", "{{ .uid }}-bad", value)]);
    vec![
        Failing {
            name: "for one row",
            config_maps: bad(r#"{{ if eq .uid "t1" }}{{ index (splitList "," .plan) 7 }}{{ end }}new"#),
            said: "?",
            node: "?",
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "for every row: an undefined variable",
            config_maps: bad("{{ .region }}new"),
            said: "?",
            node: "?",
            values: [OLD, OLD, None],
        },
        Failing {
            name: "with a row's value in the message",
            config_maps: bad(r#"{{ if eq .uid "t1" }}{{ fail (printf "no such plan: %s" .plan) }}{{ end }}new"#),
            said: "?",
            node: "?",
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "with a parsed value of a row in the message",
            config_maps: bad(
                r#"{{ if eq .uid "t1" }}{{ eq (list .plan) (dict) }}{{ end }}new"#,
            ),
            said: "?",
            node: "?",
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "an empty name",
            config_maps: json!([config_map("app", r#"{{ if ne .uid "t1" }}{{ .uid }}-bad{{ end }}"#, "new")]),
            said: "?",
            node: "?",
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "two resources of one name",
            config_maps: json!([
                config_map("app", "{{ .uid }}-bad", "new"),
                config_map("again", r#"{{ .uid }}-{{ if eq .uid "t1" }}bad{{ else }}again{{ end }}"#, "newer"),
            ]),
            said: "?",
            node: "?",
            values: [NEW, NEW, NEW],
        },
        Failing {
            name: "over 600 KiB",
            config_maps: bad(r#"{{ if eq .uid "t1" }}{{ repeat 614400 "x" }}{{ end }}new"#),
            said: "?",
            node: "",
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "without an end",
            config_maps: bad(r#"{{ if eq .uid "t1" }}{{ repeat 2000000 "x" }}{{ end }}new"#),
            said: "?",
            node: "?",
            values: [NEW, OLD, NEW],
        },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_render_fails_alone() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let failing = failing();
    let cases = failing.iter().map(|case| (case.name, fail_some(cluster, operator, case)));
    all(cases.collect()).await
}

async fn fail_some(cluster: &Cluster, operator: &Operator, case: &Failing) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let old = json!({"configMaps": [config_map("app", "{{ .uid }}-bad", "old")]});
    fleet.apply(&form(&fleet, "bad", &old)).await?;
    until_maps(&fleet, &["t0-app", "t0-bad", "t1-app", "t1-bad"]).await?;

    fleet.apply(&form(&fleet, "bad", &json!({"configMaps": case.config_maps}))).await?;
    let (hub, bad) = (("LynqHub", "tenants"), ("RenderFailed", "True", "TemplateErrors"));
    fleet.says(hub, bad, case.said).await?;
    fleet.event("tenants", "TemplateRenderFailed", case.said).await?;
    if !case.node.is_empty() {
        let degraded = ("Degraded", "True", "ResourceFailures");
        fleet.says(("LynqNode", "t1-bad"), degraded, case.node).await?;
    }
    let secret = format!("INSERT INTO tenants (id, active, plan) VALUES ('t2', '1', '{CANARY}')");
    fleet.database.execute(&secret).await?;
    wait::until("every row has what it should have", SOON, async || {
        for (row, expected) in case.values.iter().enumerate() {
            let map = fleet.get("ConfigMap", &format!("t{row}-bad")).await;
            match (map, expected) {
                (Ok(map), Some(value)) => ensure!(map["data"]["plan"] == *value, "t{row}: {}", map["data"]),
                (Err(_), None) => {}
                (found, expected) => anyhow::bail!("t{row}: {found:?}, not {expected:?}"),
            }
        }
        Ok(())
    })
    .await?;
    fleet.complete(3, SOON).await?;
    let condition = crate::tenants::condition(&fleet.get("LynqHub", "tenants").await?, "RenderFailed")
        .map(|condition| condition["status"].clone());
    ensure!(condition == Some(json!("True")), "the next sync says so still");

    fleet.apply(&form(&fleet, "bad", &old)).await?;
    fleet.says(hub, ("RenderFailed", "False", "AllRendered"), "").await?;
    until_maps(&fleet, &["t0-app", "t0-bad", "t1-app", "t1-bad", "t2-app", "t2-bad"]).await?;
    keeps_secrets(&[&fleet], operator).await?;
    fleet.retire().await
}
