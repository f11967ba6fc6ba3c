//! The second fence: what is refused while the webhooks are away, and what becomes of a write that got past both.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operating::{commands, run};
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON};

const NODE: &str = "t0-web";
const OPERATOR: &str = "system:serviceaccount:lynq-system:lynq-controller-manager";

/// As earlier versions installed it, but for its other rules: it learned from a ConfigMap who the operator is.
const WITH_PARAMETER: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: lynq-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: lynqgate-identity, namespace: lynq-system}
data: {username: "system:serviceaccount:lynq-system:lynq-controller-manager"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: lynqgate-fence}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [operator.lynq.sh], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [lynqnodes]}
  variables:
  - {name: operator, expression: request.userInfo.username == params.data.username}
  validations:
  - {expression: variables.operator, message: only the operator}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: lynqgate-fence}
spec:
  policyName: lynqgate-fence
  validationActions: [Deny]
  paramRef: {name: lynqgate-identity, namespace: lynq-system, parameterNotFoundAction: Deny}
"#;

async fn kubectl(cluster: &Cluster, arguments: &[&str], input: Option<&str>) -> Result<String> {
    cluster.kubectl(arguments, input).await?.expect_success()
}

/// A fleet whose nodes are written, released and ready.
async fn rolled_out(cluster: &Cluster) -> Result<Fleet> {
    let fleet = Fleet::new(cluster, "fence", 1).await?;
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    fleet.complete(1, SOON).await?;
    Ok(fleet)
}

/// Deletes the hubs, and waits for what goes with them.
async fn gone(fleet: &Fleet) -> Result<()> {
    fleet.retire().await?;
    fleet.until_names("LynqNode", &[]).await
}

/// Whether the fence denies what only the operator may write, which is seen of the operator's own probe: no webhook has a say in it.
async fn until_fence(cluster: &Cluster, denies: bool) -> Result<()> {
    let probe = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
        "metadata": {
            "generateName": "lynqgate-write-probe-", "namespace": "lynq-system", "annotations": {"lynq.sh/ungated": "probe"},
        },
        "spec": {"uid": "probe", "templateRef": "probe"},
    });
    let create = ["create", "--dry-run=server", "-f", "-"];
    wait::until(&format!("the fence denies: {denies}"), SOON, async || {
        let tried = cluster.kubectl(&create, Some(&probe.to_string())).await?;
        let said = tried
            .stderr
            .contains("only lynqgate itself sets lynq.sh/release");
        ensure!(
            (said, tried.success) == (denies, !denies),
            "{}",
            tried.stderr
        );
        Ok(())
    })
    .await
}

/// A policy with a ConfigMap as parameter would deny every write from here on: the API server's informer of that kind stops with
/// the last policy that uses it, does not start again, and knows no ConfigMap that was made since.
async fn deleted_and_installed_again(cluster: &Cluster, operator: Operator) -> Result<()> {
    operator.process.kill()?;
    operator::uninstall(cluster).await?;
    let again = Operator::start(cluster, "again", &[]).await?;
    until_fence(cluster, true).await?;
    gone(&rolled_out(cluster).await?).await?;

    delete(cluster, "validatingadmissionpolicy", "lynqgate-fence").await?;
    until_fence(cluster, false).await?;
    operator::install(cluster).await?;
    until_fence(cluster, true).await?;
    gone(&rolled_out(cluster).await?).await?;
    again.process.kill()
}

async fn refused(fleet: &Fleet, name: &str, patch: &Value, said: &str) -> Result<()> {
    let error = fleet.merge("LynqNode", NODE, patch).await.err();
    let text = format!(
        "{:#}",
        error.with_context(|| format!("{name} is accepted"))?
    );
    ensure!(text.contains(said), "{name}: {text}");
    Ok(())
}

pub async fn delete(cluster: &Cluster, resource: &str, name: &str) -> Result<()> {
    cluster
        .kubectl(&["delete", resource, name], None)
        .await?
        .expect_success()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gets_past_the_webhooks_is_refused_and_what_gets_past_both_is_held() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let server_side = ["apply", "--server-side", "-f", "-"];
    kubectl(&cluster, &server_side, Some(WITH_PARAMETER)).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fence = "validatingadmissionpolicies,validatingadmissionpolicybindings";
    let upgraded = kubectl(&cluster, &["get", fence, "-o", "json"], None).await?;
    ensure!(!upgraded.contains("param"), "{upgraded}");
    run(&cluster, &commands("after an upgrade")?).await?;
    let fleet = Fleet::new(&cluster, "fence", 1).await?;
    let mut form = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
        "metadata": {"name": "web", "namespace": fleet.namespace},
        "spec": {"hubId": "tenants", "rollout": {"maxSkew": 1}, "configMaps": [{
            "id": "app", "nameTemplate": "{{ .uid }}-app",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}"}},
        }]},
    });
    fleet.apply(&form).await?;
    fleet.complete(1, SOON).await?;
    form["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&form).await?;

    operator.process.kill()?;
    let name = "lynq-mutating-webhook-configuration";
    delete(&cluster, "mutatingwebhookconfiguration", name).await?;
    let name = "lynq-validating-webhook-configuration";
    delete(&cluster, "validatingwebhookconfiguration", name).await?;
    let node = fleet.get("LynqNode", NODE).await?;
    let live = node["metadata"]["annotations"]["lynq.sh/live-hash"].clone();
    let content = |plan: &str| {
        let mut maps = node["spec"]["configMaps"].clone();
        maps[0]["spec"]["data"]["plan"] = json!(plan);
        json!({"spec": {"configMaps": maps}})
    };
    let annotate = |name: &str, value: &Value| json!({"metadata": {"annotations": {name: value}}});
    let other_hash = json!(format!("1:{}", "0".repeat(32)));
    for (name, patch, said) in [
        (
            "content",
            content("evil"),
            "mutating webhook did not see this write",
        ),
        (
            "the live hash",
            annotate("lynq.sh/live-hash", &other_hash),
            "only lynqgate itself lets content go live",
        ),
        (
            "the start time",
            annotate(
                "lynq.sh/rollout-update-start-time",
                &json!("2100-01-01T00:00:00.000Z"),
            ),
            "only lynqgate itself sets lynq.sh/rollout-update-start-time",
        ),
        (
            "a release",
            annotate("lynq.sh/release", &json!("x/1")),
            "only lynqgate itself sets lynq.sh/release",
        ),
        (
            "an ungated marker",
            annotate("lynq.sh/ungated", &live),
            "only lynqgate itself sets lynq.sh/release and lynq.sh/ungated",
        ),
    ] {
        refused(&fleet, name, &patch, said).await?;
    }
    // In two writes: the hash of what is to come first, and then that.
    let claimed = annotate("lynq.sh/desired-hash", &other_hash);
    fleet.merge("LynqNode", NODE, &claimed).await?;
    let annotations = [
        json!({"lynq.sh/release": "x/1"}),
        json!({"lynq.sh/release": "x/1", "lynq.sh/desired-hash": null, "lynq.sh/live-hash": null}),
        json!({"lynq.sh/release": "x/1", "lynq.sh/desired-hash": live, "lynq.sh/held-by": "x"}),
    ];
    for annotations in annotations {
        let patch = json!({"metadata": {"annotations": annotations}}).to_string();
        let patch = ["patch", "lynqnode", NODE, "--type=merge", "-p", &patch];
        let operator_of = ["-n", &fleet.namespace, "--as", OPERATOR];
        let patch = [&patch[..], &operator_of[..]].concat();
        let released = cluster.kubectl(&patch, None).await?;
        let said = "a release (lynq.sh/release) must not change content or leave content held";
        ensure!(released.stderr.contains(said), "{}", released.stderr);
    }
    let mut then = content("evil");
    then["metadata"] = annotate("lynq.sh/desired-hash", &live)["metadata"].clone();
    let said = "changed content is held until its release";
    refused(&fleet, "content that claims to be live", &then, said).await?;
    let mut before = annotate("lynq.sh/desired-hash", &live);
    before["spec"] = node["spec"].clone();
    fleet.merge("LynqNode", NODE, &before).await?;
    fleet
        .merge("LynqNode", NODE, &annotate("note", &json!("harmless")))
        .await?;
    let made = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
        "metadata": {"name": "made", "namespace": fleet.namespace, "annotations": {"lynq.sh/live-hash": live}},
        "spec": {"uid": "made", "templateRef": "web", "configMaps": node["spec"]["configMaps"]},
    });
    let mut empty = made.clone();
    empty["spec"]["configMaps"] = json!([]);
    for made in [&made, &empty] {
        let error = fleet
            .apply(made)
            .await
            .err()
            .context("a live node is accepted")?;
        ensure!(
            format!("{error:#}").contains("a new LynqNode is held until its release"),
            "{error:#}"
        );
    }

    // Past the policy, too: found by the operator, and held.
    delete(
        &cluster,
        "validatingadmissionpolicybinding",
        "lynqgate-fence",
    )
    .await?;
    wait::until("the policy does not apply any more", SOON, async || {
        fleet.merge("LynqNode", NODE, &content("evil")).await
    })
    .await?;
    operator.process.start()?;
    operator.ready().await?;
    let text = format!(
        "somebody wrote its content past lynqgate's webhooks; lynqgate holds that content like any other change. To keep it from going \
         live: kubectl annotate lynqnode {NODE} lynq.sh/discard-edit=true. Then check the webhooks and the CustomResourceDefinitions: \
         lynqgate check"
    );
    fleet.event(NODE, "PastTheGate", &text).await?;
    let summary = "the rollout is paused; set paused: false on the form, or force this node";
    fleet
        .says(("LynqNode", NODE), ("Held", "True", "Paused"), summary)
        .await?;
    let map = fleet.get("ConfigMap", "t0-app").await?;
    ensure!(map["data"]["plan"] == "pro", "{map}");
    let metrics = operator.metrics().await?;
    ensure!(
        metrics.contains("lynqgate_gate_bypasses_total 1\n"),
        "{metrics}"
    );
    gone(&fleet).await?;
    deleted_and_installed_again(&cluster, operator).await
}
