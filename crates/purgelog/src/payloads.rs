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

/// The text of a purge. If it is too long, that of all pages of its sites, or else of everything.
pub fn payload_of(order: &PurgeOrder) -> String {
    let text = |order: &PurgeOrder| {
        serde_json::to_string(order).ok().filter(|text| text.len() <= MAX_ORDER_BYTES)
    };
    text(order)
        .or_else(|| text(&PurgeOrder::merged([order])))
        .or_else(|| text(&PurgeOrder::everything()))
        .unwrap_or_default()
}

/// One purge in place of several: of all pages of their sites, or of everything.
pub fn merged<'a>(payloads: impl Iterator<Item = &'a str>) -> String {
    let orders: Vec<PurgeOrder> = payloads.map(purge_of).collect();
    payload_of(&PurgeOrder::merged(&orders))
}

#[cfg(test)]
mod tests {
    use maitred_control::purge::{DroppedPages, Purge, PurgeMode, PurgeRequest, Target};
    use maitred_pagecache::cache_request::Request;
    use maitred_pagecache::invalidate;
    use maitred_pagecache::key::MAX_KEY_BYTES;
    use maitred_pagecache::settings::KeyParts;

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

    fn dropped(site: &str, purge: Purge) -> PurgeOrder {
        let how = PurgeMode::Hard;
        PurgeOrder::Dropped(vec![DroppedPages { site: site.to_owned(), purge, how }])
    }

    #[test]
    fn what_a_client_invalidates_by_the_longest_url_is_of_its_host_on_other_nodes_too() {
        let post = |host: &str, path: &str, query: &str| {
            let request = Request {
                method: "POST",
                is_https: true,
                host,
                port: None,
                path,
                query: Some(query),
                has_body: true,
                by_proxy: false,
                by_forwarded: false,
            };
            invalidate::after(&KeyParts::default(), &request, 200, [].into_iter())
        };
        let site = "s".repeat(253);
        let long_host = "h".repeat(MAX_KEY_BYTES - 64);
        for (host, path, query) in [
            ("a.example", "/index.php", "+".repeat(16_360).as_str()),
            ("a.example", &format!("/{}", "\"".repeat(16_360)), ""),
            (&long_host, "/", "++"),
            ("a.example", "/", &"+".repeat(MAX_KEY_BYTES - 256)),
        ] {
            let purges = post(host, path, query);
            assert_eq!(purges.len(), 1);
            let order = dropped(&site, purges[0].clone());
            assert_ne!(order, PurgeOrder::merged([&order]));
            assert_eq!(purge_of(&payload_of(&order)), order);
        }
    }

    #[test]
    fn a_purge_that_is_too_long_for_the_log_becomes_one_of_its_sites() {
        let long = dropped("a.example", Purge::Tag("t".repeat(MAX_ORDER_BYTES)));
        assert_eq!(purge_of(&payload_of(&long)), dropped("a.example", Purge::All));
        let sites = (0..10_000).map(|site| DroppedPages {
            site: format!("{site}.example"),
            purge: Purge::All,
            how: PurgeMode::Hard,
        });
        let all = PurgeOrder::Dropped(sites.collect());
        assert_eq!(purge_of(&payload_of(&all)), PurgeOrder::everything());
    }
}
