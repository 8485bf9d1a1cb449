//! Crates of others: none is older than an advisory of RustSec asks for that the project knows of,
//! and docs/supply-chain.md has each that clients' bytes reach or that runs as root.

use std::fs;

use maitred_tests::project_root;

/// The numbers of a version, without what may follow them.
fn numbers(version: &str) -> Vec<u64> {
    let version = version.split(['-', '+']).next().unwrap_or_default();
    let number = |part: &str| part.parse().unwrap_or_else(|_| panic!("{version} is no version"));
    version.split('.').map(number).collect()
}

/// Name and version of every crate in a lock file.
fn crates(lock: &str) -> Vec<(String, String)> {
    let lock: toml::Table = fs::read_to_string(project_root().join(lock))
        .expect("the lock file can be read")
        .parse()
        .expect("it is TOML");
    let packages = lock["package"].as_array().expect("it has packages");
    let text = |package: &toml::Value, key: &str| package[key].as_str().expect(key).to_owned();
    let packages = packages.iter();
    packages.map(|package| (text(package, "name"), text(package, "version"))).collect()
}

#[test]
fn no_crate_is_older_than_an_advisory_asks_for() {
    let list = fs::read_to_string(project_root().join(".ci/advisories.txt"));
    let list = list.expect("the list can be read");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let mut looked_at = 0;
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let crates = crates(lock);
        for line in lines.clone() {
            let mut words = line.split(' ');
            let (name, mended) = (words.next(), words.next().expect("a version"));
            let same = crates.iter().filter(|(known, _)| Some(&**known) == name);
            for (name, version) in same {
                looked_at += 1;
                let is_mended = numbers(version) >= numbers(mended);
                assert!(is_mended, "{lock} has {name} {version}: {line}");
            }
        }
    }
    assert!(looked_at >= 10, "{looked_at} crates were looked at");
}

/// Crates of the project whose code reads clients' bytes, or runs as root or beside tenants' PHP.
const EXPOSED: [&str; 20] = [
    "config",
    "control",
    "fastcgi",
    "front",
    "htaccess",
    "http1",
    "os",
    "pagecache",
    "pagestore",
    "php",
    "rules",
    "sandbox",
    "scoreboard",
    "seat",
    "sizing",
    "supervisor",
    "text",
    "tls",
    "trace",
    "worker",
];

fn review() -> String {
    let path = project_root().join("docs/supply-chain.md");
    fs::read_to_string(path).expect("the review can be read")
}

#[test]
fn the_review_has_each_crate_that_an_exposed_one_depends_on() {
    let review = review();
    let words: Vec<&str> =
        review.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').collect();
    let mut looked_at = 0;
    for name in EXPOSED {
        let path = project_root().join("crates").join(name).join("Cargo.toml");
        let manifest: toml::Table =
            fs::read_to_string(path).expect("it has a manifest").parse().expect("it is TOML");
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        for (dependency, _) in dependencies.into_iter().flatten() {
            if dependency.starts_with("maitred-") {
                continue;
            }
            looked_at += 1;
            assert!(words.contains(&dependency.as_str()), "{name} depends on {dependency}");
        }
    }
    assert!(looked_at >= 50, "{looked_at} dependencies were looked at");
}

#[test]
fn there_are_no_more_crates_than_the_review_says() {
    let review = review();
    let (before, _) = review.split_once(" packages").expect("it has their number");
    let said = before.rsplit(' ').next().expect("a word");
    let said: usize = said.rsplit('\n').next().expect("a line").parse().expect("a number");
    let crates = crates("Cargo.lock").len();
    assert!(crates <= said, "there are {crates} packages: review those that are new");
}

#[test]
fn versions_are_compared_by_their_numbers() {
    assert!(numbers("0.3.100") > numbers("0.3.47"));
    assert!(numbers("1.0.0-rc.1") < numbers("1.0.1+build"));
}
