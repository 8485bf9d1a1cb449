//! The types of files that browsers run.

/// Endings of files that browsers run, and how their types end.
pub const ACTIVE: [(&str, &[&str]); 8] = [
    ("htm", &["/html"]),
    ("html", &["/html"]),
    ("js", &["/javascript", "/x-javascript"]),
    ("mjs", &["/javascript", "/x-javascript"]),
    ("svg", &["+xml"]),
    ("svgz", &["+xml"]),
    ("xhtml", &["+xml"]),
    ("xml", &["/xml", "+xml"]),
];
