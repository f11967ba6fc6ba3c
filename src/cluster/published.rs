//! The schemas that the API server publishes, as far as they say which fields hold texts: read once for a kind, and again after a
//! while, for a definition may change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::cluster::client::REQUEST_TIMEOUT;
use crate::cluster::clock::{self, Instant};
use crate::cluster::objects::{ApiError, timed};
use crate::decide::child::Kind;
use crate::decide::child::texts::Texts;

const KEPT: Duration = Duration::from_secs(600);
/// When to retry a schema that could not be read.
const RETRY: Duration = Duration::from_secs(60);

/// Clones are cheap and share one store.
#[derive(Clone, Default)]
pub struct Published {
    /// Locked during a request, so that each large document is requested only once.
    texts: Arc<Mutex<BTreeMap<Kind, CachedTexts>>>,
}

/// When the entry expires, and the fields that are strings.
type CachedTexts = (Instant, Option<Arc<Texts>>);

impl Published {
    /// None where the kind has no schema, or none can be read: then the API server judges the object as it is.
    pub async fn texts(&self, client: &Client, kind: &Kind) -> Option<Arc<Texts>> {
        let mut all = self.texts.lock().await;
        let known = all.get(kind).filter(|(until, _)| *until > clock::instant());
        if let Some((_, texts)) = known {
            return texts.clone();
        }
        let document = document(client, kind).await;
        let (kept, texts) = match &document {
            Ok(document) => (KEPT, Texts::of(document, kind).map(Arc::new)),
            Err(error) => {
                tracing::debug!(%kind, %error, "its schema cannot be read");
                (RETRY, None)
            }
        };
        all.insert(kind.clone(), (clock::instant() + kept, texts.clone()));
        texts
    }
}

/// The OpenAPI v3 document of the kind's group and version.
pub async fn document(client: &Client, kind: &Kind) -> Result<Value, ApiError> {
    let path = match kind.group() {
        "" => format!("/openapi/v3/api/{}", kind.api_version),
        _ => format!("/openapi/v3/apis/{}", kind.api_version),
    };
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| ApiError::Refused(error.to_string()))?;
    timed(REQUEST_TIMEOUT, client.request(request)).await
}
