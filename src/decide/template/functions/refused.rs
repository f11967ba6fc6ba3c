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

/// Why there is no function of that name, for a user; `None` if it is simply unknown.
pub fn refusal(name: &str) -> Option<String> {
    let (_, why, instead) = REFUSED.iter().find(|(names, ..)| names.contains(&name))?;
    Some(format!("function {name} is refused: {why}; {instead}"))
}

/// Every name that is refused.
pub fn names() -> impl Iterator<Item = &'static str> {
    REFUSED.iter().flat_map(|(names, ..)| names.iter().copied())
}
