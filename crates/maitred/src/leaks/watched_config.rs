//! The configuration of the server for `maitred leaks`: the site with one worker of the pool, which
//! is confined as the pool is. The rules of the site, which are left out, may protect its files and
//! pages, so that only one client may use it.

use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use maitred_config::{Config, CoreSize, NoNewPrivileges, Pool, PrivateDir, Site};
use serde_json::json;

/// PHP's setting with the script before each other, of which there is one: ours.
const PREPENDED: &str = "auto_prepend_file";

/// PHP's setting with the places that scripts may open files in.
const OPEN_BASEDIR: &str = "open_basedir";

/// Timeout of a request and of the inspection after it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What is inspected.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// The whole configuration.
    pub config: &'a Config,
    /// The site of the requests.
    pub site: &'a Site,
    /// Its pool in worker mode.
    pub pool: &'a Pool,
    /// The folder with the private folders of pools' users that `private_dir` does not name.
    pub users_folder: Option<&'a Path>,
    /// The address of the only client that may use the site, sent by the PROXY protocol. It is
    /// random, and so a secret: each user of this machine can connect to the server.
    pub client: Ipv6Addr,
}

/// Lines of TOML.
struct Lines(String);

impl Lines {
    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name} = {value}");
    }

    fn maybe(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.line(name, value);
        }
    }
}

/// JSON strings are valid TOML strings.
fn text(path: &Path) -> String {
    json!(path.to_string_lossy()).to_string()
}

/// The configuration, in which `look` is the script that inspects the worker.
pub fn watched_config(trial: &Trial<'_>, look: &Path) -> String {
    let Trial { config, site, pool, users_folder, client } = trial;
    let mut out = Lines(String::new());
    out.line("listen", "[\"127.0.0.1:0\"]");
    out.line("trusted_proxies", "[\"127.0.0.1\"]");
    out.line("proxy_protocol", true);
    // The front runs as a user of no pool, as configured.
    out.line("front_user", json!(config.front_user));
    out.maybe("private_dir", private_dir(config, *users_folder).map(|value| json!(value)));
    let _ = writeln!(out.0, "[pools.{}]", pool.name);
    out.line("mode", "\"worker\"");
    out.line("pm", "\"static\"");
    out.line("max_children", 1);
    out.line("boot_timeout", pool.boot_timeout.as_secs());
    out.line("request_queue_timeout", PATIENCE.as_secs());
    out.line("request_terminate_timeout", script_time(pool).as_secs());
    out.maybe("script", pool.script.as_deref().map(text));
    for (name, value) in [("user", &pool.user), ("group", &pool.group), ("php", &pool.php)] {
        out.maybe(name, value.as_ref().map(|value| json!(value)));
    }
    out.maybe("php_ini", pool.php_ini.as_deref().map(text));
    out.maybe("php_ini_scan_dir", pool.php_ini_scan_dir.as_deref().map(text));
    confine(pool, &mut out);
    out.line("env", table(pool.env.iter().map(|(name, value)| (name.as_str(), value.clone()))));
    if !pool.pass_env.is_empty() {
        out.line("pass_env", json!(pool.pass_env));
    }
    out.line("php_value", values(pool.php_value.iter(), look, None));
    out.line("php_admin_value", values(pool.php_admin_value.iter(), look, Some(look)));
    let _ = writeln!(out.0, "[[sites]]");
    out.line("allow", json!([client]));
    out.line("root", text(&site.root));
    out.line("index", json!(site.index));
    out.line("front_controller", json!(site.front_controller.as_deref().unwrap_or_default()));
    out.0
}

/// A script's longest time, in whole seconds: zero is none. It always has one, since the server,
/// which ends gracefully after a command that was killed, waits for its script.
fn script_time(pool: &Pool) -> Duration {
    let own = Some(pool.request_terminate_timeout).filter(|time| !time.is_zero());
    own.map_or(PATIENCE, |time| time.clamp(Duration::from_secs(1), PATIENCE))
}

/// Where the pool's user has its temporary files and sessions: the server with one pool does not
/// know that there are other users.
fn private_dir(config: &Config, users_folder: Option<&Path>) -> Option<String> {
    let folder = match &config.private_dir {
        PrivateDir::At(folder) => folder,
        PrivateDir::Off => return Some("off".to_owned()),
        PrivateDir::Auto => users_folder?,
    };
    Some(folder.to_string_lossy().into_owned())
}

/// All that limits the pool; its `chroot` is refused before.
fn confine(pool: &Pool, out: &mut Lines) {
    let confinement = &pool.confinement;
    out.maybe("chdir", confinement.chdir.as_deref().map(text));
    out.maybe("rlimit_files", confinement.rlimit_files);
    out.maybe("rlimit_core", confinement.rlimit_core.map(core));
    out.maybe("process_priority", confinement.process_priority);
    out.maybe("oom_score_adj", confinement.oom_score_adj);
    out.line(
        "no_new_privileges",
        match confinement.no_new_privileges {
            NoNewPrivileges::Auto => "\"auto\"",
            NoNewPrivileges::Yes => "true",
            NoNewPrivileges::No => "false",
        },
    );
    let together = &confinement.together;
    out.maybe("memory_max", together.memory_max);
    out.maybe("memory_high", together.memory_high);
    out.maybe("cpu_max", together.cpu_max.map(|thousandths| f64::from(thousandths) / 1000.0));
    out.maybe("pids_max", together.pids_max);
}

fn core(size: CoreSize) -> String {
    match size {
        CoreSize::Unlimited => "\"unlimited\"".to_owned(),
        CoreSize::Bytes(bytes) => bytes.to_string(),
    }
}

/// Values of PHP's settings. The inspecting script and its report are within `open_basedir`, too.
fn values<'a>(
    own: impl Iterator<Item = (&'a String, &'a String)>,
    look: &Path,
    prepended: Option<&Path>,
) -> String {
    let beside = look.parent().unwrap_or(look).display();
    let own = own.filter(|(name, _)| *name != PREPENDED).map(|(name, value)| {
        let is_limit = name == OPEN_BASEDIR && !value.is_empty();
        let value = if is_limit { format!("{value}:{beside}/") } else { value.clone() };
        (name.as_str(), value)
    });
    let prepended = prepended.map(|path| (PREPENDED, path.to_string_lossy().into_owned()));
    table(own.chain(prepended))
}

fn table<'a>(entries: impl Iterator<Item = (&'a str, String)>) -> String {
    let entries = entries.map(|(name, value)| format!("{} = {}", json!(name), json!(value)));
    format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// The configuration for the first site and pool of `text`, written and read again.
    fn again(text: &str) -> (Config, Config) {
        let config = maitred_config::parse(text, Path::new("/maitred.toml")).unwrap();
        let (site, pool) = (&config.sites[0], &config.pools[0]);
        let client = "fd00::7".parse().unwrap();
        let trial = Trial { config: &config, site, pool, users_folder: None, client };
        let written = watched_config(&trial, Path::new("/tmp/leaks-1/look.php"));
        let read = maitred_config::parse(&written, Path::new("/maitred.toml")).unwrap();
        (config, read)
    }

    #[test]
    fn the_server_has_one_worker_of_the_pool_with_all_that_its_php_is_told() {
        let text = "[pools.shop]\nmode = \"worker\"\nscript = \"/etc/passwd\"\nmax_children = 9\n\
                    env = { A = \"b \\\"c\\\"\" }\npass_env = [\"A_*\", \"B\"]\n\
                    php_value = { auto_prepend_file = \"/own.php\" }\n\
                    php_admin_value = { memory_limit = \"64M\" }\n\
                    [[sites]]\nroot = \"/\"\nfront_controller = \"\"\n";
        let (config, read) = again(text);
        let (pool, again) = (&config.pools[0], &read.pools[0]);
        assert_eq!((again.max_children, &again.script), (Some(1), &pool.script));
        assert_eq!((&again.env, &again.pass_env), (&pool.env, &pool.pass_env));
        assert_eq!(again.confinement, pool.confinement);
        assert_eq!(again.php_admin_value["auto_prepend_file"], "/tmp/leaks-1/look.php");
        assert_eq!(again.php_admin_value["memory_limit"], "64M");
        assert!(!again.php_value.contains_key("auto_prepend_file"));
        assert_eq!(read.sites[0].front_controller, None);
        let may = |client: &str| {
            let client: IpAddr = client.parse().unwrap();
            read.sites[0].rules.allow.iter().any(|network| network.contains(&client))
        };
        assert!(read.proxy_protocol && may("fd00::7"));
        assert!(!may("127.0.0.1") && !may("::1") && !may("fd00::8"));
    }

    #[test]
    fn the_worker_is_confined_as_the_pool_is() {
        let text = "front_user = \"nobody\"\nprivate_dir = \"/srv\"\n\
                    [pools.shop]\nmode = \"worker\"\nscript = \"/etc/passwd\"\n\
                    chdir = \"/tmp\"\nrlimit_files = 321\nrlimit_core = \"unlimited\"\n\
                    process_priority = 7\noom_score_adj = 500\nno_new_privileges = true\n\
                    memory_max = \"2G\"\nmemory_high = \"1G\"\ncpu_max = 1.25\npids_max = 77\n\
                    php_admin_value = { open_basedir = \"/srv:/tmp\" }\n\
                    [[sites]]\nroot = \"/\"\n";
        let (config, read) = again(text);
        let (pool, again) = (&config.pools[0], &read.pools[0]);
        assert_eq!(again.confinement, pool.confinement);
        assert_eq!(again.php_admin_value["open_basedir"], "/srv:/tmp:/tmp/leaks-1/");
        assert_eq!(
            (&read.front_user, &read.private_dir),
            (&config.front_user, &config.private_dir)
        );
    }

    #[test]
    fn a_script_has_the_time_of_the_pool_and_never_more_than_a_minute() {
        for (own, expected) in [("0", 60), ("\"5s\"", 5), ("\"500ms\"", 1), ("\"10m\"", 60)] {
            let text = format!(
                "[pools.shop]\nmode = \"worker\"\nscript = \"/etc/passwd\"\n\
                 request_terminate_timeout = {own}\n[[sites]]\nroot = \"/\"\n"
            );
            let time = again(&text).1.pools[0].request_terminate_timeout;
            assert_eq!(time, Duration::from_secs(expected), "{own}");
        }
    }

    #[test]
    fn a_limit_that_scripts_may_tighten_is_kept_and_one_that_is_off_stays_off() {
        let text = |value: &str| {
            format!(
                "[pools.shop]\nmode = \"worker\"\nscript = \"/etc/passwd\"\n\
                 rlimit_core = 0\nno_new_privileges = false\n\
                 php_value = {{ open_basedir = \"{value}\" }}\n[[sites]]\nroot = \"/\"\n"
            )
        };
        let (config, read) = again(&text("/srv"));
        assert_eq!(read.pools[0].php_value["open_basedir"], "/srv:/tmp/leaks-1/");
        assert_eq!(read.pools[0].confinement, config.pools[0].confinement);
        assert_eq!(again(&text("")).1.pools[0].php_value["open_basedir"], "");
    }
}
