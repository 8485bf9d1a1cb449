//! Parameters of scripts that each server sets itself, and their values in nginx's configuration.

use super::listeners;
use super::location::Location;
use super::server::ServerImport;
use crate::source_directive::Directive;

/// Any value means what scripts get here, or nothing to them.
const ANY: &[&str] = &[];

/// Why the scheme of a proxy is not that of a parameter.
const SCHEME: &str = "scripts get that of the connection: set `trusted_proxies`, whose \
                      X-Forwarded-Proto then says whether clients use HTTPS";

/// Why a parameter has the server's own value.
const OWN_VALUE: &str = "scripts get the server's own value";

/// The parameters of `fastcgi_params` and `fastcgi.conf`, and the values that are those of scripts
/// here.
const STANDARD: [(&str, &[&str]); 27] = [
    ("AUTH_TYPE", &["Basic"]),
    ("CONTENT_LENGTH", &["$content_length", "$http_content_length"]),
    ("CONTENT_TYPE", &["$content_type", "$http_content_type"]),
    ("DOCUMENT_ROOT", &["$document_root", "$realpath_root"]),
    ("DOCUMENT_URI", &["$document_uri", "$uri"]),
    ("GATEWAY_INTERFACE", ANY),
    ("HTTPS", &["$https"]),
    ("HTTP_HOST", &["$host", "$http_host", "$host:$server_port"]),
    ("HTTP_PROXY", &[""]),
    ("PATH_INFO", &["$fastcgi_path_info", "$path_info"]),
    ("PATH_TRANSLATED", &["$document_root$fastcgi_path_info", "$document_root$path_info"]),
    ("QUERY_STRING", &["$query_string", "$args"]),
    ("REDIRECT_STATUS", ANY),
    ("REMOTE_ADDR", &["$remote_addr"]),
    ("REMOTE_PORT", &["$remote_port"]),
    ("REMOTE_USER", &["$remote_user"]),
    ("REQUEST_METHOD", &["$request_method"]),
    ("REQUEST_SCHEME", &["$scheme"]),
    ("REQUEST_URI", &["$request_uri"]),
    ("SCRIPT_FILENAME", ANY),
    ("SCRIPT_NAME", &["$fastcgi_script_name", "$uri", "$document_uri"]),
    ("SCRIPT_URL", ANY),
    ("SERVER_ADDR", &["$server_addr"]),
    ("SERVER_NAME", &["$server_name", "$host", "$http_host"]),
    ("SERVER_PORT", &["$server_port"]),
    ("SERVER_PROTOCOL", &["$server_protocol"]),
    ("SERVER_SOFTWARE", ANY),
];

/// The usual values of a parameter that each server sets itself; `None` for another one.
fn usual_values(name: &str) -> Option<&'static [&'static str]> {
    STANDARD.iter().find(|(known, _)| *known == name).map(|(_, values)| *values)
}

/// Whether each server sets a parameter itself.
pub(super) fn is_standard(name: &str) -> bool {
    usual_values(name).is_some()
}

impl<'a> ServerImport<'_, 'a> {
    /// A parameter that scripts get anyway. Says where its value is another one here.
    pub(super) fn standard_parameter(&mut self, param: &Directive, location: &Location<'a>) {
        let name = param.first();
        let value = param.argument(1).replace("${", "$").replace('}', "");
        let usual = usual_values(name).unwrap_or(ANY);
        if usual.is_empty() || usual.contains(&value.as_str()) {
            return self.keep(param);
        }
        let why = match name {
            "HTTP_HOST" if self.has_only_host(&value) => return self.keep(param),
            "HTTP_HOST" => {
                let why = "scripts get the Host header of clients: list the names of the site in \
                           `hosts`";
                return self.report.access_left_out(&param.place, &param.shown(), why);
            }
            "REMOTE_ADDR" => {
                let why = "scripts get the address of the connection: set `trusted_proxies` and \
                           `trusted_headers`";
                return self.report.access_left_out(&param.place, &param.shown(), why);
            }
            "HTTPS" if value == "on" && self.has_tls_alone() => return self.keep(param),
            "HTTPS" | "REQUEST_SCHEME" | "SERVER_PORT" => SCHEME,
            "DOCUMENT_ROOT" if self.is_document_root(&value, location) => return self.keep(param),
            "SCRIPT_NAME" if is_fixed_script(&value) => return self.keep(param),
            _ if value.is_empty() => return self.keep(param),
            _ => OWN_VALUE,
        };
        self.report.left_out(&param.place, &param.shown(), why);
    }

    /// Whether the site has no host but this one, which may be the first name of the server.
    pub(super) fn has_only_host(&self, value: &str) -> bool {
        let name = if value == "$server_name" { self.name() } else { value };
        let only = format!("[{}]", crate::toml_text::string(name));
        !name.is_empty() && self.site.settings.value("hosts").is_some_and(|hosts| hosts == only)
    }

    /// Whether no address of the server is for plain HTTP.
    fn has_tls_alone(&self) -> bool {
        listeners::of(&self.scope).0.iter().all(|one| one.is_tls)
    }

    /// Whether a folder is that of the site or of the location, perhaps in the root of a pool.
    fn is_document_root(&self, folder: &str, location: &Location<'a>) -> bool {
        let of_location = location.scope.get("root").map(|root| self.absolute(root.first()));
        let folder = folder.trim_end_matches('/');
        let mut roots =
            of_location.iter().chain([&self.root]).map(|root| root.trim_end_matches('/'));
        folder.starts_with('/') && roots.any(|root| root == folder)
    }
}

/// Whether a value is the path of one script, which is that of a front controller.
fn is_fixed_script(value: &str) -> bool {
    value.starts_with('/') && value.ends_with(".php") && !value.contains('$')
}
