//! The API server's way through the webhooks of a LynqNode: mutating, again if another webhook changed the object, then
//! validating. The decisions are the library's own.

use lynqgate::api::names;
use lynqgate::decide::gate::{self, Write};
use lynqgate_plants::Plant;
use serde_json::Value;

use crate::cluster::{Admission, OPERATOR, Refused};

pub fn admit(old: Option<&Value>, mut new: Value, admission: &Admission) -> Result<Value, Refused> {
    // Both webhooks leave a node alone that is on its way out.
    if !new["metadata"]["deletionTimestamp"].is_null() {
        return Ok(new);
    }
    let mutant = admission.mutant;
    let denied = |denial: gate::Denial| match denial {
        gate::Denial::StaleRelease { .. } => Refused::Conflict,
        other => Refused::Denied(other.to_string()),
    };
    let trusts_client = mutant == Some(Plant::GateTrustsClient)
        && gate::annotation(&new, names::LIVE_HASH).is_some()
        && gate::annotation(&new, names::LIVE_HASH)
            != old.and_then(|old| gate::annotation(old, names::LIVE_HASH));
    if trusts_client {
        if let Some(spec) = new["spec"].as_object_mut() {
            spec.remove("released");
        }
        return Ok(new);
    }
    let ungated = |object: &Value| object.pointer(&annotation(names::UNGATED)).cloned();
    if mutant == Some(Plant::UngatedAnyway)
        && old.and_then(ungated) != ungated(&new)
        && let Some(Value::String(marker)) = new.pointer_mut(&annotation(names::UNGATED))
    {
        let hash = marker.split('/').next().unwrap_or_default();
        let version = old.and_then(|old| old["metadata"]["resourceVersion"].as_str());
        let version = version.map(|version| format!("/{version}"));
        *marker = format!("{hash}{}", version.unwrap_or_default());
    }
    for again in 0..=usize::from(admission.reinvoked) {
        let write = Write {
            old,
            new: &new,
            user: admission.user,
            operator: OPERATOR,
        };
        let decision = gate::decide(&write, admission.now).map_err(denied)?;
        json_patch::patch(&mut new, &decision.patch).expect("the gate's patch applies");
        if mutant == Some(Plant::StripMarker)
            && let Some(all) = new["metadata"]["annotations"].as_object_mut()
        {
            all.remove(names::RELEASE);
        }
        if admission.reinvoked && again == 0 {
            new["metadata"]["labels"]["mesh"] = "seen".into();
        }
    }
    if mutant == Some(Plant::StripMarker) {
        return Ok(new);
    }
    let write = Write {
        old,
        new: &new,
        user: admission.user,
        operator: OPERATOR,
    };
    gate::check(&write, admission.now).map_err(denied)?;
    Ok(new)
}

/// The JSON pointer to an annotation.
fn annotation(name: &str) -> String {
    format!("/metadata/annotations/{}", name.replace('/', "~1"))
}
