//! WordPress as Debian packages it: its files and database, and a person who installs and uses it
//! over HTTP.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Request, Response};
use crate::mariadb::MariaDb;
use crate::server::{WEB_USER, is_root, public_folder, user_ids};
use crate::session::{Session, hidden_field, multipart};

/// Where Debian's package puts WordPress.
const PACKAGE: &str = "/usr/share/wordpress";

/// The name of the administrator that the installation makes.
pub const ADMIN: &str = "keeper";

/// The administrator's password.
pub const PASSWORD: &str = "a long pass phrase, for loopback only";

/// A document root with WordPress' files, and its own database; both go when this is dropped.
#[derive(Debug)]
pub struct Files {
    database: MariaDb,
    folder: TempDir,
}

impl Files {
    /// Starts a database and copies WordPress beside it, ready for its web installer.
    ///
    /// # Panics
    /// When Debian's `wordpress` or `mariadb-server` is not installed.
    pub fn prepare() -> Self {
        let database = MariaDb::start();
        database.run("CREATE DATABASE wordpress");
        database.run("CREATE USER wordpress@localhost IDENTIFIED BY 'wordpress'");
        database.run("GRANT ALL ON wordpress.* TO wordpress@localhost");
        let folder = public_folder();
        let root = folder.path().join("site");
        copy_package(&root);
        fs::create_dir_all(root.join("wp-content/uploads")).expect("a folder can be made");
        fs::write(root.join("wp-config.php"), config(&database.socket()))
            .expect("wp-config.php can be written");
        if is_root() {
            give_tree_to_web_user(&root);
        }
        Self { database, folder }
    }

    /// The document root.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("site")
    }

    /// The database's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.database.socket()
    }
}

/// Copies WordPress to a folder.
///
/// # Panics
/// When Debian's `wordpress` is not installed.
pub fn copy_package(to: &Path) {
    let package = Path::new(PACKAGE);
    assert!(package.is_dir(), "{PACKAGE} does not exist: apt install wordpress");
    copy(package, to);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("a package's folder can be listed").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.path().exists() {
            fs::copy(entry.path(), &target).expect("a package's file can be copied");
        }
    }
}

fn give_tree_to_web_user(path: &Path) {
    let (uid, gid) = user_ids(WEB_USER);
    std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("root can give a file away");
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder can be listed").flatten() {
            give_tree_to_web_user(&entry.path());
        }
    }
}

/// No request leaves the machine: WordPress may only call itself. Its answer may take longer on a
/// busy machine than the 5 s after which it would not use pretty links.
fn config(socket: &Path) -> String {
    let keys = ["AUTH_KEY", "SECURE_AUTH_KEY", "LOGGED_IN_KEY", "NONCE_KEY"];
    let salts = ["AUTH_SALT", "SECURE_AUTH_SALT", "LOGGED_IN_SALT", "NONCE_SALT"];
    let secret =
        |name: &&str| format!("define('{name}', 'only for a test on loopback: {name}');\n");
    let secrets: String = keys.iter().chain(&salts).map(secret).collect();
    format!(
        "<?php\n\
         define('DB_NAME', 'wordpress');\n\
         define('DB_USER', 'wordpress');\n\
         define('DB_PASSWORD', 'wordpress');\n\
         define('DB_HOST', 'localhost:{}');\n\
         define('DB_CHARSET', 'utf8mb4');\n\
         define('DB_COLLATE', '');\n\
         {secrets}\
         define('WP_HTTP_BLOCK_EXTERNAL', true);\n\
         define('WP_ACCESSIBLE_HOSTS', '127.0.0.1');\n\
         define('AUTOMATIC_UPDATER_DISABLED', true);\n\
         define('FS_METHOD', 'direct');\n\
         $table_prefix = 'wp_';\n\
         if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');\n\
         require_once ABSPATH . 'wp-settings.php';\n\
         add_filter('http_request_args', function ($asked) {{\n\
             if ($asked['timeout'] >= 1) $asked['timeout'] = 50;\n\
             return $asked;\n\
         }});\n",
        socket.display()
    )
}

/// An installed WordPress and its administrator, logged in.
#[derive(Debug)]
pub struct WordPress {
    address: SocketAddr,
    admin: Session,
    nonce: String,
}

impl WordPress {
    /// Goes through the web installer of the WordPress that `address` serves, and logs in.
    ///
    /// # Panics
    /// When a step is not answered as WordPress answers it.
    pub fn install(address: SocketAddr) -> Self {
        let mut visitor = Session::new(address);
        let front = visitor.get("/");
        assert_eq!(front.status, 302, "an empty site sends to its installer: {}", front.text());
        let location = front.header("Location").unwrap_or_default();
        assert!(location.ends_with("/wp-admin/install.php"), "sent to {location}");
        let installed = visitor.post_form(
            "/wp-admin/install.php?step=2",
            &[
                ("weblog_title", "The Guest House"),
                ("user_name", ADMIN),
                ("admin_password", PASSWORD),
                ("admin_password2", PASSWORD),
                ("pw_weak", "on"),
                ("admin_email", "keeper@example.com"),
                ("language", ""),
                ("Submit", "Install WordPress"),
            ],
        );
        assert!(installed.text().contains("Success!"), "not installed: {}", installed.text());
        Self::log_in(address)
    }

    /// Logs in as the administrator of an installed WordPress.
    ///
    /// # Panics
    /// When WordPress does not let them in.
    pub fn log_in(address: SocketAddr) -> Self {
        let mut admin = Session::new(address);
        let form = admin.get("/wp-login.php");
        assert_eq!(form.status, 200, "the login form: {}", form.text());
        let base = format!("http://{address}");
        let answer = admin.post_form(
            "/wp-login.php",
            &[
                ("log", ADMIN),
                ("pwd", PASSWORD),
                ("wp-submit", "Log In"),
                ("redirect_to", &format!("{base}/wp-admin/")),
                ("testcookie", "1"),
            ],
        );
        assert_eq!(answer.status, 302, "not logged in: {}", answer.text());
        assert!(admin.has_cookie("wordpress_logged_in_"), "no login cookie: {:?}", answer.headers);
        let nonce = admin.get("/wp-admin/admin-ajax.php?action=rest-nonce").text();
        Self { address, admin, nonce }
    }

    /// The administrator's browser.
    pub fn admin(&mut self) -> &mut Session {
        &mut self.admin
    }

    /// Calls the REST API as the administrator, by the address that works with any permalinks.
    pub fn rest(&mut self, method: &str, route: &str, data: Option<&Value>) -> Response {
        let target = format!("/index.php?rest_route=/wp/v2/{route}");
        let mut request = Request::new(method, &target).header("X-WP-Nonce", &self.nonce);
        if let Some(data) = data {
            let text = data.to_string();
            request = request.header("Content-Type", "application/json").body(text.as_bytes());
        }
        self.admin.send(request)
    }

    /// The result of an asynchronous test of Site Health, such as `loopback-requests`.
    pub fn site_health(&mut self, test: &str) -> Value {
        let target = format!("/index.php?rest_route=/wp-site-health/v1/tests/{test}");
        // WordPress' own script sends `user:pwd` in a header, and looks whether it arrives.
        let request = Request::get(&target).header("X-WP-Nonce", &self.nonce);
        self.admin.send(request.header("Authorization", "Basic dXNlcjpwd2Q=")).json()
    }

    /// Publishes a post as the block editor does; its id and its link.
    ///
    /// # Panics
    /// When WordPress does not publish it.
    pub fn publish(&mut self, title: &str, content: &str) -> (u64, String) {
        let post = json!({"title": title, "content": content, "status": "publish"});
        let answer = self.rest("POST", "posts", Some(&post));
        assert_eq!(answer.status, 201, "not published: {}", answer.text());
        self.post(answer.json()["id"].as_u64().expect("a post has an id"))
    }

    /// A post's id and present link.
    ///
    /// # Panics
    /// When there is no such post.
    pub fn post(&mut self, id: u64) -> (u64, String) {
        let answer = self.rest("GET", &format!("posts/{id}"), None);
        assert_eq!(answer.status, 200, "no post {id}: {}", answer.text());
        (id, answer.json()["link"].as_str().expect("a post has a link").to_owned())
    }

    /// Uploads a picture through the form for browsers without scripts; the URLs of its sizes, the
    /// original's first.
    ///
    /// # Panics
    /// When WordPress does not take it.
    pub fn upload(&mut self, file_name: &str, png: &[u8]) -> Vec<String> {
        let page = self.admin.get("/wp-admin/media-new.php?browser-uploader").text();
        let nonce = hidden_field(&page, "_wpnonce");
        let fields = [("post_id", "0"), ("_wpnonce", nonce.as_str()), ("html-upload", "Upload")];
        let (content_type, body) =
            multipart(&fields, ("async-upload", file_name, "image/png", png));
        let request = Request::post("/wp-admin/media-new.php", &content_type, &body);
        let answer = self.admin.send(request);
        assert_eq!(answer.status, 302, "not uploaded: {}", answer.text());
        let media = self.rest("GET", "media", None).json();
        let details = &media[0]["media_details"]["sizes"];
        let source = media[0]["source_url"].as_str().expect("a picture has a URL").to_owned();
        let sizes = details.as_object().expect("a picture has sizes").values();
        let urls = sizes.filter_map(|size| size["source_url"].as_str().map(str::to_owned));
        let mut all = vec![source.clone()];
        all.extend(urls.filter(|url| *url != source));
        all
    }

    /// Chooses «Month and name» among the permalink structures that the settings page offers.
    ///
    /// # Panics
    /// When the page does not offer it, or it is not saved.
    pub fn choose_pretty_permalinks(&mut self) -> String {
        let page = self.admin.get("/wp-admin/options-permalink.php").text();
        let nonce = hidden_field(&page, "_wpnonce");
        let offers = page.split("value=\"").filter_map(|rest| rest.split('"').next());
        let structure = offers
            .into_iter()
            .find(|offer| offer.ends_with("/%year%/%monthnum%/%postname%/"))
            .unwrap_or_else(|| panic!("no structure with month and name is offered: {page}"))
            .to_owned();
        let answer = self.admin.post_form(
            "/wp-admin/options-permalink.php",
            &[
                ("_wpnonce", &nonce),
                ("_wp_http_referer", "/wp-admin/options-permalink.php"),
                ("selection", &structure),
                ("permalink_structure", &structure),
                ("submit", "Save Changes"),
            ],
        );
        assert_eq!(answer.status, 302, "permalinks were not saved: {}", answer.text());
        // WordPress rewrites its rules when the page is shown again.
        let saved = self.admin.follow(answer.header("Location").unwrap_or_default());
        assert!(saved.text().contains("Permalink structure updated"), "{}", saved.text());
        structure
    }

    /// Posts a comment as a visitor; it waits for approval. Returns its id.
    ///
    /// # Panics
    /// When WordPress does not take it.
    pub fn comment(&mut self, post: u64, author: &str, text: &str) -> u64 {
        let mut visitor = Session::new(self.address);
        let answer = visitor.post_form(
            "/wp-comments-post.php",
            &[
                ("comment", text),
                ("author", author),
                ("email", "visitor@example.com"),
                ("url", ""),
                ("submit", "Post Comment"),
                ("comment_post_ID", &post.to_string()),
                ("comment_parent", "0"),
            ],
        );
        assert_eq!(answer.status, 302, "the comment was not taken: {}", answer.text());
        let held = self.rest("GET", "comments&status=hold", None).json();
        held[0]["id"].as_u64().unwrap_or_else(|| panic!("no comment waits: {held}"))
    }

    /// Approves a comment.
    ///
    /// # Panics
    /// When WordPress does not.
    pub fn approve(&mut self, comment: u64) {
        let route = format!("comments/{comment}");
        let answer = self.rest("POST", &route, Some(&json!({"status": "approved"})));
        assert_eq!(answer.status, 200, "not approved: {}", answer.text());
    }
}
