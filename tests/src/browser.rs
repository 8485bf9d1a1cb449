//! Headless Chromium, for a look at pages as a person would see them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::guard::Guarded;
use crate::processes::Signal;
use crate::{node, picture, project_root};

/// How long Chromium may take to start, load a page and write the picture.
const SCREENSHOT_DEADLINE: Duration = Duration::from_secs(120);

/// Where screenshots are left for a person to open.
pub fn screenshot_folder() -> PathBuf {
    project_root().join("target/screenshots")
}

/// Takes a picture of `url`, leaves it as `target/screenshots/NAME.png`, and insists that it shows
/// something.
///
/// # Panics
/// When Chromium fails, or the picture is missing or blank.
pub fn screenshot(url: &str, name: &str) -> PathBuf {
    let folder = screenshot_folder();
    std::fs::create_dir_all(&folder).expect("the screenshot folder can be made");
    let picture = folder.join(format!("{name}.png"));
    let _ = std::fs::remove_file(&picture);
    let profile = tempfile::tempdir().expect("a temporary folder can be made");
    let mut chromium = Guarded::spawn(&mut command(url, &picture, profile.path()), Signal::TERM);
    let status = chromium
        .wait(SCREENSHOT_DEADLINE)
        .unwrap_or_else(|| panic!("chromium did not finish its picture of {url}"));
    assert!(status.success(), "chromium failed on {url}: {status}");
    picture::assert_not_blank(&picture);
    picture
}

/// A look at pages with Chromium: what `tests/node/browse.js` says of them.
///
/// # Panics
/// When it fails.
pub fn browse(spec: &Value) -> Value {
    let output = node::command("browse.js").arg(spec.to_string()).output();
    let output = output.expect("node is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("it writes JSON")
}

/// The file with axe-core.
///
/// # Panics
/// When `scripts/setup-test` has not fetched it.
pub fn axe() -> PathBuf {
    let axe = project_root().join("target/tools/axe.min.js");
    assert!(axe.exists(), "scripts/setup-test has not fetched axe-core");
    axe
}

/// Insists that a report in an HTML file is readable at each width in light and dark, and loads
/// nothing. Leaves pictures of it.
///
/// # Panics
/// When it is not.
pub fn assert_readable(file: &Path, name: &str) {
    let folder = screenshot_folder();
    std::fs::create_dir_all(&folder).expect("the screenshot folder can be made");
    let url = format!("file://{}", file.display());
    let found = browse(&json!({
        "url": url,
        "file": name,
        "views": ["main"],
        "widths": [1280, 390],
        "schemes": ["light", "dark"],
        "folder": folder,
        "axe": axe(),
    }));
    assert_eq!(found["errors"], json!([]), "the console");
    for view in found["views"].as_array().expect("views") {
        let name = view["name"].as_str().expect("a name");
        assert_eq!(view["violations"], json!([]), "{name}");
        assert!(view["overflow"].as_i64() <= Some(0), "{name} scrolls sideways");
        picture::assert_not_blank(&folder.join(format!("{name}.png")));
    }
    let own = |loaded: &Value| {
        let loaded = loaded.as_str().unwrap_or_default();
        loaded.split('#').next() == Some(url.as_str())
    };
    assert!(found["requests"].as_array().is_some_and(|all| all.iter().all(own)), "{found}");
}

fn command(url: &str, picture: &Path, profile: &Path) -> Command {
    let mut command = Command::new("chromium");
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1280,1400"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(url)
        .env("HOME", profile)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
