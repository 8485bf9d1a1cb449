//! php.ini, with its additional files and a pool's entries.

use maitred_config::fpm::{Statement, read_line};

use super::world::World;
use crate::facts::{Fact, Ini, Unknown};

/// The php.ini at `file` and the additional files of the folder `beside`.
pub(super) fn read(world: &World, file: &str, beside: &str) -> Fact<Ini> {
    let mut ini = Ini { version: version(file), ..Ini::default() };
    add(&mut ini, &world.read(file)?);
    for further in world.glob(&format!("{beside}/*.ini")) {
        add(&mut ini, &world.read(&further)?);
    }
    Ok(ini)
}

/// The version in a path such as Debian's `/etc/php/8.2/fpm/php.ini`.
fn version(file: &str) -> Option<(u32, u32)> {
    let mut parts = file.split('/').filter_map(|part| part.split_once('.'));
    parts.find_map(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
}

fn add(ini: &mut Ini, text: &str) {
    for line in text.lines() {
        let (statements, _) = read_line(line, &|name| std::env::var(name).ok());
        for statement in statements {
            match statement {
                // Sections such as [HOST=…] apply to some requests only.
                Statement::Section(name) if name.contains('=') => return,
                Statement::Entry { name, value } => set(ini, &name, value.unwrap_or_default()),
                Statement::Section(_) | Statement::Item { .. } => {}
            }
        }
    }
}

fn set(ini: &mut Ini, name: &str, value: String) {
    if name == "zend_extension" {
        ini.zend_extensions.push(value);
    } else {
        ini.entries.insert(name.to_owned(), value);
    }
}

/// A pool's entries.
pub(super) fn add_pools<'p>(ini: &mut Ini, of_pool: impl Iterator<Item = (&'p str, &'p str)>) {
    for (name, value) in of_pool {
        ini.of_pool.push(name.to_owned());
        set(ini, name, value.to_owned());
    }
}

/// The distributions' php.ini of a server: the file, and the folder of additional files. Debian has
/// one for each version, `wanted` among them; the default is the newest.
pub(super) fn of_server(
    world: &World,
    server: &str,
    wanted: Option<&str>,
) -> Fact<(String, String)> {
    let wanted = wanted.unwrap_or("*");
    let debians = world.glob(&format!("/etc/php/{wanted}/{server}/php.ini"));
    let newest = debians.into_iter().max_by_key(|file| version(file));
    if let Some(file) = newest {
        let beside = file.replace("/php.ini", "/conf.d");
        return Ok((file, beside));
    }
    let others = [
        ("/etc/php.ini", "/etc/php.d"),
        ("/usr/local/etc/php/php.ini", "/usr/local/etc/php/conf.d"),
    ];
    let found = others.into_iter().find(|(file, _)| !world.glob(file).is_empty());
    let found = found.map(|(file, beside)| (file.to_owned(), beside.to_owned()));
    found.ok_or_else(|| Unknown("no php.ini was found where distributions have it".to_owned()))
}
