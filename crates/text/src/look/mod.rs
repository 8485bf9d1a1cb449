//! The look of the dashboard and of reports: one style sheet, light and dark, and the frame of a
//! report as one file that loads nothing.

/// Colours, text, tables and cards.
pub const STYLE: &str = include_str!("look.css");

/// What reports have besides.
const REPORT_STYLE: &str = include_str!("report.css");

/// A report as one HTML file. `body` is HTML.
pub fn report(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none';style-src 'unsafe-inline'\">\n\
         <style>\n{STYLE}{REPORT_STYLE}</style>\n</head>\n<body>\n<main id=\"main\">\n\
         <h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Escapes a text for HTML.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_file_whose_title_is_text() {
        let page = report("a <b> & \"c\"", "<p>body</p>\n");
        assert!(page.contains("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"), "{page}");
        assert!(page.contains("<p>body</p>\n</main>"), "{page}");
        for forbidden in ["http://", "https://", "<script", "url("] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}
