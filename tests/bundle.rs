//! What support asks for, and what tenants leave behind: `lynqgate report` and `lynqgate orphans` on the real control plane, as an
//! administrator calls them, and as a user with few rights does.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cluster::credentials::Identity;
use crate::cluster::{Cluster, wait};
use crate::operator;
use crate::tenants::{Fleet, SOON};

/// Values of Secrets of the form: what runs, and what waits.
const LIVE: &str = "hunter2-live-va1ue";
const HELD: &str = "hunter2-held-va1ue";

struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    /// What it printed, if it ended with this exit status.
    fn with(self, code: i32) -> Result<Said> {
        let Said { out, err, .. } = &self;
        ensure!(self.code == code, "exit status {}: {out}{err}", self.code);
        Ok(self)
    }
}

/// Somebody with a kubeconfig, in a directory.
struct User {
    kubeconfig: PathBuf,
    directory: tempfile::TempDir,
}

impl User {
    fn new(kubeconfig: &Path) -> Result<User> {
        Ok(User {
            kubeconfig: kubeconfig.to_owned(),
            directory: tempfile::tempdir()?,
        })
    }

    /// A user with these rights in the namespace, and no others.
    async fn with_rights(cluster: &Cluster, namespace: &str, rules: Value) -> Result<User> {
        let rbac = "rbac.authorization.k8s.io";
        let (api, name) = (format!("{rbac}/v1"), format!("user-of-{namespace}"));
        let rights = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": api, "kind": "Role", "metadata": {"name": name, "namespace": namespace},
                "rules": rules,
            },
            {
                "apiVersion": api, "kind": "RoleBinding", "metadata": {"name": name, "namespace": namespace},
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
                "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}],
            },
        ]});
        cluster.apply(&rights.to_string()).await?;
        let identity = Identity::user(&name, None);
        User::new(&cluster.kubeconfig_for(&identity).await?)
    }

    async fn types(&self, line: &str) -> Result<Said> {
        let output = Command::new(operator::program("lynqgate")?)
            .args(line.split(' '))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        Ok(Said {
            code: output.status.code().context("it was not killed")?,
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }
}

/// A form with a Deployment and two Secrets of this value, one of them as base64.
fn form_with_secrets(fleet: &Fleet, value: &str, paused: bool) -> Value {
    let mut form = fleet.form("web:1", json!(1), 0);
    form["spec"]["rollout"]["paused"] = json!(paused);
    form["spec"]["secrets"] = json!([{
        "id": "login", "nameTemplate": "{{ .uid }}-login",
        "spec": {"apiVersion": "v1", "kind": "Secret", "stringData": {"password": value}},
    }]);
    form["spec"]["manifests"] = json!([{
        "id": "key", "nameTemplate": "{{ .uid }}-key",
        "spec": {"apiVersion": "v1", "kind": "Secret", "data": {"key": BASE64_STANDARD.encode(value)}},
    }]);
    form
}

/// The documents of a report that has no value of a Secret.
fn documents(text: &str, fleet: &Fleet) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let read = serde_json::to_string(&documents)?;
    for value in [LIVE, HELD, fleet.database.password.as_str()] {
        for spelled in [value.to_owned(), BASE64_STANDARD.encode(value)] {
            let is_there = text.contains(&spelled) || read.contains(&spelled);
            ensure!(!is_there, "{spelled} is in the report");
        }
    }
    for word in ["managedFields", "caBundle"] {
        ensure!(!text.contains(word), "{word} is in the report");
    }
    Ok(documents)
}

fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> Result<&'a Value> {
    let mut documents = documents.iter();
    let found =
        documents.find(|document| document["kind"] == kind && document["metadata"]["name"] == name);
    found.with_context(|| format!("the report has no {kind} {name}"))
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> Result<&'a Value> {
    let found = documents.iter().find(|document| document["kind"] == kind);
    found.with_context(|| format!("the report has no {kind}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_has_the_form_and_no_value_of_a_secret() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "report", 2).await?;
    let namespace = &fleet.namespace;
    // As most users do, so that an annotation has a copy of the form.
    let live = form_with_secrets(&fleet, LIVE, false);
    cluster.apply(&live.to_string()).await?;
    fleet.complete(2, SOON).await?;
    let secret = fleet.get("Secret", "t0-login").await?;
    ensure!(
        secret["data"]["password"] == BASE64_STANDARD.encode(LIVE),
        "the Secret has another value"
    );
    let held = form_with_secrets(&fleet, HELD, true);
    cluster.apply(&held.to_string()).await?;
    wait::until("the nodes are held", SOON, async || {
        for node in fleet.list("LynqNode").await? {
            let text = node.to_string();
            ensure!(text.contains(LIVE) && text.contains(HELD), "{text}");
        }
        Ok(())
    })
    .await?;
    wait::until("the form has an event", SOON, async || {
        ensure!(!fleet.events("web").await?.is_empty(), "it has none");
        Ok(())
    })
    .await?;
    let form = fleet.get("LynqForm", "web").await?.to_string();
    ensure!(form.contains("last-applied-configuration"), "{form}");

    let admin = User::new(cluster.admin_kubeconfig())?;
    let said = admin.types(&format!("report -n {namespace}")).await?;
    let said = said.with(0)?.out;
    ensure!(said.contains("Read it before you send it"), "{said}");
    let (path, _) = said.split_once(": ").context("the name of the file")?;
    ensure!(
        path.starts_with(&format!("lynqgate-report-{namespace}-")),
        "{path}"
    );
    let path = admin.directory.path().join(path);
    let mode = std::fs::metadata(&path)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    let found = documents(&std::fs::read_to_string(&path)?, &fleet)?;
    let summary = &found[0];
    ensure!(
        summary["kind"] == "LynqgateReport" && summary["unread"] == json!([]),
        "{summary}"
    );
    let version = summary["apiServer"].as_str().unwrap_or_default();
    ensure!(version.starts_with("v1."), "{summary}");
    let nodes = &summary["lynqNodes"];
    ensure!(
        nodes["all"] == 2 && nodes["inReport"] == 2 && nodes["ready"] == 0,
        "{summary}"
    );
    let hub = find(&found, "LynqHub", "tenants")?;
    let source = &hub["spec"]["source"][fleet.database.product.source()];
    ensure!(source["passwordRef"]["name"] == "database", "{hub}");
    for (kind, name) in [("LynqForm", "web"), ("LynqNode", "t0-web")] {
        let spec = &find(&found, kind, name)?["spec"];
        let password = &spec["secrets"][0]["spec"]["stringData"]["password"];
        let key = &spec["manifests"][0]["spec"]["data"]["key"];
        ensure!(
            *password == "(redacted)" && *key == "(redacted)",
            "{kind}: {spec}"
        );
        ensure!(spec["deployments"][0]["id"] == "app", "{kind}: {spec}");
    }
    let node = find(&found, "LynqNode", "t1-web")?;
    let released = &node["spec"]["released"]["secrets"][0]["spec"];
    ensure!(released["stringData"]["password"] == "(redacted)", "{node}");
    let revisions = of_kind(&found, "Revisions")?["items"].as_array();
    ensure!(revisions.is_some_and(|all| !all.is_empty()), "{found:?}");
    let events = of_kind(&found, "Events")?["items"].to_string();
    ensure!(events.contains("LynqForm/web"), "{events}");
    find(
        &found,
        "MutatingWebhookConfiguration",
        "lynq-mutating-webhook-configuration",
    )?;
    find(&found, "ValidatingAdmissionPolicy", "lynqgate-fence")?;

    only_what_may_be_read(cluster, &fleet).await?;
    fleet.retire().await
}

/// To standard output, for somebody who may read lynqgate's own kinds.
async fn only_what_may_be_read(cluster: &Cluster, fleet: &Fleet) -> Result<()> {
    let read = json!(["get", "list"]);
    let rules = json!([
        {"apiGroups": ["operator.lynq.sh"], "resources": ["lynqhubs", "lynqforms", "lynqnodes"], "verbs": read},
        {"apiGroups": [""], "resources": ["events"], "verbs": read},
    ]);
    let user = User::with_rights(cluster, &fleet.namespace, rules).await?;
    let line = format!("report --file - -n {}", fleet.namespace);
    wait::until("a user with few rights gets a report", SOON, async || {
        let said = user.types(&line).await?.with(0)?;
        let found = documents(&said.out, fleet)?;
        find(&found, "LynqForm", "web")?;
        find(&found, "LynqNode", "t0-web")?;
        let unread = found[0]["unread"].to_string();
        for what in [
            "ControllerRevisions of namespace",
            "Leases of namespace lynq-system",
            "MutatingWebhookConfiguration/lynq-mutating-webhook-configuration",
            "Deployments of namespace lynq-system",
            "forbidden",
        ] {
            ensure!(unread.contains(what), "{what} is not in {unread}");
        }
        ensure!(!unread.contains("secrets"), "{unread}");
        let told = &said.err;
        ensure!(
            told.contains("parts could not be read") && told.contains("Read it before you send it"),
            "{told}"
        );
        Ok(())
    })
    .await
}

/// A ConfigMap that stays when its node goes.
fn retained(id: &str) -> Value {
    json!({
        "id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"), "deletionPolicy": "Retain",
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}"}},
    })
}

/// The ConfigMaps of tenants.
async fn maps(fleet: &Fleet) -> Result<Vec<String>> {
    let mut all = fleet.names("ConfigMap").await?;
    all.retain(|name| name.starts_with('t'));
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_are_listed_and_deleted() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "orphans", 3).await?;
    let namespace = &fleet.namespace;
    let form = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"hubId": "tenants", "rollout": {"maxSkew": 3}, "configMaps": [retained("kept"), retained("more")]},
    });
    fleet.apply(&form).await?;
    fleet.complete(3, SOON).await?;
    let admin = User::new(cluster.admin_kubeconfig())?;
    let list = format!("orphans list -n {namespace}");
    let said = admin.types(&list).await?.with(0)?;
    ensure!(said.out.starts_with("no orphans"), "{}", said.out);

    let gone = "DELETE FROM tenants WHERE id <> 't0'";
    fleet.database.execute(gone).await?;
    fleet.until_names("LynqNode", &["t0-web"]).await?;
    let said = admin.types(&list).await?.with(0)?;
    let lines: Vec<Vec<&str>> = said
        .out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let names: Vec<&str> = lines.iter().skip(1).map(|line| line[1]).collect();
    let expected = ["t1-kept", "t1-more", "t2-kept", "t2-more"];
    let expected = expected.map(|name| format!("{namespace}/{name}"));
    ensure!(names == expected, "{}", said.out);
    let first = &lines[1];
    let left_by = format!("{namespace}/t1-web");
    ensure!(
        first[0] == "ConfigMap" && first[5] == "LynqNodeDeleted" && first[6] == left_by,
        "{}",
        said.out
    );
    let json = format!("{list} --kind configmaps -o json");
    let said = admin.types(&json).await?.with(0)?;
    let answer: Value = serde_json::from_str(&said.out)?;
    let last = &answer[3];
    ensure!(
        last["name"] == "t2-more" && last["since"].is_string() && answer[4].is_null(),
        "{answer}"
    );

    few_rights(cluster, &fleet).await?;

    let delete = |rest: &str| format!("orphans delete -n {namespace} {rest}");
    for (line, code, told) in [
        // Nobody can be asked.
        ("ConfigMap t1-kept", 1, "nothing was changed"),
        ("ConfigMap t0-kept --yes", 1, "is no orphan"),
        ("ConfigMap t9-kept --yes", 1, "not found"),
        ("Deploymint t1-kept --yes", 1, "serves no kind"),
        ("ConfigMap t1-kept --dry-run", 0, "deleted (dry run)"),
        ("--left-by t0-web --yes", 0, "left nothing behind"),
    ] {
        let said = admin.types(&delete(line)).await?.with(code)?;
        let both = format!("{}{}", said.out, said.err);
        ensure!(both.contains(told), "{line}: {both}");
    }
    ensure!(maps(&fleet).await?.len() == 6, "all are still there");

    let one = delete("configmap t1-kept --yes");
    let said = admin.types(&one).await?.with(0)?;
    let deleted = format!("ConfigMap/{namespace}/t1-kept: deleted\n");
    ensure!(said.out == deleted, "{}", said.out);
    let left = maps(&fleet).await?;
    let expected = ["t0-kept", "t0-more", "t1-more", "t2-kept", "t2-more"];
    ensure!(left == expected, "{left:?}");

    let all = delete(&format!("--left-by {namespace}/t2-web -o json --yes"));
    let said = admin.types(&all).await?.with(0)?;
    let answer: Value = serde_json::from_str(&said.out)?;
    ensure!(
        answer[1]["name"] == "t2-more" && answer[2].is_null(),
        "{answer}"
    );
    let left = maps(&fleet).await?;
    ensure!(left == ["t0-kept", "t0-more", "t1-more"], "{left:?}");
    fleet.retire().await
}

/// Somebody who may list ConfigMaps of the namespace and delete none.
async fn few_rights(cluster: &Cluster, fleet: &Fleet) -> Result<()> {
    let namespace = &fleet.namespace;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    let user = User::with_rights(cluster, namespace, rules).await?;
    let list = format!("orphans list -n {namespace}");
    wait::until("a user with few rights sees orphans", SOON, async || {
        let said = user.types(&list).await?.with(0)?;
        ensure!(said.out.contains("/t2-more"), "{}{}", said.out, said.err);
        let told = said.err.lines().next().unwrap_or_default();
        let is_told = told.starts_with("not searched: ") && told.contains("Secret, ");
        ensure!(is_told && told.contains("forbidden"), "{told}");
        Ok(())
    })
    .await?;
    let secrets = format!("{list} --kind Secret");
    let said = user.types(&secrets).await?.with(1)?;
    ensure!(said.err.contains("forbidden"), "{}", said.err);
    let delete = format!("orphans delete ConfigMap t2-more --yes -n {namespace}");
    let said = user.types(&delete).await?.with(1)?;
    ensure!(
        said.err.contains("1 of 1 objects were not deleted"),
        "{}",
        said.err
    );
    Ok(())
}
