//! URLs of HTTP.

use http::Uri;

/// A parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether it has the scheme https.
    pub tls: bool,
    /// The host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query; starts with a slash.
    pub path: String,
    /// The value of the Host header.
    pub authority: String,
}

impl Url {
    /// Parses a URL. The default scheme is http; a path without a host belongs to `base`.
    ///
    /// # Errors
    /// A message that says what is wrong with it.
    pub fn read(text: &str, base: Option<&Url>) -> Result<Url, String> {
        if let (true, Some(base)) = (text.starts_with('/'), base) {
            let path = Url::path_of(text)?;
            return Ok(Url { path, ..base.clone() });
        }
        let wrong = || format!("'{text}' is no URL; expected one such as http://127.0.0.1:8080/");
        let with_scheme =
            if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        // A fragment is never sent to a server.
        let without_fragment = with_scheme.split('#').next().unwrap_or_default();
        let uri: Uri = without_fragment.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => {
                return Err(format!("'{text}': only http:// and https:// URLs are supported"));
            }
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err(format!(
                "'{text}' contains a user; send it as --header 'Authorization: …'"
            ));
        }
        let host = authority.host().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(wrong());
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Url {
            tls,
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
            authority: authority.as_str().to_owned(),
        })
    }

    fn path_of(text: &str) -> Result<String, String> {
        let path = text.split('#').next().unwrap_or_default();
        let read: Result<http::uri::PathAndQuery, _> = path.parse();
        match read {
            Ok(path) => Ok(path.as_str().to_owned()),
            Err(_) => Err(format!("'{text}' is no path")),
        }
    }

    /// Whether both URLs belong to the same server.
    pub fn same_server(&self, other: &Url) -> bool {
        (self.tls, &self.host, self.port) == (other.tls, &other.host, other.port)
    }

    /// The path that a redirect from here leads to, or `None` if it leads to another server.
    pub fn follow(&self, location: &str) -> Option<String> {
        if location.starts_with("//") {
            let scheme = if self.tls { "https:" } else { "http:" };
            return self.follow(&format!("{scheme}{location}"));
        }
        if location.contains("://") {
            let url = Url::read(location, None).ok()?;
            return self.same_server(&url).then_some(url.path);
        }
        if location.starts_with('/') {
            return Url::path_of(location).ok();
        }
        let path = self.path.split('?').next().unwrap_or("/");
        let folder = &path[..=path.rfind('/').unwrap_or(0)];
        Url::path_of(&format!("{folder}{location}")).ok()
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Url {
        Url::read(text, None).expect("a URL")
    }

    #[test]
    fn every_kind_of_url_is_understood() {
        let url = read("https://shop.example/a?b=c#d");
        assert_eq!((url.tls, url.port, url.path.as_str()), (true, 443, "/a?b=c"));
        let url = read("http://[::1]:8080");
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("::1", 8080, "/"));
        assert_eq!(url.authority, "[::1]:8080");
        assert_eq!(read("localhost:81/x").to_string(), "http://localhost:81/x");
        let relative = Url::read("/y", Some(&url)).expect("a path");
        assert_eq!(relative.to_string(), "http://[::1]:8080/y");
        for text in ["", "ftp://a/", "http://", "http://a b/", "http://me:pw@host/"] {
            assert!(Url::read(text, None).is_err(), "{text}");
        }
    }

    #[test]
    fn a_redirect_is_followed_on_the_same_server_only() {
        let url = read("http://shop.example/cart/view.php?x=/y");
        for (location, path) in [
            ("/login", Some("/login")),
            ("http://shop.example:80/login", Some("/login")),
            ("//shop.example/login", Some("/login")),
            ("next.php?a=b", Some("/cart/next.php?a=b")),
            ("https://shop.example/login", None),
            ("http://other.example/login", None),
            ("//other.example/", None),
        ] {
            assert_eq!(url.follow(location).as_deref(), path, "{location}");
        }
    }
}
