//! The timeout of a stream. Streams share the throughput of their connection, so a stream may be
//! slower than the connection, but must not stall for long.

use std::time::Duration;

use tokio::time::Instant;

use crate::net::client_rate::{ANSWER_GRACE, Pace, REQUEST_GRACE};
use crate::server::http2::connection_state::ConnectionState;

/// How long a stream may stall while its connection progresses: a slow connection with many streams
/// needs this long for a round.
const STANDS: Duration = Duration::from_secs(300);

/// One direction of a stream.
#[derive(Debug)]
pub struct StreamPace {
    connection: Pace,
    stream: Pace,
}

impl StreamPace {
    /// The timeout of a response that starts now.
    pub fn of_response(trunk: &ConnectionState) -> StreamPace {
        StreamPace::new(trunk.rates.response, ANSWER_GRACE)
    }

    /// The timeout of a body that starts now.
    pub fn of_body(trunk: &ConnectionState) -> StreamPace {
        StreamPace::new(trunk.rates.request, REQUEST_GRACE)
    }

    fn new(rate: u32, grace: Duration) -> StreamPace {
        StreamPace { connection: Pace::new(rate, grace), stream: Pace::new(0, STANDS) }
    }

    /// Starts a wait for the client, after `own` bytes of the stream and `all` of its connection.
    /// Returns its deadline.
    pub fn wait(&mut self, own: u64, all: u64, now: Instant) -> Instant {
        let connection = self.connection.wait(all, now);
        connection.min(self.stream.wait(own, now))
    }

    /// Ends the wait, with progress.
    pub fn came(&mut self, now: Instant) {
        self.connection.came(|| now);
        self.stream.came(|| now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_stream_that_stands_lives_for_a_while_if_its_connection_moves() {
        let began = Instant::now();
        let (mut pace, mut now, mut all) = (StreamPace::new(500, seconds(60)), began, 0);
        let lasts = loop {
            let deadline = pace.wait(0, all, now);
            if deadline < now + seconds(1) {
                break deadline - began;
            }
            now += seconds(1);
            pace.came(now);
            all += 600;
        };
        assert_eq!(lasts, STANDS);
    }

    #[test]
    fn a_stream_of_a_connection_that_stands_has_its_grace() {
        let now = Instant::now();
        let mut pace = StreamPace::new(500, seconds(60));
        assert_eq!(pace.wait(0, 7_000_000, now), now + seconds(60));
    }
}
