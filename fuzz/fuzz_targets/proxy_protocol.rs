//! A header of the PROXY protocol is in the bytes that were received, names one client, and is the
//! same however many bytes follow it; what is part of one becomes one or none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_rules::proxy_header::ConnectionStart;

fuzz_target!(|input: &[u8]| {
    let whole = ConnectionStart::of(input);
    if let ConnectionStart::Header(length, _) = whole {
        assert!(length > 0 && length <= input.len());
        assert_eq!(ConnectionStart::of(&input[..length]), whole);
        let longer = [&input[..length], b"GET / HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(ConnectionStart::of(&longer), whole);
        for end in 1..length {
            assert_eq!(ConnectionStart::of(&input[..end]), ConnectionStart::Part, "{end}");
        }
    }
});
