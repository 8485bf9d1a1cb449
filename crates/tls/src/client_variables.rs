//! A client certificate as variables for PHP, named as in Apache's mod_ssl and in configurations of
//! nginx.

use std::borrow::Cow;
use std::fmt::Write;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{ASN1Time, AttributeTypeAndValue, FromDer, X509Certificate, X509Name};

/// Characters of a line of PEM (RFC 7468 §2).
const PEM_LINE_CHARS: usize = 64;

/// Names of attributes as OpenSSL prints them, by their object identifiers.
const ATTRIBUTES: [(&str, &str); 17] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// The variables of a client certificate: names and values.
pub type Variables = Vec<(&'static str, String)>;

/// The variables of a client, with the verified certificate that it has sent, or without one.
pub fn variables(certificate: Option<&CertificateDer<'_>>) -> Variables {
    let parsed = certificate.and_then(|der| {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        Some((der, parsed))
    });
    let Some((der, parsed)) = parsed else {
        return vec![("SSL_CLIENT_VERIFY", "NONE".to_owned())];
    };
    let common = parsed.subject().iter_common_name().next();
    let common = common.map_or(Cow::Borrowed(""), text);
    let mut plain = String::new();
    common.chars().for_each(|c| write_plain(&mut plain, c));
    let validity = parsed.validity();
    let fingerprint = digest(&SHA1_FOR_LEGACY_USE_ONLY, der);
    vec![
        ("SSL_CLIENT_VERIFY", "SUCCESS".to_owned()),
        ("SSL_CLIENT_S_DN", name(parsed.subject())),
        ("SSL_CLIENT_S_DN_CN", plain),
        ("SSL_CLIENT_I_DN", name(parsed.issuer())),
        ("SSL_CLIENT_M_SERIAL", serial(parsed.raw_serial())),
        ("SSL_CLIENT_V_START", time(&validity.not_before)),
        ("SSL_CLIENT_V_END", time(&validity.not_after)),
        ("SSL_CLIENT_FINGERPRINT", hex(fingerprint.as_ref(), false)),
        ("SSL_CLIENT_CERT", pem(der)),
    ]
}

/// A distinguished name (RFC 2253, as in both servers): the last part first.
fn name(name: &X509Name<'_>) -> String {
    let parts: Vec<_> = name.iter_rdn().collect();
    let mut out = String::new();
    for part in parts.iter().rev() {
        for (number, attribute) in part.iter().enumerate() {
            if !out.is_empty() {
                out.push(if number == 0 { ',' } else { '+' });
            }
            write_attribute(&mut out, attribute);
        }
    }
    out
}

fn write_attribute(out: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let kind = attribute.attr_type().to_id_string();
    let known = ATTRIBUTES.iter().find(|(known, _)| *known == kind);
    out.push_str(known.map_or(kind.as_str(), |(_, name)| name));
    out.push('=');
    let value = text(attribute);
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let at_an_end = (at == 0 && matches!(c, ' ' | '#')) || (at == last && c == ' ');
        if at_an_end || ",+\"\\<>;".contains(c) {
            out.push('\\');
        }
        write_plain(out, c);
    }
}

/// Writes a character, or the bytes of a control character as `\00`: a name would end at a null
/// byte for programs in C, and have further lines in logs. Apache does the same in each variable.
fn write_plain(out: &mut String, c: char) {
    if !c.is_control() {
        return out.push(c);
    }
    let mut utf8 = [0; 4];
    for byte in c.encode_utf8(&mut utf8).bytes() {
        let _ = write!(out, "\\{byte:02X}");
    }
}

/// The value of an attribute; one that is no text in hexadecimal.
fn text<'a>(attribute: &'a AttributeTypeAndValue<'_>) -> Cow<'a, str> {
    match attribute.as_str() {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(format!("#{}", hex(attribute.as_slice(), true))),
    }
}

fn serial(bytes: &[u8]) -> String {
    let leading = bytes.iter().take_while(|byte| **byte == 0).count();
    let digits = &bytes[leading.min(bytes.len().saturating_sub(1))..];
    hex(digits, true)
}

fn hex(bytes: &[u8], upper: bool) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = if upper { write!(out, "{byte:02X}") } else { write!(out, "{byte:02x}") };
    }
    out
}

/// A time in OpenSSL's format: `Nov 22 02:50:19 2026 GMT`.
fn time(time: &ASN1Time) -> String {
    let time = time.to_datetime();
    let month = time.month().to_string();
    format!(
        "{} {:2} {:02}:{:02}:{:02} {} GMT",
        &month[..3],
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.year()
    )
}

fn pem(der: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(der);
    let mut out = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(PEM_LINE_CHARS));
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_of_a_certificate_is_in_a_variable() {
        let der = include_bytes!("../../../fuzz/regressions/tls_files/common_name_with_nul");
        let found = variables(Some(&der.to_vec().into()));
        let value = |name: &str| found.iter().find(|(known, _)| *known == name).unwrap().1.as_str();
        assert_eq!(value("SSL_CLIENT_S_DN_CN"), "aW\\00\\00\\00mple");
        assert_eq!(value("SSL_CLIENT_S_DN"), "CN=aW\\00\\00\\00mple,O=A\\, B");
        assert_eq!(value("SSL_CLIENT_VERIFY"), "SUCCESS");
    }
}
