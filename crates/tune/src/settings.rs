//! The settings that guides compute by hand, derived from measurements: for php-fpm, nginx, Apache,
//! the kernel and maitred. Each has its formula, and what the guides recommend instead.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

mod limits;
mod resources;
mod servers;

/// Memory that guides leave to the system (R21).
const GUIDE_RESERVE: f64 = 512.0 * MEGABYTE;

/// PHP's default `memory_limit`, in bytes.
const DEFAULT_MEMORY_LIMIT: f64 = 128.0 * MEGABYTE;

const MEGABYTE: f64 = 1_048_576.0;

/// How far a leaking worker may grow before it is replaced, as a share of its size.
const GROWTH: f64 = 0.5;

/// How names of settings end that belong into another file than the pool's.
const IN_OTHER_FILES: [&str; 2] = ["(php.ini)", "(top of the file)"];

/// Fewest connections that a web server needs.
const LEAST_CONNECTIONS: f64 = 1_024.0;

/// The server that a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// php-fpm.
    PhpFpm,
    /// nginx in front of it.
    Nginx,
    /// Apache in front of it, or with mod_php.
    Apache,
    /// The kernel.
    Sysctl,
    /// maitred.
    Maitred,
}

/// All servers, with their names on the command line.
const SERVERS: [(Server, &str); 5] = [
    (Server::PhpFpm, "php-fpm"),
    (Server::Nginx, "nginx"),
    (Server::Apache, "apache"),
    (Server::Sysctl, "sysctl"),
    (Server::Maitred, "maitred"),
];

impl Server {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        SERVERS[self as usize].1
    }

    /// Reads that name.
    ///
    /// # Errors
    /// The names that are expected.
    pub fn read(text: &str) -> Result<Server, String> {
        let known = SERVERS.iter().find(|(_, name)| *name == text);
        known.map(|(server, _)| *server).ok_or_else(|| {
            format!("'{text}' is no server; expected php-fpm, nginx, apache, sysctl or maitred")
        })
    }
}

/// The fixed texts of a setting, from `data/settings.toml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Texts {
    rules: Vec<String>,
    formula: String,
    guide: String,
    why: String,
}

/// The texts by the settings' keys. A test reads the file, so it is never broken here.
static TEXTS: LazyLock<HashMap<String, Texts>> =
    LazyLock::new(|| toml::from_str(include_str!("../data/settings.toml")).unwrap_or_default());

/// A setting with its value, and the reasons for that.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
    /// The server that it belongs to.
    pub server: Server,
    /// Its name there.
    pub name: &'static str,
    /// Its value there.
    pub value: String,
    /// What was measured for it.
    pub measured: String,
    /// How the value follows from that.
    pub formula: String,
    /// What the guides recommend.
    pub guide: String,
    /// Why the value differs from that.
    pub why: String,
    /// The rules of the tuning articles that it is about.
    pub rules: Vec<String>,
    /// Whether pairs of runs have shown that it is better; the others follow by formula only.
    pub is_proven: bool,
}

/// A limit on what a script may take, in seconds or bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScriptLimit {
    /// The configuration could not be read.
    Unknown,
    /// There is none.
    Unlimited,
    /// The limit.
    Is(f64),
}

impl ScriptLimit {
    /// The limit, if there is one.
    fn bounds(self) -> Option<f64> {
        match self {
            ScriptLimit::Is(limit) => Some(limit),
            ScriptLimit::Unlimited | ScriptLimit::Unknown => None,
        }
    }
}

/// Measurements and current settings that the recommendations follow from. Times are in seconds,
/// memory is in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingInputs {
    /// Workers.
    pub workers: u32,
    /// Whether their number is proven.
    pub is_proven: bool,
    /// What limits that number, in words.
    pub binding: String,
    /// The share of the highest throughput that they are to serve.
    pub enough: f64,
    /// Private memory of a worker, p95.
    pub private: Option<f64>,
    /// Its resident memory, on average.
    pub resident: Option<f64>,
    /// The machine's memory.
    pub total: Option<f64>,
    /// Processors.
    pub cores: f64,
    /// The highest rate within the goal, in requests a second.
    pub rate: f64,
    /// The goal's limit.
    pub limit: f64,
    /// The slowest response to one user alone.
    pub slowest: Option<f64>,
    /// How long one user alone waited for a response, computed from how often it was served: known
    /// where measured times break a law, too.
    pub pace: Option<f64>,
    /// Growth of a worker with each request, if it surely leaks.
    pub leak: Option<f64>,
    /// The current `memory_limit`.
    pub memory_limit: ScriptLimit,
    /// The current limit of a script's running time.
    pub wall_limit: ScriptLimit,
    /// Whether php-fpm runs the scripts.
    pub is_php_fpm: bool,
    /// How long a reload waits for scripts now.
    pub control_timeout: f64,
    /// The longest read timeouts of nginx and Apache for this pool.
    pub reads: (Option<f64>, Option<f64>),
    /// The current `max_execution_time`; 0 is no limit.
    pub processor_limit: Option<u64>,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// The most private memory of a worker at any moment.
    pub peak: Option<f64>,
    /// Memory that workers share, OPcache included.
    pub shared: Option<f64>,
    /// OPcache's current size.
    pub opcache: f64,
    /// The current size of its buffer of interned strings, and how much of it is free.
    pub strings: (f64, Option<f64>),
    /// The sizes of all requested pages together, and of the largest.
    pub pages: Option<(f64, f64)>,
    /// Parts of maitred's page cache.
    pub parts: u32,
    /// Processor time of a request alone.
    pub cpu: Option<f64>,
    /// The most files that a worker had open.
    pub open_files: Option<u64>,
    /// Scripts in the directories of the pool's code.
    pub scripts: Option<u64>,
    /// Processor time of a new worker before its first request.
    pub boot: Option<f64>,
}

impl SettingInputs {
    /// Requests that can wait at the highest rate without being late.
    fn queue(&self) -> f64 {
        (self.rate * self.limit).ceil().max(f64::from(self.workers))
    }

    /// Connections of a web server: running and waiting requests, each to its client and to PHP.
    fn connections(&self) -> f64 {
        let wanted = 2.0 * (self.queue() + f64::from(self.workers));
        wanted.max(LEAST_CONNECTIONS).log2().ceil().exp2()
    }

    fn max_requests(&self) -> Option<f64> {
        let (leak, private) = self.leak.zip(self.private)?;
        Some((GROWTH * private / leak).round().max(1.0))
    }

    /// The highest rate and the goal's limit, as a text.
    fn rate_and_limit(&self) -> String {
        let limit = self.limit * 1e3;
        format!("{:.0} requests/s within {limit:.0} ms", self.rate)
    }
}

/// All settings of a server.
pub fn lines(server: Server, inputs: &SettingInputs) -> Vec<Recommendation> {
    match server {
        Server::PhpFpm => servers::php_fpm(inputs),
        Server::Nginx => servers::nginx(inputs),
        Server::Apache => servers::apache(inputs),
        Server::Sysctl => servers::sysctl(inputs),
        Server::Maitred => servers::maitred(inputs),
    }
}

/// A setting with the texts of `key`.
fn setting(
    server: Server,
    name: &'static str,
    key: &str,
    value: impl ToString,
    measured: impl Into<String>,
) -> Recommendation {
    let texts = TEXTS.get(key).cloned().unwrap_or_default();
    Recommendation {
        server,
        name,
        value: value.to_string(),
        measured: measured.into(),
        formula: texts.formula,
        guide: texts.guide,
        why: texts.why,
        rules: texts.rules,
        is_proven: false,
    }
}

fn megabytes(bytes: Option<f64>) -> String {
    bytes.map_or("unknown".to_owned(), |bytes| format!("{:.1} MB", bytes / MEGABYTE))
}

/// The recommendations as a file of the server, with the reason of each value above it.
pub fn file(server: Server, lines: &[Recommendation], section: &str) -> String {
    let comment = match server {
        Server::PhpFpm => ';',
        _ => '#',
    };
    let mut text =
        format!("{comment} Made by maitred tune. Without this file, all is as it was before.\n");
    match server {
        Server::PhpFpm => text.push_str(&format!("[{section}]\n")),
        Server::Maitred => text.push_str(&format!("[pools.{section}]\n")),
        _ => {}
    }
    let is_here = |line: &&Recommendation| {
        line.value != "none" && !IN_OTHER_FILES.iter().any(|end| line.name.ends_with(end))
    };
    for line in lines.iter().filter(is_here) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{comment} {}", line.measured);
        let _ = writeln!(text, "{comment} {}; guides: {}", line.formula, line.guide);
        let name = line.name.split(" (").next().unwrap_or(line.name);
        let _ = match (server, line.value.parse::<f64>()) {
            (Server::Nginx, _) => writeln!(text, "{name} {};", line.value),
            (Server::Apache, _) => writeln!(text, "{name} {}", line.value),
            (Server::Maitred, Err(_)) => writeln!(text, "{name} = \"{}\"", line.value),
            _ => writeln!(text, "{name} = {}", line.value),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1_048_576.0;

    pub(super) fn inputs() -> SettingInputs {
        SettingInputs {
            workers: 40,
            is_proven: true,
            binding: "throughput".to_owned(),
            enough: 0.97,
            private: Some(8.0 * MB),
            resident: Some(40.0 * MB),
            total: Some(4_096.0 * MB),
            cores: 2.0,
            rate: 900.0,
            limit: 0.16,
            slowest: Some(0.05),
            pace: Some(0.04),
            leak: None,
            memory_limit: ScriptLimit::Is(128.0 * MB),
            wall_limit: ScriptLimit::Is(30.0),
            is_php_fpm: true,
            control_timeout: 0.0,
            reads: (Some(60.0), None),
            processor_limit: Some(30),
            somaxconn: Some(4_096),
            peak: Some(20.0 * MB),
            shared: Some(40.0 * MB),
            opcache: 128.0 * MB,
            strings: (8.0 * MB, None),
            pages: Some((1.0 * MB, 0.2 * MB)),
            parts: 2,
            cpu: Some(0.01),
            open_files: Some(12),
            scripts: Some(12_000),
            boot: Some(0.01),
        }
    }

    fn value(lines: &[Recommendation], name: &str) -> String {
        let found = lines.iter().find(|line| line.name == name);
        found.map_or(String::new(), |line| line.value.clone())
    }

    #[test]
    fn every_line_says_what_was_measured_its_formula_and_what_a_guide_says() {
        for server in
            [Server::PhpFpm, Server::Nginx, Server::Apache, Server::Sysctl, Server::Maitred]
        {
            assert_eq!(Server::read(server.name()), Ok(server));
            let lines = lines(server, &inputs());
            assert!(!lines.is_empty());
            for line in lines {
                let texts = [&line.value, &line.measured, &line.formula, &line.guide, &line.why];
                assert!(texts.iter().all(|text| !text.is_empty()), "{line:?}");
                assert!(!line.rules.is_empty(), "{line:?}");
            }
        }
        assert!(Server::read("iis").unwrap_err().contains("expected php-fpm, nginx"));
    }

    #[test]
    fn the_file_of_texts_can_be_read() {
        let texts: HashMap<String, Texts> =
            toml::from_str(include_str!("../data/settings.toml")).unwrap();
        assert!(texts.values().all(|texts| !texts.rules.is_empty()));
    }

    #[test]
    fn values_follow_from_what_was_measured_and_guides_say_others() {
        let lines = lines(Server::PhpFpm, &inputs());
        assert_eq!(value(&lines, "pm.max_children"), "40");
        assert_eq!(value(&lines, "listen.backlog"), "144");
        assert_eq!(value(&lines, "pm.max_requests"), "0");
        let workers = lines.iter().find(|line| line.name == "pm.max_children").unwrap();
        assert_eq!(
            workers.guide,
            "28 by memory_limit (R21), 89 by RSS (R24), 4 to 8 by processors (R65)"
        );
        assert!(workers.is_proven);
        let leaking = SettingInputs { leak: Some(4.0 * 1_024.0), ..inputs() };
        assert_eq!(value(&super::lines(Server::PhpFpm, &leaking), "pm.max_requests"), "1024");
        let others = super::lines(Server::Sysctl, &inputs());
        assert_eq!(value(&others, "net.core.somaxconn"), "4096");
    }

    #[test]
    fn files_are_in_the_servers_own_words() {
        let of = |server| file(server, &lines(server, &inputs()), "www");
        let fpm = of(Server::PhpFpm);
        assert!(fpm.contains("\n[www]\n") && fpm.contains("\npm.max_children = 40\n"), "{fpm}");
        assert!(!fpm.contains("start_servers"), "{fpm}");
        assert!(of(Server::Nginx).contains("\nfastcgi_read_timeout 60s;\n"));
        assert!(of(Server::Apache).contains("\nThreadsPerChild 25\n"));
        let ours = of(Server::Maitred);
        assert!(ours.contains("[pools.www]") && ours.contains("\npm = \"auto\"\n"), "{ours}");
    }
}
