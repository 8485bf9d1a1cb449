//! `.htaccess` files, compared with Apache: the same trees, the same requests.

mod explained;
mod generated;
mod grammar;
mod overrides;
mod trees;

use std::collections::BTreeMap;

use maitred_tests::http::{self, Request, Response};
use maitred_tests::server::{Server, Setup, give_to_web_user, is_root, public_folder, write_file};
use maitred_tests::web::Web;
use maitred_tests::{Target, project_root};
use serde_json::Value;
use tempfile::TempDir;

use generated::Subject;
use trees::{Asked, Tree};

/// Prints what PHP sees of a request, without what depends on the server.
const PROBE: &str = r#"<?php
$apart = '/^(SERVER_|REMOTE_|CONTEXT_|GATEWAY_|REQUEST_(SCHEME|TIME|ID)|PATH$|USER$|HOME$|FCGI_|'
    . 'HTTP_(HOST|CONNECTION)$|arg[cv]$|DOCUMENT_URI$|CONTENT_|HTTPS$|UNIQUE_ID|PHP_VALUE$|'
    . 'PATH_TRANSLATED$)/';
$seen = [];
foreach ($_SERVER as $name => $value) {
    if (!preg_match($apart, $name) && $value !== '') { $seen[$name] = $value; }
}
unset($seen['HTTP_AUTHORIZATION']);
ksort($seen);
foreach (['memory_limit', 'post_max_size', 'display_errors', 'max_input_vars'] as $name) {
    $seen["ini:$name"] = ini_get($name);
}
header('Content-Type: application/json');
echo json_encode($seen);
"#;

/// Response headers that are compared.
const HEADERS: [&str; 17] = [
    "Location",
    "Vary",
    "Cache-Control",
    "Content-Language",
    "Content-Encoding",
    "Set-Cookie",
    "X-A",
    "X-B",
    "X-C",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "X-Powered-By",
    "Access-Control-Allow-Origin",
    "WWW-Authenticate",
    "Referrer-Policy",
    "X-Env",
    "Content-MD5",
];

/// Both servers for all trees of a file.
struct Servers {
    apache: Web,
    maitred: Server,
    _folder: TempDir,
}

fn serve(trees: &[Tree]) -> Servers {
    let folder = public_folder();
    let mut sites = String::new();
    let mut tables = Vec::new();
    for tree in trees {
        let root = folder.path().join(&tree.name);
        std::fs::create_dir_all(&root).expect("a folder");
        for file in &tree.files {
            let root_name = root.display().to_string();
            let text = match file.text.trim() {
                "@probe" => PROBE.to_owned(),
                _ => file.text.replace("@ROOT@", &root_name),
            };
            write_file(&root, &file.name, text.as_bytes());
        }
        if is_root() {
            give_to_web_user(&root);
        }
        let (name, root) = (&tree.name, root.display());
        sites.push_str(&format!(
            "<VirtualHost *:*>\nServerName {name}.test\nDocumentRoot {root}\n<Directory {root}>\n\
             {}Require all granted\nOptions FollowSymLinks\n</Directory>\n\
             </VirtualHost>\n",
            tree.apaches_overrides()
        ));
        tables.push(format!(
            "\n[[sites]]\nhosts = [\"{name}.test\"]\nroot = \"{root}\"\npool = \"www\"\n\
             htaccess = true\ncompression = false\n{}",
            tree.own_overrides()
        ));
    }
    let apache = Web::apache_with_php(&sites);
    let first = folder.path().join(&trees[0].name);
    let maitred = Setup::new(&first).hosts(&["first.invalid"]);
    let maitred = tables.iter().fold(maitred, |setup, table| setup.site(table)).start();
    Servers { apache, maitred, _folder: folder }
}

fn ask(server: &impl Target, tree: &Tree, asked: &Asked) -> Response {
    let address = server.address();
    let host = format!("{}.test", tree.name);
    let mut request = Request::new(&asked.method, &asked.target).header("Host", &host);
    for (name, value) in &asked.headers {
        request = match name.as_str() {
            "Body" => request.body(value.as_bytes()),
            _ => request.header(name, value),
        };
    }
    http::ask(address, &request)
}

/// A cookie without the time of its end, and a month without the age of a file: the servers get the
/// request one after the other.
fn without_time(value: &str) -> String {
    const MONTH: u64 = 30 * 24 * 60 * 60;
    let age = |seconds: u64| MONTH.checked_sub(seconds);
    let seconds = value.strip_prefix("max-age=").and_then(|seconds| seconds.parse().ok());
    if seconds.and_then(age).is_some_and(|age| age < 60 * 60) {
        return "max-age=MONTH".to_owned();
    }
    match value.split_once("; expires=") {
        Some((start, rest)) => {
            let (date, rest) = rest.split_once(';').unwrap_or((rest, ""));
            // `Sun, 06-Nov-1994 08:49:37 GMT`
            let shape: String = date
                .chars()
                .map(|c| if c.is_ascii_digit() { '0' } else { c })
                .filter(|c| !c.is_alphabetic())
                .collect();
            format!("{start}; expires={shape};{rest}")
        }
        None => value.to_owned(),
    }
}

/// What of a response has to be the same.
fn compared(response: &Response) -> Vec<String> {
    let mut all = vec![format!("status: {}", response.status)];
    for name in HEADERS {
        // Values of one header may come on several lines, in any order.
        let mut values: Vec<String> = response
            .all(name)
            .map(without_time)
            .flat_map(|value| {
                value.split(',').map(|value| without_time(value.trim())).collect::<Vec<_>>()
            })
            .collect();
        values.sort();
        values.dedup();
        if !values.is_empty() {
            all.push(format!("{name}: {}", values.join(", ")));
        }
    }
    all.push(format!("Expires: {}", response.header("Expires").is_some()));
    let text = response.text();
    let is_own = text.starts_with("<!DOCTYPE HTML PUBLIC") || response.status >= 300;
    let is_document = text.starts_with("page:") || text.starts_with("{\"");
    if !is_own || is_document {
        // The server names the character set of text, and has a type for every file.
        let media_type = response.header("Content-Type").unwrap_or("application/octet-stream");
        let media_type = media_type.trim_end_matches("; charset=utf-8");
        if response.status < 300 {
            all.push(format!("Content-Type: {}", media_type.to_lowercase()));
        }
        let text = match serde_json::from_str::<Value>(&text) {
            Ok(value) => serde_json::to_string_pretty(&value).expect("JSON"),
            Err(_) => text,
        };
        all.extend(text.lines().map(str::to_owned));
    }
    all
}

fn differences(name: &str) -> Vec<String> {
    let path = project_root().join("tests/fixtures/htaccess").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path:?}: {why}"));
    differences_of(name, &trees::parse(&text))
}

fn differences_of(name: &str, trees: &[Tree]) -> Vec<String> {
    let servers = serve(trees);
    let mut found = Vec::new();
    let mut count = 0;
    let mut first = Vec::new();
    let mut explained: BTreeMap<&str, usize> = BTreeMap::new();
    for tree in trees {
        for asked in &tree.requests {
            count += 1;
            let [apache, own] = [
                compared(&ask(&servers.apache, tree, asked)),
                compared(&ask(&servers.maitred, tree, asked)),
            ];
            if apache != own {
                let lines = |all: &[String], other: &[String]| {
                    all.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>()
                };
                let differing = [lines(&apache, &own), lines(&own, &apache)];
                let difference = format!(
                    "{}: {} {} {:?}\n  Apache: {:?}\n  maitred: {:?}",
                    tree.name,
                    asked.method,
                    asked.target,
                    asked.headers,
                    differing[0],
                    differing[1],
                );
                match explained::explanation(tree, asked, &differing.concat()) {
                    Some(why) => {
                        eprintln!("explained: {difference}");
                        *explained.entry(why).or_default() += 1;
                    }
                    None => found.push(difference),
                }
            }
            first.push((tree, asked, own));
        }
    }
    assert!(count > 0, "{name} has no requests");
    found.extend(differences_when_repeated(&servers.maitred, first));
    eprintln!("{name}: {count} requests, {} differ, explained: {explained:?}", found.len());
    if !found.is_empty() {
        eprintln!("{}", servers.apache.log_text());
    }
    servers.maitred.stop();
    found
}

/// Requests whose response is another one when they are repeated, in another order: decisions are
/// cached.
fn differences_when_repeated(
    maitred: &Server,
    first: Vec<(&Tree, &Asked, Vec<String>)>,
) -> Vec<String> {
    let repeated = first.into_iter().rev().filter_map(|(tree, asked, before)| {
        let now = compared(&ask(maitred, tree, asked));
        (now != before).then(|| {
            let Asked { method, target, headers, .. } = asked;
            format!("{}: {method} {target} {headers:?}, repeated: {before:?}, {now:?}", tree.name)
        })
    });
    repeated.collect()
}

#[track_caller]
fn same_as_apache(name: &str) {
    let found = differences(name);
    assert!(found.is_empty(), "{} differ:\n{}", found.len(), found.join("\n"));
}

#[test]
fn applications_run_on_their_own_files() {
    same_as_apache("applications.trees");
}

#[test]
fn rewrites_follow_each_flag() {
    same_as_apache("rewrites.trees");
}

#[test]
fn access_is_denied_where_apache_denies() {
    same_as_apache("access.trees");
}

#[test]
fn headers_types_and_variables_are_the_same() {
    same_as_apache("headers.trees");
}

#[test]
fn directories_redirects_and_error_pages_are_the_same() {
    same_as_apache("directories.trees");
}

#[test]
fn frameworks_shops_and_forums_run_on_their_own_files() {
    same_as_apache("frameworks.trees");
}

#[test]
fn what_plugins_write_and_articles_recommend_has_its_effect() {
    same_as_apache("snippets.trees");
}

#[test]
fn plugins_that_test_for_capabilities_find_those_of_apache() {
    same_as_apache("capabilities.trees");
}

#[test]
fn groups_options_and_single_directives_are_allowed_as_in_apache() {
    let found = differences_of("overrides", &overrides::trees());
    assert!(found.is_empty(), "{} differ:\n{}", found.len(), found.join("\n"));
}

#[test]
fn users_groups_and_limits_are_the_same() {
    same_as_apache("users.trees");
}

/// A number of the environment, for long runs of generated directives.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// `MAITRED_FOLDERS` and `MAITRED_SEED` make longer and other runs.
#[track_caller]
fn generated_are_the_same(subject: Subject) {
    let folders = number("MAITRED_FOLDERS", 40) as usize;
    let tree = generated::tree(subject, folders, number("MAITRED_SEED", 1));
    let found = differences_of(&tree.name, std::slice::from_ref(&tree));
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    for difference in &found {
        let folder = difference.split('/').nth(1).unwrap_or_default();
        shown.entry(folder.to_owned()).or_insert_with(|| {
            let files = tree.files.iter().filter(|file| {
                file.name.starts_with(&format!("{folder}/")) && file.name.ends_with(".htaccess")
            });
            let files = files.map(|file| format!("\n--- {}\n{}", file.name, file.text));
            difference.clone() + &files.collect::<String>()
        });
    }
    let shown: Vec<String> = shown.into_values().take(20).collect();
    assert!(found.is_empty(), "{} differ:\n{}", found.len(), shown.join("\n"));
}

#[test]
fn random_access_rules_decide_as_in_apache() {
    generated_are_the_same(Subject::Access);
}

#[test]
fn random_rewrite_rules_decide_as_in_apache() {
    generated_are_the_same(Subject::Rewrites);
}

#[test]
fn random_expressions_decide_as_in_apache() {
    generated_are_the_same(Subject::Expressions);
}

#[test]
fn random_directives_decide_as_in_apache() {
    generated_are_the_same(Subject::Mixed);
}
