//! A `server` of nginx as a site.

use std::collections::{BTreeMap, BTreeSet};

use super::location::{self, Location, Matcher};
use super::php_locations::{matches_path, named_scripts};
use super::scope::Scope;
use crate::FileReader;
use crate::file_draft::{Placed, SiteDraft};
use crate::fpm::PoolPlan;
use crate::prefix_complement::LiteralPath;
use crate::report::{ImportReport, SourceLine};
use crate::source_directive::Directive;
use crate::toml_text;

/// Scripts that configurations of applications run.
const SCRIPTS: [&str; 6] =
    ["/index.php", "/app.php", "/get.php", "/static.php", "/remote.php", ANY_SCRIPT];

/// A script that no configuration names.
pub(super) const ANY_SCRIPT: &str = "/zz9/zz9.php";

/// What all servers share.
#[derive(Debug, Default)]
pub struct HttpContext {
    /// The servers of `upstream` blocks by name.
    pub upstreams: BTreeMap<String, Vec<String>>,
    /// The rates of zones that count clients by address, as maitred writes them.
    pub rates: BTreeMap<String, String>,
    /// The zones of `limit_conn` that count clients by address.
    pub by_address: BTreeSet<String>,
    /// Redirects by path, of `map` blocks by their variable: paths as in `map`, and targets.
    pub redirect_maps: BTreeMap<String, Vec<(String, String, SourceLine)>>,
    /// The folder of the configuration.
    pub folder: String,
}

/// The import of one server.
pub(super) struct ServerImport<'w, 'a> {
    pub(super) files: &'w dyn FileReader,
    pub(super) report: &'w mut ImportReport,
    pub(super) pools: &'w mut PoolPlan,
    pub(super) upstreams: &'w BTreeMap<String, Vec<String>>,
    pub(super) rates: &'w BTreeMap<String, String>,
    pub(super) by_address: &'w BTreeSet<String>,
    pub(super) redirect_maps: &'w BTreeMap<String, Vec<(String, String, SourceLine)>>,
    pub(super) folder: &'w str,
    pub(super) scope: Scope<'a>,
    pub(super) place: SourceLine,
    pub(super) site: SiteDraft,
    pub(super) root: String,
    /// The paths and prefixes of all locations.
    pub(super) literals: Vec<LiteralPath>,
    /// The same without those of locations with a redirect: the first redirect wins.
    pub(super) not_redirected: Vec<LiteralPath>,
    /// Locations that refuse all requests. A place would not tell two of them apart that include
    /// the same file.
    pub(super) refused: Vec<&'a Directive>,
    /// The rewrite of location `/` that the front controller stands for.
    pub(super) front_rewrite: Option<&'a Directive>,
    /// Some scripts that run.
    pub(super) scripts: Vec<String>,
    /// The first location with a regular expression that serves something: it precedes prefixes.
    pub(super) first_regex: Option<SourceLine>,
    /// The regular expressions of all such locations.
    pub(super) regexes: Vec<String>,
    /// It has plain HTTP, which is not redirected to HTTPS for all sites.
    pub(super) has_plain_http: bool,
    names: Vec<String>,
}

/// Whether a location refuses every request.
pub(super) fn refuses(location: &Location<'_>) -> bool {
    // The first rule that matches a client counts: an earlier `allow` lets some in.
    let decides = |one: &&Directive| match one.name.as_str() {
        "deny" => one.first() == "all",
        name => name == "allow",
    };
    let denies = location.scope.directives().iter().find(decides);
    let denies = denies.is_some_and(|one| one.name == "deny");
    let back = location.scope.own("return").next();
    denies || back.is_some_and(|one| one.first().parse().is_ok_and(|status: u16| status >= 400))
}

/// The folder of a block itself.
fn own_folder<'a>(scope: &Scope<'a>) -> Option<&'a Directive> {
    scope.own("root").next().or(scope.own("alias").next())
}

impl<'w, 'a> ServerImport<'w, 'a> {
    pub(super) fn new(
        files: &'w dyn FileReader,
        report: &'w mut ImportReport,
        pools: &'w mut PoolPlan,
        http: &'w HttpContext,
        scope: &Scope<'a>,
        directive: &'a Directive,
    ) -> ServerImport<'w, 'a> {
        let names = scope.own("server_name").flat_map(|names| names.arguments.clone()).collect();
        ServerImport {
            files,
            report,
            pools,
            upstreams: &http.upstreams,
            rates: &http.rates,
            by_address: &http.by_address,
            redirect_maps: &http.redirect_maps,
            folder: &http.folder,
            scope: scope.clone(),
            place: directive.place.clone(),
            site: SiteDraft { from: directive.place.to_string(), ..SiteDraft::default() },
            root: String::new(),
            literals: Vec::new(),
            not_redirected: Vec::new(),
            refused: Vec::new(),
            front_rewrite: None,
            scripts: Vec::new(),
            first_regex: None,
            regexes: Vec::new(),
            has_plain_http: false,
            names,
        }
    }

    /// The site. `hosts` are the names that it has here.
    pub(super) fn import(mut self, hosts: &[String], fallback_root: &str) -> SiteDraft {
        let hosts = Placed::new(toml_text::strings(hosts), &self.place);
        self.site.settings.set("hosts", hosts);
        let locations = location::all(&self.scope);
        self.document_root(&locations, fallback_root);
        self.front_controller(&locations);
        self.literals = locations.iter().filter_map(|one| one.matcher.literal()).collect();
        self.literals.retain(|one| one.text != "/" || one.is_exact);
        self.running_scripts(&locations);
        self.not_redirected.clone_from(&self.literals);
        let redirects = locations.iter().filter(|one| {
            one.scope.own("return").next().is_some_and(|back| back.first().starts_with('3'))
        });
        let redirected: Vec<LiteralPath> =
            redirects.filter_map(|one| one.matcher.literal()).collect();
        self.not_redirected.retain(|one| !redirected.contains(one));
        self.php(&locations);
        self.page_cache(&locations);
        let ends = self.rewrites(&self.scope.clone(), None);
        if !ends {
            for location in &locations {
                self.file_types(&location.scope, Some(location));
                let is_sent_by_scripts = self.folder(location, &locations);
                let is_named = matches!(location.matcher, Matcher::Named(_));
                if !is_named {
                    self.rewrites(&location.scope.clone(), Some(location));
                    self.location_responses(location);
                    if !is_sent_by_scripts {
                        self.internal(location);
                    }
                }
            }
            self.access(&locations);
            self.missing_files(&locations);
        }
        self.server_responses();
        self.file_types(&self.scope.clone(), None);
        self.listings(&locations);
        self.server_expires();
        locations.iter().for_each(|one| self.keep(one.directive));
        self.site
    }

    /// `root` and `index`.
    fn document_root(&mut self, locations: &[Location<'a>], fallback: &str) {
        let is_root = |one: &&Location<'_>| {
            one.matcher.literal().is_some_and(|path| path.text == "/" && !path.is_exact)
        };
        let of_location = locations.iter().find(is_root);
        let of_server = self.scope.get("root");
        let own = of_location.and_then(|one| own_folder(&one.scope));
        if let (Some(own), Some(of_server)) = (own, of_server) {
            self.other_roots(locations, own, of_server);
        }
        match own.or(of_server) {
            Some(root) => {
                self.root = self.absolute(root.first());
                let toml = toml_text::string(&self.root);
                self.site.settings.set("root", Placed::new(toml, &root.place));
                self.keep(root);
            }
            None => {
                fallback.clone_into(&mut self.root);
                let why = "nginx's default";
                let root = Placed::because(toml_text::string(fallback), &self.place.clone(), why);
                self.site.settings.set("root", root);
            }
        }
        let index = self.scope.get("index");
        let index = index.or(of_location.and_then(|one| one.scope.own("index").next()));
        match index {
            Some(index) => {
                let names = index.arguments.iter().filter(|name| !name.contains(['/', '$']));
                let names: Vec<&String> = names.collect();
                if names.len() < index.arguments.len() {
                    let why = "an index is the name of a file";
                    self.report.left_out(&index.place, &index.shown(), why);
                } else {
                    self.keep(index);
                }
                let toml = toml_text::strings(names);
                self.site.settings.set("index", Placed::new(toml, &index.place));
            }
            None => {
                let why = "nginx's default";
                let toml = toml_text::strings(["index.html"]);
                self.site.settings.set("index", Placed::because(toml, &self.place.clone(), why));
            }
        }
    }

    /// Says that locations with the root of the server lead to the one of `/` here.
    fn other_roots(&mut self, locations: &[Location<'a>], own: &Directive, of_server: &Directive) {
        let folder = |one: &Directive| self.absolute(one.first()).trim_end_matches('/').to_owned();
        if folder(own) == folder(of_server) {
            return self.keep(of_server);
        }
        let leads_there = |one: &Location<'_>| {
            let folder = one.scope.group(&["root", "alias"]).pop();
            let sends = ["return", "proxy_pass"].iter().all(|name| !one.scope.has(name));
            folder.is_some_and(|one| std::ptr::eq(one, of_server)) && sends && !refuses(one)
        };
        let why = "locations without a root of their own lead to the one of `/` here: give them \
                   `aliases`, or a site of their own";
        match locations.iter().any(leads_there) {
            true => self.report.access_left_out(&of_server.place, &of_server.shown(), why),
            false => self.keep(of_server),
        }
    }

    /// Scripts whose first location runs PHP.
    fn running_scripts(&mut self, locations: &[Location<'a>]) {
        let front = self.site.settings.value("front_controller").unwrap_or_default();
        let front = front.trim_matches('"').to_owned();
        let named = locations.iter().filter_map(|one| match &one.matcher {
            Matcher::Regex(text) => Some(named_scripts(text)),
            _ => None,
        });
        let candidates = SCRIPTS.iter().map(|script| (*script).to_owned()).chain([front]);
        let candidates = candidates.chain(named.flatten());
        let runs = |script: &String| {
            let first = locations.iter().find(|one| matches_path(one, script.as_bytes()));
            first.is_some_and(|one| one.scope.own("fastcgi_pass").next().is_some())
        };
        self.scripts = candidates.filter(|script| !script.is_empty()).filter(runs).collect();
        for script in self.scripts.iter().filter(|script| *script != ANY_SCRIPT) {
            let exact = LiteralPath { text: script.clone(), is_exact: true };
            // A location such as `= /index.php` has no paths below the script.
            let below = runs(&format!("{script}/zz9"))
                .then(|| LiteralPath { text: format!("{script}/"), is_exact: false });
            let new = below.into_iter().chain([exact]).filter(|one| !self.literals.contains(one));
            self.literals.extend(new.collect::<Vec<_>>());
        }
        let is_regex = |one: &&Location<'_>| {
            matches!(one.matcher, Matcher::Regex(_)) && one.around.is_none() && !refuses(one)
        };
        self.first_regex = locations.iter().find(is_regex).map(|one| one.directive.place.clone());
        let texts = locations.iter().filter(is_regex).filter_map(|one| match &one.matcher {
            Matcher::Regex(text) => Some(text.clone()),
            _ => None,
        });
        self.regexes = texts.collect();
    }

    /// The directive is in the file, or needs no counterpart.
    pub(super) fn keep(&mut self, directive: &Directive) {
        if !self.report.is_covered(&directive.place, &directive.name) {
            self.report.kept(&directive.place, &directive.shown());
        }
    }

    /// The first name of the server, if it is one.
    pub(super) fn name(&self) -> &str {
        let is_name = |name: &&String| !name.contains(['*', '~', '_']) && !name.starts_with('.');
        self.names.iter().find(is_name).map(String::as_str).unwrap_or_default()
    }

    /// Says that a rule for a prefix applies where a regular expression has precedence in nginx.
    pub(super) fn precedence(&mut self, rule: &Directive, location: Option<&Location<'a>>) {
        let is_plain = location.is_some_and(|one| {
            matches!(one.matcher, Matcher::Prefix { is_first: false, .. }) && one.around.is_none()
        });
        if let Some(place) = self.first_regex.clone().filter(|_| is_plain) {
            let why = format!("it applies as well where the location at {place} has precedence");
            self.report.changed(&rule.place, &rule.shown(), &why);
        }
    }

    /// A path of nginx, which starts from the folder of its configuration.
    pub(super) fn absolute(&self, path: &str) -> String {
        match path.starts_with(['/', '$']) {
            true => path.to_owned(),
            false => format!("{}/{path}", self.folder),
        }
    }
}
