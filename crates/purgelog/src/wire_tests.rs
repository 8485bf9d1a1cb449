use super::*;
use crate::log_entry::Addition;

fn text(text: &str) -> Value {
    Value::Text(text.as_bytes().to_vec())
}

fn round() -> Round {
    Round {
        registration: "i 9 live".to_owned(),
        establish: None,
        add: Vec::new(),
        read_after: None,
        forget: Vec::new(),
    }
}

/// The commands of a round, each as its words.
fn commands(round: &Round, since: Option<&str>) -> Vec<String> {
    let keys = Keys::new("p");
    let context = RoundContext { keys: &keys, node: "n", length: 100, run: "ab:cd", since };
    let (bytes, count) = encode(round, &context);
    let mut rest = &bytes[..];
    let mut found = Vec::new();
    while let Some((command, length)) = resp::parse(rest).unwrap() {
        let words = command.list().unwrap().iter().map(|word| word.text().unwrap().to_owned());
        found.push(words.collect::<Vec<_>>().join(" "));
        rest = &rest[length..];
    }
    assert_eq!((found.len(), rest.len()), (count, 0));
    found
}

#[test]
fn a_round_is_one_transaction_that_registers_adds_and_reads() {
    let idle = [
        "MULTI",
        "HGET p:nodes n",
        "HSET p:nodes n i 9 live",
        "TIME",
        "HMGET p:log era run since",
        "XRANGE p:purges - + COUNT 1",
        "XREVRANGE p:purges + - COUNT 1",
        "HGETALL p:nodes",
        "EXEC",
    ];
    assert_eq!(commands(&round(), None), idle);
    let addition = Addition { token: "i:1".to_owned(), payload: "{}".to_owned() };
    let all = Round {
        establish: Some("e-2".to_owned()),
        add: vec![addition],
        read_after: Some(EntryId { millis: 5, number: 7 }),
        forget: vec!["gone".to_owned()],
        ..round()
    };
    let expected = [
        "MULTI",
        "HGET p:nodes n",
        "DEL p:log",
        "HSET p:log era e-2 run ab:cd",
        "HDEL p:nodes gone",
        "HSET p:nodes n i 9 live",
        "TIME",
        "XADD p:purges MAXLEN ~ 100 * token i:1 purge {}",
        "HMGET p:log era run since",
        "XRANGE p:purges - + COUNT 1",
        "XREVRANGE p:purges + - COUNT 1",
        "XREAD COUNT 64 STREAMS p:purges 5-7",
        "HGETALL p:nodes",
        "EXEC",
    ];
    assert_eq!(commands(&all, Some("e-2 1 2")), expected, "an era comes without its time");
    let since = commands(&round(), Some("e-1 1 2"));
    assert_eq!(since[2], "HSET p:log since e-1 1 2");
    assert_eq!(since.len(), idle.len() + 1);
    assert_eq!(Keys::new("p").run("www/tick:60"), "p:runs:www/tick:60");
}

#[test]
fn the_reply_of_a_round_that_adds_and_sets_an_era_has_ids_and_time() {
    let list = |values: &[Value]| Value::List(values.to_vec());
    let entry = |id: &str| list(&[text(id), list(&[text("token"), text("i:1")])]);
    let addition = || Addition { token: "i:1".to_owned(), payload: "{}".to_owned() };
    let asked =
        Round { establish: Some("e-2".to_owned()), add: vec![addition(), addition()], ..round() };
    let done = [
        text("j 3 live"),
        Value::Number(1),
        Value::Number(1),
        list(&[text("100"), text("500000")]),
        text("5-0"),
        text("6-0"),
        list(&[text("e-2"), text("ab:cd"), Value::Nothing]),
        list(&[entry("1-0")]),
        list(&[entry("6-0")]),
        list(&[text("n"), text("i 9 live")]),
    ];
    let replies = [text("OK"), list(&done)];
    let (reply, since) = decode(&asked, "ab:cd", &replies).unwrap();
    assert_eq!(since.as_deref(), Some("e-2 100 500000"));
    let id = |millis| EntryId { millis, number: 0 };
    let expected = RoundReply {
        era: Some("e-2".to_owned()),
        era_age: 0,
        registered: Some("j 3 live".to_owned()),
        added: vec![id(5), id(6)],
        ends: Some((id(1), id(6))),
        entries: Vec::new(),
        nodes: vec![("n".to_owned(), "i 9 live".to_owned())],
    };
    assert_eq!(reply, expected);
    // Fewer replies than commands, a number for an id, an error among them.
    assert!(decode(&asked, "ab:cd", &[list(&done[4..])]).is_err());
    let mut wrong = done.clone();
    wrong[5] = Value::Number(6);
    assert!(decode(&asked, "ab:cd", &[list(&wrong)]).is_err());
    wrong[5] = Value::Error("OOM no memory".to_owned());
    let why = decode(&asked, "ab:cd", &[list(&wrong)]).unwrap_err();
    assert_eq!(why, "it refuses a command: OOM no memory");
    assert!(decode(&asked, "ab:cd", &[]).is_err());
}

#[test]
fn a_run_has_a_name_of_at_most_64_bytes() {
    let run = |length: usize| run_of(&format!("run_id:{}\n", "a".repeat(length)));
    assert_eq!(run(64), Ok("a".repeat(64) + ":"));
    assert!(run(65).is_err() && run(0).is_err());
    let replication = run_of(&format!("run_id:a\nmaster_replid:{}\n", "b".repeat(70)));
    assert_eq!(replication, Ok(format!("a:{}", "b".repeat(64))));
}

#[test]
fn the_fields_of_an_entry_are_found_in_any_order() {
    let fields = ["purge", "{}", "x", "y", "token", "i:1"].map(text).to_vec();
    let entries = Value::List(vec![Value::List(vec![text("1-2"), Value::List(fields)])]);
    let read = Value::List(vec![Value::List(vec![text("key"), entries])]);
    let id = EntryId { millis: 1, number: 2 };
    let entry = Entry { id, token: "i:1".to_owned(), payload: "{}".to_owned() };
    assert_eq!(read_entries(&read), Some(vec![entry]));
    assert_eq!(read_entries(&Value::List(vec![Value::List(vec![text("key")])])), None);
}
