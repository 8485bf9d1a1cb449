//! The figures of nodes for their dashboards: each node writes its own into a hash of Redis, beside
//! the time, and reads those of all. That has a connection of its own, so that rounds do not wait
//! for it, and nothing depends on it.

use std::sync::Arc;
use std::time::Duration;

use maitred_control::nodes::{KnownNode, KnownNodes, NodeFigures};
use maitred_control::purge_log::{FromPurgeLog, plain_node};
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::connection::Connection;
use crate::link::Link;
use crate::redis_log::RedisLog;
use crate::session::too_slow;
use crate::wire::Keys;

/// A node that has not announced itself for this long is not shown any more, in seconds.
const SHOWN_SECONDS: u64 = 600;

/// An entry that is further in the future than this, in seconds of Redis' clock, is of no node.
const FUTURE_SECONDS: u64 = 5;

/// The entries last for this time after the last node has written.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Most nodes that are removed at a time.
const MAX_FORGOTTEN: usize = 16;

/// What is written, to be read by all.
pub type Announced = watch::Receiver<Option<NodeFigures>>;

/// What an exchange needs.
pub struct FiguresExchange {
    /// The settings.
    pub settings: Arc<RedisLog>,
    /// The keys.
    pub keys: Arc<Keys>,
    /// TLS, if the server has it.
    pub tls: Option<Arc<ClientConfig>>,
    /// The supervisor.
    pub link: Link,
}

impl FiguresExchange {
    /// Exchanges figures whenever this node has new ones, until there are none any more.
    pub async fn run(self, mut announced: Announced) {
        let (mut connection, mut is_unreadable) = (None, false);
        while announced.changed().await.is_ok() {
            let Some(mine) = announced.borrow_and_update().clone() else { continue };
            let exchange = self.once(&mine, connection.take(), &mut is_unreadable);
            let exchanged = timeout(self.settings.timeout, exchange);
            let exchanged = exchanged.await.unwrap_or_else(|_| Err(too_slow(&self.settings)));
            let outcome = exchanged.map(|(open, known)| {
                connection = Some(open);
                known
            });
            if self.link.say(&FromPurgeLog::Nodes { outcome }).is_err() {
                return;
            }
        }
    }

    /// Writes and reads. Entries that cannot be read, such as too many, are all removed the next
    /// time: each node writes its own again soon.
    async fn once(
        &self,
        mine: &NodeFigures,
        connection: Option<Connection>,
        is_unreadable: &mut bool,
    ) -> Result<(Connection, KnownNodes), String> {
        let mut open = match connection {
            Some(connection) => connection,
            None => Connection::open(&self.settings, self.tls.clone()).await?,
        };
        let (key, node) = (self.keys.figures.as_str(), self.settings.node.as_str());
        let now = open.seconds().await?;
        if std::mem::take(is_unreadable) {
            open.clear(key).await?;
        }
        open.put(key, node, &format!("{now} {}", mine.text())).await?;
        open.expire(key, LIFETIME).await?;
        let fields = open.all(key).await.inspect_err(|_| *is_unreadable = true)?;
        let (known, gone) = read_nodes(fields.text, node, now);
        let gone = gone.into_iter().map(String::into_bytes);
        for name in gone.chain(fields.strange.into_iter().take(MAX_FORGOTTEN)) {
            open.remove(key, &name).await?;
        }
        Ok((open, known))
    }
}

/// The nodes in the hash at this time of Redis, and the entries that are to be removed.
pub fn read_nodes(all: Vec<(String, String)>, me: &str, now: u64) -> (KnownNodes, Vec<String>) {
    let (mut nodes, mut gone) = (Vec::new(), Vec::new());
    for (name, text) in all {
        let parts = text.split_once(' ');
        let written = parts.and_then(|(at, text)| Some((at.parse().ok()?, text)));
        let written =
            written.filter(|(at, _): &(u64, _)| *at <= now.saturating_add(FUTURE_SECONDS));
        let age = written.map(|(at, _)| now.saturating_sub(at));
        let figures = written.and_then(|(_, text)| NodeFigures::read(text));
        match (age.filter(|age| *age < SHOWN_SECONDS), figures) {
            (Some(age), Some(figures)) => {
                nodes.push(KnownNode {
                    is_here: name == me,
                    name: plain_node(&name),
                    age,
                    figures,
                });
            }
            _ if gone.len() < MAX_FORGOTTEN => gone.push(name),
            _ => {}
        }
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    (KnownNodes::of(nodes), gone)
}

#[cfg(test)]
mod tests {
    use maitred_control::ToFront;
    use maitred_control::nodes::MAX_NODES_SHOWN;
    use maitred_os::channel::MAX_MESSAGE_BYTES;

    use super::*;

    fn entry(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn nodes_have_their_age_and_old_and_strange_entries_are_removed() {
        let all = vec![
            entry("n2", "690 {\"requests\":7}"),
            entry("n1\x1b", "600 {}"),
            entry("gone", "1 {}"),
            entry("odd", "100 ["),
            entry("none", ""),
            entry("future", "706 {}"),
            entry("n3", "705 {}"),
            entry("me", "200 {}"),
        ];
        let (known, gone) = read_nodes(all, "me", 700);
        assert_eq!(gone, ["gone", "odd", "none", "future"]);
        let shown: Vec<_> =
            known.nodes.iter().map(|one| (one.name.as_str(), one.age, one.is_here)).collect();
        assert_eq!(
            shown,
            [("me", 500, true), ("n1?", 100, false), ("n2", 10, false), ("n3", 0, false)]
        );
        assert_eq!(known.nodes[2].figures.requests, 7);
    }

    #[test]
    fn the_longest_figures_of_nodes_fit_into_the_messages_to_supervisor_and_front() {
        // An address stays as it is, and JSON has six bytes for each of these.
        let long = |number: usize, bytes: usize| {
            let url = "\\u0001".repeat(bytes);
            entry(&format!("{number:064}"), &format!("5 {{\"url\":\"{url}\"}}"))
        };
        let fits = |json: Vec<u8>| assert!(json.len() <= MAX_MESSAGE_BYTES, "{}", json.len());
        for bytes in [0, 100, 120, 140, 150, 155, 158, 160] {
            let all = (0..MAX_NODES_SHOWN).map(|number| long(number, bytes)).collect();
            let known = read_nodes(all, "me", 7).0;
            assert_eq!(known.nodes.len() + known.more, MAX_NODES_SHOWN);
            assert_eq!(known.more == 0, bytes == 0);
            let outcome = Ok(known);
            fits(serde_json::to_vec(&FromPurgeLog::Nodes { outcome: outcome.clone() }).unwrap());
            fits(serde_json::to_vec(&ToFront::ShowNodes { outcome }).unwrap());
        }
    }

    #[test]
    fn a_flood_of_nodes_is_cut_and_counted() {
        let all = (0..500).map(|number| entry(&format!("n{number:03}"), "5 {}")).collect();
        let (known, gone) = read_nodes(all, "n007", 4);
        assert_eq!((known.nodes.len(), known.more, gone.len()), (MAX_NODES_SHOWN, 436, 0));
        assert!(known.nodes[7].is_here && known.nodes.iter().all(|one| one.age == 0));
        let all = (0..500).map(|number| entry(&number.to_string(), "")).collect();
        assert_eq!(read_nodes(all, "me", 4).1.len(), MAX_FORGOTTEN);
    }
}
