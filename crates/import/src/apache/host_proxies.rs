//! Servers behind Apache: `ProxyPass`.

use super::host_import::HostImport;
use super::host_scripts::fcgi_address;
use super::path_area::PathArea;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values;

/// A line about a server behind Apache.
struct ProxyLine<'a> {
    /// Its paths.
    area: PathArea,
    /// The server, or `!` for none.
    to: &'a str,
    line: &'a Directive,
}

impl ProxyLine<'_> {
    fn is_exception(&self) -> bool {
        self.to == "!"
    }

    /// The server, and the path there without a slash at its end.
    ///
    /// # Errors
    /// Why it cannot be behind a site, as the end of a sentence.
    fn server(&self) -> Result<ProxyServer, String> {
        let rest = ["http://", "ws://"].iter().find_map(|start| self.to.strip_prefix(start));
        let (address, path) = match (self.to.strip_prefix("unix:"), rest) {
            (Some(unix), _) => {
                let (socket, rest) = unix.split_once('|').unwrap_or((unix, "http://localhost"));
                let rest = rest.strip_prefix("http://").ok_or("only HTTP servers can be behind")?;
                (format!("unix:{socket}"), rest.split_once('/').map_or("", |(_, path)| path))
            }
            (None, Some(rest)) => {
                let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
                (format!("http://{server}"), path)
            }
            _ => return Err("only servers with plain HTTP can be behind this one".to_owned()),
        };
        let path = format!("/{path}").trim_end_matches('/').to_owned();
        Ok(ProxyServer { address, path })
    }

    /// Whether the prefix is taken off the paths.
    fn strips_prefix(&self) -> bool {
        let PathArea::Below(prefix) = &self.area else { return false };
        !prefix.is_empty() && self.server().is_ok_and(|server| server.path.is_empty())
    }

    /// maitred's patterns for its paths without those of others; none if there are no such
    /// patterns, or none that it can take the prefix off.
    fn patterns_without(&self, others: &[&PathArea]) -> Option<Vec<String>> {
        let found = self.area.exact_patterns_without(others)?;
        let is_whole = found == self.area.patterns_without(&[]);
        (is_whole || !self.strips_prefix()).then_some(found)
    }
}

/// A server behind Apache.
struct ProxyServer {
    /// Its address, as maitred writes it.
    address: String,
    /// The path there.
    path: String,
}

impl<'a> HostImport<'_, 'a> {
    /// `ProxyPass` and relatives that lead to no PHP. The first line for a path decides.
    pub(super) fn proxies(&mut self) {
        let found = self.proxy_lines();
        for (at, one) in found.iter().enumerate() {
            if one.is_exception() {
                self.keep(one.line);
                continue;
            }
            let earlier = found[..at].iter().filter(|one| one.is_exception());
            let never: Vec<&PathArea> = earlier.map(|one| &one.area).collect();
            if never.iter().any(|other| other.covers(&one.area)) {
                // No request comes this far.
                self.keep(one.line);
                continue;
            }
            match one.patterns_without(&never) {
                Some(patterns) => {
                    if let Err(why) = self.proxy(one, patterns) {
                        let why = format!("{why}; write `[[sites.proxy]]` in place of the `deny`");
                        self.nothing_here(one.line, &one.area, &why);
                    }
                }
                None => self.unclear_exceptions(one),
            }
        }
        for line in self.all_of_host(&["ProxyPreserveHost"]) {
            self.keep(line);
        }
    }

    /// The lines in the order in which Apache takes them: those of sections first, of which later
    /// ones override earlier ones.
    fn proxy_lines(&self) -> Vec<ProxyLine<'a>> {
        let mut found = Vec::new();
        for section in self.sections.iter().rev().filter(|one| one.section.is_some()) {
            for line in section.all("ProxyPass").into_iter().rev() {
                found.push(ProxyLine { area: section.area.clone(), to: line.first(), line });
            }
        }
        for line in self.all_of_host(&["ProxyPass", "ProxyPassMatch"]) {
            let is_regex = line.is("ProxyPassMatch");
            if is_regex && fcgi_address(line.argument(1)).is_some() {
                continue;
            }
            let area = match is_regex {
                true => PathArea::Regex(line.first().to_owned()),
                false => PathArea::Below(line.first().trim_end_matches('/').to_owned()),
            };
            found.push(ProxyLine { area, to: line.argument(1), line });
        }
        found
    }

    fn unclear_exceptions(&mut self, one: &ProxyLine<'a>) {
        let why = "no pattern is for its paths without those of the lines before it that except \
                   some (`!`): the paths are a 404; write `[[sites.proxy]]` in place of the `deny`";
        self.nothing_here(one.line, &one.area, why);
        self.report.access_left_out(&one.line.place, &one.line.shown(), why);
    }

    /// Writes the server of a line for these patterns of its paths.
    fn proxy(&mut self, one: &ProxyLine<'a>, mut patterns: Vec<String>) -> Result<(), String> {
        let ProxyLine { area, line, .. } = one;
        let PathArea::Below(prefix) = area else {
            return Err("only prefixes can lead to another server".to_owned());
        };
        let ProxyServer { address, path } = one.server()?;
        let strips = one.strips_prefix();
        if !strips && path != *prefix {
            return Err(format!("the path cannot be replaced by {path}"));
        }
        if patterns == area.patterns_without(&[]) {
            patterns = vec![format!("{prefix}/*")];
            // Without a slash at its end, the path itself is passed as well.
            if !line.first().ends_with('/') && !strips && !prefix.is_empty() {
                patterns.push(prefix.clone());
            }
        }
        let timeout = line.arguments.iter().find_map(|one| one.strip_prefix("timeout="));
        let timeout = timeout.map(str::to_owned).or_else(|| {
            let all = self.of_host("ProxyTimeout").or(self.of_host("Timeout"));
            all.map(|one| one.first().to_owned())
        });
        let keeps_host = self.of_host("ProxyPreserveHost");
        let keeps_host = keeps_host.is_some_and(|one| one.first().eq_ignore_ascii_case("on"));
        for pattern in patterns {
            let mut fields =
                vec![("path", toml_text::string(&pattern)), ("to", toml_text::string(&address))];
            if strips {
                fields.push(("strip_prefix", "true".to_owned()));
            }
            if !keeps_host {
                let host = address.strip_prefix("http://").unwrap_or("localhost");
                fields.push(("host", toml_text::string(host)));
            }
            let time = timeout.as_deref().and_then(values::time).filter(|time| !time.is_zero());
            if let Some(time) = time {
                fields.push(("read_timeout", toml_text::string(&values::duration(time))));
            }
            self.push("proxy", line, toml_text::table(fields));
        }
        Ok(())
    }
}
