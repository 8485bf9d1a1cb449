//! Warnings about valid settings without effect.

use std::fs;
use std::path::{Path, PathBuf};

use maitred_config::directives::pools;
use maitred_config::{Mistake, Preset};

use crate::folder::Folder;

fn remarks(folder: &Folder, text: &str) -> Vec<Mistake> {
    let file = Path::new("maitred.toml");
    maitred_config::remarks(text, file, &folder.good(text))
}

/// A pool of this mode with another setting in line 4, if there is one.
fn with(mode: &str, setting: &str) -> String {
    let script = match mode {
        "classic" => "",
        _ => "script = \"public/worker.php\"",
    };
    format!("[pools.shop]\nmode = \"{mode}\"\n{script}\n{setting}\n[[sites]]\nroot = \"public\"\n")
}

#[test]
fn a_setting_that_the_mode_of_its_pool_does_not_heed_is_told_with_its_line_and_what_to_do() {
    let folder = Folder::new();
    let expected = [
        (
            "classic",
            "script = \"public/worker.php\"",
            "maitred.toml:4:10: `script` has no effect in a pool whose `mode` is \"classic\"; \
             leave it out, or set `mode` to \"worker\" or \"snapshot\"",
        ),
        (
            "worker",
            "requests_per_child = 10",
            "maitred.toml:4:22: `requests_per_child` has no effect in a pool whose `mode` is \
             \"worker\" (`max_requests` is what bounds the requests of a worker there); leave it \
             out, or set `mode` to \"snapshot\"",
        ),
        (
            "snapshot",
            "max_requests = 1000",
            "maitred.toml:4:16: `max_requests` has no effect in a pool whose `mode` is \
             \"snapshot\" (`requests_per_child` and `rewinds_per_child` are what bounds the \
             requests of a copy); leave it out, or set `mode` to \"classic\" or \"worker\"",
        ),
        (
            "snapshot",
            "boot_timeout = \"10s\"",
            "maitred.toml:4:16: `boot_timeout` has no effect in a pool whose `mode` is \
             \"snapshot\" (a boot may take 30 s there); leave it out, or set `mode` to \"worker\"",
        ),
    ];
    for (mode, setting, sentence) in expected {
        let found = remarks(&folder, &with(mode, setting));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, [sentence]);
    }
    let text = "admin_url = \"http://node1\"\n[[sites]]\nroot = \"public\"\n";
    let found = remarks(&folder, text);
    assert_eq!(
        found[0].to_string(),
        "maitred.toml:1:13: `admin_url` has no effect: there is no `purge_log`, by which other \
         nodes know of this one"
    );
    let text = "[pools.shop]\nwatch = true\n[[sites]]\nroot = \"public\"\n";
    let found = remarks(&folder, text);
    assert_eq!(
        found[0].to_string(),
        "maitred.toml:2:9: `watch` has no effect in a pool whose `mode` is \"classic\", the \
         default; leave it out, or set `mode` to \"worker\" or \"snapshot\""
    );
}

#[test]
fn each_setting_is_told_in_the_modes_that_do_not_heed_it_and_in_no_other() {
    let folder = Folder::new();
    let settings = [
        ("script = \"public/worker.php\"", "classic"),
        ("boot_timeout = \"10s\"", "classic snapshot"),
        ("requests_per_child = 10", "classic worker"),
        ("rewinds_per_child = 10", "classic worker"),
        ("boot_connections = \"close\"", "classic worker"),
        ("warm_requests = [\"/\"]", "classic worker"),
        ("watch = true", "classic"),
        ("sapi_name = \"frankenphp\"", "classic"),
        ("opcache_memory_max = \"64M\"", "classic"),
        ("max_requests = 10", "snapshot"),
        ("max_spawn_rate = 64", "snapshot"),
        ("max_private_memory = \"64M\"", ""),
        ("request_terminate_timeout = \"10s\"", ""),
    ];
    for (setting, unheeded) in settings {
        for mode in ["classic", "worker", "snapshot"] {
            let again = mode != "classic" && setting.starts_with("script");
            let setting = if again { "" } else { setting };
            let found = !remarks(&folder, &with(mode, setting)).is_empty();
            let expected = unheeded.split(' ').any(|one| one == mode);
            assert_eq!(found, expected, "{setting} in {mode}");
        }
    }
}

#[test]
fn what_says_no_more_than_holds_anyway_is_not_told() {
    let folder = Folder::new();
    for directive in pools::DIRECTIVES {
        let Preset::Value(value) = directive.default else {
            continue;
        };
        for mode in ["classic", "worker", "snapshot"] {
            if directive.name == "mode" {
                continue;
            }
            let text = with(mode, &format!("{} = {value}", directive.name));
            assert_eq!(remarks(&folder, &text), [], "{text}");
        }
    }
}

#[test]
fn a_fastcgi_listener_on_tcp_that_anybody_may_connect_to_is_told() {
    let folder = Folder::new();
    let found = |settings: &str| {
        let text = format!("[pools.shop]\n{settings}\n");
        let found = remarks(&folder, &text);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for address in ["127.0.0.1:9000", "[::1]:9000", "0.0.0.0:9000"] {
        let open = found(&format!("listen = \"{address}\""));
        assert_eq!(open.len(), 1, "{address}: {open:?}");
        let begins =
            "maitred.toml:2:10: `listen` is a TCP address without `listen_allowed_clients`";
        assert!(open[0].starts_with(begins), "{open:?}");
        let bounded = format!("listen = \"{address}\"\nlisten_allowed_clients = [\"10.0.0.5\"]");
        assert_eq!(found(&bounded), Vec::<String>::new());
    }
    assert_eq!(found("listen = \"/run/shop.sock\""), Vec::<String>::new());
}

#[test]
fn client_certificates_that_plain_http_does_without_get_a_warning() {
    let folder = Folder::new();
    let found = |top: &str, setting: &str| {
        let text = format!(
            "{top}\n[tls]\nclient_certificates = \"required\"\nclient_ca = \"site.pem\"\n\
             certificates = {{ cert = \"site.pem\", key = \"site.key\" }}\n{setting}\n\
             [[sites]]\nroot = \"public\"\n"
        );
        let found = remarks(&folder, &text);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let open = found("listen = \":80\"", "");
    assert_eq!(open.len(), 1, "{open:?}");
    assert!(
        open[0].starts_with("maitred.toml:3:23: `client_certificates` is \"required\""),
        "{open:?}"
    );
    assert_eq!(found("listen = \":80\"", "redirect = 301"), Vec::<String>::new());
    assert_eq!(found("", ""), Vec::<String>::new());
}

#[test]
fn proxies_at_every_address_get_a_warning() {
    let folder = Folder::new();
    let found = |top: &str| {
        let found = remarks(&folder, &format!("{top}\n[[sites]]\nroot = \"public\"\n"));
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for all in ["0.0.0.0/0", "::/0"] {
        let open = found(&format!("trusted_proxies = [\"10.0.0.1\", \"{all}\"]"));
        let begins = format!("maitred.toml:1:19: `trusted_proxies` has {all}, every address");
        assert!(open.len() == 1 && open[0].starts_with(&begins), "{open:?}");
        let bounded = found(&format!("trusted_proxies = \"{all}\"\ntrusted_recursive = false"));
        assert_eq!(bounded, Vec::<String>::new());
    }
    assert_eq!(found("trusted_proxies = \"10.0.0.0/8\""), Vec::<String>::new());
}

/// All files with this ending below a directory of the project.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files(&path, ending, found),
            false if path.extension().is_some_and(|end| end == ending) => found.push(path),
            false => {}
        }
    }
}

/// The TOML examples of the guide that are whole configurations or sections.
#[test]
fn no_example_of_the_guide_has_a_setting_without_effect() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = Vec::new();
    for folder in ["docs", "integrations", "examples"] {
        files(&project.join(folder), "md", &mut pages);
    }
    let mut read = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for example in text.split("```toml\n").skip(1) {
            let example = example.split("```").next().unwrap();
            for pool in example.split("[pools.").skip(1) {
                let settings = pool.split("\n[").next().unwrap();
                read += 1;
                expect_silence(settings, &page);
            }
        }
    }
    assert!(read > 20, "{read} pools were found");
}

/// Reads the settings of a pool that depend on its mode, and no others.
fn expect_silence(settings: &str, page: &Path) {
    let folder = Folder::new();
    let of_mode = |line: &&str| {
        let name = line.split([' ', '=']).next().unwrap_or_default();
        let others = ["script", "mode", "watch", "boot_", "requests_per", "rewinds_", "warm_"];
        let more = ["max_requests", "max_spawn_rate", "opcache_"];
        others.iter().chain(&more).any(|known| name.starts_with(known))
    };
    let lines: String = settings
        .lines()
        .skip(1)
        .filter(of_mode)
        .map(|line| {
            if line.starts_with("script") {
                "script = \"public/worker.php\"\n".to_owned()
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    let text = format!("[pools.shop]\n{lines}[[sites]]\nroot = \"public\"\n");
    if let Ok(config) = folder.parse(&text) {
        let found = maitred_config::remarks(&text, page, &config);
        assert_eq!(found, [], "{}: {text}", page.display());
    }
}
