//! Settings of HTTPS, in `[tls]`.

use std::path::PathBuf;

use crate::model::acme::{Acme, Challenge, ExternalAccount, LETS_ENCRYPT};
use crate::model::host::is_host_name;
use crate::model::tls::{CertificateFiles, ClientCertificates, Tls, TlsVersion};
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::listen::parse_listen;
use crate::read::value::{Value, Wrong, for_each};

/// Where a redirection without a status of its own is permanent and keeps the method (RFC 9110
/// §15.4.9).
const PERMANENT_REDIRECT: u16 = 308;

/// The directives of `[tls]`.
pub const DIRECTIVES: &[Directive<Tls>] = &[
    Directive {
        name: "listen",
        default: Preset::Value("\"[::]:443\""),
        unit: "",
        takes: "an address and a port such as \"[::]:443\", or an array of them",
        needs: Needs::Live,
        doc: "Where HTTPS is answered. The forms are those of `listen` at the top of the file, \
              which is then for plain HTTP and has no default.",
        example: "[\"[::]:443\"]",
        read: |tls, value| {
            tls.listen =
                value.each(|item| parse_listen(item.text()?).map_err(|why| item.refused(&why)))?;
            Ok(())
        },
    },
    Directive {
        name: "certificates",
        default: Preset::Words("none; TLS needs at least one, or `acme`"),
        unit: "",
        takes: "a table such as { cert = \"site.pem\", key = \"site.key\" }, or an array of them",
        needs: Needs::Live,
        doc: "The certificates, each with its private key, as PEM files. `cert` begins with the \
              certificate itself, followed by those between it and its root. Which one a client \
              is shown is decided by the host it asks for (SNI) and the names in the \
              certificates; of two for one name, with ECDSA and with RSA, the first that the \
              client understands. Who asks for no name, or an unknown one, is shown the first. \
              Only the supervisor needs to read the files. Changed files are noticed within about \
              a minute; what is wrong with them is said, and the certificate before stays.",
        example: "[{ cert = \"site.pem\", key = \"site.key\" }]",
        read: |tls, value| store(&mut tls.certificates, value.each(certificate)),
    },
    Directive {
        name: "acme",
        default: Preset::Words("none"),
        unit: "",
        takes: "a table such as { email = \"ops@example.com\", terms_agreed = true }",
        needs: Needs::Live,
        doc: "Has a certificate issued for every host that a site names and that none of \
              `certificates` is for, and renewed after two thirds of its life. `terms_agreed` says \
              that you agree to the authority's terms of service. `directory` is the URL of another \
              authority than Let's Encrypt, and `ca` a PEM file with the roots it is trusted by if \
              the system's are not enough. `challenge` is \"http-01\" (port 80 has to lead here) or \
              \"tls-alpn-01\" (port 443); without it, whichever is listened for. `folder` is where \
              account, keys and certificates are kept; without it, /var/lib/maitred/acme, or for a \
              user other than root maitred/acme in `XDG_STATE_HOME` or ~/.local/state. \
              `external_account` is { id = \"…\", key_file = \"…\" } for authorities that give \
              accounts themselves. Names with `*.` need a certificate of their own.",
        example: "{ email = \"ops@example.com\", terms_agreed = true }",
        read: |tls, value| store(&mut tls.acme, acme(value).map(Some)),
    },
    Directive {
        name: "min_version",
        default: Preset::Value("\"1.2\""),
        unit: "",
        takes: "\"1.2\" or \"1.3\"",
        needs: Needs::Live,
        doc: "The oldest version of TLS that is spoken. Older ones than 1.2 are broken and not \
              there at all.",
        example: "\"1.3\"",
        read: |tls, value| {
            store(
                &mut tls.min_version,
                value.text_as(|text| match text {
                    "1.2" => Some(TlsVersion::V12),
                    "1.3" => Some(TlsVersion::V13),
                    _ => None,
                }),
            )
        },
    },
    Directive {
        name: "redirect",
        default: Preset::Value("false"),
        unit: "",
        takes: "true, false, 301 or 308",
        needs: Needs::Live,
        doc: "Whether requests over plain HTTP are sent to HTTPS, at port 443 if that is listened \
              on. `true` is 308, which keeps the method of the request; 301 lets a browser make \
              a POST a GET.",
        example: "true",
        read: |tls, value| {
            tls.redirect = match value.boolean() {
                Ok(redirects) => redirects.then_some(PERMANENT_REDIRECT),
                Err(_) => match value.count(301, 308)? {
                    301 => Some(301),
                    308 => Some(PERMANENT_REDIRECT),
                    _ => return Err(value.wrong()),
                },
            };
            Ok(())
        },
    },
    Directive {
        name: "hsts",
        default: Preset::Value("\"off\""),
        unit: "seconds",
        takes: "a duration of at most 366 days such as \"365d\", or \"off\"",
        needs: Needs::Live,
        doc: "For how long a browser that was here once shall come over HTTPS only \
              (`Strict-Transport-Security`). It is part of every answer over TLS that has none of \
              its own. `0` takes back what was said before.",
        example: "\"365d\"",
        read: |tls, value| {
            tls.hsts = match value.text() {
                Ok("off") => None,
                _ => Some(value.duration()?),
            };
            Ok(())
        },
    },
    Directive {
        name: "hsts_include_subdomains",
        default: Preset::Value("false"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `hsts` holds for all names below the host's as well (`includeSubDomains`), \
              also for those that another server answers.",
        example: "true",
        read: |tls, value| store(&mut tls.hsts_include_subdomains, value.boolean()),
    },
    Directive {
        name: "hsts_preload",
        default: Preset::Value("false"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether browsers may be shipped with the host in their list of those that are HTTPS \
              only (`preload`); you ask for it at hstspreload.org. It takes long to get out of that \
              list again. It needs `hsts_include_subdomains`, and an `hsts` of at least \"365d\".",
        example: "true",
        read: |tls, value| store(&mut tls.hsts_preload, value.boolean()),
    },
    Directive {
        name: "client_certificates",
        default: Preset::Value("\"off\""),
        unit: "",
        takes: "\"off\", \"optional\" or \"required\"",
        needs: Needs::Live,
        doc: "Whether clients are asked for certificates, which `client_ca` must have issued. One \
              that is not in order ends the handshake, and with `\"required\"` one that is \
              missing. PHP is told in `SSL_CLIENT_VERIFY` (`SUCCESS` or `NONE`) and other \
              variables that begin with `SSL_CLIENT_`.",
        example: "\"off\"",
        read: |tls, value| {
            store(
                &mut tls.client_certificates,
                value.text_as(|text| match text {
                    "off" => Some(ClientCertificates::Off),
                    "optional" => Some(ClientCertificates::Optional),
                    "required" => Some(ClientCertificates::Required),
                    _ => None,
                }),
            )
        },
    },
    Directive {
        name: "client_ca",
        default: Preset::Words("none; `client_certificates` needs it"),
        unit: "",
        takes: "the path of a file",
        needs: Needs::Live,
        doc: "A PEM file with the certificates of those who issue the clients' certificates.",
        example: "\"clients.pem\"",
        read: |tls, value| store(&mut tls.client_ca, value.file().map(Some)),
    },
];

/// Reads the files of one certificate.
fn certificate(value: &Value<'_>) -> Result<CertificateFiles, Wrong> {
    let (mut cert, mut key): (Option<PathBuf>, Option<PathBuf>) = (None, None);
    let entries = value.entries("the path of a PEM file")?;
    for_each(entries, |entry| {
        match entry.name.as_str() {
            "cert" => cert = Some(entry.value.file()?),
            "key" => key = Some(entry.value.file()?),
            _ => return Err(entry.misnamed("is unknown; expected `cert` or `key`")),
        }
        Ok(())
    })?;
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(CertificateFiles { cert, key }),
        (None, _) => Err(value.refused("has no `cert`; add the file with the certificate")),
        (_, None) => Err(value.refused("has no `key`; add the file with its private key")),
    }
}

/// Reads how certificates are got.
fn acme(value: &Value<'_>) -> Result<Acme, Wrong> {
    let record = value.record(&[
        ("email", "an address such as \"ops@example.com\""),
        ("terms_agreed", "true"),
        ("directory", "a URL that begins with https://"),
        ("ca", "the path of a PEM file"),
        ("challenge", "\"http-01\" or \"tls-alpn-01\""),
        ("folder", "the path of a folder"),
        (
            "external_account",
            "a table such as { id = \"kid-1\", key_file = \"eab.key\" }",
        ),
    ])?;
    match record.get("terms_agreed") {
        None => {
            let why = "lacks `terms_agreed`; read the authority's terms of service \
                       (https://letsencrypt.org/repository/ for Let's Encrypt), and add \
                       terms_agreed = true if you agree";
            return Err(value.refused(why));
        }
        Some(agreed) if !agreed.boolean()? => return Err(agreed.wrong()),
        Some(_) => {}
    }
    let email = record.get("email").map(|value| value.text_as(email));
    let directory = record
        .get("directory")
        .map(|value| value.text_as(https_url));
    let challenge = record.get("challenge").map(|value| {
        value.text_as(|text| match text {
            "http-01" => Some(Challenge::Http01),
            "tls-alpn-01" => Some(Challenge::TlsAlpn01),
            _ => None,
        })
    });
    let external = record.get("external_account").map(external_account);
    Ok(Acme {
        email: email.transpose()?,
        directory: directory
            .transpose()?
            .unwrap_or_else(|| LETS_ENCRYPT.to_owned()),
        ca: record.get("ca").map(Value::file).transpose()?,
        challenge: challenge.transpose()?,
        folder: record.get("folder").map(Value::path).transpose()?,
        external_account: external.transpose()?,
    })
}

fn external_account(value: &Value<'_>) -> Result<ExternalAccount, Wrong> {
    let record = value.record(&[
        ("id", "the name that the authority has given"),
        ("key_file", "the path of a file with the key in base64url"),
    ])?;
    let id = record.need("id")?;
    Ok(ExternalAccount {
        id: id.text_as(|text| (!text.is_empty()).then(|| text.to_owned()))?,
        key_file: record.need("key_file")?.file()?,
    })
}

fn email(text: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_graphic() && !"?,<>".contains(c);
    let (user, host) = text.rsplit_once('@')?;
    let is_one = !user.is_empty() && is_host_name(host) && text.chars().all(good);
    is_one.then(|| text.to_owned())
}

fn https_url(text: &str) -> Option<String> {
    let rest = text.strip_prefix("https://")?;
    let good = !rest.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
    good.then(|| text.to_owned())
}
