//! Pebble, the test authority of Let's Encrypt, with a name server that says that every name is
//! here.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::guard::Guarded;
use crate::processes::{Process, Signal};
use crate::tls::Authority;
use crate::{ports, project_root, wait};

/// How long certificates are valid if a test says nothing else, in seconds.
const VALID_SECONDS: u32 = 90 * 24 * 3600;

/// How Pebble is to be.
#[derive(Debug, Clone)]
pub struct Habits {
    /// How long certificates are valid, in seconds.
    pub valid_seconds: u32,
    /// Percentage of good nonces that it refuses.
    pub refused_nonces: u32,
    /// Names that it issues nothing for.
    pub blocked: Vec<String>,
    /// The name and the key (base64url) of the account that new ones have to be bound to.
    pub external: Option<(String, String)>,
    /// How long it takes to look at a host, in seconds, at most.
    pub hesitates_seconds: u32,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            valid_seconds: VALID_SECONDS,
            refused_nonces: 0,
            blocked: Vec::new(),
            external: None,
            hesitates_seconds: 0,
        }
    }
}

/// A test authority.
#[derive(Debug)]
pub struct Pebble {
    /// The issuer of the certificate of its own HTTPS.
    pub authority: Authority,
    /// Where it looks over plain HTTP.
    pub http: SocketAddr,
    /// Where it looks over TLS.
    pub tls: SocketAddr,
    directory: SocketAddr,
    management: SocketAddr,
    resolver: SocketAddr,
    names: SocketAddr,
    habits: Habits,
    pebble: Option<Guarded>,
    _resolver: Guarded,
}

fn tool(name: &str) -> Command {
    let program = project_root().join("target/tools").join(name);
    assert!(program.is_file(), "{program:?} is missing: run scripts/setup-test");
    Command::new(program)
}

impl Default for Pebble {
    fn default() -> Pebble {
        Pebble::with(Habits::default())
    }
}

impl Pebble {
    /// One with these habits.
    ///
    /// # Panics
    /// When it does not start.
    pub fn with(habits: Habits) -> Pebble {
        let (resolver, names) = (ports::free_address(), ports::free_address());
        let mut command = tool("pebble-challtestsrv");
        command
            .args(["-dnsserver", &resolver.to_string()])
            .args(["-management", &names.to_string()])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""])
            .args(["-defaultIPv6", "", "-defaultIPv4", "127.0.0.1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let running = Guarded::spawn(&mut command, Signal::TERM);
        let mut pebble = Pebble {
            authority: Authority::default(),
            http: ports::free_address(),
            tls: ports::free_address(),
            directory: ports::free_address(),
            management: ports::free_address(),
            resolver,
            names,
            habits,
            pebble: None,
            _resolver: running,
        };
        wait::until_true("the name server to listen", || ports::is_listening(names));
        pebble.start();
        pebble
    }

    /// Starts it; it remembers nothing of before.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&mut self) {
        let own = self.authority.issue("pebble", &["localhost"]);
        let external = self.habits.external.iter();
        let keys = external.map(|(id, key)| (id.clone(), key.clone().into()));
        let keys: serde_json::Map<String, serde_json::Value> = keys.collect();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": self.directory.to_string(),
            "managementListenAddress": self.management.to_string(),
            "certificate": own.cert,
            "privateKey": own.key,
            "httpPort": self.http.port(),
            "tlsPort": self.tls.port(),
            "keyAlgorithm": "ecdsa",
            "externalAccountBindingRequired": self.habits.external.is_some(),
            "externalAccountMACKeys": keys,
            "domainBlocklist": self.habits.blocked,
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": { "default": {
                "description": "for tests",
                "validityPeriod": self.habits.valid_seconds,
            } },
        } });
        let config = self.authority.write("pebble.json", config.to_string());
        let log = fs::File::create(self.log()).expect("a log can be made");
        let nonces = self.habits.refused_nonces.to_string();
        let mut command = tool("pebble");
        command
            .arg("-config")
            .arg(config)
            .args(["-dnsserver", &self.resolver.to_string()])
            .env("PEBBLE_WFE_NONCEREJECT", nonces)
            .env("PEBBLE_AUTHZREUSE", "0")
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a descriptor can be copied"))
            .stdout(log);
        match self.habits.hesitates_seconds {
            0 => command.env("PEBBLE_VA_NOSLEEP", "1"),
            most => command.env("PEBBLE_VA_SLEEPTIME", most.to_string()),
        };
        self.pebble = Some(Guarded::spawn(&mut command, Signal::TERM));
        let (directory, management) = (self.directory, self.management);
        wait::until_true("Pebble to listen", || {
            ports::is_listening(directory) && ports::is_listening(management)
        });
    }

    /// Ends it.
    pub fn stop(&mut self) {
        self.pebble = None;
    }

    /// Has it take connections and answer nothing, until [`Pebble::go_on`].
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Has it answer again.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let running = self.pebble.as_ref().and_then(|pebble| Process::read(pebble.pid()));
        running.expect("Pebble runs").signal(signal);
    }

    fn log(&self) -> PathBuf {
        self.authority.folder().join("pebble.log")
    }

    /// What it has written.
    pub fn log_text(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// How many orders it was asked for since its start.
    pub fn orders(&self) -> usize {
        let log = self.log_text();
        log.matches("POST /order-plz").count()
    }

    /// The line for `[tls]` that has certificates issued by it, kept in `folder`.
    pub fn toml(&self, folder: &std::path::Path, more: &str) -> String {
        format!(
            "acme = {{ email = \"ops@shop.test\", terms_agreed = true, directory = {:?}, \
             ca = {:?}, \
             folder = {folder:?}{more} }}",
            format!("https://localhost:{}/dir", self.directory.port()),
            self.authority.ca(),
        )
    }

    /// Where maitred keeps what it has of it, beneath a folder for all authorities.
    pub fn folder_in(&self, state: &std::path::Path) -> PathBuf {
        state.join(format!("localhost-{}-dir", self.directory.port()))
    }

    /// Has the name server say that a host is elsewhere.
    ///
    /// # Panics
    /// When it does not take that.
    pub fn move_host(&self, host: &str, address: &str) {
        let body = format!("{{\"host\":\"{host}.\",\"addresses\":[\"{address}\"]}}");
        for order in ["clear-a", "add-a"] {
            let url = format!("http://{}/{order}", self.names);
            let output = Command::new("curl")
                .args(["--silent", "--show-error", "--fail", "-d", &body, &url])
                .output()
                .expect("curl runs");
            assert!(output.status.success(), "{output:?}");
        }
    }

    /// The root that its certificates lead to.
    ///
    /// # Panics
    /// When it does not tell.
    pub fn root(&self) -> PathBuf {
        let path = self.authority.folder().join("issued-root.pem");
        let url = format!("https://localhost:{}/roots/0", self.management.port());
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--cacert"])
            .arg(self.authority.ca())
            .arg("-o")
            .args([path.as_os_str(), url.as_ref()])
            .output()
            .expect("curl runs");
        assert!(output.status.success(), "{output:?}");
        path
    }

    /// Requests a page of a host over TLS; the certificate must be of this authority.
    ///
    /// # Panics
    /// When there is no curl.
    pub fn curl(&self, host: &str, path: &str) -> Output {
        self.curl_at(self.tls, host, path)
    }

    /// The same at another address.
    ///
    /// # Panics
    /// As [`Pebble::curl`].
    pub fn curl_at(&self, address: SocketAddr, host: &str, path: &str) -> Output {
        Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "30", "--cacert"])
            .arg(self.root())
            .args(["--connect-to", &format!("::{address}")])
            .arg(format!("https://{host}{path}"))
            .output()
            .expect("curl runs")
    }
}
