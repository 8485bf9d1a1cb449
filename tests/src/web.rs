//! Web servers and proxies from Debian before a server: nginx, Apache and HAProxy, each with a
//! generated configuration in a folder of its own.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::guard::Guarded;
use crate::processes::Signal;
use crate::server::{WEB_USER, is_root, public_folder};
use crate::{Target, ports, wait};

/// Apache's modules that every configuration here needs.
const APACHE_MODULES: [&str; 7] =
    ["mpm_event", "authz_core", "dir", "alias", "proxy", "proxy_fcgi", "setenvif"];

/// nginx's configuration: `http` lines, and those of its only server.
pub fn nginx_conf(folder: &Path, address: SocketAddr, http: &str, server: &str) -> String {
    let user = if is_root() { format!("user {WEB_USER};\n") } else { String::new() };
    let folder = folder.display();
    format!(
        r#"{user}daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 4096; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    access_log off;
    client_body_temp_path {folder}/body;
    fastcgi_temp_path {folder}/fastcgi;
    proxy_temp_path {folder}/proxy;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 64m;
    {http}
    server {{
        listen {address} default_server;
        {server}
    }}
}}
"#
    )
}

/// Starts nginx with this configuration and waits until it listens.
///
/// # Panics
/// When it does not.
pub fn start_nginx(folder: &Path, address: SocketAddr, conf: &str) -> Guarded {
    let file = folder.join("nginx.conf");
    fs::write(&file, conf).expect("a file can be written");
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg("/etc/nginx")
        .arg("-e")
        .arg(folder.join("nginx.log"))
        .arg("-c")
        .arg(&file);
    start("nginx", command, address, &folder.join("nginx.log"))
}

/// Whether there is a Caddy: Ubuntu 22.04 has no package of it.
pub fn has_caddy() -> bool {
    let found = Command::new("caddy").arg("version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Starts Caddy with a Caddyfile and waits until it listens. Its data are in the folder.
///
/// # Panics
/// When it does not, or there is no Caddy.
pub fn start_caddy(folder: &Path, address: SocketAddr, caddyfile: &Path) -> Guarded {
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(caddyfile);
    command.env("HOME", folder).env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
    start("caddy", command, address, &folder.join("caddy.log"))
}

fn start(name: &str, mut command: Command, address: SocketAddr, log: &Path) -> Guarded {
    let output = fs::File::options().append(true).create(true).open(log);
    let output = output.expect("a log can be opened");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    let mut server = Guarded::spawn(&mut command, Signal::TERM);
    wait::until_true(&format!("{name} to listen"), || {
        let text = || fs::read_to_string(log).unwrap_or_default();
        assert!(server.ended().is_none(), "{name} ended:\n{}", text());
        TcpStream::connect(address).is_ok()
    });
    server
}

/// A web server, running; it ends when this is dropped.
#[derive(Debug)]
pub struct Web {
    server: Guarded,
    address: SocketAddr,
    folder: TempDir,
}

impl Web {
    /// nginx with these lines in its `http` block and in its only server.
    ///
    /// # Panics
    /// When it does not start.
    pub fn nginx(http: &str, server: &str) -> Self {
        let folder = public_folder();
        let address = ports::free_address();
        // Debian's snippets include it by a name that begins where the configuration lies.
        symlink("/etc/nginx/fastcgi.conf", folder.path().join("fastcgi.conf"))
            .expect("a link can be made");
        let conf = nginx_conf(folder.path(), address, http, server);
        Self { server: start_nginx(folder.path(), address, &conf), address, folder }
    }

    /// Apache, whose processes handle several connections each, for a document root and with these
    /// lines besides.
    ///
    /// # Panics
    /// When it does not start.
    pub fn apache(root: &Path, lines: &str) -> Self {
        let folder = public_folder();
        let address = ports::free_address();
        let file = folder.path().join("apache.conf");
        fs::write(&file, apache_conf(folder.path(), address, root, lines))
            .expect("a file can be written");
        let mut command = Command::new("apache2");
        command.arg("-f").arg(&file).arg("-DFOREGROUND");
        let log = folder.path().join("apache.log");
        Self { server: start("Apache", command, address, &log), address, folder }
    }

    /// Apache with mod_php and all modules that `.htaccess` files need, with these sites.
    ///
    /// # Panics
    /// When it does not start.
    pub fn apache_with_php(sites: &str) -> Self {
        let folder = public_folder();
        let address = ports::free_address();
        let file = folder.path().join("apache.conf");
        fs::write(&file, apache_php_conf(folder.path(), address, sites))
            .expect("a file can be written");
        let mut command = Command::new("apache2");
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.arg("-f").arg(&file).arg("-DFOREGROUND");
        let log = folder.path().join("apache.log");
        Self { server: start("Apache", command, address, &log), address, folder }
    }

    /// HAProxy before an HTTP server, with these lines in its only section.
    ///
    /// # Panics
    /// When it does not start.
    pub fn haproxy(lines: &str) -> Self {
        let folder = public_folder();
        let address = ports::free_address();
        let file = folder.path().join("haproxy.cfg");
        fs::write(&file, haproxy_conf(address, lines)).expect("a file can be written");
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file);
        let log = folder.path().join("haproxy.log");
        Self { server: start("HAProxy", command, address, &log), address, folder }
    }

    /// The process that was started.
    pub fn pid(&self) -> i32 {
        self.server.pid()
    }
}

/// Writes the configuration of an Apache with mod_php and these modules, as packages do: the
/// variables in `envvars`, the modules and the sites in files of their own.
///
/// # Panics
/// When a file cannot be written, or there is no mod_php.
pub fn write_apache(
    folder: &Path,
    address: SocketAddr,
    modules: &[&str],
    sites: &str,
) -> std::path::PathBuf {
    let at = "/usr/lib/apache2/modules";
    let load = |name: &&str| format!("LoadModule {name}_module {at}/mod_{name}.so\n");
    let php = fs::read_dir(at).expect("Apache's modules").flatten().map(|entry| entry.path());
    let php = php
        .filter_map(|path| path.to_str().map(str::to_owned))
        .find(|path| path.contains("/libphp"))
        .expect("mod_php is installed");
    let loads: String = modules.iter().map(load).collect();
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text).expect("a file can be written");
    };
    let variables = format!(
        "export APACHE_RUN_USER={WEB_USER}\nexport APACHE_LOG_DIR={}$SUFFIX\n",
        folder.display()
    );
    write("envvars", &variables);
    write("modules.load", &format!("{loads}LoadModule php_module {php}\n"));
    write("sites.conf", sites);
    let user = match is_root() {
        true => "User ${APACHE_RUN_USER}\nGroup ${APACHE_RUN_USER}\n",
        false => "",
    };
    let here = folder.display();
    let conf = format!(
        r#"ServerRoot {here}
Define PORT {port}
Listen {address}
DefaultRuntimeDir {here}
PidFile {here}/apache.pid
ErrorLog {here}/apache.log
ServerName localhost
Timeout 90
IncludeOptional *.load
{user}StartServers 2
MinSpareServers 1
MaxSpareServers 3
MaxRequestWorkers 8
TypesConfig /etc/mime.types
AccessFileName .htaccess
<Directory />
    Options FollowSymLinks
    AllowOverride None
    Require all denied
</Directory>
<FilesMatch "^\.ht">
    Require all denied
</FilesMatch>
<IfModule mod_dir.c>
    DirectoryIndex index.php index.html
</IfModule>
<IfModule mod_unknown.c>
    Frobnicate on
</IfModule>
IncludeOptional sites*.conf
"#,
        port = address.port(),
    );
    write("apache2.conf", &conf);
    folder.join("apache2.conf")
}

/// Starts Apache with a configuration.
///
/// # Panics
/// When it does not start.
pub fn start_apache(conf: &Path, address: SocketAddr) -> Guarded {
    let mut command = Command::new("apache2");
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let folder = conf.parent().expect("it is in a folder");
    command.env("APACHE_RUN_USER", WEB_USER).env("APACHE_LOG_DIR", folder);
    command.arg("-f").arg(conf).arg("-DFOREGROUND");
    start("Apache", command, address, &conf.with_file_name("apache.log"))
}

fn apache_conf(folder: &Path, address: SocketAddr, root: &Path, lines: &str) -> String {
    let user =
        if is_root() { format!("User {WEB_USER}\nGroup {WEB_USER}\n") } else { String::new() };
    let load =
        |name: &&str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let modules: String = APACHE_MODULES.iter().map(load).collect();
    let (folder, root) = (folder.display(), root.display());
    format!(
        r#"{modules}ServerRoot {folder}
ServerName localhost
Listen {address}
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
ErrorLog {folder}/apache.log
{user}ServerLimit 2
StartServers 1
ThreadsPerChild 8
MaxRequestWorkers 16
DocumentRoot {root}
DirectoryIndex index.php
AcceptPathInfo On
<Directory {root}>
    Require all granted
    AllowOverride None
</Directory>
{lines}
"#
    )
}

/// What `.htaccess` files may use.
const HTACCESS_MODULES: [&str; 23] = [
    "mpm_prefork",
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_host",
    "authz_user",
    "authz_groupfile",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "expires",
    "filter",
    "headers",
    "mime",
    "negotiation",
    "rewrite",
    "setenvif",
    "ssl",
    "version",
];

/// PHP runs by the last extension only, so that the server's own handler is the same in both.
fn apache_php_conf(folder: &Path, address: SocketAddr, sites: &str) -> String {
    let user =
        if is_root() { format!("User {WEB_USER}\nGroup {WEB_USER}\n") } else { String::new() };
    let load =
        |name: &&str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let is_there =
        |name: &&&str| Path::new(&format!("/usr/lib/apache2/modules/mod_{name}.so")).exists();
    let modules: String = HTACCESS_MODULES.iter().filter(is_there).map(load).collect();
    let php = fs::read_dir("/usr/lib/apache2/modules").expect("Apache's modules").flatten();
    let php = php
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("/libphp"))
        .expect("mod_php is installed");
    let (folder, php) = (folder.display(), php.display());
    format!(
        r#"{modules}LoadModule php_module {php}
ServerRoot {folder}
ServerName localhost
Listen {address}
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
ErrorLog {folder}/apache.log
{user}StartServers 2
MaxRequestWorkers 8
TypesConfig /etc/mime.types
DirectoryIndex index.php index.html
AddHandler application/x-httpd-php .php
<FilesMatch "^\.ht">
    Require all denied
</FilesMatch>
{sites}
"#
    )
}

fn haproxy_conf(address: SocketAddr, lines: &str) -> String {
    let user = if is_root() {
        format!("    user {WEB_USER}\n    group {WEB_USER}\n")
    } else {
        String::new()
    };
    format!(
        "global\n    maxconn 200\n{user}\nlisten http\n    mode http\n    bind {address}\n    \
         timeout connect 10s\n    timeout client 30s\n    timeout server 30s\n{lines}\n"
    )
}

impl Target for Web {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn log_text(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let [nginx, apache] = [read("nginx.log"), read("apache.log")];
        [nginx, apache, read("haproxy.log")].concat()
    }
}
