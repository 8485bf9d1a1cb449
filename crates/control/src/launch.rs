//! What a command or a schedule of a pool is started with: the supervisor writes it into an
//! anonymous file, which the PHP program reads, before it becomes the command.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ZygoteSettings;

/// The argument that makes the PHP program start a command.
pub const LAUNCH_ROLE: &str = "launch";

/// The argument that makes the PHP program print the path of PHP's command line of its version.
pub const CLI_ROLE: &str = "cli";

/// Exit code of a command that could not be started, as that of shells.
pub const NOT_STARTED: i32 = 127;

/// What a command is started with in the foreground.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForegroundLaunch {
    /// Its settings.
    pub launch: Launch,
    /// The program that becomes the command.
    pub program: PathBuf,
    /// The file by which a process enters the pool's control group, if it has one.
    pub group: Option<PathBuf>,
    /// The memory in which its application counts.
    #[serde(default)]
    pub counts: Option<ServerFile>,
}

/// An open file of the server, which another process may copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFile {
    /// The process that has it open.
    pub pid: i32,
    /// Its descriptor there.
    pub number: i32,
}

/// How a command gives way to the pool's workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchPolicy {
    /// Not beyond its nice value.
    #[default]
    Normal,
    /// When it wakes up.
    Batch,
    /// Always.
    Idle,
}

/// A priority of disk accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchIo {
    /// Only while no other process wants the disk.
    Idle,
    /// From 0, the highest, to 7.
    BestEffort(u8),
}

/// A command to start. It ends with the process that `settings.supervisor` is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The settings of its pool: user, limits, environment, PHP.
    pub settings: ZygoteSettings,
    /// The name that its messages have: `command` or `schedule`, and the name.
    pub title: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// PHP's command line, if that is the program.
    pub php: Option<PathBuf>,
    /// Its working directory, if not the pool's.
    pub dir: Option<PathBuf>,
    /// The memory in which the application counts is the second descriptor.
    #[serde(default)]
    pub counts: bool,
    /// What its nice value is more than that of the pool.
    #[serde(default)]
    pub nicer: i32,
    /// How it gives way to the pool's workers beyond that.
    #[serde(default)]
    pub policy: LaunchPolicy,
    /// The priority of its disk accesses.
    #[serde(default)]
    pub io: Option<LaunchIo>,
}
