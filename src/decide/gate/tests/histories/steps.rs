//! What may happen to a node: writes by anybody, and states that did not come about through the gate. Says nothing of
//! what must come of them.

use proptest::prelude::*;

use crate::api::resource::{ARRAYS, DEFAULTS};
use crate::decide::gate::tests::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Empty,
    A,
    B,
    AandB,
}

/// Ways to write the same content.
#[derive(Clone, Copy, Debug)]
pub enum Spelling {
    Plain,
    /// With every default, and with fields and arrays that are empty.
    Filled,
    /// The resources in another order, spread with nulls.
    Shuffled,
}

impl Content {
    /// By its images, so that no hash is involved.
    pub fn of(spec: &Value) -> Content {
        let resources = ARRAYS
            .iter()
            .flat_map(|array| spec[*array].as_array())
            .flatten();
        let mut images: Vec<&str> = resources
            .flat_map(|r| r["spec"]["image"].as_str())
            .collect();
        images.sort_unstable();
        match images[..] {
            [] => Content::Empty,
            ["a"] => Content::A,
            ["b"] => Content::B,
            ["a", "b"] => Content::AandB,
            _ => panic!("no test writes such content: {spec}"),
        }
    }

    pub fn hash(self) -> Hash {
        let mut spec = json!({});
        self.write(&mut spec, Spelling::Plain);
        content::hash(Some(&spec))
    }

    /// Puts it in the place of the content that is there.
    pub fn write(self, spec: &mut Value, spelling: Spelling) {
        let fields = spec.as_object_mut().expect("a spec");
        fields.retain(|name, _| !ARRAYS.contains(&name.as_str()));
        let images: &[&str] = match self {
            Content::Empty => &[],
            Content::A => &["a"],
            Content::B => &["b"],
            Content::AandB => &["a", "b"],
        };
        let mut resources: Vec<Value> = images
            .iter()
            .map(
                |image| json!({"id": format!("app-{image}"), "spec": {"image": image, "args": []}}),
            )
            .collect();
        match spelling {
            Spelling::Plain => {}
            Spelling::Filled => {
                for resource in &mut resources {
                    for (field, default) in DEFAULTS {
                        resource[field] = default();
                    }
                    resource["nameTemplate"] = json!("");
                    resource["dependIds"] = json!([]);
                }
                fields.insert("jobs".to_owned(), json!([]));
            }
            Spelling::Shuffled => {
                resources.reverse();
                fields.insert("secrets".to_owned(), Value::Null);
            }
        }
        if !resources.is_empty() {
            fields.insert("deployments".to_owned(), json!(resources));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Operator,
    Alice,
    /// Another controller.
    Robot,
}

impl User {
    pub fn name(self) -> &'static str {
        match self {
            User::Operator => OPERATOR,
            User::Alice => USER,
            User::Robot => "system:serviceaccount:other:controller",
        }
    }
}

/// Which content a marker names.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// The content that this very write leaves.
    Written,
    /// What the annotation of the stored object says.
    AsStored,
    Other(Content),
    Nonsense,
}

#[derive(Clone, Copy, Debug)]
pub enum Version {
    Stored,
    Older,
    Absent,
}

/// One of several changes in one write.
#[derive(Clone, Debug)]
pub enum Change {
    Content(Content, Spelling),
    Label(u8),
    Release(Named, Version),
    Ungated(Named, Version),
    /// `lynq.sh/force-rollout`.
    Force(Option<&'static str>),
    /// As by a hub, which says of each content that it has rendered it.
    Rendered(Named),
    /// As by a client that does not know them.
    DropAnnotations,
    DropReleased,
    Forge(&'static str, &'static str),
    ForgeReleased(Content),
}

#[derive(Clone, Debug)]
pub enum Step {
    Write(User, Vec<Change>),
    /// Deleted, and made anew: perhaps from a copy of what it was.
    Recreate {
        by: User,
        from_copy: bool,
        changes: Vec<Change>,
    },
    /// Stored without the gate's having seen it.
    Past(Past),
}

#[derive(Clone, Copy, Debug)]
pub enum Past {
    /// As Lynq leaves a node: it replaces the annotations, and its CRD has no `released`.
    Lynq,
    Status,
    ReleasedPruned,
    Content(Content),
    Released(Content),
    LiveHash(Content),
    /// An operator whose hashes are of another version has seen the node.
    OtherVersion,
}

/// The annotations by which the gate keeps its state, markers aside.
pub const STATE: [&str; 5] = [
    names::DESIRED_HASH,
    names::LIVE_HASH,
    names::START_TIME,
    names::HELD_SINCE,
    names::HELD_BY,
];

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (user(), changes()).prop_map(|(user, changes)| Step::Write(user, changes)),
        1 => (user(), any::<bool>(), changes()).prop_map(|(by, from_copy, changes)| Step::Recreate { by, from_copy, changes }),
        3 => past().prop_map(Step::Past),
    ];
    prop::collection::vec(step, 1..12)
}

pub fn content() -> impl Strategy<Value = Content> {
    prop::sample::select(vec![Content::A, Content::B, Content::AandB, Content::Empty])
}

fn user() -> impl Strategy<Value = User> {
    prop::sample::select(vec![User::Operator, User::Alice, User::Robot])
}

fn past() -> impl Strategy<Value = Past> {
    prop_oneof![
        Just(Past::Lynq),
        Just(Past::Status),
        Just(Past::ReleasedPruned),
        content().prop_map(Past::Content),
        content().prop_map(Past::Released),
        content().prop_map(Past::LiveHash),
        Just(Past::OtherVersion),
    ]
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop_oneof![
        3 => change().prop_map(|change| vec![change]),
        2 => prop::collection::vec(change(), 2..4),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let spelling =
        prop::sample::select(vec![Spelling::Plain, Spelling::Filled, Spelling::Shuffled]);
    let version = || {
        prop_oneof![
            6 => Just(Version::Stored),
            1 => Just(Version::Older),
            1 => Just(Version::Absent),
        ]
    };
    let force = prop::sample::select(vec![None, None, Some("true"), Some("yes")]);
    let field = prop::sample::select(STATE.to_vec());
    let value = prop::sample::select(vec![
        "none",
        "unknown",
        "2020-01-01T00:00:00.000Z",
        "1:00000000000000000000000000000000",
        "7:00000000000000000000000000000000",
        "",
    ]);
    prop_oneof![
        5 => (content(), spelling).prop_map(|(content, spelling)| Change::Content(content, spelling)),
        1 => any::<u8>().prop_map(Change::Label),
        5 => (named(), version()).prop_map(|(named, version)| Change::Release(named, version)),
        2 => (named(), version()).prop_map(|(named, version)| Change::Ungated(named, version)),
        1 => force.prop_map(Change::Force),
        2 => named().prop_map(Change::Rendered),
        1 => Just(Change::DropAnnotations),
        1 => Just(Change::DropReleased),
        1 => (field, value).prop_map(|(field, value)| Change::Forge(field, value)),
        1 => content().prop_map(Change::ForgeReleased),
    ]
}

fn named() -> impl Strategy<Value = Named> {
    prop_oneof![
        4 => Just(Named::Written),
        3 => Just(Named::AsStored),
        1 => content().prop_map(Named::Other),
        1 => Just(Named::Nonsense),
    ]
}

/// The object as the client sends it. Markers come last, for they name what is written beside them.
pub fn written(base: &Value, stored: Option<&Value>, changes: &[Change]) -> Value {
    let mut new = base.clone();
    let (markers, rest): (Vec<_>, Vec<_>) = changes.iter().partition(|change| {
        matches!(
            change,
            Change::Release(..) | Change::Ungated { .. } | Change::Rendered(_)
        )
    });
    for change in rest {
        match change {
            Change::Content(content, spelling) => content.write(&mut new["spec"], *spelling),
            Change::Label(value) => new["metadata"]["labels"] = json!({"l": value.to_string()}),
            Change::Force(value) => new = with(&annotated(new), names::FORCE_ROLLOUT, *value),
            Change::DropAnnotations => drop(fields(&mut new["metadata"]).remove("annotations")),
            Change::DropReleased => drop(fields(&mut new["spec"]).remove("released")),
            Change::Forge(field, value) => new = with(&annotated(new), field, Some(value)),
            Change::ForgeReleased(content) => new["spec"]["released"] = released(*content),
            Change::Release(..) | Change::Ungated { .. } | Change::Rendered(_) => {
                unreachable!("markers come last")
            }
        }
    }
    for marker in markers {
        let name = |named: &Named| match named {
            Named::Written => Content::of(&new["spec"]).hash().to_string(),
            Named::AsStored => stored
                .and_then(|stored| annotation(stored, names::DESIRED_HASH))
                .unwrap_or("none")
                .to_owned(),
            Named::Other(content) => content.hash().to_string(),
            Named::Nonsense => "a/b/c".to_owned(),
        };
        let of_stored = stored.map_or(7, version_of);
        let written = |version: &Version| match version {
            Version::Stored => format!("/{of_stored}"),
            Version::Older => format!("/{}", of_stored - 1),
            Version::Absent => String::new(),
        };
        let (marker, value) = match marker {
            Change::Release(named, version) => (names::RELEASE, name(named) + &written(version)),
            Change::Ungated(named, version) => (names::UNGATED, name(named) + &written(version)),
            Change::Rendered(named) => (names::RENDERED_HASH, name(named) + "/row"),
            _ => unreachable!("only markers are left"),
        };
        new = with(&annotated(new), marker, Some(&value));
    }
    new
}

/// What is stored after something went past the gate.
pub fn past_the_gate(stored: &Value, past: Past) -> Value {
    let mut object = annotated(stored.clone());
    match past {
        Past::Lynq => {
            object["metadata"]["annotations"] =
                json!({"lynq.sh/rollout-update-start": "2025-01-01T00:00:00Z"});
            fields(&mut object["spec"]).remove("released");
        }
        Past::Status => object["status"] = json!({"readyResources": 1}),
        Past::ReleasedPruned => drop(fields(&mut object["spec"]).remove("released")),
        Past::Content(content) => content.write(&mut object["spec"], Spelling::Plain),
        Past::Released(content) => object["spec"]["released"] = released(content),
        Past::LiveHash(content) => {
            object = with(&object, names::LIVE_HASH, Some(content.hash().as_str()));
        }
        Past::OtherVersion => {
            for name in [names::DESIRED_HASH, names::LIVE_HASH] {
                // Another algorithm gives other digits; equal contents have equal ones.
                let hash = annotation(&object, name).and_then(|text| text.strip_prefix("1:"));
                if let Some(digits) = hash {
                    let other = format!("7:{}", digits.chars().rev().collect::<String>());
                    object = with(&object, name, Some(&other));
                }
            }
        }
    }
    object
}

pub fn version_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version
        .and_then(|text| text.parse().ok())
        .expect("a version")
}

/// `spec.released` with this content.
pub fn released(content: Content) -> Value {
    let mut spec = json!({});
    content.write(&mut spec, Spelling::Plain);
    spec
}

pub fn annotated(mut object: Value) -> Value {
    if object["metadata"]["annotations"].is_null() {
        object["metadata"]["annotations"] = json!({});
    }
    object
}

pub fn fields(value: &mut Value) -> &mut serde_json::Map<String, Value> {
    value.as_object_mut().expect("an object")
}
