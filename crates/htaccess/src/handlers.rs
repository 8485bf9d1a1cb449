//! What handlers and media types stand for.

/// The port of a FastCGI server whose URL has none (`proxy_fcgi_canon`).
const FCGI_PORT: u16 = 8000;

/// The handler of PHP.
pub const PHP: &[u8] = b"application/x-httpd-php";

/// Whether the last extension of a name is that of PHP.
pub fn is_php_name(name: &[u8]) -> bool {
    name.len() > 4 && name.ends_with(b".php")
}

/// Whether a handler or a media type stands for PHP, whatever its version: the names of mod_php,
/// of hosts (`application/x-httpd-ea-php83`, `x-mapp-php8`, `php83-script`) and of php-fpm.
pub fn is_php_handler(name: &[u8]) -> bool {
    const STARTS: [&[u8]; 4] = [b"application/x-", b"x-", b"php", b"lsphp"];
    (STARTS.iter().any(|start| name.starts_with(start)) || fcgi_server(name).is_some())
        && memchr::memmem::find(name, b"php").is_some()
        && !shows_source(name)
}

/// The FastCGI server that a handler in lower case passes files to: `unix:/run/x.sock` or
/// `host:port`.
pub fn fcgi_server(name: &[u8]) -> Option<String> {
    let text = str::from_utf8(name.strip_prefix(b"proxy:")?).ok()?;
    if let Some((socket, url)) = text.strip_prefix("unix:").and_then(|rest| rest.split_once('|')) {
        return url.starts_with("fcgi:").then(|| format!("unix:{socket}"));
    }
    let server = text.strip_prefix("fcgi://")?.split('/').next().unwrap_or_default();
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Some(if has_port { server.to_owned() } else { format!("{server}:{FCGI_PORT}") })
}

/// Whether PHP shows the source of the file.
pub fn shows_source(name: &[u8]) -> bool {
    memchr::memmem::find(name, b"httpd-php").is_some() && name.ends_with(b"-source")
}

/// The handler of pages with server-side includes.
pub const SERVER_PARSED: &[u8] = b"server-parsed";

/// Whether the filter of server-side includes is among others, in lower case.
pub fn has_includes(filters: &[u8]) -> bool {
    filters.split(|byte| *byte == b';').any(|filter| filter.trim_ascii() == b"includes")
}

/// Whether Apache runs a file, or passes it to a server that does, by this handler or media type.
pub fn is_program(name: &[u8]) -> bool {
    const PROGRAMS: [&[u8]; 7] = [
        b"cgi-script",
        b"application/x-httpd-cgi",
        b"fcgid-script",
        b"fastcgi-script",
        b"wsgi-script",
        b"perl-script",
        b"lua-script",
    ];
    PROGRAMS.contains(&name) || (name.starts_with(b"proxy:") && !is_php_handler(name))
}
