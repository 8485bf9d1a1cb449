//! WordPress behind the page cache, with the plugin that tells the cache what pages show and what a
//! change touches: visitors get cached pages, users with a session do not, and no change is seen
//! late.

use std::fs;
use std::path::Path;
use std::process::Command;

use maitred_tests::Target;
use maitred_tests::http::{self, Request, Response};
use maitred_tests::picture;
use maitred_tests::project_root;
use maitred_tests::server::{Server, Setup, write_file};
use maitred_tests::session::Session;
use maitred_tests::wait;
use maitred_tests::wordpress::{Files, WordPress};
use serde_json::{Value, json};

/// Where must-use plugins are.
const PLUGINS: &str = "wp-content/mu-plugins";

/// The own code of a site: the address for PURGE, a system cron, a planned event, a list after the
/// start of the page, a private page, and one that is too large to hold back.
const OWN_PLUGIN: &str = "<?php
    define('MAITRED_PURGE_URL', 'ADDRESS/');
    define('DISABLE_WP_CRON', true);
    add_action('soup_is_ready', 'wp_publish_post');
    add_filter('comment_flood_filter', '__return_false', 99);
    add_action('wp_footer', function () {
        if (!is_page()) { return; }
        foreach (get_posts(['numberposts' => 1]) as $post) { echo 'Newest: ', $post->post_title; }
        if (isset($_GET['own'])) { define('DONOTCACHEPAGE', true); }
        if (isset($_GET['large'])) { echo str_repeat('x', 1 << 20); }
    });";

/// What the cache says of an answer, without its times.
fn verdict(answer: &Response) -> String {
    let status = answer.header("Cache-Status").unwrap_or_default();
    let parts = status.split("; ").skip(1);
    let parts = parts.filter(|part| !part.starts_with("ttl=") && !part.starts_with("fwd-status"));
    parts.collect::<Vec<_>>().join(" ")
}

const HIT: &str = "hit";
const STORED: &str = "fwd=uri-miss stored";

fn setup(files: &Files) -> Setup {
    Setup::new(&files.root())
        .workers(4)
        // No page may be larger than 1/64 of it.
        .top("cache_memory = \"256M\"")
        .site("app = \"wordpress\"")
        .site("[sites.cache]")
        .site("valid = \"10m\"")
        .site("stale_if_error = \"1h\"")
        .site("purge_from = \"127.0.0.1\"")
}

/// WordPress, its administrator, and a visitor without a session.
struct Blog {
    server: Server,
    site: WordPress,
    /// Posts by their titles, oldest first: where each is.
    posts: Vec<(u64, String)>,
    /// The category in which all but the first post are: its id and where it is.
    soups: (u64, String),
    /// That of the first.
    salads: (u64, String),
}

impl Blog {
    fn open(files: &Files) -> Blog {
        let folder = project_root().join("integrations/wordpress");
        for file in ["", "/page", "/changes"] {
            let name = format!("maitred-cache{file}.php");
            let plugin = fs::read(folder.join(&name)).expect("the plugin is in the checkout");
            write_file(&files.root(), &format!("{PLUGINS}/{name}"), &plugin);
        }
        let server = setup(files).start();
        let own = OWN_PLUGIN.replace("ADDRESS", &server.base_url());
        write_file(&files.root(), &format!("{PLUGINS}/0-own.php"), own.as_bytes());
        let mut site = WordPress::install(server.address());
        // The installer's rules know no categories.
        site.choose_pretty_permalinks();
        let mut blog = Blog {
            soups: (0, String::new()),
            salads: (0, String::new()),
            server,
            site,
            posts: Vec::new(),
        };
        blog.soups = blog.save("categories", &json!({"name": "Soups"}));
        blog.salads = blog.save("categories", &json!({"name": "Salads"}));
        let first = json!({"date": "2024-05-06T07:00:00", "categories": [blog.salads.0]});
        let hello = blog.save("posts/1", &first);
        blog.posts.push(hello);
        blog.write("Leek soup", &json!({}));
        blog.write("Pea soup", &json!({}));
        blog
    }

    /// Saves something over the REST API; its id and link.
    fn save(&mut self, route: &str, data: &Value) -> (u64, String) {
        let answer = self.site.rest("POST", route, Some(data));
        assert!(answer.status / 100 == 2, "not saved: {}", answer.text());
        let saved = answer.json();
        let link = saved["link"].as_str().expect("a post has a link");
        (saved["id"].as_u64().expect("a post has an id"), self.path(link))
    }

    /// Publishes a post about soup, a minute after the last one.
    fn write(&mut self, title: &str, more: &Value) -> (u64, String) {
        let minute = 10 + self.posts.len();
        let mut data = json!({
            "title": title,
            "content": format!("How to make {title}."),
            "status": "publish",
            "date": format!("2024-05-06T07:{minute}:00"),
            "categories": [self.soups.0],
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            data[name] = value.clone();
        }
        let post = self.save("posts", &data);
        self.posts.push(post.clone());
        post
    }

    fn path(&self, link: &str) -> String {
        let path = link.strip_prefix(&self.server.base_url());
        path.unwrap_or(link).to_owned()
    }

    /// What a stranger gets.
    fn get(&self, target: &str) -> Response {
        Session::new(self.server.address()).get(target)
    }

    /// Has pages kept.
    fn fill(&self, targets: &[&str]) {
        for target in targets {
            self.get(target);
            assert_eq!(verdict(&self.get(target)), HIT, "{target}");
        }
    }

    /// Checks which of some pages were dropped.
    fn expect(&self, dropped: &[&str], kept: &[&str], why: &str) {
        for target in kept {
            assert_eq!(verdict(&self.get(target)), HIT, "{why}: {target}");
        }
        for target in dropped {
            assert_eq!(verdict(&self.get(target)), STORED, "{why}: {target}");
        }
    }
}

fn strangers_get_kept_pages(blog: &Blog) {
    let (_, leek) = &blog.posts[1];
    let soups = blog.soups.1.clone();
    for target in [
        "/",
        leek,
        &soups,
        "/feed/",
        "/comments/feed/",
        "/author/keeper/",
        "/2024/05/",
        "/sample-page/",
        "/wp-sitemap.xml",
        "/robots.txt",
        "/?s=leek",
    ] {
        let first = blog.get(target);
        assert_eq!((first.status, verdict(&first).as_str()), (200, STORED), "{target}");
        let second = blog.get(target);
        assert_eq!(verdict(&second), HIT, "{target}");
        assert_eq!(first.body, second.body, "{target}");
    }
    assert_eq!(verdict(&blog.get("/?utm_source=letter&fbclid=1")), HIT);
    let groups = blog.get(leek);
    let groups = groups.header("Cache-Groups").unwrap_or_default();
    let own = format!("\"wp\", \"wp1\", \"wp1-post-{}\"", blog.posts[1].0);
    assert!(groups.starts_with(&own), "{groups}");
}

fn what_is_for_one_is_made_for_one(blog: &mut Blog) {
    // WordPress does not see where the visitor comes from, and cannot show it to others.
    let (_, pea) = blog.posts[2].clone();
    let sent = blog.get(&format!("{pea}?utm_source=letter"));
    assert_eq!(verdict(&sent), STORED);
    assert!(!sent.text().contains("utm_source"));
    assert_eq!(verdict(&blog.get(&pea)), HIT);
    let missing = blog.get("/2001/01/never-written/");
    assert_eq!((missing.status, verdict(&missing).as_str()), (404, "fwd=uri-miss detail=no-cache"));
    for (target, why) in [
        ("/wp-login.php", "rule"),
        ("/wp-cron.php", "rule"),
        ("/wp-json/wp/v2/posts", "rule"),
        ("/?rest_route=/wp/v2/posts", "rule"),
        ("/wp-admin/", "rule"),
        ("/xmlrpc.php", "rule"),
        ("/index.php/wp-json/wp/v2/posts", "rule"),
    ] {
        for _ in 0..2 {
            assert!(verdict(&blog.get(target)).ends_with(&format!("detail={why}")), "{target}");
        }
    }
    let call = "<methodCall><methodName>system.listMethods</methodName></methodCall>";
    let call = Request::post("/xmlrpc.php", "text/xml", call.as_bytes());
    let answer = http::ask(blog.server.address(), &call.header("Connection", "close"));
    assert!(answer.text().contains("wp.getPosts"), "{}", answer.text());

    // The administrator is the first to see this page, and leaves nothing behind.
    let (_, onion) = blog.write("Onion soup", &json!({}));
    for target in [&*onion, "/"] {
        let own = blog.site.admin().get(target);
        assert_eq!(verdict(&own), "fwd=bypass detail=private-cookie", "{target}");
        assert!(own.text().contains("wpadminbar"));
        let first = blog.get(target);
        assert_eq!(verdict(&first), STORED, "{target}");
        assert!(!first.text().contains("wpadminbar"));
        assert!(blog.site.admin().get(target).text().contains("wpadminbar"));
    }
    let draft = json!({"title": "Not yet", "status": "draft"});
    let (draft, _) = blog.save("posts", &draft);
    let preview = format!("/?p={draft}&preview=true");
    let own = blog.site.admin().get(&preview);
    assert_eq!((own.status, verdict(&own).as_str()), (200, "fwd=bypass detail=private-cookie"));
    let other = blog.get(&preview);
    assert_eq!((other.status, verdict(&other).as_str()), (404, "fwd=uri-miss detail=rule"));
}

/// Posts a comment; where the visitor is sent.
fn comment(visitor: &mut Session, post: u64, text: &str, remember: bool) -> String {
    let post = post.to_string();
    let mut fields = vec![
        ("comment", text),
        ("author", "A guest"),
        ("email", "guest@example.com"),
        ("comment_post_ID", &post),
        ("comment_parent", "0"),
    ];
    fields.extend(remember.then_some(("wp-comment-cookies-consent", "yes")));
    let answer = visitor.post_form("/wp-comments-post.php", &fields);
    assert_eq!(answer.status, 302, "{}", answer.text());
    visitor.target(answer.header("Location").unwrap_or_default())
}

fn a_commenter_sees_what_waits_and_nobody_else_does(blog: &mut Blog) {
    let (post, leek) = blog.posts[1].clone();
    let (_, pea) = blog.posts[2].clone();
    blog.fill(&[&leek, &pea, "/sample-page/"]);
    let mut guest = Session::new(blog.server.address());
    comment(&mut guest, post, "More leek, please.", true);
    assert!(guest.has_cookie("comment_author_"));
    let own = guest.get(&leek);
    assert_eq!(verdict(&own), "fwd=bypass detail=private-cookie");
    assert!(own.text().contains("More leek") && own.text().contains("guest@example.com"));
    let mut shy = Session::new(blog.server.address());
    let sent_to = comment(&mut shy, post, "Less leek, please.", false);
    let own = shy.get(sent_to.split('#').next().unwrap_or_default());
    assert!(own.text().contains("Less leek"), "{sent_to}");
    assert!(verdict(&own).ends_with("detail=rule"), "{}", verdict(&own));
    // The response to the first comment redirected its visitor to this page, which was made
    // again then.
    blog.fill(&[&leek]);
    let other = blog.get(&leek);
    assert!(!other.text().contains("leek, please") && !other.text().contains("guest@"));

    let held = blog.site.rest("GET", "comments&status=hold", None).json();
    let mut held = held.as_array().expect("a list").iter();
    let more = held.find(|held| held["content"]["rendered"].to_string().contains("More leek"));
    let id = more.and_then(|held| held["id"].as_u64());
    blog.site.approve(id.expect("the comment waits"));
    blog.expect(&[&leek], &[&pea, "/sample-page/"], "a comment was approved");
    assert!(blog.get(&leek).text().contains("More leek"));
}

fn a_password_opens_a_post_for_its_reader_alone(blog: &mut Blog) {
    let (_, secret) = blog.write("Secret soup", &json!({"password": "spoon"}));
    blog.fill(&[&secret]);
    let mut reader = Session::new(blog.server.address());
    reader.post_form(
        "/wp-login.php?action=postpass",
        &[("post_password", "spoon"), ("Submit", "Enter")],
    );
    assert!(reader.has_cookie("wp-postpass_"));
    let read = reader.get(&secret);
    assert_eq!(verdict(&read), "fwd=bypass detail=private-cookie");
    assert!(read.text().contains("How to make Secret soup."));
    let other = blog.get(&secret);
    assert_eq!(verdict(&other), HIT);
    assert!(!other.text().contains("How to make"));
}

fn a_new_post_drops_what_lists_it_and_its_neighbours(blog: &mut Blog) {
    let soups = blog.soups.1.clone();
    let salads = blog.salads.1.clone();
    let hello = blog.posts[0].1.clone();
    let leek = blog.posts[1].1.clone();
    let last = blog.posts[blog.posts.len() - 1].1.clone();
    let lists =
        ["/", "/feed/", &soups, "/author/keeper/", "/2024/05/", "/wp-sitemap.xml", "/?s=soup"];
    let others = [&*hello, &leek, &salads, "/robots.txt"];
    // It ends with a list of its own.
    let page = ["/sample-page/", "/sample-page/?large=1"];
    blog.fill(&lists);
    blog.fill(&page);
    blog.fill(&others);
    blog.fill(&[&last]);
    let (id, tomato) = blog.write("Tomato soup", &json!({}));
    blog.expect(&lists, &others, "a post was published");
    blog.expect(&page, &[], "a post was published that is on the page");
    assert!(blog.get(page[0]).text().contains("Newest: Tomato soup"));
    assert_eq!(verdict(&blog.get("/sample-page/?own=1")), "fwd=uri-miss detail=no-store");
    blog.expect(&[&last], &[], "a post was published after it");
    assert!(blog.get("/?s=soup").text().contains("Tomato soup"));
    assert!(blog.get("/feed/").text().contains("Tomato soup"));

    let short = format!("/?p={id}");
    blog.fill(&[&tomato, &short]);
    let renamed = json!({"title": "Cold tomato soup"});
    blog.save(&format!("posts/{id}"), &renamed);
    let own = ["/", &soups, &tomato, &short];
    blog.expect(&own, &others, "a post was renamed");
    assert!(blog.get(&soups).text().contains("Cold tomato soup"));

    // Out of the category: its page has the post no more.
    blog.fill(&["/", &soups, &salads]);
    blog.save(&format!("posts/{id}"), &json!({"categories": [blog.salads.0]}));
    blog.expect(&[&soups, &salads], &[&hello, &leek], "a post has moved");
    assert!(!blog.get(&soups).text().contains("Cold tomato soup"));
}

/// What is changed by a link in the dashboard, by the clock, and on a command line is no answer to
/// a request that changes something.
fn what_no_answer_tells_of_is_dropped_too(blog: &mut Blog, root: &Path) {
    let (id, tomato) = blog.posts[blog.posts.len() - 1].clone();
    let (other_id, pea) = blog.posts[2].clone();
    let (_, leek) = blog.posts[1].clone();
    blog.fill(&["/", &tomato, &leek, &pea]);
    let list = blog.site.admin().get("/wp-admin/edit.php").text();
    let start = format!("post.php?post={id}&amp;action=trash");
    let link = list.find(&start).map(|at| &list[at..]).expect("the post can be trashed");
    let link = link.split(['"', '\'']).next().unwrap_or_default().replace("&amp;", "&");
    assert_eq!(blog.site.admin().get(&format!("/wp-admin/{link}")).status, 302);
    blog.expect(&["/"], &[&leek, &pea], "a post was thrown away");
    assert_eq!(blog.get(&tomato).status, 404);

    let renamed =
        format!("wp_update_post(['ID' => {other_id}, 'post_title' => 'Thick pea soup']);");
    run_php(blog, root, &renamed);
    blog.expect(&["/", &pea], &[&leek], "a post was changed on a command line");
    assert!(blog.get(&pea).text().contains("Thick pea soup"));

    let draft = json!({"title": "Slow soup", "status": "draft"});
    let (draft, _) = blog.save("posts", &draft);
    blog.expect(&[], &["/", &leek, &pea], "a draft was saved");
    // WooCommerce's hooks, and more changes than are listed.
    let stock = format!(
        "do_action('woocommerce_product_set_stock', new class {{ function get_id() {{ \
         return {other_id}; }} }});"
    );
    run_php(blog, root, &stock);
    blog.expect(&["/", &pea], &[&leek], "there is less of it");
    let many =
        "for ($id = 1; $id < 300; $id++) { do_action('woocommerce_update_product', 1000 + $id); }";
    run_php(blog, root, many);
    blog.expect(&["/", &leek, &pea], &[], "more was changed than is listed");
    assert!(!blog.get("/").text().contains("Slow soup"));
    let event = format!("wp_schedule_single_event(time() - 1, 'soup_is_ready', [{draft}]);");
    run_php(blog, root, &event);
    blog.get("/wp-cron.php");
    wait::until_true("a post that was planned to be on the kept front page", || {
        blog.get("/").text().contains("Slow soup")
    });
    blog.expect(&[], &[&leek], "a post was published by the clock");
}

/// Runs code with WordPress on a command line.
fn run_php(blog: &Blog, root: &Path, code: &str) {
    let host = blog.server.address();
    let code = format!(
        "$_SERVER['HTTP_HOST'] = '{host}'; $_SERVER['REMOTE_ADDR'] = '127.0.0.1';
         require 'wp-load.php'; {code}"
    );
    let mut php = Command::new("php");
    let php = php.args(["-r", &code]).current_dir(root).output();
    let php = php.expect("php can be started (apt install php-cli)");
    let said = [php.stdout, php.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(php.status.success() && said.is_empty(), "{said}");
}

fn what_is_on_all_pages_drops_all(blog: &mut Blog) {
    let (_, leek) = blog.posts[1].clone();
    let pages = ["/", &leek, "/sample-page/", "/feed/"];
    let soups = blog.soups.0;
    let term = json!({"name": "Hot soups"});
    let title = json!({"title": "The Soup House"});
    let menu = json!({"title": "Menu", "content": "Soups", "status": "publish"});
    for (route, change) in [
        (format!("categories/{soups}"), term),
        ("settings".to_owned(), title),
        ("users/me".to_owned(), json!({"name": "The Cook"})),
        ("navigation".to_owned(), menu),
    ] {
        blog.fill(&pages);
        let answer = blog.site.rest("POST", &route, Some(&change));
        assert!(answer.status / 100 == 2, "{route}: {}", answer.text());
        blog.expect(&pages, &[], &route);
    }
    assert!(blog.get("/").text().contains("The Soup House"));

    // A picture is on no page yet.
    blog.fill(&["/", &leek]);
    let urls = blog.site.upload("soup.png", &picture::png(320, 240));
    let sent = blog.get(&blog.path(&urls[0]));
    assert_eq!((sent.status, sent.header("Cache-Status")), (200, None));
    blog.expect(&[], &["/", &leek], "a picture was uploaded");
}

/// A theme without blocks, with a menu.
const CLASSIC_THEME: &str = "<?php wp_head(); wp_nav_menu(['theme_location' => 'main']);
    while (have_posts()) { the_post(); the_title(); the_content(); }
    wp_footer();";

/// The menu in each page shows titles and addresses of pages as they are.
fn what_is_in_a_classic_menu_is_dropped(blog: &mut Blog, root: &Path) {
    let folder = "wp-content/themes/classic";
    let functions = "<?php register_nav_menus(['main' => 'Main']);";
    let theme = [("style.css", ""), ("functions.php", functions), ("index.php", CLASSIC_THEME)];
    for (name, text) in theme {
        write_file(root, &format!("{folder}/{name}"), text.as_bytes());
    }
    let page = |title: &str| json!({"title": title, "status": "publish"});
    let kitchen = blog.save("pages", &page("Kitchen")).0;
    let spoons = json!({"title": "Spoons", "status": "publish", "parent": kitchen});
    let spoons = blog.save("pages", &spoons).0;
    let menu = format!(
        "$menu = wp_create_nav_menu('Main');
         wp_update_nav_menu_item($menu, 0, ['menu-item-object-id' => {spoons},
             'menu-item-object' => 'page', 'menu-item-type' => 'post_type',
             'menu-item-status' => 'publish']);
         switch_theme('classic');
         set_theme_mod('nav_menu_locations', ['main' => $menu]);"
    );
    run_php(blog, root, &menu);
    // The first requests with a new theme change its options.
    wait::until_true("the theme to be complete", || verdict(&blog.get("/")) == HIT);
    let (_, leek) = blog.posts[1].clone();
    let pages = ["/", &leek];
    let spoons = format!("pages/{spoons}");
    let kitchen = format!("pages/{kitchen}");
    for (route, change, shown) in [
        (&spoons, json!({"title": "Ladles"}), ">Ladles<"),
        (&spoons, json!({"slug": "ladles"}), "/kitchen/ladles/"),
        (&kitchen, json!({"slug": "cellar"}), "/cellar/ladles/"),
    ] {
        blog.fill(&pages);
        blog.save(route, &change);
        blog.expect(&pages, &[], shown);
        assert!(blog.get(&leek).text().contains(shown), "{shown}");
    }
    for (method, route, is_shown) in [("DELETE", spoons.as_str(), false), ("POST", &spoons, true)] {
        blog.fill(&pages);
        let status = is_shown.then(|| json!({"status": "publish"}));
        let answer = blog.site.rest(method, route, status.as_ref());
        assert!(answer.status / 100 == 2, "{}", answer.text());
        blog.expect(&pages, &[], method);
        assert_eq!(blog.get(&leek).text().contains(">Ladles<"), is_shown, "{method}");
    }
}

/// The same site at a server whose PHP has no function to purge with, as php-fpm has none.
fn answers_say_what_is_dropped_where_php_has_no_function(mut blog: Blog, files: &Files) -> Blog {
    let address = blog.server.address();
    blog.server.stop();
    let functions = "php_admin_value = { disable_functions = \"maitred_cache_purge_tags\" }";
    blog.server = setup(files).at(address).pool(functions).start();
    let (id, leek) = blog.posts[1].clone();
    let (_, pea) = blog.posts[2].clone();
    blog.fill(&["/", &leek, &pea]);
    let renamed = Some(json!({"title": "Last leek soup"}));
    let answer = blog.site.rest("POST", &format!("posts/{id}"), renamed.as_ref());
    let said = answer.header("Cache-Group-Invalidation").unwrap_or_default();
    assert!(said.contains(&format!("\"wp1-post-{id}\"")), "{said}");
    blog.expect(&["/", &leek], &[&pea], "a post was renamed");
    blog
}

/// WordPress has no domains with a port, which servers of tests have.
const ANY_DOMAIN: &str = "add_filter('sanitize_user', fn($name, $raw) => $raw, 10, 2);";

/// Makes the site the first of a network and adds one that its author writes for; where that is.
fn make_network(blog: &Blog, root: &Path) -> &'static str {
    let host = blog.server.address();
    let first = format!(
        "require ABSPATH . 'wp-admin/includes/upgrade.php';
         foreach ($wpdb->tables('ms_global') as $table => $name) $wpdb->$table = $name;
         install_network();
         populate_network(1, '{host}', 'keeper@example.com', 'Soups', '/', false);"
    );
    run_php(blog, root, &first);
    let file = root.join("wp-config.php");
    let config = fs::read_to_string(&file).expect("it can be read");
    let network = format!(
        "<?php define('MULTISITE', true); define('SUBDOMAIN_INSTALL', false);
         define('DOMAIN_CURRENT_SITE', '{host}'); define('PATH_CURRENT_SITE', '/');
         define('SITE_ID_CURRENT_SITE', 1); define('BLOG_ID_CURRENT_SITE', 1);"
    );
    fs::write(file, config.replacen("<?php", &network, 1)).expect("it can be written");
    let second = format!(
        "{ANY_DOMAIN} $id = wp_insert_site(['domain' => '{host}', 'path' => '/two/',
             'network_id' => 1, 'user_id' => 1, 'title' => 'Two']);
         if ($id !== 2) var_dump($id);"
    );
    run_php(blog, root, &second);
    "/two/"
}

/// Sites of a network share users, plugins and themes.
fn what_a_network_shares_drops_the_pages_of_all_its_sites(mut blog: Blog, files: &Files) {
    let address = blog.server.address();
    blog.server.stop();
    blog.server = setup(files).at(address).start();
    let root = files.root();
    let two = make_network(&blog, &root);
    write_file(&root, "wp-content/plugins/soup.php", b"<?php /* Plugin Name: Soup */");
    wait::until_true("the second site to be complete", || verdict(&blog.get(two)) == HIT);
    assert!(blog.get(two).header("Cache-Groups").unwrap_or_default().contains("\"wp2\""));
    let plugins = "require_once ABSPATH . 'wp-admin/includes/plugin.php';";
    for (code, is_first_dropped) in [
        ("wp_installing(true); do_action('upgrader_process_complete', null, []);".to_owned(), true),
        (format!("{plugins} activate_plugin('soup.php', '', true);"), true),
        (format!("{plugins} deactivate_plugins(['soup.php'], true, true);"), true),
        ("wp_update_user(['ID' => 1, 'display_name' => 'Soup Cook']);".to_owned(), true),
        ("update_blog_status(2, 'last_updated', '2024-01-01 00:00:00');".to_owned(), false),
        ("update_blog_status(2, 'archived', '1');".to_owned(), false),
    ] {
        blog.fill(&["/", two]);
        run_php(&blog, &root, &format!("{ANY_DOMAIN} {code}"));
        let is_hit = |target| verdict(&blog.get(target)) == HIT;
        assert_eq!(is_hit("/"), !is_first_dropped, "{code}");
        assert_eq!(is_hit(two), code.contains("last_updated"), "{code}");
    }
    assert_eq!(blog.get(two).status, 410);
    blog.server.stop();
}

#[test]
fn wordpress_is_cached_for_strangers_and_nobody_sees_a_change_late() {
    let files = Files::prepare();
    let mut blog = Blog::open(&files);
    strangers_get_kept_pages(&blog);
    what_is_for_one_is_made_for_one(&mut blog);
    a_commenter_sees_what_waits_and_nobody_else_does(&mut blog);
    a_password_opens_a_post_for_its_reader_alone(&mut blog);
    a_new_post_drops_what_lists_it_and_its_neighbours(&mut blog);
    what_no_answer_tells_of_is_dropped_too(&mut blog, &files.root());
    what_is_on_all_pages_drops_all(&mut blog);
    what_is_in_a_classic_menu_is_dropped(&mut blog, &files.root());
    let blog = answers_say_what_is_dropped_where_php_has_no_function(blog, &files);
    what_a_network_shares_drops_the_pages_of_all_its_sites(blog, &files);
}
