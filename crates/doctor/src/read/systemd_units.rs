//! systemd units, from their files: systemd itself, which may not run here, is not queried.

use super::world::World;
use crate::facts::{Fact, Unit};

/// The folders of units, in order of precedence (systemd.unit(5)).
const FOLDERS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// A unit with its drop-ins. `None` if there is no unit of this name.
pub(super) fn unit(world: &World, name: &str) -> Fact<Option<Unit>> {
    let mut text = None;
    for folder in FOLDERS {
        if text.is_none() {
            text = world.read_or_none(&format!("{folder}/{name}"))?;
        }
    }
    let Some(text) = text else {
        return Ok(None);
    };
    let mut unit = Unit { name: name.to_owned(), ..Unit::default() };
    add(&mut unit, &text);
    let mut further: Vec<String> = Vec::new();
    for folder in FOLDERS.iter().rev() {
        further.extend(world.glob(&format!("{folder}/{name}.d/*.conf")));
    }
    // Drop-ins apply by their names, in whichever folder.
    further.sort_by_key(|file| file.rsplit('/').next().map(str::to_owned));
    for file in further {
        add(&mut unit, &world.read(&file)?);
    }
    Ok(Some(unit))
}

fn add(unit: &mut Unit, text: &str) {
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';', '[']) {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        match value.trim() {
            "" => unit.settings.remove(name.trim()),
            value => unit.settings.insert(name.trim().to_owned(), value.to_owned()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_drop_in_goes_before_the_unit_and_may_take_a_setting_away() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("lib/systemd/system");
        let drop_ins = root.path().join("etc/systemd/system/a.service.d");
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::create_dir_all(&drop_ins).unwrap();
        let text = "[Service]\n# x\nOOMPolicy=stop\nExecStop=/bin/true\n";
        std::fs::write(lib.join("a.service"), text).unwrap();
        std::fs::write(drop_ins.join("10.conf"), "[Service]\nOOMPolicy=continue\nExecStop=\n")
            .unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(1));
        let unit = unit(&world, "a.service").unwrap().unwrap();
        assert_eq!(unit.settings["OOMPolicy"], "continue");
        assert!(!unit.settings.contains_key("ExecStop"));
        assert_eq!(super::unit(&world, "b.service"), Ok(None));
    }
}
