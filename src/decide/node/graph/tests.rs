//! The dependency graph, case by case. A graph is written as words: `b:a,c` is b that depends on a and c;
//! `!` behind the id is `skipOnDependencyFailure: false`, `~` is `waitForReady: false`.

use proptest::prelude::*;

use super::*;

struct Owned {
    id: String,
    depend_ids: Vec<String>,
    skip: bool,
    wait: bool,
}

fn parse(text: &str) -> Vec<Owned> {
    let owned = |word: &str| {
        let (head, on) = word.split_once(':').unwrap_or((word, ""));
        Owned {
            id: head.trim_end_matches(['!', '~']).to_owned(),
            depend_ids: on.split_terminator(',').map(str::to_owned).collect(),
            skip: !head.contains('!'),
            wait: !head.contains('~'),
        }
    };
    text.split_whitespace().map(owned).collect()
}

fn vertices(owned: &[Owned]) -> Vec<Vertex<'_>> {
    fn vertex(owned: &Owned) -> Vertex<'_> {
        Vertex {
            id: &owned.id,
            depend_ids: &owned.depend_ids,
            namespace_from: "",
            skip_on_dependency_failure: owned.skip,
            wait_for_ready: owned.wait,
        }
    }
    owned.iter().map(vertex).collect()
}

fn state(letter: char) -> State {
    match letter {
        '-' => State::NotApplied,
        'x' => State::ApplyFailed,
        'w' => State::Waiting,
        'r' => State::Ready,
        'f' => State::Failed,
        other => panic!("no state is written {other}"),
    }
}

fn shown_step(step: &Step<'_>) -> String {
    match step {
        Step::Apply => "apply".to_owned(),
        Step::Proceed { despite } => format!("proceed({despite})"),
        Step::Blocked { on } => format!("blocked({on})"),
        Step::Skip { because } => format!("skip({because})"),
    }
}

/// The rows of a table, with their cells.
fn rows<const N: usize>(table: &str) -> Vec<[&str; N]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            cells
                .try_into()
                .unwrap_or_else(|_| panic!("not {N} cells: {line}"))
        })
        .collect()
}

#[test]
fn steps_follow_from_the_states() {
    // case | graph | a state for each: - not applied, x apply failed, w waiting, r ready, f failed | steps
    let cases = "
        an empty graph                           |                 |      |
        independent resources go at once         | a b c           | ---  | apply apply apply
        a dependency that is not applied blocks  | a b:a           | --   | apply blocked(a)
        one that is not ready blocks             | a b:a           | w-   | apply blocked(a)
        one that is ready does not               | a b:a           | r-   | apply apply
        the order of the form does not matter    | b:a a           | -r   | apply apply
        blocking passes on                       | a b:a c:b       | w--  | apply blocked(a) blocked(b)
        also past what was ready before          | a b:a c:b       | wr-  | apply blocked(a) blocked(b)
        the first open dependency is named       | a b c:a,b       | rw-  | apply apply blocked(b)
        in the order of dependIds                | a b c:b,a       | ww-  | apply apply blocked(b)
        failed: skip                             | a b:a           | f-   | apply skip(a)
        could not be applied: skip               | a b:a           | x-   | apply skip(a)
        skips pass on, each named after its own  | a b:a c:b d:c   | f--- | apply skip(a) skip(b) skip(c)
        also onto what is ready                  | a b:a c:b       | frr  | apply skip(a) skip(b)
        and end with the failure                 | a b:a c:b       | rrr  | apply apply apply
        a failure elsewhere skips nothing        | a b c:a         | rf-  | apply apply apply
        a failure skips before a wait blocks     | a b c:a,b       | wf-  | apply apply skip(b)
        what failed may be tried again           | a b:a           | rf   | apply apply
        no skip: proceed                         | a b!:a          | f-   | apply proceed(a)
        no skip, past one that waits, as in Lynq | a b c!:a,b      | wf-  | apply apply proceed(b)
        no skip does not lift a block            | a b!:a          | w-   | apply blocked(a)
        no skip proceeds past a skipped one      | a b:a c!:b      | f--  | apply skip(a) proceed(b)
        who proceeded and is ready counts        | a b!:a c:b      | fr-  | apply proceed(a) apply
        who proceeded and is not ready blocks    | a b!:a c:b      | fw-  | apply proceed(a) blocked(b)
        who proceeded and failed skips           | a b!:a c:b      | ff-  | apply proceed(a) skip(b)
        applied is enough without waitForReady   | a~ b:a          | w-   | apply apply
        it has to be applied                     | a~ b:a          | --   | apply blocked(a)
        its failing later is its own affair      | a~ b:a          | f-   | apply apply
        that it cannot be applied is not         | a~ b:a          | x-   | apply skip(a)
        waitForReady is about the others         | a b~:a          | w-   | apply blocked(a)
        a diamond waits for both sides           | a b:a c:a d:b,c | rrw- | apply apply apply blocked(c)
        and goes                                 | a b:a c:a d:b,c | rrr- | apply apply apply apply
        a dependency named twice counts once     | a b:a,a         | r-   | apply apply
        states not given are not applied         | a b:a           |      | apply blocked(a)
        states of nothing are not read           | a               | rfx  | apply
    ";
    for [case, graph, states, expect] in rows(cases) {
        let owned = parse(graph);
        let vertices = vertices(&owned);
        let graph = Graph::new(&vertices).unwrap_or_else(|error| panic!("{case}: {error}"));
        let states: Vec<State> = states.chars().map(state).collect();
        let got: Vec<String> = graph.steps(&states).iter().map(shown_step).collect();
        assert_eq!(got.join(" "), expect, "{case}");
    }
}

#[test]
fn an_unsound_graph_is_refused_with_lynqs_text() {
    // case | graph | error
    let cases = "
        twice the same id                  | a b a             | duplicate resource IDs found: [a]
        several                            | b a b a a         | duplicate resource IDs found: [a b]
        no id                              | a :a              | resource must have a non-empty ID
        two without an id are told as such | :a :a a           | resource must have a non-empty ID
        duplicates come first              | a a :a            | duplicate resource IDs found: [a]
        no such id                         | a b:a,z           | resource 'b' depends on non-existent resource 'z'
        the first such                     | a:y b:z           | resource 'a' depends on non-existent resource 'y'
        ids before cycles                  | a:a b:z           | resource 'b' depends on non-existent resource 'z'
        on itself                          | a b:b             | circular dependency detected: b -> b
        on each other                      | x:y y:x           | circular dependency detected: x -> y -> x
        in a ring                          | a:b b:c c:a       | circular dependency detected: a -> b -> c -> a
        from its first in the form         | c:a b:c a:b       | circular dependency detected: c -> a -> b -> c
        without what leads into it         | lead:a a:b b:a    | circular dependency detected: a -> b -> a
        told from its first all the same   | lead:b a:b b:a    | circular dependency detected: a -> b -> a
        without what it leads to           | free a:free,b b:a | circular dependency detected: a -> b -> a
        one of two                         | a:b b:a c:d d:c   | circular dependency detected: a -> b -> a
    ";
    for [case, graph, expect] in rows(cases) {
        let owned = parse(graph);
        let vertices = vertices(&owned);
        let got = Graph::new(&vertices)
            .map(|_| "sound".to_owned())
            .unwrap_or_else(|error| error.to_string());
        assert_eq!(got, expect, "{case}");
    }
}

#[test]
fn deletion_mirrors_applying() {
    // case | graph | levels
    let cases = "
        nothing                             |                 |
        independent resources go together   | a b             | a,b
        dependents go first                 | a b:a c:b       | c b a
        a level keeps the order of the form | d:a c:a a b     | d,c a,b
        the longest path counts             | a b:a c:a,b     | c b a
        a diamond                           | a b:a c:a d:b,c | d b,c a
    ";
    for [case, graph, expect] in rows(cases) {
        let owned = parse(graph);
        let vertices = vertices(&owned);
        let levels = Graph::new(&vertices)
            .unwrap_or_else(|error| panic!("{case}: {error}"))
            .deletion_order();
        let got: Vec<String> = levels.iter().map(|level| level.join(",")).collect();
        assert_eq!(got.join(" "), expect, "{case}");
    }
}

const LONG: usize = 10_000;

/// Each depends on the one after it, so that every walk begins at the far end.
fn chain(last: Option<&str>) -> Vec<Owned> {
    let on = |i: usize| {
        if i + 1 < LONG {
            Some(format!("r{}", i + 1))
        } else {
            last.map(str::to_owned)
        }
    };
    let owned = |i| Owned {
        id: format!("r{i}"),
        depend_ids: on(i).into_iter().collect(),
        skip: true,
        wait: true,
    };
    (0..LONG).map(owned).collect()
}

#[test]
fn a_long_chain_costs_no_stack() {
    let owned = chain(None);
    let vertices = vertices(&owned);
    let graph = Graph::new(&vertices).expect("a chain is sound");

    let mut states = vec![State::NotApplied; LONG];
    states[LONG - 1] = State::Failed;
    let steps = graph.steps(&states);
    assert_eq!(
        steps[0],
        Step::Skip { because: "r1" },
        "a skip reaches the head of the chain"
    );

    let levels = graph.deletion_order();
    assert_eq!(
        (levels.len(), levels[0].as_slice()),
        (LONG, ["r0"].as_slice()),
        "the head goes first"
    );
}

#[test]
fn a_long_cycle_is_told_in_one_line() {
    let owned = chain(Some("r0"));
    let vertices = vertices(&owned);
    let error = Graph::new(&vertices).expect_err("a ring is a cycle");
    let expect = "circular dependency detected: r0 -> r1 -> r2 -> r3 -> r4 -> r5 -> r6 -> r7 -> r8 -> r9 -> (9990 more) -> r0";
    assert_eq!(error.to_string(), expect);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// For every valid graph: if everything becomes ready, applying reaches all resources, each after its dependencies, and
    /// deletion has the reverse order.
    #[test]
    fn a_sound_graph_is_applied_to_its_end(edges in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), 1..30)) {
        let owned: Vec<Owned> = edges
            .iter()
            .enumerate()
            .map(|(i, on)| Owned {
                id: format!("r{i}"),
                depend_ids: if i == 0 { vec![] } else { on.iter().map(|d| format!("r{}", d.index(i))).collect() },
                skip: true,
                wait: true,
            })
            .collect();
        let vertices = vertices(&owned);
        let graph = Graph::new(&vertices).unwrap();
        let mut states = vec![State::NotApplied; vertices.len()];
        let mut applied: Vec<&str> = vec![];
        for _ in 0..vertices.len() {
            for (v, step) in graph.steps(&states).into_iter().enumerate() {
                if step == Step::Apply && states[v] == State::NotApplied {
                    for dependency in vertices[v].depend_ids {
                        prop_assert!(applied.contains(&dependency.as_str()), "{} before {dependency}", vertices[v].id);
                    }
                    states[v] = State::Ready;
                }
            }
            applied = vertices.iter().zip(&states).filter(|(_, s)| **s == State::Ready).map(|(v, _)| v.id).collect();
        }
        prop_assert_eq!(applied.len(), vertices.len());

        let mut gone: Vec<&str> = vec![];
        for level in graph.deletion_order() {
            for id in &level {
                for dependent in vertices.iter().filter(|v| v.depend_ids.iter().any(|d| d == id)) {
                    prop_assert!(gone.contains(&dependent.id), "{id} before {}", dependent.id);
                }
            }
            gone.extend(level);
        }
        prop_assert_eq!(gone.len(), vertices.len());
    }
}

/// Whatever `skipOnDependencyFailure` says: the object would be in a namespace of others.
#[test]
fn nothing_goes_into_a_namespace_that_was_not_created() {
    let owned = parse("ns db app!:db");
    let mut vertices = vertices(&owned);
    vertices[2].namespace_from = "ns";
    let graph = Graph::new(&vertices).expect("a graph");
    let step = |ns: State, db: State| graph.steps(&[ns, db])[2];
    use State::{ApplyFailed, NotApplied, Ready, Waiting};
    for open in [NotApplied, Waiting] {
        assert_eq!(step(open, ApplyFailed), Step::Blocked { on: "ns" });
    }
    assert_eq!(step(Ready, Ready), Step::Apply);
    assert_eq!(step(Waiting, Ready), Step::Blocked { on: "ns" });
    assert_eq!(step(Ready, ApplyFailed), Step::Proceed { despite: "db" });
    assert_eq!(step(ApplyFailed, Ready), Step::Skip { because: "ns" });
    assert_eq!(step(ApplyFailed, ApplyFailed), Step::Skip { because: "ns" });
}
