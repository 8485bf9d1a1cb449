//! What can be asked of `maitred tune`.

use std::path::PathBuf;

use clap::Args;
use maitred_config::MAX_CHILDREN_PER_POOL;

/// Arguments of `maitred tune`.
#[derive(Debug, Clone, Args)]
pub struct Tune {
    /// A page of the site, or several
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub load: LoadOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub server: ServerOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub course: CourseOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputOptions,
}

/// What is asked for.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub struct LoadOptions {
    /// Ask for the URLs of this list, as maitred bench has it; a number before a URL is its weight
    #[arg(long, value_name = "FILE", conflicts_with_all = ["access_log", "crawl"])]
    pub urls_file: Option<PathBuf>,
    /// Ask for what this access log has, as often as it has it; the URL says of which server it is
    #[arg(long, value_name = "LOG", conflicts_with = "crawl")]
    pub access_log: Option<PathBuf>,
    /// Ask for the requests of this HAR file, as a browser saves it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["urls_file", "access_log", "crawl"])]
    pub har: Option<PathBuf>,
    /// Ask for the pages that the URL links to, too
    #[arg(long)]
    pub crawl: bool,
    /// A field to send with each request, such as 'Cookie: session=1'
    #[arg(long, value_name = "FIELD")]
    pub header: Vec<String>,
    /// Which statuses are right [default: 200 to 299]
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub expect: Vec<u16>,
    /// A text that every right page holds
    #[arg(long, value_name = "TEXT")]
    pub contains: Option<String>,
    /// Have each user keep the cookies that are set
    #[arg(long)]
    pub cookies: bool,
    /// Also send requests of a list that may change something (POST and others)
    #[arg(long)]
    pub allow_write: bool,
    /// The URL leads to another machine that passes requests to this one, and both are yours
    #[arg(long)]
    pub yes_i_own_it: bool,
    /// Trust certificates from this file instead of the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Trust every certificate
    #[arg(long)]
    pub insecure: bool,
}

/// Which server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerOptions {
    /// Tune the maitred of this configuration
    #[arg(long, value_name = "FILE", conflicts_with = "php_fpm")]
    pub config: Option<PathBuf>,
    /// Tune php-fpm; with FILE, the one of that configuration
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[allow(clippy::option_option)]
    pub php_fpm: Option<Option<PathBuf>>,
    /// Tune this pool, where there are several
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// The server's admin socket [default: the `admin_socket` of its configuration]
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
}

/// How it is done.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Course")]
pub struct CourseOptions {
    /// What has to hold, such as 'p99<200ms,error<0.1%' [default: four times what one request takes alone]
    #[arg(long, value_name = "CONDITIONS")]
    pub goal: Option<String>,
    /// Try no more workers than that, such as a database has connections for
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CHILDREN_PER_POOL))
    )]
    pub most_workers: Option<u32>,
    /// How long all of it may take, about [default: 10m]
    #[arg(long, value_name = "TIME", conflicts_with = "quick")]
    pub time: Option<String>,
    /// Take two minutes; figures are indicative then
    #[arg(long)]
    pub quick: bool,
    /// Go on where others use more than a tenth of the processors, or the same setting differs from itself by
    /// more than 5 %; the report says so
    #[arg(long)]
    pub despite_noise: bool,
    /// Write down what was chosen even if no gain is proven
    #[arg(long, conflicts_with = "no_write")]
    pub write_unproven: bool,
    /// Measure and say, but leave everything as it was in the end
    #[arg(long)]
    pub no_write: bool,
    /// Put back what was before the last setting that was written
    #[arg(
        long,
        conflicts_with_all = ["urls", "urls_file", "access_log", "har", "crawl", "goal", "time", "quick"]
    )]
    pub undo: bool,
    /// What chance begins with
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// What is said.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Also say all settings of a server that follow from what was measured: php-fpm, nginx, apache,
    /// sysctl or maitred; may be given several times
    #[arg(long = "for", value_name = "SERVER", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// The report as JSON, into a file, or `-` for standard output and nothing else there
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The report as one HTML file with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
