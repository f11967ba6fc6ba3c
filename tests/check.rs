//! `lynqgate check` on the real control plane: nothing fails where all is well, and what is broken is named with what corrects it.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cluster::credentials::Identity;
use crate::cluster::{Cluster, Options, wait};
use crate::fence;
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON};

/// The field in which a LynqNode keeps what runs while a change is held.
const RELEASED: &str =
    "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/released";

/// Runs `lynqgate check`, with a few more arguments; returns its exit status and what it printed.
pub async fn check(kubeconfig: &Path, namespace: &str, more: &[&str]) -> Result<(i32, String)> {
    let output = Command::new(operator::program("lynqgate")?)
        .args(["check", "--namespace", namespace, "--kubeconfig"])
        .arg(kubeconfig)
        .args(more)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8([output.stdout, output.stderr].concat())?;
    let code = output.status.code().context("it was not killed")?;
    Ok((code, said))
}

/// Until a check fails with a line that begins like this; returns the line.
async fn fails(cluster: &Cluster, fleet: &Fleet, start: &str) -> Result<String> {
    wait::until(start, SOON, async || {
        let kubeconfig = cluster.admin_kubeconfig();
        let (code, said) = check(kubeconfig, &fleet.namespace, &[]).await?;
        let line = said.lines().find(|line| line.starts_with(start));
        let line = line.with_context(|| said.clone())?;
        ensure!(code == 1, "exit status {code}: {said}");
        Ok(line.to_owned())
    })
    .await
}

async fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    let done = cluster.kubectl(arguments, None).await?;
    done.expect_success()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_what_is_broken_and_what_corrects_it() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &["--leader-elect"]).await?;
    let fleet = Fleet::new(&cluster, "check", 2).await?;
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    fleet.complete(2, SOON).await?;
    all_is_well(&cluster, &fleet).await?;
    who_may_not_look_is_told_so(&cluster, &fleet).await?;

    // The rows lose a column.
    let column = "ALTER TABLE tenants DROP COLUMN plan";
    fleet.database.execute(column).await?;
    let line = fails(&cluster, &fleet, "failed   LynqHub tenants: ").await?;
    ensure!(
        line.starts_with("failed   LynqHub tenants: SourceInvalid since ") && line.contains("plan"),
        "{line}"
    );

    // The operator loses its rights on the objects of tenants.
    let binding = "lynq-tenants-rolebinding";
    fence::delete(&cluster, "clusterrolebinding", binding).await?;
    let user = operator::identity().username();
    let line = fails(&cluster, &fleet, &format!("failed   User {user}: ")).await?;
    ensure!(
        line.contains("deployments.apps (used by form web). Add this rule to a ClusterRole with the label \
                       rbac.lynq.sh/aggregate-to-tenants=true: {apiGroups: [\"apps\"], resources: [\"deployments\"], verbs: ["),
        "{line}"
    );

    // The fence is not bound any more: its own line, and the write that it must deny.
    let binding = "validatingadmissionpolicybinding";
    fence::delete(&cluster, binding, "lynqgate-fence").await?;
    for start in [
        "failed   ValidatingAdmissionPolicyBinding lynqgate-fence: it is not there, so the policy denies nothing. ",
        "failed   Release by a user (dry run): lynqgate-fence does not deny it, ",
    ] {
        fails(&cluster, &fleet, start).await?;
    }

    // A definition as Lynq has it.
    let patch = json!([{"op": "remove", "path": RELEASED}]).to_string();
    let definition = "lynqnodes.operator.lynq.sh";
    let patched = [
        "patch",
        "customresourcedefinition",
        definition,
        "--type=json",
        "--patch",
        &patch,
    ];
    kubectl(&cluster, &patched).await?;
    let line = fails(
        &cluster,
        &fleet,
        "failed   CustomResourceDefinition lynqnodes.operator.lynq.sh: it is not lynqgate's: the API server drops spec.released of what \
         is written; ",
    )
    .await?;
    let apply = "kubectl apply --server-side --force-conflicts -f manifests/crd-lynqnodes.yaml";
    ensure!(line.ends_with(apply), "{line}");

    // No replica answers the webhooks.
    operator.process.kill()?;
    let line = fails(
        &cluster,
        &fleet,
        "failed   Webhooks of LynqNodes: the API server rejects a new LynqNode (dry run): ",
    )
    .await?;
    ensure!(
        line.contains("failed calling webhook \"mlynqnode.kb.io\"")
            && line.contains("kubectl get pods -n lynq-system -l control-plane=controller-manager"),
        "{line}"
    );
    let configuration = "lynq-validating-webhook-configuration";
    fence::delete(&cluster, "validatingwebhookconfiguration", configuration).await?;
    let start = format!("failed   ValidatingWebhookConfiguration {configuration}: it is not there");
    fails(&cluster, &fleet, &start).await?;
    Ok(())
}

/// The operator of the tests is no Deployment, and that is all that is unusual.
async fn all_is_well(cluster: &Cluster, fleet: &Fleet) -> Result<()> {
    let kubeconfig = cluster.admin_kubeconfig();
    let said = wait::until("nothing fails", SOON, async || {
        let (code, said) = check(kubeconfig, &fleet.namespace, &[]).await?;
        ensure!(code == 0, "exit status {code}: {said}");
        Ok(said)
    })
    .await?;
    let user = operator::identity().username();
    let fence = format!(
        "ok       ValidatingAdmissionPolicy lynqgate-fence: it knows {user} as the operator"
    );
    let rights = format!(
        "ok       User {user}: it has all rights on the kind that the forms in namespace {} use",
        fleet.namespace
    );
    let expected: [&str; 15] = [
        "ok       API server: Kubernetes v1.",
        "ok       CustomResourceDefinition lynqhubs.operator.lynq.sh: it has all fields of this version",
        "ok       CustomResourceDefinition lynqforms.operator.lynq.sh: it has all fields of this version",
        "ok       CustomResourceDefinition lynqnodes.operator.lynq.sh: it has all fields of this version",
        "ok       MutatingWebhookConfiguration lynq-mutating-webhook-configuration: it is as this version installs it, with a caBundle",
        "ok       ValidatingWebhookConfiguration lynq-validating-webhook-configuration: it is as this version installs it, with a caBundle",
        "ok       Webhooks of LynqNodes: they answer ",
        "ok       Secret lynq-system/lynq-webhook-ca: its authority ends in 364 days; ",
        &fence,
        "ok       ValidatingAdmissionPolicyBinding lynqgate-fence: it denies what the policy rejects",
        "ok       Release by a user (dry run): lynqgate-fence denies it",
        "warning  Deployment lynq-system/lynq-controller-manager: it is not there: the operator runs outside of the cluster, ",
        "ok       Lease lynq-system/f2130106.lynq.sh: ",
        &rights,
        "ok       LynqHub tenants: Successfully connected to database and queried node data, without a failure since ",
    ];
    let lines: Vec<&str> = said.lines().collect();
    ensure!(lines.len() == expected.len(), "{said}");
    for (line, start) in lines.iter().zip(expected) {
        ensure!(line.starts_with(start), "{line:?} is not {start:?}: {said}");
    }
    let (code, said) = check(kubeconfig, &fleet.namespace, &["--output=json"]).await?;
    let findings: Value = serde_json::from_str(&said)?;
    let verdicts = findings.as_array().context("a list")?.iter();
    let warned = verdicts.filter(|finding| finding["verdict"] == "warning");
    let warned: Vec<&Value> = warned.collect();
    ensure!(
        code == 0
            && warned.len() == 1
            && warned[0]["object"] == "Deployment lynq-system/lynq-controller-manager"
            && warned[0]["next"].is_string(),
        "{said}"
    );
    Ok(())
}

/// What could not be checked is a warning, and an API server that could not be asked has an exit status of its own.
async fn who_may_not_look_is_told_so(cluster: &Cluster, fleet: &Fleet) -> Result<()> {
    let nobody = Identity::user("nobody", None);
    let kubeconfig = cluster.kubeconfig_for(&nobody).await?;
    let (code, said) = check(&kubeconfig, &fleet.namespace, &[]).await?;
    ensure!(code == 0, "exit status {code}: {said}");
    for (number, line) in said.lines().enumerate() {
        let word = if number == 0 { "ok " } else { "warning " };
        ensure!(line.starts_with(word), "{line:?} in {said}");
    }
    ensure!(
        said.contains(
            "warning  Webhooks of LynqNodes: not called, because you may not create LynqNodes"
        ),
        "{said}"
    );
    let nowhere = kubeconfig.with_extension("nowhere");
    let (code, said) = check(&nowhere, &fleet.namespace, &[]).await?;
    ensure!(code == 4, "exit status {code}: {said}");
    Ok(())
}
