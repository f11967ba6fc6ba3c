//! Adds a hint to an engine's error about an unknown name: what the template may have meant.

use std::collections::BTreeMap;

use crate::decide::shared::near::did_you_mean;
use crate::decide::template::functions::LIBRARY;

/// How many variables are listed where none is near.
const VARIABLES_SHOWN: usize = 8;

/// Adds where variables come from, which neither engine says. `message` must already be safe for every reader.
pub fn hinted(message: String, variables: &BTreeMap<String, String>) -> String {
    if let Some(name) = unknown_variable(&message).filter(|name| !variables.contains_key(*name)) {
        let known = || variables.keys().map(String::as_str);
        let near = did_you_mean(name, known());
        let known = match near.is_empty() {
            false => near,
            true => format!("; the variables are {}", listed(known())),
        };
        return format!("{message}; the hub's extraValueMappings have no such variable{known}");
    }
    match unknown_function(&message) {
        Some(name) => {
            let known = LIBRARY.functions().map(|function| function.name);
            let near = did_you_mean(name, known);
            format!("{message}{near}")
        }
        None => message,
    }
}

fn unknown_variable(message: &str) -> Option<&str> {
    const OF_GO: &str = "map has no entry for key \"";
    let of_go = message
        .rsplit_once(OF_GO)
        .and_then(|(_, rest)| rest.strip_suffix('"'))
        .filter(|name| message.contains(&format!("<.{name}")));
    let of_jinja = || {
        let (_, name) = message.rsplit_once("the row has no ")?;
        is_name(name).then_some(name)
    };
    of_go.or_else(of_jinja)
}

/// For Jinja templates; Go templates report this when they are parsed.
fn unknown_function(message: &str) -> Option<&str> {
    let name = message.strip_suffix(" is unknown")?;
    let (_, name) = name.rsplit_once(' ')?;
    is_name(name).then_some(name)
}

fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let shown = names.iter().take(VARIABLES_SHOWN).copied();
    let shown = Vec::from_iter(shown).join(", ");
    match names.len().saturating_sub(VARIABLES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nothing_has_gets_the_one_that_was_meant() {
        let names = ["plan", "uid", "hubId"];
        let variables = names.map(|name| (name.to_owned(), "x".to_owned()));
        let variables = BTreeMap::from(variables);
        let none = "; the hub's extraValueMappings have no such variable";
        for (message, more) in [
            (
                "at <.pln>: map has no entry for key \"pln\"",
                format!("{none}; did you mean \"plan\"?"),
            ),
            (
                "at <.region>: map has no entry for key \"region\"",
                format!("{none}; the variables are hubId, plan, uid"),
            ),
            (
                "at <index .x>: map has no entry for key \"y\"",
                String::new(),
            ),
            (
                "undefined value: the row has no plann",
                format!("{none}; did you mean \"plan\"?"),
            ),
            (
                "unknown filter: filter tohost is unknown",
                "; did you mean \"toHost\"?".to_owned(),
            ),
            ("unknown function: zzzz is unknown", String::new()),
            ("no such plan", String::new()),
        ] {
            let said = hinted(message.to_owned(), &variables);
            assert_eq!(said, format!("{message}{more}"));
        }
        let many = (0..11).map(|n| (format!("v{n:02}"), String::new()));
        let said = hinted(
            "at <.region>: map has no entry for key \"region\"".to_owned(),
            &many.collect(),
        );
        assert!(said.ends_with("v06, v07 and 3 more"), "{said}");
    }
}
