//! The queue of a pool: settings of `[pools.NAME]`.

use crate::model::pool::{MAX_CHILDREN_PER_POOL, Pool};
use crate::read::directive::{Directive, Needs, Preset, store};

/// Most `request_queue_length`.
const MAX_REQUEST_QUEUE_LENGTH: u32 = 1_000_000;

/// Longest name of a request header, in bytes.
const MAX_HEADER_NAME: usize = 64;

pub(super) const REQUEST_QUEUE_TIMEOUT: Directive<Pool> = Directive {
    name: "request_queue_timeout",
    default: Preset::Value("\"10s\""),
    takes: "a duration of at most 366 days such as \"30s\"",
    needs: Needs::NewZygote,
    doc: "Longest wait of a request for a worker; then the client gets a 503. A request whose \
          predicted wait is longer gets the 503 at once. 0 means that requests do not wait. See \
          the guide's page on overload.",
    example: "\"2s\"",
    read: |pool, value| store(&mut pool.request_queue_timeout, value.duration()),
};

pub(super) const REQUEST_QUEUE_LENGTH: Directive<Pool> = Directive {
    name: "request_queue_length",
    default: Preset::Value("1000"),
    takes: "a whole number from 0 to 1000000",
    needs: Needs::NewZygote,
    doc: "Most requests that wait for a worker. Further ones get a 503 at once; if more requests \
          arrive for a while than can be served, those with the longest wait get it. With 0 no \
          request waits; a pool that grows starts another worker for each rejected request.",
    example: "200",
    read: |pool, value| {
        store(&mut pool.request_queue_length, value.count(0, MAX_REQUEST_QUEUE_LENGTH))
    },
};

pub(super) const REQUEST_DEADLINE_HEADER: Directive<Pool> = Directive {
    name: "request_deadline_header",
    default: Preset::Value("\"\""),
    takes: "the name of a header such as \"X-Request-Timeout\", or \"\"",
    needs: Needs::NewZygote,
    doc: "The request header in which a client, or a load balancer in front, sends its timeout: \
          milliseconds such as `1500`, or with a unit, `1500ms` or `2s`. Such a request waits \
          for a worker for at most half of that, and an expired timeout gets a 503 at once. The \
          header can only shorten `request_queue_timeout`, so it is accepted from all clients; \
          an invalid value is ignored. `\"\"` means none.",
    example: "\"X-Envoy-Expected-Rq-Timeout-Ms\"",
    read: |pool, value| {
        pool.request_deadline_header = match value.text()? {
            "" => None,
            name if is_header_name(name) => Some(name.to_owned()),
            _ => return Err(value.wrong()),
        };
        Ok(())
    },
};

pub(super) const RESERVED_WORKERS: Directive<Pool> = Directive {
    name: "reserved_workers",
    default: Preset::Value("0"),
    takes: "a whole number from 0 to 10000",
    needs: Needs::NewZygote,
    doc: "Workers reserved for paths with `urgent = true` in `paths`: all other requests \
          together use at most `max_children` less these, and at least one. So an \
          administrator's pages or a health check get a response while all the rest waits or \
          hangs. A pool with `pm = \"auto\"` may have fewer workers than that: there an urgent \
          request gets the next free worker.",
    example: "1",
    read: |pool, value| store(&mut pool.reserved_workers, value.count(0, MAX_CHILDREN_PER_POOL)),
};

fn is_header_name(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.len() <= MAX_HEADER_NAME && name.bytes().all(is_usual)
}
