//! Deletes an object that the API server does not change, so that the node's next round creates it again.

use crate::api::events::EventReason;
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::node::apply::{Target, delete, dry_run_anew, fits_alone, learn_left};
use crate::decide::child::{Child, ObjectKey};
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::plan::recreate::{
    Recreation, by_hand, immutable, is_due, is_wanted, meanwhile,
};

/// Status updates of controllers come in between.
const TRIES: u32 = 5;

/// Whether the object is deleted. `text` and `why` are what the API server says of the apply. If it refuses a new object with this
/// content as well, the cause is no immutable field.
pub async fn make_room(
    world: &World,
    node: &NodeDigest,
    target: &Target<'_>,
    (text, why): (&str, &str),
) -> Result<bool, ApiError> {
    let Target { resource, key, .. } = *target;
    if !is_wanted(resource) {
        return Ok(false);
    }
    for _ in 0..TRIES {
        let live = match world.objects.get(key).await {
            Ok(live) => live,
            Err(ApiError::NotFound(_)) => return Ok(true),
            Err(error) => return Err(error),
        };
        let child = Child::of(&live);
        if !is_due(resource, node, &child) {
            return Ok(false);
        }
        let Ok(new) = dry_run_anew(&world.objects, node, (resource, key)).await else {
            return Ok(false);
        };
        let Recreation { dependents, loss } = Recreation::of(&key.kind, &live, &new);
        if fits_alone(&world.objects, node, (resource, key), target.recorded).await? {
            return Ok(false);
        }
        if let Some(loss) = loss {
            return Err(ApiError::Invalid {
                text: format!("{text}. lynqgate does not recreate it: {loss}"),
                why: why.to_owned(),
            });
        }
        match delete(world, key, &child, dependents).await {
            Ok(()) => {}
            Err(ApiError::Conflict(_)) => continue,
            Err(error) => return Err(error),
        }
        let fields = immutable(&key.kind, &live, &new);
        let why = fields.as_deref().unwrap_or(why);
        let text = format!(
            "{key} is deleted and created again (onImmutable: Recreate), and {}: {why}",
            meanwhile(&key.kind, dependents)
        );
        let reason = EventReason::ResourceRecreated;
        tracing::info!(node = %node.key, reason = reason.as_str(), text);
        let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
        world.events.tell(&about, reason, text);
        learn_left(world, key, &child.uid).await?;
        return Ok(true);
    }
    Err(ApiError::Unavailable(
        "the object changes too often".to_owned(),
    ))
}

/// The error with what somebody can do, if a field cannot be changed and lynqgate does not recreate the object.
pub fn with_way_out(key: &ObjectKey, error: ApiError) -> ApiError {
    let is_immutable = error.is_immutable();
    match error {
        ApiError::Invalid { text, why } if is_immutable => {
            let by_hand = by_hand(key);
            let text = format!("{text}. That field cannot change on an existing object: {by_hand}");
            ApiError::Invalid { text, why }
        }
        error => error,
    }
}
