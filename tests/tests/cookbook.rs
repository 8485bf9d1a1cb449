//! The pages "I want to …" and "From nginx": their configurations are right, and the most important
//! answers hold when a client tries them.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::outside::{self, text};
use maitred_tests::peer::Peer;
use maitred_tests::rules::{USER, basic};
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, give_to_web_user, is_root, public_folder, write_file,
};
use maitred_tests::tls::Authority;
use maitred_tests::web::Web;
use maitred_tests::{Target, php_version, ports, project_root};
use tempfile::TempDir;

const COOKBOOK: &str = "docs/guide/cookbook.md";
const FROM_NGINX: &str = "docs/guide/from-nginx.md";

/// The document root of most answers.
const ROOT: &str = "srv/shop/public";

/// Beginnings of paths in the pages, which lead into a temporary folder here.
const ELSEWHERE: [&str; 4] = ["\"/srv/", "\"/etc/", "\"/var/", "\"/run/"];

/// Beginnings of lines with an address to listen on.
const ADDRESSES: [&str; 3] = ["listen = ", "admin = ", "agent_check = "];

/// A block of a page between two fences.
struct Block {
    /// The page and the line of its first line.
    place: String,
    /// The heading above it.
    heading: String,
    /// The language after the fence.
    language: String,
    /// Its lines.
    text: String,
}

fn page(path: &str) -> String {
    fs::read_to_string(project_root().join(path)).expect("the page exists")
}

fn blocks(path: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut heading, mut is_inside) = (String::new(), false);
    for (index, line) in page(path).lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            is_inside = !is_inside;
            if is_inside {
                blocks.push(Block {
                    place: format!("{path}:{}", index + 2),
                    heading: heading.clone(),
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
        } else if is_inside {
            blocks.last_mut().expect("one is open").text += &format!("{line}\n");
        } else if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut heading);
        }
    }
    blocks
}

/// The block of an answer in this language.
fn answer(heading: &str, language: &str) -> String {
    let found = blocks(COOKBOOK)
        .into_iter()
        .find(|block| block.heading == heading && block.language == language);
    found.unwrap_or_else(|| panic!("no {language} below {heading:?}")).text
}

/// A configuration of a page in a folder of this machine, with what its paths name.
struct Here {
    folder: TempDir,
    text: String,
}

impl Here {
    /// Changes users, PHP versions and paths of the block to those of this machine.
    fn new(block: &str) -> Here {
        let folder = public_folder();
        let mut text = block.to_owned();
        for beginning in ELSEWHERE {
            let moved = format!("\"{}{}", folder.path().display(), &beginning[1..]);
            text = text.replace(beginning, &moved);
        }
        let lines = text.lines().map(|line| match line.split_once(" = ").unwrap_or_default() {
            ("user", _) if is_root() => format!("user = {WEB_USER:?}"),
            ("user", _) => String::new(),
            ("php", _) => format!("php = {:?}", minor_version()),
            _ => line.to_owned(),
        });
        let text = lines.map(|line| line + "\n").collect();
        let here = Here { folder, text };
        here.make_all();
        here
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn make_all(&self) {
        let own = self.folder.path().to_str().expect("the path is text");
        let quoted = self.text.split('"').skip(1).step_by(2);
        let paths: BTreeSet<&str> = quoted.filter(|text| text.starts_with(own)).collect();
        for path in paths {
            self.make(Path::new(path));
        }
        self.make(&self.path(ROOT));
    }

    /// Makes a folder with an index, or the folder of a file; certificates and users as well.
    fn make(&self, path: &Path) {
        let name = path.file_name().expect("it has a name").to_str().expect("it is text");
        if name == "users" {
            write_file(path.parent().expect("it is in a folder"), name, USER.as_bytes());
        } else if name == "fullchain.pem" {
            certify(path.parent().expect("it is in a folder"));
        } else if name.contains('.') {
            let folder = path.parent().expect("it is in a folder");
            fs::create_dir_all(folder).expect("folders can be made");
            if folder.starts_with(self.path("srv")) {
                give_to_web_user(folder);
            }
        } else {
            write_file(path, "index.php", b"<?php echo 'index ', $_SERVER['REQUEST_URI'];");
            give_to_web_user(path);
        }
    }

    /// Adds a section of a site where the block has none.
    fn completed(&self) -> String {
        if self.text.contains("[[sites]]") {
            return self.text.clone();
        }
        let pool = self.text.lines().find_map(|line| line.strip_prefix("[pools."));
        let pool = pool.map(|name| format!("pool = {:?}\n", name.trim_end_matches(']')));
        let pool = pool.unwrap_or_default();
        format!("{}\n[[sites]]\nroot = {:?}\n{pool}", self.text, self.path(ROOT))
    }

    /// The same with ports that nothing listens on: `maitred check` warns about others.
    fn completed_at_free_ports(&self) -> String {
        let whole = self.completed();
        let mut of_server = whole.lines().take_while(|line| !line.starts_with('['));
        let has_own = of_server.any(|line| line.starts_with(ADDRESSES[0]));
        let own = if has_own { "" } else { "listen = \"127.0.0.1:0\"\n" };
        let is_address = |line: &str| ADDRESSES.iter().any(|name| line.starts_with(name));
        let lines = own.lines().chain(whole.lines()).map(|line| match line.rsplit_once(':') {
            Some((host, _)) if is_address(line) => {
                format!("{host}:{}\"\n", ports::free_address().port())
            }
            _ => format!("{line}\n"),
        });
        lines.collect()
    }

    fn script(&self, name: &str, script: &str) {
        write_file(&self.path(ROOT), name, script.as_bytes());
    }

    /// Serves it, as after a reload.
    fn serve(&self) -> Server {
        let server = Setup::new(&self.path(ROOT)).start();
        self.reload(&server, &self.completed());
        server
    }

    fn reload(&self, server: &Server, text: &str) {
        let (address, admin, spool) = (server.address(), server.admin_socket(), server.spool());
        let start = format!("listen = \"{address}\"\nadmin_socket = {admin:?}");
        server.configure_as(&format!("{start}\nspool_dir = {spool:?}\n{text}"));
        let line = server.reload();
        assert!(line.contains("reloaded: "), "{line}\n{}", server.log_text());
    }
}

/// The PHP version under test, as `8.2`.
fn minor_version() -> String {
    let version = php_version();
    version.rsplit_once('.').map_or(version.clone(), |(minor, _)| minor.to_owned())
}

fn certify(folder: &Path) {
    let authority = Authority::default();
    let certificate = authority.issue("site", &["blog.example.com"]);
    fs::create_dir_all(folder).expect("folders can be made");
    for (from, to) in [(&certificate.cert, "fullchain.pem"), (&certificate.key, "privkey.pem")] {
        fs::copy(from, folder.join(to)).expect("a file can be copied");
    }
}

fn ask(server: &Server, host: &str, target: &str, headers: &[(&str, &str)]) -> Response {
    let request = Request::new("GET", target).header("Host", host);
    let add = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
    http::ask(server.address(), &headers.iter().fold(request, add))
}

fn get(server: &Server, target: &str) -> Response {
    ask(server, "shop.example.com", target, &[])
}

/// A form with a file of this size.
fn form(target: &str, field: &str, size: usize) -> Request {
    let part = |name: &str| format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"");
    let mut body = format!("{}\r\n\r\nyes\r\n", part(field)).into_bytes();
    body.extend(format!("{}; filename=\"a.bin\"\r\n\r\n", part("f")).bytes());
    body.resize(body.len() + size, b'x');
    body.extend(b"\r\n--edge--\r\n");
    Request::post(target, "multipart/form-data; boundary=edge", &body)
}

#[test]
fn every_configuration_of_the_cookbook_and_of_nginx_is_right() {
    let mut complaints = Vec::new();
    let mut count = 0;
    let all = [COOKBOOK, FROM_NGINX].into_iter().flat_map(blocks);
    for block in all.filter(|block| block.language == "toml") {
        count += 1;
        let here = Here::new(&block.text);
        let file = here.path("maitred.toml");
        let whole = here.completed_at_free_ports();
        fs::write(&file, whole).expect("a configuration can be written");
        let output = outside::maitred(&["check", file.to_str().expect("it is text")]);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        if !output.status.success() || said.contains("warning") {
            complaints.push(format!("{}: {:?}\n{said}", block.place, output.status.code()));
        }
    }
    assert!(count >= 19, "only {count} configurations");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The lines of the last `server` block, for a `server` that has its `listen` already.
fn server_lines(block: &str, here: &Here, fpm: &Peer) -> String {
    let (_, lines) = block.rsplit_once("server {\n").expect("there is one");
    let lines = lines.trim_end().strip_suffix('}').expect("it ends");
    let here = here.folder.path().display();
    let lines = lines.lines().map(str::trim).filter(|line| {
        !["listen ", "ssl_", "access_log "].iter().any(|start| line.starts_with(start))
    });
    let lines = lines.collect::<Vec<_>>().join("\n").replace("root /", &format!("root {here}/"));
    let socket = fpm.fpm_socket().display().to_string();
    lines
        .replace("include fastcgi_params;", "include /etc/nginx/fastcgi_params;")
        .replace("/run/php/php8.2-fpm.sock", &socket)
}

/// A site of the page, without TLS, and nginx with the block that it comes from.
fn both(heading: &str, files: &[&str]) -> (Here, Server, Peer, Web) {
    let of = |language: &str| {
        let all = blocks(FROM_NGINX).into_iter();
        let mut found = all.filter(|block| block.heading == heading && block.language == language);
        found.next().unwrap_or_else(|| panic!("{heading} has no {language}")).text
    };
    let toml = of("toml").replace("listen = \"[::]:80\"\n", "");
    let toml = match (toml.find("[tls]"), toml.find("[pools")) {
        (Some(tls), Some(pools)) => format!("{}{}", &toml[..tls], &toml[pools..]),
        _ => toml,
    };
    let here = Here::new(&toml);
    let root = toml.lines().find_map(|line| line.strip_prefix("root = \"/"));
    let root = here.path(root.expect("a root").trim_end_matches('"'));
    for name in files {
        let script = b"<?php echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ', \
            $_SERVER['QUERY_STRING'], ' ', $_SERVER['HTTP_HOST'], ' ', \
            $_SERVER['APP_ENV'] ?? '-';";
        let content: &[u8] = if name.ends_with(".php") { script } else { b"a file" };
        write_file(&root, name, content);
    }
    let fpm = Peer::nginx_php_fpm(&root);
    let web = Web::nginx("", &server_lines(&of("nginx"), &here, &fpm));
    let server = here.serve();
    (here, server, fpm, web)
}

/// Status, body and the headers that the blocks are about.
fn seen(address: SocketAddr, host: &str, target: &str) -> String {
    let response = http::ask(address, &Request::new("GET", target).header("Host", host));
    let headers = ["X-Frame-Options", "X-Content-Type-Options", "Cache-Control", "X-Powered-By"];
    let headers = headers.map(|name| response.header(name).unwrap_or("-").to_owned());
    let body = if response.status == 200 { response.text() } else { String::new() };
    format!("{} {} {body}", response.status, headers.join(" "))
}

#[test]
fn a_block_of_nginx_and_the_site_in_its_place_do_the_same() {
    let wordpress = [
        "index.php",
        "wp-login.php",
        "xmlrpc.php",
        "a.CSS",
        "wp-content/uploads/a.php",
        "wp-content/uploads/a.png",
    ];
    let application = ["index.php", "build/a.js", "robots.txt"];
    let tables: [(&str, &str, &[&str], &[&str]); 3] = [
        (
            "WordPress",
            "blog.example.com",
            &wordpress,
            &[
                "/",
                "/a/b?c=d",
                "/wp-login.php?x",
                "/xmlrpc.php",
                "/a.CSS",
                "/wp-content/uploads/a.png",
            ],
        ),
        ("Laravel", "www.shop.example.com", &application, &["/", "/a?b=c", "/build/a.js"]),
        ("Symfony", "api.example.com", &application, &["/", "/a/b?c=d", "/robots.txt"]),
    ];
    for (heading, host, files, targets) in tables {
        let (_here, server, _fpm, web) = both(heading, files);
        for target in targets {
            let ours = seen(server.address(), host, target);
            assert_eq!(ours, seen(web.address(), host, target), "{heading}: {target}");
        }
        if heading == "WordPress" {
            let uploaded = ask(&server, host, "/wp-content/uploads/a.php", &[]);
            assert_eq!(uploaded.status, 403);
        }
    }
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let of_headings = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
    let ids = page.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    of_headings.chain(ids.map(str::to_owned)).collect()
}

/// The targets of a page's links, without those to other machines.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("http")).collect()
}

#[test]
fn every_question_is_two_clicks_from_the_readme_and_no_link_is_dead() {
    assert!(links(&page("README.md")).contains(&COOKBOOK), "the first click");
    let cookbook = page(COOKBOOK);
    let questions = cookbook.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor);
    let listed = links(&cookbook).into_iter().filter_map(|link| link.strip_prefix('#'));
    let listed: BTreeSet<&str> = listed.collect();
    let missing: Vec<_> = questions.filter(|anchor| !listed.contains(anchor.as_str())).collect();
    assert!(missing.is_empty(), "not in the list of the page: {missing:?}");
    assert!(listed.len() >= 26, "{listed:?}");

    for path in ["README.md", COOKBOOK, FROM_NGINX, "docs/guide/README.md"] {
        let source = page(path);
        for link in links(&source) {
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => project_root().join(path),
                file => project_root().join(path).parent().expect("a folder").join(file),
            };
            assert!(target.exists(), "{path}: {link}");
            if !fragment.is_empty() {
                let text = fs::read_to_string(&target).expect("a page is text");
                assert!(anchors(&text).contains(fragment), "{path}: {link}");
            }
        }
    }
}

#[test]
fn an_upload_meets_the_three_limits_in_their_order() {
    let block = answer("Raise the upload limit", "toml");
    let limits = [("64M", "1M"), ("72M", "2M"), ("80M", "3M")];
    let smaller = limits.iter().fold(block, |block, (large, small)| {
        assert!(block.contains(large), "{block}");
        block.replace(large, small)
    });
    let here = Here::new(&smaller);
    here.script(
        "up.php",
        "<?php echo count($_POST), ' ', $_FILES['f']['error'] ?? '-', ' ', \
         $_FILES['f']['size'] ?? '-';",
    );
    let server = here.serve();
    let upload = |size| http::ask(server.address(), &form("/up.php", "sent", size));
    assert_eq!(upload(1_000_000).text(), "1 0 1000000");
    assert_eq!(upload(1_200_000).text(), "1 1 0", "upload_max_filesize");
    let mark = server.log().mark();
    assert_eq!(upload(2_200_000).text(), "0 - -", "post_max_size");
    server.expect_log(mark, "exceeds the limit of");
    assert_eq!(upload(3_200_000).status, 413, "max_body_size");
    server.expect_log(mark, "max_body_size");
}

#[test]
fn www_is_redirected_to_another_host_with_path_and_query() {
    let here = Here::new(&answer("Redirect www to another host", "toml"));
    let server = here.serve();
    let response = ask(&server, "www.shop.example.com", "/a/b?c=1&d=%20", &[]);
    assert_eq!(response.status, 301);
    assert_eq!(response.header("Location"), Some("https://shop.example.com/a/b?c=1&d=%20"));
    let response = ask(&server, "www.shop.example.com", "/", &[]);
    assert_eq!(response.header("Location"), Some("https://shop.example.com/"));
    assert_eq!(get(&server, "/a").text(), "index /a");
}

#[test]
fn xmlrpc_is_denied_and_does_not_run() {
    let here = Here::new(&answer("Block xmlrpc.php", "toml"));
    let ran = here.path("ran");
    let script = format!("<?php touch({:?});", ran.to_str().expect("it is text"));
    write_file(&here.path("srv/blog"), "xmlrpc.php", script.as_bytes());
    give_to_web_user(here.folder.path());
    let server = here.serve();
    for target in
        ["/xmlrpc.php", "//xmlrpc.php", "/xmlrpc.php/x", "/%78mlrpc.php", "/xmlrpc.php?rsd"]
    {
        assert_eq!(get(&server, target).status, 403, "{target}");
    }
    let post = Request::post("/xmlrpc.php", "text/xml", b"<methodCall/>");
    assert_eq!(http::ask(server.address(), &post).status, 403);
    assert!(!ran.exists(), "it has run");
}

#[test]
fn admin_asks_for_a_password_in_every_spelling() {
    let here = Here::new(&answer("Ask for a password for /admin", "toml"));
    here.script("index.php", "<?php echo 'for ', $_SERVER['REMOTE_USER'] ?? '-';");
    let server = here.serve();
    for target in ["/admin", "/admin/", "/admin/x", "//admin", "/index.php/admin", "/%61dmin/x"] {
        assert_eq!(get(&server, target).status, 401, "{target}");
        let wrong = basic("anna", "wrong");
        let response = ask(&server, "localhost", target, &[("Authorization", &wrong)]);
        assert_eq!(response.status, 401, "{target}");
        let right = basic("anna", "secret");
        let response = ask(&server, "localhost", target, &[("Authorization", &right)]);
        assert_eq!(response.text(), "for anna", "{target}");
    }
    assert_eq!(get(&server, "/administer").status, 200);
}

#[test]
fn a_bot_is_limited_by_rate_and_by_user_agent() {
    let here = Here::new(&answer("Limit a bot", "toml"));
    let server = here.serve();
    let searches = (0..20).map(|_| get(&server, "/search?q=a")).collect::<Vec<_>>();
    let limited = searches.iter().find(|response| response.status == 429);
    let limited = limited.expect("twenty at once are more than thirty a minute and ten");
    assert!(limited.header("Retry-After").is_some());
    assert_eq!(searches[0].status, 200);
    assert_eq!(get(&server, "/about").status, 200, "other paths are not limited");
    drop(server);

    let rules = answer("Limit a bot", "apache");
    let own = "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]\n";
    let root = document_root(&[
        ("index.php", "<?php echo 'page';"),
        ("a.txt", "text"),
        (".htaccess", &(rules + own)),
    ]);
    let server = Setup::new(root.path()).site("htaccess = true").start();
    for (target, expected) in [("/", "page"), ("/a.txt", "text"), ("/x/y", "page")] {
        let browser = [("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)")];
        assert_eq!(ask(&server, "localhost", target, &browser).text(), expected);
        let bot = [("User-Agent", "Mozilla/5.0 (compatible; gptbot/1.2)")];
        assert_eq!(ask(&server, "localhost", target, &bot).status, 403, "{target}");
    }
}

#[test]
fn a_large_file_that_a_script_names_is_sent_without_it_in_ranges() {
    let here = Here::new(&answer("Send large files", "toml"));
    let film: Vec<u8> = (0..3_000_000u32).map(|byte| (byte % 251) as u8).collect();
    write_file(&here.path("srv/shop/private"), "film.zip", &film);
    here.script("get.php", &format!("<?php {}", answer("Send large files", "php")));
    let server = here.serve();
    let whole = get(&server, "/get.php");
    assert_eq!(whole.header("Content-Type"), Some("application/zip"));
    assert!(whole.body == film, "{} bytes", whole.body.len());
    let part = ask(&server, "localhost", "/get.php", &[("Range", "bytes=1000000-1000099")]);
    assert_eq!(part.status, 206);
    assert!(part.body == film[1_000_000..1_000_100]);
    assert!(get(&server, "/private/film.zip").text().starts_with("index "), "no other way");
}

#[test]
fn cloudflares_header_names_the_client_only_if_cloudflare_sends_it() {
    let block = answer("Run behind Cloudflare", "toml");
    let here = Here::new(&block);
    here.script("who.php", "<?php echo $_SERVER['REMOTE_ADDR'], ' ', $_SERVER['HTTPS'] ?? 'off';");
    let server = here.serve();
    let sent = [
        ("X-Forwarded-For", "203.0.113.9"),
        ("CF-Connecting-IP", "198.51.100.7"),
        ("X-Forwarded-Proto", "https"),
    ];
    let who = || ask(&server, "localhost", "/who.php", &sent).text();
    assert_eq!(who(), "127.0.0.1 off", "this machine is not Cloudflare's");
    let ours = Here::new(&block.replace("\"131.0.72.0/22\"", "\"127.0.0.0/8\""));
    ours.script(
        "who.php",
        &fs::read_to_string(here.path(ROOT).join("who.php")).expect("it exists"),
    );
    ours.reload(&server, &ours.completed());
    assert_eq!(who(), "198.51.100.7 on");
}

#[test]
fn memory_limit_environment_and_error_log_are_those_of_the_pool() {
    let script = "<?php error_log('a message'); echo ini_get('memory_limit'), ' ', \
                  var_export(ini_set('memory_limit', '1G'), true), ' ', getenv('APP_ENV'), ' ', \
                  $_SERVER['APP_ENV'] ?? '-';";
    let memory = Here::new(&answer("Set the memory limit of one site", "toml"));
    memory.script("a.php", script);
    let server = memory.serve();
    assert_eq!(get(&server, "/a.php").text(), "512M false  -");

    let environment = Here::new(&answer("Set environment variables", "toml"));
    environment.script("a.php", script);
    environment.reload(&server, &environment.completed());
    assert!(get(&server, "/a.php").text().ends_with(" production production"));

    let errors = Here::new(&answer("See PHP's errors", "toml"));
    errors.script("a.php", script);
    errors.script("fatal.php", "<?php missing();");
    errors.reload(&server, &errors.completed());
    assert_eq!(get(&server, "/a.php").status, 200);
    assert_eq!(get(&server, "/fatal.php").status, 500);
    let log = fs::read_to_string(errors.path("srv/shop/log/php.log")).expect("PHP has written");
    assert!(log.contains("a message") && log.contains("PHP Fatal error: "), "{log}");
}

#[test]
fn php_knows_nothing_of_an_upload_before_its_end() {
    let page = "<?php session_id('upload'); session_start(); echo json_encode($_SESSION);";
    let root = document_root(&[("progress.php", page), ("up.php", page)]);
    give_to_web_user(root.path());
    let path = root.path().display();
    let server = Setup::new(root.path())
        .pool(&format!("php_value.session.save_path = \"{path}\""))
        .pool("php_value.session.upload_progress.enabled = 1")
        .pool("php_value.session.upload_progress.cleanup = 0")
        .start();
    let upload = form("/up.php", "PHP_SESSION_UPLOAD_PROGRESS", 1_000_000);
    let bytes = upload.header("Cookie", "PHPSESSID=upload").to_bytes();
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut connection = Connection::open(server.address());
    connection.send(first).expect("half is sent");
    assert_eq!(get(&server, "/progress.php").text(), "[]");
    connection.send(rest).expect("the rest is sent");
    let done = connection.read_response(false).expect("a response").text();
    assert!(
        done.contains("\"bytes_processed\":1000000,") || done.contains("\"done\":true"),
        "{done}"
    );
}

#[test]
fn a_file_required_through_the_link_is_old_until_the_reload() {
    let root = public_folder();
    let link = root.path().join("current");
    for release in ["1", "2"] {
        let folder = format!("releases/{release}");
        let script = format!(
            "<?php echo 'page {release} '; require {:?}; require __DIR__ . '/../lib.php';",
            link.join("lib.php")
        );
        write_file(root.path(), &format!("{folder}/public/index.php"), script.as_bytes());
        let library = format!("<?php echo 'lib {release} ';");
        write_file(root.path(), &format!("{folder}/lib.php"), library.as_bytes());
    }
    let deploy = |release: &str| {
        let new = root.path().join("new");
        std::os::unix::fs::symlink(format!("releases/{release}"), &new).expect("a link");
        fs::rename(new, &link).expect("it takes the other's place");
    };
    deploy("1");
    let setup = Setup::new(&link.join("public")).workers(1);
    let server = setup.pool("php_value.opcache.validate_timestamps = 0").start();
    assert_eq!(get(&server, "/").text(), "page 1 lib 1 lib 1 ");
    deploy("2");
    let mixed = "page 2 lib 1 lib 2 ";
    maitred_tests::wait::until_true("the new release", || get(&server, "/").text() == mixed);
    outside::succeeded(&outside::command(&server, &["reload", "www"]));
    assert_eq!(get(&server, "/").text(), "page 2 lib 2 lib 2 ");
}
