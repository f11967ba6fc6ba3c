//! What `main` prints, as tests.

#[test]
fn the_rules_of_maintenance_hold_and_its_bugs_are_found() {
    assert!(crate::maintenance::check());
}

#[test]
fn the_rules_of_partitions_hold_and_their_bugs_are_found() {
    assert!(crate::partition::check());
}
