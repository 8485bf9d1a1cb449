//! Paths that Caddy serves to fewer clients than the written sites do, found by comparing both.
//!
//! This is the last of the rules of the import, and knows none of the others: it looks at paths for
//! all matchers of a site, and compares.

use super::caddy_search::{CaddyReply, CaddySearch, SearchedBlock};
use super::config_tree::SiteBlock;
use super::path_areas::CaddyPath;
use super::request_tests::TestedPath;
use crate::fpm::{PassTarget, PoolPlan};
use crate::report::{ImportReport, SourceLine};
use crate::rule_examples::crossed;
use crate::served::{RulePaths, ServedRule};
use crate::source_directive::Directive;
use crate::written_site::{Behind, Served, WrittenSite, WrittenSites};

/// Deepest block that is searched for paths.
const MAX_DEPTH: usize = 20;

/// A path that no directive names.
const UNKNOWN_PATH: &str = "/zz9";

/// A hidden file that is served here.
const WELL_KNOWN: &str = "/.well-known/zz9";

/// What runs the scripts of a directive.
pub(super) struct ScriptRunner {
    /// The directive.
    pub line: Directive,
    /// The pool or the FastCGI server.
    pub target: PassTarget,
}

/// A written site and the block that it is of.
pub(super) struct ImportedBlock {
    /// A name of the site.
    pub host: String,
    /// The block.
    pub block: SiteBlock,
    /// What runs its scripts.
    pub runners: Vec<ScriptRunner>,
}

/// All blocks, and the pools of php-fpm.
#[derive(Clone, Copy)]
pub(super) struct ImportedBlocks<'i> {
    /// The blocks of the written sites, in their order.
    pub blocks: &'i [ImportedBlock],
    /// The pools.
    pub pools: &'i PoolPlan,
}

/// Names the directives of Caddy whose paths are served to more clients, or by scripts with other
/// rights.
pub(super) fn report(
    written: &WrittenSites,
    imported: ImportedBlocks<'_>,
    search: CaddySearch<'_>,
    report: &mut ImportReport,
) {
    let ImportedBlocks { blocks, pools } = imported;
    for (one, site) in blocks.iter().zip(written.all()) {
        let Some(site) = site else { continue };
        let mut rules = Vec::new();
        collect_rules(&one.block.directives, "", 0, &mut rules);
        let crossed = crossed(&rules).within_bounds(rules.len() * blocks.len());
        report.compares(&crossed);
        let paths = crossed.paths.into_iter().chain([WELL_KNOWN.to_owned()]);
        let searched = search.block(&one.block.directives, &one.host);
        let front = reply(&searched, UNKNOWN_PATH, false).filter(|reply| reply.script.is_some());
        let compared = ComparedBlock { searched, site, runners: &one.runners, pools, front };
        for path in paths {
            // Caddy ignores the case of all paths, and only rules about access do so here.
            let small = compared.laxer(&path.to_lowercase());
            if let Some((old, how)) = compared.laxer(&path).filter(|_| small.is_some()) {
                add(report, &one.block, &old, &format!("at paths such as `{path}` {how}"));
            }
        }
    }
}

/// What Caddy sends at a path, with a file of its name or without one.
fn reply<'c>(searched: &SearchedBlock<'c>, path: &str, is_file: bool) -> Option<CaddyReply<'c>> {
    searched.serve(&TestedPath { text: path.to_owned(), is_file })
}

/// A block of Caddy beside the site that is written for it.
struct ComparedBlock<'c, 'i> {
    searched: SearchedBlock<'c>,
    site: &'i WrittenSite,
    runners: &'i [ScriptRunner],
    pools: &'i PoolPlan,
    /// The front controller of all paths without a file.
    front: Option<CaddyReply<'c>>,
}

impl<'c> ComparedBlock<'c, '_> {
    /// How the written site is laxer at a path, and what Caddy sends there.
    fn laxer(&self, path: &str) -> Option<(CaddyReply<'c>, &'static str)> {
        let old = reply(&self.searched, path, true)?;
        let new = self.site.serve(path);
        if let Some(how) = self.laxer_with_file(&old, &new, path) {
            return Some((old, how));
        }
        if let (Some(_), Some(to)) = (&old.script, self.site.rewritten(path)) {
            let is_alike = self.is_run_alike(&to, Some(&old));
            return (!is_alike)
                .then_some((old, "Caddy runs what it is rewritten to in another pool"));
        }
        let is_front = self.site.has_front_script(path)
            && [Behind::File, Behind::Script].contains(&new.behind);
        let missing = reply(&self.searched, path, false).filter(|_| is_front)?;
        let runner = Some(&missing).filter(|missing| missing.script.is_some());
        let is_alike = self.is_run_alike(path, runner.or(self.front.as_ref()));
        (!is_alike).then_some((missing, "Caddy runs the front controller in another pool"))
    }

    /// The same if there is a file with the name of the path. Caddy's front controller runs by its
    /// own name as well.
    fn laxer_with_file(
        &self,
        old: &CaddyReply<'c>,
        new: &Served,
        path: &str,
    ) -> Option<&'static str> {
        let file = self.site.file(path);
        let runs = |reply: &&CaddyReply<'_>| reply.script.as_ref() == Some(&file);
        let runner = [Some(old), self.front.as_ref()].into_iter().flatten().find(runs);
        match new.behind {
            Behind::Nothing => None,
            Behind::Server if !old.is_proxied => Some("Caddy passes no request to that server"),
            Behind::File if old.file.as_ref() != Some(&file) => Some("Caddy sends no such file"),
            Behind::Script if runner.is_none() => Some("Caddy does not run this script"),
            Behind::Script if !self.is_run_alike(path, runner) => {
                Some("Caddy runs this script in another pool")
            }
            _ if old.needs_user && new.users.is_none() => Some("Caddy requires a user"),
            _ => None,
        }
    }

    /// Whether the pool of a path has the rights of the one that runs a script in Caddy.
    fn is_run_alike(&self, path: &str, old: Option<&CaddyReply<'_>>) -> bool {
        let line = old.and_then(|old| old.by.last()).copied();
        let runner = self.runners.iter().find(|one| Some(&one.line) == line);
        match (runner.map(|one| &one.target), self.site.pool(path)) {
            (Some(PassTarget::Pool(old)), Some(new)) => {
                let is_frankenphp = |name| !self.pools.has(name);
                old == new
                    || self.pools.have_same_rights(old, new)
                    || is_frankenphp(old) && is_frankenphp(new)
            }
            (Some(PassTarget::Pool(_)), None) | (Some(PassTarget::Upstream(_)), Some(_)) => false,
            (None, _) | (Some(PassTarget::Upstream(_)), None) => true,
        }
    }
}

/// Adds a finding for a directive, if none of those on the way has one about access.
fn add(report: &mut ImportReport, block: &SiteBlock, old: &CaddyReply<'_>, how: &str) {
    let is_there = |place: &SourceLine| old.by.iter().any(|one| one.place == *place);
    let why = format!("{how}: write `deny`, `deny_php` or `paths` of the site");
    match old.by.last() {
        Some(last) if !report.leaves_access_out(is_there) => {
            report.access_left_out(&last.place, &last.shown(), &why);
        }
        Some(_) => {}
        None if report.leaves_access_out(|place| *place == block.place) => {}
        None => report.access_left_out(&block.place, &block.addresses.join(", "), &why),
    }
}

/// The rules for the paths of all matchers, also behind the begin that a `handle_path` removes.
fn collect_rules(all: &[Directive], begin: &str, depth: usize, rules: &mut Vec<ServedRule>) {
    if depth > MAX_DEPTH {
        return;
    }
    for one in all {
        let words: Vec<&str> = one.arguments.iter().map(String::as_str).collect();
        let at = words.iter().position(|word| ["path", "path_regexp"].contains(word));
        let (kind, texts) = match (one.name.as_str(), at) {
            ("path" | "path_regexp", _) => (one.name.as_str(), &words[..]),
            ("hide", _) => ("hide", &words[..]),
            (name, Some(at)) if name.starts_with('@') || name == "not" => {
                (words[at], &words[at + 1..])
            }
            ("root", _) if words.len() == 1 => continue,
            _ if one.first().starts_with('/') => ("path", &words[..1]),
            _ => ("", &words[..0]),
        };
        for text in texts {
            for paths in example_paths(kind, text, begin) {
                rules.push(ServedRule::new(paths, &one.place, &one.name));
            }
        }
        let own = one.first().trim_end_matches('*').trim_end_matches('/');
        let inner = match one.name.as_str() {
            "handle_path" => format!("{begin}{own}"),
            _ => begin.to_owned(),
        };
        collect_rules(&one.block, &inner, depth + 1, rules);
    }
}

/// The paths of a text of a matcher.
fn example_paths(kind: &str, text: &str, begin: &str) -> Vec<RulePaths> {
    match kind {
        "path_regexp" => vec![RulePaths::Regex(text.to_owned())],
        "hide" => vec![RulePaths::Exact(format!("{begin}/{}", text.trim_start_matches('/')))],
        _ => {
            let decoded = crate::escapes::percent_decoded(text).unwrap_or_default();
            let of = |text: &str| match CaddyPath::parse(text) {
                CaddyPath::Exact(text) => RulePaths::Exact(text),
                CaddyPath::Prefix(text) => RulePaths::Prefix { text, is_first: false },
                CaddyPath::Regex { text, .. } => RulePaths::Regex(format!("(?i){text}")),
            };
            match begin.is_empty() || !decoded.starts_with('/') {
                true => vec![of(&decoded)],
                false => vec![of(&decoded), of(&format!("{begin}{decoded}"))],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caddy::config_tree;
    use crate::caddy::directive_order::DirectiveOrder;
    use crate::only_file::OnlyFile;

    /// What is laxer in a site with these rules than in a block of a Caddyfile.
    fn found(block: &str, rules: &str) -> String {
        let block = block.replace("PHP", "php_fastcgi unix//run/php.sock");
        let files = OnlyFile(format!("a.example {{\nroot * /srv/a\n{block}\n}}\n"));
        let (mut read, mut found) = (ImportReport::default(), ImportReport::default());
        let config = config_tree::read(&files, "/c/Caddyfile", &|_| None, &mut read);
        let config = config.expect("it has no mistake");
        let site = format!("[[sites]]\nroot = \"/srv/a\"\nfront_controller = \"\"\n{rules}\n");
        let parsed = maitred_config::parse(&site, std::path::Path::new("/maitred.toml"));
        assert!(parsed.is_ok(), "{site}");
        let blocks = config.sites.iter().cloned();
        let blocks = blocks.map(|block| ImportedBlock {
            host: "a.example".to_owned(),
            block,
            runners: Vec::new(),
        });
        let blocks: Vec<ImportedBlock> = blocks.collect();
        let order = DirectiveOrder::new(&[]);
        let search = CaddySearch { environment: &|_| None, main: "/c/Caddyfile", order: &order };
        let imported = ImportedBlocks { blocks: &blocks, pools: &PoolPlan::default() };
        report(&WrittenSites::of_toml(&site, &[""]), imported, search, &mut found);
        let shown = found.to_string();
        let (compared, differences) = shown.split_once('\n').expect("a line");
        assert!(compared.starts_with("Compared: "), "{shown}");
        differences.to_owned()
    }

    #[test]
    fn what_caddy_does_not_serve_is_named_where_it_is_served() {
        const NO_PHP: &str = "deny_php = [\"/*\"]";
        let inside = |block: &str| {
            format!(
                "handle /app/* {{\n@s path *.sql *.bak\n{block}\nhandle {{\nfile_server\n}}\n}}\n\
                 handle {{\nfile_server\n}}"
            )
        };
        let closed = format!("{NO_PHP}\ndeny = [\"~(?i)\\\\.(sql|bak)$\"]");
        for (block, laxer, strict) in [
            // A block without a pattern, with its guards.
            (inside("handle @s {\nrespond 403\n}"), NO_PHP, closed.as_str()),
            (inside("handle @s {\nbasic_auth {\na $2a$14$b\n}\nfile_server\n}"), NO_PHP, &closed),
            (inside("redir @s /login"), NO_PHP, &closed),
            (inside("rewrite @s /none"), NO_PHP, &closed),
            // Only the first `rewrite` and the first `root` with the request are evaluated.
            (
                "route {\nrewrite /app/* /none\nrewrite /none /ok\nfile_server\n}".to_owned(),
                "deny_php = [\"/*\"]\nrewrite = [{ from = \"/none\", to = \"/ok\" }]",
                "deny_php = [\"/*\"]\ndeny = [\"/app/*\", \"/none\"]",
            ),
            (
                "route {\nroot /x/* /srv/b\nroot * /srv/a\nfile_server\n}".to_owned(),
                NO_PHP,
                "deny_php = [\"/*\"]\naliases.\"/x/\" = \"/srv/b/x\"",
            ),
            // A server that has only some of the paths.
            (
                "reverse_proxy /api/* b.example:80\nfile_server".to_owned(),
                "deny_php = [\"/*\"]\n\
                 proxy = [{ path = \"/*\", to = \"http://127.0.0.1:81\" }]",
                "deny_php = [\"/*\"]\n\
                 proxy = [{ path = \"/api/*\", to = \"http://127.0.0.1:81\" }]",
            ),
            // Scripts of another folder.
            ("PHP {\nroot /srv/b\n}\nfile_server".to_owned(), "", NO_PHP),
            // Escaped paths.
            (
                "respond /my%20docs/* 403\nfile_server".to_owned(),
                "deny_php = [\"/*\"]\ndeny = [\"~(?i)^/my%20docs/\"]",
                "deny_php = [\"/*\"]\ndeny = [\"/my docs/*\"]",
            ),
            // A path that is changed.
            (
                "handle /app/* {\nuri strip_prefix /app\nrespond /private/* 403\nfile_server\n}"
                    .to_owned(),
                "deny_php = [\"/*\"]\ndeny = [\"/private/*\"]",
                "deny = [\"/*\"]",
            ),
            // Scripts of a folder whose files alone are sent.
            (
                "handle /up/* {\nfile_server\n}\nhandle {\nPHP\nfile_server\n}".to_owned(),
                "",
                "deny_php = [\"/up/*\"]",
            ),
            // Paths that no directive has, hidden names, and another folder.
            (
                "file_server /x/*".to_owned(),
                NO_PHP,
                "deny = [\"~^/(?:[^x]|$|x$|x[^/])\"]\ndeny_php = [\"/*\"]",
            ),
            (
                "file_server {\nhide secret\n}".to_owned(),
                NO_PHP,
                "deny_php = [\"/*\"]\ndeny = [\"~/secret(/|$)\"]",
            ),
            (
                "handle_path /dl/* {\nroot * /srv/dl\nfile_server\n}\nhandle {\nfile_server\n}"
                    .to_owned(),
                NO_PHP,
                "deny_php = [\"/*\"]\naliases.\"/dl/\" = \"/srv/dl\"",
            ),
        ] {
            assert!(!found(&block, laxer).is_empty(), "{block}\n{laxer}");
            assert_eq!(found(&block, strict), "", "{block}\n{strict}");
        }
    }

    #[test]
    fn what_depends_on_more_than_the_host_and_the_path_is_no_difference() {
        for block in [
            "@a header X-A b\nrespond @a 403\nfile_server",
            "forward_auth b.example {\nuri /check\n}\nfile_server",
            "uri replace /a /b\nfile_server",
            "rewrite * /{host}{path}\nfile_server",
            "handle {\nroot * /srv/{host}\nfile_server\n}",
        ] {
            assert_eq!(found(block, ""), "", "{block}");
        }
        assert!(found("@a method POST\nrespond @a 403\nPHP\nfile_server", "").is_empty());
        let other = "@a host b.example\nrespond @a 403\nPHP\nfile_server";
        assert!(found(other, "").is_empty());
        let own = "@a not host b.example\nrespond @a 403\nPHP\nfile_server";
        assert!(found(own, "").contains("Caddy sends no such file"));
        let far = "@a not remote_ip private_ranges\nabort @a\nPHP\nfile_server";
        assert!(found(far, "").contains("abort @a"));
    }
}
