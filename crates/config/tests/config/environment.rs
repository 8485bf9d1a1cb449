//! Settings in environment variables.

use std::path::Path;

use maitred_config::{Config, Environment, ProcessManager, is_env_setting, parse_with};

fn with(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let environment = Environment::of(variables).map_err(|why| why.to_string())?;
    parse_with(text, Path::new("/maitred.toml"), &environment).map_err(|why| why.to_string())
}

const TWO: &str = "listen = \"127.0.0.1:80\"\n[pools.a]\npm = \"dynamic\"\nmax_children = 2\n\
                   [pools.b]\n[[sites]]\nroot = \"/\"\npool = \"a\"\n";
const ONE: &str = "[[sites]]\nroot = \"/\"\n";

#[test]
fn variables_replace_settings_of_the_file_in_every_pool_and_every_site() {
    let variables = [
        ("MAITRED_LISTEN", ":8080"),
        ("MAITRED_POOL_PM", "static"),
        ("MAITRED_POOL_MAX_CHILDREN", "7"),
        ("MAITRED_POOL_PASS_ENV", "all"),
        ("MAITRED_SITE_INDEX", "start.php"),
        ("MAITRED_SITE_AUTOINDEX", "true"),
        ("MAITRED_CACHE_VALID", "10m"),
        ("MAITRED_CACHE_MEMORY", "64M"),
        ("MAITRED_NOTHING_OF_OURS", "x"),
        ("MAITRED_LOG", "debug"),
        ("HOME", "/root"),
    ];
    let config = with(TWO, &variables).unwrap();
    assert!(config.listen.iter().all(|address| address.port() == 8080), "{:?}", config.listen);
    for pool in &config.pools {
        assert_eq!((pool.pm, pool.max_children), (ProcessManager::Static, Some(7)));
        assert_eq!(pool.pass_env, ["*"]);
    }
    let site = &config.sites[0];
    assert_eq!(site.index, ["start.php"]);
    assert!(site.cache.is_some());
    assert_eq!(config.cache_memory, 64 << 20);
}

#[test]
fn a_variable_with_our_prefix_is_a_setting_unless_it_is_about_the_log_or_tests() {
    for name in ["MAITRED_LISTEN", "MAITRED_POOL_PM", "MAITRED_TLS_LISTEN", "MAITRED_ADMIN"] {
        assert!(is_env_setting(name), "{name}");
    }
    for name in ["MAITRED_LOG", "MAITRED_BIN", "HOME", "OTEL_SERVICE_NAME"] {
        assert!(!is_env_setting(name), "{name}");
    }
}

#[test]
fn the_pool_of_a_file_without_pools_is_meant_too() {
    let config = with(ONE, &[("MAITRED_POOL_MAX_CHILDREN", "3")]).unwrap();
    let pools: Vec<_> = config.pools.iter().map(|pool| pool.max_children).collect();
    assert_eq!(pools, [Some(3)]);
}

#[test]
fn a_wrong_value_names_its_variable_and_a_misspelled_name_the_right_one() {
    let wrong = with(ONE, &[("MAITRED_POOL_MAX_CHILDREN", "many")]).unwrap_err();
    let start = "environment variable MAITRED_POOL_MAX_CHILDREN: `max_children` is the string";
    assert!(wrong.starts_with(start), "{wrong}");
    let both =
        with("lsten = 1\n[[sites]]\nroot = \"/\"\n", &[("MAITRED_LISTEN", "x")]).unwrap_err();
    assert!(both.starts_with("/maitred.toml:1:1: unknown setting `lsten`"), "{both}");
    assert!(both.contains("\nenvironment variable MAITRED_LISTEN: `listen` is"), "{both}");
    let include = with(ONE, &[("MAITRED_INCLUDE", "*.toml")]).unwrap_err();
    let expected = "environment variable MAITRED_INCLUDE: it is a setting of files alone; write \
                    `include` in one";
    assert_eq!(include, expected);
    let misspelled = with(ONE, &[("MAITRED_POOL_MAX_CHILDEN", "3")]).unwrap_err();
    let expected = "environment variable MAITRED_POOL_MAX_CHILDEN: it is no setting; did you mean \
                    MAITRED_POOL_MAX_CHILDREN?";
    assert_eq!(misspelled, expected);
}

#[test]
fn a_version_is_text_and_a_number_of_cores_is_a_number() {
    let variables = [("MAITRED_POOL_PHP", "8.2"), ("MAITRED_POOL_CPU_MAX", "1.5")];
    let config = with(ONE, &variables).unwrap();
    assert_eq!(config.pools[0].php.as_deref(), Some("8.2"));
    assert!(config.pools[0].confinement.together.cpu_max.is_some());
    let wrong = with(ONE, &[("MAITRED_TLS_MIN_VERSION", "1.4")]).unwrap_err();
    assert!(wrong.contains("`min_version` is the string \"1.4\""), "{wrong}");
}

#[test]
fn variables_of_opentelemetry_fill_in_what_a_section_of_traces_leaves_out() {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:4318"),
        ("OTEL_SERVICE_NAME", "7"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=shop"),
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
    ];
    assert_eq!(with(ONE, &variables).unwrap().traces, None, "they turn nothing on");
    let traces = with(&format!("{ONE}[traces]\nservice_name = \"web\"\n"), &variables);
    let traces = traces.unwrap().traces.unwrap();
    assert_eq!((traces.endpoint.host.as_str(), traces.ratio), ("otel", 250));
    assert_eq!((traces.service_name.as_str(), traces.follow_parent), ("web", false));
    assert_eq!(traces.resource, [("team".to_owned(), "shop".to_owned())]);
    let on = [variables[1], ("MAITRED_TRACES_RATIO", "0.5")];
    let traces = with(ONE, &on).unwrap().traces.unwrap();
    assert_eq!((traces.ratio, traces.service_name.as_str()), (500, "7"));
    let wrong = with(&format!("{ONE}[traces]\n"), &[("OTEL_TRACES_SAMPLER", "xray")]);
    let why = wrong.unwrap_err();
    assert!(why.contains("environment variable OTEL_TRACES_SAMPLER: `ratio` is"), "{why}");
}
