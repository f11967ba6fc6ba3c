//! Who wrote content that the hub did not render, and when. The stamps are for people: the gate decides nothing by them, and its
//! validating half does not ask for them.

use jiff::Timestamp;

use crate::api::{names, stamp};
use crate::decide::gate::Write;
use crate::decide::gate::state::{Step, set_annotation};
use crate::decide::node::takeover::bears_lynqs_row;
use crate::decide::shared::content;
use crate::decide::shared::content::Hash;

/// Whether the written content, of this hash, is another than the hub rendered; None where no hub of ours did.
fn is_edit(write: &Write, desired: &Hash) -> Option<bool> {
    let rendered = write.new.annotation(names::RENDERED_HASH);
    content::is_edited(rendered, desired.as_str()).filter(|_| !bears_lynqs_row(write.new.object))
}

/// What stamps the written object: `changed` content is its writer's, other content is whose it was. Once the hub's content is
/// back, there is nothing left to discard.
pub fn patch(write: &Write, desired: &Hash, changed: bool, now: Timestamp) -> Vec<Step> {
    let edit = is_edit(write, desired);
    // Stamps speak of the content that they were stored with; what was written past the gate has none.
    let stored = write.old.filter(|old| {
        old.annotation(names::DESIRED_HASH) == Some(desired.as_str()) && edit == Some(true)
    });
    let stored = |name| stored.and_then(|old| old.annotation(name));
    let at = stamp::format(now);
    let (by, at) = match changed && edit == Some(true) {
        true => (Some(write.user), Some(at.as_str())),
        false => (stored(names::EDITED_BY), stored(names::EDITED_AT)),
    };
    let discard = write
        .new
        .annotation(names::DISCARD_EDIT)
        .filter(|_| edit != Some(false));
    let stamps = [
        (names::EDITED_BY, by),
        (names::EDITED_AT, at),
        (names::DISCARD_EDIT, discard),
    ];
    let stamps = stamps.into_iter();
    stamps
        .filter_map(|(name, wanted)| set_annotation(write.new, name, wanted))
        .collect()
}
