//! What is to be sent, to whom, and how: all that a generator needs to know.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::arrivals::{Profile, Spacing, exponential};
use crate::clock;
use crate::outcome::Cause;
use crate::request::{EncodedRequest, RequestSpec};
use crate::response::Marker;

/// Most connections, or users, of one run.
pub const MAX_CONNECTIONS: usize = 100_000;

/// Most requests of one connection at once.
pub const MAX_STREAMS: usize = 1_000;

/// Most redirects that are followed one after the other.
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

/// How TLS is spoken with a server.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// Whom to trust, and which protocols to offer.
    pub config: Arc<ClientConfig>,
    /// Whom the certificate has to name.
    pub name: ServerName<'static>,
}

/// A server to ask.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Where it listens.
    pub address: Address,
    /// How TLS is spoken with it, if it is.
    pub tls: Option<TlsSettings>,
}

/// How requests are encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: agreed upon with TLS, and without it because the server is known to speak it.
    Http2 {
        /// How many requests a connection carries at once.
        streams: usize,
    },
    /// FastCGI, for scripts below a document root.
    Fastcgi {
        /// The document root, as the server sees it.
        root: String,
    },
}

impl Protocol {
    /// How many requests a connection carries at once.
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
    /// What was asked for.
    pub spec: RequestSpec,
    /// Which of the endpoints it goes to.
    pub endpoint: usize,
    /// How it is encoded, where it takes no other path and no cookies.
    pub encoded: EncodedRequest,
}

/// What answers are expected.
#[derive(Debug, Clone, Default)]
pub struct Expect {
    /// These statuses; none: 200 to 299.
    pub statuses: Vec<u16>,
    /// This text in the body.
    pub marker: Option<Marker>,
}

impl Expect {
    /// Why an answer is not the one that was expected. `leads_here` says of a redirect whether it
    /// leads to the server that was asked.
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

/// How long users think between an answer and their next request, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Think {
    /// Not at all: flat out.
    #[default]
    Nothing,
    /// Between these two, evenly distributed.
    Between(u64, u64),
    /// Exponentially distributed around this mean.
    Around(u64),
}

impl Think {
    /// How long this time.
    pub fn pick(self, random: &mut fastrand::Rng) -> u64 {
        match self {
            Think::Nothing => 0,
            Think::Between(from, to) => random.u64(from..=to.max(from)),
            Think::Around(mean) => clock::nanos(clock::seconds(mean) * exponential(random)),
        }
    }

    /// In words.
    pub fn describe(self) -> String {
        let words = |nanos| maitred_text::humanize::duration(clock::seconds(nanos));
        match self {
            Think::Nothing => "flat out".to_owned(),
            Think::Between(from, to) if from == to => format!("who think for {}", words(from)),
            Think::Between(from, to) => format!("who think for {} to {}", words(from), words(to)),
            Think::Around(mean) => format!("who think for {} on average", words(mean)),
        }
    }
}

/// How requests come about.
#[derive(Debug, Clone)]
pub enum Load {
    /// At moments of their own, whatever the server does.
    Open {
        /// The rate over time.
        profile: Profile,
        /// How requests are spread on it.
        spacing: Spacing,
        /// Most connections, all threads and servers together.
        connections: usize,
    },
    /// As an access log has them.
    Replay {
        /// The log.
        log: crate::replay::Source,
        /// Most connections.
        connections: usize,
    },
    /// By users who wait for each answer.
    Closed {
        /// How many.
        users: usize,
        /// How long they think.
        think: Think,
        /// How long it takes until all of them are there, in nanoseconds.
        ramp: u64,
        /// How many requests they send altogether, if that is the end.
        requests: Option<u64>,
    },
}

impl Load {
    /// Whether requests come whatever the server does.
    pub fn is_open(&self) -> bool {
        !matches!(self, Load::Closed { .. })
    }
}

/// All that a generator needs to know. Times are in nanoseconds.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The servers.
    pub endpoints: Vec<Endpoint>,
    /// How requests are encoded.
    pub protocol: Protocol,
    /// The requests to choose from; not empty.
    pub requests: Vec<Request>,
    /// Whether they are sent one after the other instead of by chance.
    pub in_order: bool,
    /// How they come about.
    pub load: Load,
    /// How long, the warm-up included.
    pub duration: u64,
    /// How much of that is not counted.
    pub warm_up: u64,
    /// How long an answer may take, the connection included.
    pub timeout: u64,
    /// From when on a request counts as sent late.
    pub late_after: u64,
    /// How many threads send.
    pub threads: usize,
    /// What chance begins with.
    pub seed: u64,
    /// Whether connections carry more than one request.
    pub keep_alive: bool,
    /// Whether redirects on the same server are followed.
    pub follow: bool,
    /// Whether users keep cookies.
    pub cookies: bool,
    /// What answers are expected.
    pub expect: Expect,
}

/// Chooses requests by their weights.
#[derive(Debug, Clone)]
pub struct Choice {
    /// For each request, the sum of all weights up to it.
    sums: Vec<f64>,
    in_order: bool,
    next: usize,
}

impl Choice {
    /// Of the plan's requests; where they come in order, `first` is the first.
    pub fn new(plan: &Plan, first: usize) -> Choice {
        let mut sum = 0.0;
        let weights = plan.requests.iter().map(|request| {
            sum += request.spec.weight;
            sum
        });
        Choice {
            sums: weights.collect(),
            in_order: plan.in_order,
            next: first,
        }
    }

    /// The number of the next request.
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
        self.sums
            .partition_point(|sum| *sum <= chance)
            .min(count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Class;

    #[test]
    fn a_login_page_with_200_is_not_what_was_expected() {
        let expect = Expect {
            statuses: Vec::new(),
            marker: Some(Marker::new("cart")),
        };
        assert_eq!(expect.judge(200, true, None), None);
        assert_eq!(expect.judge(200, false, None), Some(Cause::MarkerMissing));
        assert_eq!(
            expect.judge(302, true, Some(true)),
            Some(Cause::Redirect(302))
        );
        assert_eq!(
            expect.judge(302, true, Some(false)),
            Some(Cause::RedirectAway(302))
        );
        let class = expect.judge(502, true, None).map(Cause::class);
        assert_eq!(class, Some(Class::Failed));
        let expect = Expect {
            statuses: vec![404],
            marker: None,
        };
        assert_eq!(expect.judge(404, true, None), None);
        assert_eq!(expect.judge(200, true, None), Some(Cause::Status(200)));
    }

    #[test]
    fn requests_are_chosen_as_often_as_they_weigh() {
        let choice = Choice {
            sums: vec![1.0, 4.0, 10.0],
            in_order: false,
            next: 0,
        };
        let mut random = fastrand::Rng::with_seed(3);
        let mut counts = [0_u32; 3];
        let mut by_chance = choice.clone();
        (0..10_000).for_each(|_| counts[by_chance.pick(&mut random)] += 1);
        for (count, wanted) in counts.into_iter().zip([1_000, 3_000, 6_000]) {
            assert!(count.abs_diff(wanted) < 200, "{counts:?}");
        }
        let mut in_order = Choice {
            in_order: true,
            next: 1,
            ..choice
        };
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
