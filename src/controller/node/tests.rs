//! What the node loop keeps, and what it says at once, without an API server.

use std::convert::Infallible;

use kube::client::Body;

use super::*;
use crate::api::conditions::{self, ConditionReason, ConditionState};
use crate::api::node::NodeStatus;
use crate::cluster::events::Events;
use crate::cluster::objects::Objects;
use crate::controller::decisions::Decide;
use crate::controller::metrics::Metrics;

/// A world whose API server never answers.
fn world() -> Arc<World> {
    world_of(|_| std::future::pending::<Result<_, Infallible>>())
}

fn world_of<A, F>(api_server: A) -> Arc<World>
where
    A: FnMut(http::Request<Body>) -> F + Send + 'static,
    F: Future<Output = Result<http::Response<Body>, Infallible>> + Send + 'static,
{
    let client = kube::Client::new(tower::service_fn(api_server), "default");
    let events = Events::start(client.clone(), None);
    let databases = crate::controller::hub::Databases::default();
    World::new(
        Arc::new(Decide),
        "lynq-system",
        Objects::new(client),
        events,
        Metrics::default(),
        databases,
    )
}

#[tokio::test]
async fn nothing_is_kept_of_a_node_that_is_gone() {
    let world = world();
    let key = NodeKey::new("tenants", "acme-web");
    let looked = Looked {
        in_vain: None,
        since: Timestamp::UNIX_EPOCH,
    };
    world.node_memory.lock().insert(key.clone(), Box::default());
    world.looked.lock().insert(key.clone(), looked);
    world.in_vain.lock().insert(key.clone());
    let unchanged = ("hash".to_owned(), true);
    world.unchanged.lock().insert(key.clone(), unchanged);
    world.conflicts.lock().insert(key.clone(), BTreeMap::new());
    world.namespaces.wait("acme", &key);
    assert_eq!(reconcile(world.clone(), key.clone()).await, None);
    assert!(world.node_memory.lock().is_empty());
    assert!(world.in_vain.lock().is_empty());
    assert!(world.looked.lock().is_empty());
    assert!(world.unchanged.lock().is_empty());
    assert!(world.conflicts.lock().is_empty());
    assert!(!world.namespaces.is_awaited("acme"));
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_reconcile_panicked_is_not_ready_before_anybody_answers() {
    let world = world();
    let node = serde_json::json!({"metadata": {"namespace": "tenants", "name": "acme-web", "uid": "u", "resourceVersion": "1"}, "spec": {"uid": "acme", "templateRef": "web"}});
    let key = world
        .nodes
        .learn_new(&node, world.nodes.asked())
        .key
        .clone();
    let told = panicked(world.clone(), key.clone(), Duration::from_secs(30));
    let told = tokio::time::timeout(Duration::from_millis(1), told).await;
    assert!(told.is_err(), "its status is still on its way");
    let looked = world.looked.lock();
    let why = looked[&key].in_vain.as_deref().unwrap_or_default();
    assert!(why.contains("panicked") && why.contains("in 30 s"), "{why}");
}

#[tokio::test]
async fn a_refused_status_of_a_release_is_not_put_off_again() {
    let world = world_of(|_| {
        let refused = http::Response::builder().status(403);
        std::future::ready(Ok(refused.body(Body::empty()).unwrap()))
    });
    let node = serde_json::json!({"metadata": {"namespace": "tenants", "name": "acme-web", "uid": "u", "resourceVersion": "1"}, "spec": {"uid": "acme", "templateRef": "web"}});
    let node = NodeDigest::of(&node, None);
    let at = |seconds| Timestamp::from_second(seconds).unwrap();
    let mut new = NodeStatus {
        observed_start_time: Some("2027-01-15T08:00:00Z".into()),
        ..NodeStatus::default()
    };
    let working = ConditionState::new("Progressing", true, ConditionReason::Reconciling, "");
    conditions::merge(&mut new.conditions, &[working], None, at(0));
    let mut reconciler = NodeReconciler {
        world: &world,
        key: node.key.clone(),
        memory: Box::default(),
    };
    let mut report = async |seconds| reconciler.report(&node, new.clone(), at(seconds)).await;
    assert_eq!(report(0).await.unwrap(), Some(at(2)));
    assert!(report(2).await.is_err(), "refused");
    assert!(report(3).await.is_err(), "refused, not put off");
}
