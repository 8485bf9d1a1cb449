//! The guestbook of `examples/`, used as its visitors use it, and looked at in a browser.

use maitred_tests::http::Request;
use maitred_tests::server::{Setup, give_to_web_user, public_folder};
use maitred_tests::session::{Session, hidden_field, multipart};
use maitred_tests::{Target, browser, picture, project_root};

#[test]
fn a_visitor_signs_the_guestbook_with_a_picture() {
    let data = public_folder();
    give_to_web_user(data.path());
    let server = Setup::new(&project_root().join("examples/guestbook/public"))
        .pool(&format!("env = {{ GUESTBOOK_DATA = {:?} }}", data.path()))
        .start();
    let mut visitor = Session::new(server.address());
    let form = visitor.get("/");
    assert_eq!(form.status, 200, "{}", form.text());
    let token = hidden_field(&form.text(), "token");
    let fields = [("token", token.as_str()), ("name", "Ada"), ("message", "What a fine house!")];
    let png = picture::png(320, 240);
    let (media_type, body) = multipart(&fields, ("picture", "garden.png", "image/png", &png));
    let signed = visitor.send(Request::post("/", &media_type, &body));
    assert!([302, 303].contains(&signed.status), "{}", signed.text());

    let page = visitor.get("/").text();
    assert!(page.contains("What a fine house!") && page.contains("Ada"), "{page}");
    let listed = visitor.get("/api/entries").json().to_string();
    assert!(listed.contains("What a fine house!"), "{listed}");
    let style = visitor.get("/style.css");
    assert_eq!(style.header("Content-Type"), Some("text/css; charset=utf-8"));
    browser::screenshot(&format!("{}/", server.base_url()), "guestbook");
    server.stop();
}
