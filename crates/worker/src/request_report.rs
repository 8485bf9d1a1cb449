//! The report on a request that the front requests for its access log.

use std::time::Instant;

use maitred_control::ZygoteSettings;
use maitred_fastcgi::Report;
use maitred_os::cpu::{self, CpuTime};
use maitred_php::{Foreign, Params, Text};

/// A request since its start.
#[derive(Debug)]
pub struct RequestReport {
    began: Instant,
    /// Processor time of this process at its start, if measured.
    cpu: Option<CpuTime>,
    uri: Vec<u8>,
    script: Vec<u8>,
}

impl RequestReport {
    /// Starts the report of a request.
    pub fn begin(settings: &ZygoteSettings) -> RequestReport {
        RequestReport {
            began: Instant::now(),
            cpu: settings.measures_cpu.then(cpu::used),
            uri: Vec::new(),
            script: Vec::new(),
        }
    }

    /// Stores the result of interpreting a web server's request.
    pub fn name(&mut self, params: &Params, found: &Foreign) {
        let bytes = |text: Option<Text>| text.map_or(&b""[..], |text| params.bytes(text));
        self.uri = bytes(found.uri).to_vec();
        self.script = bytes(found.script).to_vec();
    }

    /// Appends the report on the request in its current state.
    pub fn write(&self, out: &mut Vec<u8>) {
        let cpu = self.cpu.map(|before| cpu::used().since(before));
        let cpu = cpu.unwrap_or_default();
        let report = Report {
            pid: std::process::id(),
            status: maitred_php::response_status(),
            took_micros: u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX),
            user_micros: cpu.user_micros,
            system_micros: cpu.system_micros,
            peak_memory: maitred_php::peak_memory() as u64,
            uri: &self.uri,
            script: &self.script,
        };
        report.write(out);
    }
}
