//! What several `.htaccess` files and the sections around them decide in Apache and not here, the
//! import says.

use super::*;

/// The configuration of Apache, and `.htaccess` files by their folders.
struct TreeConf<'t> {
    apache: String,
    files: &'t [(&'t str, &'t str)],
}

impl TreeConf<'_> {
    /// The paths of all files.
    fn paths(&self) -> impl Iterator<Item = (String, &str)> {
        self.files.iter().map(|(folder, text)| (format!("{folder}/.htaccess"), *text))
    }
}

impl FileReader for TreeConf<'_> {
    fn read(&self, path: &str) -> Result<String, String> {
        if path == "/apache2.conf" {
            return Ok(self.apache.clone());
        }
        let found = self.paths().find(|(name, _)| name == path);
        found.map(|(_, text)| text.to_owned()).ok_or("it is missing".to_owned())
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn below(&self, folder: &str, _: &str) -> Option<Vec<String>> {
        let is_below = |path: &String| path.starts_with(&format!("{folder}/"));
        Some(self.paths().map(|(path, _)| path).filter(is_below).collect())
    }

    fn resolved(&self, path: &str) -> Option<String> {
        self.read(path).ok().map(|_| path.to_owned())
    }
}

/// The import of a virtual host.
fn imported(lines: &str, files: &[(&str, &str)]) -> Imported {
    let apache = format!(
        "LoadModule authz_core_module /m.so\nLoadModule rewrite_module /m.so\n\
         LoadModule autoindex_module /m.so\nListen 80\n\
         <VirtualHost *:80>\nServerName a.example\n{lines}\n</VirtualHost>\n"
    );
    import(&TreeConf { apache, files }, "/apache2.conf", &[]).expect("a site")
}

/// The folder `/srv/a` as the document root, whose `.htaccess` files apply.
const ROOT: &str = "DocumentRoot /srv/a\n<Directory /srv/a>\nRequire all granted\n\
                    AllowOverride All\n</Directory>\n";

/// Expects that some of these lines beside [`ROOT`] are left out as access, or none.
fn expect_left_out(lines: &str, files: &[(&str, &str)], is_access: bool) {
    let report = imported(&format!("{ROOT}{lines}"), files).report;
    assert_eq!(!report.keeps_access(), is_access, "{lines}\n{files:?}\n{report}");
}

#[test]
fn rules_that_a_file_inherits_by_the_section_of_a_folder_are_left_out_as_access() {
    let rules = "RewriteEngine on\nRewriteRule \\.sql$ - [F]";
    let own = format!("RewriteOptions AllowNoSlash\n{rules}");
    let of = |folder: &str, option: &str| {
        format!("<Directory {folder}>\nRewriteOptions {option}\n</Directory>")
    };
    let (a, sub) = (("/srv/a", rules), ("/srv/a/sub", rules));
    let (own_a, own_sub) = (("/srv/a", own.as_str()), ("/srv/a/sub", own.as_str()));
    for option in ["Inherit", "InheritBefore", "inheritdown", "MergeBase InheritDownBefore"] {
        let line = of("/srv/a", option);
        let is_down = option.contains("own");
        expect_left_out(&line, &[a, sub], true);
        expect_left_out(&line, &[a, ("/srv/a/sub", "RewriteEngine on")], true);
        expect_left_out(&line, &[a, ("/srv/a/sub", "Require all granted")], false);
        expect_left_out(&line, &[a], false);
        expect_left_out(&line, &[sub, ("/srv/a/sub2", rules)], false);
        expect_left_out(&line, &[own_a, own_sub], false);
        expect_left_out(&line, &[own_a, sub], !is_down);
        expect_left_out(&line, &[a, own_sub], is_down);
        expect_left_out(&of("/srv/a/sub", option), &[a, sub], !is_down);
        expect_left_out(&of("/srv/a/other", option), &[a, sub], false);
        expect_left_out(&format!("RewriteOptions {option}"), &[a, sub], false);
    }
    expect_left_out(&of("/srv/a", "MergeBase"), &[a, sub], false);
}

/// Whether lines with a document root of their own are left out as access.
fn expect_host_left_out(lines: &str, files: &[(&str, &str)], is_access: bool) {
    let report = imported(lines, files).report;
    assert_eq!(!report.keeps_access(), is_access, "{lines}\n{files:?}\n{report}");
}

/// A section of a folder whose `.htaccess` files apply.
fn allowing(folder: &str) -> String {
    format!("<Directory \"{folder}\">\nAllowOverride All\nRequire all granted\n</Directory>")
}

#[test]
fn files_above_the_document_root_are_looked_for_by_the_depth_of_a_pattern() {
    let root = "DocumentRoot /home/alice/sites/www\n";
    for (pattern, folder, is_access) in [
        ("/home/*", "/home/alice", true),
        ("/home/*", "/home/alice/sites", true),
        ("/home/*", "/home", false),
        ("/home/*/sites/www", "/home/alice/sites", false),
        ("/home/[a-c]*/sites", "/home/alice/sites", true),
        ("/home/[b-c]*/sites", "/home/alice/sites", false),
        ("/home/alice/sites", "/home/alice", false),
        ("/", "", true),
    ] {
        let lines = format!("{root}{}", allowing(pattern));
        expect_host_left_out(&lines, &[(folder, "Require ip 10.0.0.0/8")], is_access);
    }
    let closed = "<Directory /home/alice/sites>\nAllowOverride None\n</Directory>";
    let lines = format!("{root}{}\n{closed}", allowing("/home/*"));
    for (folder, is_access) in [("/home/alice", true), ("/home/alice/sites", false)] {
        expect_host_left_out(&lines, &[(folder, "Require ip 10.0.0.0/8")], is_access);
    }
}

#[test]
fn files_above_the_folder_of_an_alias_are_left_out_as_access() {
    let alias = |section: &str| format!("Alias /data /srv/shared/data\n{}", allowing(section));
    for (section, folder, is_access) in [
        ("/srv/shared", "/srv/shared", true),
        ("/srv/*", "/srv/shared", true),
        ("/srv/shared", "/srv", false),
        ("/srv/shared/data", "/srv/shared", false),
    ] {
        expect_left_out(&alias(section), &[(folder, "Require ip 10.0.0.0/8")], is_access);
    }
    let inner = format!("Alias /data /srv/a/b/data\n{}", allowing("/srv/a/b"));
    expect_left_out(&inner, &[("/srv/a/b", "Require ip 10.0.0.0/8")], true);
}

#[test]
fn the_overrides_of_an_expression_for_folders_are_ignored_as_in_apache() {
    for section in ["DirectoryMatch \"^/srv/a\"", "Directory ~ \"^/srv/a\""] {
        let name = section.split(' ').next().unwrap_or_default();
        let of = |names: &str| format!("<{section}>\nAllowOverride {names}\n</{name}>");
        let toml = imported(&format!("{ROOT}{}", of("None")), &[("/srv/a", "")]).toml;
        assert!(toml.contains("htaccess = true"), "{section}\n{toml}");
        let root = "DocumentRoot /srv/a\n<Directory /srv/a>\nAllowOverride None\n</Directory>\n";
        let toml = imported(&format!("{root}{}", of("All")), &[("/srv/a", "")]).toml;
        assert!(!toml.contains("htaccess = true"), "{section}\n{toml}");
        let deeper =
            format!("<{section}/b>\nAllowOverride None\n</{name}>").replace("\"/b", "/b\"");
        expect_left_out(&deeper, &[("/srv/a/b", "Require all denied")], false);
    }
}

#[test]
fn lists_that_an_inner_section_refuses_and_an_outer_file_allows_are_left_out_as_access() {
    let lists = ("/srv/a", "Options +Indexes");
    let of = |section: &str, options: &str| {
        let name = section.split(' ').next().unwrap_or_default();
        format!("<{section}>\nOptions {options}\n</{name}>")
    };
    let folder = "Directory /srv/a/private";
    for (section, options, files, is_access) in [
        (folder, "-Indexes", vec![lists], true),
        (folder, "FollowSymLinks", vec![("/srv/a", "<If true>\nOptions All\n</If>")], true),
        (folder, "+Indexes", vec![lists], false),
        (folder, "+FollowSymLinks", vec![lists], false),
        (folder, "-Indexes", vec![("/srv/a", "Options -Indexes")], false),
        (folder, "-Indexes", vec![("/srv/a/private", "Options +Indexes")], false),
        (folder, "-Indexes", vec![("/srv/a/other", "Options +Indexes")], false),
        (folder, "-Indexes", vec![lists, ("/srv/a/private", "Options -Indexes")], false),
        ("Directory /srv/a", "-Indexes", vec![lists], false),
        ("DirectoryMatch ^/srv/a/private", "-Indexes", vec![lists], true),
        ("Location /", "-Indexes", vec![lists], true),
        ("Location /private", "-Indexes", vec![("/srv/a/private", "Options +Indexes")], true),
        ("Location /private", "-Indexes", vec![("/srv/a/other", "Options +Indexes")], false),
    ] {
        expect_left_out(&of(section, options), &files, is_access);
    }
}

#[test]
fn folders_where_apache_refuses_rewriting_are_left_out_as_access() {
    let on = "RewriteEngine on\nRewriteRule ^ index.html";
    let allowed = format!("Options +FollowSymLinks\n{on}");
    let none = "<Directory /srv/a/data>\nOptions None\n</Directory>\n\
                <Directory /srv/a/data/open>\nOptions FollowSymLinks\n</Directory>";
    let regex = "<DirectoryMatch ^/srv/a/[^/]+/data>\nOptions None\n</DirectoryMatch>";
    let (root, allowed_root) = (("/srv/a", on), ("/srv/a", allowed.as_str()));
    for (lines, files, is_access) in [
        (none, vec![root], true),
        (none, vec![allowed_root], true),
        (none, vec![("/srv/a/data", on)], true),
        (none, vec![("/srv/a/data/b", on)], true),
        (none, vec![("/srv/a/data/open", on)], false),
        (none, vec![("/srv/a/other", on)], false),
        (none, vec![("/srv/a", "RewriteEngine off")], false),
        (none, vec![root, ("/srv/a/data", "RewriteEngine off")], false),
        (none, vec![root, ("/srv/a/data", "Options SymLinksIfOwnerMatch")], false),
        (none, vec![("/srv/a/data", allowed.as_str())], false),
        (regex, vec![root], true),
        (regex, vec![], false),
    ] {
        expect_left_out(lines, &files, is_access);
    }
}

#[test]
fn names_of_hosts_by_which_a_file_decides_are_left_out_as_access_where_apache_looks_them_up() {
    let variable = "SetEnvIf Remote_Host \"\\.evil\\.example$\" bad\nDeny from env=bad";
    let rule = "RewriteCond %{REMOTE_HOST} \\.evil\\.example$\nRewriteRule ^ - [F]";
    let inner = "<If \"%{REMOTE_HOST} =~ /evil/\">\nRequire all denied\n</If>";
    for (lookups, file, is_access) in [
        ("HostnameLookups On", variable, true),
        ("HostnameLookups Double", rule, true),
        ("<Directory /srv/a>\nHostnameLookups on\n</Directory>", inner, true),
        ("HostnameLookups Off", rule, false),
        ("", rule, false),
        ("HostnameLookups On", "RewriteCond %{REMOTE_ADDR} ^10\nRewriteRule ^ - [F]", false),
    ] {
        expect_left_out(lookups, &[("/srv/a", file)], is_access);
    }
}

#[test]
fn types_that_keep_browsers_from_running_files_are_left_out_as_access() {
    let inner = |line: &str| format!("<Directory /srv/a/up>\n{line}\n</Directory>");
    for (lines, is_access) in [
        (inner("ForceType text/plain"), true),
        (inner("ForceType application/octet-stream"), true),
        (inner("AddType \"text/plain;charset=utf-8\" .txt .HTML"), true),
        (inner("RemoveType svg"), true),
        ("AddType text/plain .svg".to_owned(), true),
        ("<FilesMatch \"\\.(pdf|html)$\">\nForceType a/b\n</FilesMatch>".to_owned(), true),
        ("<FilesMatch \"\\.(pdf|zip)$\">\nForceType a/b\n</FilesMatch>".to_owned(), false),
        (inner("ForceType None"), false),
        (inner("ForceType text/html"), false),
        (inner("AddType image/svg+xml .svg .svgz"), false),
        (inner("AddType application/x-gzip .gz"), false),
        (inner("AddType text/html;charset=utf-8 .html"), false),
        (inner("RemoveType .gz"), false),
    ] {
        expect_left_out(&lines, &[], is_access);
    }
}

#[test]
fn files_of_users_that_the_front_does_not_read_are_named() {
    for (path, is_named) in [("/etc/users", true), ("users", true), ("/srv/a/users", false)] {
        let file = format!("<Files x>\nAuthUserFile {path}\nRequire valid-user\n</Files>");
        let report = imported(ROOT, &[("/srv/a", &file)]).report;
        assert!(report.keeps_access(), "{report}");
        assert_eq!(report.to_string().contains("htaccess_users"), is_named, "{path}\n{report}");
    }
}

#[test]
fn an_alias_to_its_own_folder_of_the_document_root_is_none() {
    let files = [("/srv/a", "Require all granted")];
    for (alias, is_none) in [
        ("Alias /error/ \"/srv/a/error/\"", true),
        ("Alias /error /srv/a/error", true),
        ("Alias /error/ /srv/error/", false),
        ("Alias /error/ /srv/a/errors/", false),
        // The first alias of a path decides, and a later one is for the paths around it.
        ("Alias /a/b /srv/a/a/b\nAlias /a /srv/b", false),
        ("Alias /error/ /srv/a/error/\nAlias / /srv/b/", false),
    ] {
        let Imported { toml, report, .. } = imported(&format!("{ROOT}{alias}"), &files);
        assert_eq!(!toml.contains("aliases"), is_none, "{alias}\n{toml}");
        assert!(!is_none || report.keeps_access(), "{alias}\n{report}");
    }
    expect_left_out("Alias /error/ /srv/a/error/", &files, false);
    expect_left_out("Alias /error/ /srv/a/errors/", &files, true);
}
