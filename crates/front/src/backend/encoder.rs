//! Turns the output of a script into a response.

use std::time::Duration;

use maitred_fastcgi::ResponseEvent;

use crate::backend::error::Failure;

/// Turns the output of a script into a response. Encoders wrap each other. No method has a default,
/// so that a wrapper cannot forget to forward one.
pub trait ResponseEncoder {
    /// A response header, if that is not sent as bytes.
    type Head;

    /// Takes output of the script.
    ///
    /// # Errors
    /// The response is not valid, or replaced.
    fn take(&mut self, output: ResponseEvent<'_>) -> Result<(), Failure>;

    /// Returns after all effects that must come before the output is sent.
    async fn settle(&mut self);

    /// The bytes that can be sent; `over`: the output is complete.
    ///
    /// # Errors
    /// The response is not valid.
    fn frame(&mut self, over: bool) -> Result<Vec<u8>, Failure>;

    /// The next header of the last frame, if it has one: those of interim responses come first.
    fn head(&mut self) -> Option<Self::Head>;

    /// Whether encoding is so expensive that other tasks must have their turn after each piece.
    fn needs_yield(&self) -> bool;

    /// The script took this long; the end of its output follows.
    fn record_duration(&mut self, time: Duration);

    /// Whether any part can have been sent.
    fn has_begun(&self) -> bool;

    /// The script has ended with this value of the `Server-Timing` header. Only called with
    /// `server_timing`.
    fn timed(&mut self, value: String);
}
