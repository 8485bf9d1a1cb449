//! Certificates on the dashboard: what is left out of a long list is counted, and never looks well.

use std::cmp::Reverse;

use maitred_control::front::{CertificateFailure, CertificateFailures};
use serde_json::{Value, json};

use crate::services::CertificateExpiry;

/// Most certificates that are shown: first those that could not be renewed, then those that end
/// first.
const MAX_CERTIFICATES: usize = 200;

/// Adds to the state of the server: `certificates`, and how many of them (`hidden_certificates`)
/// and of the reasons (`hidden_failures`) are left out.
pub fn add_to(state: &mut Value, all: &[CertificateExpiry], failures: &CertificateFailures) {
    let failure_of = |expiry: &CertificateExpiry| -> Option<&CertificateFailure> {
        failures.first.iter().find(|failure| expiry.names.contains(&failure.name))
    };
    let mut all: Vec<_> = all.iter().map(|expiry| (expiry, failure_of(expiry))).collect();
    all.sort_by_key(|(expiry, failed)| (Reverse(failed.is_some()), expiry.until));
    let hidden = all.len().saturating_sub(MAX_CERTIFICATES);
    all.truncate(MAX_CERTIFICATES);
    let row = |(expiry, failed): (&CertificateExpiry, Option<&CertificateFailure>)| {
        json!({
            "names": expiry.names,
            "until": expiry.until,
            "failures": failed.map(|failed| failed.failures),
            "error": failed.map(|failed| &failed.error),
            "next": failed.and_then(|failed| failed.next),
        })
    };
    state["certificates"] = all.into_iter().map(row).collect();
    state["hidden_certificates"] = hidden.into();
    state["hidden_failures"] = failures.more.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expiry(number: usize) -> CertificateExpiry {
        CertificateExpiry { names: vec![format!("{number}.example")], until: Some(number as u64) }
    }

    fn failure(number: usize) -> CertificateFailure {
        let name = format!("{number}.example");
        CertificateFailure { name, failures: 1, error: "refused".to_owned(), next: None }
    }

    #[test]
    fn more_failures_than_are_listed_are_counted_and_those_listed_come_first() {
        let all: Vec<CertificateExpiry> = (0..300).rev().map(expiry).collect();
        let failures = CertificateFailures::of((250..300).map(failure).collect());
        let mut state = json!({});
        add_to(&mut state, &all, &failures);
        let rows = state["certificates"].as_array().unwrap();
        assert_eq!((rows.len(), &state["hidden_certificates"]), (200, &json!(100)));
        assert_eq!(state["hidden_failures"], 30);
        let failed: Vec<&Value> = rows.iter().take_while(|row| !row["error"].is_null()).collect();
        assert_eq!((failed.len(), &failed[0]["names"]), (20, &json!(["250.example"])));
        assert_eq!(rows[20]["names"], json!(["0.example"]), "the one that ends first");
        add_to(&mut state, &all[..1], &CertificateFailures::default());
        assert_eq!(
            (&state["hidden_failures"], &state["hidden_certificates"]),
            (&json!(0), &json!(0))
        );
    }
}
