//! Watches what must be installed as it is, in every replica: one that finds it otherwise is not ready, and says why.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::ApiResource;
use serde_json::Value;
use tokio::sync::watch::{Receiver, Sender, channel};

use crate::api::names;
use crate::cluster::vital;
use crate::cluster::watch::{Change, Which, follow};
use crate::decide::installation::{STORED, definition_of, definition_problem, identity_problem};

/// What is wrong, by the object that is not as it should be. Cheap to clone.
#[derive(Clone)]
pub struct Installation {
    problems: Arc<Sender<BTreeMap<String, String>>>,
    seen: Receiver<BTreeMap<String, String>>,
}

impl Installation {
    /// `namespace` and `operator` are the operator's own.
    pub fn follow(client: &Client, namespace: &str, operator: &str) -> Self {
        let (sender, seen) = channel(BTreeMap::new());
        let installation = Installation {
            problems: Arc::new(sender),
            seen,
        };
        for (plural, _) in STORED {
            let name = definition_of(plural);
            let resource = ApiResource::erase::<CustomResourceDefinition>(&());
            let judge = move |object: Option<&Value>| definition_problem(plural, object);
            installation.watch(client, resource, None, name, judge);
        }
        let (of, operator) = (namespace.to_owned(), operator.to_owned());
        let judge = move |object: Option<&Value>| identity_problem(object, &of, &operator);
        let (resource, name) = (
            ApiResource::erase::<ConfigMap>(&()),
            names::IDENTITY_CONFIG_MAP.to_owned(),
        );
        installation.watch(client, resource, Some(namespace.to_owned()), name, judge);
        installation
    }

    /// The first problem; None where all is as it should be.
    pub fn problem(&self) -> Option<String> {
        self.seen.borrow().values().next().cloned()
    }

    /// Until there is no problem.
    pub async fn wait(&self) {
        let mut seen = self.seen.clone();
        // The sender lives as long as this does.
        let _ = seen.wait_for(BTreeMap::is_empty).await;
    }

    fn watch(
        &self,
        client: &Client,
        resource: ApiResource,
        namespace: Option<String>,
        name: String,
        judge: impl Fn(Option<&Value>) -> Option<String> + Send + Sync + 'static,
    ) {
        let what = format!("{} {name}", resource.kind);
        note(
            &self.problems,
            &what,
            Some(format!("{what} is not read yet")),
        );
        let (problems, client) = (self.problems.clone(), client.clone());
        vital::spawn(async move {
            let which = Which::One {
                namespace: namespace.as_deref(),
                name: &name,
            };
            let mut there = false;
            follow(client, resource, which, |change| {
                let problem = match change {
                    Change::Restarted => {
                        there = false;
                        return;
                    }
                    Change::Applied(object) => {
                        there = true;
                        judge(Some(&object))
                    }
                    Change::Listed if there => return,
                    // What the list did not name is not there.
                    Change::Listed | Change::Deleted(_) => judge(None),
                    Change::Refused(no_list) => {
                        Some(format!("{what} cannot be read: {}", no_list.why))
                    }
                };
                note(&problems, &what, problem);
            })
            .await;
        });
    }
}

fn note(problems: &Sender<BTreeMap<String, String>>, what: &str, problem: Option<String>) {
    problems.send_if_modified(|all| {
        if all.get(what) == problem.as_ref() {
            return false;
        }
        match problem {
            Some(problem) => {
                tracing::warn!(problem, "lynqgate is not ready");
                all.insert(what.to_owned(), problem);
            }
            None => {
                all.remove(what);
            }
        }
        true
    });
}
