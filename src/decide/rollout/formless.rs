//! What became of a form that nodes name, and that their hub does not have or lynqgate cannot use. Nobody releases such nodes; the
//! operator and `explain` judge here, so that both name the same cause.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Formless {
    /// It does not exist, and nodes were written from it.
    Deleted,
    /// It does not exist, and no node was written from it.
    NeverApplied,
    /// It is being deleted, and a finalizer keeps it.
    Deleting,
    OfAnotherHub {
        hub: String,
    },
    Unreadable {
        why: String,
    },
}

/// A form of the name that nodes give.
#[derive(Clone, Copy, Debug)]
pub struct FoundForm<'a> {
    /// Its hub; empty if its spec does not say.
    pub hub: &'a str,
    pub deleting: bool,
    /// Why its spec cannot be read, if it cannot.
    pub unreadable: Option<&'a str>,
}

impl Formless {
    /// None if the hub has the form. `was_written`: a node that names it was written from a form.
    pub fn of(found: Option<FoundForm>, hub: &str, was_written: bool) -> Option<Self> {
        let Some(found) = found else {
            return Some(match was_written {
                true => Formless::Deleted,
                false => Formless::NeverApplied,
            });
        };
        if !found.hub.is_empty() && found.hub != hub {
            let hub = found.hub.to_owned();
            return Some(Formless::OfAnotherHub { hub });
        }
        if found.deleting {
            return Some(Formless::Deleting);
        }
        let why = found.unreadable?.to_owned();
        Some(Formless::Unreadable { why })
    }

    /// What somebody can do, so that the nodes go on.
    pub fn next(&self, form: &str) -> String {
        const OR_DELETE: &str = "To delete the nodes and their objects instead, see the hub's condition DeletionsHeld (kubectl describe lynqhub), and \
                                 confirm the deletions (lynqgate confirm HUB)";
        match self {
            Formless::Deleted => {
                format!("apply form {form} again: it adopts its nodes. {OR_DELETE}")
            }
            Formless::NeverApplied => format!(
                "apply form {form}; or, if the nodes name it by mistake, delete them (kubectl delete lynqnode). {OR_DELETE}"
            ),
            Formless::Deleting => format!(
                "see its finalizers (kubectl get lynqform {form} -o yaml). Once it is gone, apply it again. {OR_DELETE}"
            ),
            Formless::OfAnotherHub { .. } => format!(
                "delete form {form} and apply it again with the hubId of this hub: a form's hubId cannot be changed. {OR_DELETE}"
            ),
            Formless::Unreadable { .. } => format!(
                "correct form {form} and apply it, or install lynqgate's CustomResourceDefinitions (lynqgate check). Until then its nodes \
                 stay as they are"
            ),
        }
    }

    /// For the node's own condition.
    pub fn summary(&self) -> &'static str {
        match self {
            Formless::Deleted => {
                "its form was deleted, so lynqgate does not release it; apply the form again. To delete the node instead, see the hub's condition DeletionsHeld"
            }
            Formless::NeverApplied => {
                "its form does not exist, and has rendered none of its nodes, so lynqgate does not release it; apply the form. To delete the node instead, see the hub's condition DeletionsHeld"
            }
            Formless::Deleting => {
                "its form is being deleted, so lynqgate does not release it; see the form's finalizers. To delete the node, see the hub's condition DeletionsHeld"
            }
            Formless::OfAnotherHub { .. } => {
                "its form belongs to another hub, so lynqgate does not release it; see the form's hubId. To delete the node, see the hub's condition DeletionsHeld"
            }
            Formless::Unreadable { .. } => {
                "lynqgate cannot read its form, so it does not release the node; correct the form: its condition Valid says what is wrong"
            }
        }
    }
}

/// After "which", or after the name of the form.
impl fmt::Display for Formless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Formless::Deleted => f.write_str("was deleted"),
            Formless::NeverApplied => {
                f.write_str("does not exist, and has rendered none of its nodes")
            }
            Formless::Deleting => f.write_str("is being deleted"),
            Formless::OfAnotherHub { hub } => write!(f, "belongs to hub {hub:?}"),
            Formless::Unreadable { why } => write!(f, "cannot be read: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_told_from_the_others() {
        let form = FoundForm {
            hub: "tenants",
            deleting: false,
            unreadable: None,
        };
        for (found, was_written, told) in [
            (Some(form), true, None),
            (None, true, Some("was deleted")),
            (
                None,
                false,
                Some("does not exist, and has rendered none of its nodes"),
            ),
            (
                Some(FoundForm {
                    deleting: true,
                    ..form
                }),
                true,
                Some("is being deleted"),
            ),
            (
                Some(FoundForm {
                    hub: "others",
                    ..form
                }),
                true,
                Some("belongs to hub \"others\""),
            ),
            (
                Some(FoundForm {
                    unreadable: Some("no hubId"),
                    hub: "",
                    ..form
                }),
                true,
                Some("cannot be read: no hubId"),
            ),
        ] {
            let why = Formless::of(found, "tenants", was_written);
            assert_eq!(why.map(|why| why.to_string()).as_deref(), told, "{found:?}");
        }
    }

    #[test]
    fn a_next_step_names_the_form() {
        for why in [
            Formless::Deleted,
            Formless::NeverApplied,
            Formless::Deleting,
            Formless::OfAnotherHub {
                hub: "others".into(),
            },
            Formless::Unreadable {
                why: "no spec".into(),
            },
        ] {
            let next = why.next("web");
            assert!(next.contains("web"), "{why}: {next}");
            assert!(next.chars().count() <= 300, "{why}: {next}");
        }
    }
}
