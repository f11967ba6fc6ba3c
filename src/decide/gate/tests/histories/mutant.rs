//! The gate as the histories ask it: as it is, or with a planted bug wrapped round it.

use lynqgate_plants::Plant;

use super::steps;
use crate::api::stamp;
use crate::decide::gate::tests::*;

#[derive(Clone, Copy)]
pub struct Gate(pub Option<Plant>);

impl Gate {
    pub fn decide(self, write: &Write, now: Timestamp) -> Result<Decision, Denial> {
        let Some(plant) = self.0 else {
            return decide(write, now);
        };
        let seen = match plant {
            Plant::ReleaseUnversioned => of_the_stored_version(write),
            _ => None,
        };
        let mut stored = seen.clone().unwrap_or_else(|| write.new.clone());
        let asked = Write {
            new: &stored.clone(),
            ..*write
        };
        let decision = decide(&asked, now)?;
        patch(&mut stored, &decision.patch).expect("the patch applies");
        let old = |name| write.old.and_then(|old| annotation(old, name));
        match plant {
            Plant::ReleaseUnversioned if seen.is_some() => {
                stored = with(
                    &stored,
                    names::RELEASE,
                    annotation(write.new, names::RELEASE),
                );
            }
            Plant::ReleaseUnversioned => {}
            Plant::StripMarker => stored = with(&stored, names::RELEASE, None),
            Plant::StartTimeAtEveryWrite => {
                stored = with(&stored, names::START_TIME, Some(&stamp::format(now)));
            }
            Plant::StampsOutliveHold => {
                for name in [names::HELD_SINCE, names::HELD_BY] {
                    let stamp = annotation(&stored, name).or(old(name)).map(str::to_owned);
                    stored = with(&stored, name, stamp.as_deref());
                }
            }
            other => panic!("the histories do not have {other}"),
        }
        Ok(Decision {
            patch: json_patch::diff(write.new, &stored).0,
            ..decision
        })
    }

    /// Both halves have the bug: whatever one decides, the other takes.
    pub fn check(self, write: &Write, now: Timestamp) -> Result<(), Denial> {
        match self.0 {
            None => check(write, now).map(|_| ()),
            Some(_) => self.decide(write, now).map(|_| ()),
        }
    }
}

/// A new release marker as if it had been decided on the object that is stored.
fn of_the_stored_version(write: &Write) -> Option<Value> {
    let old = write.old?;
    let new = annotation(write.new, names::RELEASE);
    let marker = ReleaseMarker {
        resource_version: steps::version_of(old).to_string(),
        ..ReleaseMarker::parse(new.filter(|_| new != annotation(old, names::RELEASE))?)?
    };
    Some(with(write.new, names::RELEASE, Some(&marker.to_string())))
}
