//! AES and the passwords of Master Password, as in sprig. Note that a reader of the template also reads the keys in it.

use aes::Aes256;
use cbc::cipher::block_padding::{NoPadding, Pkcs7};
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::context::Context;
use crate::functions::arguments::{text, uint32};
use crate::functions::encoding::{decode64, encode64};
use crate::functions::random::Draw;
use crate::functions::{Function, FunctionError, Outcome};
use crate::signature::Param::{Str, Uint32};
use crate::signature::Signature;
use crate::value::Value;

const TWO: Signature = Signature::exactly(&[Str, Str]);
const OF_SITE: Signature = Signature::exactly(&[Uint32, Str, Str, Str, Str]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("decryptAES", TWO, decrypt),
    Function::new("derivePassword", OF_SITE, derive_password),
    Function::new("encryptAES", TWO, encrypt),
];

const BLOCK: usize = 16;

/// The first 32 bytes of the password, filled up with zeros.
fn key(password: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let used = password.len().min(key.len());
    key[..used].copy_from_slice(&password[..used]);
    key
}

/// sprig generates a random first block. Here it also depends on the plain text, because no two texts may share a first block.
fn encrypt(context: &mut Context, args: &[Value]) -> Outcome {
    let (password, plain) = (text(args, 0)?, text(args, 1)?);
    if plain.is_empty() {
        return Ok(Value::str(""));
    }
    let mut draw = Draw::of(context, Some(plain))?;
    let first: [u8; BLOCK] = std::array::from_fn(|_| draw.byte());
    let cipher = cbc::Encryptor::<Aes256>::new(&key(password).into(), &first.into());
    let encrypted = cipher.encrypt_padded_vec::<Pkcs7>(plain);
    context.string(encode64(&[&first[..], &encrypted].concat()))
}

/// Errors use Go's words for the step that fails in sprig.
fn decrypt(context: &mut Context, args: &[Value]) -> Outcome {
    let (password, encoded) = (text(args, 0)?, text(args, 1)?);
    if encoded.is_empty() {
        return Ok(Value::str(""));
    }
    let bytes = decode64(encoded)
        .map_err(|at| FunctionError::new(format!("illegal base64 data at input byte {at}")))?;
    let Some((first, encrypted)) = bytes.split_first_chunk::<BLOCK>() else {
        let capacity = encoded.len() / 4 * 3;
        return Err(FunctionError::new(format!(
            "runtime error: slice bounds out of range [:{BLOCK}] with capacity {capacity}"
        )));
    };
    let cipher = cbc::Decryptor::<Aes256>::new(&key(password).into(), first.into());
    let mut plain = cipher
        .decrypt_padded_vec::<NoPadding>(encrypted)
        .map_err(|_| FunctionError::new("crypto/cipher: input not full blocks"))?;
    let padding = plain
        .last()
        .ok_or_else(|| FunctionError::new("runtime error: index out of range [-1]"))?;
    let padding = usize::from(*padding);
    let Some(length) = plain.len().checked_sub(padding) else {
        return Err(FunctionError::new(format!(
            "runtime error: slice bounds out of range [:-{}]",
            padding - plain.len()
        )));
    };
    plain.truncate(length);
    context.string(plain)
}

const SEED: &[u8] = b"com.lyndir.masterpassword";

/// A call takes as long as tens of thousands of other steps, and 32 MiB while it lasts.
const STEPS_TO_DERIVE: u64 = 40_000;

/// Kinds of passwords, and for each the forms that it may have.
const FORMS: &[(&str, &[&str])] = &[
    ("basic", &["aaanaaan", "aannaaan", "aaannaaa"]),
    (
        "long",
        &[
            "CvcvnoCvcvCvcv",
            "CvcvCvcvnoCvcv",
            "CvcvCvcvCvcvno",
            "CvccnoCvcvCvcv",
            "CvccCvcvnoCvcv",
            "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv",
            "CvcvCvccnoCvcv",
            "CvcvCvccCvcvno",
            "CvcvnoCvcvCvcc",
            "CvcvCvcvnoCvcc",
            "CvcvCvcvCvccno",
            "CvccnoCvccCvcv",
            "CvccCvccnoCvcv",
            "CvccCvccCvcvno",
            "CvcvnoCvccCvcc",
            "CvcvCvccnoCvcc",
            "CvcvCvccCvccno",
            "CvccnoCvcvCvcc",
            "CvccCvcvnoCvcc",
            "CvccCvcvCvccno",
        ],
    ),
    ("maximum", &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"]),
    ("medium", &["CvcnoCvc", "CvcCvcno"]),
    ("pin", &["nnnn"]),
    ("short", &["Cvcn"]),
];

/// What a letter of a form stands for.
fn characters(letter: u8) -> &'static [u8] {
    match letter {
        b'V' => b"AEIOU",
        b'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => b"aeiou",
        b'c' => b"bcdfghjklmnpqrstvwxyz",
        b'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => b"0123456789",
        b'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
        _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}

fn derive_password(context: &mut Context, args: &[Value]) -> Outcome {
    let counter = uint32(args, 0)?;
    let [kind, password, user, site] = [
        text(args, 1)?,
        text(args, 2)?,
        text(args, 3)?,
        text(args, 4)?,
    ];
    let Some((_, forms)) = FORMS.iter().find(|(name, _)| name.as_bytes() == &**kind) else {
        let told = [b"cannot find password template ", &**kind].concat();
        return context.string(told);
    };
    let bytes = password.len() + user.len() + site.len();
    context
        .budget
        .spend_steps(STEPS_TO_DERIVE + bytes as u64 / 256)?;
    let failed = |error: &dyn std::fmt::Display| {
        FunctionError::new(format!("failed to derive password: {error}"))
    };
    let length = |text: &[u8]| (text.len() as u32).to_be_bytes();
    let salt = [SEED, &length(user), user].concat();
    let mut key = [0; 64];
    let cost = scrypt::Params::new(15, 8, 2).map_err(|error| failed(&error))?;
    scrypt::scrypt(password, &salt, &cost, &mut key).map_err(|error| failed(&error))?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|error| failed(&error))?;
    for part in [SEED, &length(site), site, &counter.to_be_bytes()] {
        mac.update(part);
    }
    let seed = mac.finalize().into_bytes();
    let form = forms[usize::from(seed[0]) % forms.len()];
    let letters = form.bytes().zip(&seed[1..]);
    let derived: Vec<u8> = letters
        .map(|(letter, drawn)| {
            let all = characters(letter);
            all[usize::from(*drawn) % all.len()]
        })
        .collect();
    context.string(derived)
}
