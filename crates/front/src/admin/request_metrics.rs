//! The part of `/metrics` that is about the memory of requests in hand.

use super::metrics::Text;
use crate::request_memory::RequestMemory;

/// Writes all families.
pub fn write(out: &mut Text, requests: &RequestMemory) {
    let name = "maitred_request_memory_bytes";
    let help =
        "Memory that requests in hand hold beyond what each connection may hold in any case.";
    out.family(name, "gauge", help);
    out.value(name, &[], requests.common_bytes());
    let name = "maitred_requests_refused_total";
    let help = "Requests that were refused because requests in hand hold too much memory.";
    out.family(name, "counter", help);
    out.value(name, &[], requests.refused());
}
