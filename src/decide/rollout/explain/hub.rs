//! `explain hub`: whether its rows are read, what waits, and how each of its forms stands, as the operator wrote it into their statuses.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::api::hub::HubStatus;
use crate::api::{conditions, names};
use crate::decide::rollout::explain::{Leader, short};
use crate::decide::rollout::overview::{self, Part, Problem};

/// What there is to read of a hub and its forms.
pub struct HubAsked<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub generation: i64,
    pub status: &'a HubStatus,
    /// Where the spec can be read.
    pub sync_interval: Option<&'a str>,
    /// The objects that are forced: `hub tenants`, `form web`.
    pub forced: Vec<String>,
    pub forms: Vec<Part>,
    pub leader: &'a Leader,
    pub now: Timestamp,
}

/// The answer, in the order in which it is read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HubExplanation {
    /// `lynqhub tenants/tenants`.
    pub subject: String,
    pub state: String,
    /// No window applies to the hub, or to these forms.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    pub forms: Vec<Part>,
}

impl HubAsked<'_> {
    pub fn explain(self) -> HubExplanation {
        let Part {
            summary, problems, ..
        } = overview::of_hub(self.name, self.generation, self.status);
        let state = match self.reads() {
            Some(reads) => format!("{reads}; {}{summary}", self.sizes()),
            None => "the operator has not reported on it yet".to_owned(),
        };
        let leaderless = Problem::of_leader(self.leader);
        HubExplanation {
            subject: format!("lynqhub {}/{}", self.namespace, self.name),
            state,
            forced: self.forced,
            problems: leaderless.into_iter().chain(problems).collect(),
            forms: self.forms,
        }
    }

    /// How the last read of the rows went, and since when they go like that. The status is not written for each.
    fn reads(&self) -> Option<String> {
        let ready = conditions::find(&self.status.conditions, "Ready")?;
        let since = short(self.now.duration_since(ready.last_transition_time));
        let interval = self.sync_interval;
        let interval = interval.map(|interval| format!(" (syncInterval {interval})"));
        let [last, never] = match ready.status == "True" {
            true => ["succeeded", "failed"],
            false => ["failed", "succeeded"],
        };
        Some(format!(
            "the last read of the rows {last}{}; none has {never} for {since}",
            interval.unwrap_or_default()
        ))
    }

    /// Each form has a node for each usable row.
    fn sizes(&self) -> String {
        let counted = |count: i32, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        let HubStatus {
            referencing_templates,
            desired,
            ..
        } = self.status;
        match (*referencing_templates, *desired) {
            (Some(0), _) => "0 forms: ".to_owned(),
            (Some(forms), Some(nodes)) if nodes % forms == 0 => format!(
                "{}, {}: ",
                counted(nodes / forms, "usable row"),
                counted(forms, "form")
            ),
            _ => String::new(),
        }
    }
}

impl fmt::Display for HubExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        let mut line = |name: &str, value: &str| writeln!(f, "  {name:<10} {value}");
        line("state", &self.state)?;
        let (annotation, value) = (names::FORCE_ROLLOUT, names::TRUE);
        let forced = (!self.forced.is_empty()).then(|| {
            format!(
                "no window applies: {annotation}={value} is on {}; lynqgate force KIND NAME --off takes it off",
                self.forced.join(", ")
            )
        });
        if let Some(forced) = forced {
            line("forced", &forced)?;
        }
        for problem in &self.problems {
            line("why", &problem.why())?;
            if let Some(next) = &problem.next {
                line("next", next)?;
            }
        }
        let mut forms = self.forms.iter();
        forms.try_for_each(|form| line(&form.subject, &form.line()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::stamp;
    use crate::decide::rollout::explain::FormTold;

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    fn told(status: Value, forms: Vec<Part>, forced: &[&str], leader: &Leader) -> String {
        let asked = HubAsked {
            namespace: "shop",
            name: "tenants",
            generation: 2,
            status: &serde_json::from_value(status).unwrap(),
            sync_interval: Some("30s"),
            forced: forced.iter().map(|what| (*what).to_owned()).collect(),
            forms,
            leader,
            now: stamp::parse("2026-01-01T00:05:00Z").unwrap(),
        };
        asked.explain().to_string()
    }

    fn status(forms: i32, conditions: Value) -> Value {
        json!({
            "observedGeneration": 2, "referencingTemplates": forms, "desired": 52, "ready": 49, "failed": 1,
            "skippedRows": 1, "conditions": conditions,
        })
    }

    fn form(reason: &str) -> Part {
        let waiting = json!([{
            "reason": reason, "count": 2, "nodes": ["a-web", "b-web"], "message": "the window is full", "next": "nothing",
        }]);
        let status = json!({
            "observedGeneration": 7, "conditions": [condition("RolloutComplete", "False", "InProgress", "it goes on")],
            "rollout": {
                "phase": "InProgress", "targetGeneration": 7, "totalNodes": 3, "updatedNodes": 1, "updatingNodes": 1,
                "readyUpdatedNodes": 0, "heldNodes": 2, "failedNodes": 0, "slots": 1, "window": 1, "waiting": waiting,
            },
        });
        let told = FormTold {
            name: "web",
            generation: 7,
            status: &serde_json::from_value(status).unwrap(),
        };
        overview::of_form(told, false, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_hub_is_told_with_its_forms() {
        let leads = Leader::Leads;
        let ready = condition("Ready", "True", "DatabaseConnected", "the rows were read");
        let skipped = condition("RowsSkipped", "True", "UnusableRows", "Row 7: no uid");
        let held = condition("DeletionsHeld", "True", "TooManyDeletions", "40 wait");
        let status = status(2, json!([ready, skipped, held]));
        let forms = vec![form("WindowFull")];
        let expected = "\
lynqhub shop/tenants
  state      the last read of the rows succeeded (syncInterval 30s); none has failed for 5m; 26 usable rows, 2 forms: 52 nodes wanted, 49 ready, 1 failed, 1 row skipped
  forced     no window applies: lynq.sh/force-rollout=true is on hub tenants; lynqgate force KIND NAME --off takes it off
  why        TooManyDeletions: 40 wait
  next       if that is intended: lynqgate confirm tenants
  why        UnusableRows: Row 7: no uid
  form web   progressing: WindowFull (2: a-web, b-web): the window is full
";
        assert_eq!(told(status, forms, &["hub tenants"], &leads), expected);
    }

    #[test]
    fn the_state_says_how_the_rows_are_read() {
        let leads = Leader::Leads;
        let state = |status: Value| {
            let told = told(status, vec![], &[], &leads);
            told.lines().nth(1).unwrap_or_default().to_owned()
        };
        let down = condition("Ready", "False", "DatabaseConnectionFailed", "no route");
        for (name, status, expected) in [
            (
                "nobody reports",
                json!({}),
                "the operator has not reported on it yet",
            ),
            (
                "the database is down",
                status(1, json!([down])),
                "the last read of the rows failed (syncInterval 30s); none has succeeded for 5m; 52 usable rows, 1 form: 52 nodes wanted, 49 ready, 1 failed, 1 row skipped",
            ),
            (
                "rows that share names",
                status(3, json!([down])),
                "the last read of the rows failed (syncInterval 30s); none has succeeded for 5m; 52 nodes wanted, 49 ready, 1 failed, 1 row skipped",
            ),
        ] {
            assert_eq!(state(status), format!("  state      {expected}"), "{name}");
        }
    }

    #[test]
    fn without_a_leader_that_is_the_first_problem() {
        let leader = Leader::Missing {
            lease: "lynq-system/f2130106.lynq.sh".to_owned(),
            since: None,
        };
        let ready = condition("Ready", "True", "DatabaseConnected", "the rows were read");
        let text = told(status(1, json!([ready])), vec![], &[], &leader);
        let why = text.lines().nth(2).unwrap_or_default();
        assert!(why.starts_with("  why        NoLeader: "), "{text}");
    }
}
