//! A connection to Redis.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use maitred_control::purge_log::{LogServer, PurgeLogSettings};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::log_entry::EntryId;
use crate::member::{Round, RoundReply};
use crate::resp::{self, MAX_REPLY_BYTES, Value};
use crate::wire::{self, Keys, RoundContext, plain};

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 * 1024;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection that is ready for commands.
pub struct Connection {
    stream: Box<dyn Stream>,
    /// Received, and not yet read.
    bytes: Vec<u8>,
    /// Which run of which server it is.
    run: String,
    /// What `since` is to be set to, after an era was set.
    since: Option<String>,
}

/// TLS with the root certificates of the settings, if the server has it.
///
/// # Errors
/// One sentence, when there are no usable root certificates.
pub fn tls(server: &LogServer) -> Result<Option<Arc<ClientConfig>>, String> {
    let LogServer::Tcp { has_tls: true, roots, .. } = server else { return Ok(None) };
    let mut store = RootCertStore::empty();
    match roots {
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
    /// Connects, authenticates, and finds out which server it is.
    ///
    /// # Errors
    /// One sentence without any secret.
    pub async fn open(
        settings: &PurgeLogSettings,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Connection, String> {
        let stream = connect(&settings.server, tls).await.map_err(|error| error.to_string())?;
        let (bytes, run, since) = (Vec::new(), String::new(), None);
        let mut connection = Connection { stream, bytes, run, since };
        connection.authenticate(settings).await?;
        let mut info = String::new();
        for section in ["server", "replication"] {
            let reply = connection.call(&["INFO", section]).await?;
            info.push_str(reply.text().unwrap_or_default());
        }
        connection.run = wire::run_of(&info)?;
        Ok(connection)
    }

    async fn authenticate(&mut self, settings: &PurgeLogSettings) -> Result<(), String> {
        if let Some(password) = &settings.password {
            let mut words = vec!["AUTH"];
            words.extend(settings.username.as_deref());
            words.push(&password.0);
            if let Err(why) = self.call(&words).await {
                // The server's words about a password are not repeated.
                let is_refused = why.contains("WRONGPASS") || why.contains("NOAUTH");
                let clause = if is_refused { "username or password are wrong" } else { "" };
                return Err(format!("it refuses the log-in {clause}").trim_end().to_owned());
            }
        }
        if settings.database > 0 {
            self.call(&["SELECT", &settings.database.to_string()]).await?;
        }
        Ok(())
    }

    /// Sends one command, and receives its reply.
    async fn call(&mut self, words: &[&str]) -> Result<Value, String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut bytes = Vec::new();
        resp::command(&words, &mut bytes);
        match self.send(&bytes, 1).await?.pop() {
            Some(Value::Error(why)) => Err(format!("it refuses a command: {}", plain(&why))),
            Some(value) => Ok(value),
            None => Err("it sent no reply".to_owned()),
        }
    }

    /// Sends commands, and receives as many replies.
    async fn send(&mut self, commands: &[u8], count: usize) -> Result<Vec<Value>, String> {
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

    /// Carries out a round.
    ///
    /// # Errors
    /// One sentence; the connection is of no more use then.
    pub async fn round(
        &mut self,
        round: &Round,
        keys: &Keys,
        settings: &PurgeLogSettings,
    ) -> Result<RoundReply, String> {
        let since = self.since.take();
        let (run, node, length) = (&self.run, settings.node.as_str(), settings.length);
        let context = RoundContext { keys, node, length, run, since: since.as_deref() };
        let (commands, count) = wire::encode(round, &context);
        let replies = self.send(&commands, count).await?;
        let (reply, since) = wire::decode(round, &self.run, &replies)?;
        self.since = since;
        Ok(reply)
    }

    /// Registers that this node has left.
    ///
    /// # Errors
    /// One sentence.
    pub async fn leave(&mut self, keys: &Keys, node: &str, text: &str) -> Result<(), String> {
        self.call(&["HSET", &keys.nodes, node, text]).await.map(drop)
    }

    /// Claims a key for this node for a time, unless another has it. Returns whether this node has
    /// it, also if it had it before.
    ///
    /// # Errors
    /// One sentence; the connection is of no more use then.
    pub async fn claim(
        &mut self,
        key: &str,
        node: &str,
        lifetime: Duration,
    ) -> Result<bool, String> {
        let lifetime = lifetime.as_millis().max(1).to_string();
        self.call(&["SET", key, node, "NX", "PX", &lifetime]).await?;
        match self.call(&["GET", key]).await?.text() {
            Some(owner) => Ok(owner == node),
            None => Err("it has dropped a claim".to_owned()),
        }
    }

    /// Waits for an entry after this one, or for some seconds. Returns whether there is one.
    ///
    /// # Errors
    /// One sentence; the connection is of no more use then.
    pub async fn await_entry(&mut self, keys: &Keys, after: EntryId) -> Result<bool, String> {
        const BLOCK_MILLIS: &str = "5000";
        let after = after.to_string();
        let key = keys.purges.as_str();
        let words = ["XREAD", "COUNT", "1", "BLOCK", BLOCK_MILLIS, "STREAMS", key, &after];
        Ok(self.call(&words).await? != Value::Nothing)
    }
}

async fn connect(
    server: &LogServer,
    tls: Option<Arc<ClientConfig>>,
) -> io::Result<Box<dyn Stream>> {
    match server {
        LogServer::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        LogServer::Tcp { host, port, .. } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let Some(config) = tls else { return Ok(Box::new(stream)) };
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|error| io::Error::other(error.to_string()))?;
            Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
        }
    }
}
