//! php-fpm's own files, with php-fpm's meaning.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use maitred_config::fpm::{Failed, Level, Loaded, Options, load, read_line};
use maitred_config::{Address, LogTarget, ProcessManager};
use tempfile::TempDir;

/// A directory with a configuration.
struct Files {
    folder: TempDir,
}

impl Files {
    /// A directory with `text` as php-fpm.conf, in which `DIR` stands for the directory.
    fn with(text: &str) -> Files {
        let files = Files { folder: TempDir::new().unwrap() };
        files.add("php-fpm.conf", text);
        files
    }

    fn add(&self, name: &str, text: &str) {
        let text = text.replace("DIR", self.folder.path().to_str().unwrap());
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self) -> Options {
        Options { file: self.path("php-fpm.conf"), ..Options::default() }
    }

    fn load(&self) -> Result<Loaded, Failed> {
        load(&self.options(), &|_| None)
    }
}

fn has(messages: &[(Level, String)], level: Level, text: &str) -> bool {
    messages.iter().any(|(said, line)| *said == level && line == text)
}

const GOOD: &str = "
[global]
error_log = DIR/error.log
[www]
listen = DIR/www.sock
pm = static
pm.max_children = 3
";

#[test]
fn debians_own_files_are_read_unchanged() {
    let file = Path::new("/etc/php/8.2/fpm/php-fpm.conf");
    if !file.exists() || !Path::new("/run/php").exists() {
        return;
    }
    // Their log is root's, so only root can read them through to the end.
    let options =
        Options { file: file.to_path_buf(), is_root: true, test: true, ..Options::default() };
    let loaded = load(&options, &|_| None);
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(failed) => {
            let text = "failed to post process the configuration";
            assert!(has(&failed.messages, Level::Error, text), "{failed:?}");
            return;
        }
    };
    let pool = loaded.config.pool("www").unwrap();
    assert_eq!(pool.pm, ProcessManager::Dynamic);
    assert_eq!(pool.max_children, Some(5));
    let listener = pool.listener.as_ref().unwrap();
    assert_eq!(listener.listen, Address::Unix("/run/php/php8.2-fpm.sock".into()));
    assert_eq!(listener.owner.as_deref(), Some("www-data"));
    let fpm = loaded.config.fpm.as_ref().unwrap();
    assert_eq!(fpm.pid.as_deref(), Some(Path::new("/run/php/php8.2-fpm.pid")));
}

#[test]
fn a_small_configuration_has_a_listener_a_log_and_no_sites() {
    let files = Files::with(GOOD);
    let loaded = files.load().unwrap();
    let config = &loaded.config;
    assert_eq!(config.error_log, LogTarget::File(files.path("error.log")));
    assert!(config.listen.is_empty() && config.sites.is_empty());
    let pool = config.pool("www").unwrap();
    assert_eq!(pool.max_children, Some(3));
    let listener = pool.listener.as_ref().unwrap();
    assert_eq!(listener.listen, Address::Unix(files.path("www.sock")));
    assert!(files.path("error.log").exists());
}

#[test]
fn of_a_setting_of_php_ini_that_is_there_twice_the_first_holds() {
    let files = Files::with(&format!(
        "{GOOD}php_value[a] = 1\nphp_value[a] = 2\nphp_flag[b] = on\n\
         php_admin_value[disable_functions] = exec\nphp_value[disable_functions] = passthru\n\
         php_value[extension] = x.so\nphp_admin_value[extension] = y.so\n"
    ));
    let config = files.load().unwrap().config;
    let pool = config.pool("www").unwrap();
    assert_eq!(pool.php_value["a"], "1");
    assert_eq!(pool.php_value["b"], "1");
    assert_eq!(pool.php_admin_value["disable_functions"], "passthru,exec");
    assert_eq!(pool.extensions, ["x.so", "y.so"]);
    assert!(!pool.php_value.contains_key("extension"));
}

#[test]
fn a_name_in_braces_is_an_entry_of_php_ini_or_else_a_variable() {
    let files = Files::with(&format!(
        "{GOOD}env[A] = ${{IN_BOTH}}\nenv[B] = ${{OUTSIDE}}\nenv[C] = \
         \"empty:${{NOWHERE}}\"\nenv[D] = $IN_BOTH\n"
    ));
    let outside = [("IN_BOTH", "outside"), ("OUTSIDE", "there")];
    let outside = outside.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = Options { environment: Some(outside.into()), ..files.options() };
    let php_ini = |name: &str| (name == "IN_BOTH").then(|| "of php.ini".to_owned());
    let config = load(&options, &php_ini).unwrap().config;
    let env: BTreeMap<_, _> = config.pool("www").unwrap().env.iter().cloned().collect();
    let all = ["A", "B", "C", "D"].map(|name| env[name].as_str());
    assert_eq!(all, ["of php.ini", "there", "empty:", "outside"]);
}

#[test]
fn workers_get_the_environment_they_are_given() {
    let outside = [("SECRET", "s"), ("PATH", "/bin"), ("HOME", "/elsewhere")];
    let outside = outside.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env_of = |text: &str| {
        let files = Files::with(&format!("{GOOD}{text}"));
        let options = Options { environment: Some(outside.clone().into()), ..files.options() };
        load(&options, &|_| None).unwrap().config.pool("www").unwrap().env.clone()
    };
    let in_order = env_of("env[A] = 1\nenv[USER] = me\nenv[B] = 2\nenv[A] = 3\n");
    let names: Vec<&str> = in_order.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["A", "B", "USER", "HOME"]);
    let env_of = |text: &str| -> BTreeMap<String, String> { env_of(text).into_iter().collect() };
    let cleared = env_of("env[A] = $PATH\nenv[B] = $NOTHING\nenv[A] = later\nenv[HOME] = /here\n");
    assert_eq!(cleared["A"], "/bin");
    assert_eq!(cleared["B"], "");
    assert_eq!(cleared["HOME"], "/here");
    assert!(cleared.contains_key("USER") && !cleared.contains_key("SECRET"));
    let whole = env_of("clear_env = no\nenv[PATH] = /usr/bin\n");
    assert_eq!(whole["SECRET"], "s");
    assert_eq!(whole["PATH"], "/usr/bin");
    assert_ne!(whole["HOME"], "/elsewhere");
}

#[test]
fn root_makes_no_log_of_a_pool_that_the_pools_user_could_not_open() {
    let files = Files::with(&format!(
        "{GOOD}user = nobody\naccess.log = DIR/access.log\nslowlog = DIR/slow.log\n\
         request_slowlog_timeout = 1s\n"
    ));
    for test in [true, false] {
        let options = Options { test, is_root: true, ..files.options() };
        let loaded = load(&options, &|_| None);
        assert!(loaded.is_ok(), "{loaded:?}");
        for log in ["access.log", "slow.log"] {
            assert!(!files.folder.path().join(log).exists(), "{log}");
        }
    }
}

#[test]
fn a_status_of_its_own_is_a_second_listener_of_the_pool() {
    let files = Files::with(&format!(
        "{GOOD}listen.mode = 0600\npm.status_listen = 127.0.0.1:9001\n\
         listen.allowed_clients = 127.0.0.1,nobody\n"
    ));
    let config = files.load().unwrap().config;
    assert_eq!(config.pools.len(), 1);
    let pool = config.pool("www").unwrap();
    assert_eq!(pool.listener.as_ref().unwrap().mode, 0o600);
    assert_eq!(pool.listener.as_ref().unwrap().allowed_clients, None);
    assert_eq!(pool.status_path.as_deref(), Some("/"));
    let status = pool.status_listener.as_ref().unwrap();
    assert_eq!(status.listen.to_string(), "127.0.0.1:9001");
    assert_eq!(status.allowed_clients.as_deref(), Some(&["127.0.0.1".parse().unwrap()][..]));
    let when_ready = &config.fpm.as_ref().unwrap().said_when_ready;
    let wrong = "Wrong IP address 'nobody' in listen.allowed_clients";
    assert!(has(&when_ready["www"], Level::Error, wrong));
}

#[test]
fn requests_wait_as_they_would_in_the_kernels_queue() {
    let queue = |text: &str| {
        let config = Files::with(&format!("{GOOD}{text}")).load().unwrap().config;
        let pool = config.pool("www").unwrap().clone();
        (pool.request_queue_length, pool.listener.unwrap().backlog)
    };
    assert_eq!(queue(""), (4096, None));
    assert_eq!(queue("listen.backlog = 511\n"), (511, Some(511)));
    assert_eq!(queue("listen.backlog = -1\n"), (4096, None));
}

#[test]
fn a_time_to_stop_that_is_not_set_is_a_minute() {
    let timeout = |text: &str| {
        let files = Files::with(&format!("{GOOD}[global]\n{text}"));
        files.load().unwrap().config.process_control_timeout.as_secs()
    };
    assert_eq!(timeout(""), 60);
    assert_eq!(timeout("process_control_timeout = 2m\n"), 120);
}

#[test]
fn who_is_not_root_runs_as_himself_and_is_told() {
    let files =
        Files::with(&format!("{GOOD}user = no-such-user\ngroup = nobody\nprocess.priority = 5\n"));
    let loaded = files.load().unwrap();
    let pool = loaded.config.pool("www").unwrap();
    assert_eq!((&pool.user, &pool.group), (&None, &None));
    assert_eq!(pool.confinement.process_priority, None);
    for setting in ["user", "group", "process.priority"] {
        let text =
            format!("[pool www] '{setting}' directive is ignored when FPM is not running as root");
        assert!(has(&loaded.messages, Level::Notice, &text), "{loaded:?}");
    }
}

#[test]
fn a_mistake_is_told_with_its_file_and_line() {
    let files = Files::with(&format!("{GOOD}include = DIR/other.conf\n"));
    files.add("other.conf", "\n[www]\npm.max_children = 0\n");
    let failed = files.load().unwrap_err();
    let place = files.path("other.conf");
    let text =
        format!("[pool www] pm.max_children must be a positive value ({}:3)", place.display());
    assert!(has(&failed.messages, Level::Alert, &text), "{failed:?}");
}

proptest::proptest! {
    #[test]
    fn any_line_is_read_or_refused(line in "[ -~\u{e4}\t\r\0]{0,60}") {
        let (statements, _) = read_line(&line, &|name| Some(name.to_owned()));
        proptest::prop_assert!(statements.len() <= line.len());
    }

    #[test]
    fn any_line_made_of_what_means_something_is_read_or_refused(
        parts in proptest::collection::vec(proptest::sample::select(&PARTS[..]), 0..20)
    ) {
        let line = parts.concat();
        let (statements, _) = read_line(&line, &|_| None);
        proptest::prop_assert!(statements.len() <= line.len());
    }
}

/// The parts of a line.
const PARTS: [&str; 22] = [
    "a", " ", "\t", "=", "[", "]", "\"", "'", "$", "${", "}", "\\", ";", "&", "!", "~", "(", ")",
    "on", "E_ALL", "-1", "\r",
];
