//! The hubs of a namespace, by the conditions that the operator wrote: it alone reads the rows.

use jiff::Timestamp;

use crate::api::conditions::{self, Condition};
use crate::api::hub::HubStatus;
use crate::decide::operator::check::{Finding, Observed, pods};

/// Conditions that are True while something is wrong, and the command that shows or ends it.
const COMPLAINTS: [(&str, &str); 5] = [
    ("RowsSkipped", ""),
    ("RenderFailed", ""),
    ("WriteFailed", ""),
    ("DeletionsHeld", "confirm"),
    ("CreationsHeld", "confirm"),
];

/// A hub, as its operator reports on it.
#[derive(Clone, Debug, Default)]
pub struct HubTold {
    pub name: String,
    pub generation: i64,
    pub status: HubStatus,
}

/// `home`: the namespace of the hubs. `namespace`: the operator's.
pub fn findings(home: &str, hubs: &Observed<Vec<HubTold>>, namespace: &str) -> Vec<Finding> {
    let object = format!("LynqHubs of namespace {home}");
    match hubs {
        Observed::Denied(why) => vec![Finding::unread(object, why)],
        Observed::Absent => {
            let said = "the API server does not have this kind";
            let next = "kubectl apply --server-side -f manifests/crd-lynqhubs.yaml";
            vec![Finding::failed(object, said, next)]
        }
        Observed::Object(hubs) if hubs.is_empty() => {
            vec![Finding::ok(
                object,
                "there are none (-n chooses another namespace)",
            )]
        }
        Observed::Object(hubs) => hubs.iter().flat_map(|hub| of_hub(hub, namespace)).collect(),
    }
}

fn of_hub(hub: &HubTold, namespace: &str) -> Vec<Finding> {
    let HubTold {
        name,
        generation,
        status,
    } = hub;
    let object = format!("LynqHub {name}");
    let Some(ready) = conditions::find(&status.conditions, "Ready") else {
        let said = "no operator has reported on it yet";
        return vec![Finding::warning(object, said, pods(namespace))];
    };
    let mut findings = vec![of_rows(&object, ready, status)];
    if status.observed_generation != Some(*generation) {
        findings.push(Finding::warning(
            &object,
            format!("the operator has not reported on its newest change (generation {generation})"),
            pods(namespace),
        ));
    }
    for (type_, verb) in COMPLAINTS {
        let told = conditions::find(&status.conditions, type_);
        let Some(told) = told.filter(|told| told.status == "True") else {
            continue;
        };
        let count = match (type_, status.skipped_rows) {
            ("RowsSkipped", Some(rows)) => format!("{rows} rows are skipped: "),
            _ => String::new(),
        };
        let next = match verb {
            "" => String::new(),
            verb => format!("Check the rows; then, if it is intended: lynqgate {verb} {name}"),
        };
        let said = format!("{count}{}: {}", told.reason, told.message);
        findings.push(Finding::warning(&object, said, next));
    }
    findings
}

/// Whether the database was reached, or the ConfigMap read. The message names missing columns.
fn of_rows(object: &str, ready: &Condition, status: &HubStatus) -> Finding {
    let since = time(ready.last_transition_time);
    if ready.status != "True" {
        let said = format!("{} since {since}: {}", ready.reason, ready.message);
        return Finding::failed(object, said, "");
    }
    let count = |count: Option<i32>| count.unwrap_or_default();
    Finding::ok(
        object,
        format!(
            "{}, without a failure since {since}; {} of {} nodes ready",
            ready.message,
            count(status.ready),
            count(status.desired)
        ),
    )
}

fn time(at: Timestamp) -> String {
    at.strftime("%F %T UTC").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::operator::check::tests::line;

    fn said(status: serde_json::Value) -> Vec<String> {
        let hub = HubTold {
            name: "tenants".to_owned(),
            generation: 2,
            status: serde_json::from_value(status).unwrap(),
        };
        let hubs = Observed::Object(vec![hub]);
        let findings = findings("shop", &hubs, "lynq-system");
        findings.iter().map(line).collect()
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> serde_json::Value {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    #[test]
    fn the_conditions_of_a_hub_are_shown() {
        let good = || condition("Ready", "True", "DatabaseConnected", "the rows were read");
        let well = |conditions: Vec<serde_json::Value>| {
            said(json!({
                "observedGeneration": 2, "desired": 4, "ready": 3, "skippedRows": 2, "conditions": conditions,
            }))
        };
        let is_read = "ok LynqHub tenants: the rows were read, without a failure since 2026-01-01 00:00:00 UTC; 3 of 4 nodes ready";
        let all_used = condition("RowsSkipped", "False", "AllRowsUsable", "");
        assert_eq!(well(vec![good(), all_used]), [is_read]);
        let skipped = condition("RowsSkipped", "True", "UnusableRows", "Rows a, b: no uid");
        let held = condition("DeletionsHeld", "True", "TooManyDeletions", "3 of 4 nodes");
        assert_eq!(
            well(vec![good(), skipped, held]),
            [
                is_read,
                "warning LynqHub tenants: 2 rows are skipped: UnusableRows: Rows a, b: no uid",
                "warning LynqHub tenants: TooManyDeletions: 3 of 4 nodes. Check the rows; then, if it is intended: lynqgate confirm \
                 tenants",
            ]
        );
        let message = "column \"plan\" is missing; correct extraValueMappings";
        let missing = condition("Ready", "False", "SourceInvalid", message);
        assert_eq!(
            well(vec![missing]),
            [format!(
                "failed LynqHub tenants: SourceInvalid since 2026-01-01 00:00:00 UTC: {message}"
            )]
        );
    }

    #[test]
    fn a_hub_that_nobody_reports_on_is_a_warning() {
        let pods = pods("lynq-system");
        assert_eq!(
            said(json!({"observedGeneration": -1})),
            [format!(
                "warning LynqHub tenants: no operator has reported on it yet. {pods}"
            )]
        );
        let good = condition("Ready", "True", "DatabaseConnected", "read");
        let told = said(json!({"observedGeneration": 1, "conditions": [good]}));
        assert_eq!(
            told[1..],
            [format!(
                "warning LynqHub tenants: the operator has not reported on its newest change (generation 2). {pods}"
            )]
        );
        let none = findings("shop", &Observed::Object(vec![]), "lynq-system");
        assert_eq!(
            line(&none[0]),
            "ok LynqHubs of namespace shop: there are none (-n chooses another namespace)"
        );
        let absent = findings("shop", &Observed::Absent, "lynq-system");
        assert!(line(&absent[0]).starts_with("failed "));
    }
}
