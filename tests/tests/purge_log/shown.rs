//! What nodes with one purge log show of each other on their dashboards.

use maitred_tests::dashboard_events::{Events, merge};
use maitred_tests::http;
use maitred_tests::ports::free_address;
use maitred_tests::processes::Signal;
use maitred_tests::redis::Redis;
use maitred_tests::wait;
use serde_json::{Value, json};

use super::{Place, get, site};

/// The state of a dashboard.
struct Dashboard {
    events: Events,
    state: Value,
}

impl Dashboard {
    /// Waits until its nodes are as they should be.
    fn wait(&mut self, what: &str, is_so: impl Fn(&Value, &[Value]) -> bool) {
        wait::until_true(what, || {
            let nodes = &self.state["nodes"];
            let list = nodes["list"].as_array().cloned().unwrap_or_default();
            let is_so = is_so(nodes, &list);
            if !is_so {
                merge(&mut self.state, &self.events.next("patch"));
            }
            is_so
        });
    }
}

#[test]
fn nodes_with_one_purge_log_show_each_other_on_their_dashboards() {
    let (root, redis) = (site(), Redis::start());
    let (place, other) = (Place::new(1, false), Place::new(2, false));
    let log = format!("url = \"unix:{}\", timeout = \"500ms\"", redis.socket().display());
    let admin = free_address();
    let server = place.setup(root.path(), &log).top(&format!("admin = \"{admin}\"")).start();
    let link = "admin_url = \"http://node2.example:9180\"";
    let second = other.setup(root.path(), &log).top(link).start();
    let mut events = Events::open(admin, "", "");
    let state = events.next("state");
    let mut dashboard = Dashboard { events, state };
    get(&second, "/a");
    dashboard.wait("both nodes, and the request to one of them", |_, list| {
        let names: Vec<_> = list.iter().map(|node| node["name"].as_str()).collect();
        names == [Some("n1"), Some("n2")] && list[1]["requests"].as_u64() > Some(0)
    });
    let list = dashboard.state["nodes"]["list"].clone();
    assert_eq!((&list[0]["here"], &list[1]["here"]), (&json!(true), &Value::Null), "{list}");
    assert_eq!((&list[0]["ready"], &list[1]["ready"]), (&json!(true), &json!(true)), "{list}");
    assert_eq!(
        (&list[0]["url"], &list[1]["url"]),
        (&Value::Null, &json!("http://node2.example:9180"))
    );
    assert_eq!(list[1]["version"], env!("CARGO_PKG_VERSION"));
    assert!(list[1]["silent"].is_null() && list[1]["saturation"].is_number(), "{list}");

    let metrics = http::get(admin, "/metrics").text();
    assert!(metrics.contains("maitred_node_ready{node=\"n2\"} 1\n"), "{metrics}");

    // A program that can write to Redis writes what it likes.
    let now: u64 = redis.cli(&["TIME"]).lines().next().unwrap().trim().parse().unwrap();
    let told = json!({ "version": "<b>", "reason": "<b>\n", "url": "javascript:alert(1)" });
    let hostile = [("<script>", format!("{now} {told}")), ("odd", "?".repeat(5000))];
    for (name, text) in &hostile {
        redis.cli(&["HSET", "maitred:figures", name, text]);
    }
    dashboard.wait("the third node", |_, list| list.len() == 3);
    let third = dashboard.state["nodes"]["list"][0].clone();
    assert_eq!((&third["name"], &third["version"]), (&json!("?script?"), &json!("?b?")));
    assert!(third["url"].is_null() && third["reason"] == "<b> ", "{third}");
    redis.cli(&["HDEL", "maitred:figures", "<script>"]);
    assert!(!redis.cli(&["HGETALL", "maitred:figures"]).contains("???"), "it was removed");
    let seconds: i64 = redis.cli(&["TTL", "maitred:figures"]).trim().parse().unwrap();
    assert!((3000..=3600).contains(&seconds), "{seconds} s");

    // Of long ones as many are shown as fit into a message to the front.
    let front = server.front().expect("a front");
    let url = "\\u0001".repeat(160);
    let names: Vec<String> = (0..62).map(|number| format!("n1-{number:056}")).collect();
    let figures = format!("{now} {{\"url\":\"{url}\"}}");
    let mut long = vec!["HSET", "maitred:figures"];
    long.extend(names.iter().flat_map(|name| [name.as_str(), figures.as_str()]));
    redis.cli(&long);
    dashboard.wait("a part of many nodes", |nodes, list| {
        (30..64).contains(&list.len()) && nodes["more"].as_u64() > Some(0)
    });
    assert_eq!(server.front(), Some(front));

    // More than a reply may have is removed.
    let flood = "for n = 1, 5000 do redis.call('HSET', KEYS[1], n, '') end";
    redis.cli(&["EVAL", flood, "1", "maitred:figures"]);
    dashboard.wait("the nodes after a flood", |nodes, list| {
        let count: u64 = redis.cli(&["HLEN", "maitred:figures"]).trim().parse().unwrap();
        nodes["problem"].is_null() && list.len() == 2 && count == 2
    });

    // A node that leaves is gone at once, and what is not current is said to be so.
    second.stop();
    dashboard.wait("one node", |_, list| list.len() == 1);
    redis.signal(Signal::STOP);
    dashboard.wait("what is wrong", |nodes, list| {
        let why = nodes["problem"].as_str().unwrap_or_default();
        why.contains("not replied within 500 ms") && list.len() == 1
    });
    redis.signal(Signal::CONT);
    dashboard.wait("the end of it", |nodes, _| nodes["problem"].is_null());
    assert_eq!(http::get(admin, "/ready").status, 200);
    server.stop();
}
