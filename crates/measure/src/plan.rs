//! Everything that a generator needs to know: what to send, where, and how.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::arrivals::{Profile, Spacing, exponential};
use crate::clock;
use crate::marker::Marker;
use crate::outcome::Cause;
use crate::request::{EncodedRequest, RequestSpec};

/// Most connections, or users, of one run.
pub const MAX_CONNECTIONS: usize = 100_000;

/// Most concurrent streams of one connection.
pub const MAX_STREAMS: usize = 1_000;

/// Most redirects that are followed for one request.
pub const MAX_REDIRECTS: usize = 10;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// TLS settings for a server.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// Trusted certificates, and the ALPN protocols to offer.
    pub config: Arc<ClientConfig>,
    /// The name that the certificate has to contain.
    pub name: ServerName<'static>,
}

/// A server.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Where it listens.
    pub address: Address,
    /// TLS settings, if it has TLS.
    pub tls: Option<TlsSettings>,
}

/// The protocol of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: negotiated with TLS, and with prior knowledge without it.
    Http2 {
        /// Concurrent streams of a connection.
        streams: usize,
    },
    /// FastCGI, for scripts below a document root.
    Fastcgi {
        /// The document root, as the server sees it.
        root: String,
    },
}

impl Protocol {
    /// Concurrent requests of a connection.
    pub fn streams(&self) -> usize {
        match self {
            Protocol::Http2 { streams } => *streams,
            Protocol::Http1 | Protocol::Fastcgi { .. } => 1,
        }
    }
}

/// A request of the list.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its specification.
    pub spec: RequestSpec,
    /// The index of its endpoint.
    pub endpoint: usize,
    /// Its encoding, unless it takes another path or cookies.
    pub encoded: EncodedRequest,
}

/// The expected responses.
#[derive(Debug, Clone, Default)]
pub struct Expect {
    /// Expected statuses; empty for 200 to 299.
    pub statuses: Vec<u16>,
    /// A text that the body has to contain.
    pub marker: Option<Marker>,
}

impl Expect {
    /// Why a response is not the expected one. `leads_here` is set for a redirect: whether it leads
    /// to the same server.
    pub fn judge(&self, status: u16, has_marker: bool, leads_here: Option<bool>) -> Option<Cause> {
        let fits = match self.statuses.as_slice() {
            [] => (200..300).contains(&status),
            some => some.contains(&status),
        };
        match (fits, leads_here) {
            (true, _) if has_marker => None,
            (true, _) => Some(Cause::MarkerMissing),
            (false, Some(true)) => Some(Cause::Redirect(status)),
            (false, Some(false)) => Some(Cause::RedirectAway(status)),
            (false, None) => Some(Cause::Status(status)),
        }
    }
}

/// How long users think between a response and their next request, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Think {
    /// Not at all: flat out.
    #[default]
    Nothing,
    /// Uniformly distributed between these two.
    Between(u64, u64),
    /// Exponentially distributed around this mean.
    Around(u64),
}

impl Think {
    /// A random think time.
    pub fn pick(self, random: &mut fastrand::Rng) -> u64 {
        match self {
            Think::Nothing => 0,
            Think::Between(from, to) => random.u64(from..=to.max(from)),
            Think::Around(mean) => clock::nanos(clock::seconds(mean) * exponential(random)),
        }
    }

    /// A description for people.
    pub fn describe(self) -> String {
        let words = |nanos| maitred_text::humanize::duration(clock::seconds(nanos));
        match self {
            Think::Nothing => "flat out".to_owned(),
            Think::Between(from, to) if from == to => format!("thinking for {}", words(from)),
            Think::Between(from, to) => format!("thinking for {} to {}", words(from), words(to)),
            Think::Around(mean) => format!("thinking for {} on average", words(mean)),
        }
    }
}

/// The load model.
#[derive(Debug, Clone)]
pub enum Load {
    /// Open loop: requests are due at their own times, whatever the server does.
    Open {
        /// The rate over time.
        profile: Profile,
        /// How requests are spaced on it.
        spacing: Spacing,
        /// Most connections, all threads and servers together.
        connections: usize,
    },
    /// With the times of an access log.
    Replay {
        /// The log.
        log: crate::replay::Source,
        /// Most connections.
        connections: usize,
    },
    /// Closed loop: users who wait for each response.
    Closed {
        /// The number of users.
        users: usize,
        /// How long they think.
        think: Think,
        /// The time until all users have started, in nanoseconds.
        ramp: u64,
        /// The number of requests of all users, if that ends the run.
        requests: Option<u64>,
    },
}

impl Load {
    /// Whether requests are sent whatever the server does.
    pub fn is_open(&self) -> bool {
        !matches!(self, Load::Closed { .. })
    }
}

/// Everything that a generator needs to know. Times are in nanoseconds.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The servers.
    pub endpoints: Vec<Endpoint>,
    /// How requests are encoded.
    pub protocol: Protocol,
    /// The requests to choose from; not empty.
    pub requests: Vec<Request>,
    /// Whether they are sent in order instead of at random.
    pub in_order: bool,
    /// The load model.
    pub load: Load,
    /// The duration, including the warm-up.
    pub duration: u64,
    /// The duration of the warm-up.
    pub warm_up: u64,
    /// The timeout of a response, including the connection.
    pub timeout: u64,
    /// The delay from which a request counts as sent late.
    pub late_after: u64,
    /// The number of threads.
    pub threads: usize,
    /// The seed of random numbers.
    pub seed: u64,
    /// Whether connections carry more than one request.
    pub keep_alive: bool,
    /// Whether redirects to the same server are followed.
    pub follow: bool,
    /// Whether users store cookies.
    pub cookies: bool,
    /// The expected responses.
    pub expect: Expect,
}

/// Chooses requests by their weights.
#[derive(Debug, Clone)]
pub struct Choice {
    /// For each request, the sum of the weights up to it.
    sums: Vec<f64>,
    in_order: bool,
    next: usize,
}

impl Choice {
    /// For the plan's requests; `first` is the first one if they are sent in order.
    pub fn new(plan: &Plan, first: usize) -> Choice {
        let mut sum = 0.0;
        let weights = plan.requests.iter().map(|request| {
            sum += request.spec.weight;
            sum
        });
        Choice { sums: weights.collect(), in_order: plan.in_order, next: first }
    }

    /// The index of the next request.
    pub fn pick(&mut self, random: &mut fastrand::Rng) -> usize {
        let count = self.sums.len();
        if count <= 1 {
            return 0;
        }
        if self.in_order {
            let picked = self.next % count;
            self.next = picked + 1;
            return picked;
        }
        let all = self.sums.last().copied().unwrap_or(0.0);
        let chance = random.f64() * all;
        self.sums.partition_point(|sum| *sum <= chance).min(count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Class;

    #[test]
    fn a_login_page_with_200_is_not_what_was_expected() {
        let expect = Expect { statuses: Vec::new(), marker: Some(Marker::new("cart")) };
        assert_eq!(expect.judge(200, true, None), None);
        assert_eq!(expect.judge(200, false, None), Some(Cause::MarkerMissing));
        assert_eq!(expect.judge(302, true, Some(true)), Some(Cause::Redirect(302)));
        assert_eq!(expect.judge(302, true, Some(false)), Some(Cause::RedirectAway(302)));
        let class = expect.judge(502, true, None).map(Cause::class);
        assert_eq!(class, Some(Class::Failed));
        let expect = Expect { statuses: vec![404], marker: None };
        assert_eq!(expect.judge(404, true, None), None);
        assert_eq!(expect.judge(200, true, None), Some(Cause::Status(200)));
    }

    #[test]
    fn requests_are_chosen_as_often_as_they_weigh() {
        let choice = Choice { sums: vec![1.0, 4.0, 10.0], in_order: false, next: 0 };
        let mut random = fastrand::Rng::with_seed(3);
        let mut counts = [0_u32; 3];
        let mut by_chance = choice.clone();
        (0..10_000).for_each(|_| counts[by_chance.pick(&mut random)] += 1);
        for (count, wanted) in counts.into_iter().zip([1_000, 3_000, 6_000]) {
            assert!(count.abs_diff(wanted) < 200, "{counts:?}");
        }
        let mut in_order = Choice { in_order: true, next: 1, ..choice };
        let picked: Vec<usize> = (0..4).map(|_| in_order.pick(&mut random)).collect();
        assert_eq!(picked, [1, 2, 0, 1]);
    }

    #[test]
    fn people_think_as_long_as_they_should() {
        let mut random = fastrand::Rng::with_seed(3);
        assert_eq!(Think::Nothing.pick(&mut random), 0);
        let between = Think::Between(300, 1_000);
        assert!((0..1_000).all(|_| (300..=1_000).contains(&between.pick(&mut random))));
        let around = Think::Around(1_000_000);
        let mean = (0..10_000).map(|_| around.pick(&mut random)).sum::<u64>() / 10_000;
        assert!(mean.abs_diff(1_000_000) < 50_000, "{mean}");
    }
}
