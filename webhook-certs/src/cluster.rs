//! The only calls to the API server: reads, compare-and-swap writes, and watches as a signal to read again.
//! It must not decide what to write; every call has a time limit.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams,
};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Deserialize;
use serde_json::json;

use crate::authority::{Authority, bundle_ids};
use crate::plan::{CaId, CaSet};
use crate::status::{ConfigurationKind, ConfigurationRef};

const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A call did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Another writer was faster: read and decide again.
    #[error("{0}: it was changed meanwhile")]
    Conflict(String),
    #[error("{0}: no answer from the API server within {CALL_TIMEOUT:?}")]
    Timeout(String),
    #[error("{call}: {message}")]
    Refused { call: String, message: String },
}

/// Where the Secret is, and the field manager of all writes.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) secret_name: String,
    pub(crate) field_manager: String,
}

/// A webhook configuration as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) resource_version: String,
    /// Every webhook entry and the authorities in its bundle.
    pub(crate) entries: Vec<(String, BTreeSet<CaId>)>,
}

impl Cluster {
    pub(crate) async fn read_configuration(
        &self,
        configuration: &ConfigurationRef,
    ) -> Result<Option<Configuration>, CallError> {
        let call = format!("get {configuration}");
        let object = limited(
            &call,
            self.configurations(configuration.kind)
                .get_opt(&configuration.name),
        )
        .await?;
        object
            .map(|object| parse_configuration(object, call))
            .transpose()
    }

    /// Writes the bundle of every entry, and no other field, by server-side apply. The resourceVersion makes it
    /// a compare-and-swap, so that it can neither undo a newer bundle nor create a configuration.
    pub(crate) async fn write_bundle(
        &self,
        configuration: &ConfigurationRef,
        read: &Configuration,
        bundle: &[u8],
    ) -> Result<(), CallError> {
        let call = format!("apply the caBundle of {configuration}");
        let params = PatchParams::apply(&self.field_manager).force();
        let patch = Patch::Apply(bundle_patch(configuration, read, bundle));
        let api = self.configurations(configuration.kind);
        limited(&call, api.patch(&configuration.name, &params, &patch)).await?;
        Ok(())
    }

    pub(crate) async fn read_secret(&self) -> Result<Option<Secret>, CallError> {
        limited(
            &self.secret_call("get"),
            self.secrets().get_opt(&self.secret_name),
        )
        .await
    }

    /// Creates the Secret, or replaces the one that was read if nobody has changed it since.
    pub(crate) async fn write_secret(
        &self,
        read: Option<Secret>,
        set: &CaSet<Authority>,
    ) -> Result<(), CallError> {
        let exists = read.is_some();
        let mut secret = read.unwrap_or_else(|| Secret {
            metadata: ObjectMeta {
                name: Some(self.secret_name.clone()),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        });
        set.write_secret_data(secret.data.get_or_insert_default());
        let params = PostParams {
            field_manager: Some(self.field_manager.clone()),
            ..PostParams::default()
        };
        let api = self.secrets();
        if exists {
            limited(
                &self.secret_call("update"),
                api.replace(&self.secret_name, &params, &secret),
            )
            .await?;
        } else {
            limited(&self.secret_call("create"), api.create(&params, &secret)).await?;
        }
        Ok(())
    }

    /// Ends never; yields whenever the Secret or one of the configurations may have changed.
    pub(crate) fn changes(&self, configurations: &[ConfigurationRef]) -> BoxStream<'static, ()> {
        let secrets = Api::namespaced(self.client.clone(), &self.namespace);
        let mut watches = vec![watch::<Secret>(secrets, &self.secret_name)];
        for ConfigurationRef { kind, name } in configurations {
            let client = self.client.clone();
            watches.push(match kind {
                ConfigurationKind::Mutating => {
                    watch::<MutatingWebhookConfiguration>(Api::all(client), name)
                }
                ConfigurationKind::Validating => {
                    watch::<ValidatingWebhookConfiguration>(Api::all(client), name)
                }
            });
        }
        stream::select_all(watches).boxed()
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn configurations(&self, kind: ConfigurationKind) -> Api<DynamicObject> {
        let resource = match kind {
            ConfigurationKind::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            ConfigurationKind::Validating => {
                ApiResource::erase::<ValidatingWebhookConfiguration>(&())
            }
        };
        Api::all_with(self.client.clone(), &resource)
    }

    fn secret_call(&self, verb: &str) -> String {
        format!("{verb} Secret {}/{}", self.namespace, self.secret_name)
    }
}

/// Metadata only: the content is read afterwards, in the order that decisions need.
fn watch<K>(api: Api<PartialObjectMeta<K>>, name: &str) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let only_this = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(api, only_this)
        .default_backoff()
        // A failed watch, which the watcher logs, may have missed a change: yield, so that the caller reads again.
        .filter_map(|event| {
            let early = matches!(
                event,
                Ok(watcher::Event::Init | watcher::Event::InitApply(_))
            );
            future::ready((!early).then_some(()))
        })
        .boxed()
}

async fn limited<T>(
    call: &str,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    let answer = tokio::time::timeout(CALL_TIMEOUT, answer).await;
    let answer = answer.map_err(|_| CallError::Timeout(call.to_owned()))?;
    answer.map_err(|error| {
        let message = match error {
            kube::Error::Api(status) if status.code == 409 => {
                return CallError::Conflict(call.to_owned());
            }
            kube::Error::Api(status) => status.message.clone(),
            // It may quote what it could not read.
            kube::Error::SerdeError(_) => "the answer of the API server cannot be read".to_owned(),
            other => with_causes(&other),
        };
        CallError::Refused {
            call: call.to_owned(),
            message,
        }
    })
}

/// The outermost error says `Connect`, the innermost says why.
fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        // Some errors show their cause themselves.
        if !message.ends_with(&text) {
            message = format!("{message}: {text}");
        }
        cause = inner.source();
    }
    message
}

#[derive(Deserialize)]
struct Webhooks {
    #[serde(default)]
    webhooks: Vec<Webhook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    name: String,
    client_config: ClientConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientConfig {
    #[serde(default)]
    ca_bundle: Option<ByteString>,
}

fn parse_configuration(object: DynamicObject, call: String) -> Result<Configuration, CallError> {
    let resource_version = object.resource_version().unwrap_or_default();
    let Webhooks { webhooks } =
        serde_json::from_value(object.data).map_err(|error| CallError::Refused {
            call,
            message: error.to_string(),
        })?;
    let entries = webhooks
        .into_iter()
        .map(
            |Webhook {
                 name,
                 client_config,
             }| {
                let bundle = client_config.ca_bundle.unwrap_or_default();
                (name, bundle_ids(&bundle.0))
            },
        )
        .collect();
    Ok(Configuration {
        resource_version,
        entries,
    })
}

fn bundle_patch(
    configuration: &ConfigurationRef,
    read: &Configuration,
    bundle: &[u8],
) -> serde_json::Value {
    let bundle = ByteString(bundle.to_vec());
    let webhooks: Vec<_> = read
        .entries
        .iter()
        .map(|(name, _)| json!({ "name": name, "clientConfig": { "caBundle": bundle } }))
        .collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": configuration.kind_name(),
        "metadata": { "name": configuration.name, "resourceVersion": read.resource_version },
        "webhooks": webhooks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_every_entry_and_only_its_bundle() {
        let configuration = ConfigurationRef {
            kind: ConfigurationKind::Validating,
            name: "gate".to_owned(),
        };
        let object = serde_json::from_value(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": "gate", "resourceVersion": "41" },
            "webhooks": [
                { "name": "a.example.com", "clientConfig": { "url": "https://127.0.0.1:1/a" }, "sideEffects": "None" },
                { "name": "b.example.com", "clientConfig": { "service": { "name": "s", "namespace": "n" }, "caBundle": "Z2FyYmFnZQ==" } },
            ],
        }))
        .unwrap();
        let read = parse_configuration(object, "get".to_owned()).unwrap();
        let empty = BTreeSet::new();
        let entries = vec![
            ("a.example.com".to_owned(), empty.clone()),
            ("b.example.com".to_owned(), empty),
        ];
        assert_eq!(
            read,
            Configuration {
                resource_version: "41".to_owned(),
                entries
            }
        );
        assert_eq!(
            bundle_patch(&configuration, &read, b"pem"),
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": { "name": "gate", "resourceVersion": "41" },
                "webhooks": [
                    { "name": "a.example.com", "clientConfig": { "caBundle": "cGVt" } },
                    { "name": "b.example.com", "clientConfig": { "caBundle": "cGVt" } },
                ],
            })
        );
    }
}
