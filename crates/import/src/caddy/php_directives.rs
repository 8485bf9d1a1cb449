//! PHP: `php_fastcgi`, and FrankenPHP's `php_server` and `php`.

use super::laxer_blocks::ScriptRunner;
use super::path_areas::BlockPaths;
use super::served_areas::ServedArea;
use super::site_walk::{Asked, BlockContext, SiteWalk};
use super::text_at;
use crate::file_draft::{Placed, PoolDraft};
use crate::fpm::{CONFINING, PassTarget};
use crate::parameter_settings::{PHP_PARAMETERS, settings_in};
use crate::report::SourceLine;
use crate::source_directive::Directive;
use crate::toml_text;

/// A script that no configuration names.
pub(super) const ANY_SCRIPT: &str = "/zz9/zz9.php";

/// Parameters that the server sets itself, beside those of headers: who a client is and which
/// script runs. With the values that scripts get here.
const OF_SERVER: [(&str, &[&str]); 4] = [
    ("DOCUMENT_ROOT", &["{root}", "{http.vars.root}"]),
    ("REMOTE_ADDR", &["{client_ip}", "{http.vars.client_ip}"]),
    ("REMOTE_USER", &["{http.auth.user.id}"]),
    ("SCRIPT_FILENAME", &[]),
];

/// The pool of FrankenPHP's threads.
const FRANKENPHP_POOL: &str = "frankenphp";

impl SiteWalk<'_, '_, '_> {
    /// `php_fastcgi`: a pool of php-fpm, or another FastCGI server.
    pub(super) fn php_fastcgi(&mut self, asked: &Asked<'_>, context: &BlockContext) {
        let line = asked.line;
        if let Some(other) = asked.condition.beside_paths() {
            let why = format!(
                "it is for some requests alone (`{other}`): write `allow_php` and `deny_php`"
            );
            return self.shared.report.access_left_out(&line.place, &line.shown(), &why);
        }
        if self.served.iter().any(|one| one.runs_php() && one.area.covers(&asked.area)) {
            // An earlier one runs these scripts.
            self.kept(line);
            return self.shared.report.cover(line);
        }
        let address = asked.arguments.first().map(|one| self.shared.filled(one));
        let address = address.unwrap_or_default().replace("unix/", "unix:").replace("tcp/", "");
        let address = match address.strip_prefix(':') {
            Some(port) => format!("127.0.0.1:{port}"),
            None => address,
        };
        let target = self.shared.pools.target(&address, self.shared.files);
        self.shared.pools.used_by(&target, &self.place);
        let time = line.block.iter().find(|one| one.name == "read_timeout");
        if let Some(time) = time {
            let time = Some((time.first(), &time.place));
            self.shared.pools.waits(&target, time, &line.place);
        }
        let why = "Caddy sets `X-Forwarded-For`, `-Proto` and `-Host` for scripts, which get those \
                   of the client here: see whether the application trusts them";
        self.shared.report.changed(&line.place, &line.shown(), why);
        let is_new = !self.served.iter().any(|one| one.runs_php());
        match &target {
            PassTarget::Pool(name) if is_new => {
                self.site.settings.set("pool", text_at(name, &line.place));
                self.pool_areas.push(asked.area.clone());
            }
            PassTarget::Upstream(address) if is_new => {
                self.site.settings.set("upstream", text_at(address, &line.place));
                self.pool_areas.push(asked.area.clone());
                let why =
                    "no pool of php-fpm with this address was found: the FastCGI server stays";
                self.shared.report.changed(&line.place, &line.shown(), why);
            }
            PassTarget::Pool(name) => self.other_pool(asked, name),
            PassTarget::Upstream(address) => self.other_upstream(line, address),
        }
        if asked.arguments.len() > 1 {
            let why = format!("one server of {}; the others are left out", asked.arguments.len());
            self.shared.report.changed(&line.place, &line.shown(), &why);
        }
        self.confined_apart(line, &target);
        self.shared.runners.push(ScriptRunner { line: line.clone(), target: target.clone() });
        let pool = match target {
            PassTarget::Pool(name) => name,
            PassTarget::Upstream(_) => String::new(),
        };
        let root = self.php_options(line, &pool).or(context.root.clone());
        self.served.push(ServedArea::php(&asked.area, root.as_ref(), line));
        self.kept(line);
    }

    /// A further pool for some paths.
    fn other_pool(&mut self, asked: &Asked<'_>, name: &str) {
        let known = self.site.settings.value("pool").unwrap_or_default().to_owned();
        let toml = toml_text::string(name);
        if known == toml {
            return self.pool_areas.push(asked.area.clone());
        }
        // The first of `paths` wins, as the first directive does.
        let own = self.pool_areas.iter().filter(|one| one.meets(&asked.area)).cloned();
        let earlier = own.map(|area| (area, known.clone()));
        let all: Vec<(BlockPaths, String)> = earlier.chain([(asked.area.clone(), toml)]).collect();
        for (area, toml) in all {
            let has_pool = !toml.is_empty();
            let no_pool = || Err("it is a FastCGI server, and not a pool".to_owned());
            match if has_pool { area.patterns() } else { no_pool() } {
                Ok(patterns) => {
                    for pattern in patterns {
                        let path = ("path", toml_text::string(&pattern));
                        let fields = [path, ("pool", toml.clone())];
                        self.push("paths", asked.line, toml_text::table(fields));
                    }
                }
                Err(why) => {
                    let why = format!("something else runs some of its scripts: {why}");
                    let line = asked.line;
                    self.shared.report.access_left_out(&line.place, &line.shown(), &why);
                }
            }
        }
    }

    /// A further FastCGI server, whose scripts the site has run by its first one.
    fn other_upstream(&mut self, line: &Directive, address: &str) {
        let toml = toml_text::string(address);
        if self.site.settings.value("upstream") != Some(&toml) {
            let why = "the pool of the site runs its scripts, as another user: write `paths`, or \
                       a site of its own";
            self.shared.report.access_left_out(&line.place, &line.shown(), why);
        }
    }

    /// The sub-directives, and the document root among them.
    fn php_options(&mut self, line: &Directive, pool: &str) -> Option<(String, SourceLine)> {
        let mut root = None;
        self.front.get_or_insert(("/index.php".to_owned(), line.place.clone()));
        for one in &line.block {
            match one.name.as_str() {
                "root" => {
                    let path = self.shared.filled(one.first());
                    root = Some((self.shared.absolute(&path, one), one.place.clone()));
                }
                "env" => {
                    self.pool_variable(one, pool);
                    continue;
                }
                "index" => {
                    let script = match one.first() {
                        "off" => String::new(),
                        script => format!("/{}", script.trim_start_matches('/')),
                    };
                    self.front = Some((script, one.place.clone()));
                }
                "try_files" => {
                    self.files_of_others(one);
                    self.try_files(&one.arguments, one, &BlockPaths::default());
                    continue;
                }
                "split" | "split_path" if one.arguments != [".php"] => {
                    let why = "scripts have the ending .php here, or are never run";
                    self.shared.report.access_left_out(&one.place, &one.shown(), why);
                    continue;
                }
                "split"
                | "split_path"
                | "resolve_root_symlink"
                | "dial_timeout"
                | "read_timeout"
                | "write_timeout"
                | "capture_stderr"
                | "trusted_proxies"
                | "file_server"
                | "name" => {}
                "worker" => {
                    self.worker(one, pool, line);
                    continue;
                }
                "header_up" => {
                    self.header_up(one, false);
                    continue;
                }
                "header_down" | "lb_policy" | "lb_try_duration" => {
                    self.left_out(one, "it has no counterpart");
                    continue;
                }
                _ => {
                    let why = "it is unknown or has no counterpart: see what it does";
                    self.shared.report.access_left_out(&one.place, &one.shown(), why);
                    continue;
                }
            }
            self.kept(one);
        }
        root
    }

    /// `env NAME VALUE`: a parameter of FastCGI.
    fn pool_variable(&mut self, line: &Directive, pool: &str) {
        let (name, value) = (line.first(), self.shared.filled(line.argument(1)));
        if let Some((_, table)) = PHP_PARAMETERS.iter().find(|(known, _)| *known == name) {
            return self.php_settings(line, table, pool);
        }
        if is_of_server(name) {
            if has_value_here(name, &value) {
                return self.kept(line);
            }
            let why = "scripts get the server's own value, or the header of clients: see whether \
                       the application trusts it";
            return self.shared.report.access_left_out(&line.place, &line.shown(), why);
        }
        if has_placeholder(&value) {
            return self.left_out(line, "scripts do not get it: its value is not fixed");
        }
        let value = text_at(&value, &line.place);
        let own = self.shared.own_pools.iter_mut().find(|one| one.name == pool);
        if let Some(own) = own {
            own.settings.entry("env", line.first(), value);
            return self.kept(line);
        }
        match self.shared.pools.entry(pool, "env", line.first(), value) {
            Ok(()) => {
                self.shared.pools.param(pool, &line.place, &line.shown());
                self.kept(line);
            }
            Err(why) => self.left_out(line, &why),
        }
    }

    /// `env PHP_ADMIN_VALUE`: settings of PHP, which a variable of the pool does not set.
    fn php_settings(&mut self, line: &Directive, table: &str, pool: &str) {
        let text = self.shared.filled(line.argument(1));
        let is_own = self.shared.own_pools.iter().any(|one| one.name == pool);
        let is_fixed = !is_own && !has_placeholder(&text);
        let why = || format!("its value is not fixed, or that of one site: set `{table}`");
        let mut settings = settings_in(&text);
        let set = match is_fixed {
            true => settings.try_for_each(|(name, value)| {
                let value = text_at(value, &line.place);
                self.shared.pools.entry(pool, table, name, value)
            }),
            false => Err(why()),
        };
        match set {
            Ok(()) => {
                self.shared.pools.param(pool, &line.place, &line.shown());
                self.kept(line);
            }
            Err(why) => self.shared.report.access_left_out(&line.place, &line.shown(), &why),
        }
    }

    /// Names settings that confine the scripts of one `php_fastcgi` of the site, and not those of
    /// an earlier one with the same pool.
    fn confined_apart(&mut self, line: &Directive, target: &PassTarget) {
        let own = confining_settings(line);
        let is_pool = matches!(target, PassTarget::Pool(_));
        let is_other = |one: &&ScriptRunner| {
            is_pool && one.target == *target && confining_settings(&one.line) != own
        };
        let Some(other) = self.shared.runners.iter().find(is_other) else { return };
        let why = "all scripts of the pool get the settings of `env`, also those of a directive \
                   with other ones: give them a pool of their own";
        for one in [&other.line, line] {
            self.shared.report.access_left_out(&one.place, &one.shown(), why);
        }
    }

    /// `php_server`, which serves files as well, and `php`. Whether no later directive sees these
    /// requests.
    pub(super) fn php_server(&mut self, asked: &Asked<'_>, context: &BlockContext) -> bool {
        let line = asked.line;
        if let Some(other) = asked.condition.beside_paths() {
            let why = format!("it is for some requests alone (`{other}`)");
            self.shared.report.access_left_out(&line.place, &line.shown(), &why);
            return false;
        }
        let pool = self.own_pool(line);
        let worker = line.block.iter().find(|one| one.name == "worker");
        let root = line.block.iter().find(|one| one.name == "root");
        let root = root
            .map(|one| self.shared.filled(one.first()))
            .map(|path| (self.shared.absolute(&path, line), line.place.clone()));
        let root = root.or(context.root.clone());
        let pool = match worker.cloned().or_else(|| self.global_worker(root.as_ref())) {
            Some(worker) => self.worker_pool(&worker, root.as_ref()),
            None => pool,
        };
        let target = PassTarget::Pool(pool.clone());
        self.shared.runners.push(ScriptRunner { line: line.clone(), target });
        let is_new = !self.served.iter().any(|one| one.runs_php());
        match is_new {
            true => {
                self.site.settings.set("pool", text_at(&pool, &line.place));
                self.pool_areas.push(asked.area.clone());
            }
            false => self.other_pool(asked, &pool),
        }
        self.php_options(line, &pool);
        let sends_files = line.name == "php_server"
            && !line.block.iter().any(|one| one.name == "file_server" && one.first() == "off");
        let mut served = ServedArea::php(&asked.area, root.as_ref(), line);
        served.sends_files = sends_files;
        self.served.push(served);
        self.kept(line);
        sends_files
    }

    /// A worker of the global options whose script is below the document root.
    fn global_worker(&self, root: Option<&(String, SourceLine)>) -> Option<Directive> {
        let options = self.shared.options.frankenphp.as_ref()?;
        let (root, _) = root?;
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let workers = options.block.iter().filter(|one| one.name == "worker");
        let mut own = workers.filter(|one| {
            let script = worker_script(one);
            !script.starts_with('/') || script.starts_with(&format!("{folder}/"))
        });
        own.next().cloned()
    }

    /// The pool of FrankenPHP's threads: one for all sites.
    fn own_pool(&mut self, line: &Directive) -> String {
        let options = self.shared.options.frankenphp.clone();
        let place = options.as_ref().map_or(&line.place, |one| &one.place);
        let is_there = self.shared.own_pools.iter().any(|one| one.name == FRANKENPHP_POOL);
        if !is_there {
            let mut pool = PoolDraft {
                name: FRANKENPHP_POOL.to_owned(),
                from: place.to_string(),
                ..PoolDraft::default()
            };
            for one in options.iter().flat_map(|one| &one.block) {
                self.thread_option(one, &mut pool);
            }
            let why = "scripts ran as FrankenPHP's own user, and run here as the owner of the \
                       document root, who may be able to change the code: set `user` of the pool";
            self.shared.report.changed(&line.place, &line.shown(), why);
            self.shared.own_pools.push(pool);
        }
        FRANKENPHP_POOL.to_owned()
    }

    /// An option of `frankenphp`.
    fn thread_option(&mut self, one: &Directive, pool: &mut PoolDraft) {
        let number = one.first().parse::<u32>().ok().filter(|number| *number > 0);
        match (one.name.as_str(), number) {
            ("max_threads", Some(number)) => {
                let value = Placed::new(number.to_string(), &one.place);
                pool.settings.replace("max_children", value);
            }
            ("num_threads", Some(number)) => {
                pool.settings.set("max_children", Placed::new(number.to_string(), &one.place));
            }
            ("max_wait_time", _) => {
                pool.settings.set("request_queue_timeout", text_at(one.first(), &one.place));
            }
            ("php_ini", _) if one.block.is_empty() => {
                pool.settings.entry("php_value", one.first(), text_at(one.argument(1), &one.place));
            }
            ("php_ini", _) => {
                for entry in &one.block {
                    let value = text_at(entry.first(), &entry.place);
                    pool.settings.entry("php_value", &entry.name, value);
                    self.kept(entry);
                }
            }
            ("max_threads" | "num_threads" | "max_idle_time" | "worker", _) => {}
            _ => {
                let why = "it is unknown: see what it does, and set it in the pool";
                return self.left_out(one, why);
            }
        }
        self.kept(one);
    }

    fn worker(&mut self, one: &Directive, pool: &str, line: &Directive) {
        let workers = line.block.iter().filter(|one| one.name == "worker").count();
        if workers > 1 {
            let why =
                "a pool has one worker script: write a pool for each, and `paths` of the site";
            return self.left_out(one, why);
        }
        if pool.is_empty() {
            return self.left_out(one, "it is for FrankenPHP alone");
        }
        self.kept(one);
    }

    /// A pool in worker mode.
    fn worker_pool(&mut self, worker: &Directive, root: Option<&(String, SourceLine)>) -> String {
        let script = worker_path(self.shared.filled(&worker_script(worker)), root);
        let place = &worker.place;
        let known = self
            .shared
            .own_pools
            .iter()
            .find(|one| one.settings.value("script") == Some(&toml_text::string(&script)));
        if let Some(known) = known {
            return known.name.clone();
        }
        let base = self.shared.own_pools.iter().find(|one| one.name == FRANKENPHP_POOL);
        let mut pool = base.cloned().unwrap_or_default();
        let count = self.shared.own_pools.iter().filter(|one| one.settings.has("script")).count();
        pool.name = match count {
            0 => "worker".to_owned(),
            count => format!("worker-{}", count + 1),
        };
        pool.from = place.to_string();
        pool.settings.set("mode", text_at("worker", place));
        pool.settings.set("script", text_at(&script, place));
        let number = worker.argument(1).parse().ok();
        let of_block = worker.block.iter().find(|one| one.name == "num");
        let number: Option<u32> = number.or(of_block.and_then(|one| one.first().parse().ok()));
        if let Some(number) = number.filter(|number| *number > 0) {
            pool.settings.replace("max_children", Placed::new(number.to_string(), place));
        }
        self.worker_options(worker, &mut pool);
        let why = "all scripts of the site are run by this worker script: list those that need a \
                   fresh start in `classic_paths`";
        self.shared.report.changed(place, &worker.shown(), why);
        let name = pool.name.clone();
        self.shared.own_pools.push(pool);
        name
    }

    /// The block of a `worker`.
    fn worker_options(&mut self, worker: &Directive, pool: &mut PoolDraft) {
        for one in &worker.block {
            match one.name.as_str() {
                "env" => pool.settings.entry(
                    "env",
                    one.first(),
                    text_at(&self.shared.filled(one.argument(1)), &one.place),
                ),
                "watch" => pool.settings.set("watch", Placed::new("true".to_owned(), &one.place)),
                "file" | "num" | "name" | "max_consecutive_failures" => {}
                "match" => {
                    let why = "write `paths` of the site for its pool";
                    self.left_out(one, why);
                    continue;
                }
                _ => {
                    self.left_out(one, "it has no counterpart");
                    continue;
                }
            }
            self.kept(one);
        }
    }
}

fn has_placeholder(value: &str) -> bool {
    value.contains('{') && value.contains('}')
}

/// Whether a parameter is one of the server's own, or replaces a header of clients.
fn is_of_server(name: &str) -> bool {
    name.starts_with("HTTP_") || OF_SERVER.iter().any(|(known, _)| *known == name)
}

/// Whether scripts get this value of such a parameter anyway.
fn has_value_here(name: &str, value: &str) -> bool {
    match name.strip_prefix("HTTP_") {
        // No script gets this header.
        Some("PROXY") => value.is_empty(),
        Some("HOST") if ["{hostport}", "{http.request.hostport}"].contains(&value) => true,
        Some(header) => {
            let header = header.replace('_', "-");
            ["header", "http.request.header"]
                .iter()
                .any(|of| value.eq_ignore_ascii_case(&format!("{{{of}.{header}}}")))
        }
        None => OF_SERVER.iter().any(|(known, values)| *known == name && values.contains(&value)),
    }
}

/// The settings of a `php_fastcgi` that confine its scripts, sorted.
fn confining_settings(line: &Directive) -> Vec<(&str, &str)> {
    let of_php = |one: &&Directive| {
        one.name == "env" && PHP_PARAMETERS.iter().any(|(known, _)| *known == one.first())
    };
    let all = line.block.iter().filter(of_php).flat_map(|one| settings_in(one.argument(1)));
    let mut all: Vec<(&str, &str)> = all.filter(|(name, _)| CONFINING.contains(name)).collect();
    all.sort_unstable();
    all
}

/// The script of a worker: relative to the document root, or to the folder around it.
fn worker_path(script: String, root: Option<&(String, SourceLine)>) -> String {
    let Some((root, _)) = root.filter(|_| !script.starts_with('/')) else { return script };
    let inner = script.trim_start_matches("./");
    let (folder, name) = root.rsplit_once('/').unwrap_or(("", root));
    match inner.starts_with(&format!("{name}/")) {
        true => format!("{folder}/{inner}"),
        false => format!("{root}/{inner}"),
    }
}

/// The script of a `worker`: its argument, or `file` in its block.
fn worker_script(worker: &Directive) -> String {
    let of_block = worker.block.iter().find(|one| one.name == "file").map(Directive::first);
    of_block.unwrap_or(worker.first()).to_owned()
}
