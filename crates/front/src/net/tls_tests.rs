use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::SystemTime;

use maitred_tls::{LocalAuthority, Pair, PemFile};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;
use crate::net::socket::Family;

/// The configurations of a server for localhost and of its client.
fn configurations() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let now = SystemTime::now();
    let authority = LocalAuthority::create(now).unwrap();
    let root = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap();
    let file = |text: &str| PemFile::new("authority.pem".into(), text.as_bytes());
    let pair = Pair::new(file(&authority.certificate), file(&authority.key));
    let own = LocalAuthority::read(&pair, now).unwrap().issue(&[], now).unwrap();
    let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![certificate], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

#[tokio::test]
async fn no_more_bytes_count_as_sent_than_the_caller_has_asked_to_send() {
    let (server, client) = configurations();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    accepted.set_nonblocking(true).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&accepted, 4096).unwrap();
    let all: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_be_bytes).collect();
    let (start, started) = mpsc::channel::<()>();
    let length = all.len();
    let reads = std::thread::spawn(move || {
        let name = ServerName::try_from("localhost").unwrap();
        let mut session = ClientConnection::new(client, name).unwrap();
        session.complete_io(&mut socket).unwrap();
        started.recv().unwrap();
        let mut read = vec![0; length];
        rustls::Stream::new(&mut session, &mut socket).read_exact(&mut read).unwrap();
        read
    });
    let socket = Socket::accepted(accepted.into(), Family::Tcp, false).unwrap();
    let mut stream = TlsStream::new(socket, BytesMut::new(), server).unwrap();
    stream.handshake().await.unwrap();
    let mut sent = 0;
    // The client does not read: a whole piece is encrypted in the end, and not counted.
    while let Some(count) = stream.try_send(&all[sent..], true).unwrap() {
        sent += count;
    }
    assert!(stream.has_promised());
    start.send(()).unwrap();
    while sent < all.len() {
        let few = &all[sent..all.len().min(sent + 1000)];
        match stream.try_send(few, true).unwrap() {
            Some(count) => {
                assert!(count <= few.len(), "{count} of {} bytes", few.len());
                sent += count;
            }
            None => stream.socket_mut().writable().await.unwrap(),
        }
    }
    assert!(reads.join().unwrap() == all, "the client has other bytes");
}

#[test]
fn plain_http_is_known_by_its_first_byte() {
    assert!(is_plain_http(b"GET / HTTP/1.1\r\n"));
    assert!(is_plain_http(b"PRI * HTTP/2.0\r\n"));
    assert!(!is_plain_http(&[HANDSHAKE_RECORD, 3, 1]));
    assert!(!is_plain_http(&[0x80, 0x2e, 1]));
    assert!(!is_plain_http(b""));
}
