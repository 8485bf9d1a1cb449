//! A script's answer on its way to the client, at which the cache looks as it passes.

use std::time::Duration;

use maitred_fastcgi::AnswerEvent;
use maitred_fastcgi::cgi::HeadReader;

use super::fill::Fill;
use crate::http_form::{HttpForm, Wire};
use crate::script::{Failure, Form};

/// What a script ends with that had a fatal error: what it has said may be half of it.
const FATAL: u32 = 255;

/// An answer that goes to the client, and to the cache if its site has one.
pub struct Tee<'a, W: Wire> {
    /// What goes to the client.
    pub form: HttpForm<'a, W>,
    /// What goes to the cache.
    pub fill: Option<Box<Fill<'a>>>,
    head_reader: HeadReader,
    has_head: bool,
}

impl<'a, W: Wire> Tee<'a, W> {
    /// An answer of which nothing has been said.
    pub fn new(form: HttpForm<'a, W>, fill: Option<Box<Fill<'a>>>) -> Tee<'a, W> {
        Tee {
            form,
            fill,
            head_reader: HeadReader::default(),
            has_head: false,
        }
    }

    fn look_at(&mut self, said: &AnswerEvent<'_>) -> Result<(), Failure> {
        let Some(fill) = &mut self.fill else {
            return Ok(());
        };
        match said {
            AnswerEvent::Stdout(content) if self.has_head => fill.take_body(content),
            AnswerEvent::Stdout(content) => {
                // What is no head is the form's to complain about.
                if let Ok(Some((head, used))) = self.head_reader.read(content) {
                    self.has_head = true;
                    self.form.cache_status = Some(fill.take_head(&head)?);
                    fill.take_body(&content[used..]);
                }
            }
            AnswerEvent::End { app_status, .. } if *app_status == FATAL => fill.cut_short(),
            AnswerEvent::End { .. } => fill.end(),
            _ => {}
        }
        Ok(())
    }
}

impl<W: Wire> Form for Tee<'_, W> {
    type Head = W::Head;

    fn take(&mut self, said: AnswerEvent<'_>) -> Result<(), Failure> {
        self.look_at(&said)?;
        self.form.take(said)
    }

    async fn settle(&mut self) {
        if let Some(fill) = &mut self.fill {
            fill.settle().await;
        }
    }

    fn frame(&mut self, over: bool) -> Result<Vec<u8>, Failure> {
        self.form.frame(over)
    }

    fn head(&mut self) -> Option<W::Head> {
        self.form.head()
    }

    fn is_laborious(&self) -> bool {
        self.form.is_laborious()
    }

    fn has_begun(&self) -> bool {
        self.form.has_begun()
    }

    fn took(&mut self, time: Duration) {
        if let Some(fill) = &mut self.fill {
            fill.took(time);
        }
    }

    fn timed(&mut self, value: String) {
        self.form.timed(value);
    }

    fn restart(&mut self) {
        (self.head_reader, self.has_head) = (HeadReader::default(), false);
        self.form.restart();
    }
}
