//! Connections with random requests of HTTP/1, by grammar: most have one or two oddities, so that
//! some server takes them. The seed is all that one depends on.

use fastrand::Rng;

/// A line of a header section, without its end.
type Line = Vec<u8>;

/// Ways to end a line, the right one first.
const LINE_ENDS: [&str; 6] = ["\r\n", "\n", "\r", "\r\r\n", "\n\r", " \r\n"];
/// Request lines: `@` is the path and query, `~` a user and its `@`.
const REQUEST_LINES: [&str; 24] = [
    "POST http://a.example@ HTTP/1.1",
    "POST http://A.Example@ HTTP/1.1",
    "POST HTTP://a.example@ HTTP/1.1",
    "POST http://a.example:80@ HTTP/1.1",
    "POST https://a.example@ HTTP/1.1",
    "POST http://b.example@ HTTP/1.1",
    "POST http://~a.example@ HTTP/1.1",
    "POST http://@ HTTP/1.1",
    "POST //a.example@ HTTP/1.1",
    "POST @#f HTTP/1.1",
    "POST @&a=%20%00%0d%0a HTTP/1.1",
    "POST @&a=\"<>\\^`{|} HTTP/1.1",
    "POST @&a=\u{e9} HTTP/1.1",
    "POST @ HTTP/1.0",
    "POST @ HTTP/1.2",
    "POST @ HTTP/2.0",
    "POST @ HTTP/01.1",
    "POST @ http/1.1",
    "POST @  HTTP/1.1",
    "POST  @ HTTP/1.1",
    "POST\t@ HTTP/1.1",
    "POST @",
    "post @ HTTP/1.1",
    "P\u{0}ST @ HTTP/1.1",
];
const METHODS: [&str; 6] = ["GET", "PUT", "OPTIONS", "DELETE", "PATCH", "FROB"];
/// Lines in place of a plain `Host`.
const HOSTS: [&str; 20] = [
    "host:a.example",
    "HOST:\t a.example \t",
    "Host: A.EXAMPLE",
    "Host: a.example:80",
    "Host: a.example:",
    "Host: a.example.",
    "Host: b.example",
    "Host: 127.0.0.1",
    "Host: [::1]",
    "Host:",
    "Host : a.example",
    "Host: a.example, b.example",
    "Host: a.example b.example",
    "Host: a.example/x",
    "Host: u@a.example",
    "Host: a.example:99999",
    "Host: a_example",
    "Host: a.exa%6dple",
    "Host: a.example\r\nHost: b.example",
    "X: y",
];
/// Values of Content-Length: `@` is the right one, `+` one more, `-` one less.
const LENGTHS: [&str; 24] = [
    "0@",
    "000000000000000000000@",
    "@ ",
    "\t@",
    "@\u{b}",
    "\u{c}@",
    "@,@",
    "@, @",
    "@,",
    ",@",
    "@;",
    "@.0",
    "0x@",
    "\"@\"",
    "@ @",
    "@e0",
    "\\@",
    "'@",
    "@_0",
    "\u{a0}@",
    "",
    "+",
    "-",
    "0",
];
const LENGTH_NAMES: [&str; 8] = [
    "content-length: ",
    "CONTENT-LENGTH:",
    "Content-Length : ",
    "Content_Length: ",
    "Content-Length\t: ",
    " Content-Length: ",
    "Content-Length:\r\n ",
    "X: y\nContent-Length: ",
];
const CODINGS: [&str; 26] = [
    "CHUNKED",
    "Chunked",
    "chunked ",
    "\tchunked",
    "chunked\t",
    "chunked,",
    ",chunked",
    ", chunked",
    "chunked, chunked",
    "chunked,identity",
    "identity, chunked",
    "identity",
    "gzip, chunked",
    "chunked, gzip",
    "chunked;q=1",
    "chunked; a=b",
    "\"chunked\"",
    "'chunked'",
    "xchunked",
    "chunkedx",
    "chunked\u{b}",
    "\u{b}chunked",
    "chunked\u{0}",
    "chun\u{212a}ed",
    "",
    "trailers",
];
const CODING_NAMES: [&str; 10] = [
    "transfer-encoding:",
    "TRANSFER-ENCODING: ",
    "Transfer-Encoding : ",
    "Transfer_Encoding: ",
    "Transfer-Encoding\t: ",
    " Transfer-Encoding: ",
    "Transfer-Encoding:\r\n ",
    "X: y\nTransfer-Encoding: ",
    "X: y\rTransfer-Encoding: ",
    "TE: ",
];
/// Further lines of a header section.
const OTHERS: [&str; 32] = [
    "Connection: close",
    "Connection: keep-alive",
    "Connection: close, keep-alive",
    "Connection: Content-Length",
    "Connection: Transfer-Encoding",
    "Connection: Host",
    "Connection: close;a",
    "Connection: \"close\"",
    "Connection: keep-alive\r\nConnection: close",
    "Proxy-Connection: close",
    "Keep-Alive: timeout=5",
    "Expect: 100-continue",
    "Expect: 200-ok",
    "Expect:",
    "Trailer: Content-Length",
    "TE: trailers, chunked",
    "Upgrade: h2c",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk",
    "X: folded\r\n over",
    "X: folded\r\n\tContent-Length: 5",
    "X: \u{0}",
    "X: \u{7f}",
    "X: \u{ff}",
    "X: a\rb",
    "X: a\nb",
    "X",
    ": x",
    "X Y: z",
    "X(Y): z",
    "",
    "Content-Encoding: gzip",
];
/// Sizes of a chunk: `@` is the right one.
const SIZES: [&str; 22] = [
    "0@",
    "00000000@",
    "000000000000000@",
    "0000000000000000@",
    "0x@",
    "+@",
    "-@",
    " @",
    "@ ",
    "@\t",
    "@\u{b}",
    "@;",
    "@;a",
    "@;a=b",
    "@ ; a = \"b;c\"",
    "@;a=\"\r\n\"",
    "@;a\nb",
    "@;\u{0}",
    "@g",
    "@_",
    "@.0",
    "1@",
];
const TRAILERS: [&str; 14] = [
    "X: y",
    "Content-Length: 5",
    "Transfer-Encoding: chunked",
    "Host: b.example",
    "X:",
    "X",
    ": y",
    " X: y",
    "X : y",
    "X: a\r\n b",
    "X: a\nY: b",
    "X: a\rY: b",
    "X: \u{0}",
    "GET /echo.php?trailer HTTP/1.1",
];
/// Bytes of a header in the requests at a connection's end.
const PADDING_BYTES: usize = 500;
/// Bytes that are put somewhere: each means something to some parser.
const BYTES: &[u8] = b"\0\t\n\x0b\x0c\r \"',/0:;\\\x7f\x80\x85\xa0\xff";

/// The bytes of the connection with this number, of this seed.
pub fn connection(seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random(Rng::with_seed(seed.wrapping_mul(1 << 32).wrapping_add(number)));
    let mut bytes = Vec::new();
    for position in 0..random.0.usize(1..3) {
        bytes.extend(random.request(&format!("/echo.php?n={number}.{position}")));
    }
    if random.in_hundred(4) {
        random.spoil(&mut bytes);
    }
    // A server that takes too many bytes for a body does not wait: it finds nothing that it
    // understands after them.
    let padding = padding();
    for (name, field) in [("tail", "X: y"), ("end", "Connection: close")] {
        let request = format!(
            "GET /echo.php?n={number}.{name} HTTP/1.1\r\nHost: a.example\r\nX: {padding}\r\n\
             {field}\r\n\r\n"
        );
        bytes.extend(request.as_bytes());
    }
    bytes
}

/// What makes the requests at a connection's end long.
pub fn padding() -> String {
    "x".repeat(PADDING_BYTES)
}

struct Random(Rng);

impl Random {
    fn in_hundred(&mut self, chances: u32) -> bool {
        self.0.u32(0..100) < chances
    }

    fn of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.0.usize(0..all.len())]
    }

    /// Mostly the usual one.
    fn mostly<'t>(&mut self, usual: &'t str, others: &[&'t str], chances: u32) -> &'t str {
        if self.in_hundred(chances) { self.of(others) } else { usual }
    }

    fn request(&mut self, target: &str) -> Vec<u8> {
        // Of how many of its parts something is odd.
        let oddity = self.0.u32(1..8);
        let mut lines = vec![self.request_line(target, oddity)];
        lines.push(latin(self.mostly("Host: a.example", &HOSTS, 3 * oddity)));
        let content = self.content(target);
        let body = match self.0.u8(0..10) {
            0..4 => {
                lines.push(self.length(content.len(), 8 * oddity));
                content
            }
            4..8 => {
                lines.push(self.coding(8 * oddity));
                self.chunks(&content, 3 * oddity)
            }
            8 => {
                let chunks = self.chunks(&content, 2);
                let length = self.length(chunks.len(), 20);
                let pair = [length, self.coding(40)];
                lines.extend(pair);
                chunks
            }
            _ => Vec::new(),
        };
        while self.in_hundred(25 + oddity) {
            lines.push(latin(self.of(&OTHERS)));
        }
        // The line that decides about the body is not always the last.
        self.0.shuffle(&mut lines[1..]);
        [self.lines(&lines, oddity), body].concat()
    }

    fn request_line(&mut self, target: &str, oddity: u32) -> Line {
        let line = self.mostly("POST @ HTTP/1.1", &REQUEST_LINES, 3 * oddity);
        let method = self.mostly("POST", &METHODS, 15);
        let line = line.replacen("POST", method, 1).replace('@', target).replace('~', "u@");
        [latin(self.mostly("", &["\r\n", "\r\n\r\n", "\n", " ", "\r"], oddity)), latin(&line)]
            .concat()
    }

    /// A body: a few bytes, or what looks like a request or the end of chunks.
    fn content(&mut self, target: &str) -> Vec<u8> {
        let inner = target.replace("n=", "inner=");
        let inner = format!("GET {inner} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        match self.0.u8(0..8) {
            0 => Vec::new(),
            1 => inner.into_bytes(),
            2 => format!("0\r\n\r\n{inner}").into_bytes(),
            3 => b"0\r\n\r\n".to_vec(),
            4 => b"\r\n".to_vec(),
            _ => "abcdefghijklmnop".as_bytes()[..self.0.usize(1..16)].to_vec(),
        }
    }

    fn length(&mut self, length: usize, chances: u32) -> Line {
        let name = self.mostly("Content-Length: ", &LENGTH_NAMES, chances / 2);
        let value = self.mostly("@", &LENGTHS, chances);
        let value = match value {
            "+" => (length + 1).to_string(),
            "-" => length.saturating_sub(1).to_string(),
            value => value.replace('@', &length.to_string()),
        };
        let line = [latin(name), latin(&value)].concat();
        if self.in_hundred(chances / 8) {
            let other = self.of(&["", "0", "9"]);
            return [&line, &b"\r\nContent-Length: "[..], value.as_bytes(), other.as_bytes()]
                .concat();
        }
        line
    }

    fn coding(&mut self, chances: u32) -> Line {
        let name = self.mostly("Transfer-Encoding: ", &CODING_NAMES, chances / 2);
        let line = [latin(name), latin(self.mostly("chunked", &CODINGS, chances))].concat();
        if self.in_hundred(chances / 8) {
            let second = latin(self.mostly("chunked", &CODINGS, 50));
            return [&line, &b"\r\nTransfer-Encoding: "[..], &second].concat();
        }
        line
    }

    fn chunks(&mut self, content: &[u8], chances: u32) -> Vec<u8> {
        let mut body = Vec::new();
        let parts = content.chunks(self.0.usize(1..=content.len().max(1)).max(4));
        for part in parts {
            let size = match self.0.bool() {
                true => format!("{:x}", part.len()),
                false => format!("{:X}", part.len()),
            };
            self.size(&size, chances, &mut body);
            body.extend(part);
            body.extend(self.mostly("\r\n", &["\n", "\r", "", "\r\r\n", "x\r\n"], chances).bytes());
        }
        self.size("0", chances, &mut body);
        while self.in_hundred(10 + chances) {
            body.extend(latin(self.mostly("X: y", &TRAILERS, 20 + chances)));
            body.extend(self.mostly("\r\n", &LINE_ENDS, chances).bytes());
        }
        body.extend(self.mostly("\r\n", &["\n", "\r", "", "\r\r\n"], chances).bytes());
        body
    }

    fn size(&mut self, size: &str, chances: u32, body: &mut Vec<u8>) {
        body.extend(latin(&self.mostly("@", &SIZES, chances).replace('@', size)));
        body.extend(self.mostly("\r\n", &LINE_ENDS, chances / 2).bytes());
    }

    fn lines(&mut self, lines: &[Line], oddity: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(line);
            bytes.extend(self.mostly("\r\n", &LINE_ENDS, oddity / 2).bytes());
        }
        bytes.extend(self.mostly("\r\n", &LINE_ENDS, oddity / 2).bytes());
        bytes
    }

    /// Puts, replaces or removes a byte.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        let at = self.0.usize(0..bytes.len());
        let byte = BYTES[self.0.usize(0..BYTES.len())];
        match self.0.u8(0..3) {
            0 => bytes.insert(at, byte),
            1 => bytes[at] = byte,
            _ => drop(bytes.remove(at)),
        }
    }
}

/// Each character up to U+00FF as its byte; others as UTF-8.
fn latin(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u8::try_from(c) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend(c.to_string().bytes()),
        }
    }
    bytes
}
