//! The accounts of HTTP/2 connections, whatever their clients send and in whatever order requests
//! begin and end: the shared memory stays within its limit and is given back, and only who asks for
//! too much is cut.

#![no_main]
#![allow(dead_code, reason = "the front's own files")]

use std::collections::HashMap;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/front/src/server/http2/abuse.rs"]
mod abuse;
#[path = "../../crates/front/src/net/client_addresses.rs"]
mod client_addresses;
#[path = "../../crates/front/src/server/http2/frames.rs"]
mod frames;
#[path = "../../crates/front/src/http/request_memory.rs"]
mod request_memory;
#[path = "../../crates/front/src/server/http2/stream_accounts.rs"]
mod stream_accounts;
#[path = "../../crates/front/src/server/http2/trailers.rs"]
mod trailers;

/// Where these files expect each other.
mod http {
    pub(crate) use crate::request_memory;
}
mod net {
    pub(crate) use crate::client_addresses;
}
mod server {
    pub(crate) mod http2 {
        pub(crate) use crate::{abuse, frames, trailers};
    }
}

use client_addresses::Address;
use frames::Frames;
use maitred_rules::networks::Networks;
use request_memory::RequestMemory;
use stream_accounts::{EndedRequest, PeerKind, RequestEnd, StreamAccounts};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `request_memory`, in bytes: a few requests fill it.
const MEMORY_BYTES: usize = 512 * 1024;
/// What a connection may hold in any case.
const OWN_BYTES: usize = 96 * 1024;
/// Largest header of a request: twice as large as the limit of HTTP/1.
const MOST_HEAD_BYTES: usize = 128 * 1024;
const ENDS: [RequestEnd; 3] =
    [RequestEnd::Complete, RequestEnd::ClientReset, RequestEnd::ServerReset];

/// A connection, and its requests in progress.
struct Client {
    accounts: StreamAccounts,
    frames: Frames,
    requests: Vec<(u32, usize)>,
    next_stream: u32,
    /// Bytes of trailers by stream, with those that are forgotten.
    trailers: HashMap<u32, usize>,
    complete: u64,
    reset: u64,
    is_refused: bool,
}

impl Client {
    fn new(address: &str) -> Client {
        let address = address.parse().expect("it is one");
        let mut frames = Frames::new();
        frames.take(PREFACE, |_| ());
        Client {
            accounts: StreamAccounts::new(
                Address::of(address, &Networks::default()),
                PeerKind::Client,
            ),
            frames,
            requests: Vec::new(),
            next_stream: 1,
            trailers: HashMap::new(),
            complete: 0,
            reset: 0,
            is_refused: false,
        }
    }

    fn send(&mut self, memory: &RequestMemory, bytes: &[u8]) {
        let Client { accounts, is_refused, trailers, .. } = self;
        accounts.noise.read(bytes.len() as u64);
        self.frames.take(bytes, |what| {
            if let frames::FrameEvent::Trailers(stream, bytes) = what {
                *trailers.entry(stream).or_default() += bytes;
            }
            *is_refused |= accounts.seen(memory, what).is_err();
        });
    }

    fn begin(&mut self, memory: &RequestMemory, head: usize) {
        let is_first = self.requests.is_empty()
            && self.trailers.is_empty()
            && self.accounts.open_fields().is_none();
        match self.accounts.begin(memory, self.next_stream, head) {
            Ok(bytes) => {
                assert!(bytes >= head);
                self.requests.push((self.next_stream, bytes));
            }
            Err(why) => assert!(!is_first || head > OWN_BYTES / 2, "the first one: {why}"),
        }
        self.next_stream += 2;
    }

    fn end(&mut self, memory: &RequestMemory, at: usize, end: RequestEnd) {
        if self.requests.is_empty() {
            return;
        }
        let (stream, bytes) = self.requests.swap_remove(at % self.requests.len());
        self.accounts.end(memory, EndedRequest { stream, bytes, body_bytes: 0, end });
        match end {
            RequestEnd::Complete => self.complete += 1,
            RequestEnd::ClientReset => self.reset += 1,
            RequestEnd::ServerReset => {}
        }
        self.trailers.remove(&stream);
    }

    fn check(&self) {
        let accounts = &self.accounts;
        assert_eq!(accounts.has_requests(), !self.requests.is_empty());
        let share = accounts.share();
        assert!(share * self.requests.len() <= 512 * 1024 || share == 8 * 1024);
        let trailers: usize = self.trailers.values().sum();
        let may_have_many = trailers > 4 * 1024 || self.is_refused;
        assert!(may_have_many || !accounts.has_too_many_fields());
        assert!(!self.is_refused || accounts.has_too_many_fields());
        let resets_too_many = self.reset > self.complete + 100;
        assert!(!resets_too_many || accounts.asks_too_much());
    }

    fn leave(mut self, memory: &RequestMemory, is_before_requests: bool) {
        if is_before_requests {
            self.accounts.fields_are_over(memory);
        }
        while !self.requests.is_empty() {
            self.end(memory, 0, RequestEnd::ClientReset);
        }
        self.accounts.close(memory);
    }
}

/// A frame, or a part of one.
fn frame(input: &mut Unstructured<'_>, next_stream: u32) -> Result<Vec<u8>> {
    let kind = *input.choose(&[1, 9, 0, 4, 1, 9])?;
    let length = *input.choose(&[0, 1, 10, 100, 1500, 5000])?;
    let stream = *input.choose(&[next_stream, 1, 3, next_stream.saturating_sub(2), 0])?;
    let mut bytes = u32::to_be_bytes(length)[1..].to_vec();
    bytes.extend([kind, *input.choose(&[0, 4, 5])?]);
    bytes.extend(stream.to_be_bytes());
    bytes.resize(9 + length as usize, 0x82);
    if input.ratio(1, 8)? {
        bytes.truncate(input.int_in_range(0..=bytes.len())?);
    }
    Ok(bytes)
}

fn step(input: &mut Unstructured<'_>, memory: &RequestMemory, client: &mut Client) -> Result<()> {
    match input.int_in_range(0..=7)? {
        0 | 1 => client.begin(memory, input.int_in_range(0..=MOST_HEAD_BYTES)?),
        2 | 3 => client.end(memory, input.arbitrary()?, *input.choose(&ENDS)?),
        4 => client.accounts.noise.useful(input.int_in_range(0..=1 << 20)?),
        5 => client.accounts.fields_are_over(memory),
        _ => {
            let bytes = frame(input, client.next_stream)?;
            let size = input.int_in_range(1..=bytes.len().max(1))?;
            for piece in bytes.chunks(size) {
                client.send(memory, piece);
            }
        }
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let memory = RequestMemory::default();
    memory.limit(MEMORY_BYTES as u64);
    let mut clients = ["192.0.2.1", "192.0.2.1", "192.0.2.2", "10.0.0.1"].map(Client::new);
    let mut input = Unstructured::new(input);
    while !input.is_empty() {
        let client = usize::from(input.arbitrary::<u8>().unwrap_or(0)) % clients.len();
        if step(&mut input, &memory, &mut clients[client]).is_err() {
            break;
        }
        assert!(memory.common_bytes() <= MEMORY_BYTES);
        clients.iter().for_each(Client::check);
    }
    for (number, client) in clients.into_iter().enumerate() {
        client.leave(&memory, number % 2 == 0);
    }
    assert_eq!(memory.common_bytes(), 0);
    let all = OWN_BYTES + MEMORY_BYTES / 8;
    let address = "192.0.2.1".parse().expect("it is one");
    let again = memory.hold(all, || Address::of(address, &Networks::default()));
    assert!(again.is_ok(), "the address still holds some");
});
