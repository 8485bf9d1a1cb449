//! The PROXY protocol (versions 1 and 2, haproxy.org/download/2.9/doc/proxy-protocol.txt): what a
//! proxy sends of its client before the client's first byte.

use std::net::{IpAddr, SocketAddr};

use ppp::{HeaderResult, PartialResult, v1, v2};

/// The beginning of a header of version 1.
const V1_START: &[u8] = b"PROXY ";

/// Longest header of version 1 with its line end (§2.1), in bytes.
const MAX_V1_BYTES: usize = 107;

/// The kind of the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionStart {
    /// A header of this length with the client's address; none: the connection is the proxy's own
    /// (`LOCAL`).
    Header(usize, Option<SocketAddr>),
    /// The header of a proxy that does not know its client's address.
    Unknown,
    /// An incomplete header.
    Part,
    /// No header.
    Other,
}

impl ConnectionStart {
    /// What the first bytes of a connection are.
    pub fn of(bytes: &[u8]) -> ConnectionStart {
        // The line of version 1 may still become a header, whatever its last word is by now.
        if bytes.starts_with(V1_START) && memchr::memmem::find(bytes, b"\r\n").is_none() {
            return match bytes.len() < MAX_V1_BYTES {
                true => ConnectionStart::Part,
                false => ConnectionStart::Other,
            };
        }
        let header = HeaderResult::parse(bytes);
        if header.is_incomplete() {
            return ConnectionStart::Part;
        }
        match header {
            HeaderResult::V1(Ok(header)) => {
                let length = header.header.len();
                match &header.addresses {
                    v1::Addresses::Tcp4(way) => from(length, way.source_address, way.source_port),
                    v1::Addresses::Tcp6(way) => from(length, way.source_address, way.source_port),
                    v1::Addresses::Unknown => ConnectionStart::Unknown,
                }
            }
            HeaderResult::V2(Ok(header)) => {
                let length = header.as_bytes().len();
                match (header.command, &header.addresses) {
                    (v2::Command::Local, _) => ConnectionStart::Header(length, None),
                    (_, v2::Addresses::IPv4(way)) => {
                        from(length, way.source_address, way.source_port)
                    }
                    (_, v2::Addresses::IPv6(way)) => {
                        from(length, way.source_address, way.source_port)
                    }
                    (_, v2::Addresses::Unspecified | v2::Addresses::Unix(_)) => {
                        ConnectionStart::Unknown
                    }
                }
            }
            HeaderResult::V1(Err(_)) | HeaderResult::V2(Err(_)) => ConnectionStart::Other,
        }
    }
}

fn from(length: usize, address: impl Into<IpAddr>, port: u16) -> ConnectionStart {
    ConnectionStart::Header(length, Some(SocketAddr::new(address.into(), port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_either_version_names_the_client() {
        let text = b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\n";
        let client = "192.0.2.1:4711".parse().ok();
        assert_eq!(ConnectionStart::of(text), ConnectionStart::Header(39, client));
        let text = b"PROXY TCP6 2001:db8::1 ::1 4711 80\r\n";
        assert_eq!(
            ConnectionStart::of(text),
            ConnectionStart::Header(36, "[2001:db8::1]:4711".parse().ok())
        );
        assert_eq!(ConnectionStart::of(b"PROXY UNKNOWN\r\nGET"), ConnectionStart::Unknown);
        let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        binary.extend_from_slice(&[192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 0, 80]);
        binary.extend_from_slice(b"GET / HTTP/1.1\r\n");
        assert_eq!(ConnectionStart::of(&binary), ConnectionStart::Header(28, client));
        binary[12] = 0x20;
        assert_eq!(
            ConnectionStart::of(&binary),
            ConnectionStart::Header(28, None),
            "LOCAL is the proxy itself"
        );
        let unspecified = b"\r\n\r\n\0\r\nQUIT\n\x21\x00\0\0GET / HTTP/1.1\r\n";
        assert_eq!(ConnectionStart::of(unspecified), ConnectionStart::Unknown);
    }

    #[test]
    fn a_part_may_become_a_header_and_anything_else_may_not() {
        for part in [&b"PROXY TC"[..], b"PROXY TCP4 192.0.2.1 10.0", b"\r\n\r\n\0\r\nQUIT\n\x21"] {
            assert_eq!(ConnectionStart::of(part), ConnectionStart::Part, "{part:?}");
        }
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"PROXY TCP5 a b c d\r\n", b"\x16\x03\x01\x02\0"]
        {
            assert_eq!(ConnectionStart::of(other), ConnectionStart::Other, "{other:?}");
        }
    }

    #[test]
    fn a_header_may_come_in_any_two_parts() {
        let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        binary.extend_from_slice(&[192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 0, 80]);
        let headers: [&[u8]; 4] = [
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n",
            b"PROXY TCP6 2001:db8::1 ::1 4711 80\r\n",
            b"PROXY UNKNOWN\r\n",
            &binary,
        ];
        for header in headers {
            for end in 1..header.len() {
                let part = &header[..end];
                assert_eq!(ConnectionStart::of(part), ConnectionStart::Part, "{part:?}");
            }
            assert_ne!(ConnectionStart::of(header), ConnectionStart::Part);
        }
        let endless = [b"PROXY TCP4 ", &[b'1'; 100][..]].concat();
        assert_eq!(ConnectionStart::of(&endless), ConnectionStart::Other);
    }
}
