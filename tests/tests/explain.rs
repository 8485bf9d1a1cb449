//! `maitred explain` and `maitred check` say what a server does or would do with a configuration.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use maitred_tests::http;
use maitred_tests::rules::USER;
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, give_to_web_user, is_root, public_folder, set_mode,
    user_ids, write_file,
};
use maitred_tests::{Target, run_maitred};
use tempfile::TempDir;

fn site() -> TempDir {
    document_root(&[
        ("index.php", "<?php echo 'ran';"),
        ("uploads/evil.php", "<?php echo 'SECRET';"),
        ("secret/plan.txt", "SECRET"),
        ("style.css", "p {}"),
    ])
}

fn serve(root: &TempDir, lines: &[&str]) -> Server {
    let setup = Setup::new(root.path()).site("front_controller = \"\"");
    let with = lines.iter().fold(setup, |setup, line| setup.site(line));
    with.start()
}

#[test]
fn explain_says_what_the_server_then_does() {
    let root = site();
    let beside = public_folder();
    write_file(beside.path(), "page.txt", b"page");
    let alias = format!("aliases = {{ \"/manual/\" = {:?} }}", beside.path());
    let server = serve(
        &root,
        &[
            "redirects = [{ from = \"/old\", to = \"/new\" }]",
            "rewrite = [{ from = \"/api/*\", to = \"/index.php?p=$1\" }, { from = \"/l\", \
             to = \"/l\" }]",
            "deny = { path = \"/secret/*\", except = \"10.0.0.0/8\" }",
            "deny_php = \"/uploads/*\"",
            "headers = { X-Frame-Options = \"DENY\" }",
            "rate_limit = { path = \"/index.php\", rate = \"1/s\", burst = 100 }",
            &alias,
        ],
    );
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    for (path, status, words) in [
        ("/old", 301, "redirects        /old matches: 301 to /new"),
        ("/api/x", 200, "rate_limit       /index.php matches: "),
        ("/index.php/x", 200, "rate_limit       /index.php matches: "),
        ("/api/x", 200, "rewrite          /api/* matches: now /index.php"),
        ("/api/x", 200, "run by pool www"),
        ("/api/x", 200, "header           X-Frame-Options: DENY"),
        ("/secret/plan.txt", 403, "deny             /secret/* matches: 403"),
        ("/uploads/evil.php", 403, "response         403: PHP does not run here."),
        ("/style.css", 200, "file             text/css; charset=utf-8, 4 bytes"),
        ("/nothing", 404, "response         404: there is no such file"),
        ("/manual/page.txt", 200, "4 bytes"),
        ("/manual", 301, "response         301 to /manual/: it is a folder"),
        ("/manual%2fpage.txt", 404, "response         404"),
        ("/l", 500, "still matches after 10 times: 500"),
    ] {
        let (went_well, said) = run_maitred(&["explain", path, "--config", file]);
        assert!(went_well && said.contains(words), "{path}: {said}");
        assert_eq!(http::get(server.address(), path).status, status, "{path}");
    }
    let inside = ["explain", "/secret/plan.txt", "--config", file, "--client", "10.1.1.1"];
    assert!(run_maitred(&inside).1.contains("200 with the file"));
    let (went_well, said) = run_maitred(&["explain", "ftp://x/", "--config", file]);
    assert!(!went_well && said.contains("this is no URL"), "{said}");
}

#[test]
fn explain_says_which_users_and_limits_wait_behind_the_path_that_is_asked_for() {
    let (root, beside) = (site(), public_folder());
    write_file(beside.path(), "users", USER.as_bytes());
    write_file(root.path(), "shown/index.html", b"shown");
    let users = beside.path().join("users");
    let patterns = ["/staff/*", "/uploads/evil.php", "/shown/index.html"];
    let auths = patterns.map(|path| format!("{{ path = {path:?}, users = {users:?} }}"));
    let server = Setup::new(root.path())
        .site(&format!("basic_auth = [{}]", auths.join(", ")))
        .site("rate_limit = [{ path = \"/style.css\", rate = \"1/s\", burst = 100 }]")
        .site(
            "rewrite = [{ from = \"/in\", to = \"/staff/in\" }, { from = \"/look\", \
               to = \"/style.css\" }]",
        )
        .start();
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    for (path, status, words) in [
        ("/index.php/staff/x", 401, "basic_auth       /staff/* matches: a user of "),
        ("/staff/x", 401, "basic_auth       /staff/* matches: a user of "),
        ("/in", 401, "basic_auth       /staff/* matches: a user of "),
        ("/uploads/evil.php/x", 401, "basic_auth       /uploads/evil.php matches: a user of "),
        ("/shown/", 401, "basic_auth       /shown/index.html matches: a user of "),
        ("/look", 200, "rate_limit       /style.css matches: "),
    ] {
        let (went_well, said) = run_maitred(&["explain", path, "--config", file]);
        assert!(went_well, "{path}: {said}");
        assert_eq!(said.matches(words).count(), 1, "{path}: {said}");
        assert_eq!(http::get(server.address(), path).status, status, "{path}");
    }
    let (_, said) = run_maitred(&["explain", "/index.php/other", "--config", file]);
    assert!(!said.contains("basic_auth"), "{said}");
}

#[test]
fn each_setting_of_a_path_is_that_of_the_first_entry_that_has_it() {
    let root = site();
    write_file(root.path(), "who.php", b"<?php echo getenv('POOL');");
    let server = serve(
        &root,
        &[
            "paths = [{ path = \"/*\", max_body_size = 10 }, { path = \"/*\", pool = \"slow\" }]",
            "\n[pools.slow]\npm = \"static\"\nmax_children = 1\nenv = { POOL = \"slow\" }\n",
        ],
    );
    let post = |bytes: usize| {
        let request = http::Request::post("/who.php", "text/plain", &vec![b'x'; bytes]);
        let response = http::ask(server.address(), &request);
        (response.status, response.text())
    };
    assert_eq!(post(10), (200, "slow".to_owned()));
    assert_eq!(post(11).0, 413);
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    let (_, said) = run_maitred(&["explain", "/who.php", "--config", file]);
    assert!(said.contains("run by pool slow (paths)"), "{said}");
    assert!(said.contains("max_body_size    10 bytes (paths)"), "{said}");
}

#[test]
fn explain_knows_what_a_pool_answers_itself() {
    let root = site();
    let server = Setup::new(root.path())
        .pool("status_path = \"/status\"")
        .pool("ping_path = \"/alive\"")
        .site("deny = { path = \"/status\", except = \"127.0.0.1\" }")
        .start();
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    for (path, answer) in [
        ("/status?json", "the status page of pool www (status_path)"),
        ("/alive", "the ping of pool www (ping_path)"),
    ] {
        let (went_well, said) = run_maitred(&["explain", path, "--config", file]);
        assert!(went_well && said.contains(answer), "{path}: {said}");
        assert_eq!(http::get(server.address(), path).status, 200, "{path}");
    }
    let other = ["explain", "/%73tatus", "--config", file];
    assert!(run_maitred(&other).1.contains("script "));
    let outside = ["explain", "/status", "--config", file, "--client", "192.0.2.1"];
    assert!(run_maitred(&outside).1.contains("response         403"));
}

#[test]
fn explain_says_that_plain_http_is_sent_to_https_and_takes_a_path_alone_for_one_of_https() {
    let folder = document_root(&[("public/style.css", "p {}"), ("cert.pem", ""), ("key.pem", "")]);
    let file = folder.path().join("maitred.toml");
    let lines = "listen = \"127.0.0.1:80\"\n[tls]\nlisten = \"127.0.0.1:8443\"\nredirect = true\n\
                 certificates = { cert = \"cert.pem\", key = \"key.pem\" }\n[[sites]]\n\
                 root = \"public\"\n";
    std::fs::write(&file, lines).expect("a file can be written");
    let file = file.to_str().expect("its name is UTF-8");
    let (went_well, said) = run_maitred(&["explain", "http://a.example/b?c", "--config", file]);
    let answer = "response         308 to https://a.example:8443/b?c";
    assert!(went_well && said.contains(answer), "{said}");
    let (went_well, said) = run_maitred(&["explain", "/style.css", "--config", file]);
    assert!(went_well && said.contains("200 with the file"), "{said}");
    let text = format!("{lines}[sites.cache]\npurge_from = \"192.0.2.1\"\n");
    std::fs::write(file, text).expect("a file can be written");
    for (client, expected) in [("192.0.2.1", "drops a.example/b"), ("192.0.2.2", "308 to https")] {
        let options = ["--method", "PURGE", "--client", client, "--config", file];
        let (went_well, said) =
            run_maitred(&[&["explain", "http://a.example/b"], &options[..]].concat());
        assert!(went_well && said.contains(expected), "{client}: {said}");
    }
}

#[test]
fn check_reads_what_the_rules_name_without_touching_a_running_server() {
    let (root, beside) = (site(), public_folder());
    write_file(beside.path(), "users", b"anna:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n");
    let server = serve(&root, &[]);
    let mark = server.log().mark();
    let auth = format!("basic_auth = {{ users = {:?} }}", beside.path().join("users"));
    server.configure(
        &Setup::new(root.path())
            .site(&auth)
            .site("error_pages = { 404 = \"/nowhere.html\" }")
            .site("front_controller = \"\""),
    );
    let file = server.configuration();
    let (went_well, said) = run_maitred(&["check", "--config", file.to_str().expect("UTF-8")]);
    assert!(!went_well);
    assert!(said.contains("users:1: this line has an unsalted SHA-1 hash"), "{said}");
    assert!(said.contains("/nowhere.html for 404 is no file"), "{said}");
    assert_eq!(http::get(server.address(), "/style.css").status, 200);
    assert_eq!(server.log().since(mark).len(), 0, "{:?}", server.log().since(mark));
}

#[test]
fn check_looks_at_every_socket_that_is_named() {
    let folder = document_root(&[("public/index.html", "")]);
    let said = |lines: &str| {
        let file = folder.path().join("maitred.toml");
        std::fs::write(&file, lines).expect("a file can be written");
        run_maitred(&["check", "--config", file.to_str().expect("UTF-8")])
    };
    let place = folder.path().display();
    let listener = format!("[pools.www]\nlisten = \"{place}/none/www.sock\"\n");
    let (went_well, text) =
        said(&format!("{listener}[[sites]]\nroot = \"public\"\npool = \"www\"\n"));
    assert!(!went_well);
    assert!(text.contains("none/www.sock: its folder does not exist"), "{text}");
    let behind = format!("upstream = \"unix:{place}/fpm.sock\"\n");
    let proxy = format!("proxy = {{ path = \"/app/*\", to = \"unix:{place}/app.sock\" }}\n");
    let sites = format!("[[sites]]\nroot = \"public\"\n{behind}{proxy}");
    let (went_well, text) = said(&sites);
    assert!(went_well, "they may come later: {text}");
    for socket in ["fpm.sock", "app.sock"] {
        let warned = format!("/{socket} yet: until one does, its requests get a 502");
        assert!(text.contains(&warned), "{text}");
    }
    let _somebody = ["fpm.sock", "app.sock"]
        .map(|name| UnixListener::bind(folder.path().join(name)).expect("a socket"));
    let (went_well, text) = said(&sites);
    assert!(went_well && !text.contains("warning"), "{text}");
}

#[test]
fn check_warns_of_folders_for_uploads_in_which_php_would_run() {
    let folder = document_root(&[
        ("public/index.php", ""),
        ("public/uploads/2026/a.png", ""),
        ("public/sites/default/files/a.png", ""),
        ("public/closed/media/a.png", ""),
        ("public/vendor/files/a.png", ""),
    ]);
    let public = folder.path().join("public");
    for writable in ["uploads", "sites/default/files", "vendor/files"] {
        give_to_web_user(&public.join(writable));
    }
    let said = |lines: &str| {
        let file = folder.path().join("maitred.toml");
        let pool = if is_root() { "user = \"www-data\"\n" } else { "" };
        let text =
            format!("[pools.www]\n{pool}[[sites]]\nroot = \"public\"\npool = \"www\"\n{lines}");
        std::fs::write(&file, text).expect("a file can be written");
        let (went_well, text) = run_maitred(&["check", "--config", file.to_str().expect("UTF-8")]);
        assert!(went_well, "{text}");
        text
    };
    let text = said("");
    assert!(
        text.contains("maitred.toml:") && text.contains("named as those for uploads are"),
        "{text}"
    );
    assert!(text.contains("\"/sites/default/files/*\""), "{text}");
    assert!(text.contains("\"/uploads/*\""), "{text}");
    assert!(!text.contains("vendor"), "{text}");
    if is_root() {
        assert!(!text.contains("closed"), "scripts cannot write there: {text}");
    }
    let one = said("deny_php = \"/uploads/*\"\n");
    assert!(!one.contains("/uploads/*") && one.contains("/files/*"), "{one}");
    for lines in [
        "deny_php = [\"/uploads/*\", \"~/(files|media)/\"]\n",
        "allow_php = \"/index.php\"\n",
        "app = \"drupal\"\n",
    ] {
        let text = said(lines);
        assert!(!text.contains("uploads are"), "{lines}: {text}");
    }
}

#[test]
fn two_sites_of_one_host_are_told_at_both_lines() {
    let folder = document_root(&[
        ("public/index.html", ""),
        (
            "maitred.toml",
            "[[sites]]\nroot = \"public\"\nhosts = \"a.example\"\n\
             [[sites]]\nroot = \"public\"\nhosts = \"A.example\"\n",
        ),
    ]);
    let file = folder.path().join("maitred.toml");
    let (went_well, said) = run_maitred(&["check", "--config", file.to_str().expect("UTF-8")]);
    assert!(!went_well);
    for line in ["maitred.toml:6:9: `hosts` has", "maitred.toml:3:9 has too"] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn explain_says_what_is_compressed() {
    let root = site();
    write_file(root.path(), "large.css", "p {}\n".repeat(1000).as_bytes());
    write_file(root.path(), "built.js", "f();\n".repeat(1000).as_bytes());
    write_file(root.path(), "built.js.br", b"smaller");
    // What has just changed is not yet relied on.
    std::thread::sleep(std::time::Duration::from_millis(40));
    let server = serve(&root, &["compression = [\"br\", \"gzip\"]"]);
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    for (path, words) in [
        ("/large.css", "compression      br, gzip, as the client takes it"),
        ("/style.css", "compression      none: type or length are not worth it"),
        ("/built.js", "precompressed    /built.js.br, as the client takes it"),
        ("/index.php", "compression      br, gzip, as the client takes it, if"),
    ] {
        let url = format!("http://localhost{path}");
        let (_, said) = run_maitred(&["explain", "--config", file, &url]);
        assert!(said.contains(words), "{path}: {said}");
    }
}

#[test]
fn explain_names_the_script_that_answers_in_place_of_the_one_that_is_asked_for() {
    let (root, beside) = (site(), public_folder());
    let file = beside.path().join("maitred.toml");
    let script = root.path().join("uploads/evil.php");
    let folder = root.path();
    for (mode, words) in [
        ("worker", "says, which the workers of pool www have booted"),
        ("snapshot", "says, in a copy of it that pool www has booted"),
    ] {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[pools.www]\nmode = {mode:?}\nscript = {script:?}\n\
             [pools.plain]\n\
             [[sites]]\nroot = {folder:?}\npool = \"www\"\nclassic_pool = \"plain\"\n\
             classic_paths = [\"/style.css\", \"/uploads/\"]\n"
        );
        std::fs::write(&file, text).expect("a file can be written");
        let explain =
            |path| run_maitred(&["explain", path, "--config", file.to_str().expect("UTF-8")]).1;
        let said = explain("/nowhere");
        let expected = format!("response         what {} {words}", script.display());
        assert!(said.contains(&expected), "{said}");
        let said = explain("/uploads/evil.php");
        assert!(said.contains("what the script says, run by pool plain (paths)"), "{said}");
    }
}

#[test]
fn check_and_explain_warn_of_settings_that_the_mode_of_their_pool_does_not_heed() {
    let (root, beside) = (site(), public_folder());
    let file = beside.path().join("maitred.toml");
    let (script, folder) = (root.path().join("index.php"), root.path());
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[pools.www]\nmode = \"snapshot\"\nscript = {script:?}\n\
         max_requests = 1000\n[[sites]]\nroot = {folder:?}\n"
    );
    std::fs::write(&file, text).expect("a file can be written");
    let file = file.to_str().expect("UTF-8");
    let warning = format!("warning: {file}:5:16: `max_requests` has no effect in a pool whose");
    for arguments in [&["check", "--config", file][..], &["explain", "/", "--config", file]] {
        let (went_well, said) = run_maitred(arguments);
        assert!(went_well && said.contains(&warning), "{said}");
    }
}

#[test]
fn check_refuses_a_document_root_that_is_closed_to_the_front() {
    if !is_root() {
        return eprintln!("skipped: only root can run the front as another user");
    }
    let (root, beside) = (site(), public_folder());
    let file = beside.path().join("maitred.toml");
    let folder = root.path();
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nfront_user = \"nobody\"\n[[sites]]\nroot = {folder:?}\n"
    );
    std::fs::write(&file, text).expect("a file can be written");
    let file = file.to_str().expect("UTF-8");
    let (went_well, said) = run_maitred(&["check", "--config", file]);
    assert!(went_well && !said.contains("cannot look into"), "{said}");
    set_mode(folder, 0o700);
    let (went_well, said) = run_maitred(&["check", "--config", file]);
    let mistake = format!(
        "maitred: {file}:4:8: the front runs as user `nobody`, who cannot look into {}: ",
        folder.display()
    );
    assert!(!went_well && said.contains(&mistake), "{said}");
}

/// A configuration of one site with `.htaccess` files.
fn site_with_htaccess(root: &TempDir, beside: &TempDir) -> PathBuf {
    let file = beside.path().join("maitred.toml");
    let folder = root.path();
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[[sites]]\nroot = {folder:?}\nfront_controller = \"\"\n\
         htaccess = true\nhtaccess_unknown = \"ignore\"\n"
    );
    std::fs::write(&file, text).expect("a file can be written");
    file
}

#[test]
fn check_reads_no_fifo_and_no_file_of_root_that_a_tenant_names_htaccess() {
    if !is_root() {
        return eprintln!("skipped: only root reads what a tenant cannot");
    }
    let (root, beside) = (site(), public_folder());
    let secret = beside.path().join("shadow");
    std::fs::write(&secret, "Sesame opens\n").expect("a file can be written");
    set_mode(&secret, 0o600);
    symlink(&secret, root.path().join("uploads/.htaccess")).expect("a link can be made");
    let fifo = root.path().join("secret/.htaccess");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).expect("a FIFO can be made");
    for name in ["", "uploads", "secret"] {
        give_to_web_user(&root.path().join(name));
    }
    let (uid, gid) = user_ids(WEB_USER);
    lchown(root.path().join("uploads/.htaccess"), Some(uid), Some(gid)).expect("root may");
    let file = site_with_htaccess(&root, &beside);
    let (_, said) = run_maitred(&["check", "--config", file.to_str().expect("UTF-8")]);
    assert!(!said.contains("Sesame"), "{said}");
    assert!(said.contains("uploads/.htaccess cannot be read: the symbolic link"), "{said}");
    assert!(said.contains("secret/.htaccess cannot be read: it is no regular file"), "{said}");
}

#[test]
fn nothing_in_htaccess_files_acts_on_the_terminal_of_check_and_explain() {
    let (root, beside) = (site(), public_folder());
    let file = site_with_htaccess(&root, &beside);
    let folder = OsString::from_vec(b"a\nmaitred: all is right\x1b[2J".to_vec());
    let folder = &root.path().join(folder);
    std::fs::create_dir(folder).expect("a folder can be made");
    let lines =
        "AuthType Basic\nAuthName \"a\x1b[2J\"\nRequire all denied\nNonsense \x1b]0;a\x07\n";
    for folder in [folder, root.path()] {
        std::fs::write(folder.join(".htaccess"), lines).expect("a file can be written");
    }
    let file = file.to_str().expect("UTF-8");
    let (check, explain) = (["check", "--config", file], ["explain", "/a.css", "--config", file]);
    for (arguments, shown) in [(&check[..], "a\\nmaitred: all"), (&explain, "AuthName \"a\\u{1b}")]
    {
        let (_, said) = run_maitred(arguments);
        let acts = |sign: char| sign.is_control() && sign != '\n';
        assert!(!said.contains(acts), "{arguments:?}: {said:?}");
        let is_forged = |line: &str| line.starts_with("maitred: all is right");
        assert!(!said.lines().any(is_forged), "{arguments:?}: {said}");
        assert!(said.contains(shown), "{arguments:?}: {said}");
    }
}
