//! The program that runs a pool's PHP: `maitred-php`, or `maitred-phpX.Y` for one version.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use maitred_config::{Config, Section};
use maitred_control::launch::CLI_ROLE;
use maitred_os::shared;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::system::faults::Examined;

/// The program without a version; others have the version as `8.2` after it.
const NAME: &str = "maitred-php";

/// A second folder, relative to our own: where packages put programs that are not started by hand.
const LIBEXEC: &str = "../libexec/maitred";

/// The argument that makes the PHP program write its copy of libphp's code to standard output.
const DIRECT_CALLS_ROLE: &str = "direct-calls";

/// Timeout of a program that prints its PHP version.
const ANSWER: Duration = Duration::from_secs(10);

/// Most bytes of that output.
const ANSWER_BYTES: usize = 4096;

/// The programs, by PHP version.
#[derive(Debug, Default)]
pub struct Programs {
    by_version: BTreeMap<Option<String>, PathBuf>,
    /// Copies of libphp's code that calls its own functions directly, by program.
    direct_calls: BTreeMap<PathBuf, OwnedFd>,
    /// PHP's command lines, by PHP version, for the pools whose commands need one.
    command_lines: BTreeMap<Option<String>, Result<PathBuf, String>>,
    /// What programs have said of their PHP.
    said: BTreeMap<PathBuf, Said>,
}

/// What a program has said of its PHP, and its file then.
#[derive(Debug, Clone)]
struct Said {
    file: Option<ProgramStamp>,
    php: Result<String, NoPhp>,
}

/// A file's identity and last change.
type ProgramStamp = (u64, u64, i64, i64, u64);

/// Why a program does not say its PHP version.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NoPhp {
    /// For a reason that may pass while its file stays, such as a missing library, as one sentence.
    ForNow(String),
    /// It says none, as one sentence.
    Ever(String),
}

impl NoPhp {
    fn sentence(self) -> String {
        match self {
            NoPhp::ForNow(why) | NoPhp::Ever(why) => why,
        }
    }
}

impl Said {
    /// Whether the program would say the same again, as far as its file shows.
    fn holds(&self, program: &Path) -> bool {
        let may_pass = matches!(self.php, Err(NoPhp::ForNow(_)));
        !may_pass && self.file.is_some() && self.file == stamp(program)
    }
}

fn stamp(program: &Path) -> Option<ProgramStamp> {
    let found = program.metadata().ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

impl Programs {
    /// Finds the programs that `config` needs, and reports missing ones.
    pub fn find(config: &Config) -> (Programs, Vec<Error>) {
        let mut found = Programs::default();
        let mistakes = found.find_missing(config, &Examined::All);
        if config.pools.iter().any(|pool| pool.direct_calls) {
            found.copy_code();
        }
        (found, mistakes)
    }

    /// Reports the programs that these pools of `config` need and that are missing by now. One
    /// whose file is as it was when it said its version is not run again: that takes long on a busy
    /// machine, and the supervisor waits for it.
    pub fn missing_by_now(&mut self, config: &Config, examined: &Examined) -> Vec<Error> {
        let mut known = Programs {
            by_version: self.by_version.clone(),
            direct_calls: BTreeMap::new(),
            command_lines: self.command_lines.clone(),
            said: std::mem::take(&mut self.said),
        };
        known.by_version.retain(|_, program| program.is_file());
        known.command_lines.retain(|_, found| found.as_ref().is_ok_and(|path| path.is_file()));
        known.said.retain(|program, said| said.holds(program));
        let mistakes = known.find_missing(config, examined);
        self.said = known.said;
        mistakes
    }

    /// Finds the programs of these pools that are not known, and reports those that are missing.
    fn find_missing(&mut self, config: &Config, examined: &Examined) -> Vec<Error> {
        let folders = match folders() {
            Ok(folders) => folders,
            Err(error) => return vec![error],
        };
        let mut mistakes = Vec::new();
        // Many pools may need one that is missing.
        let said = &mut self.said;
        let mut ask_once = |program: &Path| -> Result<String, String> {
            let said = said.entry(program.to_owned()).or_insert_with(|| {
                let file = stamp(program);
                Said { file, php: ask(program) }
            });
            said.php.clone().map_err(NoPhp::sentence)
        };
        for pool in examined.pools(config) {
            if self.by_version.contains_key(&pool.php) {
                continue;
            }
            if config.fpm.is_some() && pool.php.is_none() {
                // As for php-fpm's pools, its start reports what it lacks.
                let program = beside(&folders);
                self.by_version.insert(None, program);
                continue;
            }
            match find(&folders, pool.php.as_deref(), &mut ask_once) {
                Ok(program) => drop(self.by_version.insert(pool.php.clone(), program)),
                Err(why) => mistakes.push(Error::Setting {
                    section: Section::Pool(pool.name.clone()),
                    setting: "php",
                    said: format!("pool `{}` {why}", pool.name),
                }),
            }
        }
        mistakes.extend(self.find_command_lines(config, examined));
        mistakes
    }

    /// Has each program make its copy of libphp's code. It is optional: a failure is not reported.
    fn copy_code(&mut self) {
        for program in self.by_version.values() {
            if !self.direct_calls.contains_key(program)
                && let Ok(Some(copy)) = direct_calls(program)
            {
                self.direct_calls.insert(program.clone(), copy);
            }
        }
    }

    /// Finds PHP's command line for the pools whose commands need it.
    fn find_command_lines(&mut self, config: &Config, examined: &Examined) -> Vec<Error> {
        let mut mistakes = Vec::new();
        for pool in examined.pools(config) {
            let jobs = config.jobs.iter();
            let job = jobs.filter(|job| job.pool == pool.name).find(|job| job.is_php());
            let (Some(job), Some(program)) = (job, self.by_version.get(&pool.php)) else {
                continue;
            };
            let found = self.command_lines.entry(pool.php.clone());
            if let Err(why) = found.or_insert_with(|| command_line(program)) {
                mistakes.push(Error::Setting {
                    section: Section::Pool(pool.name.clone()),
                    setting: if job.schedule.is_some() { "schedules" } else { "commands" },
                    said: format!("pool `{}`, {} `{}`: {why}", pool.name, job.kind(), job.name),
                });
            }
        }
        mistakes
    }

    /// PHP's command line of this version.
    ///
    /// # Errors
    /// One sentence.
    pub fn command_line(&self, version: Option<&str>) -> Result<&Path, String> {
        match self.command_lines.get(&version.map(str::to_owned)) {
            Some(Ok(path)) => Ok(path),
            Some(Err(why)) => Err(why.clone()),
            None => Err("PHP's command line was not looked for".to_owned()),
        }
    }

    /// The copy of libphp's code for this program, if it has one.
    pub fn direct_calls_of(&self, program: &Path) -> Option<BorrowedFd<'_>> {
        self.direct_calls.get(program).map(AsFd::as_fd)
    }

    /// Finds the program for one version.
    ///
    /// # Errors
    /// One sentence that lists the searched folders.
    pub fn find_one(version: Option<&str>) -> Result<PathBuf, Error> {
        let folders = folders()?;
        let mut ask = |program: &Path| ask(program).map_err(NoPhp::sentence);
        let found = find(&folders, version, &mut ask);
        found.map_err(|why| Error::Configuration(format!("this command {why}")))
    }

    /// All programs and their PHP versions, as `8.2.35`. One that does not run is left out.
    pub fn all() -> Vec<(PathBuf, String)> {
        let mut ask = |program: &Path| ask(program).map_err(NoPhp::sentence);
        existing(&folders().unwrap_or_default(), &mut ask)
    }

    /// The program for this version. For one that was not found, a name that leads nowhere.
    pub fn of(&self, version: Option<&str>) -> &Path {
        let found = self.by_version.get(&version.map(str::to_owned));
        found.map_or(Path::new(NAME), PathBuf::as_path)
    }
}

/// The searched folders.
fn folders() -> Result<Vec<PathBuf>, Error> {
    let own = std::env::current_exe()
        .map_err(Error::system("the folder of this program could not be found"))?;
    let own = own.parent().unwrap_or(Path::new("/")).to_owned();
    let libexec = own.join(LIBEXEC);
    Ok(vec![own, libexec])
}

/// The default program, or where it would be.
fn beside(folders: &[PathBuf]) -> PathBuf {
    let mut paths = folders.iter().map(|folder| folder.join(NAME));
    let found = paths.clone().find(|path| path.is_file());
    found.or_else(|| paths.next()).unwrap_or_default()
}

/// The program for `version`. `ask` returns the PHP version of a program, as `8.2.35`.
fn find(
    folders: &[PathBuf],
    version: Option<&str>,
    ask: &mut dyn FnMut(&Path) -> Result<String, String>,
) -> Result<PathBuf, String> {
    let named = |name: &str| {
        let mut paths = folders.iter().map(|folder| folder.join(name));
        paths.find(|path| path.is_file())
    };
    let Some(version) = version else {
        let Some(program) = named(NAME) else {
            return Err(format!(
                "needs {NAME}, which is not in {}; install the package of its PHP version, or \
                 build it",
                list(folders)
            ));
        };
        return ask(&program).map(|_| program).map_err(|why| format!("cannot run PHP: {why}"));
    };
    let exact = named(&format!("{NAME}{version}"));
    let mut why = String::new();
    for program in exact.into_iter().chain(named(NAME)) {
        match ask(&program) {
            Ok(php) if is_version(&php, version) => return Ok(program),
            Ok(_) => {}
            Err(problem) => why = format!("; {problem}"),
        }
    }
    Err(format!(
        "asks for PHP {version}, and neither {NAME}{version} nor a {NAME} of that version is in \
         {}{}{why}; build it with MAITRED_PHP_VERSION={version}, or correct `php`",
        list(folders),
        there(folders, ask)
    ))
}

fn list(folders: &[PathBuf]) -> String {
    let names: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    names.join(" or ")
}

/// The programs that exist, as the middle of a sentence.
fn there(folders: &[PathBuf], ask: &mut dyn FnMut(&Path) -> Result<String, String>) -> String {
    let found = existing(folders, ask).into_iter();
    let found = found.map(|(program, php)| format!("{} (PHP {php})", program.display()));
    let found: Vec<String> = found.collect();
    match found.is_empty() {
        true => " (no other is there)".to_owned(),
        false => format!(" (there are: {})", found.join(", ")),
    }
}

/// The programs that exist, with their PHP versions.
fn existing(
    folders: &[PathBuf],
    ask: &mut dyn FnMut(&Path) -> Result<String, String>,
) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in folders {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut programs: Vec<PathBuf> = entries
            .filter(|entry| is_program(&entry.file_name().to_string_lossy()))
            .map(|entry| entry.path())
            .collect();
        programs.sort();
        for program in programs {
            if let Ok(php) = ask(&program) {
                found.push((program, php));
            }
        }
    }
    found
}

fn is_program(name: &str) -> bool {
    let version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    name.strip_prefix(NAME).is_some_and(version)
}

/// Whether `php` (as `8.2.35`) is of the version `wanted` (as `8.2`).
pub fn is_version(php: &str, wanted: &str) -> bool {
    php.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The PHP version of a program.
fn ask(program: &Path) -> Result<String, NoPhp> {
    let problem = |why: &str| format!("{} {why}", program.display());
    let for_now = |why: String| NoPhp::ForNow(problem(&why));
    let child = maitred_os::spawn::command(program)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| for_now(format!("cannot be run: {error}")))?;
    let no_output = || std::io::Error::other("it has no output");
    let response = child.stdout.take().ok_or_else(no_output).and_then(|mut out| listen(&mut out));
    let errors = child.stderr.take().ok_or_else(no_output).and_then(|mut out| listen(&mut out));
    let _ = child.kill();
    let _ = child.wait();
    let response =
        response.map_err(|error| for_now(format!("does not say its version: {error}")))?;
    let words = String::from_utf8_lossy(&response);
    let php = words.trim().rsplit_once("runs PHP ").map(|(_, php)| php);
    let is_number = |php: &&str| php.starts_with(|c: char| c.is_ascii_digit());
    if let Some(php) = php.filter(is_number) {
        return Ok(php.to_owned());
    }
    let errors = errors.unwrap_or_default();
    Err(match missing_library(&String::from_utf8_lossy(&errors)) {
        Some(why) => for_now(why),
        None => NoPhp::Ever(problem("does not say which PHP it runs")),
    })
}

/// PHP's command line of the version of this program.
fn command_line(program: &Path) -> Result<PathBuf, String> {
    let problem = |why: std::io::Error| format!("{} cannot be run: {why}", program.display());
    let child = maitred_os::spawn::command(program)
        .arg(CLI_ROLE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(problem)?;
    let path = child.stdout.take().map_or(Ok(Vec::new()), |mut out| listen(&mut out));
    let errors = child.stderr.take().map_or(Ok(Vec::new()), |mut out| listen(&mut out));
    let _ = child.kill();
    let _ = child.wait();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    match text(path.map_err(problem)?) {
        path if path.starts_with('/') => Ok(path.into()),
        _ => Err(text(errors.map_err(problem)?)),
    }
}

/// A copy of libphp's code by this program, which no process can change any more. None on a machine
/// or for a library that it makes none for.
fn direct_calls(program: &Path) -> std::io::Result<Option<OwnedFd>> {
    let copy = shared::writable_file("maitred-libphp")?;
    let mut child = maitred_os::spawn::command(program)
        .arg(DIRECT_CALLS_ROLE)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(copy.try_clone()?)
        .stderr(Stdio::piped())
        .spawn()?;
    // Its end ends this, too.
    let errors = child.stderr.take().map(|mut errors| listen(&mut errors));
    let _ = child.kill();
    let ended_well = child.wait()?.success();
    let is_complete = ended_well && errors.is_some_and(|errors| errors.is_ok());
    if !is_complete || copy.metadata()?.len() == 0 {
        return Ok(None);
    }
    shared::seal(&copy)?;
    Ok(Some(copy.into()))
}

/// The library that the dynamic linker (ld.so(8)) did not find, and the package that has it on
/// Debian and Ubuntu.
fn missing_library(errors: &str) -> Option<String> {
    let (_, rest) = errors.split_once("error while loading shared libraries: ")?;
    let (library, _) = rest.split_once(':')?;
    let version = library.strip_prefix("libphp").and_then(|rest| rest.strip_suffix(".so"));
    Some(match version {
        Some(version) => format!(
            "needs PHP's library {library}, which is not installed: apt-get install \
             libphp{version}-embed"
        ),
        None => format!("needs the library {library}, which is not installed"),
    })
}

/// All output until its end, within limits of time and size.
fn listen(output: &mut (impl Read + AsFd)) -> std::io::Result<Vec<u8>> {
    let (begun, mut heard) = (Instant::now(), Vec::new());
    let mut piece = [0; 512];
    while heard.len() < ANSWER_BYTES {
        let left = ANSWER.saturating_sub(begun.elapsed());
        let left = Timespec::try_from(left).unwrap_or_default();
        let mut ready = [PollFd::new(output, PollFlags::IN)];
        match poll(&mut ready, Some(&left)) {
            Ok(0) => return Err(std::io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match output.read(&mut piece)? {
            0 => break,
            length => heard.extend_from_slice(&piece[..length]),
        }
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two folders with empty files of these names, and what each says it runs.
    fn find_in(files: &[(&str, &str)], version: Option<&str>) -> Result<String, String> {
        let home = tempfile::tempdir().unwrap();
        let folders = ["bin", "libexec"].map(|name| home.path().join(name));
        for folder in &folders {
            std::fs::create_dir(folder).unwrap();
        }
        for (name, _) in files {
            std::fs::write(home.path().join(name), "").unwrap();
        }
        let ask = |program: &Path| {
            let name = program.strip_prefix(home.path()).unwrap().to_str().unwrap();
            let said = files.iter().find(|(file, _)| *file == name).unwrap().1;
            Ok(said.to_owned())
        };
        let home = home.path().to_str().unwrap();
        let mut ask = |program: &Path| ask(program).map_err(NoPhp::sentence);
        let found = find(&folders, version, &mut ask);
        let plain = |text: &str| text.replace(&format!("{home}/"), "");
        found.map(|path| plain(path.to_str().unwrap())).map_err(|why| plain(&why))
    }

    #[test]
    fn a_version_has_its_own_program_or_the_plain_one_if_that_fits() {
        let both = [("bin/maitred-php", "8.2.35"), ("libexec/maitred-php8.3", "8.3.36")];
        let found = |version| find_in(&both, version);
        assert_eq!(found(None).unwrap(), "bin/maitred-php");
        assert_eq!(found(Some("8.2")).unwrap(), "bin/maitred-php");
        assert_eq!(found(Some("8.3")).unwrap(), "libexec/maitred-php8.3");
    }

    #[test]
    fn a_program_that_runs_another_php_than_it_is_named_for_is_not_taken() {
        let files = [("bin/maitred-php8.2", "8.3.36"), ("bin/maitred-php", "8.2.35")];
        assert_eq!(find_in(&files, Some("8.2")).unwrap(), "bin/maitred-php");
    }

    #[test]
    fn a_version_that_is_not_there_is_answered_with_those_that_are() {
        let files = [
            ("bin/maitred-php", "8.2.35"),
            ("bin/maitred-phpinfo", "9.9.9"),
            ("libexec/maitred-php8.3", "8.3.36"),
        ];
        assert_eq!(
            find_in(&files, Some("8.4")).unwrap_err(),
            "asks for PHP 8.4, and neither maitred-php8.4 nor a maitred-php of that version is in \
             bin or libexec (there are: bin/maitred-php (PHP 8.2.35), libexec/maitred-php8.3 (PHP \
             8.3.36)); build it with MAITRED_PHP_VERSION=8.4, or correct `php`"
        );
        let missing = find_in(&files[2..], None).unwrap_err();
        assert!(
            missing.starts_with("needs maitred-php, which is not in bin or libexec;"),
            "{missing}"
        );
    }

    #[test]
    fn a_program_that_is_still_there_is_not_run_again() {
        let home = tempfile::tempdir().unwrap();
        // It cannot be run.
        let file = home.path().join("maitred-php");
        std::fs::write(&file, "").unwrap();
        let text = "[pools.a]\n[pools.b]\n[[sites]]\nroot = \"/\"\npool = \"a\"\n";
        let config = maitred_config::parse(text, Path::new("/maitred.toml")).unwrap();
        let mut programs =
            Programs { by_version: [(None, file.clone())].into(), ..Programs::default() };
        assert!(programs.missing_by_now(&config, &Examined::All).is_empty());
        std::fs::remove_file(&file).unwrap();
        let missing = programs.missing_by_now(&config, &Examined::All);
        assert_eq!(missing.len(), 2, "{missing:?}");
    }

    #[test]
    fn the_package_of_a_missing_library_is_named() {
        let said = "maitred-php: error while loading shared libraries: libphp8.2.so: cannot open \
                    shared object file: No such file or directory\n";
        assert_eq!(
            missing_library(said).unwrap(),
            "needs PHP's library libphp8.2.so, which is not installed: apt-get install \
             libphp8.2-embed"
        );
        assert_eq!(missing_library("something else"), None);
    }

    #[test]
    fn a_version_is_compared_by_its_parts_and_not_by_its_letters() {
        assert!(is_version("8.2.35", "8.2"));
        assert!(is_version("8.2.35", "8.2.35"));
        assert!(!is_version("8.20.1", "8.2"));
        assert!(!is_version("8.3.1", "8.2"));
    }
}
