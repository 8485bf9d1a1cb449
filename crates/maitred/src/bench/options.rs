//! The command line of `maitred bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::bench_error::BenchError;
use crate::report_file::{self, JsonOption};

/// Arguments of `maitred bench`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: Option<BenchCommand>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub run: Run,
}

/// Subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchCommand {
    /// Test whether B is faster than A: two URLs, or two commands that start a server
    #[command(after_long_help = "Examples:\n  \
        maitred bench compare http://127.0.0.1:8080/ http://127.0.0.1:8081/ --users 50\n  \
        maitred bench compare --url http://127.0.0.1:8080/ --rate 200 'maitred serve old/' \
        'maitred serve new/'\n\n\
        A runs against itself first: if it differs from itself, the machine is too noisy. Then \
        pairs of runs follow in random order, until the result is significant. Verdicts are: \
        faster, slower, no difference larger than x %, undecided.\n\n\
        Exit codes: 0 success, 1 failure, 2 wrong usage, 3 A differs from itself, 130 \
        interrupted.")]
    Compare(Box<Compare>),
}

/// Arguments of `maitred bench compare`.
#[derive(Debug, Clone, Args)]
pub struct Compare {
    /// A URL, or a command that starts a server and stays in the foreground
    pub a: String,
    /// The other one
    pub b: String,
    /// The URL to request, where A and B are commands
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Fewest pairs of runs
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub pairs: usize,
    /// Most pairs of runs
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub max_pairs: usize,
    /// A process that belongs to a server but is not its child, such as php-fpm or a database
    ///
    /// May be given several times.
    #[arg(long, value_name = "PID")]
    pub with: Vec<i32>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: JsonOption,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub load: LoadOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub request: RequestOptions,
}

/// Arguments of a run.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// The URLs to request
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub load: LoadOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub request: RequestOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputOptions,
    /// Take the arguments of ab, siege, wrk, locust, blitz or k6
    ///
    /// And print its report, too. Must come last.
    #[arg(
        long = "as",
        value_name = "TOOL",
        num_args = 1..,
        allow_hyphen_values = true,
        conflicts_with_all = ["urls", "rate", "users", "replay"],
        hide_short_help = true
    )]
    pub preset: Vec<String>,
}

/// The request rate.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub struct LoadOptions {
    /// Open loop: requests per second [default: 50]
    ///
    /// A number (200), a ramp (10..200), or steps (10@30s,200@1m).
    #[arg(long, value_name = "RATE", conflicts_with = "users")]
    pub rate: Option<String>,
    /// Bursts on top of --rate
    ///
    /// This rate for TIME at the start of every EVERY.
    #[arg(long, value_name = "RATE@TIME/EVERY", requires = "rate", hide_short_help = true)]
    pub burst: Option<String>,
    /// Poisson arrivals instead of even ones
    #[arg(long, hide_short_help = true)]
    pub poisson: bool,
    /// Closed loop: number of users
    ///
    /// Each waits for the response before the next request.
    #[arg(long, value_name = "N")]
    pub users: Option<usize>,
    /// Think time of users, such as 1s [default: 0]
    ///
    /// 0.3s..1s is a range, ~1s an exponential distribution.
    #[arg(long, value_name = "TIME", requires = "users", hide_short_help = true)]
    pub think: Option<String>,
    /// Time over which the users start
    #[arg(long, value_name = "TIME", requires = "users", hide_short_help = true)]
    pub ramp_up: Option<String>,
    /// Closed loop: stop after this many requests
    #[arg(long, value_name = "N", requires = "users")]
    pub requests: Option<u64>,
    /// Replay an access log, with its timing
    ///
    /// Its GET and HEAD requests.
    #[arg(long, value_name = "LOG", conflicts_with_all = ["rate", "users"])]
    pub replay: Option<PathBuf>,
    /// How much faster than recorded to replay the log
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        requires = "replay",
        hide_short_help = true
    )]
    pub speed: f64,
    /// Find the highest rate with these conditions
    ///
    /// Such as 'p99<200ms'. --rate is tried first.
    #[arg(long, value_name = "CONDITIONS", conflicts_with_all = ["users", "replay", "duration"])]
    pub find_capacity: Option<String>,
    /// How long --find-capacity tries each rate
    #[arg(
        long,
        value_name = "TIME",
        default_value = "15s",
        requires = "find_capacity",
        hide_short_help = true
    )]
    pub step: String,
    /// How long to measure [default: 30s]
    ///
    /// Steps are measured for their own time.
    #[arg(long, short = 't', value_name = "TIME")]
    pub duration: Option<String>,
    /// Warm-up before that, not counted
    ///
    /// [default: a tenth of the duration, at most 5s; none for ramps, steps, --requests and
    /// --replay]
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    pub warm_up: Option<String>,
    /// Open loop: maximum connections
    ///
    /// [default: 10000, or the limit of open files]
    #[arg(long, short = 'c', value_name = "N", conflicts_with = "users")]
    pub connections: Option<usize>,
    /// Timeout of a response
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: String,
    /// Delay after which a request counts as sent late
    #[arg(long, value_name = "TIME", default_value = "5ms", hide_short_help = true)]
    pub late_after: String,
    /// Threads of the load generator
    ///
    /// [default: one for every two CPUs]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub threads: Option<usize>,
    /// Random seed; the same seed makes the same choices
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub seed: u64,
}

/// The requests and the expected responses.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Requests")]
pub struct RequestOptions {
    /// A list of URLs, one per line
    ///
    /// As for siege: a number before a URL is its weight.
    #[arg(long, value_name = "FILE", short = 'f')]
    pub urls_file: Option<PathBuf>,
    /// The requests of a browser's HAR file, in order
    ///
    /// As far as they go to the first one's host.
    #[arg(long, value_name = "FILE")]
    pub har: Option<PathBuf>,
    /// Request the URLs in turn instead of at random
    #[arg(long, hide_short_help = true)]
    pub in_order: bool,
    /// The method [default: GET, or POST with --data]
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub method: Option<String>,
    /// A request header; may be given several times
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// The body: a text, or @FILE
    #[arg(long, short = 'd', value_name = "BODY")]
    pub data: Option<String>,
    /// Each user stores the cookies that the server sets
    #[arg(long, requires = "users", hide_short_help = true)]
    pub cookies: bool,
    /// Expected statuses [default: 200 to 299]
    #[arg(long, value_name = "STATUS", value_delimiter = ',', hide_short_help = true)]
    pub expect: Vec<u16>,
    /// A text that every body must contain
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub contains: Option<String>,
    /// Follow redirects on the same server
    ///
    /// Never to another one.
    #[arg(long, hide_short_help = true)]
    pub follow: bool,
    /// A new connection for every request
    #[arg(long, hide_short_help = true)]
    pub no_keepalive: bool,
    /// Use HTTP/2
    ///
    /// It is negotiated with TLS (ALPN), or known beforehand for http://.
    #[arg(long, conflicts_with = "fastcgi")]
    pub http2: bool,
    /// Concurrent streams per HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = 1, requires = "http2", hide_short_help = true)]
    pub streams: usize,
    /// Connect to this Unix socket instead of the URL's host
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub unix: Option<PathBuf>,
    /// Use FastCGI for scripts below this document root
    ///
    /// As a web server does.
    #[arg(long, value_name = "ROOT", hide_short_help = true)]
    pub fastcgi: Option<String>,
    /// Trust this file's certificates, not the system's
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub ca: Option<PathBuf>,
    /// Trust every certificate
    #[arg(long)]
    pub insecure: bool,
    /// Required if the server is on another machine
    #[arg(long, hide_short_help = true)]
    pub yes_i_own_it: bool,
}

/// The report.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Report")]
pub struct OutputOptions {
    /// Conditions that must hold
    ///
    /// Such as p99<200ms,error<0.1%,rate>180.
    #[arg(long, value_name = "CONDITIONS")]
    pub slo: Option<String>,
    /// Also watch the server
    ///
    /// maitred (or an admin socket), a process id, or php-fpm's status page.
    #[arg(long, value_name = "maitred|SOCKET|PID|URL")]
    pub watch: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: JsonOption,
    /// Write a time series as CSV, a row per second
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub csv: Option<PathBuf>,
    /// Write an HTML page with charts, in one file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl OutputOptions {
    /// Checks that the files of the report can be written, before an hour is spent on it.
    ///
    /// # Errors
    /// If one cannot.
    pub fn check_files(&self) -> Result<(), BenchError> {
        let others = self.csv.iter().chain(&self.html).map(PathBuf::as_path);
        let mut files = self.json.file().into_iter().chain(others);
        files.try_for_each(|file| report_file::check(file).map_err(BenchError::Now))
    }
}
