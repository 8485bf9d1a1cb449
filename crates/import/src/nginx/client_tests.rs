//! What the test of an `if` is about.

/// Variables about the address that a client asks for, and about its program.
const OF_ADDRESS: [&str; 21] = [
    "document_root",
    "document_uri",
    "fastcgi_script_name",
    "host",
    "http_accept",
    "http_accept_language",
    "http_host",
    "http_user_agent",
    "http_x_forwarded_host",
    "http_x_forwarded_port",
    "http_x_forwarded_proto",
    "https",
    "is_args",
    "realpath_root",
    "request_filename",
    "request_uri",
    "scheme",
    "server_name",
    "server_port",
    "server_protocol",
    "uri",
];

/// Variables about the connection's encryption.
const OF_SCHEME: [&str; 3] = ["https", "scheme", "server_port"];

/// Whether a test may be about who the client is, or what it does: its address, a cookie, a header,
/// a user, an argument, a certificate, a method, or a variable that another directive sets.
pub(super) fn is_about_client(test: &str) -> bool {
    variables(test).any(|name| !OF_ADDRESS.contains(&name))
}

/// Whether a test is about the use of TLS.
pub(super) fn is_about_scheme(test: &str) -> bool {
    variables(test).any(|name| OF_SCHEME.contains(&name))
}

/// The names of the variables in a test.
fn variables(test: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = test.split('$').skip(1).map(move |rest| {
        let rest = rest.trim_start_matches('{');
        rest.split(|c| !is_name(c)).next().unwrap_or_default()
    });
    // The end of an expression, and groups of one for paths.
    names.filter(|name| name.starts_with(|c: char| !c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_about_the_client_unless_it_is_about_the_address() {
        for test in [
            "$remote_addr !~ \"^10\\.\"",
            "$cookie_auth != x",
            "\"$host:${arg_token}\" = a:b",
            "$ssl_client_verify != SUCCESS",
            "$allowed = 0",
            "$request_method = POST",
        ] {
            assert!(is_about_client(test), "{test}");
        }
        for test in [
            "$host ~* ^www\\.(.*)$",
            "$scheme = http",
            "-f $request_filename",
            "$http_user_agent ~ (bot|spider)$",
            "$uri ~ ^/a$",
        ] {
            assert!(!is_about_client(test), "{test}");
        }
    }

    /// A server with a location that lets some addresses in.
    struct AddressLimited;

    impl crate::FileReader for AddressLimited {
        fn read(&self, _path: &str) -> Result<String, String> {
            let limited = "location ^~ /files/internal/ { allow 10.0.0.0/8; deny all; }";
            let php = "location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }";
            Ok(format!("http {{ server {{ listen 80; root /srv; {limited} {php} }} }}"))
        }

        fn glob(&self, pattern: &str) -> Vec<String> {
            vec![pattern.to_owned()]
        }

        fn resolved(&self, _path: &str) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_location_for_some_addresses_runs_no_php_for_them_either() {
        let imported =
            crate::nginx::import(&AddressLimited, "/nginx.conf", &[]).expect("a configuration");
        let deny_php = imported.toml.split("deny_php").nth(1).unwrap_or_default();
        assert!(deny_php.contains("/files/internal/"), "{}", imported.toml);
    }
}
