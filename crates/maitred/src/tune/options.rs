//! The command line of `maitred tune`.

use std::path::PathBuf;

use crate::report_file::JsonOption;
use clap::Args;
use maitred_config::MAX_CHILDREN_PER_POOL;

/// The sizes of caches in `--php`.
pub const SIZES: &str = "sizes";

/// Arguments of `maitred tune`.
#[derive(Debug, Clone, Args)]
pub struct Tune {
    /// Pages of the site
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub load: TuneLoadOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub server: TuneServerOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub course: CourseOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: TuneOutputOptions,
}

/// The load.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub struct TuneLoadOptions {
    /// Request the URLs of this list, as for maitred bench
    ///
    /// A number before a URL is its weight.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["access_log", "crawl"])]
    pub urls_file: Option<PathBuf>,
    /// Request the URLs of this access log
    ///
    /// As often as it has them, from the server of the URL.
    #[arg(long, value_name = "LOG", conflicts_with = "crawl")]
    pub access_log: Option<PathBuf>,
    /// Send the requests of a browser's HAR file
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["urls_file", "access_log", "crawl"],
        hide_short_help = true
    )]
    pub har: Option<PathBuf>,
    /// Also request the pages that the URL links to
    #[arg(long)]
    pub crawl: bool,
    /// A header to send with each request, such as 'Cookie: session=1'
    #[arg(long, value_name = "HEADER", hide_short_help = true)]
    pub header: Vec<String>,
    /// Expected statuses [default: 200 to 299]
    #[arg(long, value_name = "STATUS", value_delimiter = ',', hide_short_help = true)]
    pub expect: Vec<u16>,
    /// A text that every page must contain
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub contains: Option<String>,
    /// Each user stores the cookies that the server sets
    #[arg(long, hide_short_help = true)]
    pub cookies: bool,
    /// Also send requests that may change data
    ///
    /// POST and other requests of a list.
    #[arg(long, hide_short_help = true)]
    pub allow_write: bool,
    /// The URL is on another machine of yours
    ///
    /// It proxies to this one, and both are yours.
    #[arg(long, hide_short_help = true)]
    pub yes_i_own_it: bool,
    /// Trust this file's certificates, not the system's
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub ca: Option<PathBuf>,
    /// Trust every certificate
    #[arg(long, hide_short_help = true)]
    pub insecure: bool,
}

/// The server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct TuneServerOptions {
    /// Tune the maitred of this configuration
    #[arg(long, value_name = "FILE", conflicts_with = "php_fpm")]
    pub config: Option<PathBuf>,
    /// Tune php-fpm; with FILE, the one of that configuration
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[allow(clippy::option_option)]
    pub php_fpm: Option<Option<PathBuf>>,
    /// Tune this pool, if there are several
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// The server's admin socket
    ///
    /// [default: the `admin_socket` of its configuration]
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
}

/// The course of tuning.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Course")]
pub struct CourseOptions {
    /// Conditions that must hold, such as 'p99<200ms,error<0.1%'
    ///
    /// [default: four times the latency of one request alone]
    #[arg(long, value_name = "CONDITIONS")]
    pub goal: Option<String>,
    /// Try no more workers than this
    ///
    /// Such as a database has connections for.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CHILDREN_PER_POOL)),
        hide_short_help = true
    )]
    pub most_workers: Option<u32>,
    /// Approximate total time [default: 10m]
    #[arg(long, value_name = "TIME", conflicts_with = "quick")]
    pub time: Option<String>,
    /// Take two minutes; results are only indicative then
    #[arg(long)]
    pub quick: bool,
    /// Continue on a noisy machine
    ///
    /// Although other processes use more than a tenth of the CPUs, or the same setting differs from
    /// itself by more than 5 %. The report mentions it.
    #[arg(long, hide_short_help = true)]
    pub despite_noise: bool,
    /// Write the chosen setting even if no gain is proven
    #[arg(long, conflicts_with = "no_write", hide_short_help = true)]
    pub write_unproven: bool,
    /// Measure and report, but restore everything in the end
    #[arg(long)]
    pub no_write: bool,
    /// Try settings of PHP instead of numbers of workers
    ///
    /// All of them, or those that are named, for a pool of maitred; `sizes` are those of OPcache
    /// and realpath_cache_size. The configuration stays as it is; the report has the lines to add.
    #[arg(
        long,
        value_name = "SETTING",
        num_args = 0..,
        require_equals = true,
        value_delimiter = ',',
        value_parser = [SIZES, "preload", "jit", "validate_timestamps", "file_cache"],
        conflicts_with_all = [
            "goal", "most_workers", "quick", "write_unproven", "undo", "html", "servers",
        ]
    )]
    pub php: Option<Vec<String>>,
    /// Each deploy ends with a reload: also try opcache.validate_timestamps = 0
    #[arg(long, requires = "php", hide_short_help = true)]
    pub deploys_reload: bool,
    /// Restore the settings from before the last one written
    #[arg(
        long,
        conflicts_with_all = [
            "urls", "urls_file", "access_log", "har", "crawl", "goal", "time", "quick",
        ]
    )]
    pub undo: bool,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub seed: u64,
}

/// The report.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct TuneOutputOptions {
    /// Also print the settings that follow for a server
    ///
    /// Of php-fpm, nginx, apache, sysctl or maitred. May be given several times.
    #[arg(long = "for", value_name = "SERVER", value_delimiter = ',')]
    pub servers: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: JsonOption,
    /// Write the report as one HTML file with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
