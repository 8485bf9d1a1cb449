//! Turns the output of a script into a response.

use std::time::Duration;

use maitred_fastcgi::AnswerEvent;

use crate::backend::error::Failure;

/// What becomes of a script's words on their way to the client. No method has a body here, as in [`Client`].
pub trait ResponseEncoder {
    /// What goes to the client apart from bytes, if anything.
    type Head;

    /// The script has said something.
    ///
    /// # Errors
    /// When it is no answer.
    fn take(&mut self, said: AnswerEvent<'_>) -> Result<(), Failure>;

    /// Returns when what was said has had all its effects that must come before it is sent.
    async fn settle(&mut self);

    /// What can be sent of all that was said; `over`: and it was all.
    ///
    /// # Errors
    /// When it is no answer.
    fn frame(&mut self, over: bool) -> Result<Vec<u8>, Failure>;

    /// The next head of what was framed last, if it has one: those of interim answers come first.
    fn head(&mut self) -> Option<Self::Head>;

    /// Whether framing takes so long that others must have their turn after each piece.
    fn is_laborious(&self) -> bool;

    /// The script is through, after so long; all it has said follows.
    fn took(&mut self, time: Duration);

    /// Whether anything can have been sent.
    fn has_begun(&self) -> bool;

    /// The script has ended, and its time went as this says: a value of `Server-Timing`. Only told
    /// where answers are to say it.
    fn timed(&mut self, value: String);
}
