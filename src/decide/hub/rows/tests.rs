//! Cases of the row rules: each gives a small table and says which rows live, which are skipped, what is protected.

use super::*;

/// Columns `id`, `on`, `plan`; the last two of them as the variables `planId` and `alias`.
fn columns() -> Columns {
    Columns {
        uid: "id".into(),
        activate: "on".into(),
        host_or_url: None,
        extra: BTreeMap::from([
            ("alias".into(), "id".into()),
            ("planId".into(), "plan".into()),
        ]),
        words: Words::default(),
    }
}

type Given<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, Option<&'a [u8]>);

fn some(uid: &str) -> Given<'_> {
    (Some(uid.as_bytes()), Some(b"1"), Some(b"basic"))
}

fn off(uid: &str) -> Given<'_> {
    (Some(uid.as_bytes()), Some(b"0"), Some(b"basic"))
}

fn collect(given: &[Given<'_>]) -> Rows {
    let mut collector = Collector::new(&columns());
    for (index, (uid, activate, plan)) in given.iter().enumerate() {
        collector.push(RawRow {
            number: index as u64 + 1,
            values: [uid, activate, plan]
                .map(|value| value.map(<[u8]>::to_vec))
                .to_vec(),
        });
    }
    let rows = collector.finish(RowCount(given.len() as u64));
    rows.expect("not too many rows")
}

fn codes(rows: &Rows) -> Vec<(u64, &'static str)> {
    (rows.skipped.iter())
        .map(|row| (row.number, row.reason.code()))
        .collect()
}

fn set(uids: &[&str]) -> BTreeSet<String> {
    uids.iter().map(|uid| (*uid).to_owned()).collect()
}

#[test]
fn each_column_is_selected_once_in_order() {
    let columns = Columns {
        host_or_url: Some("url".into()),
        extra: BTreeMap::from([
            ("a".into(), "z".into()),
            ("b".into(), "on".into()),
            ("c".into(), "z".into()),
        ]),
        ..columns()
    };
    assert_eq!(columns.selected(), ["id", "on", "url", "z"]);
}

#[test]
fn variables_of_a_row() {
    let rows = collect(&[(Some(b"acme"), Some(b"yes"), None)]);
    let expected = BTreeMap::from(
        [
            ("uid", "acme"),
            ("activate", "yes"),
            ("alias", "acme"),
            ("planId", ""),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    assert_eq!(
        rows.rows["acme"].variables,
        expected.into(),
        "NULL is the empty text"
    );
}

#[test]
fn host_is_absent_when_empty() {
    let columns = Columns {
        host_or_url: Some("url".into()),
        extra: BTreeMap::new(),
        ..columns()
    };
    for (url, expected) in [("https://a.example", Some("https://a.example")), ("", None)] {
        let mut collector = Collector::new(&columns);
        collector.push(RawRow {
            number: 1,
            values: ["acme", "1", url].map(|value| Some(value.into())).to_vec(),
        });
        let rows = collector.finish(RowCount(1)).expect("one row").rows;
        let found = rows["acme"].variables.get("hostOrUrl");
        assert_eq!(found, expected);
    }
}

#[test]
fn a_mapping_never_takes_the_place_of_a_variable_of_every_row() {
    let of = |name: &str| {
        let hub = serde_json::json!({
            "source": {"type": "configMap"}, "valueMappings": {"uid": "id", "activate": "on"},
            "extraValueMappings": {name: "plan"},
        });
        Columns::of(&serde_json::from_value(hub).expect("a hub"))
    };
    assert_eq!(of("uidOfOld").expect("no shadow").extra["uidOfOld"], "plan");
    let end = ". Give the mapping another name";
    for (name, said) in [
        ("uid", "it is the column in valueMappings.uid"),
        ("activate", "it is the column in valueMappings.activate"),
        ("host", "it is made of valueMappings.hostOrUrl"),
        ("hostOrUrl", "it is made of valueMappings.hostOrUrl"),
    ] {
        let begin = format!("extraValueMappings.{name}: every row has a variable of this name: ");
        assert_eq!(of(name), Err(format!("{begin}{said}{end}")));
    }
}

/// Counts active and undecided rows; inactive rows cost nothing.
#[test]
fn more_rows_than_a_hub_may_have_are_not_kept() {
    let push = |collector: &mut Collector, number: u64, activate: &str| {
        let values = [&format!("t{number}"), activate, ""];
        let values = values.map(|value| Some(value.as_bytes().to_vec())).to_vec();
        collector.push(RawRow { number, values });
    };
    let mut collector = Collector::new(&columns());
    for number in 1..=ROWS_MAX {
        push(
            &mut collector,
            number,
            if number % 2 == 0 { "1" } else { "Y" },
        );
        push(&mut collector, ROWS_MAX + number, "0");
    }
    assert_eq!(collector.kept, ROWS_MAX);
    push(&mut collector, 2 * ROWS_MAX + 1, "Y");
    assert!(collector.active.is_empty() && collector.skipped.is_empty());
    assert!(collector.is_over());
    let said = collector.finish(RowCount(0)).unwrap_err().to_string();
    assert_eq!(
        said,
        "too many rows: more than 100000 are active or undecided. Nothing was changed. Correct the table, or read a view that \
         has fewer rows"
    );
}

#[test]
fn active_inactive_and_gone() {
    let rows = collect(&[
        some("a"),
        off("b"),
        off("Not Valid"),
        (None, Some(b"0"), None),
    ]);
    assert_eq!(rows.read, RowCount(4));
    assert_eq!(rows.rows.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(rows.inactive, 3);
    assert_eq!(
        codes(&rows),
        [],
        "a row that is switched off need not be mended"
    );
    let gone = [("a", false), ("b", true), ("c", true)];
    for (uid, expected) in gone {
        assert_eq!(rows.is_gone(uid), expected, "{uid}");
    }
}

#[test]
fn skipped_and_protected() {
    let large = vec![b'x'; VALUE_BYTES_MAX + 1];
    let limit = vec![b'x'; VALUE_BYTES_MAX];
    let ten_megabytes = "a".repeat(10_000_000);
    type Case<'a> = (
        &'a str,
        Vec<Given<'a>>,
        &'a [&'a str],
        &'a [(u64, &'a str)],
        &'a [&'a str],
        u64,
    );
    // Name, rows; active uids, skipped rows, protected uids, unidentified rows.
    let cases: Vec<Case> = vec![
        (
            "good rows",
            vec![some("a"), some("b")],
            &["a", "b"],
            &[],
            &[],
            0,
        ),
        (
            "NULL uid",
            vec![some("a"), (None, Some(b"1"), None)],
            &["a"],
            &[(2, "UidNull")],
            &[],
            1,
        ),
        ("empty uid", vec![some("")], &[], &[(1, "UidEmpty")], &[], 1),
        (
            "blank uid",
            vec![some("  ")],
            &[],
            &[(1, "UidSpace")],
            &[],
            1,
        ),
        (
            "white space around a uid protects the uid",
            vec![some(" a ")],
            &[],
            &[(1, "UidSpace")],
            &["a"],
            0,
        ),
        (
            "upper case protects the uid",
            vec![some("A")],
            &[],
            &[(1, "UidInvalid")],
            &["a"],
            0,
        ),
        (
            "underscore",
            vec![some("a_b")],
            &[],
            &[(1, "UidInvalid")],
            &[],
            1,
        ),
        (
            "10 MB of uid",
            vec![some(&ten_megabytes), some("b")],
            &["b"],
            &[(1, "UidTooLong")],
            &[],
            1,
        ),
        (
            "uid that is not text",
            vec![(Some(b"a\xff"), Some(b"1"), None)],
            &[],
            &[(1, "UidNotText")],
            &[],
            1,
        ),
        (
            "every row of a duplicate",
            vec![some("a"), some("b"), some("a"), some("a")],
            &["b"],
            &[
                (1, "UidDuplicate"),
                (3, "UidDuplicate"),
                (4, "UidDuplicate"),
            ],
            &["a"],
            0,
        ),
        (
            "equal but for case",
            vec![some("a"), some("A")],
            &[],
            &[(1, "UidDuplicate"), (2, "UidInvalid")],
            &["a"],
            0,
        ),
        (
            "equal but for trailing space",
            vec![some("a "), some("a")],
            &[],
            &[(1, "UidSpace"), (2, "UidDuplicate")],
            &["a"],
            0,
        ),
        (
            "an inactive row is no duplicate",
            vec![some("a"), off("a")],
            &["a"],
            &[],
            &[],
            0,
        ),
        (
            "a value that is not text",
            vec![(Some(b"a"), Some(b"1"), Some(b"\xc3\x28"))],
            &[],
            &[(1, "ValueNotText")],
            &["a"],
            0,
        ),
        (
            "a duplicate of an unusable row does not win",
            vec![(Some(b"a"), Some(b"1"), Some(b"\xff")), some("a")],
            &[],
            &[(1, "ValueNotText"), (2, "UidDuplicate")],
            &["a"],
            0,
        ),
        (
            "activate that cannot be read is not \"off\"",
            vec![(Some(b"a"), Some(b"\xff"), None)],
            &[],
            &[(1, "ValueNotText")],
            &["a"],
            0,
        ),
        (
            "NULL activate is off",
            vec![(Some(b"a"), None, None)],
            &[],
            &[],
            &[],
            0,
        ),
        (
            "a word that decides nothing protects the uid",
            vec![(Some(b"a"), Some(b"Y"), None), some("b")],
            &["b"],
            &[(1, "ActivateUndecided")],
            &["a"],
            0,
        ),
        (
            "an undecided row beside an active one of its uid",
            vec![(Some(b"a"), Some(b"on"), None), some("a"), some("b")],
            &["b"],
            &[(1, "ActivateUndecided"), (2, "UidDuplicate")],
            &["a"],
            0,
        ),
        (
            "an undecided row beside an inactive one",
            vec![(Some(b"a"), Some(b"on"), None), off("a")],
            &[],
            &[(1, "ActivateUndecided")],
            &["a"],
            0,
        ),
        (
            "an undecided row without uid may be anybody's",
            vec![(None, Some(b"2"), None)],
            &[],
            &[(1, "UidNull")],
            &[],
            1,
        ),
        (
            "white space around the word",
            vec![
                (Some(b"a"), Some(b" 1"), None),
                (Some(b"b"), Some(b"0   "), None),
            ],
            &["a"],
            &[],
            &[],
            0,
        ),
        (
            "a value over the limit",
            vec![(Some(b"a"), Some(b"1"), Some(&large))],
            &[],
            &[(1, "ValueTooLarge")],
            &["a"],
            0,
        ),
        (
            "a value at the limit",
            vec![(Some(b"a"), Some(b"1"), Some(&limit))],
            &["a"],
            &[],
            &[],
            0,
        ),
    ];
    for (name, mut given, active, skipped, protected, unidentified) in cases {
        let rows = collect(&given);
        assert_eq!(
            rows.rows.keys().collect::<Vec<_>>(),
            active,
            "{name}: active"
        );
        assert_eq!(codes(&rows), skipped, "{name}: skipped");
        assert_eq!(rows.protected, set(protected), "{name}: protected");
        assert_eq!(rows.unidentified, unidentified, "{name}: unidentified");
        for uid in protected {
            assert!(!rows.is_gone(uid), "{name}: {uid} stays");
        }
        given.reverse();
        let again = collect(&given);
        let meaning = |it: &Rows| (it.rows.clone(), it.protected.clone(), it.unidentified);
        assert!(
            meaning(&rows) == meaning(&again),
            "{name}: the order of rows decides nothing"
        );
    }
}

#[test]
fn messages_show_the_uid_and_no_other_value() {
    let secret = b"s3cret\xff";
    let cases: &[(Given<'_>, &str)] = &[
        (
            (None, Some(b"1"), Some(secret)),
            "no. 1: the uid is NULL; fill it in, or deactivate the row",
        ),
        (
            (Some(b"acme\x1b[2J"), Some(b"1"), Some(secret)),
            "\"acme\\u{1b}[2J\": the uid cannot be part of a Kubernetes name; use lower-case letters, digits, '-' and \
             '.', beginning and ending with a letter or digit",
        ),
        (
            (Some(b"acme"), Some(b"s3cret"), None),
            "\"acme\": column \"on\" has a value that is neither active nor inactive, so its nodes stay as they are; write 1 or 0, \
             or list the value in the hub's activeValues or inactiveValues",
        ),
        (
            (Some(b"acme"), Some(b"1"), Some(secret)),
            "\"acme\": column \"plan\" does not hold UTF-8 text; map a text column, or convert it in a \
             view",
        ),
    ];
    for (given, expected) in cases {
        let skipped = &collect(&[*given]).skipped[0];
        assert_eq!(format!("{}: {}", skipped.name(), skipped.reason), *expected);
    }
}

#[test]
fn hash_depends_on_every_name_and_value() {
    let row = |uid: &str, variables: &[(&str, &str)]| Row {
        uid: uid.into(),
        variables: (variables.iter())
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
    };
    let rows = [
        row("a", &[]),
        row("b", &[]),
        row("a", &[("x", "")]),
        row("a", &[("x", "1")]),
        row("a", &[("x1", "")]),
        row("a", &[("y", "1")]),
        row("a", &[("x", "1"), ("y", "2")]),
        row("a", &[("x", "1y2")]),
        row("ax", &[]),
    ];
    let hashes = rows.iter().map(|row| row.hash().to_string());
    let hashes: BTreeSet<String> = hashes.collect();
    assert_eq!(hashes.len(), rows.len(), "no two of these rows hash alike");
}

#[test]
fn hash_is_stable() {
    let row = collect(&[some("acme")]).rows.remove("acme");
    let hash = row.expect("an active row").hash().to_string();
    assert_eq!(
        hash, "1:29420be7c65f0c5c5ea094e7e1fdcf78",
        "a change here rewrites the annotation of every node"
    );
}

#[test]
fn of_a_settled_row_only_the_uid_is_kept() {
    let mut collector = Collector::new(&columns());
    let row = |number: u64, uid: &str| RawRow {
        number,
        values: [uid, "1", "basic"].map(|value| Some(value.into())).to_vec(),
    };
    for (number, uid) in (1..).zip(["a", "b", "b", "c"]) {
        collector.push_unless(&|row| row.uid != "c", row(number, uid));
    }
    let rows = collector.finish(RowCount(4)).expect("four rows");
    assert_eq!(rows.rows.keys().collect::<Vec<_>>(), ["c"]);
    assert_eq!(rows.settled, set(&["a"]));
    assert_eq!(rows.skipped.len(), 2, "two rows of one uid are of nobody");
    let gone = ["a", "b", "c", "d"].map(|uid| rows.is_gone(uid));
    assert_eq!(gone, [false, false, false, true]);
}
