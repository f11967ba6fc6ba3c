//! The CustomResourceDefinitions, made from the types, with the few things that the derive cannot say.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::api::form::LynqForm;
use crate::api::hub::LynqHub;
use crate::api::node::LynqNode;
use crate::api::resource::ARRAYS;

/// What `kubectl explain` says of each list of resources.
const LIST: &str = "Resources: each has an id, and in spec a manifest. The name of the list does not bind their kinds.";

/// The three CRDs as they are installed.
pub fn definitions() -> [Value; 3] {
    let mut hub = schema_of(LynqHub::crd());
    let mut form = schema_of(LynqForm::crd());
    let mut node = schema_of(LynqNode::crd());
    for array in ARRAYS {
        // Keyed by id in a form, so that two managers can each own resources of it; atomic in a node,
        // where one writer owns all and a field set of every leaf would double the object.
        let list = spec_of(&mut form)
            .pointer_mut(&format!("/properties/{array}"))
            .expect("every array is a field");
        list["description"] = json!(LIST);
        list["x-kubernetes-list-type"] = json!("map");
        list["x-kubernetes-list-map-keys"] = json!(["id"]);
        let properties = list
            .pointer_mut("/items/properties")
            .and_then(Value::as_object_mut)
            .expect("items are objects");
        properties.remove("renderError");
        properties.remove("namespaceFrom");
        let list = spec_of(&mut node)
            .pointer_mut(&format!("/properties/{array}"))
            .expect("every array is a field");
        list["description"] = json!(LIST);
        list["x-kubernetes-list-type"] = json!("atomic");
    }
    for crd in [&mut hub, &mut form, &mut node] {
        // Lynq's CRDs do not require spec; objects that it stored must stay readable.
        if let Some(root) = crd
            .pointer_mut("/spec/versions/0/schema/openAPIV3Schema")
            .and_then(Value::as_object_mut)
        {
            root.remove("required");
            // kstatus calls an object without observedGeneration current. This one no operator has seen yet.
            root["properties"]["status"]["default"] = json!({"observedGeneration": -1});
        }
    }
    [hub, form, node]
}

fn schema_of(crd: CustomResourceDefinition) -> Value {
    serde_json::to_value(crd).expect("a CRD is JSON")
}

fn spec_of(crd: &mut Value) -> &mut Value {
    crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
        .expect("every kind has a spec")
}
