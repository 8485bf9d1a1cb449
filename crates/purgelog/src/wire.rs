//! Rounds as transactions of Redis, and their replies.
//!
//! Keys: `PREFIX:purges` is the stream, `PREFIX:nodes` a hash with the registrations, `PREFIX:log`
//! a hash with the era (`era`), the run of Redis for which it is good (`run`), and since when
//! (`since`: the era, and seconds and microseconds of Redis' clock). `PREFIX:runs:POOL/NAME:TIME`
//! is the node that runs a schedule that was due then, `PREFIX:figures` a hash with what dashboards
//! show of nodes (`node_figures.rs`).

use maitred_redis::plain;
use maitred_redis::resp::{self, Value};

use crate::Millis;
use crate::log_entry::{Entry, EntryId};
use crate::member::{MAX_READ, Round, RoundReply};

/// The keys of a log.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The stream.
    pub purges: String,
    /// The registrations.
    pub nodes: String,
    /// The era.
    pub log: String,
    /// The figures of nodes, for dashboards.
    pub figures: String,
    /// The beginning of the keys of runs of schedules.
    runs: String,
}

impl Keys {
    /// The keys with this prefix.
    pub fn new(prefix: &str) -> Keys {
        let key = |name: &str| format!("{prefix}:{name}");
        let (purges, nodes) = (key("purges"), key("nodes"));
        Keys { purges, nodes, log: key("log"), figures: key("figures"), runs: key("runs") }
    }

    /// The key of a run of a schedule.
    pub fn run(&self, run: &str) -> String {
        format!("{}:{run}", self.runs)
    }
}

/// What a round needs beside itself.
#[derive(Debug, Clone)]
pub struct RoundContext<'a> {
    /// The keys.
    pub keys: &'a Keys,
    /// The name of this node.
    pub node: &'a str,
    /// Entries of the stream, about.
    pub length: u64,
    /// Which run of which server the connection leads to.
    pub run: &'a str,
    /// The value of `since` to be written.
    pub since: Option<&'a str>,
}

/// The commands of a round.
pub fn encode(round: &Round, context: &RoundContext<'_>) -> (Vec<u8>, usize) {
    let RoundContext { keys, node, length, run, since } = context;
    let Keys { purges, nodes, log, .. } = keys;
    let (mut bytes, mut count) = (Vec::new(), 0);
    let mut say = |words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        resp::command(&words, &mut bytes);
        count += 1;
    };
    say(&["MULTI"]);
    say(&["HGET", nodes, node]);
    if let Some(era) = &round.establish {
        say(&["DEL", log]);
        say(&["HSET", log, "era", era, "run", run]);
    } else if let Some(since) = since {
        say(&["HSET", log, "since", since]);
    }
    for gone in &round.forget {
        say(&["HDEL", nodes, gone]);
    }
    say(&["HSET", nodes, node, &round.registration]);
    say(&["TIME"]);
    for one in &round.add {
        let length = length.to_string();
        let (token, purge) = (&one.token, &one.payload);
        say(&["XADD", purges, "MAXLEN", "~", &length, "*", "token", token, "purge", purge]);
    }
    say(&["HMGET", log, "era", "run", "since"]);
    say(&["XRANGE", purges, "-", "+", "COUNT", "1"]);
    say(&["XREVRANGE", purges, "+", "-", "COUNT", "1"]);
    if let Some(after) = round.read_after {
        let (count, after) = (MAX_READ.to_string(), after.to_string());
        say(&["XREAD", "COUNT", &count, "STREAMS", purges, &after]);
    }
    say(&["HGETALL", nodes]);
    say(&["EXEC"]);
    (bytes, count)
}

/// Reads the reply to the transaction of a round. Returns the value of `since` for an era that it
/// has set, too.
///
/// # Errors
/// One sentence, when it is not as expected.
pub fn decode(
    round: &Round,
    run: &str,
    replies: &[Value],
) -> Result<(RoundReply, Option<String>), String> {
    if let Some(Value::Error(why)) = replies.iter().find(|one| matches!(one, Value::Error(_))) {
        return Err(format!("it refuses a command: {}", plain(why)));
    }
    let strange = || "it sent a reply that is not one of Redis".to_owned();
    let done = replies.last().and_then(Value::list).ok_or_else(strange)?;
    if let Some(Value::Error(why)) = done.iter().find(|one| matches!(one, Value::Error(_))) {
        return Err(format!("it refuses a command: {}", plain(why)));
    }
    read(round, run, done).ok_or_else(strange)
}

fn read(round: &Round, run: &str, done: &[Value]) -> Option<(RoundReply, Option<String>)> {
    let (nodes, done) = done.split_last()?;
    let (entries, done) = match round.read_after {
        Some(_) => {
            let (read, done) = done.split_last()?;
            (read_entries(read)?, done)
        }
        None => (Vec::new(), done),
    };
    let (last, done) = done.split_last()?;
    let (first, done) = done.split_last()?;
    let (log, done) = done.split_last()?;
    let (done, added) = done.split_at_checked(done.len().checked_sub(round.add.len())?)?;
    let (time, _) = done.split_last()?;
    let [seconds, micros] = time.list()? else { return None };
    let time = [seconds.text()?.parse::<u64>().ok()?, micros.text()?.parse::<u64>().ok()?];
    let [era, of_run, since] = log.list()? else { return None };
    let era = era.text().filter(|_| of_run.text() == Some(run)).map(str::to_owned);
    let ends = match (ids(first)?.first(), ids(last)?.first()) {
        (Some(first), Some(last)) => Some((*first, *last)),
        _ => None,
    };
    let added = added.iter().map(|id| id.text()?.parse().ok()).collect::<Option<Vec<EntryId>>>()?;
    let named = round.establish.as_ref();
    let since_new = named.map(|era| format!("{era} {} {}", time[0], time[1]));
    let era_age = era.as_deref().and_then(|era| age(era, since.text()?, time));
    let nodes = nodes.list()?.chunks_exact(2).map(|pair| match pair {
        [name, text] => Some((name.text()?.to_owned(), text.text()?.to_owned())),
        _ => None,
    });
    // A name that is no text is that of no node.
    let nodes = nodes.flatten().collect();
    let registered = done.first()?.text().map(str::to_owned);
    let era_age = era_age.unwrap_or(0);
    Some((RoundReply { era, era_age, registered, added, ends, entries, nodes }, since_new))
}

/// How long ago an era began.
fn age(era: &str, since: &str, now: [u64; 2]) -> Option<Millis> {
    let mut words = since.split(' ');
    words.next().filter(|of| *of == era)?;
    let [seconds, micros] = [words.next()?.parse::<u64>().ok()?, words.next()?.parse().ok()?];
    let millis =
        |seconds: u64, micros: u64| seconds.saturating_mul(1000).saturating_add(micros / 1000);
    Some(millis(now[0], now[1]).saturating_sub(millis(seconds, micros)))
}

fn ids(entries: &Value) -> Option<Vec<EntryId>> {
    let id = |entry: &Value| entry.list()?.first()?.text()?.parse().ok();
    entries.list()?.iter().map(id).collect()
}

/// The entries of the only stream in the reply to XREAD. One that is not as ours are counts as a
/// purge that is not understood.
fn read_entries(read: &Value) -> Option<Vec<Entry>> {
    let Some(stream) = read.list()?.first() else { return Some(Vec::new()) };
    let [_, entries] = stream.list()? else { return None };
    let entry = |entry: &Value| {
        let [id, fields] = entry.list()? else { return None };
        let id = id.text()?.parse().ok()?;
        let fields = fields.list()?;
        let field = |name: &str| {
            let mut pairs = fields.chunks_exact(2);
            let pair = pairs.find(|pair| pair[0].text() == Some(name))?;
            pair[1].text().map(str::to_owned)
        };
        let token = field("token").unwrap_or_default();
        let payload = field("purge").unwrap_or_else(|| NOT_UNDERSTOOD.to_owned());
        Some(Entry { id, token, payload })
    };
    entries.list()?.iter().map(entry).collect()
}

/// A payload that is no purge.
const NOT_UNDERSTOOD: &str = "?";

/// The identity of a run of Redis, from the reply to INFO: another one after a restart and after a
/// fail-over. None for a replica.
///
/// # Errors
/// One sentence, when it cannot be used.
pub fn run_of(info: &str) -> Result<String, String> {
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
    };
    if field("role").is_some_and(|role| role != "master") {
        return Err("it is a replica; the log needs the primary".to_owned());
    }
    match (field("run_id"), field("master_replid")) {
        (Some(run), replication) if !run.is_empty() && run.len() <= 64 => {
            let replication = replication.unwrap_or_default();
            let replication = replication.get(..replication.len().min(64)).unwrap_or_default();
            Ok(format!("{run}:{replication}"))
        }
        _ => Err("it does not report its run_id (INFO server)".to_owned()),
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod reply_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_another_one_after_a_restart_and_after_a_fail_over() {
        let info = "# Server\r\nrun_id:ab\r\n# Replication\r\nrole:master\r\nmaster_replid:cd\r\n";
        assert_eq!(run_of(info), Ok("ab:cd".to_owned()));
        assert!(run_of("role:slave\r\nrun_id:ab\r\n").is_err());
        assert!(run_of("role:master\r\n").is_err());
    }

    #[test]
    fn a_whole_reply_is_read() {
        let bytes = include_bytes!("../../../fuzz/seeds/purge_log/round");
        let (value, length) = resp::parse(bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        let round = Round {
            registration: String::new(),
            establish: None,
            add: Vec::new(),
            read_after: Some(EntryId::default()),
            forget: Vec::new(),
        };
        let (reply, _) = decode(&round, "a:b", std::slice::from_ref(&value)).unwrap();
        assert_eq!((reply.era.as_deref(), reply.era_age), (Some("e-1"), 9900));
        assert_eq!((reply.entries.len(), reply.nodes.len()), (1, 1));
        // Another run, or an error in it.
        assert_eq!(decode(&round, "a:c", &[value]).unwrap().0.era, None);
        let refused = [Value::Error("NOAUTH".to_owned())];
        assert!(decode(&round, "a:b", &refused).is_err());
    }

    #[test]
    fn an_age_is_that_of_the_same_era_only() {
        assert_eq!(age("e", "e 100 500000", [101, 700_000]), Some(1200));
        assert_eq!(age("e", "e 100 500000", [99, 0]), Some(0));
        assert_eq!(age("e", "f 100 500000", [101, 0]), None);
        assert_eq!(age("e", "e 100", [101, 0]), None);
    }

    #[test]
    fn an_entry_of_others_is_a_purge_that_is_not_understood() {
        let text = |text: &str| Value::Text(text.as_bytes().to_vec());
        let fields = Value::List(vec![text("a"), text("b"), text("odd")]);
        let entries = Value::List(vec![Value::List(vec![text("1-0"), fields])]);
        let read = Value::List(vec![Value::List(vec![text("key"), entries])]);
        let entry = Entry {
            id: EntryId { millis: 1, number: 0 },
            token: String::new(),
            payload: "?".to_owned(),
        };
        assert_eq!(read_entries(&read), Some(vec![entry]));
        assert_eq!(read_entries(&Value::Nothing), Some(Vec::new()));
    }
}
