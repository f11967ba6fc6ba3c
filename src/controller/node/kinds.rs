//! The kinds of a node's objects: where they live, and whether all that there is of them is known. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::children::Listing;
use crate::cluster::objects::ApiError;
use crate::cluster::watch::NoList;
use crate::controller::World;
use crate::controller::node::{Key, key_in};
use crate::decide::child::{Kind, Scope};
use crate::decide::node::digest::{Facts, NodeDigest};
use crate::decide::node::plan;
use crate::decide::node::plan::record::Record;
use crate::decide::operator::watched::WatchedNamespaces;

pub struct Kinds {
    scopes: BTreeMap<Kind, Result<Scope, String>>,
    /// Those whose objects have a status.
    with_status: BTreeSet<Kind>,
    /// Kinds that the cluster has, and of which the operator cannot list all objects of the node.
    pub unlisted: BTreeSet<Kind>,
    /// A recorded object in a namespace that is not watched.
    pub outside: Option<String>,
    /// The API server did not answer for one of them.
    pub unknown: bool,
    watched: WatchedNamespaces,
}

impl Kinds {
    /// Those of the content and those of the record: what no content names any more is watched as well. None while some
    /// kind's objects are not all known: then nothing may be concluded from an object's absence. `lasting`: that the API
    /// server cannot answer for a kind is no accident any more, and the others go on without it.
    pub async fn of(
        world: &World,
        node: &NodeDigest,
        record: &Record,
        lasting: bool,
    ) -> Result<Option<Kinds>, ApiError> {
        let rendered = node.facts.iter().filter(|f| f.render_error.is_none());
        let wanted: BTreeSet<&Kind> = rendered.map(|f| &*f.kind).chain(record.kinds()).collect();
        let mut kinds = Kinds {
            scopes: BTreeMap::new(),
            with_status: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            outside: None,
            unknown: false,
            watched: world.objects.watched().clone(),
        };
        let mut pending = false;
        for kind in wanted {
            if let Some(why) = kind.impossible() {
                kinds.scopes.insert(kind.clone(), Err(why));
                continue;
            }
            let served = match world.objects.served(kind).await {
                Err(error) if lasting => {
                    kinds.unknown = true;
                    kinds.unlisted.insert(kind.clone());
                    let why = plan::unknown_kind(kind, &error.to_string());
                    kinds.scopes.insert(kind.clone(), Err(why));
                    continue;
                }
                served => served?,
            };
            let scope = match served {
                None => Err(plan::missing_kind(kind)),
                Some(served) => {
                    if served.has_status {
                        kinds.with_status.insert(kind.clone());
                    }
                    let objects = &world.objects;
                    match (world.children).listing(kind, &served, objects, &node.key) {
                        Listing::Complete => Ok(served.scope),
                        Listing::Pending => {
                            pending = true;
                            continue;
                        }
                        Listing::Refused(NoList { why, forbidden }) => {
                            kinds.unlisted.insert(kind.clone());
                            Err(plan::unlistable_kind(kind, &why, forbidden))
                        }
                    }
                }
            };
            kinds.scopes.insert(kind.clone(), scope);
        }
        for kind in record.kinds() {
            let is_namespaced = kinds.scopes.get(kind) == Some(&Ok(Scope::Namespaced));
            let outside = record.outside(kind, &kinds.watched);
            if let Some(object) = outside.filter(|_| is_namespaced) {
                kinds.unlisted.insert(kind.clone());
                kinds.outside = Some(object.to_owned());
            }
        }
        Ok((!pending).then_some(kinds))
    }

    pub fn has_status(&self, kind: &Kind) -> bool {
        self.with_status.contains(kind)
    }

    pub fn key(&self, facts: &Facts) -> Key {
        if let Some(error) = &facts.render_error {
            return Err(error.clone());
        }
        match &self.scopes[&facts.kind] {
            Ok(scope) => {
                let key = key_in(facts, *scope);
                let refusal = || self.watched.refusal(&key, str::to_owned);
                match key.impossible().or_else(refusal) {
                    Some(why) => Err(why),
                    None => Ok(key),
                }
            }
            Err(why) => Err(why.clone()),
        }
    }
}
