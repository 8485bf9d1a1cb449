//! Whatever reaches the admin address of Octane: only a request that names this address as its one
//! host does anything.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the program's own file")]
#[path = "../../crates/maitred/src/octane/admin_request.rs"]
mod admin_request;

use admin_request::{AdminOrder, parse};

const PORT: u16 = 2019;

/// The values of the `Host` lines of a head.
fn hosts(head: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(head);
    let lines = text.split('\n').map(str::trim).skip_while(|line| line.is_empty()).skip(1);
    let fields = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let of_host = fields.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    of_host.map(|(_, value)| value.trim().to_owned()).collect()
}

fuzz_target!(|head: &[u8]| {
    let request = parse(head, "localhost", PORT);
    match request.order {
        AdminOrder::Show | AdminOrder::Reload | AdminOrder::Stop => {
            let hosts = hosts(head);
            assert!(matches!(&hosts[..], [one] if one.ends_with(":2019")), "{hosts:?}");
        }
        AdminOrder::Refused(status, why) => {
            assert!((400..500).contains(&status));
            assert!(!why.contains(['\r', '\n']), "{why:?}");
        }
    }
});
