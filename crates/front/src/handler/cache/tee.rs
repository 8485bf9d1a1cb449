//! A script's answer on its way to the client, at which the cache looks as it passes.

use std::time::Duration;

use maitred_fastcgi::AnswerEvent;
use maitred_fastcgi::cgi::HeadReader;

use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::Failure;
use crate::handler::cache::fill::Fill;
use crate::handler::script_response::HttpEncoder;
use crate::http::client::HeadWriter;

/// What a script ends with that had a fatal error: what it has said may be half of it.
const FATAL: u32 = 255;

/// What the cache sees of an answer, if its site has one.
pub struct Watch<'a> {
    /// What becomes of it there.
    pub fill: Option<Box<Fill<'a>>>,
    /// What reads the head there, if the site has one.
    head_reader: Option<Box<HeadReader>>,
    has_head: bool,
}

/// A head that has come.
pub struct SeenHead {
    /// Its status.
    pub status: u16,
    /// What the client is told.
    pub cache_status: String,
}

impl<'a> Watch<'a> {
    /// An answer of which nothing has been said.
    pub fn new(fill: Option<Box<Fill<'a>>>) -> Watch<'a> {
        Watch {
            head_reader: fill.as_ref().map(|_| Box::default()),
            fill,
            has_head: false,
        }
    }

    /// Looks at what was said. Returns the head when it is there.
    ///
    /// # Errors
    /// When the client gets what is kept in its place.
    pub fn look_at(&mut self, said: &AnswerEvent<'_>) -> Result<Option<SeenHead>, Failure> {
        let (Some(fill), Some(head_reader)) = (&mut self.fill, &mut self.head_reader) else {
            return Ok(None);
        };
        match said {
            AnswerEvent::Stdout(content) if self.has_head => fill.take_body(content),
            AnswerEvent::Stdout(content) => {
                // What is no head is the form's to complain about.
                if let Ok(Some((head, used))) = head_reader.read(content) {
                    self.has_head = true;
                    let cache_status = fill.take_head(&head)?;
                    fill.take_body(&content[used..]);
                    let status = head.status();
                    return Ok(Some(SeenHead {
                        status,
                        cache_status,
                    }));
                }
            }
            AnswerEvent::End { app_status, .. } if *app_status == FATAL => fill.cut_short(),
            AnswerEvent::End { .. } => fill.end(),
            _ => {}
        }
        Ok(None)
    }

    /// Something else takes the answer's place.
    pub fn replaced(&mut self, failure: &Failure) {
        if let (Failure::Intercepted(status), Some(fill)) = (failure, &mut self.fill) {
            fill.replaced(*status);
        }
    }

    /// Returns when what was said has had all its effects.
    pub async fn settle(&mut self) {
        if let Some(fill) = &mut self.fill {
            fill.settle().await;
        }
    }

    /// The script is through, after so long.
    pub fn took(&mut self, time: Duration) {
        if let Some(fill) = &mut self.fill {
            fill.took(time);
        }
    }

    /// Whether the head has come.
    pub fn has_head(&self) -> bool {
        self.has_head
    }

    /// Why the answer is none if nothing more comes; nothing if it has its head.
    pub fn ended_early(&self) -> Option<String> {
        let why = |reader: &HeadReader| reader.ended_early().to_string();
        let head_reader = self.head_reader.as_deref().filter(|_| !self.has_head);
        head_reader.map(why)
    }
}

/// An answer that goes to the client, and to the cache if its site has one.
pub struct Tee<'a, W: HeadWriter> {
    /// What goes to the client.
    form: HttpEncoder<'a, W>,
    watch: Watch<'a>,
}

impl<'a, W: HeadWriter> Tee<'a, W> {
    /// An answer of which nothing has been said.
    pub fn new(form: HttpEncoder<'a, W>, fill: Option<Box<Fill<'a>>>) -> Tee<'a, W> {
        let watch = Watch::new(fill);
        Tee { form, watch }
    }

    /// What went to the client.
    pub fn form(&self) -> &HttpEncoder<'a, W> {
        &self.form
    }

    /// What the cache has made of it, if its site has one.
    pub fn fill(&self) -> Option<&Fill<'a>> {
        self.watch.fill.as_deref()
    }

    /// What went to the client, and what the cache has made of it.
    pub fn into_parts(self) -> (HttpEncoder<'a, W>, Option<Box<Fill<'a>>>) {
        (self.form, self.watch.fill)
    }
}

impl<W: HeadWriter> ResponseEncoder for Tee<'_, W> {
    type Head = W::Head;

    fn take(&mut self, said: AnswerEvent<'_>) -> Result<(), Failure> {
        if let Some(seen) = self.watch.look_at(&said)? {
            self.form.cache_status = Some(seen.cache_status);
        }
        let taken = self.form.take(said);
        if let Err(failure) = &taken {
            self.watch.replaced(failure);
        }
        taken
    }

    async fn settle(&mut self) {
        self.watch.settle().await;
    }

    fn frame(&mut self, over: bool) -> Result<Vec<u8>, Failure> {
        // Until the head goes, what it says can be made true.
        if !self.form.has_begun()
            && let Some(told) = self.fill().and_then(Fill::correction)
        {
            self.form.cache_status = Some(told);
        }
        self.form.frame(over)
    }

    fn head(&mut self) -> Option<W::Head> {
        self.form.head()
    }

    fn needs_yield(&self) -> bool {
        self.form.needs_yield()
    }

    fn has_begun(&self) -> bool {
        self.form.has_begun()
    }

    fn record_duration(&mut self, time: Duration) {
        self.watch.took(time);
    }

    fn timed(&mut self, value: String) {
        self.form.timed(value);
    }
}
