//! A virtual host as a site.

use super::config_reader::{self, ApacheConfig};
use super::mod_php_pools::ModPhpPools;
use super::path_area::{MappedFolder, PathArea, is_shell_pattern};
use super::path_pools::PathPool;
use super::require_rules::is_requirement;
use super::virtual_host::{MovedHost, VirtualHost};
use super::virtual_hosts::HostsImport;
use crate::FileReader;
use crate::file_draft::{Placed, SiteDraft};
use crate::fpm::PoolPlan;
use crate::regexes::check_regex;
use crate::report::{ImportReport, SourceLine};
use crate::source_directive::Directive;
use crate::toml_text;

/// Document roots of packages, for hosts that have none.
const DEFAULT_ROOT: &str = "/var/www/html";

/// A part of the configuration that applies to some paths.
#[derive(Debug, Clone)]
pub(super) struct AreaSection<'a> {
    /// Its paths.
    pub area: PathArea,
    /// Its directives, without sections but for those of requirements.
    pub directives: Vec<&'a Directive>,
    /// The section; none: the server or the virtual host itself.
    pub section: Option<&'a Directive>,
    /// Whether it is for a folder, and so `.htaccess` files and relative rewrites are possible.
    pub is_folder: bool,
}

impl<'a> AreaSection<'a> {
    /// The last directive of a name.
    pub fn last(&self, name: &str) -> Option<&'a Directive> {
        self.directives.iter().rev().copied().find(|one| one.is(name))
    }

    /// The directives of a name.
    pub fn all(&self, name: &str) -> Vec<&'a Directive> {
        self.directives.iter().copied().filter(|one| one.is(name)).collect()
    }
}

/// The import of one virtual host.
pub(super) struct HostImport<'w, 'a> {
    pub(super) files: &'w dyn FileReader,
    pub(super) report: &'w mut ImportReport,
    pub(super) pools: &'w mut PoolPlan,
    pub(super) mod_php: &'w mut ModPhpPools,
    pub(super) config: &'a ApacheConfig,
    /// The directives of the virtual host.
    pub(super) host: &'a [Directive],
    pub(super) is_server_itself: bool,
    pub(super) place: SourceLine,
    /// The names of the virtual host.
    pub(super) names: Vec<String>,
    /// Whether it is served over TLS.
    pub(super) has_tls: bool,
    /// Lines that sites of their own have.
    moved: Vec<&'a Directive>,
    pub(super) site: SiteDraft,
    pub(super) root: String,
    /// The document root and aliases.
    pub(super) mapped: Vec<MappedFolder>,
    /// All sections for its paths, in the order in which Apache merges them.
    pub(super) sections: Vec<AreaSection<'a>>,
    /// The last line by which `.htaccess` files of the document root apply.
    pub(super) override_line: Option<&'a Directive>,
    /// The pools of some paths.
    pub(super) path_pools: Vec<PathPool<'a>>,
}

impl<'w, 'a> HostImport<'w, 'a> {
    pub(super) fn new<'x>(
        hosts: &'x mut HostsImport<'_, 'a>,
        host: &VirtualHost<'a>,
    ) -> HostImport<'x, 'a> {
        HostImport {
            files: hosts.files,
            report: &mut *hosts.report,
            pools: &mut *hosts.pools,
            mod_php: &mut *hosts.mod_php,
            config: hosts.config,
            host: host.directives,
            is_server_itself: host.section.is_none(),
            place: host.place.clone(),
            names: host.names.clone(),
            has_tls: host.has_tls(),
            moved: host.moved_lines.clone(),
            site: SiteDraft { from: host.place.to_string(), ..SiteDraft::default() },
            root: String::new(),
            mapped: Vec::new(),
            sections: Vec::new(),
            override_line: None,
            path_pools: Vec::new(),
        }
    }

    /// The site. `hosts` are the names that it has here.
    pub(super) fn import(mut self, hosts: &[String]) -> SiteDraft {
        let hosts = Placed::new(toml_text::strings(hosts), &self.place);
        self.site.settings.set("hosts", hosts);
        self.moved.iter().for_each(|line| self.report.cover(line));
        self.document_root();
        self.aliases();
        self.collect_sections();
        self.aliases_of_sections();
        self.index();
        self.htaccess();
        self.php();
        self.includes();
        self.redirects();
        self.rewriting();
        self.pools_of_rewritten();
        self.proxies();
        self.access();
        self.responses();
        let sections: Vec<&'a Directive> =
            self.sections.iter().filter_map(|one| one.section).collect();
        sections.into_iter().for_each(|section| self.keep(section));
        self.site
    }

    /// The directives of the virtual host, and of the server around it.
    pub(super) fn levels(&self) -> Vec<&'a [Directive]> {
        match self.is_server_itself {
            true => vec![self.host],
            false => vec![self.config.tree.as_slice(), self.host],
        }
    }

    /// The last directive of a name in the virtual host, or else in the server.
    pub(super) fn of_host(&self, name: &str) -> Option<&'a Directive> {
        let mut levels = self.levels().into_iter().rev();
        levels.find_map(|level| level.iter().rev().find(|one| one.is(name)))
    }

    /// The directives of a name: those of the virtual host first, then those of the server.
    pub(super) fn all_of_host(&self, names: &[&str]) -> Vec<&'a Directive> {
        let levels = self.levels().into_iter().rev().flatten();
        levels.filter(|one| names.iter().any(|name| one.is(name))).collect()
    }

    pub(super) fn document_root(&mut self) {
        let Some(root) = self.of_host("DocumentRoot") else {
            DEFAULT_ROOT.clone_into(&mut self.root);
            let why = "Apache's default depends on its package";
            let toml = toml_text::string(DEFAULT_ROOT);
            let place = self.place.clone();
            self.site.settings.set("root", Placed::because(toml, &place, why));
            self.report.changed(&place, "DocumentRoot", why);
            return;
        };
        let path = self.config.absolute(root.first());
        path.trim_end_matches('/').clone_into(&mut self.root);
        let toml = toml_text::string(&self.root);
        self.site.settings.set("root", Placed::new(toml, &root.place));
        self.keep(root);
    }

    /// The sections whose last directive of this name decides for the whole site.
    fn of_root(&self, name: &str) -> Vec<&'a Directive> {
        let all = self.sections.iter().filter(|one| one.area.is_all());
        all.filter_map(|one| one.last(name)).collect()
    }

    fn index(&mut self) {
        let of_root = self.of_root("DirectoryIndex");
        let mut names: Vec<String> = match of_root.last() {
            Some(index) => index.arguments.clone(),
            None => vec!["index.html".to_owned()],
        };
        of_root.iter().for_each(|one| self.keep(one));
        let place = of_root.last().map_or(self.place.clone(), |index| index.place.clone());
        let others: Vec<&'a Directive> = self
            .sections
            .iter()
            .filter(|one| !one.area.is_all())
            .flat_map(|one| one.all("DirectoryIndex"))
            .collect();
        for other in others {
            self.keep(other);
            let is_new = |name: &&String| !names.contains(name) && !name.contains('/');
            let new: Vec<String> = other.arguments.iter().filter(is_new).cloned().collect();
            if !new.is_empty() && other.first() != "disabled" {
                let why = "the names are those of the whole site";
                self.report.changed(&other.place, &other.shown(), why);
                names.extend(new);
            }
        }
        let has_path = names.iter().any(|name| name.contains('/'));
        names.retain(|name| !name.contains('/') && name != "disabled");
        if has_path && let Some(index) = of_root.last() {
            let why = "an index is the name of a file";
            self.report.left_out(&index.place, &index.shown(), why);
        }
        self.site.settings.set("index", Placed::new(toml_text::strings(names), &place));
    }

    /// `AllowOverride`, and `.htaccess` files where it is another.
    fn htaccess(&mut self) {
        let is_own = |one: &&AreaSection<'a>| one.is_folder && one.area.is_all();
        let list_of = |section: &AreaSection<'a>| section.last("AllowOverrideList");
        let own: Vec<&AreaSection<'a>> = self.sections.iter().filter(is_own).collect();
        let last = own.iter().rev().find_map(|one| one.last("AllowOverride"));
        let list = own.iter().rev().find_map(|one| list_of(one));
        let lines: Vec<&'a Directive> = own
            .iter()
            .flat_map(|one| [one.last("AllowOverride"), list_of(one)])
            .flatten()
            .collect();
        lines.iter().for_each(|one| self.keep(one));
        let mut names: Vec<String> = last.map(|one| one.arguments.clone()).unwrap_or_default();
        names.extend(list.map(|one| one.arguments.clone()).unwrap_or_default());
        names.retain(|name| !name.eq_ignore_ascii_case("none"));
        let place = last.or(list).map_or(self.place.clone(), |one| one.place.clone());
        let is_on = !names.is_empty();
        if is_on {
            self.site.settings.set("htaccess", Placed::new("true".to_owned(), &place));
            self.overrides(names, last);
            self.override_line = lines.last().copied();
            self.defined_names();
        }
        self.other_overrides(is_on);
        self.files_above_root();
    }

    fn overrides(&mut self, names: Vec<String>, from: Option<&'a Directive>) {
        if names.iter().any(|name| name.eq_ignore_ascii_case("all")) {
            return;
        }
        let mut all = Vec::new();
        for name in names {
            match name.split_once('=') {
                Some((group, _)) if group.eq_ignore_ascii_case("options") => {
                    all.push("Options".to_owned());
                    if let Some(from) = from {
                        let why = "files may set all options: they have no effect here but \
                                   `Indexes`";
                        self.report.changed(&from.place, &from.shown(), why);
                    }
                }
                Some(_) => {
                    if let Some(from) = from {
                        let why = "a file with another directive gets a 500; set \
                                   `htaccess_unknown = \"ignore\"` for unknown ones";
                        self.report.left_out(&from.place, &from.shown(), why);
                    }
                }
                None => all.push(name),
            }
        }
        let place = from.map_or(self.place.clone(), |one| one.place.clone());
        if !all.is_empty() {
            let toml = toml_text::strings(all);
            self.site.settings.set("htaccess_override", Placed::new(toml, &place));
        }
    }

    /// `AllowOverride` of other folders: `.htaccess` files apply to the whole site or not at all.
    fn other_overrides(&mut self, is_on: bool) {
        let others: Vec<AreaSection<'a>> = self
            .sections
            .iter()
            .filter(|one| one.is_folder && !one.area.is_all())
            .cloned()
            .collect();
        for section in others {
            let Some(line) = section.last("AllowOverride") else { continue };
            let allows = !line.first().eq_ignore_ascii_case("none");
            if allows == is_on && !self.is_alias(&section.area) || !allows && !is_on {
                self.keep(line);
                continue;
            }
            if !allows {
                if self.is_alias(&section.area) {
                    self.keep(line);
                    continue;
                }
                let why = "`.htaccess` files apply in this folder as well, since they do in the \
                           document root: take the right to write there from PHP, or deny the \
                           folder";
                self.report.access_left_out(&line.place, &line.shown(), why);
                continue;
            }
            let folder = match &section.area {
                PathArea::Below(prefix) => self.folder_of(prefix),
                PathArea::Regex(_) => None,
            };
            let Some(folder) = folder else {
                let why = "`.htaccess` files in these folders have no effect here: write their \
                           rules by hand";
                self.report.access_left_out(&line.place, &line.shown(), why);
                continue;
            };
            let Some(mut found) = self.files.below(&folder, ".htaccess") else {
                let why = "its folders are too many, too deep, or not readable: `.htaccess` files \
                           in them have no effect here, so write their rules by hand";
                self.report.access_left_out(&line.place, &line.shown(), why);
                continue;
            };
            let count = found.len();
            found.retain(|file| !self.written_for(file, &folder, &section.area));
            match found.first() {
                None if count > 0 => {
                    let why = "the folders that a `.htaccess` file closes are denied, or run no \
                               PHP; other changes of such files have no effect";
                    self.report.changed(&line.place, &line.shown(), why);
                }
                None => {
                    let why = "there is no `.htaccess` file; one would have no effect";
                    self.report.changed(&line.place, &line.shown(), why);
                }
                Some(first) => {
                    let why = format!(
                        "{first} and {} others have no effect here: serve the folder as the root \
                         of a site of its own with `htaccess = true`, or write their rules by hand",
                        found.len() - 1
                    );
                    self.report.access_left_out(&line.place, &line.shown(), &why);
                }
            }
        }
    }

    /// Writes the rules of a `.htaccess` file in an area, if it does nothing but close its folder
    /// or turn PHP off there.
    fn written_for(&mut self, file: &str, folder: &str, area: &PathArea) -> bool {
        let PathArea::Below(prefix) = area else { return false };
        let Some(inner) = file.strip_prefix(folder) else { return false };
        let inner = inner.trim_end_matches("/.htaccess");
        let below = PathArea::Below(format!("{prefix}{inner}"));
        let folders = self
            .sections
            .iter()
            .filter(|one| one.is_folder && area.covers(&one.area) && one.area.covers(&below));
        let decides = folders.filter_map(|one| one.last("AllowOverride")).next_back();
        if decides.is_some_and(|line| line.first().eq_ignore_ascii_case("none")) {
            // Apache does not read it.
            return true;
        }
        let Ok(lines) = config_reader::htaccess(self.files, file, self.config) else {
            return false;
        };
        let of_kind = |wanted: HtaccessLine| lines.iter().filter(move |one| kind(one) == wanted);
        let is_ordered = lines.iter().any(|one| one.is("Order"));
        let closing = of_kind(HtaccessLine::Closes).next();
        if of_kind(HtaccessLine::Other).next().is_some() || is_ordered && closing.is_none() {
            return false;
        }
        if let Some(line) = closing {
            self.push("deny", line, toml_text::string(&below.whole_pattern()));
        } else if let Some(line) = of_kind(HtaccessLine::NoPhp).next() {
            self.push("deny_php", line, toml_text::string(&below.whole_pattern()));
        }
        true
    }

    /// `.htaccess` files above the document root.
    fn files_above_root(&mut self) {
        let sections = self.sections.iter().filter(|one| one.is_folder && one.area.is_all());
        let mut found = Vec::new();
        for section in sections {
            let Some(line) = section.last("AllowOverride") else { continue };
            let folder = section.section.map(Directive::first).unwrap_or_default();
            let folder = self.config.absolute(folder).trim_end_matches('/').to_owned();
            let is_on = !line.first().eq_ignore_ascii_case("none");
            if !is_on || is_shell_pattern(&folder) || folder == self.root {
                continue;
            }
            let mut around = self.root.as_str();
            while let Some((above, _)) =
                around.rsplit_once('/').filter(|(a, _)| a.len() >= folder.len())
            {
                let file = format!("{above}/.htaccess");
                if self.files.resolved(&file).is_some() {
                    found.push((line, file));
                }
                around = above;
            }
        }
        for (line, file) in found {
            let why = format!("{file} is above the document root and has no effect here: move it");
            self.report.access_left_out(&line.place, &line.shown(), &why);
        }
    }

    /// The alias or the document root that an area is in; none of an expression.
    pub(super) fn mapped_around(&self, area: &PathArea) -> Option<&MappedFolder> {
        let around = |one: &&MappedFolder| PathArea::Below(one.prefix.clone()).covers(area);
        self.mapped.iter().filter(around).max_by_key(|one| one.prefix.len())
    }

    /// Whether an area is in an alias.
    pub(super) fn is_alias(&self, area: &PathArea) -> bool {
        self.mapped_around(area).is_some_and(|one| !one.prefix.is_empty())
    }

    /// The folder of a prefix.
    pub(super) fn folder_of(&self, prefix: &str) -> Option<String> {
        let around = self.mapped_around(&PathArea::Below(prefix.to_owned()))?;
        Some(format!("{}{}", around.folder, prefix.strip_prefix(around.prefix.as_str())?))
    }

    /// Whether a section is for all of an area: that of a folder is for its own document root or
    /// alias.
    pub(super) fn applies(&self, section: &AreaSection<'_>, area: &PathArea) -> bool {
        let is_same = || self.mapped_around(&section.area) == self.mapped_around(area);
        section.area.covers(area) && (!section.is_folder || is_same())
    }

    /// The directive of a section, or of an earlier one that is for all of an area.
    pub(super) fn inherited(
        &self,
        at: usize,
        area: &PathArea,
        name: &str,
    ) -> Option<&'a Directive> {
        let earlier = self.sections[..=at].iter().rev();
        earlier.filter(|one| self.applies(one, area)).find_map(|one| one.last(name))
    }

    /// Whether a site of its own has a line. The finding for a line does not tell: sections for
    /// several areas have the same lines, and so have those with the same included file.
    pub(super) fn is_moved(&self, line: &Directive) -> bool {
        self.moved.iter().any(|moved| moved.place == line.place)
    }

    /// The directive is in the file, or needs no counterpart.
    pub(super) fn keep(&mut self, directive: &Directive) {
        if !self.report.is_covered(&directive.place, &directive.name) {
            self.report.kept(&directive.place, &directive.shown());
        }
    }

    /// Adds an item to a list of the site.
    pub(super) fn push(&mut self, list: &str, from: &Directive, toml: String) {
        self.site.settings.push(list, Placed::new(toml, &from.place));
        self.report.kept(&from.place, &from.shown());
    }

    /// Paths that lead elsewhere in Apache do not lead to the document root: they are a 404. `why`
    /// the directive is left out.
    pub(super) fn nothing_here(&mut self, from: &Directive, area: &PathArea, why: &str) {
        for pattern in area.patterns_without(&[]) {
            if let Err(why) = check_regex(&pattern) {
                let why = format!("{why}; write `deny` of the site for these paths");
                self.report.access_left_out(&from.place, &from.shown(), &why);
                continue;
            }
            self.report.left_out(&from.place, &from.shown(), why);
            let fields = [("path", toml_text::string(&pattern)), ("status", "404".to_owned())];
            let why = "it leads elsewhere in Apache";
            let item = Placed::because(toml_text::table(fields), &from.place, why);
            self.site.settings.push("deny", item);
        }
    }
}

/// A site for a name that is redirected.
pub(super) fn moved_site(moved: &MovedHost<'_>, place: &SourceLine) -> SiteDraft {
    let mut site = SiteDraft { from: place.to_string(), ..SiteDraft::default() };
    let at = &moved.from.place;
    site.settings.set("hosts", Placed::new(toml_text::strings([&moved.host]), at));
    let root = toml_text::string(DEFAULT_ROOT);
    site.settings.set("root", Placed::because(root, at, "not used"));
    let fields = [
        ("from", toml_text::string("/*")),
        ("to", toml_text::string(&moved.to)),
        ("status", moved.status.clone()),
    ];
    site.settings.push("redirects", Placed::new(toml_text::table(fields), at));
    site
}

/// What a line of a `.htaccess` file does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HtaccessLine {
    /// All clients are refused.
    Closes,
    /// Scripts do not run.
    NoPhp,
    /// Nothing by itself.
    Nothing,
    Other,
}

fn kind(line: &Directive) -> HtaccessLine {
    let words = line.arguments.join(" ").to_ascii_lowercase();
    match (line.name.to_ascii_lowercase().as_str(), words.as_str()) {
        ("require", "all denied") | ("deny", "from all") => HtaccessLine::Closes,
        ("php_flag" | "php_admin_flag" | "php_value", "engine off" | "engine 0") => {
            HtaccessLine::NoPhp
        }
        ("order", _) | ("satisfy", "all") => HtaccessLine::Nothing,
        _ => HtaccessLine::Other,
    }
}

pub(super) fn is_files(directive: &Directive) -> bool {
    directive.is("<Files") || directive.is("<FilesMatch")
}

/// The directives of a level or a section, without sections but for those of requirements.
pub(super) fn inner(directives: &[Directive]) -> Vec<&Directive> {
    let is_own = |one: &&Directive| !one.name.starts_with('<') || is_requirement(one);
    directives.iter().filter(is_own).collect()
}
