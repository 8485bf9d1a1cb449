//! nginx or Apache with php-fpm, and maitred with the import of their configuration.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::guard::Guarded;
use crate::http::{self, Request};
use crate::outside::{self, text};
use crate::peer::Peer;
use crate::rules::USER;
use crate::server::{Server, Setup, give_to_web_user, public_folder, write_file};
use crate::{Target, maitred_program, ports, web};

/// Rate of the comparisons, in requests a second: no bound for tests.
const FAST: &str = "10000";

/// What is no script of Nextcloud's.
const OTHERS: &str = r"^/(?!index|remote|public|cron|core\/ajax\/update|status|ocs\/v[12])";

/// What a script says about its request.
pub const SCRIPT: &str = "<?php header('X-Script: ' . $_SERVER['SCRIPT_NAME']); \
    echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['QUERY_STRING'], \
    ' ', ($_SERVER['REMOTE_USER'] ?? '') ?: '-', ' ', $_SERVER['APP_ENV'] ?? '-', ' ', \
    ini_get('memory_limit'), ' ', ini_get('upload_max_filesize');";

/// The headers that both send.
const HEADERS: [&str; 7] = [
    "Location",
    "X-Script",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "Cache-Control",
    "WWW-Authenticate",
    "X-Static",
];

/// Modules of Apache that the guides of applications want.
const APACHE_MODULES: [&str; 26] = [
    "mpm_prefork",
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_host",
    "authz_user",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "expires",
    "filter",
    "headers",
    "mime",
    "negotiation",
    "proxy",
    "proxy_fcgi",
    "proxy_http",
    "reqtimeout",
    "rewrite",
    "setenvif",
    "socache_shmcb",
    "ssl",
];

/// A web server with php-fpm, running with a configuration that can be imported.
#[derive(Debug)]
pub struct OldServer {
    folder: TempDir,
    address: SocketAddr,
    fpm: Peer,
    web: Guarded,
    /// Its name for `maitred import`, and its configuration.
    name: &'static str,
    conf: PathBuf,
}

#[derive(Debug)]
/// A web server and php-fpm, and maitred with what the import made of their configuration.
pub struct Both {
    old: OldServer,
    server: Server,
    /// What the import has printed.
    pub imported: Output,
}

#[derive(Debug)]
/// A server of nginx: lines in `http`, lines in its only `server`, and the files below its root.
pub struct Case<'c> {
    /// Lines in `http`.
    pub http: &'c str,
    /// Lines in its only `server` with a `listen` of its own.
    pub server: &'c str,
    /// Files below the document root.
    pub files: &'c [&'c str],
}

/// The result of `maitred import --prove --json` without a bound of the rate.
#[derive(Debug)]
pub struct Proven {
    /// The exit code.
    pub code: Option<i32>,
    /// What it has printed.
    pub json: Value,
    /// What is on standard error.
    pub errors: String,
}

impl Proven {
    /// Runs it with further arguments.
    ///
    /// # Panics
    /// When it prints no JSON.
    pub fn of(old: &OldServer, arguments: &[&str]) -> Proven {
        let all = [&["--prove", "--json", "--rate", FAST], arguments].concat();
        let output = old.import(&all);
        let errors = text(&output.stderr);
        let json = serde_json::from_slice(&output.stdout);
        let json = json.unwrap_or_else(|why| panic!("{why}: {}\n{errors}", text(&output.stdout)));
        Proven { code: output.status.code(), json, errors }
    }

    /// The differences that nothing explains.
    ///
    /// # Panics
    /// When there is no list of differences.
    pub fn unexplained(&self) -> Vec<&Value> {
        let all = self.json["differences"].as_array().expect("a list");
        all.iter().filter(|one| one["explanation"] == "none").collect()
    }

    /// # Panics
    /// When a difference has no explanation, or no more than `least` responses were compared.
    pub fn expect_all_explained(&self, least: u64) {
        let Proven { json, errors, .. } = self;
        let found: Vec<String> =
            self.unexplained().into_iter().map(|one| format!("{one:#}")).collect();
        assert!(found.is_empty(), "{} unexplained:\n{}\n{errors}", found.len(), found.join("\n"));
        assert!(json["compared"].as_u64() > Some(least), "{json:#}");
        println!("{} compared, {} the same", json["compared"], json["same"]);
    }

    /// # Panics
    /// When a temporary file or a listener is left.
    pub fn expect_nothing_left(&self, old: &OldServer) {
        let tmp = fs::read_dir(old.folder().join("tmp")).expect("a folder").count();
        assert_eq!(tmp, 0, "temporary files are left");
        let (_, rest) = self.errors.split_once("maitred on ").expect("its address is logged");
        let address = rest.split(' ').next().expect("an address").parse().expect("an address");
        assert!(!ports::is_listening(address), "{address} has a listener");
    }
}

/// Lines with a document root in place of `ROOT`, but not in names such as `DOCUMENT_ROOT`.
pub fn with_root(lines: &str, root: &str) -> String {
    let lines = lines.replace("_ROOT", "\u{0}").replace("ROOT", root);
    lines.replace('\u{0}', "_ROOT")
}

/// Runs `maitred import` for a configuration.
///
/// # Panics
/// When a path is no text.
pub fn import(nginx: &Path, fpm: &Path) -> Output {
    import_of("nginx", nginx, fpm)
}

/// Runs `maitred import` for the configuration of a server, by its name.
///
/// # Panics
/// When a path is no text.
pub fn import_of(server: &str, conf: &Path, fpm: &Path) -> Output {
    let path = |path: &Path| path.to_str().expect("it is text").to_owned();
    outside::maitred(&["import", server, &path(conf), "--php-fpm", &path(fpm)])
}

impl OldServer {
    /// In the lines, `ROOT` is the document root, `HERE` the folder around it, `FPM` the socket of
    /// php-fpm, and `LISTEN` the address.
    ///
    /// # Panics
    /// When one of them does not start.
    pub fn start(case: &Case<'_>) -> OldServer {
        let folder = public_folder();
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("a folder can be made");
        for name in case.files {
            let script = name.ends_with(".php").then(|| SCRIPT.to_owned());
            let content = script.unwrap_or_else(|| format!("the file {name}"));
            let (inner, file) = name.rsplit_once('/').unwrap_or(("", name));
            write_file(&root.join(inner), file, content.as_bytes());
        }
        OldServer::start_in(folder, case)
    }

    /// The same, with the files that are in the folder `root` of this one already.
    ///
    /// # Panics
    /// When one of them does not start.
    pub fn start_in(folder: TempDir, case: &Case<'_>) -> OldServer {
        let root = folder.path().join("root");
        write_file(folder.path(), "users", USER.as_bytes());
        give_to_web_user(&root);
        let fpm = Peer::nginx_php_fpm(&root);
        let address = ports::free_address();
        let nginx_folder = folder.path().join("nginx");
        fs::create_dir(&nginx_folder).expect("a folder can be made");
        let fill = |lines: &str| {
            let lines = with_root(lines, &root.display().to_string());
            let lines = lines.replace("HERE", &folder.path().display().to_string());
            lines
                .replace("FPM", &fpm.fpm_socket().display().to_string())
                .replace("OTHERS", OTHERS)
                .replace("LISTEN", &address.to_string())
                .replace("include fastcgi_params;", "include /etc/nginx/fastcgi_params;")
        };
        let conf = web::nginx_conf(&nginx_folder, address, &fill(case.http), &fill(case.server));
        let web = web::start_nginx(&nginx_folder, address, &conf);
        let conf = nginx_folder.join("nginx.conf");
        OldServer { folder, address, fpm, web, name: "nginx", conf }
    }

    /// Apache with these virtual hosts, which start with `HOST NAME` in place of `<VirtualHost>`
    /// and `ServerName`. `HERE` is the folder with all document roots, `FPM` the socket of php-fpm.
    ///
    /// # Panics
    /// When one of them does not start.
    pub fn apache(hosts: &str, files: &[(&str, &str)]) -> OldServer {
        let folder = public_folder();
        let here = folder.path().join("www");
        write_files(&here, files);
        write_file(folder.path(), "users", USER.as_bytes());
        let fpm = Peer::nginx_php_fpm(&here);
        let address = ports::free_address();
        let hosts = hosts
            .replace("HERE", &here.display().to_string())
            .replace("USERS", &folder.path().join("users").display().to_string())
            .replace("FPM", &fpm.fpm_socket().display().to_string());
        let hosts = hosts.replace("HOST ", "<VirtualHost *:${PORT}>\nServerName ");
        let apache = folder.path().join("apache");
        fs::create_dir(&apache).expect("a folder can be made");
        let conf = web::write_apache(&apache, address, &APACHE_MODULES, &hosts);
        let web = web::start_apache(&conf, address);
        OldServer { folder, address, fpm, web, name: "apache", conf }
    }

    /// The folder around the document root `root`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process of the web server.
    pub fn pid(&self) -> i32 {
        self.web.pid()
    }

    /// The files of the configuration: the web server's, and php-fpm's.
    ///
    /// # Panics
    /// When the socket of php-fpm is in no folder.
    pub fn configuration(&self) -> [PathBuf; 2] {
        let fpm = self.fpm.fpm_socket();
        let fpm = fpm.parent().expect("it is in a folder").join("fpm.conf");
        [self.conf.clone(), fpm]
    }

    /// Runs `maitred import` with further arguments. Its temporary files are in `tmp`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn import(&self, arguments: &[&str]) -> Output {
        let [conf, fpm] = self.configuration();
        let tmp = self.folder.path().join("tmp");
        fs::create_dir_all(&tmp).expect("a folder can be made");
        let mut command = Command::new(maitred_program());
        command.args(["import", self.name]).arg(conf).arg("--php-fpm").arg(fpm).args(arguments);
        command.env("TMPDIR", tmp).output().expect("the program can be started")
    }
}

impl Target for OldServer {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn log_text(&self) -> String {
        let log = self.folder.path().join(format!("{0}/{0}.log", self.name));
        fs::read_to_string(log).unwrap_or_default()
    }
}

impl Both {
    /// The same as [`OldServer::start`], and maitred with the imported configuration.
    ///
    /// # Panics
    /// When one of them does not start, or `maitred check` refuses the result.
    pub fn start(case: &Case<'_>) -> Both {
        let old = OldServer::start(case);
        let imported = old.import(&[]);
        let root = old.folder().join("root");
        let server = serve(&text(&imported.stdout), &root, old.address());
        Both { old, server, imported }
    }

    /// The configuration of the old server.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn old_configuration(&self) -> String {
        fs::read_to_string(&self.old.conf).expect("it can be read")
    }

    /// The same as [`OldServer::apache`], and maitred with the imported configuration.
    ///
    /// # Panics
    /// When one of them does not start, or `maitred check` refuses the result.
    pub fn apache(hosts: &str, files: &[(&str, &str)]) -> Both {
        let old = OldServer::apache(hosts, files);
        let [conf, fpm] = old.configuration();
        let imported = import_of("apache", &conf, &fpm);
        let here = old.folder().join("www");
        let server = serve(&text(&imported.stdout), &here, old.address());
        Both { old, server, imported }
    }

    /// Caddy with these sites, which start with `SITE NAME` in place of their address. `HERE` is
    /// the folder with all document roots, `FPM` the socket of php-fpm.
    ///
    /// # Panics
    /// When one of them does not start, or `maitred check` refuses the result.
    pub fn caddy(sites: &str, files: &[(&str, &str)]) -> Both {
        let folder = public_folder();
        let here = folder.path().join("www");
        write_files(&here, files);
        let fpm = Peer::nginx_php_fpm(&here);
        let socket = fpm.fpm_socket();
        let address = ports::free_address();
        let sites = sites
            .replace("HERE", &here.display().to_string())
            .replace("FPM", &format!("unix/{}", socket.display()));
        let names = sites.split("SITE ").enumerate().map(|(at, part)| match part.split_once(' ') {
            Some((name, rest)) if at > 0 => format!("http://{name}:{} {rest}", address.port()),
            _ => part.to_owned(),
        });
        let global = format!("{{\nadmin off\nauto_https off\ndefault_bind {}\n}}\n", address.ip());
        let caddyfile = folder.path().join("Caddyfile");
        fs::write(&caddyfile, global + &names.collect::<String>()).expect("a file can be written");
        let web = web::start_caddy(folder.path(), address, &caddyfile);
        let fpm_conf = socket.parent().expect("it is in a folder").join("fpm.conf");
        let written = folder.path().join("maitred.toml");
        let path = |path: &Path| path.to_str().expect("it is text").to_owned();
        let mut imported = outside::maitred(&[
            "import",
            "caddy",
            &path(&caddyfile),
            "--php-fpm",
            &path(&fpm_conf),
            "--output",
            &path(&written),
        ]);
        imported.stdout = fs::read(&written).unwrap_or_default();
        // The files with users are beside the file that the import has written.
        let beside = format!("users = \"{}/maitred-users", folder.path().display());
        let toml = text(&imported.stdout).replace("users = \"maitred-users", &beside);
        let server = serve(&toml, &here, address);
        let old = OldServer { folder, address, fpm, web, name: "caddy", conf: caddyfile };
        Both { old, server, imported }
    }

    /// The status, the body and the headers of the web server and of maitred.
    pub fn seen(&self, request: &Request) -> [String; 2] {
        [self.old.address(), self.server.address()].map(|address| {
            // `abort` of Caddy closes the connection.
            let Ok(response) = http::try_ask(address, request) else { return "none".to_owned() };
            let headers = HEADERS.map(|name| response.header(name).unwrap_or("-").to_owned());
            // The web server names its own port.
            let headers =
                headers.join(" | ").replace(&format!(":{}", self.old.address().port()), "");
            // Or else a path, which means the same.
            let host = request.headers.iter().find(|(name, _)| name == "Host");
            let own = host.map(|(_, host)| format!("http://{host}")).unwrap_or_default();
            let headers = headers.replace(&own, "").replace(", charset=\"UTF-8\"", "");
            let body = if response.status == 200 { response.text() } else { String::new() };
            format!("{} {headers} {body}", response.status)
        })
    }

    /// Requests these targets of both, and compares.
    ///
    /// # Panics
    /// When a response differs.
    pub fn expect_same(&self, host: &str, targets: &[&str]) {
        let mut differences = Vec::new();
        for target in targets {
            let [theirs, ours] = self.seen(&Request::new("GET", target).header("Host", host));
            if theirs != ours {
                differences.push(format!("{target}\n  theirs:  {theirs}\n  maitred: {ours}"));
            }
        }
        let report = text(&self.imported.stderr);
        let toml = text(&self.imported.stdout);
        assert!(differences.is_empty(), "{}\n{toml}\n{report}", differences.join("\n"));
    }

    /// The report of the import.
    pub fn report(&self) -> String {
        text(&self.imported.stderr)
    }
}

/// Files below the folder of all document roots; a script without a text says what it gets.
fn write_files(here: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let content = if content.is_empty() && name.ends_with(".php") { SCRIPT } else { content };
        let (inner, file) = name.rsplit_once('/').unwrap_or(("", name));
        write_file(&here.join(inner), file, content.as_bytes());
    }
    give_to_web_user(here);
}

/// maitred with an imported configuration, at an address of its own.
///
/// # Panics
/// When `maitred check` refuses the configuration, or it is not served.
pub fn serve(toml: &str, root: &Path, nginx: SocketAddr) -> Server {
    let file = root.parent().expect("it is in a folder").join("maitred.toml");
    fs::write(&file, toml).expect("a file can be written");
    let output = outside::maitred(&["check", file.to_str().expect("it is text")]);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    let lines = toml.lines().enumerate().map(|(at, line)| format!("{}: {line}\n", at + 1));
    assert!(output.status.success(), "{said}\n{}", lines.collect::<String>());
    let server = Setup::new(root).start();
    let (address, admin, spool) = (server.address(), server.admin_socket(), server.spool());
    let start = format!("admin_socket = {admin:?}\nspool_dir = {spool:?}\n");
    let toml = toml.replace(&format!("\"{nginx}\""), &format!("\"{address}\""));
    server.configure_as(&(start + &toml));
    let line = server.reload();
    assert!(line.contains("reloaded: "), "{line}\n{}", server.log_text());
    server
}
