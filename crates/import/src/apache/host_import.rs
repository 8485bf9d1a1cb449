//! A virtual host as a site.

use std::cell::OnceCell;

use super::config_reader::ApacheConfig;
use super::htaccess_lines::FilesOfSite;
use super::mod_php_pools::ModPhpPools;
use super::path_area::{MappedFolder, PathArea};
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

/// The directive for the names of index files.
const INDEX_LINE: &str = "DirectoryIndex";

/// Its value for none.
const NO_INDEX: &str = "disabled";

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
    /// Whether its `AllowOverride` counts: sections with an expression for folders come too late.
    pub fn permits_files(&self) -> bool {
        let is_regex = |one: &Directive| one.is("<DirectoryMatch") || one.first() == "~";
        self.is_folder && !self.section.is_some_and(is_regex)
    }

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
    /// The `.htaccess` files of the site, read once: many sections ask for them.
    pub(super) htaccess_files: OnceCell<FilesOfSite>,
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
            htaccess_files: OnceCell::new(),
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
        self.variables_of_files();
        self.users_of_files();
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

    /// `DirectoryIndex`: Apache adds the names of all lines of a section, and takes those of the
    /// innermost section that has some.
    fn index(&mut self) {
        let sections = self.sections.clone();
        let lines = sections.iter().map(|one| (one, one.all(INDEX_LINE)));
        let lines = lines.filter(|(_, lines)| !lines.is_empty());
        let (of_root, others): (Vec<_>, Vec<_>) = lines.partition(|(one, _)| one.area.is_all());
        of_root.iter().chain(&others).flat_map(|(_, lines)| lines).for_each(|one| self.keep(one));
        let mut place = self.place.clone();
        let mut names = vec!["index.html".to_owned()];
        if let Some((_, lines)) = of_root.last() {
            lines.last().iter().for_each(|line| place.clone_from(&line.place));
            names = index_names(lines);
            for line in lines.iter().filter(|line| line.arguments.iter().any(|one| is_path(one))) {
                let why = "an index is the name of a file";
                self.report.left_out(&line.place, &line.shown(), why);
            }
        }
        for (_, lines) in &others {
            let mut new = index_names(lines);
            let has_none = new.is_empty();
            new.retain(|name| !names.contains(name) && !is_path(name));
            if let Some(last) = lines.last().filter(|_| has_none || !new.is_empty()) {
                let why = "the names are those of the whole site";
                self.report.changed(&last.place, &last.shown(), why);
            }
            names.extend(new);
        }
        names.retain(|name| !is_path(name));
        if names.is_empty() {
            names.push(NO_INDEX.to_owned());
            let why = "a site has an index: this name is that of no file";
            self.report.changed(&place, &format!("{INDEX_LINE} {NO_INDEX}"), why);
        }
        self.site.settings.set("index", Placed::new(toml_text::strings(names), &place));
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

/// The names that the lines of a section have together, each once (`add_index`).
fn index_names(lines: &[&Directive]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in lines {
        if line.arguments.len() == 1 && line.first().eq_ignore_ascii_case(NO_INDEX) {
            names.clear();
            continue;
        }
        for name in &line.arguments {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

fn is_path(name: &str) -> bool {
    name.contains('/')
}

pub(super) fn is_files(directive: &Directive) -> bool {
    directive.is("<Files") || directive.is("<FilesMatch")
}

/// The directives of a level or a section, without sections but for those of requirements.
pub(super) fn inner(directives: &[Directive]) -> Vec<&Directive> {
    let is_own = |one: &&Directive| !one.name.starts_with('<') || is_requirement(one);
    directives.iter().filter(is_own).collect()
}
