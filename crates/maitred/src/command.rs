//! What can be asked of `maitred` on the command line.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use maitred_config::{MAX_CHILDREN_PER_POOL, parse_listen};
use maitred_warm::run::{MAX_RATE, MIN_RATE};

use crate::bench::options::Bench;
use crate::tune::options::Tune;

/// The PHP application server that needs no tuning guide.
#[derive(Debug, Parser)]
#[command(
    name = "maitred",
    bin_name = "maitred",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        maitred serve public/\n  \
        maitred serve public/ --listen 0.0.0.0:8000 --workers 8\n  \
        maitred serve --config /etc/maitred/maitred.toml\n  \
        maitred check --config maitred.toml\n  \
        maitred status\n\n\
        Exit codes: 0 success, 1 failure while running, 2 wrong usage or configuration."
)]
pub struct Maitred {
    /// How much to log: error, warn, info, debug or trace [default: MAITRED_LOG, or info]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve PHP sites over HTTP, in the foreground
    #[command(after_help = "Examples:\n  \
        maitred serve                          what this folder or /etc/maitred holds\n  \
        maitred serve public/                  one site on 127.0.0.1:8080\n  \
        maitred serve public/ --listen :8000   on every address\n  \
        maitred serve --config maitred.toml    what the file says\n\n\
        SIGTERM, SIGINT (Ctrl-C) and SIGQUIT let running requests finish, then stop the server; \
        a second one stops it at once.\n\
        SIGHUP applies a changed configuration, SIGUSR2 runs a new version in place, SIGUSR1 opens \
        the logs again.")]
    Serve(Serve),
    /// Check a configuration file and say everything that is wrong with it
    #[command(after_help = "Example:\n  maitred check --config maitred.toml")]
    Check(Check),
    /// Say how a request would be answered: site, rule by rule, file or script, pool
    #[command(after_help = "Examples:\n  \
        maitred explain http://shop.example/old/page\n  \
        maitred explain /wp-login.php --client 192.0.2.1 --method POST\n\n\
        Nothing is asked of a running server; the configuration and the files are read.")]
    Explain(Explain),
    /// Show how a running server is: workers, queues, times, memory, what runs for longest
    #[command(after_help = "Examples:\n  \
        maitred status                         all pools, one line each\n  \
        maitred status www                     all there is to know of one\n  \
        maitred status --json | jq .pools[0].queue\n\n\
        Exit codes: 0 success, 1 no server answers, 2 wrong usage.")]
    Status(Status),
    /// Watch a running server: what `maitred status` shows, every second
    #[command(after_help = "Examples:\n  \
        maitred top\n  \
        maitred top --once                     one picture, for a pipe\n\n\
        Keys: q quits, p pauses.")]
    Top(Top),
    /// Have a running server read its configuration again, and wait until that is done
    #[command(after_help = "Examples:\n  \
        maitred reload                         what has changed in the configuration\n  \
        maitred reload www                     that, and PHP of pool www anew\n\n\
        No request is lost. A mistake in the configuration, or a pool whose PHP does not start, \
        leaves what was there; exit code 1 then.")]
    Reload(Reload),
    /// Stop a running server, as SIGTERM does, and wait until it has ended
    #[command(after_help = "Example:\n  maitred stop\n\n\
        Running requests finish within process_control_timeout; a second `maitred stop` ends them at \
        once.")]
    Stop(Reach),
    /// Let a running server finish what it does and end, and wait for that
    #[command(after_help = "Example:\n  maitred drain\n\n\
        No more clients are accepted, and running requests finish within process_control_timeout. \
        Unlike `maitred stop`, saying it twice hurries nothing.")]
    Drain(Reach),
    /// Drop pages that a running server keeps, and wait until nobody gets them any more
    #[command(after_help = "Examples:\n  \
        maitred purge https://shop.example/offers   one address, in all its variants\n  \
        maitred purge --prefix shop.example/news/   all addresses that begin so\n  \
        maitred purge --tag post-17 --soft          stale: good until there is a new one\n  \
        maitred purge --everything --site shop.example\n\n\
        Exit codes: 0 dropped, 1 no server answers or it could not be done, 2 wrong usage or no \
        site with a cache is meant.")]
    Purge(Purge),
    /// Ask for pages so that the page cache has them: addresses, lists of them, sitemaps
    #[command(after_help = "Examples:\n  \
        maitred warm --sitemap https://shop.example/sitemap.xml\n  \
        maitred warm --urls-file urls.txt --rate 50 --concurrency 8\n  \
        maitred warm https://shop.example/ --connect 10.0.0.7:443\n\n\
        This server is asked, wherever the names lead, and only for hosts that have a cache in its \
        configuration.\n\
        Exit codes: 0 all pages are kept now, 1 none could be asked for, 2 wrong usage, 3 some are \
        not kept.")]
    Warm(Box<Warm>),
    /// Find out what requests to an application in worker mode leave behind for the next
    #[command(after_help = "Examples:\n  \
        maitred leaks https://shop.example/ https://shop.example/cart\n  \
        maitred leaks --config site.toml --rounds 20 / /goods/7\n\n\
        A server of its own is started with one worker, and asked for all addresses in turn. What the \
        first round sets and nobody changes any more is no leak. Databases and files are the \
        application's real ones.\n\
        Exit codes: 0 nothing is left behind, 1 it could not be seen, 2 wrong usage or no pool in worker \
        mode, 3 something is.")]
    Leaks(Leaks),
    /// Send requests to a server and measure how it answers
    #[command(after_help = "Examples:\n  \
        maitred bench http://127.0.0.1:8080/ --rate 200\n  \
        maitred bench http://127.0.0.1:8080/ --rate 10..500 --duration 2m --json=ramp.json\n  \
        maitred bench http://127.0.0.1:8080/ --users 50 --think 0.3s..1s\n  \
        maitred bench --urls-file urls.txt --rate 200 --slo 'p99<200ms,error<0.1%'\n\n\
        Latencies run from the moment a request was due, so that a server that stands still does not \
        hide it.\n\
        Exit codes: 0 success, 1 failure or nothing served, 2 wrong usage, 3 more than 1 % of the \
        requests were not sent in time, 4 --slo missed, 130 ended before its time.")]
    Bench(Box<Bench>),
    /// Say what is wrong with how PHP is served here: by maitred, php-fpm, nginx, Apache
    #[command(after_help = "Examples:\n  \
        maitred doctor                         all that is configured here\n  \
        maitred doctor --config maitred.toml   one configuration of maitred's\n  \
        maitred doctor --php-fpm --json        php-fpm, nginx and Apache, for a program\n\n\
        Nothing is changed, and no right is needed; what this user may not read is said to be \
        unknown.\n\
        Exit codes: 0 nothing to complain of, 1 warnings, 2 failures or wrong usage.")]
    Doctor(Doctor),
    /// Measure a running site, find how many workers it needs, prove it, and write it down
    #[command(after_help = "Examples:\n  \
        maitred tune http://127.0.0.1/ --goal 'p99<200ms,error<0.1%'\n  \
        maitred tune http://127.0.0.1/ --access-log /var/log/nginx/access.log --for php-fpm,nginx\n  \
        maitred tune http://127.0.0.1/ --crawl --quick --no-write --html tune.html\n  \
        maitred tune --undo\n\n\
        php-fpm (behind nginx or Apache) or maitred is tuned as it stands: settings are tried, with a \
        reload each time, and put back. What is proven to be better is written into one file that \
        php-fpm reads last; for maitred it is said what to paste.\n\
        Exit codes: 0 a gain, or nothing to gain; 1 it could not be done; 2 wrong usage; 3 nothing \
        proven; 130 ended before its time.")]
    Tune(Box<Tune>),
    /// Serve web servers over FastCGI in php-fpm's place, with its configuration and its flags
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  \
        maitred fpm -F -y /etc/php/8.2/fpm/php-fpm.conf\n  \
        maitred fpm -t                         test the configuration\n  \
        maitred fpm -h                         php-fpm's flags\n\n\
        The same when the program is started under a name that begins with php-fpm.\n\
        Exit codes: 0 success, 64 wrong usage, 70 failure while running, 78 wrong configuration."
    )]
    Fpm(Fpm),
    /// The process that owns client connections; the server starts it itself
    #[command(hide = true)]
    Front,
    /// The process that gets a certificate by ACME; the server starts it itself
    #[command(hide = true)]
    Acme,
}

/// Arguments of `maitred serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Document root. Without DIR and --config: /etc/maitred/maitred.toml if it exists, or else
    /// public/ or the current folder, whichever holds an index.php or index.html
    #[arg(value_name = "DIR", conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// Address to listen on, such as 127.0.0.1:8080 or :80; may be given several times
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    pub listen: Vec<SocketAddr>,
    /// Workers of each pool, always [default: what the configuration says, or as many as are needed]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CHILDREN_PER_POOL))
    )]
    pub workers: Option<u32>,
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The descriptor of what the program before this one left, at an upgrade
    #[arg(long, value_name = "FD", hide = true)]
    pub take_over: Option<RawFd>,
    /// The same, only to say whether it could be taken over
    #[arg(long, value_name = "FD", hide = true)]
    pub try_take_over: Option<RawFd>,
    /// Where `maitred status` and the other commands reach this server
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
}

/// Arguments of `maitred fpm`, which are read as php-fpm reads them.
#[derive(Debug, Args)]
pub struct Fpm {
    /// php-fpm's flags
    #[arg(
        value_name = "FLAGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub flags: Vec<OsString>,
}

/// How a running server is reached.
#[derive(Debug, Args)]
pub struct Reach {
    /// The server's admin socket [default: the `admin_socket` of its configuration]
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
    /// The server's configuration file [default: /etc/maitred/maitred.toml if it can be read]
    #[arg(long = "config", value_name = "FILE", conflicts_with = "admin_socket")]
    pub configuration: Option<PathBuf>,
}

/// Arguments of `maitred top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Print one picture and end
    #[arg(long)]
    pub once: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Arguments of `maitred reload`.
#[derive(Debug, Args)]
pub struct Reload {
    /// Pools to start anew whether they have changed or not
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Arguments of `maitred purge`.
#[derive(Debug, Args)]
pub struct Purge {
    /// Addresses, such as https://example.com/page; with a `*` at its end, all that begin so
    #[arg(value_name = "URL", value_parser = something)]
    pub urls: Vec<String>,
    /// All addresses that begin so: HOST/PATH, or /PATH of every host
    #[arg(long, value_name = "PREFIX", value_parser = something)]
    pub prefix: Vec<String>,
    /// All pages of a host
    #[arg(long, value_name = "HOST", value_parser = something)]
    pub host: Vec<String>,
    /// All pages with a tag (Cache-Groups)
    #[arg(long, value_name = "TAG", value_parser = something)]
    pub tag: Vec<String>,
    /// All pages
    #[arg(long)]
    pub everything: bool,
    /// Make them stale instead: whoever asks gets the old page while a new one is made
    #[arg(long)]
    pub soft: bool,
    /// Only pages of the site that has this host in its configuration
    #[arg(long, value_name = "HOST", value_parser = something)]
    pub site: Option<String>,
    /// JSON for programs, on one line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Arguments of `maitred warm`.
#[derive(Debug, Args)]
pub struct Warm {
    /// Addresses, such as https://example.com/page
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// A sitemap or an index of sitemaps: a URL or a file; XML or text, also compressed with gzip
    #[arg(long, value_name = "URL|FILE")]
    pub sitemap: Vec<String>,
    /// A file with one address a line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub urls_file: Option<PathBuf>,
    /// Requests a second, at most
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = rate)]
    pub rate: f64,
    /// Connections, at most
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub concurrency: u16,
    /// Addresses, at most; the rest is left out
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub limit: u32,
    /// A field to send with each request, such as 'X-Device: phone'
    #[arg(long, value_name = "FIELD", value_parser = field)]
    pub header: Vec<String>,
    /// Configuration file: which hosts there are, and where the server listens
    #[arg(long, value_name = "FILE", default_value = crate::serve::DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// Ask for other hosts, too, wherever their names lead; no configuration is read
    #[arg(long)]
    pub any_host: bool,
    /// Ask the server at this address
    #[arg(long, value_name = "ADDR")]
    pub connect: Option<SocketAddr>,
    /// Trust certificates from this file instead of the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Trust every certificate
    #[arg(long)]
    pub insecure: bool,
    /// Say of each page what became of it
    #[arg(long)]
    pub verbose: bool,
    /// JSON for programs, on one line
    #[arg(long)]
    pub json: bool,
}

/// What is named must have a name.
fn something(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("it is empty; leave it out, or name what is meant".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// A header field as `Name: value`.
fn field(text: &str) -> Result<String, String> {
    maitred_warm::client::header(text).map(|_| text.to_owned())
}

/// Arguments of `maitred leaks`.
#[derive(Debug, Args)]
pub struct Leaks {
    /// Addresses of one site, or paths of the first
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// How often all of them are asked for
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(2..=1000)
    )]
    pub rounds: u16,
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = crate::serve::DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// JSON for programs, on one line
    #[arg(long)]
    pub json: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let range = MIN_RATE..=MAX_RATE;
    let rate = text.parse().ok().filter(|rate| range.contains(rate));
    rate.ok_or_else(|| format!("a number from {MIN_RATE} to {MAX_RATE} is expected"))
}

/// Arguments of `maitred status`.
#[derive(Debug, Args)]
pub struct Status {
    /// The only pool to show, in full
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
    /// JSON for programs, on one line
    #[arg(long)]
    pub json: bool,
    /// Also how many workers pm = "auto" would have in pools that have another pm
    #[arg(long)]
    pub advice: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Arguments of `maitred check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = crate::serve::DEFAULT_CONFIG)]
    pub config: PathBuf,
}

/// Arguments of `maitred doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Look at this configuration of maitred's, and at no other server
    #[arg(long, value_name = "FILE", conflicts_with = "php_fpm")]
    pub config: Option<PathBuf>,
    /// Look at php-fpm, nginx and Apache only; with FILE, at the php-fpm of that configuration
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[allow(clippy::option_option)]
    pub php_fpm: Option<Option<PathBuf>>,
    /// Show all in full, also what is as it should be
    #[arg(long)]
    pub all: bool,
    /// JSON for programs, on one line
    #[arg(long)]
    pub json: bool,
    /// Watch counters for so many seconds [default: 0.3]
    #[arg(long, value_name = "SECONDS", value_parser = watch)]
    pub watch: Option<Duration>,
    /// Give up, beside that, on whatever does not answer within so many seconds in all [default: 1.2]
    #[arg(long, value_name = "SECONDS", value_parser = watch)]
    pub time: Option<Duration>,
    /// Learn from an access log how requests come (common or combined format; its last 16 MB)
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// Read files below this folder: an image, or another disk; no server is asked
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// The server's admin socket [default: the `admin_socket` of its configuration]
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
}

/// Longest watch of `maitred doctor`, in seconds.
const MAX_WATCH_SECONDS: f64 = 600.0;

fn watch(text: &str) -> Result<Duration, String> {
    let range = 0.0..=MAX_WATCH_SECONDS;
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| range.contains(seconds));
    let wrong = || format!("seconds from 0 to {MAX_WATCH_SECONDS} are expected");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Arguments of `maitred explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// A URL, or a path of the first site
    #[arg(value_name = "URL")]
    pub url: String,
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = crate::serve::DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// The client's address [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub client: Option<IpAddr>,
    /// The request's method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// A header field that the page cache may look at; may be given more than once
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = field)]
    pub headers: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Maitred::command().debug_assert();
    }

    #[test]
    fn addresses_may_be_given_several_times_and_in_every_form() {
        let line = [
            "maitred",
            "serve",
            "--listen",
            ":80",
            "--listen",
            "127.0.0.1:81",
            "www",
        ];
        let Command::Serve(serve) = Maitred::parse_from(line).command else {
            panic!("serve")
        };
        let read: Vec<String> = serve.listen.iter().map(SocketAddr::to_string).collect();
        assert_eq!(read, ["[::]:80", "127.0.0.1:81"]);
        assert_eq!(serve.dir, Some(PathBuf::from("www")));
    }

    #[test]
    fn a_folder_and_a_configuration_exclude_each_other() {
        let line = ["maitred", "serve", "www", "--config", "maitred.toml"];
        assert!(Maitred::try_parse_from(line).is_err());
    }

    #[test]
    fn no_workers_and_too_many_workers_are_refused() {
        for workers in ["0", "-1", "10001", "many"] {
            assert!(Maitred::try_parse_from(["maitred", "serve", "--workers", workers]).is_err());
        }
    }
}
