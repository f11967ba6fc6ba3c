//! Checks a hub by its own fields: whether it can be synced.

use serde_json::Value;

use crate::api::hub::{HubSpec, SourceType, TlsMode};
use crate::api::names;
use crate::decide::admission::{Verdict, misspelled};
use crate::decide::hub::identifier::{MYSQL, POSTGRESQL, Table};
use crate::decide::hub::rows::Columns;
use crate::decide::hub::rows::guard::{self, ALWAYS_ALLOWED};

pub fn judge(old: Option<&Value>, new: &Value) -> Verdict {
    let mut verdict = Verdict {
        denied: None,
        warnings: misspelled(new),
    };
    let spec = &new["spec"];
    // An invalid stored hub may still lose a finalizer or get a label.
    if old.is_some_and(|old| old["spec"] == *spec) {
        return verdict;
    }
    verdict.denied = refusal(spec);
    let host_or_url = spec["valueMappings"]["hostOrUrl"].as_str();
    if host_or_url.is_some_and(|column| !column.is_empty()) {
        verdict.warnings.push(
            "valueMappings.hostOrUrl is deprecated; map the column in extraValueMappings, and use the function toHost"
                .to_owned(),
        );
    }
    verdict
}

/// In Lynq's words and order; then what only lynqgate has.
fn refusal(spec: &Value) -> Option<String> {
    let is_empty = |pointer: &str| {
        let text = spec.pointer(pointer).and_then(Value::as_str);
        text.is_none_or(str::is_empty)
    };
    for (pointer, field) in [
        ("/valueMappings/uid", "valueMappings.uid"),
        ("/valueMappings/activate", "valueMappings.activate"),
    ] {
        if is_empty(pointer) {
            return Some(format!("{field} is required"));
        }
    }
    let type_ = spec["source"]["type"].as_str().unwrap_or_default();
    if spec["source"][type_].is_null() {
        return Some(match type_ {
            "" => "source.type is required".to_owned(),
            _ => format!("{type_} configuration is required when source type is {type_}"),
        });
    }
    let needed: &[&str] = match type_ {
        "configMap" => &["name", "key"],
        _ => &["host", "username", "database", "table"],
    };
    if let Some(field) = needed
        .iter()
        .find(|field| is_empty(&format!("/source/{type_}/{field}")))
    {
        return Some(format!("{type_}.{field} is required"));
    }
    match serde_json::from_value::<HubSpec>(spec.clone()) {
        Ok(hub) => no_name(&hub)
            .or_else(|| Columns::of(&hub).err())
            .or_else(|| no_variable(&hub))
            .or_else(|| no_authority(&hub)),
        Err(error) => Some(format!("spec: {error}")),
    }
}

/// Names that no template can use, or that are overwritten.
fn no_variable(hub: &HubSpec) -> Option<String> {
    let mut wrong = hub.extra_value_mappings.keys().filter_map(|name| {
        let why = match name.as_str() {
            "hubId" => "templates have the name of the hub under it. Give the mapping another name",
            "templateRef" => "templates have the name of the form under it. Give the mapping another name",
            name if !is_identifier(name) => {
                "it is not the name of a template variable. Use letters, digits and underscores, and do not begin with a digit"
            }
            _ => return None,
        };
        Some(format!("extraValueMappings.{name}: {why}"))
    });
    wrong.next()
}

/// As Go's templates read a name after a dot.
fn is_identifier(name: &str) -> bool {
    let is_part = |character: char| character == '_' || character.is_alphanumeric();
    let begins = |first: char| first == '_' || first.is_alphabetic();
    name.starts_with(begins) && name.chars().all(is_part)
}

/// Whether a hub with these nodes may be deleted. Deleting it deletes the nodes, whatever finalizer it has. `options` of the
/// delete request.
pub fn judge_deletion(hub: &Value, options: &Value, nodes: &[String]) -> Verdict {
    let count = nodes.len() as u64;
    let confirmed = &hub["metadata"]["annotations"][names::CONFIRM_HUB_DELETION];
    let is_confirmed = confirmed.as_str().and_then(guard::count) == Some(count);
    let leaves_them = options["propagationPolicy"] == "Orphan";
    if count <= ALWAYS_ALLOWED || is_confirmed || leaves_them {
        return Verdict::default();
    }
    let text = |field: &str| hub["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let shown = nodes[..SHOWN_MAX].join(", ");
    let more = nodes.len() - SHOWN_MAX;
    let confirms = match confirmed.as_str() {
        Some(other) => format!(" {} says {other:?}.", names::CONFIRM_HUB_DELETION),
        None => String::new(),
    };
    Verdict {
        denied: Some(format!(
            "LynqHub {namespace}/{name}: its {count} nodes and their objects would be deleted with it: {shown} and {more} more.{confirms} \
             To delete them, run `kubectl annotate --overwrite lynqhub {name} -n {namespace} {}={count}`, and delete the hub again",
            names::CONFIRM_HUB_DELETION
        )),
        warnings: vec![],
    }
}

/// The most names in a rejection.
const SHOWN_MAX: usize = 3;

/// Anyone can get a certificate from a public authority: without checking the name, TLS would check nothing.
fn no_authority(hub: &HubSpec) -> Option<String> {
    let source = &hub.source;
    let (type_, tls) = match source.type_ {
        SourceType::Mysql => ("mysql", &source.mysql.as_ref()?.tls),
        SourceType::Postgresql => ("postgresql", &source.postgresql.as_ref()?.tls),
        SourceType::ConfigMap => return None,
    };
    let tls = tls.as_ref()?;
    (tls.mode == TlsMode::VerifyCa && tls.ca_ref.is_none()).then(|| {
        format!(
            "source.{type_}.tls.caRef is required when tls.mode is verifyCa; name the Secret with the authority's certificate"
        )
    })
}

/// Names that no table or column can have.
fn no_name(hub: &HubSpec) -> Option<String> {
    let source = &hub.source;
    let (type_, table, quoting) = match (&source.mysql, &source.postgresql) {
        (Some(mysql), _) if source.type_ == SourceType::Mysql => ("mysql", &mysql.table, &MYSQL),
        (_, Some(postgresql)) if source.type_ == SourceType::Postgresql => {
            ("postgresql", &postgresql.table, &POSTGRESQL)
        }
        _ => return None,
    };
    if let Err(error) = Table::parse(table, quoting) {
        return Some(format!("source.{type_}.table: {error}"));
    }
    let mappings = &hub.value_mappings;
    let fields = [
        ("uid", Some(mappings.uid.as_str())),
        ("activate", Some(mappings.activate.as_str())),
        ("hostOrUrl", mappings.host_or_url()),
    ];
    let fields = fields
        .into_iter()
        .filter_map(|(field, column)| Some((format!("valueMappings.{field}"), column?)));
    let extra = hub.extra_value_mappings.iter();
    let extra = extra.map(|(name, column)| (format!("extraValueMappings.{name}"), column.as_str()));
    let mut wrong = fields.chain(extra).filter_map(|(field, column)| {
        let error = quoting.column(column).err()?;
        Some(format!("{field}: {error}"))
    });
    wrong.next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hub(spec: Value) -> Value {
        json!({"metadata": {}, "spec": spec})
    }

    fn good() -> Value {
        json!({
            "source": {"type": "mysql", "mysql": {"host": "db", "username": "u", "database": "d", "table": "t"}},
            "valueMappings": {"uid": "id", "activate": "active"},
        })
    }

    #[test]
    fn what_is_missing_is_named_in_lynqs_words() {
        assert_eq!(judge(None, &hub(good())), Verdict::default());
        for (pointer, said) in [
            ("/valueMappings/uid", "valueMappings.uid is required"),
            (
                "/valueMappings/activate",
                "valueMappings.activate is required",
            ),
            (
                "/source/mysql",
                "mysql configuration is required when source type is mysql",
            ),
            ("/source/type", "source.type is required"),
            ("/source/mysql/host", "mysql.host is required"),
            ("/source/mysql/username", "mysql.username is required"),
            ("/source/mysql/database", "mysql.database is required"),
            ("/source/mysql/table", "mysql.table is required"),
        ] {
            let mut spec = good();
            *spec.pointer_mut(pointer).unwrap() = Value::Null;
            assert_eq!(judge(None, &hub(spec)).denied.as_deref(), Some(said));
        }
        let mut spec = good();
        spec["source"]["type"] = json!("configMap");
        let said = "configMap configuration is required when source type is configMap";
        assert_eq!(judge(None, &hub(spec)).denied.as_deref(), Some(said));
    }

    #[test]
    fn what_no_database_has_a_name_like_is_refused() {
        let long = "x".repeat(64);
        let cases = [
            (
                "/source/mysql/table",
                "crm.acme.tenants",
                Some(
                    "source.mysql.table: \"crm.acme.tenants\" cannot be the name of a table: \
                     write `table` or `database.table`",
                ),
            ),
            ("/source/mysql/table", "tenants WHERE id > 5", None),
            ("/valueMappings/uid", &long, None),
            (
                "/extraValueMappings/plan",
                "",
                Some("extraValueMappings.plan: \"\" cannot be the name of a column: it is empty"),
            ),
            ("/valueMappings/hostOrUrl", "", None),
        ];
        for (pointer, value, said) in cases {
            let mut spec = good();
            spec["extraValueMappings"] = json!({"plan": "plan"});
            spec["valueMappings"]["hostOrUrl"] = json!("url");
            *spec.pointer_mut(pointer).unwrap() = json!(value);
            let denied = judge(None, &hub(spec)).denied;
            assert_eq!(denied.as_deref(), said, "{pointer} {value:?}");
        }
        let mut spec = good();
        spec["source"] = json!({"type": "postgresql", "postgresql": spec["source"]["mysql"]});
        spec["valueMappings"]["uid"] = json!(long);
        let said = format!(
            "valueMappings.uid: {long:?} cannot be the name of a column: it has over 63 bytes; \
             put any SQL other than a name into a view"
        );
        assert_eq!(judge(None, &hub(spec)).denied, Some(said));
    }

    #[test]
    fn a_mapping_that_no_template_can_use_is_refused() {
        let denied = |name: &str| {
            let mut spec = good();
            spec["extraValueMappings"] = json!({"plan": "plan", name: "column"});
            judge(None, &hub(spec)).denied.unwrap_or_default()
        };
        for name in [
            "planId",
            "plan_id",
            "_",
            "p1",
            "Uid",
            "gr\u{f6}\u{df}e",
            "hubid",
        ] {
            assert_eq!(denied(name), "", "{name:?}");
        }
        for name in ["plan-id", "plan id", "1plan", "", "a.b", "{{", "a\u{a0}"] {
            let said =
                format!("extraValueMappings.{name}: it is not the name of a template variable");
            assert!(
                denied(name).starts_with(&said),
                "{name:?}: {}",
                denied(name)
            );
        }
        for (name, said) in [
            ("uid", "every row has a variable of this name"),
            ("activate", "every row has a variable of this name"),
            ("host", "every row has a variable of this name"),
            ("hostOrUrl", "every row has a variable of this name"),
            ("hubId", "templates have the name of the hub under it"),
            (
                "templateRef",
                "templates have the name of the form under it",
            ),
        ] {
            let said = format!("extraValueMappings.{name}: {said}");
            assert!(denied(name).starts_with(&said), "{}", denied(name));
        }
        let mut spec = good();
        spec["activeValues"] = json!(["Y", "off"]);
        let said = "\"off\" is in spec.activeValues and in the default of spec.inactiveValues. Set spec.inactiveValues without it";
        assert_eq!(judge(None, &hub(spec)).denied.as_deref(), Some(said));
    }

    #[test]
    fn a_hub_with_many_nodes_goes_once_their_count_is_confirmed() {
        let denied = |count: usize, confirmed: Value, options: Value| {
            let nodes: Vec<String> = (0..count).map(|n| format!("t{n}-web")).collect();
            let mut hub = json!({"metadata": {"namespace": "shop", "name": "tenants"}});
            hub["metadata"]["annotations"] = json!({"lynq.sh/confirm-hub-deletion": confirmed});
            judge_deletion(&hub, &options, &nodes).denied
        };
        let (none, plain) = (Value::Null, json!({"propagationPolicy": "Foreground"}));
        let end = "To delete them, run `kubectl annotate --overwrite lynqhub tenants -n shop lynq.sh/confirm-hub-deletion=41`, and delete \
                   the hub again";
        let begin = "LynqHub shop/tenants: its 41 nodes and their objects would be deleted with it: t0-web, t1-web, t2-web and 38 more.";
        assert_eq!(denied(0, none.clone(), plain.clone()), None);
        assert_eq!(denied(5, none.clone(), plain.clone()), None);
        assert!(denied(6, none.clone(), plain.clone()).is_some());
        assert_eq!(
            denied(41, none.clone(), plain.clone()),
            Some(format!("{begin} {end}"))
        );
        for other in ["40", "all", "+41", "41 ", ""] {
            let said = format!("{begin} lynq.sh/confirm-hub-deletion says {other:?}. {end}");
            assert_eq!(denied(41, json!(other), plain.clone()), Some(said));
        }
        assert_eq!(denied(41, json!("41"), plain), None);
        let orphans = json!({"propagationPolicy": "Orphan"});
        assert_eq!(denied(41, none, orphans), None, "they stay");
    }

    #[test]
    fn verify_ca_needs_an_authority() {
        let mut spec = good();
        spec["source"]["mysql"]["tls"] = json!({"mode": "verifyCa"});
        let denied = judge(None, &hub(spec.clone())).denied.unwrap();
        assert!(
            denied.starts_with("source.mysql.tls.caRef is required when tls.mode is verifyCa"),
            "{denied}"
        );
        spec["source"]["mysql"]["tls"]["caRef"] = json!({"name": "ca", "key": "ca.crt"});
        assert_eq!(judge(None, &hub(spec)).denied, None);
    }

    /// A stored hub may be changed outside its spec, even if the spec is invalid.
    #[test]
    fn what_is_stored_already_is_not_judged_again() {
        let bad = hub(json!({"source": {}}));
        assert_eq!(judge(Some(&bad), &bad).denied, None);
        assert!(judge(Some(&hub(good())), &bad).denied.is_some());
    }

    #[test]
    fn what_is_heeded_otherwise_than_meant_is_warned_of() {
        let mut hub = hub(good());
        hub["spec"]["valueMappings"]["hostOrUrl"] = json!("url");
        hub["metadata"]["annotations"] = json!({
            "lynq.sh/force-rollout": "yes", "lynq.sh/confirm-deletions": "all", "lynq.sh/resume": "yesterday",
            "lynq.sh/confirm-creations": "+5",
        });
        let warnings = judge(None, &hub).warnings;
        for said in [
            "\"yes\" forces nothing",
            "\"all\" is no number of deletions",
            "\"+5\" is no number of creations",
            "\"yesterday\" is no point in time",
            "hostOrUrl is deprecated",
        ] {
            assert!(
                warnings.iter().any(|w| w.contains(said)),
                "{said}: {warnings:?}"
            );
        }
    }
}
