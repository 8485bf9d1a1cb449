//! Client of a running server's admin socket.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_control::admin::{MAX_REPLY_BYTES, Reply, Request, default_socket};
use maitred_os::users;
use rustix::net::sockopt::socket_peercred;

use crate::command::DEFAULT_CONFIG;
use crate::command::Reach;
use crate::exit_code::complain;

/// The variable with the setting `admin_socket`, for servers without a configuration file.
const SOCKET_VARIABLE: &str = "MAITRED_ADMIN_SOCKET";

/// Timeout of a reply.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The error for a reply of the wrong kind.
pub const UNEXPECTED: &str = "unexpected reply from the server; is it another version?";

/// A running server.
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
    server: ServerUser,
}

/// The user and group of the process that listens on an admin socket, as the kernel reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Client {
    /// Connects to the server with the admin socket `path`, or else at the default path.
    ///
    /// # Errors
    /// One sentence with the socket's path and a remedy.
    pub fn connect(path: Option<&Path>) -> Result<Client, String> {
        let is_default = path.is_none();
        let path = path.map_or_else(default_socket, Path::to_owned);
        let stream = UnixStream::connect(&path).and_then(|stream| {
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            let peer = socket_peercred(&stream)?;
            Ok((stream, ServerUser { uid: peer.uid.as_raw(), gid: peer.gid.as_raw() }))
        });
        let (stream, server) = stream.map_err(|why| unreachable(&path, &why))?;
        let client = Client { stream: BufReader::new(stream), path, server };
        if is_default && !users::is_root() && !users::is_trusted(server.uid) {
            return Err(format!(
                "{} is the socket of user {}; name it with --admin-socket if that is meant",
                client.path.display(),
                users::name_of(server.uid)
            ));
        }
        Ok(client)
    }

    /// The user who runs the server.
    pub fn server_user(&self) -> ServerUser {
        self.server
    }

    /// Connects to the server that the options of a command select.
    ///
    /// # Errors
    /// As [`Client::connect`], and when its configuration cannot be read.
    pub fn reach(reach: &Reach) -> Result<Client, String> {
        let path = match (&reach.admin_socket, &reach.configuration) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(file)) => match maitred_config::load(file) {
                Ok(config) => config.admin_socket,
                Err(_) => lenient_socket(file)?,
            },
            // A user of the socket may lack permission to read it, or it may have an error.
            (None, None) => maitred_config::admin_socket_of(Path::new(DEFAULT_CONFIG))
                .ok()
                .flatten()
                .or_else(|| std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from)),
        };
        Client::connect(path.as_deref())
    }

    /// The path of its admin socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request and returns the reply.
    ///
    /// # Errors
    /// One sentence, if there is no reply.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, String> {
        let path = self.path.display();
        let mut line = serde_json::to_vec(request).map_err(|why| why.to_string())?;
        line.push(b'\n');
        let mut reply = Vec::new();
        let limit = MAX_REPLY_BYTES as u64;
        let asked = self.stream.get_mut().write_all(&line);
        let heard = asked.and_then(|()| {
            let stream = Read::by_ref(&mut self.stream);
            stream.take(limit).read_until(b'\n', &mut reply)
        });
        match heard {
            Ok(0) => Err(self.closed()),
            Err(why)
                if matches!(why.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) =>
            {
                Err(self.closed())
            }
            Ok(_) => serde_json::from_slice(&reply).map_err(|why| {
                format!("invalid reply from the server on {path} ({why}); is it another version?")
            }),
            Err(why) if why.kind() == ErrorKind::WouldBlock => Err(format!(
                "no reply from the server on {path} within {} s; see its log",
                self.timeout().as_secs()
            )),
            Err(why) => Err(format!("cannot send a request to the server on {path}: {why}")),
        }
    }

    /// Why the server may have closed the connection without a reply.
    fn closed(&self) -> String {
        let path = self.path.display();
        let is_permitted = users::is_root() || users::current().uid == self.server.uid;
        match is_permitted {
            // A program that takes over opens another socket.
            true => format!(
                "the server on {path} closed the connection: it ends, a new program takes over \
                 (an upgrade), or too many commands are connected; try again in a moment"
            ),
            false => format!(
                "the server on {path} closed the connection; it is for its own user and root"
            ),
        }
    }

    /// Sends a request, and waits for the reply at most this long.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_within(&mut self, request: &Request, limit: Duration) -> Result<Reply, String> {
        let _ = self.stream.get_ref().set_read_timeout(Some(limit));
        self.ask(request)
    }

    /// Sends a request, and waits for the reply without a timeout.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_patiently(&mut self, request: &Request) -> Result<Reply, String> {
        let _ = self.stream.get_ref().set_read_timeout(None);
        self.ask(request)
    }

    fn timeout(&self) -> Duration {
        self.stream.get_ref().read_timeout().ok().flatten().unwrap_or(TIMEOUT)
    }

    /// Waits until the server has exited.
    pub fn wait_for_exit(mut self) {
        let _ = self.stream.get_ref().set_read_timeout(None);
        let mut rest = [0; 256];
        while matches!(self.stream.read(&mut rest), Ok(1..)) {}
    }
}

/// The admin socket in a file with mistakes, which the running server was not started with.
fn lenient_socket(file: &Path) -> Result<Option<PathBuf>, String> {
    let socket = maitred_config::admin_socket_of(file).map_err(|why| why.to_string())?;
    let shown = file.display();
    complain(&format!(
        "warning: {shown} has mistakes, which `maitred check {shown}` lists; its `admin_socket` is \
         used all the same"
    ));
    Ok(socket.or_else(|| std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from)))
}

fn unreachable(path: &Path, why: &std::io::Error) -> String {
    let path = path.display();
    match why.kind() {
        ErrorKind::PermissionDenied => format!(
            "permission denied for the admin socket {path}; run the command as root or as the \
             server's user"
        ),
        _ => format!(
            "no server listens on {path} ({why}); start one with `maitred serve`, or name the \
             socket of a running one with --admin-socket, or its configuration with --config"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_command_that_is_cut_off_by_an_upgrade_hears_of_it_and_not_of_rights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut accepted = Client::connect(Some(&path)).unwrap();
        drop(listener.accept().unwrap());
        let mut waiting = Client::connect(Some(&path)).unwrap();
        drop(listener);
        for client in [&mut accepted, &mut waiting] {
            let why = client.ask(&Request::Status { pool: None }).unwrap_err();
            assert!(why.contains("takes over (an upgrade)") && !why.contains("own user"), "{why}");
        }
    }
}
