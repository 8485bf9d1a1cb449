//! What is read from the admin socket, by the supervisor or by a command, means the same when it is
//! written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_control::admin::{MAX_REQUEST_BYTES, Reply, Request};

fuzz_target!(|line: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<Request>(line) {
        let text = serde_json::to_vec(&request).expect("a request can be written");
        assert_eq!(serde_json::from_slice::<Request>(&text).expect("and read"), request);
        assert!(!text.contains(&b'\n'));
        if let Request::Purge(purge) = request {
            let all = purge.targets.clone();
            let Ok(parts) = purge.split(MAX_REQUEST_BYTES) else { return };
            let joined: Vec<_> = parts.iter().flat_map(|part| part.targets.clone()).collect();
            assert_eq!(joined, all);
            for part in parts {
                let text = serde_json::to_vec(&part).expect("a part can be written");
                assert!(text.len() <= MAX_REQUEST_BYTES);
            }
        }
    }
    if let Ok(reply) = serde_json::from_slice::<Reply>(line) {
        let text = serde_json::to_string(&reply).expect("a reply can be written");
        let again: Reply = serde_json::from_str(&text).expect("and read");
        assert_eq!(serde_json::to_string(&again).expect("again"), text);
    }
});
