//! Apache's configuration, as far as the checks need it.

use std::time::Duration;

use super::fpm::address;
use super::processes::Proc;
use super::world::World;
use super::{ini, processes, systemd_units};
use crate::facts::*;

/// The paths of the distributions, and the folder of relative paths.
const PLACES: [(&str, &str); 2] =
    [("/etc/apache2/apache2.conf", "/etc/apache2"), ("/etc/httpd/conf/httpd.conf", "/etc/httpd")];

/// Deepest include.
const MAX_DEPTH: usize = 20;

/// Default of `TimeOut` (core, Apache 2.4).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Directives with a newer name since 2.3.13.
const OLD_NAMES: [(&str, &str); 2] =
    [("MaxClients", "MaxRequestWorkers"), ("MaxRequestsPerChild", "MaxConnectionsPerChild")];

/// The state of the parser.
#[derive(Debug)]
struct ApacheReader<'w> {
    base: &'w str,
    modules: Vec<String>,
    /// The condition of each open `<IfModule>`.
    holds: Vec<bool>,
    timeout: Option<Duration>,
    proxy_timeout: Option<Duration>,
    numbers: Vec<(String, u64)>,
    /// Positions, targets of requests, and their own timeouts.
    passes: Vec<(String, String, Option<Duration>)>,
    /// The target of an open `<Proxy>`, and the timeout of its own line.
    proxied: Option<String>,
    proxied_wait: Option<Duration>,
    /// Timeouts of `ProxySet`, by target.
    set: Vec<(String, Duration)>,
    old_names: Vec<(String, String, String)>,
    roots: Vec<String>,
    broken: &'w mut Vec<(String, Unknown)>,
}

/// Apache's configuration, and its mod_php if loaded.
pub(super) fn apache(
    world: &World,
    all: &Fact<Vec<Proc>>,
    broken: &mut Vec<(String, Unknown)>,
) -> Option<(Apache, Option<Service>)> {
    let (file, base) = PLACES.into_iter().find(|(file, _)| !world.glob(file).is_empty())?;
    let mut reader = ApacheReader {
        base,
        modules: Vec::new(),
        holds: Vec::new(),
        timeout: None,
        proxy_timeout: None,
        numbers: Vec::new(),
        passes: Vec::new(),
        proxied: None,
        proxied_wait: None,
        set: Vec::new(),
        old_names: Vec::new(),
        roots: Vec::new(),
        broken,
    };
    reader.file(world, file, 0);
    let apache = reader.settled(file);
    let has_php = reader.modules.iter().any(|module| module.starts_with("php"));
    let service = has_php.then(|| service(world, all, &apache));
    Some((apache, service))
}

impl ApacheReader<'_> {
    fn file(&mut self, world: &World, file: &str, depth: usize) {
        let text = match world.read(file) {
            Ok(text) => text,
            Err(why) => return self.broken.push((file.to_owned(), why)),
        };
        let mut whole = String::new();
        for (at, line) in text.lines().enumerate() {
            if let Some(begun) = line.strip_suffix('\\') {
                whole.push_str(begun);
                continue;
            }
            whole.push_str(line);
            let place = format!("{file}:{}", at + 1);
            self.line(world, whole.trim(), &place, depth);
            whole.clear();
        }
    }

    fn line(&mut self, world: &World, line: &str, place: &str, depth: usize) {
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (name, rest) = (name.to_ascii_lowercase(), rest.trim());
        match name.as_str() {
            "<ifmodule" => {
                let holds = self.has(rest.trim_end_matches('>'));
                self.holds.push(holds);
            }
            "</ifmodule>" => {
                self.holds.pop();
            }
            _ if self.holds.contains(&false) => {}
            "include" | "includeoptional" if depth < MAX_DEPTH => {
                let pattern = if rest.starts_with('/') {
                    unquoted(rest).to_owned()
                } else {
                    format!("{}/{}", self.base, unquoted(rest))
                };
                for further in world.glob(&pattern) {
                    self.file(world, &further, depth + 1);
                }
            }
            _ => self.directive(&name, rest, place),
        }
    }

    /// `mpm_prefork_module`, `mod_php.c`, `!…`.
    fn has(&self, name: &str) -> bool {
        let (is_absent, name) = match name.strip_prefix('!') {
            Some(name) => (true, name),
            None => (false, name),
        };
        let plain = name.trim_end_matches(".c").trim_start_matches("mod_");
        let wanted = plain.strip_suffix("_module").unwrap_or(plain);
        self.modules.iter().any(|module| module == wanted) != is_absent
    }

    fn directive(&mut self, name: &str, rest: &str, place: &str) {
        let first = unquoted(rest.split_whitespace().next().unwrap_or_default());
        for (old, new) in OLD_NAMES {
            if old.eq_ignore_ascii_case(name) {
                self.old_names.push((old.to_owned(), new.to_owned(), place.to_owned()));
                return self.directive(&new.to_ascii_lowercase(), rest, place);
            }
        }
        match name {
            "loadmodule" => {
                let module = first.strip_suffix("_module").unwrap_or(first);
                self.modules.push(module.to_owned());
            }
            "timeout" => self.timeout = seconds(first),
            "proxytimeout" => self.proxy_timeout = seconds(first),
            "maxrequestworkers" | "maxconnectionsperchild" | "threadsperchild" | "serverlimit" => {
                if let Ok(number) = first.parse() {
                    self.numbers.push((name.to_owned(), number));
                }
            }
            "documentroot" => self.roots.push(first.to_owned()),
            "sethandler" | "proxypass" | "proxypassmatch" => {
                let own = timeout_of(rest);
                let target = target_of(rest);
                self.passes.extend(target.map(|target| (place.to_owned(), target, own)));
            }
            "<proxy" => {
                let rest = rest.trim_end_matches('>');
                self.proxied = target_of(rest);
                self.proxied_wait = timeout_of(rest);
            }
            // A timeout on the line of `<Proxy>` overrides those inside (`proxysection`).
            "</proxy>" => {
                let proxy = self.proxied.take();
                self.set.extend(proxy.zip(self.proxied_wait.take()));
            }
            "proxyset" => {
                let proxy = target_of(rest).or_else(|| self.proxied.clone());
                self.set.extend(proxy.zip(timeout_of(rest)));
            }
            _ => {}
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        let mut numbers = self.numbers.iter().rev();
        numbers.find(|(known, _)| known == name).map(|(_, number)| *number)
    }

    fn settled(&mut self, file: &str) -> Apache {
        let mpm = self.modules.iter().find_map(|module| module.strip_prefix("mpm_"));
        let default_workers = if mpm == Some("prefork") { 256 } else { 400 };
        let timeout = self.proxy_timeout.or(self.timeout).unwrap_or(DEFAULT_TIMEOUT);
        let set = |target: &str| {
            let mut set = self.set.iter().rev();
            let found = set.find(|(proxy, _)| proxy == target);
            found.map_or(timeout, |(_, time)| *time)
        };
        let passes = self.passes.iter().map(|(place, target, own)| Pass {
            place: place.clone(),
            to: vec![target.clone()],
            read_timeout: own.unwrap_or_else(|| set(target)),
            kept: 0,
            location: String::new(),
            is_restricted: false,
            cache: None,
        });
        let unknown = "no module of processes (mpm_*) is loaded by a line";
        Apache {
            file: file.to_owned(),
            mpm: mpm.map(str::to_owned).ok_or_else(|| Unknown(unknown.to_owned())),
            max_request_workers: self.number("maxrequestworkers").unwrap_or(default_workers),
            max_connections_per_child: self.number("maxconnectionsperchild").unwrap_or(0),
            threads_per_child: self.number("threadsperchild").unwrap_or(25),
            server_limit: self.number("serverlimit"),
            passes: passes.collect(),
            old_names: std::mem::take(&mut self.old_names),
            roots: std::mem::take(&mut self.roots),
        }
    }
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(['"', '\''])
}

/// `TimeOut`, `ProxyTimeout` and `timeout=` as Apache 2.4 reads them: whole seconds; text after the
/// digits is ignored (`atoi` in `set_timeout`, `set_proxy_timeout` and `set_worker_param`). Only
/// other times have units.
fn seconds(text: &str) -> Option<Duration> {
    let end = text.find(|sign: char| !sign.is_ascii_digit());
    let number: u64 = text[..end.unwrap_or(text.len())].parse().ok()?;
    Some(Duration::from_secs(number).min(LONGEST))
}

/// `timeout=` of a directive's parameters.
fn timeout_of(rest: &str) -> Option<Duration> {
    let mut words = rest.split_whitespace().map(unquoted);
    words.find_map(|word| {
        let (name, value) = word.split_once('=')?;
        let is_it = name.eq_ignore_ascii_case("timeout");
        is_it.then(|| seconds(unquoted(value))).flatten()
    })
}

/// The target of a directive.
fn target_of(rest: &str) -> Option<String> {
    rest.split_whitespace().map(unquoted).find_map(fastcgi)
}

/// `proxy:unix:/run/php/x.sock|fcgi://localhost`, `fcgi://127.0.0.1:9000/srv/…`.
fn fastcgi(text: &str) -> Option<String> {
    let text = text.strip_prefix("proxy:").unwrap_or(text);
    if let Some((socket, _)) = text.strip_prefix("unix:").and_then(|rest| rest.split_once('|')) {
        return Some(address(socket));
    }
    let rest = text.strip_prefix("fcgi://")?;
    Some(address(rest.split('/').next().unwrap_or_default()))
}

/// mod_php: Apache's children are the workers.
fn service(world: &World, all: &Fact<Vec<Proc>>, apache: &Apache) -> Service {
    let name = format!("Apache with mod_php ({})", apache.file);
    let parent = known(all).and_then(|all| {
        let is_it = |process: &&Proc| matches!(process.name.as_str(), "apache2" | "httpd");
        let pids: Vec<i32> = all.iter().filter(is_it).map(|process| process.pid).collect();
        let mut parents = all.iter().filter(is_it);
        let found = parents.find(|process| !pids.contains(&process.parent));
        found.map(|process| process.pid).ok_or_else(|| Unknown("Apache does not run".to_owned()))
    });
    let unit =
        if apache.file.starts_with("/etc/httpd") { "httpd.service" } else { "apache2.service" };
    let ini = ini::of_server(world, "apache2", None);
    let ini = ini.and_then(|(file, beside)| ini::read(world, &file, &beside));
    let children = u32::try_from(apache.max_request_workers).unwrap_or(u32::MAX);
    let pool = Pool {
        name: format!("Apache's children ({})", apache.file),
        section: "Apache".to_owned(),
        user: None,
        manager: Manager::Auto,
        max_children: children,
        is_chosen: true,
        spares: None,
        idle_timeout: Duration::ZERO,
        max_requests: apache.max_connections_per_child,
        wall_limit: Duration::ZERO,
        tracks_finished: false,
        listen: None,
        queue: None,
        status_path: None,
        has_status_listen: false,
        status_at: None,
        status_shown_at: Vec::new(),
        ini,
        roots: apache.roots.clone(),
        live: Unknown::because("Apache's children tell nothing of the scripts they run"),
    };
    Service {
        kind: PhpServer::ModPhp,
        control_timeout: Duration::ZERO,
        stop_delay: Duration::ZERO,
        has_other_nodes: false,
        unit: systemd_units::unit(world, unit),
        group: super::cgroups::group(world, &name, parent.as_ref().ok().copied()),
        process: parent.map(|pid| processes::process(world, pid)),
        name,
        files: vec![apache.file.clone()],
        includes: Vec::new(),
        connections: Some(u64::from(children)),
        pools: vec![pool],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_module_that_is_not_loaded_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/apache2");
        std::fs::create_dir_all(folder.join("mods-enabled")).unwrap();
        let main = "Timeout 300\nIncludeOptional mods-enabled/*.load\nIncludeOptional \
                    mods-enabled/*.conf\n<IfModule mpm_event_module>\nMaxRequestWorkers 999\n\
                    </IfModule>\nDocumentRoot \"/srv/www\"\n<FilesMatch x>\n\
                    SetHandler \"proxy:unix:/var/run/php/a.sock|fcgi://localhost\"\n\
                    </FilesMatch>\n";
        std::fs::write(folder.join("apache2.conf"), main).unwrap();
        let load = "LoadModule mpm_prefork_module /x.so\nLoadModule php_module /y.so\n";
        std::fs::write(folder.join("mods-enabled/a.load"), load).unwrap();
        let conf = "<IfModule prefork.c>\nMaxClients 1\n</IfModule>\n<IfModule mod_mpm_prefork.c>\n\
                    MaxClients \\\n 8\nMaxRequestsPerChild 100\n</IfModule>\n";
        std::fs::write(folder.join("mods-enabled/a.conf"), conf).unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(60));
        let mut broken = Vec::new();
        let (apache, service) = apache(&world, &Unknown::because("no"), &mut broken).unwrap();
        assert!(broken.is_empty(), "{broken:?}");
        assert_eq!((apache.max_request_workers, apache.mpm.as_deref()), (8, Ok("prefork")));
        assert_eq!(apache.passes[0].to, ["/run/php/a.sock"]);
        assert_eq!(apache.passes[0].read_timeout.as_secs(), 300);
        assert_eq!(apache.old_names.len(), 2);
        let service = service.unwrap();
        assert_eq!(service.pools[0].max_requests, 100);
        assert_eq!(service.pools[0].roots, ["/srv/www"]);
    }

    fn read(text: &str) -> Apache {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/apache2");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("apache2.conf"), text).unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(60));
        apache(&world, &Unknown::because("no"), &mut Vec::new()).unwrap().0
    }

    #[test]
    fn how_long_a_place_waits_is_said_by_itself_or_for_whom_it_asks_or_for_all() {
        let apache = read(
            "Timeout 100\n\
             ProxyPass /a fcgi://127.0.0.1:9000/srv/ retry=0 timeout=600\n\
             ProxyPassMatch ^/(.*\\.php)$ \"unix:/run/b.sock|fcgi://localhost/srv\" timeout=2min\n\
             <FilesMatch x>\nSetHandler \"proxy:unix:/run/c.sock|fcgi://localhost\"\n\
             </FilesMatch>\n<Proxy \"unix:/run/c.sock|fcgi://localhost\">\nProxySet \
             connectiontimeout=5 timeout=240\n</Proxy>\nProxyPass /d fcgi://127.0.0.1:9001/\n\
             ProxySet fcgi://127.0.0.1:9001 timeout=30\nProxySet timeout=7\nProxyPass /e \
             fcgi://127.0.0.1:9002/\n",
        );
        let waits = apache.passes.iter().map(|pass| pass.read_timeout.as_secs());
        assert_eq!(waits.collect::<Vec<_>>(), [600, 2, 240, 30, 100]);
    }

    #[test]
    fn times_are_whole_seconds_and_what_is_behind_the_digits_counts_for_nothing() {
        let waits = |text: &str| {
            let passes = read(text).passes.into_iter();
            passes.map(|pass| pass.read_timeout.as_secs()).collect::<Vec<_>>()
        };
        let pass = "ProxyPass /a fcgi://127.0.0.1:9000/srv/";
        assert_eq!(waits(&format!("Timeout 5min\n{pass}\n")), [5]);
        assert_eq!(waits(&format!("ProxyTimeout 300ms\n{pass}\n")), [300]);
        assert_eq!(waits(&format!("{pass} timeout=1h\n")), [1]);
    }

    #[test]
    fn how_long_to_wait_may_stand_on_the_line_of_proxy_itself_and_goes_before_what_is_in_it() {
        let apache = read(
            "SetHandler \"proxy:unix:/run/c.sock|fcgi://localhost\"\n\
             ProxyPass /d fcgi://127.0.0.1:9001/\nProxyPass /e fcgi://127.0.0.1:9002/\n\
             <Proxy \"unix:/run/c.sock|fcgi://localhost\" connectiontimeout=5 timeout=600>\n\
             </Proxy>\n<Proxy fcgi://127.0.0.1:9001 timeout=\"30\">\nProxySet timeout=240\n\
             </Proxy>\n<Proxy fcgi://127.0.0.1:9002>\nProxySet timeout=7\n</Proxy>\n",
        );
        let waits = apache.passes.iter().map(|pass| pass.read_timeout.as_secs());
        assert_eq!(waits.collect::<Vec<_>>(), [600, 30, 7]);
    }
}
