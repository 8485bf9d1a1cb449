//! How the page cache is doing: the front is asked when somebody wants to know.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};

use maitred_control::ToFront;
use maitred_control::admin::PageCache;
use maitred_os::shared;
use tracing::warn;

use crate::run::Supervisor;

/// Most that a front can have to tell, in bytes: a thousand sites with all they count.
const MAX_FIGURES_BYTES: u64 = 4 * 1024 * 1024;

/// What the front has told of the page cache.
#[derive(Debug, Default)]
pub struct PageCacheLook {
    /// The front that was asked and has not answered yet, by its number, and where it answers.
    asked: Option<(u32, OwnedFd)>,
    told: Option<PageCache>,
}

impl Supervisor {
    /// Has the front tell how the page cache is doing, if a site has one.
    pub(crate) fn look_at_page_cache(&mut self) {
        if self.page_cache_comes() {
            return;
        }
        let epoch = self.front.epoch;
        let sites = &self.plan.config.sites;
        let is_used = sites.iter().any(|site| site.cache.is_some());
        let Some(peer) = self.front.peer.as_mut().filter(|_| is_used) else {
            self.page_cache = PageCacheLook::default();
            return;
        };
        match shared::file_with("maitred-page-cache", b"") {
            Ok(file) => {
                peer.say(ToFront::CacheFigures, &[file.as_fd()]);
                let asked = Some((epoch, file));
                self.page_cache = PageCacheLook { asked, told: None };
            }
            Err(error) => warn!("the front cannot be asked how the page cache is doing: {error}"),
        }
    }

    /// A front has answered.
    pub(crate) fn page_cache_told(&mut self, line: u32) {
        if line != self.front.line {
            return;
        }
        if let Some((_, file)) = self.page_cache.asked.take() {
            let told = read(file).inspect_err(|why| {
                warn!("what the front tells of the page cache cannot be read: {why}");
            });
            self.page_cache.told = told.ok().flatten();
        }
    }

    /// Whether the front is about to tell.
    pub(crate) fn page_cache_comes(&self) -> bool {
        let asked = self.page_cache.asked.as_ref();
        asked.is_some_and(|(epoch, _)| *epoch == self.front.epoch)
    }

    /// The page cache, if that is known.
    pub(crate) fn page_cache(&self) -> Option<PageCache> {
        self.page_cache.told.clone()
    }
}

fn read(file: OwnedFd) -> Result<Option<PageCache>, String> {
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

    #[test]
    fn what_the_front_tells_is_read_and_nothing_else() {
        let file = |text: &str| shared::file_with("test", text.as_bytes()).unwrap();
        assert_eq!(read(file("null")), Ok(None));
        let text = serde_json::to_string(&PageCache::default()).unwrap();
        assert_eq!(read(file(&text)), Ok(Some(PageCache::default())));
        assert!(read(file("")).is_err() && read(file("{\"memory\":1}")).is_err());
    }
}
