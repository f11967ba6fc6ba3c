//! The admission of hubs, beyond what their fields tell: whether the author may read what the hub reads, and whether its database
//! has what it maps.

use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::api::hub::{HubSpec, Source};
use crate::cluster::objects::ApiError;
use crate::decide::admission::review;
use crate::decide::admission::{Doubt, Verdict, hub};
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::hub::sync::rows_hash;
use crate::server::webhook::definitions::{Definitions, PATIENCE};
use crate::server::webhook::reach;

impl Definitions {
    pub(super) async fn hub(&self, request: &review::Request) -> Verdict {
        if request.operation == "DELETE" {
            return self.hub_deletion(request).await;
        }
        let new = request.object.as_deref().unwrap_or(&Value::Null);
        let old = request.old_object.as_deref();
        let mut verdict = hub::judge(old, new);
        let is_same =
            |pointer: &str| old.is_some_and(|old| old.pointer(pointer) == new.pointer(pointer));
        if verdict.denied.is_some() || is_same("/spec") {
            return verdict;
        }
        // First the author: a password goes to the host that they name.
        if let Some(authors) = self.authors.as_ref().filter(|_| !is_same("/spec/source")) {
            let source = serde_json::from_value::<Source>(new["spec"]["source"].clone());
            let source = source.expect("it was judged");
            let home = new["metadata"]["namespace"].as_str().unwrap_or_default();
            let reads = source.reads();
            let missing = authors.missing_read(&request.user_info, &reads, home);
            authors.judge(missing.await, &mut verdict);
        }
        if verdict.denied.is_some() {
            return verdict;
        }
        // The guard, the window and the interval change no tenant.
        let makes = |hub: &Value| HubSpec::deserialize(&hub["spec"]).map(|spec| rows_hash(&spec));
        if old.is_some_and(|old| makes(old).ok() == makes(new).ok()) {
            return verdict;
        }
        let checked = timeout(PATIENCE, (self.check_hub)(new.clone())).await;
        let too_late = || Doubt {
            is_certain: false,
            message: format!("it did not answer within {} s", PATIENCE.as_secs()),
        };
        let checked = checked.unwrap_or_else(|_| Err(too_late()));
        let unchecked = checked.as_ref().err().map(|doubt| doubt.message.clone());
        if let Err(doubt) = checked {
            doubt.judge(&mut verdict);
        }
        if let Some(old) = old.filter(|_| verdict.denied.is_none()) {
            match reach::warnings(self, old, new).await {
                Ok(found) => verdict.warnings.extend(found),
                // Nobody reads the same twice.
                Err(why) if unchecked.as_ref() == Some(&why) => {}
                Err(why) => verdict
                    .warnings
                    .push(format!("not tried on the rows: {why}")),
            }
        }
        verdict
    }

    async fn hub_deletion(&self, request: &review::Request) -> Verdict {
        let hub = request.old_object.as_deref().unwrap_or(&Value::Null);
        let text = |field: &str| hub["metadata"][field].as_str().unwrap_or_default();
        let (namespace, kind) = (text("namespace"), ObjectKey::own("LynqNode", "", "").kind);
        let nodes = self.objects.owned(&kind, namespace, text("uid"));
        let too_late = || {
            let why = format!("no answer within {} s", 2 * PATIENCE.as_secs());
            Err(ApiError::Unavailable(why))
        };
        let nodes = timeout(2 * PATIENCE, nodes).await;
        let verdict = match nodes.unwrap_or_else(|_| too_late()) {
            Ok(nodes) => {
                let names: Vec<String> = nodes.into_iter().filter_map(|node| node.name).collect();
                hub::judge_deletion(hub, &request.options, &names)
            }
            Err(error) => Verdict {
                denied: Some(format!(
                    "LynqHub {namespace}/{}: the nodes that would be deleted with it cannot be counted: {error}. Delete it again later",
                    text("name")
                )),
                warnings: vec![],
            },
        };
        if verdict.denied.is_some() && self.is_going(namespace).await {
            return Verdict::default();
        }
        verdict
    }

    async fn is_going(&self, namespace: &str) -> bool {
        let kind = Kind {
            api_version: "v1".to_owned(),
            kind: "Namespace".to_owned(),
        };
        let key = ObjectKey {
            kind: kind.into(),
            namespace: "".into(),
            name: namespace.to_owned(),
        };
        let found = timeout(PATIENCE, self.objects.get(&key)).await;
        matches!(found, Ok(Ok(namespace)) if namespace["metadata"]["deletionTimestamp"].is_string())
    }
}
