//! Arguments of `maitred import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use maitred_prove::run::{MAX_RATE, MIN_RATE};

use crate::report_file::JsonOption;

/// A server whose configuration is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ForeignServer {
    /// nginx, with the pools of php-fpm.
    Nginx,
    /// Apache's httpd, with mod_php or the pools of php-fpm.
    Apache,
    /// Unit, by the JSON of its `/config`.
    Unit,
    /// Caddy or FrankenPHP, by the Caddyfile.
    Caddy,
}

/// Arguments of `maitred import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The server [default: the one that runs here, or else is installed]
    #[arg(value_name = "SERVER")]
    pub server: Option<ForeignServer>,
    /// Its configuration file [default: where distributions have it]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// The configuration of php-fpm
    ///
    /// May be given several times.
    /// [default: /etc/php/*/fpm/php-fpm.conf and other paths of distributions]
    #[arg(long, value_name = "FILE")]
    pub php_fpm: Vec<PathBuf>,
    /// Write the maitred.toml to this file, a new one
    ///
    /// [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub prove: Prove,
}

/// `--prove` and its options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Proof")]
pub struct Prove {
    /// Start maitred on spare ports beside the old server, and compare their responses
    ///
    /// Both get the same GET and HEAD requests: for each location and rule, links, sitemaps, files
    /// and the addresses of the access logs. Addresses that may change something are left out.
    #[arg(long)]
    pub prove: bool,
    /// Prove this one instead, with corrections by hand
    #[arg(long, value_name = "FILE", requires = "prove", conflicts_with = "output")]
    pub config: Option<PathBuf>,
    /// Most requests a second, of both servers together
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 20.0,
        requires = "prove",
        value_parser = rate,
        hide_short_help = true
    )]
    pub rate: f64,
    /// Most addresses, of all sites together
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1000,
        requires = "prove",
        hide_short_help = true
    )]
    pub limit: u64,
    /// Days of the access logs
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 7,
        requires = "prove",
        hide_short_help = true
    )]
    pub days: u32,
    /// Compare this path of each site as well
    ///
    /// May be given several times.
    #[arg(long, value_name = "PATH", requires = "prove")]
    pub also: Vec<String>,
    /// Compare a POST that changes nothing: a path, and a form after a space ('/search q=a')
    ///
    /// May be given several times. Each is sent once to each server.
    #[arg(long, value_name = "PATH FORM", requires = "prove")]
    pub post: Vec<String>,
    #[command(flatten)]
    pub json: JsonOption,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "expected a number such as 20".to_owned())?;
    match (MIN_RATE..=MAX_RATE).contains(&rate) {
        true => Ok(rate),
        false => Err(format!("expected a number from {MIN_RATE} to {MAX_RATE}")),
    }
}
