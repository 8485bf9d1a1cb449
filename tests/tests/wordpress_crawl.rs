//! WordPress with plugins of all kinds in snapshot mode: visitors, members and customers see what
//! they see in a classic pool, page by page.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use maitred_tests::Target;
use maitred_tests::crawl::{Step, Visitor};
use maitred_tests::project_root;
use maitred_tests::server::{Server, Setup, give_to_web_user};
use maitred_tests::session::{Session, encode, hidden_field};
use maitred_tests::wordpress::{Files, PASSWORD, WordPress};

/// What is left to a classic pool; as in docs/guide/wordpress-snapshot.md.
const CLASSIC: &str = "[\"/wp-admin/\", \"/wp-content/plugins/\", \"/wp-login.php\", \
                       \"/wp-cron.php\", \
     \"/wp-comments-post.php\", \"/wp-signup.php\", \"/wp-activate.php\", \"/wp-trackback.php\", \
     \"/wp-mail.php\", \"/xmlrpc.php\"]";

/// Plugins that read the request, or other things that change, while WordPress starts.
const ALL: [&str; 9] = [
    "akismet/akismet.php",
    "caching-headers.php",
    "contact-form.php",
    "glossary.php",
    "languages.php",
    "members.php",
    "offers.php",
    "search-engines.php",
    "shop.php",
];

/// Plugins that wait for the page.
const PATIENT: [&str; 2] = ["members.php", "search-engines.php"];

/// The variable with which each visitor requests every page.
const WHOLE: &str = "MAITRED_WHOLE_CRAWL";

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 \
                      (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1";

/// A site, a classic pool, and a server of the same site in snapshot mode.
struct Both {
    files: Files,
    classic: Server,
    copies: Server,
    site: WordPress,
    reader: Session,
    commenter: Session,
    products: Vec<String>,
    boots: u32,
}

fn put(from: &Path, into: &Path) {
    fs::create_dir_all(into).expect("a folder can be made");
    let target = into.join(from.file_name().expect("a file has a name"));
    fs::copy(from, &target).expect("a file can be copied");
    give_to_web_user(&target);
}

/// Another number of boots is another configuration.
fn copied(root: &Path, boots: u32) -> Setup {
    let script = root.join("maitred-index.php");
    Setup::new(root)
        .workers(2)
        .pool("mode = \"snapshot\"")
        .pool(&format!("script = {script:?}"))
        .pool(&format!("rewinds_per_child = {}", 1000 + boots))
        .pool("warm_requests = [\"/\"]")
        .pool("[pools.classic]")
        .pool("pm = \"static\"\nmax_children = 1")
        .site("app = \"wordpress\"")
        .site(&format!("classic_paths = {CLASSIC}"))
        .site("classic_pool = \"classic\"")
}

impl Both {
    fn start() -> Self {
        let files = Files::prepare();
        let root = files.root();
        let recipe = project_root().join("integrations/wordpress/snapshot");
        put(&recipe.join("maitred-index.php"), &root);
        put(&recipe.join("0-maitred-snapshot.php"), &root.join("wp-content/mu-plugins"));
        let plugins = project_root().join("tests/fixtures/wordpress-plugins");
        put(&plugins.join("content.php"), &root);
        for plugin in ALL.iter().filter(|plugin| !plugin.contains('/')) {
            put(&plugins.join(plugin), &root.join("wp-content/plugins"));
        }
        let classic = Setup::new(&root).workers(2).site("app = \"wordpress\"").start();
        let site = WordPress::install(classic.address());
        let mut both = Self {
            copies: copied(&root, 0).start(),
            reader: Session::new(classic.address()),
            commenter: Session::new(classic.address()),
            products: Vec::new(),
            boots: 0,
            files,
            classic,
            site,
        };
        let made = both.content("");
        let made = made.strip_prefix("products ").unwrap_or_else(|| panic!("no content: {made}"));
        both.products = made.split(' ').map(str::to_owned).collect();
        let fields = [("log", "reader"), ("pwd", PASSWORD), ("testcookie", "1")];
        both.reader.get("/wp-login.php");
        let response = both.reader.post_form("/wp-login.php", &fields);
        assert_eq!(response.status, 302, "the reader is not logged in: {}", response.text());
        both
    }

    /// Has the site filled, or only other plugins activated.
    fn content(&mut self, more: &str) -> String {
        self.activate(&ALL, more)
    }

    fn activate(&mut self, plugins: &[&str], more: &str) -> String {
        let (plugins, password) = (plugins.join(","), encode(PASSWORD));
        let target = format!("/content.php?plugins={plugins}&password={password}{more}");
        self.site.admin().get(&target).text()
    }

    /// Boots again by another recipe, a PHP value; and returns where the log says that it ends.
    fn boot(&mut self, recipe: &str) -> usize {
        let path = self.files.root().join("wp-config.php");
        let config = fs::read_to_string(&path).expect("it was written");
        let old = config.lines().next().unwrap_or_default();
        let line = format!("<?php define('MAITRED_SNAPSHOT_WITH_PLUGINS', {recipe});");
        fs::write(&path, config.replacen(old, &line, 1)).expect("it can be written");
        self.boots += 1;
        self.copies.configure(&copied(&self.files.root(), self.boots));
        let mark = self.copies.log().mark();
        let said = self.copies.reload();
        assert!(said.contains("reloaded: "), "{said}");
        mark
    }

    fn visitor(&self, name: &'static str) -> Visitor {
        let session = Session::new(self.classic.address());
        Visitor::new(name, &session, self.copies.address()).with("User-Agent", FIREFOX)
    }

    fn user(&self, name: &'static str, session: &Session) -> Visitor {
        Visitor::new(name, session, self.copies.address()).with("User-Agent", FIREFOX)
    }

    /// Visitors of all kinds.
    fn visitors(&mut self) -> Vec<Visitor> {
        let admin = self.site.admin().clone();
        let copies = self.copies.address();
        let classic = self.classic.address();
        let phone = Session::new(classic);
        vec![
            self.visitor("a visitor"),
            self.visitor("a German").with("Accept-Language", "de-AT"),
            Visitor::new("a phone", &phone, copies).with("User-Agent", IPHONE),
            self.visitor("a customer"),
            self.user("a commenter", &self.commenter.at(classic)),
            self.user("a reader", &self.reader),
            self.user("the administrator", &admin),
        ]
    }

    /// The links of the posts and pages.
    fn links(&mut self) -> Vec<String> {
        let base = format!("http://{}", self.classic.address());
        let mut links = Vec::new();
        for route in ["posts&per_page=20", "pages", "product"] {
            let found = self.site.rest("GET", route, None).json();
            // Without its plugin a type of posts does not exist.
            let all = found.as_array().into_iter().flatten();
            let all = all.filter_map(|post| post["link"].as_str()?.strip_prefix(&base));
            links.extend(all.map(str::to_owned));
        }
        assert!(links.len() > 12, "there are few links: {links:?}");
        links
    }

    /// Differences between the pools, and the number of requests. `every`: one in this number of
    /// the pages without effects.
    fn crawl(&mut self, every: usize) -> Crawled {
        let mut crawled = Crawled::default();
        let links = self.links();
        let pages = pages(&links);
        let contact = links.iter().find(|link| link.contains("contact")).expect("a page").clone();
        for (number, visitor) in self.visitors().iter_mut().enumerate() {
            crawled.take(visitor, &self.effects(number, &contact));
            let every = if number == 2 || number == 4 { 2 * every } else { every };
            let some: Vec<_> = pages.iter().skip(number % every).step_by(every).cloned().collect();
            crawled.take(visitor, &some);
            crawled.tokens.append(&mut visitor.tokens);
        }
        crawled
    }

    /// Requests that change what the visitor sees next.
    fn effects(&mut self, visitor: usize, contact: &str) -> Vec<Step> {
        let page = self.visited(visitor, contact);
        if !page.contains("contact_nonce") {
            return Vec::new();
        }
        let nonce = hidden_field(&page, "contact_nonce");
        let (spoon, bowl) = (self.products[0].clone(), self.products[1].clone());
        let form = [("contact_form", "1"), ("contact_nonce", &nonce), ("name", "Ann O'Hara")];
        let cart = "/cart/";
        let mut steps = vec![
            Step::post(contact, &[&form[..], &[("text", "It's \"good\"\\")]].concat()),
            Step::post(contact, &[("contact_form", "1"), ("name", "without a nonce")]),
            Step::get("/wp-json/contact/v1/echo?a=it%27s&b[]=1"),
            Step::post("/wp-json/contact/v1/echo", &[("a", "it's"), ("b", "2")]),
        ];
        if visitor == 6 {
            // WordPress boots in another way for these: the classic pool serves them.
            let uuid = "5d3a1c52-0b7f-4f7e-9f0a-1d2b3c4d5e6f";
            steps.extend([
                Step::get(&format!("/?customize_changeset_uuid={uuid}")),
                Step::get("/wp-json/wp/v2/types?_locale=user"),
                Step::post("/wp-json/wp/v2/nothing?_locale=user", &[("a", "it's")]),
            ]);
        }
        if visitor == 3 {
            steps.extend([
                Step::get(&format!("/?add-to-cart={spoon}&quantity=2")),
                Step::get(cart),
                Step::post(cart, &[("add-to-cart", &bowl)]),
                Step::get(cart),
            ]);
        }
        if visitor == 1 {
            steps.extend([Step::get("/?lang=en"), Step::get("/"), Step::get("/?lang=de")]);
        }
        steps
    }

    /// The page as this visitor sees it: a nonce is that of a user.
    fn visited(&mut self, visitor: usize, target: &str) -> String {
        match visitor {
            5 => self.reader.get(target).text(),
            6 => self.site.admin().get(target).text(),
            _ => Session::new(self.classic.address()).get(target).text(),
        }
    }

    /// Comments of a visitor, which wait for approval, and of the administrator.
    fn discuss(&mut self) {
        let copies = self.copies.address();
        let mut admin = self.site.admin().clone();
        self.commenter = self.commenter.at(copies);
        let mut at_copies = admin.at(copies);
        let sessions = [(&mut self.commenter, "4"), (&mut admin, "5"), (&mut at_copies, "6")];
        for (session, post) in sessions {
            let fields = [
                ("comment", "A comment isn't \"long\"."),
                ("author", "Ann O'Hara"),
                ("email", "ann@example.com"),
                ("comment_post_ID", post),
                ("wp-comment-cookies-consent", "yes"),
            ];
            let response = session.post_form("/wp-comments-post.php", &fields);
            assert_eq!(response.status, 302, "{}", response.text());
        }
    }

    fn stop(self) {
        self.copies.stop();
        self.classic.stop();
    }
}

/// What has been compared.
#[derive(Default)]
struct Crawled {
    requests: usize,
    differences: Vec<String>,
    tokens: Vec<String>,
}

impl Crawled {
    fn take(&mut self, visitor: &mut Visitor, steps: &[Step]) {
        self.requests += steps.len();
        self.differences.extend(steps.iter().filter_map(|step| visitor.difference(step)));
    }

    /// Fails at a difference.
    fn is_the_same(&self, what: &str) {
        println!("{what}: {} of {} differ", self.differences.len(), self.requests);
        let (count, first) = (self.differences.len(), self.differences.iter().take(12));
        let first: Vec<_> = first.map(String::as_str).collect();
        assert!(count == 0, "{what}: {count} of {}:\n{}", self.requests, first.join("\n"));
        let tokens: HashSet<_> = self.tokens.iter().collect();
        assert_eq!(tokens.len(), self.tokens.len(), "{what}: random numbers are repeated");
    }
}

/// Pages without effects.
fn pages(links: &[String]) -> Vec<Step> {
    let some = [
        "/",
        "/?p=4",
        "/?page_id=2",
        "/page/2/",
        "/page/3/",
        "/page/99/",
        "/?paged=2",
        "/nowhere/",
        "/?s=soup",
        "/?s=it%27s+%22cold%22",
        "/page/2/?s=evening",
        "/?s=",
        "/category/uncategorized/",
        "/tag/evening/",
        "/tag/evening/page/2/",
        "/author/keeper/",
        "/2026/",
        "/2026/02/",
        "/2026/01/",
        "/?m=202603",
        "/feed/",
        "/comments/feed/",
        "/tag/evening/feed/",
        "/feed/atom/",
        "/product/",
        "/product/feed/",
        "/robots.txt",
        "/wp-sitemap.xml",
        "/wp-sitemap-posts-post-1.xml",
        "/wp-json/",
        "/wp-json/wp/v2/posts?per_page=3",
        "/wp-json/wp/v2/posts/4?_embed=1",
        "/wp-json/wp/v2/comments?per_page=5",
        "/wp-json/wp/v2/search?search=soup",
        "/wp-json/wp/v2/users/me",
        "/wp-json/wp/v2/nothing",
        "/wp-json/wp/v2/types",
        "/wp-json/wp/v2/product",
        "/?rest_route=/wp/v2/tags",
        "/wp-json/wp/v2/posts?_jsonp=found",
        "/wp-json/oembed/1.0/embed?url=nowhere",
        "/wp-json/wp/v2/block-types?namespace=core",
        "/wp-json/wp/v2/settings",
        "/?nocache=1",
        "/?lang=de&s=soup",
        "/de/",
        "/de/tag/evening/",
        "/de/nowhere/",
        "/?preview=1",
        "/?replytocom=3",
        "/?feed=rss2&tag=evening",
        "/?attachment_id=1",
        "/index.php",
        "/?cat=1",
        "/?author=1",
        "/favicon.ico",
        "/?embed=true",
        "/?error=404",
        "/?utm_source=letter",
    ];
    let german = links.iter().take(3).map(|link| format!("/de{link}"));
    let feeds = links.iter().take(2).map(|link| format!("{link}feed/"));
    let replies = links.iter().take(2).map(|link| format!("{link}?replytocom=5#respond"));
    let all = some.iter().map(|&target| target.to_owned());
    all.chain(links.iter().cloned())
        .chain(german)
        .chain(feeds)
        .chain(replies)
        .map(Step::Get)
        .collect()
}

#[test]
fn a_crawl_of_a_traced_wordpress_finds_what_a_classic_pool_sends() {
    let mut both = Both::start();
    both.discuss();
    let mark = both.boot("'traced'");
    both.copies.expect_log(mark, "the boot ends in init: $_SERVER['REQUEST_URI'] in ");
    let (every, least) = if std::env::var_os(WHOLE).is_some() { (1, 500) } else { (4, 150) };
    let all = both.crawl(every);
    assert!(all.requests >= least, "the crawl has {} requests", all.requests);
    all.is_the_same("traced, with all plugins");

    both.stop();
}

#[test]
fn shorter_crawls_of_other_boots_differ_only_where_the_guide_says_so() {
    let mut both = Both::start();
    both.boot("false");
    both.crawl(9).is_the_same("without plugins in the boot");

    both.boot("true");
    let found = both.crawl(9);
    let (count, all) = (found.differences.len(), found.requests);
    println!("all plugins in the boot: {count} of {all} differ");
    assert!(count > 0, "the crawl does not find what it is for");

    assert_eq!(both.activate(&PATIENT, "&plugins_only=1"), "ready");
    let mark = both.boot("'traced'");
    both.copies.expect_log(mark, "the boot ends in wp_loaded: ");
    both.crawl(9).is_the_same("traced, with patient plugins");
    both.stop();
}
