//! Profiles that were requested from zygotes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use maitred_control::admin::Reply;
use maitred_control::folded::FOLDED_BYTES_MAX;
use maitred_control::{Generation, ProfileSamples, ToZygote};
use maitred_os::shared;

use crate::limits::Moment;
use crate::processes::pools::Pools;

/// Most profiles at a time.
const PROFILES_MAX: usize = 4;

/// A zygote has this long for the result after the end of a profile.
const RESULT_TIMEOUT: Duration = Duration::from_secs(10);

/// A request for a profile.
#[derive(Debug)]
pub struct ProfileRequest {
    /// The pool.
    pub pool: String,
    /// Samples per second.
    pub rate: u32,
    /// How long.
    pub duration: Duration,
}

/// The profiles that are going on, and those whose results were not fetched.
#[derive(Debug, Default)]
pub struct Profiles {
    last: u64,
    pending: BTreeMap<u64, PendingProfile>,
}

#[derive(Debug)]
struct PendingProfile {
    generation: Generation,
    result: OwnedFd,
    until: Moment,
    reply: Option<Reply>,
}

impl Profiles {
    /// Has the zygote of a pool begin, and returns the number of the profile.
    ///
    /// # Errors
    /// One sentence, when it cannot.
    pub fn begin(
        &mut self,
        request: &ProfileRequest,
        pools: &mut Pools,
        now: Moment,
    ) -> Result<u64, String> {
        let name = &request.pool;
        if self.pending.len() >= PROFILES_MAX {
            return Err(format!("{PROFILES_MAX} profiles are made already; wait for one to end"));
        }
        let running = pools.current_of_mut(name);
        let running = running.ok_or_else(|| format!("there is no pool `{name}` that serves"))?;
        let generation = running.generation;
        let zygote = running.zygote.as_mut();
        let zygote = zygote.ok_or_else(|| format!("pool `{name}` is idle and runs no PHP"))?;
        let result = shared::file_with("maitred-profile", b"");
        let result = result.map_err(|why| format!("no profile can be made: {why}"))?;
        self.last += 1;
        let (profile, rate, duration) = (self.last, request.rate, request.duration);
        let order = ToZygote::Profile { profile, rate, duration };
        zygote.peer.say(order, &[result.as_fd()]);
        let until = now + duration + RESULT_TIMEOUT;
        let pending = PendingProfile { generation, result, until, reply: None };
        self.pending.insert(profile, pending);
        Ok(profile)
    }

    /// The zygote of a generation has finished one.
    pub fn profiled(
        &mut self,
        generation: Generation,
        profile: u64,
        samples: Result<ProfileSamples, String>,
    ) {
        let pending = self.pending.get_mut(&profile);
        let Some(pending) = pending.filter(|pending| pending.generation == generation) else {
            return;
        };
        let result = samples.and_then(|samples| {
            let stacks = read(&pending.result).map_err(|why| why.to_string())?;
            Ok(Reply::Profiled { samples, stacks })
        });
        pending.reply = Some(result.unwrap_or_else(|why| Reply::Failed { why }));
    }

    /// Takes the reply of a profile, once there is one.
    pub fn outcome(&mut self, profile: u64, now: Moment) -> Option<Reply> {
        let pending = self.pending.get_mut(&profile)?;
        let reply = pending.reply.take().or_else(|| {
            let why = "the pool's PHP has sent no profile; it may have been restarted meanwhile";
            (pending.until <= now).then(|| Reply::Failed { why: why.to_owned() })
        });
        if reply.is_some() {
            self.pending.remove(&profile);
        }
        reply
    }

    /// Drops those whose client has disconnected.
    pub fn keep(&mut self, is_awaited: impl Fn(u64) -> bool) {
        self.pending.retain(|profile, _| is_awaited(*profile));
    }

    /// When one times out.
    pub fn deadline(&self) -> Option<Moment> {
        self.pending.values().map(|pending| pending.until).min()
    }
}

fn read(result: &OwnedFd) -> io::Result<String> {
    let file = File::from(result.try_clone()?);
    let length = file.metadata()?.len().min(FOLDED_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    Ok(text)
}
