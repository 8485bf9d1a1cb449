//! A worker in its seat: one request after the other, until it has reached its limit or PHP has
//! failed.

use std::time::{SystemTime, UNIX_EPOCH};

use maitred_control::{ZygoteSettings, exit};
use maitred_os::clock::monotonic_nanos;
use maitred_os::cpu::{self, CpuTime};
use maitred_os::fork::{self, OwnProc, exit_now, is_forked_child, mark_children};
use maitred_os::title;
use maitred_php::{Engine, PHP_BRANCH, Params, Served};

use crate::exchange::WorkerExchange;
use crate::memory::Memory;
use crate::meter::Meter;
use crate::stderr;
use crate::zygote::{NewWorker, settle};

/// Serves until this worker's limit; then the process exits.
pub fn serve(mut worker: NewWorker, engine: &mut Engine) -> ! {
    let settings = worker.settings;
    let known_folders = worker.known_folders.take();
    let (mut exchange, mut memory, proc) = take_seat(worker);
    // Scripts must not find an open folder that may be outside their root.
    drop(proc);
    settle(settings);
    let mut params = Params::new();
    // The front usually has it replaced before; this is the fallback.
    let last = last_request(settings.max_requests);
    let mut served = 0;
    while served < last {
        if !exchange.claim() {
            exit_now(exchange.exit_code());
        }
        let Some(running) = begin(&mut exchange, &mut params, settings) else {
            continue;
        };
        let done = if exchange.is_foreign() {
            engine.serve_foreign(&mut params, &mut exchange)
        } else {
            engine.serve(&params, &mut exchange)
        };
        if is_forked_child() {
            // A child of the script returned here: the seat belongs to its parent.
            exit_now(exit::RECYCLED);
        }
        show_end(running, &done, &mut exchange);
        end_request(&mut exchange, &mut memory, settings);
        served += 1;
        if done.renew || known_folders.as_ref().is_some_and(|known| !known.have(&params)) {
            exit_now(exit::RENEW);
        }
        if done.conflicts {
            exit_now(exit::CONFLICT);
        }
        if !done.outcome.process_is_clean() {
            exit_now(exit::BAILOUT);
        }
        if done.spent {
            exit_now(exchange.exit_code());
        }
    }
    exit_now(exchange.exit_code())
}

/// Measurements of a running request.
pub struct Running {
    /// On the monotonic clock, in nanoseconds: the front's decisions must not be affected by
    /// changes of the wall clock.
    begun: u64,
    cpu: Option<CpuTime>,
}

/// Reads the header of a claimed request; `None` if it has been abandoned.
pub fn begin(
    exchange: &mut WorkerExchange<'_>,
    params: &mut Params,
    settings: &ZygoteSettings,
) -> Option<Running> {
    let begun = now_micros();
    if !exchange.read_head(params) {
        // The front has exited, or uses another protocol: the client does not wait.
        exchange.end_request();
        return None;
    }
    exchange.show_request(params, begun);
    Some(Running { begun: exchange.claimed_at(), cpu: settings.measures_cpu.then(cpu::used) })
}

/// Reports the duration and cost of a request's script.
pub fn show_end(running: Running, done: &Served, exchange: &mut WorkerExchange<'_>) {
    let took = monotonic_nanos().saturating_sub(running.begun) / 1_000;
    let used = |before| cpu::used().since(before).micros();
    let cpu = running.cpu.map_or(0, used);
    exchange.show_end(took, cpu, done.peak_memory as u64);
    if done.cache_full {
        exchange.report_cache_full();
    }
}

/// Ends a request: reports its results and releases the slot.
pub fn end_request(
    exchange: &mut WorkerExchange<'_>,
    memory: &mut Memory,
    settings: &ZygoteSettings,
) {
    if let Some(bytes) = memory.measure() {
        exchange.show_private_memory(bytes);
    }
    stderr::complete(settings);
    exchange.end_request();
}

/// Makes this process a worker of its pool. Returns its end of the link, its memory measurement and
/// its `/proc` directory.
pub fn take_seat(worker: NewWorker) -> (WorkerExchange<'static>, Memory, OwnProc) {
    let NewWorker { settings, link, proc, seat, incarnation, .. } = worker;
    let pool = &settings.pool;
    if settings.fpm {
        let name = format!("php-fpm{PHP_BRANCH}");
        title::set_with_name(&format!("php-fpm: pool {pool}"), &name);
    } else {
        title::set(&format!("maitred-php: worker pool {pool} seat {seat}"))
    }
    fork::lead_group();
    mark_children();
    let end = match link.worker_end(seat, incarnation) {
        Ok(end) => end,
        Err(error) => {
            eprintln!("maitred-php: pool {pool} seat {seat}: {error}");
            exit_now(exit::START_FAILED)
        }
    };
    let meter = settings.accounts.then(|| Meter::new(&proc));
    let exchange = WorkerExchange::new(end, settings, meter);
    exchange.show_birth(now_micros() / 1_000_000);
    let page_bytes = maitred_os::shared::page_bytes();
    let memory = Memory::new(settings.max_private_memory, page_bytes, &proc);
    (exchange, memory, proc)
}

/// The number of requests after which this worker exits.
pub fn last_request(max_requests: u64) -> u64 {
    match max_requests {
        0 => u64::MAX,
        limit => limit,
    }
}

/// Microseconds since 1970.
fn now_micros() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_micros()).unwrap_or(u64::MAX)
}
