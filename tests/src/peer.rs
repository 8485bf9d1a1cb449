//! The peer: Debian's nginx before Debian's php-fpm, from generated configurations in a temporary
//! folder.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::guard::Guarded;
use crate::processes::Signal;
use crate::server::{WEB_USER, is_root, public_folder};
use crate::{Target, ports, wait, web};

/// A peer to be: one site, one static pool `www`.
#[derive(Debug, Clone)]
pub struct PeerSetup {
    root: PathBuf,
    host: String,
    workers: u32,
    pool: Vec<String>,
    http: Vec<String>,
}

impl PeerSetup {
    /// nginx and php-fpm with two workers for this document root.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            host: "localhost".into(),
            workers: 2,
            pool: Vec::new(),
            http: Vec::new(),
        }
    }

    /// Sets nginx's `server_name`.
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    /// Sets php-fpm's `pm.max_children`.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Adds a line to php-fpm's pool.
    pub fn pool(mut self, line: &str) -> Self {
        self.pool.push(line.into());
        self
    }

    /// Adds a line to nginx's `http` block.
    pub fn http(mut self, line: &str) -> Self {
        self.http.push(line.into());
        self
    }

    fn fpm_conf(&self, folder: &Path) -> String {
        let folder = folder.display();
        let mut text = format!(
            "[global]\nerror_log = {folder}/fpm.log\ndaemonize = no\n\n[www]\n\
             listen = {folder}/fpm.sock\npm = static\npm.max_children = {}\n",
            self.workers
        );
        if is_root() {
            let _ = write!(
                text,
                "user = {WEB_USER}\ngroup = {WEB_USER}\nlisten.owner = {WEB_USER}\n\
                 listen.group = {WEB_USER}\n"
            );
        }
        for line in &self.pool {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// The front-controller rule and the PHP location are what nginx's and Debian's documentation
    /// recommend. HTTP_HOST is nginx's own default value again, since Debian's loses the port that
    /// a site on a port other than 80 needs.
    fn nginx_conf(&self, folder: &Path, address: SocketAddr) -> String {
        let (root, host) = (self.root.display(), &self.host);
        let socket = folder.join("fpm.sock").display().to_string();
        let server = format!(
            r#"server_name {host};
        root {root};
        index index.php index.html;
        location / {{
            try_files $uri $uri/ /index.php?$args;
        }}
        location ~ [^/]\.php(/|$) {{
            fastcgi_split_path_info ^(.+?\.php)(/.*)$;
            try_files $fastcgi_script_name =404;
            set $path_info $fastcgi_path_info;
            include /etc/nginx/fastcgi.conf;
            fastcgi_param PATH_INFO $path_info;
            fastcgi_param HTTP_HOST $http_host;
            fastcgi_pass unix:{socket};
        }}"#
        );
        web::nginx_conf(folder, address, &self.http.join("\n    "), &server)
    }

    /// Starts php-fpm, then nginx, and waits until both accept connections.
    ///
    /// # Panics
    /// When one of them does not.
    pub fn start(self) -> Peer {
        let folder = public_folder();
        let address = ports::free_address();
        let fpm = start_fpm(&self.fpm_conf(folder.path()), folder.path());
        let conf = self.nginx_conf(folder.path(), address);
        let nginx = web::start_nginx(folder.path(), address, &conf);
        Peer { _nginx: nginx, fpm, address, folder }
    }
}

fn start_fpm(conf: &str, folder: &Path) -> Guarded {
    let file = folder.join("fpm.conf");
    fs::write(&file, conf).expect("a file can be written");
    let mut command = Command::new(fpm_program());
    command.arg("--nodaemonize").arg("--fpm-config").arg(&file).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut fpm = Guarded::spawn(&mut command, Signal::TERM);
    wait::until_true("php-fpm to listen", || {
        assert!(fpm.ended().is_none(), "php-fpm ended:\n{}", read_log(folder));
        UnixStream::connect(folder.join("fpm.sock")).is_ok()
    });
    fpm
}

/// The newest php-fpm program that Debian's packages have installed.
///
/// # Panics
/// When there is none.
pub fn fpm_program() -> PathBuf {
    let installed = fs::read_dir("/usr/sbin").expect("/usr/sbin can be listed").flatten();
    let is_fpm = |name: &str| name.starts_with("php-fpm") && name.len() > "php-fpm".len();
    let mut programs: Vec<PathBuf> = installed
        .filter(|entry| entry.file_name().to_str().is_some_and(is_fpm))
        .map(|entry| entry.path())
        .collect();
    programs.sort();
    programs.pop().expect("php-fpm is installed (apt install php-fpm)")
}

fn read_log(folder: &Path) -> String {
    let read = |name| fs::read_to_string(folder.join(name)).unwrap_or_default();
    format!("{}{}", read("nginx.log"), read("fpm.log"))
}

/// nginx and php-fpm, running; both end when this is dropped.
#[derive(Debug)]
pub struct Peer {
    _nginx: Guarded,
    fpm: Guarded,
    address: SocketAddr,
    folder: TempDir,
}

impl Peer {
    /// nginx and php-fpm with two workers for a document root.
    pub fn nginx_php_fpm(root: &Path) -> Self {
        PeerSetup::new(root).start()
    }

    /// php-fpm's master process.
    pub fn fpm_pid(&self) -> i32 {
        self.fpm.pid()
    }

    /// php-fpm's socket.
    pub fn fpm_socket(&self) -> PathBuf {
        self.folder.path().join("fpm.sock")
    }
}

impl Target for Peer {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn log_text(&self) -> String {
        read_log(self.folder.path())
    }
}
