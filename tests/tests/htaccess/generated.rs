//! Trees with random directives, by grammar: one folder for each set of files, with the requests to
//! it. The seed is all that a run depends on.

use fastrand::Rng;

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
    add(".htaccess", random.file(subject, &base));
    if random.in_ten(4) {
        add("sub/.htaccess", random.file(subject, &format!("{base}/sub")));
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

const PATHS: [&str; 20] = [
    "s404.php",
    "s302.php",
    "",
    "a.txt",
    "b.html",
    "p.php",
    "index.php",
    "sub",
    "sub/",
    "sub/a.txt",
    "sub/p.php",
    "sub/p.php/info",
    "p.php/info/x",
    "x",
    "x/y",
    "abc/12",
    "a%20b",
    "A.TXT",
    "secret.zip",
    "a.txt/",
];

const TESTS: [&str; 24] = [
    "%{REQUEST_METHOD} == 'GET'",
    "%{QUERY_STRING} =~ /a=(\\d+)/",
    "%{QUERY_STRING} -eq 5",
    "-n %{QUERY_STRING}",
    "-z %{HTTP_USER_AGENT}",
    "%{REQUEST_URI} =~ m#/sub/#",
    "%{REQUEST_URI} -strmatch '*.txt'",
    "%{REQUEST_URI} -strcmatch '*.TXT'",
    "-f %{REQUEST_FILENAME}",
    "-d %{REQUEST_FILENAME}",
    "'%{HTTP:X-Test}' in { 'a', 'b' }",
    "tolower(%{HTTP:X-Test}) == 'a'",
    "%{HTTP:X-Test} -fnmatch 'a*'",
    "-R '127.0.0.0/8'",
    "-R '10.1.0.0/16'",
    "%{REMOTE_ADDR} -ipmatch '127.0.0.1'",
    "-T env('LET')",
    "reqenv('LET') == '1'",
    "%{QUERY_STRING} < 'b'",
    "%{QUERY_STRING} >= 'a=2'",
    "true",
    "false",
    "%{HTTP_USER_AGENT} !~ /bot/i",
    "unescape('a%20b') == 'a b'",
];

const PATTERNS: [&str; 20] = [
    "^",
    "^$",
    "^(.*)$",
    "(.+)",
    "^a",
    "\\.txt$",
    "^x/(.*)$",
    "^x",
    "^sub/?$",
    "^sub/(.*)",
    "p\\.php",
    "^([a-z]+)/([0-9]+)$",
    "!\\.php$",
    "!^a",
    ".",
    "^b\\.html$",
    "^(x|abc)",
    "\\.(txt|html)$",
    "^a b$",
    "^index\\.php$",
];

const TARGETS: [&str; 24] = [
    "-",
    "p.php",
    "p.php?q=$1",
    "p.php/$1",
    "index.php",
    "a.txt",
    "sub/p.php?x=$1&y=%1",
    "/@/p.php",
    "/@/a.txt",
    "x",
    "x/$1",
    "sub/",
    "p.php?%{QUERY_STRING}",
    "http://else.test/$1",
    "/@/x?$1",
    "p.php?r=%{REQUEST_URI}",
    "index.php?",
    "b.html",
    "%{ENV:LET}p.php",
    "p.php?e=$0&f=$2",
    "missing/$1",
    "?only=1",
    "p.php?h=%{HTTP:X-Test}",
    "./p.php",
];

const FLAGS: [&str; 29] = [
    "L",
    "L",
    "L",
    "L",
    "END",
    "R,L",
    "R=301,L",
    "R=307,L",
    "R=404",
    "R=403,L",
    "F",
    "G",
    "QSA",
    "QSA,L",
    "QSD",
    "QSD,L",
    "NC",
    "NC,L",
    "C",
    "S=1",
    "S=2",
    "N=3",
    "E=LET:1",
    "E=B:$1,L",
    "E=!LET",
    "NE,R,L",
    "B",
    "T=text/x-a",
    "NS,L",
];

const CONDITIONS: [&str; 24] = [
    "%{REQUEST_FILENAME} -f",
    "%{REQUEST_FILENAME} !-f",
    "%{REQUEST_FILENAME} -d",
    "%{REQUEST_FILENAME} !-d",
    "%{REQUEST_FILENAME} -s",
    "%{QUERY_STRING} ^a=(\\d+)",
    "%{QUERY_STRING} !=a=1",
    "%{QUERY_STRING} =\"\"",
    "%{QUERY_STRING} >a",
    "%{REQUEST_METHOD} ^(POST|PUT)$",
    "%{REQUEST_METHOD} =GET",
    "%{HTTP_USER_AGENT} bot",
    "%{HTTP_USER_AGENT} !BOT",
    "$1 ^x",
    "%{REQUEST_URI} /sub/(.*)",
    "%{REQUEST_URI} !p\\.php",
    "%{ENV:REDIRECT_STATUS} ^$",
    "%{ENV:LET} =1",
    "%{HTTP:X-Test} ^(a|b)$",
    "%{THE_REQUEST} \\s/+(.*?)\\s",
    "%{DOCUMENT_ROOT}/@/$1 -f",
    "%{IS_SUBREQ} =true",
    "%{PATH_INFO} ^/(.*)",
    "%{REMOTE_ADDR} ^127\\.",
];

const CONDITION_FLAGS: [&str; 6] = ["", "", "", " [OR]", " [NC]", " [NC,OR]"];

const OTHERS: [&str; 58] = [
    "DirectoryIndex index.php",
    "DirectoryIndex a.txt index.php",
    "DirectoryIndex disabled",
    "DirectoryIndex none.html",
    "DirectoryIndex /@/b.html",
    "ErrorDocument 404 /@/a.txt",
    "ErrorDocument 404 /@/p.php",
    "ErrorDocument 403 \"page: no\"",
    "ErrorDocument 403 /@/p.php?e",
    "ErrorDocument 404 http://else.test/",
    "ErrorDocument 404 default",
    "Redirect /@/x /@/a.txt",
    "Redirect 301 /@/x http://else.test/y",
    "Redirect gone /@/b.html",
    "RedirectMatch ^/@/a.txt$ /@/b.html",
    "RedirectMatch 403 \\.zip$",
    "RedirectMatch temp ^/(.*)/abc/(.*) /$1/p.php/$2",
    "RedirectPermanent /@/abc /@/x",
    "FallbackResource /@/p.php",
    "FallbackResource disabled",
    "AddType text/x-a .txt",
    "ForceType text/x-b",
    "AddType application/x-httpd-php .html",
    "RemoveType .txt",
    "DefaultType text/x-c",
    "AddHandler application/x-httpd-php .html",
    "SetHandler application/x-httpd-php",
    "AddCharset utf-8 .txt",
    "AddDefaultCharset utf-8",
    "AddLanguage en .txt",
    "Header set X-A one",
    "Header always set X-A two",
    "Header append X-B b",
    "Header add X-B c",
    "Header merge X-B b",
    "Header unset X-A",
    "Header set X-C \"%{LET}e\" env=LET",
    "Header set X-C \"%{REQUEST_URI}s\"",
    "Header edit X-A o O",
    "Header setifempty X-A three",
    "Header set X-B five env=!LET",
    "RequestHeader set X-Test a",
    "RequestHeader unset X-Test",
    "SetEnv LET 1",
    "SetEnvIf X-Test ^a LET=1",
    "SetEnvIf Request_URI sub LET=$0 OTHER",
    "SetEnvIfNoCase User-Agent BOT LET",
    "BrowserMatch bot !LET",
    "UnsetEnv LET",
    "PassEnv NONE",
    "Options -Indexes",
    "Options None",
    "Options +FollowSymLinks",
    "ExpiresActive On",
    "ExpiresByType text/html \"access plus 1 day\"",
    "ExpiresDefault A60",
    "php_value memory_limit 99M",
    "php_flag display_errors on",
];

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
            for _ in 0..self.0.u8(0..3) {
                let (condition, flags) = (self.one(&CONDITIONS), self.one(&CONDITION_FLAGS));
                text.push_str(&format!("RewriteCond {condition}{flags}\n"));
            }
            let (pattern, target) = (self.one(&PATTERNS), self.one(&TARGETS));
            let flags = match self.in_ten(8) {
                // Without L, a later rule makes a page with the status of a redirect of it.
                _ if target.starts_with("http") => " [L]".to_owned(),
                true => format!(" [{}]", self.one(&FLAGS)),
                false => String::new(),
            };
            text.push_str(&format!("RewriteRule \"{pattern}\" \"{target}\"{flags}\n"));
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
            let line = match self.0.u8(0..4) {
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
