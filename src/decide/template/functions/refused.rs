//! sprig's functions that there are not on purpose, with the reason and what to do instead. Their names are known, so that nobody looks for a typing error.

/// Their salt, key or serial number is random, and drawing it from the hub's seed would make a secret that whoever
/// knows the seed can compute.
const NEW_EACH_TIME: &str = "its salt or key is random, so that every sync would change the object";

/// What is refused: names, why, and what to do instead.
const REFUSED: &[(&[&str], &str, &str)] = &[
    (
        &["bcrypt", "htpasswd"],
        NEW_EACH_TIME,
        "store the hash in a column of the row, or let a Job hash the password",
    ),
    (
        &[
            "genCA",
            "genCAWithKey",
            "genSelfSignedCert",
            "genSelfSignedCertWithKey",
            "genSignedCert",
            "genSignedCertWithKey",
        ],
        NEW_EACH_TIME,
        "add a Certificate of cert-manager to the form",
    ),
    (
        &["genPrivateKey"],
        NEW_EACH_TIME,
        "add a Certificate of cert-manager to the form, or let a Job make the key",
    ),
];

/// Every name that is refused, and why.
pub fn reasons() -> impl Iterator<Item = (&'static str, String)> {
    REFUSED.iter().flat_map(|(names, why, instead)| {
        let reason = format!("{why}; {instead}");
        names.iter().map(move |name| (*name, reason.clone()))
    })
}
