//! What a thread of the front runs on: clock, background work, the channel to the supervisor.

pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod file_identity;
pub(crate) mod heap;
pub(crate) mod request_id;
pub(crate) mod sandbox;
pub(crate) mod supervisor_channel;
pub(crate) mod thread;
