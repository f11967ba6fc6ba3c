//! Whether the fault proxy does what it says, case by case, between a client and the real API server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;

use super::rules::{Action, Rule, Target};
use super::{Proxy, revisions::Revisions};
use crate::cluster::credentials::Identity;
use crate::cluster::{self, Cluster};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn requests_are_told_apart() {
    let of = |method: Method, path: &str, query: &str| {
        let t = Target::of(&method, path, query);
        [t.verb, &t.resource, &t.namespace, &t.name, &t.subresource].join(" ")
    };
    let (get, patch) = (Method::GET, Method::PATCH);
    for (method, path, query, is) in [
        (&get, "/api/v1/pods", "", "list pods   "),
        (&get, "/api/v1/pods", "watch=true&x=1", "watch pods   "),
        (&get, "/api/v1/namespaces/a/pods/b", "", "get pods a b "),
        (&get, "/api/v1/namespaces/a", "", "get namespaces  a "),
        (&get, "/apis/apps/v1", "", "get    "),
        (
            &patch,
            "/apis/operator.lynq.sh/v1/namespaces/a/lynqhubs/h/status",
            "",
            "patch lynqhubs a h status",
        ),
        (
            &patch,
            "/api/v1/namespaces/a/status",
            "",
            "patch namespaces  a status",
        ),
    ] {
        assert_eq!(
            of(method.clone(), path, query),
            is,
            "{method} {path}?{query}"
        );
    }
}

#[test]
fn a_moment_in_the_past_has_a_revision() {
    let (revisions, start) = (Revisions::default(), Instant::now());
    let at = |s: u64| start + Duration::from_secs(s);
    revisions.note(at(1), 10);
    revisions.note(at(2), 20);
    assert_eq!(revisions.at(at(0)), None, "not remembered");
    assert_eq!(revisions.at(at(1)), Some(10));
    assert_eq!(revisions.at(at(9)), Some(20));
    revisions.note(at(10), 15);
    assert_eq!(revisions.at(at(9)), None, "restored from a backup");
}

/// A proxy, a client through it with a token of a service account's, and one past it.
struct Between {
    proxy: Proxy,
    through: Api<ConfigMap>,
    past: Api<ConfigMap>,
    client: Client,
}

async fn between(cluster: &Cluster) -> Result<Between> {
    let namespace = cluster.namespace("proxy").await?;
    let proxy = Proxy::start(cluster, 1).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "edit", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    });
    cluster
        .kubectl(&["apply", "-f", "-"], Some(&binding.to_string()))
        .await?
        .expect_success()?;
    let identity = Identity::service_account(&namespace, "default");
    let own = cluster.kubeconfig_for(&identity).await?;
    let copy = proxy.kubeconfig(&own, own.with_extension("proxied"))?;
    let mut config = Config::from_custom_kubeconfig(
        kube::config::Kubeconfig::read_from(copy)?,
        &Default::default(),
    )
    .await?;
    config.default_retry = false;
    config.proxy_url = None;
    let client = Client::try_from(config)?;
    Ok(Between {
        through: Api::namespaced(client.clone(), &namespace),
        past: Api::namespaced(cluster.admin().await?, &namespace),
        proxy,
        client,
    })
}

fn map(name: &str) -> ConfigMap {
    let object = json!({"metadata": {"name": name}, "data": {"long": "x".repeat(2000)}});
    serde_json::from_value(object).expect("a ConfigMap")
}

fn code<T>(result: kube::Result<T>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_meet_the_faults_that_are_set() -> Result<()> {
    let b = between(cluster::shared().await?).await?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let request = request.header("content-type", "application/json");
    let answer: serde_json::Value = b
        .client
        .request(request.body(review.to_string().into_bytes())?)
        .await?;
    let user = answer["status"]["userInfo"]["username"].as_str();
    assert!(
        user.is_some_and(|user| user.ends_with(":default")),
        "the client's own token counts: {answer}"
    );

    let create = |name: &'static str| {
        let api = b.through.clone();
        async move { code(api.create(&PostParams::default(), &map(name)).await) }
    };
    let creations = |action| {
        Rule::new(action)
            .verbs(&["create"])
            .resources(&["configmaps"])
    };
    let there = async |name: &str| anyhow::Ok(b.past.get_opt(name).await?.is_some());

    b.proxy.set_rules(vec![
        creations(Action::Status(429, Some(1))).skip(1).times(1),
    ]);
    assert_eq!(create("a").await, 200, "the first is skipped");
    assert_eq!(create("b").await, 429);
    assert!(!there("b").await?, "the API server has not seen it");
    assert_eq!(create("b").await, 200, "the rule is used up");

    b.proxy.set_rules(vec![creations(Action::LoseReply)]);
    assert_eq!(create("c").await, 0, "no answer");
    assert!(there("c").await?, "and yet it happened");

    let delay = Duration::from_millis(300);
    b.proxy.set_rules(vec![creations(Action::Delay(delay))]);
    let started = Instant::now();
    assert_eq!(create("d").await, 200);
    assert!(started.elapsed() >= delay);

    b.proxy
        .set_rules(vec![Rule::new(Action::CutAfter(1000)).verbs(&["get"])]);
    assert_eq!(code(b.through.get("a").await), 0, "the answer is longer");

    let drop_data = Action::Rewrite(std::sync::Arc::new(|_, body| {
        body.as_object_mut()
            .is_some_and(|o| o.remove("data").is_some())
    }));
    b.proxy.set_rules(vec![creations(drop_data)]);
    assert_eq!(create("e").await, 200);
    assert_eq!(b.past.get("e").await?.data, None);
    assert_eq!(b.proxy.met()["rewritten"], 1);
    b.proxy.heal();
    assert_eq!(code(b.through.get("a").await), 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_lag_fall_silent_and_end() -> Result<()> {
    let b = between(cluster::shared().await?).await?;
    let watch = async || {
        let from = b.past.list(&ListParams::default()).await?.metadata;
        let from = from.resource_version.context("a resourceVersion")?;
        anyhow::Ok(
            b.through
                .watch(&WatchParams::default(), &from)
                .await?
                .boxed(),
        )
    };
    let create = async |name: &str| {
        b.past.create(&PostParams::default(), &map(name)).await?;
        anyhow::Ok(Instant::now())
    };
    macro_rules! next {
        ($events:expr) => {
            match tokio::time::timeout(SOON, $events.next()).await? {
                Some(Ok(WatchEvent::Added(map))) => map.name_any(),
                other => format!("{other:?}"),
            }
        };
    }
    let mut events = watch().await?;
    create("now").await?;
    assert_eq!(next!(events), "now");

    // A reader three seconds behind, in its lists and its watches; it sees everything in the end.
    let lag = Duration::from_secs(3);
    tokio::time::sleep(lag).await; // its past begins when the proxy does
    b.proxy.lag("configmaps", lag);
    let created = create("later").await?;
    let listed = b.through.list(&ListParams::default()).await?;
    let names: Vec<String> = listed.iter().map(ResourceExt::name_any).collect();
    ensure!(!names.contains(&"later".to_owned()), "{names:?}");
    assert_eq!(next!(events), "later");
    let after = created.elapsed();
    ensure!(
        after + Duration::from_millis(200) >= lag,
        "seen after {after:?}"
    );
    b.proxy.heal();

    // Silence, then what happened meanwhile.
    b.proxy.silence("*");
    create("quiet").await?;
    let heard = tokio::time::timeout(Duration::from_secs(1), events.next()).await;
    ensure!(heard.is_err(), "{heard:?}");
    b.proxy.heal();
    assert_eq!(next!(events), "quiet");

    // Cut, and then a watch from a version that is gone.
    b.proxy.cut_watches();
    let end = tokio::time::timeout(SOON, events.next()).await?;
    ensure!(!matches!(end, Some(Ok(_))), "{end:?}");
    b.proxy
        .set_rules(vec![Rule::new(Action::Gone).verbs(&["watch"]).times(1)]);
    let gone = watch().await?.next().await;
    ensure!(
        matches!(&gone, Some(Ok(WatchEvent::Error(status))) if status.code == 410),
        "{gone:?}"
    );

    // A dead watch tells its client nothing ever again.
    let mut events = watch().await?;
    b.proxy.deaden("configmaps");
    create("unheard").await?;
    let patch = Patch::Merge(json!({"data": {"more": "1"}}));
    b.past
        .patch("unheard", &PatchParams::default(), &patch)
        .await?;
    tokio::time::timeout(Duration::from_millis(300), events.next())
        .await
        .expect_err("nothing");
    b.proxy.heal();
    let heard = tokio::time::timeout(Duration::from_secs(1), events.next()).await;
    ensure!(heard.is_err(), "{heard:?}");
    Ok(())
}
