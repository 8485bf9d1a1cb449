//! Mistakes between settings: unknown names, sections, syntax, and what sites share.

use crate::folder::Folder;
use proptest::prelude::*;

#[track_caller]
pub fn refused(text: &str, sentences: &[&str]) {
    let expected: Vec<_> = sentences.iter().map(|s| format!("maitred.toml:{s}")).collect();
    assert_eq!(Folder::new().mistakes(text), expected.join("\n"), "{text}");
}

pub const SITE: &str = "[[sites]]\nroot = \"public\"\n";

#[test]
fn an_unknown_setting_is_answered_with_the_nearest_name() {
    refused(
        &format!("lisen = \":80\"\n[pools.www]\n  max_childen = 4\n{SITE}frnt_controller = \"\""),
        &[
            "1:1: unknown setting `lisen` at the top of the file; did you mean `listen`?",
            "3:3: unknown setting `max_childen` in [pools.www]; did you mean `max_children`?",
            "6:1: unknown setting `frnt_controller` in [[sites]]; did you mean `front_controller`?",
        ],
    );
}

#[test]
fn a_setting_in_the_wrong_section_is_told_where_it_belongs() {
    refused(
        &format!("max_children = 4\n[pools.www]\nroot = \"public\"\n{SITE}error_log = \"a\""),
        &[
            "1:1: unknown setting `max_children` at the top of the file; it belongs in \
             [pools.NAME]",
            "3:1: unknown setting `root` in [pools.www]; it belongs in [[sites]]",
            "6:1: unknown setting `error_log` in [[sites]]; it belongs in the part of the file \
             before the first section",
        ],
    );
}

#[test]
fn a_name_like_no_other_is_answered_with_all_names() {
    refused(
        &format!("{SITE}quack = true"),
        &["3:1: unknown setting `quack` in [[sites]]; expected one of `hosts`, `root`, `index`, \
           `pool`, `upstream`, `front_controller`, `max_body_size`, `access_log`, `app`, \
           `app_cron`, `redirects`, `rewrite`, `allow`, `deny`, `allow_php`, `deny_php`, \
           `basic_auth`, `headers`, `expires`, `error_pages`, `intercept_errors`, `htaccess`, \
           `htaccess_unknown`, `htaccess_override`, `htaccess_users`, \
           `autoindex`, `aliases`, `paths`, \
           `classic_paths`, `classic_pool`, `proxy`, `rate_limit`, `connection_limit`, \
           `compression`, `precompressed`, `compression_min_length`, `compression_types`, \
           `sendfile_roots`, `cache`"],
    );
    let endless = "x".repeat(100_000);
    let found = Folder::new().mistakes(&format!("{SITE}{endless} = 1"));
    assert!(found.len() < 700 && found.contains("…` in [[sites]]; expected one of"), "{found}");
}

#[test]
fn what_does_not_fit_together_about_tls_is_refused() {
    const CERTIFICATES: &str = "certificates = { cert = \"site.pem\", key = \"site.key\" }\n";
    refused(
        &format!("[tls]\nhsts = \"1d\"\n{SITE}"),
        &["1:1: [tls] has no `certificates`; add the files of at least one, such as \
           certificates = [{ cert = \"site.pem\", key = \"site.key\" }], or `acme` to have them \
           issued"],
    );
    refused(
        &format!("[tls]\n{CERTIFICATES}hsts_include_subdomains = true\n{SITE}"),
        &["3:27: `hsts_include_subdomains` is for `hsts`; add that, or leave this out"],
    );
    refused(
        &format!("[tls]\n{CERTIFICATES}hsts = \"365d\"\nhsts_preload = true\n{SITE}"),
        &["4:16: `hsts_preload` needs `hsts` of at least \"365d\" and \
             `hsts_include_subdomains`; the preload list of browsers requires it \
             (hstspreload.org)"],
    );
    refused(
        &format!("[tls]\nacme = {{ terms_agreed = true, challenge = \"http-01\" }}\n{SITE}"),
        &["2:8: `acme` with the challenge http-01 needs plain HTTP, and the file has no \
             `listen`; add one before the first section, such as listen = \":80\", or use \
             tls-alpn-01"],
    );
    refused(
        &format!(
            "[tls]\nacme = {{ terms_agreed = true }}\nclient_certificates = \"required\"\n\
             client_ca = \"clients.pem\"\n{SITE}"
        ),
        &["2:8: `acme` with the challenge tls-alpn-01 cannot go with client_certificates = \
             \"required\", since the authority's validation has none; use http-01, which needs a \
             `listen` for plain HTTP"],
    );
    refused(
        &format!("[tls]\n{CERTIFICATES}client_certificates = \"required\"\n{SITE}"),
        &["3:23: `client_certificates` needs `client_ca`; add the file with the CA \
             certificates"],
    );
    refused(
        &format!("[tls]\n{CERTIFICATES}client_ca = \"clients.pem\"\n{SITE}"),
        &["3:13: `client_ca` is for `client_certificates`; add that, or leave this out"],
    );
    refused(
        &format!("[tls]\n{CERTIFICATES}redirect = true\n{SITE}"),
        &["3:12: `redirect` is for plain HTTP, and the file has no `listen`; add one before the \
           first section, such as listen = \":80\""],
    );
    refused(
        &format!("listen = \":80\"\n[tls]\nlisten = \":0\"\n{CERTIFICATES}redirect = true\n{SITE}"),
        &["5:12: `redirect` needs a port; give `listen` in [tls] one other than 0"],
    );
    refused(
        &format!("tls = 1\n{SITE}"),
        &["1:7: `tls` is no table; write a section [tls] with `certificates`"],
    );
}

#[test]
fn who_asks_for_tls_alone_gets_no_plain_http() {
    let text = "[tls]\ncertificates = { cert = \"site.pem\", key = \"site.key\" }\n";
    let config = Folder::new().good(&format!("{text}{SITE}"));
    assert!(config.listen.is_empty());
    assert_eq!(config.listening().len(), 1);
}

#[test]
fn all_mistakes_are_reported_in_the_order_of_the_file() {
    refused(
        "[[sites]]\nroot = \"\"\nindex = [\"a/b\", \"ok\", 5]\npool = \"x\"\n\
         [pools.www]\nmax_children = 0\npm = \"none\"\nenv = { \"A=B\" = \"c\", D = [] }\n",
        &[
            "2:8: `root` is the string \"\"; expected the path of a directory",
            "3:10: `index` has the string \"a/b\"; expected a file name such as \"index.php\", or \
             an array of them",
            "3:23: `index` has the number 5; expected a file name such as \"index.php\", or an \
             array of them",
            "4:8: `pool` is \"x\", but there is no pool of that name; expected one of `www`, or a \
             section [pools.x]",
            "6:16: `max_children` is the number 0; expected a whole number from 1 to 10000",
            "7:6: `pm` is the string \"none\"; expected \"static\", \"dynamic\", \"ondemand\" or \
             \"auto\"",
            "8:9: `env.A=B` cannot be the name of an environment variable",
            "8:26: `env.D` is an empty array; expected a string, a number, true or false",
        ],
    );
}

const DYNAMIC: &str = "[[sites]]\nroot = \"public\"\n[pools.www]\npm = \"dynamic\"\n";

#[test]
fn a_dynamic_pool_says_what_it_lacks() {
    refused(
        DYNAMIC,
        &[
            "4:6: `pm` is \"dynamic\", which needs `max_children`; add it to the pool",
            "4:6: `pm` is \"dynamic\", which needs `min_spare_servers`; add it to the pool",
            "4:6: `pm` is \"dynamic\", which needs `max_spare_servers`; add it to the pool",
        ],
    );
    refused(
        &format!("{DYNAMIC}max_children = 0\nmin_spare_servers = 1\nmax_spare_servers = 2\n"),
        &["5:16: `max_children` is the number 0; expected a whole number from 1 to 10000"],
    );
    refused(
        &format!("{DYNAMIC}max_children = 4\nmin_spare_servers = 0\nmax_spare_servers = 2\n"),
        &["6:21: `min_spare_servers` is the number 0; a dynamic pool needs 1 at least; only `pm \
             = \"auto\"` may have none"],
    );
}

#[test]
fn the_spare_workers_of_a_dynamic_pool_have_to_fit_into_each_other() {
    let spares = |min: u32, max: u32, start: u32| {
        format!(
            "{DYNAMIC}max_children = 5\nmin_spare_servers = {min}\nmax_spare_servers = {max}\n\
             start_servers = {start}\n"
        )
    };
    let too_many =
        "7:21: `max_spare_servers` is the number 6, which is more than `max_children`, 5";
    refused(&spares(2, 6, 3), &[too_many]);
    let too_few =
        "7:21: `max_spare_servers` is the number 2, which is less than `min_spare_servers`, 3";
    refused(&spares(3, 2, 3), &[too_few]);
    let early = "8:17: `start_servers` is the number 1, which is less than `min_spare_servers`, 2";
    refused(&spares(2, 4, 1), &[early]);
    let late = "8:17: `start_servers` is the number 5, which is more than `max_spare_servers`, 4";
    refused(&spares(2, 4, 5), &[late]);
}

#[test]
fn a_slow_log_needs_a_file_and_a_time_that_scripts_can_reach() {
    let pool = |settings: &str| format!("{SITE}[pools.www]\n{settings}");
    let unreachable = "`request_slowlog_timeout` is 10s, which is more than \
                       `request_terminate_timeout`, 2s: no script runs for so long";
    refused(
        &pool("request_slowlog_timeout = 10\nrequest_terminate_timeout = 2\n"),
        &[
            "4:27: `request_slowlog_timeout` needs `slowlog`; add it to the pool",
            &format!("4:27: {unreachable}"),
        ],
    );
    refused(
        &pool("request_slowlog_timeout = 10\nslowlog = 1\n"),
        &["5:11: `slowlog` is the number 1; expected a path, \"stderr\" or \"off\""],
    );
}

#[test]
fn what_is_not_toml_is_reported_with_its_place() {
    refused(
        &format!("{SITE}index = [\"a\"\n\nhosts = \"a\" b\n"),
        &["5:1: this is not TOML: missing comma between array elements, expected `,`"],
    );
    refused(
        "listen = \":80\"\nlisten = \":81\"\nx = \n[y\n",
        &[
            "2:1: `listen` is set here for the second time; leave one of the two out",
            "3:5: this is not TOML: string values must be quoted, expected literal string",
            "4:3: this is not TOML: unclosed table, expected `]`",
        ],
    );
}

#[test]
fn a_file_without_a_site_is_refused() {
    let sentence = "1:1: there is no site; add [[sites]] with the `root` of one";
    refused("", &[sentence]);
    refused("listen = \":80\"", &[sentence]);
}

#[test]
fn a_site_without_a_root_is_refused() {
    refused(
        "\n[[sites]]\nhosts = \"a.example\"",
        &["2:1: this site has no `root`; add the path of its document root"],
    );
}

#[test]
fn sites_written_as_one_table_are_refused() {
    let sentence = "`sites` is not a list of sites; write [[sites]], with two brackets, before \
                    the settings of each site";
    refused("[sites]\nroot = \"public\"", &[&format!("1:1: {sentence}")]);
    refused("sites = []", &[&format!("1:9: {sentence}")]);
    refused(
        "sites = [5]",
        &["1:10: `sites` has an item that is no table; write [[sites]] before the settings of \
           each site"],
    );
}

#[test]
fn pools_that_are_no_sections_are_refused() {
    refused(
        &format!("pools = 5\n{SITE}"),
        &["1:9: `pools` is no table; write a section such as [pools.www] for each pool"],
    );
    refused(
        &format!("[pools]\nmax_children = 5\nwww = 5\n{SITE}"),
        &[
            "2:1: `max_children` is outside of a pool; write it in a section such as [pools.www]",
            "3:1: the pool `www` is no table; write its settings in a section [pools.www]",
        ],
    );
}

#[test]
fn a_pool_name_that_cannot_stand_in_a_process_title_is_refused() {
    let long = "x".repeat(33);
    let rest = "expected 1 to 32 letters, digits, `_` or `-`";
    for name in ["a b", "", "ä", "a.b", &long] {
        refused(
            &format!("[pools.\"{name}\"]\n{SITE}"),
            &[&format!("1:8: the pool name `{name}` cannot be used; {rest}")],
        );
    }
    Folder::new().good(&format!("[pools.A-z_0{}]\n{SITE}", "x".repeat(26)));
}

#[test]
fn a_host_in_two_sites_is_refused() {
    refused(
        "[[sites]]\nroot = \"public\"\nhosts = [\"a.example\", \"*.b.example\"]\n\
         [[sites]]\nroot = \"public\"\nhosts = [\"*.B.example\", \"c.example\", \"A.example\"]\n",
        &[
            "6:10: `hosts` has \"*.b.example\", which the site at maitred.toml:3:23 has too; \
             leave it out of one",
            "6:38: `hosts` has \"a.example\", which the site at maitred.toml:3:10 has too; \
             leave it out of one",
        ],
    );
}

#[test]
fn a_host_twice_in_one_site_is_refused() {
    refused(
        &format!("{SITE}hosts = [\"a.example\", \"A.example.\"]"),
        &["3:23: `hosts` has the string \"A.example.\", which is there twice; leave one out"],
    );
}

#[test]
fn an_array_without_end_is_refused() {
    let hosts = |count: usize| {
        let hosts: Vec<_> = (0..count).map(|number| format!("\"h{number}\"")).collect();
        format!("{SITE}hosts = [{}]", hosts.join(","))
    };
    refused(&hosts(10_001), &["3:9: `hosts` is an array, which has more than 10000 items"]);
    assert_eq!(Folder::new().good(&hosts(10_000)).sites[0].hosts.len(), 10_000);
}

#[test]
fn two_sites_for_all_other_names_are_refused() {
    for (text, place) in
        [(format!("{SITE}{SITE}"), "3:1"), (format!("{SITE}{SITE}hosts = \"*\""), "5:9")]
    {
        let sentence = format!(
            "{place}: the site at maitred.toml:1:1 has no `hosts` or \"*\" too, and only one site \
             can serve all other names; add `hosts`"
        );
        refused(&text, &[&sentence]);
    }
}

#[test]
fn wrong_hosts_do_not_count_as_none() {
    refused(
        &format!("{SITE}{SITE}hosts = [\"a b\"]"),
        &["5:10: `hosts` has the string \"a b\", which is no host name; expected one such as \
           \"example.com\", \"*.example.com\" or \"*\""],
    );
}

#[test]
fn a_site_must_name_its_pool_if_there_are_several() {
    refused(
        &format!("[pools.a]\n[pools.b]\n{SITE}"),
        &["3:1: this site has no `pool`; expected one of `a`, `b`"],
    );
}

#[test]
fn a_pool_and_an_upstream_exclude_each_other() {
    refused(
        &format!("{SITE}pool = \"www\"\nupstream = \"a:1\""),
        &["4:12: this site has both `pool` and `upstream`; leave one out"],
    );
}

#[test]
fn a_php_setting_given_twice_is_refused() {
    refused(
        &format!(
            "[pools.www]\nphp_value = {{ a.b = 1, \"a.b\" = 2, \"x y\" = 3, c = 1979-05-27 }}\n\
             php_flag = {{ a.b = true, d = 2 }}\n{SITE}"
        ),
        &[
            "2:17: `php_value.a.b` is set twice in this pool; leave one out",
            "2:24: `php_value.a.b` is set twice in this pool; leave one out",
            "2:35: `php_value.x y` cannot be the name of a php.ini setting",
            "2:50: `php_value.c` is a date or time; expected a string, a number, true or false",
            "3:30: `php_flag.d` is the number 2; expected true or false (also \"on\" and \"off\")",
        ],
    );
}

/// Pieces of configuration files, so that more of the random texts get beyond the syntax.
fn piece() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "listen",
        "pools",
        "sites",
        "www",
        "hosts",
        "root",
        "pool",
        "pm",
        "php_value",
        "env",
        "max_children",
        "upstream",
        "request_queue_timeout",
        "spool_limit",
        "a.b",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ",",
        ".",
        "\n",
        "\"",
        "'",
        "\"public\"",
        "\"unix:/\"",
        "\"*\"",
        "\"30s\"",
        "\"9223372036854775807G\"",
        "-1",
        "0x",
        "1e9",
        "nan",
        "true",
        "1979-05-27",
        "#",
        "\"\\u0000\"",
        "\u{feff}",
        "\r",
        "\0",
        "é",
    ]);
    prop_oneof![word.prop_map(str::to_owned), "\\PC{0,3}"]
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        let _ = maitred_config::parse(&text, "maitred.toml".as_ref()).map_err(|m| m.to_string());
    }

    #[test]
    fn no_text_of_pieces_makes_the_parser_panic(pieces in prop::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        let _ = maitred_config::parse(&text, "maitred.toml".as_ref()).map_err(|m| m.to_string());
    }

    #[test]
    fn no_value_makes_a_directive_panic_and_each_mistake_is_one_line(
        name in prop::sample::select(vec![
            "listen", "access_log", "access_log_format", "front_user", "front_threads",
            "spool_dir", "pools", "sites",
            "pools.www.pm", "pools.www.max_children", "pools.www.php_value", "pools.www.env",
            "pools.www.request_queue_timeout", "pools.www.request_slowlog_timeout",
            "pools.www.slowlog", "pools.www.start_servers", "pools.www.spool_limit",
            "pools.www.php",
        ]),
        value in prop_oneof![
            any::<String>().prop_map(|text| format!("{text:?}")),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| format!("{number:?}")),
            any::<String>().prop_map(|text| format!("'''{text}'''")),
            any::<String>().prop_map(|text| format!("[[{text:?}, '{text}'], {{ a = 1 }}]")),
            any::<String>().prop_map(|text| format!("{{ '{text}' = '''{text}''' }}")),
        ],
    ) {
        let text = format!("{name} = {value}");
        if let Err(mistakes) = maitred_config::parse(&text, "maitred.toml".as_ref()) {
            prop_assert_eq!(mistakes.to_string().lines().count(), mistakes.iter().count());
        }
    }
}

#[test]
fn classes_are_not_preloaded_in_a_chroot() {
    let folder = Folder::new();
    assert_eq!(
        folder.mistakes(
            "[pools.www]\nchroot = \"public\"\npreload = true\n[[sites]]\nroot = \"public\"\n"
        ),
        "maitred.toml:3:11: `preload` has no effect with `chroot`: PHP starts outside of it, where \
         the scripts have other paths; remove one of them"
    );
}

#[test]
fn limits_of_a_pool_that_contradict_each_other_are_refused() {
    let folder = Folder::new();
    assert_eq!(
        folder.mistakes(
            "[pools.www]\nmax_children = 10\nmemory_max = \"32M\"\nmemory_high = \"64M\"\n\
             pids_max = 11\n[[sites]]\nroot = \"public\"\n"
        ),
        "maitred.toml:4:15: `memory_high` is 67108864 bytes, which is more than `memory_max`, \
         33554432, and would never be reached\n\
         maitred.toml:5:12: `pids_max` is the number 11, which is too few for `max_children`, 10; \
         expected 12 at least, and one more for each program that scripts start"
    );
}

#[test]
fn a_setting_of_a_listener_without_a_listener_is_refused() {
    refused(
        "[pools.www]\nlisten_backlog = 5\n[[sites]]\nroot = \"public\"",
        &["2:18: `listen_backlog` is for a pool that has `listen`; add it, or leave this out"],
    );
}

#[test]
fn a_setting_of_another_kind_of_listener_is_refused() {
    refused(
        "[pools.www]\nlisten = \"/run/x.sock\"\nlisten_allowed_clients = \"::1\"",
        &["3:26: `listen_allowed_clients` is for TCP, and the pool listens on a Unix socket"],
    );
    refused(
        "[pools.www]\nlisten = \"9000\"\nlisten_mode = \"0666\"\naccess_format = \"%s\"",
        &[
            "3:15: `listen_mode` is for a Unix socket, and the pool listens on none",
            "4:17: `access_format` needs `access_log`; add it to the pool",
        ],
    );
    refused(
        "[pools.www]\nlisten = \"/x\"\nlisten_owner = 1\nlisten_acl_groups = \"web\"",
        &["3:16: `listen_owner` has no effect beside `listen_acl_groups`; leave one of them out"],
    );
}

#[test]
fn two_pools_at_one_address_are_refused() {
    refused(
        "[pools.a]\nlisten = \"/run/x.sock\"\n[pools.b]\nlisten = \"unix:/run/x.sock\"",
        &["4:10: `listen` is /run/x.sock, which pool `a` listens on too; choose another"],
    );
    refused(
        "listen = \":9000\"\n[pools.a]\nlisten = \"9000\"\n[[sites]]\nroot = \"public\"",
        &["3:10: `listen` is [::]:9000, which the sites listen on too; choose another"],
    );
}

#[test]
fn a_pool_without_a_listener_needs_a_site() {
    let sentence = "1:1: there is no site; add [[sites]] with the `root` of one";
    refused("[pools.a]\nlisten = \"/run/a.sock\"\n[pools.b]", &[sentence]);
    refused("listen = \":80\"\n[pools.a]\nlisten = \"/run/a.sock\"", &[sentence]);
}

#[test]
fn a_schedule_for_one_node_needs_a_purge_log_and_makes_up_no_run() {
    let schedule = "[[pools.www.schedules]]\nname = \"a\"\ncommand = [\"a\"]\nevery = \"1m\"\n";
    refused(
        &format!("[pools.www]\n{schedule}one_node = true\n{SITE}"),
        &["2:1: this schedule has `one_node`, which needs a `purge_log` with `url`: its Redis \
           decides which node runs"],
    );
    let log = "purge_log = { url = \"redis://127.0.0.1\" }\n";
    refused(
        &format!("{log}[pools.www]\n{schedule}one_node = true\nmissed = \"once\"\n{SITE}"),
        &["3:1: this schedule has both `one_node` and `missed`; leave one out: the other nodes \
           run what this one misses"],
    );
}

#[test]
fn app_cron_is_for_applications_with_a_known_one() {
    refused(
        &format!("{SITE}app = \"drupal\"\napp_cron = true\n"),
        &["1:1: `app_cron` is for sites with `app = \"wordpress\"`, \"laravel\" or \
           \"nextcloud\"; for others, write [[pools.NAME.schedules]]"],
    );
    let two = "hosts = [\"a.example\"]\napp = \"wordpress\"\napp_cron = true\n";
    let more = "[[sites]]\nroot = \"public\"\nhosts = [\"a-example\"]\napp = \"laravel\"\n\
                app_cron = true\n";
    let config = Folder::new().good(&format!("[pools.www]\n{SITE}{two}{more}"));
    let jobs: Vec<_> =
        config.jobs.iter().map(|job| (job.name.as_str(), job.command.join(" "))).collect();
    let (wordpress, laravel) = ("php wp-cron.php", "php artisan schedule:run");
    assert_eq!(
        jobs,
        [("cron-a-example", wordpress.to_owned()), ("cron-a-example-2", laravel.to_owned())]
    );
    assert_eq!(config.jobs[0].dir.as_deref().unwrap().file_name().unwrap(), "public");
    assert_ne!(config.jobs[1].dir, config.jobs[0].dir);
}
