//! Each directive with wrong values, and the whole sentence about each.

use maitred_config::directives::{
    cache, global, jobs, listeners, output, pools, rules, sites, tls, trace_export,
};

use crate::folder::Folder;

/// A valid file except for `line`, and the number of that line.
fn file_with(section: &str, line: &str) -> (String, usize) {
    match section {
        "top" => (format!("{line}\n[[sites]]\nroot = \"public\"\n"), 1),
        "pools" => (format!("[pools.www]\n{line}\n[[sites]]\nroot = \"public\"\n"), 2),
        "listeners" => {
            let beside = [
                ("listen =", "listen = \"/run/www.sock\"\n"),
                ("status_listen =", "status_listen = \"127.0.0.1:9001\"\n"),
                ("access_log =", "access_log = \"www.log\"\n"),
            ];
            let beside = beside.iter().filter(|(name, _)| !line.starts_with(name));
            let beside: String = beside.map(|(_, text)| *text).collect();
            (format!("[pools.www]\n{line}\n{beside}"), 2)
        }
        "commands" | "schedules" => {
            let own = [
                ("name =", "name = \"mails\"\n"),
                ("command =", "command = [\"true\"]\n"),
                ("every =", if section == "commands" { "" } else { "every = \"1m\"\n" }),
            ];
            let own = own.iter().filter(|(name, _)| match *name {
                "every =" => !["every =", "at =", "cron ="].iter().any(|own| line.starts_with(own)),
                name => !line.starts_with(name),
            });
            let own: String = own.map(|(_, text)| *text).collect();
            // What they belong to.
            let scaled = ["probe", "min_processes", "max_processes", "jobs_per_process"];
            let own = match scaled.iter().any(|name| line.starts_with(name)) {
                false => own,
                true if line.starts_with("probe =") => format!("{own}processes = \"auto\"\n"),
                true => format!("{own}processes = \"auto\"\nprobe = [\"true\"]\n"),
            };
            let site = "[[sites]]\nroot = \"public\"\npool = \"www\"\n";
            (format!("[pools.www]\n[[pools.www.{section}]]\n{line}\n{own}{site}"), 3)
        }
        "tls" => {
            let beside = [
                ("certificates =", "certificates = { cert = \"site.pem\", key = \"site.key\" }\n"),
                ("client_ca =", "client_ca = \"clients.pem\"\n"),
                ("client_certificates =", "client_certificates = \"optional\"\n"),
            ];
            let beside = beside.iter().filter(|(name, _)| !line.starts_with(name));
            let beside: String = beside.map(|(_, text)| *text).collect();
            let site = "[[sites]]\nroot = \"public\"\n";
            (format!("listen = \":80\"\n[tls]\n{line}\n{beside}{site}"), 3)
        }
        "traces" => (format!("[[sites]]\nroot = \"public\"\n[traces]\n{line}\n"), 4),
        "cache" => (format!("[[sites]]\nroot = \"public\"\n[sites.cache]\n{line}\n"), 4),
        _ if line.starts_with("root") => (format!("[[sites]]\n{line}\n"), 2),
        _ => (format!("[[sites]]\n{line}\nroot = \"public\"\n"), 2),
    }
}

/// A wrong value: the section, the line, and its sentence.
fn wrong_values() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut blocks = include_str!("wrong_values.txt").split("\n\n");
    blocks.next();
    let read = |block: &'static str| {
        let (setting, sentence) = block.split_once("\n  ").unwrap();
        let (section, line) = setting.split_once(": ").unwrap();
        (section, line, sentence.trim_end())
    };
    blocks.map(read).collect()
}

#[test]
fn each_wrong_value_is_answered_with_its_sentence() {
    let folder = Folder::new();
    for (section, line, sentence) in wrong_values() {
        let (text, number) = file_with(section, line);
        // A mistake inside of a value starts with its own column.
        let own = sentence.split_once(": ");
        let own = own.and_then(|(column, rest)| Some((column.parse().ok()?, rest)));
        let (column, sentence) = own.unwrap_or((line.find(" = ").unwrap() + 4, sentence));
        let expected = format!("maitred.toml:{number}:{column}: {sentence}");
        assert_eq!(folder.mistakes(&text), expected, "{line}");
    }
}

#[test]
fn no_directive_is_without_a_wrong_value() {
    let tested = |section: &str, name: &str| {
        let start = format!("{name} = ");
        wrong_values().iter().any(|wrong| wrong.0 == section && wrong.1.starts_with(&start))
    };
    let top = global::DIRECTIVES.iter().map(|directive| ("top", directive.name));
    let pools = pools::DIRECTIVES.iter().map(|directive| ("pools", directive.name));
    let sites = sites::DIRECTIVES.iter().map(|directive| ("sites", directive.name));
    let of_rules = rules::DIRECTIVES.iter().map(|directive| ("sites", directive.name));
    let of_output = output::DIRECTIVES.iter().map(|directive| ("sites", directive.name));
    let listeners = listeners::DIRECTIVES.iter().map(|directive| ("listeners", directive.name));
    let commands = jobs::COMMANDS.iter().map(|directive| ("commands", directive.name));
    let schedules = jobs::SCHEDULES.iter().map(|directive| ("schedules", directive.name));
    let tls = tls::DIRECTIVES.iter().map(|directive| ("tls", directive.name));
    let of_traces = trace_export::DIRECTIVES.iter().map(|directive| ("traces", directive.name));
    let of_cache = cache::DIRECTIVES.iter().map(|directive| ("cache", directive.name));
    for (section, name) in top
        .chain(tls)
        .chain(pools)
        .chain(listeners)
        .chain(sites)
        .chain(of_rules)
        .chain(of_output)
        .chain(of_cache)
        .chain(commands)
        .chain(schedules)
        .chain(of_traces)
    {
        assert!(tested(section, name), "wrong_values.txt has no wrong `{name}` in {section}");
    }
}

#[test]
fn no_directive_takes_a_date() {
    let folder = Folder::new();
    let check = |section: &str, name: &str, takes: &str| {
        let (text, line) = file_with(section, &format!("{name} = 1979-05-27"));
        let column = name.len() + 4;
        let expected =
            format!("maitred.toml:{line}:{column}: `{name}` is a date or time; expected {takes}");
        assert_eq!(folder.mistakes(&text), expected);
    };
    global::DIRECTIVES.iter().for_each(|directive| check("top", directive.name, directive.takes));
    cache::DIRECTIVES.iter().for_each(|directive| check("cache", directive.name, directive.takes));
    trace_export::DIRECTIVES
        .iter()
        .for_each(|directive| check("traces", directive.name, directive.takes));
    tls::DIRECTIVES.iter().for_each(|directive| check("tls", directive.name, directive.takes));
    pools::DIRECTIVES.iter().for_each(|directive| check("pools", directive.name, directive.takes));
    listeners::DIRECTIVES
        .iter()
        .for_each(|directive| check("listeners", directive.name, directive.takes));
    sites::DIRECTIVES.iter().for_each(|directive| check("sites", directive.name, directive.takes));
    rules::DIRECTIVES.iter().for_each(|directive| check("sites", directive.name, directive.takes));
    jobs::COMMANDS.iter().for_each(|directive| check("commands", directive.name, directive.takes));
    jobs::SCHEDULES
        .iter()
        .for_each(|directive| check("schedules", directive.name, directive.takes));
    output::DIRECTIVES.iter().for_each(|directive| check("sites", directive.name, directive.takes));
}
