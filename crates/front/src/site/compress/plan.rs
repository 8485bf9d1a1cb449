//! The compression of a script's response: its content encoding, and the headers that change with
//! it.

use std::borrow::Cow;

use maitred_http1::{Head, carries_body};
use maitred_pagecache::coded_tags::{as_named, coded};
use maitred_pagecache::headers::first;
use maitred_rules::content_encoding::ContentEncoding;

use crate::http::headers::Header;
use crate::site::compress::{Compression, accepted};

/// Headers about the exact bytes of a body, which must not change then.
const OF_THE_BYTES: [&str; 6] =
    ["content-encoding", "content-range", "content-digest", "repr-digest", "digest", "content-md5"];

/// The plan for a response.
#[derive(Debug, Default)]
pub struct Plan {
    /// Its encoding, if it is compressed.
    pub coding: Option<ContentEncoding>,
    /// The `Vary` header, if another client could have got another encoding.
    vary: Option<Cow<'static, [u8]>>,
    /// The `ETag` header, if it changes (`maitred_pagecache::coded_tags`).
    etag: Option<Vec<u8>>,
}

impl Plan {
    /// The plan for a response with this status and length; none if the site does not compress.
    /// Unknown values are `None`.
    pub fn make<'s>(
        compression: Option<&Compression>,
        request: &Head,
        said: impl Iterator<Item = Header<'s>> + Clone,
        status: u16,
        length: Option<u64>,
    ) -> Plan {
        if status == 304 {
            let etag = first(said, "etag").and_then(|tag| as_named(tag, request.sent_tags()));
            return Plan { etag, ..Plan::default() };
        }
        let suits = |compression: &&Compression| {
            let content_type = first(said.clone(), "content-type").unwrap_or_default();
            !compression.codings().is_empty() && compression.suits(content_type, length)
        };
        let is_free = || carries_body(false, status) && status != 206 && may_be_coded(said.clone());
        let Some(compression) = compression.filter(suits).filter(|_| is_free()) else {
            return Plan::default();
        };
        let coding = accepted(request).best(compression.codings());
        let etag = coding.zip(first(said.clone(), "etag"));
        let etag = etag.and_then(|(coding, tag)| coded(tag, coding.name()));
        Plan { coding, vary: vary(said), etag }
    }

    /// Sends the response uncompressed, because there is no memory for an encoder.
    pub fn give_up(&mut self) {
        (self.coding, self.etag) = (None, None);
    }

    /// Whether the plan replaces this header of the script.
    pub fn replaces(&self, name: &[u8]) -> bool {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        (self.vary.is_some() && is("vary"))
            || (self.etag.is_some() && is("etag"))
            || (self.coding.is_some() && is("accept-ranges"))
    }

    /// The headers of the plan.
    pub fn fields(&self) -> impl Iterator<Item = Header<'_>> {
        let coding = self.coding.map(|coding| coding.name().as_bytes());
        let coding = coding.map(|name| (&b"Content-Encoding"[..], name));
        let vary = self.vary.as_deref().map(|value| (&b"Vary"[..], value));
        let etag = self.etag.as_deref().map(|value| (&b"ETag"[..], value));
        coding.into_iter().chain(vary).chain(etag)
    }
}

fn may_be_coded<'s>(mut said: impl Iterator<Item = Header<'s>>) -> bool {
    !said.any(|(name, value)| {
        let is = |other: &&str| name.eq_ignore_ascii_case(other.as_bytes());
        // RFC 9111 §5.2.2.6.
        let forbids = is(&"cache-control") && has_item(value, b"no-transform");
        forbids || OF_THE_BYTES.iter().any(is)
    })
}

/// Whether a list has this item.
fn has_item(list: &[u8], wanted: &[u8]) -> bool {
    let mut items = list.split(|byte| *byte == b',');
    items.any(|item| item.trim_ascii().eq_ignore_ascii_case(wanted))
}

/// The script's `Vary` header, extended by the `Accept-Encoding` header; none if it contains that
/// already.
fn vary<'s>(said: impl Iterator<Item = Header<'s>>) -> Option<Cow<'static, [u8]>> {
    const OURS: &[u8] = b"Accept-Encoding";
    let mut all = Vec::new();
    for (name, value) in said {
        if name.eq_ignore_ascii_case(b"vary") && !value.is_empty() {
            if has_item(value, OURS) || has_item(value, b"*") {
                return None;
            }
            all.extend_from_slice(value);
            all.extend_from_slice(b", ");
        }
    }
    if all.is_empty() {
        return Some(Cow::Borrowed(OURS));
    }
    all.extend_from_slice(OURS);
    Some(Cow::Owned(all))
}
