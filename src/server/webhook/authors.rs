//! Whether whoever writes a form, or the content of a node, may do what that makes the operator do: it may do more than most.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use crate::cluster::objects::{ApiError, Objects};
use crate::decide::admission::Verdict;
use crate::decide::admission::review::UserInfo;
use crate::decide::admission::rights::{Right, TargetNamespace, reached};
use crate::decide::child::{Kind, Scope, key_of};

/// The API server waits 5 s for the gate's answer.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub struct Authors {
    /// User name of the operator itself.
    pub operator: String,
    pub objects: Objects,
    /// Whether it is refused; else there is a warning.
    pub enforce: bool,
}

impl Authors {
    /// What the user may not do that `what`, written to the namespace `home`, makes the operator do.
    pub async fn missing(
        &self,
        user: &UserInfo,
        needed: BTreeSet<Right>,
        home: &str,
        what: &str,
    ) -> Option<String> {
        if user.username == self.operator || needed.is_empty() {
            return None;
        }
        answered(self.missing_right(user, needed, home, what), what).await
    }

    /// What the user may not read in the namespace `home` (plurals of core kinds, and names) that a hub makes the operator read.
    pub async fn missing_read(
        &self,
        user: &UserInfo,
        reads: &[(&str, &str)],
        home: &str,
    ) -> Option<String> {
        if user.username == self.operator {
            return None;
        }
        let missing = async {
            for (plural, name) in reads {
                let right = json!({
                    "group": "", "version": "v1", "resource": plural, "name": name, "verb": "get", "namespace": home,
                });
                if !self.objects.may(&user.review(right)).await? {
                    return Ok(Some(format!(
                        "user {:?} may not get {plural} {name:?} in namespace {home:?}, and this hub makes lynqgate use what is \
                         in there; ask for that right, or have somebody apply the hub who has it",
                        user.username
                    )));
                }
            }
            Ok(None)
        };
        answered(missing, "hub").await
    }

    pub fn judge(&self, missing: Option<String>, verdict: &mut Verdict) {
        match self.enforce {
            true => verdict.denied = missing,
            false => verdict.warnings.extend(missing),
        }
    }

    /// The first right that the user lacks. Who has it in all namespaces is not asked about each.
    async fn missing_right(
        &self,
        user: &UserInfo,
        needed: BTreeSet<Right>,
        home: &str,
        what: &str,
    ) -> Result<Option<String>, ApiError> {
        let mut kinds: BTreeMap<Option<Kind>, BTreeSet<TargetNamespace>> = BTreeMap::new();
        for right in needed {
            kinds.entry(right.kind).or_default().insert(right.namespace);
        }
        for (kind, targets) in kinds {
            let (group, version, plural, scope) = match &kind {
                None => (
                    "*".to_owned(),
                    "*".to_owned(),
                    "*".to_owned(),
                    Scope::Namespaced,
                ),
                Some(kind) => match self.objects.served(kind).await? {
                    // It is made once it is installed. What its plural is, and whether it has namespaces, is not known yet.
                    None => {
                        let all = "*".to_owned();
                        (kind.group().to_owned(), all.clone(), all, Scope::Cluster)
                    }
                    Some(served) => {
                        let resource = &served.resource;
                        let (group, version) = (resource.group.clone(), resource.version.clone());
                        (group, version, resource.plural.clone(), served.scope)
                    }
                },
            };
            let may = async |namespace: &str| -> Result<Option<&'static str>, ApiError> {
                for (plural, verb) in rights_for(&group, &plural) {
                    let right = json!({
                        "group": group, "version": version, "resource": plural,
                        "verb": verb, "namespace": namespace,
                    });
                    if !self.objects.may(&user.review(right)).await? {
                        return Ok(Some(verb));
                    }
                }
                Ok(None)
            };
            let Some(verb) = may("").await? else {
                continue;
            };
            let name = match (&kind, group.as_str()) {
                (None, _) => "objects of every kind (only its templates tell which)".to_owned(),
                (Some(kind), _) if plural == "*" => {
                    format!(
                        "everything of the group of {kind}, which the cluster does not have yet,"
                    )
                }
                (_, "") => plural.clone(),
                (_, group) => format!("{plural}.{group}"),
            };
            let refused = |verb: &str, place: String| {
                Some(format!(
                    "user {:?} may not {verb} {name} {place}, and this {what} makes lynqgate do that; ask for that right, or have \
                     somebody apply it who has it",
                    user.username
                ))
            };
            if scope == Scope::Cluster {
                return Ok(refused(verb, "in the cluster".to_owned()));
            }
            for target in targets {
                let in_all = |why: &str| format!("in all namespaces ({why})");
                let present: BTreeSet<String>;
                let namespaces = match &target {
                    TargetNamespace::Any => {
                        return Ok(refused(verb, in_all("only its templates tell which")));
                    }
                    TargetNamespace::Matching(patterns) => {
                        present = self.namespaces().await?;
                        match reached(patterns, &present) {
                            Ok(namespaces) => namespaces,
                            Err(why) => return Ok(refused(verb, in_all(&why))),
                        }
                    }
                    TargetNamespace::Home => vec![home],
                    TargetNamespace::Namespace(namespace) => vec![namespace.as_str()],
                };
                for namespace in namespaces {
                    if let Some(verb) = may(namespace).await? {
                        return Ok(refused(verb, format!("in namespace {namespace:?}")));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The names of all namespaces in which the operator applies objects.
    async fn namespaces(&self) -> Result<BTreeSet<String>, ApiError> {
        if let Some(watched) = self.objects.watched().names() {
            return Ok(watched.clone());
        }
        let kind = Kind {
            api_version: "v1".to_owned(),
            kind: "Namespace".to_owned(),
        };
        let mut names = BTreeSet::new();
        let each = |object| names.extend([key_of(&object).name]);
        self.objects.list(&kind, "", each).await?;
        Ok(names)
    }
}

/// What is missing, or that it could not be found out.
async fn answered(
    missing: impl Future<Output = Result<Option<String>, ApiError>>,
    what: &str,
) -> Option<String> {
    match timeout(PATIENCE, missing).await {
        Ok(Ok(missing)) => missing,
        Ok(Err(error)) => Some(format!(
            "whether you may do what this {what} makes lynqgate do is not known: {error}"
        )),
        Err(_) => Some(format!(
            "whether you may do what this {what} makes lynqgate do was not answered within {} s",
            PATIENCE.as_secs()
        )),
    }
}

/// Resource and verb. Roles and their bindings give rights away: whoever makes them through the operator must be allowed to.
fn rights_for<'a>(group: &str, plural: &'a str) -> Vec<(&'a str, &'static str)> {
    let mut rights = vec![(plural, "create"), (plural, "patch")];
    match (group, plural) {
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            rights.push((plural, "escalate"))
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            rights.push(("clusterroles", "bind"));
        }
        _ => {}
    }
    rights
}
