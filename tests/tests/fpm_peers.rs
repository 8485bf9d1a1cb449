//! maitred in php-fpm's place behind real web servers: what their clients get is what they got, and
//! nothing that a web server does holds a worker.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use maitred_tests::Target;
use maitred_tests::fpm::{Daemon, Listener, Params, Place, Which, replace_number, usual};
use maitred_tests::guard::Guarded;
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::processes::{self, Process, Signal};
use maitred_tests::server::{document_root, give_to_web_user, is_root};
use maitred_tests::wait;
use maitred_tests::web::Web;
use maitred_tests::wordpress::{Files, WordPress};
use tempfile::TempDir;

/// A location for PHP as nginx's documentation has it, but for where it passes requests on.
const NGINX_PHP: &str = r"
        location ~ [^/]\.php(/|$) {
            fastcgi_split_path_info ^(.+?\.php)(/.*)$;
            include /etc/nginx/fastcgi.conf;
            fastcgi_param PATH_INFO $fastcgi_path_info;
            PASS
        }";

/// The same as Debian's package has it.
const NGINX_DEBIAN: &str = r"
        location ~ \.php {
            include /etc/nginx/snippets/fastcgi-php.conf;
            PASS
        }";

fn site() -> TempDir {
    let root = document_root(&[
        ("index.php", "<?php echo 'index';"),
        ("hello.php", "<?php echo 'hello';"),
        (
            "server.php",
            "<?php foreach (['REQUEST_TIME', 'REQUEST_TIME_FLOAT', 'REMOTE_PORT'] as $name)
                 { unset($_SERVER[$name]); }
             ksort($_SERVER);
             header('Content-Type: application/json');
             echo json_encode([$_SERVER, $_GET, $_COOKIE], JSON_PRETTY_PRINT);",
        ),
        (
            "echo.php",
            "<?php $files = array_map(fn ($file) => [$file['name'], $file['type'], $file['size'],
                 md5_file($file['tmp_name'])], $_FILES);
             echo json_encode([$_SERVER['REQUEST_METHOD'], $_SERVER['CONTENT_TYPE'] ?? null,
                 $_SERVER['CONTENT_LENGTH'] ?? null, md5(file_get_contents('php://input')),
                 $_POST, $files], JSON_PRETTY_PRINT);",
        ),
        ("big.php", "<?php for ($i = 0; $i < 5000; $i++) { printf(\"%059d\\n\", $i); }"),
        (
            "headers.php",
            "<?php header('X-First: 1'); header('X-First: 2', false); setcookie('a', 'b');
             header('Cache-Control: private, max-age=5'); header('Content-Type: text/plain');
             http_response_code((int) ($_GET['status'] ?? 200)); echo 'with headers';",
        ),
        ("redirect.php", "<?php header('Location: /hello.php', true, 303);"),
        (
            "pieces.php",
            "<?php for ($i = 0; $i < 3; $i++) { echo $i; ob_flush(); flush(); usleep(1000); }",
        ),
        ("fatal.php", "<?php undefined_function();"),
        (
            "wait.php",
            "<?php ignore_user_abort(false); echo str_repeat('x', 4096); ob_flush(); flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             for ($i = 0; $i < 100; $i++) { echo str_repeat('y', 65536); ob_flush(); flush(); }
             file_put_contents(__DIR__ . '/to-the-end', '');",
        ),
    ]);
    give_to_web_user(root.path());
    root
}

/// The requests to every pair.
fn requests() -> Vec<Request> {
    let close = |request: Request| request.header("Connection", "close");
    let form = "application/x-www-form-urlencoded";
    let mut upload = b"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.bin\"\r\n\
        Content-Type: application/octet-stream\r\n\r\n"
        .to_vec();
    upload.extend((0..200_000_u32).map(|i| (i % 251) as u8));
    upload.extend(b"\r\n--b--\r\n");
    let mut requests = vec![
        Request::get("/"),
        Request::get("/hello.php"),
        Request::get("/server.php?a=b&c[]=d"),
        Request::get("/server.php/path/info?x=1"),
        Request::get("/server.php/with%20blank/%C3%A9"),
        Request::get("/server.php?q=%2F%3F+x")
            .header("Authorization", "Basic YTpi")
            .header("Cookie", "a=b; c=d")
            .header("Proxy", "http://evil.example/")
            .header("X-Custom-Header", "yes"),
        Request::post("/echo.php", form, b"a=1&b=two+words"),
        Request::post("/echo.php", "multipart/form-data; boundary=b", &upload),
        Request::post("/echo.php", "text/plain", b"in chunks, so of no known length").chunked(7),
        Request::new("PUT", "/echo.php").header("Host", "localhost").body(b"put"),
        Request::get("/headers.php?status=404"),
        Request::get("/headers.php?status=500"),
        Request::get("/redirect.php"),
        Request::get("/big.php"),
        Request::get("/pieces.php"),
        Request::get("/fatal.php"),
        Request::get("/missing.php"),
    ];
    requests.push(Request::new("HEAD", "/headers.php").header("Host", "localhost"));
    requests.into_iter().map(close).collect()
}

/// An answer without what is the web server's own or changes with time.
fn plain(response: &Response, web: SocketAddr, daemon: &Daemon) -> String {
    let mask = |text: &str| {
        let text = daemon.place().mask(text);
        replace_number(&text, web.port(), "@WEB@")
    };
    let mut text = response.status_line.clone();
    for (name, value) in &response.headers {
        if !name.eq_ignore_ascii_case("Date") {
            text.push_str(&format!("\n{name}: {}", mask(value)));
        }
    }
    text + "\n\n" + &mask(&response.text())
}

/// Two workers over a Unix socket, two over TCP.
fn configuration() -> String {
    usual(
        "listen.mode = 0666\npm.max_children = 2\n\
         [tcp]\nlisten = 127.0.0.1:@PORT1@\npm = static\npm.max_children = 2\n",
    ) + user()
}

/// The line that names a pool's user where it can have one.
fn user() -> &'static str {
    if is_root() { "user = www-data\n" } else { "" }
}

/// Asks everything of a web server before php-fpm and of one before maitred, each made by `before`
/// for the text that names a Unix socket and for the one that names a port.
fn compare(what: &str, before: impl Fn(&Daemon, &Path) -> Web) {
    let root = site();
    let [theirs, ours] = Which::BOTH.map(|which| {
        let daemon = Daemon::start(which, &configuration());
        let web = before(&daemon, root.path());
        let answers: Vec<String> = requests()
            .iter()
            .map(|request| match http::try_ask(web.address(), request) {
                Ok(answer) => plain(&answer, web.address(), &daemon),
                Err(error) => format!("no answer: {error}"),
            })
            .collect();
        let errors = web.log_text();
        assert!(!errors.contains("upstream prematurely closed"), "{errors}");
        // The web server first: it holds connections.
        drop(web);
        daemon.stop();
        answers
    });
    for ((request, theirs), ours) in requests().iter().zip(theirs).zip(ours) {
        let expected = match request.target.as_str() {
            "/hello.php" => "\n\nhello",
            _ => "HTTP/1.1 ",
        };
        assert!(theirs.contains(expected), "{what}: {theirs}");
        assert_eq!(theirs, ours, "{what}: {} {}", request.method, request.target);
    }
}

fn unix(daemon: &Daemon) -> String {
    daemon.place().file("www.sock").display().to_string()
}

fn port(daemon: &Daemon) -> String {
    daemon.place().fill_in("@PORT1@")
}

/// nginx with a location for PHP, and further lines in `http`.
fn nginx(root: &Path, http: &str, location: &str, pass: &str) -> Web {
    let server = format!(
        "root {};\n        index index.php;{}",
        root.display(),
        location.replace("PASS", pass)
    );
    Web::nginx(http, &server)
}

#[test]
fn nginx_answers_its_clients_the_same_over_either_kind_of_socket() {
    compare("unix", |daemon, root| {
        let pass = format!("fastcgi_pass unix:{};", unix(daemon));
        nginx(root, "", NGINX_PHP, &pass)
    });
    compare("tcp", |daemon, root| {
        let pass = format!("fastcgi_pass 127.0.0.1:{};", port(daemon));
        nginx(root, "", NGINX_PHP, &pass)
    });
    compare("Debian's snippet, no request body in nginx", |daemon, root| {
        let pass = format!("fastcgi_request_buffering off; fastcgi_pass unix:{};", unix(daemon));
        nginx(root, "", NGINX_DEBIAN, &pass)
    });
}

#[test]
fn nginx_answers_its_clients_the_same_over_connections_that_it_keeps() {
    for unbuffered in ["", "fastcgi_buffering off;"] {
        compare(&format!("kept {unbuffered}"), |daemon, root| {
            let http = format!("upstream php {{ server unix:{}; keepalive 2; }}", unix(daemon));
            let pass = format!("fastcgi_keep_conn on; fastcgi_pass php; {unbuffered}");
            nginx(root, &http, NGINX_PHP, &pass)
        });
    }
    compare("kept tcp", |daemon, root| {
        let http = format!("upstream php {{ server 127.0.0.1:{}; keepalive 2; }}", port(daemon));
        let pass = "fastcgi_keep_conn on; fastcgi_pass php;";
        nginx(root, &http, NGINX_PHP, pass)
    });
}

#[test]
fn apache_answers_its_clients_the_same_with_a_handler() {
    compare("unix", |daemon, root| {
        let handler = format!("proxy:unix:{}|fcgi://localhost", unix(daemon));
        Web::apache(root, &with_handler(&handler))
    });
    compare("tcp", |daemon, root| {
        let handler = format!("proxy:fcgi://127.0.0.1:{}", port(daemon));
        Web::apache(root, &with_handler(&handler))
    });
}

/// As Debian's `conf-available/php8.2-fpm.conf`.
fn with_handler(handler: &str) -> String {
    format!(
        "SetEnvIfNoCase ^Authorization$ \"(.+)\" HTTP_AUTHORIZATION=$1\n\
         <FilesMatch \".+\\.ph(?:ar|p|tml)$\">\n    SetHandler \"{handler}\"\n</FilesMatch>"
    )
}

#[test]
fn apache_answers_its_clients_the_same_with_paths_that_it_passes_on() {
    compare("unix", |daemon, root| {
        let lines = format!(
            "ProxyPassMatch \"^/(.*\\.php(/.*)?)$\" \"unix:{}|fcgi://localhost{}/\"",
            unix(daemon),
            root.display()
        );
        Web::apache(root, &lines)
    });
    compare("tcp, kept", |daemon, root| {
        let to = format!("fcgi://127.0.0.1:{}{}", port(daemon), root.display());
        let lines = format!(
            "<Proxy \"fcgi://127.0.0.1:{}\" enablereuse=on max=2>\n</Proxy>\n\
             ProxyPassMatch \"^/(.*\\.php(/.*)?)$\" \"{to}/$1\" enablereuse=on",
            port(daemon)
        );
        Web::apache(root, &lines)
    });
}

#[test]
fn cgi_fcgi_gets_the_same_answers() {
    let root = site();
    let script = root.path().join("server.php");
    let [theirs, ours] = Which::BOTH.map(|which| {
        let daemon = Daemon::start(which, &configuration());
        let output = Command::new("cgi-fcgi")
            .args(["-bind", "-connect"])
            .arg(daemon.place().file("www.sock"))
            .env_clear()
            .env("REQUEST_METHOD", "GET")
            .env("SCRIPT_FILENAME", &script)
            .env("SCRIPT_NAME", "/server.php")
            .env("QUERY_STRING", "a=b")
            .stdin(Stdio::null())
            .output()
            .expect("cgi-fcgi is installed (apt install libfcgi-bin)");
        daemon.stop();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    assert!(theirs.contains("\"QUERY_STRING\": \"a=b\""), "{theirs}");
    assert_eq!(theirs, ours);
}

#[test]
fn a_web_server_killed_in_the_middle_holds_no_worker() {
    let root = site();
    let lines = "pm.max_children = 1\nlisten.mode = 0666\n";
    let daemon = Daemon::start(Which::Maitred, &usual(lines));
    let pass = format!("fastcgi_pass unix:{};", unix(&daemon));
    let web = nginx(root.path(), "", NGINX_PHP, &(pass + " fastcgi_buffering off;"));
    let mut client = Connection::open(web.address());
    client.send(&Request::get("/wait.php").to_bytes()).expect("nginx takes a request");
    assert_eq!(client.read_head().expect("an answer begins").status, 200);
    processes::signal_group(web.pid(), Signal::KILL);
    wait::until_true("nginx to be gone", || {
        !Process::read(web.pid()).is_some_and(|nginx| nginx.is_running())
    });
    fs::write(root.path().join("go"), "").expect("a file can be written");
    let hello = Params::get(&root.path().display().to_string(), "/hello.php");
    let answer = daemon.listener().ask(&hello, b"").expect("the only worker answers");
    assert_eq!(answer.body(), "hello");
    assert!(
        !root.path().join("to-the-end").exists(),
        "a script whose client has gone ends at its next output"
    );
    daemon.stop();
}

#[test]
fn more_kept_connections_than_workers_are_all_served_and_hold_none() {
    let root = site();
    let lines = "pm.max_children = 2\n";
    let daemon = Daemon::start(Which::Maitred, &usual(lines));
    let hello = Params::get(&root.path().display().to_string(), "/hello.php");
    let mut kept: Vec<_> = (0..16).map(|_| daemon.listener().connect()).collect();
    for _ in 0..3 {
        for client in &mut kept {
            client.begin(&hello, b"", true).expect("a request is taken");
        }
        for client in &mut kept {
            let answer = client.answer().expect("each connection is answered");
            assert_eq!(answer.body(), "hello");
        }
    }
    let other = daemon.listener().ask(&hello, b"").expect("a worker is free");
    assert_eq!(other.body(), "hello");
    drop(kept);
    daemon.stop();
}

/// Debian's own php-fpm.conf and pool, as they are, where no other process sees the files they
/// name.
#[test]
fn debians_own_files_start_it_as_they_start_php_fpm() {
    if !is_root() {
        eprintln!("skipped: only root can start a pool with a user of its own");
        return;
    }
    let root = site();
    let version = php_version();
    let [theirs, ours] = Which::BOTH.map(|which| with_debians_files(which, &version, &root));
    assert_eq!(theirs, ours);
}

fn php_version() -> String {
    let program = maitred_tests::peer::fpm_program();
    let name = program.display().to_string();
    let (_, version) = name.rsplit_once("fpm").expect("php-fpm's name");
    version.to_owned()
}

fn with_debians_files(which: Which, version: &str, root: &TempDir) -> (String, String) {
    let program = which.command();
    let mut words = vec![program.get_program().to_owned()];
    words.extend(program.get_args().map(ToOwned::to_owned));
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c"])
        .arg(
            "mkdir -p /run/php && mount -t tmpfs none /run/php && mount -t tmpfs none /var/log && \
              exec \"$@\"",
        )
        .arg("sh")
        .args(&words)
        .args(["--nodaemonize", "--fpm-config"])
        .arg(format!("/etc/php/{version}/fpm/php-fpm.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut master = Guarded::spawn(&mut command, Signal::TERM);
    // As the processes see it.
    let inside = format!("/proc/{}/root", master.pid());
    let log = format!("{inside}/var/log/php{version}-fpm.log");
    wait::until_true("the log to say that it is ready", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        assert!(master.ended().is_none(), "{which:?} ended:\n{text}");
        text.contains("ready to handle connections")
    });
    let listener = Listener::Unix(format!("{inside}/run/php/php{version}-fpm.sock").into());
    let server = Params::get(&root.path().display().to_string(), "/server.php");
    let answer = listener.ask(&server, b"").expect("it answers");
    let pid = fs::read_to_string(format!("{inside}/run/php/php{version}-fpm.pid"));
    assert_eq!(pid.expect("a pid file"), master.pid().to_string());
    let log_text = fs::read_to_string(&log).expect("a log");
    assert!(log_text.contains("NOTICE: fpm is running, pid "), "{log_text}");
    let titles = || {
        let all = processes::family(master.pid()).into_iter();
        let all = all.map(|process| process.title.trim_end().to_owned());
        let own = all.filter(|title| title.contains("master") || title.contains("pool www"));
        let mut own: Vec<String> = own.filter(|title| !title.contains("zygote")).collect();
        own.sort();
        own
    };
    // A child has the title of its parent at first.
    let titles = wait::until("one master", || {
        Some(titles()).filter(|all| all.iter().filter(|one| one.contains("master")).count() == 1)
    });
    let family = processes::family(master.pid());
    let status = master.stop();
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    wait::until_true("all processes to end", || !family.iter().any(Process::is_running));
    (titles.join("\n"), answer.to_string())
}

#[test]
fn wordpress_behind_nginx_goes_on_with_maitred_in_php_fpms_place() {
    let files = Files::prepare();
    let root = files.root();
    let place = Place::default();
    let lines = usual("listen.mode = 0666\npm.max_children = 4\n");
    let pass = format!(
        "fastcgi_pass unix:{}; fastcgi_param HTTP_HOST $http_host;",
        place.file("www.sock").display()
    );
    let front = "
        location / { try_files $uri $uri/ /index.php?$args; }";
    let web = nginx(&root, "", &(front.to_owned() + NGINX_PHP), &pass);
    let fpm = Daemon::start_with(Which::PhpFpm, &lines, place, &[]);
    let mut site = WordPress::install(web.address());
    let (_, link) = site.publish("Written under php-fpm", "<p>The old cook.</p>");
    let place = fpm.stop_and_keep();
    let ours = Daemon::start_with(Which::Maitred, &lines, place, &[]);
    // The same login, the same pages.
    let page = site.admin().get(&link);
    assert_eq!(page.status, 200, "{link}");
    assert!(page.text().contains("The old cook."));
    let (_, second) = site.publish("Written under maitred", "<p>The new cook.</p>");
    let pages: Vec<_> = (0..8)
        .map(|_| {
            let (address, link) = (web.address(), second.clone());
            thread::spawn(move || {
                let path = link.splitn(4, '/').nth(3).unwrap_or_default().to_owned();
                let request = Request::new("GET", &format!("/{path}"))
                    .header("Host", &address.to_string())
                    .header("Connection", "close");
                http::ask(address, &request).text()
            })
        })
        .collect();
    for page in pages {
        let text = page.join().expect("a page is answered");
        assert!(text.contains("The new cook."), "{text}");
    }
    drop(web);
    ours.stop();
}

#[test]
fn systemd_takes_the_unit_that_replaces_php_fpms() {
    let unit = maitred_tests::project_root().join("packaging/php8.2-fpm-maitred.service");
    let unit = fs::read_to_string(unit).expect("the unit is there");
    let program = maitred_tests::maitred_program().display().to_string();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("php8.2-fpm.service");
    fs::write(&file, unit.replace("/usr/local/sbin/php-fpm8.2", &program)).expect("a file");
    let output = Command::new("systemd-analyze").arg("verify").arg(&file).output();
    let Ok(output) = output else {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("php8.2-fpm"), "{said}");
}
