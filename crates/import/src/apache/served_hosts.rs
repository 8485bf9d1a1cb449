//! The virtual hosts of Apache as its clients see them.

use super::config_reader;
use super::host_import::{AreaSection, HostImport};
use super::mod_php_pools::ModPhpPools;
use super::path_area::PathArea;
use super::rewrite_chain::{RewriteChain, RewriteScope, chains};
use super::virtual_host::VirtualHost;
use super::virtual_hosts::{HostsImport, is_on};
use crate::FileReader;
use crate::fpm::PoolPlan;
use crate::report::{ImportReport, SourceLine};
use crate::served::{
    RuleAccess, RuleChoice, RulePaths, ServedAddress, ServedFolder, ServedRule, ServedSite,
};
use crate::source_directive::Directive;

/// The directives that decide what a section does, in the order in which they take effect.
const DECIDING: [&str; 14] = [
    "Redirect",
    "Require",
    "<RequireAll",
    "<RequireAny",
    "<RequireNone",
    "Deny",
    "Allow",
    "AuthType",
    "SetHandler",
    "ProxyPass",
    "RewriteRule",
    "FallbackResource",
    "Header",
    "AllowOverride",
];

/// The directives that decide who may see what.
const OF_ACCESS: [&str; 7] =
    ["Require", "<RequireAll", "<RequireAny", "<RequireNone", "Order", "Deny", "Allow"];

/// The directives that lead paths to folders.
const MAPPING: [&str; 5] =
    ["DocumentRoot", "Alias", "AliasMatch", "ScriptAlias", "ScriptAliasMatch"];

/// The sites of Apache's configuration in `main`.
///
/// # Errors
/// One sentence: the configuration cannot be read or has a syntax error.
pub fn served_sites(files: &dyn FileReader, main: &str) -> Result<Vec<ServedSite>, String> {
    let mut report = ImportReport::default();
    let config = config_reader::read(files, main, &mut report)?;
    let mut pools = PoolPlan::read(files, &[], &mut report);
    let mut mod_php = ModPhpPools::new(files, &config);
    let mut hosts = HostsImport {
        files,
        report: &mut report,
        pools: &mut pools,
        mod_php: &mut mod_php,
        config: &config,
    };
    let found = hosts.hosts();
    let is_reached = |host: &&VirtualHost<'_>| {
        !host.listens.is_empty() && (host.is_default || !host.names.is_empty())
    };
    let found = found.iter().filter(is_reached);
    Ok(found.map(|host| HostImport::new(&mut hosts, host).served(host)).collect())
}

impl<'a> HostImport<'_, 'a> {
    fn served(mut self, host: &VirtualHost<'a>) -> ServedSite {
        self.document_root();
        self.aliases();
        self.collect_sections();
        let mut rules = Vec::new();
        self.mapped_rules(&mut rules);
        self.section_rules(&mut rules);
        self.host_rules(&mut rules);
        let names = host.names.iter().filter_map(|name| match name.strip_prefix("*.") {
            Some(rest) => Some(format!("www.{rest}")),
            None => Some(name.clone()).filter(|name| name != "*"),
        });
        let is_section = |one: &&Directive| one.name.starts_with('<');
        let general = self.levels().concat();
        let general = general.iter().filter(|one| !is_section(one));
        ServedSite {
            place: self.place.clone(),
            names: names.collect(),
            is_default: host.is_default,
            addresses: host
                .listens
                .iter()
                .map(|one| ServedAddress {
                    host: one.host.clone(),
                    port: one.port,
                    is_tls: one.is_tls,
                })
                .collect(),
            access_logs: self.access_logs(),
            aliases: self.alias_folders(),
            general: general.map(|one| one.place.clone()).collect(),
            choice: RuleChoice::Merged,
            root: Some(self.root),
            rules,
        }
    }

    /// The logs of the virtual host, or else of the server.
    fn access_logs(&self) -> Vec<String> {
        let logs = |level: &[Directive]| -> Vec<String> {
            let is_log = |one: &&Directive| one.is("CustomLog") || one.is("TransferLog");
            let logs = level.iter().filter(is_log).map(Directive::first);
            let files = logs.filter(|log| !log.starts_with('|') && !log.contains("${"));
            files.map(|log| self.config.absolute(log)).collect()
        };
        let mut levels = self.levels().into_iter().rev().map(logs);
        levels.find(|logs| !logs.is_empty()).unwrap_or_default()
    }

    fn alias_folders(&self) -> Vec<ServedFolder> {
        let aliases = self.mapped.iter().filter(|one| !one.prefix.is_empty());
        aliases
            .map(|one| ServedFolder { prefix: one.prefix.clone(), folder: one.folder.clone() })
            .collect()
    }

    /// The document root and the aliases, which all sections precede.
    fn mapped_rules(&self, rules: &mut Vec<ServedRule>) {
        for line in self.all_of_host(&MAPPING) {
            let paths = match line.name.to_ascii_lowercase().as_str() {
                "documentroot" => RulePaths::Folder(String::new()),
                "aliasmatch" | "scriptaliasmatch" => RulePaths::Regex(line.first().to_owned()),
                _ => RulePaths::Folder(line.first().trim_end_matches('/').to_owned()),
            };
            rules.push(ServedRule::new(paths, &line.place, &line.shown()));
        }
    }

    /// Sections, in the order in which Apache merges them, with the rewrites in them.
    fn section_rules(&self, rules: &mut Vec<ServedRule>) {
        for (at, one) in self.sections.iter().enumerate() {
            let Some(section) = one.section else { continue };
            let mut rule = ServedRule::new(paths(&one.area), &section.place, &shown(section));
            rule.inner = places(section);
            rule.access = access(one);
            rule.is_closed = is_closed(one);
            rules.push(rule);
            if let Some(scope) = self.folder_scope(at).filter(|scope| scope.is_on) {
                chains(&one.directives, &scope)
                    .iter()
                    .for_each(|chain| rewrite(chain, &scope, rules));
            }
        }
    }

    /// Redirects, rewrites and proxied paths of the virtual host.
    fn host_rules(&self, rules: &mut Vec<ServedRule>) {
        for line in self.all_of_host(&["ProxyPassMatch", "ProxyPass"]) {
            let paths = match line.is("ProxyPass") {
                true => RulePaths::Folder(line.first().trim_end_matches('/').to_owned()),
                false => RulePaths::Regex(line.first().to_owned()),
            };
            rules.push(ServedRule::new(paths, &line.place, &line.shown()));
        }
        let own: Vec<&'a Directive> = self.host.iter().collect();
        if is_on(self.of_host("RewriteEngine")) {
            let scope = RewriteScope::default();
            chains(&own, &scope).iter().for_each(|chain| rewrite(chain, &scope, rules));
        }
        let names = ["Redirect", "RedirectMatch", "RedirectPermanent", "RedirectTemp"];
        for line in self.all_of_host(&names) {
            let of_path = |word: &&String| word.starts_with(['/', '^', '\\', '(', '.']);
            let Some(path) = line.arguments.iter().find(of_path) else { continue };
            let paths = match line.is("RedirectMatch") {
                true => RulePaths::Regex(path.clone()),
                false => RulePaths::Folder(path.trim_end_matches('/').to_owned()),
            };
            let mut rule = ServedRule::new(paths, &line.place, &line.shown());
            rule.is_before = true;
            rules.push(rule);
        }
    }
}

fn paths(area: &PathArea) -> RulePaths {
    match area {
        PathArea::Below(prefix) => RulePaths::Folder(prefix.clone()),
        PathArea::Regex(text) => RulePaths::Regex(text.clone()),
    }
}

/// A rewrite. Only one without conditions and with a pattern of its own precedes all sections.
fn rewrite(chain: &RewriteChain<'_>, scope: &RewriteScope, rules: &mut Vec<ServedRule>) {
    let Ok(expression) = chain.expression(scope) else { return };
    let paths = RulePaths::Regex(expression);
    let mut rule = ServedRule::new(paths, &chain.rule.place, &chain.rule.shown());
    rule.inner = chain.conditions.iter().map(|one| one.place.clone()).collect();
    rule.is_before = chain.conditions.is_empty() && !chain.is_for_all();
    rules.push(rule);
}

/// What a section says about access.
fn access(section: &AreaSection<'_>) -> RuleAccess {
    let is_access = |one: &&&Directive| OF_ACCESS.iter().any(|name| one.is(name));
    let lines: Vec<&&Directive> = section.directives.iter().filter(is_access).collect();
    let is_open = |one: &&&Directive| {
        let words = one.arguments.join(" ").to_ascii_lowercase();
        one.is("Require") && words == "all granted"
            || one.is("Allow") && words == "from all"
            || one.is("Order")
    };
    match lines.iter().all(is_open) {
        _ if lines.is_empty() => RuleAccess::Unset,
        true => RuleAccess::Open,
        false => RuleAccess::Restricted,
    }
}

/// Whether a section, for certain, has no client without a password or a named address.
fn is_closed(section: &AreaSection<'_>) -> bool {
    const NAMED: [&str; 8] =
        ["ip", "host", "forward-dns", "local", "user", "valid-user", "group", "ldap-user"];
    fn closes(line: &Directive) -> bool {
        let words = line.arguments.join(" ").to_ascii_lowercase();
        match line.name.to_ascii_lowercase().as_str() {
            "require" => {
                words == "all denied" || NAMED.contains(&words.split(' ').next().unwrap_or(""))
            }
            "<requireall" | "<requireany" => line.block.iter().all(closes),
            "deny" => words == "from all",
            "allow" => words.starts_with("from ") && words != "from all" && !words.contains("env="),
            "order" => true,
            _ => false,
        }
    }
    let is_one_of = |one: &Directive, names: &[&str]| names.iter().any(|name| one.is(name));
    let all = section.directives.iter().copied();
    let lines: Vec<&Directive> = all.filter(|one| is_one_of(one, &OF_ACCESS)).collect();
    // `Order` and `Allow` say nothing without `Deny`.
    lines.iter().any(|one| !is_one_of(one, &["Order", "Allow"]))
        && lines.iter().all(|one| closes(one))
        && section.last("Satisfy").is_none_or(|one| one.first().eq_ignore_ascii_case("all"))
}

/// The places of the directives in a section.
fn places(section: &Directive) -> Vec<SourceLine> {
    let own = section.block.iter();
    own.flat_map(|one| [vec![one.place.clone()], places(one)].concat()).collect()
}

/// A section with the directive in it that decides.
fn shown(section: &Directive) -> String {
    let find = |name: &&str| section.block.iter().find(|one| one.is(name));
    match DECIDING.iter().find_map(find) {
        Some(deciding) => format!("{}> {}", section.shown(), deciding.shown()),
        None => format!("{}>", section.shown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OneFile(&'static str);

    impl FileReader for OneFile {
        fn read(&self, path: &str) -> Result<String, String> {
            match path == "/etc/apache2/apache2.conf" {
                true => Ok(self.0.to_owned()),
                false => Err("there is none".to_owned()),
            }
        }

        fn glob(&self, _: &str) -> Vec<String> {
            Vec::new()
        }

        fn resolved(&self, _: &str) -> Option<String> {
            None
        }
    }

    const CONF: &str = "Listen 80\n\
        <Directory />\nRequire all denied\n</Directory>\n\
        <FilesMatch \"\\.php$\">\nSetHandler application/x-httpd-php\n</FilesMatch>\n\
        Alias /docs /usr/share/doc\n\
        <Directory /usr/share/doc>\nRequire all granted\n</Directory>\n\
        <VirtualHost *:80>\nServerName a.example\nServerAlias *.a.example\n\
        DocumentRoot /srv/a\nCustomLog /var/log/a.log combined\n\
        <Directory /srv/a>\nRequire all granted\n</Directory>\n\
        <Directory /srv/a/private>\nRequire all denied\n</Directory>\n\
        <Location /private/open>\nRequire all granted\n</Location>\n\
        Redirect /old /new\n\
        RewriteEngine on\nRewriteRule ^/gone\\.php$ - [G]\n\
        </VirtualHost>\n";

    #[test]
    fn the_rule_of_a_path_is_the_section_or_the_directive_that_decides() {
        let sites = served_sites(&OneFile(CONF), "/etc/apache2/apache2.conf").unwrap();
        let [site] = sites.as_slice() else { panic!("{sites:#?}") };
        assert_eq!(site.names, ["a.example", "www.a.example"]);
        assert_eq!(site.access_logs, ["/var/log/a.log"]);
        assert_eq!(site.aliases[0].folder, "/usr/share/doc");
        for (path, line) in [
            ("/", 17),
            ("/a.php", 5),
            ("/private/a.php", 20),
            ("/private/open/a.txt", 23),
            ("/privately", 17),
            ("/docs/a.txt", 9),
            ("/old/a", 26),
            ("/gone.php", 28),
        ] {
            let rule = site.rule_of(path).map(|rule| rule.place.line);
            assert_eq!(rule, Some(line), "{path}");
        }
        let rule = site.rule_of("/private/a.txt").map(ToString::to_string).unwrap_or_default();
        let expected =
            "/etc/apache2/apache2.conf:20: <Directory /srv/a/private> Require all denied";
        assert_eq!(rule, expected);
    }
}
