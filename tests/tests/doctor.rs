//! `maitred doctor`: on Debian's defaults, on the configurations of the tuning articles before and
//! after, on servers that run, and where something cannot be read.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use maitred_tests::browser::assert_readable;
use maitred_tests::fpm::{Daemon, Which, usual};
use maitred_tests::maitred_program;
use maitred_tests::outside::{command, text};
use maitred_tests::peer::PeerSetup;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, is_root, public_folder, set_mode};
use maitred_tests::wait;
use maitred_tests::{Target, http, project_root};
use serde_json::Value;
use tempfile::TempDir;

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(maitred_program());
    let output = command.arg("doctor").args(arguments).output();
    output.expect("the program can be started")
}

/// A busy machine may take its time.
const PATIENTLY: [&str; 2] = ["--time", "60"];

/// What `maitred doctor --json` prints.
fn report(output: &Output) -> Value {
    let report = serde_json::from_slice(&output.stdout);
    report.unwrap_or_else(|why| panic!("{why}: {output:?}"))
}

/// Findings as `SEVERITY CHECK ABOUT: SEEN`.
fn lines(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().expect("there are findings");
    let line = |finding: &Value| {
        let text = |name: &str| finding[name].as_str().expect("it is a text").to_owned();
        let (severity, check) = (text("severity"), text("check"));
        format!("{severity} {check} {}: {}", text("about"), text("seen"))
    };
    findings.iter().map(line).collect()
}

#[track_caller]
fn expect(lines: &[String], beginning: &str, part: &str) {
    let hit =
        lines.iter().any(|line| line.starts_with(&format!("{beginning} ")) && line.contains(part));
    assert!(hit, "{beginning} … {part} is expected of\n{}", lines.join("\n"));
}

/// Files below a root of their own.
struct Image(TempDir);

impl Image {
    /// A machine with these processors and this memory, in MB, most of it free.
    fn of(processors: u32, memory: u64) -> Image {
        let image = Image(tempfile::tempdir().expect("there is room"));
        let kilobytes = memory * 1024;
        let free = kilobytes * 85 / 100;
        let meminfo =
            format!("MemTotal: {kilobytes} kB\nMemAvailable: {free} kB\nSwapTotal: 1048576 kB\n");
        image
            .file("proc/meminfo", &meminfo)
            .file("sys/devices/system/cpu/online", &format!("0-{}\n", processors - 1))
            .file(
                "proc/self/status",
                &format!("Name:\tx\nCpus_allowed_list:\t0-{}\n", processors - 1),
            )
            .file("proc/self/cgroup", "0::/\n")
            .file(
                "proc/self/mountinfo",
                "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:27 / /sys/fs/cgroup rw - cgroup2 \
                 cgroup2 rw\n",
            )
            .file("proc/sys/net/core/somaxconn", "4096\n")
            .file("proc/sys/kernel/osrelease", "6.1.0-31-amd64\n")
            .file(
                "proc/pressure/memory",
                "some avg10=0.00 avg60=0.00 x\n\
                full avg10=0.00 avg60=0.00 x\n",
            )
    }

    fn file(self, path: &str, text: &str) -> Image {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("it can be made");
        fs::write(path, text).expect("it can be written");
        self
    }

    /// php-fpm with this pool, and a php.ini as Debian has it.
    fn fpm(self, pool: &str) -> Image {
        self.file("etc/php/8.2/fpm/php-fpm.conf", "include = /etc/php/8.2/fpm/pool.d/*.conf\n")
            .file("etc/php/8.2/fpm/php.ini", "memory_limit = 128M\nmax_execution_time = 30\n")
            .file("etc/php/8.2/fpm/conf.d/10-opcache.ini", "zend_extension=opcache.so\n")
            .file("etc/php/8.2/fpm/pool.d/www.conf", &format!("[www]\n{pool}"))
    }

    /// nginx that passes scripts to that pool, with further lines.
    fn nginx(self, http: &str, location: &str) -> Image {
        let conf = format!(
            "events {{ worker_connections 768; }}\nhttp {{\n{http}\nserver {{ \
             server_name shop.example;\n\
             root /srv/shop;\nlocation ~ \\.php$ {{ fastcgi_pass unix:/var/run/php/www.sock;\n\
             {location} }} }} }}\n"
        );
        self.file("etc/nginx/nginx.conf", &conf)
    }

    fn examined(&self) -> Vec<String> {
        let root = self.0.path().display().to_string();
        lines(&report(&doctor(&["--json", "--root", &root])))
    }
}

const LISTEN: &str = "listen = /run/php/www.sock\n";

#[test]
fn debians_own_defaults_have_the_flaws_that_the_guide_names() {
    let image = Image::of(2, 4096);
    let image = image.file("lib/systemd/system/none", "").file("etc/none", "");
    let copied = Command::new("cp")
        .args(["-rL", "/etc/php", "/etc/nginx"])
        .arg(image.0.path().join("etc"))
        .output();
    let copied = copied.expect("cp runs");
    assert!(copied.status.success(), "{copied:?}");
    let units = image.0.path().join("lib/systemd/system");
    let version = fs::read_dir("/etc/php").expect("PHP is installed").flatten();
    let version = version.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let version = version.filter(|version| Path::new(&format!("/etc/php/{version}/fpm")).is_dir());
    for version in version {
        let unit = format!("php{version}-fpm.service");
        fs::copy(format!("/lib/systemd/system/{unit}"), units.join(&unit)).expect("it has a unit");
    }
    // As the comment in Debian's nginx site says.
    let site = "server { listen 80; root /var/www/html; location ~ \\.php$ { \
                include fastcgi.conf;\n\
                fastcgi_pass unix:/run/php/php-fpm.sock; } }\n";
    // As Debian's alternatives are.
    let run = image.0.path().join("run/php");
    fs::create_dir_all(&run).expect("it can be made");
    let newest = maitred_tests::peer::fpm_program();
    let newest = newest.file_name().expect("it has a name").to_string_lossy().into_owned();
    let version = newest.trim_start_matches("php-fpm");
    symlink("/etc/alternatives/php-fpm.sock", run.join("php-fpm.sock")).expect("it can be made");
    fs::create_dir_all(image.0.path().join("etc/alternatives")).expect("it can be made");
    let socket = format!("/run/php/php{version}-fpm.sock");
    let link = image.0.path().join("etc/alternatives/php-fpm.sock");
    symlink(socket, link).expect("it can be made");
    let image = image.file("etc/nginx/conf.d/site.conf", site);
    let found = image.examined();
    expect(&found, "fail D8", "pool www (/etc/php");
    expect(&found, "fail D17", "process_control_timeout = 0");
    expect(&found, "fail D17", "systemd stops php-fpm with SIGTERM");
    expect(&found, "warn D18", "OOMPolicy is not set");
    expect(&found, "warn D10", "4096 requests may wait for 5 workers");
    expect(&found, "info D12", "from 2 to 5 workers");
    expect(&found, "info D13", "pm.max_requests = 0");
    expect(&found, "ok D1", "5 workers x 128 MiB");
    expect(&found, "ok D15", "OPcache is on");
    expect(&found, "info D15", "opcache.validate_timestamps = 1");
    // The pool was found behind the link.
    let unknown = found.iter().any(|line| line.contains("where its code is"));
    assert!(!unknown, "{found:#?}");
    expect(&found, "cannot_tell D9", "ss is not run for another root");
    let others = found.iter().filter(|line| line.starts_with("fail"));
    for line in others {
        assert!(["fail D8", "fail D17"].iter().any(|known| line.starts_with(known)), "{line}");
    }
}

#[test]
fn the_units_of_maitred_in_place_of_php_fpm_outlive_a_worker_without_memory() {
    let packaging = |file: &str| {
        let path = project_root().join("packaging").join(file);
        fs::read_to_string(path).expect("it can be read").replace("@PHP@", "8.2")
    };
    let unit = "lib/systemd/system/php8.2-fpm.service";
    let pool = format!("{LISTEN}pm.max_children = 5\n");
    let debians = Image::of(2, 4096).fpm(&pool).file(unit, "[Service]\nType=notify\n");
    expect(&debians.examined(), "warn D18", "OOMPolicy is not set");
    let drop_in = "etc/systemd/system/php8.2-fpm.service.d/maitred.conf";
    let with_drop_in = debians.file(drop_in, &packaging("debian/fpm.drop-in.in"));
    let ours = Image::of(2, 4096).fpm(&pool);
    let with_unit = ours.file(unit, &packaging("php8.2-fpm-maitred.service"));
    for image in [with_drop_in, with_unit] {
        let found = image.examined();
        expect(&found, "ok D18", "a worker that is killed is replaced");
        assert!(!found.iter().any(|line| line.contains("OOMPolicy")), "{found:#?}");
    }
    for file in ["debian/fpm.drop-in.in", "php8.2-fpm-maitred.service"] {
        assert!(packaging(file).contains("\nRestart=on-failure\n"), "{file}");
    }
}

#[test]
fn the_shop_of_the_first_article_is_told_before_and_after_what_it_did_not_see() {
    // 50 users, random pages, 4 processors, 8 GB.
    let pool = format!(
        "{LISTEN}pm = dynamic\npm.max_children = 5\npm.start_servers = 2\n\
         pm.min_spare_servers = 1\n\
         pm.max_spare_servers = 3\npm.status_path = /status\n"
    );
    let before = Image::of(4, 8192).fpm(&pool).nginx("", "").examined();
    // «listen queue: 0», while 45 of 50 users waited.
    expect(&before, "warn D11", "the pool listens on a Unix socket");
    expect(&before, "warn D11", "the pool's own workers");
    expect(&before, "fail D8", "request_terminate_timeout = 0");
    expect(&before, "warn D10", "4096 requests may wait for 5 workers");
    let pool = format!(
        "{LISTEN}pm = dynamic\npm.max_children = 125\npm.start_servers = 37\n\
         pm.min_spare_servers = 25\n\
         pm.max_spare_servers = 75\npm.status_path = /status\n"
    );
    let after = Image::of(4, 8192).fpm(&pool).nginx("", "").examined();
    expect(&after, "fail D1", "125 workers x 128 MiB");
    expect(&after, "info D4", "125 workers on 4.0 processors");
    expect(&after, "info D12", "start_servers = 37; the middle of 25 and 75 is 50");
    expect(&after, "info D12", "25 and 75 idle are 20 % and 60 % of 125");
    expect(&after, "info D12", "8 s from 37 to 125");
}

#[test]
fn the_five_settings_of_the_second_article_are_told_before_and_after() {
    let pool = format!(
        "{LISTEN}pm = dynamic\npm.max_children = 50\npm.start_servers = 10\n\
         pm.min_spare_servers = 5\n\
         pm.max_spare_servers = 20\npm.max_requests = 0\nrequest_terminate_timeout = 0\n\
         listen.backlog = 511\n"
    );
    let before = Image::of(2, 4096).fpm(&pool).nginx("", "").examined();
    expect(&before, "fail D1", "50 workers x 128 MiB");
    expect(&before, "fail D8", "max_execution_time = 30 s counts processor time");
    expect(&before, "info D13", "pm.max_requests = 0");
    let pool = format!(
        "{LISTEN}pm = static\npm.max_children = 20\npm.max_requests = 800\n\
         request_terminate_timeout = 35s\nlisten.backlog = 8192\npm.status_path = /status\n"
    );
    let after = Image::of(2, 4096)
        .fpm(&pool)
        .nginx("", "fastcgi_read_timeout 40s;")
        .file("proc/sys/net/core/somaxconn", "8192\n")
        .file(
            "etc/sysctl.d/99-php-fpm.conf",
            "net.core.somaxconn = 8192\nnet.ipv4.tcp_max_syn_backlog = 8192\n",
        );
    let found = after.examined();
    expect(&found, "warn D10", "8192 requests may wait for 20 workers");
    expect(&found, "warn D8", "nginx waits 40 s, scripts may run 35 s and end within 11.7 s more");
    expect(&found, "warn D8", "default_socket_timeout = 60");
    expect(&found, "warn D8", "track_finished = no");
    expect(&found, "warn D11", "pm = static");
    expect(&found, "info D13", "pm.max_requests = 800");
    expect(&found, "info D9", "tcp_max_syn_backlog is set");
    // On the machines of its time.
    let found = after.file("proc/sys/net/core/somaxconn", "128\n").examined();
    expect(&found, "warn D9", "of which net.core.somaxconn leaves 128");
}

#[test]
fn the_cache_of_the_third_article_is_told_that_it_shows_sessions_to_others() {
    let pool =
        format!("{LISTEN}pm = ondemand\npm.max_children = 6\npm.process_idle_timeout = 5s;\n");
    let http = "proxy_cache_path /c levels=1:2 keys_zone=ng_cache:10m max_size=10g inactive=60m;\n\
                fastcgi_cache_path /d levels=1:2 keys_zone=ngd_cache:10m inactive=60m;\n\
                fastcgi_cache_key \"$scheme$request_method$host$request_uri\";\n\
                fastcgi_cache_use_stale error timeout invalid_header http_500;\n\
                fastcgi_ignore_headers Cache-Control Expires Set-Cookie;\nproxy_cache ng_cache;\n\
                sendfile off;";
    let location = "fastcgi_connect_timeout 300;\nfastcgi_send_timeout 300;\n\
                    fastcgi_read_timeout 300;\n\
                    fastcgi_cache ngd_cache;\nfastcgi_cache_valid 60m;\n\
                    fastcgi_cache_purge $purge_method;";
    let image = Image::of(2, 4096)
        .fpm(&pool)
        .nginx(http, location)
        .file("srv/wp-config.php", "<?php\ndefine( 'WP_DEBUG', true );\n")
        .file(
            "proc/self/mountinfo",
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n3 1 0:9 / /srv rw - vboxsf x rw\n",
        );
    let found = image.examined();
    expect(&found, "fail D19", "fastcgi_ignore_headers Set-Cookie");
    expect(&found, "warn D19", "neither fastcgi_cache_lock nor use_stale updating");
    expect(&found, "info D19", "proxy_cache where nothing is proxied");
    expect(&found, "info D19", "fastcgi_cache_purge is not in the free nginx");
    expect(&found, "info D15", "sendfile off");
    expect(&found, "fail D15", "WP_DEBUG is on");
    expect(&found, "warn D15", "/srv/shop is on /srv, which is vboxsf");
    expect(&found, "warn D14", "process_idle_timeout = 5 s");
    expect(&found, "fail D8", "request_terminate_timeout = 0");
    // What the article's readers may do about it.
    let location = "fastcgi_cache ngd_cache; fastcgi_cache_valid 200 10m; fastcgi_cache_lock on;\n\
                    fastcgi_cache_use_stale updating error; \
                    fastcgi_cache_bypass $cookie_PHPSESSID;\n\
                    fastcgi_no_cache $cookie_PHPSESSID;";
    let image = Image::of(2, 4096).fpm(&pool).nginx(http, location);
    expect(&image.examined(), "ok D19", "zone ngd_cache keeps sessions apart");

    // The same in a browser.
    let (root, file) = (image.0.path().display().to_string(), image.0.path().join("doctor.html"));
    doctor(&["--root", &root, "--html", &file.display().to_string()]);
    let page = fs::read_to_string(&file).expect("a page");
    assert!(page.contains("zone ngd_cache keeps sessions apart"), "{page}");
    assert_readable(&file, "doctor");
}

#[test]
fn apache_on_the_small_machine_of_the_fourth_article_is_told_its_limits() {
    let apache = |settings: &str| {
        let conf = format!(
            "LoadModule mpm_prefork_module x.so\nLoadModule php_module y.so\n\
             <IfModule prefork.c>\n</IfModule>\n<IfModule mpm_prefork_module>\n\
             {settings}</IfModule>\n"
        );
        Image::of(1, 256)
            .file("etc/apache2/apache2.conf", &conf)
            .file("etc/php/8.2/apache2/php.ini", "memory_limit = 24M\nzend_extension = opcache\n")
            .file("proc/self/cgroup", "4:memory:/vps\n")
            .file(
                "proc/self/mountinfo",
                "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:2 / /cg rw - cgroup cgroup rw,memory\n",
            )
            .file("cg/vps/memory.limit_in_bytes", "268435456\n")
    };
    let found = apache("MaxClients 8\nServerLimit 8\nMaxRequestsPerChild 100\n").examined();
    // 8 by the article's own formula leaves nothing for OPcache and the rest.
    expect(&found, "fail D1", "8 workers x 24 MiB");
    expect(&found, "info D12", "MaxClients is called MaxRequestWorkers");
    expect(&found, "info D13", "MaxConnectionsPerChild = 100");
    expect(&found, "warn D8", "Apache cannot end a script by the clock on the wall");
    let found = apache("MaxRequestWorkers 2\nMaxConnectionsPerChild 1500\n").examined();
    expect(&found, "ok D1", "2 workers x 24 MiB");
    expect(&found, "ok D13", "MaxConnectionsPerChild = 1500");
    // Of the control groups' first version, with a limit that the workers do not fit in.
    let found = apache("MaxRequestWorkers 2\n")
        .file("cg/vps/memory.limit_in_bytes", "100000000\n")
        .examined();
    expect(&found, "fail D3", "/cg/vps/memory.limit_in_bytes allows 95.4 MiB of 256 MiB");
    let hidden = apache("MaxRequestWorkers 2\n").file("proc/self/mountinfo", "");
    expect(&hidden.examined(), "warn D3", "not mounted here");
}

#[test]
fn broken_configurations_fail_with_file_and_line_and_the_rest_is_looked_at() {
    let pool = format!("{LISTEN}pm = static\npm.max_children = 5\nenv[X = 1\n");
    let image = Image::of(2, 4096).fpm(&pool);
    let root = image.0.path().display().to_string();
    let output = doctor(&["--root", &root]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stdout);
    assert!(said.contains("FAIL D0 configuration: /etc/php/8.2/fpm/pool.d/www.conf:5"), "{said}");
    assert!(said.contains("FAIL D8 time limits: pool www"), "{said}");
    let config = image.0.path().join("maitred.toml");
    fs::write(&config, "listen = 5\n").expect("it can be written");
    let output = doctor(&["--config", &config.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("maitred.toml:1:"), "{output:?}");
    let output = doctor(&["--root", "/no/such/folder"]);
    assert!(text(&output.stderr).contains("is no folder"), "{output:?}");
}

/// Findings about what is configured, not about this machine, what else runs on it, how busy it is,
/// and the container it may be in.
fn about_settings(report: &Value) -> Vec<String> {
    let of_the_machine = ["D3", "D4", "D5", "D6", "D7", "D20"];
    let findings = report["findings"].as_array().expect("there are findings");
    let is_ours = |finding: &&Value| {
        let check = finding["check"].as_str().unwrap_or_default();
        let seen = finding["seen"].as_str().unwrap_or_default();
        finding["about"] != "the machine"
            && !of_the_machine.contains(&check)
            && !seen.contains("of its group were killed")
    };
    let kept: Vec<Value> = findings.iter().filter(is_ours).cloned().collect();
    lines(&serde_json::json!({ "findings": kept }))
}

#[test]
fn maitred_as_it_is_without_settings_gives_no_cause_for_complaint() {
    let root = document_root(&[("index.php", "<?php echo 'ok';")]);
    // The default maximum.
    let auto = Setup::new(root.path()).pm("auto").workers(128);
    let fixed = Setup::new(root.path());
    for (setup, memory) in
        [(fixed, "private, p95"), (auto, "as many workers as there is memory for")]
    {
        let server = setup.start();
        expect_no_complaint(&server, memory);
        server.stop();
    }
}

fn expect_no_complaint(server: &Server, memory: &str) {
    for _ in 0..40 {
        assert_eq!(http::get(server.address(), "/").status, 200);
    }
    let config = server.configuration().display().to_string();
    let arguments = [&["doctor", "--json", "--config", &config], &PATIENTLY[..]].concat();
    // The first check requests OPcache's state; the next one gets it.
    let found = wait::until("OPcache to be told of", || {
        let found = about_settings(&report(&command(server, &arguments)));
        let is_told = found.iter().any(|line| line.contains("of OPcache is free"));
        is_told.then_some(found)
    });
    for line in &found {
        assert!(!line.starts_with("fail") && !line.starts_with("warn"), "{line}");
    }
    // It was really asked.
    expect(&found, "ok D1", memory);
    expect(&found, "ok D2", "memory");
    expect(&found, "ok D15", "of OPcache is free");
    expect(&found, "info D8", "request_terminate_timeout = 0");
}

#[test]
fn a_running_php_fpm_is_asked_for_its_status_and_its_workers_are_measured() {
    let root = document_root(&[("index.php", "<?php echo 'ok';")]);
    let peer = PeerSetup::new(root.path()).pool("pm.status_path = /status").start();
    for _ in 0..60 {
        assert_eq!(http::get(peer.address(), "/").status, 200);
    }
    let file = peer.fpm_socket().with_file_name("fpm.conf").display().to_string();
    let arguments = [&["--json", "--php-fpm", &file], &PATIENTLY[..]].concat();
    let found = lines(&report(&doctor(&arguments)));
    if is_root() {
        expect(&found, "ok D1", "private, p95");
    }
    // Of the two workers at least one has served more than 20 requests.
    expect(&found, "ok D2", "memory allows");
    expect(&found, "warn D11", "pm = static");
    expect(&found, "ok D9", "that may");
    expect(&found, "cannot_tell D4", "does not tell which part");
}

#[test]
fn what_doctor_runs_ignores_no_signal_that_the_program_itself_ignores() {
    let folder = public_folder();
    let said = folder.path().join("status");
    let ss = folder.path().join("ss");
    let script = format!("#!/bin/sh\ncat /proc/$$/status >{}\n", said.display());
    fs::write(&ss, script).expect("it can be written");
    set_mode(&ss, 0o755);
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(maitred_program());
    command.arg("doctor").args(PATIENTLY);
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    command.output().expect("the program can be started");
    let said = fs::read_to_string(said).expect("ss was run");
    let ignored = said.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    // SIGXFSZ is signal 25 (signal(7)).
    assert_eq!(ignored.map(|bits| bits >> 24 & 1), Some(0), "{said}");
}

#[test]
fn maitred_in_php_fpms_place_is_known_and_spared_what_holds_of_php_fpm_alone() {
    let configuration = usual("pm.status_path = /status\n");
    let daemon = Daemon::start(Which::Maitred, &configuration);
    let file = daemon.place().file("php-fpm.conf").display().to_string();
    let arguments = [&["--json", "--php-fpm", &file], &PATIENTLY[..]].concat();
    let found = lines(&report(&doctor(&arguments)));
    expect(&found, "ok D11", "its status needs no worker");
    expect(&found, "fail D17", "process_control_timeout = 0");
}

#[test]
fn an_admin_socket_that_says_nothing_and_a_server_that_is_not_there_are_named() {
    let root = document_root(&[("index.php", "<?php echo 'ok';")]);
    let config = root.path().join("maitred.toml");
    // D4 has nothing to say of a pool with `pm = auto`.
    let pool = "[pools.www]\npm = \"static\"\n";
    let site = format!("{pool}[[sites]]\nroot = \"{}\"\n", root.path().display());
    fs::write(&config, site).expect("it can be written");
    let config = config.display().to_string();
    let socket = root.path().join("admin.sock");
    let path = socket.display().to_string();
    let arguments = ["--json", "--config", &config, "--admin-socket", &path];
    let found = lines(&report(&doctor(&arguments)));
    expect(&found, "cannot_tell D4", "no server responds on");
    // A listener that never responds.
    let silent = UnixListener::bind(&socket).expect("a socket can be bound");
    let found = lines(&report(&doctor(&arguments)));
    expect(&found, "cannot_tell D4", "did not respond within");
    drop(silent);
}

#[test]
fn php_is_started_as_check_does_and_a_configuration_that_is_not_there_is_named() {
    let missing = doctor(&["--config", "/nonexistent/maitred.toml"]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(2), "{said}");
    assert!(said.contains("/nonexistent/maitred.toml cannot be read"), "{said}");
    assert!(missing.stdout.is_empty());
    let root = document_root(&[("index.php", "<?php echo 'ok';")]);
    let file = root.path().join("maitred.toml");
    let found_with = |settings: &str| {
        let text = format!("[pools.www]\n{settings}[[sites]]\nroot = {:?}\n", root.path());
        fs::write(&file, text).expect("it can be written");
        lines(&report(&doctor(&["--json", "--config", &file.display().to_string()])))
    };
    expect(&found_with(""), "ok D0", "PHP starts for each kind of pool");
    let found = found_with("php_admin_value = { memory_limt = \"256M\" }\n");
    expect(&found, "fail D0", "PHP does not know the setting `memory_limt`");
    let found = found_with("php = \"7.1\"\n");
    expect(&found, "fail D0", "7.1");
}

/// The program where every user may run it.
fn for_everybody(folder: &Path) -> PathBuf {
    let program = folder.join("maitred");
    let linked = fs::hard_link(maitred_program(), &program);
    if linked.is_err() {
        fs::copy(maitred_program(), &program).expect("it can be copied");
    }
    program
}

#[test]
fn without_rights_it_says_what_it_cannot_tell_and_looks_at_the_rest() {
    if !is_root() {
        return;
    }
    let image = Image::of(2, 4096)
        .fpm(&format!("{LISTEN}pm = static\npm.max_children = 5\n"))
        .nginx("include /etc/nginx/secret.conf;", "")
        .file("etc/nginx/secret.conf", "fastcgi_read_timeout 5s;");
    set_mode(image.0.path(), 0o755);
    set_mode(&image.0.path().join("etc/nginx/secret.conf"), 0o600);
    set_mode(&image.0.path().join("proc/meminfo"), 0o600);
    let folder = public_folder();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(for_everybody(folder.path()))
        .args(["doctor", "--json", "--root"])
        .arg(image.0.path())
        .output()
        .expect("setpriv runs");
    let found = lines(&report(&output));
    expect(&found, "fail D0", "/etc/nginx/secret.conf cannot be read (Permission denied");
    expect(&found, "cannot_tell D1", "/proc/meminfo cannot be read (Permission denied");
    expect(&found, "fail D8", "request_terminate_timeout = 0");
}

/// Leaves a process of its own to the server, with the title of another pool's worker and with much
/// memory. Prints its id.
const POSES: &str = r#"<?php
$code = '$all = str_repeat("x", 300000000); echo getmypid(), "\n"; fclose(STDOUT); sleep(600);';
$title = 'maitred-php: worker pool www seat 9';
$run = 'exec -a "$0" php -n -d memory_limit=-1 -r "$1"';
$child = popen('setsid -f bash -c ' . escapeshellarg($run) . ' ' . escapeshellarg($title) . ' '
    . escapeshellarg($code), 'r');
echo trim(fgets($child));"#;

#[test]
fn a_process_of_another_user_with_the_title_of_a_worker_is_not_measured_as_one() {
    if !is_root() {
        return eprintln!("skipped: only root may give pools users of their own");
    }
    let root = document_root(&[("index.php", "<?php echo 'page';"), ("poses.php", POSES)]);
    let other = format!(
        "[pools.other]\nuser = \"nobody\"\npm = \"static\"\nmax_children = 1\n[[sites]]\n\
         hosts = [\"other.test\"]\npool = \"other\"\nroot = {:?}",
        root.path()
    );
    let setup = Setup::new(root.path()).pool("user = \"www-data\"").workers(2).site(&other);
    let server = setup.start();
    for _ in 0..60 {
        assert_eq!(http::get(server.address(), "/index.php").text(), "page");
    }
    let request = http::Request::new("GET", "/poses.php").header("Host", "other.test");
    let decoy = http::ask(server.address(), &request).text();
    let decoy = Process::read(decoy.parse().expect("a process id")).expect("it runs");
    wait::until_true("the server to adopt it", || {
        Process::read(decoy.pid).is_some_and(|decoy| decoy.parent == server.supervisor().pid)
    });
    let config = server.configuration().display().to_string();
    let found = doctor(&[&["--json", "--all", "--config", &config], &PATIENTLY[..]].concat());
    decoy.signal(Signal::KILL);
    let found = lines(&report(&found));
    let memory = found.iter().find_map(|line| line.strip_prefix("ok D2 pool www: "));
    let mut memory = memory.expect("workers are measured").split(' ');
    let number: f64 = memory.next().and_then(|text| text.parse().ok()).expect("a number");
    assert!(memory.next() == Some("KiB") || number < 100.0, "{found:#?}");
    server.stop();
}
