//! Trees of files with requests, in one text: `=== NAME`, `--- PATH` with the text of a file, and
//! `GET /path` lines behind `+++`, each with headers behind it.

/// A tree and its requests.
#[derive(Debug, Default)]
pub struct Tree {
    /// The name, which is a host name too.
    pub name: String,
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
