//! What the trial of a form asks the API server: what its nodes run, and whether it would take the objects that the form makes.
//! Everything is read live, for a replica that does not lead has no caches; nothing is stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::timeout_at;

use crate::api::form::FormSpec;
use crate::api::names;
use crate::api::resource::ResourceArrays;
use crate::cluster::clock::{self, Instant};
use crate::cluster::objects::{ApiError, Objects, Served};
use crate::controller::World;
use crate::controller::hub::seed;
use crate::controller::node::apply::{dry_run, dry_run_anew, fits_alone};
use crate::decide::admission::rights::{VERBS, lacks};
use crate::decide::admission::trial::Trial;
use crate::decide::admission::trial::deletions::LiveMetadata;
use crate::decide::admission::trial::live::LiveNodes;
use crate::decide::admission::trial::refused::{
    Findings, NO_TIME, OWN_KIND, TrialOutcome, beside_others,
};
use crate::decide::admission::trial::restarts::Restarts;
use crate::decide::admission::trial::sample::Sample;
use crate::decide::child::schema;
use crate::decide::child::{Child, Kind, NodeKey, ObjectKey, Scope, manifest, object_key};
use crate::decide::node::digest::{NodeDigest, live_content};
use crate::decide::node::plan::record::Record;
use crate::decide::node::plan::recreate::{Recreation, immutable};
use crate::decide::rollout::Live;
use crate::decide::shared::near::no_kind;
use crate::decide::template::public;

/// Resources that are tried at a time.
const REQUESTS_MAX: usize = 8;
/// Nodes that are asked for what they run.
const NODES_MAX: usize = 200;
/// Of a node that is not there yet.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// The nodes of a hub: from the leader's cache, or from a list of their metadata where this process does not lead (decision 0042).
/// The API server's error where the list fails.
pub async fn live_nodes(world: &World, namespace: &str, hub: &str) -> Result<LiveNodes, ApiError> {
    let objects = &world.objects;
    let of_hub = (namespace.to_owned(), hub.to_owned());
    if world.leads(&of_hub) {
        let mut nodes = LiveNodes::new(seed::known(objects, namespace, hub).await?);
        let cached = world.nodes.of_hub(&of_hub);
        cached.iter().for_each(|node| nodes.add_cached(node));
        return Ok(nodes);
    }
    let kind = ObjectKey::own("LynqNode", namespace, "").kind;
    let labels = format!("{}={hub}", names::LABEL_HUB);
    let mut nodes = LiveNodes::new(seed::known(objects, namespace, hub).await?);
    let each = |name: &str, metadata: &Value| nodes.add(name, metadata);
    objects.metadata(&kind, namespace, &labels, each).await?;
    Ok(nodes)
}

/// The trial with what the API server says of it, as far as it does so within the time.
pub async fn try_on_server(
    objects: &Objects,
    form: Arc<FormSpec>,
    mut trial: Trial,
    limit: Duration,
) -> Trial {
    let deadline = clock::instant() + limit;
    let on_server = OnServer {
        text: serde_json::to_string(&*form).unwrap_or_default(),
        form,
        objects,
        schemas: Mutex::default(),
    };
    let samples = std::mem::take(&mut trial.samples);
    let looks: Vec<ObjectKey> = trial.deletions.looks().cloned().collect();
    let nodes: Vec<NodeKey> = trial.restarts.looks().take(NODES_MAX).cloned().collect();
    let (found, seen, ()) = tokio::join!(
        on_server.findings(&samples, deadline),
        seen(objects, looks, deadline),
        look_at_nodes(objects, nodes, &mut trial.restarts, deadline)
    );
    trial.findings = found;
    trial.deletions.settle(&seen);
    trial
}

/// What these nodes run. Those that do not answer in time stay in doubt.
async fn look_at_nodes(
    objects: &Objects,
    nodes: Vec<NodeKey>,
    restarts: &mut Restarts,
    deadline: Instant,
) {
    let looks = nodes.into_iter().map(async |node| {
        let key = ObjectKey::own("LynqNode", &node.namespace, &node.name);
        Some((node, objects.get(&key).await.ok()?))
    });
    let mut looks = stream::iter(Vec::from_iter(looks)).buffer_unordered(REQUESTS_MAX);
    while let Ok(Some(look)) = timeout_at(deadline, looks.next()).await {
        if let Some((node, object)) = look {
            let live = NodeDigest::of(&object, None).live;
            let content = live_content(&object, &live);
            if content.is_some() || live == Live::None {
                restarts.settle(&node, content.iter().flat_map(ResourceArrays::iter));
            }
        }
    }
}

/// The metadata of objects. What does not answer in time is left out.
async fn seen(objects: &Objects, looks: Vec<ObjectKey>, deadline: Instant) -> LiveMetadata {
    let looks = looks.into_iter().map(async |key| {
        if key.impossible().or_else(|| key.kind.impossible()).is_some() {
            return Some((key, None));
        }
        let metadata = match objects.metadata_of(&key).await {
            Ok(metadata) => Some(metadata),
            Err(ApiError::NotFound(_)) => None,
            Err(_) => return None,
        };
        Some((key, metadata))
    });
    let mut looks = stream::iter(Vec::from_iter(looks)).buffer_unordered(REQUESTS_MAX);
    let mut seen = LiveMetadata::new();
    while let Ok(Some(look)) = timeout_at(deadline, looks.next()).await {
        seen.extend(look);
    }
    seen
}

struct OnServer<'a> {
    objects: &'a Objects,
    form: Arc<FormSpec>,
    /// The form's own words: everybody may read them.
    text: String,
    /// By apiVersion; one is asked for at a time, for each is large.
    schemas: Mutex<BTreeMap<String, Arc<Value>>>,
}

impl OnServer<'_> {
    async fn findings(&self, samples: &[Sample], deadline: Instant) -> Findings {
        let mut found: Vec<Option<TrialOutcome>> = vec![None; samples.len()];
        if let Ok(nodes) = timeout_at(deadline, self.nodes(samples)).await {
            let tried = samples.iter().enumerate().map(|(number, sample)| {
                let node = nodes.get(&sample.node);
                async move {
                    match node {
                        Some(Ok(node)) => (number, self.found(node, sample).await),
                        Some(Err(why)) => (number, TrialOutcome::NotNow(why.clone())),
                        None => (number, TrialOutcome::Untried(NO_TIME)),
                    }
                }
            });
            // As a list: the compiler does not see otherwise that all of them may go to other threads.
            let tried = stream::iter(Vec::from_iter(tried));
            let mut tried = tried.buffer_unordered(REQUESTS_MAX);
            while let Ok(Some((number, what))) = timeout_at(deadline, tried.next()).await {
                found[number] = Some(what);
            }
        }
        let mut findings = Findings::default();
        for (sample, found) in samples.iter().zip(found) {
            findings.add(sample, found.unwrap_or(TrialOutcome::Untried(NO_TIME)));
        }
        findings
    }

    /// The nodes of the samples; one that is not there yet as it will be, but for its uid.
    async fn nodes(&self, samples: &[Sample]) -> BTreeMap<NodeKey, Result<NodeDigest, String>> {
        let mut nodes = BTreeMap::new();
        for key in samples.iter().map(|sample| &sample.node) {
            if nodes.contains_key(key) {
                continue;
            }
            let NodeKey { namespace, name } = key;
            let own = ObjectKey::own("LynqNode", namespace, name);
            let node = match self.objects.get(&own).await {
                Ok(object) => Ok(NodeDigest::of(&object, None)),
                Err(ApiError::NotFound(_)) => {
                    let metadata = json!({"namespace": namespace, "name": name, "uid": NO_UID});
                    Ok(NodeDigest::of(&json!({ "metadata": metadata }), None))
                }
                Err(error) => Err(error.to_string()),
            };
            nodes.insert(key.clone(), node);
        }
        nodes
    }

    async fn found(&self, node: &NodeDigest, sample: &Sample) -> TrialOutcome {
        let kind = sample.kind();
        if let Some(why) = kind.impossible() {
            return TrialOutcome::Refused(why);
        }
        let served = match self.objects.served(&kind).await {
            Ok(Some(served)) => served,
            Ok(None) if sample.brings_kind => return TrialOutcome::Untried(OWN_KIND),
            Ok(None) => return TrialOutcome::Refused(self.no_kind(node, &kind).await),
            Err(error) => return TrialOutcome::NotNow(error.to_string()),
        };
        let resource = &sample.resource;
        if let Some(fault) = schema::unknown_metadata(&resource.spec) {
            return TrialOutcome::Refused(fault.to_string());
        }
        let key = object_key(resource, &node.key, served.scope);
        if key.impossible().is_some() {
            let why = "no object can have its name or namespace; correct their templates, or the row's values";
            return TrialOutcome::Refused(why.to_owned());
        }
        let shown = |namespace: &str| self.shown(node, namespace);
        if let Some(why) = self.objects.watched().refusal(&key, shown) {
            return TrialOutcome::Unwatched(why);
        }
        let recorded = Record::of(&node.status).names(&key);
        let strict = self.strict(node);
        let error = match dry_run(&strict, node, (resource, &key), recorded).await {
            Ok(_) => return TrialOutcome::Good,
            Err(error) => error,
        };
        match error {
            ApiError::Invalid { why, .. } => {
                let why = self.why(node, sample, &served, &why).await;
                match self.invalid(node, (sample, &key), recorded, &why).await {
                    Ok(outcome) => outcome,
                    Err(error) if error.may_pass() => TrialOutcome::NotNow(error.to_string()),
                    Err(_) => TrialOutcome::Refused(why),
                }
            }
            ApiError::NotFound(_) if !key.namespace.is_empty() => {
                self.without_namespace(node, sample, &served, key).await
            }
            ApiError::Refused(why) => {
                let missing = self.missing_right(&served, &key.namespace).await;
                TrialOutcome::NotNow(missing.unwrap_or(why))
            }
            ApiError::Conflict(why) => {
                let taken = self.taken(node, &key).await;
                TrialOutcome::NotNow(taken.unwrap_or(why))
            }
            error => TrialOutcome::NotNow(error.to_string()),
        }
    }

    /// What a new object would be taken with is refused for what the present one has. An error says that this could not be found
    /// out, or that there is no present one, or that a new one is refused as well.
    async fn invalid(
        &self,
        node: &NodeDigest,
        (sample, key): (&Sample, &ObjectKey),
        recorded: bool,
        why: &str,
    ) -> Result<TrialOutcome, ApiError> {
        let strict = self.strict(node);
        let live = self.objects.get(key).await?;
        let new = self.anew(node, sample, key).await?;
        if fits_alone(&strict, node, (&sample.resource, key), recorded).await? {
            // What is gone by now stands in nobody's way.
            return Ok(match self.objects.get(key).await {
                Err(ApiError::NotFound(_)) => TrialOutcome::NotNow(why.to_owned()),
                _ => TrialOutcome::Refused(beside_others(why, &live)),
            });
        }
        let kind = &key.kind;
        let fixed = immutable(kind, &live, &new).unwrap_or_else(|| why.to_owned());
        let recreation = Recreation::of(kind, &live, &new);
        Ok(TrialOutcome::Fixed(fixed, recreation))
    }

    /// The node of another form that has the object, where there is one.
    async fn taken(&self, node: &NodeDigest, key: &ObjectKey) -> Option<String> {
        let live = Child::of(&self.objects.get(key).await.ok()?);
        let owner = live.node().filter(|owner| **owner != node.key)?;
        let own = ObjectKey::own("LynqNode", &owner.namespace, &owner.name);
        let other = self.objects.get(&own).await.ok()?;
        let form = other["spec"]["templateRef"].as_str()?;
        if form == node.form && other["spec"]["hubId"] == node.hub.as_str() {
            return None;
        }
        let stays = other["metadata"]["deletionTimestamp"].is_null();
        stays.then(|| {
            format!(
                "lynqnode {owner} of form {form} has it, and keeps it: the new node reports a conflict and waits. To rename a form or move \
                 tenants, see \"Rename a form\" in OPERATING.md"
            )
        })
    }

    /// The namespace is not there yet: what is wrong with the object itself the form's own namespace tells as well.
    async fn without_namespace(
        &self,
        node: &NodeDigest,
        sample: &Sample,
        served: &Served,
        key: ObjectKey,
    ) -> TrialOutcome {
        let here = ObjectKey {
            namespace: node.key.namespace.clone(),
            ..key.clone()
        };
        match self.anew(node, sample, &here).await {
            Err(ApiError::Invalid { why, .. }) => {
                TrialOutcome::Refused(self.why(node, sample, served, &why).await)
            }
            _ if sample.makes_namespace => TrialOutcome::Good,
            _ => TrialOutcome::NotNow(format!(
                "there is no namespace {:?}; create it, for example as a resource of this form, or correct targetNamespace",
                self.shown(node, &key.namespace)
            )),
        }
    }

    /// The resource as an object of a name that nobody uses.
    async fn anew(
        &self,
        node: &NodeDigest,
        sample: &Sample,
        key: &ObjectKey,
    ) -> Result<Value, ApiError> {
        dry_run_anew(&self.strict(node), node, (&sample.resource, key)).await
    }

    fn strict(&self, node: &NodeDigest) -> Objects {
        let strict = self.objects.strict();
        strict.knowing(Some(self.form.clone()), &node.key.name)
    }

    /// What is wrong, by the kind's schema where that says it, for it names the place; else in the API server's words.
    async fn why(
        &self,
        node: &NodeDigest,
        sample: &Sample,
        served: &Served,
        refusal: &str,
    ) -> String {
        let kind = sample.kind();
        let document = self.schema(&kind).await;
        let mut object = manifest(&sample.resource, &node.key, &node.uid, served.scope, None);
        self.objects.fit(&kind, &mut object).await;
        let faults = schema::faults(&document, &kind, &object);
        match faults.as_slice() {
            [] => refusal.to_owned(),
            [only] => only.to_string(),
            [first, more @ ..] => format!("{first} (and {} more)", more.len()),
        }
    }

    async fn schema(&self, kind: &Kind) -> Arc<Value> {
        let mut schemas = self.schemas.lock().await;
        if let Some(known) = schemas.get(&kind.api_version) {
            return known.clone();
        }
        // Without it the API server's own words must do.
        let document = self.objects.schema(kind).await.unwrap_or_default();
        let document = Arc::new(document);
        schemas.insert(kind.api_version.clone(), document.clone());
        document
    }

    async fn no_kind(&self, node: &NodeDigest, kind: &Kind) -> String {
        let known = self.objects.kinds().await.unwrap_or_default();
        let named = self.shown(node, &format!("{} in {}", kind.kind, kind.api_version));
        no_kind(&named, kind, &known)
    }

    /// The operator's own rights to such objects that are missing, and what gives them.
    async fn missing_right(&self, served: &Served, namespace: &str) -> Option<String> {
        let resource = &served.resource;
        let mut missing = vec![];
        for verb in VERBS {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
                "spec": {"resourceAttributes": {
                    "group": resource.group, "version": resource.version, "resource": resource.plural,
                    "verb": verb, "namespace": namespace,
                }},
            });
            if !self.objects.may(&review).await.ok()? {
                missing.push(verb);
            }
        }
        if missing.is_empty() {
            return None;
        }
        // Without the rule: a warning has room for 256 characters.
        let lacks = lacks(&resource.group, &resource.plural, &missing);
        Some(match (served.scope, self.objects.watched().is_all()) {
            // The label adds to a ClusterRole that is bound in the watched namespaces only.
            (Scope::Cluster, false) => format!(
                "lynqgate {lacks} in the cluster; add a ClusterRole with a ClusterRoleBinding (lynqgate check shows its rule)"
            ),
            _ => format!(
                "lynqgate {lacks}; add a ClusterRole with label {}: \"true\" (lynqgate check shows its rule)",
                names::AGGREGATE_TO_TENANTS,
            ),
        })
    }

    /// Without what only a row says.
    fn shown(&self, node: &NodeDigest, text: &str) -> String {
        public::shown(text, &[&self.text, &node.key.name])
    }
}
