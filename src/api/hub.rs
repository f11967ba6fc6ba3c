//! LynqHub: where the rows are.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::conditions::Condition;
use crate::api::policy::{Skew, is_zero, max_skew, read_max_deletions, read_max_skew};

/// A data source: one row of it is one tenant, and each LynqForm that names this hub makes one LynqNode of each active row.
#[derive(Clone, Debug, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.lynq.sh",
    version = "v1",
    kind = "LynqHub",
    namespaced,
    status = "HubStatus",
    shortname = "lhub",
    category = "lynq",
    printcolumn(
        json_path = ".status.referencingTemplates",
        name = "Templates",
        type_ = "integer"
    ),
    printcolumn(json_path = ".status.desired", name = "Desired", type_ = "integer"),
    printcolumn(json_path = ".status.ready", name = "Ready", type_ = "integer"),
    printcolumn(json_path = ".status.failed", name = "Failed", type_ = "integer"),
    printcolumn(
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        name = "Conditions",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type==\"RenderFailed\")].status",
        name = "RenderFailed",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type==\"DeletionsHeld\")].status",
        name = "DeletionsHeld",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".metadata.creationTimestamp",
        name = "Age",
        type_ = "date"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct HubSpec {
    /// Where the rows come from.
    pub source: Source,
    /// Which columns make a row a tenant.
    pub value_mappings: ValueMappings,
    /// More template variables: name of the variable, and the column that it comes from. A name consists of letters, digits and
    /// underscores, and is none that every row has (uid, activate, host, hostOrUrl, hubId, templateRef).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_value_mappings: BTreeMap<String, String>,
    /// Values of the activate column that make a row active. Default: 1, true, yes. Case, and white space around a value, do not
    /// count. A row whose value is neither active nor inactive is undecided: its nodes are neither made nor deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active_values: Vec<String>,
    /// Values of the activate column that make a row inactive, compared like activeValues. Default: 0, false, no, off, n, f and the
    /// empty text, which is also NULL. No value may be in both lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inactive_values: Vec<String>,
    /// A window over all forms of this hub, beside the forms' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<HubRollout>,
    /// How many nodes a sync may delete or make without being asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The kind of data source.
    #[serde(rename = "type")]
    pub type_: SourceType,
    /// How often the rows are read: a number with s, m or h, at most a week; 0s reads them only when the hub or a form
    /// changes. Default: 30s.
    #[serde(default = "thirty_seconds")]
    #[schemars(default = "thirty_seconds", regex(pattern = "^[0-9]{1,9}(s|m|h)$"))]
    pub sync_interval: String,
    /// Where the MySQL or MariaDB server is; required when type is mysql.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysql: Option<Mysql>,
    /// Where the PostgreSQL server is; required when type is postgresql.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgresql: Option<Postgresql>,
    /// Where the rows stand if there is no database; required when type is configMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceType {
    Mysql,
    Postgresql,
    #[serde(rename = "configMap")]
    ConfigMap,
}

/// A text of a ConfigMap in the hub's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapKey {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Key of the rows. Its ending says how they are written: .csv with a first line of column names, or .yaml, .yml or .json
    /// with a list of mappings.
    #[schemars(regex(pattern = r"\.(csv|yaml|yml|json)$"))]
    pub key: String,
}

fn thirty_seconds() -> String {
    "30s".into()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mysql {
    /// Host name or address of the server.
    #[schemars(length(min = 1))]
    pub host: String,
    /// Port of the server. Default: 3306.
    #[serde(default = "mysql_port")]
    #[schemars(default = "mysql_port", range(min = 1, max = 65535))]
    pub port: i32,
    /// User to log in as; it needs SELECT on the table, no more.
    #[schemars(length(min = 1))]
    pub username: String,
    /// The Secret, in the hub's namespace, that has the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_ref: Option<SecretKey>,
    /// Whether the connection is encrypted. Default: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<SourceTls>,
    /// Database (schema) of the table.
    #[schemars(length(min = 1))]
    pub database: String,
    /// Table or view with one row a tenant; `database.table` is accepted.
    #[schemars(length(min = 1))]
    pub table: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Postgresql {
    /// Host name or address of the server.
    #[schemars(length(min = 1))]
    pub host: String,
    /// Port of the server. Default: 5432.
    #[serde(default = "postgresql_port")]
    #[schemars(default = "postgresql_port", range(min = 1, max = 65535))]
    pub port: i32,
    /// User to log in as; it needs CONNECT on the database, USAGE on the schema and SELECT on the table, no more.
    #[schemars(length(min = 1))]
    pub username: String,
    /// The Secret, in the hub's namespace, that has the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_ref: Option<SecretKey>,
    /// Whether the connection is encrypted. Default: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<SourceTls>,
    /// Database of the table.
    #[schemars(length(min = 1))]
    pub database: String,
    /// Table or view with one row a tenant; `schema.table` is accepted. Like the names of columns it is taken as it is
    /// stored, and PostgreSQL stores in lower case what was created without quotes.
    #[schemars(length(min = 1))]
    pub table: String,
}

/// How the connection to the data source is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceTls {
    /// required: encrypted, and the server's certificate must be valid for its host name. verifyCa: encrypted, and the certificate
    /// must be issued by an authority of caRef, whatever names it has: for servers whose certificates have no subjectAltName.
    /// disabled: in clear.
    pub mode: TlsMode,
    /// The Secret, in the hub's namespace, with the authorities (PEM) that may have issued the server's certificate.
    /// Without it those that the web trusts; verifyCa needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<SecretKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    Disabled,
    Required,
    #[serde(rename = "verifyCa")]
    VerifyCa,
}

fn mysql_port() -> i32 {
    3306
}

fn postgresql_port() -> i32 {
    5432
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKey {
    /// Name of the Secret.
    pub name: String,
    /// Key in its data.
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValueMappings {
    /// Column with the tenant's unique id. It becomes part of names and a label: an RFC 1123 subdomain (lower-case letters, digits, - and .)
    /// of at most 63 characters.
    #[schemars(length(min = 1))]
    pub uid: String,
    /// Column that says whether the tenant is active: see activeValues and inactiveValues.
    #[schemars(length(min = 1))]
    pub activate: String,
    /// Deprecated: column with a host or URL; use extraValueMappings and the toHost function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_or_url: Option<String>,
}

impl Source {
    /// What of its namespace the hub has lynqgate read: plurals of kinds, and names.
    pub fn reads(&self) -> Vec<(&'static str, &str)> {
        let (password, tls) = match self.type_ {
            SourceType::Mysql => {
                let mysql = self.mysql.as_ref();
                mysql.map(|it| (&it.password_ref, &it.tls))
            }
            SourceType::Postgresql => {
                let postgresql = self.postgresql.as_ref();
                postgresql.map(|it| (&it.password_ref, &it.tls))
            }
            SourceType::ConfigMap => {
                let of_rows = self.config_map.iter();
                return of_rows.map(|it| ("configmaps", it.name.as_str())).collect();
            }
        }
        .unwrap_or((&None, &None));
        let authority = tls.as_ref().and_then(|tls| tls.ca_ref.as_ref());
        let secrets = password.iter().chain(authority);
        secrets.map(|it| ("secrets", it.name.as_str())).collect()
    }
}

impl ValueMappings {
    /// Lynq reads no column where the name is empty.
    pub fn host_or_url(&self) -> Option<&str> {
        let column = self.host_or_url.as_deref();
        column.filter(|column| !column.is_empty())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HubRollout {
    /// How many nodes of all forms together may be non-ready at a time.
    #[serde(default, deserialize_with = "read_max_skew")]
    #[schemars(default, schema_with = "max_skew")]
    pub max_skew: Skew,
    /// The minDelay of forms whose own rollout has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9]{1,5}(s|m|h)$"))]
    pub min_delay: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Guard {
    /// The most nodes that one sync may delete. Default: half of the hub's nodes, or 5 where that is more; of nodes whose form is gone, 5.
    /// More than that is held until the annotation lynq.sh/confirm-deletions names the count.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_max_deletions"
    )]
    pub max_deletions: Option<Skew>,
    /// The most nodes that one sync may make. Default: as many as the hub has, and at least 100; 1000 for a hub without nodes.
    /// More than that is held until the annotation lynq.sh/confirm-creations names the count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_creations: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HubStatus {
    /// Generation of the hub that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Forms that name this hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referencing_templates: Option<i32>,
    /// Nodes that there should be: good active rows times forms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,
    /// Nodes that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    /// Nodes that failed: something of them could not be applied or was not ready in time, or they were not ready by the deadline of
    /// their rollout. Nodes that only wait are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<i32>,
    /// Rows that were left out because they cannot be a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_rows: Option<i32>,
    /// Nodes that wait for their deletion until somebody confirms it: see the condition DeletionsHeld.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_deletions: Option<i32>,
    /// Nodes that wait to be made until somebody confirms it: see the condition CreationsHeld.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_creations: Option<i32>,
    /// Hash of what of the spec makes rows (source and mappings), as the nodes were last written from it: what waits of another one
    /// is not released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The ledger of the release loop. Written by the operator's leader alone; never edit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<HubRolloutStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HubRolloutStatus {
    /// The nodes that may be in flight.
    pub slots: Vec<Slot>,
}

/// The right of one node to be in flight: written before its release, removed after it has settled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// Name of the LynqNode.
    pub node: String,
    /// Its metadata.uid: a node of the same name made later is another.
    pub uid: String,
    /// The form whose window the slot is taken from.
    pub form: String,
    /// Hash of the content that the release makes live.
    pub hash: String,
    /// The node's resourceVersion that the release carries.
    pub resource_version: String,
    /// Whether the node was non-ready before the slot was taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repair: bool,
    /// Whether the slot was put here anew after the ledger was lost, and not used since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub presumed: bool,
    /// What its form asked for when the slot was taken, in seconds: it counts while the form is not there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
}
