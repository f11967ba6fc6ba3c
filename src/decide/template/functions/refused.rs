//! sprig's functions that are left out on purpose, each with a reason and an alternative. Their names stay known, so that an
//! error does not look like a typing mistake.

/// Their salt, key or serial number is random. Derived from the hub's seed, it could be computed by anyone who knows the seed.
const NEW_EACH_TIME: &str = "its salt or key is random, so that every sync would change the object";

/// Names, the reason why they are not supported, and the alternative.
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

/// Every unsupported name with its reason.
pub fn reasons() -> impl Iterator<Item = (&'static str, String)> {
    REFUSED.iter().flat_map(|(names, why, instead)| {
        let reason = format!("{why}; {instead}");
        names.iter().map(move |name| (*name, reason.clone()))
    })
}
