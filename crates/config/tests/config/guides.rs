//! The configurations in the README and the guides are valid.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::folder::Folder;

/// Prefixes of paths in the guides that this machine need not have.
const ELSEWHERE: [&str; 5] = ["\"/srv/", "\"/etc/", "\"/var/", "\"/usr/share/", "\"/run/"];

/// Files of the guides whose names have no dot; other names without one are directories.
const FILES: [&str; 1] = ["users"];

/// The text of files of tokens.
const TOKEN: &str = "0123456789abcdef";

/// A directory that only a `chdir` names, relative to its pool's `chroot`.
const IN_CHROOT: &str = "srv/shop/work";

/// Text before and after a block that is a part of a file.
const AROUND: [(&str, &str); 8] = [
    ("", ""),
    ("[pools.shop]\n", ""),
    ("", "\n[[sites]]\nroot = \"public\"\npool = \"POOL\"\n"),
    ("[pools.www]\n", "\n[[sites]]\nroot = \"public\"\n"),
    (
        "",
        "\ncertificates = { cert = \"site.pem\", key = \"site.key\" }\n[[sites]]\nroot = \
         \"public\"\n",
    ),
    ("[tls]\nlisten = \":443\"\n", "\n[[sites]]\nroot = \"public\"\n"),
    ("[[sites]]\nroot = \"public\"\n", ""),
    ("[[sites]]\nroot = \"public\"\n[sites.cache]\n", ""),
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages, by their paths.
fn pages() -> Vec<PathBuf> {
    let guides = fs::read_dir(project().join("docs/guide")).unwrap();
    let mut pages: Vec<_> = guides.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.is_file());
    pages.push(project().join("README.md"));
    pages.sort();
    pages
}

/// Each configuration of a page, and the number of its first line.
fn configurations(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_amid = false;
    for (at, line) in page.lines().enumerate() {
        match (is_amid, line) {
            (false, "```toml") => {
                found.push((at + 2, String::new()));
                is_amid = true;
            }
            (true, "```") => is_amid = false,
            (true, line) => found.last_mut().unwrap().1 += &format!("{line}\n"),
            _ => {}
        }
    }
    found
}

/// The block with the paths of other machines in the directory, where their files are then created.
fn brought_here(block: &str, folder: &Path) -> String {
    let mut here = block.to_owned();
    for beginning in ELSEWHERE {
        let moved = format!("\"{}{}", folder.display(), &beginning[1..]);
        here = here.replace(beginning, &moved);
    }
    let quoted = here.split('"').skip(1).step_by(2);
    let own = folder.to_str().unwrap();
    for path in quoted.filter(|text| text.starts_with(own)) {
        make(Path::new(path));
    }
    here
}

fn make(path: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap();
    if path.exists() {
        return;
    }
    let is_file = name.contains('.') && !name.ends_with(".d");
    if is_file || FILES.contains(&name) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let is_token = name.ends_with(".token");
        fs::write(path, if is_token { TOKEN } else { "" }).unwrap();
        if is_token {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    } else {
        fs::create_dir_all(path).unwrap();
    }
}

/// Mistakes of a block in any context, or settings without effect in it.
fn complaint(block: &str) -> Option<String> {
    let folder = Folder::new();
    make(&folder.path().join(IN_CHROOT));
    let block = brought_here(block, folder.path());
    let (_, pool) = block.split_once("[pools.").unwrap_or_default();
    let pool = pool.split(']').next().unwrap_or_default();
    let mut complaints = Vec::new();
    for (before, after) in AROUND {
        let after = match pool {
            "" => after.replace("pool = \"POOL\"\n", ""),
            pool => after.replace("POOL", pool),
        };
        let text = format!("{before}{block}{after}");
        match folder.parse(&text) {
            Ok(config) => {
                let file = folder.path().join("maitred.toml");
                let remarks = maitred_config::remarks(&text, &file, &config);
                let remarks: Vec<String> = remarks.iter().map(ToString::to_string).collect();
                return (!remarks.is_empty()).then(|| remarks.join("\n"));
            }
            Err(mistakes) => complaints.push(mistakes.to_string()),
        }
    }
    complaints.into_iter().min_by_key(String::len)
}

#[test]
fn every_configuration_of_the_guides_is_read_and_has_effect() {
    let mut complaints = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (line, block) in configurations(&text) {
            count += 1;
            if let Some(complaint) = complaint(&block) {
                let page = page.file_name().unwrap().to_string_lossy().into_owned();
                complaints.push(format!("{page}, line {line}:\n{complaint}"));
            }
        }
    }
    assert!(count > 30, "only {count} configurations have been found");
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}
