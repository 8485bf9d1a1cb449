//! A worker in worker mode: its script is booted once, asks for one request after the other, and
//! comes to its end when it has had enough of them, or is asked to leave.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use maitred_control::{FromZygote, WorkerId, ZygoteSettings, exit, say_waiting};
use maitred_os::channel::Reports;
use maitred_os::fork::{OwnProc, exit_now, is_forked_child};
use maitred_os::{cpu, leave, users};
use maitred_php::{
    Engine, Exchange, Foreign, Level, Next, Params, Paths, PoolStatus, Purge, Purged, Served,
    Verdict, Worked,
};

use crate::exchange::WorkerExchange;
use crate::memory::Memory;
use crate::seat::{self, Place};
use crate::words;
use crate::zygote::{Link, settle};

/// Most of what a script prints while it boots that is repeated when it does not come to its end, in
/// bytes.
const BOOT_OUTPUT_BYTES: usize = 1024;

/// A script that asks for a request so soon after it has answered one does nothing in between: as short
/// as the scripts behind which the front lets others wait.
const PROMPTLY: Duration = Duration::from_micros(500);

/// From now on SIGTERM lets the script come to its end. Before PHP takes note of the handlers.
///
/// # Errors
/// When the pool's memory does not fit.
pub fn heed_sigterm(link: &Link, seat: u32) -> std::io::Result<()> {
    leave::heed_sigterm(maitred_seat::sleep_word(link.memory.as_fd(), seat)?)
}

/// Runs the pool's worker script until this worker's time is over; then the process ends. `reports`
/// is where the supervisor is told when it has booted.
pub fn serve(
    settings: &ZygoteSettings,
    script: &Path,
    (link, proc, reports): (Link, OwnProc, Reports),
    engine: Engine,
    place: Place,
) -> ! {
    let mut at_work = AtWork {
        exchange: seat::sit_down(settings, link, &proc, place),
        settings,
        place,
        memory: seat::memory(settings, &proc),
        boot: Some(Boot {
            reports,
            printed: Vec::new(),
        }),
        left: seat::last_request(settings.max_requests),
        begun: None,
        answered_at: None,
        asks_promptly: false,
    };
    // Scripts must find no folder open that may lie outside of their root.
    drop(proc);
    users::leave_shield();
    let worked = engine.work(&boot_params(script), &mut at_work);
    at_work.end(&worked, script)
}

/// A worker whose script runs.
struct AtWork<'a> {
    exchange: WorkerExchange<'a>,
    settings: &'a ZygoteSettings,
    place: Place,
    memory: Memory,
    /// Until the script has booted.
    boot: Option<Boot>,
    /// How many requests it may still have.
    left: u64,
    /// The request in hand, if it has not been answered.
    begun: Option<Begun>,
    /// When the last one was answered.
    answered_at: Option<Instant>,
    /// The script has asked for the last request soon after it had answered the one before.
    asks_promptly: bool,
}

/// A script that boots: there is no request, and no client.
struct Boot {
    reports: Reports,
    printed: Vec<u8>,
}

/// When a request began.
struct Begun {
    at: Instant,
    cpu: Option<cpu::CpuTime>,
}

impl AtWork<'_> {
    fn booted(&mut self) {
        let Some(boot) = self.boot.take() else {
            return;
        };
        let (seat, incarnation) = self.place;
        // A supervisor that has gone takes us with it.
        let _ = say_waiting(
            &boot.reports,
            &FromZygote::Booted {
                worker: WorkerId { seat, incarnation },
            },
        );
        drop(boot);
        settle(self.settings);
    }

    /// The request that was answered, if there is one, is over.
    fn end_request(&mut self) {
        if !self.exchange.has_request() {
            return;
        }
        if let Some(bytes) = self.memory.measure() {
            self.exchange.show_private_memory(bytes);
        }
        words::complete(self.settings);
        self.exchange.end_request();
    }

    /// The script has ended, and so does this process.
    fn end(mut self, worked: &Worked, script: &Path) -> ! {
        if is_forked_child() {
            // A child of the script came back here: the seat is its parent's.
            exit_now(exit::RECYCLED);
        }
        if let Some(boot) = self.boot.take() {
            if leave::asked() {
                exit_now(exit::RECYCLED);
            }
            words::say(&self.not_booted(&boot, worked, script));
            exit_now(exit::NOT_BOOTED);
        }
        if worked.in_hand {
            self.answered(&worked.last);
        }
        self.end_request();
        exit_now(match worked.last.outcome.process_is_clean() {
            true => exit::RECYCLED,
            false => exit::BAILOUT,
        })
    }

    fn not_booted(&self, boot: &Boot, worked: &Worked, script: &Path) -> String {
        let printed = String::from_utf8_lossy(&boot.printed);
        let printed = printed.trim().replace(['\n', '\r'], " ");
        let how = match worked.last.outcome.process_is_clean() {
            true => "ended",
            false => "ended with a fatal error",
        };
        let script = script.display();
        let said = match printed.is_empty() {
            true => String::new(),
            false => format!("; it printed: {printed}"),
        };
        format!(
            "maitred-php: pool {} seat {}: {script} {how} before it called \
             frankenphp_handle_request(){said}",
            self.settings.pool, self.place.0
        )
    }
}

impl Exchange for AtWork<'_> {
    fn next(&mut self, params: &mut Params) -> Next {
        if is_forked_child() {
            return Next::Leave;
        }
        self.booted();
        if let Some(at) = self.answered_at.take() {
            self.asks_promptly = at.elapsed() <= PROMPTLY;
        }
        self.end_request();
        while self.left > 0 && self.exchange.claim_unless(leave::asked) {
            let begun = seat::now_micros();
            if !self.exchange.read_head(params) {
                // The front has gone, or speaks another language: nobody waits for an answer.
                self.exchange.end_request();
                continue;
            }
            self.left -= 1;
            self.exchange.show_request(params, begun);
            self.begun = Some(Begun {
                at: Instant::now(),
                cpu: self.settings.measures_cpu.then(cpu::used),
            });
            return match self.exchange.is_foreign() {
                true => Next::Foreign,
                false => Next::Own,
            };
        }
        Next::Leave
    }

    fn answered(&mut self, served: &Served) {
        if is_forked_child() {
            exit_now(exit::RECYCLED);
        }
        let Some(begun) = self.begun.take() else {
            return;
        };
        let now = Instant::now();
        let took = now.duration_since(begun.at).as_micros();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        let cpu = begun.cpu;
        let cpu = cpu.map_or(0, |before| cpu::used().since(before).micros());
        self.exchange.show_end(took, cpu, served.peak_memory as u64);
        if served.cache_full {
            self.exchange.tell_cache_is_full();
        }
        self.answered_at = Some(now);
        match self.asks_promptly {
            // The front need not be woken twice.
            true => self.end_request(),
            // The client must not wait for what the script does before it asks for another request,
            // and nobody behind it.
            false => {
                let _ = self.exchange.flush();
            }
        }
    }

    fn read_body(&mut self, buffer: &mut [u8]) -> usize {
        match self.boot {
            Some(_) => 0,
            None => self.exchange.read_body(buffer),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Verdict {
        let Some(boot) = &mut self.boot else {
            return self.exchange.send(bytes);
        };
        // The first is the head, whole.
        let is_head = boot.printed.is_empty() && bytes.ends_with(b"\r\n\r\n");
        if !is_head {
            let room = BOOT_OUTPUT_BYTES - boot.printed.len();
            boot.printed.extend(bytes.iter().take(room));
        }
        Verdict::Continue
    }

    fn flush(&mut self) -> Verdict {
        match self.boot {
            Some(_) => Verdict::Continue,
            None => self.exchange.flush(),
        }
    }

    fn hint(&mut self, lines: &[u8]) -> Verdict {
        match self.boot {
            Some(_) => Verdict::Continue,
            None => self.exchange.hint(lines),
        }
    }

    fn finish(&mut self) {
        if self.boot.is_none() {
            self.exchange.finish();
        }
    }

    fn translate(&mut self, params: &mut Params, paths: &Paths<'_>) -> Foreign {
        self.exchange.translate(params, paths)
    }

    fn log(&mut self, level: Level, to_client: bool, message: &[u8]) {
        if self.boot.is_none() {
            return self.exchange.log(level, to_client, message);
        }
        let message = words::message(self.settings, level, message);
        words::say(&String::from_utf8_lossy(&message));
    }

    fn purge(&mut self, asked: &Purge<'_>) -> Purged {
        self.exchange.purge(asked)
    }

    fn status(&mut self) -> Option<PoolStatus> {
        self.exchange.status()
    }
}

/// What a script sees as its request while it boots.
fn boot_params(script: &Path) -> Params {
    let folder = script.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let name = script.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("/{name}");
    let script = script.to_string_lossy();
    let all = [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        (
            "SERVER_SOFTWARE",
            concat!("maitred/", env!("CARGO_PKG_VERSION")),
        ),
        ("SERVER_NAME", "localhost"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", &name),
        ("QUERY_STRING", ""),
        ("DOCUMENT_ROOT", &folder),
        ("DOCUMENT_URI", &name),
        ("SCRIPT_NAME", &name),
        ("SCRIPT_FILENAME", &script),
    ];
    let mut params = Params::new();
    for (name, value) in all {
        // There is room for so few, and a path has no NUL.
        let _ = params.push(name.as_bytes(), value.as_bytes());
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_php::Name;

    #[test]
    fn a_script_that_boots_sees_a_request_for_itself() {
        let params = boot_params(Path::new("/srv/shop/public/worker.php"));
        let value = |name| params.value_of(name).unwrap();
        assert_eq!(value(Name::ScriptFilename), b"/srv/shop/public/worker.php");
        assert_eq!(value(Name::DocumentRoot), b"/srv/shop/public");
        assert_eq!(value(Name::ScriptName), b"/worker.php");
        assert_eq!(value(Name::RequestUri), b"/worker.php");
    }
}
