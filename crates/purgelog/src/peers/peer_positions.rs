//! What this node has applied of each peer's log, beside the pages on disk to which that applies.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use maitred_os::own_files;

use super::peer_messages::{LogName, LogPosition};

/// Longest contents, in bytes.
const MAX_BYTES: u64 = 4096;

/// The file of the positions.
#[derive(Debug)]
pub struct PeerPositions {
    path: PathBuf,
    written: String,
}

impl PeerPositions {
    /// The file in the folder of cached pages.
    pub fn new(folder: &Path) -> PeerPositions {
        PeerPositions { path: folder.join("purge-peers"), written: String::new() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The position in the log of each of these peers, if there is one.
    pub fn read(&self, peers: &[SocketAddr]) -> Vec<Option<LogPosition>> {
        let bytes = own_files::read(&self.path, MAX_BYTES).ok().flatten();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let found: Vec<_> = text.lines().filter_map(line).collect();
        let of = |peer: &SocketAddr| found.iter().find(|(of, _)| of == peer).map(|(_, at)| *at);
        peers.iter().map(of).collect()
    }

    /// Replaces the positions, if they have changed.
    ///
    /// # Errors
    /// When they cannot be written; those before stay.
    pub fn write(
        &mut self,
        positions: impl Iterator<Item = (SocketAddr, LogPosition)>,
    ) -> io::Result<()> {
        let line = |(peer, at): (SocketAddr, LogPosition)| {
            let LogPosition { log, number } = at;
            format!("{peer} {:016x} {:016x} {number}\n", log.server, log.process)
        };
        let text: String = positions.map(line).collect();
        if self.written == text {
            return Ok(());
        }
        own_files::replace(&self.path, text.as_bytes())?;
        self.written = text;
        Ok(())
    }
}

fn line(line: &str) -> Option<(SocketAddr, LogPosition)> {
    let mut words = line.split(' ');
    let peer = words.next()?.parse().ok()?;
    let mut hex = || u64::from_str_radix(words.next()?, 16).ok();
    let log = LogName { server: hex()?, process: hex()? };
    let number = words.next()?.parse().ok()?;
    Some((peer, LogPosition { log, number }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn positions_are_read_as_they_are_written_and_garbage_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let peers: Vec<SocketAddr> =
            ["10.0.0.1:1", "[fd00::2]:7700"].map(|peer| peer.parse().unwrap()).to_vec();
        let log = LogName { server: u64::MAX, process: 5 };
        let at = |number| LogPosition { log, number };
        let mut file = PeerPositions::new(folder.path());
        assert_eq!(file.read(&peers), [None, None]);
        for both in [[at(7), at(0)], [at(8), at(1)]] {
            file.write(peers.iter().copied().zip(both)).unwrap();
            assert_eq!(file.read(&peers), both.map(Some));
        }
        fs::write(folder.path().join("purge-peers"), "10.0.0.1:1 zz 1 1\n\n[::1 2\n\u{1}").unwrap();
        assert_eq!(file.read(&peers), [None, None]);
    }
}
