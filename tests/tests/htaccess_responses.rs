//! What `.htaccess` files make of responses: of cached pages, files, parts of files, and of what a
//! script is told of its request.

use maitred_tests::Target;
use maitred_tests::http::{self, Request, Response};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use tempfile::TempDir;

fn serve(root: &TempDir, lines: &[&str]) -> Server {
    give_to_web_user(root.path());
    let setup = Setup::new(root.path()).site("htaccess = true");
    lines.iter().fold(setup, |setup, line| setup.site(line)).start()
}

fn get(server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    let request = Request::get(target).header("Connection", "close");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(name, value));
    http::ask(server.address(), &request)
}

#[test]
fn a_page_that_rules_of_two_rounds_make_for_one_client_is_not_cached_for_others() {
    let rules = "RewriteEngine On\nRewriteCond %{HTTP:X-Beta} 1\n\
                 RewriteRule ^page$ /beta/page [L]\nRewriteRule ^page$ /usual/page [L]\n\
                 RewriteRule ^(beta|usual)/ /index.php [L]\n\
                 <If \"%{REQUEST_URI} == '/signed.php' && %{HTTP:X-Beta} == '1'\">\n\
                 ServerSignature On\n</If>\n";
    let script = "<?php header('Cache-Control: max-age=600'); \
                  echo $_SERVER['REDIRECT_URL'] ?? '-', \
                  empty($_SERVER['SERVER_SIGNATURE']) ? '' : ' signed';";
    let files = [(".htaccess", rules), ("index.php", script), ("signed.php", script)];
    let root = document_root(&files);
    let server = serve(&root, &["[sites.cache]"]);
    for (page, of_beta, usual) in
        [("/page", "/beta/page", "/usual/page"), ("/signed.php", "- signed", "-")]
    {
        for _ in 0..2 {
            let response = get(&server, page, &[("X-Beta", "1")]);
            let status = response.header("Cache-Status").unwrap_or_default();
            assert!(status.contains("detail=htaccess"), "{page}: {status}");
            assert_eq!(response.text(), of_beta, "{page}");
        }
        assert_eq!(get(&server, page, &[]).text(), usual);
    }
    server.stop();
}
