//! Requests for single objects, as JSON. Each has a time limit, and each failure is classified by what its caller can do about
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, GetParams, ListParams, ObjectMeta, Patch, PatchParams,
    PostParams, Preconditions, PropagationPolicy,
};
use kube::core::{GroupVersionKind, ObjectList, Request};
use kube::discovery::{self, ApiCapabilities, Discovery, Scope as ApiScope};
use serde_json::{Value, json};

use crate::api::form::FormSpec;
use crate::api::names;
use crate::cluster::client::REQUEST_TIMEOUT;
use crate::cluster::json_object::JsonObject;
use crate::cluster::published::{self, Published};
use crate::cluster::unmanaged::Unmanaged;
use crate::cluster::vital::Mutex;
use crate::decide::child::texts::Texts;
use crate::decide::child::{Kind, ObjectKey, Scope, key_of};
use crate::decide::node::plan::recreate::Dependents;
use crate::decide::operator::watched::WatchedNamespaces;
use crate::decide::shared::refusal::without_values;

pub use crate::cluster::api_error::ApiError;

/// The page size of a list of whole objects; one page is in memory at once.
const LIST_PAGE: u32 = 100;
/// The page size of a list of metadata only.
const METADATA_PAGE: u32 = 1_000;

/// A kind as the cluster serves it.
#[derive(Clone, Debug)]
pub struct Served {
    pub resource: ApiResource,
    pub scope: Scope,
    /// Whether the kind has a status subresource.
    pub has_status: bool,
}

impl Served {
    pub fn of(resource: ApiResource, capabilities: &ApiCapabilities) -> Self {
        let mut subresources = capabilities.subresources.iter();
        Served {
            has_status: subresources.any(|(own, _)| own.plural == "status"),
            scope: match capabilities.scope {
                ApiScope::Cluster => Scope::Cluster,
                ApiScope::Namespaced => Scope::Namespaced,
            },
            resource,
        }
    }

    pub fn kind(&self) -> Kind {
        Kind::new(&self.resource.api_version, &self.resource.kind)
    }
}

/// The form of an object, and the name of its node.
type FormOfNode = (Option<Arc<FormSpec>>, String);

/// Requests to the API server. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    pub client: Client,
    /// Writes are dry runs: the API server stores nothing.
    dry_run: bool,
    /// The API server rejects fields that the kind does not have, in every type of write.
    strict: bool,
    /// Texts that errors may quote, beside the words that every reader knows.
    known: Option<FormOfNode>,
    served: Arc<Mutex<BTreeMap<Kind, Served>>>,
    published: Published,
    unmanaged: Unmanaged,
    watched: WatchedNamespaces,
}

impl Objects {
    pub fn new(client: Client) -> Self {
        Objects {
            client,
            dry_run: false,
            strict: false,
            known: None,
            served: Arc::default(),
            published: Published::default(),
            unmanaged: Unmanaged::default(),
            watched: WatchedNamespaces::default(),
        }
    }

    /// The same client for an operator that watches these namespaces.
    pub fn watching(self, watched: WatchedNamespaces) -> Self {
        Objects { watched, ..self }
    }

    pub fn watched(&self) -> &WatchedNamespaces {
        &self.watched
    }

    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The same client for dry runs.
    pub fn dry_run(&self) -> Self {
        Objects {
            dry_run: true,
            ..self.clone()
        }
    }

    /// The same client, but the API server rejects a field that the kind does not have instead of dropping it.
    pub fn strict(&self) -> Self {
        Objects {
            strict: true,
            ..self.clone()
        }
    }

    /// The same client for objects of this form and node: errors may quote the words of the form and the node's name.
    pub fn knowing(&self, form: Option<Arc<FormSpec>>, node: &str) -> Self {
        Objects {
            known: Some((form, node.to_owned())),
            ..self.clone()
        }
    }

    /// How the cluster serves a kind; None if it does not. Caches a kind that is found, and asks again for one that is not.
    pub async fn served(&self, kind: &Kind) -> Result<Option<Served>, ApiError> {
        if let Some(known) = self.known(kind) {
            return Ok(Some(known));
        }
        let (group, version) = kind
            .api_version
            .split_once('/')
            .unwrap_or(("", &kind.api_version));
        let gvk = GroupVersionKind::gvk(group, version, &kind.kind);
        let found = timed(REQUEST_TIMEOUT, async {
            match discovery::pinned_kind(&self.client, &gvk).await {
                Ok(found) => Ok(Some(found)),
                // The group is there, the kind is not.
                Err(kube::Error::Discovery(_)) => Ok(None),
                Err(error) => Err(error),
            }
        });
        match found.await {
            Ok(Some((resource, capabilities))) => {
                let served = Served::of(resource, &capabilities);
                self.served.lock().insert(kind.clone(), served.clone());
                Ok(Some(served))
            }
            Ok(None) | Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Converts values of the manifest to strings where the published schema of its kind has strings.
    pub async fn fit(&self, kind: &Kind, manifest: &mut Value) {
        if Texts::concern(manifest)
            && let Some(texts) = self.published.texts(&self.client, kind).await
        {
            texts.convert(manifest);
        }
    }

    /// Whether the cluster still serves a kind; for a kind whose object was answered with "not found".
    pub async fn still_served(&self, kind: &Kind) -> Result<bool, ApiError> {
        self.served.lock().remove(kind);
        Ok(self.served(kind).await?.is_some())
    }

    /// As `served`, from the cache only.
    pub fn known(&self, kind: &Kind) -> Option<Served> {
        self.served.lock().get(kind).cloned()
    }

    /// Caches how the cluster serves a kind, for `served`.
    pub fn learn(&self, served: Served) -> Served {
        self.served.lock().insert(served.kind(), served.clone());
        served
    }

    pub async fn get(&self, key: &ObjectKey) -> Result<Value, ApiError> {
        let (request, name) = self.locate(key).await?;
        self.send(request.get(name, &GetParams::default())).await
    }

    /// Whether a list has shown that no object of this name without our label exists. If false, read the object.
    pub async fn lacks_unmanaged(&self, key: &ObjectKey) -> bool {
        self.unmanaged.lacks(self, key).await
    }

    /// An object's metadata. The key may name a namespace although its kind is cluster-scoped.
    pub async fn metadata_of(&self, key: &ObjectKey) -> Result<Value, ApiError> {
        let served = self.served(&key.kind).await?;
        let served = served
            .ok_or_else(|| ApiError::NotFound(format!("the cluster has no kind {}", key.kind)))?;
        let namespace = match served.scope {
            Scope::Cluster => "",
            Scope::Namespaced => &key.namespace,
        };
        let request = Request::new(url(&served.resource, namespace));
        let request = request.get_metadata(&key.name, &GetParams::default());
        let mut object = self.send(request).await?;
        Ok(object["metadata"].take())
    }

    /// Hands over all objects of a kind in a namespace.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: &str,
        each: impl FnMut(Value),
    ) -> Result<(), ApiError> {
        self.list_selected(kind, namespace, ListParams::default(), each)
            .await
    }

    /// Hands over all objects of a namespaced kind in the namespaces that the operator watches.
    pub async fn list_watched(
        &self,
        kind: &Kind,
        mut each: impl FnMut(Value),
    ) -> Result<(), ApiError> {
        for namespace in self.watched.places(Scope::Namespaced) {
            self.list(kind, namespace, &mut each).await?;
        }
        Ok(())
    }

    /// As `list`, for the objects that `params` select.
    pub async fn list_selected(
        &self,
        kind: &Kind,
        namespace: &str,
        params: ListParams,
        mut each: impl FnMut(Value),
    ) -> Result<(), ApiError> {
        let api = &self.api(kind, namespace).await?;
        let page = |params| async move { api.list(&params).await };
        pages(params.limit(LIST_PAGE), page, |object| each(object.value)).await
    }

    /// Hands over name and metadata of all objects of a kind that these labels select; the API server sends no more of them.
    pub async fn metadata(
        &self,
        kind: &Kind,
        namespace: &str,
        labels: &str,
        mut each: impl FnMut(&str, &Value),
    ) -> Result<(), ApiError> {
        let api = &self.api(kind, namespace).await?;
        let page = |params| async move { api.list_metadata(&params).await };
        let params = ListParams::default().limit(METADATA_PAGE);
        pages(params.labels(labels), page, |object| {
            let mut metadata = object.metadata;
            metadata.managed_fields = None;
            let name = metadata.name.clone().unwrap_or_default();
            each(&name, &serde_json::to_value(metadata).expect("it is JSON"));
        })
        .await
    }

    /// The OpenAPI v3 document of the kind's group and version.
    pub async fn schema(&self, kind: &Kind) -> Result<Value, ApiError> {
        published::document(&self.client, kind).await
    }

    /// Every kind that the cluster serves, in every version.
    pub async fn kinds(&self) -> Result<Vec<Kind>, ApiError> {
        let all = Discovery::new(self.client.clone()).run_aggregated();
        let all = timed(REQUEST_TIMEOUT, all).await?;
        let groups = all.groups();
        let versions = groups.flat_map(|group| {
            let versions = group.versions();
            versions.flat_map(|version| group.versioned_resources(version))
        });
        Ok(versions
            .map(|(resource, _)| Kind {
                api_version: resource.api_version,
                kind: resource.kind,
            })
            .collect())
    }

    /// The first page of the objects of a core kind that are selected.
    pub async fn selected(
        &self,
        kind: &str,
        namespace: &str,
        params: ListParams,
    ) -> Result<Vec<Value>, ApiError> {
        let kind = Kind {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
        };
        let api = self.api(&kind, namespace).await?;
        let page = timed(REQUEST_TIMEOUT, api.list(&params)).await?;
        Ok(page.items.into_iter().map(|object| object.value).collect())
    }

    /// The metadata of the objects of a kind in a namespace that this owner has, and that are not being deleted.
    pub async fn owned(
        &self,
        kind: &Kind,
        namespace: &str,
        owner: &str,
    ) -> Result<Vec<ObjectMeta>, ApiError> {
        let api = &self.api(kind, namespace).await?;
        let page = |params| async move { api.list_metadata(&params).await };
        let mut owned = vec![];
        let params = ListParams::default().limit(METADATA_PAGE);
        pages(params, page, |object| {
            let metadata = object.metadata;
            let mut owners = metadata.owner_references.iter().flatten();
            if metadata.deletion_timestamp.is_none() && owners.any(|other| other.uid == owner) {
                owned.push(metadata);
            }
        })
        .await?;
        Ok(owned)
    }

    async fn api(&self, kind: &Kind, namespace: &str) -> Result<Api<JsonObject>, ApiError> {
        let served = self
            .served(kind)
            .await?
            .ok_or_else(|| ApiError::NotFound(format!("the cluster does not serve {kind}")))?;
        let (client, resource) = (self.client.clone(), &served.resource);
        Ok(match namespace {
            "" => Api::all_with(client, resource),
            namespace => Api::namespaced_with(client, namespace, resource),
        })
    }

    /// Whether the API server allows what the SubjectAccessReview asks.
    pub async fn may(&self, review: &Value) -> Result<bool, ApiError> {
        let answered = self.create(&key_of(review), review).await?;
        Ok(answered["status"]["allowed"] == true)
    }

    pub async fn create(&self, key: &ObjectKey, object: &Value) -> Result<Value, ApiError> {
        let (request, _) = self.locate(key).await?;
        let params = PostParams {
            field_manager: Some(names::FIELD_MANAGER.into()),
            dry_run: self.dry_run,
        };
        self.send(request.create(&params, object.to_string().into_bytes()))
            .await
    }

    /// Server-side apply; `force` takes fields over from other managers.
    pub async fn apply(
        &self,
        key: &ObjectKey,
        object: &Value,
        force: bool,
    ) -> Result<Value, ApiError> {
        let (request, name) = self.locate(key).await?;
        let params = PatchParams {
            force,
            dry_run: self.dry_run,
            ..PatchParams::apply(names::FIELD_MANAGER)
        };
        self.send(request.patch(name, &params, &Patch::Apply(object)))
            .await
    }

    pub async fn merge(&self, key: &ObjectKey, patch: &Value) -> Result<Value, ApiError> {
        let (request, name) = self.locate(key).await?;
        self.send(request.patch(name, &self.patch_params(), &Patch::Merge(patch)))
            .await
    }

    /// Under another field manager than the operator's other writes.
    pub async fn merge_as(
        &self,
        manager: &str,
        key: &ObjectKey,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        let (request, name) = self.locate(key).await?;
        let params = PatchParams {
            field_manager: Some(manager.into()),
            ..self.patch_params()
        };
        self.send(request.patch(name, &params, &Patch::Merge(patch)))
            .await
    }

    pub async fn merge_status(&self, key: &ObjectKey, patch: &Value) -> Result<Value, ApiError> {
        let (request, name) = self.locate(key).await?;
        let params = PatchParams {
            field_manager: Some(names::STATUS_MANAGER.into()),
            ..self.patch_params()
        };
        self.send(request.patch_subresource("status", name, &params, &Patch::Merge(patch)))
            .await
    }

    /// Writes these fields of the status of this very object, not of another of its name; null takes a field away. A merge patch
    /// cannot say which object it means: the API server ignores what it says of the uid of a custom resource.
    pub async fn patch_status(
        &self,
        key: &ObjectKey,
        uid: &str,
        fields: &Value,
    ) -> Result<Value, ApiError> {
        let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": uid})];
        for (field, value) in fields.as_object().into_iter().flatten() {
            let path = format!("/status/{field}");
            patch.push(json!({"op": "add", "path": path, "value": value}));
            if value.is_null() {
                patch.push(json!({"op": "remove", "path": path}));
            }
        }
        let patch = serde_json::from_value(patch.into()).expect("a JSON patch");
        let (request, name) = self.locate(key).await?;
        let params = PatchParams {
            field_manager: Some(names::STATUS_MANAGER.into()),
            ..self.patch_params()
        };
        let patch = Patch::Json::<()>(patch);
        self.send(request.patch_subresource("status", name, &params, &patch))
            .await
    }

    /// Overwrites the object, if it is still at the resourceVersion that it carries.
    pub async fn replace(&self, key: &ObjectKey, object: &Value) -> Result<Value, ApiError> {
        let (request, name) = self.locate(key).await?;
        let params = PostParams {
            field_manager: Some(names::FIELD_MANAGER.into()),
            dry_run: self.dry_run,
        };
        self.send(request.replace(name, &params, object.to_string().into_bytes()))
            .await
    }

    pub async fn json_patch(
        &self,
        key: &ObjectKey,
        patch: json_patch::Patch,
    ) -> Result<Value, ApiError> {
        let (request, name) = self.locate(key).await?;
        self.send(request.patch(name, &self.patch_params(), &Patch::Json::<()>(patch)))
            .await
    }

    /// Deletes the object of this uid, never another of its name; with a `version`, only if it still has it. Background deletes
    /// its dependents too, also the pods of a Job; Orphan keeps them.
    pub async fn delete(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: Option<&str>,
        dependents: Dependents,
    ) -> Result<(), ApiError> {
        let propagation = match dependents {
            Dependents::Go => PropagationPolicy::Background,
            Dependents::Stay => PropagationPolicy::Orphan,
        };
        let (request, name) = self.locate(key).await?;
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: version.map(str::to_owned),
            }),
            dry_run: self.dry_run,
            ..DeleteParams::default()
        };
        match self.send(request.delete(name, &params)).await {
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn patch_params(&self) -> PatchParams {
        PatchParams {
            field_manager: Some(names::FIELD_MANAGER.into()),
            dry_run: self.dry_run,
            ..PatchParams::default()
        }
    }

    async fn locate<'a>(&self, key: &'a ObjectKey) -> Result<(Request, &'a str), ApiError> {
        let served = self.served(&key.kind).await?;
        let served = served
            .ok_or_else(|| ApiError::NotFound(format!("the cluster has no kind {}", key.kind)))?;
        Ok((
            Request::new(url(&served.resource, &key.namespace)),
            &key.name,
        ))
    }

    /// A text of our own about the object, with no more of its values than an error of the API server has.
    pub fn told(&self, text: &str) -> String {
        let form = self
            .known
            .as_ref()
            .map(|(form, _)| serde_json::to_string(&form.as_deref()).unwrap_or_default());
        let node = self.known.as_ref().map(|(_, node)| node.as_str());
        without_values(
            text,
            &[
                form.as_deref().unwrap_or_default(),
                node.unwrap_or_default(),
            ],
        )
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Value, ApiError> {
        let mut request = request.map_err(|e| ApiError::Refused(e.to_string()))?;
        if self.strict && request.method() != http::Method::GET {
            *request.uri_mut() = strictly(request.uri());
        }
        let request = self.client.request::<Value>(request);
        within(REQUEST_TIMEOUT, request, |error| {
            let Some((form, node)) = &self.known else {
                return ApiError::from(error);
            };
            let form = serde_json::to_string(&form.as_deref()).unwrap_or_default();
            ApiError::of(error, &[&form, node])
        })
        .await
    }
}

/// Adds the parameter for strict field validation, which kube does not offer for every request.
fn strictly(uri: &http::Uri) -> http::Uri {
    let and = if uri.query().is_some() { '&' } else { '?' };
    let strict = format!("{uri}{and}fieldValidation=Strict");
    strict.parse().unwrap_or_else(|_| uri.clone())
}

/// The collection's path; an empty namespace is for cluster-scoped kinds.
fn url(resource: &ApiResource, namespace: &str) -> String {
    let group = if resource.group.is_empty() {
        "api".to_owned()
    } else {
        format!("apis/{}", resource.group)
    };
    let scope = if namespace.is_empty() {
        String::new()
    } else {
        format!("namespaces/{namespace}/")
    };
    format!("/{group}/{}/{scope}{}", resource.version, resource.plural)
}

/// Calls `each` for every object of a list that is read page by page.
async fn pages<T: Clone, F: Future<Output = Result<ObjectList<T>, kube::Error>>>(
    mut params: ListParams,
    page: impl Fn(ListParams) -> F,
    mut each: impl FnMut(T),
) -> Result<(), ApiError> {
    loop {
        let page = timed(REQUEST_TIMEOUT, page(params.clone())).await?;
        page.items.into_iter().for_each(&mut each);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

pub async fn timed<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiError> {
    within(limit, request, ApiError::from).await
}

async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
    told: impl FnOnce(kube::Error) -> ApiError,
) -> Result<T, ApiError> {
    match tokio::time::timeout(limit, request).await {
        Ok(result) => result.map_err(told),
        Err(_) => Err(ApiError::Unavailable(format!(
            "no answer in {} s",
            limit.as_secs()
        ))),
    }
}
