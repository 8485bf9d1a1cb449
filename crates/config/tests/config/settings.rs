//! Each directive with a valid value, the defaults, and the JSON for the front.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::folder::Folder;
use crate::sites::site;
use maitred_config::directives::{cache, global, output, pools, rules, sites};
use maitred_config::{
    Address, Config, Confinement, CoreSize, Destination, GroupLimits, Host, LogFormat, LogTarget,
    Mode, NoNewPrivileges, Pool, Preset, ProcessManager,
};

fn top(folder: &Folder, lines: &str) -> Config {
    folder.good(&format!("{lines}\n[[sites]]\nroot = \"public\"\n"))
}

fn pool(folder: &Folder, lines: &str) -> Pool {
    let config = folder.good(&format!("[pools.shop]\n{lines}\n[[sites]]\nroot = \"public\"\n"));
    config.pool("shop").unwrap().clone()
}

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_site_with_a_root_is_all_that_a_file_needs() {
    let folder = Folder::new();
    let config = folder.good("[[sites]]\nroot = \"public\"");
    assert_eq!(config.listen, addresses(&["127.0.0.1:8080"]));
    assert_eq!(config.access_log, None);
    assert_eq!(config.access_log_format, LogFormat::default());
    assert_eq!(config.error_log, LogTarget::Stderr);
    assert!(["maitred", "www-data"].contains(&config.front_user.as_str()));
    assert_eq!(config.front_threads, 0);
    assert_eq!(config.spool_dir, std::env::temp_dir());
    assert_eq!(config.process_control_timeout, Duration::from_secs(60));
    assert_eq!(config.stop_delay, Duration::ZERO);
    assert!(!config.require_fixed_php);
    let [pool] = &config.pools[..] else { panic!("one pool") };
    assert_eq!(pool.name, "www");
    assert_eq!((pool.pm, pool.max_children), (ProcessManager::Auto, None));
    assert_eq!([1, 2, 64, 100].map(|cores| pool.most_workers(cores)), [64, 128, 128, 200]);
    let mut confined = pool.clone();
    confined.confinement.together.pids_max = Some(50);
    assert_eq!(confined.most_workers(2), 48, "a zygote and a helper beside");
    confined.max_children = Some(20);
    assert_eq!(confined.most_workers(2), 20);
    assert_eq!((&pool.user, &pool.group, &pool.php), (&None, &None, &None));
    assert_eq!((&pool.php_ini, &pool.php_ini_scan_dir), (&None, &None));
    assert!(pool.php_value.is_empty() && pool.php_admin_value.is_empty() && pool.env.is_empty());
    assert_eq!(pool.confinement, Confinement::default());
    assert_eq!(pool.max_requests, 0);
    assert_eq!(pool.max_private_memory, 0);
    assert_eq!(pool.request_terminate_timeout, Duration::ZERO);
    assert_eq!(pool.request_slowlog_timeout, Duration::ZERO);
    assert_eq!((&pool.slowlog, pool.request_slowlog_trace_depth), (&None, 20));
    assert_eq!(pool.request_queue_timeout, Duration::from_secs(10));
    assert_eq!(pool.request_queue_length, 1000);
    assert_eq!(pool.request_deadline_header, None);
    assert_eq!(pool.spool_limit, 1 << 30);
    assert_eq!((&pool.status_path, &pool.ping_path), (&None, &None));
    assert_eq!(pool.ping_response, "pong");
    let [site] = &config.sites[..] else { panic!("one site") };
    assert_eq!(site.hosts, [Host::Any]);
    assert_eq!(site.root, folder.path().join("public"));
    assert_eq!(site.index, ["index.php", "index.html"]);
    assert_eq!(site.destination, Destination::Pool("www".to_owned()));
    assert_eq!(site.front_controller.as_deref(), Some("/index.php"));
    assert_eq!(site.max_body_size, 256 << 20);
}

#[test]
fn the_default_in_the_reference_is_what_holds_without_the_setting() {
    let folder = Folder::new();
    let line = |name: &str, preset: Preset| match preset {
        Preset::Value(value) => format!("{name} = {value}"),
        Preset::Words(_) => String::new(),
    };
    for directive in global::DIRECTIVES {
        let line = line(directive.name, directive.default);
        assert_eq!(top(&folder, &line), top(&folder, ""), "{line}");
    }
    for directive in pools::DIRECTIVES {
        let line = line(directive.name, directive.default);
        assert_eq!(pool(&folder, &line), pool(&folder, ""), "{line}");
    }
    for directive in sites::DIRECTIVES {
        let line = line(directive.name, directive.default);
        assert_eq!(site(&folder, &line), site(&folder, ""), "{line}");
    }
    for directive in rules::DIRECTIVES {
        let line = line(directive.name, directive.default);
        assert_eq!(site(&folder, &line), site(&folder, ""), "{line}");
    }
    for directive in output::DIRECTIVES {
        let line = line(directive.name, directive.default);
        assert_eq!(site(&folder, &line), site(&folder, ""), "{line}");
    }
}

#[test]
fn the_example_in_the_reference_is_taken() {
    let folder = Folder::new();
    for directive in global::DIRECTIVES {
        top(&folder, &format!("{} = {}", directive.name, directive.example));
    }
    for directive in pools::DIRECTIVES {
        // It needs others.
        let needed = match directive.name {
            "request_slowlog_timeout" => "slowlog = \"slow.log\"\n",
            "mode" => "script = \"public/worker.php\"\n",
            _ => "",
        };
        pool(&folder, &format!("{needed}{} = {}", directive.name, directive.example));
    }
    for directive in sites::DIRECTIVES {
        site(&folder, &format!("{} = {}", directive.name, directive.example));
    }
    for directive in rules::DIRECTIVES {
        let needed = match directive.name {
            "classic_paths" => "classic_pool = \"shop\"\n",
            "classic_pool" => "classic_paths = \"/a\"\n",
            "app_cron" => "app = \"wordpress\"\n",
            _ => "",
        };
        site(&folder, &format!("{needed}{} = {}", directive.name, directive.example));
    }
    for directive in output::DIRECTIVES {
        site(&folder, &format!("{} = {}", directive.name, directive.example));
    }
    for directive in cache::DIRECTIVES {
        let line = format!("{} = {}", directive.name, directive.example);
        site(&folder, &format!("[sites.cache]\n{line}"));
    }
}

#[test]
fn settings_of_the_whole_server_are_read() {
    let folder = Folder::new();
    let config = top(
        &folder,
        "listen = [\":80\", \"127.0.0.1:8080\"]\n\
         access_log = \"log/access.log\"\n\
         access_log_format = \"json\"\n\
         error_log = \"/var/log/maitred.log\"\n\
         front_user = \"nobody\"\n\
         front_threads = 64\n\
         spool_dir = \"spool\"\n\
         spool_max_size = \"10G\"\n\
         process_control_timeout = \"1500ms\"\n\
         stop_delay = 5\n\
         require_fixed_php = true",
    );
    assert_eq!(config.listen, addresses(&["[::]:80", "127.0.0.1:8080"]));
    assert_eq!(config.access_log, Some(LogTarget::File(folder.path().join("log/access.log"))));
    assert_eq!(config.access_log_format, LogFormat::parse("json").unwrap());
    assert_eq!(config.error_log, LogTarget::File(PathBuf::from("/var/log/maitred.log")));
    assert_eq!(config.front_user, "nobody");
    assert_eq!(config.front_threads, 64);
    assert_eq!(config.spool_dir, folder.path().join("spool"));
    assert_eq!(config.spool_max_size, Some(10 << 30));
    assert_eq!(config.process_control_timeout, Duration::from_millis(1500));
    assert_eq!(config.stop_delay, Duration::from_secs(5));
    assert!(config.require_fixed_php);
}

#[test]
fn a_log_may_go_to_standard_error_or_be_off() {
    let folder = Folder::new();
    let read = |value: &str| top(&folder, &format!("access_log = {value}")).access_log;
    assert_eq!(read("\"stderr\""), Some(LogTarget::Stderr));
    assert_eq!(read("\"off\""), None);
}

#[test]
fn settings_of_a_pool_are_read() {
    let folder = Folder::new();
    let pool = pool(
        &folder,
        "pm = \"static\"\nmax_children = 0x10\nuser = \"shop\"\ngroup = 33\nphp = \"8.2\"\n\
         php_ini = \"php/shop.ini\"\nphp_ini_scan_dir = \"php/conf.d\"\n\
         max_requests = 500\nmax_private_memory = \"96M\"\nrequest_terminate_timeout = \
         \"30s\"\nrequest_queue_timeout = 2\n\
         request_slowlog_timeout = \"1500ms\"\nslowlog = \"log/slow.log\"\n\
         request_slowlog_trace_depth = 100\nrequest_accounting = false\nserver_timing = true\n\
         direct_calls = false\n\
         request_queue_length = 0\nrequest_deadline_header = \"X-Timeout\"\nreserved_workers = \
         2\nspool_limit = \"64M\"\n\
         status_path = \"/fpm/status\"\nping_path = \"/ping\"\nping_response = \"I'm here\"",
    );
    assert_eq!((pool.pm, pool.max_children), (ProcessManager::Static, Some(16)));
    assert_eq!((pool.user.as_deref(), pool.group.as_deref()), (Some("shop"), Some("33")));
    assert_eq!(pool.php.as_deref(), Some("8.2"));
    assert_eq!(pool.php_ini, Some(folder.path().join("php/shop.ini")));
    assert_eq!(pool.php_ini_scan_dir, Some(folder.path().join("php/conf.d")));
    assert_eq!(pool.max_requests, 500);
    assert_eq!(pool.max_private_memory, 96 << 20);
    assert_eq!(pool.request_terminate_timeout, Duration::from_secs(30));
    assert_eq!(pool.request_slowlog_timeout, Duration::from_millis(1500));
    assert_eq!(pool.slowlog, Some(LogTarget::File(folder.path().join("log/slow.log"))));
    assert_eq!(pool.request_slowlog_trace_depth, 100);
    assert!(!pool.request_accounting && pool.server_timing && !pool.direct_calls);
    assert_eq!(pool.request_queue_timeout, Duration::from_secs(2));
    assert_eq!(pool.request_queue_length, 0);
    assert_eq!(pool.request_deadline_header.as_deref(), Some("X-Timeout"));
    assert_eq!(pool.reserved_workers, 2);
    assert_eq!(pool.spool_limit, 64 << 20);
    assert_eq!(pool.status_path.as_deref(), Some("/fpm/status"));
    assert_eq!(pool.ping_path.as_deref(), Some("/ping"));
    assert_eq!(pool.ping_response, "I'm here");
}

#[test]
fn php_settings_of_every_type_become_the_text_php_reads() {
    let folder = Folder::new();
    let pool = pool(
        &folder,
        "php_value = { memory_limit = \"256M\", precision = -1, x.y = 0.5, short = false }\n\
         php_flag = { display_errors = \"off\", html_errors = 1 }\n\
         php_admin_flag = { log_errors = true }\n\
         env = { APP_ENV = \"prod\", DEBUG = false, PATH = \"$PATH\" }\n\
         [pools.shop.php_admin_value]\n\
         opcache.jit.buffer = 0\n\
         \"opcache.enable\" = 1",
    );
    let pairs = |map: &std::collections::BTreeMap<String, String>| {
        map.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(
        pairs(&pool.php_value),
        [
            "display_errors=0",
            "html_errors=1",
            "memory_limit=256M",
            "precision=-1",
            "short=0",
            "x.y=0.5"
        ]
    );
    assert_eq!(
        pairs(&pool.php_admin_value),
        ["log_errors=1", "opcache.enable=1", "opcache.jit.buffer=0"]
    );
    let env = pool.env.iter().cloned().collect();
    assert_eq!(pairs(&env), ["APP_ENV=prod", "DEBUG=0", "PATH=$PATH"]);
}

#[test]
fn what_a_pool_may_use_and_where_it_lives_is_read() {
    let folder = Folder::new();
    let pool = pool(
        &folder,
        "chroot = \"public/..\"\nchdir = \"/spool\"\nrlimit_files = 4096\n\
         rlimit_core = \"unlimited\"\nprocess_priority = -5\noom_score_adj = 300\n\
         no_new_privileges = true\nmemory_max = \"1G\"\nmemory_high = \"1G\"\ncpu_max = \
         1.5\npids_max = 200",
    );
    let real = folder.path().canonicalize().unwrap();
    let expected = Confinement {
        chroot: Some(real),
        chdir: Some("/spool".into()),
        rlimit_files: Some(4096),
        rlimit_core: Some(CoreSize::Unlimited),
        process_priority: Some(-5),
        oom_score_adj: Some(300),
        no_new_privileges: NoNewPrivileges::Yes,
        together: GroupLimits {
            memory_max: Some(1 << 30),
            memory_high: Some(1 << 30),
            cpu_max: Some(1500),
            pids_max: Some(200),
        },
    };
    assert_eq!(pool.confinement, expected);
}

#[test]
fn cores_are_read_to_the_thousandth_and_core_files_in_bytes() {
    let folder = Folder::new();
    let cores = |text: &str| pool(&folder, text).confinement.together.cpu_max;
    assert_eq!(cores("cpu_max = 2"), Some(2000));
    assert_eq!(cores("cpu_max = 0.01"), Some(10));
    assert_eq!(cores("cpu_max = 0.3333"), Some(333));
    assert_eq!(cores(""), None);
    let core = pool(&folder, "rlimit_core = \"1M\"").confinement.rlimit_core;
    assert_eq!(core, Some(CoreSize::Bytes(1 << 20)));
}

#[test]
fn the_only_pool_runs_the_sites_that_name_none() {
    let folder = Folder::new();
    assert_eq!(site(&folder, "").destination, Destination::Pool("shop".to_owned()));
    let empty = folder.good("[pools]\n[[sites]]\nroot = \"public\"");
    assert_eq!(empty.sites[0].destination, Destination::Pool("www".to_owned()));
    assert!(empty.pool("www").is_some());
}

#[test]
fn the_implicit_pool_may_be_named() {
    let config = Folder::new().good("[[sites]]\nroot = \"public\"\npool = \"www\"");
    assert_eq!(config.sites[0].destination, Destination::Pool("www".to_owned()));
}

#[test]
fn a_configuration_survives_the_way_to_the_front() {
    let folder = Folder::new();
    let config = folder.good(
        "listen = \"[::]:80\"\naccess_log = \"a.log\"\n\
         [pools.a]\nrequest_queue_timeout = \"500ms\"\nphp_value = { a = \"ü\" }\n\
         [pools.b]\nphp_ini = \"php/shop.ini\"\n\
         [[sites]]\nroot = \"public\"\npool = \"a\"\n\
         hosts = [\"a.example\", \"*.a.example\", \"*\"]\n\
         [[sites]]\nroot = \"public\"\nhosts = \"b.example\"\nupstream = \"unix:/run/b\"\n\
         [[sites]]\nroot = \"public\"\nhosts = \"c.example\"\nupstream = \"[::1]:9000\"",
    );
    let sent = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<Config>(&sent).unwrap(), config);
}

#[test]
fn a_directory_is_served_without_a_file() {
    let folder = Folder::new();
    let public = folder.path().join("public");
    let config = Config::for_directory(&public, Vec::new(), None).unwrap();
    assert_eq!(config, folder.good("[[sites]]\nroot = \"public\""));
    let listen = addresses(&["127.0.0.1:0"]);
    let config = Config::for_directory(&public, listen.clone(), Some(3)).unwrap();
    assert_eq!(config.listen, listen);
    assert_eq!(config.pools[0].max_children, Some(3));
}

#[test]
fn a_directory_that_cannot_be_served_is_refused() {
    let folder = Folder::new();
    let refused = |path: &Path, workers| {
        Config::for_directory(path, Vec::new(), workers).unwrap_err().to_string()
    };
    let nowhere = folder.path().join("nowhere");
    assert_eq!(
        refused(&nowhere, None),
        format!(
            "{}: the document root does not exist; create the directory or correct the path",
            nowhere.display()
        )
    );
    let file = folder.path().join("php/shop.ini");
    assert_eq!(
        refused(&file, None),
        format!("{}: the document root is not a directory; name the directory", file.display())
    );
    let file = folder.path().join("maitred.toml");
    std::fs::write(&file, "").unwrap();
    let found = refused(&file, None);
    assert!(found.ends_with("name the directory, or a configuration with --config"));
    let public = folder.path().join("public");
    assert_eq!(refused(&public, Some(0)), "--workers: found 0; expected 1 to 10000");
    assert_eq!(refused(&public, Some(10_001)), "--workers: found 10001; expected 1 to 10000");
}

#[test]
fn a_directory_whose_name_cannot_be_sent_to_the_front_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let dir = folder.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
    std::fs::create_dir(&dir).unwrap();
    let found = Config::for_directory(&dir, Vec::new(), None).unwrap_err().to_string();
    assert_eq!(found, format!("{}: the document root has a name that is not UTF-8", dir.display()));
    std::fs::create_dir(dir.join("public")).unwrap();
    let text = "[[sites]]\nroot = \"public\"";
    let found = maitred_config::parse(text, &dir.join("m.toml")).unwrap_err().to_string();
    assert!(found.contains("`root` is the string \"public\", which is below "), "{found}");
    assert!(found.ends_with(", whose name is not UTF-8"), "{found}");
}

#[test]
fn flags_override_the_file() {
    let folder = Folder::new();
    let config = folder.good(
        "listen = \"127.0.0.1:1\"\n[pools.a]\nmax_children = 7\n[pools.b]\n\
         [[sites]]\nroot = \"public\"\npool = \"a\"",
    );
    assert_eq!(config.clone().with_listen(Vec::new()), config);
    let twice = addresses(&["[::1]:2", "[::1]:2", "127.0.0.1:0", "127.0.0.1:0"]);
    let listen = config.clone().with_listen(twice).listen;
    assert_eq!(listen, addresses(&["[::1]:2", "127.0.0.1:0", "127.0.0.1:0"]));
    let workers = config.with_workers(2).unwrap();
    assert!(workers.pools.iter().all(|pool| pool.max_children == Some(2)));
}

#[test]
fn a_dynamic_pool_starts_between_its_fewest_and_its_most_spare_workers() {
    let start = |more: &str| {
        let config = Folder::new().good(&format!(
            "[[sites]]\nroot = \"public\"\n[pools.www]\npm = \"dynamic\"\nmax_children = 50\n\
             min_spare_servers = 3\nmax_spare_servers = 10\n{more}"
        ));
        assert_eq!(config.pools[0].pm, ProcessManager::Dynamic);
        config.pools[0].start_servers
    };
    assert_eq!(start(""), Some(6));
    assert_eq!(start("start_servers = 10"), Some(10));
}

#[test]
fn a_file_is_loaded_with_paths_relative_to_its_folder() {
    let folder = Folder::new();
    let file = folder.path().join("maitred.toml");
    std::fs::write(&file, "\u{feff}[[sites]]\nroot = \"public\"\n").unwrap();
    let config = maitred_config::load(&file).unwrap();
    assert_eq!(config.sites[0].root, folder.path().join("public"));
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let folder = Folder::new();
    let file = folder.path().join("maitred.toml");
    let load = || maitred_config::load(&file).unwrap_err().to_string();
    let path = file.display();
    assert_eq!(
        load(),
        format!(
            "{path}: the configuration file cannot be read: No such file or directory (os error \
             2); name one that is there with --config"
        )
    );
    std::fs::write(&file, b"# a\nb = \"\xff\"").unwrap();
    assert_eq!(load(), format!("{path}:2:6: this byte is not UTF-8; save the file as UTF-8 text"));
    std::fs::write(&file, " ".repeat(maitred_config::MAX_FILE_BYTES + 1)).unwrap();
    assert_eq!(load(), format!("{path}: the configuration file is larger than 16777216 bytes"));
}

#[test]
fn pools_that_all_have_a_listener_need_no_site_and_no_address() {
    let config = Folder::new().good(
        "[pools.www]\nlisten = \"/run/www.sock\"\nlisten_mode = \"0666\"\nlisten_backlog = 5\n\
         status_listen = \"127.0.0.1:9001\"\nlisten_allowed_clients = [\"127.0.0.1\", \"::1\"]\n\
         access_log = \"www.log\"\naccess_suppress_path = \"/ping\"\nlimit_extensions = \"\"\n",
    );
    assert!(config.listen.is_empty() && config.sites.is_empty() && config.fpm.is_none());
    let pool = config.pool("www").unwrap();
    let listener = pool.listener.as_ref().unwrap();
    assert_eq!(listener.listen, Address::Unix("/run/www.sock".into()));
    assert_eq!((listener.mode, listener.backlog), (0o666, Some(5)));
    assert_eq!(listener.allowed_clients, None);
    let status = pool.status_listener.as_ref().unwrap();
    assert_eq!(status.listen.to_string(), "127.0.0.1:9001");
    assert_eq!(status.allowed_clients.as_ref().map(Vec::len), Some(2));
    assert_eq!(pool.status_path.as_deref(), Some("/"));
    assert!(pool.limit_extensions.is_empty());
    let log = pool.pool_access_log.as_ref().unwrap();
    assert_eq!(log.format, "%R - %u %t \"%m %r\" %s");
    assert_eq!(log.suppress_path, ["/ping"]);
    assert!(log.path.is_absolute());
}

#[test]
fn a_pool_with_a_listener_serves_sites_as_well() {
    let config =
        Folder::new().good("[pools.www]\nlisten = \"9000\"\n[[sites]]\nroot = \"public\"\n");
    assert_eq!(config.listen.len(), 1);
    let listener = config.pool("www").unwrap().listener.as_ref().unwrap();
    assert_eq!(listener.listen.to_string(), "[::]:9000");
    assert_eq!(listener.asked, "9000");
}

#[test]
fn a_pool_in_worker_mode_boots_its_script_where_its_php_sees_it() {
    let folder = Folder::new();
    let script = folder.path().join("public/worker.php");
    let booted =
        pool(&folder, "mode = \"worker\"\nscript = \"public/worker.php\"\nboot_timeout = \"2m\"");
    assert_eq!((booted.mode, booted.booted_script()), (Mode::Worker, Some(script)));
    assert_eq!(booted.boot_timeout, Duration::from_secs(120));
    let classic = pool(&folder, "script = \"public/worker.php\"");
    assert_eq!((classic.mode, classic.booted_script()), (Mode::Classic, None));
    let chroot = folder.path().display();
    let inside = pool(
        &folder,
        &format!("mode = \"worker\"\nscript = \"public/worker.php\"\nchroot = \"{chroot}\""),
    );
    assert_eq!(inside.booted_script(), Some("/public/worker.php".into()));
}
