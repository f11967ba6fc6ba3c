//! Whether a row is active, by the word in its `activate` column. Never guesses: a word in neither list decides nothing.

use std::collections::BTreeSet;

use crate::api::hub::HubSpec;
use crate::decide::hub::rows::uid::trimmed;

/// Lynq's seven spellings, whatever their case.
const ACTIVE: [&str; 3] = ["1", "true", "yes"];
/// NULL counts as the empty word.
const INACTIVE: [&str; 7] = ["", "0", "false", "no", "off", "n", "f"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Active,
    Inactive,
    /// Its nodes are neither made nor deleted.
    Undecided,
}

/// The words that decide, trimmed and in lower case. No word is in both sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    active: BTreeSet<String>,
    inactive: BTreeSet<String>,
}

impl Default for Words {
    fn default() -> Self {
        Words {
            active: ACTIVE.map(str::to_owned).into(),
            inactive: INACTIVE.map(str::to_owned).into(),
        }
    }
}

impl Words {
    pub fn of(hub: &HubSpec) -> Result<Self, String> {
        let mut words = Words::default();
        for (own, words) in [
            (&hub.active_values, &mut words.active),
            (&hub.inactive_values, &mut words.inactive),
        ] {
            if !own.is_empty() {
                *words = own.iter().map(|word| folded(word)).collect();
            }
        }
        let Some(both) = words.active.intersection(&words.inactive).next() else {
            return Ok(words);
        };
        let (active, inactive) = ("spec.activeValues", "spec.inactiveValues");
        Err(match (&hub.active_values[..], &hub.inactive_values[..]) {
            ([], _) => format!(
                "{both:?} is in {inactive} and in the default of {active}. Set {active} without it"
            ),
            (_, []) => format!(
                "{both:?} is in {active} and in the default of {inactive}. Set {inactive} without it"
            ),
            _ => format!("{both:?} is in {active} and in {inactive}. Remove it from one of them"),
        })
    }

    pub fn judge(&self, value: &[u8]) -> Activity {
        let Ok(text) = std::str::from_utf8(value) else {
            return Activity::Undecided;
        };
        let word = folded(text);
        match () {
            () if self.active.contains(&word) => Activity::Active,
            () if self.inactive.contains(&word) => Activity::Inactive,
            () => Activity::Undecided,
        }
    }
}

fn folded(text: &str) -> String {
    trimmed(text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(active: &[&str], inactive: &[&str]) -> Result<Words, String> {
        let hub = serde_json::json!({
            "source": {"type": "configMap"}, "valueMappings": {"uid": "id", "activate": "on"},
            "activeValues": active, "inactiveValues": inactive,
        });
        Words::of(&serde_json::from_value(hub).expect("a hub"))
    }

    fn all_are(words: &Words, texts: &[&str], expected: Activity) {
        for text in texts {
            assert_eq!(words.judge(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_in_neither_list_decides_nothing() {
        let words = words(&[], &[]).expect("the defaults");
        assert_eq!(words, Words::default());
        let lynqs = ["1", "true", "TRUE", "True", "yes", "YES", "Yes"];
        all_are(&words, &lynqs, Activity::Active);
        let spelled = [
            "tRuE",
            "yEs",
            " 1",
            "1 ",
            "1\n",
            "\t1\0\0",
            "\u{a0}1\u{3000}",
        ];
        all_are(&words, &spelled, Activity::Active);
        let inactive = [
            "", " ", "\0", "0", "0 ", "false", "FALSE", "no", "No", "off", "N", "f", " F ",
        ];
        all_are(&words, &inactive, Activity::Inactive);
        let undecided = [
            "Y",
            "y",
            "t",
            "T",
            "on",
            "ON",
            "2",
            "-1",
            "01",
            "00",
            "1.0",
            "0.0",
            "1 1",
            "\u{ff11}",
            "\u{ff10}",
            "\u{feff}1",
            "\u{1}",
            "\"1\"",
            "null",
            "NULL",
            "none",
            "active",
            "suspended",
            "ye",
            "tru\u{435}",
        ];
        all_are(&words, &undecided, Activity::Undecided);
        assert_eq!(words.judge(b"1\xff"), Activity::Undecided);
    }

    #[test]
    fn lists_of_the_hub_replace_the_words() {
        let own = words(&["Active ", "trial"], &["suspended", ""]).expect("two lists");
        all_are(&own, &["active", " ACTIVE", "Trial"], Activity::Active);
        all_are(&own, &["Suspended", "", "  "], Activity::Inactive);
        all_are(&own, &["1", "true", "0", "no", "off"], Activity::Undecided);
        let one = words(&["Y"], &[]).expect("one list");
        all_are(&one, &["y"], Activity::Active);
        all_are(&one, &["0", "n", ""], Activity::Inactive);
        all_are(&one, &["1", "yes"], Activity::Undecided);
    }

    #[test]
    fn a_word_in_both_lists_is_refused() {
        for (active, inactive, said) in [
            (
                &["on", " Off"][..],
                &["OFF"][..],
                "\"off\" is in spec.activeValues and in spec.inactiveValues. Remove it from one of them",
            ),
            (
                &["n"],
                &[],
                "\"n\" is in spec.activeValues and in the default of spec.inactiveValues. Set spec.inactiveValues without it",
            ),
            (
                &[],
                &["1"],
                "\"1\" is in spec.inactiveValues and in the default of spec.activeValues. Set spec.activeValues without it",
            ),
        ] {
            assert_eq!(words(active, inactive), Err(said.to_owned()));
        }
    }
}
