//! The verdict as people and programs read it. It chooses words and order, and judges nothing but the exit status.

use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;

use crate::core::finish::{Conclusion, WindowSeen};
use crate::core::{Episode, Finding, Note};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every promise that could be checked was kept.
    Held,
    Violated,
    /// Nothing wrong was found, but not everything was seen.
    Inconclusive,
}

impl Verdict {
    pub fn exit_status(self) -> u8 {
        match self {
            Verdict::Held => 0,
            Verdict::Violated => 1,
            Verdict::Inconclusive => 2,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub verdict: Verdict,
    pub source: String,
    pub first_revision: u64,
    pub last_revision: u64,
    pub from: Option<Timestamp>,
    pub to: Timestamp,
    /// Writes that were looked at.
    pub writes: u64,
    /// Objects and writes seen, by kind.
    pub seen: Vec<(&'static str, u64)>,
    pub nodes: usize,
    pub windows: Vec<Window>,
    /// By rule; rules without a violation are left out.
    pub violations_total: Vec<(&'static str, u64)>,
    pub violations: Vec<Finding>,
    pub notes: Vec<Note>,
    /// By rule, how long what may lag and must not last did last, at most; in milliseconds.
    pub longest_ms: Vec<(&'static str, i64)>,
    /// Why more cannot be concluded.
    pub doubts: Vec<String>,
    /// Kinds of child objects that were not followed.
    pub not_followed: Vec<String>,
    pub converged: bool,
    pub held: Vec<String>,
    pub unsettled: Vec<String>,
    pub slots: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    pub object: String,
    /// Nodes of it at the end.
    pub nodes: usize,
    /// In force at the end; null: none.
    pub max_skew: Option<usize>,
    /// Each change: the revision, and the window from then on.
    pub history: Vec<(u64, Option<usize>)>,
    pub peak: usize,
    pub peak_revision: u64,
    pub peak_non_ready: usize,
    /// Number in flight, and for how many milliseconds.
    pub in_flight_ms: Vec<(usize, i64)>,
    pub non_ready_ms: Vec<(usize, i64)>,
    /// How long more were in flight than the window is wide, because it was narrowed.
    pub draining_ms: i64,
    pub released: u64,
    pub repaired: u64,
    pub ungated: u64,
    pub forced: u64,
    pub taken_over: u64,
    pub in_flight_now: usize,
    pub aside_now: usize,
    pub rollouts: Vec<Episode>,
}

impl Report {
    pub fn new(source: String, conclusion: Conclusion) -> Report {
        let verdict = match (conclusion.counts.is_empty(), conclusion.doubts.is_empty()) {
            (false, _) => Verdict::Violated,
            (true, true) => Verdict::Held,
            (true, false) => Verdict::Inconclusive,
        };
        let end = conclusion.end;
        Report {
            verdict,
            source,
            first_revision: conclusion.first.map_or(0, |(revision, _)| revision),
            last_revision: conclusion.last.0,
            from: conclusion.first.map(|(_, at)| at),
            to: conclusion.last.1,
            writes: conclusion.changes,
            seen: conclusion
                .seen
                .iter()
                .map(|(kind, count)| (kind.name(), *count))
                .collect(),
            nodes: conclusion.nodes,
            windows: conclusion.windows.into_iter().map(Window::of).collect(),
            violations_total: conclusion
                .counts
                .iter()
                .map(|(rule, count)| (rule.name(), *count))
                .collect(),
            violations: conclusion.violations,
            notes: conclusion.notes,
            longest_ms: conclusion
                .longest
                .iter()
                .map(|(rule, ms)| (rule.name(), *ms))
                .collect(),
            doubts: conclusion.doubts,
            not_followed: conclusion.unfollowed,
            converged: end.converged(),
            held: end.held,
            unsettled: end.unsettled,
            slots: end.slots,
        }
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).unwrap_or_default();
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let from = self.from.map_or("-".to_owned(), |at| format!("{at:.0}"));
        let to = &self.to;
        writeln!(out, "followed   {}", self.source)?;
        let (first, last) = (self.first_revision, self.last_revision);
        writeln!(
            out,
            "revisions  {first} to {last}, {from} to {to:.0}; {} writes",
            self.writes
        )?;
        let seen: Vec<String> = self
            .seen
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        writeln!(out, "seen       {}", seen.join(", "))?;
        if !self.not_followed.is_empty() {
            writeln!(out, "not judged {}", self.not_followed.join(", "))?;
        }
        if !self.longest_ms.is_empty() {
            let each = self.longest_ms.iter();
            let each: Vec<String> = each
                .map(|(rule, ms)| format!("{rule} {}", seconds(*ms)))
                .collect();
            writeln!(out, "lagged     at most: {}", each.join(", "))?;
        }
        for window in &self.windows {
            window.write(out)?;
        }
        list(
            out,
            "notes",
            self.notes
                .iter()
                .map(|n| format!("{} times: {} (first: {})", n.count, n.what, n.example)),
        )?;
        let state = if self.converged {
            "converged"
        } else {
            "not converged"
        };
        writeln!(out, "\nat the end: {} nodes, {state}", self.nodes)?;
        for (what, lines) in [
            ("held", &self.held),
            ("not settled", &self.unsettled),
            ("slots", &self.slots),
        ] {
            if !lines.is_empty() {
                writeln!(out, "  {}: {what}", lines.len())?;
                lines
                    .iter()
                    .take(10)
                    .try_for_each(|line| writeln!(out, "    {line}"))?;
            }
        }
        for violation in &self.violations {
            let Finding {
                rule,
                revision,
                at,
                object,
                what,
                evidence,
            } = violation;
            writeln!(
                out,
                "\nVIOLATION {} at revision {revision} ({at:.3})\n  {object}: {what}",
                rule.name()
            )?;
            evidence
                .iter()
                .try_for_each(|line| writeln!(out, "    {line}"))?;
        }
        list(out, "cannot be concluded", self.doubts.iter().cloned())?;
        let total: u64 = self.violations_total.iter().map(|(_, count)| count).sum();
        let kinds: Vec<String> = self
            .violations_total
            .iter()
            .map(|(rule, count)| format!("{count} {rule}"))
            .collect();
        match self.verdict {
            Verdict::Held => writeln!(out, "\nHELD: 0 violations"),
            Verdict::Violated => {
                writeln!(out, "\nVIOLATED: {total} violations ({})", kinds.join(", "))
            }
            Verdict::Inconclusive => {
                writeln!(out, "\nINCONCLUSIVE: 0 violations in what could be seen")
            }
        }
    }
}

impl Window {
    fn of(seen: WindowSeen) -> Window {
        let times = seen.times;
        Window {
            object: seen.key.to_string(),
            nodes: seen.nodes,
            max_skew: seen.width,
            history: seen.widths,
            peak: times.peak,
            peak_revision: times.peak_at,
            peak_non_ready: times.peak_non_ready,
            in_flight_ms: times.in_flight.into_iter().collect(),
            non_ready_ms: times.non_ready.into_iter().collect(),
            draining_ms: times.draining_ms,
            released: times.released,
            repaired: times.repaired,
            ungated: times.ungated,
            forced: times.forced,
            taken_over: times.taken_over,
            in_flight_now: seen.in_flight_now,
            aside_now: seen.aside_now,
            rollouts: seen.episodes,
        }
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let shown =
            |width: &Option<usize>| width.map_or("none".to_owned(), |width| width.to_string());
        writeln!(
            out,
            "\n{}: {} nodes, window {}",
            self.object,
            self.nodes,
            shown(&self.max_skew)
        )?;
        if self.history.len() > 1 {
            let skip = self.history.len().saturating_sub(10);
            let changes: Vec<String> = self.history[skip..]
                .iter()
                .map(|(revision, width)| format!("{} @{revision}", shown(width)))
                .collect();
            writeln!(out, "  windows: {}", changes.join(", "))?;
        }
        writeln!(
            out,
            "  released {}, repairs {}, ungated {}, forced {}, taken over {}",
            self.released, self.repaired, self.ungated, self.forced, self.taken_over
        )?;
        writeln!(
            out,
            "  released and not settled since: at most {} (revision {}); non-ready for any reason: at most {}",
            self.peak, self.peak_revision, self.peak_non_ready
        )?;
        if self.aside_now > 0 {
            writeln!(
                out,
                "  released by force or ungated and not settled at the end: {}",
                self.aside_now
            )?;
        }
        if self.draining_ms > 0 {
            writeln!(
                out,
                "  above the window in force: {} (one that was narrowed may drain)",
                seconds(self.draining_ms)
            )?;
        }
        histogram(out, &self.in_flight_ms)?;
        for rollout in &self.rollouts {
            let window = shown(&rollout.window);
            write!(
                out,
                "  rollout: {} releases, window {window}, {:.1} s",
                rollout.releases, rollout.seconds
            )?;
            match rollout.ideal_seconds {
                Some(ideal) if ideal > 0.0 => writeln!(
                    out,
                    ", {:.2} times the ideal {ideal:.1} s",
                    rollout.seconds / ideal
                )?,
                _ => writeln!(out)?,
            }
        }
        Ok(())
    }
}

/// Columns of the longest bar.
const BAR: i64 = 40;
const LINES_MAX: usize = 24;

/// How long how many were in flight. Many different counts are put together in steps.
fn histogram(out: &mut String, times: &[(usize, i64)]) -> std::fmt::Result {
    let total: i64 = times.iter().map(|(_, ms)| ms).sum();
    let most = times.last().map_or(0, |(count, _)| *count);
    if total == 0 || most == 0 {
        return Ok(());
    }
    let step = most.div_ceil(LINES_MAX).max(1);
    writeln!(out, "  in flight, for how long")?;
    let mut from = 0;
    while from <= most {
        let upto = if from == 0 { 0 } else { from + step - 1 };
        let ms: i64 = times
            .iter()
            .filter(|(count, _)| (from..=upto).contains(count))
            .map(|(_, ms)| ms)
            .sum();
        let label = if upto > from {
            format!("{from}-{upto}")
        } else {
            from.to_string()
        };
        let bar = "#".repeat((ms * BAR / total).max(i64::from(ms > 0)) as usize);
        let share = ms as f64 * 100.0 / total as f64;
        writeln!(out, "  {label:>9} {:>10} {share:>5.1} % {bar}", seconds(ms))?;
        from = upto + 1;
    }
    Ok(())
}

fn seconds(ms: i64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}

fn list(out: &mut String, title: &str, lines: impl Iterator<Item = String>) -> std::fmt::Result {
    for (at, line) in lines.enumerate() {
        if at == 0 {
            writeln!(out, "\n{title}")?;
        }
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
