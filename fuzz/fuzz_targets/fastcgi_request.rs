//! A web server's requests mean the same whole and byte by byte; parameters stay within bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_fastcgi::{ProtocolError, RequestEvent, RequestReader, params};

const MAX_PARAMS_BYTES: usize = 256;

/// All events as text, pieces of a body joined; every `answered_at`th ends its request early.
fn read(wire: &[u8], size: usize, answered_at: u8) -> (String, Result<(), ProtocolError>) {
    let (mut reader, mut said, mut events) =
        (RequestReader::new(MAX_PARAMS_BYTES), String::new(), 0);
    for mut input in wire.chunks(size.max(1)) {
        loop {
            let event = match reader.next(&mut input) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => return (said, Err(error)),
            };
            if let RequestEvent::Stdin(bytes) = event {
                said += &bytes.escape_ascii().to_string();
                continue;
            }
            said += &format!("\n{event:?}\n");
            if event == RequestEvent::Params {
                assert!(reader.params().len() <= MAX_PARAMS_BYTES);
                params(reader.params()).for_each(|pair| said += &format!("{pair:?}\n"));
            }
            if event == RequestEvent::Values {
                assert!(reader.values().len() <= usize::from(u16::MAX));
                params(reader.values()).for_each(|pair| said += &format!("{pair:?}\n"));
            }
            events += 1;
            if event == RequestEvent::StdinEnd || events % 8 == answered_at % 8 {
                reader.end_request();
            }
        }
        assert!(input.is_empty());
    }
    (said, Ok(()))
}

fuzz_target!(|input: (u8, &[u8])| {
    let (answered_at, wire) = input;
    assert_eq!(read(wire, wire.len(), answered_at), read(wire, 1, answered_at));
});
