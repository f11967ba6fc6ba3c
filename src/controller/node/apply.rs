//! Writes single objects of a node and takes them down: never one that is somebody else's.

use serde_json::Value;

use crate::api::events::EventReason;
use crate::api::names;
use crate::api::resource::{ConflictPolicy, CreationPolicy, PatchStrategy, Resource};
use crate::api::stamp;
use crate::cluster::clock;
use crate::cluster::events::About;
use crate::cluster::objects::{ApiError, Objects};
use crate::cluster::shallow;
use crate::controller::World;
use crate::controller::node::departing::Departing;
use crate::controller::node::recreate;
use crate::decide::child::tie::{Tie, orphan};
use crate::decide::child::{Child, ObjectKey, Scope, departed, fields, manifest, tie};
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::plan::recreate::Dependents;
use crate::decide::node::plan::{self, TakeDown, ownership};
use crate::decide::shared::content::is_deeper;

/// A resource and its object.
pub struct Target<'a> {
    pub resource: &'a Resource,
    pub key: &'a ObjectKey,
    /// What is remembered of the object.
    pub child: Option<&'a Child>,
    /// The watch of its kind is complete: what is not remembered does not have our label.
    pub watched: bool,
    /// The node's record names it.
    pub recorded: bool,
}

/// The object after the apply; None if it was deleted, so that the next round creates it again.
pub async fn apply(
    world: &World,
    node: &NodeDigest,
    target: &Target<'_>,
) -> Result<Option<Value>, ApiError> {
    let Target { resource, key, .. } = *target;
    let tie = tie(resource, &node.key, &node.uid, &key.namespace);
    let form = world.forms.get(&node.key.namespace, &node.form);
    let form = form.and_then(|form| form.spec.as_ref().ok().cloned());
    let objects = world.objects.knowing(form, &node.key.name);
    let object = match write(&objects, node, target).await {
        Ok(Written::Kept(object)) => return mend_tie(world, key, &tie, object).await.map(Some),
        Ok(Written::Sent(sent)) => sent,
        Err(error) => return Err(error),
    };
    // A merge removes nothing, and an apply only what earlier applies have set.
    let applied = match object {
        Ok(object) => mend_tie(world, key, &tie, object).await,
        failed => failed,
    };
    let policy = resource.conflict_policy;
    let metrics = &world.metrics;
    metrics.applied(&key.kind.kind, policy, applied.is_ok());
    match applied {
        Ok(object) => Ok(Some(object)),
        Err(ApiError::Invalid { text, why }) => {
            if recreate::make_room(world, node, target, (&text, &why)).await? {
                return Ok(None);
            }
            let error = ApiError::Invalid { text, why };
            Err(recreate::with_way_out(key, error))
        }
        Err(error) => Err(explained(world, key, error).await?),
    }
}

/// The object as it would be. `recorded`: the node's record names it.
pub async fn dry_run(
    objects: &Objects,
    node: &NodeDigest,
    (resource, key): (&Resource, &ObjectKey),
    recorded: bool,
) -> Result<Value, ApiError> {
    let target = Target {
        resource,
        key,
        child: None,
        watched: false,
        recorded,
    };
    match write(&objects.dry_run(), node, &target).await? {
        Written::Kept(object) => Ok(object),
        Written::Sent(sent) => sent,
    }
}

/// An object of this name is tried where it matters that there is none.
const NO_OBJECT: &str = "lynqgate-trial";

/// The object as it would be if there were none of its name.
pub async fn dry_run_anew(
    objects: &Objects,
    node: &NodeDigest,
    (resource, key): (&Resource, &ObjectKey),
) -> Result<Value, ApiError> {
    let (mut resource, mut key) = (resource.clone(), key.clone());
    NO_OBJECT.clone_into(&mut resource.name_template);
    resource.target_namespace = key.namespace.to_string();
    NO_OBJECT.clone_into(&mut key.name);
    let target = Target {
        resource: &resource,
        key: &key,
        child: None,
        watched: false,
        recorded: false,
    };
    create(&objects.dry_run(), node, &target).await
}

/// Whether the object could be changed if nobody else had fields in it: then no field is immutable. An error says that nobody
/// knows now.
pub async fn fits_alone(
    objects: &Objects,
    node: &NodeDigest,
    (resource, key): (&Resource, &ObjectKey),
    recorded: bool,
) -> Result<bool, ApiError> {
    let alone = Resource {
        patch_strategy: PatchStrategy::Replace,
        ..resource.clone()
    };
    match dry_run(objects, node, (&alone, key), recorded).await {
        Err(error) if error.may_pass() => Err(error),
        tried => Ok(tried.is_ok()),
    }
}

enum Written {
    /// Made once, and left alone since.
    Kept(Value),
    /// What the API server said.
    Sent(Result<Value, ApiError>),
}

async fn write(
    objects: &Objects,
    node: &NodeDigest,
    target: &Target<'_>,
) -> Result<Written, ApiError> {
    let Target { resource, key, .. } = *target;
    let tie = tie(resource, &node.key, &node.uid, &key.namespace);
    if let Some(why) = tie.impossible() {
        let text = why.clone();
        return Err(ApiError::Invalid { text, why });
    }
    let once = resource.creation_policy == CreationPolicy::Once;
    let applies = resource.patch_strategy == PatchStrategy::Apply;
    let written_back =
        !resource.ignore_fields.is_empty() || resource.patch_strategy == PatchStrategy::Replace;
    let mut refusal = None;
    if let Some(child) = target.child
        && ownership::is_ours(child, node)
        && !once
        && !written_back
    {
        match send_remembered(objects, node, target, child).await {
            // What nobody names any more may be in the way.
            Some(Err(error @ ApiError::Invalid { .. })) if applies => refusal = Some(error),
            Some(sent) => return Ok(Written::Sent(sent)),
            None => {}
        }
    }
    if target.child.is_none() && target.watched && objects.lacks_unmanaged(key).await {
        match create(objects, node, target).await {
            // Somebody was faster: whose it is tells the object itself.
            Err(ApiError::FieldsTaken(_)) => {}
            sent => return Ok(Written::Sent(sent)),
        }
    }
    // The watch sees only what has our label, so an object that it does not know may be there all the same.
    let live = match objects.get(key).await {
        Ok(live) => live,
        Err(ApiError::NotFound(_)) => {
            return Ok(Written::Sent(create(objects, node, target).await));
        }
        Err(error) => return Err(error),
    };
    // What was cut out of the reply must not be written back as if that were all.
    let cut = is_deeper(&live, shallow::DEPTH_MAX - 1);
    if written_back && cut {
        let text = "the object is nested too deeply to be read whole, so that it cannot be written back; use patchStrategy: apply \
                    without ignoreFields";
        return Err(ApiError::Refused(text.to_owned()));
    }
    let child = Child::of(&live);
    let recorded = target.recorded;
    if let Some(conflict) = ownership::refused(&child, node, resource.conflict_policy, recorded) {
        return Err(ApiError::Conflict(conflict));
    }
    // Made already, by this node or for one before it that left it behind: what is in it stays.
    let made = child.orphaned || ownership::was_ours(&child, node, recorded);
    if once && child.once && made {
        return Ok(Written::Kept(live));
    }
    let found = ExistingObject::Live(&live, &child);
    let object = built(objects, node, target, &found).await;
    if !applies || cut {
        return Ok(Written::Sent(send(objects, target, object, &found).await));
    }
    let sent = apply_over(objects, target, object, (&live, &child), refusal).await?;
    Ok(Written::Sent(sent))
}

async fn create(
    objects: &Objects,
    node: &NodeDigest,
    target: &Target<'_>,
) -> Result<Value, ApiError> {
    let object = built(objects, node, target, &ExistingObject::Nothing).await;
    send(objects, target, object, &ExistingObject::Nothing).await
}

/// Writes an object that is the node's own without reading it first, and by its uid: somebody may have made another of its name
/// since. None: what to write depends on the live object.
async fn send_remembered(
    objects: &Objects,
    node: &NodeDigest,
    target: &Target<'_>,
    child: &Child,
) -> Option<Result<Value, ApiError>> {
    let found = ExistingObject::Remembered(&child.uid);
    let object = built(objects, node, target, &found).await;
    let applies = target.resource.patch_strategy == PatchStrategy::Apply;
    if applies && departed::drops(&child.owned, &object) {
        return None;
    }
    match send(objects, target, object, &found).await {
        Err(error) if may_be_another(&error) => None,
        sent => Some(sent),
    }
}

/// Applies the object over the live one. lynqgate first takes over the fields that the object no longer names, so that the apply
/// removes them, or does so once the API server has rejected an apply. `refusal`: it has rejected one already.
async fn apply_over(
    objects: &Objects,
    target: &Target<'_>,
    object: Value,
    (live, child): (&Value, &Child),
    refusal: Option<ApiError>,
) -> Result<Result<Value, ApiError>, ApiError> {
    let Target { resource, key, .. } = *target;
    let found = ExistingObject::Live(live, child);
    let departing = Departing {
        objects,
        resource,
        key,
        live,
        object: &object,
    };
    let mut gone = None;
    let refusal = match refusal {
        Some(refusal) => refusal,
        None => {
            if departed::drops(&child.owned, &object) {
                gone = Some(departing.make_ours().await?);
            }
            let sent = send(objects, target, object.clone(), &found).await;
            match (sent, &gone) {
                (Ok(mut reply), Some(gone)) if objects.is_dry_run() => {
                    fields::remove(&mut reply, gone);
                    return Ok(Ok(reply));
                }
                (Err(error @ ApiError::Invalid { .. }), gone)
                    if gone.is_none() || objects.is_dry_run() =>
                {
                    error
                }
                (sent, _) => return Ok(sent),
            }
        }
    };
    let gone = match gone {
        Some(gone) => gone,
        None => departing.make_ours().await?,
    };
    if fields::is_leaf(&gone) {
        return Ok(Err(refusal));
    }
    if objects.is_dry_run() {
        // Nothing was made ours, so that an apply would leave these fields there.
        let next = departed::replaced(live, &gone, &object);
        return Ok(objects.replace(key, &next).await);
    }
    Ok(send(objects, target, object, &found).await)
}

/// What there is under the object's name.
enum ExistingObject<'a> {
    Nothing,
    /// This object, by its uid, if it is there still.
    Remembered(&'a str),
    Live(&'a Value, &'a Child),
}

/// What is written, for that very object; where there is none, it is made.
async fn built(
    objects: &Objects,
    node: &NodeDigest,
    target: &Target<'_>,
    found: &ExistingObject<'_>,
) -> Value {
    let Target { resource, key, .. } = *target;
    let scope = if key.namespace.is_empty() {
        Scope::Cluster
    } else {
        Scope::Namespaced
    };
    let (uid, live) = match found {
        ExistingObject::Nothing => (None, None),
        ExistingObject::Remembered(uid) => (Some(*uid), None),
        ExistingObject::Live(live, child) => (Some(child.uid.as_str()), Some(*live)),
    };
    let mut object = manifest(resource, &node.key, &node.uid, scope, live);
    objects.fit(&key.kind, &mut object).await;
    if let Some(uid) = uid {
        object["metadata"]["uid"] = uid.into();
    }
    object
}

async fn send(
    objects: &Objects,
    target: &Target<'_>,
    mut object: Value,
    found: &ExistingObject<'_>,
) -> Result<Value, ApiError> {
    let Target { resource, key, .. } = *target;
    let is_new = matches!(found, ExistingObject::Nothing);
    if resource.patch_strategy == PatchStrategy::Merge && !is_new {
        // The patch would put these lists in the place of everybody's.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("ownerReferences");
            metadata.remove("finalizers");
        }
        return objects.merge(key, &object).await;
    }
    departed::drop_nulls(&mut object);
    match found {
        ExistingObject::Live(live, _) if resource.patch_strategy == PatchStrategy::Replace => {
            object["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            objects.replace(key, &object).await
        }
        _ => {
            let was_orphan = matches!(found, ExistingObject::Live(_, child) if child.orphaned);
            let force = resource.conflict_policy == ConflictPolicy::Force || was_orphan;
            objects.apply(key, &object, force).await
        }
    }
}

/// Whether that is what the API server says where the object of this name has another uid, or is gone.
fn may_be_another(error: &ApiError) -> bool {
    matches!(error, ApiError::NotFound(_) | ApiError::Conflict(_))
}

/// The error with what to do about it.
async fn explained(world: &World, key: &ObjectKey, error: ApiError) -> Result<ApiError, ApiError> {
    Ok(match error {
        ApiError::NotFound(_) if !world.objects.still_served(&key.kind).await? => {
            ApiError::NotFound(plan::missing_kind(&key.kind))
        }
        // Where some namespaces are watched only, it is not known which namespaces exist; the API server's text names it.
        ApiError::NotFound(_)
            if !key.namespace.is_empty()
                && world.objects.watched().is_all()
                && !world.namespaces.has(&key.namespace) =>
        {
            ApiError::NotFound(format!(
                "there is no namespace {:?}; create it, for example as a resource that this one depends on, or correct \
             targetNamespace",
                key.namespace
            ))
        }
        // In the API server's words: which manager, and which fields.
        ApiError::FieldsTaken(text) => ApiError::FieldsTaken(format!(
            "{text}; conflictPolicy: Force takes the fields over, and ignoreFields leaves them to others"
        )),
        error => error,
    })
}

/// Ties the object to its node as its deletionPolicy wants it, where it is not.
async fn mend_tie(
    world: &World,
    key: &ObjectKey,
    tie: &Tie<'_>,
    object: Value,
) -> Result<Value, ApiError> {
    match tie.mend(&object) {
        Some(patch) => {
            let mended = world.objects.merge(key, &patch).await?;
            if Child::of(&object).orphaned {
                let note = format!("it is lynqnode {}'s again, and no orphan", tie.node);
                let about = about(key, &object);
                world
                    .events
                    .tell(&about, EventReason::OrphanMarkersRemoved, note);
            }
            Ok(mended)
        }
        None => Ok(object),
    }
}

fn about(key: &ObjectKey, object: &Value) -> About {
    About {
        key: key.clone(),
        uid: object["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    }
}

/// Deletes the object, or leaves it behind marked as an orphan. Its uid keeps a new object of the same name safe.
pub async fn take_down(
    world: &World,
    node: &NodeDigest,
    key: &ObjectKey,
    child: &Child,
    how: TakeDown,
    why: &str,
) -> Result<(), ApiError> {
    let asked = world.children.asked(&key.kind);
    // Whose it is is asked once more: what is remembered may be a moment old.
    let object = match world.objects.get(key).await {
        Ok(object) => object,
        Err(ApiError::NotFound(_)) => {
            world.children.forget(key, &child.uid);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let live = world.children.learn(&object, asked);
    if live.uid != child.uid || live.owner != child.owner {
        return Ok(());
    }
    match how {
        TakeDown::Delete => {
            delete(world, key, &live, Dependents::Go).await?;
            tell(world, node, key, how, why);
            learn_left(world, key, &live.uid).await?;
        }
        TakeDown::Orphan => {
            let at = stamp::format(clock::now());
            let patch = orphan(&object, (&node.key, &node.uid), &at, why);
            match world.objects.merge(key, &patch).await {
                Ok(_) => {
                    tell(world, node, key, how, why);
                    let note = format!("lynqnode {} has left it behind as an orphan", node.key);
                    let about = about(key, &object);
                    world
                        .events
                        .tell(&about, EventReason::OrphanMarkersAdded, note);
                }
                Err(ApiError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            world.children.forget(key, &child.uid);
        }
    }
    Ok(())
}

/// Deletes the object if nobody has written it since it was read.
pub async fn delete(
    world: &World,
    key: &ObjectKey,
    child: &Child,
    dependents: Dependents,
) -> Result<(), ApiError> {
    let version = Some(child.resource_version.as_str());
    let objects = &world.objects;
    objects.delete(key, &child.uid, version, dependents).await
}

/// Reads what a deletion left of the object into the cache.
pub async fn learn_left(world: &World, key: &ObjectKey, uid: &str) -> Result<(), ApiError> {
    let asked = world.children.asked(&key.kind);
    match world.objects.get(key).await {
        Err(ApiError::NotFound(_)) => world.children.forget(key, uid),
        Ok(object) => drop(world.children.learn(&object, asked)),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Nothing goes without a trace.
fn tell(world: &World, node: &NodeDigest, key: &ObjectKey, how: TakeDown, why: &str) {
    let removed = why == names::REMOVED_FROM_TEMPLATE;
    let (reason, what) = match (how, removed) {
        (TakeDown::Delete, true) => (EventReason::OrphanedResourceDeleted, "deleted"),
        (TakeDown::Delete, false) => (EventReason::ResourceDeleted, "deleted"),
        (TakeDown::Orphan, true) => (
            EventReason::OrphanedResourceRetained,
            "left behind as an orphan",
        ),
        (TakeDown::Orphan, false) => (EventReason::ResourceRetained, "left behind as an orphan"),
    };
    let because = match removed {
        true => "the live content names it no more",
        false => "the lynqnode is deleted",
    };
    let text = format!("{key} is {what}: {because}");
    tracing::info!(node = %node.key, reason = reason.as_str(), text);
    let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
    world.events.tell(&about, reason, text);
}
