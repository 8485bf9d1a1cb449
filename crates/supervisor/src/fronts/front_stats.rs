//! How page cache and servers behind are doing: the front is asked when somebody wants to know.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};

use maitred_control::ToFront;
use maitred_control::admin::FrontFigures;
use maitred_os::shared;
use tracing::warn;

use crate::run::Supervisor;

/// Most that a front can have to tell, in bytes: a thousand sites with all they count.
const MAX_FIGURES_BYTES: u64 = 4 * 1024 * 1024;

/// What the front has told.
#[derive(Debug, Default)]
pub struct FrontStats {
    /// The front that was asked and has not answered yet, by its number, and where it answers.
    asked: Option<(u32, OwnedFd)>,
    told: FrontFigures,
}

impl Supervisor {
    /// Has the front tell how page cache and servers behind are doing, if a site has either.
    pub fn look_at_front(&mut self) {
        if self.figures_come() {
            return;
        }
        let epoch = self.front.epoch;
        let sites = &self.plan.config.sites;
        let has_figures =
            |site: &maitred_config::Site| site.cache.is_some() || !site.rules.proxy.is_empty();
        let is_used = sites.iter().any(has_figures);
        let Some(peer) = self.front.peer.as_mut().filter(|_| is_used) else {
            self.front_figures = FrontStats::default();
            return;
        };
        match shared::file_with("maitred-front-figures", b"") {
            Ok(file) => {
                peer.say(ToFront::ReportStats, &[file.as_fd()]);
                self.front_figures = FrontStats {
                    asked: Some((epoch, file)),
                    told: FrontFigures::default(),
                };
            }
            Err(error) => warn!("the front cannot be asked how it is doing: {error}"),
        }
    }

    /// A front has answered.
    pub fn figures_told(&mut self, line: u32) {
        if line != self.front.line {
            return;
        }
        if let Some((_, file)) = self.front_figures.asked.take() {
            let told = read(file).inspect_err(|why| {
                warn!("what the front tells of how it is doing cannot be read: {why}");
            });
            self.front_figures.told = told.unwrap_or_default();
        }
    }

    /// Whether the front is about to tell.
    pub fn figures_come(&self) -> bool {
        let asked = self.front_figures.asked.as_ref();
        asked.is_some_and(|(epoch, _)| *epoch == self.front.epoch)
    }

    /// What is known of that.
    pub fn front_figures(&self) -> FrontFigures {
        self.front_figures.told.clone()
    }
}

fn read(file: OwnedFd) -> Result<FrontFigures, String> {
    let mut file = File::from(file);
    let mut bytes = Vec::new();
    let whole = file
        .rewind()
        .and_then(|()| file.take(MAX_FIGURES_BYTES).read_to_end(&mut bytes));
    whole.map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_control::admin::{PageCache, ProxyServer};

    #[test]
    fn what_the_front_tells_is_read_and_nothing_else() {
        let file = |text: &str| shared::file_with("test", text.as_bytes()).unwrap();
        let nothing = "{\"page_cache\":null,\"proxies\":[]}";
        assert_eq!(read(file(nothing)), Ok(FrontFigures::default()));
        let told = FrontFigures {
            page_cache: Some(PageCache::default()),
            proxies: vec![ProxyServer::default()],
        };
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(read(file(&text)), Ok(told));
        assert!(read(file("")).is_err() && read(file("{\"memory\":1}")).is_err());
    }
}
