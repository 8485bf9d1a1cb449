//! Trees of files with requests, in one text: `=== NAME`, `--- PATH` with the text of a file, and
//! `GET /path` lines behind `+++`, each with headers behind it.

/// A tree and its requests.
#[derive(Debug, Default)]
pub struct Tree {
    /// The name, which is a host name too.
    pub name: String,
    /// What `.htaccess` files may have (`AllowOverride`, or `htaccess_override`): the names behind
    /// `@override`.
    pub overrides: Vec<String>,
    /// Its files.
    pub files: Vec<TreeFile>,
    /// The requests.
    pub requests: Vec<Asked>,
}

/// A file.
#[derive(Debug)]
pub struct TreeFile {
    /// Its path in the tree.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A request.
#[derive(Debug)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// The target.
    pub target: String,
    /// Headers.
    pub headers: Vec<(String, String)>,
}

impl Tree {
    /// The lines of Apache's configuration.
    pub fn apaches_overrides(&self) -> String {
        const GROUPS: [&str; 6] =
            ["AuthConfig", "FileInfo", "Indexes", "Limit", "Nonfatal", "Options"];
        if self.overrides.is_empty() {
            return "AllowOverride All\n".to_owned();
        }
        let is_group = |name: &&String| {
            let word = name.split('=').next().unwrap_or_default();
            GROUPS.contains(&word)
        };
        let (groups, single): (Vec<&String>, Vec<_>) = self.overrides.iter().partition(is_group);
        let join = |names: &[&String], none: &str| match names {
            [] => none.to_owned(),
            names => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "),
        };
        let (groups, single) = (join(&groups, "None"), join(&single, "None"));
        format!("AllowOverride {groups}\nAllowOverrideList {single}\n")
    }

    /// The lines of the site.
    pub fn own_overrides(&self) -> String {
        match &self.overrides[..] {
            [] => String::new(),
            names => format!("htaccess_override = {names:?}\n"),
        }
    }
}

/// Parses trees.
pub fn parse(text: &str) -> Vec<Tree> {
    let mut trees: Vec<Tree> = Vec::new();
    let mut in_requests = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            trees.push(Tree { name: name.trim().to_owned(), ..Tree::default() });
            in_requests = false;
            continue;
        }
        let Some(tree) = trees.last_mut() else { continue };
        if let Some(name) = line.strip_prefix("--- ") {
            tree.files.push(TreeFile { name: name.trim().to_owned(), text: String::new() });
            in_requests = false;
        } else if let Some(names) = line.strip_prefix("@override ") {
            tree.overrides = names.split_whitespace().map(str::to_owned).collect();
        } else if line == "+++" {
            in_requests = true;
        } else if in_requests {
            request(tree, line);
        } else if let Some(file) = tree.files.last_mut() {
            file.text.push_str(line);
            file.text.push('\n');
        }
    }
    trees
}

/// `GET /path | Name: value | Name: value`
fn request(tree: &mut Tree, line: &str) {
    let mut parts = line.split(" | ");
    let Some((method, target)) = parts.next().and_then(|first| first.split_once(' ')) else {
        return;
    };
    let headers = parts.filter_map(|part| part.split_once(": "));
    tree.requests.push(Asked {
        method: method.to_owned(),
        target: target.trim().to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    });
}
