//! The forms and hubs that were allowed a moment ago.
//!
//! Where an object changes between the API server's read and its write, the API server asks the webhooks once more, up to five times.
//! The loops write the statuses of forms and hubs every second or so while they roll out, and a trial may take longer than that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::clock::{self, Instant};
use crate::cluster::vital::Mutex;
use crate::decide::admission::Verdict;
use crate::decide::admission::review::{ObjectValue, Request};
use crate::decide::shared::content;

/// All tries of the API server are over by then.
const KEPT: Duration = Duration::from_secs(10);
const KEPT_MAX: usize = 64;

struct Answered {
    at: Instant,
    question: String,
    verdict: Verdict,
}

/// Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Allowed(Arc<Mutex<VecDeque<Answered>>>);

impl Allowed {
    pub fn get(&self, question: &str) -> Option<Verdict> {
        let now = clock::instant();
        let mut all = self.0.lock();
        while all.pop_front_if(|old| now - old.at > KEPT).is_some() {}
        let known = all.iter().find(|known| known.question == question);
        known.map(|known| known.verdict.clone())
    }

    /// What is denied is asked anew: its cause may be mended.
    pub fn note(&self, question: String, verdict: &Verdict) {
        if verdict.denied.is_none() {
            let mut all = self.0.lock();
            if all.len() == KEPT_MAX {
                all.pop_front();
            }
            all.push_back(Answered {
                at: clock::instant(),
                question,
                verdict: verdict.clone(),
            });
        }
    }
}

/// Who asks for what; None where nothing is stored, and each is to have an answer of its own. What the loops write is not in it.
pub fn question(request: &Request) -> Option<String> {
    let is_write = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    if !is_write || !request.options["dryRun"].is_null() {
        return None;
    }
    let object = |object: &Option<ObjectValue>| {
        let object = object.as_deref()?;
        let fields = [
            "namespace",
            "name",
            "uid",
            "generation",
            "labels",
            "annotations",
        ];
        let metadata = fields.map(|field| object["metadata"][field].clone());
        Some(json!([object["kind"], metadata, object["spec"]]))
    };
    let user = request.user_info.review(Value::Null);
    Some(content::hash_value(&json!([
        user,
        object(&request.object),
        object(&request.old_object)
    ])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(change: impl FnOnce(&mut Value)) -> Request {
        let form = |spec: &str| json!({"kind": "LynqForm", "metadata": {"name": "web", "resourceVersion": "1"}, "spec": spec});
        let mut request = json!({
            "uid": "u1", "operation": "UPDATE", "userInfo": {"username": "alice"},
            "options": {}, "object": form("new"), "oldObject": form("old"),
        });
        change(&mut request);
        serde_json::from_value(request).expect("a request")
    }

    #[test]
    fn the_same_question_is_known_by_what_people_write() {
        let asked = question(&request(|_| {}));
        let again = request(|again| {
            again["uid"] = json!("u2");
            again["oldObject"]["status"] = json!({"observedGeneration": 3});
            again["oldObject"]["metadata"]["resourceVersion"] = json!("2");
        });
        assert_eq!(question(&again), asked);
        let others = [
            request(|other| other["userInfo"]["username"] = json!("mallory")),
            request(|other| other["userInfo"]["groups"] = json!(["admins"])),
            request(|other| other["object"]["spec"] = json!("newer")),
            request(|other| other["oldObject"]["spec"] = json!("older")),
            request(|other| other["object"]["metadata"]["annotations"] = json!({"a": "b"})),
            request(|other| other["object"]["metadata"]["name"] = json!("api")),
            request(|other| other["object"]["kind"] = json!("LynqHub")),
        ];
        for other in others {
            assert_ne!(question(&other), asked, "{other:?}");
        }
        let dry_run = request(|other| other["options"]["dryRun"] = json!(["All"]));
        assert_eq!(question(&dry_run), None);
        let deletion = request(|other| other["operation"] = json!("DELETE"));
        assert_eq!(question(&deletion), None);
    }

    #[test]
    fn what_is_denied_is_asked_again() {
        let allowed = Allowed::default();
        let denied = Verdict {
            denied: Some("no".to_owned()),
            ..Verdict::default()
        };
        allowed.note("q".to_owned(), &denied);
        assert_eq!(allowed.get("q"), None);
        let verdict = Verdict {
            warnings: vec!["slow".to_owned()],
            ..Verdict::default()
        };
        allowed.note("q".to_owned(), &verdict);
        assert_eq!(allowed.get("q"), Some(verdict));
        for other in 0..KEPT_MAX {
            allowed.note(other.to_string(), &Verdict::default());
        }
        assert_eq!(allowed.get("q"), None);
    }
}
