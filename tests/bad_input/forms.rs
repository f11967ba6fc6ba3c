//! Forms that cannot be rendered: for no row, for some rows, for some resources.

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::bad_input::{config_map, fleet, form};
use crate::cluster::Cluster;
use crate::cluster::{etcd, wait};
use crate::operator::{self, Operator};
use crate::policy;
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
    let group = |when: &str| json!({"name": "canaries", "when": when});
    vec![
        (
            "two groups of one name",
            json!({
                "configMaps": [config_map("app", "{{ .uid }}-bad", "x")],
                "rollout": {"order": [group("{{ true }}"), group("{{ false }}")]},
            }),
            "rollout.order: two groups have the name \"canaries\"; give each its own",
        ),
        (
            "name that does not parse",
            map("{{ .uid", "x"),
            "template validation failed: invalid NameTemplate in resource 'app': failed to parse template: template: bad:1: unclosed action",
        ),
        (
            "unknown function",
            map("{{ .uid }}-bad", "{{ nope .plan }}"),
            "template validation failed: invalid spec.data.plan in resource 'app': failed to parse template: template: bad:1: function \"nope\" not defined",
        ),
        (
            "value that does not parse",
            map("{{ .uid }}-bad", "{{ if .plan }}x"),
            "template validation failed: invalid spec.data.plan in resource 'app': failed to parse template: template: bad:1: unexpected EOF",
        ),
        (
            "label that does not parse",
            maps(json!([with(
                "app",
                "labelsTemplate",
                json!({"plan": "{{ }}"})
            )])),
            "template validation failed: invalid LabelsTemplate[plan] in resource 'app': failed to parse template: template: bad:1: missing value for command",
        ),
        (
            "ids that are not unique over the arrays",
            json!({
                "configMaps": [config_map("app", "{{ .uid }}-bad", "x")],
                "manifests": [config_map("app", "{{ .uid }}-bad-too", "x")],
            }),
            "duplicate resource IDs found: [app]",
        ),
        (
            "a path to ignore that is none",
            maps(json!([with("app", "ignoreFields", json!(["$.data["]))])),
            "ignoreFields validation failed: invalid ignoreFields in resource 'app': invalid JSONPath \"$.data[\": at 8: it ends too early; write it like $.spec.replicas",
        ),
        (
            "unknown dependency",
            maps(json!([with("app", "dependIds", json!(["database"]))])),
            "dependency validation failed: resource 'app' depends on non-existent resource 'database'",
        ),
        (
            "circle of dependencies",
            maps(json!([
                with("a", "dependIds", json!(["b"])),
                with("b", "dependIds", json!(["a"])),
            ])),
            "dependency validation failed: circular dependency detected: a -> b -> a",
        ),
        (
            "no kind",
            maps(json!([with("app", "spec", json!({"apiVersion": "v1"}))])),
            "resource 'app' has no spec.kind; every manifest needs one",
        ),
        (
            "no apiVersion",
            maps(json!([with("app", "spec", json!({"kind": "ConfigMap"}))])),
            "resource 'app' has no spec.apiVersion; every manifest needs one",
        ),
        (
            "no name",
            maps(json!([with("app", "nameTemplate", json!(""))])),
            "resource 'app' has no nameTemplate or spec.metadata.name; every manifest needs one",
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
    let (form, (hub, lost)) = tokio::join!(break_form(cluster, operator, None, NO_SPEC), async {
        tokio::join!(hub_without_spec(cluster), form_without_hub(cluster))
    });
    form?;
    hub?;
    lost
}

const NO_SPEC: &str = "the object has no spec; add one, or delete the object";

/// A second form works, is broken, and works again. `web` beside it does not notice. The webhook refuses to break it; what
/// is stored all the same is told in its status.
async fn break_form(
    cluster: &Cluster,
    operator: &Operator,
    spec: Option<&Value>,
    said: &str,
) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let good = form(
        &fleet,
        "bad",
        &json!({"configMaps": [config_map("app", "{{ .uid }}-bad", "{{ .plan }}")]}),
    );
    fleet.apply(&good).await?;
    let valid = ("Valid", "True", "ValidationPassed");
    fleet
        .says(("LynqForm", "bad"), valid, "All validations passed")
        .await?;
    until_maps(&fleet, &["t0-app", "t0-bad", "t1-app", "t1-bad"]).await?;
    fleet.complete(2, SOON).await?;

    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    let mut broken = form(&fleet, "bad", spec.unwrap_or(&json!({})));
    if spec.is_none() {
        broken["spec"] = Value::Null;
    }
    let denied = match spec {
        Some(_) => said,
        None => "hubId is required",
    };
    refused(&fleet, &broken, denied).await?;
    etcd::store(cluster, &broken).await?;
    let said = match spec {
        Some(_) => format!("{said}. Until this is corrected, the form's nodes stay as they are"),
        None => said.to_owned(),
    };
    let invalid = ("Valid", "False", "ValidationFailed");
    fleet.says(("LynqForm", "bad"), invalid, &said).await?;
    fleet.event("bad", "ValidationFailed", &said).await?;
    if spec.is_some() {
        let waits = "the newest templates have not reached every node yet; if that lasts, see the form's condition Valid, \
                     and the conditions of the hub";
        let incomplete = ("RolloutComplete", "False", "InProgress");
        fleet.says(("LynqForm", "bad"), incomplete, waits).await?;
    }
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is written or deleted"
    );
    fleet.insert(2..3).await?;
    fleet.complete(3, SOON).await?;
    fleet
        .until_names(
            "LynqNode",
            &["t0-bad", "t0-web", "t1-bad", "t1-web", "t2-web"],
        )
        .await?;

    replace(&fleet, &good).await?;
    fleet
        .says(("LynqForm", "bad"), valid, "All validations passed")
        .await?;
    until_maps(
        &fleet,
        &["t0-app", "t0-bad", "t1-app", "t1-bad", "t2-app", "t2-bad"],
    )
    .await?;
    keeps_secrets(&[&fleet], operator).await?;
    fleet.retire().await
}

/// The webhook does not let this form in.
async fn refused(fleet: &Fleet, form: &Value, why: &str) -> Result<()> {
    let name = form["metadata"]["name"].as_str().unwrap_or_default();
    let form = match &form["spec"] {
        Value::Null => json!({"spec": null}),
        _ => form.clone(),
    };
    let patched = fleet
        .api("LynqForm")
        .patch(name, &PatchParams::default(), &Patch::Merge(form))
        .await;
    let error = patched.err().context("it was let in")?.to_string();
    ensure!(error.contains(why), "{why:?} is not in {error}");
    Ok(())
}

/// Whoever wrote it before: an apply would leave the fields of others.
async fn replace(fleet: &Fleet, form: &Value) -> Result<()> {
    let patch = json!([{"op": "replace", "path": "/spec", "value": form["spec"]}]);
    let patch: json_patch::Patch = serde_json::from_value(patch)?;
    let (api, params) = (fleet.api("LynqForm"), PatchParams::default());
    api.patch("bad", &params, &Patch::Json::<()>(patch)).await?;
    Ok(())
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
    let mut without = fleet.hub();
    without["spec"] = Value::Null;
    etcd::store(cluster, &without).await?;
    let (hub, form) = (("LynqHub", "tenants"), ("LynqForm", "web"));
    let said = format!("LynqHub \"tenants\": {NO_SPEC}");
    fleet
        .says(hub, ("Ready", "False", "InvalidSpec"), NO_SPEC)
        .await?;
    fleet.event("tenants", "InvalidSpec", NO_SPEC).await?;
    fleet
        .says(form, ("Valid", "False", "HubInvalid"), &said)
        .await?;
    fleet.event("web", "HubInvalid", &said).await?;
    fleet.apply(&fleet.hub()).await?;
    fleet
        .says(
            form,
            ("Valid", "True", "ValidationPassed"),
            "All validations passed",
        )
        .await?;
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is written"
    );
    fleet.retire().await
}

async fn form_without_hub(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let mut lost = form(
        &fleet,
        "lost",
        &json!({"configMaps": [config_map("app", "{{ .uid }}-lost", "x")]}),
    );
    lost["spec"]["hubId"] = json!("nowhere");
    lost["spec"]["rollout"] = json!({"maxSkew": 1});
    fleet.apply(&lost).await?;
    let said =
        "there is no LynqHub \"nowhere\" in namespace {namespace}; create it, or delete this form";
    fleet
        .says(
            ("LynqForm", "lost"),
            ("Valid", "False", "HubNotFound"),
            said,
        )
        .await?;
    fleet.event("lost", "HubNotFound", said).await?;
    let told = fleet.get("LynqForm", "lost").await?;
    let message = &told["status"]["rollout"]["message"];
    ensure!(
        message == &json!(said.replace("{namespace}", &fleet.namespace)),
        "{told}"
    );
    let mut hub = fleet.hub();
    hub["metadata"]["name"] = json!("nowhere");
    fleet.apply(&hub).await?;
    let valid = ("Valid", "True", "ValidationPassed");
    fleet
        .says(("LynqForm", "lost"), valid, "All validations passed")
        .await?;
    until_maps(&fleet, &["t0-app", "t0-lost"]).await?;
    fleet.retire().await
}

/// A form that fails for some rows or resources.
struct Failing {
    name: &'static str,
    config_maps: Value,
    /// Whose nodes the hub names, and what it says of them.
    nodes: &'static str,
    said: &'static str,
    /// Whether the node of row `t1` was written, and says the same.
    written: bool,
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
            config_maps: bad(
                r#"{{ if eq .uid "t1" }}{{ index (splitList "," .plan) 7 }}{{ end }}new"#,
            ),
            nodes: "LynqNode t1-bad",
            said: "resource \"app\": spec.data.plan: template: bad:1:24: executing \"bad\" at <index (splitList \",\" .plan) 7>: error calling index: index out of range: 7",
            written: true,
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "for every row: an undefined variable",
            config_maps: bad("{{ .region }}new"),
            nodes: "LynqNodes t0-bad, t1-bad",
            said: "resource \"app\": spec.data.plan: template: bad:1:3: executing \"bad\" at <.region>: map has no entry for key \"region\"; the hub's extraValueMappings have no such variable; the variables are activate, host, hostOrUrl, hubId, image, plan, templateRef, tenantUrl and 1 more",
            written: true,
            values: [OLD, OLD, None],
        },
        Failing {
            name: "with a row's value in the message",
            config_maps: bad(
                r#"{{ if eq .uid "t1" }}{{ fail (printf "no such plan: %s" .plan) }}{{ end }}new"#,
            ),
            nodes: "LynqNode t1-bad",
            said: "resource \"app\": spec.data.plan: template: bad:1:24: executing \"bad\" at <fail (printf \"no such plan: %s\" .plan)>: error calling fail: no such plan: …",
            written: true,
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "with a parsed value of a row in the message",
            config_maps: bad(r#"{{ if eq .uid "t1" }}{{ eq (list .plan) (dict) }}{{ end }}new"#),
            nodes: "LynqNode t1-bad",
            said: "resource \"app\": spec.data.plan: template: bad:1:24: executing \"bad\" at <eq (list .plan) (dict)>: error calling eq: non-comparable types […]: []interface {}, map[string]interface {}: map[]",
            written: true,
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "an empty name",
            config_maps: json!([config_map(
                "app",
                r#"{{ if ne .uid "t1" }}{{ .uid }}-bad{{ end }}"#,
                "new"
            )]),
            nodes: "LynqNode t1-bad",
            said: "resource \"app\": nameTemplate: the name is empty for this row",
            written: true,
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "a name that is none, with a row's value",
            config_maps: json!([config_map(
                "app",
                r#"{{ .uid }}-{{ if eq .uid "t1" }}{{ .plan }}_{{ end }}bad"#,
                "new"
            )]),
            nodes: "LynqNode t1-bad",
            said: "resource \"app\": nameTemplate: \"t1-…\" is no name: it may have lower case letters, digits, '-' and '.', and begins and ends, also around each '.', with a letter or digit",
            written: true,
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "a label that is none, with a row's value",
            config_maps: {
                let mut map = config_map("app", "{{ .uid }}-bad", "new");
                let label = r#"{{ if eq .uid "t1" }}{{ .plan }} {{ end }}x"#;
                map["labelsTemplate"] = json!({ "plan": label });
                json!([map])
            },
            nodes: "LynqNode t1-bad",
            said: "resource \"app\": labelsTemplate[plan]: \"… x\" is no label: it may have 63 characters, letters, digits, '-', '_' and '.', and begins and ends with a letter or digit",
            written: true,
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "two resources of one name",
            config_maps: json!([
                config_map("app", "{{ .uid }}-bad", "new"),
                config_map(
                    "again",
                    r#"{{ .uid }}-{{ if eq .uid "t1" }}bad{{ else }}again{{ end }}"#,
                    "newer"
                ),
            ]),
            nodes: "LynqNode t1-bad",
            said: "resource \"again\": nameTemplate: an earlier resource is ConfigMap t1-bad too; give one of them another name",
            written: true,
            values: [NEW, NEW, NEW],
        },
        Failing {
            name: "a namespace that the row chooses",
            config_maps: {
                let mut map = config_map("app", "{{ .uid }}-bad", "new");
                map["targetNamespace"] = json!(r#"{{ if eq .uid "t1" }}kube-system{{ end }}"#);
                json!([map])
            },
            nodes: "LynqNode t1-bad",
            said: "resource \"app\": targetNamespace: the template leads to namespace \"kube-system\", which is reserved. List that name itself in allowedNamespaces, or correct the row's value",
            written: true,
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "a namespace that is a number",
            config_maps: {
                let mut map = config_map("app", "{{ .uid }}-bad", "new");
                let namespace = r#"{{ if eq .uid "t1" }}{{ 42 | int }}{{ end }}"#;
                map["spec"]["metadata"] = json!({"namespace": namespace});
                json!([map])
            },
            nodes: "LynqNode t1-bad",
            said: "resource \"app\": spec.metadata.namespace: it is no text for this row; end its template with toString",
            written: true,
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "over 600 KiB",
            config_maps: bad(r#"{{ if eq .uid "t1" }}{{ repeat 614400 "x" }}{{ end }}new"#),
            nodes: "LynqNode t1-bad",
            said: "the content has 614682 bytes, and a node may have 614400; the largest resource is \"app\" in configMaps with 614681 bytes: make it smaller, or move part of it into another form",
            written: false,
            values: [NEW, OLD, NEW],
        },
        Failing {
            name: "without an end",
            config_maps: bad(r#"{{ if eq .uid "t1" }}{{ repeat 2000000 "x" }}{{ end }}new"#),
            nodes: "LynqNode t1-bad",
            said: "resource \"app\": spec.data.plan: template: bad:1:24: executing \"bad\" at <repeat 2000000 \"x\">: the template writes more than 1048576 bytes; make its result smaller",
            written: true,
            values: [NEW, OLD, NEW],
        },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_render_fails_alone() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let failing = failing();
    let cases = failing
        .iter()
        .map(|case| (case.name, fail_some(cluster, operator, case)));
    all(cases.collect()).await
}

async fn fail_some(cluster: &Cluster, operator: &Operator, case: &Failing) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let old = json!({"configMaps": [config_map("app", "{{ .uid }}-bad", "old")]});
    fleet.apply(&form(&fleet, "bad", &old)).await?;
    until_maps(&fleet, &["t0-app", "t0-bad", "t1-app", "t1-bad"]).await?;

    let failing = form(&fleet, "bad", &json!({"configMaps": case.config_maps}));
    let cause = case
        .said
        .strip_prefix("resource ")
        .map_or(case.said, |said| {
            said.split_once(": ").map_or(said, |(_, cause)| cause)
        });
    refused(&fleet, &failing, cause).await?;
    etcd::store(cluster, &failing).await?;
    let (hub, bad) = (
        ("LynqHub", "tenants"),
        ("RenderFailed", "True", "TemplateErrors"),
    );
    let said = format!("{}: {}", case.nodes, case.said);
    fleet.says(hub, bad, &said).await?;
    fleet
        .event("tenants", "TemplateRenderFailed", &said)
        .await?;
    if case.written {
        let degraded = ("Degraded", "True", "ResourceFailures");
        let said = format!("LynqNode has 1 failed resources: {}", case.said);
        fleet.says(("LynqNode", "t1-bad"), degraded, &said).await?;
    }
    if !case.written {
        let unwritten = "the newest content is not written to t1-bad: if that lasts, see the hub's conditions; ";
        wait::until("the form says what is missing", SOON, async || {
            let rollout = fleet.get("LynqForm", "bad").await?["status"]["rollout"].clone();
            let message = rollout["message"].as_str().unwrap_or_default();
            ensure!(message.starts_with(unwritten), "{rollout}");
            ensure!(rollout["phase"] == "InProgress", "{rollout}");
            Ok(())
        })
        .await?;
        let explained = policy::explain(cluster, &fleet, &["form", "bad"]).await?;
        for said in ["  state      in progress: ", unwritten] {
            ensure!(explained.contains(said), "no {said:?} in {explained}");
        }
    }
    let secret = format!("INSERT INTO tenants (id, active, plan) VALUES ('t2', '1', '{CANARY}')");
    fleet.database.execute(&secret).await?;
    wait::until("every row has what it should have", SOON, async || {
        for (row, expected) in case.values.iter().enumerate() {
            let map = fleet.get("ConfigMap", &format!("t{row}-bad")).await;
            match (map, expected) {
                (Ok(map), Some(value)) => {
                    ensure!(map["data"]["plan"] == *value, "t{row}: {}", map["data"])
                }
                (Err(_), None) => {}
                (found, expected) => anyhow::bail!("t{row}: {found:?}, not {expected:?}"),
            }
        }
        Ok(())
    })
    .await?;
    fleet.complete(3, SOON).await?;
    let condition =
        crate::tenants::condition(&fleet.get("LynqHub", "tenants").await?, "RenderFailed")
            .map(|condition| condition["status"].clone());
    ensure!(
        condition == Some(json!("True")),
        "the next sync says so still"
    );

    replace(&fleet, &form(&fleet, "bad", &old)).await?;
    fleet
        .says(hub, ("RenderFailed", "False", "AllRendered"), "")
        .await?;
    until_maps(
        &fleet,
        &["t0-app", "t0-bad", "t1-app", "t1-bad", "t2-app", "t2-bad"],
    )
    .await?;
    keeps_secrets(&[&fleet], operator).await?;
    fleet.retire().await
}
