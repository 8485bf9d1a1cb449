//! Doubtful requests of HTTP/2, and what maitred makes of them: whatever would be more than one
//! request, or another one, if it were written as HTTP/1 or as FastCGI.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};

use maitred_tests::http2::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, fields, frame,
};
use maitred_tests::wait::DEADLINE;

/// A request that two servers may read differently, or that looks like one.
#[derive(Debug)]
pub struct FramesCase {
    /// What is odd about it.
    pub name: &'static str,
    /// Its headers; those of a plain GET where nothing is said of them.
    fields: &'static [(&'static str, &'static str)],
    /// Its body, if it has one.
    body: Option<&'static str>,
    /// What maitred does.
    pub wanted: &'static str,
}

const METHOD: (&str, &str) = (":method", "GET");
const POST: (&str, &str) = (":method", "POST");
const SCHEME: (&str, &str) = (":scheme", "http");
const PATH: (&str, &str) = (":path", "/echo.php");
const HOST: (&str, &str) = (":authority", "a.example");

/// A request that is malformed (RFC 9113 §8.1.1).
const RESET: &str = "reset: PROTOCOL_ERROR";
/// Indistinguishable from an error in the compression of headers.
const CLOSED: &str = "closed: PROTOCOL_ERROR";
/// The HTTP/2 library cuts a fragment off.
const FRAGMENT: &str = "200 `GET /echo.php a.example \"\"`";

macro_rules! get {
    ($($field:expr),*) => { &[METHOD, SCHEME, PATH, HOST, $($field),*] };
}
macro_rules! post {
    ($($field:expr),*) => { &[POST, SCHEME, PATH, HOST, $($field),*] };
}

/// The table.
#[rustfmt::skip]
pub const FRAMES: &[FramesCase] = &[
    FramesCase { name: "a plain request", fields: get!(), body: None,
        wanted: "200 `GET /echo.php a.example \"\"`" },
    FramesCase { name: "`content-length: 3`, and as much", fields: post!(("content-length", "3")),
        body: Some("abc"),
        wanted: "200 `POST /echo.php a.example \"abc\"`" },
    FramesCase { name: "`content-length: 3`, and less", fields: post!(("content-length", "3")),
        body: Some("ab"), wanted: RESET },
    FramesCase { name: "`content-length: 3`, and more", fields: post!(("content-length", "3")),
        body: Some("abcd"), wanted: RESET },
    FramesCase { name: "`content-length: 3`, and no body", fields: post!(("content-length", "3")),
        body: None, wanted: RESET },
    FramesCase { name: "`content-length: 3`, then `4`",
        fields: post!(("content-length", "3"), ("content-length", "4")), body: Some("abc"),
        wanted: RESET },
    FramesCase { name: "`content-length: 3`, twice",
        fields: post!(("content-length", "3"), ("content-length", "3")), body: Some("abc"),
        wanted: "400" },
    FramesCase { name: "`content-length: 0`, and a body", fields: post!(("content-length", "0")),
        body: Some("abc"), wanted: RESET },
    FramesCase { name: "`content-length: +3`", fields: post!(("content-length", "+3")),
        body: Some("abc"), wanted: RESET },
    FramesCase { name: "`content-length: 3, 3`", fields: post!(("content-length", "3, 3")),
        body: Some("abc"), wanted: RESET },
    FramesCase { name: "`transfer-encoding: chunked`",
        fields: post!(("transfer-encoding", "chunked")), body: Some("0\r\n\r\n"), wanted: RESET },
    FramesCase { name: "`connection: close`", fields: get!(("connection", "close")), body: None,
        wanted: RESET },
    FramesCase { name: "`keep-alive: 5`", fields: get!(("keep-alive", "5")), body: None,
        wanted: RESET },
    FramesCase { name: "`proxy-connection: close`", fields: get!(("proxy-connection", "close")),
        body: None, wanted: RESET },
    FramesCase { name: "`upgrade: h2c`", fields: get!(("upgrade", "h2c")), body: None,
        wanted: RESET },
    FramesCase { name: "`te: gzip`", fields: get!(("te", "gzip")), body: None, wanted: RESET },
    FramesCase { name: "`te: trailers`", fields: get!(("te", "trailers")), body: None,
        wanted: "200 `GET /echo.php a.example \"\"`" },
    FramesCase { name: "CR LF and a header in a value", fields: get!(("x", "y\r\nhost: b.example")),
        body: None, wanted: CLOSED },
    FramesCase { name: "LF in a value", fields: get!(("x", "y\nz")), body: None, wanted: CLOSED },
    FramesCase { name: "CR in a value", fields: get!(("x", "y\rz")), body: None, wanted: CLOSED },
    FramesCase { name: "NUL in a value", fields: get!(("x", "y\0z")), body: None, wanted: CLOSED },
    FramesCase { name: "a value that starts with a space", fields: get!(("x", " y")), body: None,
        wanted: "400" },
    FramesCase { name: "CR LF in a name", fields: get!(("x: y\r\nz", "1")), body: None,
        wanted: CLOSED },
    FramesCase { name: "a colon in a name", fields: get!(("x:y", "1")), body: None,
        wanted: CLOSED },
    FramesCase { name: "a space in a name", fields: get!(("x y", "1")), body: None,
        wanted: CLOSED },
    FramesCase { name: "an upper-case letter in a name", fields: get!(("Host", "b.example")),
        body: None, wanted: CLOSED },
    FramesCase { name: "an empty name", fields: get!(("", "1")), body: None, wanted: CLOSED },
    FramesCase { name: "`:method` with a request in it",
        fields: &[(":method", "GET /echo.php HTTP/1.1\r\nhost: a.example\r\n\r\nGET"), SCHEME, PATH,
            HOST],
        body: None, wanted: CLOSED },
    FramesCase { name: "`:path` with a request in it",
        fields: &[METHOD, SCHEME, (":path", "/echo.php HTTP/1.1\r\nhost: b.example\r\n\r\n"), HOST],
        body: None, wanted: RESET },
    FramesCase { name: "`:path` with NUL",
        fields: &[METHOD, SCHEME, (":path", "/echo.php\0.txt"), HOST], body: None, wanted: RESET },
    FramesCase { name: "`:scheme` with a request in it",
        fields: &[METHOD,
            (":scheme", "http://a.example/echo.php HTTP/1.1\r\nhost: b.example\r\n\r\n"),
            PATH, HOST],
        body: None, wanted: RESET },
    FramesCase { name: "`:scheme` that is an address",
        fields: &[METHOD, (":scheme", "http://b.example/?x="), PATH, HOST], body: None,
        wanted: RESET },
    FramesCase { name: "`:x-host`, an unknown pseudo-header",
        fields: get!((":x-host", "b.example")), body: None, wanted: CLOSED },
    FramesCase { name: "`:path` with a space",
        fields: &[METHOD, SCHEME, (":path", "/echo.php x"), HOST], body: None, wanted: RESET },
    FramesCase { name: "`:path` that is empty", fields: &[METHOD, SCHEME, (":path", ""), HOST],
        body: None, wanted: RESET },
    FramesCase { name: "`:path` without its slash",
        fields: &[METHOD, SCHEME, (":path", "echo.php"), HOST], body: None, wanted: RESET },
    FramesCase { name: "`:path` that is an address",
        fields: &[METHOD, SCHEME, (":path", "http://b.example/echo.php"), HOST], body: None,
        wanted: RESET },
    FramesCase { name: "`:path` with a fragment",
        fields: &[METHOD, SCHEME, (":path", "/echo.php#x"), HOST], body: None, wanted: FRAGMENT },
    FramesCase { name: "no `:path`", fields: &[METHOD, SCHEME, HOST], body: None, wanted: RESET },
    FramesCase { name: "`:path` twice", fields: &[METHOD, SCHEME, PATH, PATH, HOST], body: None,
        wanted: RESET },
    FramesCase { name: "no `:method`", fields: &[SCHEME, PATH, HOST], body: None, wanted: RESET },
    FramesCase { name: "no `:scheme`", fields: &[METHOD, PATH, HOST], body: None, wanted: RESET },
    FramesCase { name: "`:status` in a request",
        fields: &[METHOD, SCHEME, PATH, HOST, (":status", "200")], body: None, wanted: RESET },
    FramesCase { name: "`:path` after a header", fields: &[METHOD, SCHEME, HOST, ("x", "y"), PATH],
        body: None, wanted: RESET },
    FramesCase { name: "`:authority` and another `host`", fields: get!(("host", "b.example")),
        body: None, wanted: "400" },
    FramesCase { name: "`host` twice, and no `:authority`",
        fields: &[METHOD, SCHEME, PATH, ("host", "a.example"), ("host", "b.example")], body: None,
        wanted: "400" },
    FramesCase { name: "neither `:authority` nor `host`", fields: &[METHOD, SCHEME, PATH],
        body: None, wanted: "400" },
    FramesCase { name: "`:authority: user@a.example`",
        fields: &[METHOD, SCHEME, PATH, (":authority", "user@a.example")], body: None,
        wanted: "400" },
    FramesCase { name: "`:authority` with CR LF",
        fields: &[METHOD, SCHEME, PATH, (":authority", "a.example\r\nx: y")], body: None,
        wanted: RESET },
    FramesCase { name: "`:authority: A.example` and `host: a.example`",
        fields: &[METHOD, SCHEME, PATH, (":authority", "A.example"), ("host", "a.example")],
        body: None,
        wanted: "200 `GET /echo.php A.example \"\"`" },
    FramesCase { name: "`:authority: a.example` and `host: a.example:80`",
        fields: get!(("host", "a.example:80")), body: None, wanted: "400" },
    FramesCase { name: "`CONNECT`",
        fields: &[(":method", "CONNECT"), (":authority", "a.example:80")],
        body: None, wanted: "501" },
];

impl FramesCase {
    /// The whole of what a client sends.
    pub fn bytes(&self) -> Vec<u8> {
        let end = if self.body.is_some() { 0 } else { END_STREAM };
        let head = frame(HEADERS, END_HEADERS | end, 1, &fields(self.fields));
        let body = self.body.map(|body| frame(DATA, END_STREAM, 1, body.as_bytes()));
        [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[]), head, body.unwrap_or_default()].concat()
    }

    /// What a server makes of it.
    pub fn ask(&self, address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time-out can be set");
        let _ = std::io::Write::write_all(&mut stream, &self.bytes());
        outcome(&mut stream)
    }
}

/// What becomes of the request on stream 1.
///
/// # Panics
/// When nothing does.
pub fn outcome(stream: &mut impl Read) -> String {
    let (mut status, mut body) = (None, Vec::new());
    loop {
        let mut head = [0; 9];
        match stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if is_end(&error) => return "closed".to_owned(),
            Err(error) => panic!("nothing becomes of the request: {error}"),
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).expect("a frame is whole");
        let (kind, flags, number) =
            (head[3], head[4], u32::from_be_bytes([0, head[6], head[7], head[8]]));
        match kind {
            GOAWAY if error(&payload, 4) != Some(0) => {
                return format!("closed: {}", name(&payload, 4));
            }
            RST_STREAM if number == 1 => return format!("reset: {}", name(&payload, 0)),
            HEADERS if number == 1 => status = Some(status_in(&payload)),
            DATA if number == 1 => body.extend(payload),
            _ => continue,
        }
        if flags & END_STREAM != 0
            && let Some(status) = status
        {
            return told(status, &body);
        }
    }
}

fn is_end(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | UnexpectedEof)
}

fn told(status: u16, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    match body.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((seen, _)) if status == 200 => format!("200 `{seen}`"),
        _ => status.to_string(),
    }
}

fn error(payload: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(payload.get(at..at + 4)?.try_into().ok()?))
}

/// The name of an error (RFC 9113 §7).
fn name(payload: &[u8], at: usize) -> String {
    match error(payload, at) {
        Some(0) => "NO_ERROR".to_owned(),
        Some(1) => "PROTOCOL_ERROR".to_owned(),
        Some(2) => "INTERNAL_ERROR".to_owned(),
        Some(7) => "REFUSED_STREAM".to_owned(),
        Some(code) => format!("error {code}"),
        None => "an error".to_owned(),
    }
}

/// The status at the beginning of an answer's headers (RFC 7541 §6 and its appendices A and B).
fn status_in(block: &[u8]) -> u16 {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    // A change of the table's size may come first.
    let block = &block[block.iter().take_while(|byte| *byte & 0xe0 == 0x20).count()..];
    if let Some(status) = block[0].checked_sub(0x88).and_then(|at| INDEXED.get(usize::from(at))) {
        return *status;
    }
    let (is_packed, length) = (block[1] & 0x80 != 0, usize::from(block[1] & 0x7f));
    let value = &block[2..2 + length];
    let digits = match is_packed {
        true => unpack(value),
        false => String::from_utf8_lossy(value).into_owned(),
    };
    digits.parse().expect("a status is a number")
}

/// The three digits of a status in Huffman's code: five bits for 0, 1 and 2, six for the others.
fn unpack(bytes: &[u8]) -> String {
    let bits: Vec<u8> =
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0, |number, bit| number << 1 | bit);
    let (mut at, mut digits) = (0, String::new());
    while digits.len() < 3 {
        let short = number(&bits[at..at + 5]);
        let (digit, taken) = match short {
            0..=2 => (short, 5),
            _ => (number(&bits[at..at + 6]) - 0x19 + 3, 6),
        };
        digits.push(char::from(b'0' + digit));
        at += taken;
    }
    digits
}
