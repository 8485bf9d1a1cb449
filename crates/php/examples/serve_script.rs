//! Serves scripts in this process, without any server: to try the engine, to trace and to measure
//! it.
//!
//! ```text
//! serve_script [OPTIONS] SCRIPT...       one request per script, in this order
//!   --value NAME=VALUE                   php_value
//!   --admin-value NAME=VALUE             php_admin_value
//!   --ini PATH  --scan-dir DIR           php.ini, folder of further ini files
//!   --define NAME=VALUE                  php.ini entry, as `-d` of php-fpm
//!   --fpm                                PHP as php-fpm has it
//!   --param NAME=VALUE                   a CGI variable of every request; `-`: there is none
//!   --foreign                            the variables are a web server's, and those of `.txt`
//!                                        files are not to be run
//!   --body FILE                          request body of every request
//!   --repeat N                           serve the list N times
//!   --fork                               serve in a forked child, as a worker does
//!   --share-lock                         workers say in shared memory that they use OPcache
//!   --compile PATH                       first put it into OPcache, in a forked child
//!   --cached                             at last tell what OPcache holds, in a forked child
//!   --leave-after N                      the client goes after N bytes of an answer
//!   --panic-on-send                      the exchange panics when it gets bytes
//!   --status                             there is a pool for fpm_get_status()
//!   --quiet                              print no answers
//!   --events                             print what happened, not only the answers
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write, stdout};
use std::path::PathBuf;

use maitred_php::{
    Admission, Engine, Exchange, Foreign, IniValue, Level, Name, Params, Paths, Purge, Purged,
    Settings, Verdict,
};

#[derive(Default)]
struct Arguments {
    settings: Settings,
    params: Vec<(String, String)>,
    body: Option<PathBuf>,
    repeat: usize,
    fork: bool,
    share_lock: bool,
    compile: Vec<PathBuf>,
    cached: bool,
    leave_after: Option<usize>,
    panic_on_send: bool,
    status: bool,
    quiet: bool,
    events: bool,
    foreign: bool,
    scripts: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), Box<dyn Error>> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("`{text}`: NAME=VALUE was expected"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut parsed = Arguments { repeat: 1, ..Arguments::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--value" | "--admin-value" => {
                let (name, value) = pair(&next()?)?;
                let admin = word == "--admin-value";
                parsed.settings.values.push(IniValue { name, value, admin });
            }
            "--define" => parsed.settings.defines.push(pair(&next()?)?),
            "--fpm" => parsed.settings.fpm = true,
            "--foreign" => parsed.foreign = true,
            "--ini" => parsed.settings.ini_path = Some(next()?.into()),
            "--scan-dir" => parsed.settings.ini_scan_dir = Some(next()?.into()),
            "--param" => parsed.params.push(pair(&next()?)?),
            "--body" => parsed.body = Some(next()?.into()),
            "--repeat" => parsed.repeat = next()?.parse()?,
            "--fork" => parsed.fork = true,
            "--share-lock" => parsed.share_lock = true,
            "--compile" => parsed.compile.push(next()?.into()),
            "--cached" => parsed.cached = true,
            "--leave-after" => parsed.leave_after = Some(next()?.parse()?),
            "--panic-on-send" => parsed.panic_on_send = true,
            "--status" => parsed.status = true,
            "--quiet" => parsed.quiet = true,
            "--events" => parsed.events = true,
            _ if word.starts_with("--") => return Err(format!("unknown option {word}").into()),
            _ => parsed.scripts.push(word),
        }
    }
    Ok(parsed)
}

/// The client of one request.
struct Client<'a> {
    arguments: &'a Arguments,
    body: Option<File>,
    received: usize,
}

impl Client<'_> {
    fn event(&self, name: &str, bytes: &[u8]) {
        if self.arguments.events && !self.arguments.quiet {
            let mut out = stdout().lock();
            let _ = writeln!(out, "{name} {}", bytes.len());
            let _ = out.write_all(bytes);
            let _ = out.write_all(b"\n");
        }
    }

    fn verdict(&self) -> Verdict {
        match self.arguments.leave_after {
            Some(limit) if self.received >= limit => Verdict::ClientGone,
            _ => Verdict::Continue,
        }
    }
}

impl Exchange for Client<'_> {
    fn read_body(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let read = self.body.as_mut().map_or(0, |body| body.read(buffer).unwrap_or(0));
        self.event("read", read.to_string().as_bytes());
        Some(read)
    }

    fn send(&mut self, bytes: &[u8]) -> Verdict {
        assert!(!self.arguments.panic_on_send, "the exchange was told to panic");
        self.received += bytes.len();
        if self.arguments.events {
            self.event("send", bytes);
        } else if !self.arguments.quiet {
            let _ = stdout().write_all(bytes);
        }
        self.verdict()
    }

    fn flush(&mut self) -> Verdict {
        self.event("flush", b"");
        self.verdict()
    }

    fn hint(&mut self, lines: &[u8]) -> Verdict {
        self.event("hint", lines);
        self.verdict()
    }

    fn purge(&mut self, asked: &Purge<'_>) -> Purged {
        let names = asked.names.join(&b" "[..]);
        self.event("purge", &names);
        Purged::Done
    }

    fn finish(&mut self) {
        self.event("finish", b"");
    }

    fn translate(&mut self, params: &mut Params, paths: &Paths<'_>) -> Foreign {
        let script = params.text_of(Name::ScriptFilename);
        let script = script.filter(|script| paths.resolves(params, *script));
        let ending = params.get(b"SCRIPT_FILENAME").unwrap_or_default();
        let admission = match script {
            _ if params.text_of(Name::RequestMethod).is_none() => Admission::NoMethod,
            None => Admission::NoScript,
            Some(_) if ending.ends_with(b".txt") => Admission::Extension,
            Some(_) => Admission::Admitted,
        };
        Foreign { script, uri: params.text_of(Name::ScriptName), admission }
    }

    fn log(&mut self, _: Level, _: bool, message: &[u8]) {
        if self.arguments.events {
            self.event("log", message);
        } else {
            eprintln!("{}", String::from_utf8_lossy(message));
        }
    }

    fn status(&mut self) -> Option<String> {
        let pid = std::process::id();
        let process = format!(r#"{{"pid": {pid}, "state": "Running", "requests": 7}}"#);
        let pool = r#""pool": "www", "process-manager": "static", "total-processes": 5"#;
        let status = format!(r#"{{{pool}, "procs": [{process}]}}"#);
        Some(status).filter(|_| self.arguments.status)
    }
}

fn params_for(
    arguments: &Arguments,
    script: &str,
    params: &mut Params,
) -> Result<(), Box<dyn Error>> {
    if arguments.foreign {
        params.clear_for_foreign();
    } else {
        params.clear();
    }
    let body_length = match &arguments.body {
        Some(body) => fs::metadata(body)?.len(),
        None => 0,
    };
    let method = if arguments.body.is_some() { "POST" } else { "GET" };
    let folder = script.rsplit_once('/').map_or("", |(folder, _)| folder);
    let usual = [
        ("SCRIPT_FILENAME", script),
        ("SCRIPT_NAME", &script[folder.len()..]),
        ("DOCUMENT_ROOT", folder),
        ("REQUEST_URI", &script[folder.len()..]),
        ("REQUEST_METHOD", method),
        ("QUERY_STRING", ""),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "localhost"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("CONTENT_LENGTH", &body_length.to_string()),
    ];
    let mut add = |name: &str, value: &str| {
        if arguments.foreign {
            params.set(name.as_bytes(), value.as_bytes())
        } else {
            params.push(name.as_bytes(), value.as_bytes())
        }
    };
    for (name, value) in usual {
        if !arguments.params.iter().any(|(given, _)| given == name) {
            add(name, value)?;
        }
    }
    for (name, value) in &arguments.params {
        if value != "-" {
            add(name, value)?;
        }
    }
    Ok(())
}

/// CPU time of this process (proc_pid_schedstat(5), first field).
fn cpu_nanoseconds() -> u64 {
    let stat = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn serve_all(engine: &mut Engine, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut params = Params::new();
    let started = cpu_nanoseconds();
    for _ in 0..arguments.repeat {
        for script in &arguments.scripts {
            params_for(arguments, script, &mut params)?;
            let body = arguments.body.as_ref().map(File::open).transpose()?;
            let mut client = Client { arguments, body, received: 0 };
            let served = if arguments.foreign {
                engine.serve_foreign(&mut params, &mut client)
            } else {
                engine.serve(&params, &mut client)
            };
            if arguments.events {
                let spent = if served.spent { " spent" } else { "" };
                println!(
                    "served {:?} status={} gone={}{spent}",
                    served.outcome, served.status, served.client_gone
                );
            }
            if !served.outcome.process_is_clean() || served.spent {
                return Ok(());
            }
        }
    }
    let requests = arguments.repeat * arguments.scripts.len();
    if arguments.quiet && requests > 0 {
        let each = cpu_nanoseconds().saturating_sub(started) as f64 / 1e3 / requests as f64;
        println!(
            "{requests} requests, {each:.2} µs of CPU each, interposed: {}",
            engine.is_interposed()
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let mut engine = Engine::start(&arguments.settings)?;
    for value in engine.unknown_values().iter().chain(engine.refused_values()) {
        eprintln!("refused: {}", value.name);
    }
    if !arguments.compile.is_empty() {
        in_child(&mut engine, |engine| {
            let compiled = engine.compile_scripts(&arguments.compile, |_| true);
            println!("compiled {compiled}");
            Ok(())
        })?;
    }
    if arguments.share_lock && !engine.share_opcache_lock(1) {
        return Err("OPcache's lock cannot be shared".into());
    }
    if arguments.fork {
        in_child(&mut engine, |engine| {
            engine.take_opcache_lock(0);
            serve_all(engine, &arguments)
        })?;
    } else {
        serve_all(&mut engine, &arguments)?;
    }
    if arguments.cached {
        in_child(&mut engine, |engine| {
            for script in engine.cached_scripts() {
                println!("\ncached {} {}", script.hits, script.path.display());
            }
            if let Some(figures) = engine.cache_figures() {
                println!("figures {} {}", figures.scripts, figures.hits);
            }
            Ok(())
        })?;
    }
    engine.stop();
    Ok(())
}

/// Does something in a child, which ends without PHP's shutdown.
#[allow(unsafe_code)]
fn in_child(
    engine: &mut Engine,
    work: impl FnOnce(&mut Engine) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    // SAFETY: this program has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            engine.after_fork();
            let result = work(engine);
            let _ = stdout().flush();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        pid => {
            // SAFETY: waits for the child forked above; no status is read.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            Ok(())
        }
    }
}
