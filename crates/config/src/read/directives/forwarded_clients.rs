//! Settings of the proxies in front of the server, which name its clients.

use maitred_rules::forwarded::ForwardedHeader;

use super::rule_items::networks;
use crate::model::config::Config;
use crate::read::directive::{Directive, Needs, Preset, store};

pub(super) const TRUSTED_PROXIES: Directive<Config> = Directive {
    name: "trusted_proxies",
    default: Preset::Words("none"),
    takes: "an address such as \"192.0.2.1\", a network such as \"192.0.2.0/24\", or an array of \
            them",
    needs: Needs::Live,
    doc: "Proxies in front of this server whose `trusted_headers` are trusted. The client is the \
          last address in those headers that is no trusted proxy (see `trusted_recursive`); an \
          unreadable header gets a 400. A request without those headers has the proxy as its \
          client. The headers of all other clients are ignored.",
    example: "[\"10.0.0.0/8\"]",
    read: |config, value| store(&mut config.trusted_proxies, networks(value)),
};

pub(super) const TRUSTED_HEADERS: Directive<Config> = Directive {
    name: "trusted_headers",
    default: Preset::Value("[\"X-Forwarded-For\", \"X-Forwarded-Proto\"]"),
    takes: "the name of a header such as \"X-Forwarded-For\", or an array of names",
    needs: Needs::Live,
    doc: "The request headers in which `trusted_proxies` describe their clients: \
          `X-Forwarded-Proto`, `X-Forwarded-Host`, `Forwarded` (RFC 7239), and any other name for \
          a header with addresses like `X-Forwarded-For`. List only headers that the proxy sets \
          or removes on every request: a header that it passes on is under the client's control.",
    example: "[\"CF-Connecting-IP\", \"X-Forwarded-Proto\"]",
    read: |config, value| {
        let named = value.each(|item| item.text_as(ForwardedHeader::named));
        store(&mut config.trusted_headers, named)
    },
};

pub(super) const TRUSTED_RECURSIVE: Directive<Config> = Directive {
    name: "trusted_recursive",
    default: Preset::Value("true"),
    takes: "true or false",
    needs: Needs::Live,
    doc: "Whether an address of `trusted_proxies` in a header is that of a further proxy, so that \
          the address before it counts (nginx's `real_ip_recursive`). With `false`, the last \
          address of a header is the client's. Use `false` where clients have addresses of \
          `trusted_proxies`: such a client can name any other address in front of its own.",
    example: "false",
    read: |config, value| store(&mut config.trusted_recursive, value.boolean()),
};

pub(super) const PROXY_PROTOCOL: Directive<Config> = Directive {
    name: "proxy_protocol",
    default: Preset::Value("false"),
    takes: "true or false",
    needs: Needs::Live,
    doc: "Whether every connection to `listen`, and to that of `[tls]`, starts with the PROXY \
          protocol (version 1 or 2), which carries the address of the client. Only connections of \
          `trusted_proxies` are accepted then.",
    example: "false",
    read: |config, value| store(&mut config.proxy_protocol, value.boolean()),
};
