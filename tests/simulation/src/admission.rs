//! The API server's way through the webhooks of a LynqNode: mutating, again if another webhook changed the object, then
//! validating. The decisions are the library's own.

use jiff::Timestamp;
use lynqgate::api::names;
use lynqgate::decide::gate::node::Node;
use lynqgate::decide::gate::{self, Denial, Write};
use lynqgate::decide::partition::gate as partition;
use lynqgate_plants::Plant;
use serde_json::Value;

use crate::api::requests::{Admission, Call, Refused};
use crate::api::store::{NODE, STATEFUL_SET};
use crate::world::OPERATOR;

pub struct Gate<'a> {
    pub user: &'a str,
    pub now: Timestamp,
    /// A later webhook touches the object, so that the gate is asked again.
    pub reinvoked: bool,
    pub mutant: Option<Plant>,
}

fn refused(denial: &Denial) -> Refused {
    let message = format!("admission webhook \"gate.lynq.sh\" denied the request: {denial}");
    match denial {
        Denial::StaleRelease { .. } => Refused::conflict(message),
        _ => Refused::new(403, "Forbidden", message),
    }
}

impl Admission for Gate<'_> {
    fn admit(
        &mut self,
        call: &Call,
        old: Option<&Value>,
        mut new: Value,
    ) -> Result<Value, Refused> {
        if call.kind == STATEFUL_SET {
            return self.partition(call, old, &new);
        }
        // Both webhooks leave a node alone that is on its way out.
        if call.kind != NODE || new["metadata"]["deletionTimestamp"].is_string() {
            return Ok(new);
        }
        if self.is_trusted(old, &new) {
            if let Some(spec) = new["spec"].as_object_mut() {
                spec.remove("released");
            }
            return Ok(new);
        }
        if self.mutant == Some(Plant::UngatedAnyway) {
            name_anew(old, &mut new);
        }
        let stored = old.map(Node::of);
        let stored = stored.as_ref();
        for again in 0..=usize::from(self.reinvoked) {
            let decision = gate::decide(&self.write(stored, &Node::of(&new)), self.now);
            let decision = decision.map_err(|denial| refused(&denial))?;
            if !decision.patch.is_empty() {
                let patch: json_patch::Patch =
                    serde_json::from_str(&decision.patch).expect("a JSON patch");
                json_patch::patch(&mut new, &patch).expect("the gate's patch applies");
            }
            if self.mutant == Some(Plant::StripMarker)
                && let Some(all) = new["metadata"]["annotations"].as_object_mut()
            {
                all.remove(names::RELEASE);
            }
            if self.reinvoked && again == 0 {
                new["metadata"]["labels"]["mesh"] = "seen".into();
            }
        }
        // The fence checks releases by a slot, in case another webhook changes the content. Here none does.
        let marker = |object: &Value| gate::annotation(object, names::RELEASE).map(str::to_owned);
        let is_release = marker(&new).is_some_and(|new| old.and_then(marker) != Some(new));
        if !is_release && self.mutant != Some(Plant::StripMarker) {
            let checked = gate::check(&self.write(stored, &Node::of(&new)), self.now);
            checked.map_err(|denial| refused(&denial))?;
        }
        Ok(new)
    }
}

impl Gate<'_> {
    fn write<'a>(&'a self, old: Option<&'a Node<'a>>, new: &'a Node<'a>) -> Write<'a> {
        Write {
            old,
            new,
            user: self.user,
            operator: OPERATOR,
        }
    }

    fn partition(&self, call: &Call, old: Option<&Value>, new: &Value) -> Result<Value, Refused> {
        let write = |new| partition::Write {
            old,
            new,
            user: self.user,
            manager: call.manager(),
            operator: OPERATOR,
        };
        let decision = partition::decide(&write(new));
        let mut admitted = new.clone();
        json_patch::patch(&mut admitted, &decision.patch).expect("the gate's patch applies");
        partition::check(&write(&admitted))
            .map_err(|tampered| Refused::new(403, "Forbidden", tampered.to_string()))?;
        Ok(admitted)
    }

    fn is_trusted(&self, old: Option<&Value>, new: &Value) -> bool {
        let live = |object: &Value| gate::annotation(object, names::LIVE_HASH).map(str::to_owned);
        self.mutant == Some(Plant::GateTrustsClient)
            && live(new).is_some()
            && live(new) != old.and_then(live)
    }
}

/// The marker names the version that is there.
fn name_anew(old: Option<&Value>, new: &mut Value) {
    let pointer = format!(
        "/metadata/annotations/{}",
        names::UNGATED.replace('/', "~1")
    );
    let ungated = |object: &Value| object.pointer(&pointer).cloned();
    if old.and_then(ungated) != ungated(new)
        && let Some(Value::String(marker)) = new.pointer_mut(&pointer)
    {
        let hash = marker.split('/').next().unwrap_or_default();
        let version = old.and_then(|old| old["metadata"]["resourceVersion"].as_str());
        let version = version.map(|version| format!("/{version}"));
        *marker = format!("{hash}{}", version.unwrap_or_default());
    }
}
