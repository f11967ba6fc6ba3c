//! How the witness reads a LynqNode: its annotations and contents, without the library.

use serde_json::Value;

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
