//! php-fpm: a drop-in file that it reads last, `php-fpm -tt`, and SIGUSR2.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use maitred_doctor::facts::PhpServer;
use maitred_os::{proc, users};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::replaced_file::TRIAL;
use super::{Master, TunedServer};
use crate::measurement::Setting;
use crate::processes;
use crate::site::Site;

/// The drop-in's name, which sorts behind the usual names of pool files.
pub(super) const DROP_IN: &str = "zz-maitred-tune.conf";

/// php-fpm's options for its php.ini, its prefix and single entries (`php-fpm --help`); each has a
/// value.
const SHORT: [&str; 3] = ["-c", "-p", "-d"];
const LONG: [&str; 3] = ["--php-ini", "--prefix", "--define"];

/// Why it has no setting of PHP to try.
const ONE_PHP: &str = "php-fpm starts one PHP for all pools, with the settings of its php.ini";

/// How long a reload may take until all new workers run.
const RELOAD: Duration = Duration::from_secs(60);

/// How often to check that.
const LOOK: Duration = Duration::from_millis(10);

/// The result of php-fpm's own test of its configuration.
#[derive(Debug, PartialEq)]
enum ConfigTest {
    /// It accepts it; with the test's output.
    Takes(String),
    /// It rejects it, and why.
    Refuses(String),
    /// The test did not finish, and why: the configuration may be right or wrong.
    NotKnown(String),
}

/// php-fpm, or maitred in its place.
pub(super) struct FpmServer {
    config: String,
    section: String,
    drop_in: PathBuf,
    is_maitred: bool,
    unit: Option<String>,
    /// Options of its unit that its own test needs, too.
    options: Vec<String>,
    /// Whether the original setting starts workers: then a reload waits for at least one.
    starts_some: bool,
}

impl FpmServer {
    /// The server of a site.
    ///
    /// # Errors
    /// It includes no directory of files, or this user may not signal it.
    pub(super) fn of(site: &Site) -> Result<FpmServer, String> {
        let config = site.service.files.first().cloned().unwrap_or_default();
        let directory = site.service.includes.iter().find_map(|pattern| directory(pattern));
        let directory = directory.ok_or_else(|| {
            format!(
                "{config} includes no directory of files (include = …/*.conf), so nothing can be \
                 tried without changing it; add such a line, and tune again"
            )
        })?;
        let unit = site.service.unit.as_ref().ok().and_then(|unit| unit.as_ref());
        let fpm = FpmServer {
            config,
            section: site.pool.section.clone(),
            drop_in: directory.join(DROP_IN),
            is_maitred: site.service.kind == PhpServer::MaitredFpm,
            unit: unit.map(|unit| unit.name.clone()),
            options: unit
                .and_then(|unit| unit.settings.get("ExecStart"))
                .map_or_else(Vec::new, |line| options(line)),
            starts_some: site.pool.manager != maitred_doctor::facts::Manager::Ondemand,
        };
        fpm.may_signal(site.master)?;
        Ok(fpm)
    }

    pub(super) fn drop_in(&self) -> &Path {
        &self.drop_in
    }

    fn may_signal(&self, master: i32) -> Result<(), String> {
        let allowed = Pid::from_raw(master).is_some_and(|pid| test_kill_process(pid).is_ok());
        if allowed {
            return Ok(());
        }
        let owner = std::fs::metadata(format!("/proc/{master}")).map_or(0, |of| of.uid());
        Err(format!(
            "this user may not reload php-fpm (process {master} belongs to user {owner}); run the \
             command as root"
        ))
    }

    fn test(&self, master: i32) -> ConfigTest {
        let folder = match trusted(master) {
            Ok(folder) => folder,
            Err(why) => return ConfigTest::NotKnown(why),
        };
        // The running binary, even if a package has replaced its file.
        let program = format!("/proc/self/fd/{}/exe", folder.as_raw_fd());
        let mut command = maitred_os::spawn::command(program);
        if self.is_maitred {
            command.arg("fpm");
        }
        command.args(["-tt", "-y", &self.config]).args(&self.options).stdin(Stdio::null());
        tested(command.output())
    }
}

/// The folder in /proc of a process whose program this user may run: one of root's or its own. It
/// stays that process's, even if another one has its id later.
fn trusted(master: i32) -> Result<File, String> {
    let folder = File::open(format!("/proc/{master}"))
        .map_err(|why| format!("process {master} has ended: {why}"))?;
    let status = proc::text(format!("/proc/self/fd/{}/status", folder.as_raw_fd()))
        .map_err(|why| format!("process {master} has ended: {why}"))?;
    match proc::user(&status) {
        Some(user) if users::is_trusted(user) => Ok(folder),
        _ => Err(format!(
            "process {master} is not root's, so its program is not run; run the command as its user"
        )),
    }
}

impl TunedServer for FpmServer {
    fn name(&self) -> &'static str {
        "php-fpm"
    }

    fn takes_file(&self) -> bool {
        true
    }

    fn trial(&self, _: &[u8], setting: Setting) -> Result<String, String> {
        let Setting::Workers(workers) = setting else {
            return Err(ONE_PHP.to_owned());
        };
        let section = &self.section;
        Ok(format!(
            "; {TRIAL} and removes it afterwards; if it has not, run maitred tune --undo
\
             [{section}]
pm = static
pm.max_children = {workers}
"
        ))
    }

    fn check(&self, master: &Master, workers: Option<u32>) -> Result<(), String> {
        let output_text = match self.test(master.pid) {
            ConfigTest::Takes(output_text) => output_text,
            ConfigTest::Refuses(why) | ConfigTest::NotKnown(why) => return Err(why),
        };
        let found = setting_of(&output_text, &self.section, "pm.max_children");
        match workers {
            Some(workers) if found != Some(workers.to_string().as_str()) => Err(format!(
                "php-fpm does not use {} for pool {}: its pm.max_children is {}; is the pool's \
                 file read after it?",
                self.drop_in.display(),
                self.section,
                found.unwrap_or("nothing"),
            )),
            _ => Ok(()),
        }
    }

    fn refusal(&self, master: &Master) -> Option<String> {
        match self.test(master.pid) {
            ConfigTest::Refuses(why) => Some(why),
            ConfigTest::Takes(_) | ConfigTest::NotKnown(_) => None,
        }
    }

    /// Sends SIGUSR2, and waits until no old worker is left and the new ones run.
    fn reload(&mut self, master: &Master, setting: Setting) -> Result<(), String> {
        let ended = || "php-fpm exited at the reload".to_owned();
        let old = master.workers();
        let pid = Pid::from_raw(master.pid).ok_or_else(ended)?;
        // Another process may have its id by now.
        if !master.is_running() || kill_process(pid, Signal::USR2).is_err() {
            return Err(ended());
        }
        let wanted = match setting {
            Setting::Workers(workers) => workers as usize,
            Setting::AsItWas | Setting::Php(_) | Setting::OpcacheOff => {
                usize::from(self.starts_some)
            }
        };
        let deadline = Instant::now() + RELOAD;
        let mut is_waited_for = !old.is_empty();
        loop {
            std::thread::sleep(LOOK);
            let is_master = processes::is_titled(master.pid, "php-fpm: master process");
            if !master.is_running() {
                return Err(ended());
            }
            let now = master.workers();
            let new = now.iter().filter(|pid| !old.contains(pid)).count();
            // A pool without workers shows nothing but the restart of the master.
            is_waited_for |= !is_master || new > 0;
            let is_over = now.len() == new && new >= wanted && is_master;
            if is_over && (is_waited_for || wanted == 0) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let limit = RELOAD.as_secs();
                return Err(format!(
                    "php-fpm has not come back within {limit} s: {new} new workers of {wanted}"
                ));
            }
        }
    }

    fn start_command(&self) -> String {
        let unit = self.unit.as_deref().unwrap_or("php-fpm.service");
        format!("systemctl start {unit}")
    }
}

/// Only a test that exits by itself has judged the configuration.
fn tested(output: io::Result<Output>) -> ConfigTest {
    let output = match output {
        Ok(output) => output,
        Err(why) => return ConfigTest::NotKnown(format!("php-fpm -tt cannot be run: {why}")),
    };
    let output_text =
        String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return ConfigTest::Takes(output_text.into_owned());
    }
    if let Some(signal) = output.status.signal() {
        return ConfigTest::NotKnown(format!("php-fpm -tt was killed by signal {signal}"));
    }
    let errors: Vec<&str> = output_text.lines().filter(|line| line.contains("ERROR")).collect();
    let last = output_text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let why = match (errors.is_empty(), last) {
        (false, _) => errors.join("; "),
        (true, Some(last)) => last.to_owned(),
        (true, None) => format!("{}, without a message", output.status),
    };
    ConfigTest::Refuses(format!("php-fpm -tt rejects the configuration: {why}"))
}

/// The options of a unit's `ExecStart` that affect php-fpm's configuration. (Its own command line
/// is lost, since php-fpm overwrites it with its title.) Lines with quotes or variables are not
/// parsed.
fn options(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    if line.contains(['"', '\'', '$', '%', '\\']) {
        return found;
    }
    let mut words = line.split_whitespace().skip(1);
    while let Some(word) = words.next() {
        let is_long = LONG
            .iter()
            .any(|long| word.strip_prefix(long).is_some_and(|rest| rest.starts_with('=')));
        let is_short = SHORT.iter().any(|short| word.starts_with(short)) && !word.starts_with("--");
        if matches!(word, "-n" | "--no-php-ini") || is_long || (is_short && word.len() > 2) {
            found.push(word.to_owned());
        } else if is_short || LONG.contains(&word) {
            found.push(word.to_owned());
            found.extend(words.next().map(str::to_owned));
        }
    }
    found
}

/// The directory of a pattern such as `/etc/php/8.2/fpm/pool.d/*.conf`.
fn directory(pattern: &str) -> Option<PathBuf> {
    let directory = pattern.strip_suffix("/*.conf").or_else(|| pattern.strip_suffix("/*"))?;
    let is_plain = directory.starts_with('/') && !directory.contains(['*', '?', '[']);
    is_plain.then(|| PathBuf::from(directory))
}

/// The value of a pool's entry in the output of `php-fpm -tt`.
fn setting_of<'t>(output_text: &'t str, section: &str, name: &str) -> Option<&'t str> {
    let heading = format!("[{section}]");
    let mut lines = output_text
        .lines()
        .map(|line| line.split_once("NOTICE: ").map_or(line, |(_, rest)| rest).trim());
    lines.find(|line| line.eq_ignore_ascii_case(&heading))?;
    let own = lines.take_while(|line| !line.starts_with('['));
    let mut entries = own.filter_map(|line| line.split_once('='));
    entries.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_php_fpm_says_of_itself_is_understood() {
        let output_text = "[22-Nov-2026 15:00:00] NOTICE: [global]\n\
                    [22-Nov-2026 15:00:00] NOTICE: \tpid = undefined\n\
                    [22-Nov-2026 15:00:00] NOTICE:  \n\
                    [22-Nov-2026 15:00:00] NOTICE: [www]\n\
                    [22-Nov-2026 15:00:00] NOTICE: \tpm = static\n\
                    [22-Nov-2026 15:00:00] NOTICE: \tpm.max_children = 7\n\
                    [22-Nov-2026 15:00:00] NOTICE: [shop]\n\
                    [22-Nov-2026 15:00:00] NOTICE: \tpm.max_children = 9\n";
        assert_eq!(setting_of(output_text, "www", "pm.max_children"), Some("7"));
        assert_eq!(setting_of(output_text, "shop", "pm.max_children"), Some("9"));
        assert_eq!(setting_of(output_text, "none", "pm.max_children"), None);
    }

    /// The result of a test with this status and this output.
    fn ended(status: i32, output_text: &str) -> ConfigTest {
        tested(Ok(Output {
            status: std::process::ExitStatus::from_raw(status),
            stdout: Vec::new(),
            stderr: output_text.as_bytes().to_vec(),
        }))
    }

    #[test]
    fn only_a_test_that_ends_by_itself_refuses_and_it_is_said_why() {
        let refuses = |why: &str| {
            ConfigTest::Refuses(format!("php-fpm -tt rejects the configuration: {why}"))
        };
        assert_eq!(ended(0, "fine"), ConfigTest::Takes("fine".to_owned()));
        let output_text = "NOTICE: x\nERROR: a\nERROR: b\nmore\n";
        assert_eq!(ended(78 << 8, output_text), refuses("ERROR: a; ERROR: b"));
        let output_text = "php-fpm: error while loading shared libraries: libargon2.so.1\n\n";
        assert_eq!(ended(127 << 8, output_text), refuses(output_text.trim_end()));
        assert_eq!(ended(70 << 8, ""), refuses("exit status: 70, without a message"));
        let killed = ConfigTest::NotKnown("php-fpm -tt was killed by signal 9".to_owned());
        assert_eq!(ended(9, "ERROR: half a"), killed);
        let absent = tested(Err(io::ErrorKind::OutOfMemory.into()));
        assert!(
            matches!(&absent, ConfigTest::NotKnown(why) if why.contains("cannot be run")),
            "{absent:?}"
        );
    }

    #[test]
    fn only_a_program_of_roots_or_of_this_users_is_run() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(trusted(own).is_ok());
        assert!(trusted(i32::MAX).unwrap_err().contains("has ended"));
        if !maitred_os::users::is_root() {
            return eprintln!("skipped: only root can start a process of another user");
        }
        use std::os::unix::process::CommandExt;
        let mut foreign = std::process::Command::new("/bin/sleep");
        let mut foreign = foreign.arg("600").uid(65534).spawn().unwrap();
        let refused = trusted(i32::try_from(foreign.id()).unwrap());
        foreign.kill().unwrap();
        foreign.wait().unwrap();
        assert!(refused.unwrap_err().contains("is not root's"));
    }

    #[test]
    fn a_test_that_cannot_be_run_keeps_no_reload_from_putting_things_back() {
        let fpm = FpmServer {
            config: "/nowhere/php-fpm.conf".to_owned(),
            section: "www".to_owned(),
            drop_in: PathBuf::from("/nowhere/pool.d").join(DROP_IN),
            is_maitred: false,
            unit: None,
            options: Vec::new(),
            starts_some: true,
        };
        let master = |pid| Master { pid, began: None, title: String::new(), user: None };
        // No process has this id.
        assert_eq!(fpm.refusal(&master(i32::MAX)), None);
        assert!(fpm.check(&master(i32::MAX), None).is_err(), "nothing new is tried");
        // This program does not know these options.
        let here = master(std::process::id() as i32);
        let why = fpm.refusal(&here).expect("a code that is not 0");
        assert!(why.contains("rejects the configuration: "), "{why}");
        assert_eq!(fpm.check(&here, None), Err(why));
    }

    #[test]
    fn what_a_unit_starts_php_fpm_with_is_known_to_its_test() {
        let found = options(
            "/usr/sbin/php-fpm8.2 --nodaemonize --fpm-config /etc/f.conf -c /etc/i.ini -n -dx=1 \
             --prefix=/srv",
        );
        assert_eq!(found, ["-c", "/etc/i.ini", "-n", "-dx=1", "--prefix=/srv"]);
        assert_eq!(options("/usr/sbin/php-fpm8.2 -p $PREFIX"), [""; 0]);
        assert_eq!(options("/usr/sbin/php-fpm8.2 --pid /run/f.pid"), [""; 0]);
    }

    #[test]
    fn only_a_folder_that_is_read_whole_takes_a_file() {
        let found = directory("/etc/php/8.2/fpm/pool.d/*.conf");
        assert_eq!(found, Some(PathBuf::from("/etc/php/8.2/fpm/pool.d")));
        assert_eq!(directory("/etc/php/*/pool.d/*.conf"), None);
        assert_eq!(directory("/etc/php/www.conf"), None);
    }
}
