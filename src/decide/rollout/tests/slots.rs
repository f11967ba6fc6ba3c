//! Cases for slots whose nodes are made anew.

use super::*;

/// Who deletes what is broken gets it back, and breaks nobody else.
#[test]
fn the_slot_of_a_node_that_is_made_anew_is_its_successors() {
    let mut snapshot = fleet("xA", 1);
    snapshot.slots = vec![slot(0, "99")];
    let mut anew = snapshot.nodes.remove("n0").unwrap();
    let form = snapshot.forms.get_mut("web").unwrap();
    form.absent.insert("n0".into(), 0);
    let gone = Confirmation::Gone {
        uid: "uid-0".into(),
    };
    snapshot.confirmed.insert(gone);
    let waits = plan(&snapshot, at(1));
    assert!(waits.releases.is_empty() && waits.ledger.is_none());
    (anew.uid, anew.live) = ("uid-9".into(), Live::None);
    (anew.start, anew.resource_version) = (None, "200".into());
    snapshot.nodes.insert("n0".into(), anew);
    snapshot.forms.get_mut("web").unwrap().absent.clear();
    let goes = plan(&snapshot, at(1));
    assert_eq!(released(&goes), ["n0"]);
    let mut its = slot(0, "200");
    its.uid = "uid-9".into();
    assert_eq!(goes.ledger, Some(vec![its]));
    // Its row is gone as well: the place is somebody else's.
    snapshot.nodes.remove("n0");
    assert_eq!(released(&plan(&snapshot, at(1))), ["n1"]);
}
