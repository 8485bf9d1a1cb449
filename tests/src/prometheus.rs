//! Debian's Prometheus: scrapes a server each second, and evaluates queries and rules.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::guard::Guarded;
use crate::processes::Signal;
use crate::{http, ports, wait};

/// A running Prometheus; it ends when this is dropped.
#[derive(Debug)]
pub struct Prometheus {
    address: SocketAddr,
    _process: Guarded,
    _folder: TempDir,
}

impl Prometheus {
    /// It scrapes this listener as the job `maitred`, and evaluates these rules each second.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(target: SocketAddr, rules: &str) -> Prometheus {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let (config, file) =
            (folder.path().join("prometheus.yml"), folder.path().join("rules.yml"));
        fs::write(&file, rules).expect("a file can be written");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{file:?}]\n\
             scrape_configs:\n  - job_name: maitred\n    static_configs:\n      \
             - targets: ['{target}']\n"
        );
        fs::write(&config, text).expect("a file can be written");
        let address = ports::free_address();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Guarded::spawn(&mut command, Signal::TERM);
        wait::until_true("Prometheus to be ready", || {
            http::try_ask(address, &http::Request::get("/-/ready"))
                .is_ok_and(|response| response.status == 200)
        });
        Prometheus { address, _process: process, _folder: folder }
    }

    /// The result of a query now.
    ///
    /// # Panics
    /// When Prometheus refuses it.
    pub fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        let response = http::get(self.address, &format!("/api/v1/query?query={encoded}"));
        let json = response.json();
        assert_eq!(json["status"], "success", "{query}: {json}");
        json["data"]["result"].as_array().expect("a list").clone()
    }

    /// The names of the alerts that fire.
    pub fn firing(&self) -> Vec<String> {
        let json = http::get(self.address, "/api/v1/alerts").json();
        let alerts = json["data"]["alerts"].as_array().expect("a list").clone();
        let firing = alerts.into_iter().filter(|alert| alert["state"] == "firing");
        firing.filter_map(|alert| Some(alert["labels"]["alertname"].as_str()?.to_owned())).collect()
    }
}

/// Has `promtool` check a file of rules.
///
/// # Panics
/// When it finds a mistake.
pub fn check_rules(file: &Path) {
    let output = Command::new("promtool").args(["check", "rules"]).arg(file).output();
    let output = output.expect("promtool is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
