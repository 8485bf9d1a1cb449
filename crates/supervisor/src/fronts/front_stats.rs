//! Statistics of the page cache and of upstream servers: the front is queried on demand.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};

use maitred_control::ToFront;
use maitred_control::admin::FrontFigures;
use maitred_os::shared;
use tracing::warn;

use crate::fronts::Fronts;

/// Largest report of a front, in bytes: a thousand sites with all their counters.
const MAX_FIGURES_BYTES: u64 = 4 * 1024 * 1024;

/// The statistics of the current front.
#[derive(Debug, Default)]
pub struct FrontStats {
    /// The front that was queried and has not replied, by its number, and the file for its reply.
    queried: Option<(u32, OwnedFd)>,
    reported: FrontFigures,
}

impl FrontStats {
    /// Queries the front.
    pub fn query(&mut self, fronts: &mut Fronts) {
        if self.is_awaited(fronts) {
            return;
        }
        let epoch = fronts.current().epoch;
        let Some(peer) = fronts.peer() else {
            *self = FrontStats::default();
            return;
        };
        match shared::file_with("maitred-front-figures", b"") {
            Ok(file) => {
                peer.say(ToFront::ReportStats, &[file.as_fd()]);
                *self =
                    FrontStats { queried: Some((epoch, file)), reported: FrontFigures::default() };
            }
            Err(error) => warn!("the front cannot be queried for its statistics: {error}"),
        }
    }

    /// The current front has replied.
    pub fn written(&mut self) {
        if let Some((_, file)) = self.queried.take() {
            let reported = read(file).inspect_err(|why| {
                warn!("the statistics of the front cannot be read: {why}");
            });
            self.reported = reported.unwrap_or_default();
        }
    }

    /// Whether the front has yet to reply.
    pub fn is_awaited(&self, fronts: &Fronts) -> bool {
        let queried = self.queried.as_ref();
        queried.is_some_and(|(epoch, _)| *epoch == fronts.current().epoch)
    }

    /// What was reported.
    pub fn reported(&self) -> &FrontFigures {
        &self.reported
    }
}

fn read(file: OwnedFd) -> Result<FrontFigures, String> {
    let mut file = File::from(file);
    let mut bytes = Vec::new();
    let whole = file.rewind().and_then(|()| file.take(MAX_FIGURES_BYTES).read_to_end(&mut bytes));
    whole.map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_control::admin::{PageCache, ProxyServer, Readiness};

    #[test]
    fn what_the_front_tells_is_read_and_nothing_else() {
        let file = |text: &str| shared::file_with("test", text.as_bytes()).unwrap();
        let nothing = "{\"page_cache\":null,\"proxies\":[]}";
        assert_eq!(read(file(nothing)), Ok(FrontFigures::default()));
        let figures = FrontFigures {
            page_cache: Some(PageCache::default()),
            proxies: vec![ProxyServer::default()],
            readiness: Some(Readiness::not("why")),
            scale: None,
            routes: Vec::new(),
        };
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(read(file(&text)), Ok(figures));
        assert!(read(file("")).is_err() && read(file("{\"memory\":1}")).is_err());
    }
}
