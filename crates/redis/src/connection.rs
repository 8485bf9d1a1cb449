//! A connection to Redis.

use std::io;
use std::sync::Arc;

use maitred_control::redis_access::{RedisAccess, RedisServer};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::resp::{self, MAX_REPLY_BYTES, Value};

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 * 1024;

/// Longest text of the server in a sentence, in characters.
const MAX_TEXT_CHARS: usize = 200;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection that is ready for commands.
pub struct Connection {
    stream: Box<dyn Stream>,
    /// Received, and not yet read.
    bytes: Vec<u8>,
}

/// TLS with the root certificates of the settings, if the server has it.
///
/// # Errors
/// One sentence, when there are no usable root certificates.
pub fn tls(access: &RedisAccess) -> Result<Option<Arc<ClientConfig>>, String> {
    if !access.server.has_tls() {
        return Ok(None);
    }
    let mut store = RootCertStore::empty();
    match &access.roots {
        Some(pem) => {
            for cert in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let cert = cert.map_err(|error| format!("ca_file cannot be read: {error}"))?;
                store.add(cert).map_err(|error| format!("ca_file cannot be used: {error}"))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
        }
    }
    if store.is_empty() {
        return Err("there is no root certificate to verify Redis with; set ca_file".to_owned());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Some(Arc::new(config.with_root_certificates(store).with_no_client_auth())))
}

impl Connection {
    /// Connects and authenticates.
    ///
    /// # Errors
    /// One sentence without any secret.
    pub async fn open(
        access: &RedisAccess,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Connection, String> {
        let stream = connect(&access.server, tls).await.map_err(|error| error.to_string())?;
        let mut connection = Connection { stream, bytes: Vec::new() };
        connection.authenticate(access).await?;
        Ok(connection)
    }

    async fn authenticate(&mut self, access: &RedisAccess) -> Result<(), String> {
        if let Some(password) = &access.password {
            let mut words = vec!["AUTH"];
            words.extend(access.username.as_deref());
            words.push(&password.0);
            if let Err(why) = self.call(&words).await {
                // The server's words about a password are not repeated.
                let is_refused = why.contains("WRONGPASS") || why.contains("NOAUTH");
                let clause = if is_refused { "username or password are wrong" } else { "" };
                return Err(format!("it refuses the log-in {clause}").trim_end().to_owned());
            }
        }
        if access.database > 0 {
            self.call(&["SELECT", &access.database.to_string()]).await?;
        }
        Ok(())
    }

    /// Sends one command of texts, and receives its reply.
    ///
    /// # Errors
    /// One sentence; the connection is of no more use then.
    pub async fn call(&mut self, words: &[&str]) -> Result<Value, String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.call_bytes(&words).await
    }

    /// Sends one command, and receives its reply.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn call_bytes(&mut self, words: &[&[u8]]) -> Result<Value, String> {
        let mut bytes = Vec::new();
        resp::command(words, &mut bytes);
        match self.send(&bytes, 1).await?.pop() {
            Some(Value::Error(why)) => Err(format!("it refuses a command: {}", plain(&why))),
            Some(value) => Ok(value),
            None => Err("it sent no reply".to_owned()),
        }
    }

    /// Sends encoded commands, and receives as many replies, which may be errors.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn send(&mut self, commands: &[u8], count: usize) -> Result<Vec<Value>, String> {
        let broken = |error: io::Error| format!("the connection is broken: {error}");
        self.stream.write_all(commands).await.map_err(broken)?;
        self.stream.flush().await.map_err(broken)?;
        let mut values = Vec::new();
        while values.len() < count {
            let parsed = resp::parse(&self.bytes);
            match parsed.map_err(|_| "it sent what is no reply of Redis".to_owned())? {
                Some((value, length)) => {
                    self.bytes.drain(..length);
                    values.push(value);
                }
                None if self.bytes.len() > MAX_REPLY_BYTES => {
                    return Err("it sent a reply that is too long".to_owned());
                }
                None => {
                    self.bytes.reserve(READ_BYTES);
                    if self.stream.read_buf(&mut self.bytes).await.map_err(broken)? == 0 {
                        return Err("it has closed the connection".to_owned());
                    }
                }
            }
        }
        Ok(values)
    }
}

async fn connect(
    server: &RedisServer,
    tls: Option<Arc<ClientConfig>>,
) -> io::Result<Box<dyn Stream>> {
    match server {
        RedisServer::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        RedisServer::Tcp { host, port, .. } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let Some(config) = tls else { return Ok(Box::new(stream)) };
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|error| io::Error::other(error.to_string()))?;
            Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
        }
    }
}

/// A text of the server, for the log.
pub fn plain(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use maitred_control::acme::Secret;

    use super::*;

    /// A command, and the pieces of its reply.
    #[derive(Clone, Copy)]
    struct Exchange<'a> {
        words: &'a [&'a str],
        reply: &'a [&'a [u8]],
    }

    /// What comes of `ask` at a server that gets exactly these commands and closes the connection.
    fn with_server<T>(
        exchanges: &[Exchange<'_>],
        database: u32,
        ask: impl AsyncFnOnce(&mut Connection) -> T,
    ) -> Result<T, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("redis.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let access = RedisAccess {
            server: RedisServer::Unix(path),
            username: Some("ann".to_owned()),
            password: Some(Secret("secret".to_owned())),
            database,
            roots: None,
        };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                for Exchange { words, reply } in exchanges {
                    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                    let mut expected = Vec::new();
                    resp::command(&words, &mut expected);
                    let mut found = vec![0; expected.len()];
                    stream.read_exact(&mut found).unwrap();
                    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&expected));
                    // Who gets too much closes the connection.
                    let _ = reply.iter().try_for_each(|piece| stream.write_all(piece));
                }
            });
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
            runtime.unwrap().block_on(async {
                let mut connection = Connection::open(&access, None).await?;
                Ok(ask(&mut connection).await)
            })
        })
    }

    const LOGIN: Exchange<'_> =
        Exchange { words: &["AUTH", "ann", "secret"], reply: &[b"+OK\r\n"] };
    const GET: Exchange<'_> = Exchange { words: &["GET", "a"], reply: &[] };

    async fn get(connection: &mut Connection) -> Result<Value, String> {
        connection.call(&["GET", "a"]).await
    }

    #[test]
    fn it_logs_in_selects_its_database_and_reads_replies_in_pieces() {
        let reply: &[&[u8]] = &[b"$3\r", b"\nab", b"c\r\n"];
        let select = Exchange { words: &["SELECT", "2"], reply: &[b"+OK\r\n"] };
        let get_a = Exchange { reply, ..GET };
        let found = with_server(&[LOGIN, select, get_a], 2, get).unwrap();
        assert_eq!(found, Ok(Value::Text(b"abc".to_vec())));
        let found = with_server(&[LOGIN, get_a], 0, get).unwrap();
        assert_eq!(found, Ok(Value::Text(b"abc".to_vec())), "the first database is there anyway");
    }

    #[test]
    fn several_replies_may_come_at_once() {
        let all = Exchange { reply: &[b":1\r\n-ERR no\r\n:3", b"\r\n"], ..GET };
        let found = with_server(&[LOGIN, all], 0, async |connection| {
            let mut bytes = Vec::new();
            resp::command(&[b"GET", b"a"], &mut bytes);
            connection.send(&bytes, 3).await
        });
        let error = Value::Error("ERR no".to_owned());
        assert_eq!(found.unwrap(), Ok(vec![Value::Number(1), error, Value::Number(3)]));
    }

    #[test]
    fn what_a_server_does_wrong_is_one_sentence_without_the_password() {
        let why = |reply: &[&[u8]]| {
            let found = with_server(&[LOGIN, Exchange { reply, ..GET }], 0, get);
            found.unwrap().unwrap_err()
        };
        assert_eq!(why(&[]), "it has closed the connection");
        assert_eq!(why(&[b"HTTP/1.1 400\r\n"]), "it sent what is no reply of Redis");
        assert_eq!(why(&[b"-ERR a\x1bb\r\n"]), "it refuses a command: ERR a?b");
        let longest = [b"$4194304\r\n".as_slice(), &[b'x'; MAX_REPLY_BYTES]].concat();
        assert_eq!(why(&[b"*2\r\n", &longest]), "it sent a reply that is too long");
        let refused = |reply: &[u8]| {
            with_server(&[Exchange { reply: &[reply], ..LOGIN }], 0, get).unwrap_err()
        };
        let wrong = "it refuses the log-in username or password are wrong";
        assert_eq!(refused(b"-WRONGPASS secret\r\n"), wrong);
        assert_eq!(refused(b"-NOAUTH secret\r\n"), wrong);
        assert_eq!(refused(b"-ERR secret\r\n"), "it refuses the log-in");
    }

    #[test]
    fn a_text_of_the_server_is_short_and_plain() {
        assert_eq!(plain("a\r\n\tb\u{e9}"), "a???b\u{e9}");
        assert_eq!(plain(&"\u{e9}".repeat(201)), "\u{e9}".repeat(200));
    }
}
