//! The runtime of a thread of the front: clock, background writes, the channel to the supervisor.

pub(crate) mod background;
pub(crate) mod cached_names;
pub(crate) mod cached_reads;
pub(crate) mod clock;
pub(crate) mod file_identity;
pub(crate) mod heap;
pub(crate) mod lookup_turns;
pub(crate) mod request_id;
pub(crate) mod sandbox;
pub(crate) mod supervisor_channel;
pub(crate) mod thread;
