//! A connection to Redis, for rounds.

use std::sync::Arc;
use std::time::Duration;

use maitred_redis::Connection as Redis;
use maitred_redis::resp::{self, Value};
use rustls::ClientConfig;

use crate::log_entry::EntryId;
use crate::member::{Round, RoundReply};
use crate::redis_log::RedisLog;
use crate::wire::{self, Keys, RoundContext};

/// The fields of a hash.
#[derive(Debug, Default)]
pub struct HashFields {
    /// Those that are text, with their values.
    pub text: Vec<(String, String)>,
    /// The names of the others.
    pub strange: Vec<Vec<u8>>,
}

/// A connection that is ready for rounds.
pub struct Connection {
    redis: Redis,
    /// Which run of which server it is.
    run: String,
    /// What `since` is to be set to, after an era was set.
    since: Option<String>,
}

impl Connection {
    /// Connects, authenticates, and finds out which server it is.
    ///
    /// # Errors
    /// One sentence without any secret.
    pub async fn open(
        settings: &RedisLog,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Connection, String> {
        let mut redis = Redis::open(&settings.access, tls).await?;
        let mut info = String::new();
        for section in ["server", "replication"] {
            let reply = redis.call(&["INFO", section]).await?;
            info.push_str(reply.text().unwrap_or_default());
        }
        Ok(Connection { redis, run: wire::run_of(&info)?, since: None })
    }

    /// Carries out a round.
    ///
    /// # Errors
    /// One sentence; the connection is of no more use then.
    pub async fn round(
        &mut self,
        round: &Round,
        keys: &Keys,
        settings: &RedisLog,
    ) -> Result<RoundReply, String> {
        let since = self.since.take();
        let (run, node, length) = (&self.run, settings.node.as_str(), settings.length);
        let context = RoundContext { keys, node, length, run, since: since.as_deref() };
        let (commands, count) = wire::encode(round, &context);
        let replies = self.redis.send(&commands, count).await?;
        let (reply, since) = wire::decode(round, &self.run, &replies)?;
        self.since = since;
        Ok(reply)
    }

    /// Registers that this node has left.
    ///
    /// # Errors
    /// One sentence.
    pub async fn leave(&mut self, keys: &Keys, node: &str, text: &str) -> Result<(), String> {
        self.put(&keys.nodes, node, text).await?;
        self.remove(&keys.figures, node.as_bytes()).await
    }

    /// The time of Redis, in seconds since 1970.
    ///
    /// # Errors
    /// One sentence; the connection is of no more use then, here and in the next three.
    pub async fn seconds(&mut self) -> Result<u64, String> {
        let time = self.redis.call(&["TIME"]).await?;
        let seconds = time.list().and_then(|time| time.first()?.text()?.parse().ok());
        seconds.ok_or_else(|| "it does not report its time".to_owned())
    }

    /// Sets a field of a hash.
    ///
    /// # Errors
    /// One sentence.
    pub async fn put(&mut self, key: &str, field: &str, text: &str) -> Result<(), String> {
        self.redis.call(&["HSET", key, field, text]).await.map(drop)
    }

    /// Removes a field of a hash.
    ///
    /// # Errors
    /// One sentence.
    pub async fn remove(&mut self, key: &str, field: &[u8]) -> Result<(), String> {
        self.redis.call_bytes(&[b"HDEL", key.as_bytes(), field]).await.map(drop)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// One sentence.
    pub async fn clear(&mut self, key: &str) -> Result<(), String> {
        self.redis.call(&["DEL", key]).await.map(drop)
    }

    /// Sets how long a key lasts. A user of Redis who may not do so goes without: the command came
    /// later than the others.
    ///
    /// # Errors
    /// One sentence.
    pub async fn expire(&mut self, key: &str, after: Duration) -> Result<(), String> {
        let mut command = Vec::new();
        let seconds = after.as_secs().to_string();
        resp::command(&[b"EXPIRE", key.as_bytes(), seconds.as_bytes()], &mut command);
        self.redis.send(&command, 1).await.map(drop)
    }

    /// All fields of a hash.
    ///
    /// # Errors
    /// One sentence; also if they are more than a reply may have.
    pub async fn all(&mut self, key: &str) -> Result<HashFields, String> {
        let reply = self.redis.call(&["HGETALL", key]).await?;
        let mut fields = HashFields::default();
        for pair in reply.list().unwrap_or_default().chunks_exact(2) {
            match (pair[0].text(), pair[1].text(), &pair[0]) {
                (Some(name), Some(text), _) => fields.text.push((name.to_owned(), text.to_owned())),
                (_, _, Value::Text(name)) => fields.strange.push(name.clone()),
                _ => {}
            }
        }
        Ok(fields)
    }

    /// Claims a key for this node for a time, unless another has it. Returns whether this node has
    /// it, also if it had it before.
    ///
    /// # Errors
    /// One sentence; the connection is of no more use then.
    pub async fn claim(
        &mut self,
        key: &str,
        node: &str,
        lifetime: Duration,
    ) -> Result<bool, String> {
        let lifetime = lifetime.as_millis().max(1).to_string();
        self.redis.call(&["SET", key, node, "NX", "PX", &lifetime]).await?;
        match self.redis.call(&["GET", key]).await?.text() {
            Some(owner) => Ok(owner == node),
            None => Err("it has dropped a claim".to_owned()),
        }
    }

    /// Waits for an entry after this one, or for some seconds. Returns whether there is one.
    ///
    /// # Errors
    /// One sentence; the connection is of no more use then.
    pub async fn await_entry(&mut self, keys: &Keys, after: EntryId) -> Result<bool, String> {
        const BLOCK_MILLIS: &str = "5000";
        let after = after.to_string();
        let key = keys.purges.as_str();
        let words = ["XREAD", "COUNT", "1", "BLOCK", BLOCK_MILLIS, "STREAMS", key, &after];
        Ok(self.redis.call(&words).await? != Value::Nothing)
    }
}
