//! What only PHP knows: its version, its modules, `phpinfo()`. Asked of the program that runs PHP.

use std::io::Write;
use std::process::Command;

use super::flags::Php;
use super::{EXIT_OK, EXIT_SOFTWARE};

/// The role in which the PHP program answers.
const ROLE: &str = "fpm-info";

/// Shows `what` on standard output, as php-fpm does: `version`, `modules` or `phpinfo`.
pub fn show(what: &str, php: &Php, version: Option<&str>) -> u8 {
    let done = command(what, php, version).and_then(|mut command| {
        let program = command.get_program().to_string_lossy().into_owned();
        let status = command.status();
        status.map_err(|why| format!("{program} could not be started: {why}"))
    });
    match done {
        Ok(status) if status.success() => EXIT_OK,
        // It has said why.
        Ok(_) => EXIT_SOFTWARE,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "php-fpm: {why}");
            EXIT_SOFTWARE
        }
    }
}

/// What PHP says of where its server's configuration is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Where {
    /// Its branch, as `8.2`.
    pub branch: Option<String>,
    /// `fpm.config` of php.ini.
    pub config: Option<String>,
}

/// Asks PHP where its server's configuration is. One that cannot be asked says nothing.
pub fn ask_where(php: &Php, version: Option<&str>) -> Where {
    let answer = command("where", php, version).and_then(|mut command| {
        let output = command.output().map_err(|why| why.to_string())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    read_where(&answer.unwrap_or_default())
}

/// Two lines: the branch, and the file if one is named.
fn read_where(answer: &str) -> Where {
    let mut lines = answer.lines().map(|line| match line {
        "" => None,
        line => Some(line.to_owned()),
    });
    Where {
        branch: lines.next().flatten(),
        config: lines.next().flatten(),
    }
}

fn command(what: &str, php: &Php, version: Option<&str>) -> Result<Command, String> {
    let program = maitred_supervisor::php_program(version).map_err(|why| why.to_string())?;
    let mut command = Command::new(program);
    command.args([ROLE, what]);
    if let Some(ini) = &php.ini {
        command.arg("-c").arg(ini);
    }
    if php.no_ini {
        command.arg("-n");
    }
    for (name, value) in &php.defines {
        command.args(["-d", &format!("{name}={value}")]);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_leave_the_file_out_and_no_answer_says_nothing() {
        let found = read_where("8.2\n/etc/fpm.conf\n");
        assert_eq!(found.branch.as_deref(), Some("8.2"));
        assert_eq!(found.config.as_deref(), Some("/etc/fpm.conf"));
        assert_eq!(read_where("8.2\n\n").config, None);
        assert_eq!(read_where(""), Where::default());
    }
}
