//! Settings of HTTPS, in `[tls]`.

use std::path::PathBuf;

use crate::model::acme::{Acme, AcmeShared, Challenge, ExternalAccount, LETS_ENCRYPT, SharedPlace};
use crate::model::host::is_host_name;
use crate::model::tls::{CertificateFiles, ClientCertificates, Tls, TlsVersion};
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::directives::redis_settings::{
    CA_FILE, PASSWORD_FILE, PREFIX, URL, USERNAME, name_in, redis,
};
use crate::read::listen::parse_listen;
use crate::read::value::{BadValue, Value, for_each};

/// The default status of a redirect: permanent, preserves the method (RFC 9110 §15.4.9).
const PERMANENT_REDIRECT: u16 = 308;

/// The directives of `[tls]`.
pub const DIRECTIVES: &[Directive<Tls>] = &[
    Directive {
        name: "listen",
        default: Preset::Value("\"[::]:443\""),
        takes: "an address and a port such as \"[::]:443\", or an array of them",
        needs: Needs::Live,
        doc: "Addresses and ports for HTTPS, in the forms of `listen` at the top of the file, \
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
        takes: "a table such as { cert = \"site.pem\", key = \"site.key\" }, or an array of them",
        needs: Needs::Live,
        doc: "The certificates, each with its private key, as PEM files. `cert` starts with the \
              certificate itself, followed by its intermediate certificates. The certificate for \
              a connection is chosen by the client's host name (SNI) and the names in the \
              certificates; of two for one name, with ECDSA and with RSA, it is the first one \
              that the client supports. A client without SNI, or with an unknown name, gets the \
              first certificate. Only the supervisor needs to read the files. Changed files are \
              detected within about a minute; errors in them are logged, and the previous \
              certificate stays in use.",
        example: "[{ cert = \"site.pem\", key = \"site.key\" }]",
        read: |tls, value| store(&mut tls.certificates, value.each(certificate)),
    },
    Directive {
        name: "acme",
        default: Preset::Words("none"),
        takes: "a table such as { email = \"ops@example.com\", terms_agreed = true }",
        needs: Needs::Live,
        doc: "Automatic certificates (ACME) for every host of a site that none of `certificates` \
              covers, or only one whose file others than root and the user of the host's pool can \
              write, renewed after two thirds of their lifetime. `terms_agreed` says that you \
              agree to the authority's terms of service. `directory` is the URL of another \
              authority than Let's Encrypt, and `ca` a PEM file with roots to verify its server \
              if the system's are not enough. `challenge` is \"http-01\" (port 80 must lead \
              here) or \"tls-alpn-01\" (port 443); the default depends on the listeners. \
              `folder` is the directory of account, keys and certificates; the default is \
              /var/lib/maitred/acme, or for a user other than root maitred/acme in \
              `XDG_STATE_HOME` or ~/.local/state. `external_account` is { id = \"…\", key_file = \
              \"…\" } for authorities that hand out accounts themselves. `shared` is where several \
              servers share account, certificates and challenges, so that one of them orders for \
              all (see [Several machines](../guide/several-machines.md#certificates)): { url = \
              \"redis://10.0.0.10\", key_file = \"…\" } for Redis or Valkey, with `username`, \
              `password_file`, `ca_file` and `prefix` as in `purge_log`, or { folder = \"…\", \
              key_file = \"…\" } for a folder in which `front_user` can write. Everything there \
              is encrypted with the key in `key_file`, 32 bytes or more, which is the same on all \
              servers. Names with `*.` need a certificate of their own.",
        example: "{ email = \"ops@example.com\", terms_agreed = true }",
        read: |tls, value| store(&mut tls.acme, acme(value).map(Some)),
    },
    Directive {
        name: "min_version",
        default: Preset::Value("\"1.2\""),
        takes: "\"1.2\" or \"1.3\"",
        needs: Needs::Live,
        doc: "The oldest accepted version of TLS. Versions before 1.2 are broken and not \
              supported at all.",
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
        takes: "true, false, 301 or 308",
        needs: Needs::Live,
        doc: "Whether plain HTTP is redirected to HTTPS, to port 443 if there is a listener. \
              `true` is 308, which preserves the method of the request; 301 lets browsers turn a \
              POST into a GET.",
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
        takes: "a duration of at most 366 days such as \"365d\", or \"off\"",
        needs: Needs::Live,
        doc: "`max-age` of the `Strict-Transport-Security` header: the time during which \
              browsers use HTTPS only. The header is added to every response over TLS that has \
              none of its own. `0` revokes it.",
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
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `hsts` applies to all subdomains of the host (`includeSubDomains`), \
              including those on other servers.",
        example: "true",
        read: |tls, value| store(&mut tls.hsts_include_subdomains, value.boolean()),
    },
    Directive {
        name: "hsts_preload",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether the `Strict-Transport-Security` header has `preload`, which allows browsers \
              to ship the host in their list of HTTPS-only hosts; you submit it at \
              hstspreload.org. Removal from that list takes long. It needs \
              `hsts_include_subdomains`, and an `hsts` of at least \"365d\".",
        example: "true",
        read: |tls, value| store(&mut tls.hsts_preload, value.boolean()),
    },
    Directive {
        name: "client_certificates",
        default: Preset::Value("\"off\""),
        takes: "\"off\", \"optional\" or \"required\"",
        needs: Needs::Live,
        doc: "Whether the server requests client certificates, which `client_ca` must have \
              issued. An invalid one fails the handshake, and with `\"required\"` so does a \
              missing one. PHP gets the result in `SSL_CLIENT_VERIFY` (`SUCCESS` or `NONE`) and \
              other variables that start with `SSL_CLIENT_`.",
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
        takes: "the path of a file",
        needs: Needs::Live,
        doc: "A PEM file with the CA certificates that issue the clients' certificates.",
        example: "\"clients.pem\"",
        read: |tls, value| store(&mut tls.client_ca, value.file().map(Some)),
    },
];

/// Reads the files of one certificate.
fn certificate(value: &Value<'_>) -> Result<CertificateFiles, BadValue> {
    let (mut cert, mut key): (Option<PathBuf>, Option<PathBuf>) = (None, None);
    let entries = value.entries("the path of a PEM file")?;
    for_each(entries, |entry| {
        match entry.name.as_str() {
            "cert" => cert = Some(entry.value.path()?),
            "key" => key = Some(entry.value.path()?),
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

/// Reads the settings of ACME.
fn acme(value: &Value<'_>) -> Result<Acme, BadValue> {
    let record = value.record(&[
        ("email", "an address such as \"ops@example.com\""),
        ("terms_agreed", "true"),
        ("directory", "a URL that starts with https://"),
        ("ca", "the path of a PEM file"),
        ("challenge", "\"http-01\" or \"tls-alpn-01\""),
        ("folder", "the path of a folder"),
        ("external_account", "a table such as { id = \"kid-1\", key_file = \"eab.key\" }"),
        ("shared", "a table such as { url = \"redis://10.0.0.10\", key_file = \"shared.key\" }"),
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
    let directory = record.get("directory").map(|value| value.text_as(https_url));
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
        directory: directory.transpose()?.unwrap_or_else(|| LETS_ENCRYPT.to_owned()),
        ca: record.get("ca").map(Value::file).transpose()?,
        challenge: challenge.transpose()?,
        folder: record.get("folder").map(Value::path).transpose()?,
        external_account: external.transpose()?,
        shared: record.get("shared").map(shared).transpose()?,
    })
}

fn shared(value: &Value<'_>) -> Result<AcmeShared, BadValue> {
    let record = value.record(&[
        URL,
        USERNAME,
        PASSWORD_FILE,
        CA_FILE,
        PREFIX,
        ("folder", "the path of a folder"),
        ("key_file", "the path of a file with a key of 32 bytes or more"),
    ])?;
    let both = "`acme.shared` has a `folder` and a `url`; set one of them";
    let place = match record.get("folder") {
        Some(folder) if record.get("url").is_none() => SharedPlace::Folder(folder.path()?),
        Some(folder) => return Err(folder.because(both.to_owned())),
        None => SharedPlace::Redis {
            redis: redis(&record, "acme.shared.url")?,
            prefix: name_in(&record, "prefix", ":{}")?.unwrap_or_else(|| "maitred".to_owned()),
        },
    };
    Ok(AcmeShared { place, key_file: record.need("key_file")?.file()? })
}

fn external_account(value: &Value<'_>) -> Result<ExternalAccount, BadValue> {
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
