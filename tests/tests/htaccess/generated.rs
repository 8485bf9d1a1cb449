//! Trees with random directives, by grammar: one folder for each set of files, with the requests to
//! it. The seed is all that a run depends on.

use fastrand::Rng;

use super::grammar::{
    CONDITION_FLAGS, CONDITIONS, FLAGS, OTHERS, PATHS, PATTERNS, TARGETS, TESTS, VARIABLES,
};
use super::trees::{Asked, Tree, TreeFile};

/// Requests to each folder.
const REQUESTS: usize = 12;

/// What a folder's directives are about.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    /// `Require` and its containers, `Order`, `Allow`, `Deny`.
    Access,
    /// mod_rewrite.
    Rewrites,
    /// `<If>` and `%{…}` with expressions.
    Expressions,
    /// Everything else, in sections.
    Mixed,
}

/// A tree with `count` folders of a subject.
pub fn tree(subject: Subject, count: usize, seed: u64) -> Tree {
    let mut random = Random(Rng::with_seed(seed));
    let name = format!("{subject:?}{seed}").to_lowercase();
    let mut tree = Tree { name, ..Tree::default() };
    for number in 0..count {
        folder(&mut tree, &mut random, subject, number);
    }
    tree
}

fn folder(tree: &mut Tree, random: &mut Random, subject: Subject, number: usize) {
    let base = format!("f{number}");
    let mut add = |name: &str, text: String| {
        tree.files.push(TreeFile { name: format!("{base}/{name}"), text });
    };
    let (above, below) =
        (random.file(subject, &base), random.file(subject, &format!("{base}/sub")));
    // Cookies of subrequests are not sent here.
    let has_subrequests = [&above, &below]
        .iter()
        .any(|text| [" -F", " -U", " !-F", "LA-U"].iter().any(|test| text.contains(test)));
    let sent = |text: String| if has_subrequests { text.replace("[CO=", "[E=") } else { text };
    add(".htaccess", sent(above));
    if random.in_ten(4) {
        add("sub/.htaccess", sent(below));
    }
    for name in ["a.txt", "b.html", "sub/a.txt", "sub/index.html", "secret.zip"] {
        add(name, format!("page: {name}\n"));
    }
    for name in ["index.php", "p.php", "sub/p.php"] {
        add(name, "@probe".to_owned());
    }
    add("s404.php", "<?php http_response_code(404); echo 'page: none';".to_owned());
    add("s302.php", "<?php header('Location: /else', true, 302); echo 'page: moved';".to_owned());
    for _ in 0..REQUESTS {
        tree.requests.push(random.request(subject, &base));
    }
}

/// Random directives and requests.
struct Random(Rng);

impl Random {
    fn in_ten(&mut self, times: u8) -> bool {
        self.0.u8(0..10) < times
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.0.usize(..of.len())]
    }

    /// A `.htaccess` file. `@` stands for its folder.
    fn file(&mut self, subject: Subject, base: &str) -> String {
        let text = match subject {
            Subject::Access => self.access(3),
            Subject::Rewrites => self.rewrites(),
            Subject::Expressions => self.expressions(),
            Subject::Mixed => self.mixed(),
        };
        text.replace('@', base)
    }

    fn request(&mut self, subject: Subject, base: &str) -> Asked {
        let method = self.one(&["GET", "GET", "GET", "GET", "HEAD", "POST", "PUT"]);
        let method = match (subject, method) {
            // Which methods an absent file takes is the server's.
            (Subject::Rewrites | Subject::Mixed, "PUT") => "POST",
            (_, method) => method,
        };
        let path = match method {
            // Which methods a file takes is the server's.
            "PUT" => self.one(&["p.php", "p.php/info", "sub/p.php", "s404.php", "s302.php"]),
            _ => self.one(&PATHS),
        };
        let query = self.one(&["", "", "", "?a=1", "?a=5", "?5", "?b=2&c=%20", "?"]);
        let mut headers = Vec::new();
        if self.in_ten(3) {
            let value = self.one(&["a", "b", "A", "abc"]);
            headers.push(("X-Test".to_owned(), value.to_owned()));
        }
        if self.in_ten(3) {
            let value = self.one(&["bot", "Good Bot/1", "x"]);
            headers.push(("User-Agent".to_owned(), value.to_owned()));
        }
        if matches!(method, "POST" | "PUT") {
            headers.push(("Content-Length".to_owned(), "0".to_owned()));
        }
        Asked { method: method.to_owned(), target: format!("/{base}/{path}{query}"), headers }
    }

    fn access(&mut self, depth: u8) -> String {
        let mut text = String::new();
        if self.in_ten(3) {
            text.push_str("SetEnvIf X-Test ^a LET=1\n");
        }
        for _ in 0..self.0.u8(1..4) {
            let body = if self.in_ten(3) { self.compat() } else { self.require(depth) };
            text.push_str(&self.section(&body));
        }
        text
    }

    fn compat(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.0.u8(1..4) {
            text.push_str(self.one(&[
                "Order allow,deny\n",
                "Order deny,allow\n",
                "Order mutual-failure\n",
                "Allow from all\n",
                "Deny from all\n",
                "Allow from 127.0.0.1\n",
                "Deny from 127.0.0.0/8\n",
                "Allow from 10.0.0.0/255.0.0.0\n",
                "Allow from env=LET\n",
                "Deny from env=LET\n",
                "Deny from env=!LET\n",
                "Satisfy any\n",
                "Satisfy all\n",
            ]));
        }
        text
    }

    fn require(&mut self, depth: u8) -> String {
        if depth == 0 || self.in_ten(6) {
            let not = if self.in_ten(2) { "not " } else { "" };
            let what = match self.0.u8(0..8) {
                0 | 1 => "all granted".to_owned(),
                2 => "all denied".to_owned(),
                3 => self.one(&["ip 127.0.0.1", "ip 10.0.0.0/8", "ip 127", "ip ::1"]).to_owned(),
                4 => self.one(&["env LET", "env OTHER", "env LET OTHER"]).to_owned(),
                5 => self.one(&["method GET HEAD", "method POST", "method GET POST"]).to_owned(),
                _ => format!("expr \"{}\"", self.one(&TESTS).replace('"', "'")),
            };
            return format!("Require {not}{what}\n");
        }
        let name = self.one(&["RequireAll", "RequireAny", "RequireNone", "RequireAll"]);
        let mut text = format!("<{name}>\n");
        for _ in 0..self.0.u8(1..4) {
            text.push_str(&self.require(depth - 1));
        }
        format!("{text}</{name}>\n")
    }

    /// Directives, in a section now and then.
    fn section(&mut self, body: &str) -> String {
        let section = self.one_section(body);
        // Sections in sections.
        if self.in_ten(2) { self.one_section(&section) } else { section }
    }

    fn one_section(&mut self, body: &str) -> String {
        let (open, close) = match self.0.u8(0..12) {
            0 => ("<Files a.txt>".to_owned(), "</Files>"),
            1 => ("<Files \"*.php\">".to_owned(), "</Files>"),
            2 => ("<Files ~ \"^[ab]\">".to_owned(), "</Files>"),
            3 => ("<FilesMatch \"\\.(txt|zip)$\">".to_owned(), "</FilesMatch>"),
            4 => (format!("<If \"{}\">", self.one(&TESTS)), "</If>"),
            5 => ("<Limit POST PUT>".to_owned(), "</Limit>"),
            6 => ("<LimitExcept GET>".to_owned(), "</LimitExcept>"),
            7 => ("<IfModule mod_absent.c>".to_owned(), "</IfModule>"),
            8 => ("<IfModule !mod_absent.c>".to_owned(), "</IfModule>"),
            _ => return body.to_owned(),
        };
        let mut text = format!("{open}\n{body}{close}\n");
        if open.starts_with("<If \"") && self.in_ten(5) {
            let other =
                self.one(&["Require all denied\n", "Require all granted\n", "Header set X-A e\n"]);
            match self.0.bool() {
                true => text.push_str(&format!("<Else>\n{other}</Else>\n")),
                false => {
                    let test = self.one(&TESTS);
                    text.push_str(&format!("<ElseIf \"{test}\">\n{other}</ElseIf>\n"));
                }
            }
        }
        text
    }

    fn rewrites(&mut self) -> String {
        let mut text = String::new();
        if self.in_ten(3) {
            text.push_str("SetEnvIf X-Test ^a LET=1\n");
        }
        let engine = if self.in_ten(9) { "RewriteEngine On\n" } else { "RewriteEngine Off\n" };
        text.push_str(engine);
        if self.in_ten(4) {
            text.push_str(self.one(&["RewriteBase /@/\n", "RewriteBase /@\n", "RewriteBase /\n"]));
        }
        if self.in_ten(2) {
            text.push_str(self.one(&[
                "RewriteOptions Inherit\n",
                "RewriteOptions InheritBefore\n",
                "RewriteOptions AllowNoSlash\n",
                "RewriteOptions IgnoreInherit\n",
            ]));
        }
        for _ in 0..self.0.u8(1..5) {
            let mut conditions = String::new();
            for _ in 0..self.0.u8(0..3) {
                let (condition, flags) = (self.one(&CONDITIONS), self.one(&CONDITION_FLAGS));
                conditions.push_str(&format!("RewriteCond {condition}{flags}\n"));
            }
            let (pattern, target) = (self.one(&PATTERNS), self.one(&TARGETS));
            let flag = self.one(&FLAGS);
            // Of a path that stays, the script's name has the discarded part in Apache.
            let flag =
                if target.starts_with("p.php") && flag.starts_with("DPI") { "L" } else { flag };
            let flags = match self.in_ten(8) {
                // Without L, a later rule makes a page with the status of a redirect of it.
                _ if target.starts_with("http") => " [L]".to_owned(),
                true => format!(" [{flag}]"),
                false => String::new(),
            };
            let rule = format!("RewriteRule \"{pattern}\" \"{target}\"{flags}\n");
            // The group of an expression without one is memory that Apache has not set: it ends by
            // SIGSEGV now and then.
            let reads_group = conditions.contains("%1") || rule.contains("%1");
            if reads_group {
                conditions = conditions.replace("=~ /^a/", "=~ /^(a)/");
                conditions =
                    conditions.replace("\"-n %{QUERY_STRING}\"", "\"%{QUERY_STRING} =~ /^(.)/\"");
            }
            text.push_str(&(conditions + &rule));
        }
        text
    }

    fn expression(&mut self, depth: u8) -> String {
        if depth == 0 || self.in_ten(4) {
            return self.one(&TESTS).to_owned();
        }
        match self.0.u8(0..4) {
            0 => format!("!({})", self.expression(depth - 1)),
            1 => format!("{} && {}", self.expression(depth - 1), self.expression(depth - 1)),
            2 => format!("{} || {}", self.expression(depth - 1), self.expression(depth - 1)),
            _ => format!("({})", self.expression(depth - 1)),
        }
    }

    fn expressions(&mut self) -> String {
        let mut text = "SetEnvIf X-Test ^a LET=1\n".to_owned();
        for _ in 0..self.0.u8(1..5) {
            let test = self.expression(3);
            let what = self.one(&["X-A set", "X-B set", "X-C set"]).split(' ').next();
            let name = what.unwrap_or("X-A");
            let line = match self.0.u8(0..5) {
                4 => format!("Header set {name} \"expr={}\"\n", self.one(&VARIABLES)),
                0 => format!("Header set {name} yes \"expr={test}\"\n"),
                1 => format!("<If \"{test}\">\nHeader set {name} if\n</If>\n"),
                2 => format!(
                    "<If \"{test}\">\nRequire all denied\n</If>\n\
                     <Else>\nHeader set {name} else\n</Else>\n"
                ),
                _ => format!("SetEnvIfExpr \"{test}\" B=yes\nHeader set {name} \"%{{B}}e\"\n"),
            };
            text.push_str(&line);
        }
        text
    }

    fn mixed(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.0.u8(1..6) {
            let body = format!("{}\n", self.one(&OTHERS));
            text.push_str(&self.section(&body));
        }
        if self.in_ten(3) {
            text.push_str(&self.rewrites());
        }
        if self.in_ten(2) {
            text.push_str(&self.access(1));
        }
        text
    }
}
