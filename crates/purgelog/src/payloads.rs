//! Purges as the log has them: as JSON.

use maitred_control::purge::PurgeOrder;
use maitred_control::purge_log::MAX_ORDER_BYTES;

/// The purge of an entry. What is not understood, such as that of a newer program, may be anything.
pub fn purge_of(payload: &str) -> PurgeOrder {
    match serde_json::from_str(payload) {
        Ok(order @ (PurgeOrder::Asked(_) | PurgeOrder::Dropped(_)))
            if payload.len() <= MAX_ORDER_BYTES =>
        {
            order
        }
        _ => PurgeOrder::everything(),
    }
}

/// The text of a purge. That of everything, if it is too long.
pub fn payload_of(order: &PurgeOrder) -> String {
    let text = serde_json::to_string(order).ok().filter(|text| text.len() <= MAX_ORDER_BYTES);
    text.or_else(|| serde_json::to_string(&PurgeOrder::everything()).ok()).unwrap_or_default()
}

/// One purge in place of several: of all pages of their sites, or of everything.
pub fn merged<'a>(payloads: impl Iterator<Item = &'a str>) -> String {
    let orders: Vec<PurgeOrder> = payloads.map(purge_of).collect();
    payload_of(&PurgeOrder::merged(&orders))
}

#[cfg(test)]
mod tests {
    use maitred_control::purge::{PurgeMode, PurgeRequest, Target};

    use super::*;

    #[test]
    fn a_purge_that_is_not_understood_or_too_long_is_one_of_everything() {
        let one = PurgeOrder::Asked(PurgeRequest {
            targets: vec![Target::Url("a.example/".to_owned())],
            how: PurgeMode::Soft,
            site: None,
        });
        assert_eq!(purge_of(&payload_of(&one)), one);
        for wrong in ["", "?", "{}", "{\"company\":true}", "{\"asked\":{\"targets\":[]}}"] {
            assert_eq!(purge_of(wrong), PurgeOrder::everything(), "{wrong}");
        }
        let long = PurgeOrder::Asked(PurgeRequest {
            targets: vec![Target::Tag("t".repeat(MAX_ORDER_BYTES))],
            how: PurgeMode::Soft,
            site: None,
        });
        assert_eq!(purge_of(&payload_of(&long)), PurgeOrder::everything());
    }
}
