//! The dashboard of the component `monitoring`: it asks only for metrics and labels that the documentation has, and explains each
//! panel. It reads text and runs no query.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::architecture::quoted;
use crate::tidy::root;

const DASHBOARD: &str = "kustomize/components/monitoring/dashboard.json";
const ALERTS: &str = "kustomize/components/monitoring/alerts.yaml";

/// The words of PromQL in the dashboard. Every other word of a query is a metric.
const WORDS: [&str; 13] = [
    "and",
    "count",
    "histogram_quantile",
    "increase",
    "max",
    "min",
    "offset",
    "or",
    "rate",
    "sum",
    "time",
    "topk",
    "vector",
];

/// Metrics, each with its labels.
type Documented = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_dashboard_asks_for_what_is_documented() -> Result<()> {
    let text = read(DASHBOARD)?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let problems = problems_of(&dashboard, &documented()?);
    ensure!(
        problems.is_empty(),
        "{DASHBOARD}:\n{}\n",
        problems.join("\n")
    );
    // A form that is stuck there is stuck for the alert.
    let alerts = read(ALERTS)?;
    let (_, from) = alerts.split_once("{reason=~\"").context("an alert")?;
    let (reasons, _) = from.split_once('"').context("the end of its reasons")?;
    ensure!(text.contains(reasons), "{DASHBOARD}: not {reasons}");
    Ok(())
}

#[test]
fn what_a_dashboard_has_wrong_is_found() {
    let labels = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    };
    let documented = Documented::from([
        ("held".to_owned(), labels(&["form", "reason"])),
        ("leads".to_owned(), labels(&[])),
        ("took_seconds".to_owned(), labels(&["form"])),
    ]);
    let panel = |id: u64, expr: &str| {
        let unit = json!({"defaults": {"unit": "s"}});
        json!({"id": id, "type": "stat", "title": "P", "description": "D", "fieldConfig": unit, "targets": [{"expr": expr}]})
    };
    let without = |field: &str| {
        let mut panel = panel(1, "leads");
        panel[field] = Value::Null;
        json!({"panels": [panel]})
    };
    let asks = |expr: &str| json!({"panels": [panel(1, expr)]});
    let of_variable = |query: &str| json!({"templating": {"list": [{"name": "v", "type": "query", "query": {"query": query}}]}});
    let row = |panels: Value| json!({"id": 9, "type": "row", "title": "R", "panels": panels});
    let quantile = r#"histogram_quantile(0.9, sum by (le, form) (rate(took_seconds_bucket{form=~"$form"}[5m] offset 15m)))"#;
    for (dashboard, found) in [
        (asks(r#"max by (form) (held{reason="leads, {x}"}) / 2"#), ""),
        (asks(r#"count(held{form="a"} > 0) or 0 * sum(leads)"#), ""),
        (asks(quantile), ""),
        (of_variable(r#"label_values(held{form="a"}, reason)"#), ""),
        (
            json!({"panels": [row(json!([panel(1, "leads")])), panel(2, "leads")]}),
            "",
        ),
        (without("title"), "\"\": no title"),
        (without("description"), "\"P\": no description"),
        (without("fieldConfig"), "\"P\": no unit"),
        (without("id"), "\"P\": no id"),
        (
            json!({"panels": [panel(1, "leads"), panel(1, "leads")]}),
            "\"P\": another panel has the id 1",
        ),
        (
            json!({"panels": [row(json!([panel(9, "leads")]))]}),
            "\"P\": another panel has the id 9",
        ),
        (asks(""), "\"P\": a query without a metric"),
        (asks("sum(up)"), "\"P\": no page has the metric up"),
        (
            asks("held_total"),
            "\"P\": no page has the metric held_total",
        ),
        (
            asks(r#"held{form="a", pod="b"}"#),
            "\"P\": held has no label pod",
        ),
        (
            asks(r#"held{form="a"} / leads{form="a"}"#),
            "\"P\": leads has no label form",
        ),
        (
            asks("sum by (le) (took_seconds_sum)"),
            "\"P\": nothing in the query has the label le",
        ),
        (
            of_variable("label_values(held, pod)"),
            "\"v\": nothing in the query has the label pod",
        ),
        (
            of_variable("query_result(held)"),
            "\"v\": not label_values(METRIC, LABEL): query_result(held)",
        ),
    ] {
        let problems = problems_of(&dashboard, &documented);
        let wanted: &[&str] = if found.is_empty() { &[] } else { &[found] };
        assert_eq!(problems, wanted, "{dashboard}");
    }
}

fn problems_of(dashboard: &Value, documented: &Documented) -> Vec<String> {
    let mut problems = vec![];
    let mut ids = BTreeSet::new();
    for panel in panels(dashboard) {
        let title = text(&panel["title"]);
        match panel["id"].as_u64() {
            Some(id) if ids.insert(id) => {}
            Some(id) => problems.push(format!("{title:?}: another panel has the id {id}")),
            None => problems.push(format!("{title:?}: no id")),
        }
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        let of_panel = [("description", &panel["description"]), ("unit", unit)];
        let of_panel = of_panel.into_iter().filter(|_| panel["type"] != "row");
        for (name, value) in [("title", &panel["title"])].into_iter().chain(of_panel) {
            if text(value).is_empty() {
                problems.push(format!("{title:?}: no {name}"));
            }
        }
        for target in list(&panel["targets"]) {
            let of_query = problems_in(text(&target["expr"]), documented);
            problems.extend(of_query.iter().map(|what| format!("{title:?}: {what}")));
        }
    }
    let variables = list(&dashboard["templating"]["list"]);
    for variable in variables.filter(|variable| variable["type"] == "query") {
        let name = text(&variable["name"]);
        let query = text(&variable["query"]["query"]);
        let of_query = match as_expression(query) {
            Some(expression) => problems_in(&expression, documented),
            None => vec![format!("not label_values(METRIC, LABEL): {query}")],
        };
        problems.extend(of_query.iter().map(|what| format!("{name:?}: {what}")));
    }
    problems
}

/// All panels, also those inside of a closed row.
fn panels(of: &Value) -> Vec<&Value> {
    list(&of["panels"])
        .flat_map(|panel| [vec![panel], panels(panel)].concat())
        .collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What a variable asks for, as PromQL.
fn as_expression(query: &str) -> Option<String> {
    let inside = query.strip_prefix("label_values(")?.strip_suffix(')')?;
    let (metric, label) = inside.rsplit_once(", ")?;
    Some(format!("max by ({label}) ({metric})"))
}

/// Metrics and labels of a query that no page has. The query writes lists of labels as ` by (` and ` on (`.
fn problems_in(query: &str, documented: &Documented) -> Vec<String> {
    let mut problems = vec![];
    let code: String = query.split('"').step_by(2).collect();
    let (code, _) = apart(&code, "[", ']');
    // Labels of the scrape are on every page.
    let (code, _) = apart(&code, " on (", ')');
    let (code, groups) = apart(&code, " by (", ')');
    let mut known = BTreeSet::new();
    let mut named = 0;
    for part in code.split('}') {
        let (before, matchers) = part.split_once('{').unwrap_or((part, ""));
        let metrics = words(before).filter(|word| !WORDS.contains(word));
        // The labels in braces are those of the last one.
        let mut last = ("", BTreeSet::new());
        for metric in metrics {
            named += 1;
            let labels = labels_of(metric, documented);
            if labels.is_none() {
                problems.push(format!("no page has the metric {metric}"));
            }
            last = (metric, labels.unwrap_or_default());
            known.extend(last.1.iter().cloned());
        }
        let (metric, labels) = last;
        for label in words(matchers).filter(|label| !labels.contains(*label)) {
            problems.push(format!("{metric} has no label {label}"));
        }
    }
    for label in groups.into_iter().flat_map(words) {
        if !known.contains(label) {
            problems.push(format!("nothing in the query has the label {label}"));
        }
    }
    if named == 0 {
        problems.push("a query without a metric".to_owned());
    }
    problems
}

/// The text without what stands between `open` and `close`, and that.
fn apart<'a>(text: &'a str, open: &str, close: char) -> (String, Vec<&'a str>) {
    let mut parts = text.split(open);
    let mut outside = parts.next().unwrap_or_default().to_owned();
    let mut inside = vec![];
    for part in parts {
        let (within, after) = part.split_once(close).unwrap_or((part, ""));
        inside.push(within);
        outside.push(' ');
        outside.push_str(after);
    }
    (outside, inside)
}

/// Names, but no numbers and times.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// A histogram has three metrics, and only its buckets have `le`.
fn labels_of(metric: &str, documented: &Documented) -> Option<BTreeSet<String>> {
    if let Some(labels) = documented.get(metric) {
        return Some(labels.clone());
    }
    if let Some(histogram) = metric.strip_suffix("_bucket") {
        let mut labels = documented.get(histogram)?.clone();
        labels.insert("le".to_owned());
        return Some(labels);
    }
    let histogram = metric.strip_suffix("_sum");
    let histogram = histogram.or_else(|| metric.strip_suffix("_count"))?;
    documented.get(histogram).cloned()
}

/// The metrics of docs/OPERATING.md, with the labels in the second column, and those of docs/LYNQ.md, with the labels in braces.
fn documented() -> Result<Documented> {
    let mut documented = Documented::new();
    let page = read("docs/OPERATING.md")?;
    for row in rows(&page, "\n## Metrics\n", "\n## ")? {
        let mut cells = row.split('|').skip(1);
        let names: Vec<&str> = cells.next().map(quoted).context("names")?.collect();
        let labels = cells.next().context("labels")?.split(',').map(str::trim);
        let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned);
        let labels: BTreeSet<String> = labels.collect();
        // `…_window_nodes` begins as the first name of its row does.
        let first = names.first().context("a row has a name")?;
        let area: Vec<&str> = first.split('_').take(2).collect();
        let area = area.join("_");
        for name in names {
            documented.insert(name.replace('…', &area), labels.clone());
        }
    }
    let page = read("docs/LYNQ.md")?;
    for row in rows(&page, "\n### Metrics\n", "\n### ")? {
        let cell = row.split('|').nth(1).context("names")?;
        for metric in quoted(cell) {
            let (name, labels) = metric.split_once('{').unwrap_or((metric, ""));
            let labels = labels.trim_end_matches('}').split(',');
            let labels = labels.filter(|label| !label.is_empty());
            documented.insert(name.to_owned(), labels.map(str::to_owned).collect());
        }
    }
    Ok(documented)
}

/// The rows of the table of metrics.
fn rows<'a>(page: &'a str, title: &str, next: &str) -> Result<Vec<&'a str>> {
    let (_, from) = page.split_once(title).context("a section of metrics")?;
    let section = from.split(next).next().unwrap_or_default();
    let rows: Vec<&str> = section.lines().filter(|l| l.starts_with("| `")).collect();
    ensure!(!rows.is_empty(), "no table after {title:?}");
    Ok(rows)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}
