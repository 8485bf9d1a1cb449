//! How requests wait for a pool's workers: those settings of `[pools.NAME]`.

use crate::model::pool::{MAX_CHILDREN_PER_POOL, Pool};
use crate::read::directive::{Directive, Needs, Preset, store};

/// Most requests that may wait for the workers of one pool.
const MAX_REQUEST_QUEUE_LENGTH: u32 = 1_000_000;

/// Longest name of a header, in bytes.
const MAX_HEADER_NAME: usize = 64;

pub(super) const REQUEST_QUEUE_TIMEOUT: Directive<Pool> = Directive {
    name: "request_queue_timeout",
    default: Preset::Value("\"10s\""),
    unit: "seconds",
    takes: "a duration of at most 366 days such as \"30s\"",
    needs: Needs::NewZygote,
    doc: "How long a request may wait for a worker before the client gets a 503. One that would wait \
          for longer gets it at once, as far as that can be known. 0 means that it does not wait at \
          all. See the guide's page on overload.",
    example: "\"2s\"",
    read: |pool, value| store(&mut pool.request_queue_timeout, value.duration()),
};

pub(super) const REQUEST_QUEUE_LENGTH: Directive<Pool> = Directive {
    name: "request_queue_length",
    default: Preset::Value("1000"),
    unit: "requests",
    takes: "a whole number from 0 to 1000000",
    needs: Needs::NewZygote,
    doc: "How many requests may wait for a worker. Those beyond get a 503 at once; if more come for a \
          while than can be answered, those that have waited for longest get it. With 0 nobody waits; a \
          pool that grows has another worker started for who is refused.",
    example: "200",
    read: |pool, value| {
        store(
            &mut pool.request_queue_length,
            value.count(0, MAX_REQUEST_QUEUE_LENGTH),
        )
    },
};

pub(super) const REQUEST_DEADLINE_HEADER: Directive<Pool> = Directive {
    name: "request_deadline_header",
    default: Preset::Value("\"\""),
    unit: "",
    takes: "the name of a header such as \"X-Request-Timeout\", or \"\"",
    needs: Needs::NewZygote,
    doc: "The header in which a client, or a balancer in front, says how long it will wait for the \
          answer: milliseconds such as `1500`, or with a unit, `1500ms` or `2s`. Such a request waits \
          for a worker for no longer than half of that, and a time that is over has a 503 at once. \
          It only ever shortens `request_queue_timeout`, so it is believed from anybody; what is no \
          time is not heeded. `\"\"` means none.",
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
    unit: "workers",
    takes: "a whole number from 0 to 10000",
    needs: Needs::NewZygote,
    doc: "Workers that are kept for paths with `urgent = true` in `paths`: all other requests together \
          never have more than `max_children` less these, and at least one. So an administrator's pages \
          or a health check are answered while all the rest waits or hangs. A pool with `pm = \"auto\"` \
          may have fewer workers than that: there an urgent request gets the next that is free.",
    example: "1",
    read: |pool, value| {
        store(
            &mut pool.reserved_workers,
            value.count(0, MAX_CHILDREN_PER_POOL),
        )
    },
};

fn is_header_name(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.len() <= MAX_HEADER_NAME && name.bytes().all(is_usual)
}
