//! PEM files (RFC 7468): their parts, each with its line.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::fault::Fault;
use crate::material::PemFile;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// Most parts of one file. A chain has three, and all public roots some hundreds.
const MAX_PARTS: usize = 1000;

/// The text from `BEGIN` to `END`, both included.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Its label, such as `CERTIFICATE`.
    pub label: &'a str,
    /// The line of `BEGIN`, from 1.
    pub line: usize,
    text: &'a str,
}

/// The parts of a file. Text between them is ignored.
///
/// # Errors
/// An unfinished part, or too many of them.
pub fn parts(file: &PemFile) -> Result<Vec<Part<'_>>, Fault> {
    let mut parts = Vec::new();
    let mut open: Option<(&str, usize, usize)> = None;
    let mut offset = 0;
    for (line, text) in (1..).zip(file.text.split_inclusive('\n')) {
        let end = offset + text.len();
        let trimmed = text.trim();
        match open {
            Some((label, begun, start)) if trimmed.starts_with(END) => {
                parts.push(Part { label, line: begun, text: &file.text[start..end] });
                open = None;
            }
            Some((label, begun, _)) if trimmed.starts_with(BEGIN) => {
                return Err(Fault::at(&file.path, begun, unended(label)));
            }
            None if trimmed.starts_with(BEGIN) => {
                let label = trimmed[BEGIN.len()..].trim_end_matches('-');
                open = Some((label, line, offset));
            }
            _ => {}
        }
        if parts.len() > MAX_PARTS {
            let sentence = format!("the file has more than {MAX_PARTS} parts; expected a chain");
            return Err(Fault::at(&file.path, line, sentence));
        }
        offset = end;
    }
    match open {
        Some((label, begun, _)) => Err(Fault::at(&file.path, begun, unended(label))),
        None => Ok(parts),
    }
}

fn unended(label: &str) -> String {
    // The file may be anything: only a valid label is repeated.
    let good = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == ' ';
    let label = if label.chars().all(good) && label.len() <= 40 { label } else { "…" };
    format!("the part that starts here has no `{END}{label}{DASHES}`; copy the whole file again")
}

/// The certificates of a file, at least one, each with its line.
///
/// # Errors
/// There is none, or a damaged one.
pub fn certificates(file: &PemFile) -> Result<Vec<(CertificateDer<'static>, usize)>, Fault> {
    let parts = parts(file)?;
    let labels = ["CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"];
    let ours = parts.iter().filter(|part| labels.contains(&part.label));
    let mut found = Vec::new();
    for part in ours {
        if part.label == "TRUSTED CERTIFICATE" {
            let sentence = "this is OpenSSL's own format (TRUSTED CERTIFICATE); convert it with \
                            openssl x509 -in OLD -out NEW";
            return Err(Fault::at(&file.path, part.line, sentence));
        }
        let der = CertificateDer::from_pem_slice(part.text.as_bytes()).map_err(|_| {
            let sentence = "the certificate that starts here is damaged; copy the file again";
            Fault::at(&file.path, part.line, sentence)
        })?;
        found.push((der, part.line));
    }
    if found.is_empty() {
        let sentence = match parts.first() {
            Some(part) if part.label.ends_with("PRIVATE KEY") => {
                "there is a private key here and no certificate; are `cert` and `key` swapped?"
            }
            _ => "there is no certificate in it; expected PEM, with -----BEGIN CERTIFICATE-----",
        };
        return Err(Fault::of(&file.path, sentence));
    }
    Ok(found)
}

/// The private key of a file, with its line.
///
/// # Errors
/// There is none, it is damaged, or it is encrypted.
pub fn private_key(file: &PemFile) -> Result<(PrivateKeyDer<'static>, usize), Fault> {
    let parts = parts(file)?;
    let mut keys = parts.iter().filter(|part| part.label.ends_with("PRIVATE KEY"));
    let Some(part) = keys.next() else {
        let sentence = match parts.first() {
            Some(part) if part.label.ends_with("CERTIFICATE") => {
                "there is a certificate here and no private key; are `cert` and `key` swapped?"
            }
            _ => "there is no private key in it; expected PEM, with -----BEGIN PRIVATE KEY-----",
        };
        return Err(Fault::of(&file.path, sentence));
    };
    if part.label == "ENCRYPTED PRIVATE KEY" || part.text.contains("Proc-Type: 4,ENCRYPTED") {
        let sentence = "the private key needs a passphrase, which a server cannot ask for; write \
                        it without one, with openssl pkey -in OLD -out NEW";
        return Err(Fault::at(&file.path, part.line, sentence));
    }
    if let Some(second) = keys.next() {
        let sentence = "a second private key starts here; expected one";
        return Err(Fault::at(&file.path, second.line, sentence));
    }
    let key = PrivateKeyDer::from_pem_slice(part.text.as_bytes()).map_err(|_| {
        let sentence = "the private key that starts here is damaged; copy the file again";
        Fault::at(&file.path, part.line, sentence)
    })?;
    Ok((key, part.line))
}
