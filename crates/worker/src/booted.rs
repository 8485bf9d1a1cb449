//! A worker in worker mode: its script boots once, takes one request after the other, and ends when
//! it has reached its limit or is to exit.

use std::path::Path;
use std::time::{Duration, Instant};

use maitred_control::{FromZygote, WorkerId, ZygoteSettings, exit, say_waiting};
use maitred_os::channel::Reports;
use maitred_os::fork::{exit_now, is_forked_child};
use maitred_os::{sigterm, users};
use maitred_php::{
    Engine, Exchange, Foreign, Level, Next, Params, ParamsError, Paths, Purge, Purged, Served,
    Verdict, Worked,
};

use crate::exchange::WorkerExchange;
use crate::memory::Memory;
use crate::seat::{self, Running};
use crate::stderr;
use crate::zygote::{Link, NewWorker, settle};

/// Most output of a script's boot that is repeated if the boot fails, in bytes.
const BOOT_OUTPUT_BYTES: usize = 1024;

/// A script that takes its next request this soon after a response does nothing in between: the
/// same limit as for short scripts, behind which the front queues others.
const PROMPTLY: Duration = Duration::from_micros(500);

/// From now on SIGTERM ends the script after its current request. To be called before PHP records
/// the handlers.
///
/// # Errors
/// When the seat does not exist.
pub fn heed_sigterm(link: &Link, seat: u32) -> std::io::Result<()> {
    sigterm::install_handler(link.memory.sleep_word(seat)?)
}

/// Runs the pool's worker script until this worker's limit; then the process exits. `reports`
/// notifies the supervisor of the boot.
pub fn serve(worker: NewWorker, script: &Path, reports: Reports, engine: Engine) -> ! {
    let (settings, seat, incarnation) = (worker.settings, worker.seat, worker.incarnation);
    let (exchange, memory, proc) = seat::take_seat(worker);
    let mut booted = BootedWorker {
        exchange,
        settings,
        seat,
        incarnation,
        memory,
        boot: Some(Boot { reports, printed: Vec::new() }),
        left: seat::last_request(settings.max_requests),
        running: None,
        answered_at: None,
        asks_promptly: false,
    };
    // Scripts must not find an open folder that may be outside their root.
    drop(proc);
    users::leave_shield();
    // The limits allow it, and a path has no NUL.
    let params = boot_params(script, None).unwrap_or_default();
    let worked = engine.work(&params, &mut booted);
    booted.end(&worked, script)
}

/// A worker whose script runs.
struct BootedWorker {
    exchange: WorkerExchange<'static>,
    settings: &'static ZygoteSettings,
    seat: u32,
    incarnation: u32,
    memory: Memory,
    /// Until the script has booted.
    boot: Option<Boot>,
    /// Remaining requests.
    left: u64,
    /// The running request, if it has not been answered.
    running: Option<Running>,
    /// When the last one was answered.
    answered_at: Option<Instant>,
    /// The script has taken the last request soon after it had answered the one before.
    asks_promptly: bool,
}

/// A script that boots: there is no request, and no client.
struct Boot {
    reports: Reports,
    printed: Vec<u8>,
}

impl BootedWorker {
    fn booted(&mut self) {
        let Some(boot) = self.boot.take() else {
            return;
        };
        let (seat, incarnation) = (self.seat, self.incarnation);
        // If the supervisor has exited, so will this process.
        let _ = say_waiting(
            &boot.reports,
            &FromZygote::Booted { worker: WorkerId { seat, incarnation } },
        );
        drop(boot);
        settle(self.settings);
    }

    /// Ends the answered request, if there is one.
    fn end_request(&mut self) {
        if self.exchange.has_request() {
            seat::end_request(&mut self.exchange, &mut self.memory, self.settings);
        }
    }

    /// The exchange, once the script has booted.
    fn exchange(&mut self) -> Option<&mut WorkerExchange<'static>> {
        self.boot.is_none().then_some(&mut self.exchange)
    }

    /// The script has ended, and so does this process.
    fn end(mut self, worked: &Worked, script: &Path) -> ! {
        if is_forked_child() {
            // A child of the script returned here: the seat belongs to its parent.
            exit_now(exit::RECYCLED);
        }
        if let Some(boot) = self.boot.take() {
            if sigterm::has_arrived() {
                exit_now(exit::RECYCLED);
            }
            stderr::say(&self.not_booted(&boot, worked, script));
            exit_now(exit::NOT_BOOTED);
        }
        if worked.in_hand {
            self.answered(&worked.last);
        }
        self.end_request();
        exit_now(if worked.last.outcome.process_is_clean() {
            self.exchange.exit_code()
        } else {
            exit::BAILOUT
        })
    }

    fn not_booted(&self, boot: &Boot, worked: &Worked, script: &Path) -> String {
        let printed = String::from_utf8_lossy(&boot.printed);
        let printed = printed.trim().replace(['\n', '\r'], " ");
        let how = if worked.last.outcome.process_is_clean() {
            "ended"
        } else {
            "ended with a fatal error"
        };
        let script = script.display();
        let said =
            if printed.is_empty() { String::new() } else { format!("; it printed: {printed}") };
        format!(
            "maitred-php: pool {} seat {}: {script} {how} before it called \
             frankenphp_handle_request(){said}",
            self.settings.pool, self.seat
        )
    }
}

impl Exchange for BootedWorker {
    fn next(&mut self, params: &mut Params) -> Next {
        if is_forked_child() {
            return Next::Leave;
        }
        self.booted();
        if let Some(at) = self.answered_at.take() {
            self.asks_promptly = at.elapsed() <= PROMPTLY;
        }
        self.end_request();
        while self.left > 0 && self.exchange.claim_unless(sigterm::has_arrived) {
            self.running = seat::begin(&mut self.exchange, params, self.settings);
            if self.running.is_none() {
                continue;
            }
            self.left -= 1;
            return if self.exchange.is_foreign() { Next::Foreign } else { Next::Own };
        }
        Next::Leave
    }

    fn answered(&mut self, served: &Served) {
        if is_forked_child() {
            exit_now(exit::RECYCLED);
        }
        let Some(running) = self.running.take() else {
            return;
        };
        seat::show_end(running, served, &mut self.exchange);
        self.answered_at = Some(Instant::now());
        if self.asks_promptly {
            // The front need not be woken twice.
            self.end_request()
        } else {
            // Neither the client nor queued requests must wait for the script's work before its
            // next request.
            let _ = self.exchange.flush();
        }
    }

    fn read_body(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let exchange = self.exchange();
        exchange.map_or(Some(0), |exchange| exchange.read_body(buffer))
    }

    fn send(&mut self, bytes: &[u8]) -> Verdict {
        let Some(boot) = &mut self.boot else {
            return self.exchange.send(bytes);
        };
        // The first piece is the complete header.
        let is_head = boot.printed.is_empty() && bytes.ends_with(b"\r\n\r\n");
        if !is_head {
            let room = BOOT_OUTPUT_BYTES - boot.printed.len();
            boot.printed.extend(bytes.iter().take(room));
        }
        Verdict::Continue
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
        self.exchange.translate(params, paths)
    }

    fn log(&mut self, level: Level, to_client: bool, message: &[u8]) {
        if let Some(exchange) = self.exchange() {
            return exchange.log(level, to_client, message);
        }
        let message = stderr::message(self.settings, level, message);
        stderr::say(&String::from_utf8_lossy(&message));
    }

    fn purge(&mut self, asked: &Purge<'_>) -> Purged {
        self.exchange.purge(asked)
    }

    fn status(&mut self) -> Option<String> {
        self.exchange.status()
    }
}

/// `$_SERVER` of a script that boots: a GET request without a client for `target`, or for itself.
///
/// # Errors
/// When they are too long.
pub fn boot_params(script: &Path, target: Option<&str>) -> Result<Params, ParamsError> {
    let folder = script.parent().unwrap_or(Path::new("/"));
    let name = script.file_name().unwrap_or_default().as_encoded_bytes();
    let name = [b"/", name].concat();
    let query = target.and_then(|target| target.split_once('?'));
    let all: [(&str, &[u8]); 15] = [
        ("SCRIPT_FILENAME", script.as_os_str().as_encoded_bytes()),
        ("SCRIPT_NAME", &name),
        ("DOCUMENT_URI", &name),
        ("DOCUMENT_ROOT", folder.as_os_str().as_encoded_bytes()),
        ("REQUEST_METHOD", b"GET"),
        ("REQUEST_URI", target.map_or(&name, str::as_bytes)),
        ("QUERY_STRING", query.map_or(b"", |(_, query)| query.as_bytes())),
        ("SERVER_PROTOCOL", b"HTTP/1.1"),
        ("GATEWAY_INTERFACE", b"CGI/1.1"),
        ("SERVER_SOFTWARE", concat!("maitred/", env!("CARGO_PKG_VERSION")).as_bytes()),
        ("SERVER_NAME", b"localhost"),
        ("SERVER_PORT", b"80"),
        ("REMOTE_ADDR", b"127.0.0.1"),
        ("REMOTE_PORT", b"0"),
        ("HTTP_HOST", b"localhost"),
    ];
    let mut params = Params::new();
    for (name, value) in all {
        params.push(name.as_bytes(), value)?;
    }
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_php::Name;

    #[test]
    fn a_script_that_boots_sees_a_request_for_itself() {
        let params = boot_params(Path::new("/srv/shop/public/worker.php"), None).unwrap();
        let value = |name| params.value_of(name).unwrap();
        assert_eq!(value(Name::ScriptFilename), b"/srv/shop/public/worker.php");
        assert_eq!(value(Name::DocumentRoot), b"/srv/shop/public");
        assert_eq!(value(Name::ScriptName), b"/worker.php");
        assert_eq!(value(Name::RequestUri), b"/worker.php");
    }
}
