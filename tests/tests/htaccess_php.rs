//! What `.htaccess` files set for PHP: within the settings of a pool, and in front of a php-fpm.

use maitred_tests::http::{self, Request};
use maitred_tests::peer::{Peer, PeerSetup};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, public_folder, write_file,
};
use maitred_tests::{Target, run_maitred};
use tempfile::TempDir;

#[test]
fn a_setting_of_a_file_does_not_replace_what_the_pool_fixes() {
    let script = "<?php echo json_encode(array_map('ini_get', ['memory_limit', 'open_basedir', \
         'sendmail_path', 'precision', 'upload_max_filesize', 'auto_prepend_file']), \
         JSON_UNESCAPED_SLASHES), ' ', strrev('ba'), ' ', @file_get_contents('/etc/hostname');";
    let files = "php_value memory_limit -1\nphp_value open_basedir /\n\
         php_value sendmail_path /srv/run.sh\nphp_value extension /no/such.so\n\
         php_value disable_functions strrev\nphp_value precision 6\n\
         php_value upload_max_filesize 9M\nphp_value auto_prepend_file first.php\n";
    let root = document_root(&[
        ("a/.htaccess", files),
        ("a/page.php", script),
        ("a/first.php", "<?php echo 'first ';"),
        ("page.php", script),
    ]);
    let folder = root.path().display();
    let server = Setup::new(root.path())
        .pool("php_value = { precision = \"10\" }")
        .pool(&format!(
            "php_admin_value = {{ open_basedir = \"{folder}\", memory_limit = \"64M\", \
             sendmail_path = \"/bin/true\" }}"
        ))
        .site("htaccess = true")
        .workers(1)
        .start();
    let page = |path: &str| http::ask(server.address(), &Request::get(path)).text();
    for _ in 0..2 {
        let fixed = format!("[\"64M\",\"{folder}\",\"/bin/true\"");
        assert_eq!(page("/a/page.php"), format!("first {fixed},\"6\",\"9M\",\"first.php\"] ab "));
        assert_eq!(page("/page.php"), format!("{fixed},\"10\",\"2M\",\"\"] ab "));
    }
    assert!(!server.log_text().contains("such.so"), "{}", server.log_text());
    server.stop();
}

/// A site in front of a php-fpm with one worker.
fn before_php_fpm(root: &TempDir) -> (Server, Peer) {
    let peer = PeerSetup::new(root.path()).workers(1).start();
    let upstream = format!("unix:{}", peer.fpm_socket().display());
    (Setup::new(root.path()).upstream(&upstream).site("htaccess = true").start(), peer)
}

#[test]
fn a_setting_of_a_file_stays_in_no_worker_of_php_fpm() {
    let script = "<?php echo ini_get('precision');";
    let files =
        [("a/.htaccess", "php_value precision 5\n"), ("a/x.php", script), ("x.php", script)];
    let root = document_root(&files);
    let (server, _peer) = before_php_fpm(&root);
    let page = |path: &str| http::ask(server.address(), &Request::get(path)).text();
    assert_eq!(["/x.php", "/a/x.php", "/x.php"].map(page), ["14", "14", "14"]);
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    let (went_well, said) = run_maitred(&["explain", "/a/x.php", "--config", file]);
    assert!(went_well && !said.contains("precision"), "{said}");
    server.stop();
}

#[test]
fn php_fpm_gets_the_path_info_of_a_rewrite() {
    let rules = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\n\
         RewriteRule ^(.*)$ index.php/$1 [L]\n";
    let script = "<?php foreach (['PATH_INFO', 'ORIG_PATH_INFO', 'SCRIPT_NAME', 'PHP_SELF'] as $n) \
         { echo $_SERVER[$n] ?? '-', ' '; }";
    let root = document_root(&[(".htaccess", rules), ("index.php", script)]);
    let (server, _peer) = before_php_fpm(&root);
    for page in ["/a", "/b/c"] {
        let response = http::ask(server.address(), &Request::get(page));
        assert_eq!(response.text(), format!("{page} - /index.php /index.php{page} "));
    }
    server.stop();
}

#[test]
fn a_script_whose_handler_names_another_pool_does_not_run() {
    let sockets = public_folder();
    let socket = |name: &str| sockets.path().join(format!("php-{name}.sock")).display().to_string();
    let handler = |name: &str| {
        format!(
            "<FilesMatch \"\\.php$\">\nSetHandler \"proxy:unix:{}|fcgi://localhost\"\n\
             </FilesMatch>\n",
            socket(name)
        )
    };
    let script = "<?php echo 'runs';";
    let own = handler("alice");
    let files = [("own/.htaccess", own.as_str()), ("own/x.php", script)];
    let root = document_root(&files);
    for (folder, name) in [("other", "bob"), ("unknown", "php-fpm")] {
        write_file(root.path(), &format!("{folder}/.htaccess"), handler(name).as_bytes());
        write_file(root.path(), &format!("{folder}/x.php"), script.as_bytes());
    }
    if is_root() {
        give_to_web_user(root.path());
    }
    let server = Setup::new(root.path())
        .pool(&format!("listen = {:?}", socket("alice")))
        .pool(&format!(
            "[pools.bob]\npm = \"static\"\nmax_children = 1\nlisten = {:?}",
            socket("bob")
        ))
        .site("htaccess = true")
        .workers(1)
        .start();
    let ask = |path: &str| http::ask(server.address(), &Request::get(path));
    let mark = server.log().mark();
    for _ in 0..2 {
        assert_eq!(ask("/own/x.php").text(), "runs");
        assert_eq!(ask("/unknown/x.php").text(), "runs");
        assert_eq!(ask("/other/x.php").status, 500);
    }
    server.expect_log(mark, "which is the pool bob");
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    let (_, said) = run_maitred(&["explain", "/other/x.php", "--config", file]);
    assert!(said.contains("500") && said.contains("the pool bob"), "{said}");
    server.stop();
}
