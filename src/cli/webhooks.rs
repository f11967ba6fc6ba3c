//! What the webhooks ask of the operator's world: rows, nodes, policies, and what the API server says of a form.
//! The modules of `server` may not know `controller`, so the two are joined here.

use std::sync::Arc;

use crate::controller::World;
use crate::controller::hub::{self, rows_now};
use crate::controller::rollout::snapshot::is_forced;
use crate::controller::trial::{live_nodes, try_on_server};
use crate::decide::rollout::status::Force;
use crate::server::webhook::allowed::Allowed;
use crate::server::webhook::authors::Authors;
use crate::server::webhook::definitions::{
    CheckHub, Definitions, NodesOf, PATIENCE, RowsOf, TryOnServer, Turns,
};
use crate::server::webhook::reach::RowsAs;
use crate::server::webhook::{Metrics, Policy, PolicyOf};

/// The webhooks of forms and hubs.
pub fn definitions(
    world: &Arc<World>,
    authors: Option<Authors>,
    metrics: Metrics,
    deny_untried: bool,
) -> Definitions {
    Definitions {
        objects: world.objects.clone(),
        rows_of: rows_of(world),
        nodes_of: nodes_of(world),
        try_on_server: on_server(world),
        rows_as: rows_as(world),
        check_hub: check_hub(world),
        authors,
        metrics,
        namespace: world.namespace.clone(),
        deny_untried,
        turns: Turns::default(),
        allowed: Allowed::default(),
    }
}

pub fn policy_of(world: &Arc<World>) -> PolicyOf {
    let (forms, hubs) = (world.forms.clone(), world.hubs.clone());
    Arc::new(move |namespace, form| {
        let form = forms.get(namespace, form)?;
        let hub = hubs.get(namespace, &form.hub_id);
        let of_hub = hub.as_ref().and_then(|hub| hub.spec.as_ref().ok());
        let of_hub = of_hub.and_then(|spec| spec.rollout.as_ref());
        Some(Policy {
            of_form: form.spec.as_ref().ok()?.rollout.clone().unwrap_or_default(),
            hub_skew: of_hub.map(|rollout| rollout.max_skew).unwrap_or_default(),
            force: match () {
                () if is_forced(&form.annotations) => Some(Force::Form),
                () if hub.is_some_and(|hub| is_forced(&hub.annotations)) => Some(Force::Hub),
                () => None,
            },
        })
    })
}

fn rows_of(world: &Arc<World>) -> RowsOf {
    let world = world.clone();
    Arc::new(move |namespace, hub| {
        let world = world.clone();
        Box::pin(async move { rows_now(&world, &namespace, &hub, PATIENCE).await })
    })
}

fn check_hub(world: &Arc<World>) -> CheckHub {
    let world = world.clone();
    Arc::new(move |hub| {
        let world = world.clone();
        Box::pin(async move { hub::check(&world, &hub, PATIENCE).await })
    })
}

fn nodes_of(world: &Arc<World>) -> NodesOf {
    let world = world.clone();
    Arc::new(move |namespace, hub| {
        let world = world.clone();
        Box::pin(async move {
            let nodes = live_nodes(&world, &namespace, &hub).await;
            nodes.map_err(|error| error.to_string())
        })
    })
}

fn on_server(world: &World) -> TryOnServer {
    let objects = world.objects.clone();
    Arc::new(move |form, trial, limit| {
        let objects = objects.clone();
        Box::pin(async move { try_on_server(&objects, form, trial, limit).await })
    })
}

fn rows_as(world: &Arc<World>) -> RowsAs {
    let world = world.clone();
    Arc::new(move |hub| {
        let world = world.clone();
        Box::pin(async move { hub::rows_as(&world, &hub, PATIENCE).await })
    })
}
