//! What is asked of a hub by who is not its loop, and waits for the answer: the webhooks, in every replica.

use std::time::Duration;

use serde_json::Value;

use crate::cluster::catalog::Hub;
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::hub::source::{self, Problem};
use crate::controller::rollout::snapshot::is_forced;
use crate::datasource::database::Limits;
use crate::decide::admission::Doubt;
use crate::decide::admission::trial::HubSays;
use crate::decide::child::ObjectKey;
use crate::decide::hub::rows::Rows;

/// The rows of a hub as they are now, and what it says of its forms, for who waits for them and is not its loop; or why there are
/// none.
pub async fn rows_now(
    world: &World,
    namespace: &str,
    name: &str,
    patience: Duration,
) -> Result<(Rows, HubSays), String> {
    let key = ObjectKey::own("LynqHub", namespace, name);
    let hub = match world.objects.get(&key).await {
        Ok(hub) => Hub::of(&hub),
        Err(ApiError::NotFound(_)) => {
            return Err(format!(
                "there is no LynqHub {name:?} in namespace {namespace}"
            ));
        }
        Err(error) => return Err(error.to_string()),
    };
    let spec = hub.spec.clone()?;
    let limits = Limits::within(patience);
    let rows = source::read_rows(world, (&hub, true), &spec, &limits, &|_| false).await;
    let skew = spec.rollout.as_ref().map(|rollout| rollout.max_skew);
    let says = HubSays {
        skew: skew.unwrap_or_default(),
        forced: is_forced(&hub.annotations),
        max_creations: spec
            .guard
            .as_ref()
            .and_then(|guard| guard.max_creations)
            .map(|max| max.max(0).unsigned_abs().into()),
    };
    rows.map(|rows| (rows, says))
        .map_err(|problem| problem.message)
}

/// The rows of a stored hub as they are now, for a command, which has as much time as a sync; or why there are none.
pub async fn rows_of(world: &World, hub: &Hub) -> Result<Rows, Problem> {
    let spec = hub.spec.clone().map_err(Problem::invalid)?;
    source::read_rows(world, (hub, true), &spec, &Limits::default(), &|_| false).await
}

/// Whether the database of a hub that is about to be stored has what the hub maps.
pub async fn check(world: &World, hub: &Value, patience: Duration) -> Result<(), Doubt> {
    let hub = Hub::of(hub);
    match &hub.spec {
        Ok(spec) => source::check(world, &hub, spec, &Limits::within(patience)).await,
        Err(error) => Err(Doubt {
            is_certain: false,
            message: error.clone(),
        }),
    }
}

/// The rows that a hub would read which is about to be stored; or why there are none.
pub async fn rows_as(world: &World, hub: &Value, patience: Duration) -> Result<Rows, String> {
    let hub = Hub::of(hub);
    let spec = hub.spec.clone()?;
    let limits = Limits::within(patience);
    let rows = source::read_rows(world, (&hub, false), &spec, &limits, &|_| false).await;
    rows.map_err(|problem| problem.message)
}
