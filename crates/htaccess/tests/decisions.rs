//! Decisions on requests for a document root in memory.

mod memory_root;

use maitred_htaccess::process::Outcome;

use memory_root::MemoryRoot;

#[test]
fn encoded_dots_of_an_internal_redirect_lead_to_no_path_that_rules_have_not_seen() {
    let root = MemoryRoot::new()
        .file(
            "/.htaccess",
            "RewriteEngine On\n\
             RewriteCond %{REQUEST_URI} !^/(public|go)/\n\
             RewriteRule ^(.*)$ public/$1 [L]\n\
             RewriteRule ^go/(.*)$ /public/$1 [L]\n\
             RedirectMatch 403 ^/public/closed/\n",
        )
        .file("/composer.json", "")
        .file("/public/a.txt", "")
        .file("/public/closed/a.txt", "");
    assert_eq!(root.outcome("/a.txt"), Outcome::File);
    for path in ["/%2e%2e/composer.json", "/%2E%2e/%2e/composer.json", "/x/%2e%2e/%2e%2e/a"] {
        assert_eq!(root.outcome(path), Outcome::Status(404), "{path}");
    }
    for path in ["/go/x/%2e%2e/closed/a.txt", "/go/%2e/closed/a.txt"] {
        assert_eq!(root.outcome(path), Outcome::Status(403), "{path}");
    }
}

#[test]
fn a_path_with_dots_as_a_segment_is_no_path_of_a_file() {
    let root = MemoryRoot::new().file("/a.txt", "");
    for path in ["/x/../a.txt", "/./a.txt", "/..", "/a.txt/."] {
        assert_eq!(root.outcome(path), Outcome::Status(400), "{path}");
    }
    assert_eq!(root.outcome("/a.txt"), Outcome::File);
}
