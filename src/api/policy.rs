//! The rollout policy of a form or hub, and the number-or-percentage that its fields use.

use std::collections::BTreeMap;
use std::fmt;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api::texts::Texts;

/// A number of nodes, or a percentage of a form's nodes (`3`, `"10%"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skew {
    Count(u32),
    Percent(u8),
}

/// The largest window of one hub: its ledger is part of the hub's status, and that has a size limit.
pub const WINDOW_MAX: usize = 1_000;

impl Skew {
    /// Nodes out of `total`: a percentage is rounded down, but is at least 1. A count of 0 stays 0.
    pub fn of(self, total: usize) -> usize {
        match self {
            Skew::Count(n) => (n as usize).min(WINDOW_MAX),
            Skew::Percent(p) => (total * p as usize / 100).clamp(1, WINDOW_MAX),
        }
    }

    /// From the text of a percentage: `1%` to `100%`.
    pub fn parse_percent(text: &str) -> Result<Skew, String> {
        match text.strip_suffix('%').map(str::parse::<u8>) {
            Some(Ok(p @ 1..=100)) if !text.starts_with(['+', '0']) => Ok(Skew::Percent(p)),
            _ => Err(format!(
                "{text:?} is neither a number nor a percentage from 1% to 100%"
            )),
        }
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skew::Count(n) => write!(f, "{n}"),
            Skew::Percent(p) => write!(f, "{p}%"),
        }
    }
}

impl Serialize for Skew {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Skew::Count(n) => serializer.serialize_u32(*n),
            Skew::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Skew {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Raw::deserialize(deserializer)?;
        raw.skew().map_err(D::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a number of nodes from 0 on, or a percentage from \"1%\" to \"100%\""
)]
enum Raw {
    Count(u32),
    Text(String),
    /// As the API server stores an empty field of this type.
    Nothing(()),
}

impl Raw {
    fn skew(self) -> Result<Skew, String> {
        match self {
            Raw::Count(n) => Ok(Skew::Count(n)),
            Raw::Text(text) => Skew::parse_percent(&text),
            Raw::Nothing(()) => Ok(Skew::default()),
        }
    }
}

/// A maxSkew. Whoever writes 0% may mean a stop. Like those below it names its field, which an error of a whole spec does not.
pub fn read_max_skew<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Skew, D::Error> {
    let why = match Raw::deserialize(deserializer) {
        Ok(Raw::Text(text)) if text == "0%" => STOPS.to_owned(),
        Ok(raw) => match raw.skew() {
            Ok(skew) => return Ok(skew),
            Err(why) => why,
        },
        Err(error) => error.to_string(),
    };
    Err(D::Error::custom(format!("maxSkew: {why}")))
}

fn read_max_failures<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Skew>, D::Error> {
    let skew = Option::deserialize(deserializer);
    skew.map_err(|error| D::Error::custom(format!("maxFailures: {error}")))
}

pub fn read_max_deletions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Skew>, D::Error> {
    let skew = Option::deserialize(deserializer);
    skew.map_err(|error| D::Error::custom(format!("maxDeletions: {error}")))
}

const STOPS: &str = "0% would release nothing; to stop a rollout set paused: true";

impl JsonSchema for Skew {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Skew".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // A rule and no pattern: the pattern's own message would stand beside the one that people can read.
        schemars::json_schema!({
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "maximum": i32::MAX,
            "maxLength": 10,
            "x-kubernetes-validations": [{
                "rule": format!("type(self) == int || self.matches('{PERCENTAGE}')"),
                "message": "give a number of nodes, or a percentage from 1% to 100%",
            }],
        })
    }
}

const PERCENTAGE: &str = "^([1-9][0-9]?|100)%$";

/// The schema of a window. Whoever writes 0% may mean a stop.
pub fn max_skew(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = Skew::json_schema(generator);
    let rules = serde_json::json!([
        {
            "rule": format!("type(self) == int || self == '0%' || self.matches('{PERCENTAGE}')"),
            "message": "give a number of nodes, or a percentage from 1% to 100%",
        },
        {
            "rule": "type(self) == int || self != '0%'",
            "message": STOPS,
        },
    ]);
    schema.insert("x-kubernetes-validations".into(), rules);
    schema
}

/// The seconds of a number with s, m or h, as the schemas let it through; more than there is room for is the most.
pub fn seconds_of(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let factor = match unit {
        "m" => 60,
        "h" => 3600,
        _ => 1,
    };
    let number = number.parse::<u64>().unwrap_or(u64::MAX);
    number.saturating_mul(factor)
}

/// A minDelay.
pub fn delay(text: &str) -> SignedDuration {
    SignedDuration::from_secs(seconds_of(text).try_into().unwrap_or(i64::MAX))
}

/// Whether new nodes wait for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Creation {
    /// Like updates, as in Lynq.
    #[default]
    Gated,
    /// They go live at once, unless the form has an order.
    Immediate,
}

/// Which non-ready nodes fill the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SkewCounts {
    /// Every non-ready node of the form, whatever broke it.
    #[default]
    All,
    /// Those that a release made non-ready; and as many again may be under repair.
    Released,
}

/// What the operator does with a form whose rollout is halted because nodes failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// It releases nothing until somebody corrects the form or resumes the rollout.
    #[default]
    Halt,
    /// It sets the form back to the last revision whose rollout was complete; the failed nodes get that first.
    Revert,
}

/// Some nodes of a form that are released together, before those of the groups after it. Name it, and say by `when` or
/// by `matchLabels` which they are; nodes of no group come last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.when) != has(self.matchLabels)",
    "message": "give either when or matchLabels",
}]))]
pub struct Group {
    /// What messages call it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// A template over the variables of a row, in the language of the form: rows for which it gives `true` are in this
    /// group. Whatever is not `true` counts as false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub when: Option<String>,
    /// Labels that a LynqNode of this group has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("minProperties" = 1))]
    pub match_labels: BTreeMap<String, String>,
    /// Once this group is done, the rollout waits until somebody promotes it (lynqgate promote): then the later groups go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pause: bool,
}

/// Nodes that share something that can fail, such as a database shard or a zone. Say by `label` or by `variable` what tells the
/// domains apart: nodes with the same value are in one domain, nodes without a value in none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.label) != has(self.variable)",
    "message": "give either label or variable",
}]))]
pub struct Domain {
    /// A label of the LynqNodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub label: Option<String>,
    /// A variable of the rows: uid, hostOrUrl, or one of the hub's extraValueMappings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub variable: Option<String>,
    /// How many nodes of one domain may be non-ready at a time: a number from 1 on, or a percentage of the domain's nodes
    /// (rounded down, at least 1).
    #[serde(deserialize_with = "read_max_skew")]
    #[schemars(schema_with = "at_least_one")]
    pub max_skew: Skew,
}

impl Domain {
    /// What tells the domains apart, as messages call it.
    pub fn key(&self) -> &str {
        let key = self.label.as_ref().or(self.variable.as_ref());
        key.map(String::as_str).unwrap_or_default()
    }
}

/// How changes of a form reach its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// How many nodes may be non-ready at a time: a number, or a percentage of the form's nodes (rounded down, at
    /// least 1). 0, the default: no window, changes reach every node at once.
    #[serde(default, deserialize_with = "read_max_skew")]
    #[schemars(default, schema_with = "max_skew")]
    pub max_skew: Skew,
    /// Seconds that a released node has to become ready before it counts as failed; once more as long if it was ready and breaks
    /// while it is watched (minReadySeconds), but no longer than it would have been watched. Default: 600; 60 to 3600.
    #[serde(default = "ten_minutes")]
    #[schemars(default = "ten_minutes", range(min = 60, max = 3600))]
    pub progress_deadline_seconds: i32,
    /// Seconds that a released node must stay ready before its slot is free for the next one. Default: 0; at most 86400.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 86400))]
    pub min_ready_seconds: i32,
    /// How long after they were applied objects count as ready where nothing tells that they are: a number with s, m or h.
    /// For resources without a minDelay of their own. Default: that of the hub's rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9]{1,5}(s|m|h)$"))]
    pub min_delay: Option<String>,
    /// How many failed nodes halt the rollout: a number from 1 on, or a percentage. Default 1. More than maxSkew cannot fail,
    /// since failed nodes fill the window: then the phase stays InProgress, nothing goes on without a correction, and the
    /// condition RolloutComplete and an event say so (Stalled, RolloutStalled).
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_max_failures"
    )]
    #[schemars(schema_with = "at_least_one")]
    pub max_failures: Option<Skew>,
    /// What happens once as many nodes failed as maxFailures allows. Default: Halt.
    #[serde(default, skip_serializing_if = "OnFailure::is_halt")]
    pub on_failure: OnFailure,
    /// How many revisions of the form are kept, for `lynqgate history` and `lynqgate undo`. Default: 10; 2 to 100.
    #[serde(default = "ten", skip_serializing_if = "is_ten")]
    #[schemars(default = "ten", range(min = 2, max = 100))]
    pub revision_history_limit: u32,
    /// Stops the rollout: nothing held is released, except by force. What is in flight goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Whether new nodes wait for a slot like updates do (Gated, the default), or go live at once (Immediate). With an order they
    /// wait for their group's turn and a slot, whatever this says.
    #[serde(default)]
    pub creation: Creation,
    /// Which non-ready nodes fill the window: all of them (the default), or only those that a release made non-ready. The latter is
    /// for fleets that live with tenants that are broken for good; maxSkew then bounds changes and repairs each.
    #[serde(default)]
    pub skew_counts: SkewCounts,
    /// Groups of nodes in the order of their release, such as canaries first. A group's turn comes when every node of
    /// those before it runs the newest content and is ready. Not ordered when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub order: Vec<Group>,
    /// How many nodes may be non-ready at a time that share something, such as a database shard or a zone; beside maxSkew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub domains: Vec<Domain>,
}

impl Rollout {
    /// The number of the node's group: the first whose labels it has, or that the hub found for its row.
    pub fn group_of(&self, labels: &Texts, of_row: Option<usize>) -> usize {
        let has = |(name, value): (&String, &String)| labels.get(name) == Some(value);
        let is_in = |(number, group): (usize, &Group)| match group.when {
            Some(_) => of_row == Some(number),
            None => group.match_labels.iter().all(has),
        };
        let mut groups = self.order.iter().enumerate();
        groups.position(is_in).unwrap_or(self.order.len())
    }

    /// The node's value of each of the domains, by its labels and by what the hub found in its row.
    pub fn domains_of(&self, labels: &Texts, of_row: &BTreeMap<String, String>) -> Vec<String> {
        let value = |domain: &Domain| {
            let value = match (&domain.label, &domain.variable) {
                (Some(label), _) => labels.get(label),
                (None, variable) => of_row.get(variable.as_ref()?).map(String::as_str),
            };
            value.map(str::to_owned)
        };
        let domains = self.domains.iter();
        domains
            .map(|domain| value(domain).unwrap_or_default())
            .collect()
    }
}

impl Default for Skew {
    fn default() -> Self {
        Skew::Count(0)
    }
}

impl Default for Rollout {
    fn default() -> Self {
        Rollout {
            max_skew: Skew::default(),
            progress_deadline_seconds: ten_minutes(),
            min_ready_seconds: 0,
            min_delay: None,
            max_failures: None,
            on_failure: OnFailure::Halt,
            revision_history_limit: ten(),
            paused: false,
            creation: Creation::Gated,
            skew_counts: SkewCounts::All,
            order: vec![],
            domains: vec![],
        }
    }
}

impl OnFailure {
    fn is_halt(&self) -> bool {
        *self == OnFailure::Halt
    }
}

fn ten() -> u32 {
    10
}

fn is_ten(n: &u32) -> bool {
    *n == ten()
}

fn ten_minutes() -> i32 {
    600
}

pub fn is_zero(n: &i32) -> bool {
    *n == 0
}

fn at_least_one(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = Skew::json_schema(generator);
    schema.insert("minimum".into(), 1.into());
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_rounded_down_and_at_least_one() {
        for (text, total, expected) in [
            ("10%", 20, 2),
            ("10%", 29, 2),
            ("10%", 5, 1),
            ("100%", 7, 7),
            ("50%", 0, 1),
            ("100%", 9_000, WINDOW_MAX),
        ] {
            assert_eq!(
                Skew::parse_percent(text).unwrap().of(total),
                expected,
                "{text} of {total}"
            );
        }
        assert_eq!((Skew::Count(0).of(10), Skew::Count(30).of(10)), (0, 30));
    }

    #[test]
    fn a_node_is_in_the_first_group_that_fits() {
        let rollout: Rollout = serde_json::from_value(serde_json::json!({"order": [
            {"name": "picked", "matchLabels": {"canary": "true", "ring": "0"}},
            {"name": "ours", "when": "{{ eq .plan \"internal\" }}"},
            {"name": "early", "matchLabels": {"ring": "1"}},
        ]}))
        .unwrap();
        let labels = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            Texts::from(owned.collect::<BTreeMap<_, _>>())
        };
        for (name, labels, of_row, expected) in [
            (
                "all labels",
                labels(&[("canary", "true"), ("ring", "0")]),
                Some(1),
                0,
            ),
            ("one of two labels", labels(&[("canary", "true")]), None, 3),
            ("by its row", labels(&[("ring", "1")]), Some(1), 1),
            ("by a later label", labels(&[("ring", "1")]), None, 2),
            ("none", labels(&[]), None, 3),
        ] {
            assert_eq!(rollout.group_of(&labels, of_row), expected, "{name}");
        }
    }

    #[test]
    fn what_is_no_skew_is_refused_with_the_reason() {
        for (json, said) in [
            ("\"0%\"", "1% to 100%"),
            ("\"101%\"", "1% to 100%"),
            ("\"-1%\"", "1% to 100%"),
            ("\"10 %\"", "1% to 100%"),
            ("\"+5%\"", "1% to 100%"),
            ("\"3\"", "1% to 100%"),
            ("-1", "number of nodes"),
            ("4294967296", "number of nodes"),
            ("1.5", "number of nodes"),
        ] {
            let error = serde_json::from_str::<Skew>(json).unwrap_err().to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
    }

    #[test]
    fn an_error_of_a_percentage_names_its_field() {
        for (field, value, said) in [
            ("maxSkew", "\"0%\"", "maxSkew: 0% would release nothing"),
            ("maxSkew", "\"101%\"", "maxSkew: \"101%\" is neither"),
            ("maxSkew", "-1", "maxSkew: "),
            ("maxFailures", "\"0%\"", "maxFailures: \"0%\" is neither"),
        ] {
            let text = format!("{{\"{field}\": {value}}}");
            let error = serde_json::from_str::<Rollout>(&text).unwrap_err();
            assert!(error.to_string().starts_with(said), "{text}: {error}");
        }
        let empty = r#"{"maxSkew": null, "maxFailures": null}"#;
        let empty: Rollout = serde_json::from_str(empty).unwrap();
        assert_eq!(empty, Rollout::default());
    }
}
