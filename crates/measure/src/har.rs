//! Reads the requests of a browser session from a HAR 1.2 file, to send them again.

use std::path::Path;

use serde::Deserialize;

use crate::request::{MAX_REQUESTS, RequestSpec, read_header};
use crate::url::Url;
use maitred_text::humanize;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;

/// Most characters of a wrong value in a message.
const MAX_SHOWN: usize = 100;

#[derive(Deserialize)]
struct HarFile {
    log: HarLog,
}

#[derive(Deserialize)]
struct HarLog {
    entries: Vec<HarEntry>,
}

#[derive(Deserialize)]
struct HarEntry {
    request: HarRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HarRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<HarHeader>,
    post_data: Option<HarBody>,
}

#[derive(Deserialize)]
struct HarHeader {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct HarBody {
    #[serde(default)]
    text: String,
}

/// Headers that belong to the connection or to the recorded session.
const NOT_SENT_AGAIN: [&str; 9] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "upgrade",
    "te",
    "cookie",
    "proxy-authorization",
];

/// The requests to the host of the first one. With `base` they are sent to its server instead, and
/// without the password if it is another one.
///
/// # Errors
/// A message that says what is wrong with the file.
pub fn read(file: &Path, base: Option<&Url>) -> Result<Vec<RequestSpec>, String> {
    let shown = file.display();
    let length = std::fs::metadata(file).map(|found| found.len());
    if length.is_ok_and(|length| length > MAX_FILE_BYTES) {
        return Err(format!("{shown} is longer than 512 MiB"));
    }
    let text =
        std::fs::read_to_string(file).map_err(|why| format!("{shown} cannot be read: {why}"))?;
    parse(&text, file, base)
}

/// As [`read`], of the text of a file.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, file: &Path, base: Option<&Url>) -> Result<Vec<RequestSpec>, String> {
    let shown = file.display();
    let har: HarFile =
        serde_json::from_str(text).map_err(|why| format!("{shown} is no HAR file: {why}"))?;
    let mut specs: Vec<RequestSpec> = Vec::new();
    let mut first: Option<Url> = None;
    for entry in har.log.entries.into_iter().take(MAX_REQUESTS) {
        // Other schemes (data:, ws:) are no requests of HTTP.
        let Ok(url) = Url::read(&entry.request.url, None) else {
            continue;
        };
        if !first.get_or_insert_with(|| url.clone()).same_server(&url) {
            continue;
        }
        let method = entry.request.method.as_str();
        if http::Method::from_bytes(method.as_bytes()).is_err() {
            let method: String = method.chars().take(MAX_SHOWN).collect();
            return Err(format!(
                "{shown}: '{}' is no method of a request for {}; expected one such as GET",
                humanize::printable(&method),
                humanize::printable(&url.to_string())
            ));
        }
        specs.push(spec(entry.request, url, base));
    }
    if specs.is_empty() {
        return Err(format!("{shown} holds no request over HTTP"));
    }
    Ok(specs)
}

fn spec(saved: HarRequest, url: Url, base: Option<&Url>) -> RequestSpec {
    let is_elsewhere = base.is_some_and(|base| !base.same_server(&url));
    let url = match base {
        Some(base) => Url { path: url.path, ..base.clone() },
        None => url,
    };
    let fields = saved.headers.into_iter().filter_map(|field| {
        let name = field.name.to_ascii_lowercase();
        // Pseudo-headers of HTTP/2 start with a colon.
        let is_of_session =
            NOT_SENT_AGAIN.contains(&name.as_str()) || is_elsewhere && name == "authorization";
        let ours = !name.starts_with(':') && !is_of_session;
        let field = ours.then(|| format!("{}: {}", field.name, field.value))?;
        read_header(&field).ok()
    });
    RequestSpec {
        method: saved.method.to_ascii_uppercase(),
        headers: fields.collect(),
        body: saved.post_data.map_or(Vec::new(), |body| body.text.into_bytes()),
        ..RequestSpec::get(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_is_read_without_what_belongs_to_others() {
        let file = std::env::temp_dir().join(format!("maitred-har-{}", std::process::id()));
        let text = r#"{"log": {"entries": [
            {"request": {"method": "GET", "url": "https://shop.example/", "headers":
                [{"name": ":path", "value": "/"}, {"name": "Accept", "value": "text/html"},
                 {"name": "Cookie", "value": "a=1"},
                 {"name": "Proxy-Authorization", "value": "Basic eA=="},
                 {"name": "Authorization", "value": "Basic eTp6"}]}},
            {"request": {"method": "GET", "url": "https://cdn.example/x.js"}},
            {"request": {"method": "GET", "url": "data:image/png;base64,AA"}},
            {"request": {"method": "post", "url": "https://shop.example/cart?a=b",
                "postData": {"mimeType": "text/plain", "text": "x=1"}}}]}}"#;
        std::fs::write(&file, text).expect("a file");
        let specs = read(&file, None).expect("requests");
        let shown: Vec<String> = specs.iter().map(|spec| spec.url.to_string()).collect();
        assert_eq!(shown, ["https://shop.example/", "https://shop.example/cart?a=b"]);
        let accept = ("Accept".to_owned(), "text/html".to_owned());
        let password = ("Authorization".to_owned(), "Basic eTp6".to_owned());
        assert_eq!(specs[0].headers, [accept.clone(), password]);
        assert_eq!((specs[1].method.as_str(), specs[1].body.as_slice()), ("POST", &b"x=1"[..]));
        let base = Url::read("http://127.0.0.1:8080/", None).expect("a URL");
        let specs = read(&file, Some(&base)).expect("requests");
        assert_eq!(specs[1].url.to_string(), "http://127.0.0.1:8080/cart?a=b");
        assert_eq!(specs[0].headers, [accept]);
        for method in ["GET /x HTTP/1.1\\r\\nX: y\\r\\n", "\\u001b[2J", ""] {
            let odd = text.replace("post", method);
            std::fs::write(&file, odd).expect("a file");
            let why = read(&file, None).expect_err("no method");
            assert!(
                why.contains("is no method of a request for https://shop.example/cart"),
                "{why}"
            );
            assert!(!why.contains(char::is_control), "{why:?}");
        }
        let odd = text.replace("post", "").replace("/cart", "/\\u009b2J");
        std::fs::write(&file, odd).expect("a file");
        let why = read(&file, None).expect_err("no method");
        assert!(why.contains("https://shop.example/\\u{9b}2J"), "{why}");
        std::fs::write(&file, "[]").expect("a file");
        assert!(read(&file, None).expect_err("no HAR").contains("is no HAR file"));
        std::fs::remove_file(&file).expect("a file of ours");
    }
}
