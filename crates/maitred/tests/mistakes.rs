//! `maitred check` with the mistakes that people make: each message says what is wrong, where, and
//! what to do. What only a running server meets (a port in use, a port below 1024) is not here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

struct Case {
    title: &'static str,
    text: String,
    output: Vec<&'static str>,
}

fn cases() -> Vec<Case> {
    let mut blocks = include_str!("mistakes.txt").split("\n\n");
    blocks.next();
    let read = |block: &'static str| {
        let mut lines = block.lines();
        let title = lines.next().unwrap_or_default();
        let (text, output): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("    "));
        let text: String = text.iter().map(|line| format!("{}\n", &line[4..])).collect();
        let text = text.replace("\\r", "\r").replace("\\u{feff}", "\u{feff}");
        Case { title, text, output }
    };
    blocks.map(read).collect()
}

/// Whether `line` is `pattern`, in which `…` stands for anything.
fn fits(line: &str, pattern: &str) -> bool {
    let parts: Vec<&str> = pattern.split('…').collect();
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return false };
    if parts.len() == 1 {
        return line == *first;
    }
    line.strip_prefix(first).is_some_and(|rest| rest.ends_with(last))
}

#[test]
fn each_mistake_is_answered_with_what_is_wrong_where_and_what_to_do() {
    let cases = cases();
    assert!(cases.len() >= 50, "only {} mistakes", cases.len());
    let mut wrong = Vec::new();
    for Case { title, text, output } in cases {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("public")).unwrap();
        fs::write(folder.path().join("plain.txt"), "text").unwrap();
        fs::write(folder.path().join("nope.ini"), "extension = nope\n").unwrap();
        fs::write(folder.path().join("m.toml"), text).unwrap();
        let check = Command::new(env!("CARGO_BIN_EXE_maitred"))
            .args(["check", "m.toml"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let all = [check.stderr, check.stdout].concat();
        let all = String::from_utf8(all).unwrap().replace("maitred: ", "");
        let all = all.replace(folder.path().to_str().unwrap(), "DIR");
        // Another program of this machine may use port 80 or 8080.
        let is_ours = |line: &&str| !line.contains(" now: a start fails");
        let lines: Vec<&str> = all.lines().filter(is_ours).collect();
        let is_right = output == ["m.toml is right: 1 site, 1 pool"];
        let code = if is_right { 0 } else { 2 };
        let mut pairs = lines.iter().zip(&output);
        let is_same = lines.len() == output.len() && pairs.all(|(line, line2)| fits(line, line2));
        if !is_same || check.status.code() != Some(code) {
            wrong.push(format!("{title}, exit code {:?}:\n{all}", check.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
