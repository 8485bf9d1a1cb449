//! The addresses of the same site in a page: links, assets, and the actions of GET forms.

use std::sync::LazyLock;

use regex::Regex;

/// Bytes of a page that are searched.
const MAX_PAGE_BYTES: usize = 1 << 20;

/// Most links of a page.
const MAX_LINKS: usize = 500;

/// Longest address, in bytes.
const MAX_TARGET_BYTES: usize = 2048;

/// What a text field of a form gets.
const FIELD_TEXT: &str = "a";

static TAGS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let names = "a|link|area|script|img|iframe|source|video|audio|form|input|/form";
    Regex::new(&format!(r#"(?is)<({names})\b((?:[^>"']|"[^"]*"|'[^']*')*)>"#)).ok()
});

static ATTRIBUTES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let value = r#"(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))"#;
    Regex::new(&format!(r"(?is)\b(href|src|action|method|name|value|type)\s*=\s*{value}")).ok()
});

/// The attributes of a tag that matter here.
struct Tag {
    name: String,
    attributes: Vec<(String, String)>,
}

impl Tag {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The address of a page.
#[derive(Debug, Clone, Copy)]
pub struct PageAddress<'a> {
    /// The host, and the port if it is not the scheme's own.
    pub authority: &'a str,
    /// The path, with its query.
    pub target: &'a str,
}

/// The request targets of the same site in a page, each once.
pub fn links(html: &[u8], page: PageAddress<'_>) -> Vec<String> {
    let html = String::from_utf8_lossy(&html[..html.len().min(MAX_PAGE_BYTES)]);
    let mut found: Vec<String> = Vec::new();
    let mut form: Option<(String, Vec<String>)> = None;
    for tag in tags(&html) {
        let link = match tag.name.as_str() {
            "form" => {
                let is_get = tag.get("method").is_none_or(|how| how.eq_ignore_ascii_case("get"));
                let action = tag.get("action").unwrap_or(page.target).to_owned();
                form = is_get.then_some((action, Vec::new()));
                None
            }
            "input" => {
                if let Some((_, fields)) = &mut form {
                    fields.extend(field(&tag));
                }
                None
            }
            "/form" => form.take().map(|(action, fields)| {
                let action = action.split(['?', '#']).next().unwrap_or_default().to_owned();
                if fields.is_empty() { action } else { format!("{action}?{}", fields.join("&")) }
            }),
            _ => tag.get("href").or(tag.get("src")).map(str::to_owned),
        };
        let target = link.and_then(|link| resolve(&link, page));
        if let Some(target) = target.filter(|target| !found.contains(target)) {
            found.push(target);
        }
        if found.len() >= MAX_LINKS {
            break;
        }
    }
    found
}

/// A field of a form as part of a query.
fn field(tag: &Tag) -> Option<String> {
    let name = tag.get("name").filter(|name| !name.is_empty())?;
    let kind = tag.get("type").unwrap_or("text").to_ascii_lowercase();
    if ["submit", "button", "image", "file", "password", "checkbox", "radio", "reset"]
        .contains(&kind.as_str())
    {
        return None;
    }
    let value = tag.get("value").filter(|value| !value.is_empty()).unwrap_or(FIELD_TEXT);
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    Some(format!("{}={}", encode(name), encode(value)))
}

fn tags(html: &str) -> impl Iterator<Item = Tag> {
    let tags = TAGS.as_ref().map(|tags| tags.captures_iter(html));
    tags.into_iter().flatten().map(|found| {
        let text = |number: usize| found.get(number).map_or("", |part| part.as_str());
        let attributes = ATTRIBUTES.as_ref().map(|all| all.captures_iter(text(2)));
        let attributes = attributes.into_iter().flatten().map(|one| {
            let value = one.get(2).or(one.get(3)).or(one.get(4)).map_or("", |part| part.as_str());
            let name = one.get(1).map_or("", |part| part.as_str());
            (name.to_ascii_lowercase(), value.replace("&amp;", "&").replace("&#038;", "&"))
        });
        Tag { name: text(1).to_ascii_lowercase(), attributes: attributes.collect() }
    })
}

/// The request target of a link, resolved as a browser does (RFC 3986 §5.2), if it leads to the
/// same host. Both schemes are the same site.
pub fn resolve(link: &str, page: PageAddress<'_>) -> Option<String> {
    let link = link.trim();
    let link = link.split('#').next()?;
    let host = |text: &str| text.rsplit_once(':').map_or(text.to_owned(), |(host, _)| host.into());
    let after_scheme = ["https://", "http://", "//"].iter().find_map(|start| {
        let is_it = link.get(..start.len())?.eq_ignore_ascii_case(start);
        is_it.then(|| &link[start.len()..])
    });
    let (path, query) = match after_scheme {
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            if !host(&rest[..end]).eq_ignore_ascii_case(&host(page.authority)) {
                return None;
            }
            let (path, query) = split(&rest[end..]);
            (path.to_owned(), query)
        }
        None if link.split(['/', '?']).next()?.contains(':') => return None,
        None => beside(link, page.target),
    };
    let mut target = without_dots(&path);
    if let Some(query) = query {
        target += &format!("?{query}");
    }
    let target = target.replace(' ', "%20");
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    (target.len() <= MAX_TARGET_BYTES && target.bytes().all(is_plain)).then_some(target)
}

/// The path and the query of a link without a host.
fn beside<'l>(link: &'l str, own: &'l str) -> (String, Option<&'l str>) {
    let (own, own_query) = split(own);
    match split(link) {
        ("", None) => (own.to_owned(), own_query),
        ("", query) => (own.to_owned(), query),
        (path, query) if path.starts_with('/') => (path.to_owned(), query),
        (path, query) => {
            let folder = own.rsplit_once('/').map_or("", |(folder, _)| folder);
            (format!("{folder}/{path}"), query)
        }
    }
}

fn split(target: &str) -> (&str, Option<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}

/// The path without `.` and `..` (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut parts = path.trim_start_matches('/').split('/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    names.pop();
                }
                if is_last {
                    names.push("");
                }
            }
            part => names.push(part),
        }
    }
    format!("/{}", names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageAddress<'_> = PageAddress { authority: "a.example", target: "/b/c?d=1" };

    #[test]
    fn links_lead_where_a_browser_goes() {
        for (link, target) in [
            ("/x", Some("/x")),
            ("y?z=1", Some("/b/y?z=1")),
            ("../y", Some("/y")),
            ("./", Some("/b/")),
            ("?e=2", Some("/b/c?e=2")),
            ("#top", Some("/b/c?d=1")),
            ("https://A.example/q#r", Some("/q")),
            ("//a.example:8080", Some("/")),
            ("//b.example/q", None),
            ("mailto:a@a.example", None),
            ("javascript:void(0)", None),
        ] {
            assert_eq!(resolve(link, PAGE).as_deref(), target, "{link}");
        }
    }

    #[test]
    fn links_assets_and_get_forms_of_a_page_are_found() {
        let html = br#"<a class=x href='/one'>1</a> <LINK rel="style" href="/s.css?ver=1&amp;x">
            <img alt="a > b" src=i.png> <form action="/search"><input name="q">
            <input type="hidden" name="lang" value="de"><input type=submit name=go></form>
            <form method="post" action="/delete"><input name="id"></form> <a href="/one">2</a>"#;
        let expected = ["/one", "/s.css?ver=1&x", "/b/i.png", "/search?q=a&lang=de"];
        assert_eq!(links(html, PAGE), expected);
    }
}
