//! The command line of `maitred`.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use maitred_warm::run::{MAX_RATE, MIN_RATE};

use crate::bench::options::Bench;
use crate::doctor::DoctorOptions;
use crate::import::options::Import;
use crate::jobs::{Commands, RunOptions};
use crate::log_lines::LogOptions;
use crate::octane::install::OctaneOptions;
use crate::profile_command::ProfileOptions;
use crate::report_file::JsonOption;
use crate::serve::options::Serve;
use crate::status_diff::StatusDiff;
use crate::top::Top;
use crate::trust::Trust;
use crate::tune::options::Tune;
use crate::wait_ready::Wait;

/// The default configuration file.
pub const DEFAULT_CONFIG: &str = "/etc/maitred/maitred.toml";

/// Most columns of help texts, on terminals that are wider.
const MAX_HELP_COLUMNS: usize = 100;

/// The PHP application server that needs no tuning guide.
#[derive(Debug, Parser)]
#[command(
    name = "maitred",
    bin_name = "maitred",
    version,
    arg_required_else_help = true,
    max_term_width = MAX_HELP_COLUMNS,
    after_help = "Examples:\n  \
        maitred serve public/\n  \
        maitred serve public/ --listen 0.0.0.0:8000 --workers 8\n  \
        maitred serve --config /etc/maitred/maitred.toml\n  \
        maitred check maitred.toml\n  \
        maitred status\n\n\
        Exit codes: 0 success, 1 failure while running, 2 wrong usage or configuration."
)]
pub struct Maitred {
    /// How much to log: error, warn, info, debug or trace
    ///
    /// [default: MAITRED_LOG, or info]
    #[arg(long, global = true, value_name = "LEVEL", hide_short_help = true)]
    pub log_level: Option<String>,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve PHP sites over HTTP and HTTPS, in the foreground
    #[command(after_long_help = "Examples:\n  \
        maitred serve                          this folder, or /etc/maitred/maitred.toml\n  \
        maitred serve public/                  one site on 127.0.0.1:8080\n  \
        maitred serve public/ --listen 8000    on another port; :8000 is every address\n  \
        maitred serve --config maitred.toml    the sites of this file\n  \
        maitred serve public/ --https --open   over HTTPS, and in the browser\n  \
        maitred serve -d memory_limit=1G --env APP_ENV=dev\n\n\
        A folder that is served on a terminal gets a development server: a line for each request, \
        errors in the page, the environment of the shell, changed scripts at once.\n\
        SIGTERM, SIGINT (Ctrl-C) and SIGQUIT let running requests finish, then stop the server; \
        a second one stops it at once.\n\
        SIGHUP reloads the configuration, SIGUSR2 upgrades to the program on disk, SIGUSR1 reopens \
        the logs.\n\
        Exit codes: 0 stopped, 1 failure, 2 wrong usage or configuration.")]
    Serve(Serve),
    /// Check a configuration file and print all its errors
    #[command(after_long_help = "Example:\n  maitred check maitred.toml\n\n\
        Exit codes: 0 no errors, perhaps warnings, 2 errors or wrong usage.")]
    Check(Check),
    /// Explain how a request would be handled: site, rule by rule, file or script, pool
    #[command(after_long_help = "Examples:\n  \
        maitred explain http://shop.example/old/page\n  \
        maitred explain /wp-login.php --client 192.0.2.1 --method POST\n\n\
        No running server is queried; the configuration and the files are read.\n\
        Exit codes: 0 success, 1 it cannot be explained, 2 wrong usage or configuration.")]
    Explain(Explain),
    /// Show the status of a running server: workers, queues, times, memory, slowest scripts
    #[command(after_long_help = "Examples:\n  \
        maitred status                         all pools, one line each\n  \
        maitred status www                     one pool in detail\n  \
        maitred status --json | jq .pools[0].queue\n\n\
        Exit codes: 0 success, 1 no server replies, 2 wrong usage.")]
    Status(Status),
    /// Compare two saved statuses: what failed, what is slower, what has changed
    #[command(after_long_help = "Examples:\n  \
        maitred status --json > before.json    and after a deploy:\n  \
        maitred diff before.json               compare with the running server\n  \
        maitred diff before.json after.json\n\n\
        Worse are: requests that failed or were refused in between, a p99 of the last ten seconds \
        that is 1.5 times what it was and 10 ms more, private memory that is 1.5 times what it was \
        and 64 MiB more, a pool that is gone, a server that is not ready.\n\
        Exit codes: 0 nothing is worse, 1 no server replies, 2 wrong usage, 3 something is worse.")]
    Diff(StatusDiff),
    /// List the commands and schedules of a running server: state, restarts, last exit, next run
    #[command(after_long_help = "Examples:\n  \
        maitred commands\n  \
        maitred commands shop                  only those of one pool\n  \
        maitred commands --json | jq .[0].next_run\n\n\
        Exit codes: 0 success, 1 no server replies, 2 wrong usage.")]
    Commands(Commands),
    /// Run a command or a schedule of a running server now, in the foreground
    #[command(after_long_help = "Example:\n  maitred run shop/cleanup\n\n\
        It runs as the pool would run it: the same user, limits, folders, environment and PHP. Its \
        output is on this terminal, and its exit code is that of the command. The server's own \
        processes of it go on.")]
    Run(RunOptions),
    /// Show the lines of the error log about a pool, a command, a schedule or a request
    #[command(after_long_help = "Examples:\n  \
        maitred logs                       the last 20 lines\n  \
        maitred logs shop --follow         of a pool, as they come\n  \
        maitred logs shop/mails -n 100     of one of its commands or schedules\n  \
        maitred logs --request 5a0e4c…     what was logged about a request\n\n\
        Exit codes: 0 success, also if no line matches, 1 no server replies or the log cannot be \
        read, 2 wrong usage, also a name that the server does not have.")]
    Logs(LogOptions),
    /// Watch a running server: `maitred status`, refreshed every second
    #[command(after_long_help = "Examples:\n  \
        maitred top\n  \
        maitred top --once                     print once, for a pipe\n\n\
        Keys: q quits, p pauses, 1 to 6 open a tab (pools, workers, routes, cache, logs, nodes), / \
        filters, n shows the next server, s sorts by load, requests, failures, duration, memory \
        or name, a shows idle pools, arrows, page up and page down scroll.\n\
        Exit codes: 0 success, 1 no server replies, 2 wrong usage.")]
    Top(Top),
    /// Wait until a server is ready for clients
    #[command(after_long_help = "Example:\n  maitred wait --ready --timeout 30\n\n\
        Exit codes: 0 ready, 1 not ready within the timeout, with the reason, 2 wrong usage.")]
    Wait(Wait),
    /// Count what the scripts of a pool run, and draw it as a flame graph
    #[command(after_long_help = "Examples:\n  \
        maitred profile shop                       the functions that take the most time\n  \
        maitred profile shop --output shop.svg     a flame graph of 30 s\n  \
        maitred profile shop --output shop.folded  for https://www.speedscope.app\n\n\
        The stacks of running scripts are read from outside, without an extension and without a \
        change of the pool.\n\
        Exit codes: 0 success, 1 no server replies, or no profile, 2 wrong usage.")]
    Profile(ProfileOptions),
    /// Reload the configuration of a running server, and wait until it is applied
    #[command(after_long_help = "Examples:\n  \
        maitred reload                         apply changes of the configuration\n  \
        maitred reload www                     and restart PHP of pool www\n  \
        maitred reload --php 8.2               and restart PHP of all pools with PHP 8.2\n\n\
        No request is lost. If the configuration has an error, it stays as it was; a pool whose \
        PHP does not start with its new settings goes on with the old ones.\n\
        Exit codes: 0 the new configuration is in force, 1 no server replies, or it or settings of \
        a pool were rejected, 2 wrong usage.")]
    Reload(Reload),
    /// Stop a running server, as SIGTERM does, and wait until it has exited
    #[command(after_long_help = "Example:\n  maitred stop\n\n\
        Running requests finish within process_control_timeout; a second `maitred stop` kills them \
        at once.\n\
        Exit codes: 0 it has exited, 1 no server replies, 2 wrong usage.")]
    Stop(Reach),
    /// Drain a running server: let it finish its requests and exit, and wait for that
    #[command(after_long_help = "Example:\n  maitred drain\n\n\
        No more clients are accepted, and running requests finish within process_control_timeout. \
        Unlike with `maitred stop`, a second one hurries nothing.\n\
        Exit codes: 0 it has exited, 1 no server replies, 2 wrong usage.")]
    Drain(Reach),
    /// Drop cached pages of a running server, and wait until no client gets them any more
    #[command(after_long_help = "Examples:\n  \
        maitred purge https://shop.example/offers   one URL, in all its variants\n  \
        maitred purge --prefix shop.example/news/   all URLs with this prefix\n  \
        maitred purge --tag post-17 --soft          mark them stale: served until regenerated\n  \
        maitred purge --everything --site shop.example\n\n\
        Exit codes: 0 dropped, 1 no server replies or it failed, 2 wrong usage or no matching site \
        with a cache, 3 dropped here, but other nodes may still serve the pages.")]
    Purge(Purge),
    /// Warm the page cache: request pages from URLs, lists of URLs, sitemaps
    #[command(after_long_help = "Examples:\n  \
        maitred warm --sitemap https://shop.example/sitemap.xml\n  \
        maitred warm --urls-file urls.txt --rate 50 --concurrency 8\n  \
        maitred warm https://shop.example/ --connect 10.0.0.7:443\n\n\
        Requests go to this server, whatever the names resolve to, and only for hosts with a cache \
        in its configuration.\n\
        Exit codes: 0 all pages are cached now, 1 none could be requested, 2 wrong usage, 3 some \
        are not cached.")]
    Warm(Box<Warm>),
    /// Find the state that requests to an application in worker mode leak to the next request
    #[command(after_long_help = "Examples:\n  \
        maitred leaks https://shop.example/ https://shop.example/cart\n  \
        maitred leaks --config site.toml --rounds 20 / /goods/7\n\n\
        It starts a server of its own with one worker, and requests all URLs in turn. State that \
        only the first round sets is no leak. Databases and files are the real ones of the \
        application.\n\
        Exit codes: 0 no leak, 1 it failed, 2 wrong usage or no pool in worker mode, 3 leaks, 130 \
        interrupted.")]
    Leaks(Leaks),
    /// Load-test a server and measure its responses
    #[command(after_long_help = "Examples:\n  \
        maitred bench http://127.0.0.1:8080/ --rate 200\n  \
        maitred bench http://127.0.0.1:8080/ --rate 10..500 --duration 2m --json=ramp.json\n  \
        maitred bench http://127.0.0.1:8080/ --users 50 --think 0.3s..1s\n  \
        maitred bench --urls-file urls.txt --rate 200 --slo 'p99<200ms,error<0.1%'\n\n\
        Latencies count from the time a request was due, so that a stalled server cannot hide \
        (coordinated omission).\n\
        Exit codes: 0 success, 1 failure or nothing served, 2 wrong usage, 3 more than 1 % of the \
        requests were not sent in time, 4 --slo missed, 130 interrupted.")]
    Bench(Box<Bench>),
    /// Diagnose how this machine serves PHP: with maitred, php-fpm, nginx, Apache
    #[command(after_long_help = "Examples:\n  \
        maitred doctor                         every server configured here\n  \
        maitred doctor --config maitred.toml   one configuration of maitred's\n  \
        maitred doctor --php-fpm --json        php-fpm, nginx and Apache, for a program\n\n\
        Read-only, no privileges needed. What this user cannot read is reported as unknown.\n\
        Exit codes: 0 no findings, 1 warnings, 2 failures or wrong usage.")]
    Doctor(DoctorOptions),
    /// Tune a running site: measure it, find the number of workers, prove the gain, write it
    #[command(after_long_help = "Examples:\n  \
        maitred tune http://127.0.0.1/ --goal 'p99<200ms,error<0.1%'\n  \
        maitred tune http://127.0.0.1/ --access-log /var/log/nginx/access.log \
        --for php-fpm,nginx\n  \
        maitred tune http://127.0.0.1/ --crawl --quick --no-write --html tune.html\n  \
        maitred tune http://127.0.0.1/ --php\n  \
        maitred tune --undo\n\n\
        It tunes the running php-fpm (behind nginx or Apache) or maitred: it tries settings, with \
        a reload for each, and restores the old ones. A proven gain is written into one file that \
        php-fpm reads last; for maitred it prints what to paste.\n\
        Exit codes: 0 a gain, or nothing to gain; 1 failure; 2 wrong usage; 3 nothing proven; 130 \
        interrupted.")]
    Tune(Box<Tune>),
    /// Import the configuration of nginx, Apache, Caddy or Unit, with a report
    #[command(after_long_help = "Examples:\n  \
        maitred import                       that of the server that runs here\n  \
        maitred import apache --output /etc/maitred/maitred.toml\n  \
        maitred import nginx /srv/nginx/nginx.conf --php-fpm /srv/php-fpm.conf\n  \
        maitred import caddy                 also of FrankenPHP\n  \
        maitred import --prove                compare the running server with maitred\n\n\
        No server is changed. Beside each part stands the file and the line that it comes from. \
        The report is on standard error: what is kept, what is changed and why, and what is left \
        out and what to do by hand.\n\
        Exit codes: 0 success, 1 the result is not right and needs a correction, 2 wrong usage or \
        an unreadable configuration, 3 something that decides who may see what is left out, 4 a \
        response differs and nothing explains it, 130 interrupted.")]
    Import(Box<Import>),
    /// Trust the certificates of `maitred serve --https` on this machine
    #[command(after_long_help = "Examples:\n  \
        maitred trust                          in browsers, and as root in the system's store\n  \
        maitred trust --remove                 no longer\n  \
        maitred trust --export > ca.pem        for another machine, or curl --cacert ca.pem\n\n\
        The authority is made once for each user, in ~/.local/share/maitred/authority. It can only \
        issue certificates for localhost, .test, and loopback and private addresses.\n\
        Exit codes: 0 success, 1 failure, 2 wrong usage, 3 the rest is for root: the command is \
        printed.")]
    Trust(Trust),
    /// Replace php-fpm: serve web servers over FastCGI, with its configuration and flags
    #[command(
        disable_help_flag = true,
        after_long_help = "Examples:\n  \
        maitred fpm -F -y /etc/php/8.2/fpm/php-fpm.conf\n  \
        maitred fpm -t                         test the configuration\n  \
        maitred fpm -h                         php-fpm's flags\n\n\
        The same as starting the program under a name that begins with php-fpm.\n\
        Exit codes: 0 success, 64 wrong usage, 70 failure while running, 78 wrong configuration."
    )]
    Fpm(Fpm),
    /// Replace FrankenPHP below Laravel Octane
    #[command(after_long_help = "Example:\n  \
        maitred octane install /srv/shop\n\n\
        Then: php artisan octane:start --server=frankenphp\n\
        Octane runs a program with the name `frankenphp`, which it looks for in PATH and in the \
        application. The link is that program; without it, Octane downloads FrankenPHP.\n\
        Exit codes: 0 success, 2 the link cannot be made, or wrong usage.")]
    Octane(OctaneOptions),
    /// Print the completions of a shell
    #[command(after_long_help = "Example:\n  maitred completions bash > \
        /usr/share/bash-completion/completions/maitred\n\nExit codes: 0 success, 2 wrong usage.")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages to a folder; for packages
    #[command(hide = true)]
    Manual {
        /// The folder
        folder: PathBuf,
    },
    /// The process that owns client connections; started by the server
    #[command(hide = true)]
    Front,
    /// The process that gets a certificate by ACME; started by the server
    #[command(hide = true)]
    Acme,
    /// The process that shares certificates with other nodes; started by the server
    #[command(hide = true)]
    SharedCertificates,
    /// The process that passes purges to other nodes; started by the server
    #[command(hide = true)]
    PurgeLog,
    /// The process that counts the private memory of others; started by the server
    #[command(hide = true)]
    MemoryReader,
    /// The process that writes a pool's slow log as the pool's user; started by the server
    #[command(hide = true)]
    SlowlogWriter,
    /// The process that opens logs whose paths tenants control; started by the server
    #[command(hide = true)]
    LogOpener,
    /// The process that reads pipes that pools write to; started by the server
    #[command(hide = true)]
    PipeReader,
    /// The process that opens the browser; started by the server
    #[command(hide = true)]
    OpenBrowser,
}

/// Arguments of `maitred fpm`, parsed as php-fpm parses them.
#[derive(Debug, Args)]
pub struct Fpm {
    /// php-fpm's flags
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub flags: Vec<OsString>,
}

/// How to reach a running server.
#[derive(Debug, Args)]
pub struct Reach {
    /// The server's admin socket
    ///
    /// [default: `admin_socket` in its configuration or environment]
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
    /// The server's configuration file
    ///
    /// [default: /etc/maitred/maitred.toml if it can be read]
    #[arg(long = "config", value_name = "FILE", conflicts_with = "admin_socket")]
    pub configuration: Option<PathBuf>,
}

/// Arguments of `maitred reload`.
#[derive(Debug, Args)]
pub struct Reload {
    /// Pools to restart even if unchanged
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
    /// Restart all pools of this PHP version
    ///
    /// As after an update of PHP or of an extension.
    #[arg(long, value_name = "X.Y", conflicts_with = "pools", value_parser = php_version)]
    pub php: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Arguments of `maitred purge`.
#[derive(Debug, Args)]
pub struct Purge {
    /// URLs, such as https://example.com/page
    ///
    /// A `*` at the end makes it a prefix.
    #[arg(value_name = "URL", value_parser = nonempty)]
    pub urls: Vec<String>,
    /// All URLs with this prefix, such as HOST/PATH
    ///
    /// /PATH alone is of every host.
    #[arg(long, value_name = "PREFIX", value_parser = nonempty)]
    pub prefix: Vec<String>,
    /// All pages of a host
    #[arg(long, value_name = "HOST", value_parser = nonempty)]
    pub host: Vec<String>,
    /// All pages with a tag (Cache-Groups)
    #[arg(long, value_name = "TAG", value_parser = nonempty)]
    pub tag: Vec<String>,
    /// All pages
    #[arg(long)]
    pub everything: bool,
    /// Mark them stale instead
    ///
    /// Clients get the old page while a new one is generated.
    #[arg(long)]
    pub soft: bool,
    /// Only pages of the site with this host
    #[arg(long, value_name = "HOST", value_parser = nonempty)]
    pub site: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: JsonOption,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Arguments of `maitred warm`.
#[derive(Debug, Args)]
pub struct Warm {
    /// URLs, such as https://example.com/page
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// A sitemap or an index of sitemaps: a URL or a file
    ///
    /// XML or text, also compressed with gzip.
    #[arg(long, value_name = "URL|FILE")]
    pub sitemap: Vec<String>,
    /// A file with one URL per line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub urls_file: Option<PathBuf>,
    /// Maximum requests per second
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = rate)]
    pub rate: f64,
    /// Maximum connections
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub concurrency: u16,
    /// Maximum URLs; the rest is skipped
    #[arg(long, value_name = "N", default_value_t = 100_000, hide_short_help = true)]
    pub limit: u32,
    /// A header to send, such as 'X-Device: phone'
    #[arg(long, value_name = "HEADER", value_parser = header)]
    pub header: Vec<String>,
    /// Configuration file: hosts and listen addresses
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// Also request other hosts
    ///
    /// At whatever address they resolve to; no configuration is read.
    #[arg(long)]
    pub any_host: bool,
    /// Connect to the server at this address
    #[arg(long, value_name = "ADDR")]
    pub connect: Option<SocketAddr>,
    /// Trust this file's certificates, not the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Trust every certificate
    #[arg(long)]
    pub insecure: bool,
    /// Print the result of each page
    #[arg(long)]
    pub verbose: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: JsonOption,
}

/// A text that is not empty.
fn nonempty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty; omit it, or give a value".to_owned());
    }
    Ok(text.to_owned())
}

/// A PHP version such as 8.2 or 8.2.31.
fn php_version(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match (2..=3).contains(&parts.len()) && parts.iter().all(is_number) {
        true => Ok(text.to_owned()),
        false => Err("a version such as 8.2 is expected".to_owned()),
    }
}

/// A header as `Name: value`.
fn header(text: &str) -> Result<String, String> {
    maitred_warm::client::header(text).map(|_| text.to_owned())
}

/// Arguments of `maitred leaks`.
#[derive(Debug, Args)]
pub struct Leaks {
    /// URLs of one site, or paths of the first site
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// How often to request all of them
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(2..=1000)
    )]
    pub rounds: u16,
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: JsonOption,
}

fn rate(text: &str) -> Result<f64, String> {
    let range = MIN_RATE..=MAX_RATE;
    let rate = text.parse().ok().filter(|rate| range.contains(rate));
    rate.ok_or_else(|| format!("a number from {MIN_RATE} to {MAX_RATE} is expected"))
}

/// Arguments of `maitred status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Show only this pool, in detail
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: JsonOption,
    /// Show each idle pool on a line of its own
    #[arg(long)]
    pub all: bool,
    /// Also show the workers that pm = "auto" would choose
    ///
    /// For pools with another pm.
    #[arg(long)]
    pub advice: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Arguments of `maitred check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Configuration file [default: /etc/maitred/maitred.toml]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub file: Option<PathBuf>,
    /// The same as FILE
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Also report addresses that are in use
    ///
    /// As before a start: those that another program listens on.
    #[arg(long)]
    pub free_ports: bool,
}

impl Check {
    /// The configuration file to check.
    pub fn file(&self) -> &Path {
        let named = self.file.as_deref().or(self.config.as_deref());
        named.unwrap_or(Path::new(DEFAULT_CONFIG))
    }
}

/// Arguments of `maitred explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// A URL, or a path of the first site
    #[arg(value_name = "URL")]
    pub url: String,
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// The client's address [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub client: Option<IpAddr>,
    /// The request's method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// A request header that the page cache may consider
    ///
    /// May be given several times.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub headers: Vec<String>,
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
