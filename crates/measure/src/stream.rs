//! Connections to a server: TCP or a Unix socket, with or without TLS.

use std::fmt::Debug;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::plan::{Address, Endpoint};

/// What a connection can do, whatever carries it.
pub trait Transport: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Debug + Send + Unpin> Transport for T {}

/// A connection.
pub type Stream = Box<dyn Transport>;

/// The protocol that a server chose with ALPN (RFC 7301).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Negotiated {
    /// There is no TLS, so nothing was negotiated.
    Plaintext,
    /// The protocol's name, if the server chose one.
    Alpn(Option<Vec<u8>>),
}

/// Connects, with the TLS handshake if the endpoint has TLS.
///
/// # Errors
/// The kernel's, or TLS's.
pub async fn connect(endpoint: &Endpoint) -> io::Result<(Stream, Negotiated)> {
    let plain: Stream = match &endpoint.address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
    };
    let Some(tls) = &endpoint.tls else {
        return Ok((plain, Negotiated::Plaintext));
    };
    let connector = TlsConnector::from(tls.config.clone());
    let secured = connector.connect(tls.name.clone(), plain).await?;
    let alpn = secured.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    Ok((Box::new(secured), Negotiated::Alpn(alpn)))
}
