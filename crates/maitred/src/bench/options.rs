//! What can be asked of `maitred bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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

/// Other things than a run.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchCommand {
    /// Say whether B is faster than A: two URLs, or two commands that start a server
    #[command(after_help = "Examples:\n  \
        maitred bench compare http://127.0.0.1:8080/ http://127.0.0.1:8081/ --users 50\n  \
        maitred bench compare --url http://127.0.0.1:8080/ --rate 200 'maitred serve old/' \
        'maitred serve new/'\n\n\
        A against itself comes first: where it differs from itself, nothing can be said. Then pairs \
        of runs in random order, until they say enough. Verdicts are: faster, slower, no difference \
        larger than x %, undecided.\n\n\
        Exit codes: 0 success, 1 failure, 2 wrong usage, 3 A differs from itself, 130 ended before \
        its time.")]
    Compare(Box<Compare>),
}

/// Arguments of `maitred bench compare`.
#[derive(Debug, Clone, Args)]
pub struct Compare {
    /// A URL, or a command that starts a server and stays in the foreground
    pub a: String,
    /// The other one
    pub b: String,
    /// What to ask for, where A and B are commands
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Fewest pairs of runs
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub pairs: usize,
    /// Most pairs of runs
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub max_pairs: usize,
    /// A process that belongs to a server and that it has not started, such as php-fpm or a database;
    /// may be given several times
    #[arg(long, value_name = "PID")]
    pub with: Vec<i32>,
    /// JSON for programs
    #[arg(long)]
    pub json: bool,
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
    /// What to ask for: one URL or several
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
    /// As another tool would do it, with its own arguments, and with its own lines beside the table:
    /// ab, siege, wrk, locust, blitz or k6; must come last
    #[arg(
        long = "as",
        value_name = "TOOL",
        num_args = 1..,
        allow_hyphen_values = true,
        conflicts_with_all = ["urls", "rate", "users", "replay"]
    )]
    pub preset: Vec<String>,
}

/// How many requests come, and when.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub struct LoadOptions {
    /// Open loop: requests a second (200), a ramp (10..200), or steps (10@30s,200@1m) [default: 50]
    #[arg(long, value_name = "RATE", conflicts_with = "users")]
    pub rate: Option<String>,
    /// Upon the rate, so many a second for the first part of every so long
    #[arg(long, value_name = "RATE@TIME/EVERY", requires = "rate")]
    pub burst: Option<String>,
    /// Requests come as people do, not evenly
    #[arg(long)]
    pub poisson: bool,
    /// Closed loop: so many users, each of whom waits for the answer before asking again
    #[arg(long, value_name = "N")]
    pub users: Option<usize>,
    /// How long users think: 1s, 0.3s..1s, or ~1s for an exponential distribution [default: 0]
    #[arg(long, value_name = "TIME", requires = "users")]
    pub think: Option<String>,
    /// How long it takes until all users are there
    #[arg(long, value_name = "TIME", requires = "users")]
    pub ramp_up: Option<String>,
    /// Closed loop: end after so many requests
    #[arg(long, value_name = "N", requires = "users")]
    pub requests: Option<u64>,
    /// Send the GET and HEAD requests of an access log again, with its own spacing
    #[arg(long, value_name = "LOG", conflicts_with_all = ["rate", "users"])]
    pub replay: Option<PathBuf>,
    /// How much faster than it was the log is sent
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        requires = "replay"
    )]
    pub speed: f64,
    /// Find the highest rate at which this holds, such as 'p99<200ms'; --rate is the first one tried
    #[arg(long, value_name = "CONDITIONS", conflicts_with_all = ["users", "replay", "duration"])]
    pub find_capacity: Option<String>,
    /// How long each rate is tried by --find-capacity
    #[arg(
        long,
        value_name = "TIME",
        default_value = "15s",
        requires = "find_capacity"
    )]
    pub step: String,
    /// How long to measure [default: the steps' time, or 30s]
    #[arg(long, short = 't', value_name = "TIME")]
    pub duration: Option<String>,
    /// What comes before that and is not counted [default: a tenth of the duration, at most 5s; none
    /// for ramps, steps, --requests and --replay]
    #[arg(long, value_name = "TIME")]
    pub warm_up: Option<String>,
    /// Open loop: most connections at once [default: 10000, or what the limit of open files allows]
    #[arg(long, short = 'c', value_name = "N", conflicts_with = "users")]
    pub connections: Option<usize>,
    /// How long an answer may take
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: String,
    /// From when on a request counts as sent late
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    pub late_after: String,
    /// The generator's threads [default: one for every two processors]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// What chance begins with; the same seed makes the same choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// What is asked, and what is expected.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Requests")]
pub struct RequestOptions {
    /// A list of URLs, one a line, as siege has it; a number before a URL is its weight
    #[arg(long, value_name = "FILE", short = 'f')]
    pub urls_file: Option<PathBuf>,
    /// The requests that a browser has saved (HAR), to the host of the first of them, in their order
    #[arg(long, value_name = "FILE")]
    pub har: Option<PathBuf>,
    /// One URL after the other instead of by chance
    #[arg(long)]
    pub in_order: bool,
    /// The method [default: GET, or POST with --data]
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub method: Option<String>,
    /// A header field; may be given several times
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// The body: a text, or @FILE
    #[arg(long, short = 'd', value_name = "BODY")]
    pub data: Option<String>,
    /// Each user keeps the cookies that the server sets
    #[arg(long, requires = "users")]
    pub cookies: bool,
    /// Statuses that are right [default: 200 to 299]
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub expect: Vec<u16>,
    /// A text that every body has to hold
    #[arg(long, value_name = "TEXT")]
    pub contains: Option<String>,
    /// Follow redirects on the same server (to another one none is ever followed)
    #[arg(long)]
    pub follow: bool,
    /// A new connection for every request
    #[arg(long)]
    pub no_keepalive: bool,
    /// Speak HTTP/2: agreed upon with TLS (ALPN), and with http:// as to a server that is known to
    /// speak it
    #[arg(long, conflicts_with = "fastcgi")]
    pub http2: bool,
    /// Requests at once on a connection of HTTP/2
    #[arg(long, value_name = "N", default_value_t = 1, requires = "http2")]
    pub streams: usize,
    /// Connect to this Unix socket, whatever the URL's host is
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Speak FastCGI, as a web server does, for scripts below this document root
    #[arg(long, value_name = "ROOT")]
    pub fastcgi: Option<String>,
    /// Trust certificates from this file instead of the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Trust every certificate
    #[arg(long)]
    pub insecure: bool,
    /// Needed where the server is on another machine
    #[arg(long)]
    pub yes_i_own_it: bool,
}

/// What becomes of the figures.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Report")]
pub struct OutputOptions {
    /// What has to hold: p99<200ms,error<0.1%,rate>180
    #[arg(long, value_name = "CONDITIONS")]
    pub slo: Option<String>,
    /// Watch the server, too: maitred (or an admin socket), a process id, or php-fpm's status page
    #[arg(long, value_name = "maitred|SOCKET|PID|URL")]
    pub watch: Option<String>,
    /// JSON instead of a table, or with =FILE in a file beside it
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "-"
    )]
    pub json: Option<PathBuf>,
    /// Second by second, as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// A page with charts, in one file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
