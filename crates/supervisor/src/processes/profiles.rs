//! Profiles that were requested from zygotes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use maitred_control::admin::Reply;
use maitred_control::folded::{self, FOLDED_BYTES_MAX};
use maitred_control::{Generation, ProfileSamples, ToZygote};
use maitred_os::shared;

use crate::limits::Moment;
use crate::logging::text::one_line;
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
        if self.pending.values().any(|other| other.generation == generation) {
            return Err(format!("a profile of pool `{name}` is made already; wait for its end"));
        }
        let zygote = running.zygote.as_mut();
        let zygote = zygote.ok_or_else(|| format!("pool `{name}` is idle and runs no PHP"))?;
        let result = shared::file_with("maitred-profile", b"");
        let result = result.map_err(|why| format!("no profile can be made: {why}"))?;
        self.last += 1;
        let (profile, rate, duration) = (self.last, request.rate, request.duration);
        let order = ToZygote::Profile { profile, rate, duration };
        zygote.say(order, &[result.as_fd()]);
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
        let is_awaited = |pending: &&mut PendingProfile| {
            pending.generation == generation && pending.reply.is_none()
        };
        let Some(pending) = pending.filter(is_awaited) else {
            return;
        };
        let samples = samples.map_err(|why| one_line(&why));
        let result = samples.and_then(|samples| {
            let stacks = read(&pending.result).map_err(|why| why.to_string())?;
            Ok(Reply::Profiled { samples, stacks })
        });
        pending.reply = Some(result.unwrap_or_else(|why| Reply::Failed { why }));
    }

    /// Takes the reply of a profile, once there is one.
    pub fn outcome(&mut self, profile: u64, pools: &Pools, now: Moment) -> Option<Reply> {
        let pending = self.pending.get_mut(&profile)?;
        let generation = pending.generation;
        let is_there = pools.iter().any(|pool| pool.generation == generation && pool.is_current());
        let reply = pending.reply.take().or_else(|| {
            let why = match is_there {
                true => "the pool's PHP has sent no profile in time",
                false => "the pool was restarted, which ends a profile",
            };
            let is_lost = !is_there || pending.until <= now;
            is_lost.then(|| Reply::Failed { why: why.to_owned() })
        });
        if reply.is_some() {
            self.pending.remove(&profile);
        }
        reply
    }

    /// Ends those whose client has disconnected.
    pub fn keep(&mut self, is_awaited: impl Fn(u64) -> bool, pools: &mut Pools) {
        let left: Vec<u64> =
            self.pending.keys().copied().filter(|profile| !is_awaited(*profile)).collect();
        for profile in left {
            let Some(pending) = self.pending.remove(&profile).filter(|one| one.reply.is_none())
            else {
                continue;
            };
            let mut zygotes = pools.iter_mut().filter(|pool| pool.generation == pending.generation);
            if let Some(zygote) = zygotes.find_map(|pool| pool.zygote.as_mut()) {
                // Without a file for the result, it ends the one before.
                let order = ToZygote::Profile { profile, rate: 1, duration: Duration::ZERO };
                zygote.say(order, &[]);
            }
        }
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
    let text = String::from_utf8(bytes).ok();
    // It is printed on a terminal, and drawn call by call.
    text.filter(|text| folded::is_sound(text))
        .ok_or_else(|| io::Error::other("the pool's PHP has sent no profile"))
}
