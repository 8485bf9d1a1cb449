//! The events of an exchange.

use maitred_scoreboard::RequestOutcome;

/// The state of an exchange after the death of its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDeath {
    /// Its script had not begun: another worker may run it.
    NotStarted,
    /// Its script was running.
    Interrupted,
    /// It had finished, or its client has left.
    Over,
}

/// An event for the task of an exchange.
#[derive(Debug)]
pub enum ExchangeEvent {
    /// It was assigned to a worker, or to another one: the body has to be sent from its start.
    Assigned,
    /// More of the response: FastCGI records, split anywhere.
    Response(Vec<u8>),
    /// The ring has free space for more of the request.
    Room,
    /// It has ended: the last event.
    Ended(Result<(), RequestOutcome>),
}

/// The result of [`Exchange::pump`](super::Exchange::pump).
#[derive(Debug, Clone, Copy)]
pub struct PumpResult {
    /// The task that waits for it was woken.
    pub woke: bool,
    /// It has ended.
    pub is_over: bool,
}
