//! No crate is older than an advisory of RustSec asks for that the project knows of.

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

#[test]
fn versions_are_compared_by_their_numbers() {
    assert!(numbers("0.3.100") > numbers("0.3.47"));
    assert!(numbers("1.0.0-rc.1") < numbers("1.0.1+build"));
}
