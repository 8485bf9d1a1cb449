//! The manifests for Kubernetes: valid by the published schemas, and what they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use maitred_tests::project_root;

const MANIFESTS: &str = "packaging/kubernetes/shop.yaml";

fn validate(path: &std::path::Path) -> Output {
    let script = project_root().join("tests/fixtures/kubernetes/validate.py");
    let output = Command::new("/usr/bin/python3").arg(script).arg(path).output();
    output.expect("python3 runs")
}

#[test]
fn each_manifest_is_valid_by_the_schema_of_its_kind_and_a_wrong_key_is_found() {
    let output = validate(&project_root().join(MANIFESTS));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut found: Vec<&str> = text.lines().collect();
    found.sort_unstable();
    let expected = [
        "CronJob shop-scheduler",
        "Deployment shop",
        "Deployment shop-queue",
        "NetworkPolicy shop-admin",
        "PodDisruptionBudget shop",
        "ScaledObject shop",
        "Service shop",
        "Service shop-admin",
    ];
    assert_eq!(found, expected);

    let folder = tempfile::tempdir().expect("a folder can be made");
    let wrong = folder.path().join("wrong.yaml");
    let text = fs::read_to_string(project_root().join(MANIFESTS)).expect("the manifests are there");
    let broken = text.replace("readinessProbe", "readyProbe");
    assert_ne!(broken, text);
    fs::write(&wrong, broken).expect("a file can be written");
    let output = validate(&wrong);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("readyProbe"), "{text}");
}

#[test]
fn the_chart_uses_each_of_its_values_and_no_other() {
    let chart = project_root().join("packaging/helm/maitred");
    let values = fs::read_to_string(chart.join("values.yaml")).expect("the values are there");
    let is_key = |line: &&str| line.starts_with(|first: char| first.is_ascii_lowercase());
    let known = values.lines().filter(is_key).filter_map(|line| line.split(':').next());
    let known: BTreeSet<String> = known.map(str::to_owned).collect();
    let mut used = BTreeSet::new();
    for file in fs::read_dir(chart.join("templates")).expect("the templates are there") {
        let path = file.expect("a template").path();
        let text = fs::read_to_string(path).expect("a template can be read");
        for after in text.split(".Values.").skip(1) {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
            used.insert(after[..end].to_owned());
        }
    }
    assert_eq!(used, known);
}
