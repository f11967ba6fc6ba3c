//! What the witness says of the ledger: who may lose a slot, and how many there may be.

use std::collections::BTreeSet;

use lynqgate::api::hub::Slot;
use serde_json::Value;

use crate::witness::{Author, Cause, LifeId, Witness};

impl Witness {
    /// The ledger was written.
    pub(super) fn ledger_written(&mut self, old: &[Slot], Author { life, view, .. }: Author) {
        let new = &self.slots.clone();
        let uids: BTreeSet<&str> = new.iter().map(|slot| slot.uid.as_str()).collect();
        self.expect(uids.len() == new.len(), "ledger", || {
            format!("a node has two slots: {new:?}")
        });
        self.taken
            .retain(|uid, _| new.iter().any(|slot| slot.uid == *uid));
        for slot in new {
            let widths = || self.history.widths(&slot.form, view.since);
            self.taken.entry(slot.uid.clone()).or_insert_with(widths);
        }
        for slot in old {
            let (uid, name) = (&slot.uid, &slot.node);
            if let Some(kept) = new.iter().find(|kept| kept.uid == *uid) {
                // Freed and taken anew in one write: then it must be one that may be freed.
                if kept.repair == slot.repair && kept.form == slot.form {
                    continue;
                }
            }
            let node = self.nodes.get(name).filter(|node| node.uid == *uid);
            let Some(version) = node.map(|node| node.version.clone()) else {
                continue;
            };
            self.expect(version != slot.resource_version, "ledger", || {
                format!(
                    "the slot of {name} was freed while its release at {} can still succeed",
                    slot.resource_version
                )
            });
            let in_flight = self
                .flights
                .get(uid)
                .is_some_and(|flight| flight.cause == Cause::Gated);
            self.expect(!in_flight, "ledger", || {
                format!("the slot of {name} was freed, and it has not settled since it went live")
            });
            let unread =
                self.released.remove(uid) && !self.read_ready.contains(&(life, uid.clone()));
            self.expect(!unread, "ledger", || {
                format!("the slot of {name} was freed, and whoever did it has not read that its workload is ready")
            });
        }
        // Who had a slot in a ledger that was lost has it again; and so has who is only said to have one, also by a user's hand.
        let lost = self.lost.take();
        let is_back = |slot: &Slot| {
            let lost = lost.as_ref();
            lost.is_some_and(|lost| lost.contains(&slot.uid) || slot.presumed)
        };
        for form in &self.forms.keys().cloned().collect::<Vec<_>>() {
            let of_form = |slots: &[Slot]| slots.iter().filter(|slot| slot.form == *form).count();
            let back = new
                .iter()
                .filter(|slot| slot.form == *form && is_back(slot));
            let (now, before) = (of_form(new), of_form(old) + back.count());
            if let (Some(width), _) = self.history.widths(form, view.since)
                && self.history.counts_all(form, view.since)
            {
                self.expect(now <= width.max(before), "window", || {
                    format!("the ledger has {now} slots of form {form}, and the window is {width}")
                });
            }
        }
    }

    /// The ledger is lost, with these slots.
    pub fn ledger_lost(&mut self, slots: &[Slot]) {
        let lost = self.lost.get_or_insert_default();
        lost.extend(slots.iter().map(|slot| slot.uid.clone()));
    }

    /// The writer has the reply to its ledger write.
    pub fn ledger_acknowledged(&mut self, life: LifeId, hub: &Value) {
        let slots = hub["status"]["rollout"]["slots"].clone();
        let slots: Vec<Slot> = serde_json::from_value(slots).unwrap_or_default();
        for slot in slots {
            let (uid, hash, version) = (slot.uid, slot.hash, slot.resource_version);
            self.acknowledged.insert((life, uid, hash, version));
        }
    }
}
