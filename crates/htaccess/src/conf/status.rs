//! Status codes that Apache knows (`ap_index_of_response`).

/// Whether Apache has a status line for a status.
pub fn is_known_status(status: u16) -> bool {
    matches!(
        status,
        100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=417 | 421..=426 | 428 | 429
            | 431 | 451 | 500..=508 | 510 | 511
    )
}
