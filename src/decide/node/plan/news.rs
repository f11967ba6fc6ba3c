//! The events about a node's resources, worded as in Lynq if Lynq has the event.

use crate::api::events::EventReason;

/// A result that is worth an event and is not a failed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    Skipped {
        because: String,
        /// Whatever skipOnDependencyFailure says.
        always: bool,
    },
    Proceeded {
        despite: String,
    },
    TimedOut,
}

impl Trouble {
    /// The event's reason and text; `message` is why the resource is not ready.
    pub fn event(&self, id: &str, message: &str) -> (EventReason, String) {
        match self {
            Trouble::Skipped {
                because,
                always: true,
            } => (
                EventReason::DependencySkipped,
                format!(
                    "Resource '{id}' skipped because '{because}', which creates its namespace, failed; correct that resource, or the row's value \
                     in its name"
                ),
            ),
            Trouble::Skipped { because, .. } => (
                EventReason::DependencySkipped,
                format!(
                    "Resource '{id}' skipped because dependency '{because}' failed. Set skipOnDependencyFailure=false to create anyway."
                ),
            ),
            Trouble::Proceeded { despite } => (
                EventReason::DependencyFailedButProceeding,
                format!(
                    "Dependency '{despite}' failed, but creating resource '{id}' anyway (skipOnDependencyFailure=false)"
                ),
            ),
            Trouble::TimedOut => (
                EventReason::ReadinessTimeout,
                format!("Resource '{id}' {message}"),
            ),
        }
    }
}

/// The resources that an event names by their ids.
const NAMED_MAX: usize = 20;

/// The event once nothing is left to apply; a failed write has its own event.
pub fn applied(form: &str, done: &[&str], failed: &[&str]) -> (EventReason, String) {
    let told = format!("Applied {} of LynqForm '{form}'", counted(done));
    match failed.len() {
        0 => (EventReason::TemplateAppliedSuccess, told),
        _ => (
            EventReason::TemplateAppliedPartial,
            format!("{told}; failed: {}", listed(failed)),
        ),
    }
}

fn counted(ids: &[&str]) -> String {
    let noun = if ids.len() == 1 {
        "resource"
    } else {
        "resources"
    };
    format!("{} {noun} [{}]", ids.len(), listed(ids))
}

fn listed(ids: &[&str]) -> String {
    let shown = &ids[..ids.len().min(NAMED_MAX)];
    match ids.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_applied_is_named_and_what_failed() {
        let done = ["config"];
        let success = applied("web", &done, &[]);
        assert_eq!(
            success,
            (
                EventReason::TemplateAppliedSuccess,
                "Applied 1 resource [config] of LynqForm 'web'".to_owned()
            )
        );
        let many: Vec<String> = (0..22).map(|i| format!("r{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let (reason, text) = applied("web", &many, &["app"]);
        assert_eq!(reason, EventReason::TemplateAppliedPartial);
        assert!(text.starts_with("Applied 22 resources [r0, "), "{text}");
        assert!(
            text.ends_with("r19 and 2 more] of LynqForm 'web'; failed: app"),
            "{text}"
        );
    }
}
