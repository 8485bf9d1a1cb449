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
