//! Reads the rows of a hub: finds its password, connects, and says what is wrong in words for whoever is on call. Decides nothing
//! about the rows, and never shows a password.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::api::conditions::ConditionReason;
use crate::api::hub::{ConfigMapKey, HubSpec, SecretKey, SourceTls, SourceType, TlsMode};
use crate::cluster::catalog::Hub;
use crate::cluster::nodes::HubKey;
use crate::cluster::objects::ApiError;
use crate::cluster::vital::Mutex;
use crate::controller::World;
use crate::datasource::config_map::{ConfigMap, Format};
use crate::datasource::database::{Limits, Password, Server, Settings, Tls};
use crate::datasource::{DataSource, SourceError};
use crate::decide::admission::Doubt;
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::hub::hosts::Hosts;
use crate::decide::hub::rows::{Collector, Columns, Row, RowCount, Rows};

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
    fn missing(reason: ConditionReason, message: String) -> Self {
        Problem {
            code: "SourceMissing",
            reason,
            message,
        }
    }
}

/// A user may have one connection to the server and no more: another replica, which tries a form, has it for no longer than this.
const TOO_MANY_PAUSE: Duration = Duration::from_millis(500);

/// The databases of the hubs. Whoever reads one holds its lock, so that one process has one connection to it at a time: the hub's
/// loop and the trial of a form wait for each other.
#[derive(Default)]
pub struct Databases {
    hosts: Arc<Hosts>,
    known: Mutex<BTreeMap<HubKey, Arc<tokio::sync::Mutex<Option<CachedSettings>>>>>,
}

/// What was read, before it is known whether that can be used.
type Collected = Result<(Collector, RowCount), SourceError>;

/// The settings of a database, which are not looked up again while the hub is the same.
struct CachedSettings {
    uid: String,
    /// Generation of the hub that the settings are of.
    generation: i64,
    settings: Settings,
}

impl Databases {
    pub fn new(hosts: Hosts) -> Self {
        Self {
            hosts: Arc::new(hosts),
            ..Self::default()
        }
    }

    fn of(&self, hub: &Hub) -> Arc<tokio::sync::Mutex<Option<CachedSettings>>> {
        let key = (hub.namespace.clone(), hub.name.clone());
        let mut known = self.known.lock();
        known.entry(key).or_default().clone()
    }

    pub fn forget(&self, hub: &HubKey) {
        self.known.lock().remove(hub);
    }
}

/// Which columns are read, and of which rows no more is kept than the uid.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    columns: &'a Columns,
    is_settled: &'a (dyn Fn(&Row) -> bool + Sync),
}

/// Of a hub that is not stored nothing is remembered: it may never be. Of a row that is settled only the uid is kept.
pub async fn read_rows(
    world: &World,
    (hub, is_stored): (&Hub, bool),
    spec: &HubSpec,
    limits: &Limits,
    is_settled: &(dyn Fn(&Row) -> bool + Sync),
) -> Result<Rows, Problem> {
    let columns = &Columns::of(spec).map_err(Problem::invalid)?;
    let wanted = Wanted {
        columns,
        is_settled,
    };
    match needed(spec)? {
        Needed::Server(server) => {
            read_database(world, (hub, is_stored), &server, wanted, limits).await
        }
        Needed::ConfigMap(config_map) => read_config_map(world, hub, config_map, wanted).await,
    }
}

/// Whether the database has what the hub maps, and why not. Reads no rows, and remembers nothing: the hub may not come to be.
pub async fn check(world: &World, hub: &Hub, spec: &HubSpec, limits: &Limits) -> Result<(), Doubt> {
    let doubt = |problem: Problem| Doubt {
        is_certain: false,
        message: problem.message,
    };
    let Needed::Server(server) = needed(spec).map_err(doubt)? else {
        return Ok(());
    };
    let host_forbidden = world
        .databases
        .hosts
        .forbids_name(server.host, server.port as u16);
    if let Some(why) = host_forbidden {
        let (host, port) = (server.host.to_owned(), server.port as u16);
        return Err(SourceError::HostForbidden { host, port, why }.into());
    }
    let turn = world.databases.of(hub);
    let _turn = turn.lock().await;
    let settings = settings(world, hub, &server).await.map_err(doubt)?;
    let source = source(&server, &settings, limits);
    let columns = Columns::of(spec).map_err(|error| doubt(Problem::invalid(error)))?;
    match source.check(&columns).await {
        Err(SourceError::TooManyConnections { .. }) => {
            sleep(TOO_MANY_PAUSE).await;
            Ok(source.check(&columns).await?)
        }
        checked => Ok(checked?),
    }
}

fn source(server: &Server<'_>, settings: &Settings, limits: &Limits) -> DataSource {
    (server.source)(Settings {
        limits: limits.clone(),
        ..settings.clone()
    })
}

impl From<SourceError> for Doubt {
    fn from(error: SourceError) -> Self {
        Doubt {
            is_certain: error.is_certain(),
            message: error.to_string(),
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
enum Needed<'a> {
    Server(Server<'a>),
    ConfigMap(&'a ConfigMapKey),
}

fn needed(spec: &HubSpec) -> Result<Needed<'_>, Problem> {
    let source = &spec.source;
    let (name, what, found) = match source.type_ {
        SourceType::Mysql => {
            let mysql = source.mysql.as_ref();
            let server = mysql.map(|mysql| Needed::Server(mysql.into()));
            ("mysql", "where the database is", server)
        }
        SourceType::Postgresql => {
            let postgresql = source.postgresql.as_ref();
            let server = postgresql.map(|postgresql| Needed::Server(postgresql.into()));
            ("postgresql", "where the database is", server)
        }
        SourceType::ConfigMap => {
            let rows = source.config_map.as_ref().map(Needed::ConfigMap);
            ("configMap", "where the rows are", rows)
        }
    };
    found.ok_or_else(|| {
        Problem::invalid(format!(
            "spec.source.type is {name}, so spec.source.{name} must say {what}; add it"
        ))
    })
}

/// A password that the database refuses, or an authority that did not sign its certificate, is fetched anew once: it may have been
/// changed in both places since.
async fn read_database(
    world: &World,
    (hub, is_stored): (&Hub, bool),
    server: &Server<'_>,
    wanted: Wanted<'_>,
    limits: &Limits,
) -> Result<Rows, Problem> {
    let known = world.databases.of(hub);
    let mut known = known.lock().await;
    let same = |known: &&CachedSettings| {
        is_stored && known.uid == hub.uid && known.generation == hub.generation
    };
    let before = known.as_ref().filter(same);
    let mut outcome = None;
    if let Some(before) = before {
        outcome = Some(collect(source(server, &before.settings, limits), wanted).await);
    }
    let refused = |outcome: &Collected| {
        use SourceError::{AccessDenied, Tls};
        matches!(outcome, Err(AccessDenied { .. } | Tls { .. }))
    };
    if outcome.as_ref().is_none_or(refused) {
        let settings = settings(world, hub, server).await?;
        // The same password once more could lock the user out.
        if before.is_none_or(|before| before.settings != settings) {
            outcome = Some(collect(source(server, &settings, limits), wanted).await);
        }
        if is_stored {
            *known = Some(CachedSettings {
                uid: hub.uid.clone(),
                generation: hub.generation,
                settings,
            });
        }
    }
    let outcome = outcome.expect("settings that were not known are tried");
    finish(outcome, "")
}

/// Once more where another connection of the same user was in the way.
async fn collect(source: DataSource, wanted: Wanted<'_>) -> Collected {
    match collect_once(&source, wanted).await {
        Err(SourceError::TooManyConnections { .. }) => {
            sleep(TOO_MANY_PAUSE).await;
            collect_once(&source, wanted).await
        }
        other => other,
    }
}

async fn read_config_map(
    world: &World,
    hub: &Hub,
    reference: &ConfigMapKey,
    wanted: Wanted<'_>,
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
    finish(collect_once(&source, wanted).await, &format!("{named}: "))
}

/// Ends as soon as there are too many rows: what is left of the result goes with its connection.
async fn collect_once(source: &DataSource, wanted: Wanted<'_>) -> Collected {
    let mut collector = Collector::new(wanted.columns);
    let over = Notify::new();
    let on_row = |row| {
        collector.push_unless(wanted.is_settled, row);
        if collector.is_over() {
            over.notify_one();
        }
    };
    let count = tokio::select! {
        biased;
        () = over.notified() => RowCount(0),
        count = source.rows(wanted.columns, on_row) => count?,
    };
    Ok((collector, count))
}

fn finish(collected: Collected, named: &str) -> Result<Rows, Problem> {
    let (collector, count) = collected.map_err(|error| Problem {
        code: error.code(),
        reason: match error.is_of_the_data() {
            true => ConditionReason::SourceInvalid,
            false => ConditionReason::DatabaseConnectionFailed,
        },
        message: format!("{named}{error}"),
    })?;
    let rows = collector.finish(count);
    rows.map_err(|error| Problem {
        code: "TooManyRows",
        reason: ConditionReason::SourceInvalid,
        message: format!("{named}{error}"),
    })
}

/// What the hub and its Secrets say now.
async fn settings(world: &World, hub: &Hub, server: &Server<'_>) -> Result<Settings, Problem> {
    let block = server.block;
    let password = match server.password_ref {
        Some(reference) => {
            let text = text_of(world, hub, reference, block, "passwordRef", "password");
            text.await?.into()
        }
        None => Password::default(),
    };
    let tls = match server.tls {
        None
        | Some(SourceTls {
            mode: TlsMode::Disabled,
            ..
        }) => Tls::Disabled,
        Some(SourceTls { mode, ca_ref }) => {
            let ca_pem = match ca_ref {
                Some(reference) => {
                    let text = text_of(world, hub, reference, block, "tls.caRef", "certificates");
                    Some(text.await?.into_bytes())
                }
                None => None,
            };
            match (mode, ca_pem) {
                (TlsMode::VerifyCa, Some(ca_pem)) => Tls::VerifyCa { ca_pem },
                (TlsMode::VerifyCa, None) => {
                    return Err(Problem::invalid(format!(
                        "spec.source.{block}.tls.mode is verifyCa, so spec.source.{block}.tls.caRef must name the authority; add it"
                    )));
                }
                (_, ca_pem) => Tls::Required { ca_pem },
            }
        }
    };
    Ok(Settings {
        host: server.host.to_owned(),
        port: server.port as u16,
        user: server.username.to_owned(),
        password,
        database: server.database.to_owned(),
        table: server.table.to_owned(),
        tls,
        limits: Limits::default(),
        hosts: world.databases.hosts.clone(),
    })
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
        let why = format!("{named}, has no text under key {key:?}; put the {what} there as UTF-8");
        Problem::missing(ConditionReason::SourceInvalid, why)
    })
}

async fn found(world: &World, key: &ObjectKey, named: &str) -> Result<Value, Problem> {
    world.objects.get(key).await.map_err(|error| match error {
        ApiError::NotFound(_) => {
            let reason = match key.kind.kind.as_str() {
                "Secret" => ConditionReason::SecretNotFound,
                _ => ConditionReason::SourceInvalid,
            };
            let why = format!("{named}, does not exist; create it, or correct the name");
            Problem::missing(reason, why)
        }
        error => {
            let why = format!("{named}, cannot be read: {error}");
            Problem::missing(ConditionReason::DatabaseConnectionFailed, why)
        }
    })
}

fn no_key(named: &str, object: &Value, key: &str, or: &str) -> Problem {
    let data = object["data"].as_object();
    let keys: Vec<&String> = data.into_iter().flat_map(|data| data.keys()).collect();
    let why = format!("{named}, has no key {key:?}; its keys are {keys:?}; add it, or {or}");
    Problem::missing(ConditionReason::SourceInvalid, why)
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
        kind: kind.into(),
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
