//! MediaWiki behind the page cache: it says itself for how long its pages are good, and drops with
//! PURGE what an edit touches.

use maitred_tests::Target;
use maitred_tests::http::{Request, Response};
use maitred_tests::mediawiki::Wiki;
use maitred_tests::ports::free_address;
use maitred_tests::server::{Server, Setup};
use maitred_tests::session::Session;
use maitred_tests::wait;

fn get(server: &Server, target: &str, cookie: &str) -> Response {
    // The wiki's own host: pages are dropped by their addresses.
    Session::new(server.address()).send(Request::get(target).header("Cookie", cookie))
}

/// What the cache says of an answer: `hit`, or its last word.
fn verdict(answer: &Response) -> &str {
    let status = answer.header("Cache-Status").unwrap_or_default();
    let parts = || status.split("; ").filter(|part| !part.starts_with("ttl="));
    parts().last().unwrap_or_default()
}

#[test]
fn a_wiki_is_cached_for_strangers_and_drops_what_an_edit_touches() {
    let address = free_address();
    let wiki = Wiki::install(address);
    let settings = format!("env = {{ MW_CONFIG_FILE = {:?} }}", wiki.settings());
    let server = Setup::new(&wiki.root())
        .at(address)
        .pool(&settings)
        .site("app = \"mediawiki\"")
        .site("[sites.cache]")
        .site("purge_from = \"127.0.0.1\"")
        .start();
    let page = "/wiki/Main_Page";
    let first = get(&server, page, "_ga=1");
    assert_eq!((first.status, verdict(&first)), (200, "stored"), "{}", first.text());
    assert!(first.header("Vary").is_some_and(|vary| vary.contains("Cookie")));
    // Cookies of others make no difference, those of the wiki's do.
    assert_eq!(verdict(&get(&server, page, "_ga=2")), "hit");
    for cookie in ["houseToken=1", "house_session=1", "houseUserID=1"] {
        let own = get(&server, page, &format!("_ga=2; {cookie}"));
        assert_eq!(verdict(&own), "detail=private-cookie", "{cookie}");
    }
    let asked = get(&server, "/api.php?action=query", "_ga=1");
    assert_eq!(verdict(&asked), "detail=private");

    let edit =
        "action=edit&format=json&title=Main%20Page&text=The%20table%20is%20laid.&token=%2B%5C";
    let form = "application/x-www-form-urlencoded";
    let edit = Request::post("/api.php", form, edit.as_bytes());
    let edited = Session::new(address).send(edit).json();
    assert_eq!(edited["edit"]["result"], "Success", "{edited}");
    // The wiki tells the cache when it has answered.
    wait::until_true("the edit on the kept page", || {
        get(&server, page, "_ga=1").text().contains("The table is laid.")
    });
    assert_eq!(verdict(&get(&server, page, "_ga=2")), "hit");
    server.stop();
}
