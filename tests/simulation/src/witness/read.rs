//! How the witness reads objects: their annotations and contents, without the library.

use lynqgate::api::policy::Rollout;
use serde_json::Value;

use crate::api::store::Object;

/// The text of an annotation `lynq.sh/<name>`; empty where there is none.
pub fn text<'a>(node: &'a Value, name: &str) -> &'a str {
    let annotations = &node["metadata"]["annotations"];
    let mut key = String::with_capacity(40);
    key.push_str("lynq.sh/");
    key.push_str(name);
    annotations[&key].as_str().unwrap_or_default()
}

pub fn held(node: &Value) -> bool {
    text(node, "live-hash") != text(node, "desired-hash")
}

/// What the witness asks again and again of a node, read once.
#[derive(Clone, Debug)]
pub struct Reading {
    pub held: bool,
    pub settled: bool,
    pub said_ready: bool,
    pub live_image: Option<String>,
    pub desired_image: Option<String>,
}

impl Reading {
    pub fn of(node: &Value) -> Self {
        Reading {
            held: held(node),
            settled: is_settled(node),
            said_ready: is_said_ready(node),
            live_image: live_image(node),
            desired_image: image(&node["spec"]),
        }
    }
}

fn image(content: &Value) -> Option<String> {
    Some(
        content["deployments"][0]["spec"]["spec"]["image"]
            .as_str()
            .unwrap_or("nothing")
            .to_owned(),
    )
}

/// The image that the node's workload should run; None while nothing is live.
pub fn live_image(node: &Value) -> Option<String> {
    match text(node, "live-hash") {
        "" | "none" | "unknown" => None,
        live if live == text(node, "desired-hash") => image(&node["spec"]),
        _ => image(&node["spec"]["released"]),
    }
}

fn says(node: &Value, condition: &str) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let mut all = conditions.into_iter().flatten();
    all.any(|c| c["type"] == condition && c["status"] == "True")
}

/// Whether the status says, of the content that is live now, that it is rolled out.
fn is_settled(node: &Value) -> bool {
    let status = &node["status"];
    says(node, "Rolled")
        && status["observedHash"] == text(node, "live-hash")
        && status["observedStartTime"] == text(node, "rollout-update-start-time")
}

/// Whether the status says, of the object as it is, that what is there is ready.
fn is_said_ready(node: &Value) -> bool {
    says(node, "Ready") && node["status"]["observedGeneration"] == node["metadata"]["generation"]
}

/// A LynqNode as the witness sees it.
#[derive(Clone, Debug)]
pub struct NodeView {
    pub name: String,
    pub uid: String,
    pub version: String,
    pub form: String,
    pub deleting: bool,
    pub reading: Reading,
}

impl NodeView {
    pub fn of(object: &Object) -> Self {
        let value = &object.value;
        let form = value["spec"]["templateRef"].as_str();
        NodeView {
            name: object.text_of("name").to_owned(),
            uid: object.uid().to_owned(),
            version: object.version().to_owned(),
            form: form.unwrap_or_default().to_owned(),
            deleting: !value["metadata"]["deletionTimestamp"].is_null(),
            reading: Reading::of(value),
        }
    }
}

/// The one workload of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub node: String,
    pub node_uid: String,
    pub uid: String,
    pub version: String,
    pub image: String,
    pub applied_hash: String,
    pub ready: bool,
}

impl Workload {
    pub fn of(object: &Object) -> Self {
        let value = &object.value;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let status = &value["status"];
        let observed = status["observedGeneration"] == value["metadata"]["generation"];
        Workload {
            node: object.text_of("name").to_owned(),
            node_uid: text(&value["metadata"]["ownerReferences"][0]["uid"]),
            uid: object.uid().to_owned(),
            version: object.version().to_owned(),
            image: text(&value["spec"]["image"]),
            applied_hash: text(&value["metadata"]["annotations"]["lynq.sh/applied-hash"]),
            ready: observed && status["availableReplicas"] == 1,
        }
    }
}

/// The image that a form has for its nodes.
pub fn image_of_form(form: &Value) -> &str {
    let image = &form["spec"]["deployments"][0]["spec"]["spec"]["image"];
    image.as_str().unwrap_or_default()
}

/// What tells images apart, whichever row they are for.
pub fn version(image: &str) -> &str {
    image.split(' ').next().unwrap_or_default()
}

/// Whether the form is to be set back when its rollout fails.
pub fn asks_for_reverts(form: &Value) -> bool {
    let policy = &form["spec"]["rollout"];
    policy["onFailure"] == "Revert" && policy["paused"] != true
}

/// Whether the status says this of the form as it is.
pub fn is_in_phase(form: &Value, phase: &str) -> bool {
    let status = &form["status"];
    status["rollout"]["phase"] == phase
        && status["observedGeneration"] == form["metadata"]["generation"]
}

#[derive(Clone, Debug)]
pub struct FormView {
    pub rollout: Rollout,
    /// Of its newest version.
    pub image: String,
}

pub fn is_forced(object: &Value) -> bool {
    text(object, "force-rollout") == "true"
}
