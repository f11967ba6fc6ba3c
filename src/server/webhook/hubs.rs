//! The admission of hubs, beyond what their fields tell: whether the author may read what the hub reads, and whether its database
//! has what it maps.

use serde_json::Value;
use tokio::time::timeout;

use crate::api::hub::Source;
use crate::decide::admission::{Doubt, Verdict, hub};
use crate::decide::review;
use crate::server::webhook::definitions::{Definitions, PATIENCE};

impl Definitions {
    pub(super) async fn hub(&self, request: &review::Request) -> Verdict {
        let new = request.object.as_ref().unwrap_or(&Value::Null);
        let old = request.old_object.as_ref();
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
        let mapped = [
            "/spec/source",
            "/spec/valueMappings",
            "/spec/extraValueMappings",
        ];
        if mapped.into_iter().all(is_same) {
            return verdict;
        }
        let checked = timeout(PATIENCE, (self.check_hub)(new.clone())).await;
        let too_late = || Doubt {
            is_certain: false,
            message: format!("it did not answer within {} s", PATIENCE.as_secs()),
        };
        if let Err(doubt) = checked.unwrap_or_else(|_| Err(too_late())) {
            doubt.judge(&mut verdict);
        }
        verdict
    }
}
