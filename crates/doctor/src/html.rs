//! The report as one HTML file.

use std::fmt::Write as _;

use maitred_text::look::{self, escape};

use crate::finding::{Finding, Severity};
use crate::report::Report;

/// The page, with all checks.
pub fn page(report: &Report) -> String {
    let mut page = String::new();
    if !report.looked_at.is_empty() {
        let looked_at = escape(&report.looked_at.join(", "));
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(page, "<p>Looked at {looked_at}.</p>");
    }
    let _ = writeln!(page, "<p><strong>{}</strong></p>", escape(&report.summary(true)));
    let (well, others): (Vec<&Finding>, Vec<&Finding>) =
        report.findings.iter().partition(|finding| finding.severity == Severity::Well);
    others.into_iter().for_each(|finding| card(&mut page, finding));
    if !well.is_empty() {
        page.push_str(
            "<h2>As it should be</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"checks that pass\"><table><tr><th scope=\"col\">check\
             <th scope=\"col\">seen</tr>\n",
        );
        for finding in well {
            let Finding { check, title, about, seen, .. } = finding;
            let name = escape(&format!("{check} {title}: {about}"));
            let _ = writeln!(page, "<tr><td>{name}<td class=\"text\">{}</tr>", escape(seen));
        }
        page.push_str("</table></div>\n");
    }
    look::report("maitred doctor", &page)
}

fn card(page: &mut String, finding: &Finding) {
    let class = match finding.severity {
        Severity::Fail => "bad",
        Severity::Warn => "warn",
        Severity::CannotTell | Severity::Info | Severity::Well => "info",
    };
    let (name, Finding { check, title, about, .. }) = (finding.severity.name(), finding);
    let title = escape(&format!("{check} {title}: {about}"));
    let _ = writeln!(
        page,
        "<article class=\"card {class}\"><h2><span class=\"{class}\">{name}</span> {title}</h2><dl>"
    );
    for (name, text) in finding.parts() {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&text));
    }
    page.push_str("</dl></article>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixture;

    #[test]
    fn the_worst_comes_first_and_text_stays_text() {
        let mut facts = fixture::php_fpm();
        facts.nginx.as_mut().unwrap().open_files = Ok(100);
        facts.services[0].control_timeout = std::time::Duration::ZERO;
        facts.broken.push(("a<b>.conf".to_owned(), crate::facts::Unknown("x".to_owned())));
        let page = page(&Report::of(&facts));
        assert!(page.contains("D0 configuration: a&lt;b&gt;.conf"), "{page}");
        assert!(page.find(">FAIL<") < page.find(">WARN<"), "{page}");
        assert!(page.contains("As it should be"), "{page}");
    }
}
