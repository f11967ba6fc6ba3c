//! Whether the test cluster itself can be trusted: KWOK plays what the tests rely on, the logs tell, and nothing is
//! left behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, future};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::credentials::Identity;
use super::database::{self, Database, DatabaseHandle, Product};
use super::process::{AtEnd, Process, ProcessGroup};
use super::programs::Component;
use super::{Cluster, Options, shared, wait};

const DEADLINE: Duration = Duration::from_secs(60);

fn deployment(name: &str, replicas: u32, image: &str, delay_seconds: u32) -> String {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "main",
                    "image": image,
                    "readinessProbe": { "httpGet": { "path": "/", "port": 80 }, "initialDelaySeconds": delay_seconds },
                }] },
            },
        },
    })
    .to_string()
}

fn job(name: &str) -> String {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "once:1" }],
        } } },
    })
    .to_string()
}

async fn apply(cluster: &Cluster, namespace: &str, manifest: &str) -> Result<()> {
    cluster
        .kubectl(&["apply", "-n", namespace, "-f", "-"], Some(manifest))
        .await?
        .expect_success()?;
    Ok(())
}

async fn wait_for(cluster: &Cluster, namespace: &str, condition: &str, object: &str) -> Result<()> {
    let condition = format!("--for=condition={condition}");
    let arguments = ["wait", "-n", namespace, &condition, object, "--timeout=60s"];
    cluster.kubectl(&arguments, None).await?.expect_success()?;
    Ok(())
}

#[tokio::test]
async fn the_server_has_the_pinned_version() -> Result<()> {
    let go_mod = include_str!("go.mod");
    let pinned = go_mod
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    let version = shared().await?.admin().await?.apiserver_version().await?;
    assert_eq!(
        Some(version.git_version.as_str()),
        pinned.and_then(|rest| rest.split(' ').next())
    );
    Ok(())
}

#[tokio::test]
async fn a_deployment_becomes_available() -> Result<()> {
    let cluster = shared().await?;
    let namespace = cluster.namespace("available").await?;
    apply(cluster, &namespace, &deployment("web", 3, "web:1", 0)).await?;
    wait_for(cluster, &namespace, "Available", "deployment/web").await
}

#[tokio::test]
async fn a_pod_is_ready_after_the_initial_delay_of_its_probe() -> Result<()> {
    let cluster = shared().await?;
    let namespace = cluster.namespace("delay").await?;
    apply(cluster, &namespace, &deployment("web", 1, "web:1", 2)).await?;
    wait_for(cluster, &namespace, "Available", "deployment/web").await?;
    let pods = Api::<Pod>::namespaced(cluster.admin().await?, &namespace)
        .list(&ListParams::default())
        .await?;
    let pod = pods.items.first().context("no pod")?;
    let created = pod.creation_timestamp().context("no creation time")?.0;
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .context("no condition Ready")?;
    let ready = ready
        .last_transition_time
        .as_ref()
        .context("no transition time")?
        .0;
    let seconds = ready.as_second() - created.as_second();
    assert!(
        (2..20).contains(&seconds),
        "created {created}, ready {ready}"
    );
    Ok(())
}

#[tokio::test]
async fn a_broken_image_never_becomes_ready() -> Result<()> {
    let cluster = shared().await?;
    let namespace = cluster.namespace("broken").await?;
    apply(cluster, &namespace, &deployment("web", 1, "web:broken", 0)).await?;
    let pods = Api::<Pod>::namespaced(cluster.admin().await?, &namespace);
    wait::until("the pod is in its final state", DEADLINE, async || {
        let pods = serde_json::to_value(pods.list(&ListParams::default()).await?.items)?;
        let reason = pods.pointer("/0/status/containerStatuses/0/state/waiting/reason");
        ensure!(reason == Some(&json!("ImagePullBackOff")), "{pods}");
        Ok(())
    })
    .await?;
    let available = [
        "wait",
        "-n",
        &namespace,
        "--for=condition=Available",
        "deployment/web",
        "--timeout=3s",
    ];
    let outcome = cluster.kubectl(&available, None).await?;
    assert!(
        !outcome.success,
        "the deployment became available: {outcome:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_job_completes() -> Result<()> {
    let cluster = shared().await?;
    let namespace = cluster.namespace("job").await?;
    apply(cluster, &namespace, &job("once")).await?;
    wait_for(cluster, &namespace, "Complete", "job/once").await
}

#[tokio::test]
async fn a_namespace_goes_with_all_its_pods() -> Result<()> {
    let cluster = shared().await?;
    let namespace = cluster.namespace("gone").await?;
    apply(cluster, &namespace, &deployment("web", 2, "web:1", 0)).await?;
    apply(cluster, &namespace, &job("once")).await?;
    wait_for(cluster, &namespace, "Available", "deployment/web").await?;
    wait_for(cluster, &namespace, "Complete", "job/once").await?;
    let delete = ["delete", "namespace", &namespace, "--timeout=60s"];
    cluster.kubectl(&delete, None).await?.expect_success()?;
    Ok(())
}

#[tokio::test]
async fn kustomize_builds_what_the_server_accepts() -> Result<()> {
    let cluster = shared().await?;
    let directory = tempfile::tempdir()?;
    let kustomization = "configMapGenerator: [{name: built, literals: [key=value]}]";
    fs::write(directory.path().join("kustomization.yaml"), kustomization)?;
    let built = cluster.kustomize_build(directory.path()).await?;
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    let told = cluster
        .kubectl(&apply, Some(&built))
        .await?
        .expect_success()?;
    assert!(told.starts_with("configmap/built-"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_service_account_has_only_the_rights_that_rbac_gives() -> Result<()> {
    let cluster = shared().await?;
    let namespace = cluster.namespace("rbac").await?;
    let identity = Identity::service_account(&namespace, "default");
    let configmaps = Api::<ConfigMap>::namespaced(cluster.client_for(&identity).await?, &namespace);
    match configmaps.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403, "{status:?}");
            assert!(status.message.contains(&identity.username()), "{status:?}");
        }
        other => bail!("expected to be refused: {other:?}"),
    }
    Ok(())
}

#[tokio::test]
async fn the_audit_log_tells_writes_reads_and_dry_runs_apart() -> Result<()> {
    let cluster = shared().await?;
    let namespace = cluster.namespace("audit").await?;
    let identity = Identity::service_account(&namespace, "default");
    let configmaps = Api::<ConfigMap>::namespaced(cluster.client_for(&identity).await?, &namespace);
    let grant = [
        "create",
        "rolebinding",
        "edit",
        "-n",
        &namespace,
        "--clusterrole=edit",
    ];
    let subject = format!("--serviceaccount={namespace}:default");
    cluster
        .kubectl(&[&grant[..], &[&subject]].concat(), None)
        .await?
        .expect_success()?;

    let mut audit = cluster.audit().await?;
    let apply = PatchParams::apply("test");
    let configmap = |value: &str| {
        Patch::Apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "told" }, "data": { "key": value },
        }))
    };
    wait::until("the role binding counts", DEADLINE, async || {
        Ok(configmaps.list(&ListParams::default()).await.map(drop)?)
    })
    .await?;
    configmaps.patch("told", &apply, &configmap("1")).await?;
    configmaps
        .patch("told", &apply.clone().dry_run(), &configmap("2"))
        .await?;
    configmaps.get("told").await?;

    let events = audit.read().await?;
    let told: Vec<_> = events
        .iter()
        .filter(|event| {
            event.namespace == namespace && event.resource == "configmaps" && event.name == "told"
        })
        .map(|event| {
            (
                event.user.clone(),
                event.verb.as_str(),
                event.code,
                event.is_write(),
            )
        })
        .collect();
    let user = identity.username();
    let expected = [
        ("patch", 201, true),
        ("patch", 200, false),
        ("get", 200, false),
    ];
    assert_eq!(
        told,
        expected.map(|(verb, code, write)| (user.clone(), verb, code, write))
    );
    let again = audit.read().await?;
    assert!(
        !again.iter().any(|event| event.namespace == namespace),
        "told twice: {again:?}"
    );
    Ok(())
}

#[tokio::test]
async fn what_was_written_survives_a_kill_of_the_servers() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let configmaps = Api::<ConfigMap>::default_namespaced(cluster.admin().await?);
    let kept: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "kept" } }))?;
    configmaps.create(&PostParams::default(), &kept).await?;
    for component in [Component::Etcd, Component::Apiserver] {
        let before = cluster.component(component).id();
        cluster.restart(component).await?;
        assert_ne!(
            cluster.component(component).id(),
            before,
            "{component:?} is the same process"
        );
        wait::until("the object is readable", DEADLINE, async || {
            Ok(configmaps.get("kept").await?)
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_frozen_etcd_answers_again_after_the_thaw() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let etcd = cluster.component(Component::Etcd);
    let read = async || {
        let configmaps = Api::<ConfigMap>::default_namespaced(cluster.admin().await?);
        Ok(configmaps.list(&ListParams::default()).await?)
    };
    etcd.freeze()?;
    let frozen = tokio::time::timeout(Duration::from_secs(2), read()).await;
    assert!(!matches!(frozen, Ok(Ok(_))), "a frozen etcd answered");
    etcd.thaw()?;
    cluster.ready(Component::Etcd).await?;
    wait::until("a read succeeds", DEADLINE, read).await?;
    Ok(())
}

/// The rows of `tenants`, as the user sees them.
async fn count(handle: &DatabaseHandle, password: &str) -> Result<Option<u32>> {
    if handle.product == Product::Postgresql {
        let stream = TcpStream::connect((handle.host.as_str(), handle.port)).await?;
        let mut config = tokio_postgres::Config::new();
        config
            .user(&handle.username)
            .password(password)
            .dbname(&handle.database);
        let (client, connection) = config.connect_raw(stream, tokio_postgres::NoTls).await?;
        let connection = tokio::spawn(connection);
        let row = client
            .query_one("SELECT COUNT(*) FROM tenants", &[])
            .await?;
        connection.abort();
        return Ok(Some(row.get::<_, i64>(0).try_into()?));
    }
    let options = OptsBuilder::default()
        .ip_or_hostname(&handle.host)
        .tcp_port(handle.port)
        .user(Some(&handle.username))
        .pass(Some(password))
        .db_name(Some(&handle.database));
    Ok(Conn::new(options)
        .await?
        .query_first("SELECT COUNT(*) FROM tenants")
        .await?)
}

#[tokio::test]
async fn the_database_lets_its_user_read_with_the_right_password() -> Result<()> {
    for (product, said) in [
        (Product::Mariadb, "Access denied"),
        (Product::Postgresql, "password authentication failed"),
    ] {
        let handle = database::shared(product).await?.create("tenants").await?;
        handle
            .execute("CREATE TABLE tenants (id INT); INSERT INTO tenants VALUES (1), (2)")
            .await?;
        assert_eq!(count(&handle, &handle.password).await?, Some(2));
        let refused = count(&handle, "wrong")
            .await
            .expect_err("a wrong password was accepted");
        assert!(format!("{refused:?}").contains(said), "{refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_database_keeps_its_rows_over_a_stop() -> Result<()> {
    for product in Product::ALL {
        let database = Database::start(product).await?;
        let handle = database.create("outage").await?;
        handle
            .execute("CREATE TABLE tenants (id INT); INSERT INTO tenants VALUES (1)")
            .await?;
        database.stop().await?;
        assert!(
            count(&handle, &handle.password).await.is_err(),
            "a stopped {product:?} answered"
        );
        database.start_again().await?;
        assert_eq!(count(&handle, &handle.password).await?, Some(1));
    }
    Ok(())
}

/// The processes of a group that have not ended. (One that has may wait for its parent to notice.)
fn alive(group: i64) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(stat) = fs::read_to_string(entry?.path().join("stat")) else {
            continue;
        };
        let (name, rest) = stat
            .rsplit_once(") ")
            .context("/proc/PID/stat has no closing parenthesis")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        if fields[2].parse() == Ok(group) && fields[0] != "Z" {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

async fn gone(group: i64, directory: &Path) -> Result<()> {
    wait::until("processes and directory are gone", DEADLINE, async || {
        let alive = alive(group)?;
        ensure!(alive.is_empty(), "alive: {alive:?}");
        ensure!(
            !directory.exists(),
            "{} is still there",
            directory.display()
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nothing_is_left_after_a_drop() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let (group, directory) = (
        cluster.group().id().into(),
        cluster.group().directory().to_owned(),
    );
    let running = alive(group)?.len();
    assert_eq!(
        running,
        Component::ALL.len() + 1,
        "not all components and the guardian run: {running}"
    );
    drop(cluster);
    assert!(
        alive(group)?.is_empty(),
        "alive after the drop: {:?}",
        alive(group)?
    );
    assert!(
        !directory.exists(),
        "{} is still there",
        directory.display()
    );
    Ok(())
}

/// Set for [`holds_a_cluster_until_it_is_killed`]: the file that tells what it started.
const HELD: &str = "LYNQGATE_TEST_HOLDS_A_CLUSTER";

#[tokio::test]
#[ignore = "the other half of nothing_is_left_after_kill_9, which runs it in a process of its own"]
async fn holds_a_cluster_until_it_is_killed() -> Result<()> {
    let Some(told) = env::var_os(HELD).map(PathBuf::from) else {
        return Ok(());
    };
    let (cluster, mariadb, postgresql) = tokio::try_join!(
        Cluster::start(Options::default()),
        Database::start(Product::Mariadb),
        Database::start(Product::Postgresql),
    )?;
    // A frozen process must go, too.
    cluster.component(Component::Etcd).freeze()?;
    let groups = [cluster.group(), mariadb.group(), postgresql.group()]
        .map(|group| json!([group.id(), group.directory()]));
    fs::write(told.with_extension("new"), serde_json::to_vec(&groups)?)?;
    fs::rename(told.with_extension("new"), told)?;
    future::pending().await
}

#[tokio::test]
async fn nothing_is_left_after_kill_9() -> Result<()> {
    let group = ProcessGroup::new("lynqgate-holder-", AtEnd::RemoveDirectory)?;
    let told = group.directory().join("told");
    let (_, module) = module_path!()
        .split_once("::")
        .context("the module path has no crate")?;
    let mut holder = Command::new(env::current_exe()?);
    holder.args([
        "--exact",
        &format!("{module}::holds_a_cluster_until_it_is_killed"),
        "--ignored",
        "--nocapture",
    ]);
    holder.env(HELD, &told);
    let holder = Process::new(&group, "holder", holder)?;
    holder.start()?;
    holder
        .ready(DEADLINE, async || Ok(fs::metadata(&told).map(drop)?))
        .await?;
    let held: Vec<(i64, PathBuf)> = serde_json::from_slice(&fs::read(&told)?)?;
    for (group, _) in &held {
        assert!(
            !alive(*group)?.is_empty(),
            "the holder started nothing: {held:?}"
        );
    }
    holder.kill()?;
    for (group, directory) in &held {
        gone(*group, directory).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_left_running_ends_by_the_command_that_is_told() -> Result<()> {
    let group = ProcessGroup::new("lynqgate-left-", AtEnd::RemoveDirectory)?;
    let (id, directory) = (group.id().into(), group.directory().to_owned());
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    let sleep = Process::new(&group, "sleep", sleep)?;
    sleep.start()?;
    let end = group.leave_running()?;
    drop(sleep);
    drop(group);
    let alive: Value = alive(id)?.into();
    assert_eq!(
        alive.as_array().map(Vec::len),
        Some(2),
        "the sleep and its guardian should live on: {alive}"
    );
    assert!(
        Command::new("sh").args(["-c", &end]).status()?.success(),
        "{end}"
    );
    gone(id, &directory).await
}
