//! Cases for the condition Edited.

use super::*;
use crate::decide::node::plan::status;

#[test]
fn content_that_is_not_what_the_hub_rendered_is_said_so() {
    for (rendered, said) in [
        (None, None),
        (Some("new/of the row"), Some("False")),
        (Some("other/of the row"), Some("True")),
    ] {
        let mut node = node(vec![]);
        node.rendered_hash = rendered.map(str::to_owned);
        let plan = plan(&node, &[], &Rest::default(), at(0));
        let status = status::of_node(&node, &[], &plan, None, at(0));
        let edited = status.conditions.iter().find(|c| c.type_ == "Edited");
        assert_eq!(edited.map(|c| c.status.as_str()), said, "{rendered:?}");
    }
}

#[test]
fn an_edit_is_told_with_its_writer_once_and_how_to_discard_it() {
    let status_of = |node: &NodeDigest| {
        let plan = plan(node, &[], &Rest::default(), at(0));
        status::of_node(node, &[], &plan, None, at(0))
    };
    let mut node = node(vec![]);
    node.rendered_hash = Some("other/of the row".to_owned());
    let unknown = status_of(&node);
    let news = |old: &NodeStatus, new: &NodeStatus| status::edit_news(old, new).map(str::to_owned);
    let said = news(&node.status, &unknown).unwrap();
    let by_hand = "the content is not what the hub rendered: it was changed by hand or by a webhook. It stays so until";
    assert!(said.starts_with(by_hand), "{said}");

    node.edited_by = Some("alice".to_owned());
    node.edited_at = Some("2026-03-01T12:00:00.000Z".to_owned());
    let by_alice = status_of(&node);
    let expected = "the content is not what the hub rendered: it was changed by \"alice\" at 2026-03-01T12:00:00.000Z. It stays so \
                    until the hub renders something new for the row. To discard the change: kubectl annotate lynqnode acme-web -n tenants \
                    lynq.sh/discard-edit=true";
    assert_eq!(news(&unknown, &by_alice).as_deref(), Some(expected));
    assert_eq!(news(&by_alice, &by_alice), None);
    node.past_gate = true;
    assert_eq!(news(&by_alice, &status_of(&node)), Some(said), "not hers");

    node.discard_edit = true;
    let discards = status_of(&node);
    let said = news(&by_alice, &discards).unwrap();
    assert!(said.ends_with("of lynqhub tenants"), "{said}");
    (node.past_gate, node.rendered_hash) = (false, Some("new/of the row".to_owned()));
    assert_eq!(news(&discards, &status_of(&node)), None);
}
