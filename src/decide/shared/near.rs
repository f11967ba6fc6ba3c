//! The name that was meant, where a name is not known: the nearest of those that there are.

use strsim::damerau_levenshtein;

use crate::decide::child::Kind;

/// The known name that a misspelled one is near to; the first of equals.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase();
    // One letter in three: `nam` is near to `name`, and no name of two letters is near to any other.
    let far = name.chars().count() / 3 + 1;
    let distance = |other: &str| damerau_levenshtein(&folded, &other.to_lowercase());
    let near = known.into_iter().filter(|other| *other != name);
    let near = near.map(|other| (distance(other), other));
    near.filter(|(distance, other)| *distance < far && *distance < other.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// The same as the end of a message.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"))
}

/// The message for a kind that the cluster does not have. `named`: the kind as the message may show it; `known`: those that the
/// cluster has.
pub fn no_kind(named: &str, kind: &Kind, known: &[Kind]) -> String {
    format!("the cluster has no kind {named}{}", meant_kind(kind, known))
}

fn meant_kind(kind: &Kind, known: &[Kind]) -> String {
    let same = known.iter().find(|other| other.kind == kind.kind);
    let of_version = || known.iter().filter(|k| k.api_version == kind.api_version);
    let near = || {
        let name = nearest(&kind.kind, of_version().map(|other| other.kind.as_str()))
            .or_else(|| nearest(&kind.kind, known.iter().map(|other| other.kind.as_str())))?;
        of_version().chain(known).find(|other| other.kind == name)
    };
    match same.or_else(near) {
        Some(Kind { api_version, kind }) => {
            format!("; did you mean kind {kind} in {api_version}?")
        }
        None => "; install its CustomResourceDefinition first, or correct apiVersion and kind"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_was_meant_is_of_the_same_version_where_there_is_one() {
        let kind = |api_version: &str, kind: &str| Kind {
            api_version: api_version.into(),
            kind: kind.into(),
        };
        let known = [
            kind("example.com/v1", "Secret2"),
            kind("apps/v1", "Deployment"),
            kind("v1", "Secret"),
            kind("v1", "ConfigMap"),
        ];
        let meant = |api_version: &str, name: &str| meant_kind(&kind(api_version, name), &known);
        let secret = "; did you mean kind Secret in v1?";
        assert_eq!(meant("v1", "Secrets"), secret);
        assert_eq!(meant("core/v1", "Secret"), secret);
        let deployment = "; did you mean kind Deployment in apps/v1?";
        assert_eq!(meant("v1", "Deployment"), deployment);
        assert_eq!(meant("apps/v2", "Deploymnet"), deployment);
        let none = "; install its CustomResourceDefinition first, or correct apiVersion and kind";
        assert_eq!(meant("example.com/v1", "Bucket"), none);
    }

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        let known = ["containerPort", "name", "toHost", "Secret", "image", "id"];
        for (name, meant) in [
            ("containerPrt", Some("containerPort")),
            ("containerport", Some("containerPort")),
            ("tohost", Some("toHost")),
            ("Secrets", Some("Secret")),
            ("nmae", Some("name")),
            ("imgae", Some("image")),
            ("name", None),
            ("ix", None),
            ("replicas", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
        assert_eq!(did_you_mean("tohost", known), "; did you mean \"toHost\"?");
        assert_eq!(did_you_mean("x", known), "");
    }
}
