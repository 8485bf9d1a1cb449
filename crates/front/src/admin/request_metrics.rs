//! The part of `/metrics` that is about what clients take of the server.

use crate::admin::metrics::Text;
use crate::http::request_memory::RequestMemory;
use crate::net::client_addresses::Addresses;

/// Writes all families.
pub fn write(out: &mut Text, held: &RequestMemory, addresses: &Addresses) {
    let name = "maitred_request_memory_bytes";
    let help =
        "Memory that requests in hand hold beyond what each connection may hold in any case.";
    out.family(name, "gauge", help);
    out.value(name, &[], held.common_bytes());
    let name = "maitred_requests_refused_total";
    let help = "Requests that were refused because requests in hand hold too much memory.";
    out.family(name, "counter", help);
    out.value(name, &[], held.refused());
    let name = "maitred_connections_refused_total";
    let help = "Connections that were closed because their client's address has too many.";
    out.family(name, "counter", help);
    out.value(name, &[], addresses.refused());
}
