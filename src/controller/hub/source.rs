//! Reads the rows of a hub: finds its password, keeps its connection, and says what is wrong in words for whoever is on
//! call. Decides nothing about the rows, and never shows a password.

use serde_json::Value;

use crate::api::hub::{HubSpec, Mysql as MysqlSpec, SecretKey, SourceTls, TlsMode};
use crate::cluster::catalog::Hub;
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::datasource::mysql::{Limits, Mysql, Password, Settings, Tls};
use crate::datasource::{DataSource, SourceError};
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::rows::{Collector, Columns, Rows};

/// Why there are no rows.
pub struct Problem {
    /// For metric labels.
    pub code: &'static str,
    /// Of the condition Ready.
    pub reason: &'static str,
    pub message: String,
}

impl Problem {
    pub fn invalid(message: impl Into<String>) -> Self {
        Problem {
            code: "InvalidSpec",
            reason: "InvalidSpec",
            message: message.into(),
        }
    }

    fn source(code: &'static str, message: String) -> Self {
        Problem {
            code,
            reason: "DatabaseConnectionFailed",
            message,
        }
    }
}

/// A row source that is kept while its settings are the same.
pub struct Known {
    /// Generation of the hub that the settings are of.
    generation: i64,
    settings: Settings,
    source: DataSource,
}

/// A password that the database refuses is fetched anew once: it may have been changed in both places since.
pub async fn read_rows(
    world: &World,
    hub: &Hub,
    spec: &HubSpec,
    known: &mut Option<Known>,
) -> Result<Rows, Problem> {
    let Some(mysql) = &spec.source.mysql else {
        return Err(Problem::invalid(
            "spec.source.type is mysql, so spec.source.mysql must say where the database is; add it",
        ));
    };
    let columns = Columns::of(spec);
    let was_known = known
        .as_ref()
        .is_some_and(|known| known.generation == hub.generation);
    if !was_known {
        open(world, hub, mysql, known).await?;
    }
    match collect(known, &columns).await {
        Err(denied @ SourceError::AccessDenied { .. }) if was_known => {
            // The same password once more could lock the user out.
            match open(world, hub, mysql, known).await? {
                true => collect(known, &columns).await,
                false => Err(denied),
            }
        }
        other => other,
    }
    .map_err(|error| Problem::source(error.code(), error.to_string()))
}

async fn collect(known: &Option<Known>, columns: &Columns) -> Result<Rows, SourceError> {
    let known = known.as_ref().expect("it was opened");
    let mut collector = Collector::new(columns);
    let count = known
        .source
        .rows(columns, |row| collector.push(row))
        .await?;
    Ok(collector.finish(count))
}

/// Brings the source to what the hub and its Secret say now; returns whether that is something new. Does not connect yet.
async fn open(
    world: &World,
    hub: &Hub,
    mysql: &MysqlSpec,
    known: &mut Option<Known>,
) -> Result<bool, Problem> {
    let password = match &mysql.password_ref {
        Some(reference) => text_of(world, hub, reference, "passwordRef", "password")
            .await?
            .into(),
        None => Password::default(),
    };
    let tls = match &mysql.tls {
        Some(SourceTls {
            mode: TlsMode::Required,
            ca_ref,
        }) => Tls::Required {
            ca_pem: match ca_ref {
                Some(reference) => {
                    let text = text_of(world, hub, reference, "tls.caRef", "certificates");
                    Some(text.await?.into_bytes())
                }
                None => None,
            },
        },
        _ => Tls::Disabled,
    };
    let settings = Settings {
        host: mysql.host.clone(),
        port: mysql.port as u16,
        user: mysql.username.clone(),
        password,
        database: mysql.database.clone(),
        table: mysql.table.clone(),
        tls,
        limits: Limits::default(),
    };
    if let Some(known) = known.as_mut().filter(|known| known.settings == settings) {
        known.generation = hub.generation;
        return Ok(false);
    }
    *known = Some(Known {
        generation: hub.generation,
        settings: settings.clone(),
        source: DataSource::Mysql(Mysql::new(settings)),
    });
    Ok(true)
}

/// A text of a Secret; `field` of the hub names it, and `what` should be in it.
async fn text_of(
    world: &World,
    hub: &Hub,
    reference: &SecretKey,
    field: &str,
    what: &str,
) -> Result<String, Problem> {
    let SecretKey { name, key } = reference;
    let namespace = &hub.namespace;
    let problem = |text: String| {
        let named =
            format!("Secret {name:?} in namespace {namespace}, named by spec.source.mysql.{field}");
        Problem::source("NoSecret", format!("{named}, {text}"))
    };
    let secret = match world.objects.get(&secret_key(namespace, name)).await {
        Ok(secret) => secret,
        Err(ApiError::NotFound(_)) => {
            return Err(problem(
                "does not exist; create it, or correct the name".into(),
            ));
        }
        Err(error) => return Err(problem(format!("cannot be read: {error}"))),
    };
    let Some(bytes) = secret_bytes(&secret, key) else {
        let data = secret["data"].as_object();
        let keys: Vec<&String> = data.into_iter().flat_map(|data| data.keys()).collect();
        return Err(problem(format!(
            "has no key {key:?}; its keys are {keys:?}; add it, or correct {field}"
        )));
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => Err(problem(format!(
            "has no text under key {key:?}; put the {what} there as UTF-8"
        ))),
    }
}

pub fn secret_key(namespace: &str, name: &str) -> ObjectKey {
    let kind = Kind {
        api_version: "v1".into(),
        kind: "Secret".into(),
    };
    ObjectKey {
        kind,
        namespace: namespace.into(),
        name: name.into(),
    }
}

pub fn secret_bytes(secret: &Value, key: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD
        .decode(secret["data"][key].as_str()?)
        .ok()
}
