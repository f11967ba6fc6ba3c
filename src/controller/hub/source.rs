//! Reads the rows of a hub: finds its password, keeps its connection, and says what is wrong in words for whoever is on
//! call. Decides nothing about the rows, and never shows a password.

use serde_json::Value;
use tokio::sync::Notify;

use crate::api::conditions::ConditionReason;
use crate::api::hub::{ConfigMapKey, HubSpec, SecretKey, SourceTls, SourceType, TlsMode};
use crate::cluster::catalog::Hub;
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::datasource::config_map::{ConfigMap, Format};
use crate::datasource::database::{Limits, Password, Server, Settings, Tls};
use crate::datasource::{DataSource, SourceError};
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::rows::{Collector, Columns, RowCount, Rows};

/// Why there are no rows.
pub struct Problem {
    /// For metric labels.
    pub code: &'static str,
    /// Of the condition Ready.
    pub reason: ConditionReason,
    pub message: String,
}

impl Problem {
    pub fn invalid(message: impl Into<String>) -> Self {
        Problem {
            code: "InvalidSpec",
            reason: ConditionReason::InvalidSpec,
            message: message.into(),
        }
    }

    /// The Secret or the ConfigMap is not there, or not as it must be.
    fn missing(message: String) -> Self {
        Problem::source("SourceMissing", message)
    }

    fn source(code: &'static str, message: String) -> Self {
        Problem {
            code,
            reason: ConditionReason::DatabaseConnectionFailed,
            message,
        }
    }
}

/// A database that is kept while its settings are the same.
pub struct Known {
    /// Generation of the hub that the settings are of.
    generation: i64,
    /// Of the hub's spec.
    block: &'static str,
    settings: Settings,
    source: DataSource,
}

pub async fn read_rows(
    world: &World,
    hub: &Hub,
    spec: &HubSpec,
    known: &mut Option<Known>,
) -> Result<Rows, Problem> {
    let columns = Columns::of(spec).map_err(Problem::invalid)?;
    let source = &spec.source;
    match source.type_ {
        SourceType::Mysql => {
            let mysql = needed(&source.mysql, "mysql", "where the database is")?;
            read_database(world, hub, &mysql.into(), &columns, known).await
        }
        SourceType::Postgresql => {
            let postgresql = needed(&source.postgresql, "postgresql", "where the database is")?;
            read_database(world, hub, &postgresql.into(), &columns, known).await
        }
        SourceType::ConfigMap => {
            let config_map = needed(&source.config_map, "configMap", "where the rows are")?;
            read_config_map(world, hub, config_map, &columns).await
        }
    }
}

/// How the hub says that all went well: of a database in Lynq's words.
pub fn rows_read(type_: SourceType) -> &'static str {
    match type_ {
        SourceType::ConfigMap => "the rows of the ConfigMap were read",
        SourceType::Mysql | SourceType::Postgresql => {
            "Successfully connected to database and queried node data"
        }
    }
}

/// The block that has the name of the type.
fn needed<'a, T>(block: &'a Option<T>, name: &str, what: &str) -> Result<&'a T, Problem> {
    block.as_ref().ok_or_else(|| {
        Problem::invalid(format!(
            "spec.source.type is {name}, so spec.source.{name} must say {what}; add it"
        ))
    })
}

/// A password that the database refuses, or an authority that did not sign its certificate, is fetched anew once: it may have been
/// changed in both places since.
async fn read_database(
    world: &World,
    hub: &Hub,
    server: &Server<'_>,
    columns: &Columns,
    known: &mut Option<Known>,
) -> Result<Rows, Problem> {
    let was_known = known
        .as_ref()
        .is_some_and(|known| known.generation == hub.generation);
    if !was_known {
        open(world, hub, server, known).await?;
    }
    let collected = match collect(opened(known), columns).await {
        Err(denied @ (SourceError::AccessDenied { .. } | SourceError::Tls { .. })) if was_known => {
            // The same password once more could lock the user out.
            match open(world, hub, server, known).await? {
                true => collect(opened(known), columns).await,
                false => Err(denied),
            }
        }
        other => other,
    };
    finish(collected, "")
}

fn opened(known: &Option<Known>) -> &DataSource {
    &known.as_ref().expect("it was opened").source
}

async fn read_config_map(
    world: &World,
    hub: &Hub,
    reference: &ConfigMapKey,
    columns: &Columns,
) -> Result<Rows, Problem> {
    let ConfigMapKey { name, key } = reference;
    let Some(format) = Format::of(key) else {
        return Err(Problem::invalid(format!(
            "spec.source.configMap.key is {key:?}; let it end in .csv, .yaml, .yml or .json, as the rows are written"
        )));
    };
    let named = format!(
        "ConfigMap {name:?} in namespace {}, named by spec.source.configMap",
        hub.namespace
    );
    let object = found(world, &key_of("ConfigMap", &hub.namespace, name), &named).await?;
    let Some(text) = object["data"][key].as_str() else {
        return Err(no_key(&named, &object, key, "correct key"));
    };
    let source = DataSource::ConfigMap(ConfigMap {
        format,
        text: text.to_owned(),
    });
    finish(collect(&source, columns).await, &format!("{named}: "))
}

/// Ends as soon as there are too many rows: what is left of the result goes with its connection.
async fn collect(
    source: &DataSource,
    columns: &Columns,
) -> Result<(Collector, RowCount), SourceError> {
    let mut collector = Collector::new(columns);
    let over = Notify::new();
    let on_row = |row| {
        collector.push(row);
        if collector.is_over() {
            over.notify_one();
        }
    };
    let count = tokio::select! {
        biased;
        () = over.notified() => RowCount(0),
        count = source.rows(columns, on_row) => count?,
    };
    Ok((collector, count))
}

fn finish(
    collected: Result<(Collector, RowCount), SourceError>,
    named: &str,
) -> Result<Rows, Problem> {
    let (collector, count) =
        collected.map_err(|error| Problem::source(error.code(), format!("{named}{error}")))?;
    let rows = collector.finish(count);
    rows.map_err(|error| Problem::source("TooManyRows", format!("{named}{error}")))
}

/// Brings the source to what the hub and its Secret say now; returns whether that is something new. Does not connect yet.
async fn open(
    world: &World,
    hub: &Hub,
    server: &Server<'_>,
    known: &mut Option<Known>,
) -> Result<bool, Problem> {
    let block = server.block;
    let password = match server.password_ref {
        Some(reference) => {
            let text = text_of(world, hub, reference, block, "passwordRef", "password");
            text.await?.into()
        }
        None => Password::default(),
    };
    let tls = match server.tls {
        Some(SourceTls {
            mode: TlsMode::Required,
            ca_ref,
        }) => Tls::Required {
            ca_pem: match ca_ref {
                Some(reference) => {
                    let text = text_of(world, hub, reference, block, "tls.caRef", "certificates");
                    Some(text.await?.into_bytes())
                }
                None => None,
            },
        },
        _ => Tls::Disabled,
    };
    let settings = Settings {
        host: server.host.to_owned(),
        port: server.port as u16,
        user: server.username.to_owned(),
        password,
        database: server.database.to_owned(),
        table: server.table.to_owned(),
        tls,
        limits: Limits::default(),
    };
    let same = |known: &&mut Known| known.block == block && known.settings == settings;
    if let Some(known) = known.as_mut().filter(same) {
        known.generation = hub.generation;
        return Ok(false);
    }
    *known = Some(Known {
        generation: hub.generation,
        block,
        source: (server.source)(settings.clone()),
        settings,
    });
    Ok(true)
}

/// A text of a Secret; `field` of the hub's `block` names it, and `what` should be in it.
async fn text_of(
    world: &World,
    hub: &Hub,
    reference: &SecretKey,
    block: &str,
    field: &str,
    what: &str,
) -> Result<String, Problem> {
    let SecretKey { name, key } = reference;
    let namespace = &hub.namespace;
    let named =
        format!("Secret {name:?} in namespace {namespace}, named by spec.source.{block}.{field}");
    let secret = found(world, &secret_key(namespace, name), &named).await?;
    let Some(bytes) = secret_bytes(&secret, key) else {
        return Err(no_key(&named, &secret, key, &format!("correct {field}")));
    };
    String::from_utf8(bytes).map_err(|_| {
        Problem::missing(format!(
            "{named}, has no text under key {key:?}; put the {what} there as UTF-8"
        ))
    })
}

async fn found(world: &World, key: &ObjectKey, named: &str) -> Result<Value, Problem> {
    world.objects.get(key).await.map_err(|error| match error {
        ApiError::NotFound(_) => Problem::missing(format!(
            "{named}, does not exist; create it, or correct the name"
        )),
        error => Problem::missing(format!("{named}, cannot be read: {error}")),
    })
}

fn no_key(named: &str, object: &Value, key: &str, or: &str) -> Problem {
    let data = object["data"].as_object();
    let keys: Vec<&String> = data.into_iter().flat_map(|data| data.keys()).collect();
    Problem::missing(format!(
        "{named}, has no key {key:?}; its keys are {keys:?}; add it, or {or}"
    ))
}

pub fn secret_key(namespace: &str, name: &str) -> ObjectKey {
    key_of("Secret", namespace, name)
}

fn key_of(kind: &str, namespace: &str, name: &str) -> ObjectKey {
    let kind = Kind {
        api_version: "v1".into(),
        kind: kind.into(),
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
