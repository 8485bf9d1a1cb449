//! What happens to an exchange, as those who follow it are told.

use crate::pool::NotTaken;

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// The worker is through with it.
    Finished,
    /// The worker died over it.
    WorkerDied,
    /// The worker broke the rules of the seat link.
    Broken,
    /// It was taken back before a worker began it.
    TakenBack,
    /// It waited in vain.
    TurnedAway(NotTaken),
    /// A foreign server said nothing for too long.
    Silent,
}

/// What a dead worker has left of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDeath {
    /// It had not begun: another worker may run it.
    NotStarted,
    /// It was in the middle of it.
    Interrupted,
    /// It was through with it, or nobody wants it.
    Over,
}

/// What happened to an exchange.
#[derive(Debug)]
pub enum ExchangeEvent {
    /// A worker was found for it, or another one: whatever was sent of the body is to be sent
    /// again.
    Assigned,
    /// More of the answer: FastCGI records, cut anywhere.
    Response(Vec<u8>),
    /// There is room for more of the request.
    Room,
    /// It is over; nothing more comes.
    Ended(ExchangeEnd),
}

/// What looking after an exchange has shown.
#[derive(Debug, Clone, Copy)]
pub struct PumpResult {
    /// The task that waits for it was woken.
    pub woke: bool,
    /// There is nothing more to look after.
    pub is_over: bool,
}
