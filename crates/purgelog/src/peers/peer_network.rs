//! Connections between nodes: one to each peer, whose log it follows, and one from each.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::peer_identity::{PeerIdentity, VERSION_2, handshake_error};
use super::peer_messages::PeerMessage;

/// Longest time until a connection is open and its first message is there.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// Longest time that a message may take to be written, or that a follower may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// Least and longest time between two attempts to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Most messages that wait for a connection: a window of purges, and replies to pings.
const OUTBOX: usize = 256;

/// Most events that wait to be acted on.
pub const EVENTS: usize = 256;

/// Most connections from the address of a peer whose handshake is not over. Any user of its machine
/// can open one, and has no part of those that are established.
const HANDSHAKES_OF_PEER: usize = 8;

/// Most of those from all other addresses: a node that is missing in the list learns that.
const HANDSHAKES_OF_STRANGERS: usize = 2;

/// Most established connections for each peer: one, and old ones that are not over yet.
const ESTABLISHED: usize = 4;

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 * 1024;

/// How long a listener rests that has failed to accept, as without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a connection is over that its other end has closed.
const CLOSED: &str = "it has closed the connection";

/// Messages to be sent over a connection, which ends without the sender.
pub type Outbox = mpsc::Sender<PeerMessage>;

/// What happens to connections.
#[derive(Debug)]
pub enum NetEvent {
    /// A connection to a peer is open.
    Dialled {
        /// The number of the peer.
        peer: usize,
        /// That of the connection.
        connection: u64,
        /// The peer knows figures.
        has_figures: bool,
        /// What it sends.
        outbox: Outbox,
    },
    /// No connection to a peer could be opened.
    Unreached {
        /// The number of the peer.
        peer: usize,
        /// Why, as the end of a sentence.
        why: String,
    },
    /// A node has opened a connection, and this is its first message.
    Accepted {
        /// The number of the connection.
        connection: u64,
        /// Where it comes from.
        source: IpAddr,
        /// The first message.
        hello: PeerMessage,
        /// What it sends.
        outbox: Outbox,
    },
    /// A node, or another program, was turned away.
    TurnedAway {
        /// Its address.
        from: IpAddr,
        /// Why, as the end of a sentence.
        why: String,
    },
    /// A message.
    Message {
        /// The number of the connection.
        connection: u64,
        /// The message.
        message: PeerMessage,
    },
    /// A connection is over.
    Over {
        /// The number of the connection.
        connection: u64,
        /// Why, as the end of a sentence.
        why: String,
    },
}

/// The network as the session sees it.
#[derive(Clone)]
pub struct PeerNetwork {
    /// The address of this node.
    pub listen: SocketAddr,
    /// Those of the others.
    pub addresses: Arc<Vec<SocketAddr>>,
    /// The key of all.
    pub identity: PeerIdentity,
    /// Where events go.
    pub events: mpsc::Sender<NetEvent>,
    /// The number of the last connection.
    pub last: Arc<AtomicU64>,
    /// For each peer: it is there, so that the next attempt to connect need not wait.
    pub present: Arc<Vec<Notify>>,
}

impl PeerNetwork {
    /// Begins to accept connections, and to open one to each peer, until the receiver of events is
    /// gone.
    ///
    /// # Errors
    /// When the listener cannot be used.
    pub fn begin(&self, listener: StdListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        tokio::spawn(self.clone().accept(listener));
        for (peer, address) in self.addresses.iter().enumerate() {
            tokio::spawn(self.clone().dial(peer, *address));
        }
        Ok(())
    }

    fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn accept(self, listener: TcpListener) {
        let of =
            |address: &SocketAddr| (address.ip(), Arc::new(Semaphore::new(HANDSHAKES_OF_PEER)));
        // Peers connect from the address at which they listen.
        let known: BTreeMap<IpAddr, _> = self.addresses.iter().map(of).collect();
        let strangers = Arc::new(Semaphore::new(HANDSHAKES_OF_STRANGERS));
        let established = Arc::new(Semaphore::new(self.addresses.len() * ESTABLISHED));
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let from = from.ip();
            if !known.contains_key(&from) {
                self.turn_away(from, "its address is not in `peers`".to_owned());
            }
            let free = known.get(&from).unwrap_or(&strangers);
            let Ok(permit) = free.clone().try_acquire_owned() else {
                self.turn_away(from, "too many of that address are in a handshake".to_owned());
                continue;
            };
            let limits = Limits { handshake: permit, established: established.clone() };
            tokio::spawn(self.clone().serve(stream, from, limits));
        }
    }

    fn turn_away(&self, from: IpAddr, why: String) {
        let _ = self.events.try_send(NetEvent::TurnedAway { from, why });
    }

    /// A connection of a node that follows this one's log.
    async fn serve(self, stream: TcpStream, from: IpAddr, limits: Limits) {
        let opened = async {
            stream.set_nodelay(true)?;
            let mut stream = TlsAcceptor::from(self.identity.server.clone()).accept(stream).await?;
            let mut bytes = Vec::new();
            let hello = next(&mut stream, &mut bytes).await?;
            Ok::<_, io::Error>((stream, bytes, hello))
        };
        let (stream, bytes, hello) = match timeout(HANDSHAKE, opened).await {
            Ok(Ok(opened)) => opened,
            // A peer that ends.
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            failed => {
                let why = failed.map_or_else(|_| slow(), |opened| why_of(opened.err()));
                self.turn_away(from, why);
                return;
            }
        };
        drop(limits.handshake);
        let Ok(_permit) = limits.established.try_acquire() else {
            self.turn_away(from, "too many old connections of nodes are not over yet".to_owned());
            return;
        };
        let (outbox, messages) = mpsc::channel(OUTBOX);
        let connection = self.number();
        let accepted = NetEvent::Accepted { connection, source: from, hello, outbox };
        if self.events.send(accepted).await.is_ok() {
            let talk = Talk { connection, messages, bytes };
            self.converse(stream, talk).await;
        }
    }

    /// Connects to a peer, again and again.
    async fn dial(self, peer: usize, address: SocketAddr) {
        let mut wait = RETRY.0;
        loop {
            let event = match timeout(HANDSHAKE, self.open(address)).await {
                Ok(Ok(stream)) => {
                    let begun = Instant::now();
                    let (outbox, messages) = mpsc::channel(OUTBOX);
                    let connection = self.number();
                    let has_figures = stream.get_ref().1.alpn_protocol() == Some(VERSION_2);
                    let dialled = NetEvent::Dialled { peer, connection, has_figures, outbox };
                    if self.events.send(dialled).await.is_err() {
                        return;
                    }
                    let talk = Talk { connection, messages, bytes: Vec::new() };
                    self.converse(stream, talk).await;
                    if begun.elapsed() > RETRY.1 {
                        wait = RETRY.0;
                    }
                    None
                }
                Ok(Err(error)) => Some(why_of(Some(error))),
                Err(_) => Some(slow()),
            };
            if let Some(why) = event
                && self.events.send(NetEvent::Unreached { peer, why }).await.is_err()
            {
                return;
            }
            match self.present.get(peer) {
                Some(present) => drop(timeout(wait, present.notified()).await),
                None => sleep(wait).await,
            }
            wait = (wait * 2).min(RETRY.1);
        }
    }

    async fn open(
        &self,
        address: SocketAddr,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // By its source the peer knows that it is one of them, before any handshake.
        socket.bind(SocketAddr::new(self.listen.ip(), 0))?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::IpAddress(address.ip().into());
        TlsConnector::from(self.identity.client.clone()).connect(name, stream).await
    }

    /// Reads and writes messages until either fails, or there is no more to write.
    async fn converse(&self, stream: impl AsyncRead + AsyncWrite, talk: Talk) {
        let Talk { connection, mut messages, mut bytes } = talk;
        let (mut input, mut output) = tokio::io::split(stream);
        let reads = async {
            loop {
                match timeout(SILENCE, next(&mut input, &mut bytes)).await {
                    Ok(Ok(message)) => {
                        let event = NetEvent::Message { connection, message };
                        if self.events.send(event).await.is_err() {
                            return String::new();
                        }
                    }
                    Ok(Err(error)) => return why_of(Some(error)),
                    Err(_) => return "it is silent".to_owned(),
                }
            }
        };
        let writes = async {
            while let Some(message) = messages.recv().await {
                let bytes = message.encode();
                let written = async {
                    output.write_all(&bytes).await?;
                    output.flush().await
                };
                match timeout(SILENCE, written).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return why_of(Some(error)),
                    Err(_) => return "it does not read".to_owned(),
                }
            }
            let _ = timeout(HANDSHAKE, output.shutdown()).await;
            "this node has closed it".to_owned()
        };
        let why = tokio::select! {
            why = reads => why,
            why = writes => why,
        };
        let _ = self.events.send(NetEvent::Over { connection, why }).await;
    }
}

/// What bounds accepted connections.
struct Limits {
    handshake: OwnedSemaphorePermit,
    established: Arc<Semaphore>,
}

/// What a connection begins with.
struct Talk {
    connection: u64,
    messages: mpsc::Receiver<PeerMessage>,
    /// Received, and not yet read.
    bytes: Vec<u8>,
}

/// Reads the next message.
async fn next(
    input: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
) -> io::Result<PeerMessage> {
    loop {
        let strange = |_| io::Error::other("it sent what is no message of a node");
        if let Some((message, length)) = PeerMessage::parse(bytes).map_err(strange)? {
            bytes.drain(..length);
            return Ok(message);
        }
        bytes.reserve(READ_BYTES);
        if input.read_buf(bytes).await? == 0 {
            return Err(io::Error::other(CLOSED));
        }
    }
}

fn slow() -> String {
    format!("it has not replied within {} s", HANDSHAKE.as_secs())
}

fn why_of(error: Option<io::Error>) -> String {
    let Some(error) = error else { return String::new() };
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return CLOSED.to_owned();
    }
    handshake_error(&error).map_or_else(|| error.to_string(), str::to_owned)
}
