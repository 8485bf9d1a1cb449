//! The command and the schedule of the server: a consumer that is alive after each fault, and runs
//! of which each time has one at most.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use maitred_tests::server::{give_to_web_user, public_folder};
use tempfile::TempDir;

/// What the title of the consumer contains.
pub const CONSUMER: &str = "touch(beat)";

/// Their files.
#[derive(Debug)]
pub struct Jobs {
    folder: TempDir,
}

impl Jobs {
    /// Makes their folder.
    pub fn new() -> Jobs {
        let folder = public_folder();
        give_to_web_user(folder.path());
        Jobs { folder }
    }

    /// The sections of the pool.
    pub fn sections(&self) -> String {
        let dir = format!("dir = {:?}", self.folder.path());
        let consumer = "while (true) { touch('beat'); usleep(100000); } // touch(beat)";
        let tick = "echo $MAITRED_DUE >> ticks";
        format!(
            "\n[[pools.www.commands]]\nname = \"consumer\"\n{dir}\nrestart_delay_max = \"1s\"\n\
             command = [\"php\", \"-r\", {consumer:?}]\n\
             \n[[pools.www.schedules]]\nname = \"tick\"\n{dir}\nevery = \"2s\"\n\
             command = [\"sh\", \"-c\", {tick:?}]\n"
        )
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Whether the consumer has done something since then.
    pub fn is_alive_since(&self, from: SystemTime) -> bool {
        let beat = fs::metadata(self.file("beat")).and_then(|beat| beat.modified());
        beat.is_ok_and(|beat| beat > from)
    }

    /// What is wrong with the runs of the schedule.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self) -> Result<usize, String> {
        let text = fs::read_to_string(self.file("ticks")).unwrap_or_default();
        let mut due: Vec<&str> = text.lines().collect();
        let runs = due.len();
        due.sort_unstable();
        if let Some(twice) = due.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("the schedule has run twice for what was due at {}", twice[0]));
        }
        if runs == 0 {
            return Err("the schedule has not run".to_owned());
        }
        Ok(runs)
    }
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_with_two_runs_is_found() {
        let jobs = Jobs::new();
        assert!(jobs.check().is_err());
        fs::write(jobs.file("ticks"), "2\n4\n8\n6\n").unwrap();
        assert_eq!(jobs.check(), Ok(4));
        fs::write(jobs.file("ticks"), "2\n4\n8\n4\n").unwrap();
        assert!(jobs.check().is_err());
        assert!(!jobs.is_alive_since(SystemTime::UNIX_EPOCH));
    }
}
