//! Headless Chromium, for a look at pages as a person would see them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::guard::Guarded;
use crate::picture;
use crate::processes::Signal;
use crate::project_root;

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
