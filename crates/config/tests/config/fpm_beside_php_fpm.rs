//! Every configuration of fpm_cases.txt, read by Debian's php-fpm and by maitred: the same verdict,
//! the same lines, the same settings.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use maitred_config::fpm::{Level, Options, load};
use tempfile::TempDir;

const PHP_FPM: &str = "/usr/sbin/php-fpm8.2";

/// Deadline of php-fpm for refusing a configuration.
const DEADLINE: Duration = Duration::from_secs(60);

/// The base of a case's text.
const GOOD: &str = "[global]
error_log = DIR/error.log
log_level = notice
[www]
user = nobody
listen = DIR/www.sock
pm = static
pm.max_children = 3
";

#[derive(Debug, Default)]
struct Case {
    name: String,
    whole: bool,
    as_root: bool,
    start: bool,
    args: Vec<String>,
    environment: BTreeMap<String, String>,
    folders: Vec<String>,
    files: Vec<(String, String)>,
    text: String,
    ours: Vec<String>,
    differs: bool,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut in_file = false;
    for line in include_str!("fpm_cases.txt").lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            in_file = false;
            cases.push(Case { name: name.to_owned(), ..Case::default() });
            continue;
        }
        let Some(case) = cases.last_mut() else {
            assert!(line.is_empty() || line.starts_with('#'), "outside: {line}");
            continue;
        };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "@whole" => case.whole = true,
            "@root" => case.as_root = true,
            "@start" => case.start = true,
            "@args" => case.args = rest.split(' ').map(str::to_owned).collect(),
            "@env" => {
                let (name, value) = rest.split_once('=').unwrap();
                case.environment.insert(name.to_owned(), value.to_owned());
            }
            "@dir" => case.folders.push(rest.to_owned()),
            "@file" => {
                case.files.push((rest.to_owned(), String::new()));
                in_file = true;
            }
            "@main" => in_file = false,
            "@ours" => case.ours.push(rest.to_owned()),
            "@because" => case.differs = true,
            _ => {
                let text = match case.files.last_mut() {
                    Some((_, text)) if in_file => text,
                    _ => &mut case.text,
                };
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    cases
}

fn bytes_of(text: &str, folder: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in text.replace("DIR", folder).split_inclusive('>') {
        let (text, byte): (&str, &[u8]) = match part {
            _ if part.ends_with("<NUL>") => (&part[..part.len() - 5], b"\0"),
            _ if part.ends_with("<CR>") => (&part[..part.len() - 4], b"\r"),
            _ if part.ends_with("<LATIN1>") => (&part[..part.len() - 8], b"gr\xfc\xdfe"),
            _ => (part, b""),
        };
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend_from_slice(byte);
    }
    bytes
}

/// Writes the case's files into a new directory.
fn set_up(case: &Case) -> TempDir {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().to_str().unwrap();
    for name in &case.folders {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let good = if case.whole { "" } else { GOOD };
    let main = ("php-fpm.conf".to_owned(), format!("{good}{}", case.text));
    for (name, text) in case.files.iter().chain([&main]) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes_of(text, folder)).unwrap();
    }
    dir
}

/// The output of a program, and whether it succeeded.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    good: bool,
    lines: Vec<String>,
}

/// The standard error output of a program, and whether it succeeded. It must end by itself.
fn outcome(mut command: Command) -> (String, bool) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = stderr.read_to_end(&mut said);
        let _ = tell.send(String::from_utf8_lossy(&said).into_owned());
    });
    let said = told.recv_timeout(DEADLINE);
    if said.is_err() {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    let said = said.unwrap_or_else(|_| "ERROR: it goes on and on".to_owned());
    // Its children may hold its standard error open; that must not block this test.
    drop(reader);
    (said, status.success())
}

fn php_fpm(case: &Case, folder: &Path) -> Verdict {
    let mut command = Command::new(PHP_FPM);
    command.arg("-n").arg("-y").arg(folder.join("php-fpm.conf"));
    let folder_text = folder.to_str().unwrap();
    for argument in &case.args {
        command.arg(argument.replace("DIR", folder_text));
    }
    command.args(if case.start { &["-F", "-O"][..] } else { &["-tt"] });
    command.env_clear().envs(&case.environment).current_dir("/");
    command.stdin(Stdio::null()).process_group(0);
    let (said, good) = outcome(command);
    let mut lines = Vec::new();
    for line in said.lines() {
        // A timestamp, or in the system's log a level.
        let line = match line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
            Some((level @ ("NOTICE" | "WARNING" | "ERROR"), line)) => format!("{level}: {line}"),
            Some((_, line)) => line.to_owned(),
            None => line.to_owned(),
        };
        let over = ["ERROR: FPM initialization failed", ""];
        let successful = line.starts_with("NOTICE: configuration file ");
        if line.starts_with("PHP:  syntax error") {
            lines.push("ERROR: syntax error".to_owned());
        } else if !over.contains(&line.as_str()) && !successful {
            lines.push(line.replace(folder_text, "DIR"));
        }
    }
    Verdict { good, lines }
}

fn ours(case: &Case, folder: &Path) -> Verdict {
    let folder_text = folder.to_str().unwrap();
    let mut options = Options {
        file: folder.join("php-fpm.conf"),
        is_root: nix::unistd::geteuid().is_root(),
        test: !case.start,
        environment: Some(case.environment.clone()),
        ..Options::default()
    };
    let args: Vec<_> = case.args.iter().map(|arg| arg.replace("DIR", folder_text)).collect();
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "-p" => options.prefix = args.next().map(PathBuf::from),
            "-g" => options.pid = args.next().map(PathBuf::from),
            "-D" => options.daemonize = Some(true),
            "-F" => options.daemonize = Some(false),
            "-R" => options.allow_root = true,
            _ => panic!("{flag} is not known here"),
        }
    }
    let (good, least, messages) = match load(&options, &|_| None) {
        Ok(loaded) => {
            let least = loaded.config.fpm.map_or(Level::Notice, |fpm| fpm.log_level);
            let dump = loaded.dump.into_iter().map(|line| (Level::Notice, line));
            let mut messages = loaded.messages;
            if options.test {
                messages.extend(dump);
            }
            (true, least, messages)
        }
        Err(failed) => (false, failed.log_level, failed.messages),
    };
    let lines = messages.into_iter().filter(|(level, _)| *level >= least);
    let lines = lines.flat_map(|(level, line)| {
        let length = folder_text.len();
        let line = line.replace(folder_text, "DIR");
        let line = line.replace(&format!("found length: {}", length + 116), "found length: LENGTH");
        let line = format!("{}: {}", level.name(), line);
        // A value with a line break.
        let lines = line.lines().filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    Verdict { good, lines: lines.collect() }
}

/// A line of maitred without its additions to php-fpm's: the position and the remedy.
fn in_their_words(line: &str) -> String {
    let line = match line.rsplit_once(" (DIR/") {
        Some((line, place)) if is_place(place) => line,
        _ => line,
    };
    if line.contains("] syntax error, ") {
        return "ERROR: syntax error".to_owned();
    }
    if let Some((line, _)) = line.split_once(" ('").filter(|_| line.contains("getaddrinfo: ")) {
        return line.to_owned();
    }
    let advice =
        ["; did you mean ", "; it belongs in ", "; create the folder ", ": there is no such "];
    let cut = advice.iter().filter_map(|advice| line.find(advice)).min();
    cut.map_or(line, |cut| &line[..cut]).to_owned()
}

/// Whether `text` is `FILE:LINE)`.
fn is_place(text: &str) -> bool {
    let line = text.strip_suffix(')').and_then(|text| text.rsplit_once(':'));
    line.is_some_and(|(_, line)| line.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A line of php-fpm without parts that depend on the C library.
fn in_our_words(line: &str) -> String {
    let vague = [" for user '", " for group '"];
    match line.rsplit_once("': ") {
        Some((start, _)) if vague.iter().any(|what| line.contains(what)) => format!("{start}'"),
        _ => line.to_owned(),
    }
}

#[test]
fn every_configuration_is_read_as_php_fpm_reads_it() {
    if !Path::new(PHP_FPM).exists() {
        eprintln!("{PHP_FPM} is not installed, so there is nothing to compare with");
        return;
    }
    let mut wrong = Vec::new();
    let is_root = nix::unistd::geteuid().is_root();
    for case in cases() {
        if case.as_root && !is_root {
            continue;
        }
        let (theirs_dir, ours_dir) = (set_up(&case), set_up(&case));
        let theirs = php_fpm(&case, theirs_dir.path());
        let ours = ours(&case, ours_dir.path());
        let comparable = Verdict {
            good: ours.good,
            lines: ours.lines.iter().map(|line| in_their_words(line)).collect(),
        };
        let expected = Verdict {
            good: theirs.good,
            lines: theirs.lines.iter().map(|line| in_our_words(line)).collect(),
        };
        let same = comparable == expected;
        if !case.differs && !same {
            wrong.push(format!("{}\n theirs {theirs:#?}\n ours {ours:#?}", case.name));
        }
        if case.differs {
            let loud = ours.lines.iter().filter(|line| !line.starts_with("NOTICE: "));
            let loud: Vec<_> = loud
                .map(|line| line.split(" (DIR/").next().unwrap_or_default().to_owned())
                .collect();
            if same || loud != case.ours {
                wrong.push(format!("{} should differ\n {theirs:#?}\n {ours:#?}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n\n"));
}
