//! What a path leads to: `Alias`, `Redirect`.

use super::host_import::HostImport;
use super::path_area::{MappedFolder, PathArea};
use crate::file_draft::Placed;
use crate::regexes;
use crate::source_directive::Directive;
use crate::toml_text;

/// The statuses of redirects.
pub(super) const REDIRECTS: [&str; 5] = ["301", "302", "303", "307", "308"];

impl<'a> HostImport<'_, 'a> {
    /// `Alias` and `ScriptAlias`: the first one of a path decides; those of the host come first.
    pub(super) fn aliases(&mut self) {
        self.mapped = vec![MappedFolder { prefix: String::new(), folder: self.root.clone() }];
        let (mut is_hidden, mut lines) = (false, Vec::new());
        for alias in self.all_of_host(&["Alias", "ScriptAlias", "AliasMatch", "ScriptAliasMatch"]) {
            // After one for all paths, none is reached.
            if is_hidden {
                self.keep(alias);
                continue;
            }
            let prefix = alias.first().trim_end_matches('/').to_owned();
            let folder = self.config.absolute(alias.argument(1));
            let folder = folder.trim_end_matches('/').to_owned();
            if alias.name.to_ascii_lowercase().ends_with("match") || folder.contains('$') {
                let why = "only the paths below a prefix can have a folder of their own \
                           (`aliases`); the paths are a 404";
                let pattern = PathArea::Regex(alias.first().to_owned());
                self.nothing_here(alias, &pattern, why);
                continue;
            }
            if alias.is("ScriptAlias") {
                let why = "CGI programs do not run here; the paths are a 404";
                self.nothing_here(alias, &PathArea::Below(prefix), why);
                continue;
            }
            if prefix.is_empty() {
                is_hidden = true;
                let root = Placed::new(toml_text::string(&folder), &alias.place);
                self.site.settings.replace("root", root);
                self.keep(alias);
                self.mapped[0].folder.clone_from(&folder);
                self.root = folder;
                continue;
            }
            // Nor after one for the paths around its own.
            let below = PathArea::Below(prefix.clone());
            let earlier = self.mapped.iter().skip(1).map(|one| one.prefix.clone());
            if earlier.map(PathArea::Below).any(|area| area.covers(&below)) {
                self.keep(alias);
                continue;
            }
            if !alias.first().ends_with('/') && self.files.read(&folder).is_ok() {
                let why = "only folders can have paths of their own (`aliases`), and this one is a \
                           404: in place of the `deny`, copy or link the file into the document \
                           root";
                self.nothing_here(alias, &PathArea::Below(prefix), why);
                continue;
            }
            self.keep(alias);
            self.mapped.push(MappedFolder { prefix, folder });
            lines.push(alias);
        }
        self.folders_of_aliases(&lines);
    }

    /// Writes `aliases`. One that leads to its own folder of the document root is none, unless it
    /// is below another one. `lines` are those of all aliases.
    fn folders_of_aliases(&mut self, lines: &[&'a Directive]) {
        let aliases = self.mapped.split_off(1);
        let root = self.root.clone();
        let is_own = |one: &MappedFolder| one.folder == format!("{root}{}", one.prefix);
        let below = |one: &MappedFolder| PathArea::Below(one.prefix.clone());
        for (alias, line) in aliases.iter().zip(lines) {
            let is_around = |one: &MappedFolder| below(one).covers(&below(alias));
            if is_own(alias) && !aliases.iter().any(|one| !is_own(one) && is_around(one)) {
                continue;
            }
            let placed = Placed::new(toml_text::string(&alias.folder), &line.place);
            self.site.settings.entry("aliases", &format!("{}/", alias.prefix), placed);
            self.mapped.push(alias.clone());
        }
    }

    /// `Alias` in a section, for the paths of the section.
    pub(super) fn aliases_of_sections(&mut self) {
        for section in self.sections.clone().iter().filter(|one| one.section.is_some()) {
            for line in ["Alias", "ScriptAlias"].iter().flat_map(|name| section.all(name)) {
                let why = "only an alias outside of sections has a counterpart (`aliases`); the \
                           paths are a 404";
                self.nothing_here(line, &section.area, why);
            }
        }
    }

    /// `Redirect` and `RedirectMatch`: those of the host first, then those of the server.
    pub(super) fn redirects(&mut self) {
        let names = ["Redirect", "RedirectMatch", "RedirectPermanent", "RedirectTemp"];
        let mut found: Vec<(Option<PathArea>, &'a Directive)> =
            self.all_of_host(&names).into_iter().map(|one| (None, one)).collect();
        for section in self.sections.iter().filter(|one| one.section.is_some()) {
            let own = names.iter().flat_map(|name| section.all(name));
            found.extend(own.map(|one| (Some(section.area.clone()), one)));
        }
        for (area, line) in found {
            if self.is_moved(line) {
                continue;
            }
            if let Err(why) = self.redirect(area, line) {
                let why = format!("{why}; write `redirects` or `deny` of the site");
                self.report.access_left_out(&line.place, &line.shown(), &why);
            }
        }
    }

    fn redirect(&mut self, area: Option<PathArea>, line: &'a Directive) -> Result<(), String> {
        let words: Vec<&str> = line.arguments.iter().map(String::as_str).collect();
        let is_status = |word: &str| {
            let named = ["permanent", "temp", "seeother", "gone"];
            named.contains(&word) || word.len() == 3 && word.parse::<u16>().is_ok()
        };
        let (status, words) = match words.split_first() {
            Some((first, rest)) if is_status(&first.to_ascii_lowercase()) => (*first, rest),
            _ if line.is("RedirectPermanent") => ("permanent", words.as_slice()),
            _ => ("temp", words.as_slice()),
        };
        let status = match status.to_ascii_lowercase().as_str() {
            "permanent" => "301".to_owned(),
            "temp" => "302".to_owned(),
            "seeother" => "303".to_owned(),
            "gone" => "410".to_owned(),
            other => other.to_owned(),
        };
        let is_redirect = REDIRECTS.contains(&status.as_str());
        // In `<Location>`, the path is the one of the section.
        let (from, to) = match (words, &area) {
            ([from, to], _) => (Some(*from), *to),
            ([from], _) if !is_redirect => (Some(*from), ""),
            ([to], Some(_)) if is_redirect => (None, *to),
            ([], Some(_)) if !is_redirect => (None, ""),
            _ => return Err("its arguments are unknown".to_owned()),
        };
        let (pattern, group) = match from {
            None => {
                let area = area.unwrap_or_else(PathArea::all);
                (area.whole_pattern(), "")
            }
            Some(from) if line.is("RedirectMatch") => {
                regexes::check_regex(&format!("~{from}"))?;
                (format!("~{from}"), "")
            }
            Some("/") => ("/*".to_owned(), "$1"),
            Some(from) if from.ends_with('/') => (format!("{from}*"), "$1"),
            Some(from) => (format!("~^{}(/.*)?$", regex::escape(from)), "$1"),
        };
        if !is_redirect {
            let here =
                if ["404", "410"].contains(&status.as_str()) { status.as_str() } else { "403" };
            let path = toml_text::string(&pattern);
            let fields = [("path", path), ("status", here.to_owned())];
            self.push("deny", line, toml_text::table(fields));
            if here != status {
                self.report.changed(&line.place, &line.shown(), "the status is 403 here");
            }
            return Ok(());
        }
        if to.contains("%{") {
            return Err("its target is not fixed".to_owned());
        }
        let to = format!("{to}{group}");
        let fields = [
            ("from", toml_text::string(&pattern)),
            ("to", toml_text::string(&to)),
            ("status", status),
        ];
        self.push("redirects", line, toml_text::table(fields));
        Ok(())
    }
}
