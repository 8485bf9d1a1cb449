//! Processor time and family of a process (`/proc/PID/stat`, proc_pid_stat(5)), and the processor
//! time of the machine (`/proc/stat`, proc_stat(5)).

use std::fmt::Display;
use std::str::FromStr;

use super::read;

/// Columns of the line `cpu` since Linux 2.6.11: user, nice, system, idle, iowait, irq, softirq,
/// steal.
const CPU_COLUMNS: usize = 8;

/// The line of `/proc/PID/stat`.
#[derive(Debug, Clone)]
pub struct Stat {
    /// Process id.
    pub pid: i32,
    /// From the third field on.
    fields: String,
}

impl Stat {
    /// The second field, the program's name in parentheses, may hold anything.
    pub fn parse(line: &str) -> Option<Stat> {
        let (pid, _) = line.split_once(' ')?;
        let (_, fields) = line.rsplit_once(") ")?;
        Some(Stat { pid: pid.parse().ok()?, fields: fields.to_owned() })
    }

    /// Of a process now.
    pub fn of(pid: impl Display) -> Option<Stat> {
        Stat::parse(&read(pid, "stat")?)
    }

    /// A field by its number in the manual, from 3 on.
    pub fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        let mut fields = self.fields.split_ascii_whitespace();
        fields.nth(number.checked_sub(3)?)?.parse().ok()
    }

    /// The parent's process id.
    pub fn parent(&self) -> Option<i32> {
        self.field(4)
    }

    /// The state: `R` runs or could, `S` sleeps, `D` sleeps and no signal wakes it.
    pub fn state(&self) -> Option<char> {
        self.field(3)
    }

    /// Whether it has ended and its parent has not collected it yet.
    pub fn has_ended(&self) -> bool {
        self.state().is_none_or(|state| "ZX".contains(state))
    }

    /// Its processor time and that of children it has collected, in clock ticks.
    pub fn ticks(&self) -> Option<u64> {
        (14..=17).map(|number| self.field::<u64>(number)).sum()
    }

    /// Its start, in clock ticks since the boot: together with the id it is unique.
    pub fn started(&self) -> Option<u64> {
        self.field(22)
    }
}

/// Processor time of the machine by kind, in clock ticks, from `/proc/stat`.
pub fn cpu_ticks(text: &str) -> Option<[u64; CPU_COLUMNS]> {
    let line = super::value(text, "cpu")?;
    let columns = line.split_ascii_whitespace().take(CPU_COLUMNS);
    let ticks: Result<Vec<u64>, _> = columns.map(str::parse).collect();
    ticks.ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_program_is_called() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 1 20 0 1 0 9 8 7";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.pid, stat.parent(), stat.ticks()), (42, Some(7), Some(124)));
        assert_eq!((stat.started(), stat.has_ended()), (Some(9), false));
        assert_eq!(stat.state(), Some('S'));
        assert_eq!(stat.field::<u64>(51), None);
        assert!(Stat::parse("42 (x) Z 1").unwrap().has_ended());
        assert!(Stat::parse("42").is_none());
        assert!(Stat::of(i32::MAX).is_none());
    }

    #[test]
    fn the_time_of_all_processors_is_read() {
        let text = "cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(cpu_ticks(text), Some([100, 20, 30, 4000, 50, 6, 7, 8]));
        assert_eq!((cpu_ticks("cpu  1 2 3\n"), cpu_ticks("intr 1\n")), (None, None));
    }
}
