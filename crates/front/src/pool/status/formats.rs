//! The formats of the status page, each byte for byte as in php-fpm.

use std::fmt::Write;

use maitred_seat::WorkerState;

use crate::pool::status::Status;
use crate::pool::status::fields::{REQUEST_URI, StatusField, StatusValue, of_pool, of_worker};

/// Separates the workers in text.
const STARS: &str = "\n************************\n";

const HTML_START: &str = "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Strict//EN\" \
     \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd\">\n\
     <html xmlns=\"http://www.w3.org/1999/xhtml\" xml:lang=\"en\" lang=\"en\">\n\
     <head><title>PHP-FPM Status Page</title></head>\n<body>\n<table>\n";

/// Plain text.
pub fn text(status: &Status, full: bool) -> String {
    let lines = |fields: &[StatusField<'_>]| fields.iter().map(line).collect::<String>();
    let mut out = lines(&of_pool(status));
    if full {
        for process in &status.figures.processes {
            out.push_str(STARS);
            out.push_str(&lines(&of_worker(process)));
        }
    }
    out
}

fn line(field: &StatusField<'_>) -> String {
    let (name, value) = field;
    // The only name with another spelling in text.
    let name = name.replace("uri", "URI") + ":";
    format!("{name:<22}{}\n", value.for_people())
}

/// HTML: a table of the pool, and one of its workers.
pub fn html(status: &Status, full: bool) -> String {
    let mut out = HTML_START.to_owned();
    for (name, value) in of_pool(status) {
        let value = escaped(&value.for_people());
        let _ = writeln!(out, "<tr><th>{name}</th><td>{value}</td></tr>");
    }
    out.push_str("</table>\n");
    if full {
        out.push_str("<table border=\"1\">\n<tr>");
        for (name, _) in of_worker(&WorkerState::default()) {
            let _ = write!(out, "<th>{name}</th>");
        }
        out.push_str("</tr>\n");
        for process in &status.figures.processes {
            out.push_str("<tr>");
            for (_, value) in of_worker(process) {
                let _ = write!(out, "<td>{}</td>", escaped(&value.for_people()));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>");
    }
    out.push_str("</body></html>");
    out
}

/// XML: an element for each field.
pub fn xml(status: &Status, full: bool) -> String {
    let element = |(name, value): &StatusField<'_>| {
        let name = name.replace(' ', "-");
        format!("<{name}>{}</{name}>", escaped(&value.to_string()))
    };
    let mut out = "<?xml version=\"1.0\" ?>\n<status>\n".to_owned();
    for field in &of_pool(status) {
        let _ = writeln!(out, "{}", element(field));
    }
    if full {
        out.push_str("<processes>\n");
        for process in &status.figures.processes {
            let fields: String = of_worker(process).iter().map(element).collect();
            let _ = writeln!(out, "<process>{fields}</process>");
        }
        out.push_str("</processes>\n");
    }
    out.push_str("</status>");
    out
}

/// JSON: one object.
pub fn json(status: &Status, full: bool) -> String {
    let mut out = format!("{{{}", members(&of_pool(status)));
    if full {
        let workers = &status.figures.processes;
        let workers: Vec<String> =
            workers.iter().map(|process| format!("{{{}}}", members(&of_worker(process)))).collect();
        let _ = write!(out, ", \"processes\":[{}]", workers.join(","));
    }
    out.push('}');
    out
}

fn members(fields: &[StatusField<'_>]) -> String {
    let member = |(name, value): &StatusField<'_>| match value {
        StatusValue::Text(text) if *name == REQUEST_URI => {
            format!("\"{name}\":{}", as_by_php(text))
        }
        StatusValue::Text(text) => format!("\"{name}\":{}", serde_json::json!(text)),
        number => format!("\"{name}\":{number}"),
    };
    fields.iter().map(member).collect::<Vec<_>>().join(",")
}

/// A string as PHP's `json_encode` writes it, as php-fpm does with what clients sent.
fn as_by_php(text: &str) -> String {
    let quoted = serde_json::json!(text).to_string().replace('/', "\\/");
    let mut out = String::with_capacity(quoted.len());
    for c in quoted.chars() {
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

/// Text escaped for an element of HTML or XML, or for a quoted attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}
