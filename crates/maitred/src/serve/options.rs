//! The command line of `maitred serve`.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::path::PathBuf;

use clap::Args;
use maitred_config::{MAX_CHILDREN_PER_POOL, parse_listen};

/// Arguments of `maitred serve`.
#[derive(Debug, Clone, Default, Args)]
pub struct Serve {
    /// Document root, or a project with its public/ or web/
    ///
    /// Without DIR and --config: /etc/maitred/maitred.toml if it exists, or else public/, web/ or
    /// the current folder, whichever holds an index.php or index.html.
    #[arg(value_name = "DIR", conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// Address to listen on, such as 8000 or 0.0.0.0:80
    ///
    /// A port alone is on this machine only, unless there is a configuration file; :80 is every
    /// address. May be given several times.
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    pub listen: Vec<ListenFlag>,
    /// Workers of each pool, always
    ///
    /// [default: the configuration's, or as many as needed]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CHILDREN_PER_POOL))
    )]
    pub workers: Option<u32>,
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Start and reload only if every site and pool is right
    ///
    /// [default: sites without a document root, pools without their user and the like respond with
    /// 503, and the others are served]
    #[arg(long)]
    pub strict: bool,
    /// PHP setting of every pool, such as memory_limit=1G
    ///
    /// May be given several times.
    #[arg(short = 'd', value_name = "NAME=VALUE", value_parser = define)]
    pub define: Vec<(String, String)>,
    /// Environment variable for PHP
    ///
    /// NAME alone passes the server's own. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, Option<String>)>,
    /// Reload when the configuration file changes
    #[arg(long)]
    pub watch: bool,
    /// Serve for development, as on a terminal
    #[arg(long, conflicts_with = "production")]
    pub dev: bool,
    /// Serve a folder as in production, also on a terminal
    #[arg(long)]
    pub production: bool,
    /// HTTPS for a folder, with a certificate of your own
    ///
    /// The authority that issues it is made once, in ~/.local/share/maitred/authority; `maitred
    /// trust` makes browsers trust it. The addresses stay the same, and serve HTTP/1.1 and HTTP/2.
    #[arg(long, conflicts_with = "production")]
    pub https: bool,
    /// Open the browser when the server serves
    ///
    /// On a terminal only.
    #[arg(long)]
    pub open: bool,
    /// The file descriptor with the state of the previous program, at an upgrade
    #[arg(long, value_name = "FD", hide = true)]
    pub take_over: Option<RawFd>,
    /// The same, only to check whether it could be taken over
    #[arg(long, value_name = "FD", hide = true)]
    pub try_take_over: Option<RawFd>,
    /// Stop when this process, which has started the server, ends
    #[arg(long, value_name = "PID", hide = true)]
    pub stop_with_parent: Option<i32>,
    /// Unix socket of `maitred status` and other commands
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
}

/// A value of `--listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenFlag {
    /// The address, as a configuration file means it.
    pub address: SocketAddr,
    /// Only a port was given.
    pub is_port: bool,
}

impl ListenFlag {
    /// The address for a folder: a port alone is on this machine only.
    pub fn for_folder(self) -> SocketAddr {
        match self.is_port {
            true => SocketAddr::from((Ipv4Addr::LOCALHOST, self.address.port())),
            false => self.address,
        }
    }
}

fn listen(text: &str) -> Result<ListenFlag, String> {
    let is_port = text.bytes().all(|byte| byte.is_ascii_digit());
    parse_listen(text).map(|address| ListenFlag { address, is_port })
}

/// `NAME=VALUE`, or `NAME` for `NAME=1`, as php-cli's `-d`.
fn define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    let name = name.trim();
    if name.is_empty() {
        return Err("it has no name; expected NAME=VALUE, such as memory_limit=1G".to_owned());
    }
    Ok((name.to_owned(), value.trim().trim_matches('"').to_owned()))
}

/// `NAME=VALUE`, or `NAME` for the server's own.
fn variable(text: &str) -> Result<(String, Option<String>), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if name.is_empty() || name.contains('\0') {
        return Err("it has no name; expected NAME=VALUE, such as APP_ENV=dev".to_owned());
    }
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_this_machine_where_a_folder_is_served() {
        let for_folder = |text: &str| listen(text).map(|flag| flag.for_folder().to_string());
        assert_eq!(for_folder("8000").as_deref(), Ok("127.0.0.1:8000"));
        assert_eq!(for_folder(":8000").as_deref(), Ok("[::]:8000"));
        assert_eq!(for_folder("0.0.0.0:8000").as_deref(), Ok("0.0.0.0:8000"));
        assert_eq!(listen("8000").map(|flag| flag.address.to_string()).as_deref(), Ok("[::]:8000"));
    }

    #[test]
    fn settings_and_variables_have_a_name_and_mostly_a_value() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(define("memory_limit = 1G"), pair("memory_limit", "1G"));
        assert_eq!(define("display_errors"), pair("display_errors", "1"));
        assert_eq!(define("a=\"x=y\""), pair("a", "x=y"));
        assert!(define("=1").is_err() && variable("=1").is_err());
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), Some("b=c".to_owned()))));
        assert_eq!(variable("A"), Ok(("A".to_owned(), None)));
    }
}
