//! A zygote that boots an application and is copied: the script runs until it waits for a request,
//! and every copy continues from there with a request of its own.
//!
//! The zygote is then suspended inside a script, and only forks. State that a copy must not share
//! with its siblings is checked once, before the first of them.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use maitred_control::{FromZygote, Snapshot, ZygoteSettings, exit};
use maitred_os::descriptors::{self, Descriptor};
use maitred_os::fork::{self, OwnProc, exit_now, is_forked_child, mark_children};
use maitred_os::rewind::{self, Image, Rewind, Turn};
use maitred_os::users;
use maitred_php::{
    Admission, Engine, Exchange, Foreign, Level, Next, Params, Paths, Purge, Purged, Served,
    Verdict, Worked,
};
use maitred_seat::board::RewindFailure;

use crate::booted::boot_params;
use crate::copies;
use crate::exchange::{KEPT, WorkerExchange};
use crate::memory::Memory;
use crate::seat::{self, Running};
use crate::zygote::{Forked, Zygote, settle};
use crate::{shared_descriptors, stderr};

/// The positions of further numbers that survive a rewind, after those that the exchange keeps.
const SINCE_EXACT: usize = KEPT;
const REWINDS_LEFT: usize = KEPT + 1;

/// Longest message of the boot that is reported as the reason of its failure, in bytes.
const REASON_BYTES: usize = 1000;

/// Limit for a warm-up request.
const WARMING: Duration = Duration::from_secs(10);

/// Boots the application and forks workers from it. In a forked worker, it does not return.
pub fn boot(
    mut zygote: Zygote,
    engine: Engine,
    started: FromZygote,
    snapshot: &'static Snapshot,
) -> ExitCode {
    let known = keep_status(&mut zygote).and_then(|()| descriptors::numbers(&zygote.proc));
    let mut known = match known {
        Ok(known) => known,
        Err(error) => {
            return failed(&zygote, &format!("its open descriptors cannot be listed: {error}"));
        }
    };
    // The script must not find an open folder outside its root.
    known.retain(|number| Some(*number) != zygote.proc.number());
    zygote.proc.let_go();
    let mut script = Script {
        settings: zygote.settings,
        snapshot,
        ahead: snapshot.warm_requests.iter().rev().map(String::as_str).collect(),
        said: None,
        stage: Some(Stage::Booting(Box::new(Booting { zygote, started, known }))),
    };
    let Ok(params) = boot_params(&snapshot.script, Some("/")) else {
        return script.end("the path of its script is too long");
    };
    mark_children();
    if snapshot.rewinds_per_child > 0 && script.settings.confinement.chroot.is_none() {
        rewind::keep_together();
    }
    let worked = engine.boot(&params, &mut script);
    script.over(&worked)
}

/// In a chroot, `/proc` is not opened again after the boot.
fn keep_status(zygote: &mut Zygote) -> io::Result<()> {
    match zygote.settings.confinement.chroot {
        Some(_) => zygote.proc.keep_status(),
        None => Ok(()),
    }
}

/// The script, first while it boots in the zygote and then, in each copy, while it serves.
struct Script {
    settings: &'static ZygoteSettings,
    snapshot: &'static Snapshot,
    /// The remaining warm-up requests, last first.
    ahead: Vec<&'static str>,
    /// The last message of the boot that reports an error.
    said: Option<String>,
    /// `None` only during a transition.
    stage: Option<Stage>,
}

enum Stage {
    Booting(Box<Booting>),
    /// This is a child that serves a warm-up request, whose response is dropped.
    Warming(&'static str),
    Serving(Box<Serving>),
}

struct Booting {
    zygote: Zygote,
    /// The report for the supervisor when workers can be forked.
    started: FromZygote,
    /// The descriptors that were open before the boot.
    known: Vec<i32>,
}

struct Serving {
    exchange: WorkerExchange<'static>,
    memory: Memory,
    /// Remaining requests.
    left: u64,
    /// The running request, if it has not been answered.
    running: Option<Running>,
    /// The means to rewind the process, if enabled.
    rewind: Option<(Rewind, Image)>,
    /// It measures its private memory before it exits.
    is_measured: bool,
}

impl Script {
    fn exchange(&mut self) -> Option<&mut WorkerExchange<'static>> {
        match &mut self.stage {
            Some(Stage::Serving(serving)) => Some(&mut serving.exchange),
            Some(Stage::Booting(_) | Stage::Warming(_)) | None => None,
        }
    }

    /// The script has ended.
    fn over(mut self, worked: &Worked) -> ExitCode {
        if is_forked_child() {
            // A child of the script returned here: the seat, or the zygote's channel, belongs to
            // its parent.
            exit_now(exit::RECYCLED);
        }
        let is_clean = worked.last.outcome.process_is_clean();
        match &mut self.stage {
            Some(Stage::Warming(_)) => {
                maitred_php::tell_patterns();
                exit_now(i32::from(!is_clean))
            }
            Some(Stage::Serving(serving)) => {
                serving.answered(&worked.last);
                serving.end_request(self.settings);
                if !worked.last.renew {
                    serving.rewind(self.settings, is_clean, worked.last.spent);
                }
                if serving.is_measured {
                    copies::measure(serving.exchange.copy_words());
                }
                // New code may be why the request has failed.
                exit_now(if worked.last.renew {
                    exit::RENEW
                } else if !is_clean {
                    exit::BAILOUT
                } else {
                    serving.exchange.exit_code()
                })
            }
            Some(Stage::Booting(_)) | None => {}
        }
        let why = match self.said.take() {
            Some(said) => format!("its boot failed: {said}"),
            None => "its script ended, or ended itself with exit(), before it called \
                     maitred_snapshot() or frankenphp_handle_request()"
                .to_owned(),
        };
        let script = self.snapshot.script.display();
        self.end(&format!("{why} ({script})"))
    }

    /// The boot has failed.
    fn end(self, why: &str) -> ExitCode {
        match self.stage {
            Some(Stage::Booting(booting)) => failed(&booting.zygote, why),
            Some(Stage::Serving(_) | Stage::Warming(_)) | None => ExitCode::FAILURE,
        }
    }

    fn fill(&self, target: &str, params: &mut Params) -> Next {
        match boot_params(&self.snapshot.script, Some(target)) {
            Ok(filled) => {
                *params = filled;
                Next::Own
            }
            Err(_) => Next::Leave,
        }
    }
}

impl Stage {
    fn boots(&self) -> bool {
        matches!(self, Stage::Booting(_))
    }
}

impl Serving {
    fn next(&mut self, params: &mut Params, settings: &ZygoteSettings) -> Next {
        self.end_request(settings);
        if self.left == 0 {
            return Next::Leave;
        }
        // A claimed request counts, even if it has been abandoned.
        self.left -= 1;
        if !self.exchange.claim() {
            exit_now(self.exchange.exit_code());
        }
        self.running = seat::begin(&mut self.exchange, params, settings);
        if self.running.is_none() {
            exit_now(exit::RECYCLED);
        }
        // PHP's own count has warm-up requests of the zygote, and goes back with the process.
        maitred_php::count_requests(self.exchange.requests().saturating_sub(1));
        if self.exchange.is_foreign() { Next::Foreign } else { Next::Own }
    }

    fn answered(&mut self, served: &Served) {
        if let Some(running) = self.running.take() {
            seat::show_end(running, served, &mut self.exchange);
        }
        if served.renew {
            self.left = 0;
        }
    }

    /// The point at which it starts serving, and to which it is rewound, `times` at most.
    fn mark(&mut self, settings: &ZygoteSettings, times: u64) {
        let Some((rewind, image)) = &mut self.rewind else {
            return;
        };
        rewind.carried()[REWINDS_LEFT] = times;
        match rewind.mark() {
            Ok(Turn::First) => {}
            Ok(Turn::Again) => {
                let mut kept = [0; KEPT];
                kept.copy_from_slice(&rewind.carried()[..KEPT]);
                self.exchange.go_on(kept);
                self.memory.go_on(rewind.carried()[SINCE_EXACT]);
                copies::went_back(self.exchange.copy_words());
            }
            Err(error) => {
                if image.speaks_for_all() {
                    not_back(settings, &error);
                }
                self.rewind = None;
            }
        }
    }

    /// Rewinds to the mark and continues there. Returns if that is impossible, or the limit is
    /// reached.
    fn rewind(&mut self, settings: &ZygoteSettings, is_clean: bool, is_spent: bool) {
        let words = self.exchange.copy_words();
        let Some((rewind, image)) = &mut self.rewind else {
            return;
        };
        if !is_clean {
            return copies::ends(words, RewindFailure::FatalError);
        }
        if is_spent {
            return copies::ends(words, RewindFailure::LastingCall);
        }
        let carried = rewind.carried();
        if carried[REWINDS_LEFT] == 0 {
            return;
        }
        carried[REWINDS_LEFT] -= 1;
        carried[SINCE_EXACT] = self.memory.since_exact();
        carried[..KEPT].copy_from_slice(&self.exchange.kept());
        let why = rewind.back();
        copies::has_stayed(words, &why);
        if image.speaks_for_all() {
            stderr::say(&format!(
                "maitred-php: pool {}: a copy exits instead of being rewound (rewinds_per_child): \
                 {why}; further ones are not logged",
                settings.pool
            ));
        }
    }

    /// Ends the answered request, if there is one.
    fn end_request(&mut self, settings: &ZygoteSettings) {
        if self.exchange.has_request() {
            seat::end_request(&mut self.exchange, &mut self.memory, settings);
        }
    }
}

fn failed(zygote: &Zygote, why: &str) -> ExitCode {
    let why = why.to_owned();
    zygote.say(&FromZygote::StartFailed { why });
    ExitCode::from(u8::try_from(exit::START_FAILED).unwrap_or(1))
}

impl Booting {
    /// The reason why copies of this process must not serve, in one sentence. Closes the boot's
    /// connections, if configured.
    fn obstacle(&mut self, snapshot: &Snapshot) -> Option<String> {
        if let Err(why) = self.zygote.find_proc() {
            return Some(why);
        }
        self.known.extend(self.zygote.proc.number());
        let script = &snapshot.script;
        // PHP keeps the script open, and has read it.
        let script = script.canonicalize().unwrap_or(script.clone());
        let file = script.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
        let is_own =
            |open: &Descriptor| Path::new(&open.target) == script || Some(open.file) == file;
        let proc = &self.zygote.proc;
        match proc.threads() {
            Ok(1) => {}
            Ok(count) => {
                return Some(format!(
                    "its boot has started threads ({count} run), which a copy would not have; find \
                     the extension or library that does it and leave it out"
                ));
            }
            Err(error) => return Some(format!("its threads cannot be counted: {error}")),
        }
        match descriptors::beyond(&self.known, proc) {
            Ok(new) => {
                let mut foreign = new.iter().filter(|open| !is_own(open));
                foreign.find_map(|open| {
                    if snapshot.closes_connections {
                        shared_descriptors::unless_closed(open, &self.zygote.settings.pool)
                    } else {
                        shared_descriptors::obstacle(open)
                    }
                })
            }
            Err(error) => Some(format!("its open descriptors cannot be listed: {error}")),
        }
    }

    /// Carries out the supervisor's orders, and returns in a copy in its seat.
    fn stand_still(self, settings: &'static ZygoteSettings, snapshot: &Snapshot) -> Serving {
        let mut zygote = self.zygote;
        zygote.is_frozen = true;
        let rewinds = snapshot.rewinds_per_child;
        let image = (rewinds > 0).then(|| take_image(&zygote.proc, settings));
        let image = image.and_then(|taken| taken.map_err(|error| not_back(settings, &error)).ok());
        zygote.say(&self.started);
        // A suspended zygote gets no orders for other children.
        let Forked::Worker(place) = zygote.obey() else { exit_now(exit::RECYCLED) };
        let (worker, _) = zygote.become_worker(&place);
        let (exchange, memory, proc) = seat::take_seat(worker);
        let rewind = image.and_then(|image| match Rewind::prepare(&proc, image) {
            Ok(rewind) => Some((rewind, image)),
            Err(error) => {
                if image.speaks_for_all() {
                    not_back(settings, &error);
                }
                None
            }
        });
        // Scripts must not find an open folder that may be outside their root.
        drop(proc);
        settle(settings);
        let mut serving = Serving {
            exchange,
            memory,
            left: snapshot.requests_per_child,
            running: None,
            is_measured: copies::is_measured(place.incarnation, rewind.is_some()),
            rewind,
        };
        serving.mark(settings, rewinds);
        serving
    }
}

/// Takes the image to which copies of this process are rewound. From here on, their user's other
/// processes cannot inspect it and its copies, and they cannot write to their own memory, limits
/// and names through `/proc`: such writes cause no page fault and would persist. Root still can.
fn take_image(proc: &OwnProc, settings: &ZygoteSettings) -> io::Result<Image> {
    if settings.confinement.chroot.is_some() {
        return Err(io::Error::other(
            "rewinding needs /proc, through which scripts could leave the pool's `chroot`",
        ));
    }
    if settings.dumpable {
        return Err(io::Error::other(
            "`process.dumpable` lets scripts write to their own process through /proc/self",
        ));
    }
    if users::is_root() {
        return Err(io::Error::other(
            "the pool runs as root, so its scripts can write to their own process through \
             /proc/self",
        ));
    }
    let image = Image::take(proc)?;
    fork::forbid_inspection()?;
    Ok(image)
}

/// Logs that every copy will be a new process, in spite of the setting.
fn not_back(settings: &ZygoteSettings, error: &std::io::Error) {
    stderr::say(&format!(
        "maitred-php: pool {}: its copies exit after `requests_per_child` requests and are not \
         rewound (rewinds_per_child): {error}",
        settings.pool
    ));
}

impl Exchange for Script {
    fn read_body(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.exchange().map_or(Some(0), |exchange| exchange.read_body(buffer))
    }

    fn send(&mut self, bytes: &[u8]) -> Verdict {
        let exchange = self.exchange();
        exchange.map_or(Verdict::Continue, |exchange| exchange.send(bytes))
    }

    fn flush(&mut self) -> Verdict {
        self.exchange().map_or(Verdict::Continue, Exchange::flush)
    }

    fn hint(&mut self, lines: &[u8]) -> Verdict {
        let exchange = self.exchange();
        exchange.map_or(Verdict::Continue, |exchange| exchange.hint(lines))
    }

    fn finish(&mut self) {
        if let Some(exchange) = self.exchange() {
            exchange.finish();
        }
    }

    fn translate(&mut self, params: &mut Params, paths: &Paths<'_>) -> Foreign {
        match self.exchange() {
            Some(exchange) => exchange.translate(params, paths),
            None => Foreign { script: None, uri: None, admission: Admission::NoScript },
        }
    }

    fn log(&mut self, level: Level, to_client: bool, message: &[u8]) {
        if let Some(exchange) = self.exchange() {
            return exchange.log(level, to_client, message);
        }
        let text = String::from_utf8_lossy(message);
        let _ = writeln!(std::io::stderr(), "boot: {text}");
        if level >= Level::Notice {
            let text = text.strip_prefix("PHP message: ").unwrap_or(&text);
            let mut end = text.len().min(REASON_BYTES);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            self.said = Some(text[..end].replace('\n', " "));
        }
    }

    fn purge(&mut self, asked: &Purge<'_>) -> Purged {
        let exchange = self.exchange();
        exchange.map_or(Purged::NoReply, |exchange| exchange.purge(asked))
    }

    fn next(&mut self, params: &mut Params) -> Next {
        if is_forked_child() {
            return Next::Leave;
        }
        match &mut self.stage {
            Some(Stage::Serving(serving)) => serving.next(params, self.settings),
            Some(Stage::Warming(target)) => {
                let target = std::mem::take(target);
                if target.is_empty() { Next::Leave } else { self.fill(target, params) }
            }
            // A script that takes requests in a loop gets warm-up requests here, and stays warm
            // itself.
            Some(Stage::Booting(_)) => match self.ahead.pop() {
                Some(target) => self.fill(target, params),
                None => Next::Leave,
            },
            None => Next::Leave,
        }
    }

    fn answered(&mut self, served: &Served) {
        if is_forked_child() {
            exit_now(exit::RECYCLED);
        }
        if let Some(Stage::Serving(serving)) = &mut self.stage {
            serving.answered(served);
            // The client must not wait for the script's work before its next request.
            let _ = serving.exchange.flush();
        }
    }

    fn freeze(&mut self, obstacle: Option<String>) -> bool {
        if is_forked_child() {
            // A child of the boot is no second zygote.
            exit_now(exit::RECYCLED);
        }
        let Some(Stage::Booting(mut booting)) = self.stage.take_if(|stage| stage.boots()) else {
            return false;
        };
        if let Some(why) = obstacle.or_else(|| booting.obstacle(self.snapshot)) {
            let script = self.snapshot.script.display();
            failed(&booting.zygote, &format!("{why} ({script})"));
            exit_now(exit::START_FAILED)
        }
        while let Some(target) = self.ahead.pop() {
            maitred_php::share_patterns();
            if booting.zygote.sends_ahead(WARMING) {
                mark_children();
                // A request must not get the supervisor's descriptors.
                drop(booting);
                self.stage = Some(Stage::Warming(target));
                return true;
            }
            maitred_php::learn_patterns();
        }
        let serving = booting.stand_still(self.settings, self.snapshot);
        self.stage = Some(Stage::Serving(Box::new(serving)));
        true
    }

    fn status(&mut self) -> Option<String> {
        self.exchange().and_then(Exchange::status)
    }
}
