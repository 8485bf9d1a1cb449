use maitred_seat::WorkerState;

use super::*;

fn hello() -> WorkerState {
    WorkerState {
        pid: 32027,
        start_time: 1_795_172_642,
        start_since: 9,
        requests: 3,
        duration: 152,
        method: "GET".to_owned(),
        uri: "/hello.php".to_owned(),
        script: "/srv/hello.php".to_owned(),
        memory_peak: 2_097_152,
        ..WorkerState::default()
    }
}

fn upload() -> WorkerState {
    WorkerState {
        pid: 32028,
        running: true,
        start_time: 1_795_172_642,
        start_since: 9,
        requests: 1,
        duration: 2_000_001,
        method: "POST".to_owned(),
        uri: "/up.php".to_owned(),
        query: "a=1&b=<2>".to_owned(),
        content_length: 512,
        user: "anna".to_owned(),
        script: "/srv/up.php".to_owned(),
        ..WorkerState::default()
    }
}

fn status(processes: Vec<WorkerState>) -> Status {
    Status {
        pool: "www".to_owned(),
        process_manager: "static",
        shows_memory_peak: false,
        figures: PoolState {
            start_time: 1_795_172_642,
            start_since: 10,
            accepted: 4,
            queued: 1,
            max_queued: 2,
            queue_limit: 1000,
            idle: 1,
            active: 1,
            max_active: 2,
            max_children_reached: 3,
            slow: 6,
            memory_peak: 2_097_152,
            processes,
        },
    }
}

/// What php-fpm has written in UTC, as it would have been written here.
fn here(golden: &str) -> String {
    let start = crate::runtime::clock::common_log_time(1_795_172_642);
    golden.replace("20/Nov/2026:11:04:02 +0000", &start)
}

#[test]
fn text_is_laid_out_as_by_php_fpm() {
    let golden = here(include_str!("golden/full.txt"));
    let full = formats::text(&status(vec![hello(), upload()]), true);
    assert_eq!(full, golden);
    let short = formats::text(&status(vec![hello()]), false);
    assert_eq!(Some(short.as_str()), golden.split("\n***").next());
}

#[test]
fn html_is_laid_out_as_by_php_fpm() {
    let golden = here(include_str!("golden/full.html").trim_end());
    let full = formats::html(&status(vec![hello(), upload()]), true);
    assert_eq!(full, golden);
    let short = formats::html(&status(vec![hello()]), false);
    let (pool, _) = golden.split_once("<table border").unwrap();
    assert_eq!(short, format!("{pool}</body></html>"));
}

#[test]
fn xml_is_laid_out_as_by_php_fpm() {
    let golden = include_str!("golden/full.xml").trim_end();
    let full = formats::xml(&status(vec![hello(), upload()]), true);
    assert_eq!(full, golden);
    let short = formats::xml(&status(vec![hello()]), false);
    let (pool, _) = golden.split_once("<processes>").unwrap();
    assert_eq!(short, format!("{pool}</status>"));
}

#[test]
fn json_is_laid_out_as_by_php_fpm() {
    let golden = include_str!("golden/full.json").trim_end();
    let full = formats::json(&status(vec![hello(), upload()]), true);
    assert_eq!(full, golden);
    let short = formats::json(&status(vec![hello()]), false);
    let (pool, _) = golden.split_once(", \"processes\"").unwrap();
    assert_eq!(short, format!("{pool}}}"));
}

#[test]
fn what_clients_sent_is_escaped_in_json_as_by_php() {
    let mut asked = hello();
    asked.uri = "/\u{e9}\u{1f600}\"<".to_owned();
    let page = formats::json(&status(vec![asked]), true);
    let expected = r#""request uri":"\/\u00e9\ud83d\ude00\"<","#;
    assert!(page.contains(expected), "{page}");
}

#[test]
fn a_web_server_is_told_of_a_page_as_by_php_fpm() {
    let headers = |format: StatusFormat, is_head| {
        let page = StatusPage::new(format.content_type(), String::new());
        page.cgi_headers(None, is_head)
    };
    for (format, is_head, expected) in [
        (StatusFormat::Text, false, "Content-type: text/plain;charset=UTF-8\r\n"),
        (StatusFormat::Json, false, "Content-Type: application/json\r\n"),
        (StatusFormat::Json, true, "Content-type: text/html; charset=UTF-8\r\n"),
    ] {
        let headers = headers(format, is_head);
        assert!(headers.ends_with(expected), "{headers}");
    }
}

#[test]
fn openmetrics_has_php_fpms_metrics() {
    let golden = include_str!("golden/openmetrics.txt");
    assert_eq!(openmetrics::openmetrics(&status(vec![])), golden);
}

#[test]
fn the_highest_peak_memory_is_shown_where_php_fpm_shows_it() {
    let status = Status { shows_memory_peak: true, ..status(vec![]) };
    for (page, end) in [
        (formats::text(&status, false), "slow requests:        6\nmemory peak:          2097152\n"),
        (formats::json(&status, false), "\"slow requests\":6,\"memory peak\":2097152}"),
        (formats::xml(&status, false), "<memory-peak>2097152</memory-peak>\n</status>"),
        (openmetrics::openmetrics(&status), "phpfpm_memory_peak 2097152\n# EOF\n"),
    ] {
        assert!(page.ends_with(end), "{page}");
    }
    assert!(
        formats::html(&status, false).contains("<tr><th>memory peak</th><td>2097152</td></tr>")
    );
}

#[test]
fn a_pool_without_workers_and_a_worker_without_requests_are_shown() {
    let none = formats::json(&status(vec![]), true);
    assert!(none.ends_with("\"slow requests\":6, \"processes\":[]}"));
    let new = formats::text(&status(vec![WorkerState::default()]), true);
    assert!(new.contains("request URI:          -\n"), "{new}");
    assert!(new.contains("request method:       -\n"), "{new}");
}

/// A worker whose every text is what a hostile script has written there.
fn hostile() -> WorkerState {
    let text = "</td><script>\"'&\\\n\r\0\u{1b}[2J\u{85}\u{ffff}]]>\npid: 1".to_owned();
    WorkerState {
        pid: u32::MAX,
        start_time: u64::MAX,
        duration: u64::MAX,
        method: text.clone(),
        uri: text.clone(),
        query: text.clone(),
        user: text.clone(),
        script: text,
        ..WorkerState::default()
    }
}

#[test]
fn what_a_script_wrote_on_its_board_cannot_leave_its_field() {
    let spoilt = status(vec![hostile()]);
    let text = formats::text(&spoilt, true);
    let good = formats::text(&status(vec![hello()]), true);
    assert_eq!(text.lines().count(), good.lines().count());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    for page in [formats::html(&spoilt, true), formats::xml(&spoilt, true)] {
        assert!(!page.contains("</td><script>") && !page.contains("]]>"), "{page}");
        assert!(page.contains("&lt;script&gt;&quot;'&amp;\\??"), "{page}");
        assert!(!page.chars().any(|c| c.is_control() && c != '\n' || c == '\u{ffff}'));
    }
    let json: serde_json::Value = serde_json::from_str(&formats::json(&spoilt, true)).unwrap();
    let process = json["processes"][0].as_object().unwrap();
    assert_eq!(process.len(), 13);
    let user = process["user"].as_str().unwrap();
    assert!(user.starts_with("</td><script>\"'&\\???"), "{user}");
}

#[test]
fn the_first_format_that_php_fpm_looks_for_is_the_one() {
    assert_eq!(parse_query(""), (StatusFormat::Text, false));
    assert_eq!(parse_query("full"), (StatusFormat::Text, true));
    assert_eq!(parse_query("json=0&full="), (StatusFormat::Json, true));
    assert_eq!(parse_query("json&xml"), (StatusFormat::Xml, false));
    assert_eq!(parse_query("openmetrics&html"), (StatusFormat::Html, false));
    assert_eq!(parse_query("%6Ason"), (StatusFormat::Json, false));
}

#[test]
fn a_key_counts_only_as_a_whole() {
    for query in ["j", "jsonp", "x=json", "JSON", "json[]"] {
        assert_eq!(parse_query(query), (StatusFormat::Text, false), "{query}");
    }
}
