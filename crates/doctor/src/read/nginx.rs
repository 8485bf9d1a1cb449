//! nginx's configuration: parsed with nginx's rules; only the directives that the checks need are
//! used.

use std::time::Duration;

use maitred_text::nginx_words::{Token, TokenKind, words};

use super::fpm::address;
use super::processes::Proc;
use super::world::World;
use super::{processes, systemd_units};
use crate::facts::*;

/// Its first file.
const FILE: &str = "/etc/nginx/nginx.conf";

/// Deepest include, and deepest block.
const MAX_DEPTH: usize = 20;

/// Most directives of all files together.
const MAX_DIRECTIVES: usize = 500_000;

/// nginx's default read timeout (`ngx_http_fastcgi_module`).
const DEFAULT_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// `worker_connections` if nothing is set.
const DEFAULT_CONNECTIONS: u64 = 512;

/// Directives of the commercial nginx or of modules.
const FOREIGN: [&str; 2] = ["fastcgi_cache_purge", "proxy_cache_purge"];

/// A directive with what is in its block.
#[derive(Debug, Clone, PartialEq)]
struct Directive {
    name: String,
    arguments: Vec<String>,
    place: String,
    block: Vec<Directive>,
}

/// The configuration. `None` if there is no nginx. `broken` gets files that cannot be read.
pub(super) fn nginx(
    world: &World,
    all: &Fact<Vec<Proc>>,
    broken: &mut Vec<(String, Unknown)>,
) -> Option<Nginx> {
    let text = match world.read_or_none(FILE) {
        Ok(text) => text?,
        Err(why) => {
            broken.push((FILE.to_owned(), why));
            return None;
        }
    };
    let mut reader = NginxReader { world, left: MAX_DIRECTIVES, broken };
    let directives = reader.file(FILE, &text, 0);
    let mut nginx = Nginx {
        file: FILE.to_owned(),
        workers: None,
        connections: DEFAULT_CONNECTIONS,
        open_files: Unknown::because("nginx does not run, and worker_rlimit_nofile is not set"),
        passes: Vec::new(),
        roots: Vec::new(),
        idle_proxy_caches: Vec::new(),
        foreign: Vec::new(),
        sendfile_off: Vec::new(),
    };
    let mut upstreams = Vec::new();
    top(&directives, &mut nginx, &mut upstreams);
    open_files(world, all, &directives, &mut nginx);
    for directive in directives.iter().filter(|directive| directive.name == "http") {
        walk(&directive.block, &BlockContext::default(), &upstreams, &mut nginx);
    }
    nginx.roots.sort();
    nginx.roots.dedup();
    Some(nginx)
}

struct NginxReader<'w> {
    world: &'w World,
    left: usize,
    broken: &'w mut Vec<(String, Unknown)>,
}

impl NginxReader<'_> {
    fn file(&mut self, file: &str, text: &str, depth: usize) -> Vec<Directive> {
        let words = words(text);
        let mut at = 0;
        self.block(file, &words, &mut at, depth)
    }

    fn block(
        &mut self,
        file: &str,
        words: &[Token],
        at: &mut usize,
        depth: usize,
    ) -> Vec<Directive> {
        let mut found = Vec::new();
        let mut line: Vec<&Token> = Vec::new();
        while let Some(word) = words.get(*at) {
            *at += 1;
            match word.kind {
                TokenKind::Text => {
                    line.push(word);
                    continue;
                }
                TokenKind::Close => return found,
                TokenKind::End | TokenKind::Open => {}
            }
            let first = line.first().map_or(word, |first| first);
            let mut directive = Directive {
                name: first.text.clone(),
                arguments: line.iter().skip(1).map(|word| word.text.clone()).collect(),
                place: format!("{file}:{}", first.line),
                block: Vec::new(),
            };
            line.clear();
            if word.kind == TokenKind::Open {
                directive.block = if depth < MAX_DEPTH {
                    self.block(file, words, at, depth + 1)
                } else {
                    self.too_deep(&directive.place, words, at)
                };
            }
            if depth > MAX_DEPTH || self.left == 0 {
                continue;
            }
            self.left -= 1;
            match directive.name.as_str() {
                "include" => found.extend(self.include(&directive, depth)),
                _ => found.push(directive),
            }
        }
        found
    }

    /// A block that is too deep is skipped and reported once.
    fn too_deep(&mut self, place: &str, words: &[Token], at: &mut usize) -> Vec<Directive> {
        let why = Unknown(format!("blocks lie more than {MAX_DEPTH} deep in each other"));
        if self.broken.last().is_none_or(|(_, last)| *last != why) {
            self.broken.push((place.to_owned(), why));
        }
        let mut open = 1;
        while let Some(word) = words.get(*at).filter(|_| open > 0) {
            *at += 1;
            match word.kind {
                TokenKind::Open => open += 1,
                TokenKind::Close => open -= 1,
                TokenKind::Text | TokenKind::End => {}
            }
        }
        Vec::new()
    }

    fn include(&mut self, directive: &Directive, depth: usize) -> Vec<Directive> {
        let Some(pattern) = directive.arguments.first() else {
            return Vec::new();
        };
        let pattern = if pattern.starts_with('/') {
            pattern.clone()
        } else {
            format!("/etc/nginx/{pattern}")
        };
        let mut found = Vec::new();
        for file in self.world.glob(&pattern) {
            match self.world.read(&file) {
                Ok(text) => found.extend(self.file(&file, &text, depth + 1)),
                Err(why) => self.broken.push((file, why)),
            }
        }
        found
    }
}

fn top(
    directives: &[Directive],
    nginx: &mut Nginx,
    upstreams: &mut Vec<(String, Vec<String>, u64)>,
) {
    for directive in directives {
        let first = directive.arguments.first().map(String::as_str).unwrap_or_default();
        match directive.name.as_str() {
            "worker_processes" => nginx.workers = first.parse().ok(),
            "worker_rlimit_nofile" => {
                nginx.open_files = first.parse().map_err(|_| Unknown("it is no number".to_owned()));
            }
            "events" => {
                let mut inside = directive.block.iter();
                let found = inside.find(|inner| inner.name == "worker_connections");
                let number = found.and_then(|found| found.arguments.first()?.parse().ok());
                nginx.connections = number.unwrap_or(DEFAULT_CONNECTIONS);
            }
            "http" => top(&directive.block, nginx, upstreams),
            "upstream" => upstreams.push(upstream(first, &directive.block)),
            _ => {}
        }
    }
}

fn upstream(name: &str, block: &[Directive]) -> (String, Vec<String>, u64) {
    let first = |directive: &Directive| directive.arguments.first().cloned();
    let servers = block.iter().filter(|inner| inner.name == "server").filter_map(first);
    let kept = block.iter().find(|inner| inner.name == "keepalive").and_then(first);
    (
        name.to_owned(),
        servers.map(|server| address(&server)).collect(),
        kept.and_then(|kept| kept.parse().ok()).unwrap_or(0),
    )
}

/// The configured limit, or else that of a running worker.
fn open_files(world: &World, all: &Fact<Vec<Proc>>, directives: &[Directive], nginx: &mut Nginx) {
    if directives.iter().any(|directive| directive.name == "worker_rlimit_nofile") {
        return;
    }
    let running = all.as_ref().ok().and_then(|all| {
        let mut all = all.iter();
        all.find(|process| process.title.starts_with("nginx: worker process"))
    });
    if let Some(worker) = running {
        nginx.open_files = processes::open_files(world, worker.pid);
        return;
    }
    if let Ok(Some(unit)) = systemd_units::unit(world, "nginx.service") {
        let limit =
            unit.settings.get("LimitNOFILE").and_then(|text| text.split(':').next()?.parse().ok());
        if let Some(limit) = limit {
            nginx.open_files = Ok(limit);
        }
    }
}

/// Directives inherited by a block.
#[derive(Debug, Clone, Default)]
struct BlockContext {
    read_timeout: Option<Duration>,
    keeps: bool,
    cache: Option<String>,
    key: String,
    ignored: Vec<String>,
    bypasses: Vec<String>,
    methods: Vec<String>,
    any: bool,
    lock: bool,
    stale: Vec<String>,
    proxy_cache: Option<String>,
    hosts: Vec<String>,
    location: String,
    allows: bool,
    denies: bool,
}

/// A time of nginx: numbers with units, as `60`, `500ms`, `1h30m` or `1d` (`ngx_parse_time`); the
/// last may have no unit, and is seconds then.
fn time(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = split(rest, |sign| sign.is_ascii_digit());
        let (unit, after) = split(after, |sign| sign.is_ascii_alphabetic());
        let number: u64 = number.parse().ok()?;
        let part = match unit {
            "ms" => Duration::from_millis(number),
            _ => Duration::from_secs(number.saturating_mul(seconds(unit)?)),
        };
        sum = (sum + part.min(LONGEST)).min(LONGEST);
        rest = after.trim_start();
    }
    Some(sum)
}

fn seconds(unit: &str) -> Option<u64> {
    const DAY: u64 = 86_400;
    Some(match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY,
        "w" => 7 * DAY,
        "M" => 30 * DAY,
        "y" => 365 * DAY,
        _ => return None,
    })
}

/// The start of a text, and the rest.
fn split(text: &str, is_part: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|sign| !is_part(sign)).unwrap_or(text.len()))
}

impl BlockContext {
    /// The scope inside a block: its own directives apply before nested blocks.
    fn inside(&self, block: &[Directive]) -> BlockContext {
        let mut scope = self.clone();
        let is_own = |name: &str| block.iter().any(|directive| directive.name == name);
        // Directives that may be repeated add up, or are inherited all together.
        if is_own("fastcgi_cache_bypass") || is_own("fastcgi_no_cache") {
            scope.bypasses.clear();
        }
        if is_own("allow") || is_own("deny") {
            (scope.allows, scope.denies) = (false, false);
        }
        for directive in block {
            scope.take(directive);
        }
        scope
    }

    fn take(&mut self, directive: &Directive) {
        let all = &directive.arguments;
        let first = all.first().map(String::as_str).unwrap_or_default();
        match directive.name.as_str() {
            "fastcgi_read_timeout" => self.read_timeout = time(first),
            "fastcgi_keep_conn" => self.keeps = first == "on",
            "fastcgi_cache" => self.cache = (first != "off").then(|| first.to_owned()),
            "fastcgi_cache_key" => self.key = all.join(" "),
            "fastcgi_ignore_headers" => {
                self.ignored = all.iter().map(|name| name.to_ascii_lowercase()).collect();
            }
            "fastcgi_cache_bypass" | "fastcgi_no_cache" => {
                self.bypasses.extend(all.iter().cloned())
            }
            "fastcgi_cache_methods" => self.methods.clone_from(all),
            "fastcgi_cache_valid" => self.any |= all.iter().any(|word| word == "any"),
            "fastcgi_cache_lock" => self.lock = first == "on",
            "fastcgi_cache_use_stale" => self.stale.clone_from(all),
            "proxy_cache" => self.proxy_cache = (first != "off").then(|| directive.place.clone()),
            "server_name" => self.hosts.clone_from(all),
            "allow" => self.allows = true,
            "deny" => self.denies = true,
            "auth_basic" => self.denies |= first != "off",
            "internal" => self.denies = true,
            _ => {}
        }
    }

    fn cached(&self) -> Option<PassCache> {
        Some(PassCache {
            zone: self.cache.clone()?,
            hosts: self.hosts.clone(),
            key: self.key.clone(),
            ignored: self.ignored.clone(),
            bypasses: self.bypasses.clone(),
            methods: self.methods.clone(),
            keeps_any_status: self.any,
            locks: self.lock,
            sends_stale: self.stale.iter().any(|word| word == "updating"),
        })
    }
}

fn proxies(block: &[Directive]) -> bool {
    block.iter().any(|directive| directive.name == "proxy_pass" || proxies(&directive.block))
}

fn walk(
    block: &[Directive],
    around: &BlockContext,
    upstreams: &[(String, Vec<String>, u64)],
    nginx: &mut Nginx,
) {
    let scope = around.inside(block);
    for directive in block {
        let all = &directive.arguments;
        let first = all.first().map(String::as_str).unwrap_or_default();
        match directive.name.as_str() {
            "fastcgi_pass" => nginx.passes.push(pass(directive, &scope, upstreams)),
            "root" if first.starts_with('/') => nginx.roots.push(first.to_owned()),
            "sendfile" if first == "off" => nginx.sendfile_off.push(directive.place.clone()),
            "proxy_cache" if first != "off" && !proxies(block) => {
                nginx.idle_proxy_caches.push(directive.place.clone());
            }
            name if FOREIGN.contains(&name) => {
                nginx.foreign.push((name.to_owned(), directive.place.clone()));
            }
            "location" => {
                let scope = BlockContext { location: all.join(" "), ..scope.clone() };
                walk(&directive.block, &scope, upstreams, nginx);
            }
            "server" | "if" | "limit_except" => walk(&directive.block, &scope, upstreams, nginx),
            _ => {}
        }
    }
}

fn pass(
    directive: &Directive,
    scope: &BlockContext,
    upstreams: &[(String, Vec<String>, u64)],
) -> Pass {
    let target = directive.arguments.first().map(String::as_str).unwrap_or_default();
    let upstream = upstreams.iter().find(|(name, ..)| name == target);
    let (to, kept) = match upstream {
        Some((_, servers, kept)) => (servers.clone(), *kept),
        None => (vec![address(target)], 0),
    };
    Pass {
        place: directive.place.clone(),
        to,
        read_timeout: scope.read_timeout.unwrap_or(DEFAULT_READ_TIMEOUT),
        kept: if scope.keeps { kept } else { 0 },
        location: scope.location.clone(),
        is_restricted: scope.denies,
        cache: scope.cached(),
    }
}

#[cfg(test)]
mod tests;
