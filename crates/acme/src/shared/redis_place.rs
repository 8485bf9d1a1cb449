//! Redis as the place of what is shared. Records are strings that expire, registrations are in a
//! hash, and the lock is a string that expires.

use std::sync::Arc;
use std::time::Duration;

use maitred_control::redis_access::RedisAccess;
use maitred_control::shared_certificates::LOCK_TIME;
use maitred_redis::resp::Value;
use maitred_redis::{Connection, tls};
use rustls::ClientConfig;

use super::witnesses::Registrations;

/// The key of the lock, and of the registrations.
const LOCK: &str = "lock";
const NODES: &str = "nodes";

/// Redis, and what the names of all keys begin with.
pub struct RedisPlace {
    access: RedisAccess,
    tls: Option<Arc<ClientConfig>>,
    prefix: String,
    own: String,
    connection: Option<Connection>,
}

impl RedisPlace {
    /// One that has not connected.
    ///
    /// # Errors
    /// One sentence, when there are no root certificates.
    pub fn new(access: RedisAccess, prefix: String, own: &str) -> Result<RedisPlace, String> {
        let tls = tls(&access)?;
        Ok(RedisPlace { access, tls, prefix, own: own.to_owned(), connection: None })
    }

    /// Connects again the next time.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends a command about a key.
    async fn call(&mut self, verb: &str, key: &str, words: &[&str]) -> Result<Value, String> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.access, self.tls.clone()).await?,
        };
        let key = format!("{}{key}", self.prefix);
        let all: Vec<&str> = [verb, &key].into_iter().chain(words.iter().copied()).collect();
        let value = connection.call(&all).await?;
        // Dropped if this was given up or has failed: the next reply would be another one's.
        self.connection = Some(connection);
        Ok(value)
    }

    /// Reads a record.
    pub async fn read(&mut self, name: &str) -> Result<Option<String>, String> {
        Ok(self.call("GET", name, &[]).await?.text().map(str::to_owned))
    }

    /// Writes or removes a record.
    pub async fn write(
        &mut self,
        name: &str,
        text: Option<&str>,
        life: Duration,
    ) -> Result<(), String> {
        let millis = life.as_millis().max(1).to_string();
        match text {
            Some(text) => self.call("SET", name, &[text, "PX", &millis]).await,
            None => self.call("DEL", name, &[]).await,
        }
        .map(drop)
    }

    /// Gets the lock, unless another node has it.
    pub async fn lock(&mut self) -> Result<bool, String> {
        let (own, millis) = (self.own.clone(), LOCK_TIME.as_millis().to_string());
        let set = self.call("SET", LOCK, &[&own, "NX", "PX", &millis]).await?;
        if set != Value::Nothing {
            return Ok(true);
        }
        if !self.has_lock().await? {
            return Ok(false);
        }
        // A lock that was not given back may be about to expire: an order takes its whole time.
        let set = self.call("SET", LOCK, &[&own, "XX", "PX", &millis]).await?;
        Ok(set != Value::Nothing)
    }

    /// Whether this node has the lock.
    pub async fn has_lock(&mut self) -> Result<bool, String> {
        Ok(self.call("GET", LOCK, &[]).await?.text() == Some(&self.own))
    }

    /// Gives the lock back. An order ends long before its lock expires, so none of another node is
    /// removed.
    pub async fn unlock(&mut self) -> Result<(), String> {
        if self.has_lock().await? {
            self.call("DEL", LOCK, &[]).await?;
        }
        Ok(())
    }

    /// Registers this node.
    pub async fn register(&mut self, text: &str) -> Result<(), String> {
        let own = self.own.clone();
        self.call("HSET", NODES, &[&own, text]).await.map(drop)
    }

    /// The registrations of all nodes.
    pub async fn nodes(&mut self) -> Result<Registrations, String> {
        let all = self.call("HGETALL", NODES, &[]).await?;
        let pairs = all.list().unwrap_or_default().chunks_exact(2);
        let pair = |pair: &[Value]| {
            let [name, text] = pair else { return None };
            Some((name.text()?.to_owned(), text.text()?.to_owned()))
        };
        Ok(pairs.filter_map(pair).collect())
    }

    /// Removes the registration of a node.
    pub async fn forget(&mut self, node: &str) -> Result<(), String> {
        self.call("HDEL", NODES, &[node]).await.map(drop)
    }
}
