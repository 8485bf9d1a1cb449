//! Which directives files may have: the same files below several `AllowOverride` and
//! `AllowOverrideList`.

use super::trees::{Asked, Tree, TreeFile};

/// What files may have.
const OVERRIDES: [&str; 12] = [
    "AuthConfig",
    "Header",
    "Header Require Options Redirect",
    "Options",
    "Options=Indexes,MultiViews FileInfo",
    "Options=All FileInfo",
    "Options=None FileInfo",
    "Options=ExecCGI,IncludesNOEXEC,FollowSymLinks,SymLinksIfOwnerMatch",
    "FileInfo Nonfatal=Override",
    "FileInfo Nonfatal=Unknown",
    "Indexes Nonfatal=All",
    "Nonfatal=All Header",
];

/// The texts of the files.
const FILES: [&str; 36] = [
    "Require all denied",
    "Order deny,allow\nDeny from all",
    "<Limit GET>\nHeader set X-A a\n</Limit>",
    "<Files *.txt>\nHeader set X-A a\n</Files>",
    "<If \"true\">\nHeader set X-A a\n</If>",
    "<IfModule mod_headers.c>\nHeader set X-A a\n</IfModule>",
    "Header set X-A a",
    "Redirect /5/x.txt /else",
    "SSLRequireSSL",
    "SSLOptions +StdEnvVars",
    "SSLVerifyClient none\nSSLVerifyDepth 3",
    "SSLCipherSuite HIGH",
    "SSLRenegBufferSize 10486000",
    "SSLUserName SSL_CLIENT_S_DN_CN",
    "Options -Indexes",
    "Options Indexes",
    "Options -MultiViews",
    "Options +FollowSymLinks",
    "Options +SymLinksIfOwnerMatch",
    "Options -ExecCGI",
    "Options -Includes",
    "Options -IncludesNOEXEC",
    "Options None",
    "Options All",
    "Options -Indexes -ExecCGI",
    "php_value memory_limit 99M",
    "Nonsense on\nHeader set X-B b",
    "<Nonsense x>\nRequire all denied\n</Nonsense>\nHeader set X-B b",
    "<RequireAll>\nRequire all denied\n</RequireAll>\nHeader set X-B b",
    "Header set",
    "Require nonsense",
    "LimitRequestBody 1000",
    "ServerSignature Off",
    "AddType text/x-a .txt",
    "DirectoryIndex x.txt",
    "RewriteEngine On\nRewriteRule ^x other.txt",
];

/// A tree for each of them.
pub fn trees() -> Vec<Tree> {
    OVERRIDES.iter().enumerate().map(|(number, names)| tree(number, names)).collect()
}

fn tree(number: usize, names: &str) -> Tree {
    let overrides = names.split(' ').map(str::to_owned).collect();
    let mut tree = Tree { name: format!("override{number}"), overrides, ..Tree::default() };
    for (folder, lines) in FILES.iter().enumerate() {
        let mut add = |name: &str, text: &str| {
            let (name, text) = (format!("{folder}/{name}"), format!("{text}\n"));
            tree.files.push(TreeFile { name, text });
        };
        add(".htaccess", lines);
        add("x.txt", "page: x");
        add("other.txt", "page: other");
        let mut targets = vec![format!("/{folder}/x.txt")];
        // Listings have a form of their own.
        if !lines.contains("Indexes") && !lines.contains("All") {
            targets.push(format!("/{folder}/"));
        }
        for target in targets {
            tree.requests.push(Asked { method: "GET".to_owned(), target, headers: Vec::new() });
        }
    }
    tree
}
