//! Presets for the command lines of other tools: `--as siege -c50 -b -t1m -f urls.txt`.

use maitred_measure::other_tools::Tool;

use super::options::Run;

/// A given argument: the first of its names, and its value, if it takes one.
type GivenArgument<'a> = (&'static str, &'a str);

/// An argument of a tool: its names, and whether a value follows.
type KnownArgument = (&'static [&'static str], bool);

/// The arguments of each tool that are supported or ignored.
fn known(tool: Tool) -> &'static [KnownArgument] {
    match tool {
        Tool::Ab => &[
            (&["-n"], true),
            (&["-c"], true),
            (&["-t"], true),
            (&["-s"], true),
            (&["-H"], true),
            (&["-C"], true),
            (&["-p"], true),
            (&["-T"], true),
            (&["-m"], true),
            (&["-k"], false),
            (&["-i"], false),
            (&["-q"], false),
            (&["-r"], false),
            (&["-l"], false),
        ],
        Tool::Siege => &[
            (&["-c", "--concurrent"], true),
            (&["-t", "--time"], true),
            (&["-r", "--reps"], true),
            (&["-d", "--delay"], true),
            (&["-f", "--file"], true),
            (&["-H", "--header"], true),
            (&["-b", "--benchmark"], false),
            (&["-i", "--internet"], false),
            (&["-q", "--quiet"], false),
            (&["-v", "--verbose"], false),
        ],
        Tool::Wrk => &[
            (&["-t", "--threads"], true),
            (&["-c", "--connections"], true),
            (&["-d", "--duration"], true),
            (&["-H", "--header"], true),
            (&["-R", "--rate"], true),
            (&["--timeout"], true),
            (&["--latency", "-L"], false),
        ],
        Tool::Locust => &[
            (&["-u", "--users"], true),
            (&["-r", "--spawn-rate"], true),
            (&["-t", "--run-time"], true),
            (&["-H", "--host"], true),
            (&["--headless"], false),
        ],
        Tool::Blitz => &[(&["-p", "--pattern"], true), (&["-T", "--timeout"], true)],
        Tool::K6 => &[
            (&["-u", "--vus"], true),
            (&["-d", "--duration"], true),
            (&["-i", "--iterations"], true),
            (&["--rps"], true),
            (&["-q", "--quiet"], false),
        ],
    }
}

/// Applies the other tool's command line to `run`, in addition to `run`'s other flags.
///
/// # Errors
/// One sentence, for an unknown or wrong argument.
pub fn apply(run: &Run) -> Result<(Tool, Run), String> {
    let (name, rest) = run.preset.split_first().ok_or("--as needs a tool's name")?;
    let tool = Tool::named(name).ok_or_else(|| {
        format!("'{name}' is no tool that is known: ab, siege, wrk, locust, blitz, k6")
    })?;
    let (given, urls) = read(tool, rest)?;
    let mut run = Run { preset: Vec::new(), urls, ..run.clone() };
    // None of them warms up.
    run.load.warm_up.get_or_insert_with(|| "0".to_owned());
    if tool == Tool::Siege {
        // As its siegerc has it.
        run.request.no_keepalive = true;
        run.request.follow = true;
        run.request.in_order = true;
        run.load.users = Some(25);
    }
    if tool == Tool::Ab {
        run.request.no_keepalive = true;
        (run.load.users, run.load.requests) = (Some(1), Some(1));
        run.load.timeout = "30s".to_owned();
    }
    if tool == Tool::Wrk {
        run.load.users = Some(10);
        run.load.duration = Some("10s".to_owned());
        run.load.timeout = "2s".to_owned();
    }
    if matches!(tool, Tool::Locust | Tool::K6) {
        run.load.users = Some(1);
    }
    if tool == Tool::Blitz {
        run.load.timeout = "1s".to_owned();
    }
    for (argument, value) in &given {
        set(tool, &mut run, argument, value)?;
    }
    finish(tool, &mut run, &given)?;
    Ok((tool, run))
}

fn read(tool: Tool, words: &[String]) -> Result<(Vec<GivenArgument<'_>>, Vec<String>), String> {
    let (mut given, mut urls) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            urls.push(word.clone());
            continue;
        }
        let unknown = || format!("{}'s {word} is not known here", tool.name());
        let fits = |name: &str| {
            let rest = word.strip_prefix(name)?;
            let long = name.starts_with("--");
            match (rest.strip_prefix('='), rest) {
                (_, "") => Some(None),
                (Some(value), _) => Some(Some(value)),
                // -c50
                (None, value) => (!long).then_some(Some(value)),
            }
        };
        let found = known(tool).iter().find_map(|(names, takes)| {
            let attached = names.iter().find_map(|name| fits(name))?;
            Some((names.first().copied()?, *takes, attached))
        });
        match found {
            None | Some((_, false, Some(_))) => return Err(unknown()),
            Some((name, false, None)) => given.push((name, "")),
            Some((name, true, Some(value))) => given.push((name, value)),
            Some((name, true, None)) => {
                let missing = || format!("{}'s {word} needs a value", tool.name());
                given.push((name, words.next().ok_or_else(missing)?));
            }
        }
    }
    Ok((given, urls))
}

fn count(value: &str) -> Result<usize, String> {
    value.parse().map_err(|_| format!("'{value}' is no number"))
}

fn set(tool: Tool, run: &mut Run, argument: &str, value: &str) -> Result<(), String> {
    let (load, request) = (&mut run.load, &mut run.request);
    match (tool, argument) {
        (Tool::Ab, "-n") => load.requests = Some(count(value)? as u64),
        (Tool::Ab | Tool::Siege | Tool::Wrk, "-c") => load.users = Some(count(value)?),
        (Tool::Ab, "-t") => {
            load.duration = Some(format!("{value}s"));
            load.requests = None;
        }
        (Tool::Ab, "-s") => load.timeout = format!("{value}s"),
        (Tool::Ab, "-C") => request.header.push(format!("Cookie: {value}")),
        (Tool::Ab, "-p") => request.data = Some(format!("@{value}")),
        (Tool::Ab, "-T") => request.header.push(format!("Content-Type: {value}")),
        (Tool::Ab, "-m") => request.method = Some(value.to_owned()),
        (Tool::Ab, "-i") => request.method = Some("HEAD".to_owned()),
        (Tool::Ab, "-k") => request.no_keepalive = false,
        (Tool::Siege, "-t") => load.duration = Some(siege_time(value)),
        (Tool::Siege, "-d") => load.think = Some(format!("0s..{value}s")),
        (Tool::Siege, "-f") => request.urls_file = Some(value.into()),
        (Tool::Siege, "-i") => request.in_order = false,
        (Tool::Wrk, "-t") => load.threads = Some(count(value)?),
        (Tool::Wrk | Tool::K6, "-d") | (Tool::Locust, "-t") => {
            load.duration = Some(value.to_owned())
        }
        (Tool::Wrk, "--timeout") => load.timeout = value.to_owned(),
        (Tool::Locust, "-H") => run.urls.push(value.to_owned()),
        (Tool::Ab | Tool::Siege | Tool::Wrk, "-H") => request.header.push(value.to_owned()),
        (Tool::Locust | Tool::K6, "-u") => load.users = Some(count(value)?),
        (Tool::K6, "-i") => load.requests = Some(count(value)? as u64),
        (Tool::Blitz, "-p") => blitz_pattern(run, value)?,
        (Tool::Blitz, "-T") => load.timeout = format!("{value}ms"),
        // What needs others, and what changes only what the tool itself prints.
        _ => {}
    }
    Ok(())
}

/// What depends on several arguments.
fn finish(tool: Tool, run: &mut Run, given: &[GivenArgument<'_>]) -> Result<(), String> {
    let value =
        |name: &str| given.iter().rfind(|(known, _)| *known == name).map(|(_, value)| *value);
    let load = &mut run.load;
    match tool {
        Tool::Siege => {
            if let Some(reps) = value("-r") {
                let users = load.users.unwrap_or(1);
                load.requests = Some((count(reps)? * users) as u64);
            }
        }
        Tool::Wrk | Tool::K6 => {
            let name = if tool == Tool::Wrk { "-R" } else { "--rps" };
            if let Some(rate) = value(name) {
                // wrk2's rate, and k6's: an open loop over this number of connections.
                load.connections = load.users.take();
                load.rate = Some(rate.to_owned());
            }
        }
        Tool::Locust => {
            if let (Some(rate), Some(users)) = (value("-r"), load.users) {
                let rate: f64 = rate.parse().map_err(|_| format!("'{rate}' is no number"))?;
                load.ramp_up = Some(format!("{}s", users as f64 / rate.max(1e-3)));
            }
        }
        Tool::Blitz if value("-p").is_none() => {
            return Err("blitz needs a pattern such as -p 1-250:60".to_owned());
        }
        Tool::Ab | Tool::Blitz => {}
    }
    Ok(())
}

/// Reads `60s`, `1M`, `1h`; without a unit they are minutes.
fn siege_time(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    if text.ends_with(|last: char| last.is_ascii_digit()) { text + "m" } else { text }
}

/// Reads `1-250:60`: from 1 to 250 users in 60 seconds.
fn blitz_pattern(run: &mut Run, text: &str) -> Result<(), String> {
    let wrong = || format!("'{text}' is no pattern; expected one such as 1-250:60");
    let (users, seconds) = text.split_once(':').ok_or_else(wrong)?;
    let (_, most) = users.split_once('-').ok_or_else(wrong)?;
    run.load.users = Some(count(most)?);
    run.load.duration = Some(format!("{seconds}s"));
    run.load.ramp_up = Some(format!("{seconds}s"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Maitred};
    use clap::Parser;

    fn run(words: &str) -> Result<(Tool, Run), String> {
        let line = format!("maitred bench --as {words}");
        let read = Maitred::try_parse_from(line.split(' ')).map_err(|why| why.to_string())?;
        let Command::Bench(bench) = read.command else { panic!("bench") };
        apply(&bench.run)
    }

    #[test]
    fn each_tools_usual_arguments_are_understood() {
        let (_, ab) = run("ab -n 1000 -c 10 -k http://a/").expect("ab's");
        assert_eq!((ab.load.users, ab.load.requests), (Some(10), Some(1_000)));
        assert!(!ab.request.no_keepalive && ab.urls == ["http://a/"]);
        let (_, siege) = run("siege -c50 -i -b -t1m -f urls.txt").expect("siege's");
        assert_eq!((siege.load.users, siege.load.duration.as_deref()), (Some(50), Some("1m")));
        assert!(!siege.request.in_order && siege.request.no_keepalive);
        let (_, wrk) = run("wrk -t2 -c100 -d30s --latency http://a/").expect("wrk's");
        assert_eq!((wrk.load.users, wrk.load.threads), (Some(100), Some(2)));
        let (_, wrk2) = run("wrk -c100 -d30s -R2000 http://a/").expect("wrk2's");
        assert_eq!((wrk2.load.users, wrk2.load.connections), (None, Some(100)));
        assert_eq!(wrk2.load.rate.as_deref(), Some("2000"));
        let (_, locust) = run("locust -u 100 -r 10 -t 5m --host=http://a/").expect("locust's");
        assert_eq!(locust.load.ramp_up.as_deref(), Some("10s"));
        let (_, blitz) = run("blitz -p 1-250:60 http://a/").expect("blitz's");
        assert_eq!((blitz.load.users, blitz.load.ramp_up.as_deref()), (Some(250), Some("60s")));
        let (_, k6) = run("k6 --vus 10 --iterations=100 http://a/").expect("k6's");
        assert_eq!((k6.load.users, k6.load.requests), (Some(10), Some(100)));
    }

    #[test]
    fn what_a_tool_does_not_know_is_refused() {
        for (words, why) in [
            ("hey http://a/", "no tool that is known"),
            ("ab -Z http://a/", "ab's -Z is not known here"),
            ("ab http://a/ -n", "ab's -n needs a value"),
            ("ab -n many http://a/", "'many' is no number"),
            ("blitz http://a/", "needs a pattern"),
            ("wrk -s script.lua http://a/", "wrk's -s is not known here"),
        ] {
            let said = run(words).expect_err(words);
            assert!(said.contains(why), "{said}");
        }
    }
}
