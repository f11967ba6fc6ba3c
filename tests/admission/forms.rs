//! Forms and hubs as their authors meet the webhook: what is refused, what is said of what is not, and whose rights count.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::*;
use crate::cluster::{Options, etcd};
use crate::operator::Operator;

/// What a trial says that had no time, on a machine that is busy with other tests.
const NO_TIME: [&str; 3] = ["did not come within", "it took more than", "timed out"];

/// Whether `kubectl apply` was taken, and what it said. A dry run for whose trial there was no time is made again.
pub async fn apply(cluster: &Cluster, object: &Value, flags: &[&str]) -> Result<(bool, String)> {
    const TRIES: usize = 5;
    let arguments = [&["apply", "-f", "-"], flags].concat();
    let is_dry = flags.iter().any(|flag| flag.starts_with("--dry-run"));
    let mut tries = 1;
    loop {
        let outcome = cluster
            .kubectl(&arguments, Some(&object.to_string()))
            .await?;
        let said = outcome.stdout + &outcome.stderr;
        let had_no_time = NO_TIME.iter().any(|why| said.contains(why));
        if !had_no_time || !is_dry || tries == TRIES {
            return Ok((outcome.success, said));
        }
        println!("tried again: {said}");
        tries += 1;
    }
}

pub async fn refused(cluster: &Cluster, object: &Value, why: &str, flags: &[&str]) -> Result<()> {
    let (taken, said) = apply(cluster, object, flags).await?;
    ensure!(
        !taken && said.contains(why),
        "taken: {taken}, not {why:?}: {said}"
    );
    Ok(())
}

pub async fn taken(cluster: &Cluster, object: &Value, warning: &str, flags: &[&str]) -> Result<()> {
    let (taken, said) = apply(cluster, object, flags).await?;
    ensure!(
        taken && said.contains(warning),
        "taken: {taken}, not {warning:?}: {said}"
    );
    Ok(())
}

/// A form of one ConfigMap a tenant.
pub fn maps(fleet: &Fleet, value: &str) -> Value {
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
        "metadata": {"name": "maps", "namespace": fleet.namespace},
        "spec": {"hubId": "tenants", "configMaps": [{
            "id": "map", "nameTemplate": "{{ .uid }}-map",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": value}},
        }]},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_says_how_far_it_reaches_and_one_that_breaks_rows_is_refused() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let plans = "UPDATE tenants SET plan = IF(id = 't0', 'free', 'pro')";
    let fleet = Fleet::new_with(cluster, "authors", 4, plans).await?;
    let dry = ["--dry-run=server"];
    let new = fleet.form("web:1", json!(2), 0);
    let makes = "Warning: creates 4 nodes; maxSkew 2: at least 2 waves";
    taken(cluster, &new, makes, &dry).await?;
    ensure!(
        fleet.get("LynqForm", "web").await.is_err(),
        "a dry run stores nothing"
    );
    taken(cluster, &new, makes, &[]).await?;
    fleet.complete(4, SOON).await?;

    let image = r#"{{ if eq .plan "pro" }}web:2{{ else }}web:1{{ end }}"#;
    let change = fleet.form(image, json!(2), 0);
    let reach = "Warning: changes 3 of 4 nodes (1 identical); maxSkew 2: at least 2 waves; up to 3 Deployments restart";
    taken(cluster, &change, reach, &[]).await?;
    let mut labelled = change.clone();
    labelled["spec"]["deployments"][0]["deletionPolicy"] = json!("Retain");
    taken(
        cluster,
        &labelled,
        "changes 4 of 4 nodes (0 identical)",
        &dry,
    )
    .await?;

    // What goes is told while it can still be kept.
    let mut renamed = change.clone();
    renamed["spec"]["deployments"][0]["nameTemplate"] = json!("{{ .uid }}-web");
    let gone = "Warning: deletes 4 Deployments (t0-app, t1-app and 2 more), as the form does not name them any more; to keep them, \
                set deletionPolicy: Retain first and let that roll out";
    taken(cluster, &renamed, gone, &dry).await?;
    let mut shared = maps(&fleet, "x");
    shared["spec"]["configMaps"][0]["nameTemplate"] = json!("a");
    let both = "Warning: rows t0 and t1 both name ConfigMap \"a\" (and 2 more such clashes): the first to come owns it, the others \
                wait (conflict); put the row's uid into the nameTemplate";
    taken(cluster, &shared, both, &dry).await?;

    let bad = fleet.form(
        r#"{{ if eq .plan "pro" }}{{ fail "no" }}{{ end }}"#,
        json!(2),
        0,
    );
    let why = "it does not render for 3 of 4 rows: row t1: resource 'app': spec.spec.template.spec.containers[0].image: ";
    refused(cluster, &bad, why, &[]).await?;
    refused(
        cluster,
        &bad,
        "; likewise t2, t3. Correct the template, or the rows; or annotate",
        &[],
    )
    .await?;
    // At night a form that serves most has to be stored.
    let mut allowed = bad.clone();
    allowed["metadata"]["annotations"] = json!({"lynq.sh/allow-render-errors": "true"});
    let kept = "the resources that do not render stay as they are, the others of those nodes change, for it does not render for \
                3 of 4 rows: row t1";
    taken(cluster, &allowed, kept, &dry).await?;

    // A row leads nowhere that the form does not name.
    let mut away = maps(&fleet, "x");
    away["spec"]["configMaps"][0]["targetNamespace"] = json!("team-{{ .plan }}");
    taken(cluster, &away, "creates 4 nodes", &dry).await?;
    // Nothing of it stands outside of the template.
    let free = r#"{{ printf "team-%s" .plan }}"#;
    away["spec"]["configMaps"][0]["targetNamespace"] = json!(free);
    let why = "which must be created by this form for the row, or match allowedNamespaces. Add it there, or correct";
    refused(cluster, &away, why, &dry).await?;
    away["spec"]["allowedNamespaces"] = json!(["team-*"]);
    taken(cluster, &away, "creates 4 nodes", &dry).await?;
    away["spec"]["allowedNamespaces"] = json!([]);
    away["spec"]["namespaces"] = json!([{
        "id": "team", "nameTemplate": "team-{{ .plan }}", "spec": {"apiVersion": "v1", "kind": "Namespace"},
    }]);
    taken(cluster, &away, "creates 4 nodes", &dry).await?;
    // The operator's own namespace matches, and is not meant.
    let mut own = maps(&fleet, "x");
    let system = r#"lynq-{{ printf "system" }}"#;
    own["spec"]["configMaps"][0]["targetNamespace"] = json!(system);
    let why = "which is reserved. List that name itself in allowedNamespaces";
    refused(cluster, &own, why, &dry).await?;
    own["spec"]["allowedNamespaces"] = json!(["lynq-system"]);
    taken(cluster, &own, "creates 4 nodes", &dry).await?;

    // Without its rows a form is judged by itself.
    let mut elsewhere = maps(&fleet, "{{ .nosuch }}");
    elsewhere["spec"]["hubId"] = json!("nowhere");
    let untried = format!(
        "Warning: not tried on the rows: there is no LynqHub \"nowhere\" in namespace {}",
        fleet.namespace
    );
    taken(cluster, &elsewhere, &untried, &dry).await?;
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lynq_refuses_is_refused_in_its_words() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "words", 1).await?;
    let with = |field: &str, value: Value| {
        let mut form = maps(&fleet, "x");
        form["spec"]["configMaps"][0][field] = value;
        form
    };
    for (form, why) in [
        (
            with("dependIds", json!(["db"])),
            "dependency validation failed: resource 'map' depends on non-existent resource 'db'",
        ),
        (
            with("nameTemplate", json!("{{ .uid")),
            "template validation failed: invalid NameTemplate in resource 'map': failed to parse template: ",
        ),
        (
            with("ignoreFields", json!(["$.data["])),
            "ignoreFields validation failed: invalid ignoreFields in resource 'map': invalid JSONPath \"$.data[\"",
        ),
    ] {
        refused(cluster, &form, why, &[]).await?;
    }
    let mut hub = fleet.hub();
    hub["metadata"]["name"] = json!("other");
    let source = hub["spec"]["source"].as_object_mut().context("a source")?;
    source.remove("mysql").context("its block")?;
    let why = "mysql configuration is required when source type is mysql";
    refused(cluster, &hub, why, &[]).await?;

    // What is stored already, however bad it is, takes a label, and goes.
    let bad = with("nameTemplate", json!("{{ .uid"));
    etcd::store(cluster, &bad).await?;
    let namespace = fleet.namespace.as_str();
    for command in [
        vec!["label", "lynqform", "maps", "a=b", "-n", namespace],
        vec!["delete", "lynqform", "maps", "-n", namespace],
    ] {
        cluster.kubectl(&command, None).await?.expect_success()?;
    }
    fleet.retire().await
}

/// Whoever lets lynqgate make something must be allowed to make it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_gives_its_author_no_rights() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "rights", 1).await?;
    let may = async |role: &str, verbs: &str, resources: &str| -> Result<()> {
        let binding = [
            "create",
            "rolebinding",
            role,
            "-n",
            &fleet.namespace,
            "--role",
            role,
            "--user=alice",
        ];
        let (verbs, resources) = (format!("--verb={verbs}"), format!("--resource={resources}"));
        let role = [
            "create",
            "role",
            role,
            "-n",
            &fleet.namespace,
            &verbs,
            &resources,
        ];
        cluster.kubectl(&role, None).await?.expect_success()?;
        cluster.kubectl(&binding, None).await?.expect_success()?;
        Ok(())
    };
    may(
        "forms",
        "get,create,patch,update",
        "lynqforms.operator.lynq.sh",
    )
    .await?;
    let alice = ["--as=alice"];
    let form = maps(&fleet, "x");
    let why = format!(
        "user \"alice\" may not create configmaps in namespace \"{}\", and this form makes lynqgate do that; ask for that right, \
         or have somebody apply it who has it",
        fleet.namespace
    );
    refused(cluster, &form, &why, &alice).await?;
    may("maps", "create,patch", "configmaps").await?;
    wait::until("alice may", SOON, async || {
        taken(cluster, &form, "creates 1 node", &alice).await
    })
    .await?;

    let mut elsewhere = form.clone();
    elsewhere["spec"]["configMaps"][0]["targetNamespace"] = json!("kube-system");
    refused(cluster, &elsewhere, "in namespace \"kube-system\"", &alice).await?;

    may("roles", "create,patch", "roles.rbac.authorization.k8s.io").await?;
    let mut role = form.clone();
    role["spec"]["manifests"] = json!([{
        "id": "role", "nameTemplate": "{{ .uid }}-role",
        "spec": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []},
    }]);
    let escalates = "user \"alice\" may not escalate roles.rbac.authorization.k8s.io";
    wait::until("alice may make roles", SOON, async || {
        refused(cluster, &role, escalates, &alice).await
    })
    .await?;
    // Neither rows nor the hour decide what she is asked for.
    let any = |field: &str, value: &str| {
        let mut form = form.clone();
        form["spec"]["configMaps"][0][field] = json!(value);
        form
    };
    let anywhere = any("targetNamespace", "{{ .plan }}");
    let why = "may not create configmaps in all namespaces (only its templates tell which)";
    refused(cluster, &anywhere, why, &alice).await?;
    // What a template spells out is asked for where it leads now; rights in all namespaces are enough for ever.
    let ours = any(
        "targetNamespace",
        &format!("{}{{{{ .plan }}}}", fleet.namespace),
    );
    taken(
        cluster,
        &ours,
        "",
        &[&alice[..], &["--dry-run=server"]].concat(),
    )
    .await?;
    for (template, why) in [
        (
            "kube-{{ .plan }}",
            "in all namespaces (no namespace matches \"kube-*\" yet)",
        ),
        (
            "nobodys-{{ .plan }}",
            "in all namespaces (no namespace matches \"nobodys-*\" yet)",
        ),
    ] {
        refused(cluster, &any("targetNamespace", template), why, &alice).await?;
    }
    let mut listed = any("targetNamespace", "{{ .plan }}");
    listed["spec"]["allowedNamespaces"] = json!([fleet.namespace, "kube-system"]);
    refused(cluster, &listed, "in namespace \"kube-system\"", &alice).await?;
    let mut kind = form.clone();
    let by_the_hour = r#"{{ if eq (now | date "2006") "1970" }}Nope{{ else }}Secret{{ end }}"#;
    kind["spec"]["configMaps"][0]["spec"]["kind"] = json!(by_the_hour);
    let why = "may not create objects of every kind (only its templates tell which) in namespace";
    refused(cluster, &kind, why, &alice).await?;
    // A comment is a template too: what stands there is not what is made.
    let mut commented = form.clone();
    commented["spec"] = json!({
        "hubId": "tenants", "templateEngine": "Jinja",
        "manifests": [{
            "id": "secret", "nameTemplate": "{{ uid }}", "spec": {"apiVersion": "v1", "kind": "Secret{# #}"},
        }],
    });
    refused(cluster, &commented, why, &alice).await?;
    // It would be made once its kind is installed.
    kind["spec"]["configMaps"][0]["spec"] =
        json!({"apiVersion": "example.com/v1", "kind": "Powerful"});
    let why = "may not create everything of the group of example.com/v1 Powerful, which the cluster does not have yet, in the cluster";
    refused(cluster, &kind, why, &alice).await?;
    fleet
        .database
        .execute("UPDATE tenants SET active = 0")
        .await?;
    refused(cluster, &elsewhere, "in namespace \"kube-system\"", &alice).await?;

    // What renders as before needs no rights: whoever is on call may pause.
    cluster
        .kubectl(&["delete", "role", "maps", "-n", &fleet.namespace], None)
        .await?
        .expect_success()?;
    wait::until("alice may not", SOON, async || {
        let changed = any("nameTemplate", "{{ .uid }}-other");
        refused(cluster, &changed, "may not create configmaps", &alice).await
    })
    .await?;
    let mut paused = form.clone();
    paused["metadata"]["labels"] = json!({"a": "b"});
    paused["spec"]["rollout"] = json!({"paused": true});
    taken(cluster, &paused, "", &alice).await?;

    // Nor does a node that she writes herself: not even one that has no form.
    may(
        "nodes",
        "get,create,patch,update",
        "lynqnodes.operator.lynq.sh",
    )
    .await?;
    let node = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
        "metadata": {"name": "sneak", "namespace": fleet.namespace, "annotations": {"lynq.sh/force-rollout": "true"}},
        "spec": {"uid": "sneak", "templateRef": "nosuchform", "configMaps": [{
            "id": "map", "nameTemplate": "sneak", "targetNamespace": "kube-system",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap"},
        }]},
    });
    let why = "user \"alice\" may not create configmaps in namespace \"kube-system\", and this lynqnode makes lynqgate do that";
    wait::until("alice may write nodes", SOON, async || {
        refused(cluster, &node, why, &alice).await
    })
    .await?;
    let mut held = node.clone();
    held["metadata"]["annotations"] = json!({});
    let (is_taken, said) = apply(cluster, &held, &alice).await?;
    ensure!(
        !is_taken && said.contains(why) && !said.contains("held:"),
        "what is denied is not held: {said}"
    );
    fleet.retire().await
}

/// A hub sends a password to a host. Its author names both, and so must be allowed to read the one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_gives_its_author_no_password_and_maps_what_is_there() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "hubs", 1).await?;
    let dry = ["--dry-run=server"];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let hub = |field: &str, value: Value| {
        let mut hub = fleet.hub();
        hub["metadata"]["name"] = json!("theirs");
        hub["spec"]["source"]["mysql"][field] = value;
        hub
    };
    let theirs = hub("port", json!(listener.local_addr()?.port()));
    let heard = async || tokio::time::timeout(SOON, listener.accept()).await.is_ok();
    // Who may read the Secret may send it anywhere: to whoever listens there.
    let untried = "Warning: not checked in the database: cannot reach the database";
    let (sent, heard_of) = tokio::join!(taken(cluster, &theirs, untried, &dry), heard());
    sent?;
    ensure!(heard_of, "the hub's server is asked");
    for (role, verbs, resource) in [
        ("hubs", "get,create,patch", "lynqhubs.operator.lynq.sh"),
        ("secrets", "get", "secrets"),
    ] {
        let (verbs, resource) = (format!("--verb={verbs}"), format!("--resource={resource}"));
        let role_of = format!("--role={role}");
        for command in [
            ["create", "role", role, &verbs, &resource],
            ["create", "rolebinding", role, &role_of, "--user=carol"],
        ] {
            let command = [&command[..], &["-n", &fleet.namespace]].concat();
            cluster.kubectl(&command, None).await?.expect_success()?;
        }
        let why = format!(
            "user \"carol\" may not get secrets \"database\" in namespace \"{}\", and this hub makes lynqgate use what is in there",
            fleet.namespace
        );
        wait::until("carol's role is known", SOON, async || {
            let carol = ["--as=carol", "--dry-run=server"];
            match role {
                "hubs" => refused(cluster, &theirs, &why, &carol).await,
                _ => {
                    taken(
                        cluster,
                        &hub("port", json!(fleet.database.port)),
                        "",
                        &carol,
                    )
                    .await
                }
            }
        })
        .await?;
    }
    let more = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
    ensure!(more.is_err(), "nothing was sent for carol");

    let mut mapped = hub("table", json!("tenants"));
    mapped["spec"]["extraValueMappings"]["plan"] = json!("plam");
    let why = "`tenants` has no column \"plam\"; add it, or correct the hub's value mappings";
    refused(cluster, &mapped, why, &[]).await?;
    let away =
        "Warning: not checked in the database: there is no table or view `tenant`; create it";
    taken(cluster, &hub("table", json!("tenant")), away, &dry).await?;
    let host = "169.254.169.254";
    let why = "it is a link-local address; name another host";
    refused(cluster, &hub("host", json!(host)), why, &[]).await?;
    let api_server = cluster.server_url();
    let port = api_server.rsplit_once(':').context("a port")?.1;
    let port: u16 = port.trim_end_matches('/').parse()?;
    refused(
        cluster,
        &hub("port", json!(port)),
        "it is the API server",
        &[],
    )
    .await?;
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whether_authors_are_asked_for_and_untried_forms_let_in_are_flags() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let said = "user \"bob\" may not create configmaps in namespace";
    for (mode, warned) in [("warn", true), ("off", false)] {
        let flag = format!("--authorize-forms={mode}");
        let untried = if warned { "warn" } else { "deny" };
        let untried = format!("--untried-forms={untried}");
        let hosts = "--allow-datasource-hosts=*.example.com,127.0.0.0/8";
        let flags = [flag.as_str(), &untried, hosts];
        let operator = Operator::start(&cluster, mode, &flags).await?;
        operator.ready().await?;
        let fleet = Fleet::new(&cluster, mode, 1).await?;
        for command in [
            vec![
                "create",
                "role",
                "forms",
                "--verb=get,create,patch",
                "--resource=lynqforms.operator.lynq.sh",
            ],
            vec![
                "create",
                "rolebinding",
                "forms",
                "--role=forms",
                "--user=bob",
            ],
        ] {
            let command = [command, vec!["-n", &fleet.namespace]].concat();
            cluster.kubectl(&command, None).await?.expect_success()?;
        }
        let form = maps(&fleet, "x");
        let (is_taken, text) = wait::until("bob's role is known", SOON, async || {
            let (is_taken, text) = apply(&cluster, &form, &["--as=bob"]).await?;
            ensure!(!text.contains("cannot"), "{text}");
            Ok((is_taken, text))
        })
        .await?;
        ensure!(
            is_taken && text.contains(said) == warned,
            "{mode}: {is_taken} {text}"
        );
        // The other flag: what could not be tried on its rows.
        let mut elsewhere = form.clone();
        elsewhere["spec"]["hubId"] = json!("nowhere");
        elsewhere["metadata"]["name"] = json!("elsewhere");
        let said = "not tried on the rows: there is no LynqHub \"nowhere\"";
        match warned {
            true => taken(&cluster, &elsewhere, said, &["--as=bob"]).await?,
            false => {
                refused(&cluster, &elsewhere, said, &["--as=bob"]).await?;
                let why = "lynqgate runs with --untried-forms=deny";
                refused(&cluster, &elsewhere, why, &["--as=bob"]).await?;
                // The first form comes before the first row.
                let empty = "Warning: not tried on the rows: the hub has no active rows";
                elsewhere["spec"]["hubId"] = json!("tenants");
                fleet.database.execute("DELETE FROM tenants").await?;
                wait::until("the node goes", SOON, async || {
                    taken(&cluster, &elsewhere, empty, &["--as=bob"]).await
                })
                .await?;
            }
        }
        let mut away = fleet.hub();
        away["metadata"]["name"] = json!("away");
        away["spec"]["source"]["mysql"]["host"] = json!("192.0.2.1");
        let why = "--allow-datasource-hosts does not list this host; name another one";
        refused(&cluster, &away, why, &[]).await?;
        fleet.retire().await?;
        operator.process.kill().context("the operator ends")?;
    }
    Ok(())
}
