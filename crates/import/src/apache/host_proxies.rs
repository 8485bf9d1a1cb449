//! Servers behind Apache: `ProxyPass`.

use super::host_import::HostImport;
use super::host_scripts::fcgi_address;
use super::path_area::PathArea;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values;

/// A `ProxyPass`, and the server in it.
struct ProxyLine<'a> {
    to: &'a str,
    line: &'a Directive,
}

impl<'a> HostImport<'_, 'a> {
    /// `ProxyPass` and relatives that lead to no PHP.
    pub(super) fn proxies(&mut self) {
        let mut found: Vec<(PathArea, &'a Directive, usize)> = Vec::new();
        for line in self.all_of_host(&["ProxyPass"]) {
            let path = line.first().trim_end_matches('/').to_owned();
            found.push((PathArea::Below(path), line, 1));
        }
        for section in self.sections.iter().filter(|one| one.section.is_some()) {
            for line in section.all("ProxyPass") {
                found.push((section.area.clone(), line, 0));
            }
        }
        let never: Vec<(PathArea, &'a Directive)> = found
            .iter()
            .filter(|(_, line, at)| line.argument(*at) == "!")
            .map(|(area, line, _)| (area.clone(), *line))
            .collect();
        never.iter().for_each(|(_, line)| self.keep(line));
        for (area, line, at) in found {
            if line.argument(at) == "!" {
                continue;
            }
            let others: Vec<&PathArea> = never.iter().map(|(area, _)| area).collect();
            if let Err(why) = self.proxy(&area, ProxyLine { to: line.argument(at), line }, &others)
            {
                let why = format!("{why}; write `[[sites.proxy]]` in place of the `deny`");
                self.nothing_here(line, &area, &why);
            }
        }
        for line in self.all_of_host(&["ProxyPassMatch"]) {
            let is_script = fcgi_address(line.argument(1)).is_some();
            if !is_script && line.argument(1) != "!" {
                let why = "only prefixes can lead to another server; write `[[sites.proxy]]` in \
                           place of the `deny`";
                self.nothing_here(line, &PathArea::Regex(line.first().to_owned()), why);
            }
        }
        for line in self.all_of_host(&["ProxyPreserveHost"]) {
            self.keep(line);
        }
    }

    fn proxy(
        &mut self,
        area: &PathArea,
        from: ProxyLine<'a>,
        others: &[&PathArea],
    ) -> Result<(), String> {
        let ProxyLine { to, line } = from;
        let PathArea::Below(prefix) = area else {
            return Err("only prefixes can lead to another server".to_owned());
        };
        let rest = ["http://", "ws://"].iter().find_map(|start| to.strip_prefix(start));
        let (server, path) = match (to.strip_prefix("unix:"), rest) {
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
        let path = format!("/{path}");
        let path = path.trim_end_matches('/');
        let strips = match (path, prefix.as_str()) {
            (path, prefix) if path == prefix => false,
            ("", _) => true,
            _ => return Err(format!("the path cannot be replaced by {path}")),
        };
        let mut patterns = area.patterns_without(others);
        if others.is_empty() {
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
                vec![("path", toml_text::string(&pattern)), ("to", toml_text::string(&server))];
            if strips {
                fields.push(("strip_prefix", "true".to_owned()));
            }
            if !keeps_host {
                let host = server.strip_prefix("http://").unwrap_or("localhost");
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
