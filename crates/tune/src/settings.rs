//! Every setting that guides compute by hand, from what was measured: for php-fpm, nginx, Apache, the
//! kernel and maitred, each with its formula, and with what the guides would have said.

use std::fmt::Write as _;

use serde::Serialize;

mod limits;
mod maitred;
mod resources;
mod web;

/// What guides leave to the system (R21).
const GUIDE_RESERVE: f64 = 512.0 * 1_048_576.0;

/// PHP's own limit where nobody sets one, in bytes.
const DEFAULT_MEMORY_LIMIT: f64 = 128.0 * 1_048_576.0;

/// How far a leaking worker may grow, as a share of its size.
const GROWTH: f64 = 0.5;

/// What the names of settings end with that have their place in another file.
const ELSEWHERE: [&str; 2] = ["(php.ini)", "(top of the file)"];

/// Fewest connections of a web server that are of any use.
const LEAST_CONNECTIONS: f64 = 1_024.0;

/// Whose settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// php-fpm.
    PhpFpm,
    /// nginx in front of it.
    Nginx,
    /// Apache in front of it, or with PHP inside.
    Apache,
    /// The kernel.
    Sysctl,
    /// maitred.
    Maitred,
}

impl Server {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Server::PhpFpm => "php-fpm",
            Server::Nginx => "nginx",
            Server::Apache => "apache",
            Server::Sysctl => "sysctl",
            Server::Maitred => "maitred",
        }
    }

    /// Reads that name.
    ///
    /// # Errors
    /// Which there are.
    pub fn read(text: &str) -> Result<Server, String> {
        let all = [
            Server::PhpFpm,
            Server::Nginx,
            Server::Apache,
            Server::Sysctl,
            Server::Maitred,
        ];
        let known = all.into_iter().find(|server| server.name() == text);
        known.ok_or_else(|| {
            format!("'{text}' is no server; expected php-fpm, nginx, apache, sysctl or maitred")
        })
    }
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
    /// Whose.
    pub server: Server,
    /// Its name there.
    pub name: &'static str,
    /// Its value there.
    pub value: String,
    /// What was measured for it.
    pub measured: String,
    /// How the value follows from that.
    pub formula: String,
    /// What the guides would have said.
    pub guide: String,
    /// Why that is another.
    pub why: String,
    /// The rules of the tuning articles that it is about.
    pub rules: Vec<&'static str>,
    /// Whether pairs of runs have shown that it is better; the others follow by their formula only.
    pub is_proven: bool,
}

/// A limit of what a script may take, in seconds or bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScriptLimit {
    /// Nobody could be asked.
    Unknown,
    /// There is none.
    Unlimited,
    /// So much.
    Is(f64),
}

impl ScriptLimit {
    /// How much it is, if there is one.
    fn bounds(self) -> Option<f64> {
        match self {
            ScriptLimit::Is(limit) => Some(limit),
            ScriptLimit::Unlimited | ScriptLimit::Unknown => None,
        }
    }
}

/// What settings follow from.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingInputs {
    /// Workers.
    pub workers: u32,
    /// Whether their number is proven.
    pub is_proven: bool,
    /// What binds it, in words.
    pub binding: String,
    /// The share of what any number serves that they are to serve.
    pub enough: f64,
    /// Private memory of a worker, p95, in bytes.
    pub private: Option<f64>,
    /// Its resident memory, on average, in bytes.
    pub resident: Option<f64>,
    /// All memory, in bytes.
    pub total: Option<f64>,
    /// Processors.
    pub cores: f64,
    /// The highest rate within the goal, a second.
    pub rate: f64,
    /// The goal's limit, in seconds.
    pub limit: f64,
    /// The slowest answer alone, in seconds, where that is known.
    pub slowest: Option<f64>,
    /// How long one user alone waited for an answer by how often it was served, in seconds: that is known where
    /// times break a law, too.
    pub pace: Option<f64>,
    /// Bytes that a worker grows by with each request, if it surely does.
    pub leak: Option<f64>,
    /// `memory_limit` as it is set.
    pub memory_limit: ScriptLimit,
    /// How long a script may run by the clock on the wall as it is set.
    pub wall_limit: ScriptLimit,
    /// Whether php-fpm runs the scripts.
    pub is_php_fpm: bool,
    /// How long a reload waits for scripts as it is set, in seconds.
    pub control_timeout: f64,
    /// How long nginx and Apache wait for a script as they are set, each at the place where it waits longest, in
    /// seconds.
    pub reads: (Option<f64>, Option<f64>),
    /// `max_execution_time` as it is set, in seconds; 0: there is no limit; nothing: not known.
    pub processor_limit: Option<u64>,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// The most private memory of a worker at any moment, in bytes.
    pub peak: Option<f64>,
    /// Memory that workers share, OPcache among it, in bytes.
    pub shared: Option<f64>,
    /// OPcache's size as it is set, in bytes.
    pub opcache: f64,
    /// The size of its buffer of strings as it is set, and what of it is free, if that is known, in bytes.
    pub strings: (f64, Option<f64>),
    /// Bytes of all pages that were asked for together, and of the largest.
    pub pages: Option<(f64, f64)>,
    /// TimeParts of maitred's page cache.
    pub parts: u32,
    /// Processor time of a request alone, in seconds.
    pub cpu: Option<f64>,
    /// The most files that a worker had open.
    pub open_files: Option<u64>,
    /// Scripts in the folders of its code.
    pub scripts: Option<u64>,
    /// Processor time of a new worker before its first request, in seconds.
    pub boot: Option<f64>,
}

impl SettingInputs {
    /// Requests that wait at the highest rate without being late.
    fn queue(&self) -> f64 {
        (self.rate * self.limit).ceil().max(f64::from(self.workers))
    }

    /// All connections of a web server: what runs and what waits, from clients and to PHP.
    fn connections(&self) -> f64 {
        let wanted = 2.0 * (self.queue() + f64::from(self.workers));
        wanted.max(LEAST_CONNECTIONS).log2().ceil().exp2()
    }

    fn max_requests(&self) -> Option<f64> {
        let (leak, private) = self.leak.zip(self.private)?;
        Some((GROWTH * private / leak).round().max(1.0))
    }
}

/// All settings of a server.
pub fn lines(server: Server, inputs: &SettingInputs) -> Vec<Recommendation> {
    match server {
        Server::PhpFpm => php_fpm(inputs),
        Server::Nginx => web::nginx(inputs),
        Server::Apache => web::apache(inputs),
        Server::Sysctl => web::sysctl(inputs),
        Server::Maitred => maitred::lines(inputs),
    }
}

fn line(
    server: Server,
    name: &'static str,
    value: impl ToString,
    rules: &[&'static str],
) -> Recommendation {
    Recommendation {
        server,
        name,
        value: value.to_string(),
        measured: String::new(),
        formula: String::new(),
        guide: String::new(),
        why: String::new(),
        rules: rules.to_vec(),
        is_proven: false,
    }
}

impl Recommendation {
    fn measured(mut self, text: impl Into<String>, formula: impl Into<String>) -> Recommendation {
        self.measured = text.into();
        self.formula = formula.into();
        self
    }

    fn guide(mut self, text: impl Into<String>, why: impl Into<String>) -> Recommendation {
        self.guide = text.into();
        self.why = why.into();
        self
    }

    fn proven(mut self, is_proven: bool) -> Recommendation {
        self.is_proven = is_proven;
        self
    }
}

fn megabytes(bytes: Option<f64>) -> String {
    bytes.map_or("unknown".to_owned(), |bytes| {
        format!("{:.1} MB", bytes / 1_048_576.0)
    })
}

fn rate_of(inputs: &SettingInputs) -> String {
    format!(
        "{:.0} requests/s within {:.0} ms",
        inputs.rate,
        inputs.limit * 1e3
    )
}

/// The numbers of workers that guides would compute (R21, R24, R65).
fn guides_workers(inputs: &SettingInputs) -> String {
    let mut found = Vec::new();
    if let Some(rest) = inputs.total.map(|total| total - GUIDE_RESERVE) {
        let limit = match inputs.memory_limit {
            ScriptLimit::Unknown => Some(DEFAULT_MEMORY_LIMIT),
            known => known.bounds(),
        };
        found.push(match limit {
            Some(limit) => format!(
                "{:.0} by memory_limit (R21)",
                (rest / limit).max(0.0).floor()
            ),
            None => "none by memory_limit, which is no limit (R21)".to_owned(),
        });
        if let Some(resident) = inputs.resident.filter(|resident| *resident > 0.0) {
            found.push(format!(
                "{:.0} by RSS (R24)",
                (rest / resident).max(0.0).floor()
            ));
        }
    }
    found.push(format!(
        "{:.0} to {:.0} by processors (R65)",
        inputs.cores * 2.0,
        inputs.cores * 4.0
    ));
    found.join(", ")
}

fn workers(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    line(
        server,
        name,
        inputs.workers,
        &["R15", "R21", "R24", "R57", "R59", "R65", "R140"],
    )
    .measured(
        format!(
            "throughput by number of workers; a worker's own memory is {}, its RSS {}",
            megabytes(inputs.private),
            megabytes(inputs.resident)
        ),
        format!(
            "the fewest that serve {:.0} % of what any number serves; binding: {}",
            inputs.enough * 100.0,
            inputs.binding
        ),
    )
    .guide(
        guides_workers(inputs),
        "RSS counts OPcache once for each worker, memory_limit is what no script uses, and neither \
             knows whether scripts compute or wait",
    )
    .proven(inputs.is_proven)
}

fn max_requests(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    let value = inputs.max_requests().unwrap_or(0.0);
    let measured = match inputs.leak {
        Some(leak) => format!(
            "a worker grows by {:.1} kB with each request",
            leak / 1_024.0
        ),
        None => "no growth of workers was seen".to_owned(),
    };
    line(server, name, format!("{value:.0}"), &["R66", "R67", "R109"])
        .measured(
            measured,
            "half of a worker's size / its growth; 0 (never) without growth",
        )
        .guide(
            "500 to 1000",
            "replacing workers that do not grow costs a boot each time, for nothing",
        )
}

fn php_fpm(inputs: &SettingInputs) -> Vec<Recommendation> {
    let server = Server::PhpFpm;
    let backlog = inputs.queue();
    vec![
        line(server, "pm", "static", &["R44", "R51", "R52", "R55"])
            .measured("all workers fit into memory at once", "a number that fits needs no spawning")
            .guide(
                "dynamic",
                "php-fpm starts one worker a second when min_spare_servers is 1: a burst waits for that \
                 (W32)",
            )
            .proven(inputs.is_proven),
        workers(server, "pm.max_children", inputs),
        line(server, "pm.start_servers, min_spare, max_spare", "none", &["R28", "R29", "R30", "R32", "R33"])
            .measured("pm = static", "they are for pm = dynamic")
            .guide(
                spares(inputs.workers),
                "20 % and 60 % are the ratios of a sample file with 5 workers (W6)",
            ),
        line(server, "pm.process_idle_timeout", "none", &["R77"])
            .measured("pm = static", "it is for pm = ondemand")
            .guide("10 s", "no worker is idle for too long where all are to be there"),
        max_requests(server, "pm.max_requests", inputs),
        limits::wall(server, "request_terminate_timeout", inputs),
        limits::processor(server, "php_value[max_execution_time]", inputs),
        line(server, "listen.backlog", format!("{backlog:.0}"), &["R80", "R82", "R84", "R86"])
            .measured(rate_of(inputs), "rate x limit: who waits behind more is answered too late anyway")
            .guide("4096 to 8192", format!(
                "8192 are {:.1} s of waiting here; php-fpm runs requests whose clients have left (W19)",
                8_192.0 / inputs.rate.max(1e-9)
            )),
        limits::memory(server, "php_value[memory_limit]", inputs),
        resources::open_files(server, "rlimit_files", inputs),
        resources::opcache(server, "opcache.memory_consumption (php.ini)", inputs),
        resources::strings(server, "opcache.interned_strings_buffer (php.ini)", inputs),
        resources::scripts(server, "opcache.max_accelerated_files (php.ini)", inputs),
        limits::reload(server, "process_control_timeout", inputs),
    ]
}

fn spares(workers: u32) -> String {
    let workers = f64::from(workers);
    let (min, max) = ((workers * 0.2).round(), (workers * 0.6).round());
    format!("{:.0}, {min:.0}, {max:.0}", min + (workers - min) / 2.0)
}

/// The lines as a file of the server, with the reason of each value above it.
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
        line.value != "none" && !ELSEWHERE.iter().any(|end| line.name.ends_with(end))
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
        for server in [
            Server::PhpFpm,
            Server::Nginx,
            Server::Apache,
            Server::Sysctl,
            Server::Maitred,
        ] {
            assert_eq!(Server::read(server.name()), Ok(server));
            let lines = lines(server, &inputs());
            assert!(!lines.is_empty());
            for line in lines {
                let texts = [
                    &line.value,
                    &line.measured,
                    &line.formula,
                    &line.guide,
                    &line.why,
                ];
                assert!(texts.iter().all(|text| !text.is_empty()), "{line:?}");
                assert!(!line.rules.is_empty(), "{line:?}");
            }
        }
        assert!(
            Server::read("iis")
                .unwrap_err()
                .contains("expected php-fpm, nginx")
        );
    }

    #[test]
    fn values_follow_from_what_was_measured_and_guides_say_others() {
        let lines = lines(Server::PhpFpm, &inputs());
        assert_eq!(value(&lines, "pm.max_children"), "40");
        assert_eq!(value(&lines, "listen.backlog"), "144");
        assert_eq!(value(&lines, "pm.max_requests"), "0");
        let workers = lines
            .iter()
            .find(|line| line.name == "pm.max_children")
            .unwrap();
        assert_eq!(
            workers.guide,
            "28 by memory_limit (R21), 89 by RSS (R24), 4 to 8 by processors (R65)"
        );
        assert!(workers.is_proven);
        let leaking = SettingInputs {
            leak: Some(4.0 * 1_024.0),
            ..inputs()
        };
        assert_eq!(
            value(&super::lines(Server::PhpFpm, &leaking), "pm.max_requests"),
            "1024"
        );
        let others = super::lines(Server::Sysctl, &inputs());
        assert_eq!(value(&others, "net.core.somaxconn"), "4096");
    }

    #[test]
    fn files_are_in_the_servers_own_words() {
        let of = |server| file(server, &lines(server, &inputs()), "www");
        let fpm = of(Server::PhpFpm);
        assert!(
            fpm.contains("\n[www]\n") && fpm.contains("\npm.max_children = 40\n"),
            "{fpm}"
        );
        assert!(!fpm.contains("start_servers"), "{fpm}");
        assert!(of(Server::Nginx).contains("\nfastcgi_read_timeout 60s;\n"));
        assert!(of(Server::Apache).contains("\nThreadsPerChild 25\n"));
        let ours = of(Server::Maitred);
        assert!(
            ours.contains("[pools.www]") && ours.contains("\npm = \"auto\"\n"),
            "{ours}"
        );
    }
}
