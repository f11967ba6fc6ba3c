//! The schemas by which `lynqgate test` validates manifests: those that a cluster publishes, or those in files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::api::resource::ResourceArrays;
use crate::cli::connection::{Access, AnyError};
use crate::cli::file;
use crate::cli::test::{Untested, rendered};
use crate::cluster::objects::{ApiError, Objects};
use crate::decide::child::{Kind, NodeKey, kind_of, schema};
use crate::decide::hub::sync::{Plan, RenderSource};
use crate::decide::hub::tested::validation::{Schema, Validation};
use crate::decide::shared::near::no_kind;

/// What the user writes in the place of a path.
const CLUSTER: &str = "cluster";
/// The endings of the files that are read in a directory.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// Validates every rendered node. `given`: the word for the cluster, or a path.
pub async fn validate(
    given: &Path,
    access: &Access,
    source: &RenderSource,
    plan: &Plan,
) -> Result<Validation, AnyError> {
    let mut schemas = Schemas::open(given, access).await?;
    let mut validation = Validation::with(&given.display().to_string());
    for (write, mut node) in rendered(source, plan) {
        let resources: ResourceArrays = serde_json::from_value(node["spec"].take())?;
        for resource in resources.iter() {
            schemas.learn(kind_of(&resource.spec)).await?;
        }
        let key = NodeKey::new(&*source.hub.namespace, &*write.name);
        validation.add(&key, &resources, &schemas.known);
    }
    Ok(validation)
}

struct Schemas {
    place: Place,
    known: BTreeMap<Kind, Schema>,
}

/// Where the schemas are.
enum Place {
    Files(Vec<Arc<Value>>),
    Cluster(Box<Published>),
}

/// The documents that the cluster publishes, by apiVersion. Each is large, and is read once.
struct Published {
    objects: Objects,
    documents: BTreeMap<String, Arc<Value>>,
}

impl Schemas {
    async fn open(given: &Path, access: &Access) -> Result<Self, Untested> {
        let place = match given.to_str() {
            Some(CLUSTER) => {
                let (client, _) = access.connect().await?;
                Place::Cluster(Box::new(Published {
                    objects: Objects::new(client),
                    documents: BTreeMap::new(),
                }))
            }
            _ => Place::Files(in_files(given)?),
        };
        Ok(Schemas {
            place,
            known: BTreeMap::new(),
        })
    }

    async fn learn(&mut self, kind: Kind) -> Result<(), Untested> {
        if self.known.contains_key(&kind) {
            return Ok(());
        }
        let schema = match (kind.impossible(), &mut self.place) {
            (Some(why), _) => Schema::Refused(why),
            (None, Place::Files(documents)) => {
                let mut schemas = documents.iter().map(|document| Schema::of(document, &kind));
                let known = schemas.find(|schema| matches!(schema, Schema::Known(..)));
                known.unwrap_or(Schema::Unknown)
            }
            (None, Place::Cluster(published)) => {
                let read = published.schema(&kind).await;
                read.map_err(|reason| Untested::Schema {
                    kind: kind.to_string(),
                    reason,
                })?
            }
        };
        self.known.insert(kind, schema);
        Ok(())
    }
}

impl Published {
    async fn schema(&mut self, kind: &Kind) -> Result<Schema, ApiError> {
        if self.objects.served(kind).await?.is_none() {
            let known = self.objects.kinds().await.unwrap_or_default();
            let named = format!("{} in {}", kind.kind, kind.api_version);
            return Ok(Schema::Refused(no_kind(&named, kind, &known)));
        }
        let document = match self.documents.get(&kind.api_version) {
            Some(known) => known.clone(),
            None => {
                let document = match self.objects.schema(kind).await {
                    // The API server of an aggregated API may publish none.
                    Err(ApiError::NotFound(_)) => Value::Null,
                    read => read?,
                };
                let document = Arc::new(document);
                let version = kind.api_version.clone();
                self.documents.insert(version, document.clone());
                document
            }
        };
        Ok(Schema::of(&document, kind))
    }
}

/// The documents of a file, or of the files in a directory, one at least.
fn in_files(given: &Path) -> Result<Vec<Arc<Value>>, Untested> {
    let mut documents = vec![];
    for file in files(given)? {
        for object in file::all(&file)? {
            documents.extend(schema::documents(&object).into_iter().map(Arc::new));
        }
    }
    match documents.is_empty() {
        false => Ok(documents),
        true => Err(Untested::NoSchema {
            path: given.display().to_string(),
        }),
    }
}

/// By name, so that each run reads the same schema of a kind that is in two of them.
fn files(given: &Path) -> Result<Vec<PathBuf>, Untested> {
    if !given.is_dir() {
        return Ok(vec![given.to_owned()]);
    }
    let failed = |reason: io::Error| file::Error::Unreadable {
        path: given.display().to_string(),
        reason,
    };
    let mut files = vec![];
    for entry in fs::read_dir(given).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let ending = file.extension().unwrap_or_default();
        if ENDINGS.iter().any(|known| ending == *known) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}
