//! The experiments of the tuning articles: that one runs from end to end, and that the page in docs
//! is what the kept results give.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use maitred_tests::{maitred_program, project_root};
use serde_json::Value;

/// The experiment that computes least, on one server.
const SHORT: [&str; 8] =
    ["--only", "B9", "--arms", "maitred, at 48 MB", "--rounds", "1", "--seconds", "1"];

fn experiments(arguments: &[&str], folder: &Path, maitred: &Path) -> Output {
    let temporary = folder.join("tmp");
    fs::create_dir_all(&temporary).expect("a folder can be made");
    Command::new("python3")
        .arg(project_root().join("experiments/run.py"))
        .args(arguments)
        .arg("--results")
        .arg(folder.join("results"))
        .arg("--docs")
        .arg(folder.join("docs"))
        .env("MAITRED_BIN", maitred)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TMPDIR", temporary)
        .output()
        .expect("python3 can be started (apt install python3)")
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    format!("{}: {out}{err}", output.status)
}

#[test]
fn an_experiment_leaves_its_samples_and_a_page_and_no_process() {
    let folder = maitred_tests::server::public_folder();
    let run = experiments(&SHORT, folder.path(), &maitred_program());
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    assert!(!said(&run).contains("left over"), "{}", said(&run));
    let left = fs::read_dir(folder.path().join("tmp")).expect("there is a folder");
    assert_eq!(left.count(), 0, "{}", said(&run));

    let kept = fs::read(folder.path().join("results/B9.json")).expect("there are results");
    let kept: Value = serde_json::from_slice(&kept).expect("results are JSON");
    let samples = kept["samples"].as_array().expect("there are samples");
    assert_eq!(samples.len(), 2, "{kept}");
    for sample in samples {
        let figures = &sample["figures"];
        assert!(figures["served"].as_u64() > Some(0), "{sample}");
        assert_eq!(figures["wrong"], 0, "{sample}");
        assert!(figures["most_mb"].as_f64() > Some(0.0), "{sample}");
    }
    let page = fs::read_to_string(folder.path().join("docs/experiments.md")).expect("a page");
    for words in ["## B9: ", "make experiments ONLY=B9", "| maitred | at 48 MB"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let chart = fs::read_to_string(folder.path().join("docs/experiments/b9-memory.svg"));
    let chart = chart.expect("there is a chart");
    assert!(chart.starts_with("<svg ") && chart.ends_with("</svg>\n"));

    let again = experiments(&SHORT, folder.path(), &maitred_program());
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    assert!(said(&again).contains("was measured"), "{}", said(&again));
}

#[test]
fn an_experiment_without_its_server_says_so_and_keeps_what_was_there() {
    let folder = maitred_tests::server::public_folder();
    let nowhere = folder.path().join("no-maitred");
    let run = experiments(&SHORT, folder.path(), &nowhere);
    assert_eq!(run.status.code(), Some(2), "{}", said(&run));
    assert!(said(&run).contains("not measured"), "{}", said(&run));
    assert!(!folder.path().join("results/B9.json").exists());
}

#[test]
fn the_page_in_docs_is_what_the_results_give() {
    let root = project_root();
    let check = Command::new("python3")
        .arg(root.join("experiments/run.py"))
        .arg("--check")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 can be started (apt install python3)");
    assert_eq!(check.status.code(), Some(0), "{}", said(&check));
}
