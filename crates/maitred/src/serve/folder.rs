//! The document root in a folder: a project's own files, such as its database and logs, are never
//! served where it has a public folder.

use std::path::{Path, PathBuf};

/// Public folders of projects, in the order of the search.
const PUBLIC: [&str; 2] = ["public", "web"];

/// Index files: a folder with one of them is a site.
const INDEXES: [&str; 2] = ["index.php", "index.html"];

/// Files of a project's root that must not be served: Composer's, Laravel's, Symfony's, Yii's,
/// CodeIgniter's, CakePHP's, npm's and Git's.
const PROJECT: [&str; 10] = [
    "composer.json",
    "composer.lock",
    "artisan",
    "symfony.lock",
    "bin/console",
    "yii",
    "spark",
    "bin/cake",
    "package.json",
    ".git",
];

/// The document root in a folder that the command line names: its public folder if it is a project
/// or no site itself, or else the folder.
pub fn root_in(folder: &Path) -> PathBuf {
    let is_project = PROJECT.iter().any(|name| folder.join(name).exists());
    let public = PUBLIC.iter().map(|name| folder.join(name)).find(|public| is_site(public));
    match public {
        Some(public) if is_project || !is_site(folder) => public,
        _ => folder.to_path_buf(),
    }
}

/// The document root in the current folder, if it is a site or has a public folder.
pub fn root_here(here: &Path) -> Option<PathBuf> {
    let root = root_in(&here.join("."));
    let public = PUBLIC.iter().map(|name| here.join(name)).find(|public| is_site(public));
    // Without a name the public folder comes first, as it always has.
    public.or_else(|| is_site(&root).then_some(root))
}

/// What is unusual about a document root, for the person who starts the server.
pub fn remark(root: &Path) -> Option<String> {
    // A missing folder is an error of the start.
    if is_site(root) || !root.is_dir() {
        return None;
    }
    let shown = root.display();
    let is_empty = root.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    Some(match is_empty {
        true => format!("{shown} is empty: every request gets a 404 until there is a file"),
        false => format!("{shown} holds no index.php and no index.html: / gets a 404"),
    })
}

fn is_site(folder: &Path) -> bool {
    INDEXES.iter().any(|index| folder.join(index).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    #[test]
    fn the_root_of_a_project_is_never_served_where_it_has_a_public_folder() {
        for (files, root) in [
            (&["artisan", "database/database.sqlite", "public/index.php"][..], "public"),
            (&["composer.json", "index.php", "public/index.php"], "public"),
            (&["composer.json", "web/index.php"], "web"),
            (&["public/index.html"], "public"),
            (&["index.php", "public/index.php"], ""),
            (&["composer.json", "index.php"], ""),
            (&["composer.json", "public/style.css", "index.php"], ""),
            (&["hello.php"], ""),
            (&[], ""),
        ] {
            let folder = folder(files);
            let expected = folder.path().join(root);
            assert_eq!(root_in(folder.path()), expected, "{files:?}");
        }
    }

    #[test]
    fn a_folder_without_an_index_is_remarked_upon() {
        assert!(remark(folder(&[]).path()).unwrap().contains("is empty"));
        assert!(remark(folder(&["a.txt"]).path()).unwrap().contains("holds no index.php"));
        assert_eq!(remark(folder(&["index.html"]).path()), None);
    }
}
