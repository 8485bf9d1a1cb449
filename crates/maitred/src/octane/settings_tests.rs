use std::collections::HashMap;

use super::*;

/// A Caddyfile with Octane's variables.
const CADDYFILE: &str = include_str!("../../../../tests/fixtures/laravel/Caddyfile");

/// The environment of `octane:start --workers=2`.
const OF_OCTANE: [(&str, &str); 11] = [
    ("APP_PUBLIC_PATH", "/srv/shop/public"),
    ("CADDY_GLOBAL_OPTIONS", "auto_https disable_redirects"),
    ("CADDY_SERVER_ADMIN_HOST", "localhost"),
    ("CADDY_SERVER_ADMIN_PORT", "2020"),
    ("CADDY_SERVER_LOG_LEVEL", "INFO"),
    ("CADDY_SERVER_LOGGER", "json"),
    ("CADDY_SERVER_SERVER_NAME", "http://:8001"),
    ("CADDY_SERVER_WORKER_DIRECTIVE", "num 2"),
    ("LARAVEL_OCTANE", "1"),
    ("MAX_REQUESTS", "500"),
    ("REQUEST_MAX_EXECUTION_TIME", "30"),
];

struct OneFile(String);

impl FileReader for OneFile {
    fn read(&self, _: &str) -> Result<String, String> {
        Ok(self.0.clone())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        vec![pattern.to_owned()]
    }

    fn resolved(&self, path: &str) -> Option<String> {
        Some(path.to_owned())
    }
}

fn read(changes: &[(&str, &str)]) -> Result<OctaneSettings, String> {
    read_caddyfile(CADDYFILE, changes)
}

fn read_caddyfile(text: &str, changes: &[(&str, &str)]) -> Result<OctaneSettings, String> {
    let all: HashMap<&str, &str> = OF_OCTANE.iter().chain(changes).copied().collect();
    let environment = |name: &str| all.get(name).map(|value| (*value).to_owned());
    OctaneSettings::read(&OneFile(text.to_owned()), Path::new("/srv/Caddyfile"), &environment)
}

fn toml(settings: &OctaneSettings) -> Table {
    let pair = CertificateFiles { cert: "/tmp/a.pem".into(), key: "/tmp/a.pem".into() };
    let certificate = (!settings.own_tls.is_empty()).then_some(&pair);
    let text = settings.toml(Path::new("/tmp/admin.sock"), certificate);
    maitred_config::parse(&text, Path::new("/tmp/maitred.toml")).unwrap();
    text.parse().unwrap()
}

#[test]
fn the_environment_of_octane_becomes_a_worker_pool() {
    let settings = read(&[]).unwrap();
    assert_eq!(settings.admin, ("localhost".to_owned(), 2020));
    assert_eq!((settings.workers(), settings.log_level), (Some(2), "info"));
    assert_eq!(settings.warnings, Vec::<String>::new());
    let config = toml(&settings);
    let pool = &config["pools"][settings.pools[0].as_str()];
    assert_eq!(pool["script"].as_str(), Some("/srv/shop/public/frankenphp-worker.php"));
    assert_eq!(pool["pm"].as_str(), Some("static"));
    assert_eq!(pool["max_children"].as_integer(), Some(2));
    assert_eq!(pool["max_requests"].as_integer(), Some(500));
    assert_eq!(pool["env"]["MAX_REQUESTS"].as_str(), Some("1000"));
    assert_eq!(pool["php_value"]["max_execution_time"].as_integer(), Some(30));
    assert_eq!(pool["request_terminate_timeout"].as_integer(), Some(31));
    assert_eq!(config["listen"][0].as_str(), Some("[::]:8001"));
    assert_eq!(config["access_log"].as_str(), Some("stderr"));
}

#[test]
fn settings_of_php_and_variables_of_the_caddyfile_stay_beside_those_of_octane() {
    let own = "\tfrankenphp {\n\t\tphp_ini memory_limit 99M\n";
    let text = CADDYFILE.replace("\tfrankenphp {\n", own);
    let own = "\t\tworker {\n\t\t\tenv APP_ENV staging\n";
    let text = text.replace("\t\tworker {\n", own);
    let settings = read_caddyfile(&text, &[]).unwrap();
    let config = toml(&settings);
    let pool = &config["pools"][settings.pools[0].as_str()];
    assert_eq!(pool["env"]["APP_ENV"].as_str(), Some("staging"));
    assert_eq!(pool["env"]["MAX_REQUESTS"].as_str(), Some("1000"));
    assert_eq!(pool["php_value"]["memory_limit"].as_str(), Some("99M"));
    assert_eq!(pool["php_value"]["max_execution_time"].as_integer(), Some(30));
}

#[test]
fn the_number_of_workers_is_found_unless_octane_names_it() {
    let unset = [("CADDY_SERVER_WORKER_DIRECTIVE", ""), ("MAX_REQUESTS", "0")];
    let settings = read(&[unset[0], unset[1], ("REQUEST_MAX_EXECUTION_TIME", "0")]).unwrap();
    let config = toml(&settings);
    let pool = config["pools"][settings.pools[0].as_str()].as_table().unwrap();
    for name in ["pm", "max_children", "max_requests", "env", "request_terminate_timeout"] {
        assert!(!pool.contains_key(name), "{name}");
    }
}

#[test]
fn watched_paths_watch_the_application_and_warnings_log_no_requests() {
    let watch = ("CADDY_SERVER_WATCH_DIRECTIVES", "\t\twatch /srv/shop/app\n\t\twatch /srv/x");
    let settings = read(&[watch, ("CADDY_SERVER_LOG_LEVEL", "WARN")]).unwrap();
    let config = toml(&settings);
    assert_eq!(config["pools"][settings.pools[0].as_str()]["watch"].as_bool(), Some(true));
    assert!(config.get("access_log").is_none());
    assert_eq!(settings.log_level, "warn");
}

#[test]
fn https_on_this_machine_has_a_certificate_of_the_users_own_authority() {
    let settings = read(&[("CADDY_SERVER_SERVER_NAME", "https://127.0.0.1:8443")]).unwrap();
    let config = toml(&settings);
    assert_eq!(config["tls"]["listen"][0].as_str(), Some("[::]:8443"));
    assert_eq!(config["tls"]["redirect"].as_bool(), Some(false));
    assert!(!config.contains_key("listen"));
    let redirect =
        [("CADDY_SERVER_SERVER_NAME", "https://localhost:8443"), ("CADDY_GLOBAL_OPTIONS", "")];
    let config = toml(&read(&redirect).unwrap());
    assert_eq!(config["listen"].as_str(), Some("[::]:80"));
    assert_eq!(config["tls"]["redirect"].as_bool(), Some(true));
}

#[test]
fn https_of_a_public_host_has_certificates_of_acme() {
    let settings = read(&[("CADDY_SERVER_SERVER_NAME", "https://shop.example.com:443")]).unwrap();
    assert!(settings.own_tls.is_empty());
    let config = toml(&settings);
    assert_eq!(config["tls"]["acme"]["terms_agreed"].as_bool(), Some(true));
}

#[test]
fn what_maitred_does_not_have_is_one_sentence() {
    let mercure = ("CADDY_SERVER_EXTRA_DIRECTIVES", "mercure {\n\t\t\tanonymous\n\t\t}");
    let why = read(&[mercure]).unwrap_err();
    assert!(why.contains("mercure") && !why.contains('\n'), "{why}");
    for (name, value) in
        [("MAX_REQUESTS", "many"), ("CADDY_SERVER_ADMIN_PORT", "x"), ("APP_PUBLIC_PATH", "")]
    {
        let read = read(&[(name, value)]);
        assert!(name == "APP_PUBLIC_PATH" || read.unwrap_err().contains(name));
    }
}
