//! The lines of `.htaccess` files that have no effect or are mistakes, for `maitred check`.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use maitred_config::{Config, Destination, Mode, Site};
use maitred_htaccess::conf::Conf;
use maitred_htaccess::file::{self, Htaccess, Remark, Verdict};
use maitred_os::walk::{self, Rule};
use maitred_text::humanize::printable_pattern;

use crate::site::directory_confs::{MAX_FILE_BYTES, NAME, reading};
use crate::site::users_files::may_name;

/// Most folders of a site that are searched.
const MAX_FOLDERS: usize = 20_000;

/// Most entries of all folders of a site that are read.
const MAX_ENTRIES: usize = 1_000_000;

/// Most lines about the files of a site; the rest is counted.
const MAX_LINES: usize = 200;

/// What ignores settings of PHP in worker mode and snapshot mode, and why.
const BOOTED: &str =
    "the booted script, which has its settings from its pool: use `php_admin_value` there";

/// What ignores them outside of a pool, and why.
const UPSTREAM: &str =
    "an `upstream`, which would apply it to other requests as well: set it in php-fpm's pool";

/// Longest part of a line that is shown, in characters.
const MAX_SHOWN: usize = 80;

/// The lines of `.htaccess` files that have no effect or are mistakes: one sentence each.
pub fn remarks(config: &Config) -> Vec<String> {
    let sites = config.sites.iter().filter(|site| site.rules.htaccess);
    sites.flat_map(|site| remarks_of(config, site)).collect()
}

fn remarks_of(config: &Config, site: &Site) -> Vec<String> {
    let found = Search::of(&site.root);
    let ignorer = ignorer_of_settings(config, site);
    let lines = found.files.iter().flat_map(|file| remarks_of_file(site, ignorer, file));
    // Names of folders and text of lines are the tenant's.
    let mut lines: Vec<String> = lines.map(|line| printable_pattern(&line)).collect();
    let root = site.root.display();
    if lines.len() > MAX_LINES {
        let others = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(format!("{root}: {others} further lines of .htaccess files are like these"));
    }
    if found.is_cut {
        lines.push(format!(
            "{root}: only the first {MAX_FOLDERS} folders were searched for .htaccess files"
        ));
    }
    lines
}

/// What ignores settings of PHP at the site, and why; none: they apply.
fn ignorer_of_settings(config: &Config, site: &Site) -> Option<&'static str> {
    let Destination::Pool(name) = &site.destination else { return Some(UPSTREAM) };
    let boots = config.pool(name).is_some_and(|pool| pool.mode != Mode::Classic);
    boots.then_some(BOOTED)
}

/// The `.htaccess` files below a root.
#[derive(Default)]
struct Search {
    files: Vec<PathBuf>,
    is_cut: bool,
}

impl Search {
    /// Symbolic links to folders are not followed: they may lead anywhere, or in circles.
    fn of(root: &Path) -> Search {
        let mut found = Search::default();
        let mut folders = vec![root.to_owned()];
        let (mut searched, mut entries) = (0, 0);
        while let Some(folder) = folders.pop() {
            searched += 1;
            if searched > MAX_FOLDERS || entries > MAX_ENTRIES {
                found.is_cut = true;
                break;
            }
            let Ok(names) = fs::read_dir(&folder) else { continue };
            let mut inner = Vec::new();
            for entry in names.take(MAX_ENTRIES).filter_map(Result::ok) {
                entries += 1;
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => inner.push(entry.path()),
                    Ok(_) if entry.file_name().as_bytes() == NAME => found.files.push(entry.path()),
                    _ => {}
                }
            }
            folders.extend(inner);
        }
        found.files.sort();
        found
    }
}

fn remarks_of_file(site: &Site, ignorer: Option<&str>, path: &Path) -> Vec<String> {
    let name = path.display();
    let parsed = match parse(site, path) {
        Ok(parsed) => parsed,
        Err(error) => {
            return vec![format!(
                "{name} cannot be read: {error}; requests for its folder get a 500"
            )];
        }
    };
    let lines = parsed.remarks.iter().filter_map(|remark| {
        sentence(remark, site, ignorer)
            .map(|sentence| format!("{name}:{}: {sentence}", remark.line))
    });
    let mut lines: Vec<String> = lines.collect();
    // Other mistakes are among the remarks on lines.
    if let Err(mistake) = &parsed.conf
        && mistake.line == 0
    {
        lines.push(format!("{name}: {}; requests for its folder get a 500", mistake.why));
    }
    if let Ok(conf) = &parsed.conf {
        let sections = conf.files.iter().map(|section| &section.conf);
        let mut confs = std::iter::once(conf).chain(sections).map(Arc::as_ref);
        lines.extend(
            confs.find_map(|conf| foreign_users(site, conf)).map(|why| format!("{name}: {why}")),
        );
    }
    lines
}

/// Parses a file as the site does.
pub(super) fn parse(site: &Site, path: &Path) -> io::Result<Htaccess> {
    let mut text = Vec::new();
    // Root reads it here: a link of a tenant leads to the tenant's own files alone.
    let opened = walk::open_to_read(path, Rule::of_reader())?;
    opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    let mut folder = path.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes().to_vec();
    folder.push(b'/');
    Ok(file::parse(&text, &folder, &reading(&site.rules)))
}

/// What is said about a line, if it is not simply understood.
fn sentence(remark: &Remark, site: &Site, ignorer: Option<&str>) -> Option<String> {
    let mut text: String = remark.text.chars().take(MAX_SHOWN).collect();
    if text.len() < remark.text.len() {
        text.push('…');
    }
    Some(match &remark.verdict {
        Verdict::Understood => {
            let ignorer = ignorer.filter(|_| sets_php(&remark.text))?;
            format!("`{text}` has no effect on {ignorer}")
        }
        Verdict::Skipped(why) => format!("`{text}` has no effect: {why}"),
        Verdict::Refused(why) if site.rules.htaccess_ignores_unknown => {
            format!("`{text}` is wrong: {why}")
        }
        Verdict::Refused(why) => {
            let why = why.trim_end_matches('.');
            format!("`{text}` is wrong, and requests for its folder get a 500: {why}")
        }
    })
}

/// Whether a line sets a value of PHP, other than the engine, which the server itself obeys.
fn sets_php(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace().map(str::to_ascii_lowercase);
    let is_php = words.next().is_some_and(|word| word == "php_value" || word == "php_flag");
    is_php && words.next().is_some_and(|name| name != "engine")
}

/// The file of users or groups that a site may not use.
fn foreign_users(site: &Site, conf: &Conf) -> Option<String> {
    let named = [("AuthUserFile", &conf.authn.users), ("AuthGroupFile", &conf.authn.groups)];
    let real_root = std::fs::canonicalize(&site.root).unwrap_or_else(|_| site.root.clone());
    named.into_iter().find_map(|(directive, path)| {
        let path = PathBuf::from(std::ffi::OsString::from_vec(path.clone()?));
        (!may_name([&site.root, &real_root], &site.rules.htaccess_users, &path)).then(|| {
            format!(
                "{directive} {} is neither in the document root nor in a folder of \
                 `htaccess_users`: add it there, or move the file",
                path.display()
            )
        })
    })
}
