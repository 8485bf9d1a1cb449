//! A server behind proxies: it reads what they send strictly, and says what it has seen.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::reading::{self, SEEN};

/// The status for what it does not understand: no proxy may send that.
pub const UNREADABLE: u16 = 599;

/// Serves each connection in a thread until the test ends; returns the address.
pub fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || converse(stream));
        }
    });
    address
}

fn converse(stream: TcpStream) {
    let mut output = stream.try_clone().expect("a socket can be cloned");
    let mut input = BufReader::new(stream);
    loop {
        let said = match request(&mut input, &mut output) {
            Some(Ok(seen)) => format!("200 OK\r\n{SEEN}: {seen}"),
            Some(Err(())) => format!("{UNREADABLE} Unreadable"),
            None => return,
        };
        let response = format!("HTTP/1.1 {said}\r\nContent-Length: 0\r\n\r\n");
        let is_unreadable = said.starts_with(&UNREADABLE.to_string());
        if output.write_all(response.as_bytes()).is_err() || is_unreadable {
            return;
        }
    }
}

/// The next request, as the value of [`SEEN`]; none at the end of the connection.
fn request(input: &mut impl BufRead, output: &mut impl Write) -> Option<Result<String, ()>> {
    let lines = match head(input)? {
        Ok(lines) => lines,
        Err(()) => return Some(Err(())),
    };
    let (first, fields) = lines.split_first()?;
    let words: Vec<_> = first.split(|byte| *byte == b' ').collect();
    let values = |name: &str| {
        let field = |line: &Vec<u8>| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let is = line[..colon].eq_ignore_ascii_case(name.as_bytes());
            is.then(|| line[colon + 1..].trim_ascii().to_vec())
        };
        fields.iter().filter_map(field).collect::<Vec<_>>()
    };
    let host = values("host").first().cloned().unwrap_or_default();
    let has_body = [values("content-length"), values("transfer-encoding")].concat();
    let has_body = has_body.first().is_some_and(|value| value != b"0");
    if has_body && !values("expect").is_empty() {
        output.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    let body = match (&values("content-length")[..], &values("transfer-encoding")[..]) {
        ([], []) => Some(Vec::new()),
        ([length], []) => with_length(input, length),
        ([], codings) if is_chunked(&codings.join(&b","[..])) => chunks(input),
        _ => None,
    };
    match (&words[..], body) {
        ([method, target, _], Some(body)) => Some(Ok(reading::hex([method, target, &host, &body]))),
        _ => Some(Err(())),
    }
}

/// The lines of a header section; none at the end of the connection.
fn head(input: &mut impl BufRead) -> Option<Result<Vec<Vec<u8>>, ()>> {
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        input.read_until(b'\n', &mut line).ok().filter(|count| *count > 0)?;
        if line.pop() != Some(b'\n') || line.pop() != Some(b'\r') {
            return Some(Err(()));
        }
        match line.is_empty() {
            true => return Some(Ok(lines)),
            false => lines.push(line),
        }
    }
}

/// HAProxy passes on empty members of the list.
fn is_chunked(coding: &[u8]) -> bool {
    let members = coding.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let members: Vec<_> = members.filter(|member| !member.is_empty()).collect();
    matches!(&members[..], [member] if member.eq_ignore_ascii_case(b"chunked"))
}

fn with_length(input: &mut impl BufRead, length: &[u8]) -> Option<Vec<u8>> {
    let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
    let length = std::str::from_utf8(length).ok().filter(|_| is_number)?.parse().ok()?;
    exactly(input, length)
}

fn exactly(input: &mut impl BufRead, length: u64) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    input.take(length).read_to_end(&mut body).ok()?;
    (body.len() as u64 == length).then_some(body)
}

/// A body in chunks, without extensions; trailers are dropped.
fn chunks(input: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = u64::from_str_radix(&line(input)?, 16).ok()?;
        if size == 0 {
            while !line(input)?.is_empty() {}
            return Some(body);
        }
        body.extend(exactly(input, size)?);
        if !line(input)?.is_empty() {
            return None;
        }
    }
}

/// A line without its end.
fn line(input: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    line.strip_suffix("\r\n").map(str::to_owned)
}
