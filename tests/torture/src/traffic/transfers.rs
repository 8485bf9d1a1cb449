//! Uploads to scripts, and static files.

use std::net::SocketAddr;

use fastrand::Rng;
use flate2::Crc;
use maitred_tests::http::Request;

use super::{Client, Persistent, judge};
use crate::kind::Kind;
use crate::ledger::Outcome;
use crate::site::{CLASSIC, FILE_SIZES, content};

/// The largest upload in bytes, above what the front holds in memory.
const UPLOAD_MAX: usize = 1_500_000;

struct Uploads {
    http: Persistent,
    random: Rng,
}

struct Files {
    http: Persistent,
    random: Rng,
}

/// Clients that upload, and clients that download.
pub fn clients(address: SocketAddr) -> Vec<Box<dyn Client>> {
    vec![
        Box::new(Uploads { http: Persistent::new(address), random: Rng::new() }),
        Box::new(Files { http: Persistent::new(address), random: Rng::new() }),
    ]
}

impl Client for Uploads {
    fn kind(&self) -> Kind {
        Kind::Upload
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let id = self.random.u64(..);
        let size = self.random.usize(0..UPLOAD_MAX) >> self.random.u32(0..12);
        let mut body = vec![0; size];
        self.random.fill(&mut body);
        let mut crc = Crc::new();
        crc.update(&body);
        let expected = format!("{id} {size} {:08x}", crc.sum());
        let target = format!("/upload.php?id={id}");
        let mut request = Request::new("POST", &target)
            .header("Host", CLASSIC)
            .header("Content-Type", "application/octet-stream")
            .body(&body);
        if self.random.bool() {
            request = request.chunked(self.random.usize(1_000..100_000));
        }
        judge(&self.http.ask(&request)?, &target, 200, expected.as_bytes())
    }
}

impl Client for Files {
    fn kind(&self) -> Kind {
        Kind::File
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let size = FILE_SIZES[self.random.usize(..FILE_SIZES.len())];
        let target = format!("/{size}.bin");
        let request = Request::new("GET", &target).header("Host", CLASSIC);
        let whole = content(size);
        if self.random.bool() {
            return judge(&self.http.ask(&request)?, &target, 200, &whole);
        }
        let first = self.random.usize(..size);
        let last = self.random.usize(first..size);
        let request = request.header("Range", &format!("bytes={first}-{last}"));
        judge(&self.http.ask(&request)?, &target, 206, &whole[first..=last])
    }
}
