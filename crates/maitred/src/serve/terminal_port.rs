//! Whether a server is one for development, and the port of a development server.

use std::cell::OnceCell;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::exit_code::complain;
use crate::log;
use crate::serve::options::Serve;

/// The port of a folder without `--listen`.
const FIRST_PORT: u16 = 8080;

/// How many ports are tried, from the first.
const PORTS: u16 = 20;

/// The development server that a command line requests.
#[derive(Debug, Default)]
pub struct Terminal {
    /// Whether lines have colours.
    pub colors: bool,
    /// The port that was free at the start; a reload keeps it.
    port: OnceCell<Option<SocketAddr>>,
}

/// The development server to run, if the server is one: a folder on a terminal, or `--dev`.
pub fn of(serve: &Serve, is_folder: bool) -> Option<Terminal> {
    let is_terminal = std::io::stderr().is_terminal();
    let is_for_development = serve.dev || is_folder && is_terminal && !serve.production;
    is_for_development
        .then(|| Terminal { colors: log::has_colors(&std::io::stderr()), port: OnceCell::new() })
}

impl Terminal {
    /// The address of a folder without `--listen`, if the usual one is in use.
    pub fn free_address(&self) -> Option<SocketAddr> {
        *self.port.get_or_init(|| {
            let ports = FIRST_PORT..FIRST_PORT + PORTS;
            let mut addresses = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            let free = addresses.find(|address| TcpListener::bind(address).is_ok())?;
            if free.port() == FIRST_PORT {
                return None;
            }
            complain(&format!("port {FIRST_PORT} is in use; {} is the next free one", free.port()));
            Some(free)
        })
    }
}
