//! The pools of php-fpm that an import writes.

use crate::FileReader;

const NGINX: &str = "http { server { listen 80; root /srv; location ~ \\.php$ {\n\
    fastcgi_pass unix:/run/php.sock; } } }\n";
const POOL: &str = "[www]\nlisten = /run/php.sock\npm = static\npm.max_children = 007\n\
    request_terminate_timeout = 30s\nclear_env = no\nprocess.priority = \"x\n";

struct Both;

impl FileReader for Both {
    fn read(&self, path: &str) -> Result<String, String> {
        Ok(if path == "/fpm.conf" { POOL } else { NGINX }.to_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        vec![pattern.to_owned()]
    }

    fn resolved(&self, _path: &str) -> Option<String> {
        None
    }
}

struct Remi;

impl FileReader for Remi {
    fn read(&self, path: &str) -> Result<String, String> {
        let pool = |php: &str| format!("[www]\nlisten = /run/{php}.sock\n");
        let found = ["php82", "php83"].into_iter().find(|php| path.contains(php));
        let of_83 = path.contains("php83");
        let own = if of_83 { "apparmor_hat = x\nuser = a\n" } else { "chroot = /php82\n" };
        let nginx = NGINX.replace("/run/php", "/run/php83");
        Ok(found.map_or(nginx, |php| format!("{}{own}", pool(php))))
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        vec![pattern.to_owned()]
    }

    fn resolved(&self, _path: &str) -> Option<String> {
        None
    }
}

#[test]
fn pools_of_one_name_are_those_of_each_php_fpm() {
    let fpm = ["php82", "php83"].map(|php| format!("/etc/opt/remi/{php}/php-fpm.conf"));
    let imported = crate::nginx::import(&Remi, "/nginx.conf", &fpm).expect("a configuration");
    assert!(imported.toml.contains("user = \"a\""), "{}", imported.toml);
    assert!(!imported.toml.contains("/php82"), "{}", imported.toml);
    assert!(!imported.report.keeps_access(), "{}", imported.report);
}

/// The php-fpm of a panel, whose files are these.
struct OfPanel(&'static [&'static str]);

impl FileReader for OfPanel {
    fn read(&self, path: &str) -> Result<String, String> {
        let pool = "[www]\nlisten = /run/php.sock\nuser = a\npm = ondemand\n";
        Ok(if path.ends_with("fpm.conf") { pool } else { NGINX }.to_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        vec![pattern.to_owned()]
    }

    fn resolved(&self, path: &str) -> Option<String> {
        self.0.contains(&path).then(|| path.to_owned())
    }
}

#[test]
fn a_pool_has_the_php_ini_of_its_php_fpm_or_the_report_says_that_it_is_unknown() {
    let of = |root: &str, files| {
        let fpm = [root.to_owned()];
        crate::nginx::import(&OfPanel(files), "/nginx.conf", &fpm).expect("a configuration")
    };
    let remi = of("/etc/opt/remi/php83/php-fpm.conf", &["/etc/opt/remi/php83/php.ini"]);
    for line in ["php = \"8.3\"", "php_ini = \"/etc/opt/remi/php83/php.ini\""] {
        assert!(remi.toml.contains(line), "{line}: {}", remi.toml);
    }
    assert!(remi.report.keeps_access(), "{}", remi.report);
    let admin = of("/usr/local/php81/etc/php-fpm.conf", &["/usr/local/php81/lib/php.ini"]);
    assert!(admin.toml.contains("php_ini = \"/usr/local/php81/lib/php.ini\""), "{}", admin.toml);
    let without = of("/opt/plesk/php/8.1/etc/php-fpm.conf", &[]);
    assert!(!without.report.keeps_access(), "{}", without.report);
    let own = of("/etc/php-fpm.conf", &[]);
    assert!(own.report.keeps_access() && !own.toml.contains("php_ini"), "{}", own.toml);
}

/// Two pools whose names differ by a letter that no name has here.
struct Similar;

impl FileReader for Similar {
    fn read(&self, path: &str) -> Result<String, String> {
        let pool = |name: &str, user: &str| {
            format!("[{name}]\nlisten = /run/{user}.sock\nuser = {user}\npm = ondemand\n")
        };
        Ok(match path {
            "/fpm.conf" => pool("shop.a", "a") + &pool("shop-a", "b"),
            _ => NGINX.replace("/run/php", "/run/b"),
        })
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        vec![pattern.to_owned()]
    }

    fn resolved(&self, _path: &str) -> Option<String> {
        None
    }
}

#[test]
fn pools_of_similar_names_keep_their_own_user() {
    let imported = crate::nginx::import(&Similar, "/nginx.conf", &["/fpm.conf".to_owned()]);
    let toml = imported.expect("a configuration").toml;
    assert!(toml.contains("user = \"b\"") && !toml.contains("user = \"a\""), "{toml}");
}

#[test]
fn numbers_are_those_of_toml() {
    let imported = crate::nginx::import(&Both, "/nginx.conf", &["/fpm.conf".to_owned()]);
    let toml = imported.expect("a configuration").toml;
    assert!(toml.contains("\nmax_children = 7  #"), "{toml}");
    assert!(!toml.contains("process_priority"), "{toml}");
}

#[test]
fn a_pools_own_limit_of_time_and_its_environment_stay() {
    let imported = crate::nginx::import(&Both, "/nginx.conf", &["/fpm.conf".to_owned()]);
    let toml = imported.expect("a configuration").toml;
    assert!(toml.contains("\nrequest_terminate_timeout = \"30s\"  #"), "{toml}");
    assert!(toml.contains("\npass_env = \"all\"  #"), "{toml}");
}

/// One pool, with a variable of the environment.
struct OnePool(&'static str);

impl FileReader for OnePool {
    fn read(&self, path: &str) -> Result<String, String> {
        let pool = format!("[www]\nlisten = /run/php.sock\npm = ondemand\n{}\n", self.0);
        Ok(if path == "/fpm.conf" { pool } else { NGINX.to_owned() })
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        vec![pattern.to_owned()]
    }

    fn variable(&self, name: &str) -> Option<String> {
        (name == "APP_ROOT").then(|| "/srv/app".to_owned())
    }

    fn resolved(&self, _path: &str) -> Option<String> {
        None
    }
}

#[test]
fn a_variable_of_the_environment_is_filled_in_or_named() {
    let of =
        |lines| crate::nginx::import(&OnePool(lines), "/nginx.conf", &["/fpm.conf".to_owned()]);
    let set = of("php_admin_value[open_basedir] = ${APP_ROOT}/public").expect("a configuration");
    assert!(set.toml.contains("open_basedir = \"/srv/app/public\""), "{}", set.toml);
    assert!(set.report.keeps_access(), "{}", set.report);
    let unset = of("php_admin_value[open_basedir] = \"${NONE}\"").expect("a configuration");
    assert!(!unset.report.keeps_access(), "{}", unset.report);
    let report = unset.report.to_string();
    assert!(report.contains("/fpm.conf:4: php_admin_value[open_basedir] = "), "{report}");
    assert!(report.contains("NONE is not set"), "{report}");
}

#[test]
fn all_functions_that_a_pool_disables_stay_disabled() {
    let pool = OnePool(
        "php_admin_value[disable_functions] = exec\nphp_value[disable_functions] = system\n\
         php_admin_value[disable_functions] =\nphp_admin_value[disable_functions] = passthru,mail\n\
         php_value[memory_limit] = 64M\nphp_value[memory_limit] = 128M",
    );
    let imported = crate::nginx::import(&pool, "/nginx.conf", &["/fpm.conf".to_owned()]);
    let imported = imported.expect("a configuration");
    let toml = &imported.toml;
    assert!(
        toml.contains("php_admin_value.disable_functions = \"exec,system,passthru,mail\""),
        "{toml}"
    );
    assert_eq!(toml.matches("disable_functions").count(), 1, "{toml}");
    assert!(toml.contains("memory_limit = \"64M\""), "{toml}");
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

/// The result for these lines of a pool.
fn of_pool(lines: &'static str) -> crate::Imported {
    crate::nginx::import(&OnePool(lines), "/nginx.conf", &["/fpm.conf".to_owned()])
        .expect("a configuration")
}

#[test]
fn a_variable_of_php_fpms_environment_is_passed_or_filled_in() {
    let passed = of_pool("env[DB_PASSWORD] = $DB_PASSWORD\nenv[HOSTNAME] = $HOSTNAME");
    for name in ["DB_PASSWORD", "HOSTNAME"] {
        assert!(passed.toml.contains(&format!("\n  \"{name}\",  #")), "{}", passed.toml);
    }
    assert!(!passed.toml.contains('$'), "{}", passed.toml);
    let report = passed.report.to_string();
    assert!(report.contains("set HOSTNAME in the environment of maitred"), "{report}");
    let all = of_pool("clear_env = no\nenv[HOSTNAME] = $HOSTNAME");
    assert_eq!(all.toml.matches("pass_env").count(), 1, "{}", all.toml);
    let other = of_pool("env[ROOT] = /old\nenv[ROOT] = $APP_ROOT\nenv[POOL] = $pool");
    assert!(other.toml.contains("env.ROOT = \"/srv/app\""), "{}", other.toml);
    assert!(other.toml.contains("env.POOL = \"www\""), "{}", other.toml);
    assert!(other.report.keeps_access(), "{}", other.report);
    let unset = of_pool("env[ROOT] = $NONE");
    assert!(unset.toml.contains("env.ROOT = \"\""), "{}", unset.toml);
    assert!(!unset.report.keeps_access(), "{}", unset.report);
}

#[test]
fn names_of_settings_and_sections_have_no_case() {
    let imported = of_pool("User = alice\nPM = Static\npm.Max_Children = 3\n[WWW]\nChroot = /j");
    for line in ["user = \"alice\"", "pm = \"static\"", "max_children = 3", "chroot = \"/j\""] {
        assert!(imported.toml.contains(line), "{line}\n{}", imported.toml);
    }
    assert_eq!(imported.toml.matches("[pools.").count(), 1, "{}", imported.toml);
    let listen = FilesByName(&[("/fpm.conf", "[a]\nListen = /run/php.sock\npm = ondemand\n")]);
    let imported = crate::nginx::import(&listen, "/nginx.conf", &["/fpm.conf".to_owned()]);
    assert!(imported.expect("a configuration").toml.contains("pool = \"a\""));
}

/// Files by their names, beside nginx's.
struct FilesByName(&'static [(&'static str, &'static str)]);

impl FileReader for FilesByName {
    fn read(&self, path: &str) -> Result<String, String> {
        let found = self.0.iter().find(|(name, _)| *name == path);
        Ok(found.map_or(NGINX, |(_, text)| text).to_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        let (start, _) = pattern.split_once('*').unwrap_or((pattern, ""));
        let names = self.0.iter().map(|(name, _)| *name);
        names.filter(|name| name.starts_with(start)).map(str::to_owned).collect()
    }

    fn unlisted(&self, pattern: &str) -> Option<String> {
        pattern.starts_with("/closed/").then(|| "it cannot be read".to_owned())
    }

    fn resolved(&self, _path: &str) -> Option<String> {
        None
    }
}

#[test]
fn a_relative_include_is_below_the_prefix_of_php_fpm() {
    const POOL: &str = "[www]\nlisten = /run/php.sock\npm = ondemand\nuser = alice\n";
    let root = "/usr/local/etc/php-fpm.conf";
    let files = FilesByName(&[
        ("/usr/local/etc/php-fpm.conf", "include=etc/php-fpm.d/*.conf\n"),
        ("/usr/local/etc/php-fpm.d/www.conf", POOL),
        // What the current folder may have.
        ("etc/php-fpm.d/www.conf", "[www]\nlisten = /run/php.sock\nuser = root\n"),
    ]);
    let imported = crate::nginx::import(&files, "/nginx.conf", &[root.to_owned()]);
    let imported = imported.expect("a configuration");
    assert!(imported.toml.contains("user = \"alice\""), "{}", imported.toml);
    let debian = FilesByName(&[
        ("/etc/php-fpm.conf", "include=php-fpm.d/*.conf\n"),
        ("/usr/php-fpm.d/www.conf", POOL),
    ]);
    let root = "/etc/php-fpm.conf";
    let imported = crate::nginx::import(&debian, "/nginx.conf", &[root.to_owned()]);
    assert!(imported.expect("a configuration").toml.contains("user = \"alice\""));
}

#[test]
fn an_include_without_files_or_whose_files_are_not_known_is_named() {
    let of = |files: &FilesByName| {
        let imported = crate::nginx::import(files, "/nginx.conf", &["/fpm.conf".to_owned()]);
        imported.expect("a configuration").report
    };
    let none = of(&FilesByName(&[("/fpm.conf", "include=/none/*.conf\n")]));
    assert!(none.to_string().contains("no file matches /none/*.conf"), "{none}");
    assert!(none.keeps_access(), "{none}");
    let closed = of(&FilesByName(&[("/fpm.conf", "include=/closed/*.conf\n")]));
    assert!(!closed.keeps_access(), "{closed}");
    let endless = of(&FilesByName(&[("/fpm.conf", "include=/fpm.conf\n")]));
    assert!(endless.to_string().contains("more than 10 deep"), "{endless}");
}

#[test]
fn files_that_a_pool_runs_and_that_are_sent_here_are_named() {
    for (pool, is_kept) in [
        ("security.limit_extensions = .php .html .htm", false),
        ("security.limit_extensions = .inc", false),
        ("security.limit_extensions = .php .php3 .php4 .php5 .php7 .phar .phtml", true),
        ("security.limit_extensions =", true),
    ] {
        let fpm = ["/fpm.conf".to_owned()];
        let imported = crate::nginx::import(&OnePool(pool), "/nginx.conf", &fpm);
        let report = imported.expect("a configuration").report;
        assert_eq!(report.keeps_access(), is_kept, "{pool}\n{report}");
    }
}
