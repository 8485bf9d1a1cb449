//! Arguments of `maitred import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// A server whose configuration is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ForeignServer {
    /// nginx, with the pools of php-fpm.
    Nginx,
    /// Apache's httpd, with mod_php or the pools of php-fpm.
    Apache,
    /// Unit, by the JSON of its `/config`.
    Unit,
}

/// Arguments of `maitred import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The server [default: the one that runs here, or else is installed]
    #[arg(value_name = "SERVER")]
    pub server: Option<ForeignServer>,
    /// Its configuration file [default: the path of distributions, such as /etc/nginx/nginx.conf]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// The configuration of php-fpm
    ///
    /// May be given several times.
    /// [default: /etc/php/*/fpm/php-fpm.conf and other paths of distributions]
    #[arg(long, value_name = "FILE")]
    pub php_fpm: Vec<PathBuf>,
    /// Write the maitred.toml to this file, which must not exist yet
    ///
    /// [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
