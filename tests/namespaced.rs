//! An operator that watches some namespaces only, with the rights of the component namespaced: it works there, and neither sees nor
//! writes anything in others.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use lynqgate::decide::operator::watched::WatchedNamespaces;
use serde_json::{Value, json};

use crate::check::check;
use crate::cluster::database::{self, Product};
use crate::cluster::{self, Cluster, Options, wait};
use crate::operator::{self, Operator, root};
use crate::tenants::{Fleet, SOON};

const OVERLAY: &str = "tests/namespaced/overlay";
const BINDINGS: &str = "kustomize/components/namespaced/tenants.yaml";
/// The namespace of the component.
const WATCHED: &str = "tenants";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_component_binds_the_operator_in_one_namespace() -> Result<()> {
    let cluster = cluster::shared().await?;
    let all = cluster.kustomize_build(&root().join(OVERLAY)).await?;
    let all: Vec<Value> = serde_saphyr::from_multiple(&all)?;
    let of_kind = |kind: &str| {
        let objects = all.iter().filter(|object| object["kind"] == kind);
        Vec::from_iter(objects)
    };
    let bound = |kind: &str| -> BTreeSet<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let bindings = of_kind(kind).into_iter().map(|binding| {
            let namespace = text(&binding["metadata"]["namespace"]);
            (namespace, text(&binding["roleRef"]["name"]))
        });
        bindings.collect()
    };
    let pairs = |pairs: &[(&str, &str)]| -> BTreeSet<(String, String)> {
        let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        pairs.iter().map(owned).collect()
    };
    let in_cluster = pairs(&[("", "lynq-cluster-scoped-role")]);
    assert_eq!(bound("ClusterRoleBinding"), in_cluster);
    let in_namespaces = pairs(&[
        ("lynq-system", "lynq-leader-election-role"),
        (WATCHED, "lynq-manager-role"),
        (WATCHED, "lynq-tenants-role"),
    ]);
    assert_eq!(bound("RoleBinding"), in_namespaces);

    let watched = WatchedNamespaces::of([WATCHED.to_owned()]);
    let selector = watched.selector().context("a selector")?;
    for (kind, count) in [
        ("MutatingWebhookConfiguration", 3),
        ("ValidatingWebhookConfiguration", 5),
    ] {
        let [configuration] = of_kind(kind)[..] else {
            anyhow::bail!("not one {kind}");
        };
        let webhooks = configuration["webhooks"].as_array().context("webhooks")?;
        assert_eq!(webhooks.len(), count, "{kind}");
        for webhook in webhooks {
            assert_eq!(webhook["namespaceSelector"], selector, "{webhook}");
        }
    }
    let [deployment] = of_kind("Deployment")[..] else {
        anyhow::bail!("not one Deployment");
    };
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().context("arguments")?;
    let flag = json!(format!("--watch-namespaces={WATCHED}"));
    assert!(arguments.contains(&flag), "{arguments:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_of_one_namespace_leaves_all_others_alone() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    create_namespace(&cluster, WATCHED).await?;
    operator::install_overlay(&cluster, OVERLAY).await?;
    let kubeconfig = cluster.kubeconfig_for(&operator::identity()).await?;
    let flag = format!("--watch-namespaces={WATCHED}");
    let operator = Operator::start_at(&cluster, "one", &kubeconfig, &[&flag]).await?;
    let home = fleet_in(&cluster, WATCHED).await?;
    let other = Fleet::new(&cluster, "unwatched", 2).await?;
    for fleet in [&other, &home] {
        fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    }
    home.complete(2, SOON).await?;
    untouched(&other).await?;
    rights_are_those_of_one_namespace(&cluster, &other.namespace).await?;
    let log = &operator.process;
    ensure!(!log.log_contains("forbidden"), "{}", log.log_tail());
    check_says_what_is_watched(&cluster, &home, &other).await?;

    objects_elsewhere_are_refused(&home, &other).await?;
    cluster_scoped_kinds_need_a_right_of_their_own(&cluster, &home).await?;
    // All that was refused is taken back.
    home.apply(&home.form("web:2", json!(1), 0)).await?;
    home.complete(2, SOON).await?;
    untouched(&other).await?;

    // One more namespace, as the component says.
    let status = operator.process.terminate(SOON).await?;
    ensure!(status.success(), "{status}");
    create_namespace(&cluster, "shops").await?;
    let bindings = std::fs::read_to_string(root().join(BINDINGS))?;
    let watched = format!("namespace: {WATCHED}\n");
    let bindings = bindings.replace(&watched, "namespace: shops\n");
    cluster.apply(&bindings).await?;
    let flag = format!("{flag},shops");
    let operator = Operator::start_at(&cluster, "two", &kubeconfig, &[&flag]).await?;
    let shops = fleet_in(&cluster, "shops").await?;
    for fleet in [&home, &shops] {
        fleet.apply(&fleet.form("web:3", json!(1), 0)).await?;
        fleet.complete(2, SOON).await?;
    }
    // A form of one watched namespace may make objects in another one.
    home.apply(&with_a_map(&home, &shops.namespace)).await?;
    home.complete(2, SOON).await?;
    let maps = shops.names("ConfigMap").await?;
    for map in ["t0-map", "t1-map"] {
        ensure!(maps.iter().any(|name| name == map), "{maps:?}");
    }
    untouched(&other).await?;
    let log = &operator.process;
    ensure!(!log.log_contains("forbidden"), "{}", log.log_tail());
    Ok(())
}

async fn create_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    cluster.apply(&namespace.to_string()).await
}

async fn fleet_in(cluster: &Cluster, namespace: &str) -> Result<Fleet> {
    let database = database::shared(Product::Mariadb).await?;
    Fleet::within(cluster, database, namespace, 2, "SELECT 1").await
}

/// A form whose tenants have a ConfigMap in this namespace.
fn with_a_map(fleet: &Fleet, namespace: &str) -> Value {
    let mut form = fleet.form("web:3", json!(1), 0);
    form["spec"]["configMaps"] = json!([{
        "id": "map", "nameTemplate": "{{ .uid }}-map", "targetNamespace": namespace,
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}"}},
    }]);
    form
}

/// No operator has seen its hub and its form, and they have no nodes.
async fn untouched(fleet: &Fleet) -> Result<()> {
    for (kind, name) in [("LynqHub", "tenants"), ("LynqForm", "web")] {
        let object = fleet.get(kind, name).await?;
        ensure!(object["status"]["observedGeneration"] == -1, "{object}");
        ensure!(object["metadata"]["finalizers"].is_null(), "{object}");
    }
    for kind in ["LynqNode", "Deployment"] {
        let names = fleet.names(kind).await?;
        ensure!(names.is_empty(), "{kind}: {names:?}");
    }
    let maps = fleet.names("ConfigMap").await?;
    let of_tenants = maps.iter().find(|name| name.starts_with('t'));
    ensure!(of_tenants.is_none(), "{maps:?}");
    Ok(())
}

async fn rights_are_those_of_one_namespace(cluster: &Cluster, other: &str) -> Result<()> {
    let reviews = Api::<SubjectAccessReview>::all(cluster.admin().await?);
    let user = operator::identity().username();
    for (allowed, verb, group, resource, namespace) in [
        (true, "list", "operator.lynq.sh", "lynqhubs", WATCHED),
        (false, "list", "operator.lynq.sh", "lynqhubs", other),
        (false, "list", "operator.lynq.sh", "lynqhubs", ""),
        (true, "create", "apps", "deployments", WATCHED),
        (false, "create", "apps", "deployments", other),
        (true, "get", "", "secrets", WATCHED),
        (false, "get", "", "secrets", other),
        (false, "list", "", "configmaps", ""),
        (false, "list", "", "pods", ""),
        (false, "list", "", "namespaces", ""),
        (false, "create", "", "namespaces", ""),
        (true, "create", "authentication.k8s.io", "tokenreviews", ""),
    ] {
        let attributes =
            json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace});
        let review =
            json!({"metadata": {}, "spec": {"user": user, "resourceAttributes": attributes}});
        let review = serde_json::from_value(review)?;
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let status = answer.status.context("an answer")?;
        assert_eq!(status.allowed, allowed, "{attributes}: {:?}", status.reason);
    }
    Ok(())
}

/// `lynqgate check` learns from the webhooks which namespaces are watched: the operator of the tests is no Deployment.
async fn check_says_what_is_watched(cluster: &Cluster, home: &Fleet, other: &Fleet) -> Result<()> {
    let kubeconfig = cluster.admin_kubeconfig();
    wait::until("nothing fails in the watched namespace", SOON, async || {
        let (code, said) = check(kubeconfig, &home.namespace, &[]).await?;
        ensure!(code == 0, "exit status {code}: {said}");
        Ok(())
    })
    .await?;
    let (code, said) = check(kubeconfig, &other.namespace, &[]).await?;
    let failed: Vec<&str> = said.lines().filter(|l| l.starts_with("failed ")).collect();
    let start = format!(
        "failed   Namespace {}: lynqgate does not watch it, ",
        other.namespace
    );
    ensure!(code == 1 && failed.len() == 1, "exit status {code}: {said}");
    ensure!(failed[0].starts_with(&start), "{said}");
    Ok(())
}

async fn objects_elsewhere_are_refused(home: &Fleet, other: &Fleet) -> Result<()> {
    let mut form = with_a_map(home, &other.namespace);
    let why = format!(
        "lynqgate does not watch namespace {:?}, so it applies nothing there; add it to --watch-namespaces, or correct \
         targetNamespace",
        other.namespace
    );
    let refused = home.apply(&form).await;
    let refused = format!("{:#}", refused.err().context("the form is stored")?);
    let said = format!("lynqgate refuses resource 'map' (ConfigMap, row t0): {why}. ");
    ensure!(refused.contains(&said), "{refused}");

    // Stored all the same, its nodes say it.
    let allow = json!({"lynq.sh/allow-render-errors": "true"});
    form["metadata"]["annotations"] = allow;
    home.apply(&form).await?;
    wait::until("a node says what is not watched", SOON, async || {
        let nodes = home.list("LynqNode").await?;
        let conditions = nodes.iter().flat_map(|node| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.into_iter().flatten()
        });
        let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
        ensure!(messages.any(|message| message.contains(&why)), "{nodes:?}");
        Ok(())
    })
    .await?;
    untouched(other).await
}

async fn cluster_scoped_kinds_need_a_right_of_their_own(
    cluster: &Cluster,
    home: &Fleet,
) -> Result<()> {
    let mut form = home.form("web:2", json!(1), 0);
    form["spec"]["manifests"] = json!([{
        "id": "place", "nameTemplate": "{{ .uid }}-place", "spec": {"apiVersion": "v1", "kind": "Namespace"},
    }]);
    let dry_run = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=user",
        "--dry-run=server",
        "-f",
        "-",
    ];
    let tried = cluster.kubectl(&dry_run, Some(&form.to_string())).await?;
    let said = [
        "cannot be applied now: resource 'place' (Namespace, row t0): lynqgate ",
        " namespaces in the cluster; add a ClusterRole with a ClusterRoleBinding (lynqgate check shows its rule)",
    ];
    ensure!(
        tried.success && said.iter().all(|said| tried.stderr.contains(*said)),
        "{}{}",
        tried.stdout,
        tried.stderr
    );
    Ok(())
}

/// Flags that do not go together are named, with what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_namespaces_exclude_node_maintenance() -> Result<()> {
    let program = operator::program("lynqgate")?;
    for (flags, text) in [
        (
            vec!["--watch-namespaces=tenants", "--node-maintenance"],
            "exclude each other",
        ),
        (
            vec!["--watch-namespaces=Tenants"],
            "give the names of namespaces",
        ),
    ] {
        let mut command = tokio::process::Command::new(&program);
        let output = command.arg("run").args(&flags).output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(text),
            "{flags:?}: {said}"
        );
    }
    Ok(())
}
