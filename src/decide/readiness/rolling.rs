//! The bounds of a Deployment's rolling update: how many pods may be unavailable and how many extra, resolved as the Deployment
//! controller does. It knows nothing of the current pods except the one number that it gets.
//!
//! The rules are those of `ResolveFenceposts` and `MaxUnavailable` in Kubernetes'
//! pkg/controller/deployment/util/deployment_util.go.

use std::fmt;

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Pods above `replicas` that may exist during the update.
    pub max_surge: u32,
    /// Pods below `replicas` that need not be available.
    pub max_unavailable: u32,
}

/// The minimum-availability inequality, `available + may_be_missing >= replicas`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Availability {
    pub available: u32,
    pub replicas: u32,
    pub may_be_missing: u32,
}

impl Availability {
    /// While this is false the Deployment controller stops no old pod that is available.
    pub fn is_met(self) -> bool {
        u64::from(self.available) + u64::from(self.may_be_missing) >= u64::from(self.replicas)
    }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            available,
            replicas,
            may_be_missing,
        } = self;
        write!(f, "{available} of {replicas} wanted pods available")?;
        match may_be_missing {
            0 => Ok(()),
            n => write!(f, " (maxUnavailable {n})"),
        }
    }
}

/// The bounds of a Deployment's `spec.strategy` (null where it is absent).
pub fn bounds(strategy: &Value, replicas: u32) -> Bounds {
    const NONE: Bounds = Bounds {
        max_surge: 0,
        max_unavailable: 0,
    };
    let kind = strategy
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("RollingUpdate");
    if kind != "RollingUpdate" || replicas == 0 {
        return NONE;
    }
    let field = |name: &str| {
        strategy
            .get("rollingUpdate")
            .and_then(|rolling| rolling.get(name))
    };
    let surge = resolve(field("maxSurge"), replicas, Rounding::Up);
    let unavailable = resolve(field("maxUnavailable"), replicas, Rounding::Down);
    match (surge, unavailable) {
        // A percentage of a few pods rounds down to nothing; with no surge either, nothing could move.
        (Some(0), Some(0)) => Bounds {
            max_surge: 0,
            max_unavailable: 1,
        },
        (Some(max_surge), Some(unavailable)) => Bounds {
            max_surge,
            max_unavailable: unavailable.min(replicas),
        },
        // The controller, too, takes both as 0 when it cannot read one of them.
        _ => NONE,
    }
}

#[derive(Clone, Copy)]
enum Rounding {
    Up,
    Down,
}

/// A number of pods, from a number or a percentage of `replicas`; defaults to 25 % as in the API.
fn resolve(field: Option<&Value>, replicas: u32, rounding: Rounding) -> Option<u32> {
    let percent = match field {
        None | Some(Value::Null) => 25,
        Some(Value::String(text)) => text.strip_suffix('%')?.parse::<u32>().ok()?,
        Some(number) => return u32::try_from(number.as_u64()?).ok(),
    };
    let hundredths = u64::from(percent) * u64::from(replicas);
    let pods = match rounding {
        Rounding::Up => hundredths.div_ceil(100),
        Rounding::Down => hundredths / 100,
    };
    u32::try_from(pods).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bounds_are_those_of_the_deployment_controller() {
        let rolling = |surge: Value, unavailable: Value| json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        // (case, strategy, replicas, max_surge, max_unavailable)
        let cases = [
            (
                "ints are taken as they are",
                rolling(json!(2), json!(1)),
                5,
                2,
                1,
            ),
            (
                "surge rounds up, unavailable down",
                rolling(json!("25%"), json!("25%")),
                5,
                2,
                1,
            ),
            (
                "no rounding where it divides",
                rolling(json!("25%"), json!("25%")),
                8,
                2,
                2,
            ),
            (
                "one pod of a quarter each",
                rolling(json!("25%"), json!("25%")),
                1,
                1,
                0,
            ),
            (
                "both zero: one may be missing",
                rolling(json!(0), json!("10%")),
                5,
                0,
                1,
            ),
            (
                "both zero as percentages",
                rolling(json!("0%"), json!("0%")),
                5,
                0,
                1,
            ),
            (
                "zero unavailable stays zero with surge",
                rolling(json!(1), json!(0)),
                5,
                1,
                0,
            ),
            ("at most all replicas", rolling(json!(0), json!(9)), 3, 0, 3),
            (
                "surge may exceed the replicas",
                rolling(json!("300%"), json!("100%")),
                3,
                9,
                3,
            ),
            (
                "no replicas, no bounds",
                rolling(json!(1), json!(1)),
                0,
                0,
                0,
            ),
            ("the API's defaults", Value::Null, 10, 3, 2),
            (
                "the API's default for one of the two",
                json!({"rollingUpdate": {"maxSurge": 0}}),
                10,
                0,
                2,
            ),
            (
                "null is absent",
                rolling(Value::Null, Value::Null),
                10,
                3,
                2,
            ),
            ("Recreate has none", json!({"type": "Recreate"}), 5, 0, 0),
            (
                "an unreadable percentage",
                rolling(json!("abc%"), json!("25%")),
                5,
                0,
                0,
            ),
            ("a number as text", rolling(json!("2"), json!(1)), 5, 0, 0),
            ("a negative number", rolling(json!(1), json!(-1)), 5, 0, 0),
            ("a fraction", rolling(json!(1.5), json!(1)), 5, 0, 0),
            (
                "more than can be counted",
                rolling(json!("4000000000%"), json!(1)),
                4_000_000_000,
                0,
                0,
            ),
        ];
        for (case, strategy, replicas, max_surge, max_unavailable) in cases {
            assert_eq!(
                bounds(&strategy, replicas),
                Bounds {
                    max_surge,
                    max_unavailable
                },
                "{case}"
            );
        }
    }

    #[test]
    fn availability_allows_exactly_as_many_as_may_be_missing() {
        // (available, replicas, may be missing, met)
        let cases = [
            (5, 5, 0, true),
            (4, 5, 0, false),
            (4, 5, 1, true),
            (3, 5, 1, false),
            (0, 3, 3, true),
            (7, 5, 0, true),
        ];
        for (available, replicas, may_be_missing, met) in cases {
            let availability = Availability {
                available,
                replicas,
                may_be_missing,
            };
            assert_eq!(availability.is_met(), met, "{availability}");
        }
    }
}
