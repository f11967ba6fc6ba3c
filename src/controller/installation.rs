//! Watches what must be installed as it is, in every replica, and tries at the start whether a LynqNode can be written: a replica
//! that finds it otherwise is not ready, and says why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ApiResource;
use serde_json::Value;
use tokio::sync::watch::{Receiver, Sender, channel};

use crate::api::names;
use crate::cluster::objects::Objects;
use crate::cluster::vital;
use crate::cluster::watch::{Change, Which, follow};
use crate::decide::child::{Scope, key_of};
use crate::decide::operator::installation::{
    STORED, definition_of, definition_problem, fence_problem, write_probe, write_problem,
};

/// How often the first write is tried, until it would be stored.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// What is tried; it sorts behind the names of objects, whose problems say more.
const WRITE: &str = "a write of a LynqNode";

/// What is wrong, by the object that is not as it should be. Cheap to clone.
#[derive(Clone)]
pub struct Installation {
    problems: Arc<Sender<BTreeMap<String, String>>>,
    seen: Receiver<BTreeMap<String, String>>,
}

impl Installation {
    /// `namespace` and `operator` are the operator's own. It may write LynqNodes in the namespaces that it watches only.
    pub fn follow(objects: &Objects, namespace: &str, operator: &str) -> Self {
        let (sender, seen) = channel(BTreeMap::new());
        let installation = Installation {
            problems: Arc::new(sender),
            seen,
        };
        for (plural, _) in STORED {
            let name = definition_of(plural);
            let resource = ApiResource::erase::<CustomResourceDefinition>(&());
            let judge = move |object: Option<&Value>| definition_problem(plural, object);
            installation.watch(objects, resource, name, judge);
        }
        let resource = ApiResource::erase::<ValidatingAdmissionPolicy>(&());
        let operator = operator.to_owned();
        let judge = move |object: Option<&Value>| fence_problem(object, &operator);
        installation.watch(objects, resource, names::FENCE.to_owned(), judge);
        match objects.watched().names() {
            None => installation.try_to_write(objects, namespace, WRITE),
            Some(watched) => {
                for namespace in watched {
                    let what = format!("{WRITE} in namespace {namespace}");
                    installation.try_to_write(objects, namespace, &what);
                }
            }
        }
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

    /// Until a LynqNode would be stored, as far as the API server, RBAC, policies and the webhooks of others have a say.
    fn try_to_write(&self, objects: &Objects, namespace: &str, what: &str) {
        note(
            &self.problems,
            what,
            Some(format!("{what} is not tried yet")),
        );
        let (objects, what) = (objects.dry_run(), what.to_owned());
        let (problems, probe) = (self.problems.clone(), write_probe(namespace));
        vital::spawn(async move {
            loop {
                let tried = objects.create(&key_of(&probe), &probe).await;
                let problem = match &tried {
                    Ok(_) => None,
                    // An API server or a webhook that does not answer says nothing of what it would say.
                    Err(error) if error.may_pass() => None,
                    Err(error) => Some(write_problem(&error.to_string())),
                };
                note(&problems, &what, problem);
                if tried.is_ok() {
                    return;
                }
                tokio::time::sleep(PROBE_EVERY).await;
            }
        });
    }

    fn watch(
        &self,
        objects: &Objects,
        resource: ApiResource,
        name: String,
        judge: impl Fn(Option<&Value>) -> Option<String> + Send + Sync + 'static,
    ) {
        let what = format!("{} {name}", resource.kind);
        note(
            &self.problems,
            &what,
            Some(format!("{what} is not read yet")),
        );
        let (problems, objects) = (self.problems.clone(), objects.clone());
        vital::spawn(async move {
            let mut there = false;
            let of_kind = (resource, Scope::Cluster);
            follow(objects, of_kind, Which::One(&name), |change| {
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
